//! Unlike subgroups at any depth, over counts: fewest domains, proven.
//!
//! Subgroups that must each stay in one domain, nested or beside each other,
//! and loose pods of some shapes, on one tree. What a domain holds is a count
//! of each kind; subgroups that a domain holds whole are opened inside it, for
//! there any of their parts may go with any other. A dynamic programme over
//! (domain, counts) finds for each domain the least cost, in lines 3 and then 4
//! of placement.md section 3: the fewest domains, the widest level first, then
//! the least room beside what is placed. At the last level the pods of all shapes
//! are packed into its nodes (`leaf`), exactly. So "impossible" is proven too.
//!
//! Cost: the sum over domains of (states so far) × (states of the child). Tables
//! that are too large, or too much work, are left to the general search, and so
//! is what counts can't tell (`Kinds::of`). Domains are looked into only when a candidate needs them.
//!
//! Where the answer passes a limit on the domains of a level, it is computed once more with that level's domains before
//! all others in the cost: then a domain whose least is above the limit holds no placement. Several limits at once are
//! left to the search.

mod assign;
mod kinds;
mod leaf;
mod states;

use std::collections::BTreeMap;
use std::rc::Rc;

use self::kinds::{Atom, Content, Kinds};
use self::leaf::{Classes, Largest};
use self::states::Layout;
use crate::fit::volumes::VolumeNeeds;
use crate::ids::{DomainIdx, TreeIdx};
use crate::place::candidates::Rank;
use crate::place::exact::Cap;
use crate::place::search::{Merit, Order, first_bound};
use crate::place::task::Item;
use crate::place::{Failure, Plan, Region, Solver};
use crate::policy::Objective;
use crate::topology::Tree;

/// Levels of a tree at the most: each has 16 bits of a cost.
const MAX_LEVELS: usize = 6;
/// States looked at and nodes packed in one solve: some tens of milliseconds.
const WORK: u64 = 4_000_000;
/// No placement.
const NEVER: u128 = u128::MAX;

/// A state with its cost.
type Offer = (usize, u128);

/// One task on one tree.
struct Parts<'t> {
    tree_idx: TreeIdx,
    tree: &'t Tree,
    kinds: Kinds,
    content: Content,
    /// By depth, from 1 on: what a domain there may hold; after the last one, pods alone.
    layouts: Vec<Layout>,
    /// By depth: the state of the next depth with everything open that a domain of this one holds whole.
    opened: Vec<Vec<Option<usize>>>,
    /// Depths above this one are counted.
    counted: usize,
    /// A level whose domains come before all others, with the most there may be.
    first: Option<Cap>,
    /// By domain: touched by live members.
    lived_in: Vec<bool>,
    /// Least cost inside a domain, by what is in it.
    tables: BTreeMap<DomainIdx, Rc<Vec<u128>>>,
    /// The same for domains of the last level with the same nodes.
    leaves: BTreeMap<Vec<usize>, Rc<Vec<u128>>>,
    classes: Classes,
    work: u64,
}

/// The tables would be too large, or take too long.
struct TooMuch;

impl<'a> Solver<'a> {
    /// Solves a task over counts; `None` when it is not of this class, or too large.
    pub(super) fn solve_parts(&mut self, root: &Item) -> Option<Result<Plan, Failure>> {
        let mut parts = self.parts(root)?;
        let solved = self.best_on_ledger(root, &mut parts)?;
        let Ok(plan) = &solved else { return Some(solved) };
        if self.keeps_limits(root, plan) {
            return Some(solved);
        }
        let [limit] = root.limits.as_slice() else { return None };
        if limit.tree != parts.tree_idx {
            return None;
        }
        parts.put_first(Cap { depth: limit.depth, most: limit.most });
        match self.best_on_ledger(root, &mut parts)? {
            // The fewest domains of one level are not the fewest of all.
            Ok(plan) if self.keeps_limits(root, &plan) => {
                let plan = Plan { objective: Objective::Kai, fewest: false, ..plan };
                Some(Ok(if self.refines { self.refine(root, plan, false) } else { plan }))
            }
            Ok(_) => None,
            Err(failure) => Some(Err(failure)),
        }
    }

