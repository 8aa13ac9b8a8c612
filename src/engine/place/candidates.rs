//! Candidate domains of a constrained subgroup, best first (placement.md section 3, lines 1 and 2).

use std::cmp::{Ordering, Reverse};

use crate::ids::{DomainIdx, ShapeIdx, TreeIdx};
use crate::place::task::{Bound, Item};
use crate::place::{Region, Solver};

/// requested / free as an exact fraction; larger is tighter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ratio {
    requested: i64,
    free: i64,
}

/// Room for all that waits where it can't be left later; depth; room for it here; tightness.
pub(crate) type Rank = (Reverse<u64>, Reverse<usize>, Reverse<u64>, Reverse<Ratio>);

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        let left = i128::from(self.requested) * i128::from(other.free);
        let right = i128::from(other.requested) * i128::from(self.free);
        left.cmp(&right)
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Solver<'_> {
    /// Domains that could hold the item, in the order they are to be tried.
    pub(crate) fn candidates(&mut self, item: &Item, bound: Bound, region: &Region) -> Vec<DomainIdx> {
        self.ranked(item, bound, region).into_iter().map(|(_, domain)| domain).collect()
    }

    /// The same with their ranks: equal ones are told apart by what comes inside them.
    pub(crate) fn ranked(&mut self, item: &Item, bound: Bound, region: &Region) -> Vec<(Rank, DomainIdx)> {
        let (demand, least) = (item.demand(), item.least_demand());
        let base = region.in_tree(bound.tree);
        let base_depth = self.trees[bound.tree.at()].domain(base).depth;
        let lowest = bound.preferred.or(bound.required).unwrap_or(0).max(base_depth);
        let highest = bound.required.unwrap_or(0).max(base_depth).min(lowest);
        for (shape, _) in demand.iter().chain(&least) {
            self.ready(*shape, bound.tree);
        }
        let mut found = Vec::new();
        for depth in (highest..=lowest).rev() {
            let domains = self.layer(bound.tree, base, depth);
            self.work += domains.len() as u64;
            for domain in domains {
                if !self.could_hold(item, &least, region, bound.tree, domain) {
                    continue;
                }
                let (kept, here) = self.room_for_waiting(item, &demand, region, bound, highest, domain);
                let tightness = self.tightness(&demand, bound.tree, domain);
                // Room for all that waits comes before depth.
                found.push(((Reverse(kept), Reverse(depth), Reverse(here), Reverse(tightness)), domain));
            }
        }
        found.sort_unstable();
        found
    }

    /// Domains at a depth inside another, absent ones left out.
    fn layer(&self, tree: TreeIdx, base: DomainIdx, depth: usize) -> Vec<DomainIdx> {
        let tree = &self.trees[tree.at()];
        if tree.domain(base).depth == depth {
            return vec![base];
        }
        tree.by_depth[depth]
            .iter()
            .copied()
            .filter(|domain| !tree.domain(*domain).absent && tree.contains(base, *domain))
            .collect()
    }

    fn could_hold(
        &mut self,
        item: &Item,
        demand: &[(ShapeIdx, usize)],
        region: &Region,
        tree: TreeIdx,
        domain: DomainIdx,
    ) -> bool {
        let entry = &self.trees[tree.at()];
        let range = entry.positions(domain);
        let holds_live = item.live.iter().all(|node| {
            entry.position(*node).is_some_and(|position| range.contains(&position))
        });
        holds_live
            && demand
                .iter()
                .all(|(shape, n)| self.room_within_limits(item, *shape, region, (tree, domain)) >= *n as u64)
            && (demand.len() < 2 || self.units_fit(demand, tree, domain))
            && self.parts_fit(item, region, tree, domain)
    }

    /// The subgroups that must each be in one domain of a deeper level fit there, counted for each size: a domain takes no
    /// more of them than its room divided by it, rounded down. Where some may be left out nothing is said.
    fn parts_fit(&mut self, item: &Item, region: &Region, tree: TreeIdx, domain: DomainIdx) -> bool {
        let depth = self.trees[tree.at()].domain(domain).depth;
        if item.choose < item.children.len() {
            return true;
        }
        let mut parts: Vec<(usize, ShapeIdx, usize)> = Vec::new();
        for child in &item.children {
            let level = child.bound.filter(|bound| bound.tree == tree).and_then(|bound| bound.required);
            if let Some(level) = level.filter(|level| *level > depth && child.live.is_empty()) {
                parts.extend(child.least_demand().into_iter().map(|(shape, n)| (level, shape, n)));
            }
        }
        parts.sort_unstable();
        let mut fit = true;
        for (at, (level, shape, size)) in parts.iter().enumerate() {
            if at > 0 && parts[at - 1] == parts[at] {
                continue;
            }
            let as_large = parts[at..].iter().take_while(|part| (part.0, part.1) == (*level, *shape)).count();
            let inside = self.layer(tree, domain, *level).into_iter();
            let room: u64 = inside.map(|inner| self.slots_in(*shape, region, tree, inner) / *size as u64).sum();
            fit &= room >= as_large as u64;
        }
        fit
    }

    /// How many of all waiting pods fit in the domain that cannot be left later, and here.
    fn room_for_waiting(
        &mut self,
        item: &Item,
        demand: &[(ShapeIdx, usize)],
        region: &Region,
        bound: Bound,
        highest: usize,
        domain: DomainIdx,
    ) -> (u64, u64) {
        let [(shape, n)] = demand else { return (0, 0) };
        if item.waiting <= *n {
            return (0, 0);
        }
        let tree = &self.trees[bound.tree.at()];
        let mut kept = domain;
        while tree.domain(kept).depth > highest {
            kept = tree.domain(kept).parent;
        }
        let waiting = item.waiting as u64;
        (
            self.room_within_limits(item, *shape, region, (bound.tree, kept)).min(waiting),
            self.room_within_limits(item, *shape, region, (bound.tree, domain)).min(waiting),
        )
    }

    fn tightness(&self, demand: &[(ShapeIdx, usize)], tree: TreeIdx, domain: DomainIdx) -> Ratio {
        let mut tightest = Ratio { requested: 0, free: 1 };
        for (shape, n) in demand {
            let requests = &self.shapes[shape.at()].requests;
            let free = self.rooms.domain_free(*shape, tree, domain, requests.len());
            for (at, (column, amount)) in requests.iter().enumerate() {
                // The pod count is a limit, not a resource one packs by.
                if self.columns[*column] == "pods" {
                    continue;
                }
                let requested = amount.saturating_mul(*n as i64);
                let ratio = Ratio { requested, free: free.get(at).copied().unwrap_or(0).max(1) };
                tightest = tightest.max(ratio);
            }
        }
        tightest
    }
}
