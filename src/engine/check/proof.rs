//! The proof beside a "no": does it hold?
//!
//! A count is made again from the facts: which domains there are, how many copies
//! of which pods each could take, how many must be placed whatever is chosen.
//! That a search was exhaustive can't be seen here; tests compare it with brute
//! force.

use std::collections::{BTreeMap, BTreeSet};

use super::legal::Members;
use super::scene::{Group, Scene, charge, groups, is_over, leaf_of, requested};
use super::{Fault, FaultKind, Findings};
use crate::facts::{DomainLimit, GangFacts, NodeFacts, ObjectKey, PodFacts, PodTerm};
use crate::fit::volumes::VolumeNeeds;
use crate::fit::{self, ports_conflict};
use crate::ids::PodIdx;
use crate::outcome::{Code, Counted, Proof, Reason, Unit};

/// What one decision would have had to place.
struct Task<'s, 'a> {
    tree: &'s [Group<'a>],
    /// How many domains of which levels all may use.
    limits: &'a [DomainLimit],
    /// By subgroup: pods of a leaf, how many of which children of an inner one.
    needs: Vec<Need>,
}

#[derive(Clone, Default)]
struct Need {
    present: bool,
    pods: Vec<PodIdx>,
    choose: usize,
    children: Vec<usize>,
}

/// Answers about nodes that several proofs ask for.
#[derive(Default)]
pub(super) struct Known<'a> {
    nodes: Vec<&'a NodeFacts>,
    /// Anti-affinity of pods that have a place: how many, by value of the key.
    avoiding: BTreeMap<&'a PodTerm, BTreeMap<&'a str, usize>>,
    /// By anti-affinity term of a kind: values of its key where a pod is that it means.
    meant: BTreeMap<&'a PodTerm, BTreeSet<&'a str>>,
    /// Representatives of kinds of pods, with the copies that fit by node.
    kinds: Vec<(Likeness<'a>, Vec<u64>)>,
}

/// Equal for pods that no node tells apart.
struct Likeness<'a> {
    pod: &'a PodFacts,
    /// By term of a pod that has a place: it avoids this one.
    avoided: Vec<bool>,
    /// By own term: it avoids its like.
    itself: Vec<bool>,
    /// What its bound volumes ask of nodes.
    volumes: VolumeNeeds,
}

impl Likeness<'_> {
    fn is_like(&self, other: &Likeness<'_>) -> bool {
        self.pod.shape == other.pod.shape
            && self.pod.namespace == other.pod.namespace
            && self.volumes == other.volumes
            && (&self.avoided, &self.itself) == (&other.avoided, &other.itself)
    }
}

/// Checks the reasons of a gang.
pub(super) fn reasons<'a>(scene: &Scene<'a>, known: &mut Known<'a>, gang: &'a GangFacts, told: &[Reason], findings: &mut Findings) {
    for reason in told {
        let kind = match &reason.proof {
            None if waits_only(reason.code) => None,
            // A limit passed by the subgroups chosen, where others might have been.
            None if matches!(reason.code, Code::QueueOverLimit | Code::QueueOverQuota) && has_choice(gang) => None,
            None => Some(FaultKind::Unproven(reason.code)),
            Some(_) if reason.code == Code::NotFoundWithinBudget => Some(FaultKind::FalseProof(reason.code)),
            Some(proof) => (!holds(scene, known, gang, reason, proof)).then_some(FaultKind::FalseProof(reason.code)),
        };
        findings.faults.extend(kind.map(|kind| Fault { gang: gang.key.clone(), kind }));
    }
}

/// Codes that claim nothing about what is possible.
fn waits_only(code: Code) -> bool {
    matches!(
        code,
        Code::NotFoundWithinBudget
            | Code::BindRefused
            | Code::StaleGang
            | Code::VolumesNotReady
            | Code::WaitingForRoom
            | Code::Preempted
    )
}

