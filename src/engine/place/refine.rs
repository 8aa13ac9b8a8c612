//! After the first legal plan of the general search: is its domain the right one, and do fewer domains inside it do?
//!
//! Two questions, lines 1 and 2, then line 3 of placement.md section 3. Domains
//! that come before the plan's own are searched again, completely. Inside the
//! domain the search goes on with what it has found as the bar: a branch that
//! already touches as many domains is left, and a plan that meets the lower
//! bounds ends it. Both have a budget of their own; what it does not reach stays
//! unproven, and is said so (`quality`).

use crate::ids::{DomainIdx, NodeIdx, TreeIdx};
use crate::place::search::Start;
use crate::place::task::{Bound, Item};
use crate::place::{Failure, Plan, Region, Solver};
use crate::topology::Tree;

/// Steps that each of the two questions may take.
const STEPS: u64 = 2_000;
/// Domains of one level that are tried alone.
const MOST_SINGLE: usize = 8;
/// Nodes and domains that going on may look at: some tens of milliseconds.
const WORK: u64 = 4_000_000;

/// What a further plan must beat, and what no plan can.
pub(super) struct Bar {
    /// The tree whose domains are counted.
    tree: TreeIdx,
    /// Depths counted, widest first.
    depths: std::ops::RangeInclusive<usize>,
    /// Domains touched by live members and pods that are not placed again.
    live: Vec<NodeIdx>,
    /// Fewest domains by depth.
    bounds: Vec<u32>,
    /// Domains touched by the best plan so far, by depth.
    best: Vec<u32>,
    /// That plan, when it is a new one.
    pub(super) found: Option<Plan>,
    /// Work at which going on ends.
    pub(super) most_work: u64,
}

impl Bar {
    /// True when a branch with these places can't become better.
    pub(super) fn is_reached(&self, tree: &Tree, places: &[(crate::ids::PodIdx, NodeIdx)]) -> bool {
        self.used(tree, places) >= self.best
    }

    /// Takes a complete plan that is better; true when nothing better exists.
    pub(super) fn lower(&mut self, tree: &Tree, plan: Plan) -> bool {
        let used = self.used(tree, &plan.places);
        if used < self.best {
            self.best = used;
            self.found = Some(plan);
        }
        self.best == self.bounds
    }

    /// The tree whose domains are counted.
    pub(super) fn tree(&self) -> TreeIdx {
        self.tree
    }

    fn used(&self, tree: &Tree, places: &[(crate::ids::PodIdx, NodeIdx)]) -> Vec<u32> {
        let nodes = || places.iter().map(|(_, node)| node).chain(&self.live);
        self.depths.clone().map(|depth| count_domains(tree, nodes(), depth)).collect()
    }
}

/// Domains of a depth that nodes are in.
pub(super) fn count_domains<'n>(tree: &Tree, nodes: impl Iterator<Item = &'n NodeIdx>, depth: usize) -> u32 {
    let mut domains: Vec<DomainIdx> = nodes.filter_map(|node| tree.domain_of(*node, depth)).collect();
    domains.sort_unstable();
    domains.dedup();
    domains.len() as u32
}

impl Solver<'_> {
    /// A better plan, as far as the budget reaches. `quick`: the plan's domain was found by the search that is no proof.
    pub(super) fn refine(&mut self, root: &Item, plan: Plan, quick: bool) -> Plan {
        let mut plan = plan;
        if let (true, Some(bound)) = (quick, root.bound) {
            self.settle(root, bound, &mut plan);
        }
        self.spread_less(root, &mut plan);
        plan
    }

    /// Lines 1 and 2: looks into the domains before the plan's own.
    fn settle(&mut self, root: &Item, bound: Bound, plan: &mut Plan) {
        let mut before = self.candidates(root, bound, &Region::default());
        let at = before.iter().position(|domain| (bound.tree, *domain) == plan.containing);
        before.truncate(at.unwrap_or(0));
        if before.is_empty() {
            return;
        }
        let limit = std::mem::replace(&mut self.limit, self.steps + STEPS);
        let found = self.search_by(root, Start { only: Some(before), deferring: true, ..Start::default() });
        self.limit = limit;
        match found {
            Ok(better) => *plan = better,
            Err(Failure::Impossible) => {}
            Err(Failure::Budget) => plan.settled = false,
        }
    }

    /// Line 3: goes on inside the plan's domain, and in those of its rank, while the bounds leave something to hope for.
    fn spread_less(&mut self, root: &Item, plan: &mut Plan) {
        let tree = plan.containing.0;
        let depths = self.trees[tree.at()].domain(plan.containing.1).depth + 1..=self.counted_levels(tree, root.bound);
        if self.coupled || depths.is_empty() || root.children.is_empty() {
            return;
        }
        let (most_steps, most_work) = (self.steps + STEPS, self.work + WORK);
        for top in self.equals(root, plan.containing) {
            let bounds: Vec<u32> = depths.clone().map(|depth| self.fewest_domains(root, tree, top, depth)).collect();
            for start in self.ways(root, (tree, top), &depths) {
                let bar = Bar {
                    tree,
                    depths: depths.clone(),
                    live: root.live.clone(),
                    bounds: bounds.clone(),
                    best: Vec::new(),
                    found: None,
                    most_work,
                };
                let best = bar.used(&self.trees[tree.at()], &plan.places);
                if best <= bar.bounds || self.steps >= most_steps {
                    break;
                }
                let limit = std::mem::replace(&mut self.limit, most_steps);
                if let Ok(better) = self.search_by(root, Start { bar: Some(Bar { best, ..bar }), ..start }) {
                    *plan = Plan { settled: plan.settled, containing: (tree, top), ..better };
                }
                self.limit = limit;
            }
        }
    }

    /// Ways to look for fewer domains: all in one of a deeper level, the deepest first; else the emptiest domains first,
    /// where most fits beside each other; else the tightest first.
    fn ways(&mut self, root: &Item, (tree, top): (TreeIdx, DomainIdx), depths: &std::ops::RangeInclusive<usize>) -> Vec<Start> {
        let inside = Region { domains: vec![(tree, top)] };
        let mut ways = Vec::new();
        for depth in depths.clone().rev() {
            let bound = Bound { tree, required: Some(depth), preferred: None };
            let one = self.candidates(root, bound, &inside).into_iter();
            ways.extend(one.take(MOST_SINGLE).map(|domain| Region { domains: vec![(tree, domain)] }));
        }
        let mut starts: Vec<Start> =
            ways.into_iter().map(|region| Start { region, roomy: true, ..Start::default() }).collect();
        for roomy in [true, false] {
            starts.push(Start { region: inside.clone(), roomy, ..Start::default() });
        }
        starts
    }

    /// The domain and those of its rank, itself first.
    pub(super) fn equals(&mut self, root: &Item, (_, top): (TreeIdx, DomainIdx)) -> Vec<DomainIdx> {
        let Some(bound) = root.bound else { return vec![top] };
        let ranked = self.ranked(root, bound, &Region::default());
        let own = ranked.iter().find(|(_, domain)| *domain == top).map(|(rank, _)| *rank);
        let others = ranked.into_iter().filter(|(rank, domain)| Some(*rank) == own && *domain != top);
        std::iter::once(top).chain(others.map(|(_, domain)| domain)).collect()
    }
}
