//! How good a plan is, against what no placement can beat.
//!
//! The exact class is best in every line of the order. For a plan of the search
//! two things can be proven: that no domain before its own holds the task (lines
//! 1 and 2), and that no placement inside touches fewer domains (line 3).

use crate::ids::DomainIdx;
use crate::outcome::{LevelQuality, Quality, QualityStatus};
use crate::place::refine::count_domains;
use crate::place::task::Item;
use crate::place::{Plan, Region, Solver};

impl Solver<'_> {
    /// Quality of a plan; the ledger must be as it was before the plan.
    pub(crate) fn quality(&mut self, root: &Item, plan: &Plan) -> Quality {
        let (tree_idx, top) = plan.containing;
        let counted = self.counted_levels(tree_idx, root.bound);
        let mut levels = Vec::new();
        let (mut sum, mut bounds) = (0_u64, 0_u64);
        for depth in 1..=self.trees[tree_idx.at()].n_levels() {
            let tree = &self.trees[tree_idx.at()];
            let label = tree.label(depth).to_owned();
            let domains = count_domains(tree, plan.places.iter().map(|(_, node)| node).chain(&root.live), depth);
            // What was computed is minimal in what its order counts; below that nothing is minimised.
            let lower_bound =
                if (plan.proven || plan.fewest) && depth <= counted { domains } else { self.fewest_anywhere(root, plan, depth).min(domains) };
            if depth <= counted {
                sum += u64::from(domains);
                bounds += u64::from(lower_bound);
            }
            levels.push(LevelQuality { level: label, domains, lower_bound });
        }
        let status = match (plan.proven || plan.settled, sum == bounds) {
            (true, true) => QualityStatus::Optimal,
            (true, false) => QualityStatus::Bounded,
            (false, _) => QualityStatus::Unknown,
        };
        Quality {
            status,
            objective: plan.objective,
            whole_order: plan.proven,
            score_millis: (bounds * 1000).checked_div(sum).map_or(1000, |score| score as u32),
            topology: self
                .world
                .tree_by_topology
                .iter()
                .find(|(_, idx)| **idx == tree_idx)
                .map(|(name, _)| name.clone())
                .unwrap_or_default(),
            containing: self.trees[tree_idx.at()].path(top),
            levels,
        }
    }

    /// Fewest domains of a depth inside the plan's domain, those of its rank, and those before it of which nothing is proven.
    fn fewest_anywhere(&mut self, root: &Item, plan: &Plan, depth: usize) -> u32 {
        let (tree, top) = plan.containing;
        let mut tops: Vec<DomainIdx> = self.equals(root, plan.containing);
        if let (false, Some(bound)) = (plan.settled, root.bound) {
            tops.extend(self.candidates(root, bound, &Region::default()).into_iter().take_while(|domain| *domain != top));
        }
        tops.into_iter().map(|top| self.fewest_domains(root, tree, top, depth)).min().unwrap_or(1)
    }
}
