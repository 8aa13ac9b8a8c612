//! From a gang in the world to the task of one decision.

use std::collections::BTreeSet;

use crate::facts::{AwaitedFacts, ConstraintKeys, Problem, ProblemCode};
use crate::ids::{NodeIdx, PodIdx, ShapeIdx};
use crate::place::limits::{self, Limit};
use crate::place::task::{Bound, Item};
use crate::policy::Policy;
use crate::world::World;
use crate::world::model::{Gang, Pod};

/// Pods to come of one leaf that are kept room for: a slip of the finger must not take all memory.
const MOST_TO_COME: usize = 1 << 12;

/// A leaf's members.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaf {
    /// Nodes of live members that have a place.
    pub placed: Vec<NodeIdx>,
    /// Live members with a place, known node or not.
    pub n_placed: usize,
    /// Members that wait, in rank order.
    pub waiting: Vec<PodIdx>,
    /// Members behind scheduling gates.
    pub gated: usize,
}

/// A gang made ready for decisions.
#[derive(Clone, Debug)]
pub(crate) struct Prepared<'a> {
    /// The gang.
    pub gang: &'a Gang,
    /// Constraint by subgroup.
    pub bounds: Vec<Option<Bound>>,
    /// Limits on the domains that it uses.
    pub limits: Vec<Limit>,
    /// Members by subgroup (leaves only).
    pub leaves: Vec<Leaf>,
    /// Mistakes of waiting pods that are left aside: their own, or a subgroup that is no leaf of the gang.
    pub aside: BTreeSet<Problem>,
    /// What keeps members with claims from every node for now.
    pub blocked: BTreeSet<Problem>,
    /// Pods to come that count: of the needed ones alone, or all.
    pub awaited: Vec<Awaited>,
}

/// Pods of a leaf that are created later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    leaf: usize,
    /// Pods of the leaf once all are there.
    n_pods: usize,
    needed: bool,
    shape: ShapeIdx,
}

impl<'a> Prepared<'a> {
    /// Reads members and resolves constraints.
    ///
    /// # Errors
    /// Every mistake in the gang's constraints.
    pub(crate) fn new(world: &World, gang: &'a Gang, policy: &Policy) -> Result<Self, Vec<Problem>> {
        let (bounds, limits) = resolve(world, gang, policy)?;
        let mut leaves = vec![Leaf::default(); gang.subs.len()];
        let mut aside = BTreeSet::new();
        let mut waiting: Vec<(usize, &Pod, PodIdx)> = Vec::new();
        for (idx, pod) in world.gang_pods(&gang.facts.key) {
            if pod.waits() && !pod.facts.problems.is_empty() {
                aside.extend(pod.facts.problems.iter().cloned());
                continue;
            }
            let Some(leaf) = gang.leaf(pod.facts.subgroup.as_deref()) else {
                if pod.waits() {
                    aside.insert(unknown_subgroup(gang, pod));
                }
                continue;
            };
            if !pod.live() {
                continue;
            }
            if let Some(node) = &pod.node {
                leaves[leaf].n_placed += 1;
                leaves[leaf].placed.extend(world.node_by_name.get(node));
            } else if pod.facts.gated {
                leaves[leaf].gated += 1;
            } else if pod.facts.ours {
                waiting.push((leaf, pod, idx));
            }
        }
        waiting.sort_by(|(_, a, _), (_, b, _)| rank(a).cmp(&rank(b)));
        let mut blocked = std::collections::BTreeSet::new();
        let mut exclusive = std::collections::BTreeSet::new();
        for (leaf, pod, idx) in waiting {
            let problems = &world.shapes[pod.shape.at()].volumes.blocked;
            let claims = world.exclusive_claims(&pod.facts);
            if let Some(claim) = claims.iter().find(|claim| exclusive.contains(*claim)) {
                blocked.insert(Problem {
                    code: ProblemCode::ClaimInUse,
                    object: format!("PersistentVolumeClaim {}", claim.name),
                    key: "spec.accessModes".to_owned(),
                    value: "ReadWriteOncePod".to_owned(),
                    allowed: "one pod at a time: another member of the gang uses it".to_owned(),
                });
            } else if problems.is_empty() {
                exclusive.extend(claims);
                leaves[leaf].waiting.push(idx);
            } else {
                blocked.extend(problems.iter().cloned());
            }
        }
        let awaited = awaited(world, gang, &leaves);
        Ok(Self { gang, bounds, limits, leaves, aside, blocked, awaited })
    }

