//! A cluster at one moment, read from the facts.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{ConstraintFacts, GangFacts, LabelSelector, NodeFacts, ObjectKey, PodFacts, PodPhase, PodTerm};
use crate::fit::selectors::selects;
use crate::fit::volumes::{VolumeNeeds, zones};
use crate::fit::{self, is_gpu};
use crate::ids::{NodeIdx, PodIdx};
use crate::outcome::Rule;
use crate::policy::Policy;
use crate::topology::is_placeholder;
use crate::world::World;

/// Longer chains of subgroups are cycles.
const MAX_DEPTH: usize = 64;

/// Where every pod is, and what follows from that.
pub(super) struct Scene<'a> {
    pub(super) world: &'a World,
    pub(super) policy: &'a Policy,
    nodes: BTreeMap<&'a str, NodeIdx>,
    /// By pod: the node's name, of pods that hold a place.
    places: Vec<Option<&'a str>>,
    on: BTreeMap<&'a str, Vec<PodIdx>>,
    members: BTreeMap<ObjectKey, Vec<PodIdx>>,
    /// Gangs (by UID) that got their places: what was held for them is free.
    pub(super) served: BTreeSet<String>,
    /// Amounts of all pods, then of those that can't be preempted.
    charged: BTreeMap<&'a str, [[i64; 3]; 2]>,
}

/// A subgroup as written; 0 is the whole gang.
pub(super) struct Group<'a> {
    pub(super) name: &'a str,
    pub(super) parent: usize,
    pub(super) children: Vec<usize>,
    /// Pods of a leaf, ready children of an inner one.
    pub(super) min: u32,
    pub(super) constraint: &'a ConstraintFacts,
}

impl<'a> Scene<'a> {
    /// The world, with the pods of `without` (by UID) back in the queue.
    pub(super) fn new(world: &'a World, policy: &'a Policy, without: &BTreeSet<&str>) -> Self {
        let nodes = world.nodes.iter().enumerate().filter_map(|(at, node)| {
            Some((node.as_ref()?.facts.name.as_str(), NodeIdx(at as u32)))
        });
        let mut scene = Self {
            world,
            policy,
            nodes: nodes.collect(),
            places: vec![None; world.pods.len()],
            on: BTreeMap::new(),
            members: BTreeMap::new(),
            served: BTreeSet::new(),
            charged: BTreeMap::new(),
        };
        for (at, pod) in world.pods.iter().enumerate() {
            let Some(pod) = pod else { continue };
            let idx = PodIdx(at as u32);
            if let Some(gang) = &pod.facts.gang {
                let key = ObjectKey::new(pod.facts.namespace.clone(), gang.clone());
                scene.members.entry(key).or_default().push(idx);
            }
            let taken_back = pod.facts.node.is_none() && without.contains(pod.facts.uid.as_str());
            if let Some(node) = pod.node.as_deref().filter(|_| !pod.over() && !taken_back) {
                scene.put(idx, node);
            }
        }
        scene
    }

    /// Gives a pod a place.
    pub(super) fn put(&mut self, idx: PodIdx, node: &'a str) {
        self.places[idx.at()] = Some(node);
        self.on.entry(node).or_default().push(idx);
        let Some(pod) = self.pod(idx) else { return };
        if let Some(gang) = self.gang_of(pod) {
            let charge = charge(pod);
            let total = self.charged.entry(gang.queue.as_str()).or_default();
            for slot in 0..3 {
                total[0][slot] = total[0][slot].saturating_add(charge[slot]);
                total[1][slot] = total[1][slot].saturating_add(if gang.preemptible { 0 } else { charge[slot] });
            }
        }
    }