    fn best_on_ledger(&mut self, root: &Item, parts: &mut Parts<'a>) -> Option<Result<Plan, Failure>> {
        let mark = self.rooms.checkpoint();
        let solved = self.best_of(root, parts);
        self.rooms.rollback(mark, self.shapes);
        self.work += std::mem::take(&mut parts.work);
        solved.ok()
    }

    fn parts(&mut self, root: &Item) -> Option<Parts<'a>> {
        let tree_idx = root.bound.or_else(|| first_bound(root)).map_or(self.default_tree, |bound| bound.tree);
        let tree: &'a Tree = &self.trees[tree_idx.at()];
        let n_levels = tree.n_levels();
        let shapes = root.all_shapes();
        // Volumes are chosen pod by pod.
        let plain = shapes.iter().all(|shape| self.shapes[shape.at()].volumes == VolumeNeeds::default());
        if self.coupled || n_levels > MAX_LEVELS || root.n_pods() >= usize::from(u16::MAX) || shapes.len() > 1 && !plain {
            return None;
        }
        let (kinds, content) = Kinds::of(root, tree_idx)?;
        shapes.iter().for_each(|shape| self.ready(*shape, tree_idx));
        let mut layouts = Vec::with_capacity(n_levels + 1);
        for depth in 0..=n_levels {
            let most = |atom, all| match atom {
                Atom::Pod(shape) if depth > 0 => {
                    let rooms = tree.by_depth[depth].iter().map(|domain| self.rooms.domain_slots(shape, tree_idx, *domain));
                    rooms.max().map_or(0, |room| room.min(all as u64) as usize)
                }
                _ => all,
            };
            layouts.push(Layout::new(&kinds.opened(&content, depth), most)?);
        }
        let opened = (0..n_levels).map(|depth| {
            let (from, to) = (&layouts[depth], &layouts[depth + 1]);
            let open = |state| to.state(&kinds.opened(&from.share(state).into_iter().collect::<Content>(), depth + 1));
            (0..from.n_states()).map(open).collect()
        });
        let opened = opened.collect();
        let mut lived_in = vec![false; tree.domains.len()];
        for domain in root.live.iter().flat_map(|node| (1..=n_levels).filter_map(|depth| tree.domain_of(*node, depth))) {
            lived_in[domain.at()] = true;
        }
        let counted = self.counted_levels(tree_idx, root.bound);
        Some(Parts {
            tree_idx,
            tree,
            kinds,
            content,
            layouts,
            opened,
            counted,
            first: None,
            lived_in,
            tables: BTreeMap::new(),
            leaves: BTreeMap::new(),
            classes: Classes::default(),
            work: 0,
        })
    }

    /// The best of the candidate domains, and the best inside it.
    fn best_of(&mut self, root: &Item, parts: &mut Parts<'a>) -> Result<Result<Plan, Failure>, TooMuch> {
        let candidates: Vec<(Option<Rank>, DomainIdx)> = match root.bound {
            Some(bound) => self.ranked(root, bound, &Region::default()).into_iter().map(|(rank, at)| (Some(rank), at)).collect(),
            None => vec![(None, Tree::ROOT)],
        };
        let objective = if parts.first.is_some() { Objective::Kai } else { self.objective };
        let order = Order { objective, counted: parts.counted, n_pods: root.n_pods() };
        let mut best: Option<(Option<Rank>, Merit, DomainIdx)> = None;
        for (rank, domain) in candidates {
            if best.as_ref().is_some_and(|(other, ..)| !order.is_open(*other, rank)) {
                break;
            }
            self.steps += 1;
            let Some(cost) = self.whole(parts, domain)?.filter(|cost| parts.keeps_first(domain, *cost)) else { continue };
            let merit = parts.merit(rank, cost, parts.tree.domain(domain).depth);
            if best.as_ref().is_none_or(|(_, other, _)| merit < *other) {
                best = Some((rank, merit, domain));
            }
        }
        let Some((_, _, domain)) = best else { return Ok(Err(Failure::Impossible)) };
        let places = self.assign(root, parts, domain)?;
        let containing = (parts.tree_idx, domain);
        Ok(Ok(Plan { places, containing, objective: self.objective, proven: false, fewest: true, settled: true }))
    }

    /// Least cost of the whole task in a domain.
    fn whole(&self, parts: &mut Parts<'a>, domain: DomainIdx) -> Result<Option<u128>, TooMuch> {
        let depth = parts.tree.domain(domain).depth;
        let Some(all) = parts.everything(depth) else { return Ok(None) };
        let cost = self.costs_inside(parts, domain)?[all];
        Ok((cost != NEVER).then_some(cost))
    }

    /// Least cost inside a domain, by what is in it; the domain itself does not count.
    fn costs_inside(&self, parts: &mut Parts<'a>, domain: DomainIdx) -> Result<Rc<Vec<u128>>, TooMuch> {
        if let Some(table) = parts.tables.get(&domain) {
            return Ok(Rc::clone(table));
        }
        let table = if parts.tree.domain(domain).depth == parts.tree.n_levels() {
            self.packed(parts, domain)?
        } else {
            Rc::new(self.joined(parts, domain)?.pop().unwrap_or_default())
        };
        parts.tables.insert(domain, Rc::clone(&table));
        Ok(table)
    }

    /// Least costs over the first children of a domain, after each of them.
    fn joined(&self, parts: &mut Parts<'a>, domain: DomainIdx) -> Result<Vec<Vec<u128>>, TooMuch> {
        let depth = parts.tree.domain(domain).depth;
        let mut now = vec![NEVER; parts.layouts[depth].n_states()];
        now[0] = 0;
        let mut after = vec![now.clone()];
        for child in parts.tree.children(domain).to_vec() {
            let offers = self.offers(parts, child)?;
            if offers.len() > 1 {
                let layout = &parts.layouts[depth];
                let mut next = vec![NEVER; now.len()];
                let mut reached = 0;
                for (state, cost) in now.iter().enumerate().filter(|(_, cost)| **cost != NEVER) {
                    reached += 1;
                    for (more, add) in &offers {
                        if let Some(sum) = layout.sum(state, *more) {
                            next[sum] = next[sum].min(cost + add);
                        }
                    }
                }
                parts.spend(reached * offers.len() as u64 + next.len() as u64)?;
                now = next;
            }
            after.push(now.clone());
        }
        Ok(after)
    }

    /// What a domain can hold, nothing first, as its parent sees it: the domain counts.
    fn offers(&self, parts: &mut Parts<'a>, domain: DomainIdx) -> Result<Vec<Offer>, TooMuch> {
        let inside = self.costs_inside(parts, domain)?;
        let depth = parts.tree.domain(domain).depth;
        let mut offers = vec![(0, 0)];
        let touched = parts.touched(domain, || {
            let rooms = parts.layouts[depth].shapes().map(|(shape, _)| self.rooms.domain_slots(shape, parts.tree_idx, domain));
            rooms.max().unwrap_or(0)
        });
        for (state, open) in parts.opened[depth - 1].iter().enumerate().skip(1) {
            let cost = open.map_or(NEVER, |open| inside[open]);
            if cost != NEVER && parts.may_hold(domain, depth, state) {
                offers.push((state, cost + touched));
            }
        }
        Ok(offers)
    }

    /// A domain of the last level: what its nodes hold costs nothing more.
    fn packed(&self, parts: &mut Parts<'a>, domain: DomainIdx) -> Result<Rc<Vec<u128>>, TooMuch> {
        let layout = &parts.layouts[parts.tree.n_levels()];
        let shapes: Vec<_> = layout.shapes().collect();
        if let [(shape, _)] = shapes.as_slice() {
            let slots = self.rooms.domain_slots(*shape, parts.tree_idx, domain);
            return Ok(Rc::new((0..layout.n_states() as u64).map(|n| if n <= slots { 0 } else { NEVER }).collect()));
        }
        let mut nodes = self.classes_of(layout, parts.tree_idx, domain, &mut parts.classes);
        nodes.sort_unstable();
        if let Some(table) = parts.leaves.get(&nodes) {
            return Ok(Rc::clone(table));
        }
        let largest: Vec<&Largest> = nodes.iter().map(|class| &parts.classes.largest[*class]).collect();
        let mut work = 0;
        let held = leaf::held(&largest, layout, &mut work).pop().unwrap_or_default();
        let table: Rc<Vec<u128>> = Rc::new(held.into_iter().map(|held| if held { 0 } else { NEVER }).collect());
        parts.leaves.insert(nodes, Rc::clone(&table));
        parts.spend(work)?;
        Ok(table)
    }
}

