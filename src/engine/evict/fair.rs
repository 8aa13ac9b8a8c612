//! Reclaiming between queues: when the side of a victim owes room to the side of who asks (KAI Scheduler's rules).
//!
//! The two sides are the queues in which the ways from the two leaves to the root part. Who asks stays within the fair
//! share of its own queue. The other side gives pods only while it has more than it may use by right, or, as long as the
//! side that asks stays within its quota, while it has more than its quota; and it must not end up standing worse than
//! the side that asks. Amounts are exact; ratios are compared by multiplication.

use std::collections::BTreeSet;

use crate::world::shares::{Amounts3, Standings};

/// How the queues stand, for one gang that asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fair {
    /// The queues, with what leaves taken off and what is promised added.
    pub standings: Standings,
    /// Each queue with those above it.
    pub chains: Vec<Vec<usize>>,
    /// Queue of the gang that asks.
    pub leaf: usize,
    /// What it asks for.
    pub asked: Amounts3,
}

/// Longer chains of parents are a cycle.
const MAX_DEPTH: usize = 64;

/// Each queue with those above it.
pub(crate) fn chains(standings: &Standings) -> Vec<Vec<usize>> {
    let chain = |leaf: usize| {
        let mut chain = vec![leaf];
        while let Some(parent) = chain.last().and_then(|at| standings.queues[*at].parent).filter(|_| chain.len() < MAX_DEPTH) {
            chain.push(parent);
        }
        chain
    };
    (0..standings.queues.len()).map(chain).collect()
}

impl Fair {
    /// A queue and those above it.
    fn chain(&self, leaf: usize) -> &[usize] {
        self.chains.get(leaf).map_or(&[], Vec::as_slice)
    }

    /// With what it asks for, the gang's own queue stays within its fair share.
    pub(crate) fn may_ask(&self) -> bool {
        let queue = &self.standings.queues[self.leaf];
        (0..3).all(|slot| self.asked[slot] == 0 || queue.allocated[slot].saturating_add(self.asked[slot]) <= queue.fair[slot])
    }

    /// The two queues in which the ways to the root part: on the side of who asks, and on that of the victim.
    pub(super) fn sides(&self, victim: usize) -> Option<(usize, usize)> {
        let (ours, theirs) = (self.chain(self.leaf), self.chain(victim));
        let common = ours.iter().rev().zip(theirs.iter().rev()).take_while(|(a, b)| a == b).count();
        let side = |chain: &[usize]| chain.len().checked_sub(common + 1).and_then(|at| chain.get(at)).copied();
        Some((side(ours)?, side(theirs)?))
    }

    /// Whether all of it may be taken: units (a gang, or a pod above a minimum) with the leaf queues that they are of.
    ///
    /// What counts is that there is an order in which each unit is owed when its turn comes: the largest last.
    pub(super) fn allows(&self, units: &[(usize, Amounts3)]) -> bool {
        let mut sides: BTreeSet<(usize, usize)> = BTreeSet::new();
        for (leaf, _) in units {
            let Some(side) = self.sides(*leaf) else { return false };
            sides.insert(side);
        }
        sides.into_iter().all(|(ours, theirs)| self.owes(ours, theirs, units))
    }

    fn owes(&self, ours: usize, theirs: usize, units: &[(usize, Amounts3)]) -> bool {
        let (asks, gives) = (&self.standings.queues[ours], &self.standings.queues[theirs]);
        let (mut sum, mut last) = (Amounts3::default(), Amounts3::default());
        for (_, amounts) in units.iter().filter(|(leaf, _)| self.chain(*leaf).contains(&theirs)) {
            for slot in 0..3 {
                sum[slot] = sum[slot].saturating_add(amounts[slot]);
                last[slot] = last[slot].max(amounts[slot]);
            }
        }
        let before = [0, 1, 2].map(|slot: usize| gives.allocated[slot].saturating_sub(sum[slot] - last[slot]));
        // What the victims do not have helps nobody who asks for it.
        let involved: Vec<usize> = (0..3).filter(|slot| self.asked[*slot] > 0 && sum[*slot] > 0).collect();
        let above = |right: &dyn Fn(usize) -> Option<i64>| {
            involved.iter().any(|slot| right(*slot).is_some_and(|right| before[*slot] > right))
        };
        let total = |slot: usize| asks.allocated[slot].saturating_add(self.asked[slot]);
        let within_quota = (0..3).all(|slot| asks.amounts[slot].quota_millis.is_none_or(|quota| total(slot) <= quota));
        let owes = above(&|slot| gives.allocatable(slot)) || (within_quota && above(&|slot| gives.amounts[slot].quota_millis));
        owes && !involved.iter().any(|slot| {
            let after = i128::from(gives.allocated[*slot].saturating_sub(sum[*slot]).max(0));
            let (used, fair, other) = (i128::from(total(*slot)), i128::from(asks.fair[*slot]), i128::from(gives.fair[*slot]));
            used > fair && used * other >= after * fair
        })
    }

    /// Below the side that gives, a queue of the victim has no more than it deserves: others should give first.
    pub(super) fn is_within_quota(&self, victim: usize) -> bool {
        let Some((_, theirs)) = self.sides(victim) else { return true };
        let below = self.chain(victim).iter().copied().take_while(|queue| *queue != theirs);
        let asked = || (0..3).filter(|slot| self.asked[*slot] > 0);
        below.map(|queue| &self.standings.queues[queue]).any(|queue| {
            asked().all(|slot| queue.amounts[slot].quota_millis.is_none_or(|quota| queue.allocated[slot] <= quota))
        })
    }
}
