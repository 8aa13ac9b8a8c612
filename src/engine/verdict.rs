//! Why not, how far off, and the smallest change that would help: data, never prose.
//!
//! A verdict is made after a solve failed, on the same ledger. Fixes are
//! solved again with the change applied before they count as verified.

mod limits;

use std::collections::BTreeMap;

use crate::fit::pod_affinity;
use crate::fit::spread::Spread;
use crate::ids::{DomainIdx, NodeIdx, ShapeIdx, TreeIdx};
use crate::outcome::{Code, Counted, Fix, FixKind, Proof, Reason, Rule, Unit};
use crate::place::task::{Bound, Item};
use crate::place::{Failure, Region, Solver};
use crate::topology::Tree;

/// How near a domain comes to holding an item.
struct Nearest {
    domain: Option<DomainIdx>,
    has: u64,
    /// Room of every candidate.
    rooms: Vec<u64>,
}

impl Solver<'_> {
    /// The blocking reason of a task that could not be placed, with verified fixes.
    pub(crate) fn diagnose(&mut self, root: &Item, failure: Failure) -> Reason {
        let exhausted = (failure == Failure::Impossible).then_some(Proof::Exhausted { steps: self.steps });
        // What only the solver can count is a proof when it also tried everything, and none otherwise.
        let found = self.no_node(root).or_else(|| self.blocking(root));
        let found = found.filter(|reason| reason.proof.is_some() || exhausted.is_some());
        let found = found.or_else(|| exhausted.as_ref().and_then(|_| self.domain_limit(root)));
        let mut reason = found.unwrap_or_else(|| {
            let mut reason = Reason::new(match failure {
                Failure::Impossible if self.coupled => Code::PodRulesUnmet,
                Failure::Impossible => Code::SubgroupsDoNotFitTogether,
                Failure::Budget => Code::NotFoundWithinBudget,
            });
            reason.unit = Unit::Pods;
            reason.needs = (root.n_pods() + root.live.len()) as u32;
            reason.has = root.live.len() as u32;
            if self.coupled && let Some((shape, _)) = root.demand().first() {
                reason.refusals = self.refusals(*shape, TreeIdx(0), Tree::ROOT);
            }
            reason
        });
        if reason.proof.is_none() {
            reason.proof = exhausted;
        }
        // Whether a change would do is asked, not how well.
        self.refines = false;
        self.add_fixes(root, &mut reason);
        self.refines = true;
        reason
    }

    /// A count that can be made again from the facts: no volumes to choose or to attach, and no rules about other pods
    /// that were answered beforehand.
    fn countable(&self, item: &Item) -> bool {
        item.all_shapes().iter().all(|idx| {
            let shape = &self.shapes[idx.at()];
            let needs = &shape.volumes;
            let free_of_volumes = needs.waits.is_empty() && needs.private.is_empty() && needs.shared.is_empty();
            let undrawn = shape.drawn_terms().next().is_none() || self.rooms.is_open(*idx);
            free_of_volumes && undrawn
        })
    }

    fn proof_by_count(&self, item: &Item, level: Option<String>, needs: u64, rooms: &[u64]) -> Option<Proof> {
        let counted = Counted {
            subgroup: item.name.clone(),
            level,
            unit: Unit::Pods,
            size: 1,
            together: None,
            needs: needs as u32,
            domains: histogram(rooms),
        };
        self.countable(item).then_some(Proof::Counted(counted))
    }

    /// The cluster as one domain.
    fn counted_everywhere(&mut self, item: &Item) -> Option<Proof> {
        let room = self.room_in(item, TreeIdx(0), Tree::ROOT);
        let needs: usize = item.least_demand().iter().map(|(_, n)| n).sum();
        self.proof_by_count(item, None, needs as u64, &[room])
    }

    /// No node passes the rules of one of the shapes, room aside.
    fn no_node(&mut self, root: &Item) -> Option<Reason> {
        for (shape, n) in root.least_demand() {
            self.ready(shape, TreeIdx(0));
            let any = self.trees[0].order.iter().any(|node| self.rooms.eligible(shape, *node));
            if !any {
                let mut reason = Reason::new(Code::NoNodeMatches);
                reason.needs = n as u32;
                reason.refusals = self.refusals(shape, TreeIdx(0), Tree::ROOT);
                reason.proof = self.counted_everywhere(root);
                return Some(reason);
            }
        }
        None
    }

    fn blocking(&mut self, item: &Item) -> Option<Reason> {
        if let Some(bound) = item.bound.filter(|bound| bound.required.is_some())
            && let Some(reason) = self.domain_too_small(item, bound) {
                return Some(reason);
            }
        if let Some(reason) = self.no_room_at_all(item) {
            return Some(reason);
        }
        if let Some(reason) = self.too_few_segments(item) {
            return Some(reason);
        }
        // With a choice among children, what blocks one of them blocks the gang only if too few are left.
        let mut blocked: Vec<(String, Reason)> = Vec::new();
        for child in &item.children {
            blocked.extend(self.blocking(child).map(|reason| (child.name.clone(), reason)));
        }
        let ready = item.children.len();
        if ready - blocked.len() >= item.choose {
            return None;
        }
        let proofs: Option<Vec<(String, Proof)>> =
            blocked.iter().map(|(name, reason)| Some((name.clone(), reason.proof.clone()?))).collect();
        let too_few = proofs.map(|impossible| Proof::TooFew {
            subgroup: item.name.clone(),
            needed: item.choose as u32,
            ready: ready as u32,
            impossible,
        });
        let (_, mut reason) = blocked.into_iter().next()?;
        if item.choose < ready {
            reason.proof = too_few;
        }
        Some(reason)
    }

    fn domain_too_small(&mut self, item: &Item, bound: Bound) -> Option<Reason> {
        let depth = bound.required?;
        let tree = &self.trees[bound.tree.at()];
        let mut pinned: Vec<Option<DomainIdx>> =
            item.live.iter().map(|node| tree.domain_of(*node, depth)).collect();
        pinned.sort_unstable();
        pinned.dedup();
        let mut reason = Reason::new(Code::RequiredDomainTooSmall);
        reason.subgroup.clone_from(&item.name);
        reason.topology = self.topology_of(bound.tree);
        reason.level = Some(tree.label(depth).to_owned());
        let least: usize = item.least_demand().iter().map(|(_, n)| n).sum();
        reason.needs = (least + item.live.len()) as u32;
        if pinned.len() > 1 || pinned.first().is_some_and(|domain| domain.is_none_or(|d| tree.domain(d).absent)) {
            reason.code = Code::AlreadySplit;
            reason.has = item.live.len() as u32;
            return Some(reason);
        }
        let nearest = self.nearest(item, bound.tree, depth, pinned.first().copied().flatten());
        if nearest.has >= u64::from(reason.needs) {
            return None;
        }
        if !pinned.is_empty() {
            reason.code = Code::PinnedDomainFull;
        }
        reason.has = nearest.has as u32;
        reason.best_domain = nearest.domain.map(|domain| self.trees[bound.tree.at()].path(domain));
        reason.proof = self.proof_by_count(item, reason.level.clone(), least as u64, &nearest.rooms);
        self.add_evidence(item, bound.tree, depth, nearest.domain, &mut reason);
        Some(reason)
    }

    fn nearest(&mut self, item: &Item, tree: TreeIdx, depth: usize, pinned: Option<DomainIdx>) -> Nearest {
        let domains: Vec<DomainIdx> = match pinned {
            Some(domain) => vec![domain],
            None => self.trees[tree.at()].by_depth[depth]
                .iter()
                .copied()
                .filter(|domain| !self.trees[tree.at()].domain(*domain).absent)
                .collect(),
        };
        let live = if pinned.is_some() { item.live.len() as u64 } else { 0 };
        let mut best = Nearest { domain: None, has: 0, rooms: Vec::new() };
        for domain in domains {
            let room = self.room_in(item, tree, domain);
            best.rooms.push(room);
            if best.domain.is_none() || live + room > best.has {
                (best.domain, best.has) = (Some(domain), live + room);
            }
        }
        best
    }

    /// Pods of the item that a domain could hold, each shape alone.
    pub(crate) fn room_in(&mut self, item: &Item, tree: TreeIdx, domain: DomainIdx) -> u64 {
        let mut has = 0;
        for (shape, n) in item.least_demand() {
            has += self.slots_in(shape, &Region::default(), tree, domain).min(n as u64);
        }
        has
    }

    fn no_room_at_all(&mut self, item: &Item) -> Option<Reason> {
        for (shape, n) in item.least_demand() {
            let slots = self.slots_in(shape, &Region::default(), TreeIdx(0), Tree::ROOT);
            if slots < n as u64 {
                let mut reason = Reason::new(Code::NotEnoughRoom);
                reason.subgroup.clone_from(&item.name);
                reason.has = (slots + item.live.len() as u64) as u32;
                reason.needs = (n + item.live.len()) as u32;
                reason.refusals = self.refusals(shape, TreeIdx(0), Tree::ROOT);
                reason.proof = self.counted_everywhere(item);
                return Some(reason);
            }
        }
        None
    }

    /// Equal subgroups that each need one domain: how many the best outer domain holds.
    fn too_few_segments(&mut self, item: &Item) -> Option<Reason> {
        let uniform = crate::place::task::uniform(item)?;
        let bound = uniform.bound.filter(|bound| bound.required.is_some())?;
        let depth = bound.required?;
        let (size, wanted) = (uniform.demand.size as u64, uniform.demand.segments as u64);
        let outer = match item.bound {
            Some(outer) if outer.tree == bound.tree => outer.required.unwrap_or(0),
            _ => 0,
        };
        if outer >= depth || wanted == 0 {
            return None;
        }
        self.ready(uniform.shape, bound.tree);
        let tree = &self.trees[bound.tree.at()];
        let mut best: (u64, Option<DomainIdx>) = (0, None);
        let mut rooms = Vec::new();
        for candidate in tree.by_depth[outer].iter().filter(|domain| !tree.domain(**domain).absent) {
            let held: u64 = tree.by_depth[depth]
                .iter()
                .filter(|domain| !tree.domain(**domain).absent && tree.contains(*candidate, **domain))
                .map(|domain| self.rooms.domain_slots(uniform.shape, bound.tree, *domain) / size)
                .sum();
            rooms.push(held);
            if best.1.is_none() || held > best.0 {
                best = (held, Some(*candidate));
            }
        }
        if best.0 >= wanted {
            return None;
        }
        let mut reason = Reason::new(Code::RequiredDomainTooSmall);
        reason.unit = Unit::Segments;
        reason.topology = self.topology_of(bound.tree);
        reason.level = Some(tree.label(depth).to_owned());
        reason.best_domain = best.1.filter(|domain| *domain != Tree::ROOT).map(|domain| tree.path(domain));
        reason.has = best.0 as u32;
        reason.needs = wanted as u32;
        let label = (outer > 0).then(|| tree.label(outer).to_owned());
        if let Some(Proof::Counted(counted)) = self.proof_by_count(item, label, wanted, &rooms) {
            let size = uniform.demand.size as u32;
            reason.proof = Some(Proof::Counted(Counted { unit: Unit::Segments, size, ..counted }));
        }
        self.add_evidence(item, bound.tree, depth, best.1, &mut reason);
        Some(reason)
    }

    fn add_evidence(
        &mut self,
        item: &Item,
        tree: TreeIdx,
        depth: usize,
        domain: Option<DomainIdx>,
        reason: &mut Reason,
    ) {
        let Some((shape, _)) = item.demand().first().copied() else { return };
        reason.refusals = self.refusals(shape, tree, domain.unwrap_or(Tree::ROOT));
        let entry = &self.trees[tree.at()];
        reason.unlabelled_nodes = entry
            .order
            .iter()
            .filter(|node| {
                self.rooms.node_slots(shape, **node) > 0
                    && entry.domain_of(**node, depth).is_some_and(|d| entry.domain(d).absent)
            })
            .count() as u32;
    }

    /// Nodes of a domain by the rule that refuses the shape there, most first.
    pub(crate) fn refusals(&mut self, shape: ShapeIdx, tree: TreeIdx, domain: DomainIdx) -> Vec<(Rule, u32)> {
        self.ready(shape, tree);
        let entry = &self.shapes[shape.at()];
        let spreads = Spread::all(self.rooms, &self.nodes, entry);
        let mut counts: BTreeMap<Rule, u32> = BTreeMap::new();
        for position in self.trees[tree.at()].positions(domain) {
            let node = self.trees[tree.at()].order[position];
            if self.rooms.node_slots(shape, node) > 0 && !self.rooms.is_open(shape) {
                continue;
            }
            let Some(facts) = self.nodes[node.at()] else { continue };
            let rule = crate::fit::refusal(facts, &entry.facts)
                .or_else(|| crate::fit::volumes::refusal(facts, &entry.volumes))
                .or_else(|| self.rooms.room(node).and_then(|room| crate::fit::shortage(room, entry, self.columns)));
            let rule = rule
                .or_else(|| pod_affinity::repelled(self.rooms.tallies(), node, entry))
                .or_else(|| self.rooms.undrawn(node, entry, &spreads))
                .or_else(|| (!entry.volumes.waits.is_empty()).then_some(Rule::NoVolume));
            if let Some(rule) = rule {
                *counts.entry(rule).or_default() += 1;
            }
        }
        let mut counts: Vec<(Rule, u32)> = counts.into_iter().collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        counts
    }

    fn topology_of(&self, tree: TreeIdx) -> Option<String> {
        let found = self.world.tree_by_topology.iter().find(|(_, idx)| **idx == tree);
        found.map(|(name, _)| name.clone())
    }

    fn add_fixes(&mut self, root: &Item, reason: &mut Reason) {
        if matches!(reason.code, Code::NoNodeMatches | Code::DomainLimit) {
            return;
        }
        if let Some(fix) = self.free_capacity(root, reason) {
            reason.fixes.push(fix);
        }
        if let Some(fix) = self.relax(root, reason) {
            reason.fixes.push(fix);
        }
    }

    /// Room freed for the missing pods in the best domain, as if other pods had left.
    fn free_capacity(&mut self, root: &Item, reason: &Reason) -> Option<Fix> {
        let (shape, _) = root.demand().first().copied()?;
        let mut missing = u64::from(reason.needs.saturating_sub(reason.has));
        if reason.unit == Unit::Segments {
            missing *= crate::place::task::uniform(root).map_or(1, |u| u.demand.size as u64);
        }
        let (tree, domain) = self.find_domain(reason)?;
        let mark = self.rooms.checkpoint();
        let mut given = 0;
        let nodes: Vec<NodeIdx> = self.trees[tree.at()]
            .positions(domain)
            .map(|position| self.trees[tree.at()].order[position])
            .collect();
        for node in nodes {
            if given == missing {
                break;
            }
            let n = u64::from(self.could_be_freed(shape, node)).min(missing - given) as u32;
            if n > 0 {
                self.rooms.give(node, shape, &self.shapes[shape.at()], n);
                given += u64::from(n);
            }
        }
        let fits = given == missing && missing > 0 && self.solve(root).is_ok();
        self.rooms.rollback(mark, self.shapes);
        fits.then(|| Fix {
            kind: FixKind::FreeCapacity,
            verified: true,
            domain: self.trees[tree.at()].path(domain),
            count: missing as i64,
            target: self.requested(shape),
        })
    }

    /// Copies that would fit on an empty node beyond those that fit now.
    fn could_be_freed(&self, shape: ShapeIdx, node: NodeIdx) -> u32 {
        if !self.rooms.eligible(shape, node) {
            return 0;
        }
        let Some(entry) = self.world.nodes[node.at()].as_ref() else { return 0 };
        let free = (0..self.columns.len()).map(|column| self.world.allocatable_of(entry, column)).collect();
        let empty = crate::world::model::Room { free, ..crate::world::model::Room::default() };
        crate::fit::slots(&empty, &self.shapes[shape.at()])
            .saturating_sub(self.rooms.node_slots(shape, node))
    }

    /// The scarcest request by name, with its amount per pod.
    fn requested(&self, shape: ShapeIdx) -> Vec<String> {
        let requests = &self.shapes[shape.at()].requests;
        let named = |(column, amount): &(usize, i64)| {
            vec![self.columns[*column].clone(), amount.to_string()]
        };
        requests
            .iter()
            .find(|(column, _)| crate::fit::is_gpu(&self.columns[*column]))
            .or_else(|| {
                let plain = |name: &str| name != "pods" && crate::fit::volumes::driver_of(name).is_none();
                requests.iter().find(|(column, _)| plain(&self.columns[*column]))
            })
            .map_or_else(Vec::new, named)
    }

    fn find_domain(&self, reason: &Reason) -> Option<(TreeIdx, DomainIdx)> {
        let Some(path) = &reason.best_domain else {
            return (reason.code == Code::NotEnoughRoom).then_some((TreeIdx(0), Tree::ROOT));
        };
        let tree = *self.world.tree_by_topology.get(reason.topology.as_ref()?)?;
        let entry = &self.trees[tree.at()];
        (0..entry.domains.len() as u32)
            .map(DomainIdx)
            .find(|domain| !entry.domain(*domain).absent && entry.path(*domain) == *path)
            .map(|domain| (tree, domain))
    }

    /// The nearest wider level that would do for the blocking subgroup.
    fn relax(&mut self, root: &Item, reason: &Reason) -> Option<Fix> {
        let level = reason.level.clone()?;
        let tree = *self.world.tree_by_topology.get(reason.topology.as_ref()?)?;
        let depth = self.trees[tree.at()].depth_of_level(&level)?;
        for wider in (0..depth).rev() {
            let mut relaxed = root.clone();
            widen(&mut relaxed, tree, depth, wider);
            if self.solve(&relaxed).is_ok() {
                let label = self.trees[tree.at()].label(wider).to_owned();
                return Some(Fix {
                    kind: FixKind::RelaxLevel,
                    verified: true,
                    domain: Vec::new(),
                    count: 0,
                    target: vec![reason.subgroup.clone(), level, label],
                });
            }
        }
        None
    }
}

/// How many candidates have how much room, most room first.
fn histogram(rooms: &[u64]) -> Vec<(u32, u32)> {
    let mut counts: BTreeMap<std::cmp::Reverse<u64>, u32> = BTreeMap::new();
    for room in rooms {
        *counts.entry(std::cmp::Reverse(*room)).or_default() += 1;
    }
    counts.into_iter().map(|(room, n)| (room.0 as u32, n)).collect()
}

/// Replaces a hard level everywhere it is asked for.
fn widen(item: &mut Item, tree: TreeIdx, from: usize, to: usize) {
    if let Some(bound) = item.bound.as_mut()
        && bound.tree == tree && bound.required == Some(from) {
            bound.required = (to > 0).then_some(to);
            bound.preferred = bound.preferred.or(Some(from));
        }
    for child in &mut item.children {
        widen(child, tree, from, to);
    }
}
