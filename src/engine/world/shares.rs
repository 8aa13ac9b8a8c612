//! The tree of queues with what each has, wants and may have: the ground for whose turn it is.
//!
//! Shares are divided from the top down ([`crate::share::divide`]): what the cluster has among the queues without a
//! parent, then the share of each among its children. The cluster has what ready nodes have, less what pods of other
//! schedulers hold. Built once a pass; what is charged is followed decision by decision.

use std::collections::BTreeMap;

use crate::facts::{Millis, QueueAmount};
use crate::share::{Claim, divide};
use crate::world::World;

/// GPUs, milli-cores and megabytes in thousandths.
pub(crate) type Amounts3 = [i64; 3];

/// A queue, and how it stands.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub name: String,
    pub created: Millis,
    pub priority: i64,
    pub amounts: [QueueAmount; 3],
    pub parent: Option<usize>,
    pub children: Vec<usize>,
    /// What its pods have, itself and below.
    pub allocated: Amounts3,
    /// What they have and ask for.
    pub requested: Amounts3,
    /// Its fair share.
    pub fair: Amounts3,
}

impl Standing {
    /// What it may use by right: the larger of quota and fair share, within the limit; `None` is all there is.
    pub(crate) fn allocatable(&self, slot: usize) -> Option<i64> {
        let amount = &self.amounts[slot];
        let right = amount.quota_millis.map(|quota| quota.max(self.fair[slot]));
        match (right, amount.limit_millis) {
            (Some(right), Some(limit)) => Some(right.min(limit)),
            (right, limit) => right.or(limit),
        }
    }
}

/// All queues.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standings {
    pub queues: Vec<Standing>,
    pub by_name: BTreeMap<String, usize>,
    pub roots: Vec<usize>,
    /// What there is to divide.
    pub total: Amounts3,
}

impl World {
    /// How all queues stand now.
    pub(crate) fn standings(&self) -> Standings {
        let mut standings = Standings { total: self.divisible(), ..Standings::default() };
        for queue in self.queues.values() {
            let amounts = [queue.gpu, queue.cpu, queue.memory];
            standings.push(&queue.name, queue.created, queue.priority, amounts);
        }
        // Without any Queue there is one, unlimited; work of a queue that does not exist waits with a reason.
        let mut takes: BTreeMap<&str, bool> = BTreeMap::new();
        for gang in self.gangs.iter().flatten() {
            if !standings.by_name.contains_key(&gang.facts.queue) {
                standings.push(&gang.facts.queue, Millis::MAX, 100, [QueueAmount::UNLIMITED; 3]);
            }
            let at = standings.by_name[&gang.facts.queue];
            // Work that its queue does not take asks for nothing: what it waits for is no share.
            let takes = *takes.entry(gang.facts.queue.as_str()).or_insert_with_key(|queue| self.takes_work(queue).is_ok());
            let row = if takes { &gang.usage.requested } else { &gang.usage.allocated };
            let row: Vec<(usize, i64)> = row.iter().copied().enumerate().collect();
            add(&mut standings.queues[at].requested, &self.charge_of(&row));
        }
        standings.link(|name| self.queues.get(name)?.parent.clone());
        standings.follow(&self.charged);
        standings.sum_up(|queue| &mut queue.requested);
        standings.divide();
        standings
    }

    /// What ready nodes have, less what pods of other schedulers hold there.
    fn divisible(&self) -> Amounts3 {
        let mut total = Amounts3::default();
        for node in self.nodes.iter().flatten().filter(|node| node.facts.ready) {
            let row: Vec<(usize, i64)> = node.allocatable.iter().copied().enumerate().collect();
            add(&mut total, &self.charge_of(&row));
            for pod in node.pods.iter().filter_map(|pod| self.pods[pod.at()].as_ref()).filter(|pod| !pod.facts.ours) {
                let held = self.charge_of(&pod.requests);
                add(&mut total, &held.map(|amount| -amount));
            }
        }
        total.map(|amount| amount.max(0))
    }
}

fn add(sum: &mut Amounts3, more: &Amounts3) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum = sum.saturating_add(*more);
    }
}

impl Standings {
    fn push(&mut self, name: &str, created: Millis, priority: i64, amounts: [QueueAmount; 3]) {
        self.by_name.insert(name.to_owned(), self.queues.len());
        self.queues.push(Standing {
            name: name.to_owned(),
            created,
            priority,
            amounts,
            parent: None,
            children: Vec::new(),
            allocated: Amounts3::default(),
            requested: Amounts3::default(),
            fair: Amounts3::default(),
        });
    }

    /// Parents and children; a queue whose parent is missing, or which is its own ancestor, stands at the top.
    fn link(&mut self, parent: impl Fn(&str) -> Option<String>) {
        for at in 0..self.queues.len() {
            let above = parent(&self.queues[at].name).and_then(|name| self.by_name.get(&name).copied());
            self.queues[at].parent = above.filter(|above| *above != at);
        }
        for at in 0..self.queues.len() {
            let mut above = self.queues[at].parent;
            for _ in 0..self.queues.len() {
                let Some(next) = above else { break };
                above = self.queues[next].parent;
            }
            if above.is_some() {
                self.queues[at].parent = None;
            }
        }
        for at in 0..self.queues.len() {
            match self.queues[at].parent {
                Some(above) => self.queues[above].children.push(at),
                None => self.roots.push(at),
            }
        }
    }

    /// Reads what is charged to the leaves, and sums it up.
    pub(crate) fn follow(&mut self, charged: &BTreeMap<String, [i64; 6]>) {
        for queue in &mut self.queues {
            let amounts = charged.get(&queue.name).copied().unwrap_or_default();
            queue.allocated = [amounts[0], amounts[1], amounts[2]];
        }
        self.sum_up(|queue| &mut queue.allocated);
    }

    fn sum_up(&mut self, part: impl Fn(&mut Standing) -> &mut Amounts3) {
        for at in self.bottom_up() {
            if let Some(above) = self.queues[at].parent {
                let amounts = *part(&mut self.queues[at]);
                add(part(&mut self.queues[above]), &amounts);
            }
        }
    }

    /// Children before their parents.
    fn bottom_up(&self) -> Vec<usize> {
        let mut order: Vec<usize> = self.roots.clone();
        let mut next = 0;
        while let Some(at) = order.get(next).copied() {
            order.extend(&self.queues[at].children);
            next += 1;
        }
        order.reverse();
        order
    }

    fn divide(&mut self) {
        let mut groups: Vec<(Amounts3, Vec<usize>)> = vec![(self.total, self.roots.clone())];
        while let Some((total, siblings)) = groups.pop() {
            for slot in 0..3 {
                let claims: Vec<Claim> = siblings.iter().map(|at| self.claim(*at, slot)).collect();
                for (at, share) in siblings.iter().zip(divide(total[slot], &claims)) {
                    self.queues[*at].fair[slot] = share;
                }
            }
            for at in siblings.iter().filter(|at| !self.queues[**at].children.is_empty()) {
                groups.push((self.queues[*at].fair, self.queues[*at].children.clone()));
            }
        }
    }

    fn claim(&self, at: usize, slot: usize) -> Claim {
        let queue = &self.queues[at];
        let amount = &queue.amounts[slot];
        Claim {
            quota: amount.quota_millis,
            limit: amount.limit_millis,
            weight: amount.weight_millis,
            priority: queue.priority,
            request: queue.requested[slot],
            created: queue.created,
            name: queue.name.clone(),
        }
    }
}
