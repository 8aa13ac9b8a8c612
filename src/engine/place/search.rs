//! From tasks to plans: the exact class in its best domain, and the general search.
//!
//! The general search keeps a list of open goals and always takes the hardest
//! (fewest candidate domains, then largest demand); it tries that goal's
//! domains tightest first and backtracks completely over siblings. Domains
//! that are equal slot for slot under one parent are tried once.
//!
//! It runs twice. First leaves are filled at once, best nodes first: quick, but
//! no proof when it finds nothing and there are several leaves or shapes. Then,
//! and at once where pods depend on each other, leaves only get their regions,
//! and all pods are placed together at the end (`coupled`): that is complete.
//! A plan found is then refined (`refine`), by the same search with a bar to beat.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::ids::{DomainIdx, NodeIdx, PodIdx, TreeIdx};
use crate::place::candidates::{Rank, Ratio};
use crate::place::exact::{Answer, Chosen, Instance, Spot};
use crate::place::limits::Limit;
use crate::place::refine::Bar;
use crate::place::task::{Bound, Item, Uniform};
use crate::place::{Failure, Plan, Region, Solver};
use crate::policy::Objective;
use crate::topology::Tree;

/// Subsets of children tried where only some of them must be ready.
const MAX_SUBSETS: usize = 1_000;

/// Line 3 with the broken segments before it, line 2, and what comes after: comparable between domains of one depth.
pub(super) type Merit = (Vec<i64>, Option<Reverse<Ratio>>, Vec<i64>);

/// The cost inside a domain, with the domain's tightness after line 3. Among equally tight ones that changes nothing.
fn merit(rank: Option<Rank>, mut cost: Vec<i64>, levels: usize) -> Merit {
    let rest = cost.split_off(cost.len().min(levels + 1));
    (cost, rank.map(|(.., tightness)| tightness), rest)
}

/// Which candidate domains are compared by what comes inside them.
pub(super) struct Order {
    pub(super) objective: Objective,
    /// Domains above this depth differ in line 3.
    pub(super) counted: usize,
    pub(super) n_pods: usize,
}

impl Order {
    /// Whether a domain may still be better than one, before it in the order of ranks, that holds the task.
    pub(super) fn is_open(&self, best: Option<Rank>, next: Option<Rank>) -> bool {
        match (self.objective, best, next) {
            // One pod is in one domain of a level anywhere; where no level below is counted, line 3 has nothing to say.
            (Objective::Compact, Some((kept, depth, here, _)), Some(other))
                if self.n_pods > 1 && depth.0 < self.counted =>
            {
                (kept, depth, here) == (other.0, other.1, other.2)
            }
            _ => best == next,
        }
    }
}