fn holds<'a>(scene: &Scene<'a>, known: &mut Known<'a>, gang: &'a GangFacts, reason: &Reason, proof: &Proof) -> bool {
    let tree = groups(gang);
    let members = Members::of(scene, gang, &tree);
    let waiting = waiting(scene, gang, &tree);
    let ours = Ours { scene, gang, tree: &tree, members: &members, waiting: &waiting };
    match proof {
        Proof::Exhausted { .. } => true,
        // What pods to come ask for is in no pod of the facts: such a count rests on the engine's word.
        Proof::Counted(_) | Proof::TooFew { .. } if !gang.awaited.is_empty() => true,
        Proof::Stated => ours.stated(reason),
        Proof::Counted(_) | Proof::TooFew { .. } => {
            known.fill(scene);
            ours.tasks().iter().any(|task| task_fails(scene, known, &members, task, 0, proof))
        }
    }
}

/// A gang with its members.
struct Ours<'s, 'a> {
    scene: &'s Scene<'a>,
    gang: &'a GangFacts,
    tree: &'s [Group<'a>],
    members: &'s Members<'a>,
    waiting: &'s [Vec<PodIdx>],
}

impl<'s, 'a> Ours<'s, 'a> {
    /// True when enough pods exist for the subgroup's minimum.
    fn could_be_ready(&self, at: usize) -> bool {
        let group = &self.tree[at];
        if group.children.is_empty() {
            return self.members.n_placed(at) + self.waiting[at].len() >= group.min as usize;
        }
        group.children.iter().filter(|child| self.could_be_ready(**child)).count() >= group.min as usize
    }

    fn stated(&self, reason: &Reason) -> bool {
        let queue = reason.queue.as_ref();
        match reason.code {
            Code::Problem | Code::UnsupportedFeature => true,
            Code::NotEnoughPods | Code::PodsGated => {
                !self.could_be_ready(0) || (reason.code == Code::PodsGated && self.any_gated())
            }
            Code::QueueNotFound => !self.scene.world.queues.contains_key(&self.gang.queue),
            Code::QueueNotLeaf => {
                self.scene.world.queues.values().any(|other| other.parent.as_ref() == Some(&self.gang.queue))
            }
            Code::QueueOrphaned => self.scene.orphaned(&self.gang.queue),
            Code::QueueOverLimit | Code::QueueOverQuota => queue.is_some_and(|block| {
                let quota = reason.code == Code::QueueOverQuota;
                let Some(facts) = self.scene.world.queues.get(&block.queue) else { return false };
                let rows = [("gpu", facts.gpu), ("cpu", facts.cpu), ("memory", facts.memory)];
                let slot = rows.iter().position(|(resource, _)| *resource == block.resource);
                let asked = |slot: usize| self.tasks().iter().any(|task| least_charge(self.scene, task, 0)[slot] == block.asked_millis);
                let within = self.scene.chain(&self.gang.queue).contains(&block.queue.as_str());
                slot.is_some_and(|slot| {
                    let used = self.scene.used_by(&block.queue)[usize::from(quota)][slot];
                    let limit = if quota { rows[slot].1.quota_millis } else { rows[slot].1.limit_millis };
                    let within = within && !(quota && self.gang.preemptible);
                    let asked = asked(slot) || !self.gang.awaited.is_empty();
                    within && limit == Some(block.limit_millis) && used == block.used_millis && asked && block.asked_millis > 0
                        && used.saturating_add(block.asked_millis) > block.limit_millis
                })
            }),
            Code::AlreadySplit => (0..self.tree.len()).any(|at| {
                self.tree[at].name == reason.subgroup
                    && self.tree[at].constraint.required.is_some()
                    && !self.members.together(self.scene, self.tree, at)
            }),
            _ => false,
        }
    }

    fn any_gated(&self) -> bool {
        let pods = self.scene.members(&self.gang.key).iter().filter_map(|idx| self.scene.pod(*idx));
        pods.into_iter().any(|pod| pod.gated)
    }

