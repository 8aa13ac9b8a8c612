//! Room for a gang that does not fit: others are evicted for it, if that is allowed and helps.

use std::collections::{BTreeMap, BTreeSet};

use super::{Pass, Signature};
use crate::evict::fair::{Fair, chains};
use crate::evict::prey::{Field, Rules, field};
use crate::evict::{Found, hunt};
use crate::facts::ObjectKey;
use crate::ids::{GangIdx, PodIdx};
use crate::outcome::{Action, Cause, Code, Eviction, Outcome, Promised, Reason, RoomFor, Unit, Victim};
use crate::place::task::Item;
use crate::world::World;
use crate::world::life::EVICT_AGAIN_MILLIS;
use crate::world::shares::{Amounts3, Standings};

/// Searches that found nothing; gangs alike share the answer while nothing has changed.
pub(super) type Unhelped = BTreeSet<(Action, Signature, String, i32)>;

/// Who may go, by right, queue and priority of who asks: made once in a pass, for as long as nobody comes back.
pub(super) type Fields = BTreeMap<(Action, String, i32), Field>;

/// How queues stand in a pass, and what moves between them once all that leaves has left and all that is promised is kept.
pub(super) struct Balance {
    standings: Standings,
    moves: BTreeMap<String, Amounts3>,
}

impl Pass<'_> {
    /// Looks for pods to evict for a gang whose minimum failed for want of room. Gives the reason why it waits when room
    /// is kept for it.
    pub(super) fn make_room(&mut self, idx: GangIdx, item: &Item, why: &Reason) -> Option<Reason> {
        // At the limit of its queue only work of the queue can help.
        let at_limit = why.code == Code::QueueOverLimit;
        if !wants_room(why.code) && !at_limit {
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
        for action in [Action::Reclaim, Action::Preempt] {
            if at_limit && action == Action::Reclaim {
                continue;
            }
            if let Some(found) = self.hunt(idx, item, action) {
                self.keep(idx, item, &found, action);
                return Some(waiting(0, found.awaits.len()));
            }
        }
        None
    }

    /// One search. What gangs alike did not find is not looked for again in the pass.
    fn hunt(&mut self, idx: GangIdx, item: &Item, action: Action) -> Option<Found> {
        let facts = &self.world.gangs[idx.at()].as_ref()?.facts;
        // Priorities matter within a queue only.
        let priority = if action == Action::Preempt { facts.priority } else { 0 };
        let signature = (action, Signature::of(item), facts.queue.clone(), priority);
        if self.unhelped.contains(&signature) {
            return None;
        }
        let fair = match action {
            Action::Preempt => None,
            Action::Reclaim => Some(self.fair(idx, item).filter(Fair::may_ask)?),
        };
        let gang = self.world.gangs[idx.at()].as_ref()?;
        let facts = &gang.facts;
        let owed = if action == Action::Preempt { self.world.over_by(&facts.queue, self.charge_of(item)) } else { Amounts3::default() };
        let rules = Rules { gang, action, fair: fair.as_ref(), owed, now: self.now };
        let of = (action, facts.queue.clone(), priority);
        let mut field = self.fields.remove(&of).unwrap_or_else(|| field(self.world, &rules));
        let mut rooms = std::mem::take(&mut self.world.rooms);
        let hunted = hunt(self.world, &mut rooms, self.policy, item, &rules, &mut field);
        self.fields.insert(of, field);
        self.world.rooms = rooms;
        self.outcome.steps += hunted.steps;
        // Without anybody to wait for, the next try finds it by itself.
        let found = hunted.found.filter(|found| !found.awaits.is_empty());
        if found.is_none() {
            self.unhelped.insert(signature);
            let again = hunted.again;
            let gang = self.world.gangs[idx.at()].as_mut()?;
            gang.hunt_from = again.into_iter().chain(gang.hunt_from).min();
        }
        found
    }

    /// How the queues stand for a gang: with what leaves taken off, and what is promised added.
    fn fair(&mut self, idx: GangIdx, item: &Item) -> Option<Fair> {
        if self.world.queues.len() < 2 {
            return None;
        }
        if self.balance.is_none() {
            self.balance = Some(Balance { standings: self.world.standings(), moves: self.world.moves() });
        }
        let (asked, queue) = (self.charge_of(item), &self.world.gangs[idx.at()].as_ref()?.facts.queue);
        let balance = self.balance.as_mut()?;
        let mut charged = self.world.charged.clone();
        for (queue, amounts) in &balance.moves {
            let row = charged.entry(queue.clone()).or_default();
            amounts.iter().zip(row.iter_mut()).for_each(|(amount, sum)| *sum = sum.saturating_add(*amount));
        }
        balance.standings.follow(&charged);
        let leaf = *balance.standings.by_name.get(queue)?;
        let chains = chains(&balance.standings);
        Some(Fair { standings: balance.standings.clone(), chains, leaf, asked })
    }

    /// Gives up the room that is kept for a gang.
    pub(super) fn withdraw(&mut self, idx: GangIdx) {
        if self.world.withdraw(idx) {
            self.balance = None;
            self.fields.clear();
        }
        self.outcome.tell_withdrawn(self.world);
    }

    /// Keeps the room, and has the victims evicted.
    fn keep(&mut self, idx: GangIdx, item: &Item, found: &Found, action: Action) {
        let placements = found.places.iter().filter_map(|(pod, node)| self.placement(idx, *pod, *node)).collect();
        let Some(by) = self.world.gangs[idx.at()].as_ref().map(|gang| gang.facts.clone()) else { return };
        let asked = self.charge_of(item);
        if let Some(balance) = &mut self.balance {
            shift(balance.moves.entry(by.queue.clone()).or_default(), &asked, 1);
            for (pod, gang) in found.victims.iter().filter_map(|pod| {
                let pod = self.world.pods[pod.at()].as_ref()?;
                Some((pod, self.world.gangs[self.world.gang_idx_of(&pod.facts)?.at()].as_ref()?))
            }) {
                shift(balance.moves.entry(gang.facts.queue.clone()).or_default(), &self.world.charge_of(&pod.requests), -1);
            }
        }
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
                action,
                by_uid: by.uid.clone(),
                by: by.key.clone(),
                by_priority: by.priority,
                by_queue: by.queue.clone(),
                queue: victim.facts.queue.clone(),
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
        self.fields.values_mut().for_each(|field| field.forget(&found.victims));
        self.world.promise(idx, &found.places, &found.awaits, &found.victims, self.now);
        self.outcome.promised.push(Promised { gang_uid: by.uid, gang: by.key, places: placements });
    }
}

fn shift(sum: &mut Amounts3, more: &Amounts3, times: i64) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more.saturating_mul(times)));
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
            | Code::DomainLimit
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
