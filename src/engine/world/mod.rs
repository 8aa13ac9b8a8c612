//! The model: nodes, pods, gangs, queues and topologies, kept up to date event by event.

use crate::facts::{Event, Millis};
use crate::outcome::{DomainPath, GangReport, PodState};

/// The model of one cluster.
#[derive(Debug, Default)]
pub struct World {}

/// An event that could not be used as it is; the rest of the world goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The object, such as `Topology/t`.
    pub object: String,
    /// Field.
    pub field: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// Capacity of one domain, for `tree` and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainCapacity {
    /// The path.
    pub path: DomainPath,
    /// Nodes below.
    pub nodes: u32,
    /// GPUs: allocatable, used.
    pub gpus: i64,
    /// GPUs in use.
    pub gpus_used: i64,
}

impl World {
    /// An empty world.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Applies one event. A rejected event leaves the model as it was.
    pub fn apply(&mut self, _event: Event, _now: Millis) -> Result<(), Rejected> {
        Ok(())
    }
    /// Reports of every gang, by namespace and name.
    #[must_use]
    pub fn gang_reports(&self) -> Vec<GangReport> {
        Vec::new()
    }
    /// Report of one gang by UID.
    #[must_use]
    pub fn gang_report(&self, _uid: &str) -> Option<GangReport> {
        None
    }
    /// State of a pod by UID, with its node's name.
    #[must_use]
    pub fn pod_state(&self, _uid: &str) -> Option<(PodState, Option<String>)> {
        None
    }
    /// Domain paths of a node (by name): topology name and (label, value) list, by topology name.
    #[must_use]
    pub fn domains_of_node(&self, _node: &str) -> Vec<(String, DomainPath)> {
        Vec::new()
    }
    /// Capacity of every domain of a topology, in depth-first order.
    #[must_use]
    pub fn domain_capacities(&self, _topology: &str) -> Vec<DomainCapacity> {
        Vec::new()
    }
    /// The events that rebuild this world.
    #[must_use]
    pub fn export(&self) -> Vec<Event> {
        Vec::new()
    }
}