    /// What could have been tried: the minimum, and holes of a gang that ran whole; or each piece of work above it.
    fn tasks(&self) -> Vec<Task<'s, 'a>> {
        let whole = self.members.ready(self.tree, 0);
        let mut tasks = Vec::new();
        if !whole {
            let mut task = self.empty();
            self.minimum(0, &mut task.needs);
            tasks.push(task);
        }
        for at in 1..self.tree.len() {
            let leaf = self.tree[at].children.is_empty();
            let hole = leaf && self.scene.holes(self.gang, at, self.members.n_placed(at)) > 0;
            if !whole && !hole {
                continue;
            }
            let ready = self.members.ready(self.tree, at) || (hole && self.members.n_placed(at) > 0);
            let mut task = self.empty();
            if ready && leaf && !self.waiting[at].is_empty() {
                task.needs[at] = Need { present: true, pods: self.waiting[at][..1].to_vec(), ..Need::default() };
            } else if !ready && self.could_be_ready(at) {
                self.minimum(at, &mut task.needs);
            } else {
                continue;
            }
            let mut below = at;
            while below != 0 {
                let above = self.tree[below].parent;
                task.needs[above] = Need { present: true, pods: Vec::new(), choose: 1, children: vec![below] };
                below = above;
            }
            tasks.push(task);
        }
        tasks
    }

    fn empty(&self) -> Task<'s, 'a> {
        Task { tree: self.tree, limits: &self.gang.limits, needs: vec![Need::default(); self.tree.len()] }
    }

    fn minimum(&self, at: usize, needs: &mut [Need]) {
        let group = &self.tree[at];
        needs[at].present = true;
        if group.children.is_empty() {
            let take = (group.min as usize).saturating_sub(self.members.n_placed(at)).min(self.waiting[at].len());
            needs[at].pods = self.waiting[at][..take].to_vec();
            return;
        }
        let done = group.children.iter().filter(|child| self.members.ready(self.tree, **child)).count();
        let open = |child: &&usize| !self.members.ready(self.tree, **child) && self.could_be_ready(**child);
        let children: Vec<usize> = group.children.iter().filter(open).copied().collect();
        for child in &children {
            self.minimum(*child, needs);
        }
        needs[at].choose = (group.min as usize).saturating_sub(done).min(children.len());
        needs[at].children = children;
    }
}

/// Members that wait, by leaf, in the order in which they are placed.
fn waiting(scene: &Scene<'_>, gang: &GangFacts, tree: &[Group<'_>]) -> Vec<Vec<PodIdx>> {
    let mut found: Vec<(usize, &PodFacts, PodIdx)> = Vec::new();
    for idx in scene.members(&gang.key) {
        let Some(pod) = scene.pod(*idx) else { continue };
        let waits = pod.ours && !pod.gated && !pod.terminating && !is_over(pod) && scene.place(*idx).is_none();
        if waits && pod.problems.is_empty() {
            found.extend(leaf_of(tree, gang, pod).map(|leaf| (leaf, pod, *idx)));
        }
    }
    let rank = |pod: &PodFacts| (!pod.leader, pod.index.unwrap_or(u32::MAX), pod.created, pod.name.clone());
    found.sort_by_key(|(_, pod, _)| rank(pod));
    let mut exclusive: BTreeSet<ObjectKey> = BTreeSet::new();
    let mut by_leaf = vec![Vec::new(); tree.len()];
    for (leaf, pod, idx) in found {
        let alone = scene.world.exclusive_claims(pod);
        if scene.blocked(idx) || alone.iter().any(|claim| exclusive.contains(claim)) {
            continue;
        }
        exclusive.extend(alone);
        by_leaf[leaf].push(idx);
    }
    by_leaf
}

