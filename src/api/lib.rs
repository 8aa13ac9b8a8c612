//! Custom resource types, label and annotation keys, quantities and durations.
//!
//! What Berth shares with KAI Scheduler: the same groups, versions and field names, so that manifests and objects of
//! either work with the other. Guarantees: every number that a decision can depend on is parsed exactly, in integers, and
//! fails with an error that names the text and what is allowed. Knows nothing about the engine, a client or a cluster.

pub mod amount;
pub mod core_group;
pub mod crds;
mod decimal;
pub mod duration;
pub mod grouping_rule;
pub mod keys;
pub mod max_domains;
pub mod pod_group;
pub mod quantity;
pub mod queue;
mod schema;
pub mod topology;

pub use amount::{Amount, AmountError, Bound};
pub use core_group::CorePodGroupSpec;
pub use crds::{crds, crds_yaml};
pub use duration::{DurationError, parse_duration_millis};
pub use grouping_rule::{GroupingRule, GroupingRuleSpec};
pub use max_domains::parse_max_domains;
pub use pod_group::{PodGroup, PodGroupSpec, PodGroupStatus};
pub use quantity::{QuantityError, parse_millis, parse_units, parse_units_floor};
pub use queue::{Queue, QueueSpec, QueueStatus};
pub use topology::{Topology, TopologySpec};
