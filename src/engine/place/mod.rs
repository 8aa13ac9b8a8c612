//! Placing one gang: a task in, a plan out.
//!
//! A task is the gang's tree cut down to what this decision must place. When
//! all its pods are equal and its constraints form one layer of equal segments
//! on one tree, the exact solver computes the best placement in the best
//! domain (`exact`). Unlike subgroups whose counts are few are placed by a dynamic
//! programme too, with fewest domains (`parts`). Otherwise a complete search with backtracking over
//! siblings looks for a legal one within a budget of steps (`search`), down to
//! single pods (`coupled`) where pods depend on each other or differ, and goes on
//! while lower bounds leave something to hope for (`refine`, `bounds`).
//! Limits on domains (`limits`) are kept by each of them.
//! Plans are tried on the ledger and always rolled back: only `commit` in
//! `schedule` changes the world.

mod bounds;
pub(crate) mod build;
pub(crate) mod candidates;
mod collect;
mod cost;
mod coupled;
pub(crate) mod exact;
mod fill;
mod finish;
pub(crate) mod limits;
mod nominated;
mod parts;
pub(crate) mod quality;
mod refine;
pub(crate) mod search;
mod single;
mod state;
pub(crate) mod task;

use crate::facts::NodeFacts;
use crate::ids::{DomainIdx, NodeIdx, PodIdx, ShapeIdx, TreeIdx};
use crate::policy::{NodeStrategy, Objective, Policy};
use crate::rooms::{Context, Rooms, Shape};
use crate::topology::Tree;
use crate::world::World;
use task::Item;

/// A legal placement of every pod of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Pod and node, by leaf and rank.
    pub places: Vec<(PodIdx, NodeIdx)>,
    /// The tree and domain that line 1 chose for the outermost constrained subgroup.
    pub containing: (TreeIdx, DomainIdx),
    /// What it was chosen by. The general search, and nominations, know `Kai` only.
    pub objective: Objective,
    /// Nothing better exists for the objective, in any line of its order.
    pub proven: bool,
    /// No placement in the containing domain, or one of its rank, touches fewer domains (line 3).
    pub fewest: bool,
    /// No domain that comes before the containing one holds the task.
    pub settled: bool,
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Every candidate was tried.
    Impossible,
    /// The budget of steps ended the search.
    Budget,
}

/// Sets of nodes a subgroup may use: one domain per tree, the intersection counts.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Region {
    /// Domains by tree.
    pub domains: Vec<(TreeIdx, DomainIdx)>,
}

impl Region {
    /// The region's domain in a tree; its root when not restricted there.
    pub(crate) fn in_tree(&self, tree: TreeIdx) -> DomainIdx {
        self.domains.iter().find(|(at, _)| *at == tree).map_or(Tree::ROOT, |(_, domain)| *domain)
    }

    /// The region narrowed to a domain.
    pub(crate) fn narrowed(&self, tree: TreeIdx, domain: DomainIdx) -> Region {
        let mut domains: Vec<_> =
            self.domains.iter().filter(|(at, _)| *at != tree).copied().collect();
        domains.push((tree, domain));
        domains.sort_unstable();
        Region { domains }
    }
}

/// What solving reads, and the ledger it tries on.
pub(crate) struct Solver<'a> {
    /// Trees by index.
    pub trees: &'a [Tree],
    /// Shapes by index.
    pub shapes: &'a [Shape],
    /// Resource names by column.
    pub columns: &'a [String],
    /// Node facts by index.
    pub nodes: Vec<Option<&'a NodeFacts>>,
    /// The world, for live members.
    pub world: &'a World,
    /// The ledger.
    pub rooms: &'a mut Rooms,
    /// The operator's choices.
    pub policy: &'a Policy,
    /// What the best placement is; whether there is one does not depend on it.
    pub objective: Objective,
    /// The default topology's tree, or the tree without levels.
    pub default_tree: TreeIdx,
    /// Steps used by the search so far in this solve.
    pub steps: u64,
    /// Steps at which the search ends.
    pub limit: u64,
    /// Nodes and domains looked at, roughly.
    pub work: u64,
    /// Goes on after a first plan; not where only the answer matters.
    pub refines: bool,
    /// Rules of the task's pods depend on where its other pods go, beyond one node.
    pub coupled: bool,
}

