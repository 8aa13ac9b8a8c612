//! The seam between raw objects and facts: what the store asks of `convert` and `grouping`.
//!
//! The store is generic over [`Lowering`] so that its tests need neither.

use std::collections::BTreeMap;

use berth_engine::facts::{GangFacts, NodeFacts, PodFacts, QueueFacts, TopologyFacts};
use serde_json::Value;

/// An object that can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// The field, as a path.
    pub field: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// The gang of a pod, derived from its owners.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouped {
    /// The gang; its UID and creation time are the store's.
    pub gang: GangFacts,
    /// The PodGroup to keep in the API.
    pub manifest: Value,
    /// The pod's leaf subgroup.
    pub subgroup: Option<String>,
    /// The pod's rank.
    pub index: Option<u32>,
    /// The pod goes first.
    pub leader: bool,
}

/// PriorityClass values by name, and the global default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Priorities {
    /// Value by class name.
    pub by_name: BTreeMap<String, i32>,
    /// Value of the class marked `globalDefault`.
    pub global_default: Option<i32>,
}

/// Raw objects to facts.
pub trait Lowering: Send {
    /// A node.
    fn node(&self, raw: &Value) -> Result<NodeFacts, Bad>;
    /// A pod; its gang only as far as its own metadata says.
    fn pod(&self, raw: &Value) -> Result<PodFacts, Bad>;
    /// A queue.
    fn queue(&self, raw: &Value) -> Result<QueueFacts, Bad>;
    /// A topology.
    fn topology(&self, raw: &Value) -> Result<TopologyFacts, Bad>;
    /// A PodGroup as written.
    fn pod_group(&self, raw: &Value, priorities: &Priorities) -> Result<GangFacts, Bad>;
    /// The gang of a pod from its owners, nearest first; `None` when it has none of its own
    /// (a hand-written group by annotation, or grouping is switched off for it).
    fn group(&self, pod: &Value, owners: &[&Value], priorities: &Priorities) -> Result<Option<Grouped>, Bad>;
}
