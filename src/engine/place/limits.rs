//! Limits on the domains that a gang uses: of some level at the most so many, those of its live members included.
//!
//! A node that lacks the level's label is a domain of its own there. What is proven without limits holds with them where
//! it says "no", and where the placement keeps them: they only take placements away. So every solver runs as it does
//! without, and those that can count (`exact`, `parts`) are asked again when the answer passes a limit; what neither can
//! tell goes to the search, which leaves a branch as soon as it uses too many domains.

use std::collections::BTreeSet;

use super::exact::Cap;
use super::search::Search;
use super::{Plan, Region, Solver, build};
use crate::facts::{Problem, ProblemCode};
use crate::ids::{DomainIdx, NodeIdx, ShapeIdx, TreeIdx};
use crate::place::task::Item;
use crate::policy::Policy;
use crate::topology::Tree;
use crate::world::World;
use crate::world::model::Gang;

/// What a mistake calls the limits.
const KEY: &str = "berth.scheduler/max-domains";

/// A limit whose topology and level are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// The tree.
    pub tree: TreeIdx,
    /// Depth of the level.
    pub depth: usize,
    /// Domains at the most, one at least.
    pub most: usize,
}

/// A domain in use; a node that is in no domain of the tree stands for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Used {
    /// A domain of the level.
    Domain(DomainIdx),
    /// A node outside the tree.
    Node(NodeIdx),
}

impl Limit {
    /// The limited domain that a node is in.
    pub(crate) fn used_at(&self, trees: &[Tree], node: NodeIdx) -> Used {
        trees[self.tree.at()].domain_of(node, self.depth).map_or(Used::Node(node), Used::Domain)
    }

    /// The limited domains that nodes are in.
    pub(crate) fn used<'n>(&self, trees: &[Tree], nodes: impl Iterator<Item = &'n NodeIdx>) -> BTreeSet<Used> {
        nodes.map(|node| self.used_at(trees, *node)).collect()
    }
}

impl Solver<'_> {
    /// Whether these nodes together keep every limit.
    pub(crate) fn within<'n>(&self, limits: &[Limit], nodes: impl Iterator<Item = &'n NodeIdx> + Clone) -> bool {
        limits.iter().all(|limit| limit.used(self.trees, nodes.clone()).len() <= limit.most)
    }

    /// What is placed, and the domains that leaves must go to, keep the limits.
    pub(super) fn is_within_limits(&self, state: &Search<'_>) -> bool {
        state.limits.iter().all(|limit| {
            let mut used = limit.used(self.trees, state.live.iter().chain(state.places.iter().map(|(_, node)| node)));
            let tree = &self.trees[limit.tree.at()];
            for (_, region) in state.deferred.iter().filter(|(item, _)| item.n_pods() > 0) {
                let mut domain = region.in_tree(limit.tree);
                while tree.domain(domain).depth > limit.depth {
                    domain = tree.domain(domain).parent;
                }
                if tree.domain(domain).depth == limit.depth {
                    used.insert(Used::Domain(domain));
                }
            }
            used.len() <= limit.most
        })
    }

    /// Whether a plan keeps the task's limits.
    pub(super) fn keeps_limits(&self, root: &Item, plan: &Plan) -> bool {
        self.within(&root.limits, plan.places.iter().map(|(_, node)| node).chain(&root.live))
    }

    /// The limits on a tree as caps inside one of its domains, less what is used outside it.
    pub(super) fn caps(&self, limits: &[Limit], (tree, top): (TreeIdx, DomainIdx), used: &[NodeIdx]) -> Vec<Cap> {
        let entry = &self.trees[tree.at()];
        let range = entry.positions(top);
        let is_inside = |node: &&NodeIdx| entry.position(**node).is_some_and(|at| range.contains(&at));
        let on_tree = limits.iter().filter(|limit| limit.tree == tree);
        let cap = |limit: &Limit| {
            let outside = limit.used(self.trees, used.iter().filter(|node| !is_inside(node)));
            let inside = limit.used(self.trees, used.iter().filter(is_inside));
            // What lies around the top domain is used inside and outside.
            let outside = outside.difference(&inside).count();
            Cap { depth: limit.depth, most: limit.most.saturating_sub(outside) }
        };
        on_tree.map(cap).collect()
    }

    /// The most copies of a shape that could go into a domain, each limit alone.
    pub(super) fn room_within_limits(&mut self, item: &Item, shape: ShapeIdx, region: &Region, (tree, top): (TreeIdx, DomainIdx)) -> u64 {
        let mut room = self.slots_in(shape, region, tree, top);
        let depth = self.trees[tree.at()].domain(top).depth;
        let limits: Vec<Limit> = item.limits.iter().copied().filter(|limit| limit.tree == tree && limit.depth > depth).collect();
        for limit in limits {
            let used = limit.used(self.trees, item.live.iter());
            let entry = &self.trees[tree.at()];
            let inside: Vec<DomainIdx> =
                entry.by_depth[limit.depth].iter().copied().filter(|domain| entry.contains(top, *domain)).collect();
            let (mut lived_in, mut others) = (0, Vec::new());
            for domain in inside {
                let slots = self.slots_in(shape, region, tree, domain);
                if used.contains(&Used::Domain(domain)) {
                    lived_in += slots;
                } else {
                    others.push(slots);
                }
            }
            others.sort_unstable_by(|a, b| b.cmp(a));
            let more = limit.most.saturating_sub(used.len());
            room = room.min(lived_in + others.iter().take(more).sum::<u64>());
        }
        room
    }
}

/// The limits of a gang: levels of its topology, of the default one where it names none.
pub(super) fn resolve(world: &World, gang: &Gang, policy: &Policy, problems: &mut Vec<Problem>) -> Vec<Limit> {
    let mut limits = Vec::new();
    for told in &gang.facts.limits {
        let mut problem = |code, value: &str, allowed| {
            problems.push(Problem { code, object: String::new(), key: KEY.to_owned(), value: value.to_owned(), allowed });
        };
        let Some(name) = build::topology_name(world, gang, 0, policy) else {
            let known = build::known_topologies(world);
            let allowed = format!("the level of a Topology that the gang names ({known}), or of a default topology");
            problem(ProblemCode::LevelWithoutTopology, &told.level, allowed);
            continue;
        };
        let Some(tree) = world.tree_by_topology.get(&name).copied() else {
            problem(ProblemCode::UnknownTopology, &name, build::known_topologies(world));
            continue;
        };
        let entry = &world.trees[tree.at()];
        match entry.depth_of_level(&told.level) {
            Some(depth) => limits.push(Limit { tree, depth, most: told.most.max(1) as usize }),
            None => {
                let allowed = format!("a level of Topology {name}: {}", entry.labels.join(", "));
                problem(ProblemCode::UnknownLevel, &told.level, allowed);
            }
        }
    }
    limits.sort_unstable_by_key(|limit: &Limit| (limit.tree, limit.depth, limit.most));
    limits.dedup_by_key(|limit| (limit.tree, limit.depth));
    limits
}
