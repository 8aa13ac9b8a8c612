//! Holes of a gang that ran whole: each is filled on its own.
//!
//! A gang starts all at once. One that ran and lost pods is another matter: when not all of them find a place again,
//! those that do go back, each next to the members that its constraints tie it to, and the healthy ones stay.

use crate::ids::GangIdx;
use crate::outcome::Reason;

use super::Pass;

impl Pass<'_> {
    /// Fills what can be filled of the places that were filled before. Gives the reasons of those that can't be.
    pub(super) fn fill_holes(&mut self, idx: GangIdx) -> Vec<Reason> {
        let mut reasons = Vec::new();
        let n_decisions = self.outcome.turn();
        let n_subs = self.world.gangs[idx.at()].as_ref().map_or(0, |gang| gang.subs.len());
        for sub in 1..n_subs {
            if let Some(reason) = self.fill_leaf(idx, sub) {
                reasons.push(reason);
            }
        }
        if self.outcome.turn() > n_decisions {
            // What was said of the gang before is out of date: it is looked at once more at the end of the pass.
            self.as_of = self.as_of.min(n_decisions);
        }
        reasons
    }

    fn fill_leaf(&mut self, idx: GangIdx, sub: usize) -> Option<Reason> {
        // One that is given up goes on whole or not at all: what joined it now would be evicted next.
        let gang = self.world.gangs[idx.at()].as_ref().filter(|gang| gang.life.evicted_at.is_none())?;
        let prepared = self.prepare(gang).ok()?;
        let leaf = &prepared.leaves[sub];
        let n_placed = leaf.n_placed;
        let n = self.world.holes(gang, sub, n_placed).min(leaf.waiting.len());
        let has_live = prepared.leaves.iter().any(|leaf| 0 < leaf.n_placed);
        if n == 0 || !has_live || !gang.subs[sub].children.is_empty() {
            return None;
        }
        // Nothing of it is left: it starts again, whole.
        if n_placed == 0 && !prepared.ready(sub) {
            return None;
        }
        match self.place_unit(idx, sub, (0 < n_placed).then_some(n)) {
            Ok((plan, quality)) => {
                let quality = self.merged_quality(idx, Some(quality));
                self.commit(idx, &plan, quality);
                None
            }
            Err(reason) => Some(reason),
        }
    }
}
