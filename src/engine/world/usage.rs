//! What gangs and queues ask for and have, for statuses: sums that are kept by gang, of the pods as last looked at.

use std::collections::BTreeMap;

use crate::facts::Amounts;
use crate::fit::volumes::driver_of;
use crate::outcome::QueueReport;
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
            }
        };
        self.queues.keys().map(report).collect()
    }
}

fn is_resource(name: &str) -> bool {
    name != "pods" && driver_of(name).is_none()
}
