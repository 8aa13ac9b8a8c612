//! Read-only answers about the world for the edges.

use std::collections::BTreeSet;

use crate::facts::{Millis, ObjectKey};
use crate::ids::{GangIdx, NodeIdx, TreeIdx};
use crate::outcome::{DomainPath, GangReport, GangState, PodState};
use crate::place::Solver;
use crate::policy::Policy;
use crate::world::life::reached;
use crate::world::model::{Gang, PlaceState, Pod};
use crate::world::{DomainCapacity, Rank, World};

impl World {
    /// Reports of every gang, by namespace and name.
    #[must_use]
    pub fn gang_reports(&self) -> Vec<GangReport> {
        self.gang_by_key.values().filter_map(|idx| self.report(*idx)).collect()
    }

    /// Report of one gang by UID.
    #[must_use]
    pub fn gang_report(&self, uid: &str) -> Option<GangReport> {
        self.gang_by_uid.get(uid).and_then(|idx| self.report(*idx))
    }

    /// A gang by UID.
    pub(crate) fn gang_by_uid(&self, uid: &str) -> Option<&Gang> {
        self.gang_by_uid.get(uid).and_then(|idx| self.gangs[idx.at()].as_ref())
    }

    /// State of a gang.
    pub(crate) fn state_of(&self, idx: GangIdx) -> Option<GangState> {
        let gang = self.gangs[idx.at()].as_ref()?;
        let mut members = self.gang_pods(&gang.facts.key).map(|(_, pod)| pod).peekable();
        let some = members.peek().is_some();
        let (mut is_done, mut bound) = (some, 0);
        for pod in members {
            is_done &= pod.over() && !pod.evicting;
            bound += u32::from(pod.live() && pod.node.is_some());
        }
        let satisfied = reached(gang, 0, &self.standing(gang).placed);
        Some(if is_done {
            GangState::Done
        } else if satisfied && (bound > 0 || gang_min(gang, 0) == 0) {
            GangState::Placed
        } else if bound > 0 {
            GangState::Partial
        } else {
            GangState::Pending
        })
    }

    fn report(&self, idx: GangIdx) -> Option<GangReport> {
        let gang = self.gangs[idx.at()].as_ref()?;
        let state = self.state_of(idx)?;
        let pods: Vec<&Pod> = self.gang_pods(&gang.facts.key).map(|(_, pod)| pod).filter(|pod| pod.live()).collect();
        let bound = pods.iter().filter(|pod| pod.node.is_some()).count() as u32;
        Some(GangReport {
            uid: gang.facts.uid.clone(),
            key: gang.facts.key.clone(),
            owner: gang.facts.owner.clone(),
            queue: gang.facts.queue.clone(),
            state,
            min_member: gang_min(gang, 0),
            pods: pods.len() as u32,
            bound,
            quality: gang.quality.clone().filter(|_| state != GangState::Pending),
            reasons: gang.reasons.clone(),
            promised: self.promised_places(gang),
            stale: self.stale_state(gang),
            preemptible: gang.facts.preemptible,
            allocated: self.amounts_of(&gang.usage.allocated),
            requested: self.amounts_of(&gang.usage.requested),
            warnings: gang.facts.warnings.clone(),
        })
    }

    /// The gang of a pod.
    pub(crate) fn gang_idx_of(&self, pod: &crate::facts::PodFacts) -> Option<GangIdx> {
        self.gang_by_key.get(&crate::world::apply::gang_key(pod)?).copied()
    }

    /// When a gang was created.
    #[must_use]
    pub fn gang_created(&self, uid: &str) -> Option<Millis> {
        Some(self.gang_by_uid(uid)?.facts.created)
    }

    /// GPUs that a pod asks for, in thousandths.
    #[must_use]
    pub fn gpu_millis_of_pod(&self, uid: &str) -> i64 {
        let pod = self.pod_by_uid.get(uid).and_then(|pod| self.pods[pod.at()].as_ref());
        pod.map_or(0, |pod| self.charge_of(&pod.requests)[0])
    }

