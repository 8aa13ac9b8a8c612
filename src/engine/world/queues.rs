//! Queues: what is charged to them, and which limit a gang would pass.

use crate::facts::{Millis, ObjectKey, QueueFacts};
use crate::fit;
use crate::ids::PodIdx;
use crate::outcome::QueueBlock;
use crate::world::World;
use crate::world::apply::gang_key;
use crate::world::model::PlaceState;

/// The queue of workloads that name none. While no Queue exists at all it is unlimited.
pub const DEFAULT_QUEUE: &str = "default-queue";
/// Why a queue cannot take work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueError {
    /// No queue of that name.
    NotFound(String),
    /// It has children: only leaves take work.
    NotLeaf(String),
    /// The queue, and the one above it that does not exist; none when the queue is above itself.
    Orphaned(String, Option<String>),
    /// A limit would be passed.
    OverLimit(QueueBlock),
    /// Work that can't be preempted would pass a quota.
    OverQuota(QueueBlock),
}

const RESOURCES: [&str; 3] = ["gpu", "cpu", "memory"];

/// GPUs, milli-cores and megabytes in thousandths: of all pods, then of those that are not preemptible.
pub(crate) type Charge = [i64; 6];

/// Where the second half begins.
const HELD: usize = 3;

fn charge_to(total: &mut Charge, charge: &Charge, sign: i64) {
    for (sum, amount) in total.iter_mut().zip(charge) {
        *sum = sum.saturating_add(amount.saturating_mul(sign));
    }
}

impl World {
    /// GPUs, milli-cores and megabytes of a pod, each in thousandths.
    pub(crate) fn charge_of(&self, requests: &[(usize, i64)]) -> [i64; 3] {
        let mut charge = [0_i64; 3];
        for (column, amount) in requests {
            let (slot, millis) = match self.columns[*column].as_str() {
                "cpu" => (1, amount.saturating_mul(1000)),
                // Bytes to thousandths of a megabyte, rounded up.
                "memory" => (2, amount.saturating_add(999) / 1000),
                name if fit::is_gpu(name) => (0, amount.saturating_mul(1000)),
                _ => continue,
            };
            charge[slot] = charge[slot].saturating_add(millis);
        }
        charge
    }

    pub(super) fn charge(&mut self, idx: PodIdx) {
        let Some(pod) = self.pods[idx.at()].as_ref() else { return };
        if !pod.holds() {
            return;
        }
        let Some(gang) = gang_key(&pod.facts)
            .and_then(|key| self.gang_by_key.get(&key))
            .and_then(|gang| self.gangs[gang.at()].as_ref())
        else {
            return;
        };
        let (queue, own) = (gang.facts.queue.clone(), self.charge_of(&pod.requests));
        if gang.facts.preemptible && pod.live() && pod.place != PlaceState::Assumed {
            self.changes.note_prey(&queue, gang.facts.priority);
        }
        let held = if gang.facts.preemptible { [0; 3] } else { own };
        let charge = [own[0], own[1], own[2], held[0], held[1], held[2]];
        charge_to(self.charged.entry(queue.clone()).or_default(), &charge, 1);
        if let Some(pod) = self.pods[idx.at()].as_mut() {
            pod.charged = Some((queue, charge));
        }
    }

    pub(super) fn uncharge(&mut self, idx: PodIdx) {
        let Some(pod) = self.pods[idx.at()].as_mut() else { return };
        if let Some((queue, charge)) = pod.charged.take() {
            self.changes.note_charges(&self.charged);
            charge_to(self.charged.entry(queue).or_default(), &charge, -1);
        }
    }

    pub(super) fn recharge_gang(&mut self, key: &ObjectKey) {
        let pods: Vec<PodIdx> = self.pods_by_gang.get(key).into_iter().flatten().copied().collect();
        for pod in pods {
            self.uncharge(pod);
            self.charge(pod);
        }
    }

