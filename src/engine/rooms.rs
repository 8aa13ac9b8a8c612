//! The ledger: rooms of nodes on which plans are tried, with cached slots.
//!
//! `Rooms` mirrors the world's nodes. Plans take room and give it back by
//! checkpoint and rollback; every change of a room is logged, and each shape's
//! cached slots and domain sums catch up from the log when they are asked
//! (O(depth) per change and shape touched; nothing is rebuilt per pass).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::facts::{NodeFacts, ObjectKey, ShapeFacts};
use crate::fit;
use crate::fit::pod_affinity;
use crate::fit::spread::{self, Spread};
use crate::fit::tallies::{Mark, Tallies};
use crate::fit::volumes::{self, FreeVolume, Pin, VolumeNeeds};
use crate::ids::{DomainIdx, NodeIdx, ShapeIdx, TermIdx, TreeIdx};
use crate::outcome::Rule;
use crate::topology::Tree;
use crate::world::model::Room;
use crate::world::volumes::Volumes;

/// Entries kept in the change log before all caches start afresh: the log of a
/// pass over 5 000 nodes stays below it, and a rebuild costs about as much as
/// replaying this many entries.
const MAX_LOG: usize = 1 << 20;

/// The terms of a shape's rules, and those its pods belong to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Terms {
    /// Of required affinity, in written order; each holds the pods that match all of them.
    pub affinity: Vec<TermIdx>,
    /// Of required anti-affinity, in written order.
    pub anti: Vec<TermIdx>,
    /// Of preferred affinity, with weights.
    pub preferred: Vec<(i32, TermIdx)>,
    /// Of spread constraints, in written order.
    pub spread: Vec<TermIdx>,
    /// Terms its pods belong to, sorted.
    pub member_of: Vec<TermIdx>,
}

impl Terms {
    /// Terms of the shape's own rules.
    pub(crate) fn own(&self) -> impl Iterator<Item = TermIdx> {
        let preferred = self.preferred.iter().map(|(_, term)| term);
        self.affinity.iter().chain(&self.anti).chain(preferred).chain(&self.spread).copied()
    }

    /// What a placed pod adds on its node.
    pub(crate) fn marks(&self) -> impl Iterator<Item = (Mark, i64)> {
        let members = self.member_of.iter().map(|term| (Mark::Member(*term), 1));
        let avoided = self.anti.iter().map(|term| (Mark::Avoids(*term), 1));
        // As the core scheduler has it, a required affinity counts as a liking of weight one.
        let required = self.affinity.iter().map(|term| (Mark::Likes(*term), 1));
        let liked = self.preferred.iter().map(|(weight, term)| (Mark::Likes(*term), i64::from(*weight)));
        members.chain(avoided).chain(required).chain(liked)
    }
}

/// An interned shape with its requests by column.
#[derive(Clone, Debug)]
pub struct Shape {
    /// As told.
    pub facts: ShapeFacts,
    /// Requests by column, sorted, the pod count included.
    pub requests: Vec<(usize, i64)>,
    /// What its claims ask.
    pub volumes: VolumeNeeds,
    /// Volumes that other pods use too: the driver's column, and the volume.
    pub shared: Vec<(usize, u32)>,
    /// Terms of its rules about other pods.
    pub terms: Terms,
}

impl Shape {
    /// Affinity and hard spread: more pods elsewhere can make a node usable.
    pub(crate) fn drawn_terms(&self) -> impl Iterator<Item = TermIdx> {
        let hard = self.facts.spread.iter().zip(&self.terms.spread).filter(|(facts, _)| facts.hard);
        self.terms.affinity.iter().copied().chain(hard.map(|(_, term)| *term))
    }

