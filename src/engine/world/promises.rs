//! Promises: room that is kept for a gang until the pods that are still in it have left.
//!
//! A promise names a node for every pod of the gang's minimum. What they ask for is held there: nothing else is placed
//! on it, and the gang goes there as soon as it is free. It ends when the gang is placed, is gone or is another one, when
//! nobody is left to wait for, or when the time is over that the pods had for their end.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{Amounts, GangFacts, Millis, ObjectKey};
use crate::ids::{GangIdx, NodeIdx, PodIdx};
use crate::world::World;
use crate::world::apply::gang_key;
use crate::world::model::{Gang, Pod};

/// How much longer than its own grace period a pod's end may take, and how long a refused eviction is not asked for again.
pub(crate) const PATIENCE_MILLIS: Millis = 60_000;

/// A refused eviction is not asked for again before this time is over.
pub(super) const SPARE_MILLIS: Millis = 30_000;

/// Room that is kept for a gang.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Promise {
    /// Node by pod UID.
    pub places: BTreeMap<String, String>,
    /// What is held, node by node.
    pub held: Vec<(NodeIdx, Vec<(usize, i64)>)>,
    /// Pods that have still to leave (UIDs).
    pub awaits: BTreeSet<String>,
    /// Those of them that are evicted for it.
    pub victims: BTreeSet<String>,
    /// When it ends by itself.
    pub until: Millis,
}

impl World {
    /// Keeps room for the gang: its pods will go to these nodes once `awaits` have left.
    pub(crate) fn promise(&mut self, idx: GangIdx, places: &[(PodIdx, NodeIdx)], awaits: &BTreeSet<PodIdx>, victims: &BTreeSet<PodIdx>, now: Millis) {
        self.withdraw(idx);
        let Some(uid) = self.gangs[idx.at()].as_ref().map(|gang| gang.facts.uid.clone()) else { return };
        let mut promise = Promise::default();
        for (pod, node) in places {
            let Some(pod) = self.pods[pod.at()].as_ref() else { continue };
            let Some(name) = self.nodes[node.at()].as_ref().map(|node| node.facts.name.clone()) else { continue };
            let amounts: Amounts = pod.requests.iter().map(|(column, amount)| (self.columns[*column].clone(), *amount)).collect();
            promise.held.push((*node, pod.requests.clone()));
            promise.places.insert(pod.facts.uid.clone(), name.clone());
            self.hold(uid.clone(), name, amounts);
        }
        let known = |pods: &BTreeSet<PodIdx>| -> BTreeSet<String> {
            pods.iter().filter_map(|pod| Some(self.pods[pod.at()].as_ref()?.facts.uid.clone())).collect()
        };
        (promise.awaits, promise.victims) = (known(awaits), known(victims));
        let ends = awaits.iter().filter_map(|pod| self.pods[pod.at()].as_ref());
        let longest = ends.map(|pod| pod.facts.gone_by.unwrap_or(now.saturating_add(pod.facts.grace_millis))).max();
        promise.until = longest.unwrap_or(now).max(now).saturating_add(PATIENCE_MILLIS);
        if let Some(gang) = self.gangs[idx.at()].as_mut() {
            gang.promise = Some(promise);
        }
        for pod in victims {
            self.set_evicting(*pod, true);
        }
    }

    /// Gives up the room that is kept for a gang. True when there was some.
    pub(crate) fn withdraw(&mut self, idx: GangIdx) -> bool {
        let Some(gang) = self.gangs[idx.at()].as_mut().filter(|gang| gang.promise.is_some()) else { return false };
        gang.promise = None;
        let (uid, key) = (gang.facts.uid.clone(), gang.facts.key.clone());
        self.release(&uid);
        self.withdrawn.push((uid, key));
        self.dirty = true;
        true
    }

    /// Where a pod's room is kept.
    pub(crate) fn promised_node(&self, pod: PodIdx) -> Option<&String> {
        let pod = &self.pods.get(pod.at())?.as_ref()?.facts;
        let gang = self.gang_by_key.get(&gang_key(pod)?)?;
        self.gangs[gang.at()].as_ref()?.promise.as_ref()?.places.get(&pod.uid)
    }

    /// Pods that the gang's room has still to wait for, and all that it waited for.
    pub(crate) fn awaited_leavers(&self, gang: &Gang) -> (usize, usize) {
        let Some(promise) = &gang.promise else { return (0, 0) };
        let there = |uid: &&String| self.pod_by_uid.get(*uid).and_then(|idx| self.pods[idx.at()].as_ref()).is_some_and(|pod| pod.leaves());
        (promise.awaits.iter().filter(there).count(), promise.awaits.len())
    }