    /// The same without the pods to come that the gang can begin without; `None` when there are none.
    pub(crate) fn only_needed(&self) -> Option<Self> {
        let is_needed = |awaited: &Awaited| awaited.needed;
        if self.awaited.iter().all(is_needed) {
            return None;
        }
        let awaited = self.awaited.iter().copied().filter(is_needed).collect();
        Some(Self { awaited, ..self.clone() })
    }

    /// The pods to come of a leaf of which this decision places `take`. A leaf that has not begun keeps no room but for
    /// the needed ones: it can go anywhere later.
    fn to_come(&self, leaf: usize, take: usize) -> Option<(ShapeIdx, Vec<PodIdx>)> {
        let (at, awaited) = self.awaited.iter().enumerate().find(|(_, awaited)| awaited.leaf == leaf)?;
        let there = self.leaves[leaf].n_placed + take;
        let missing = awaited.n_pods.saturating_sub(there).min(MOST_TO_COME);
        if missing == 0 || !(awaited.needed || 0 < there) {
            return None;
        }
        Some((awaited.shape, (0..missing).map(|number| PodIdx::to_come(at * MOST_TO_COME + number)).collect()))
    }

    fn add_to_come(&self, leaf: usize, take: usize, pods: &mut Vec<(ShapeIdx, Vec<PodIdx>)>) {
        let Some((shape, more)) = self.to_come(leaf, take) else { return };
        match pods.iter_mut().find(|(other, _)| *other == shape) {
            Some((_, pods)) => pods.extend(more),
            None => pods.push((shape, more)),
        }
    }

    /// Nothing but the pods to come at or below a subgroup in which this decision places none.
    fn only_to_come(&self, sub: usize) -> Option<Item> {
        if self.awaited.is_empty() {
            return None;
        }
        let children: Vec<Item> = self.gang.subs[sub].children.iter().filter_map(|child| self.only_to_come(*child)).collect();
        let pods: Vec<_> = self.to_come(sub, 0).into_iter().collect();
        let choose = children.len();
        (choose > 0 || !pods.is_empty()).then(|| Item { pods, children, choose, ..self.item(sub) })
    }

    /// True when the subgroup's minimum has places.
    pub(crate) fn satisfied(&self, sub: usize) -> bool {
        let entry = &self.gang.subs[sub];
        if entry.children.is_empty() {
            return self.leaves[sub].n_placed >= entry.min as usize;
        }
        entry.children.iter().filter(|child| self.satisfied(**child)).count() >= entry.min as usize
    }

    /// True when enough pods exist, ungated, to reach the minimum.
    pub(crate) fn ready(&self, sub: usize) -> bool {
        let entry = &self.gang.subs[sub];
        if entry.children.is_empty() {
            let leaf = &self.leaves[sub];
            return leaf.n_placed + leaf.waiting.len() >= entry.min as usize;
        }
        entry.children.iter().filter(|child| self.ready(**child)).count() >= entry.min as usize
    }

    /// Pods that wait at or below.
    pub(crate) fn n_waiting(&self, sub: usize) -> usize {
        self.below(sub).iter().map(|leaf| self.leaves[*leaf].waiting.len()).sum()
    }

    /// The subgroup and everything below it.
    fn below(&self, sub: usize) -> Vec<usize> {
        let mut found = vec![sub];
        let mut at = 0;
        while at < found.len() {
            found.extend(&self.gang.subs[found[at]].children);
            at += 1;
        }
        found
    }

    fn item(&self, sub: usize) -> Item {
        Item {
            sub,
            name: self.gang.subs[sub].name.clone(),
            bound: self.bounds[sub],
            limits: if sub == 0 { self.limits.clone() } else { Vec::new() },
            live: self.below(sub).iter().flat_map(|leaf| &self.leaves[*leaf].placed).copied().collect(),
            pods: Vec::new(),
            children: Vec::new(),
            choose: 0,
            waiting: self.n_waiting(sub),
        }
    }

