//! What a gang has been through since it started: which places were filled, whether a member has succeeded, and since
//! when it runs below its minimum.
//!
//! A gang is looked at when something about its pods changed, once a pass. Nothing here moves a pod; `schedule` fills
//! holes and gives stale gangs up by what is found here. A gang that has no pod on a node any more begins anew.

use std::collections::BTreeMap;

use crate::facts::{Millis, ObjectKey};
use crate::ids::GangIdx;
use crate::outcome::{Cause, Eviction, Stale, Victim};
use crate::policy::Policy;
use crate::world::World;
use crate::world::model::{Gang, PlaceState, Sub};

/// Evictions of a stale gang that did not take effect are asked for again after this time: a disruption budget needs
/// some for the next pod, and a gang that can be completed meanwhile is not evicted.
pub(crate) const EVICT_AGAIN_MILLIS: Millis = 30_000;

/// The past of a gang, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Life {
    /// Pods that each leaf (by its place in the tree) had on nodes when the gang last had its minimum, or the most since.
    filled: Vec<u32>,
    /// A member has succeeded: the gang is finishing, and never stale.
    succeeded: bool,
    /// It was looked at before: what an earlier process wrote down of it is history.
    begun: bool,
    /// Below its minimum since this moment, as an earlier process wrote down, who had seen it whole.
    noted: Option<Millis>,
    /// Below its minimum since this moment, after it had it.
    pub(crate) stale_since: Option<Millis>,
    /// Its pods are being evicted since this moment.
    pub(crate) evicted_at: Option<Millis>,
    /// They are evicted for another gang.
    pub(crate) preempted: bool,
    /// It was evicted for another gang at this moment; a new start does not make that forgotten.
    pub(crate) last_evicted: Option<Millis>,
}

impl Life {
    /// The same past after the tree changed: leaves are known by their names.
    pub(super) fn in_tree(mut self, before: &[Sub], after: &[Sub]) -> Self {
        if before.iter().map(|sub| &sub.name).ne(after.iter().map(|sub| &sub.name)) {
            let known: BTreeMap<&str, u32> = before.iter().map(|sub| sub.name.as_str()).zip(self.filled).collect();
            self.noted = None;
            self.filled = after.iter().map(|sub| known.get(sub.name.as_str()).copied().unwrap_or(0)).collect();
        }
        self
    }
}

/// Live members on nodes, by subgroup.
pub(super) struct Standing {
    /// All of them.
    pub(super) placed: Vec<u32>,
    /// Those whose place the API has confirmed.
    confirmed: Vec<u32>,
    /// The largest number of pods that one of them was decided together with.
    decided: u32,
    succeeded: bool,
}

impl World {
    /// Notes that pods of the gang changed.
    pub(super) fn touch_gang(&mut self, key: &ObjectKey) {
        self.touched.extend(self.gang_by_key.get(key));
    }

    /// Looks at the gangs whose pods changed since the last call. Gives those (by UID) that became stale, or are no
    /// longer.
    pub(crate) fn review_lives(&mut self, now: Millis) -> Vec<String> {
        let mut changed = Vec::new();
        for idx in std::mem::take(&mut self.touched) {
            let Some(gang) = self.gangs[idx.at()].as_ref() else {
                self.stale.remove(&idx);
                continue;
            };
            let (standing, usage) = (self.standing(gang), self.usage_of(gang));
            let Some(gang) = self.gangs[idx.at()].as_mut() else { continue };
            let asked = |row: &[i64], column: usize| row.get(column).copied().unwrap_or(0);
            let before = gang.usage.requested.iter().enumerate();
            self.changes.requests |= before.into_iter().any(|(column, amount)| asked(&usage.requested, column) < *amount);
            gang.usage = usage;
            let (was_stale, was_given_up) = (gang.life.stale_since.is_some(), gang.life.evicted_at.is_some());
            review(gang, &standing, now);
            let is_stale = gang.life.stale_since.is_some();
            if is_stale { self.stale.insert(idx) } else { self.stale.remove(&idx) };
            if was_given_up && gang.life.evicted_at.is_none() {
                // Nobody is left to be evicted: what waits may start anew.
                gang.backoff = None;
                gang.parked = None;
                self.dirty = true;
            }
            if was_stale != is_stale {
                changed.push(gang.facts.uid.clone());
            }
        }
        changed
    }