    /// The chain from a leaf queue to its root; a cycle ends where it began.
    pub(super) fn chain<'a>(&'a self, leaf: &str) -> Vec<&'a QueueFacts> {
        let mut chain = Vec::new();
        let mut at = self.queues.get(leaf);
        while let Some(queue) = at.filter(|_| chain.len() < self.queues.len()) {
            chain.push(queue);
            at = queue.parent.as_deref().and_then(|parent| self.queues.get(parent));
        }
        chain
    }

    /// That the queue exists, has none below it, and hangs from the top of the tree.
    pub(crate) fn takes_work(&self, queue: &str) -> Result<(), QueueError> {
        if !self.queues.contains_key(queue) {
            return if self.queues.is_empty() && ([DEFAULT_QUEUE, ""].contains(&queue)) {
                Ok(())
            } else {
                Err(QueueError::NotFound(queue.to_owned()))
            };
        }
        if self.queues.values().any(|other| other.parent.as_deref() == Some(queue) && other.name != queue) {
            return Err(QueueError::NotLeaf(queue.to_owned()));
        }
        let chain = self.chain(queue);
        let Some(top) = chain.last() else { return Ok(()) };
        match &top.parent {
            None => Ok(()),
            Some(parent) if self.queues.contains_key(parent) => Err(QueueError::Orphaned(queue.to_owned(), None)),
            Some(parent) => Err(QueueError::Orphaned(top.name.clone(), Some(parent.clone()))),
        }
    }

    /// Names of the queues below this one that have none below them; of all such queues when there is none of that name.
    pub(crate) fn leaves_below(&self, queue: &str) -> Vec<String> {
        let known = self.queues.contains_key(queue);
        let below = |leaf: &str| !known || self.chain(leaf).iter().any(|above| above.name == queue);
        let leaves = self.queues.keys().filter(|name| *name != queue && self.takes_work(name).is_ok() && below(name));
        leaves.cloned().collect()
    }

    /// How long gangs of the queue run before others of it may have them evicted: its own word, or that of the next above.
    pub(crate) fn preempt_min_runtime(&self, queue: &str) -> Millis {
        self.chain(queue).into_iter().find_map(|queue| queue.preempt_min_runtime).unwrap_or(0)
    }

    /// How long gangs of the queue run before gangs of another queue may have them evicted: the word of the queue in which
    /// the ways to the root part, on the side of the victim, or that of the next above (KAI's `lca`).
    pub(crate) fn reclaim_min_runtime(&self, victim: &str, other: &str) -> Millis {
        let (mut theirs, ours) = (self.chain(victim), self.chain(other));
        let common = theirs.iter().rev().zip(ours.iter().rev()).take_while(|(a, b)| a.name == b.name).count();
        // From the side's own queue upward.
        let from = theirs.len().saturating_sub(common + 1);
        theirs.drain(..from.min(theirs.len()));
        theirs.into_iter().find_map(|queue| queue.reclaim_min_runtime).unwrap_or(0)
    }

    /// What is charged to a queue and everything below it.
    pub(crate) fn charged_below(&self, queue: &str) -> Charge {
        let mut total = Charge::default();
        for (leaf, amounts) in &self.charged {
            if leaf == queue || self.chain(leaf).iter().any(|above| above.name == queue) {
                charge_to(&mut total, amounts, 1);
            }
        }
        total
    }

    /// Checks that the queue takes work and that `asked` (thousandths) passes no limit from leaf to root; of work that
    /// can't be preempted, no quota either: nobody could give such room back to those who deserve it.
    pub(crate) fn admit(&self, queue: &str, asked: [i64; 3], preemptible: bool) -> Result<(), QueueError> {
        self.takes_work(queue)?;
        for above in self.chain(queue) {
            let used = self.charged_below(&above.name);
            let amounts = [above.gpu, above.cpu, above.memory];
            let block = |slot: usize, used: i64, limit: Option<i64>| {
                limit.filter(|limit| asked[slot] > 0 && used.saturating_add(asked[slot]) > *limit).map(|limit| QueueBlock {
                    queue: above.name.clone(),
                    resource: RESOURCES[slot],
                    limit_millis: limit,
                    used_millis: used,
                    asked_millis: asked[slot],
                })
            };
            for slot in 0..3 {
                if let Some(block) = block(slot, used[slot], amounts[slot].limit_millis) {
                    return Err(QueueError::OverLimit(block));
                }
                if !preemptible && let Some(block) = block(slot, used[HELD + slot], amounts[slot].quota_millis) {
                    return Err(QueueError::OverQuota(block));
                }
            }
        }
        Ok(())
    }

    /// What work of the queue must give back, besides what leaves already, before so much more is within every limit.
    pub(crate) fn over_by(&self, queue: &str, asked: [i64; 3]) -> [i64; 3] {
        let mut owed = [0; 3];
        for above in self.chain(queue) {
            let used = self.charged_below(&above.name);
            for (slot, amount) in [above.gpu, above.cpu, above.memory].into_iter().enumerate() {
                let over = amount.limit_millis.filter(|_| asked[slot] > 0).map(|limit| used[slot].saturating_add(asked[slot]).saturating_sub(limit));
                owed[slot] = owed[slot].max(over.unwrap_or(0));
            }
        }
        if owed == [0; 3] {
            return owed;
        }
        let of_queue = |gang: &&crate::world::model::Gang| gang.facts.queue == queue;
        for gang in self.gangs.iter().flatten().filter(of_queue) {
            for (_, pod) in self.gang_pods(&gang.facts.key).filter(|(_, pod)| self.frees_room(pod)) {
                let leaving = self.charge_of(&pod.requests);
                owed = [0, 1, 2].map(|slot: usize| owed[slot].saturating_sub(leaving[slot]).max(0));
            }
        }
        owed
    }
}
