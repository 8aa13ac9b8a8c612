//! The scheduler without a cluster: files in, decisions out.
//!
//! The same engine as on a cluster, in virtual time. Guarantees: the same input gives the same result; an object that
//! can't be used is skipped and named, a file that can't be read ends the run. Knows nothing about rendering.

mod archive;
pub mod bindings;
pub mod cluster;
pub mod forecast;
pub mod input;
pub mod objects;
pub mod result;
pub mod scenario;
mod yaml;

use berth_engine::facts::ObjectKey;
use berth_engine::policy::{NodeStrategy, Objective, Policy};

use crate::cluster::pool::NodePool;

/// Choices of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Pods with this `schedulerName` are placed.
    pub scheduler_name: String,
    /// Topology of gangs that name none.
    pub default_topology: Option<String>,
    /// Objective of gangs that name none.
    pub objective: Objective,
    /// How pods that ask for GPUs fill nodes.
    pub gpu_strategy: NodeStrategy,
    /// How other pods do.
    pub cpu_strategy: NodeStrategy,
    /// The ConfigMap with the defaults of kinds.
    pub defaults_map: Option<ObjectKey>,
    /// Turn every deliberate difference from KAI Scheduler off.
    pub compat_kai: bool,
    /// The nodes, queues and PodGroups that are seen.
    pub node_pool: NodePool,
}

impl Options {
    /// The scheduler's documented defaults.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            scheduler_name: "kai-scheduler".to_owned(),
            default_topology: None,
            objective: Objective::Kai,
            gpu_strategy: NodeStrategy::Pack,
            cpu_strategy: NodeStrategy::Pack,
            defaults_map: None,
            compat_kai: false,
            node_pool: NodePool::all(),
        }
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy {
            default_topology: self.default_topology.clone(),
            objective: self.objective,
            gpu_strategy: self.gpu_strategy,
            cpu_strategy: self.cpu_strategy,
            compat_kai: self.compat_kai,
            ..Policy::standard()
        }
    }
}

/// Why a run can't begin: names file, document and field.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
#[error("{file}{}{}: {message}", at(" document ", .document), at(" ", .field))]
pub struct InputError {
    /// The file as it was given, or `-`.
    pub file: String,
    /// The document in it, from 1; empty when the file as a whole is meant.
    pub document: String,
    /// Where in the document: a field's path, or line and column.
    pub field: String,
    /// What is wrong.
    pub message: String,
}

fn at(prefix: &str, text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("{prefix}{text}")
    }
}
