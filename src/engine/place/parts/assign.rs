//! From the least cost back to pods on nodes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::kinds::Pool;
use super::leaf::{self, Largest};
use super::{NEVER, Parts, TooMuch};
use crate::ids::{DomainIdx, NodeIdx, PodIdx, ShapeIdx};
use crate::place::task::Item;
use crate::place::{Region, Solver};

/// What is the same all along.
struct Walk<'i> {
    rank: BTreeMap<PodIdx, usize>,
    live: &'i [NodeIdx],
    places: Vec<(PodIdx, NodeIdx)>,
}

impl<'a> Solver<'a> {
    /// Pods on nodes at the least cost in a domain; they stay on the ledger.
    pub(super) fn assign(&mut self, root: &Item, parts: &mut Parts<'a>, domain: DomainIdx) -> Result<Vec<(PodIdx, NodeIdx)>, TooMuch> {
        let depth = parts.tree.domain(domain).depth;
        let rank = root.all_pods().into_iter().enumerate().map(|(at, pod)| (pod, at)).collect();
        let mut walk = Walk { rank, live: &root.live, places: Vec::new() };
        let mut pool = Pool::default();
        pool.open(root, &parts.kinds, depth);
        let all = parts.everything(depth).ok_or(TooMuch)?;
        self.hand_out(parts, domain, all, pool, &mut walk)?;
        Ok(walk.places)
    }

    /// Gives each child of a domain its share, the earlier ones as much as the least cost allows.
    fn hand_out(&mut self, parts: &mut Parts<'a>, domain: DomainIdx, state: usize, mut pool: Pool<'_>, walk: &mut Walk<'_>) -> Result<(), TooMuch> {
        let depth = parts.tree.domain(domain).depth;
        if depth == parts.tree.n_levels() {
            return self.fill(parts, domain, pool.into_pods(&walk.rank), walk);
        }
        let after = self.joined(parts, domain)?;
        let children = parts.tree.children(domain).to_vec();
        let mut shares = vec![0; children.len()];
        let mut left = state;
        for (at, child) in children.iter().enumerate().rev() {
            let offers = self.offers(parts, *child)?;
            let layout = &parts.layouts[depth];
            let want = after[at + 1][left];
            let fits = offers.into_iter().filter(|(share, cost)| {
                let rest = left.checked_sub(*share).filter(|rest| layout.sum(*rest, *share) == Some(left));
                rest.is_some_and(|rest| after[at][rest] != NEVER && after[at][rest] + cost == want)
            });
            // Line 7: more in the earlier domains, and there what was declared first.
            let taken = fits.min_by_key(|(share, _)| (parts.kinds.n_pods(&layout.share(*share)), Reverse(*share)));
            let (share, _) = taken.ok_or(TooMuch)?;
            shares[at] = share;
            left -= share;
        }
        for (child, share) in children.into_iter().zip(shares).filter(|(_, share)| *share > 0) {
            let inner = parts.opened[depth][share].ok_or(TooMuch)?;
            let content = parts.layouts[depth].share(share);
            let taken = pool.take(&content, &parts.kinds, depth + 1);
            self.hand_out(parts, child, inner, taken, walk)?;
        }
        Ok(())
    }

    /// Pods of all shapes on the nodes of a domain: each shape at its best, the largest pods first; where that leads
    /// nowhere, as the packing has it.
    fn fill(&mut self, parts: &Parts<'a>, domain: DomainIdx, pods: Vec<(ShapeIdx, Vec<PodIdx>)>, walk: &mut Walk<'_>) -> Result<(), TooMuch> {
        let mark = (self.rooms.checkpoint(), walk.places.len());
        if self.fill_by_shape(parts, domain, &pods, walk) {
            return Ok(());
        }
        self.rooms.rollback(mark.0, self.shapes);
        walk.places.truncate(mark.1);
        self.fill_as_packed(parts, domain, pods, walk)
    }

    fn fill_by_shape(&mut self, parts: &Parts<'a>, domain: DomainIdx, pods: &[(ShapeIdx, Vec<PodIdx>)], walk: &mut Walk<'_>) -> bool {
        let region = Region { domains: vec![(parts.tree_idx, domain)] };
        let mut order: Vec<&(ShapeIdx, Vec<PodIdx>)> = pods.iter().collect();
        order.sort_by_key(|(shape, _)| self.rooms.domain_slots(*shape, parts.tree_idx, domain));
        for (shape, pods) in order {
            let live: Vec<NodeIdx> = walk.live.iter().copied().chain(walk.places.iter().map(|(_, node)| *node)).collect();
            let Some(nodes) = self.best_nodes(*shape, pods.len(), &region, (parts.tree_idx, domain), &live, &[]) else { return false };
            for (pod, node) in pods.iter().zip(nodes) {
                self.rooms.take(node, *shape, &self.shapes[shape.at()], 1);
                walk.places.push((*pod, node));
            }
        }
        true
    }

    fn fill_as_packed(&mut self, parts: &Parts<'a>, domain: DomainIdx, pods: Vec<(ShapeIdx, Vec<PodIdx>)>, walk: &mut Walk<'_>) -> Result<(), TooMuch> {
        let layout = &parts.layouts[parts.tree.n_levels()];
        let mut classes = super::Classes::default();
        let numbers = self.classes_of(layout, parts.tree_idx, domain, &mut classes);
        let largest: Vec<&Largest> = numbers.iter().map(|class| &classes.largest[*class]).collect();
        let asked = pods.iter().map(|(shape, pods)| (super::Atom::Pod(*shape), pods.len())).collect();
        let counts = layout.state(&asked).and_then(|state| leaf::split(&largest, layout, state)).ok_or(TooMuch)?;
        let nodes: Vec<NodeIdx> = parts.tree.positions(domain).map(|position| parts.tree.order[position]).collect();
        for (at, (shape, _)) in layout.shapes().enumerate() {
            let Some((_, pods)) = pods.iter().find(|(other, _)| *other == shape) else { continue };
            let places = nodes.iter().zip(&counts).flat_map(|(node, counts)| std::iter::repeat_n(*node, counts[at]));
            for (pod, node) in pods.iter().zip(places) {
                self.rooms.take(node, shape, &self.shapes[shape.at()], 1);
                walk.places.push((*pod, node));
            }
        }
        Ok(())
    }
}