impl Solver<'_> {
    /// Solves a task of the exact class; `None` when it is too large for the tables.
    pub(crate) fn solve_uniform(
        &mut self,
        root: &Item,
        uniform: &Uniform,
        objective: Objective,
    ) -> Option<Result<Plan, Failure>> {
        let tree = root
            .bound
            .or(uniform.bound)
            .map_or(self.default_tree, |bound| bound.tree);
        let region = Region::default();
        let domains = match root.bound {
            Some(bound) => self.ranked(root, bound, &region).into_iter().map(|(rank, domain)| (Some(rank), domain)).collect(),
            None => vec![(None, Tree::ROOT)],
        };
        let counted = self.counted_levels(tree, root.bound);
        let order = Order { objective, counted: counted.max(uniform.demand.preferred), n_pods: uniform.demand.pods() + uniform.demand.guests };
        let mut best: Option<(Option<Rank>, Merit, DomainIdx, Chosen)> = None;
        // Of domains of one rank the best inside counts; equals of one that was solved are no better: they come later, so
        // they are no tighter either.
        let mut solved: Vec<(DomainIdx, Vec<Spot>)> = Vec::new();
        for (rank, domain) in domains {
            if best.as_ref().is_some_and(|(other, ..)| !order.is_open(*other, rank)) {
                break;
            }
            let mut spots = self.spots(uniform.shape, &region, tree, domain, &root.live);
            if let Some((guest, pods)) = &uniform.guests {
                self.add_guests(&mut spots, (uniform.shape, *guest), pods.len(), (tree, domain));
            }
            let entry = &self.trees[tree.at()];
            if solved.iter().any(|(other, seen)| *seen == spots && entry.alike(*other, domain)) {
                continue;
            }
            self.steps += 1;
            let levels = counted.saturating_sub(entry.domain(domain).depth);
            let caps = self.caps(&root.limits, (tree, domain), &root.live);
            let strategy = self.strategy(uniform.shape);
            let instance = Instance { tree: entry, top: domain, spots: &spots, counted, strategy, caps: &caps };
            match instance.solve(&uniform.demand) {
                Answer::TooLarge => return None,
                Answer::Impossible => {}
                Answer::Best(chosen, cost) => {
                    let merit = merit(rank, cost, levels);
                    if best.as_ref().is_none_or(|(_, other, ..)| merit < *other) {
                        best = Some((rank, merit, domain, chosen));
                    }
                }
            }
            solved.push((domain, spots));
        }
        let Some((_, _, domain, chosen)) = best else { return Some(Err(Failure::Impossible)) };
        let plan = Plan { objective, ..self.plan_of(uniform, (tree, domain), &chosen) };
        // A limit on another tree is not seen here; a plan that keeps it is the best one all the same.
        self.keeps_limits(root, &plan).then_some(Ok(plan))
    }

    /// Pods in rank order take the positions chosen.
    fn plan_of(&self, uniform: &Uniform, containing: (TreeIdx, DomainIdx), chosen: &Chosen) -> Plan {
        let order = &self.trees[containing.0.at()].order;
        let mut places = Vec::with_capacity(uniform.demand.pods());
        let mut put = |pods: &[PodIdx], positions: &[usize]| {
            for (pod, position) in pods.iter().zip(positions) {
                places.push((*pod, order[*position]));
            }
        };
        for (pods, positions) in uniform.segments.iter().zip(&chosen.segments) {
            put(pods, positions);
        }
        put(&uniform.short, &chosen.short);
        put(&uniform.loose, &chosen.loose);
        if let Some((_, pods)) = &uniform.guests {
            put(pods, &chosen.guests);
        }
        Plan { places, containing, objective: Objective::Kai, proven: true, fewest: true, settled: true }
    }

    /// The deepest level whose domains are counted: the preferred one, else the leaf level.
    pub(super) fn counted_levels(&self, tree: TreeIdx, bound: Option<Bound>) -> usize {
        let levels = self.trees[tree.at()].n_levels();
        bound.and_then(|bound| bound.preferred).unwrap_or(levels)
    }

    /// The general search.
    pub(crate) fn search(&mut self, root: &Item) -> Result<Plan, Failure> {
        let lone = root.demand().len() <= 1 && root.children.is_empty() && root.limits.is_empty();
        let mut quick = false;
        let mut found = Err(Failure::Impossible);
        if !self.coupled {
            found = self.search_by(root, Start::default());
            quick = !lone;
        }
        if !lone && found == Err(Failure::Impossible) || self.coupled {
            found = self.search_by(root, Start { deferring: true, ..Start::default() });
            quick = false;
        }
        match found {
            Ok(plan) if self.refines => Ok(self.refine(root, plan, quick)),
            other => other,
        }
    }

    /// One search; the ledger is as before when it ends.
    pub(super) fn search_by(&mut self, root: &Item, start: Start) -> Result<Plan, Failure> {
        let mark = self.rooms.checkpoint();
        let tree = root.bound.or_else(|| first_bound(root)).map_or(self.default_tree, |bound| bound.tree);
        let mut state = Search {
            places: Vec::new(),
            containing: (tree, Tree::ROOT),
            out_of_budget: false,
            deferring: start.deferring,
            only: start.only,
            roomy: start.roomy,
            bar: start.bar,
            deferred: Vec::new(),
            exchanged: Vec::new(),
            limits: &root.limits,
            live: &root.live,
        };
        let done = self.step(&mut state, vec![Goal { item: root, region: start.region }]);
        self.rooms.rollback(mark, self.shapes);
        match state.bar.as_mut() {
            Some(bar) => bar.found.take(),
            None => done.then(|| state.plan()),
        }
        .ok_or(if state.out_of_budget { Failure::Budget } else { Failure::Impossible })
    }

    /// All leaves have their regions: their pods, together.
    fn finish(&mut self, state: &mut Search<'_>) -> bool {
        if !state.deferring {
            let plan = state.plan();
            return state.bar.as_mut().is_none_or(|bar| bar.lower(&self.trees[bar.tree().at()], plan));
        }
        match self.place_pods(&state.deferred, (state.limits, state.live)) {
            None => state.out_of_budget = true,
            Some(None) => {}
            Some(Some(places)) => {
                state.places.extend(places);
                return true;
            }
        }
        false
    }

    /// Gives a leaf its region and goes on; its pods are placed at the end.
    fn defer<'i>(&mut self, state: &mut Search<'i>, item: &'i Item, region: &Region, rest: &[Goal<'i>]) -> bool {
        state.deferred.push((item, region.clone()));
        let done = !self.overfull(state) && self.step(state, rest.to_vec());
        if !done {
            state.deferred.pop();
        }
        done
    }

    /// Some domain around the last leaf's region is too small for the leaves inside it.
    fn overfull(&mut self, state: &Search<'_>) -> bool {
        let Some((item, region)) = state.deferred.last() else { return false };
        let mut around = region.domains.clone();
        around.push((self.default_tree, region.in_tree(self.default_tree)));
        for (shape, _) in item.demand() {
            for (tree, start) in &around {
                self.ready(shape, *tree);
                let entry = &self.trees[tree.at()];
                let mut domain = *start;
                loop {
                    let inside = state.deferred.iter().filter(|(_, other)| {
                        entry.contains(domain, other.in_tree(*tree))
                    });
                    let wanted: usize = inside
                        .flat_map(|(item, _)| &item.pods)
                        .filter(|(other, _)| *other == shape)
                        .map(|(_, pods)| pods.len())
                        .sum();
                    if wanted as u64 > self.rooms.domain_slots(shape, *tree, domain) {
                        return true;
                    }
                    if domain == Tree::ROOT {
                        break;
                    }
                    domain = entry.domain(domain).parent;
                }
            }
        }
        false
    }

    fn step<'i>(&mut self, state: &mut Search<'i>, goals: Vec<Goal<'i>>) -> bool {
        self.steps += 1;
        if self.steps > self.limit {
            state.out_of_budget = true;
            return false;
        }
        if let Some(bar) = &state.bar {
            self.work += state.places.len() as u64;
            state.out_of_budget |= self.work > bar.most_work;
            if state.out_of_budget || bar.is_reached(&self.trees[bar.tree().at()], &state.places) {
                return false;
            }
        }
        if !self.is_within_limits(state) {
            return false;
        }
        let Some((goal, rest)) = self.hardest(goals) else { return self.finish(state) };
        match goal.item.bound {
            Some(bound) => self.try_domains(state, &goal, bound, &rest),
            None if goal.item.choose < goal.item.children.len() => {
                self.try_subsets(state, &goal, &rest)
            }
            None => {
                if !goal.item.children.is_empty() {
                    let mut goals = rest;
                    goals.extend(goal.item.children.iter().map(|child| Goal {
                        item: child,
                        region: goal.region.clone(),
                    }));
                    return self.step(state, goals);
                }
                if state.deferring {
                    return self.defer(state, goal.item, &goal.region, &rest);
                }
                let mark = (self.rooms.checkpoint(), state.places.len());
                let done = self.place_loose(state, goal.item, &goal.region, None)
                    && self.step(state, rest);
                if !done {
                    self.undo(state, mark);
                }
                done
            }
        }
    }

    fn undo(&mut self, state: &mut Search<'_>, mark: (usize, usize)) {
        self.rooms.rollback(mark.0, self.shapes);
        state.places.truncate(mark.1);
    }

    /// The goal to expand next: inner subgroups without a constraint first (no
    /// choice), then the constrained one with the fewest candidates and the largest
    /// demand, unconstrained leaves last.
    fn hardest<'i>(&mut self, mut goals: Vec<Goal<'i>>) -> Option<(Goal<'i>, Vec<Goal<'i>>)> {
        let mut best: Option<((usize, usize, std::cmp::Reverse<usize>), usize)> = None;
        for (at, goal) in goals.iter().enumerate() {
            let key = match goal.item.bound {
                None if !goal.item.children.is_empty() => (0, 0, std::cmp::Reverse(0)),
                Some(bound) => {
                    let n = self.candidates(goal.item, bound, &goal.region).len();
                    (1, n, std::cmp::Reverse(goal.item.n_pods()))
                }
                // A leaf that nothing constrained shares its domain with has no choice left.
                None => {
                    let late = self.shared_with_constrained(goal, &goals);
                    let n = std::cmp::Reverse(goal.item.n_pods());
                    if late { (2, self.loose_room(goal), n) } else { (1, 1, n) }
                }
            };
            if best.as_ref().is_none_or(|(other, _)| key < *other) {
                best = Some((key, at));
            }
        }
        let (_, at) = best?;
        let goal = goals.remove(at);
        Some((goal, goals))
    }

    /// True when a constrained goal is open in the same domain, or inside it.
    fn shared_with_constrained(&self, leaf: &Goal<'_>, goals: &[Goal<'_>]) -> bool {
        goals.iter().filter(|goal| goal.item.bound.is_some()).any(|goal| {
            leaf.region.domains.iter().all(|(tree, domain)| {
                self.trees[tree.at()].contains(*domain, goal.region.in_tree(*tree))
            })
        })
    }

    fn loose_room(&mut self, goal: &Goal<'_>) -> usize {
        let (tree, domain) =
            goal.region.domains.first().copied().unwrap_or((self.default_tree, Tree::ROOT));
        let demand = goal.item.demand();
        demand
            .iter()
            .map(|(shape, _)| self.slots_in(*shape, &goal.region, tree, domain))
            .min()
            .map_or(usize::MAX, |slots| slots as usize)
    }

    fn try_domains<'i>(
        &mut self,
        state: &mut Search<'i>,
        goal: &Goal<'i>,
        bound: Bound,
        rest: &[Goal<'i>],
    ) -> bool {
        let mut failed: BTreeSet<Vec<i64>> = BTreeSet::new();
        let known = state.exchanged.len();
        for domain in self.domains_to_try(state, goal, bound) {
            if state.was_exchanged(goal, domain) {
                continue;
            }
            // Leaves that only have a region so far do not show on the ledger.
            let hidden = state.deferring
                && (self.coupled || !rest.is_empty() || !state.deferred.is_empty() || !goal.item.children.is_empty());
            // What is used already tells domains apart where only so many may be.
            let alone = hidden || !state.limits.is_empty() || self.unlike_any_other(rest, bound.tree, domain);
            let twin = self.twin_key(goal.item, &goal.region, (bound.tree, domain), alone);
            if failed.contains(&twin) {
                continue;
            }
            let mark = (self.rooms.checkpoint(), state.places.len());
            if goal.item.sub == 0 {
                state.containing = (bound.tree, domain);
            }
            let region = goal.region.narrowed(bound.tree, domain);
            let done = if goal.item.children.is_empty() && state.deferring {
                self.defer(state, goal.item, &region, rest)
            } else if goal.item.children.is_empty() {
                self.place_loose(state, goal.item, &region, Some(bound))
                    && self.step(state, rest.to_vec())
            } else {
                self.step_into(state, goal.item, &region, rest)
            };
            if done {
                return true;
            }
            self.undo(state, mark);
            if state.out_of_budget {
                return false;
            }
            failed.insert(twin);
            state.exchanged.push((goal.item, goal.region.clone(), domain));
        }
        state.exchanged.truncate(known);
        false
    }

    /// The candidates, best first; with a bar to beat, those first that share domains with what is placed already.
    fn domains_to_try(&mut self, state: &Search<'_>, goal: &Goal<'_>, bound: Bound) -> Vec<DomainIdx> {
        if let (Some(only), 0) = (&state.only, goal.item.sub) {
            return only.clone();
        }
        let mut domains = self.candidates(goal.item, bound, &goal.region);
        if state.bar.is_none() {
            return domains;
        }
        let tree = &self.trees[bound.tree.at()];
        let mut taken: Vec<usize> = state.places.iter().filter_map(|(_, node)| tree.position(*node)).collect();
        taken.sort_unstable();
        let is_touched = |domain: DomainIdx| {
            let range = tree.positions(domain);
            taken.get(taken.partition_point(|at| *at < range.start)).is_some_and(|at| *at < range.end)
        };
        let untouched = |domain: DomainIdx| {
            let mut untouched = 0;
            let mut at = domain;
            while at != Tree::ROOT && !is_touched(at) {
                untouched += 1;
                at = tree.domain(at).parent;
            }
            untouched
        };
        if state.roomy {
            let shape = goal.item.demand().first().map(|(shape, _)| *shape);
            let room = |domain| shape.map_or(0, |shape| self.rooms.domain_slots(shape, bound.tree, domain));
            domains.sort_by_cached_key(|domain| (untouched(*domain), std::cmp::Reverse(room(*domain))));
        } else {
            domains.sort_by_cached_key(|domain| untouched(*domain));
        }
        domains
    }

    /// Goes on with the children of a subgroup that has its domain.
    fn step_into<'i>(&mut self, state: &mut Search<'i>, item: &'i Item, region: &Region, rest: &[Goal<'i>]) -> bool {
        // With a choice among children: an inner goal of its own, without the constraint that holds now.
        if item.choose < item.children.len() {
            return self.try_subsets(state, &Goal { item, region: region.clone() }, rest);
        }
        let mut goals = rest.to_vec();
        let children = item.children.iter();
        goals.extend(children.map(|child| Goal { item: child, region: region.clone() }));
        self.step(state, goals)
    }

    /// True when an open goal can tell this domain from its equals: it must go inside it, has
    /// members there, or looks at the nodes through another tree.
    fn unlike_any_other(&self, rest: &[Goal<'_>], tree: TreeIdx, domain: DomainIdx) -> bool {
        let entry = &self.trees[tree.at()];
        rest.iter().any(|goal| {
            let inside = goal.region.domains.iter().any(|(other, region)| {
                *other != tree || entry.contains(domain, *region)
            });
            let members = goal.item.live.iter().any(|node| {
                entry.position(*node).is_some_and(|at| entry.positions(domain).contains(&at))
            });
            inside || members || uses_other_tree(goal.item, tree)
        })
    }

    /// Equal keys: equal domains for everything this search may still place there.
    fn twin_key(
        &mut self,
        item: &Item,
        region: &Region,
        at: (TreeIdx, DomainIdx),
        alone: bool,
    ) -> Vec<i64> {
        let (tree, domain) = at;
        // Those of children not tried yet too: another choice may tell the domains apart.
        let shapes = item.all_shapes();
        for shape in &shapes {
            self.ready(*shape, tree);
        }
        let entry = &self.trees[tree.at()];
        let mut rows: Vec<Vec<i64>> = entry
            .positions(domain)
            .map(|position| entry.order[position])
            .map(|node| {
                let mut row = vec![i64::from(self.inside(region, node))];
                row.extend(self.rooms.room(node).map(|room| room.free.clone()).unwrap_or_default());
                for shape in &shapes {
                    row.push(i64::from(self.rooms.eligible(*shape, node)));
                    row.push(i64::from(self.rooms.node_slots(*shape, node)));
                }
                row
            })
            .collect();
        rows.sort_unstable();
        let mut key = vec![i64::from(entry.domain(domain).parent.0)];
        // Live members make a domain unlike any other; so do other trees in play.
        if alone || !item.live.is_empty() || region.domains.iter().any(|(other, _)| *other != tree) {
            key.push(i64::from(domain.0));
        }
        key.extend(rows.into_iter().flatten());
        key
    }

    fn try_subsets<'i>(&mut self, state: &mut Search<'i>, goal: &Goal<'i>, rest: &[Goal<'i>]) -> bool {
        let (n, k) = (goal.item.children.len(), goal.item.choose);
        let mut subset: Vec<usize> = (0..k).collect();
        for _ in 0..MAX_SUBSETS {
            let mark = (self.rooms.checkpoint(), state.places.len());
            let mut goals = rest.to_vec();
            goals.extend(
                subset
                    .iter()
                    .map(|at| Goal { item: &goal.item.children[*at], region: goal.region.clone() }),
            );
            if self.step(state, goals) {
                return true;
            }
            self.undo(state, mark);
            if state.out_of_budget || !next_subset(&mut subset, n) {
                return false;
            }
        }
        state.out_of_budget = true;
        false
    }
}

