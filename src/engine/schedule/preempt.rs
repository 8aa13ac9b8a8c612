//! Room for a gang that does not fit: others are evicted for it, if that is allowed and helps.

use std::collections::{BTreeMap, BTreeSet};

use super::{Pass, Signature};
use crate::evict::prey::Rules;
use crate::evict::{Found, hunt};
use crate::facts::ObjectKey;
use crate::ids::{GangIdx, PodIdx};
use crate::outcome::{Action, Cause, Code, Eviction, Outcome, Promised, Reason, RoomFor, Unit, Victim};
use crate::place::task::Item;
use crate::world::World;
use crate::world::life::EVICT_AGAIN_MILLIS;

/// Searches that found nothing; gangs alike share the answer while nothing has changed.
pub(super) type Unhelped = BTreeSet<(Signature, String, i32)>;

impl Pass<'_> {
    /// Looks for pods to evict for a gang whose minimum failed for want of room. Gives the reason why it waits when room
    /// is kept for it.
    pub(super) fn make_room(&mut self, idx: GangIdx, item: &Item, why: &Reason) -> Option<Reason> {
        if !wants_room(why.code) {
            return None;
        }
        let gang = self.world.gangs[idx.at()].as_ref()?;
        if gang.promise.is_some() {
            let (left, all) = self.world.awaited_leavers(gang);
            if left > 0 {
                return Some(waiting(all - left, all));
            }
            if !self.hunts {
                return None;
            }
            // Everybody has left, and still it does not fit: something else took the room, or is in the way.
            self.withdraw(idx);
        }
        let gang = self.world.gangs[idx.at()].as_ref()?;
        let facts = &gang.facts;
        let since = gang.life.last_evicted.map_or(facts.created, |at| at.max(facts.created));
        let from = since.saturating_add(facts.preemption_delay_millis);
        if !self.hunts {
            return None;
        }
        if self.now < from {
            self.world.gangs[idx.at()].as_mut()?.hunt_from = Some(from);
            return None;
        }
        let never = |pod: &PodIdx| self.world.pods.get(pod.at()).and_then(Option::as_ref).is_some_and(|pod| pod.facts.never_preempts);
        if item.existing_pods().iter().any(never) {
            return None;
        }
        let signature = (Signature::of(item), facts.queue.clone(), facts.priority);
        if self.unhelped.contains(&signature) {
            return None;
        }
        let mut rooms = std::mem::take(&mut self.world.rooms);
        let hunted = hunt(self.world, &mut rooms, self.policy, item, &Rules { gang, now: self.now });
        self.world.rooms = rooms;
        self.outcome.steps += hunted.steps;
        // Without anybody to wait for, the next try finds it by itself.
        let Some(found) = hunted.found.filter(|found| !found.awaits.is_empty()) else {
            self.unhelped.insert(signature);
            self.world.gangs[idx.at()].as_mut()?.hunt_from = hunted.again;
            return None;
        };
        self.keep(idx, &found);
        Some(waiting(0, found.awaits.len()))
    }

    /// Gives up the room that is kept for a gang.
    pub(super) fn withdraw(&mut self, idx: GangIdx) {
        self.world.withdraw(idx);
        self.outcome.tell_withdrawn(self.world);
    }

    /// Keeps the room, and has the victims evicted.
    fn keep(&mut self, idx: GangIdx, found: &Found) {
        let placements = found.places.iter().filter_map(|(pod, node)| self.placement(idx, *pod, *node)).collect();
        let Some(by) = self.world.gangs[idx.at()].as_ref().map(|gang| gang.facts.clone()) else { return };
        let mut by_gang: BTreeMap<GangIdx, Vec<Victim>> = BTreeMap::new();
        for pod in found.victims.iter().filter_map(|pod| self.world.pods[pod.at()].as_ref()) {
            let Some(gang) = self.world.gang_idx_of(&pod.facts) else { continue };
            let name = ObjectKey::new(pod.facts.namespace.clone(), pod.facts.name.clone());
            by_gang.entry(gang).or_default().push(Victim { pod: name, pod_uid: pod.facts.uid.clone() });
        }
        for (gang, mut pods) in by_gang {
            pods.sort();
            let whole = found.whole.contains(&gang);
            let Some(victim) = self.world.gangs[gang.at()].as_mut() else { continue };
            if whole {
                (victim.life.preempted, victim.life.evicted_at) = (true, Some(self.now));
                victim.life.last_evicted = Some(self.now);
                // Replacements do not join pods that are about to go.
                let text = format!("{}/{}", by.key.namespace, by.key.name);
                victim.backoff = Some((self.now.saturating_add(EVICT_AGAIN_MILLIS), text));
                victim.parked = None;
            }
            let room = RoomFor {
                action: Action::Preempt,
                by_uid: by.uid.clone(),
                by: by.key.clone(),
                by_priority: by.priority,
                priority: victim.facts.priority,
                whole,
            };
            let (gang_uid, gang) = (victim.facts.uid.clone(), victim.facts.key.clone());
            self.outcome.changed.push(gang_uid.clone());
            self.outcome.evictions.push(Eviction { gang_uid, gang, cause: Cause::Room(Box::new(room)), pods });
        }
        if let Some(gang) = self.world.gangs[idx.at()].as_mut() {
            gang.hunt_from = None;
        }
        // What failed before failed with more room.
        self.failed.clear();
        self.world.promise(idx, &found.places, &found.awaits, &found.victims, self.now);
        self.outcome.promised.push(Promised { gang_uid: by.uid, gang: by.key, places: placements });
    }
}

impl Outcome {
    /// Counts what took room: verdicts made at another count may be out of date.
    pub(super) fn turn(&self) -> usize {
        self.decisions.len() + self.promised.iter().filter(|promised| !promised.places.is_empty()).count()
    }

    /// Takes over which promises have ended.
    pub(super) fn tell_withdrawn(&mut self, world: &mut World) {
        for (gang_uid, gang) in std::mem::take(&mut world.withdrawn) {
            self.changed.push(gang_uid.clone());
            self.promised.push(Promised { gang_uid, gang, places: Vec::new() });
        }
    }
}

/// More room could help.
fn wants_room(code: Code) -> bool {
    matches!(
        code,
        Code::RequiredDomainTooSmall
            | Code::PinnedDomainFull
            | Code::SubgroupsDoNotFitTogether
            | Code::NotEnoughRoom
            | Code::PodRulesUnmet
            | Code::NotFoundWithinBudget
    )
}

fn waiting(gone: usize, all: usize) -> Reason {
    let mut reason = Reason::new(Code::WaitingForRoom);
    reason.unit = Unit::Pods;
    (reason.has, reason.needs) = (gone as u32, all as u32);
    reason
}