/// True when the proof shows that the subgroup `at` of the task can't be placed.
fn task_fails<'a>(
    scene: &Scene<'a>,
    known: &mut Known<'a>,
    members: &Members<'a>,
    task: &Task<'_, 'a>,
    at: usize,
    proof: &Proof,
) -> bool {
    let unavoidable = |of: usize| {
        let mut below = of;
        while below != at {
            let above = task.tree[below].parent;
            let need = &task.needs[above];
            if below == 0 || need.choose < need.children.len() || !need.children.contains(&below) {
                return false;
            }
            below = above;
        }
        task.needs[of].present
    };
    let named = |name: &str| (0..task.tree.len()).find(|sub| task.tree[*sub].name == name);
    match proof {
        Proof::Counted(counted) => {
            named(&counted.subgroup).is_some_and(|sub| unavoidable(sub) && too_small(scene, known, members, task, sub, counted))
        }
        Proof::TooFew { subgroup, needed, ready, impossible } => named(subgroup).is_some_and(|sub| {
            let need = &task.needs[sub];
            let distinct: BTreeSet<&String> = impossible.iter().map(|(name, _)| name).collect();
            unavoidable(sub)
                && need.choose == *needed as usize
                && need.children.len() == *ready as usize
                && distinct.len() == impossible.len()
                && need.children.len() < need.choose + impossible.len()
                && impossible.iter().all(|(name, proof)| {
                    let child = need.children.iter().find(|child| task.tree[**child].name == *name);
                    child.is_some_and(|child| task_fails(scene, known, members, task, *child, proof))
                })
        }),
        Proof::Stated | Proof::Exhausted { .. } => false,
    }
}

/// Makes the count again.
fn too_small<'a>(
    scene: &Scene<'a>,
    known: &mut Known<'a>,
    members: &Members<'a>,
    task: &Task<'_, 'a>,
    at: usize,
    counted: &Counted,
) -> bool {
    let level = |name: &Option<String>, of: usize| -> Option<(&'a str, usize)> {
        let topology = scene.topology_of(task.tree, of)?;
        Some((topology, scene.level_of(topology, name.as_deref()?)?))
    };
    // The candidates: domains of a level that the subgroup requires, or everything.
    let outer = match &counted.level {
        None => None,
        Some(label) => {
            let required = level(&task.tree[at].constraint.required, at);
            let told = level(&Some(label.clone()), at);
            let limited = |most: u32| {
                let limit = task.limits.iter().find(|limit| level(&Some(limit.level.clone()), 0) == told);
                at == 0 && limit.is_some_and(|limit| limit.most == most)
            };
            if told.is_none() || !counted.together.map_or(required == told, limited) {
                return false;
            }
            told
        }
    };
    let place = |node: &'a NodeFacts| match outer {
        None => Some(Vec::new()),
        // Limits count a node without the label as a domain of its own.
        Some((topology, level)) => scene.path(topology, level, node).or(counted.together.map(|_| vec!["", node.name.as_str()])),
    };
    let pins: BTreeSet<_> = members.nodes(task.tree, at).into_iter().map(place).collect();
    if counted.together.is_some() && !pins.is_empty() {
        return false;
    }
    let (needs, per_node, inner) = match counted.unit {
        Unit::Pods => {
            let least = least(scene, known, task, at);
            let needs: u64 = least.iter().map(|(_, n)| n).sum();
            (needs, least, None)
        }
        Unit::Segments => {
            let Some(segments) = segments(scene, known, task, at, counted) else { return false };
            (segments.count, vec![(segments.kind, u64::from(counted.size))], Some((segments.topology, segments.level)))
        }
        Unit::Subgroups | Unit::Domains => return false,
    };
    // By candidate and kind (or inner domain): copies.
    let mut rooms: BTreeMap<Vec<&str>, BTreeMap<(Vec<&str>, usize), u64>> = BTreeMap::new();
    if outer.is_none() {
        rooms.insert(Vec::new(), BTreeMap::new());
    }
    for (n, node) in known.nodes.iter().enumerate() {
        let Some(path) = place(node).filter(|path| pins.is_empty() || pins.contains(&Some(path.clone()))) else { continue };
        let row = rooms.entry(path).or_default();
        for (kind, _) in &per_node {
            let inside = match inner {
                None => Some(Vec::new()),
                Some((topology, level)) => scene.path(topology, level, node),
            };
            if let Some(inside) = inside {
                *row.entry((inside, *kind)).or_default() += known.kinds[*kind].1[n];
            }
        }
    }
    let room = |row: &BTreeMap<(Vec<&str>, usize), u64>| -> u64 {
        match counted.unit {
            Unit::Segments => row.values().map(|slots| slots / u64::from(counted.size.max(1))).sum(),
            _ => per_node.iter().map(|(kind, n)| row.get(&(Vec::new(), *kind)).copied().unwrap_or(0).min(*n)).sum(),
        }
    };
    let mut found: Vec<u64> = rooms.values().map(room).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    let told: Vec<u64> =
        counted.domains.iter().flat_map(|(has, n)| std::iter::repeat_n(u64::from(*has), *n as usize)).collect();
    // The engine may tell apart pods that no node does: then its bounds are higher.
    let bounded = found.len() == told.len() && found.iter().zip(&told).all(|(found, told)| found <= told);
    // Most room first: so many of them at the most.
    let most: u64 = told.iter().take(counted.together.unwrap_or(1) as usize).sum();
    needs == u64::from(counted.needs) && bounded && most < needs && told.is_sorted_by(|a, b| a >= b)
}