    /// State of a pod by UID, with its node's name.
    #[must_use]
    pub fn pod_state(&self, uid: &str) -> Option<(PodState, Option<String>)> {
        let pod = self.pods[self.pod_by_uid.get(uid)?.at()].as_ref()?;
        let state = match (pod.over(), &pod.node, pod.place) {
            (true, ..) => PodState::Done,
            (_, Some(_), PlaceState::Running) => PodState::Running,
            (_, Some(_), _) => PodState::Bound,
            (_, None, _) if pod.facts.gated => PodState::Gated,
            (_, None, _) => PodState::Pending,
        };
        Some((state, pod.node.clone()))
    }

    /// UID of the gang of a pod.
    #[must_use]
    pub fn gang_of_pod(&self, uid: &str) -> Option<String> {
        let pod = self.pods[self.pod_by_uid.get(uid)?.at()].as_ref()?;
        let gang = self.gang_by_key.get(&crate::world::apply::gang_key(&pod.facts)?)?;
        Some(self.gangs[gang.at()].as_ref()?.facts.uid.clone())
    }

    /// Nodes that could take this pod alone now, by name: every rule of a node counts, queues and topology do not.
    /// `None` for a pod that is not known.
    pub fn feasible_nodes(&mut self, uid: &str) -> Option<BTreeSet<String>> {
        let shape = self.pods[self.pod_by_uid.get(uid)?.at()].as_ref()?.shape;
        self.refresh_trees();
        let mut rooms = std::mem::take(&mut self.rooms);
        let policy = Policy::standard();
        Solver::new(self, &mut rooms, &policy).ready(shape, TreeIdx(0));
        let nodes = self.nodes.iter().enumerate().filter(|(at, _)| rooms.node_slots(shape, NodeIdx(*at as u32)) > 0);
        let nodes = nodes.filter_map(|(_, node)| Some(node.as_ref()?.facts.name.clone())).collect();
        self.rooms = rooms;
        Some(nodes)
    }

    /// UID of the gang of a live pod that has a place, and the place: what `bound` counts.
    #[must_use]
    pub fn live_place(&self, uid: &str) -> Option<(String, String)> {
        let pod = self.pods[self.pod_by_uid.get(uid)?.at()].as_ref().filter(|pod| pod.live())?;
        let gang = self.gang_by_key.get(&crate::world::apply::gang_key(&pod.facts)?)?;
        let gang = self.gangs[gang.at()].as_ref()?;
        Some((gang.facts.uid.clone(), pod.node.clone()?))
    }

    /// Live members of a gang in rank order: leaders first, then by index; where roles count on their own, role by role
    /// in declared order.
    #[must_use]
    pub fn ranks(&self, uid: &str) -> Vec<Rank> {
        let Some(gang) = self.gang_by_uid(uid) else { return Vec::new() };
        let mut members: Vec<&Pod> =
            self.gang_pods(&gang.facts.key).map(|(_, pod)| pod).filter(|pod| pod.live()).collect();
        let mut seen = BTreeSet::new();
        let indexed = members.iter().filter(|pod| !pod.facts.leader);
        let one_count = indexed.into_iter().all(|pod| pod.facts.index.is_some_and(|index| seen.insert(index)));
        let role = |pod: &Pod| if one_count { None } else { gang.leaf(pod.facts.subgroup.as_deref()) };
        members.sort_by_cached_key(|pod| {
            let facts = &pod.facts;
            (role(pod), !facts.leader, facts.index.unwrap_or(u32::MAX), facts.created, facts.name.clone())
        });
        let rank = |pod: &Pod| Rank {
            pod: ObjectKey::new(pod.facts.namespace.clone(), pod.facts.name.clone()),
            subgroup: pod.facts.subgroup.clone().unwrap_or_default(),
            index: pod.facts.index,
            node: pod.node.clone(),
        };
        members.into_iter().map(rank).collect()
    }

    /// The topology that a gang's places are told in: the one it was placed on, else its own, else the default one.
    #[must_use]
    pub fn topology_of_gang(&self, uid: &str, default: Option<&str>) -> Option<String> {
        let gang = self.gang_by_uid(uid)?;
        let placed_on = gang.quality.as_ref().map(|quality| &quality.topology);
        let written = gang.subs.iter().filter_map(|sub| sub.constraint.topology.as_ref());
        let named = placed_on.into_iter().chain(written).find(|name| self.tree_by_topology.contains_key(*name));
        named.cloned().or_else(|| self.default_topology(default).map(str::to_owned))
    }