fn uses_other_tree(item: &Item, tree: TreeIdx) -> bool {
    item.bound.is_some_and(|bound| bound.tree != tree)
        || item.children.iter().any(|child| uses_other_tree(child, tree))
}

/// The outermost constraint, the first one declared.
pub(super) fn first_bound(item: &Item) -> Option<Bound> {
    item.bound.or_else(|| item.children.iter().find_map(first_bound))
}

/// The next subset in lexicographic order.
fn next_subset(subset: &mut [usize], n: usize) -> bool {
    let k = subset.len();
    for at in (0..k).rev() {
        if subset[at] < n - k + at {
            subset[at] += 1;
            for later in at + 1..k {
                subset[later] = subset[later - 1] + 1;
            }
            return true;
        }
    }
    false
}

#[derive(Clone)]
struct Goal<'i> {
    item: &'i Item,
    region: Region,
}

/// How a search begins.
#[derive(Default)]
pub(super) struct Start {
    /// Where everything must be.
    pub region: Region,
    /// Domains of the whole task, when not all candidates.
    pub only: Option<Vec<DomainIdx>>,
    /// The emptiest domains and nodes first instead of the tightest.
    pub roomy: bool,
    /// Complete: leaves get regions only; their pods are placed together at the end.
    pub deferring: bool,
    /// Goes on until nothing better is left.
    pub bar: Option<Bar>,
}

