//! A leaf's pods put into a region at once.

use std::collections::BTreeSet;

use crate::ids::{DomainIdx, NodeIdx, ShapeIdx, TreeIdx};
use crate::place::exact::{Answer, Cap, Demand, Instance, Spot};
use crate::place::search::Search;
use crate::place::task::{Bound, Item};
use crate::place::{Region, Solver};

impl Solver<'_> {
    /// Places a leaf's pods anywhere in a region, best first per shape.
    pub(super) fn place_loose(
        &mut self,
        state: &mut Search<'_>,
        item: &Item,
        region: &Region,
        bound: Option<Bound>,
    ) -> bool {
        let tree = bound.map_or_else(
            || region.domains.first().map_or(self.default_tree, |(tree, _)| *tree),
            |bound| bound.tree,
        );
        let domain = region.in_tree(tree);
        let pods = item.pods.clone();
        for (shape, pods) in pods {
            let mut live = item.live.clone();
            let placed = state.places.iter().map(|(_, node)| *node);
            if !state.limits.is_empty() {
                live = state.live.iter().copied().chain(placed).collect();
            } else if state.bar.is_some() {
                // Where the gang is already nothing new is touched.
                live.extend(placed);
            }
            let caps = self.caps(state.limits, (tree, domain), &live);
            let nodes = if state.roomy {
                self.emptiest(shape, pods.len(), region, (tree, domain), &live)
            } else {
                self.best_nodes(shape, pods.len(), region, (tree, domain), &live, &caps)
            };
            let Some(nodes) = nodes else { return false };
            for (pod, node) in pods.iter().zip(nodes) {
                self.rooms.take(node, shape, &self.shapes[shape.at()], 1);
                state.places.push((*pod, node));
            }
        }
        true
    }

    /// Nodes in domains that the gang is in already, then in those with the most room, level by level.
    fn emptiest(
        &mut self,
        shape: ShapeIdx,
        n: usize,
        region: &Region,
        (tree, domain): (TreeIdx, DomainIdx),
        live: &[NodeIdx],
    ) -> Option<Vec<NodeIdx>> {
        self.ready(shape, tree);
        let entry = &self.trees[tree.at()];
        let range = entry.positions(domain);
        self.work += (range.len() * (entry.n_levels() + 1)) as u64;
        let touched: BTreeSet<DomainIdx> = live
            .iter()
            .flat_map(|node| (0..=entry.n_levels()).filter_map(|depth| entry.domain_of(*node, depth)))
            .collect();
        let key = |node: NodeIdx| {
            let path = (entry.domain(domain).depth + 1..=entry.n_levels()).filter_map(|depth| entry.domain_of(node, depth));
            let path = path.map(|at| (!touched.contains(&at), std::cmp::Reverse(self.rooms.domain_slots(shape, tree, at)), at));
            (path.collect::<Vec<_>>(), !live.contains(&node), std::cmp::Reverse(self.rooms.node_slots(shape, node)))
        };
        let mut nodes: Vec<NodeIdx> =
            range.map(|position| entry.order[position]).filter(|node| self.inside(region, *node)).collect();
        nodes.sort_by_cached_key(|node| key(*node));
        let slots = |node: NodeIdx| self.rooms.node_slots(shape, node) as usize;
        let mut chosen: Vec<NodeIdx> = nodes.into_iter().flat_map(|node| std::iter::repeat_n(node, slots(node))).take(n).collect();
        chosen.sort_by_key(|node| entry.position(*node));
        (chosen.len() == n).then_some(chosen)
    }

    pub(super) fn best_nodes(
        &mut self,
        shape: ShapeIdx,
        n: usize,
        region: &Region,
        at: (TreeIdx, DomainIdx),
        live: &[NodeIdx],
        caps: &[Cap],
    ) -> Option<Vec<NodeIdx>> {
        let (tree, domain) = at;
        let spots = self.spots(shape, region, tree, domain, live);
        self.work += (spots.len() * (n + 1)) as u64;
        let entry = &self.trees[tree.at()];
        let instance = Instance {
            tree: entry,
            top: domain,
            spots: &spots,
            counted: entry.n_levels(),
            strategy: self.strategy(shape),
            caps,
        };
        match instance.solve(&Demand::loose(n)) {
            Answer::Best(chosen, _) => {
                Some(chosen.loose.into_iter().map(|position| entry.order[position]).collect())
            }
            Answer::Impossible => None,
            Answer::TooLarge => first_fit(&spots, n).map(|positions| {
                let first = entry.positions(domain).start;
                positions.into_iter().map(|position| entry.order[first + position]).collect()
            }),
        }
    }
}

/// Most-free-first: minimal in the number of nodes; used where the tables would not fit.
fn first_fit(spots: &[Spot], n: usize) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..spots.len()).collect();
    order.sort_by_key(|at| (std::cmp::Reverse(spots[*at].slots), *at));
    let mut chosen = Vec::with_capacity(n);
    for at in order {
        let take = (spots[at].slots as usize).min(n - chosen.len());
        chosen.extend(std::iter::repeat_n(at, take));
    }
    chosen.sort_unstable();
    (chosen.len() == n).then_some(chosen)
}