    /// What a gang's own hold takes from the rooms of its nodes. What others have still to leave is theirs, not its.
    pub(crate) fn lent(&self, gang: &Gang) -> Vec<(NodeIdx, Vec<(usize, i64)>)> {
        let mut own: BTreeMap<NodeIdx, BTreeMap<usize, i64>> = BTreeMap::new();
        for (node, amounts) in gang.promise.iter().flat_map(|promise| &promise.held) {
            let row = own.entry(*node).or_default();
            amounts.iter().for_each(|(column, amount)| *row.entry(*column).or_default() += amount);
        }
        let lent = |(idx, row): (NodeIdx, BTreeMap<usize, i64>)| {
            let node = self.nodes[idx.at()].as_ref()?;
            let at = |amounts: &[i64], column: usize| amounts.get(column).copied().unwrap_or(0);
            let gives = |(column, own): (usize, i64)| {
                let kept = at(&node.held, column) - at(&node.releasing, column);
                (column, kept.max(0) - (kept - own).max(0))
            };
            Some((idx, row.into_iter().map(gives).collect()))
        };
        own.into_iter().filter_map(lent).collect()
    }

    /// What queues are charged less once all that leaves has left, and more once all promises are kept.
    pub(crate) fn moves(&self) -> BTreeMap<String, [i64; 3]> {
        let mut moves: BTreeMap<String, [i64; 3]> = BTreeMap::new();
        let mut add = |queue: &str, amounts: [i64; 3], times: i64| {
            let sum = moves.entry(queue.to_owned()).or_default();
            sum.iter_mut().zip(amounts).for_each(|(sum, amount)| *sum = sum.saturating_add(amount.saturating_mul(times)));
        };
        for pod in self.pods.iter().flatten().filter(|pod| pod.leaves()) {
            if let Some((queue, charge)) = &pod.charged {
                add(queue, [charge[0], charge[1], charge[2]], -1);
            }
        }
        for gang in self.promised().into_iter().filter_map(|idx| self.gangs[idx.at()].as_ref()) {
            let held = gang.promise.iter().flat_map(|promise| &promise.held);
            held.for_each(|(_, amounts)| add(&gang.facts.queue, self.charge_of(amounts), 1));
        }
        moves
    }

    /// Gangs with a promise.
    fn promised(&self) -> Vec<GangIdx> {
        let held = self.holds.keys().filter_map(|uid| self.gang_by_uid.get(uid).copied());
        held.filter(|idx| self.gangs[idx.at()].as_ref().is_some_and(|gang| gang.promise.is_some())).collect()
    }

    /// Ends promises that can't be kept: their time is over, or a pod or node that they name is gone.
    pub(crate) fn end_promises(&mut self, now: Millis) {
        let is_over = |gang: &Gang, promise: &Promise| {
            let waits = |uid: &String| self.pod_by_uid.get(uid).and_then(|idx| self.pods[idx.at()].as_ref()).is_some_and(|pod| pod.waits());
            promise.until <= now
                || !promise.places.keys().all(waits)
                || !promise.places.values().all(|node| self.node_by_name.contains_key(node))
                || gang.facts.problems.iter().chain(&gang.problems).next().is_some()
        };
        let gangs = self.promised().into_iter().filter_map(|idx| Some((idx, self.gangs[idx.at()].as_ref()?)));
        let over = gangs.filter(|(_, gang)| gang.promise.as_ref().is_some_and(|promise| is_over(gang, promise)));
        let over: Vec<GangIdx> = over.map(|(idx, _)| idx).collect();
        for idx in over {
            let Some(gang) = self.gangs[idx.at()].as_mut() else { continue };
            gang.parked = None;
            let late = gang.promise.as_ref().filter(|promise| promise.until <= now).map(|promise| promise.victims.clone());
            self.withdraw(idx);
            // Nothing came of these evictions: they may be asked for again.
            for uid in late.into_iter().flatten() {
                if let Some(pod) = self.pod_by_uid.get(&uid).copied() {
                    self.set_evicting(pod, false);
                }
            }
        }
    }

    /// The next moment at which a promise ends by itself.
    pub(crate) fn next_promise(&self) -> Option<Millis> {
        self.promised().into_iter().filter_map(|idx| Some(self.gangs[idx.at()].as_ref()?.promise.as_ref()?.until)).min()
    }