/// What any choice below must place, by kind.
fn least<'a>(scene: &Scene<'a>, known: &mut Known<'a>, task: &Task<'_, 'a>, at: usize) -> Vec<(usize, u64)> {
    let need = &task.needs[at];
    let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
    for pod in need.pods.iter().filter_map(|idx| scene.pod(*idx)) {
        *counts.entry(known.kind(scene, pod)).or_default() += 1;
    }
    let below: Vec<BTreeMap<usize, u64>> =
        need.children.iter().map(|child| least(scene, known, task, *child).into_iter().collect()).collect();
    let kinds: BTreeSet<usize> = below.iter().flat_map(BTreeMap::keys).copied().collect();
    for kind in kinds {
        let mut asked: Vec<u64> = below.iter().map(|child| child.get(&kind).copied().unwrap_or(0)).collect();
        asked.sort_unstable();
        *counts.entry(kind).or_default() += asked.iter().take(need.choose).sum::<u64>();
    }
    counts.into_iter().filter(|(_, n)| *n > 0).collect()
}

/// What any choice below asks of the queue.
fn least_charge(scene: &Scene<'_>, task: &Task<'_, '_>, at: usize) -> [i64; 3] {
    let need = &task.needs[at];
    let below: Vec<[i64; 3]> = need.children.iter().map(|child| least_charge(scene, task, *child)).collect();
    let own = need.pods.iter().filter_map(|idx| scene.pod(*idx)).map(charge);
    let own = own.fold([0_i64; 3], |sum, one| [0, 1, 2].map(|slot| i64::saturating_add(sum[slot], one[slot])));
    [0, 1, 2].map(|slot| {
        let mut asked: Vec<i64> = below.iter().map(|child| child[slot]).collect();
        asked.sort_unstable();
        asked.iter().take(need.choose).fold(own[slot], |sum, amount| sum.saturating_add(*amount))
    })
}

fn has_choice(gang: &GangFacts) -> bool {
    let tree = groups(gang);
    tree.iter().any(|group| (group.min as usize) < group.children.len())
}

struct Segments<'a> {
    topology: &'a str,
    level: usize,
    kind: usize,
    count: u64,
}

/// Subgroups below that each need one domain of the level for `size` pods of one kind: as many as any choice must place.
fn segments<'a>(scene: &Scene<'a>, known: &mut Known<'a>, task: &Task<'_, 'a>, at: usize, counted: &Counted) -> Option<Segments<'a>> {
    let mut kinds = BTreeSet::new();
    let mut places = BTreeSet::new();
    let count = fewest(scene, known, task, at, counted, &mut kinds, &mut places);
    let [kind] = kinds.into_iter().collect::<Vec<_>>().try_into().ok()?;
    let [(topology, level)] = places.into_iter().collect::<Vec<_>>().try_into().ok()?;
    Some(Segments { topology, level, kind, count })
}

