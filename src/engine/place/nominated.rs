//! Pods that name their node: `status.nominatedNodeName` of pods of ours.
//!
//! Who nominated them has prepared that place: this scheduler, whose volumes are being made there when it was restarted;
//! an autoscaler, which bought the node for them. So it is taken whenever it is legal, as kube-scheduler does; else, and
//! when some pod of the decision names none, the nominations say nothing.

use std::collections::BTreeMap;

use super::task::Item;
use super::{Plan, Solver};
use crate::ids::{NodeIdx, PodIdx, TreeIdx};
use crate::policy::Objective;
use crate::topology::Tree;

impl Solver<'_> {
    /// The plan that the nominations of all pods make; `None` when there is none or it is not legal. The ledger is left
    /// with what was tried.
    pub(super) fn nominated(&mut self, root: &Item) -> Option<Plan> {
        // Rules between the pods themselves are for the search.
        if self.coupled {
            return None;
        }
        let places: Vec<(PodIdx, NodeIdx)> =
            root.all_pods().into_iter().map(|pod| Some((pod, self.nominee(pod)?))).collect::<Option<_>>()?;
        let nodes: BTreeMap<PodIdx, NodeIdx> = places.iter().copied().collect();
        if !self.obeys(root, &nodes) || !self.fits(root, &nodes) {
            return None;
        }
        let tree = root.bound.map_or(self.default_tree, |bound| bound.tree);
        let all = places.iter().map(|(_, node)| *node).chain(root.live.iter().copied());
        let containing = (tree, self.smallest_around(tree, all.collect()));
        let plan = Plan { places, containing, objective: Objective::Kai, proven: false, fewest: false, settled: false };
        self.keeps_limits(root, &plan).then_some(plan)
    }

    fn nominee(&self, pod: PodIdx) -> Option<NodeIdx> {
        let promised = self.world.promised_node(pod);
        let name = promised.or(self.world.pods.get(pod.at())?.as_ref()?.facts.nominated.as_ref())?;
        self.world.node_by_name.get(name).copied()
    }

    /// Whether every required level is kept, live members included.
    fn obeys(&self, item: &Item, nodes: &BTreeMap<PodIdx, NodeIdx>) -> bool {
        let kept = item.bound.and_then(|bound| Some((bound.tree, bound.required?))).is_none_or(|(tree, depth)| {
            let tree = &self.trees[tree.at()];
            let placed = item.all_pods().into_iter().filter_map(|pod| nodes.get(&pod).copied());
            let mut domains = placed.chain(item.live.iter().copied()).map(|node| tree.domain_of(node, depth));
            domains.next().is_none_or(|first| first.is_some() && domains.all(|domain| domain == first))
        });
        kept && item.children.iter().take(item.choose).all(|child| self.obeys(child, nodes))
    }

    /// Whether all have room together.
    fn fits(&mut self, item: &Item, nodes: &BTreeMap<PodIdx, NodeIdx>) -> bool {
        for (shape, pods) in &item.pods {
            for node in pods.iter().filter_map(|pod| nodes.get(pod)) {
                self.ready(*shape, self.default_tree);
                if self.rooms.node_slots(*shape, *node) == 0 {
                    return false;
                }
                self.rooms.take(*node, *shape, &self.shapes[shape.at()], 1);
            }
        }
        item.children.iter().take(item.choose).all(|child| self.fits(child, nodes))
    }

    /// The smallest domain that holds these nodes.
    fn smallest_around(&self, tree: TreeIdx, nodes: Vec<NodeIdx>) -> crate::ids::DomainIdx {
        let tree = &self.trees[tree.at()];
        let shared = |depth: &usize| {
            let mut domains = nodes.iter().map(|node| tree.domain_of(*node, *depth));
            let first = domains.next().flatten()?;
            domains.all(|domain| domain == Some(first)).then_some(first)
        };
        (1..=tree.n_levels()).rev().find_map(|depth| shared(&depth)).unwrap_or(Tree::ROOT)
    }
}
