//! One decision: is it legal (placement.md section 2)?

use std::collections::{BTreeMap, BTreeSet};

use super::order::{self, Order};
use super::scene::{Group, Scene, charge, groups, is_over, leaf_of, requested};
use super::{Fault, FaultKind, Findings};
use crate::facts::{GangFacts, NodeFacts, PodFacts, PodTerm};
use crate::fit::{self, ports_conflict};
use crate::ids::PodIdx;
use crate::outcome::{Decision, Placement, VolumeChoice};

/// A placement whose pod and node exist.
struct Put<'a> {
    idx: PodIdx,
    pod: &'a PodFacts,
    node: &'a NodeFacts,
}

/// Checks a decision and carries it out on the scene.
pub(super) fn decision(scene: &mut Scene<'_>, decision: &Decision, findings: &mut Findings) {
    let mut kinds = BTreeSet::new();
    let Some(gang) = scene.gang(&decision.gang).filter(|gang| gang.uid == decision.gang_uid) else {
        findings.faults.push(Fault { gang: decision.gang.clone(), kind: FaultKind::UnknownGang });
        return;
    };
    scene.served.insert(decision.gang_uid.clone());
    let tree = groups(gang);
    let puts = resolve(scene, gang, &tree, decision, &mut kinds);
    for put in &puts {
        kinds.extend(refused(scene, put));
    }
    let pairs: Vec<(&PodFacts, &NodeFacts)> = puts.iter().map(|put| (put.pod, put.node)).collect();
    match order::exists(scene, &pairs) {
        Order::Found => {}
        Order::Impossible => {
            kinds.insert(FaultKind::NoOrder);
        }
        Order::Undecided => findings.undecided += 1,
    }
    kinds.extend(new_attachments_over_limit(scene, &puts));
    claims(scene, &puts, &decision.placements, &mut kinds);
    for put in &puts {
        scene.put(put.idx, &put.node.name);
    }
    room(scene, &puts, &mut kinds);
    repulsion(scene, &puts, &mut kinds);
    shape_of_gang(scene, gang, &tree, &puts, &mut kinds);
    queue(scene, gang, &puts, &mut kinds);
    findings.faults.extend(kinds.into_iter().map(|kind| Fault { gang: decision.gang.clone(), kind }));
}

fn resolve<'a>(
    scene: &Scene<'a>,
    gang: &GangFacts,
    tree: &[Group<'_>],
    decision: &Decision,
    kinds: &mut BTreeSet<FaultKind>,
) -> Vec<Put<'a>> {
    let mut seen = BTreeSet::new();
    let mut puts = Vec::new();
    for placement in &decision.placements {
        let name = || placement.pod.name.clone();
        let found = scene.find(&placement.pod_uid).and_then(|idx| Some((idx, scene.pod(idx)?)));
        let same = |pod: &PodFacts| pod.name == placement.pod.name && pod.namespace == placement.pod.namespace;
        let Some((idx, pod)) = found.filter(|(_, pod)| same(pod)) else {
            kinds.insert(FaultKind::UnknownPod(name()));
            continue;
        };
        let Some(node) = scene.node(&placement.node).filter(|node| node.uid == placement.node_uid) else {
            kinds.insert(FaultKind::UnknownNode(placement.node.clone()));
            continue;
        };
        let ours = pod.namespace == gang.key.namespace && pod.gang.as_ref() == Some(&gang.key.name);
        let subgroup = pod.subgroup.as_deref().filter(|_| !gang.subgroups.is_empty()).unwrap_or_default();
        if !ours || leaf_of(tree, gang, pod).is_none() || subgroup != placement.subgroup {
            kinds.insert(FaultKind::WrongGroup(name()));
        }
        let live = !pod.terminating && !is_over(pod);
        let sound = pod.problems.is_empty() && pod.shape.unsupported.is_empty();
        if !(pod.ours && live && sound && !pod.gated && scene.place(idx).is_none()) {
            kinds.insert(FaultKind::NotWaiting(name()));
        }
        if seen.insert(idx) {
            puts.push(Put { idx, pod, node });
        } else {
            kinds.insert(FaultKind::PlacedTwice(name()));
        }
    }
    puts
}

/// Rules of the node that do not depend on what it holds.
fn refused(scene: &Scene<'_>, put: &Put<'_>) -> Option<FaultKind> {
    let bound = scene.refused_by_volumes(put.pod, put.node);
    let rule = fit::refusal(put.node, &put.pod.shape).or(bound)?;
    Some(FaultKind::Refused(put.pod.name.clone(), rule))
}

