//! A gang that its own limit on domains keeps from a place.

use crate::ids::DomainIdx;
use crate::outcome::{Code, Counted, Fix, FixKind, Proof, Reason, Unit};
use crate::place::Solver;
use crate::place::limits::Limit;
use crate::place::task::Item;

impl Solver<'_> {
    /// The limit without which the task would have a place, with the fewest domains that would do; or all of them, where
    /// no single one is to blame.
    pub(super) fn domain_limit(&mut self, root: &Item) -> Option<Reason> {
        if root.limits.is_empty() {
            return None;
        }
        let refines = std::mem::replace(&mut self.refines, false);
        let found = (0..root.limits.len()).find_map(|at| self.blamed(root, at)).or_else(|| self.blamed_together(root));
        self.refines = refines;
        found
    }

    fn blamed(&mut self, root: &Item, at: usize) -> Option<Reason> {
        let limit = root.limits[at];
        let mut freed = root.clone();
        freed.limits.remove(at);
        let plan = self.solve(&freed).ok()?;
        let nodes = plan.places.iter().map(|(_, node)| node).chain(&root.live);
        // So many do; as many as live members use do not. In between halving finds the fewest.
        let mut enough = limit.used(self.trees, nodes).len();
        let mut too_few = limit.most.max(limit.used(self.trees, root.live.iter()).len().saturating_sub(1));
        while too_few + 1 < enough {
            let middle = too_few + (enough - too_few) / 2;
            let mut raised = root.clone();
            raised.limits[at].most = middle;
            if self.solve(&raised).is_ok() {
                enough = middle;
            } else {
                too_few = middle;
            }
        }
        let mut reason = self.limited(limit);
        reason.needs = enough as u32;
        reason.proof = self.proof_by_domains(root, limit);
        reason.fixes.push(Fix {
            kind: FixKind::AllowDomains,
            verified: true,
            domain: Vec::new(),
            count: enough as i64,
            target: reason.level.iter().cloned().collect(),
        });
        Some(reason)
    }

    /// Each limit alone leaves a place, all of them do not.
    fn blamed_together(&mut self, root: &Item) -> Option<Reason> {
        let freed = Item { limits: Vec::new(), ..root.clone() };
        self.solve(&freed).ok()?;
        let mut reason = self.limited(*root.limits.first()?);
        let all = root.limits.iter().map(|limit| format!("{}={}", self.trees[limit.tree.at()].label(limit.depth), limit.most));
        reason.detail = all.collect::<Vec<_>>().join(",");
        Some(reason)
    }

    fn limited(&self, limit: Limit) -> Reason {
        let mut reason = Reason::new(Code::DomainLimit);
        reason.topology = self.topology_of(limit.tree);
        reason.level = Some(self.trees[limit.tree.at()].label(limit.depth).to_owned());
        reason.unit = Unit::Domains;
        reason.has = limit.most as u32;
        reason
    }

    /// The roomiest domains together have room for too few: a proof where no member is placed yet.
    fn proof_by_domains(&mut self, root: &Item, limit: Limit) -> Option<Proof> {
        if !root.live.is_empty() {
            return None;
        }
        let domains: Vec<DomainIdx> = self.trees[limit.tree.at()].by_depth[limit.depth].clone();
        let rooms: Vec<u64> = domains.into_iter().map(|domain| self.room_in(root, limit.tree, domain)).collect();
        let needs: usize = root.least_demand().iter().map(|(_, n)| n).sum();
        let mut roomiest = rooms.clone();
        roomiest.sort_unstable_by(|a, b| b.cmp(a));
        if roomiest.iter().take(limit.most).sum::<u64>() >= needs as u64 {
            return None;
        }
        let level = self.trees[limit.tree.at()].label(limit.depth).to_owned();
        let Proof::Counted(counted) = self.proof_by_count(root, Some(level), needs as u64, &rooms)? else { return None };
        Some(Proof::Counted(Counted { together: Some(limit.most as u32), ..counted }))
    }
}
