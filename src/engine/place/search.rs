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

use std::collections::BTreeSet;

use crate::ids::{DomainIdx, NodeIdx, PodIdx, ShapeIdx, TreeIdx};
use crate::place::exact::{Answer, Demand, Instance};
use crate::place::task::{Bound, Item, Uniform};
use crate::place::{Failure, Plan, Region, Solver};
use crate::topology::Tree;

/// Subsets of children tried where only some of them must be ready.
const MAX_SUBSETS: usize = 1_000;

impl Solver<'_> {
    /// Solves a task of the exact class; `None` when it is too large for the tables.
    pub(crate) fn solve_uniform(
        &mut self,
        root: &Item,
        uniform: &Uniform,
    ) -> Option<Result<Plan, Failure>> {
        let tree = root
            .bound
            .or(uniform.bound)
            .map_or(self.default_tree, |bound| bound.tree);
        let region = Region::default();
        let domains = match root.bound {
            Some(bound) => self.candidates(root, bound, &region),
            None => vec![Tree::ROOT],
        };
        for domain in domains {
            self.steps += 1;
            let mut spots = self.spots(uniform.shape, &region, tree, domain, &root.live);
            if let Some((guest, pods)) = &uniform.guests {
                self.add_guests(&mut spots, (uniform.shape, *guest), pods.len(), (tree, domain));
            }
            let instance = Instance {
                tree: &self.trees[tree.at()],
                top: domain,
                spots: &spots,
                counted: self.counted(tree, root.bound),
                strategy: self.strategy(uniform.shape),
            };
            match instance.solve(&uniform.demand) {
                Answer::TooLarge => return None,
                Answer::Impossible => {}
                Answer::Best(chosen) => {
                    let order = &self.trees[tree.at()].order;
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
                    return Some(Ok(Plan { places, containing: (tree, domain), proven: true }));
                }
            }
        }
        Some(Err(Failure::Impossible))
    }

    /// The deepest level whose domains are counted: the preferred one, else the leaf level.
    fn counted(&self, tree: TreeIdx, bound: Option<Bound>) -> usize {
        let levels = self.trees[tree.at()].n_levels();
        bound.and_then(|bound| bound.preferred).unwrap_or(levels)
    }

    /// The general search.
    pub(crate) fn search(&mut self, root: &Item) -> Result<Plan, Failure> {
        let lone = root.demand().len() <= 1 && root.children.is_empty();
        if !self.coupled {
            let quick = self.search_by(root, false);
            if lone || quick != Err(Failure::Impossible) {
                return quick;
            }
        }
        self.search_by(root, true)
    }

    fn search_by(&mut self, root: &Item, deferring: bool) -> Result<Plan, Failure> {
        let mut state = Search {
            places: Vec::new(),
            containing: None,
            out_of_budget: false,
            deferring,
            deferred: Vec::new(),
        };
        let found = self.step(&mut state, vec![Goal { item: root, region: Region::default() }]);
        if found {
            let containing = state.containing.unwrap_or((self.default_tree, Tree::ROOT));
            return Ok(Plan { places: state.places, containing, proven: false });
        }
        Err(if state.out_of_budget { Failure::Budget } else { Failure::Impossible })
    }

    /// All leaves have their regions: their pods, together.
    fn finish(&mut self, state: &mut Search<'_>) -> bool {
        if !state.deferring {
            return true;
        }
        match self.place_pods(&state.deferred) {
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
        if self.steps > self.policy.search_steps {
            state.out_of_budget = true;
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
        for domain in self.candidates(goal.item, bound, &goal.region) {
            // Leaves that only have a region so far do not show on the ledger.
            let hidden = state.deferring
                && (self.coupled || !rest.is_empty() || !state.deferred.is_empty() || !goal.item.children.is_empty());
            let alone = hidden || self.unlike_any_other(rest, bound.tree, domain);
            let twin = self.twin_key(goal.item, &goal.region, (bound.tree, domain), alone);
            if failed.contains(&twin) {
                continue;
            }
            let mark = (self.rooms.checkpoint(), state.places.len());
            let outermost = state.containing.is_none();
            if outermost {
                state.containing = Some((bound.tree, domain));
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
            if outermost {
                state.containing = None;
            }
            if state.out_of_budget {
                return false;
            }
            failed.insert(twin);
        }
        false
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

    /// Places a leaf's pods anywhere in a region, best first per shape.
    fn place_loose(
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
        let pods = item.all_groups();
        for (shape, pods) in pods {
            let Some(nodes) = self.best_nodes(shape, pods.len(), region, (tree, domain), &item.live)
            else {
                return false;
            };
            for (pod, node) in pods.iter().zip(nodes) {
                self.rooms.take(node, shape, &self.shapes[shape.at()], 1);
                state.places.push((*pod, node));
            }
        }
        true
    }

    fn best_nodes(
        &mut self,
        shape: ShapeIdx,
        n: usize,
        region: &Region,
        at: (TreeIdx, DomainIdx),
        live: &[NodeIdx],
    ) -> Option<Vec<NodeIdx>> {
        let (tree, domain) = at;
        let spots = self.spots(shape, region, tree, domain, live);
        let entry = &self.trees[tree.at()];
        let instance = Instance {
            tree: entry,
            top: domain,
            spots: &spots,
            counted: entry.n_levels(),
            strategy: self.strategy(shape),
        };
        match instance.solve(&Demand::loose(n)) {
            Answer::Best(chosen) => {
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

fn uses_other_tree(item: &Item, tree: TreeIdx) -> bool {
    item.bound.is_some_and(|bound| bound.tree != tree)
        || item.children.iter().any(|child| uses_other_tree(child, tree))
}

/// Most-free-first: minimal in the number of nodes; used where the tables would not fit.
fn first_fit(spots: &[crate::place::exact::Spot], n: usize) -> Option<Vec<usize>> {
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

struct Search<'i> {
    places: Vec<(PodIdx, NodeIdx)>,
    containing: Option<(TreeIdx, DomainIdx)>,
    out_of_budget: bool,
    /// Leaves get regions only; their pods are placed together at the end.
    deferring: bool,
    deferred: Vec<(&'i Item, Region)>,
}

impl Item {
    /// Pods of a leaf by shape, largest requests first is not needed: ranks decide.
    fn all_groups(&self) -> Vec<(ShapeIdx, Vec<PodIdx>)> {
        self.pods.clone()
    }
}