    pub(super) fn pod(&self, idx: PodIdx) -> Option<&'a PodFacts> {
        self.world.pods.get(idx.at())?.as_ref().map(|pod| &pod.facts)
    }

    /// A pod by UID.
    pub(super) fn find(&self, uid: &str) -> Option<PodIdx> {
        let idx = *self.world.pod_by_uid.get(uid)?;
        self.pod(idx).filter(|pod| pod.uid == uid).map(|_| idx)
    }

    pub(super) fn node(&self, name: &str) -> Option<&'a NodeFacts> {
        self.world.nodes[self.nodes.get(name)?.at()].as_ref().map(|node| &node.facts)
    }

    /// Every node.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &'a NodeFacts> + '_ {
        self.nodes.values().filter_map(|idx| self.world.nodes[idx.at()].as_ref()).map(|node| &node.facts)
    }

    pub(super) fn place(&self, idx: PodIdx) -> Option<&'a str> {
        self.places.get(idx.at()).copied().flatten()
    }

    /// It leaves, by the API's word or because its eviction was asked for.
    pub(super) fn is_evicted(&self, idx: PodIdx) -> bool {
        self.world.pods[idx.at()].as_ref().is_some_and(|pod| pod.leaves())
    }

    /// Pods that hold a place on a node.
    pub(super) fn pods_on(&self, node: &str) -> &[PodIdx] {
        self.on.get(node).map_or(&[], Vec::as_slice)
    }

    /// Every pod that holds a place, with the node's facts where the node exists.
    pub(super) fn placed(&self) -> impl Iterator<Item = (&'a PodFacts, &'a NodeFacts)> + '_ {
        self.on.iter().filter_map(|(name, pods)| Some((self.node(name)?, pods))).flat_map(|(node, pods)| {
            pods.iter().filter_map(|idx| self.pod(*idx)).map(move |pod| (pod, node))
        })
    }

    pub(super) fn gang(&self, key: &ObjectKey) -> Option<&'a GangFacts> {
        let idx = self.world.gang_by_key.get(key)?;
        self.world.gangs[idx.at()].as_ref().map(|gang| &gang.facts)
    }

    fn gang_of(&self, pod: &PodFacts) -> Option<&'a GangFacts> {
        self.gang(&ObjectKey::new(pod.namespace.clone(), pod.gang.clone()?))
    }

    pub(super) fn members(&self, key: &ObjectKey) -> &[PodIdx] {
        self.members.get(key).map_or(&[], Vec::as_slice)
    }

    /// What a node offers of a resource; what pods on it ask for, and those of them that leave; what is kept.
    fn sums(&self, node: &NodeFacts, resource: &str) -> [i128; 4] {
        let offered = i128::from(node.allocatable.get(resource).copied().unwrap_or(0));
        let asked = |idx: &PodIdx| self.pod(*idx).map_or(0, |pod| i128::from(requested(pod, resource)));
        let used: i128 = self.pods_on(&node.name).iter().map(asked).sum();
        let leaving: i128 = self.pods_on(&node.name).iter().filter(|idx| self.is_evicted(**idx)).map(asked).sum();
        let holds = self.world.held_on(&node.name).filter(|(gang, _)| !self.served.contains(*gang));
        let held: i128 = holds.filter_map(|(_, amounts)| amounts.get(resource)).map(|amount| i128::from(*amount)).sum();
        [offered, used, leaving, held]
    }

    /// What a node has left of a resource: what it offers, less what pods on it ask for and what is held.
    pub(super) fn free(&self, node: &NodeFacts, resource: &str) -> i128 {
        let [offered, used, leaving, held] = self.sums(node, resource);
        // What is kept may be what others have still to leave.
        offered - used - (held - leaving).max(0)
    }

    /// The same once all have left that are about to.
    pub(super) fn free_then(&self, node: &NodeFacts, resource: &str) -> i128 {
        let [offered, used, leaving, held] = self.sums(node, resource);
        offered - used + leaving - held
    }

    /// Charged to a queue and those below it: GPUs, milli-cores, megabytes, in thousandths; of all pods, then of those
    /// that can't be preempted.
    pub(super) fn used_by(&self, queue: &str) -> [[i64; 3]; 2] {
        let mut total = [[0_i64; 3]; 2];
        for (leaf, amounts) in &self.charged {
            if self.chain(leaf).contains(&queue) {
                for (half, slot) in [0, 1].into_iter().flat_map(|half| [0, 1, 2].map(|slot| (half, slot))) {
                    total[half][slot] = total[half][slot].saturating_add(amounts[half][slot]);
                }
            }
        }
        total
    }

    /// A queue and those above it, by name.
    pub(super) fn chain<'q>(&'q self, leaf: &'q str) -> Vec<&'q str> {
        let mut chain = vec![leaf];
        let mut at = leaf;
        while let Some(parent) = self.world.queues.get(at).and_then(|queue| queue.parent.as_deref()) {
            if chain.len() > self.world.queues.len() {
                break;
            }
            chain.push(parent);
            at = parent;
        }
        chain
    }

    /// A queue above this one is missing, or it is above itself.
    pub(super) fn orphaned(&self, queue: &str) -> bool {
        let queues = &self.world.queues;
        let chain = self.chain(queue);
        queues.contains_key(queue) && (chain.len() > queues.len() || chain.iter().any(|name| !queues.contains_key(*name)))
    }

    /// The topology that a subgroup's constraint speaks of: its own, an ancestor's, the default one.
    pub(super) fn topology_of(&self, groups: &[Group<'a>], at: usize) -> Option<&'a str> {
        let mut sub = at;
        for _ in 0..MAX_DEPTH {
            if let Some(name) = groups[sub].constraint.topology.as_deref().filter(|name| !name.is_empty()) {
                return Some(name);
            }
            if sub == 0 {
                break;
            }
            sub = groups[sub].parent;
        }
        if self.policy.compat_kai {
            return None;
        }
        let all = &self.world.topologies;
        if let Some(named) = &self.policy.default_topology {
            return all.get_key_value(named).map(|(name, _)| name.as_str());
        }
        let marked = all.values().find(|facts| facts.default).map(|facts| facts.name.as_str());
        marked.or_else(|| all.keys().next().filter(|_| all.len() == 1).map(String::as_str))
    }

    /// Position of a level, by label or alias.
    pub(super) fn level_of(&self, topology: &str, level: &str) -> Option<usize> {
        let levels = &self.world.topologies.get(topology)?.levels;
        let by_label = levels.iter().position(|other| other.label == level);
        by_label.or_else(|| levels.iter().position(|other| other.alias.as_deref() == Some(level)))
    }

    /// Values of a node's labels down to a level; `None` where one is missing.
    pub(super) fn path(&self, topology: &str, level: usize, node: &'a NodeFacts) -> Option<Vec<&'a str>> {
        let levels = &self.world.topologies.get(topology)?.levels;
        // KAI drops a node that lacks one label from the whole topology.
        if self.policy.compat_kai && levels.iter().any(|other| !node.labels.contains_key(&other.label)) {
            return None;
        }
        let value = |label: &String| node.labels.get(label).map(String::as_str).filter(|value| !is_placeholder(value));
        levels.get(..=level)?.iter().map(|other| value(&other.label)).collect()
    }

    /// True when an affinity term means the pod.
    pub(super) fn means(&self, term: &PodTerm, pod: &PodFacts) -> bool {
        let labels = || self.world.namespace_labels(&pod.namespace);
        let home = term.namespaces.contains(&pod.namespace)
            || term.namespace_selector.as_ref().is_some_and(|selector| selects(selector, labels()));
        home && picks(term.selector.as_ref(), pod)
    }
}

impl Scene<'_> {
    /// Volumes of a pod's claims that count against a limit: driver and handle.
    pub(super) fn attachments(&self, pod: &PodFacts) -> Vec<(String, String)> {
        let keys = pod.claims.iter().map(|name| ObjectKey::new(pod.namespace.clone(), name.clone()));
        keys.filter_map(|key| self.world.volumes.attachment(self.world.volumes.claim(&key)?)).collect()
    }

    /// Places of a leaf that were filled when the gang last ran whole, and are not: as the world remembers it.
    pub(super) fn holes(&self, gang: &GangFacts, leaf: usize, n_placed: usize) -> usize {
        let idx = self.world.gang_by_key.get(&gang.key);
        let gang = idx.and_then(|idx| self.world.gangs[idx.at()].as_ref());
        gang.map_or(0, |gang| self.world.holes(gang, leaf, n_placed))
    }

    /// A claim of the pod keeps it from every node for now.
    pub(super) fn blocked(&self, idx: PodIdx) -> bool {
        self.world.pods[idx.at()].as_ref().is_some_and(|pod| !self.world.shapes[pod.shape.at()].volumes.blocked.is_empty())
    }

    /// What a pod's bound volumes ask of nodes: node affinity and zones.
    pub(super) fn bound_volumes(&self, pod: &PodFacts) -> VolumeNeeds {
        let keys = pod.claims.iter().map(|name| ObjectKey::new(pod.namespace.clone(), name.clone()));
        let claims = keys.filter_map(|key| self.world.volumes.claim(&key)).filter(|claim| claim.bound);
        let volumes = claims.filter_map(|claim| self.world.volumes.volume(claim.volume.as_deref()?));
        let mut needs = VolumeNeeds::default();
        for volume in volumes {
            needs.node_terms.extend(volume.node_terms.clone());
            needs.zones.extend(zones(&volume.labels));
        }
        needs
    }

    /// A bound volume is not reached from the node.
    pub(super) fn refused_by_volumes(&self, pod: &PodFacts, node: &NodeFacts) -> Option<Rule> {
        fit::volumes::refusal(node, &self.bound_volumes(pod))
    }
}

/// True when a pod has ended.
pub(super) fn is_over(pod: &PodFacts) -> bool {
    matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed)
}