/// No node holds more than it has, of what the new pods ask for; no port is wanted twice.
fn room(scene: &Scene<'_>, puts: &[Put<'_>], kinds: &mut BTreeSet<FaultKind>) {
    let mut asked: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for put in puts {
        let resources = put.pod.shape.requests.keys().map(String::as_str).chain(["pods"]);
        let wanted = resources.filter(|resource| requested(put.pod, resource) > 0);
        asked.entry(put.node.name.as_str()).or_default().extend(wanted);
    }
    for (name, resources) in asked {
        let Some(node) = scene.node(name) else { continue };
        let short = resources.into_iter().filter(|resource| scene.free(node, resource) < 0);
        kinds.extend(short.map(|resource| FaultKind::Overfull(name.to_owned(), resource.to_owned())));
    }
    for put in puts {
        let others = scene.pods_on(&put.node.name).iter().filter(|idx| **idx != put.idx).filter_map(|idx| scene.pod(*idx));
        let used: Vec<_> = others.flat_map(|pod| &pod.shape.host_ports).collect();
        let taken = put.pod.shape.host_ports.iter().find(|port| used.iter().any(|used| ports_conflict(used, port)));
        kinds.extend(taken.map(|port| FaultKind::PortTaken(put.node.name.clone(), port.port)));
    }
}

/// Anti-affinity both ways, with every pod of the decision there: more pods only refuse more, so no order matters.
fn repulsion(scene: &Scene<'_>, puts: &[Put<'_>], kinds: &mut BTreeSet<FaultKind>) {
    type ByValue<'t> = BTreeMap<&'t str, usize>;
    // For each term of a new pod: how many pods it means, by value. For each term of anybody: how many pods have it.
    let mut meant: BTreeMap<&PodTerm, ByValue<'_>> = BTreeMap::new();
    let mut avoiding: BTreeMap<&PodTerm, ByValue<'_>> = BTreeMap::new();
    for term in puts.iter().flat_map(|put| &put.pod.shape.pod_anti_affinity) {
        meant.entry(term).or_default();
    }
    for (pod, node) in scene.placed() {
        for (term, counts) in &mut meant {
            if let Some(value) = node.labels.get(&term.topology_key).filter(|_| scene.means(term, pod)) {
                *counts.entry(value).or_default() += 1;
            }
        }
        for term in &pod.shape.pod_anti_affinity {
            if let Some(value) = node.labels.get(&term.topology_key) {
                *avoiding.entry(term).or_default().entry(value).or_default() += 1;
            }
        }
    }
    for put in puts {
        let at = |counts: &ByValue<'_>, term: &PodTerm| {
            put.node.labels.get(&term.topology_key).and_then(|value| counts.get(value.as_str())).copied().unwrap_or(0)
        };
        let own = &put.pod.shape.pod_anti_affinity;
        for term in own {
            let itself = usize::from(scene.means(term, put.pod));
            if meant.get(term).is_some_and(|counts| at(counts, term) > itself) {
                kinds.insert(FaultKind::Repelled(put.pod.name.clone(), term.topology_key.clone()));
            }
        }
        for (term, counts) in &avoiding {
            let itself = own.iter().filter(|other| other == term).count();
            if at(counts, term) > itself && scene.means(term, put.pod) {
                kinds.insert(FaultKind::Repelled(put.pod.name.clone(), term.topology_key.clone()));
            }
        }
    }
}

