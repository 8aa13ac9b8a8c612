//! What gangs and queues ask for and have, for statuses: sums that are kept by gang, of the pods as last looked at.

use std::collections::BTreeMap;

use crate::facts::Amounts;
use crate::fit::volumes::driver_of;
use crate::outcome::{GangState, QueueReport, QueueShare};
use crate::world::World;
use crate::world::model::Gang;

/// Sums over the pods of a gang that are not over, by column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Of those on nodes, terminating ones included.
    pub allocated: Vec<i64>,
    /// Of all.
    pub requested: Vec<i64>,
}

fn add(row: &mut Vec<i64>, column: usize, amount: i64) {
    if row.len() <= column {
        row.resize(column + 1, 0);
    }
    row[column] = row[column].saturating_add(amount);
}

impl World {
    pub(super) fn usage_of(&self, gang: &Gang) -> Usage {
        let mut usage = Usage::default();
        for (_, pod) in self.gang_pods(&gang.facts.key).filter(|(_, pod)| !pod.over()) {
            for (column, amount) in &pod.requests {
                add(&mut usage.requested, *column, *amount);
                if pod.node.is_some() {
                    add(&mut usage.allocated, *column, *amount);
                }
            }
        }
        usage
    }

    /// By name, without the number of pods and volumes, which are limits of a node and no resources of a pod.
    pub(super) fn amounts_of(&self, row: &[i64]) -> Amounts {
        let named = self.columns.iter().zip(row).filter(|(name, amount)| **amount != 0 && is_resource(name));
        named.map(|(name, amount)| (name.clone(), *amount)).collect()
    }

    /// What every queue has and asks for, itself and the queues below it, by name.
    #[must_use]
    pub fn queue_reports(&self) -> Vec<QueueReport> {
        let mut sums: BTreeMap<&str, [Vec<i64>; 3]> = BTreeMap::new();
        for gang in self.gangs.iter().flatten() {
            let held = if gang.facts.preemptible { &[][..] } else { &gang.usage.allocated };
            let rows = [&gang.usage.allocated[..], held, &gang.usage.requested];
            for queue in self.chain(&gang.facts.queue) {
                let slot = sums.entry(&queue.name).or_default();
                for (sum, row) in slot.iter_mut().zip(rows) {
                    row.iter().enumerate().for_each(|(column, amount)| add(sum, column, *amount));
                }
            }
        }
        let mut shares = self.queue_shares();
        let mut children: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for queue in self.queues.values() {
            if let Some(parent) = &queue.parent {
                children.entry(parent).or_default().push(queue.name.clone());
            }
        }
        let report = |name: &String| {
            let [allocated, held, requested] = sums.remove(name.as_str()).unwrap_or_default();
            QueueReport {
                name: name.clone(),
                children: children.remove(name.as_str()).unwrap_or_default(),
                allocated: self.amounts_of(&allocated),
                allocated_non_preemptible: self.amounts_of(&held),
                requested: self.amounts_of(&requested),
                share: shares.remove(name).unwrap_or_default(),
            }
        };
        self.queues.keys().map(report).collect()
    }
}

impl World {
    /// How every queue stands, by name.
    fn queue_shares(&self) -> BTreeMap<String, QueueShare> {
        let mut standings = self.standings();
        let unplaceable = self.unplaceable();
        // The same way up the tree as everything else that is charged.
        let mut below = standings.clone();
        below.follow(&unplaceable);
        standings.queues.iter_mut().zip(below.queues).map(|(queue, below)| {
            let share = QueueShare {
                parent: self.queues.get(&queue.name).and_then(|facts| facts.parent.clone()),
                priority: queue.priority,
                quota: queue.amounts.map(|amount| amount.quota_millis),
                limit: queue.amounts.map(|amount| amount.limit_millis),
                weight: queue.amounts.map(|amount| amount.weight_millis),
                fair: queue.fair,
                allocated: queue.allocated,
                requested: queue.requested,
                unplaceable: below.allocated,
            };
            (std::mem::take(&mut queue.name), share)
        }).collect()
    }

    /// What gangs ask for, by their queue, that found no place for their minimum.
    fn unplaceable(&self) -> BTreeMap<String, [i64; 6]> {
        let mut sums: BTreeMap<String, [i64; 6]> = BTreeMap::new();
        for idx in &self.waiting {
            let Some(gang) = self.gangs[idx.at()].as_ref() else { continue };
            let found_none = gang.reasons.first().is_some_and(|reason| reason.code.new_node_could_help());
            if !found_none || matches!(self.state_of(*idx), Some(GangState::Placed | GangState::Done) | None) {
                continue;
            }
            let sum = sums.entry(gang.facts.queue.clone()).or_default();
            for (sum, amount) in sum.iter_mut().zip(self.waiting_of(gang)) {
                *sum = sum.saturating_add(amount);
            }
        }
        sums
    }

    /// What the pods of a gang ask for that have no node.
    pub(crate) fn waiting_of(&self, gang: &Gang) -> [i64; 3] {
        let charge = |row: &[i64]| self.charge_of(&row.iter().copied().enumerate().collect::<Vec<_>>());
        let (all, on_nodes) = (charge(&gang.usage.requested), charge(&gang.usage.allocated));
        [0, 1, 2].map(|slot| i64::max(0, all[slot] - on_nodes[slot]))
    }
}

fn is_resource(name: &str) -> bool {
    name != "pods" && driver_of(name).is_none()
}
