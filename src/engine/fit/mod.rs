//! Which nodes a shape may use, and how many copies fit: one file per rule.
//!
//! `refusal` covers the rules that do not depend on what the node holds;
//! `slots` is the largest number of copies that fit on top of what it holds
//! (placement.md section 1: an oracle, not a division).

mod conditions;
mod host_ports;
mod node_affinity;
pub(crate) mod pod_affinity;
mod resources;
pub mod selectors;
pub(crate) mod spread;
pub mod tallies;
mod taints;
pub mod volumes;

use crate::facts::{NodeFacts, ShapeFacts};
use crate::outcome::Rule;
use crate::rooms::Shape;
use crate::world::model::Room;

pub use host_ports::ports_conflict;
pub(crate) use node_affinity::term_matches;
pub use resources::{is_gpu, offers_gpus};
pub use taints::tolerates;

/// The first rule, room aside, by which this node refuses the shape.
#[must_use]
pub fn refusal(node: &NodeFacts, shape: &ShapeFacts) -> Option<Rule> {
    conditions::refusal(node, shape)
        .or_else(|| node_affinity::refusal(node, shape))
        .or_else(|| taints::refusal(node, shape))
}

/// Copies that fit in a room.
#[must_use]
pub fn slots(room: &Room, shape: &Shape) -> u32 {
    resources::slots(room, shape).min(host_ports::slots(room, shape))
}

/// Why no copy fits in a room that passes the other rules.
#[must_use]
pub fn shortage(room: &Room, shape: &Shape, names: &[String]) -> Option<Rule> {
    resources::shortage(room, shape, names).or_else(|| host_ports::shortage(room, shape))
}

/// Cost of the soft rules for one pod of the shape on this node; smaller is better.
///
/// Integers, not normalised over candidates (placement.md section 3, line 5):
/// the weights of preferred terms that do not match, ten for each untolerated
/// `PreferNoSchedule` taint, and one for a pod without GPUs on a GPU node
/// (KAI's resource type rule).
#[must_use]
pub fn soft_cost(node: &NodeFacts, shape: &ShapeFacts) -> u32 {
    let total = node_affinity::cost(node, shape) + taints::cost(node, shape) + resources::cost(node, shape);
    u32::try_from(total).unwrap_or(u32::MAX).min(MAX_SOFT_COST)
}

/// Bound of one pod's soft cost, so that sums stay small integers: 100 preferred
/// terms of weight 100 are more than any pod in the field carries.
pub const MAX_SOFT_COST: u32 = 10_000;