/// All or nothing, and every required level with the live members counted.
fn shape_of_gang(
    scene: &Scene<'_>,
    gang: &GangFacts,
    tree: &[Group<'_>],
    puts: &[Put<'_>],
    kinds: &mut BTreeSet<FaultKind>,
) {
    let members = Members::of(scene, gang, tree);
    let mut touched: BTreeSet<usize> = BTreeSet::new();
    for put in puts {
        let mut at = leaf_of(tree, gang, put.pod).unwrap_or(0);
        while touched.insert(at) && at != 0 {
            at = tree[at].parent;
        }
    }
    let mut new = vec![0; tree.len()];
    for put in puts {
        new[leaf_of(tree, gang, put.pod).unwrap_or(0)] += 1;
    }
    // A gang that ran whole and lost pods may get them back one by one; a leaf of which none is left starts whole.
    let fills_holes = (0..tree.len()).filter(|at| new[*at] > 0).all(|at| {
        let before = members.n_placed(at).saturating_sub(new[at]);
        new[at] <= scene.holes(gang, at, before) && (before > 0 || members.ready(tree, at))
    });
    for at in touched {
        if !fills_holes && !members.ready(tree, at) {
            kinds.insert(FaultKind::BelowMinimum(tree[at].name.to_owned()));
        }
        let Some(level) = &tree[at].constraint.required else { continue };
        if !members.together(scene, tree, at) {
            kinds.insert(FaultKind::Split(tree[at].name.to_owned(), level.clone()));
        }
    }
    for limit in gang.limits.iter().filter(|_| !puts.is_empty()) {
        // A level that can't be read allows nothing.
        let used = members.used(scene, tree, &limit.level).map_or(usize::MAX, |used| used.len());
        if used > limit.most as usize {
            kinds.insert(FaultKind::TooManyDomains(limit.level.clone(), used));
        }
    }
}

/// Live members of a gang that hold a place, by leaf: how many, and their nodes.
pub(super) struct Members<'a> {
    by_leaf: Vec<(usize, Vec<&'a NodeFacts>)>,
}

impl<'a> Members<'a> {
    pub(super) fn of(scene: &Scene<'a>, gang: &GangFacts, tree: &[Group<'_>]) -> Self {
        let mut by_leaf = vec![(0, Vec::new()); tree.len()];
        for idx in scene.members(&gang.key) {
            let Some(pod) = scene.pod(*idx).filter(|pod| !pod.terminating) else { continue };
            let (Some(place), Some(leaf)) = (scene.place(*idx), leaf_of(tree, gang, pod)) else { continue };
            by_leaf[leaf].0 += 1;
            by_leaf[leaf].1.extend(scene.node(place));
        }
        Self { by_leaf }
    }

    /// Pods with a place in a leaf.
    pub(super) fn n_placed(&self, leaf: usize) -> usize {
        self.by_leaf[leaf].0
    }

    /// True when the subgroup has its minimum.
    pub(super) fn ready(&self, tree: &[Group<'_>], at: usize) -> bool {
        let group = &tree[at];
        if group.children.is_empty() {
            return self.n_placed(at) >= group.min as usize;
        }
        group.children.iter().filter(|child| self.ready(tree, **child)).count() >= group.min as usize
    }

    /// Nodes of the members at or below.
    pub(super) fn nodes(&self, tree: &[Group<'_>], at: usize) -> Vec<&'a NodeFacts> {
        let mut nodes = self.by_leaf[at].1.clone();
        nodes.extend(tree[at].children.iter().flat_map(|child| self.nodes(tree, *child)));
        nodes
    }

    /// The domains of a level of the gang's topology that all members are in, each as its path; a node without the label
    /// is a domain of its own.
    fn used(&self, scene: &Scene<'a>, tree: &[Group<'a>], level: &str) -> Option<BTreeSet<Result<Vec<&'a str>, &'a str>>> {
        let topology = scene.topology_of(tree, 0)?;
        let level = scene.level_of(topology, level)?;
        let nodes = self.nodes(tree, 0).into_iter();
        Some(nodes.map(|node| scene.path(topology, level, node).ok_or(node.name.as_str())).collect())
    }

    /// True when the members at or below are in one domain of the required level; a level that cannot be read is none
    /// where KAI ignores it.
    pub(super) fn together(&self, scene: &Scene<'a>, tree: &[Group<'a>], at: usize) -> bool {
        let level = tree[at].constraint.required.as_deref().unwrap_or_default();
        let Some(topology) = scene.topology_of(tree, at) else { return scene.policy.compat_kai };
        let Some(level) = scene.level_of(topology, level) else { return false };
        let paths: BTreeSet<_> = self.nodes(tree, at).iter().map(|node| scene.path(topology, level, node)).collect();
        paths.len() <= 1 && !paths.contains(&None)
    }
}

/// The queue takes work, and no limit from it to the root is passed.
fn queue(scene: &Scene<'_>, gang: &GangFacts, puts: &[Put<'_>], kinds: &mut BTreeSet<FaultKind>) {
    let all = &scene.world.queues;
    let known = all.contains_key(&gang.queue) || (all.is_empty() && [crate::world::DEFAULT_QUEUE, ""].contains(&gang.queue.as_str()));
    let is_parent = all.values().any(|other| other.parent.as_ref() == Some(&gang.queue));
    if !known || is_parent || scene.orphaned(&gang.queue) {
        kinds.insert(FaultKind::QueueClosed(gang.queue.clone()));
    }
    let asked = puts.iter().map(|put| charge(put.pod)).fold([0_i64; 3], |sum, one| {
        [0, 1, 2].map(|slot| i64::saturating_add(sum[slot], one[slot]))
    });
    for name in scene.chain(&gang.queue) {
        let Some(facts) = all.get(name) else { continue };
        let used = scene.used_by(name);
        let limits = [("gpu", facts.gpu), ("cpu", facts.cpu), ("memory", facts.memory)];
        for (slot, (resource, amount)) in limits.into_iter().enumerate() {
            if asked[slot] > 0 && amount.limit_millis.is_some_and(|limit| used[0][slot] > limit) {
                kinds.insert(FaultKind::OverLimit(name.to_owned(), resource));
            }
            if !gang.preemptible && asked[slot] > 0 && amount.quota_millis.is_some_and(|quota| used[1][slot] > quota) {
                kinds.insert(FaultKind::OverQuota(name.to_owned(), resource));
            }
        }
    }
}

/// Every claim that is not bound is served by what was chosen for it, and no volume is given twice.
fn claims(scene: &Scene<'_>, puts: &[Put<'_>], placements: &[Placement], kinds: &mut BTreeSet<FaultKind>) {
    let mut given: BTreeMap<&str, &str> = BTreeMap::new();
    for put in puts {
        let choices = placements.iter().find(|placement| placement.pod_uid == put.pod.uid).map_or(&[][..], |p| &p.volumes);
        for name in &put.pod.claims {
            let choice = choices.iter().find(|choice| choice.claim == *name);
            let twice = choice.and_then(|choice| choice.volume.as_deref()).is_some_and(|volume| {
                given.insert(volume, name).is_some_and(|other| other != name.as_str())
            });
            if twice || !served(scene, put, name, choice) {
                kinds.insert(FaultKind::Claim(put.pod.name.clone(), name.clone()));
            }
        }
    }
}