impl<'a> Solver<'a> {
    /// A solver over a world whose ledger was taken out.
    pub(crate) fn new(world: &'a World, rooms: &'a mut Rooms, policy: &'a Policy) -> Self {
        let default_tree = world
            .default_topology(policy.default_topology.as_deref())
            .and_then(|name| world.tree_by_topology.get(name))
            .copied()
            .unwrap_or(TreeIdx(0));
        Self {
            trees: &world.trees,
            shapes: &world.shapes,
            columns: &world.columns,
            nodes: world.nodes.iter().map(|node| node.as_ref().map(|node| &node.facts)).collect(),
            world,
            rooms,
            policy,
            objective: policy.objective,
            default_tree,
            steps: 0,
            limit: policy.search_steps,
            work: 0,
            refines: true,
            coupled: false,
        }
    }

    /// Fixes what this decision reads: costs, and rules about pods that it does not place.
    fn freeze(&mut self, root: &Item) {
        let shapes: Vec<ShapeIdx> = root.all_shapes();
        let member = |term| shapes.iter().any(|other| self.shapes[other.at()].terms.member_of.contains(&term));
        let mut coupled = false;
        for idx in &shapes {
            let shape = &self.shapes[idx.at()];
            let open = shape.drawn_terms().any(member);
            let tallies = self.rooms.tallies();
            let unlike = shapes.len() > 1;
            let apart = shape.terms.anti.iter().any(|term| member(*term) && (unlike || !tallies.one_node_each(*term)));
            coupled |= open || apart || self.world.volumes.couples(&shape.volumes);
            self.rooms.freeze(*idx, shape, open);
        }
        self.coupled = coupled;
    }

    /// Finds the best placement this solver can for the whole task.
    pub(crate) fn solve(&mut self, root: &Item) -> Result<Plan, Failure> {
        self.steps = 0;
        self.freeze(root);
        let mark = self.rooms.checkpoint();
        let result = match self.nominated(root) {
            Some(plan) => Ok(plan),
            None => {
                self.rooms.rollback(mark, self.shapes);
                self.solve_on_ledger(root)
            }
        };
        self.rooms.rollback(mark, self.shapes);
        result
    }

    fn solve_on_ledger(&mut self, root: &Item) -> Result<Plan, Failure> {
        // Members that use too many domains already are joined by nobody.
        if !self.within(&root.limits, root.live.iter()) {
            return Err(Failure::Impossible);
        }
        if let Some(uniform) = task::uniform(root).filter(|_| !self.coupled) {
            let solved = self.solve_uniform(root, &uniform, self.objective);
            // Another objective may ask for more domains to be solved than the tables allow.
            let again = |solver: &mut Self| solver.solve_uniform(root, &uniform, Objective::Kai);
            match solved.or_else(|| if self.objective == Objective::Kai { None } else { again(self) }) {
                Some(result) => return result,
                None => self.steps += 1,
            }
        }
        match self.solve_parts(root) {
            Some(result) => result,
            None => self.search(root),
        }
    }

    /// Brings cached slots and sums of a shape up to date for a tree.
    pub(crate) fn ready(&mut self, shape: ShapeIdx, tree: TreeIdx) {
        let context = Context { nodes: &self.nodes, trees: self.trees, volumes: &self.world.volumes };
        let entry = &self.shapes[shape.at()];
        self.rooms.refresh(shape, entry, &context);
        self.rooms.ensure_sums(shape, entry, tree, &self.trees[tree.at()]);
    }

    /// Copies of a shape that fit in a region, counted over a domain of one tree.
    pub(crate) fn slots_in(
        &mut self,
        shape: ShapeIdx,
        region: &Region,
        tree: TreeIdx,
        domain: DomainIdx,
    ) -> u64 {
        self.ready(shape, tree);
        if region.domains.iter().all(|(other, _)| *other == tree) {
            return self.rooms.domain_slots(shape, tree, domain);
        }
        let entry = &self.trees[tree.at()];
        entry
            .positions(domain)
            .map(|position| entry.order[position])
            .filter(|node| self.inside(region, *node))
            .map(|node| u64::from(self.rooms.node_slots(shape, node)))
            .sum()
    }