/// True when a selector of pods picks the pod; none picks nothing.
pub(super) fn picks(selector: Option<&LabelSelector>, pod: &PodFacts) -> bool {
    selector.is_some_and(|selector| selects(selector, &pod.labels))
}

/// What a pod asks for of a resource; every pod is one pod.
pub(super) fn requested(pod: &PodFacts, resource: &str) -> i64 {
    if resource == "pods" { 1 } else { pod.shape.requests.get(resource).copied().unwrap_or(0) }
}

/// What a pod is charged: GPUs, milli-cores, megabytes, in thousandths.
pub(super) fn charge(pod: &PodFacts) -> [i64; 3] {
    let mut charge = [0_i64; 3];
    for (name, amount) in &pod.shape.requests {
        let (slot, millis) = match name.as_str() {
            "cpu" => (1, amount.saturating_mul(1000)),
            "memory" => (2, amount.saturating_add(999) / 1000),
            name if is_gpu(name) => (0, amount.saturating_mul(1000)),
            _ => continue,
        };
        charge[slot] = charge[slot].saturating_add(millis.max(0));
    }
    charge
}

/// The tree of a gang, from its flat list.
pub(super) fn groups(facts: &GangFacts) -> Vec<Group<'_>> {
    static NONE: ConstraintFacts = ConstraintFacts { topology: None, required: None, preferred: None };
    let root = |children: Vec<usize>, min| Group { name: "", parent: 0, children, min, constraint: &facts.constraint };
    if facts.subgroups.is_empty() {
        let min = facts.min_member.unwrap_or(1);
        let leaf = Group { name: "default", parent: 0, children: Vec::new(), min, constraint: &NONE };
        return vec![root(vec![1], 1), leaf];
    }
    let position = |name: &str| facts.subgroups.iter().rposition(|other| other.name == name).map(|at| at + 1);
    let parents: Vec<usize> = facts
        .subgroups
        .iter()
        .map(|sub| sub.parent.as_deref().and_then(|parent| position(&parent.to_lowercase())).unwrap_or(0))
        .collect();
    let below = |at: usize| -> Vec<usize> { (1..=parents.len()).filter(|sub| parents[sub - 1] == at).collect() };
    let ready = |wanted: Option<u32>, children: &[usize]| {
        let n = children.len() as u32;
        wanted.unwrap_or(n).min(n)
    };
    let top = below(0);
    let min = ready(facts.min_subgroup, &top);
    let mut groups = vec![root(top, min)];
    for (at, sub) in facts.subgroups.iter().enumerate() {
        let children = below(at + 1);
        let min = if children.is_empty() { sub.min_member.unwrap_or(1) } else { ready(sub.min_subgroup, &children) };
        groups.push(Group { name: &sub.name, parent: parents[at], children, min, constraint: &sub.constraint });
    }
    groups
}

/// The leaf that a pod belongs to.
pub(super) fn leaf_of(groups: &[Group<'_>], facts: &GangFacts, pod: &PodFacts) -> Option<usize> {
    let wanted = match pod.subgroup.as_deref() {
        None => "default",
        Some("") if facts.subgroups.is_empty() => "default",
        Some(name) => name,
    };
    (1..groups.len()).find(|at| groups[*at].children.is_empty() && groups[*at].name == wanted)
}

/// Node selector and required affinity.
pub(super) fn selected(node: &NodeFacts, pod: &PodFacts) -> bool {
    let shape = &pod.shape;
    shape.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && shape.required_affinity.as_ref().is_none_or(|terms| terms.iter().any(|term| fit::term_matches(node, term)))
}

/// Taints that keep pods away are tolerated.
pub(super) fn tolerated(node: &NodeFacts, pod: &PodFacts) -> bool {
    let hard = node.taints.iter().filter(|taint| taint.effect != crate::facts::TaintEffect::PreferNoSchedule);
    hard.into_iter().all(|taint| pod.shape.tolerations.iter().any(|toleration| fit::tolerates(toleration, taint)))
}
