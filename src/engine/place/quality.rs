//! How good a plan is, against what no placement can beat.

use crate::ids::{NodeIdx, PodIdx, ShapeIdx};
use crate::outcome::{LevelQuality, Quality, QualityStatus};
use crate::place::task::Item;
use crate::place::{Plan, Solver};

impl Solver<'_> {
    /// Quality of a plan; the ledger must be as it was before the plan.
    pub(crate) fn quality(&mut self, root: &Item, plan: &Plan) -> Quality {
        let (tree_idx, top) = plan.containing;
        let tree = &self.trees[tree_idx.at()];
        let top_depth = tree.domain(top).depth;
        let mut nodes: Vec<NodeIdx> = plan.places.iter().map(|(_, node)| *node).collect();
        nodes.extend(&root.live);
        let mut levels = Vec::new();
        let mut tight = true;
        for depth in 1..=tree.n_levels() {
            let mut domains: Vec<_> =
                nodes.iter().filter_map(|node| tree.domain_of(*node, depth)).collect();
            domains.sort_unstable();
            domains.dedup();
            let count = domains.len() as u32;
            let bound = if plan.proven || depth <= top_depth {
                count
            } else {
                self.fewest_domains(root, plan, depth).min(count)
            };
            tight &= bound == count;
            levels.push(LevelQuality {
                level: tree.label(depth).to_owned(),
                domains: count,
                lower_bound: bound,
            });
        }
        let (sum, bounds) = levels
            .iter()
            .fold((0_u64, 0_u64), |(a, b), l| (a + u64::from(l.domains), b + u64::from(l.lower_bound)));
        Quality {
            status: if tight { QualityStatus::Optimal } else { QualityStatus::Bounded },
            score_millis: (bounds * 1000).checked_div(sum).map_or(1000, |score| score as u32),
            topology: self
                .world
                .tree_by_topology
                .iter()
                .find(|(_, idx)| **idx == tree_idx)
                .map(|(name, _)| name.clone())
                .unwrap_or_default(),
            containing: tree.path(top),
            levels,
        }
    }

    /// Most-free-first is minimal in count: a bound for each shape alone, so for all together.
    fn fewest_domains(&mut self, root: &Item, plan: &Plan, depth: usize) -> u32 {
        let (tree_idx, top) = plan.containing;
        let mut most = 1;
        for (shape, n) in counts(root, plan) {
            self.ready(shape, tree_idx);
            let tree = &self.trees[tree_idx.at()];
            let mut slots: Vec<u64> = tree.by_depth[depth]
                .iter()
                .filter(|domain| tree.contains(top, **domain))
                .map(|domain| self.rooms.domain_slots(shape, tree_idx, *domain))
                .collect();
            slots.sort_unstable_by(|a, b| b.cmp(a));
            let mut left = n as u64;
            let mut used = 0;
            for slot in slots {
                if left == 0 {
                    break;
                }
                left = left.saturating_sub(slot);
                used += 1;
            }
            most = most.max(used);
        }
        most
    }
}

fn counts(root: &Item, plan: &Plan) -> Vec<(ShapeIdx, usize)> {
    let placed: std::collections::BTreeSet<PodIdx> = plan.places.iter().map(|(pod, _)| *pod).collect();
    let mut out: Vec<(ShapeIdx, usize)> = Vec::new();
    let mut add = |item: &Item| {
        for (shape, pods) in &item.pods {
            let n = pods.iter().filter(|pod| placed.contains(pod)).count();
            match out.iter_mut().find(|(other, _)| other == shape) {
                Some((_, total)) => *total += n,
                None => out.push((*shape, n)),
            }
        }
    };
    visit(root, &mut add);
    out
}

fn visit(item: &Item, f: &mut impl FnMut(&Item)) {
    f(item);
    for child in &item.children {
        visit(child, f);
    }
}