    /// A pod is not evicted after all: it stays, and is not asked for before `until`. Room that counts on it is no longer kept.
    pub(super) fn spare(&mut self, uid: &str, now: Millis, until: Millis) {
        let Some(idx) = self.pod_by_uid.get(uid).copied() else { return };
        if self.pods[idx.at()].as_ref().is_none_or(|pod| !pod.evicting) {
            return;
        }
        self.set_evicting(idx, false);
        let Some(pod) = self.pods[idx.at()].as_mut() else { return };
        pod.spared_until = until;
        self.dirty = true;
        if let Some(gang) = gang_key(&pod.facts).and_then(|key| self.gang_by_key.get(&key).copied())
            && let Some(gang) = self.gangs[gang.at()].as_mut().filter(|gang| gang.life.preempted)
        {
            (gang.life.preempted, gang.life.evicted_at, gang.backoff, gang.parked) = (false, None, None, None);
        }
        let counts = |gang: &Gang| gang.promise.as_ref().is_some_and(|promise| promise.awaits.contains(uid));
        let gangs = self.promised().into_iter().filter(|idx| self.gangs[idx.at()].as_ref().is_some_and(counts));
        for idx in gangs.collect::<Vec<_>>() {
            self.withdraw(idx);
            if let Some(gang) = self.gangs[idx.at()].as_mut() {
                gang.parked = None;
                // Looked for again at the latest when this pod may be asked for again.
                gang.hunt_from = (now < until).then_some(until);
            }
        }
    }

    /// After a start: keeps the room that an earlier process promised, as it wrote it down.
    pub(super) fn adopt_promises(&mut self, now: Millis) {
        for at in 0..self.gangs.len() {
            let Some(gang) = self.gangs[at].as_ref().filter(|gang| gang.promise.is_none()) else { continue };
            if gang.facts.promised.is_empty() {
                continue;
            }
            let pods = self.gang_pods(&gang.facts.key).filter(|(_, pod)| pod.waits());
            let places: Vec<(PodIdx, NodeIdx)> = pods
                .filter_map(|(idx, pod)| {
                    let node = gang.facts.promised.get(&pod.facts.name)?;
                    Some((idx, *self.node_by_name.get(node)?))
                })
                .collect();
            if places.len() < gang.facts.promised.len() {
                continue;
            }
            let nodes: BTreeSet<NodeIdx> = places.iter().map(|(_, node)| *node).collect();
            let awaits = self.leavers_on(&nodes);
            self.promise(GangIdx(at as u32), &places, &awaits, &BTreeSet::new(), now);
        }
    }

    /// A pod whose room is to be had once it has left: nobody of its gang comes back to it.
    pub(crate) fn frees_room(&self, pod: &Pod) -> bool {
        if !pod.leaves() || pod.evicting {
            return pod.leaves();
        }
        let gang = self.gang_idx_of(&pod.facts).and_then(|idx| self.gangs[idx.at()].as_ref());
        let Some((gang, leaf)) = gang.and_then(|gang| Some((gang, gang.leaf(pod.facts.subgroup.as_deref())?))) else { return true };
        let placed = self.placed_by_leaf(gang);
        placed.iter().all(|n| *n == 0) || self.holes(gang, leaf, placed.get(leaf).copied().unwrap_or(0) as usize) == 0
    }

    /// Pods that are about to leave these nodes.
    pub(crate) fn leavers_on(&self, nodes: &BTreeSet<NodeIdx>) -> BTreeSet<PodIdx> {
        let nodes = nodes.iter().filter_map(|node| self.nodes[node.at()].as_ref());
        let pods = nodes.flat_map(|node| &node.pods).copied();
        pods.filter(|pod| self.pods[pod.at()].as_ref().is_some_and(|pod| self.frees_room(pod))).collect()
    }

    /// The node that is kept for each of a gang's pods, by the pod's name.
    pub(super) fn promised_places(&self, gang: &Gang) -> BTreeMap<String, String> {
        let named = |(uid, node): (&String, &String)| {
            let pod = self.pods[self.pod_by_uid.get(uid)?.at()].as_ref()?;
            Some((pod.facts.name.clone(), node.clone()))
        };
        gang.promise.iter().flat_map(|promise| &promise.places).filter_map(named).collect()
    }

    /// Facts of a gang with its promise written down.
    pub(super) fn with_promise(&self, gang: &Gang) -> GangFacts {
        GangFacts { promised: self.promised_places(gang), ..gang.facts.clone() }
    }

    pub(super) fn note_prey(&mut self, key: &ObjectKey) {
        let gang = self.gang_by_key.get(key).and_then(|idx| self.gangs[idx.at()].as_ref());
        if let Some(gang) = gang.filter(|gang| gang.facts.preemptible) {
            self.changes.note_prey(&gang.facts.queue, gang.facts.priority);
            self.changes.bound.insert(gang.facts.queue.clone());
        }
    }
}