    /// The sums that make nodes dearer or cheaper.
    fn soft_marks(&self) -> Vec<Mark> {
        let soft = self.facts.spread.iter().zip(&self.terms.spread).filter(|(facts, _)| !facts.hard);
        let own = self.terms.preferred.iter().map(|(_, term)| *term).chain(soft.map(|(_, term)| *term));
        own.map(Mark::Member).chain(self.terms.member_of.iter().copied().map(Mark::Likes)).collect()
    }
}

/// Per-shape answers for every node.
#[derive(Clone, Debug, Default)]
struct Slots {
    cursor: usize,
    /// Affinity and hard spread are checked pod by pod: slots leave them out.
    open: bool,
    /// Changes of the marks that frozen answers were made from.
    stamp: u64,
    /// Copies that fit, by node.
    slots: Vec<u32>,
    /// Passes the rules that do not depend on room, by node.
    eligible: Vec<bool>,
    /// Claims that need no free volume there, a bit each, by node.
    served: Vec<u64>,
    /// Nodes that affinity or spread refuses; their state is fixed until `freeze`.
    barred: BTreeSet<NodeIdx>,
    /// The part of the soft cost that pods do not change, by node; `None` for nodes that are gone.
    fixed: Vec<Option<i64>>,
    /// The whole soft cost, by node; may be negative.
    raw: Vec<i64>,
    /// Soft cost above the smallest one, by node.
    soft: Vec<u32>,
    /// The moment of the sums that soft costs were made from.
    priced: (u64, usize),
    /// Sums by tree.
    sums: BTreeMap<TreeIdx, Sums>,
}

impl Slots {
    /// Only differences count, and costs are not negative.
    fn level_costs(&mut self) {
        let least = self.raw.iter().copied().min().unwrap_or(0);
        let above = |cost: &i64| u32::try_from(cost - least).unwrap_or(u32::MAX).min(fit::MAX_SOFT_COST);
        self.soft = self.raw.iter().map(above).collect();
    }
}

#[derive(Clone, Debug, Default)]
struct Sums {
    slots: Vec<u64>,
    /// Free amounts of the shape's columns over eligible nodes, `n_columns` per domain.
    free: Vec<i64>,
    /// Slots of each node as summed, so that deltas are exact.
    seen: Vec<(u32, bool, Vec<i64>)>,
}

/// One taken place, for rollback.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Taken {
    node: NodeIdx,
    shape: ShapeIdx,
    count: i64,
    /// What others count changed too.
    counted: bool,
    volumes: Vec<Arc<FreeVolume>>,
    pins: Vec<ObjectKey>,
}

/// The ledger.
#[derive(Clone, Debug, Default)]
pub struct Rooms {
    rooms: Vec<Option<Room>>,
    log: Vec<NodeIdx>,
    caches: Vec<Slots>,
    tallies: Tallies,
    taken: Vec<Taken>,
    /// Places of shared claims that plans chose.
    pins: BTreeMap<ObjectKey, Pin>,
}

impl Rooms {
    /// Replaces a node's room (`None` when the node is gone). `rules_changed` when labels,
    /// taints or conditions changed too.
    pub fn set(&mut self, node: NodeIdx, room: Option<Room>, trees_changed: bool) {
        if self.rooms.len() <= node.at() {
            self.rooms.resize(node.at() + 1, None);
        }
        let before = self.rooms[node.at()].take().map(|room| room.marks).unwrap_or_default();
        let after = room.as_ref().map(|room| room.marks.clone()).unwrap_or_default();
        self.rooms[node.at()] = room;
        let mut crossed = Vec::new();
        for mark in before.keys().chain(after.keys().filter(|mark| !before.contains_key(mark))) {
            let at = |marks: &BTreeMap<Mark, i64>| marks.get(mark).copied().unwrap_or(0);
            let by = at(&after) - at(&before);
            if by != 0 {
                self.tallies.shift(node, *mark, by, &mut crossed);
            }
        }
        self.note_all(crossed);
        if trees_changed {
            self.reset();
        } else {
            self.note(node);
        }
    }