fn fewest<'a>(
    scene: &Scene<'a>,
    known: &mut Known<'a>,
    task: &Task<'_, 'a>,
    at: usize,
    counted: &Counted,
    kinds: &mut BTreeSet<usize>,
    places: &mut BTreeSet<(&'a str, usize)>,
) -> u64 {
    let need = &task.needs[at];
    let mut counts: Vec<u64> = Vec::new();
    for child in &need.children {
        let required = task.tree[*child].constraint.required.as_deref();
        let place = scene.topology_of(task.tree, *child).and_then(|topology| Some((topology, scene.level_of(topology, required?)?)));
        let Some(place) = place else {
            counts.push(fewest(scene, known, task, *child, counted, kinds, places));
            continue;
        };
        let pods = least(scene, known, task, *child);
        let whole = matches!(pods.as_slice(), [(_, n)] if *n >= u64::from(counted.size));
        if whole {
            kinds.insert(pods[0].0);
            places.insert(place);
        }
        counts.push(u64::from(whole));
    }
    counts.sort_unstable();
    counts.iter().take(need.choose).sum()
}

impl<'a> Known<'a> {
    fn fill(&mut self, scene: &Scene<'a>) {
        if !self.nodes.is_empty() {
            return;
        }
        self.nodes = scene.nodes().collect();
        for (pod, node) in scene.placed() {
            for term in &pod.shape.pod_anti_affinity {
                if let Some(value) = node.labels.get(&term.topology_key) {
                    *self.avoiding.entry(term).or_default().entry(value).or_default() += 1;
                }
            }
        }
    }

    /// The kind of a pod.
    fn kind(&mut self, scene: &Scene<'a>, pod: &'a PodFacts) -> usize {
        let means = |term: &PodTerm| scene.means(term, pod);
        let likeness = Likeness {
            pod,
            avoided: self.avoiding.keys().map(|term| means(term)).collect(),
            itself: pod.shape.pod_anti_affinity.iter().map(means).collect(),
            volumes: scene.bound_volumes(pod),
        };
        if let Some(at) = self.kinds.iter().position(|(other, _)| other.is_like(&likeness)) {
            return at;
        }
        for term in &pod.shape.pod_anti_affinity {
            self.meant.entry(term).or_insert_with(|| {
                let meant = scene.placed().filter(|(other, _)| scene.means(term, other));
                meant.filter_map(|(_, node)| node.labels.get(&term.topology_key)).map(String::as_str).collect()
            });
        }
        let slots = self.nodes.iter().map(|node| self.copies(scene, pod, node)).collect();
        self.kinds.push((likeness, slots));
        self.kinds.len() - 1
    }

    /// Copies of a pod that a node can take, affinity and spread aside.
    fn copies(&self, scene: &Scene<'a>, pod: &PodFacts, node: &NodeFacts) -> u64 {
        if fit::refusal(node, &pod.shape).is_some() || scene.refused_by_volumes(pod, node).is_some() {
            return 0;
        }
        let near = |term: &PodTerm, counts: &BTreeMap<&str, usize>| {
            node.labels.get(&term.topology_key).and_then(|value| counts.get(value.as_str())).copied().unwrap_or(0) > 0
        };
        if self.avoiding.iter().any(|(term, counts)| near(term, counts) && scene.means(term, pod)) {
            return 0;
        }
        let mut most = u64::from(u32::MAX);
        for term in &pod.shape.pod_anti_affinity {
            let Some(value) = node.labels.get(&term.topology_key) else { continue };
            if self.meant.get(term).is_some_and(|values| values.contains(value.as_str())) {
                return 0;
            }
            if scene.means(term, pod) {
                most = most.min(1);
            }
        }
        for resource in pod.shape.requests.keys().map(String::as_str).chain(["pods"]) {
            let asked = i128::from(requested(pod, resource));
            if asked > 0 {
                let fits = scene.free(node, resource).max(0) / asked;
                most = most.min(u64::try_from(fits).unwrap_or(u64::MAX));
            }
        }
        if !pod.shape.host_ports.is_empty() {
            let used = scene.pods_on(&node.name).iter().filter_map(|idx| scene.pod(*idx)).flat_map(|pod| &pod.shape.host_ports);
            let used: Vec<_> = used.collect();
            let taken = pod.shape.host_ports.iter().any(|port| used.iter().any(|used| ports_conflict(used, port)));
            most = most.min(u64::from(!taken));
        }
        most
    }
}
