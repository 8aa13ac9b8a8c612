//! A cluster at one moment, as answers need it: made of files, or lent by the running scheduler. Renderers read this and
//! know nothing of where it came from.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_engine::facts::{Millis, ObjectKey};
use berth_engine::outcome::{Cause, Decision, Eviction, GangReport, GangState};
use berth_engine::policy::Policy;
use berth_engine::world::World;

use crate::explain;

/// A decision that was taken, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// UID of the gang.
    pub gang_uid: String,
    /// Namespace and name of the gang.
    pub gang: ObjectKey,
    /// Pods that were given a node.
    pub pods: usize,
    /// The nodes.
    pub nodes: BTreeSet<String>,
    /// When.
    pub at: Millis,
}

impl Placed {
    /// A decision of this moment.
    #[must_use]
    pub fn of(decision: &Decision, at: Millis) -> Self {
        Self {
            gang_uid: decision.gang_uid.clone(),
            gang: decision.gang.clone(),
            pods: decision.placements.len(),
            nodes: decision.placements.iter().map(|placement| placement.node.clone()).collect(),
            at,
        }
    }
}

/// Pods of a gang that were evicted, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// UID of their gang.
    pub gang_uid: String,
    /// Namespace and name of the gang.
    pub gang: ObjectKey,
    /// Names of the pods.
    pub pods: Vec<String>,
    /// Why.
    pub why: String,
    /// The gang that they made room for.
    pub by: Option<ObjectKey>,
}

impl Gone {
    /// An eviction.
    #[must_use]
    pub fn of(eviction: &Eviction) -> Self {
        Self {
            gang_uid: eviction.gang_uid.clone(),
            gang: eviction.gang.clone(),
            pods: eviction.pods.iter().map(|victim| victim.pod.name.clone()).collect(),
            why: explain::eviction(eviction),
            by: match &eviction.cause {
                Cause::Room(room) => Some(room.by.clone()),
                Cause::Stale(_) => None,
            },
        }
    }
}

/// The model, what decisions depend on, and what was decided lately.
#[derive(Clone, Debug)]
pub struct Moment<'a> {
    /// The model.
    pub world: &'a World,
    /// The choices that decisions depend on.
    pub policy: Policy,
    /// When it is.
    pub now: Millis,
    /// Decisions, the earliest first.
    pub placed: Vec<Arc<Placed>>,
    /// Evictions, the earliest first.
    pub gone: Vec<Arc<Gone>>,
}

/// True for the gang of an object: its PodGroup, the workload that the user wrote, or one of its pods.
#[must_use]
pub fn is_meant(world: &World, gang: &GangReport, namespace: &str, kind: &str, name: &str) -> bool {
    if gang.key.namespace != namespace {
        return false;
    }
    match kind.to_lowercase().as_str() {
        "podgroup" => gang.key.name == name,
        "pod" => world.ranks(&gang.uid).iter().any(|rank| rank.pod.name == name),
        kind => gang.owner.split_once('/').is_some_and(|(own, other)| own.to_lowercase() == kind && other == name),
    }
}

/// True when a pod of the gang has no place yet.
#[must_use]
pub fn waits(gang: &GangReport) -> bool {
    gang.state != GangState::Done && (!gang.reasons.is_empty() || gang.bound < gang.pods)
}