    /// The task that brings a subgroup to its minimum.
    pub(crate) fn minimum(&self, world: &World, sub: usize) -> Item {
        let entry = &self.gang.subs[sub];
        let mut item = self.item(sub);
        if entry.children.is_empty() {
            let leaf = &self.leaves[sub];
            let take = (entry.min as usize).saturating_sub(leaf.n_placed).min(leaf.waiting.len());
            item.pods = by_shape(world, &leaf.waiting[..take]);
            self.add_to_come(sub, take, &mut item.pods);
            return item;
        }
        let done = entry.children.iter().filter(|child| self.satisfied(**child)).count();
        item.choose = (entry.min as usize).saturating_sub(done);
        item.children = entry
            .children
            .iter()
            .filter(|child| !self.satisfied(**child) && self.ready(**child))
            .map(|child| self.minimum(world, *child))
            .collect();
        item.choose = item.choose.min(item.children.len());
        // Where there is a choice among the children, nobody knows yet whose pods are to come.
        if item.choose == item.children.len() {
            let done = entry.children.iter().filter(|child| self.satisfied(**child));
            item.children.extend(done.filter_map(|child| self.only_to_come(*child)));
            item.choose = item.children.len();
        }
        item
    }

    /// Work above the minimum: subgroups that need their own minimum at once, and
    /// leaves with pods that may be placed one by one (`true`).
    pub(crate) fn surplus(&self, sub: usize, found: &mut Vec<(usize, bool)>) {
        let entry = &self.gang.subs[sub];
        if !self.satisfied(sub) {
            if self.ready(sub) {
                found.push((sub, false));
            }
        } else if entry.children.is_empty() {
            if !self.leaves[sub].waiting.is_empty() {
                found.push((sub, true));
            }
        } else {
            for child in &entry.children {
                self.surplus(*child, found);
            }
        }
    }

    /// The task of one surplus unit: the path from the root to the subgroup, with its
    /// minimum, or `count` pods of the leaf.
    pub(crate) fn unit(&self, world: &World, sub: usize, count: Option<usize>) -> Item {
        let mut item = match count {
            None => self.minimum(world, sub),
            Some(count) => {
                let mut item = self.item(sub);
                item.pods = by_shape(world, &self.leaves[sub].waiting[..count]);
                self.add_to_come(sub, count, &mut item.pods);
                item
            }
        };
        let mut at = sub;
        while at != 0 {
            let parent = self.gang.subs[at].parent;
            let others = self.gang.subs[parent].children.iter().filter(|child| **child != at);
            let mut children = vec![item];
            children.extend(others.filter_map(|child| self.only_to_come(*child)));
            item = Item { choose: children.len(), children, ..self.item(parent) };
            at = parent;
        }
        item
    }
}

/// The pods to come by leaf, with the shape of those that are there where none of their own is said.
fn awaited(world: &World, gang: &Gang, leaves: &[Leaf]) -> Vec<Awaited> {
    let shape_of = |leaf: &Leaf| Some(world.pods[leaf.waiting.first()?.at()].as_ref()?.shape);
    let common = leaves.iter().find_map(shape_of);
    let one = |(facts, shape): (&AwaitedFacts, &Option<ShapeIdx>)| {
        let leaf = gang.leaf(Some(&facts.subgroup))?;
        let shape = shape.or_else(|| shape_of(&leaves[leaf])).or(common)?;
        Some(Awaited { leaf, n_pods: facts.n_pods as usize, needed: facts.needed, shape })
    };
    gang.facts.awaited.iter().zip(&gang.awaited).filter_map(one).collect()
}

/// The mistake of a pod that names no leaf of its gang.
fn unknown_subgroup(gang: &Gang, pod: &Pod) -> Problem {
    let leaves = gang.subs.iter().skip(1).filter(|sub| sub.children.is_empty());
    let leaves: Vec<&str> = leaves.map(|sub| sub.name.as_str()).collect();
    Problem {
        code: ProblemCode::UnknownSubgroup,
        object: String::new(),
        key: "kai.scheduler/subgroup-name".to_owned(),
        value: pod.facts.subgroup.clone().unwrap_or_default(),
        allowed: format!("a leaf subgroup of the gang: {}", leaves.join(", ")),
    }
}

fn rank(pod: &Pod) -> (bool, u32, i64, &str) {
    let facts = &pod.facts;
    (!facts.leader, facts.index.unwrap_or(u32::MAX), facts.created, facts.name.as_str())
}

