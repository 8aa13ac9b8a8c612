//! Decisions of the engine carried out in virtual time.

use std::time::Instant;

use berth_engine::check;
use berth_engine::facts::{BindResult, Event, Millis};
use berth_engine::outcome::{Decision, Victim};
use berth_engine::schedule::schedule;
use serde_json::Value;

use super::{Cluster, MAX_PASSES};
use crate::scheduler::flights::FIRST_BACK_OFF_MILLIS;
use crate::simulate::input::{Item, Place};
use crate::simulate::objects::{ObjectId, fresh_copy};

impl Cluster {
    /// Schedules until nothing more is decided, carrying out every decision.
    pub fn settle(&mut self) {
        let policy = self.options.policy();
        for _ in 0..MAX_PASSES {
            self.refresh_budgets();
            let started = Instant::now();
            let outcome = schedule(&mut self.world, &policy, self.now);
            self.solve_micros += started.elapsed().as_micros();
            self.steps += outcome.steps;
            self.next_wakeup = outcome.next_wakeup;
            self.faults.extend(check::pass(&self.world, &policy, &outcome).faults);
            if outcome.decisions.is_empty() && outcome.evictions.is_empty() {
                if self.release_scaled_gangs() {
                    continue;
                }
                return;
            }
            for eviction in outcome.evictions {
                eviction.pods.iter().for_each(|victim| self.evict(victim));
                self.evictions.push(eviction);
            }
            for decision in outcome.decisions {
                self.carry_out(&decision);
                self.decisions.push(decision);
            }
        }
    }

    /// The pod is gone at once; who made it makes another.
    fn evict(&mut self, victim: &Victim) {
        let Victim { pod, pod_uid } = victim;
        let id = ObjectId { kind: "Pod".to_owned(), namespace: pod.namespace.clone(), name: pod.name.clone() };
        let Some(stored) = self.objects.get(&id).filter(|stored| stored.uid == *pod_uid).cloned() else { return };
        self.evicted.push(pod.name.clone());
        self.delete(&id);
        let owners = stored.value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        if owners.into_iter().flatten().any(|owner| owner["controller"] == Value::Bool(true)) {
            self.apply(vec![Item { place: stored.place, value: fresh_copy(stored.value) }]);
        }
    }

    fn carry_out(&mut self, decision: &Decision) {
        let place = Place::default();
        for placement in &decision.placements {
            self.send(Event::BindSent(placement.pod_uid.clone()), &place);
        }
        let mut refusal = None;
        for placement in &decision.placements {
            let result = self.bind_result(&placement.pod.name);
            let bound = result == BindResult::Bound;
            let id = ObjectId {
                kind: "Pod".to_owned(),
                namespace: placement.pod.namespace.clone(),
                name: placement.pod.name.clone(),
            };
            if bound
                && let Some(pod) = self.objects.get_mut(&id)
                && let Some(Value::Object(spec)) = pod.value.get_mut("spec")
            {
                spec.insert("nodeName".to_owned(), Value::String(placement.node.clone()));
            }
            if let BindResult::Transient(text) | BindResult::Permanent(text) | BindResult::Unknown(text) = &result {
                refusal.get_or_insert_with(|| text.clone());
            }
            self.send(Event::BindEnded(placement.pod_uid.clone(), result), &place);
        }
        if let Some(text) = refusal {
            let until = self.now.saturating_add(FIRST_BACK_OFF_MILLIS);
            self.send(Event::Backoff(decision.gang_uid.clone(), until, text), &place);
        }
    }

    fn bind_result(&mut self, pod: &str) -> BindResult {
        match self.rejections.get_mut(pod) {
            Some(rejection) if rejection.times > 0 => {
                rejection.times -= 1;
                rejection.result.clone()
            }
            _ => BindResult::Bound,
        }
    }

    /// Moves the clock, waking whenever the engine asked to be woken.
    pub fn advance(&mut self, by: Millis) {
        let end = self.now.saturating_add(by);
        while let Some(wakeup) = self.next_wakeup.filter(|wakeup| *wakeup <= end && *wakeup > self.now) {
            self.now = wakeup;
            self.settle();
        }
        self.now = end;
        self.settle();
    }
}
