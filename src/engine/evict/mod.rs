//! Whom to evict so that a gang fits: one search, topology first.
//!
//! For every domain in which the gang could be placed if eligible pods left, a cheap set of victims is chosen on the
//! ledger, tried with the solver that places everything else, and cut down: each victim is put back if the gang still
//! fits. The cheapest domain wins. Small cases are enumerated, so that nothing cheaper exists there. Nothing is evicted
//! unless the whole gang then fits, and pods that leave anyway come first: room that they free is waited for.

mod choice;
pub(crate) mod fair;
pub(crate) mod prey;

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::Millis;
use crate::fit;
use crate::ids::{DomainIdx, GangIdx, NodeIdx, PodIdx, ShapeIdx, TreeIdx};
use crate::place::task::{Bound, Item};
use crate::place::{Plan, Region, Solver};
use crate::policy::Policy;
use crate::rooms::{Rooms, vacate};
use crate::world::World;
use crate::world::model::Node;
use crate::world::shares::Amounts3;
use choice::{Choice, Cost};
use prey::{Field, Rules};

/// Domains that are tried even when their estimate is no better than what was found.
const DOMAINS_TRIED: usize = 8;

/// Pods of a domain up to which every set of victims is looked at.
const ENUMERATED_PODS: usize = 10;

/// Room for a gang, and who has to leave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Pod and node.
    pub places: Vec<(PodIdx, NodeIdx)>,
    /// Pods to be evicted.
    pub victims: BTreeSet<PodIdx>,
    /// Gangs that go as a whole.
    pub whole: BTreeSet<GangIdx>,
    /// Pods on the chosen nodes that leave, victims included.
    pub awaits: BTreeSet<PodIdx>,
}

/// What a search ends with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hunted {
    /// Room, if there is some.
    pub found: Option<Found>,
    /// When another search may have another answer, though nothing happens until then.
    pub again: Option<Millis>,
    /// Steps used.
    pub steps: u64,
}

/// Searches for room for `item`, a gang's minimum that does not fit as things are, among who may go by these rules
/// (`field`).
pub(crate) fn hunt(world: &World, rooms: &mut Rooms, policy: &Policy, item: &Item, rules: &Rules<'_>, field: &mut Field) -> Hunted {
    let mut solver = Solver::new(world, rooms, policy);
    solver.objective = rules.gang.facts.objective.unwrap_or(policy.objective);
    solver.refines = false;
    let mut hunt = Hunt { world, solver, field: Field::default(), now: rules.now, steps: 0, limit: policy.search_steps };
    let mark = hunt.solver.rooms.checkpoint();
    let mut hunted = Hunted::default();
    if hunt.let_go() && rules.owed == Amounts3::default() && let Some(plan) = hunt.fits(item) {
        hunted.found = Some(hunt.found(&plan, &Choice::default()));
    } else {
        // Taken out for the search, and given back.
        std::mem::swap(&mut hunt.field, field);
        hunt.field.fair = rules.fair.cloned();
        hunt.field.owed = rules.owed;
        hunted.again = hunt.field.again;
        if hunt.field.somebody_owes() {
            hunted.found = hunt.search(item);
        }
        std::mem::swap(&mut hunt.field, field);
    }
    hunt.solver.rooms.rollback(mark, hunt.solver.shapes);
    hunt.kept(1);
    hunted.steps = hunt.steps;
    hunted
}

struct Hunt<'a> {
    world: &'a World,
    solver: Solver<'a>,
    field: Field,
    now: Millis,
    steps: u64,
    limit: u64,
}

/// The next pods to take, all of one node, with what that costs and brings.
#[derive(Clone, Debug)]
struct Step {
    /// All pods that go with it, those that went before included.
    choice: Choice,
    /// How many went before.
    from: usize,
    touched: BTreeSet<NodeIdx>,
    /// Gangs that go as a whole besides those that do already.
    whole: usize,
    /// One of the gangs has a queue with no more than it deserves.
    within_quota: bool,
    priority: i32,
    lost: i128,
    gain: u64,
}

impl Step {
    /// Fewest gangs for each pod that fits; lowest priority; least lost work for each pod that fits.
    fn is_before(&self, other: &Self) -> bool {
        let ratio = |a: i128, b: i128| (a * i128::from(other.gain)).cmp(&(b * i128::from(self.gain)));
        ratio(self.whole as i128, other.whole as i128)
            .then_with(|| self.within_quota.cmp(&other.within_quota))
            .then_with(|| self.priority.cmp(&other.priority))
            .then_with(|| ratio(self.lost, other.lost))
            .is_lt()
    }
}