    pub(super) fn standing(&self, gang: &Gang) -> Standing {
        let none = vec![0; gang.subs.len()];
        let mut standing = Standing { placed: none.clone(), confirmed: none, decided: 0, succeeded: false };
        // A gang may have thousands of leaves: they are looked up, not searched, pod by pod.
        let mut leaves: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, sub) in gang.subs.iter().enumerate().skip(1).filter(|(_, sub)| sub.children.is_empty()) {
            leaves.entry(&sub.name).or_insert(at);
        }
        let is_flat = gang.facts.subgroups.is_empty();
        let leaf_of = |subgroup: Option<&str>| match is_flat {
            true => gang.leaf(subgroup).filter(|leaf| *leaf < gang.subs.len()),
            false => leaves.get(subgroup.unwrap_or("default")).copied(),
        };
        for (_, pod) in self.gang_pods(&gang.facts.key) {
            // A pod that is evicted may end with success: its work is not done.
            standing.succeeded |= pod.facts.phase == crate::facts::PodPhase::Succeeded && !pod.evicting;
            if !pod.live() || pod.node.is_none() {
                continue;
            }
            let Some(leaf) = leaf_of(pod.facts.subgroup.as_deref()) else { continue };
            standing.placed[leaf] += 1;
            standing.confirmed[leaf] += u32::from(pod.place != PlaceState::Assumed);
            let mark = pod.facts.decision.as_deref().and_then(|mark| mark.rsplit_once('/')?.1.parse().ok());
            standing.decided = standing.decided.max(mark.unwrap_or(0));
        }
        standing
    }

    /// Live members on nodes, by subgroup.
    pub(crate) fn placed_by_leaf(&self, gang: &Gang) -> Vec<u32> {
        self.standing(gang).placed
    }

    /// Places of a leaf that were filled and are not, as far as its minimum goes.
    pub(crate) fn holes(&self, gang: &Gang, sub: usize, n_placed: usize) -> usize {
        let Some(leaf) = gang.subs.get(sub) else { return 0 };
        let filled = gang.life.filled.get(sub).copied().unwrap_or(0);
        (filled.min(leaf.min) as usize).saturating_sub(n_placed)
    }

    /// When a gang that is stale is given up; `None`: never.
    fn stale_until(policy: &Policy, gang: &Gang) -> Option<Millis> {
        let grace = gang.facts.staleness_grace_millis.unwrap_or(policy.staleness_grace_millis);
        let since = gang.life.stale_since.filter(|_| 0 <= grace)?;
        Some(since.saturating_add(grace))
    }

    /// Gangs that have been stale for too long: their pods on nodes are to be evicted.
    pub(crate) fn give_up_stale(&mut self, policy: &Policy, now: Millis) -> Vec<Eviction> {
        let mut evictions = Vec::new();
        for idx in self.stale.clone() {
            let Some(gang) = self.gangs[idx.at()].as_ref() else { continue };
            let is_due = Self::stale_turn(policy, gang).is_some_and(|at| at <= now);
            let pods = if is_due { self.victims(gang) } else { Vec::new() };
            let Some(stale) = self.stale_state(gang).filter(|_| !pods.is_empty()) else { continue };
            evictions.push(Eviction { gang_uid: gang.facts.uid.clone(), gang: gang.facts.key.clone(), cause: Cause::Stale(stale), pods });
            let Some(gang) = self.gangs[idx.at()].as_mut() else { continue };
            gang.life.evicted_at = Some(now);
            // Replacements do not join pods that are about to go.
            gang.backoff = Some((now.saturating_add(EVICT_AGAIN_MILLIS), String::new()));
            gang.parked = None;
            self.dirty = true;
        }
        evictions
    }

    /// Live pods on nodes, by name. Those whose Binding is under way are not there yet.
    fn victims(&self, gang: &Gang) -> Vec<Victim> {
        let pods = self.gang_pods(&gang.facts.key).map(|(_, pod)| pod);
        let on_nodes = pods.filter(|pod| pod.live() && pod.node.is_some() && pod.place != PlaceState::Assumed && !pod.evicting);
        let mut victims: Vec<Victim> = on_nodes
            .map(|pod| Victim {
                pod: ObjectKey::new(pod.facts.namespace.clone(), pod.facts.name.clone()),
                pod_uid: pod.facts.uid.clone(),
            })
            .collect();
        victims.sort();
        victims
    }

    /// Since when a gang is below its minimum, and by how much.
    pub(crate) fn stale_state(&self, gang: &Gang) -> Option<Stale> {
        let since = gang.life.stale_since?;
        let placed = self.standing(gang).placed;
        let short = (1..gang.subs.len()).find(|sub| gang.subs[*sub].children.is_empty() && placed[*sub] < gang.subs[*sub].min);
        let named = short.filter(|_| !gang.facts.subgroups.is_empty());
        Some(Stale {
            since,
            evicting: gang.life.evicted_at.is_some(),
            subgroup: named.map(|sub| gang.subs[sub].name.clone()).unwrap_or_default(),
            has: short.map_or(0, |sub| placed[sub]),
            needs: short.map_or(0, |sub| gang.subs[sub].min),
        })
    }

    /// The next moment at which a stale gang is to be given up, or once more.
    pub(crate) fn next_stale(&self, policy: &Policy) -> Option<Millis> {
        let gangs = self.stale.iter().filter_map(|idx: &GangIdx| self.gangs[idx.at()].as_ref());
        gangs.filter_map(|gang| Self::stale_turn(policy, gang)).min()
    }

    fn stale_turn(policy: &Policy, gang: &Gang) -> Option<Millis> {
        let until = Self::stale_until(policy, gang)?;
        let again = gang.life.evicted_at.map(|at| at.saturating_add(EVICT_AGAIN_MILLIS));
        Some(again.map_or(until, |again| again.max(until)))
    }
}