    /// Counts by term and domain.
    #[must_use]
    pub fn tallies(&self) -> &Tallies {
        &self.tallies
    }

    /// The counts, for the world: terms come, nodes are labelled.
    pub(crate) fn tallies_mut(&mut self) -> &mut Tallies {
        &mut self.tallies
    }

    /// A mark of one node.
    pub(crate) fn marks(&self, node: NodeIdx, mark: Mark) -> i64 {
        self.room(node).and_then(|room| room.marks.get(&mark)).copied().unwrap_or(0)
    }

    fn note_all(&mut self, nodes: Vec<NodeIdx>) {
        for node in nodes {
            self.note(node);
        }
    }

    /// Fixes what a decision reads for a shape: costs, and affinity and spread unless `open`.
    pub(crate) fn freeze(&mut self, idx: ShapeIdx, shape: &Shape, open: bool) {
        if self.caches.len() <= idx.at() {
            self.caches.resize_with(idx.at() + 1, Slots::default);
        }
        let hard = shape.drawn_terms().filter(|_| !open);
        let stamp = hard.map(|term| self.tallies.changes(Mark::Member(term))).sum();
        let mut cache = std::mem::take(&mut self.caches[idx.at()]);
        if cache.open != open || cache.stamp != stamp || !self.price_again(&mut cache, shape) {
            cache = Slots { open, stamp, ..Slots::default() };
        }
        self.caches[idx.at()] = cache;
    }

    /// Brings soft costs up to date in domains where something changed; false when all must be made anew.
    fn price_again(&self, cache: &mut Slots, shape: &Shape) -> bool {
        let marks = shape.soft_marks();
        if marks.is_empty() || cache.slots.is_empty() {
            return true;
        }
        let Some(nodes) = self.tallies.changed_since(cache.priced, &marks) else { return false };
        cache.priced = self.tallies.now();
        for node in &nodes {
            if let Some(fixed) = cache.fixed.get(node.at()).copied() {
                cache.raw[node.at()] = self.price(fixed, *node, shape);
            }
        }
        if !nodes.is_empty() {
            cache.level_costs();
        }
        true
    }

    fn price(&self, fixed: Option<i64>, node: NodeIdx, shape: &Shape) -> i64 {
        let by_pods = || pod_affinity::cost(&self.tallies, node, shape) + spread::cost(&self.tallies, node, shape);
        fixed.map_or(0, |fixed| fixed + by_pods())
    }

    /// Forgets every cached answer (structure changed).
    pub fn reset(&mut self) {
        for cache in &mut self.caches {
            *cache = Slots { open: cache.open, ..Slots::default() };
        }
        self.log.clear();
    }

    fn note(&mut self, node: NodeIdx) {
        if self.log.len() >= MAX_LOG {
            self.reset();
        }
        self.log.push(node);
    }

    /// The room of a node.
    #[must_use]
    pub fn room(&self, node: NodeIdx) -> Option<&Room> {
        self.rooms.get(node.at()).and_then(Option::as_ref)
    }

    /// A mark to roll back to.
    #[must_use]
    pub fn checkpoint(&self) -> usize {
        self.taken.len()
    }

    /// Takes room for `count` pods of a shape on a node.
    pub fn take(&mut self, node: NodeIdx, idx: ShapeIdx, shape: &Shape, count: u32) {
        let mut taken = Taken { node, shape: idx, count: i64::from(count), counted: true, volumes: Vec::new(), pins: Vec::new() };
        if !shape.volumes.waits.is_empty() {
            self.take_volumes(idx, shape, &mut taken);
        }
        self.taken.push(taken);
        self.shift(node, shape, i64::from(count));
        self.shift_marks(node, shape, i64::from(count));
    }