fn by_shape(world: &World, pods: &[PodIdx]) -> Vec<(ShapeIdx, Vec<PodIdx>)> {
    let mut groups: Vec<(ShapeIdx, Vec<PodIdx>)> = Vec::new();
    for pod in pods {
        let Some(shape) = world.pods[pod.at()].as_ref().map(|pod| pod.shape) else { continue };
        match groups.iter_mut().find(|(other, _)| *other == shape) {
            Some((_, pods)) => pods.push(*pod),
            None => groups.push((shape, vec![*pod])),
        }
    }
    groups
}

/// Resolves topology and levels of every subgroup, and of the limits.
fn resolve(world: &World, gang: &Gang, policy: &Policy) -> Result<(Vec<Option<Bound>>, Vec<Limit>), Vec<Problem>> {
    let mut problems = Vec::new();
    let mut bounds = Vec::new();
    for at in 0..gang.subs.len() {
        bounds.push(resolve_one(world, gang, at, policy, &mut problems));
    }
    let limits = limits::resolve(world, gang, policy, &mut problems);
    if problems.is_empty() { Ok((bounds, limits)) } else { Err(problems) }
}

fn resolve_one(
    world: &World,
    gang: &Gang,
    at: usize,
    policy: &Policy,
    problems: &mut Vec<Problem>,
) -> Option<Bound> {
    let sub = &gang.subs[at];
    if sub.constraint.is_empty() && !sub.auto_preferred {
        return None;
    }
    let keys = if at == 0 { gang.facts.constraint_keys } else { ConstraintKeys::FIELDS };
    let mut problem = |code, key: &str, value: &str, allowed: String| {
        let problem = Problem {
            code,
            object: if sub.name.is_empty() { String::new() } else { format!("subgroup {}", sub.name) },
            key: key.to_owned(),
            value: value.to_owned(),
            allowed,
        };
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    };
    let name = match topology_name(world, gang, at, policy) {
        Some(name) => name,
        None if sub.auto_preferred && sub.constraint.is_empty() => return None,
        None if policy.compat_kai => return None,
        None => {
            let known = known_topologies(world);
            let level = sub.constraint.required.as_ref().or(sub.constraint.preferred.as_ref());
            problem(ProblemCode::LevelWithoutTopology,
                keys.topology,
                level.map_or("", String::as_str),
                format!("the name of a Topology beside the level ({known}), or a default topology"),
            );
            return None;
        }
    };
    let Some(tree_idx) = world.tree_by_topology.get(&name).copied() else {
        problem(ProblemCode::UnknownTopology, keys.topology, &name, known_topologies(world));
        return None;
    };
    let tree = &world.trees[tree_idx.at()];
    let mut level = |key: &str, value: &Option<String>| {
        let value = value.as_deref()?;
        let depth = tree.depth_of_level(value);
        if depth.is_none() {
            problem(ProblemCode::UnknownLevel, key, value, format!("a level of Topology {name}: {}", tree.labels.join(", ")));
        }
        depth
    };
    let required = level(keys.required, &sub.constraint.required);
    let mut preferred = level(keys.preferred, &sub.constraint.preferred);
    if sub.auto_preferred && preferred.is_none() {
        preferred = Some(tree.n_levels());
    }
    if let (Some(hard), Some(soft)) = (required, preferred)
        && soft < hard {
            problem(ProblemCode::PreferredAboveRequired,
                keys.preferred,
                tree.label(soft),
                format!("a level at or below the required level {}", tree.label(hard)),
            );
        }
    Some(Bound { tree: tree_idx, required, preferred })
}

/// Own topology, else the nearest ancestor's, else the default one.
pub(super) fn topology_name(world: &World, gang: &Gang, at: usize, policy: &Policy) -> Option<String> {
    let mut sub = at;
    loop {
        if let Some(name) = gang.subs[sub].constraint.topology.as_deref().filter(|n| !n.is_empty()) {
            return Some(name.to_owned());
        }
        if sub == 0 {
            break;
        }
        sub = gang.subs[sub].parent;
    }
    if policy.compat_kai {
        return None;
    }
    world.default_topology(policy.default_topology.as_deref()).map(str::to_owned)
}

pub(super) fn known_topologies(world: &World) -> String {
    if world.topologies.is_empty() {
        return "no Topology exists".to_owned();
    }
    let names: Vec<&str> = world.topologies.keys().map(String::as_str).collect();
    format!("one of {}", names.join(", "))
}