fn served(scene: &Scene<'_>, put: &Put<'_>, name: &str, choice: Option<&VolumeChoice>) -> bool {
    let storage = &scene.world.volumes;
    let key = crate::facts::ObjectKey::new(put.pod.namespace.clone(), name);
    let Some(claim) = storage.claim(&key).filter(|claim| !claim.lost && !claim.terminating) else { return false };
    if claim.bound {
        return claim.volume.as_deref().is_some_and(|volume| storage.volume(volume).is_some());
    }
    let Some(choice) = choice.filter(|choice| choice.claim_uid == claim.uid) else { return false };
    let reached = |terms: Option<&Vec<crate::facts::NodeTerm>>| {
        terms.is_none_or(|terms| terms.iter().any(|term| fit::term_matches(put.node, term)))
    };
    match &choice.volume {
        Some(volume) => storage.volume(volume).is_some_and(|volume| {
            reached(volume.node_terms.as_ref())
                && Some(&volume.class) == claim.class.as_ref()
                && volume.bytes >= claim.bytes
                && volume.block == claim.block
                && claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode))
                && volume.claim.as_ref().is_none_or(|other| *other == key)
        }),
        None => claim.class.as_ref().and_then(|class| storage.class(class)).is_some_and(|class| {
            class.provisions && class.waits && reached(class.topologies.as_ref())
        }),
    }
}

/// The new pods bring volumes of a driver to a node beyond what it takes.
fn new_attachments_over_limit(scene: &Scene<'_>, puts: &[Put<'_>]) -> Vec<FaultKind> {
    let mut faults = Vec::new();
    let mut by_node: BTreeMap<&str, Vec<&PodFacts>> = BTreeMap::new();
    for put in puts.iter().filter(|put| !put.pod.claims.is_empty()) {
        by_node.entry(put.node.name.as_str()).or_default().push(put.pod);
    }
    for (node, pods) in by_node {
        let held = scene.pods_on(node).iter().filter_map(|idx| scene.pod(*idx));
        let before: BTreeSet<(String, String)> = held.flat_map(|pod| scene.attachments(pod)).collect();
        let after: BTreeSet<(String, String)> =
            pods.iter().flat_map(|pod| scene.attachments(pod)).chain(before.iter().cloned()).collect();
        let drivers: BTreeSet<&String> = after.difference(&before).map(|(driver, _)| driver).collect();
        for driver in drivers {
            let n = after.iter().filter(|(other, _)| other == driver).count();
            if scene.world.volumes.limit(node, driver).is_some_and(|limit| n > limit as usize) {
                faults.push(FaultKind::Overfull(node.to_owned(), driver.clone()));
            }
        }
    }
    faults
}
