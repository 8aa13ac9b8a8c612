//! Evictions for other gangs: may these pods go, is it for something, and is what is kept for it really there?

use std::collections::{BTreeMap, BTreeSet};

use super::scene::{Scene, groups, is_over, leaf_of, picks};
use super::{Fault, FaultKind, Findings};
use crate::facts::{GangFacts, PodFacts, PodPhase};
use crate::outcome::{Action, Cause, Eviction, Outcome, Promised, RoomFor};

/// Checks the evictions and the promises of a pass, in the world as it is after it.
pub(super) fn all(scene: &Scene<'_>, outcome: &Outcome, findings: &mut Findings) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut asked: BTreeMap<&str, u32> = BTreeMap::new();
    for eviction in &outcome.evictions {
        let mut kinds = BTreeSet::new();
        for victim in eviction.pods.iter().filter(|victim| !seen.insert(&victim.pod_uid)) {
            kinds.insert(FaultKind::EvictedTwice(victim.pod.name.clone()));
        }
        if let Cause::Room(room) = &eviction.cause {
            one(scene, outcome, eviction, room, &mut asked, &mut kinds);
        }
        findings.faults.extend(kinds.into_iter().map(|kind| Fault { gang: eviction.gang.clone(), kind }));
    }
    for promised in outcome.promised.iter().filter(|promised| !promised.places.is_empty()) {
        let kinds = overfull(scene, promised);
        findings.faults.extend(kinds.into_iter().map(|kind| Fault { gang: promised.gang.clone(), kind }));
    }
}

fn one<'a>(
    scene: &Scene<'a>,
    outcome: &Outcome,
    eviction: &Eviction,
    room: &RoomFor,
    asked: &mut BTreeMap<&'a str, u32>,
    kinds: &mut BTreeSet<FaultKind>,
) {
    let (Some(gang), Some(by)) = (scene.gang(&eviction.gang), scene.gang(&room.by)) else {
        kinds.insert(FaultKind::UnknownGang);
        return;
    };
    if !outcome.promised.iter().any(|promised| promised.gang_uid == room.by_uid && !promised.places.is_empty()) {
        kinds.insert(FaultKind::InVain);
    }
    let fair = match room.action {
        Action::Preempt => gang.queue == by.queue && gang.priority < by.priority,
        Action::Reclaim => gang.queue != by.queue,
    };
    for victim in &eviction.pods {
        let name = || victim.pod.name.clone();
        let Some((idx, pod)) = scene.find(&victim.pod_uid).and_then(|idx| Some((idx, scene.pod(idx)?))) else {
            kinds.insert(FaultKind::UnknownPod(name()));
            continue;
        };
        let member = pod.namespace == gang.key.namespace && pod.gang.as_ref() == Some(&gang.key.name);
        if !fair || !gang.preemptible || !member || pod.terminating || is_over(pod) || scene.place(idx).is_none() {
            kinds.insert(FaultKind::WrongVictim(name()));
        }
        for budget in budgets(scene, pod) {
            let asked = asked.entry(budget).or_default();
            *asked += 1;
            if scene.world.budgets[budget].allowed < *asked {
                kinds.insert(FaultKind::OverBudget(name()));
            }
        }
    }
    if leaves_a_part(scene, gang, eviction) {
        kinds.insert(FaultKind::BelowMinimum(String::new()));
    }
}

/// UIDs of the disruption budgets that protect a pod.
fn budgets<'a>(scene: &Scene<'a>, pod: &PodFacts) -> Vec<&'a str> {
    let all = scene.world.budgets.values().filter(|_| pod.phase == PodPhase::Running);
    let protects = all.filter(|budget| budget.key.namespace == pod.namespace && picks(budget.selector.as_ref(), pod));
    protects.map(|budget| budget.uid.as_str()).collect()
}

/// The gang had its minimum, and some of its pods are left without it.
fn leaves_a_part(scene: &Scene<'_>, gang: &GangFacts, eviction: &Eviction) -> bool {
    let tree = groups(gang);
    let mut before = vec![0_u32; tree.len()];
    let mut after = before.clone();
    let goes: BTreeSet<&str> = eviction.pods.iter().map(|victim| victim.pod_uid.as_str()).collect();
    for idx in scene.members(&gang.key) {
        let Some(pod) = scene.pod(*idx).filter(|pod| !pod.terminating && !is_over(pod)) else { continue };
        let Some(leaf) = leaf_of(&tree, gang, pod).filter(|_| scene.place(*idx).is_some()) else { continue };
        before[leaf] += 1;
        after[leaf] += u32::from(!goes.contains(pod.uid.as_str()) && !scene.is_evicted(*idx));
    }
    let whole = |pods: &[u32]| -> bool {
        let mut ready = vec![false; tree.len()];
        // Children come after their parents only where the list says so: as often as the tree is deep.
        for _ in 0..tree.len().min(16) {
            for at in (0..tree.len()).rev() {
                let group = &tree[at];
                let has = match group.children.is_empty() {
                    true => pods[at],
                    false => group.children.iter().filter(|child| ready[**child]).count() as u32,
                };
                ready[at] = group.min <= has;
            }
        }
        ready.first().copied().unwrap_or(false)
    };
    after.iter().any(|left| 0 < *left) && whole(&before) && !whole(&after)
}

/// Nodes that have less than what is kept there, once those who leave have left.
fn overfull(scene: &Scene<'_>, promised: &Promised) -> BTreeSet<FaultKind> {
    let mut kinds = BTreeSet::new();
    for place in &promised.places {
        let Some(pod) = scene.find(&place.pod_uid).and_then(|idx| scene.pod(idx)) else {
            kinds.insert(FaultKind::UnknownPod(place.pod.name.clone()));
            continue;
        };
        let Some(node) = scene.node(&place.node) else {
            kinds.insert(FaultKind::UnknownNode(place.node.clone()));
            continue;
        };
        for resource in pod.shape.requests.keys() {
            if scene.free_then(node, resource) < 0 {
                kinds.insert(FaultKind::Overfull(node.name.clone(), resource.clone()));
            }
        }
    }
    kinds
}