    fn take_volumes(&mut self, idx: ShapeIdx, shape: &Shape, taken: &mut Taken) {
        for _ in 0..taken.count {
            let Some(chosen) = self.choose(idx, shape, taken.node) else { return };
            for (wait, volume) in shape.volumes.waits.iter().zip(chosen) {
                if let Some(key) = wait.shared.as_ref().filter(|key| !self.pins.contains_key(key)) {
                    let pin = volume.clone().map_or(Pin::Node(taken.node), Pin::Volume);
                    self.pins.insert(key.clone(), pin);
                    taken.pins.push(key.clone());
                    self.note_every();
                }
                if let Some(volume) = volume {
                    self.occupy(&volume);
                    taken.volumes.push(volume);
                }
            }
        }
    }

    /// Volumes for one pod of the shape on the node, by claim; `None` when it cannot be served.
    /// Call after `refresh`.
    #[must_use]
    pub fn choose(&self, idx: ShapeIdx, shape: &Shape, node: NodeIdx) -> Option<Vec<Option<Arc<FreeVolume>>>> {
        let free = self.room(node).map_or(&[][..], |room| &room.volumes);
        let open = self.caches.get(idx.at()).and_then(|cache| cache.served.get(node.at())).copied().unwrap_or(0);
        let done = self.pinned(shape, node)?;
        let chosen = volumes::choose(&shape.volumes.waits, free, &mut vec![false; free.len()], open, done)?;
        Some(chosen.into_iter().map(|at| at.map(|at| Arc::clone(&free[at]))).collect())
    }

    /// Shared claims of the shape that have their place, when that can be used on the node.
    fn pinned(&self, shape: &Shape, node: NodeIdx) -> Option<u64> {
        let mut done = 0;
        for (at, wait) in shape.volumes.waits.iter().enumerate() {
            if let Some(pin) = wait.shared.as_ref().and_then(|key| self.pins.get(key)) {
                if !pin.serves(node) {
                    return None;
                }
                done |= 1_u64.checked_shl(at as u32).unwrap_or(0);
            }
        }
        Some(done)
    }

    fn occupy(&mut self, volume: &Arc<FreeVolume>) {
        for node in &volume.reach {
            if let Some(Some(room)) = self.rooms.get_mut(node.at()) {
                room.volumes.retain(|other| other.name != volume.name);
            }
            self.note(*node);
        }
    }

    fn vacate(&mut self, volume: &Arc<FreeVolume>) {
        for node in &volume.reach {
            if let Some(Some(room)) = self.rooms.get_mut(node.at())
                && let Err(at) = room.volumes.binary_search(volume) {
                    room.volumes.insert(at, Arc::clone(volume));
                }
            self.note(*node);
        }
    }

    fn note_every(&mut self) {
        for at in 0..self.rooms.len() {
            self.note(NodeIdx(at as u32));
        }
    }

    /// Forgets what is known of shapes that the test picks.
    pub fn forget(&mut self, picks: impl Fn(ShapeIdx) -> bool) {
        for at in 0..self.caches.len() {
            if picks(ShapeIdx(at as u32)) {
                self.caches[at] = Slots::default();
            }
        }
    }

    /// Gives room for `count` more pods, as if others had left: what-if only, rolled back like a take.
    pub fn give(&mut self, node: NodeIdx, idx: ShapeIdx, shape: &Shape, count: u32) {
        let count_back = -i64::from(count);
        self.taken.push(Taken { node, shape: idx, count: count_back, counted: false, volumes: Vec::new(), pins: Vec::new() });
        self.shift(node, shape, -i64::from(count));
    }

    /// Gives the room of a pod that leaves, and takes it out of what rules count: what-if only, rolled back like a take.
    pub(crate) fn leave(&mut self, node: NodeIdx, idx: ShapeIdx, shape: &Shape) {
        self.taken.push(Taken { node, shape: idx, count: -1, counted: true, volumes: Vec::new(), pins: Vec::new() });
        self.shift(node, shape, -1);
        self.shift_marks(node, shape, -1);
    }