impl Hunt<'_> {
    /// Room of pods that leave and that is kept for other gangs.
    fn kept(&mut self, sign: i64) {
        for (at, node) in self.world.nodes.iter().enumerate() {
            let Some(node) = node.as_ref().filter(|node| node.held.iter().any(|held| *held != 0) && !is_all_kept(node)) else { continue };
            let both = node.held.iter().zip(&node.releasing).map(|(held, releasing)| (*held).min(*releasing).max(0));
            let row: Vec<(usize, i64)> = both.enumerate().collect();
            self.solver.rooms.lend(NodeIdx(at as u32), &row, sign);
        }
    }

    /// Gives the room of pods that leave anyway. True when there are some.
    fn let_go(&mut self) -> bool {
        let mut some = false;
        self.kept(-1);
        for (at, node) in self.world.nodes.iter().enumerate() {
            for pod in node.iter().filter(|node| !is_all_kept(node)).flat_map(|node| &node.pods) {
                let Some(pod) = self.world.pods[pod.at()].as_ref().filter(|pod| self.world.frees_room(pod) && !self.is_stuck(pod)) else { continue };
                let shape = &self.world.shapes[pod.shape.at()];
                self.solver.rooms.give(NodeIdx(at as u32), pod.shape, shape, 1);
                some = true;
            }
        }
        some
    }

    /// It should be gone for long: nobody waits for it any more.
    fn is_stuck(&self, pod: &crate::world::model::Pod) -> bool {
        let patience = crate::world::promises::PATIENCE_MILLIS;
        pod.facts.gone_by.is_some_and(|by| by.saturating_add(patience) <= self.now)
    }

    fn fits(&mut self, item: &Item) -> Option<Plan> {
        self.solver.limit = self.limit.saturating_sub(self.steps).max(1);
        let plan = self.solver.solve(item).ok();
        self.steps += self.solver.steps + 1;
        plan
    }

    fn is_spent(&self) -> bool {
        self.steps >= self.limit
    }

    fn found(&self, plan: &Plan, choice: &Choice) -> Found {
        let places: Vec<(PodIdx, NodeIdx)> = plan.places.iter().filter(|(pod, _)| pod.exists()).copied().collect();
        let nodes: BTreeSet<NodeIdx> = plan.places.iter().map(|(_, node)| *node).collect();
        let mut awaits = self.world.leavers_on(&nodes);
        awaits.extend(&choice.pods);
        let whole = choice.whole.iter().map(|prey| self.field.preys[*prey].gang).collect();
        Found { places, victims: choice.pods.clone(), whole, awaits }
    }

    /// Takes the pods of a choice out of the ledger.
    fn leave(&mut self, pods: &BTreeSet<PodIdx>) {
        for pod in pods {
            let quarry = &self.field.quarries[pod];
            self.solver.rooms.leave(quarry.node, quarry.shape, &self.world.shapes[quarry.shape.at()]);
        }
    }

    /// Puts pods back that were taken out.
    fn come_back(&mut self, pods: &BTreeSet<PodIdx>) {
        for pod in pods {
            let quarry = &self.field.quarries[pod];
            self.solver.rooms.take(quarry.node, quarry.shape, &self.world.shapes[quarry.shape.at()], 1);
        }
    }

    /// The levels to look at, each only when the one before holds nothing.
    fn levels(&self, item: &Item) -> (TreeIdx, Vec<usize>) {
        match item.bound {
            Some(Bound { tree, required: Some(required), .. }) => (tree, vec![required]),
            Some(Bound { tree, preferred: Some(preferred), .. }) => (tree, (0..=preferred).rev().collect()),
            Some(Bound { tree, .. }) => (tree, vec![0]),
            None => (self.solver.default_tree, vec![0]),
        }
    }

    fn search(&mut self, item: &Item) -> Option<Found> {
        let (tree, levels) = self.levels(item);
        let open = self.open_domains(item, tree, &levels);
        for depth in levels {
            let item = within(item, depth);
            let domains: Vec<DomainIdx> = self.solver.trees[tree.at()].by_depth.get(depth).cloned().unwrap_or_default();
            let domains: Vec<DomainIdx> = domains.into_iter().filter(|domain| open.contains(domain)).collect();
            if let Some((choice, _)) = self.cheapest(&item, tree, &domains) {
                self.leave(&choice.pods);
                self.solver.refines = true;
                let plan = self.fits(&item)?;
                return Some(self.found(&plan, &choice));
            }
        }
        None
    }

    /// Domains with enough room for every shape if all that may be evicted were gone: no other domain can hold the gang.
    fn open_domains(&mut self, item: &Item, tree: TreeIdx, levels: &[usize]) -> BTreeSet<DomainIdx> {
        if levels == [0] {
            return self.solver.trees[tree.at()].by_depth.first().into_iter().flatten().copied().collect();
        }
        let mark = self.solver.rooms.checkpoint();
        let all: BTreeSet<PodIdx> = self.field.quarries.keys().copied().collect();
        self.leave(&all);
        let demand = item.least_demand();
        let entry = &self.solver.trees[tree.at()];
        let all = levels.iter().flat_map(|depth| entry.by_depth.get(*depth)).flatten().copied();
        let live = |domain: DomainIdx| item.live.iter().all(|node| entry.position(*node).is_some_and(|at| entry.positions(domain).contains(&at)));
        let all: Vec<DomainIdx> = all.filter(|domain| !entry.domain(*domain).absent && (entry.domain(*domain).depth == 0 || live(*domain))).collect();
        let open = all.into_iter().filter(|domain| self.has_slots(&demand, tree, *domain)).collect();
        self.solver.rooms.rollback(mark, self.solver.shapes);
        open
    }

    /// Whether the domain has room for so many of each shape, each alone. Rules between pods may hide some of it.
    fn has_slots(&mut self, demand: &[(ShapeIdx, usize)], tree: TreeIdx, domain: DomainIdx) -> bool {
        demand.iter().all(|(shape, n)| {
            let entry = &self.world.shapes[shape.at()];
            let is_drawn = entry.drawn_terms().next().is_some() || !entry.terms.anti.is_empty();
            is_drawn || self.solver.slots_in(*shape, &Region::default(), tree, domain) >= *n as u64
        })
    }

    /// The cheapest choice over these domains.
    fn cheapest(&mut self, item: &Item, tree: TreeIdx, domains: &[DomainIdx]) -> Option<(Choice, Cost)> {
        let mut estimates: Vec<(Cost, DomainIdx, Choice)> = Vec::new();
        let mut least: Option<usize> = None;
        for domain in domains {
            if let Some(choice) = self.estimate(item, tree, *domain, least) {
                let cost = self.field.cost(&choice, self.now);
                least = Some(least.map_or(cost.gangs, |least| least.min(cost.gangs)));
                estimates.push((cost, *domain, choice));
            }
        }
        estimates.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        let mut best: Option<(Choice, Cost)> = None;
        for (at, (estimate, domain, choice)) in estimates.into_iter().enumerate() {
            let is_worse = best.as_ref().is_some_and(|(_, cost)| *cost <= estimate);
            if (is_worse && DOMAINS_TRIED <= at) || (self.is_spent() && best.is_some()) {
                break;
            }
            let found = self.settle(item, tree, domain, choice);
            let found = self.enumerate(item, tree, domain, found);
            if let Some((choice, cost)) = found
                && best.as_ref().is_none_or(|(_, best)| cost < *best)
            {
                best = Some((choice, cost));
            }
        }
        best
    }

    /// The shape that most pods have.
    fn main_shape(item: &Item) -> Option<(ShapeIdx, usize)> {
        item.least_demand().into_iter().max_by_key(|(shape, n)| (*n, std::cmp::Reverse(*shape)))
    }

    /// Victims after which the domain has enough slots, step by step; nothing is tried yet. Given up when it takes more
    /// than `least` gangs.
    fn estimate(&mut self, item: &Item, tree: TreeIdx, domain: DomainIdx, least: Option<usize>) -> Option<Choice> {
        let (shape, n) = Self::main_shape(item)?;
        let mark = self.solver.rooms.checkpoint();
        let mut slots = self.solver.slots_in(shape, &Region::default(), tree, domain);
        let mut choice = Choice::default();
        let mut steps = BTreeMap::new();
        while slots < n as u64 {
            let Some(step) = self.next_step(shape, tree, domain, &choice, &mut steps) else { break };
            if !self.apply(&mut choice, &step, &mut steps) {
                continue;
            }
            slots += step.gain;
            if least.is_some_and(|least| choice.whole.len() > least) {
                self.solver.rooms.rollback(mark, self.solver.shapes);
                return None;
            }
        }
        self.solver.rooms.rollback(mark, self.solver.shapes);
        self.field.paid(&choice, self.now)
    }

    /// Takes a step. False when it was made before others were taken, and together they may not go: all are made anew then.
    fn apply(&mut self, choice: &mut Choice, step: &Step, steps: &mut BTreeMap<NodeIdx, Option<Step>>) -> bool {
        let mut all = choice.clone();
        all.pods.extend(&step.choice.pods);
        all.whole.extend(&step.choice.whole);
        let new: BTreeSet<PodIdx> = step.choice.pods.difference(&choice.pods).copied().collect();
        if step.from < choice.pods.len() && !self.field.may_go(&all) {
            steps.clear();
            return false;
        }
        self.leave(&new);
        *choice = all;
        let touched: BTreeSet<NodeIdx> = new.iter().map(|pod| self.field.quarries[pod].node).collect();
        // Steps that were made from the old state, or that share a gang with this one.
        let gangs: BTreeSet<usize> = new.iter().map(|pod| self.field.quarries[pod].prey).collect();
        let shares = |node: &NodeIdx| self.field.on(*node).iter().any(|pod| gangs.contains(&self.field.quarries[pod].prey));
        steps.retain(|node, step| {
            let is_old = step.as_ref().is_some_and(|step| !step.touched.is_disjoint(&touched));
            !touched.contains(node) && !is_old && !shares(node)
        });
        true
    }

    /// The best next pods to take in the domain.
    fn next_step(&self, shape: ShapeIdx, tree: TreeIdx, domain: DomainIdx, choice: &Choice, steps: &mut BTreeMap<NodeIdx, Option<Step>>) -> Option<Step> {
        let entry = &self.solver.trees[tree.at()];
        let mut best: Option<Step> = None;
        for node in entry.positions(domain).map(|position| entry.order[position]) {
            if self.field.on(node).is_empty() || !self.solver.rooms.eligible(shape, node) {
                continue;
            }
            let step = steps.entry(node).or_insert_with(|| self.step_on(shape, tree, domain, node, choice));
            if let Some(step) = step
                && best.as_ref().is_none_or(|best| step.is_before(best))
            {
                best = Some(step.clone());
            }
        }
        best
    }

    /// The fewest pods of a node, cheapest first, after which one more pod of the shape fits.
    fn step_on(&self, shape: ShapeIdx, tree: TreeIdx, domain: DomainIdx, node: NodeIdx, choice: &Choice) -> Option<Step> {
        let mut taken = choice.clone();
        let open = self.field.on(node).iter().copied().filter(|pod| !choice.pods.contains(pod));
        let mut open: Vec<PodIdx> = open.collect();
        open.sort_by_cached_key(|pod| self.field.rank(*pod, choice, self.now));
        let mut best: Option<Step> = None;
        for pod in open {
            let Some(more) = self.field.with(&taken, pod) else { continue };
            taken = more;
            let step = self.step(shape, tree, domain, choice, &taken);
            if step.gain > 0 {
                best = Some(step);
                break;
            }
        }
        best
    }

    fn step(&self, shape: ShapeIdx, tree: TreeIdx, domain: DomainIdx, from: &Choice, to: &Choice) -> Step {
        let new: Vec<PodIdx> = to.pods.difference(&from.pods).copied().collect();
        let mut by_node: BTreeMap<NodeIdx, Vec<PodIdx>> = BTreeMap::new();
        for pod in &new {
            by_node.entry(self.field.quarries[pod].node).or_default().push(*pod);
        }
        let entry = &self.solver.trees[tree.at()];
        let wanted = &self.world.shapes[shape.at()];
        let mut gain = 0;
        for (node, pods) in &by_node {
            let inside = entry.position(*node).is_some_and(|at| entry.positions(domain).contains(&at));
            let Some(room) = self.solver.rooms.room(*node).filter(|_| inside && self.solver.rooms.eligible(shape, *node)) else { continue };
            let before = fit::slots(room, wanted);
            let mut room = room.clone();
            for pod in pods {
                vacate(&mut room, &self.world.shapes[self.field.quarries[pod].shape.at()]);
            }
            gain += u64::from(fit::slots(&room, wanted).saturating_sub(before));
        }
        let priority = new.iter().map(|pod| self.field.preys[self.field.quarries[pod].prey].priority).max().unwrap_or(i32::MIN);
        let lost = new.iter().map(|pod| self.field.quarries[pod].lost(self.now)).sum();
        let within_quota = new.iter().any(|pod| self.field.preys[self.field.quarries[pod].prey].within_quota);
        Step { within_quota, from: from.pods.len(), whole: to.whole.len() - from.whole.len(), choice: to.clone(), touched: by_node.into_keys().collect(), priority, lost, gain }
    }

    /// Makes a choice fit, with more victims where that is needed, and then as small as it goes.
    fn settle(&mut self, item: &Item, tree: TreeIdx, domain: DomainIdx, mut choice: Choice) -> Option<(Choice, Cost)> {
        let mark = self.solver.rooms.checkpoint();
        self.leave(&choice.pods);
        let shapes: Vec<ShapeIdx> = item.least_demand().into_iter().map(|(shape, _)| shape).collect();
        let mut more = 1;
        let mut fits = self.fits(item).is_some();
        while !fits && !self.is_spent() {
            let mut grown = false;
            for _ in 0..more {
                let mut steps = BTreeMap::new();
                let step = shapes.iter().find_map(|shape| {
                    self.solver.ready(*shape, tree);
                    self.next_step(*shape, tree, domain, &choice, &mut steps)
                });
                let Some(step) = step else { break };
                grown |= self.apply(&mut choice, &step, &mut BTreeMap::new());
            }
            if !grown {
                break;
            }
            more *= 2;
            fits = self.fits(item).is_some();
        }
        if fits {
            self.put_back(item, tree, domain, &mut choice);
        }
        self.solver.rooms.rollback(mark, self.solver.shapes);
        let cost = self.field.cost(&choice, self.now);
        fits.then_some((choice, cost))
    }

    /// Puts victims back, the dearest first, as long as the gang fits without them.
    fn put_back(&mut self, item: &Item, tree: TreeIdx, domain: DomainIdx, choice: &mut Choice) {
        let demand = item.least_demand();
        for unit in self.field.units(choice, self.now) {
            if self.is_spent() {
                return;
            }
            let mark = self.solver.rooms.checkpoint();
            self.come_back(&unit);
            let mut less = Choice { pods: choice.pods.difference(&unit).copied().collect(), whole: choice.whole.clone() };
            self.field.recount(&mut less);
            if self.field.pays(&less) && self.has_slots(&demand, tree, domain) && self.fits(item).is_some() {
                *choice = less;
            } else {
                self.solver.rooms.rollback(mark, self.solver.shapes);
            }
        }
    }

    /// In a small domain, the cheapest of all sets of victims, if that is cheaper than what was found.
    fn enumerate(&mut self, item: &Item, tree: TreeIdx, domain: DomainIdx, found: Option<(Choice, Cost)>) -> Option<(Choice, Cost)> {
        let entry = &self.solver.trees[tree.at()];
        let nodes = entry.positions(domain).map(|position| entry.order[position]);
        let pods: Vec<PodIdx> = nodes.flat_map(|node| self.field.on(node)).copied().take(ENUMERATED_PODS + 1).collect();
        if pods.len() > ENUMERATED_PODS {
            return found;
        }
        let mut sets: BTreeMap<Cost, Choice> = BTreeMap::new();
        for mask in 1_u32..1 << pods.len() {
            let chosen = pods.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1).map(|(_, pod)| *pod);
            let Some(choice) = chosen.into_iter().try_fold(Choice::default(), |choice, pod| self.field.with(&choice, pod)) else { continue };
            let cost = self.field.cost(&choice, self.now);
            if self.field.pays(&choice) && found.as_ref().is_none_or(|(_, best)| cost < *best) {
                sets.insert(cost, choice);
            }
        }
        let demand = item.least_demand();
        for (cost, choice) in sets {
            if self.is_spent() {
                break;
            }
            let mark = self.solver.rooms.checkpoint();
            self.leave(&choice.pods);
            let fits = self.has_slots(&demand, tree, domain) && self.fits(item).is_some();
            self.solver.rooms.rollback(mark, self.solver.shapes);
            if fits {
                return Some((choice, cost));
            }
        }
        found
    }
}

/// All that leaves the node is kept for others.
fn is_all_kept(node: &Node) -> bool {
    let held = |column: usize| node.held.get(column).copied().unwrap_or(0);
    node.releasing.iter().enumerate().all(|(column, releasing)| *releasing <= held(column))
}

/// The same task, to be placed inside one domain of a level.
fn within(item: &Item, depth: usize) -> Item {
    let mut item = item.clone();
    if let Some(bound) = &mut item.bound
        && depth > 0
    {
        bound.required = Some(bound.required.unwrap_or(0).max(depth));
    }
    item
}