pub(super) struct Search<'i> {
    pub(super) places: Vec<(PodIdx, NodeIdx)>,
    containing: (TreeIdx, DomainIdx),
    out_of_budget: bool,
    only: Option<Vec<DomainIdx>>,
    pub(super) roomy: bool,
    pub(super) bar: Option<Bar>,
    /// Leaves get regions only; their pods are placed together at the end.
    deferring: bool,
    pub(super) deferred: Vec<(&'i Item, Region)>,
    /// Subgroups that were tried in a domain, in vain, before the domain they are in now: with one of them elsewhere, its
    /// equals need not try that domain, for the two exchanged were tried already.
    exchanged: Vec<(&'i Item, Region, DomainIdx)>,
    pub(super) limits: &'i [Limit],
    /// Nodes of the whole gang's live members.
    pub(super) live: &'i [NodeIdx],
}

impl Search<'_> {
    fn was_exchanged(&self, goal: &Goal<'_>, domain: DomainIdx) -> bool {
        self.exchanged.iter().any(|(item, region, failed)| {
            *failed == domain && *region == goal.region && !std::ptr::eq(*item, goal.item) && item.is_like(goal.item)
        })
    }

    fn plan(&self) -> Plan {
        Plan { places: self.places.clone(), containing: self.containing, objective: Objective::Kai, proven: false, fewest: false, settled: true }
    }
}
