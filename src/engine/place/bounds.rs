//! Lower bounds on the domains that any placement of a task touches inside a domain.
//!
//! Each drops a part of the problem, so each is sound alone and the largest
//! counts: one shape without the others; every pod as small as the smallest in
//! each resource; one resource in sum, and in units of what a pod asks for; subgroups that need one domain each, packed
//! by one resource into bins of the largest room (Martello and Toth's L2); and by how many of a
//! size each domain takes.
//! Integers only.

use std::collections::BTreeMap;

use crate::ids::{DomainIdx, ShapeIdx, TreeIdx};
use crate::place::Solver;
use crate::place::task::Item;

/// The domains of one depth inside another, as the bounds see them.
struct Layer {
    domains: Vec<DomainIdx>,
    /// Where live members are: touched whatever is placed.
    lived_in: Vec<bool>,
}

impl Solver<'_> {
    /// Fewest domains of a depth that any placement of the task inside `top` touches, live members counted.
    pub(super) fn fewest_domains(&mut self, root: &Item, tree: TreeIdx, top: DomainIdx, depth: usize) -> u32 {
        let demand = root.least_demand();
        for (shape, _) in &demand {
            self.ready(*shape, tree);
        }
        let entry = &self.trees[tree.at()];
        let domains: Vec<DomainIdx> =
            entry.by_depth[depth].iter().copied().filter(|domain| entry.contains(top, *domain)).collect();
        let mut lived_in = vec![false; domains.len()];
        for domain in root.live.iter().filter_map(|node| entry.domain_of(*node, depth)) {
            if let Ok(at) = domains.binary_search(&domain) {
                lived_in[at] = true;
            }
        }
        let layer = Layer { domains, lived_in };
        let mut fewest = 1.max(layer.lived_in.iter().filter(|lived| **lived).count() as u32);
        for (shape, n) in &demand {
            let rooms = layer.domains.iter().map(|domain| self.rooms.domain_slots(*shape, tree, *domain));
            fewest = fewest.max(layer.needed(&rooms.collect::<Vec<_>>(), *n as u64));
        }
        if demand.len() > 1 {
            let pods = demand.iter().map(|(_, n)| *n as u64).sum();
            fewest = fewest.max(layer.needed(&self.rooms_for_smallest(&demand, tree, &layer), pods));
        }
        for column in self.columns_of(&demand) {
            let rooms = self.free_in(&demand, column, tree, &layer);
            let asked: i64 = demand.iter().map(|(shape, n)| self.asks(*shape, column) * *n as i64).sum();
            fewest = fewest.max(layer.needed(&rooms, asked.max(0) as u64));
            for size in self.sizes_of(&demand, column) {
                let rooms = self.units_in(&demand, (column, size), tree, &layer);
                fewest = fewest.max(layer.needed(&rooms, self.units_asked(&demand, (column, size))));
            }
            let mut items = Vec::new();
            self.whole_subgroups(root, tree, depth, column, &mut items);
            fewest = fewest.max(bins(items, rooms.iter().copied().max().unwrap_or(0)));
        }
        fewest.max(self.fewest_for_parts(root, tree, depth, &layer))
    }

    /// Domains for the subgroups that must stay whole, by how many of a size each could take: those of a size and the
    /// larger ones of its shape.
    fn fewest_for_parts(&mut self, root: &Item, tree: TreeIdx, depth: usize, layer: &Layer) -> u32 {
        let mut parts = Vec::new();
        parts_below(root, tree, depth, &mut parts);
        parts.sort_unstable();
        let mut fewest = 0;
        for (at, (shape, size)) in parts.iter().enumerate() {
            if at > 0 && parts[at - 1] == parts[at] {
                continue;
            }
            // Parts that must stay in a deeper domain fit no better than in this one.
            let as_large = parts[at..].iter().take_while(|part| part.0 == *shape).count();
            let rooms = layer.domains.iter().map(|domain| self.rooms.domain_slots(*shape, tree, *domain) / *size as u64);
            fewest = fewest.max(layer.needed(&rooms.collect::<Vec<_>>(), as_large as u64));
        }
        fewest
    }

    /// Pods of several shapes beside each other: in no resource do they ask for more units of a size than the nodes of the
    /// domain have. A pod that asks for seven takes three units of two.
    pub(super) fn units_fit(&self, demand: &[(ShapeIdx, usize)], tree: TreeIdx, domain: DomainIdx) -> bool {
        let layer = Layer { domains: vec![domain], lived_in: vec![false] };
        self.columns_of(demand).into_iter().all(|column| {
            self.sizes_of(demand, column).into_iter().all(|size| {
                let rooms = self.units_in(demand, (column, size), tree, &layer);
                rooms.into_iter().sum::<u64>() >= self.units_asked(demand, (column, size))
            })
        })
    }

    /// What the shapes ask for in a column, each amount once.
    fn sizes_of(&self, demand: &[(ShapeIdx, usize)], column: usize) -> Vec<i64> {
        let mut sizes: Vec<i64> = demand.iter().map(|(shape, _)| self.asks(*shape, column)).filter(|size| *size > 0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn units_asked(&self, demand: &[(ShapeIdx, usize)], (column, size): (usize, i64)) -> u64 {
        demand.iter().map(|(shape, n)| (self.asks(*shape, column) / size).max(0) as u64 * *n as u64).sum()
    }

    /// Units of a size by domain, node by node, on nodes that take any of the shapes.
    fn units_in(&self, demand: &[(ShapeIdx, usize)], (column, size): (usize, i64), tree: TreeIdx, layer: &Layer) -> Vec<u64> {
        self.summed(demand, tree, layer, |free| (free.get(column).copied().unwrap_or(0).max(0) / size) as u64)
    }

    fn asks(&self, shape: ShapeIdx, column: usize) -> i64 {
        self.shapes[shape.at()].requests.iter().find(|(other, _)| *other == column).map_or(0, |(_, amount)| *amount)
    }

    fn columns_of(&self, demand: &[(ShapeIdx, usize)]) -> Vec<usize> {
        let mut columns: Vec<usize> =
            demand.iter().flat_map(|(shape, _)| &self.shapes[shape.at()].requests).map(|(column, _)| *column).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Pods of the smallest shape that each domain could hold, on nodes that take any of the shapes.
    fn rooms_for_smallest(&self, demand: &[(ShapeIdx, usize)], tree: TreeIdx, layer: &Layer) -> Vec<u64> {
        let least = |column: usize| demand.iter().map(|(shape, _)| self.asks(*shape, column)).min().unwrap_or(0);
        let smallest: Vec<(usize, i64)> =
            self.columns_of(demand).into_iter().map(|column| (column, least(column))).filter(|(_, n)| *n > 0).collect();
        self.summed(demand, tree, layer, |free| {
            let copies = smallest.iter().map(|(column, amount)| free.get(*column).copied().unwrap_or(0).max(0) / amount);
            copies.min().unwrap_or(i64::from(u32::MAX)).max(0) as u64
        })
    }

    /// Free amounts of a column by domain, on nodes that take any of the shapes that ask for it.
    fn free_in(&self, demand: &[(ShapeIdx, usize)], column: usize, tree: TreeIdx, layer: &Layer) -> Vec<u64> {
        let asking: Vec<(ShapeIdx, usize)> =
            demand.iter().copied().filter(|(shape, _)| self.asks(*shape, column) > 0).collect();
        self.summed(&asking, tree, layer, |free| free.get(column).copied().unwrap_or(0).max(0) as u64)
    }

    fn summed(
        &self,
        demand: &[(ShapeIdx, usize)],
        tree: TreeIdx,
        layer: &Layer,
        room: impl Fn(&[i64]) -> u64,
    ) -> Vec<u64> {
        let entry = &self.trees[tree.at()];
        let of = |domain: &DomainIdx| {
            let nodes = entry.positions(*domain).map(|position| entry.order[position]);
            let open = nodes.filter(|node| demand.iter().any(|(shape, _)| self.rooms.node_slots(*shape, *node) > 0));
            open.filter_map(|node| self.rooms.room(node)).map(|free| room(&free.free)).fold(0_u64, u64::saturating_add)
        };
        layer.domains.iter().map(of).collect()
    }

    /// What each subgroup that must be inside one domain of the depth asks of a column. Where some subgroups may be left
    /// out nothing is said.
    fn whole_subgroups(&self, item: &Item, tree: TreeIdx, depth: usize, column: usize, found: &mut Vec<u64>) {
        if item.choose < item.children.len() {
            return;
        }
        for child in &item.children {
            let inside = child.bound.is_some_and(|bound| bound.tree == tree && bound.required.is_some_and(|level| level >= depth));
            if inside {
                let asked: i64 = child.least_demand().iter().map(|(shape, n)| self.asks(*shape, column) * *n as i64).sum();
                found.push(asked.max(0) as u64);
            } else {
                self.whole_subgroups(child, tree, depth, column, found);
            }
        }
    }
}

/// Subgroups that must each be in one domain of a depth, by shape and pods. Where some may be left out nothing is said.
fn parts_below(item: &Item, tree: TreeIdx, depth: usize, found: &mut Vec<(ShapeIdx, usize)>) {
    if item.choose < item.children.len() {
        return;
    }
    for child in &item.children {
        if child.bound.is_some_and(|bound| bound.tree == tree && bound.required.is_some_and(|level| level >= depth)) {
            found.extend(child.least_demand());
        } else {
            parts_below(child, tree, depth, found);
        }
    }
}

impl Layer {
    /// Domains touched at the least when their rooms must hold so much: those with live members, then most room first.
    fn needed(&self, rooms: &[u64], wanted: u64) -> u32 {
        let mut touched = 0;
        let mut left = wanted;
        let mut others = Vec::new();
        for (room, lived_in) in rooms.iter().zip(&self.lived_in) {
            if *lived_in {
                touched += 1;
                left = left.saturating_sub(*room);
            } else {
                others.push(*room);
            }
        }
        others.sort_unstable_by(|a, b| b.cmp(a));
        for room in others {
            if left == 0 || room == 0 {
                break;
            }
            left = left.saturating_sub(room);
            touched += 1;
        }
        touched
    }
}

/// Fewest bins of one size for items that stay whole.
fn bins(items: Vec<u64>, size: u64) -> u32 {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    // One that is larger than every bin is no matter of this bound.
    for item in items.into_iter().filter(|item| *item > 0 && *item <= size) {
        *counts.entry(item).or_default() += 1;
    }
    let total = |from: u64, to: u64| counts.range(from..=to).fold((0, 0), |(n, sum), (item, k)| (n + k, sum + item * k));
    let mut best = 0;
    for least in counts.keys().copied().filter(|item| *item <= size / 2).chain([0]) {
        // Items that share a bin with none of at least this size; with some, but with none of their kind; the small ones.
        let (alone, _) = if least == 0 { (0, 0) } else { total(size - least + 1, size) };
        let top = if least == 0 { size } else { size - least };
        let (halves, held) = if size / 2 < top { total(size / 2 + 1, top) } else { (0, 0) };
        let (_, small) = if size / 2 >= least.max(1) { total(least.max(1), size / 2) } else { (0, 0) };
        let spare = halves * size - held;
        let more = small.saturating_sub(spare).div_ceil(size.max(1));
        best = best.max(alone + halves + more);
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::bins;

    /// Fewest bins by trying everything.
    fn brute(items: &[u64], size: u64) -> u32 {
        fn go(items: &[u64], bins: &mut Vec<u64>, size: u64) -> usize {
            let Some((item, rest)) = items.split_first() else { return bins.len() };
            let mut best = usize::MAX;
            for at in 0..bins.len() {
                if bins[at] + item <= size {
                    bins[at] += item;
                    best = best.min(go(rest, bins, size));
                    bins[at] -= item;
                }
            }
            bins.push(*item);
            best = best.min(go(rest, bins, size));
            bins.pop();
            best
        }
        go(items, &mut Vec::new(), size) as u32
    }

    #[test]
    fn a_bound_on_bins_is_never_above_the_truth_and_often_meets_it() {
        let (mut met, mut all) = (0, 0);
        for size in 1..9_u64 {
            // Every multiset of up to five items.
            let mut stack: Vec<Vec<u64>> = vec![Vec::new()];
            while let Some(items) = stack.pop() {
                let (bound, truth) = (bins(items.clone(), size), brute(&items, size));
                assert!(bound <= truth, "{items:?} into {size}: {bound} > {truth}");
                met += u32::from(bound == truth);
                all += 1;
                if items.len() < 5 {
                    for next in items.last().copied().unwrap_or(1)..=size {
                        stack.push(items.iter().copied().chain([next]).collect());
                    }
                }
            }
        }
        assert!(met * 100 > all * 95, "{met} of {all}");
        assert_eq!(bins(vec![9], 8), 0, "what fits in no bin says nothing");
    }
}