impl Parts<'_> {
    /// The state of the whole task inside a domain of a depth; `None` where none is large enough.
    fn everything(&self, depth: usize) -> Option<usize> {
        self.layouts[depth].state(&self.kinds.opened(&self.content, depth))
    }

    fn spend(&mut self, work: u64) -> Result<(), TooMuch> {
        self.work += work;
        if self.work > WORK { Err(TooMuch) } else { Ok(()) }
    }

    /// Lines 3 and 4 of one more domain: itself, and at the last level its room.
    fn touched(&self, domain: DomainIdx, room: impl FnOnce() -> u64) -> u128 {
        let depth = self.tree.domain(domain).depth;
        if self.lived_in[domain.at()] {
            return 0;
        }
        let is_first = self.first.is_some_and(|first| first.depth == depth);
        let itself = if depth <= self.counted || is_first { 1 << self.shift(depth) } else { 0 };
        itself + if depth == self.tree.n_levels() { u128::from(room().min(u64::from(u16::MAX))) } else { 0 }
    }

    /// Where the domains of a depth stand in a cost, above the room beside.
    fn shift(&self, depth: usize) -> usize {
        let place = match self.first {
            Some(first) if depth == first.depth => 1,
            Some(first) if depth < first.depth => depth + 1,
            _ => depth,
        };
        32 + 16 * (self.tree.n_levels() - place)
    }

    /// Counts the domains of a level before all others from now on.
    fn put_first(&mut self, first: Cap) {
        self.first = Some(first);
        self.tables.clear();
    }

    /// A domain with this least cost inside holds a placement with no more domains of the first level than there may be.
    fn keeps_first(&self, domain: DomainIdx, cost: u128) -> bool {
        let Some(first) = self.first.filter(|first| first.depth > self.tree.domain(domain).depth) else { return true };
        let lived_in = self.tree.by_depth[first.depth].iter().filter(|domain| self.lived_in[domain.at()]).count();
        usize::from((cost >> self.shift(first.depth)) as u16) + lived_in <= first.most
    }

    /// Subgroups whose level this is stay in a domain that has a name, and with their live members.
    fn may_hold(&self, domain: DomainIdx, depth: usize, state: usize) -> bool {
        let nodes = self.tree.positions(domain);
        self.layouts[depth - 1].share(state).iter().all(|(atom, _)| match atom {
            Atom::Part(kind) if self.kinds.list[*kind].depth == depth => {
                let mut live = self.kinds.list[*kind].live.iter();
                !self.tree.domain(domain).absent
                    && live.all(|node| self.tree.position(*node).is_some_and(|at| nodes.contains(&at)))
            }
            _ => true,
        })
    }

    /// A cost as the order of domains compares it.
    fn merit(&self, rank: Option<Rank>, cost: u128, depth: usize) -> Merit {
        let domains = |depth| (cost >> self.shift(depth)) as u16;
        let counted = (depth + 1..=self.counted).map(|depth| i64::from(domains(depth)));
        (counted.collect(), rank.map(|(.., tightness)| tightness), vec![i64::from(cost as u32)])
    }
}
