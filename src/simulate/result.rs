//! What a run ended with: pods, gangs, reasons, in a stable order.

use std::collections::BTreeMap;

use berth_engine::outcome::{Eviction, GangReport, GangState, PodState};

use super::cluster::Cluster;
use super::objects::{Skipped, text};

/// One pod that this scheduler places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodResult {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its gang's name; empty when it has none.
    pub gang: String,
    /// Its leaf subgroup.
    pub subgroup: String,
    /// State.
    pub state: PodState,
    /// The node, once it has one.
    pub node: Option<String>,
    /// By topology, the value of each level of the node.
    pub domains: BTreeMap<String, Vec<(String, String)>>,
}

/// Everything a run ended with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulationResult {
    /// Pods by namespace and name.
    pub pods: Vec<PodResult>,
    /// Gangs by namespace and name.
    pub gangs: Vec<GangReport>,
    /// Evictions in the order they were decided.
    pub evictions: Vec<Eviction>,
    /// Objects of kinds that play no part.
    pub ignored: Vec<String>,
    /// Objects that could not be used.
    pub skipped: Vec<Skipped>,
    /// Pending pods that wait for another scheduler.
    pub foreign_pending: usize,
    /// Search steps, events, microseconds in the engine.
    pub stats: (u64, u64, u128),
}

impl SimulationResult {
    /// Reads the end state of a cluster.
    #[must_use]
    pub fn of(cluster: &Cluster) -> Self {
        let mut pods = Vec::new();
        let mut foreign_pending = 0;
        for (id, stored) in cluster.pods() {
            if !cluster.is_ours(&stored.value) {
                foreign_pending += usize::from(text(&stored.value, "/spec/nodeName").is_empty());
                continue;
            }
            if cluster.is_outside(&id.namespace, &cluster.membership(&stored.uid).0) {
                continue;
            }
            let Some((state, node)) = cluster.world.pod_state(&stored.uid) else {
                continue;
            };
            if state == PodState::Done {
                continue;
            }
            let (gang, subgroup) = cluster.membership(&stored.uid);
            pods.push(PodResult {
                namespace: id.namespace.clone(),
                name: id.name.clone(),
                gang,
                subgroup,
                state,
                domains: node
                    .as_deref()
                    .map(|node| cluster.world.domains_of_node(node).into_iter().collect())
                    .unwrap_or_default(),
                node,
            });
        }
        Self {
            pods,
            gangs: cluster.world.gang_reports(),
            evictions: cluster.evictions.clone(),
            ignored: cluster.ignored.iter().cloned().collect(),
            skipped: cluster.skipped.iter().cloned().collect(),
            foreign_pending,
            stats: (cluster.steps, cluster.events, cluster.solve_micros),
        }
    }

    /// Pods that were evicted.
    #[must_use]
    pub fn evicted(&self) -> usize {
        self.evictions.iter().map(|eviction| eviction.pods.len()).sum()
    }

    /// Pods that have a node.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.pods.iter().filter(|pod| pod.node.is_some()).count()
    }

    /// Pods that wait, gated ones included.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pods.len() - self.bound()
    }

    /// Gangs whose minimum has places.
    #[must_use]
    pub fn gangs_placed(&self) -> usize {
        self.gangs.iter().filter(|gang| gang.state == GangState::Placed).count()
    }

    /// Gangs whose pods have all ended.
    #[must_use]
    pub fn gangs_done(&self) -> usize {
        self.gangs.iter().filter(|gang| gang.state == GangState::Done).count()
    }

    /// Gangs below their minimum.
    #[must_use]
    pub fn gangs_pending(&self) -> usize {
        self.gangs.len() - self.gangs_placed() - self.gangs_done()
    }

    /// True when nothing waits.
    #[must_use]
    pub fn all_placed(&self) -> bool {
        self.pending() == 0 && self.gangs_pending() == 0
    }
}