    /// True when a node of this name is known.
    #[must_use]
    pub fn has_node(&self, name: &str) -> bool {
        self.node_by_name.contains_key(name)
    }

    /// Names of all nodes, in order.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.node_by_name.keys().map(String::as_str)
    }

    /// Domain paths of a node (by name): topology name and (label, value) list, by topology name.
    #[must_use]
    pub fn domains_of_node(&self, node: &str) -> Vec<(String, DomainPath)> {
        let Some(idx) = self.node_by_name.get(node) else { return Vec::new() };
        self.tree_by_topology
            .iter()
            .filter_map(|(name, tree)| {
                let tree = &self.trees[tree.at()];
                let position = tree.position(*idx)?;
                Some((name.clone(), tree.path(tree.leaf_at(position))))
            })
            .collect()
    }

    /// Labels of every topology's levels, widest first, by topology name.
    #[must_use]
    pub fn levels(&self) -> Vec<(String, Vec<String>)> {
        let labels = |facts: &crate::facts::TopologyFacts| facts.levels.iter().map(|level| level.label.clone()).collect();
        self.topologies.iter().map(|(name, facts)| (name.clone(), labels(facts))).collect()
    }

    /// The topology of those that name none, when there is one.
    #[must_use]
    pub fn default_topology_name(&self) -> Option<String> {
        self.default_topology(None).map(str::to_owned)
    }

    /// Names of the nodes that are meant by a node's name, or by a label's value, alone or as `label=value`.
    #[must_use]
    pub fn nodes_meant(&self, text: &str) -> Vec<String> {
        if self.node_by_name.contains_key(text) {
            return vec![text.to_owned()];
        }
        let levels: BTreeSet<&str> = self.topologies.values().flat_map(|facts| &facts.levels).map(|level| level.label.as_str()).collect();
        let meant = |labels: &std::collections::BTreeMap<String, String>| match text.split_once('=') {
            Some((key, value)) => labels.get(key).is_some_and(|own| own == value),
            None => labels.iter().any(|(key, value)| value == text && levels.contains(key.as_str())),
        };
        let nodes = self.node_by_name.values().filter_map(|idx| self.nodes[idx.at()].as_ref());
        nodes.filter(|node| meant(&node.facts.labels)).map(|node| node.facts.name.clone()).collect()
    }

    /// Capacity of every domain of a topology, in depth-first order.
    #[must_use]
    pub fn domain_capacities(&self, topology: &str) -> Vec<DomainCapacity> {
        let Some(tree) = self.tree_by_topology.get(topology) else { return Vec::new() };
        let tree = &self.trees[tree.at()];
        let is_gpu: Vec<bool> = self.columns.iter().map(|name| crate::fit::is_gpu(name)).collect();
        let gpus = |row: &[i64]| -> i64 {
            row.iter().zip(&is_gpu).filter(|(_, gpu)| **gpu).map(|(amount, _)| *amount).sum()
        };
        (0..tree.domains.len() as u32)
            .map(crate::ids::DomainIdx)
            .map(|domain| {
                let nodes: Vec<_> = tree
                    .positions(domain)
                    .filter_map(|at| self.nodes[tree.order[at].at()].as_ref())
                    .collect();
                DomainCapacity {
                    path: tree.path(domain),
                    nodes: nodes.len() as u32,
                    gpus: nodes.iter().map(|node| gpus(&node.allocatable)).sum(),
                    gpus_used: nodes.iter().map(|node| gpus(&node.used)).sum(),
                }
            })
            .collect()
    }
}

/// Effective minimum of pods: the sum over the subgroups that must be ready, the
/// smallest ones where only some of them must.
pub(crate) fn gang_min(gang: &Gang, sub: usize) -> u32 {
    let Some(entry) = gang.subs.get(sub) else { return 0 };
    if entry.children.is_empty() {
        return if sub == 0 { 0 } else { entry.min };
    }
    let mut mins: Vec<u32> = entry.children.iter().map(|child| gang_min(gang, *child)).collect();
    mins.sort_unstable();
    mins.iter().take(entry.min as usize).fold(0, |sum, min| sum.saturating_add(*min))
}