    /// Adds to what is free on a node (`sign` 1), or takes it back (-1): room held for the gang that is tried.
    pub(crate) fn lend(&mut self, node: NodeIdx, amounts: &[(usize, i64)], sign: i64) {
        if let Some(Some(room)) = self.rooms.get_mut(node.at()) {
            for (column, amount) in amounts {
                if room.free.len() <= *column {
                    room.free.resize(column + 1, 0);
                }
                room.free[*column] = room.free[*column].saturating_add(amount.saturating_mul(sign));
            }
        }
        self.note(node);
    }

    /// Gives back everything taken since the mark.
    pub fn rollback(&mut self, mark: usize, shapes: &[Shape]) {
        while self.taken.len() > mark {
            if let Some(taken) = self.taken.pop() {
                let shape = &shapes[taken.shape.at()];
                self.shift(taken.node, shape, -taken.count);
                if taken.counted {
                    self.shift_marks(taken.node, shape, -taken.count);
                }
                for volume in taken.volumes.iter().rev() {
                    self.vacate(volume);
                }
                for key in &taken.pins {
                    self.pins.remove(key);
                    self.note_every();
                }
            }
        }
    }

    fn shift_marks(&mut self, node: NodeIdx, shape: &Shape, count: i64) {
        let mut crossed = Vec::new();
        let Some(Some(room)) = self.rooms.get_mut(node.at()) else { return };
        for (mark, weight) in shape.terms.marks() {
            *room.marks.entry(mark).or_default() += weight * count;
            self.tallies.shift(node, mark, weight * count, &mut crossed);
        }
        self.note_all(crossed);
    }

    fn shift(&mut self, node: NodeIdx, shape: &Shape, count: i64) {
        if let Some(Some(room)) = self.rooms.get_mut(node.at()) {
            for (column, amount) in &shape.requests {
                if room.free.len() <= *column {
                    room.free.resize(column + 1, 0);
                }
                room.free[*column] = room.free[*column].saturating_sub(amount.saturating_mul(count));
            }
            for port in &shape.facts.host_ports {
                if count > 0 {
                    room.ports.push(port.clone());
                } else if let Some(at) = room.ports.iter().rposition(|other| other == port) {
                    room.ports.remove(at);
                }
            }
            for (column, volume) in &shape.shared {
                room.attach(*column, *volume, count);
            }
        }
        self.note(node);
    }

    /// Brings the cached answers for a shape up to date.
    pub fn refresh(&mut self, idx: ShapeIdx, shape: &Shape, ctx: &Context<'_>) {
        if self.caches.len() <= idx.at() {
            self.caches.resize_with(idx.at() + 1, Slots::default);
        }
        let mut cache = std::mem::take(&mut self.caches[idx.at()]);
        if cache.slots.is_empty() {
            let n = self.rooms.len();
            cache.slots = vec![0; n];
            cache.eligible = vec![false; n];
            cache.served = vec![0; n];
            let spreads = if cache.open { Vec::new() } else { Spread::all(self, ctx.nodes, shape) };
            for node in (0..n).map(|at| NodeIdx(at as u32)) {
                let fixed = self.evaluate(&mut cache, node, shape, ctx, &spreads);
                cache.fixed.push(fixed);
                cache.raw.push(self.price(fixed, node, shape));
            }
            cache.level_costs();
            cache.priced = self.tallies.now();
        } else {
            for at in cache.cursor..self.log.len() {
                let node = self.log[at];
                self.update(&mut cache, node, shape, ctx.trees);
            }
        }
        cache.cursor = self.log.len();
        self.caches[idx.at()] = cache;
    }