    /// True when a node is in every domain of the region.
    pub(crate) fn inside(&self, region: &Region, node: NodeIdx) -> bool {
        region.domains.iter().all(|(tree, domain)| {
            let tree = &self.trees[tree.at()];
            tree.position(node).is_some_and(|position| tree.positions(*domain).contains(&position))
        })
    }

    /// Line 6 for a shape.
    pub(crate) fn strategy(&self, shape: ShapeIdx) -> NodeStrategy {
        let asks_gpu =
            self.shapes[shape.at()].facts.requests.keys().any(|name| crate::fit::is_gpu(name));
        if asks_gpu { self.policy.gpu_strategy } else { self.policy.cpu_strategy }
    }

    /// The nodes of a domain as the exact solver sees them.
    pub(crate) fn spots(
        &mut self,
        shape: ShapeIdx,
        region: &Region,
        tree: TreeIdx,
        domain: DomainIdx,
        live: &[NodeIdx],
    ) -> Vec<exact::Spot> {
        self.ready(shape, tree);
        let spread = self.strategy(shape) == NodeStrategy::Spread;
        let entry = &self.trees[tree.at()];
        let foreign = region.domains.iter().any(|(other, _)| *other != tree);
        let mut spots: Vec<exact::Spot> = entry
            .positions(domain)
            .map(|position| {
                let node = entry.order[position];
                let open = !foreign || self.inside(region, node);
                exact::Spot {
                    slots: if open { self.rooms.node_slots(shape, node) } else { 0 },
                    soft: self.rooms.soft_cost(shape, node),
                    live: 0,
                    beside: [exact::NO_ROOM; exact::MAX_GUESTS],
                    guest_soft: 0,
                    load: if spread { self.load(shape, node) } else { 0 },
                }
            })
            .collect();
        let first = entry.positions(domain).start;
        for node in live {
            if let Some(spot) = entry
                .position(*node)
                .and_then(|position| position.checked_sub(first))
                .and_then(|at| spots.get_mut(at))
            {
                spot.live += 1;
            }
        }
        spots
    }

    /// Fills in how many pods fit next to guests on every node of the domain.
    pub(crate) fn add_guests(
        &mut self,
        spots: &mut [exact::Spot],
        shapes: (ShapeIdx, ShapeIdx),
        n: usize,
        at: (TreeIdx, DomainIdx),
    ) {
        let (shape, guest) = shapes;
        let (tree, domain) = at;
        self.ready(guest, tree);
        let (entry, guest_entry) = (&self.shapes[shape.at()], &self.shapes[guest.at()]);
        for (spot, position) in spots.iter_mut().zip(self.trees[tree.at()].positions(domain)) {
            let node = self.trees[tree.at()].order[position];
            spot.guest_soft = self.rooms.soft_cost(guest, node);
            let fits = (self.rooms.node_slots(guest, node) as usize).min(n);
            let Some(room) = self.rooms.room(node).filter(|_| fits > 0) else { continue };
            let open = self.rooms.eligible(shape, node);
            let mut room = room.clone();
            for beside in &mut spot.beside[..fits] {
                crate::rooms::occupy(&mut room, guest_entry);
                // A node that refuses the pods may still take the guest.
                *beside = if open { crate::fit::slots(&room, entry).min(spot.slots) } else { 0 };
            }
        }
    }

    /// Copies' worth of room in use on a node, in units of the shape's scarcest request.
    fn load(&self, shape: ShapeIdx, node: NodeIdx) -> u32 {
        let Some(entry) = self.world.nodes[node.at()].as_ref() else { return 0 };
        let Some(room) = self.rooms.room(node) else { return 0 };
        let used = |column: usize| {
            entry.allocatable.get(column).copied().unwrap_or(0)
                - room.free.get(column).copied().unwrap_or(0)
        };
        let requests = &self.shapes[shape.at()].requests;
        let counted = requests
            .iter()
            .find(|(column, _)| crate::fit::is_gpu(&self.columns[*column]))
            .or_else(|| requests.iter().find(|(column, _)| self.columns[*column] == "cpu"))
            .or_else(|| requests.first());
        counted.map_or(0, |(column, amount)| {
            u32::try_from(used(*column).max(0) / (*amount).max(1)).unwrap_or(u32::MAX >> 8)
        })
    }
}