/// Brings the past of a gang up to date.
fn review(gang: &mut Gang, standing: &Standing, now: Millis) {
    if standing.placed.iter().all(|n| *n == 0) {
        gang.life = Life { last_evicted: gang.life.last_evicted, ..Life::default() };
        return;
    }
    let is_whole = reached(gang, 0, &standing.placed);
    let life = &mut gang.life;
    if !std::mem::replace(&mut life.begun, true) {
        life.noted = gang.facts.stale_since.filter(|since| *since <= now);
    }
    life.succeeded |= standing.succeeded;
    life.filled.resize(gang.subs.len(), 0);
    for (filled, confirmed) in life.filled.iter_mut().zip(&standing.confirmed) {
        *filled = if is_whole { *confirmed } else { (*confirmed).max(*filled) };
    }
    if is_whole {
        (life.stale_since, life.noted) = (None, None);
        if !life.preempted {
            life.evicted_at = None;
        }
        return;
    }
    // What a decision placed together tells a new process of a gang that it never saw whole.
    let noted = gang.life.noted;
    let was_whole = noted.is_some() || reached(gang, 0, &gang.life.filled) || super::report::gang_min(gang, 0) <= standing.decided;
    let has_mistakes = !gang.problems.is_empty() || !gang.facts.problems.is_empty();
    let is_stale = was_whole && !gang.life.succeeded && !has_mistakes;
    gang.life.stale_since = is_stale.then(|| gang.life.stale_since.or(noted).unwrap_or(now));
}

/// Whether a subgroup has its minimum, with so many pods in each leaf.
pub(super) fn reached(gang: &Gang, sub: usize, pods: &[u32]) -> bool {
    let Some(entry) = gang.subs.get(sub) else { return false };
    if entry.children.is_empty() {
        return entry.min <= pods.get(sub).copied().unwrap_or(0);
    }
    let ready = entry.children.iter().filter(|child| reached(gang, **child, pods)).count();
    entry.min as usize <= ready
}