    /// Fills in one node; returns the part of its soft cost that pods do not change.
    fn evaluate(
        &self,
        cache: &mut Slots,
        node: NodeIdx,
        shape: &Shape,
        ctx: &Context<'_>,
        spreads: &[Spread],
    ) -> Option<i64> {
        let facts = ctx.nodes.get(node.at()).copied().flatten()?;
        cache.eligible[node.at()] =
            fit::refusal(facts, &shape.facts).is_none() && volumes::refusal(facts, &shape.volumes).is_none();
        cache.served[node.at()] = ctx.volumes.served(facts, &shape.volumes.waits);
        if !cache.open && self.undrawn(node, shape, spreads).is_some() {
            cache.barred.insert(node);
        }
        cache.slots[node.at()] = self.slots_now(node, shape, cache);
        Some(i64::from(fit::soft_cost(facts, &shape.facts)))
    }

    /// Affinity and spread as things stand.
    pub(crate) fn undrawn(&self, node: NodeIdx, shape: &Shape, spreads: &[Spread]) -> Option<Rule> {
        pod_affinity::unattracted(&self.tallies, node, shape)
            .or_else(|| spreads.iter().find_map(|spread| spread.refusal(&self.tallies, node)))
    }

    fn slots_now(&self, node: NodeIdx, shape: &Shape, cache: &Slots) -> u32 {
        match self.room(node) {
            Some(room) if cache.eligible[node.at()] && !cache.barred.contains(&node) => {
                if pod_affinity::repelled(&self.tallies, node, shape).is_some() {
                    return 0;
                }
                let most = fit::slots(room, shape).min(pod_affinity::cap(&self.tallies, node, shape));
                self.copies_served(cache, shape, node, most)
            }
            _ => 0,
        }
    }

    /// Copies of at most `most` whose claims can be served on the node. Call after `refresh`.
    pub(crate) fn served_copies(&self, idx: ShapeIdx, shape: &Shape, node: NodeIdx, most: u32) -> u32 {
        self.caches.get(idx.at()).map_or(most, |cache| self.copies_served(cache, shape, node, most))
    }

    fn copies_served(&self, cache: &Slots, shape: &Shape, node: NodeIdx, most: u32) -> u32 {
        if shape.volumes.waits.is_empty() || most == 0 {
            return most;
        }
        let free = self.room(node).map_or(&[][..], |room| &room.volumes);
        let served = cache.served.get(node.at()).copied().unwrap_or(0);
        self.pinned(shape, node).map_or(0, |done| volumes::copies(&shape.volumes.waits, free, served, done, most))
    }

    fn update(&self, cache: &mut Slots, node: NodeIdx, shape: &Shape, trees: &[Tree]) {
        if node.at() >= cache.slots.len() {
            return;
        }
        cache.slots[node.at()] = self.slots_now(node, shape, cache);
        let (slots, eligible) = (cache.slots[node.at()], cache.eligible[node.at()]);
        for (tree, sums) in &mut cache.sums {
            self.move_sums(sums, &trees[tree.at()], node, shape, (slots, eligible));
        }
    }

    fn move_sums(
        &self,
        sums: &mut Sums,
        tree: &Tree,
        node: NodeIdx,
        shape: &Shape,
        now: (u32, bool),
    ) {
        let Some(position) = tree.position(node) else { return };
        let n_columns = shape.requests.len();
        let free: Vec<i64> = match self.room(node) {
            Some(room) if now.1 => shape
                .requests
                .iter()
                .map(|(column, _)| room.free.get(*column).copied().unwrap_or(0).max(0))
                .collect(),
            _ => vec![0; n_columns],
        };
        let before = &mut sums.seen[node.at()];
        let mut domain = tree.leaf_at(position);
        loop {
            let at = domain.at();
            sums.slots[at] = sums.slots[at] + u64::from(now.0) - u64::from(before.0);
            for column in 0..n_columns {
                let old = before.2.get(column).copied().unwrap_or(0);
                sums.free[at * n_columns + column] += free[column] - old;
            }
            if domain == Tree::ROOT {
                break;
            }
            domain = tree.domain(domain).parent;
        }
        *before = (now.0, now.1, free);
    }

