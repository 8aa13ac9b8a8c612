//! Reclaiming between queues: when the side of a victim owes room to the side of who asks (KAI Scheduler's rules).
//!
//! The two sides are the queues in which the ways from the two leaves to the root part. Who asks stays within the fair
//! share of its own queue. The other side gives pods only while it has more than it may use by right, or, as long as the
//! side that asks stays within its quota, while it has more than its quota; and it must not end up standing worse than
//! the side that asks. Amounts are exact; ratios are compared by multiplication.

use std::collections::BTreeMap;

use crate::world::shares::{Amounts3, Standings};

/// How the queues stand, for one gang that asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fair {
    /// The queues, with what leaves taken off and what is promised added.
    pub standings: Standings,
    /// Queue of the gang that asks.
    pub leaf: usize,
    /// What it asks for.
    pub asked: Amounts3,
}

/// Longer chains of parents are a cycle.
const MAX_DEPTH: usize = 64;

impl Fair {
    /// A queue and those above it.
    fn chain(&self, leaf: usize) -> Vec<usize> {
        let mut chain = vec![leaf];
        let mut at = leaf;
        while let Some(parent) = self.standings.queues[at].parent.filter(|_| chain.len() < MAX_DEPTH) {
            chain.push(parent);
            at = parent;
        }
        chain
    }

    /// With what it asks for, the gang's own queue stays within its fair share.
    pub(crate) fn may_ask(&self) -> bool {
        let queue = &self.standings.queues[self.leaf];
        (0..3).all(|slot| self.asked[slot] == 0 || queue.allocated[slot].saturating_add(self.asked[slot]) <= queue.fair[slot])
    }

    /// The two queues in which the ways to the root part: on the side of who asks, and on that of the victim.
    pub(super) fn sides(&self, victim: usize) -> Option<(usize, usize)> {
        let (mut ours, mut theirs) = (self.chain(self.leaf), self.chain(victim));
        while ours.last().is_some() && ours.last() == theirs.last() {
            ours.pop();
            theirs.pop();
        }
        Some((*ours.last()?, *theirs.last()?))
    }

    /// What is left to a queue, itself and below, without what was taken from these leaves.
    fn left(&self, queue: usize, taken: &BTreeMap<usize, Amounts3>) -> Amounts3 {
        let mut left = self.standings.queues[queue].allocated;
        for (_, amounts) in taken.iter().filter(|(leaf, _)| self.chain(**leaf).contains(&queue)) {
            for slot in 0..3 {
                left[slot] = left[slot].saturating_sub(amounts[slot]);
            }
        }
        left
    }

    /// Whether `more` may be taken from a leaf after `taken` was.
    pub(super) fn allows(&self, victim: usize, taken: &BTreeMap<usize, Amounts3>, more: &Amounts3) -> bool {
        let Some((ours, theirs)) = self.sides(victim) else { return false };
        let (asks, gives) = (&self.standings.queues[ours], &self.standings.queues[theirs]);
        let before = self.left(theirs, taken);
        // What the victim does not have helps nobody who asks for it.
        let involved = |slot: &usize| self.asked[*slot] > 0 && more[*slot] > 0;
        let above = |right: &dyn Fn(usize) -> Option<i64>| {
            (0..3).filter(involved).any(|slot| right(slot).is_some_and(|right| before[slot] > right))
        };
        let total = |slot: usize| asks.allocated[slot].saturating_add(self.asked[slot]);
        let within_quota = (0..3).all(|slot| asks.amounts[slot].quota_millis.is_none_or(|quota| total(slot) <= quota));
        let owes = above(&|slot| gives.allocatable(slot)) || (within_quota && above(&|slot| gives.amounts[slot].quota_millis));
        owes && !(0..3).filter(involved).any(|slot| {
            let after = i128::from(before[slot].saturating_sub(more[slot]).max(0));
            let (used, fair, other) = (i128::from(total(slot)), i128::from(asks.fair[slot]), i128::from(gives.fair[slot]));
            used > fair && used * other >= after * fair
        })
    }
}