    /// Makes sure that sums of a shape over a tree exist. Call after `refresh`.
    pub fn ensure_sums(&mut self, idx: ShapeIdx, shape: &Shape, tree_idx: TreeIdx, tree: &Tree) {
        let mut cache = std::mem::take(&mut self.caches[idx.at()]);
        if !cache.sums.contains_key(&tree_idx) {
            let mut sums = Sums {
                slots: vec![0; tree.domains.len()],
                free: vec![0; tree.domains.len() * shape.requests.len()],
                seen: vec![(0, false, Vec::new()); cache.slots.len()],
            };
            for node in &tree.order {
                let now = (cache.slots[node.at()], cache.eligible[node.at()]);
                self.move_sums(&mut sums, tree, *node, shape, now);
            }
            cache.sums.insert(tree_idx, sums);
        }
        self.caches[idx.at()] = cache;
    }

    /// Copies of the shape that fit on the node. Call after `refresh`.
    #[must_use]
    pub fn node_slots(&self, shape: ShapeIdx, node: NodeIdx) -> u32 {
        self.caches[shape.at()].slots.get(node.at()).copied().unwrap_or(0)
    }

    /// Soft cost of one pod of the shape on the node.
    #[must_use]
    pub fn soft_cost(&self, shape: ShapeIdx, node: NodeIdx) -> u32 {
        self.caches[shape.at()].soft.get(node.at()).copied().unwrap_or(0)
    }

    /// True when slots of the shape leave out affinity and spread.
    pub(crate) fn is_open(&self, shape: ShapeIdx) -> bool {
        self.caches.get(shape.at()).is_some_and(|cache| cache.open)
    }

    /// True when the node passes the rules that do not depend on room.
    #[must_use]
    pub fn eligible(&self, shape: ShapeIdx, node: NodeIdx) -> bool {
        self.caches[shape.at()].eligible.get(node.at()).copied().unwrap_or(false)
    }

    /// Copies of the shape that fit in the domain. Call after `ensure_sums`.
    #[must_use]
    pub fn domain_slots(&self, shape: ShapeIdx, tree: TreeIdx, domain: DomainIdx) -> u64 {
        self.caches[shape.at()].sums.get(&tree).map_or(0, |sums| sums.slots[domain.at()])
    }

    /// Free amounts of the shape's columns over the domain's eligible nodes.
    #[must_use]
    pub fn domain_free(&self, shape: ShapeIdx, tree: TreeIdx, domain: DomainIdx, n: usize) -> &[i64] {
        self.caches[shape.at()]
            .sums
            .get(&tree)
            .map_or(&[], |sums| &sums.free[domain.at() * n..(domain.at() + 1) * n])
    }
}

/// What evaluation of a new shape reads.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Facts by node index; `None` for free slots.
    pub nodes: &'a [Option<&'a NodeFacts>],
    /// Trees by index.
    pub trees: &'a [Tree],
    /// Claims, volumes and classes.
    pub volumes: &'a Volumes,
}

/// Gives back the room of one pod of the shape.
pub(crate) fn vacate(room: &mut Room, shape: &Shape) {
    for (column, amount) in &shape.requests {
        if room.free.len() <= *column {
            room.free.resize(column + 1, 0);
        }
        room.free[*column] = room.free[*column].saturating_add(*amount);
    }
    for port in &shape.facts.host_ports {
        if let Some(at) = room.ports.iter().rposition(|other| other == port) {
            room.ports.remove(at);
        }
    }
    for (column, volume) in &shape.shared {
        room.attach(*column, *volume, -1);
    }
}

/// Takes room for one pod of the shape.
pub(crate) fn occupy(room: &mut Room, shape: &Shape) {
    for (column, amount) in &shape.requests {
        if room.free.len() <= *column {
            room.free.resize(column + 1, 0);
        }
        room.free[*column] = room.free[*column].saturating_sub(*amount);
    }
    room.ports.extend(shape.facts.host_ports.iter().cloned());
}
