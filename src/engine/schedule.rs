//! The pass: which gang next, place it, commit, until nothing more fits.
//!
//! Order of work is placement.md section 4: queues by fair share (`order`), then gang priority,
//! below the minimum before above, age, name. Everything that fits is placed
//! before the pass ends. A gang that fails shares its verdict with every gang
//! of the same shapes and constraints in the pass: room only shrinks.

mod charges;
mod preempt;
mod repair;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{Millis, ObjectKey, Problem};
use crate::ids::{GangIdx, NodeIdx, PodIdx, ShapeIdx, TreeIdx};
use crate::order::Work;
use crate::outcome::{Code, Decision, Fix, FixKind, GangState, Outcome, Placement, Reason, Turn, Unit};
use crate::place::build::Prepared;
use crate::place::task::{Bound, Item};
use crate::place::{Plan, Solver};
use crate::policy::Policy;
use crate::world::model::{Gang, OrderKey};
use crate::world::wake::Changes;
use crate::world::World;

/// Decides for every pending gang; see the module text.
pub fn schedule(world: &mut World, policy: &Policy, now: Millis) -> Outcome {
    let mut outcome = Outcome::default();
    if !world.synced || !world.leading {
        return outcome;
    }
    outcome.changed = world.review_lives(now);
    world.end_waits(now);
    world.end_promises(now);
    outcome.tell_withdrawn(world);
    if world.dirty {
        world.dirty = false;
        world.set_whole_paths(policy.compat_kai);
        world.refresh_trees();
        let woken = world.take_woken();
        Pass::new(world, policy, now, &mut outcome, true).run(woken);
    }
    Pass::new(world, policy, now, &mut outcome, false).renew();
    // After the pass, so that a gang which was completed in it is kept.
    outcome.changed.extend(world.review_lives(now));
    let stale = world.give_up_stale(policy, now);
    outcome.changed.extend(stale.iter().map(|eviction| eviction.gang_uid.clone()));
    outcome.evictions.extend(stale);
    outcome.next_wakeup = if world.dirty { Some(now) } else { world.next_wakeup(policy, now) };
    outcome
}

/// The gangs that wait, in the order in which their turn would come if each were placed. Decides nothing; reasons are in
/// the gangs' reports.
pub fn line(world: &mut World, policy: &Policy, now: Millis) -> Vec<Turn> {
    world.refresh_trees();
    let mut outcome = Outcome::default();
    let pass = Pass::new(world, policy, now, &mut outcome, false);
    let mut work = Work::default();
    for idx in &pass.world.waiting {
        let surplus = pass.world.state_of(*idx) == Some(GangState::Placed);
        pass.add(&mut work, pass.key(*idx, surplus));
    }
    let turn = |key: OrderKey| {
        let gang = pass.world.gangs[key.gang.at()].as_ref()?;
        Some(Turn {
            uid: gang.facts.uid.clone(),
            priority: gang.facts.priority,
            created: gang.facts.created,
            surplus: key.surplus,
            waiting: pass.world.waiting_of(gang),
        })
    };
    let mut keys = work.line(pass.world, |key| pass.asked(key));
    // What no queue takes is not in anybody's line.
    let takes = |key: &OrderKey| {
        pass.world.gangs[key.gang.at()].as_ref().is_some_and(|gang| pass.world.takes_work(&gang.facts.queue).is_ok())
    };
    keys.sort_by_cached_key(|key| !takes(key));
    keys.into_iter().filter_map(turn).collect()
}

/// What decides whether two tasks share an answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Signature(Vec<u64>);

struct Pass<'a> {
    world: &'a mut World,
    policy: &'a Policy,
    now: Millis,
    outcome: &'a mut Outcome,
    /// Failures that others may share, with the number of decisions they were made after.
    failed: BTreeMap<Signature, (Reason, usize)>,
    /// Gangs for which nobody can be evicted.
    unhelped: preempt::Unhelped,
    /// How queues stand, once that was asked.
    balance: Option<preempt::Balance>,
    /// Who may be evicted, once that was asked.
    fields: preempt::Fields,
    /// Whether pods may be evicted for a gang that fails.
    hunts: bool,
    /// Decisions taken before the oldest verdict that the current attempt used.
    as_of: usize,
}

impl<'a> Pass<'a> {
    fn new(world: &'a mut World, policy: &'a Policy, now: Millis, outcome: &'a mut Outcome, hunts: bool) -> Self {
        Self { world, policy, now, outcome, failed: BTreeMap::new(), unhelped: BTreeSet::new(), balance: None, fields: BTreeMap::new(), hunts, as_of: 0 }
    }

    fn run(&mut self, woken: BTreeSet<GangIdx>) {
        let mut work = Work::default();
        for gang in woken {
            self.add(&mut work, self.key(gang, false));
        }
        let mut tried: Vec<(OrderKey, usize)> = Vec::new();
        while let Some(key) = work.pop(self.world, |key| self.asked(key)) {
            self.as_of = usize::MAX;
            let more = self.attempt(&key);
            tried.push((key.clone(), self.as_of.min(self.outcome.turn())));
            if more {
                self.add(&mut work, Some(OrderKey { surplus: true, ..key }));
            }
        }
        // Room shrank after these verdicts were made: say how things stand now.
        // A gang placed later can also be what an affinity waited for, so until nothing moves.
        loop {
            let n_decisions = self.outcome.turn();
            self.failed.clear();
            for (key, seen) in &mut tried {
                let now = self.outcome.turn();
                if *seen < now && self.world.waiting.contains(&key.gang) && !self.waits_for_room(key.gang) {
                    self.as_of = usize::MAX;
                    if self.attempt(key) {
                        self.place_surplus(key.gang);
                    }
                    *seen = self.as_of.min(now);
                }
            }
            if self.outcome.turn() == n_decisions {
                break;
            }
        }
        for (key, _) in tried {
            self.world.park(key.gang, self.now);
        }
        // Room only shrank since the verdicts: gains count from here on.
        self.world.changes = Changes::default();
    }

    /// Makes verdicts anew that are out of date for long enough: their figures, not their
    /// answer, for what could change the answer would have woken the gang.
    fn renew(&mut self) {
        let due = self.world.stale(self.policy, self.now);
        for gang in due {
            let Some(key) = self.key(gang, false) else { continue };
            let n_decisions = self.outcome.turn();
            if self.attempt(&key) {
                self.place_surplus(gang);
            }
            debug_assert_eq!(n_decisions, self.outcome.turn(), "a gang slept though it fits");
            self.world.park(gang, self.now);
        }
    }

    /// Room is kept for the gang: more of that is not to be had in this pass.
    fn waits_for_room(&self, idx: GangIdx) -> bool {
        self.world.gangs[idx.at()].as_ref().is_some_and(|gang| gang.promise.is_some())
    }

    /// True when there is work above the minimum that was just reached.
    fn attempt(&mut self, key: &OrderKey) -> bool {
        if key.surplus {
            self.place_surplus(key.gang);
            return false;
        }
        self.place_minimum(key.gang)
    }

    fn add(&self, work: &mut Work, key: Option<OrderKey>) {
        let gang = key.as_ref().and_then(|key| self.world.gangs[key.gang.at()].as_ref());
        if let (Some(gang), Some(key)) = (gang, key) {
            work.insert(&gang.facts.queue, key);
        }
    }

    fn key(&self, idx: GangIdx, surplus: bool) -> Option<OrderKey> {
        let facts = &self.world.gangs[idx.at()].as_ref()?.facts;
        Some(OrderKey {
            priority: Reverse(facts.priority),
            surplus,
            created: facts.created,
            name: (facts.key.namespace.clone(), facts.key.name.clone()),
            gang: idx,
        })
    }

    /// Brings a gang to its minimum. True when there is work above it.
    fn place_minimum(&mut self, idx: GangIdx) -> bool {
        let Some(gang) = self.world.gangs[idx.at()].as_ref() else { return false };
        let prepared = match self.prepare(gang) {
            Ok(prepared) => prepared,
            Err(reasons) => {
                self.report(idx, reasons);
                return false;
            }
        };
        let mut reasons = aside_reasons(&prepared);
        if prepared.satisfied(0) {
            let more = prepared.n_waiting(0) > 0;
            if !more {
                reasons.extend(blocked_reasons(&prepared));
                reasons.extend(gated_reason(&prepared));
                self.report(idx, reasons);
            }
            return more;
        }
        if !prepared.ready(0) {
            let blocked = blocked_reasons(&prepared);
            if blocked.is_empty() {
                // A pod that is left aside won't come by waiting: its mistake goes first.
                reasons.push(not_ready_reason(&prepared));
            } else {
                reasons.splice(0..0, blocked);
            }
            reasons.extend(self.fill_holes(idx));
            self.report(idx, reasons);
            return false;
        }
        let waiting = prepared.n_waiting(0);
        reasons.extend(blocked_reasons(&prepared));
        let item = prepared.minimum(self.world, 0);
        let bare = prepared.only_needed().map(|prepared| prepared.minimum(self.world, 0)).filter(|bare| *bare != item);
        let mut solved = self.solve(idx, &item);
        // Better a place without room for all that may come than none.
        if let (Err(_), Some(bare)) = (&solved, &bare) {
            solved = self.solve(idx, bare);
        }
        match solved {
            Ok((plan, quality)) => {
                let more = waiting > plan.places.len();
                self.commit(idx, &plan, Some(quality));
                if !more {
                    self.report(idx, reasons);
                }
                more
            }
            Err(reason) => {
                let n_decisions = self.outcome.turn();
                self.fill_holes(idx);
                // With holes filled it asks for less, and is looked at again.
                let is_less = self.outcome.turn() > n_decisions;
                let kept = if is_less { None } else { self.make_room(idx, &item, &reason).or_else(|| self.make_room(idx, &bare?, &reason)) };
                reasons.insert(0, kept.unwrap_or(reason));
                self.report(idx, reasons);
                // Better the node that failed before than none: the next pass may use it.
                self.world.dirty |= self.world.allow_avoided(&item.existing_pods());
                false
            }
        }
    }

    /// Places what may run above the minimum, as much as fits.
    fn place_surplus(&mut self, idx: GangIdx) {
        let mut reasons = Vec::new();
        let mut tried: BTreeSet<usize> = BTreeSet::new();
        loop {
            let Some(gang) = self.world.gangs[idx.at()].as_ref() else { return };
            let Ok(prepared) = self.prepare(gang) else { return };
            let mut units = Vec::new();
            prepared.surplus(0, &mut units);
            let Some((sub, single)) = units.into_iter().find(|(sub, _)| !tried.contains(sub)) else {
                reasons.extend(aside_reasons(&prepared));
                reasons.extend(blocked_reasons(&prepared));
                reasons.extend(gated_reason(&prepared));
                self.report(idx, reasons);
                return;
            };
            tried.insert(sub);
            let n = prepared.leaves[sub].waiting.len();
            match self.place_unit(idx, sub, single.then_some(n)) {
                Ok((plan, quality)) => {
                    // It may take more, or the rest has a reason of its own by now.
                    tried.remove(&sub);
                    let quality = self.merged_quality(idx, Some(quality));
                    self.commit(idx, &plan, quality);
                }
                Err(reason) => reasons.push(reason),
            }
        }
    }

    /// Places a subgroup's minimum, or as many single pods of a leaf as fit: better without room for those to come that it
    /// can do without than not at all.
    fn place_unit(&mut self, idx: GangIdx, sub: usize, singles: Option<usize>) -> Result<(Plan, crate::outcome::Quality), Reason> {
        let unit = |world: &World, prepared: &Prepared<'_>, count: Option<usize>, bare: bool| {
            let needed = prepared.only_needed().filter(|_| bare);
            needed.as_ref().unwrap_or(prepared).unit(world, sub, count)
        };
        let mut bare = false;
        loop {
            let gang = self.world.gangs[idx.at()].as_ref();
            let Some(Ok(prepared)) = gang.map(|gang| self.prepare(gang)) else { return Err(Reason::new(Code::NotEnoughRoom)) };
            let may_do_without = !bare && prepared.only_needed().is_some();
            let result = if let Some(n) = singles {
                self.most(idx, |world, prepared, count| unit(world, prepared, Some(count), bare), n)
            } else {
                let item = unit(self.world, &prepared, None, bare);
                self.solve(idx, &item)
            };
            if result.is_ok() || !may_do_without {
                return result;
            }
            bare = true;
        }
    }

    /// The quality of the gang's minimum stands; a gang without one takes this.
    fn merged_quality(
        &self,
        idx: GangIdx,
        quality: Option<crate::outcome::Quality>,
    ) -> Option<crate::outcome::Quality> {
        self.world.gangs[idx.at()].as_ref().and_then(|gang| gang.quality.clone()).or(quality)
    }

    /// The largest count of single pods that fits, by halving.
    fn most(
        &mut self,
        idx: GangIdx,
        item: impl Fn(&World, &Prepared<'_>, usize) -> Item,
        n: usize,
    ) -> Result<(Plan, crate::outcome::Quality), Reason> {
        let (mut low, mut high) = (0, n + 1);
        let mut best = None;
        let mut why = None;
        let mut try_next = n;
        while low + 1 < high {
            let task = {
                let Some(gang) = self.world.gangs[idx.at()].as_ref() else { break };
                let Ok(prepared) = self.prepare(gang) else { break };
                item(self.world, &prepared, try_next)
            };
            match self.solve(idx, &task) {
                Ok((plan, quality)) => {
                    low = try_next;
                    best = Some((plan, quality));
                }
                Err(reason) => {
                    high = try_next;
                    why = Some(reason);
                }
            }
            try_next = low + (high - low) / 2;
        }
        best.ok_or_else(|| why.unwrap_or_else(|| Reason::new(Code::NotEnoughRoom)))
    }

    /// Checks everything that does not depend on room.
    fn prepare<'w>(&self, gang: &'w Gang) -> Result<Prepared<'w>, Vec<Reason>> {
        let mut problems = gang.facts.problems.clone();
        problems.extend(gang.problems.iter().cloned());
        let prepared = match Prepared::new(self.world, gang, self.policy) {
            Ok(prepared) if problems.is_empty() => prepared,
            Ok(_) => return Err(problems.into_iter().map(problem_reason).collect()),
            Err(more) => {
                problems.extend(more);
                return Err(problems.into_iter().map(problem_reason).collect());
            }
        };
        let mut unsupported: BTreeSet<&String> = BTreeSet::new();
        for (_, pod) in self.world.gang_pods(&gang.facts.key).filter(|(_, pod)| pod.waits() && pod.facts.problems.is_empty()) {
            unsupported.extend(&pod.facts.shape.unsupported);
        }
        if !unsupported.is_empty() {
            return Err(unsupported.into_iter().map(|key| unsupported_reason(key)).collect());
        }
        if let Some((until, text)) = &gang.backoff
            && *until > self.now {
                let code = match (gang.life.evicted_at, gang.unprepared) {
                    _ if gang.life.preempted => Code::Preempted,
                    (Some(_), _) => Code::StaleGang,
                    (None, true) => Code::VolumesNotReady,
                    (None, false) => Code::BindRefused,
                };
                let mut reason = Reason::new(code);
                reason.detail.clone_from(text);
                return Err(vec![reason]);
            }
        Ok(prepared)
    }

    fn solve(&mut self, idx: GangIdx, item: &Item) -> Result<(Plan, crate::outcome::Quality), Reason> {
        let Some(gang) = self.world.gangs[idx.at()].as_ref() else {
            return Err(Reason::new(Code::NotEnoughPods));
        };
        let blocked = self.admit(gang, self.least_charge(item)).err();
        if let Some(reason) = &blocked
            && !matches!(reason.code, Code::QueueOverLimit | Code::QueueOverQuota) {
                return Err(reason.clone());
            }
        let signature = Signature::of(item);
        let own = self.world.lent(gang);
        if let (None, true, Some((reason, as_of))) = (&blocked, own.is_empty(), self.failed.get(&signature)) {
            self.as_of = self.as_of.min(*as_of);
            return Err(reason.clone());
        }
        let mut rooms = std::mem::take(&mut self.world.rooms);
        own.iter().for_each(|(node, amounts)| rooms.lend(*node, amounts, 1));
        let mut solver = Solver::new(self.world, &mut rooms, self.policy);
        solver.objective = gang.facts.objective.unwrap_or(self.policy.objective);
        let solved = solver.solve(item);
        let mut steps = solver.steps;
        let result = match (solved, blocked) {
            (Ok(_), Some(mut reason)) => {
                for fix in &mut reason.fixes {
                    fix.verified = true;
                }
                Err((reason, false))
            }
            (Err(_), Some(reason)) => Err((reason, false)),
            (Ok(plan), None) if item.has_choice() && self.admit(gang, self.charge_of_plan(item, &plan)).is_err() => {
                let asked = self.charge_of_plan(item, &plan);
                let mut reason = self.admit(gang, asked).err().unwrap_or_else(|| Reason::new(Code::QueueOverLimit));
                // Another choice among the subgroups might do.
                reason.proof = None;
                Err((reason, false))
            }
            (Ok(mut plan), None) => {
                let quality = solver.quality(item, &plan);
                plan.places.retain(|(pod, _)| pod.exists());
                Ok((plan, quality))
            }
            (Err(failure), None) => {
                let reason = solver.diagnose(item, failure);
                steps += solver.steps;
                // Elsewhere room only shrinks; here a pod placed later may be what is missing.
                let drawn = |shape: &ShapeIdx| self.world.shapes[shape.at()].drawn_terms().next().is_some();
                Err((reason, !item.all_shapes().iter().any(drawn)))
            }
        };
        own.iter().for_each(|(node, amounts)| rooms.lend(*node, amounts, -1));
        self.world.rooms = rooms;
        self.outcome.steps += steps;
        result.map_err(|(reason, share)| {
            if share && own.is_empty() {
                let as_of = self.outcome.turn();
                self.failed.insert(signature, (reason.clone(), as_of));
            }
            reason
        })
    }

    fn commit(&mut self, idx: GangIdx, plan: &Plan, quality: Option<crate::outcome::Quality>) {
        self.withdraw(idx);
        if self.world.gangs[idx.at()].as_ref().is_some_and(|gang| self.world.placed_by_leaf(gang).iter().any(|n| *n > 0)) {
            // Who could be evicted has pods on their way now.
            self.fields.clear();
        }
        let mut placements = Vec::with_capacity(plan.places.len());
        let volumes = self.world.match_volumes(&plan.places);
        let tree = self.tree_of(idx, quality.as_ref());
        for (pod, node) in &plan.places {
            let Some(mut placement) = self.placement(idx, *pod, *node) else { continue };
            placement.domain = self.world.trees[tree.at()].path_of(*node);
            placement.volumes = self.world.decide_volumes(*pod, *node, &volumes);
            self.world.assume(*pod, &placement.node);
            placements.push(placement);
        }
        let id = self.world.next_decision;
        self.world.next_decision += 1;
        self.world.version += 1;
        let Some(gang) = self.world.gangs[idx.at()].as_mut() else { return };
        gang.backoff = None;
        gang.unprepared = false;
        gang.quality.clone_from(&quality);
        let (gang_uid, gang) = (gang.facts.uid.clone(), gang.facts.key.clone());
        self.outcome.changed.push(gang_uid.clone());
        self.outcome.decisions.push(Decision {
            id,
            gang_uid,
            gang,
            placements,
            quality: quality.unwrap_or_default(),
        });
    }

    /// The topology that the gang's places are told in.
    fn tree_of(&self, idx: GangIdx, quality: Option<&crate::outcome::Quality>) -> TreeIdx {
        let placed_on = quality.and_then(|quality| self.world.tree_by_topology.get(&quality.topology));
        let uid = || self.world.gangs[idx.at()].as_ref().map(|gang| gang.facts.uid.as_str());
        let named = || self.world.topology_of_gang(uid()?, self.policy.default_topology.as_deref());
        placed_on.or_else(|| self.world.tree_by_topology.get(&named()?)).copied().unwrap_or(TreeIdx(0))
    }

    fn placement(&self, idx: GangIdx, pod: PodIdx, node: NodeIdx) -> Option<Placement> {
        let gang = self.world.gangs[idx.at()].as_ref()?;
        let pod = &self.world.pods[pod.at()].as_ref()?.facts;
        let node = &self.world.nodes[node.at()].as_ref()?.facts;
        let subgroup = if gang.facts.subgroups.is_empty() { None } else { pod.subgroup.clone() };
        Some(Placement {
            pod_uid: pod.uid.clone(),
            pod: ObjectKey::new(pod.namespace.clone(), pod.name.clone()),
            subgroup: subgroup.unwrap_or_default(),
            node: node.name.clone(),
            node_uid: node.uid.clone(),
            domain: Vec::new(),
            volumes: Vec::new(),
        })
    }

    fn report(&mut self, idx: GangIdx, reasons: Vec<Reason>) {
        let Some(gang) = self.world.gangs[idx.at()].as_mut() else { return };
        if gang.reasons != reasons {
            gang.reasons = reasons;
            self.outcome.changed.push(gang.facts.uid.clone());
        }
    }
}

impl Signature {
    fn of(item: &Item) -> Self {
        let mut words = Vec::new();
        Self::add(item, &mut words);
        Self(words)
    }

    fn add(item: &Item, words: &mut Vec<u64>) {
        let depth = |depth: Option<usize>| depth.map_or(0, |depth| depth as u64 + 1);
        match item.bound {
            None => words.push(0),
            Some(Bound { tree, required, preferred }) => {
                words.extend([1 + u64::from(tree.0), depth(required), depth(preferred)]);
            }
        }
        words.push(item.limits.len() as u64);
        words.extend(item.limits.iter().flat_map(|limit| [u64::from(limit.tree.0), limit.depth as u64, limit.most as u64]));
        words.push(item.live.len() as u64);
        words.extend(item.live.iter().map(|node| u64::from(node.0)));
        // Names are part of the verdict, so unlike names do not share it.
        words.push(item.name.len() as u64);
        words.extend(item.name.bytes().map(u64::from));
        words.extend([item.waiting as u64, item.choose as u64, item.pods.len() as u64]);
        for (ShapeIdx(shape), pods) in &item.pods {
            words.extend([u64::from(*shape), pods.len() as u64]);
        }
        words.push(item.children.len() as u64);
        for child in &item.children {
            Self::add(child, words);
        }
    }
}

fn problem_reason(problem: Problem) -> Reason {
    let mut reason = Reason::new(Code::Problem);
    reason.fixes.push(Fix {
        kind: FixKind::CorrectValue,
        verified: false,
        domain: Vec::new(),
        count: 0,
        target: vec![problem.key.clone(), problem.allowed.clone()],
    });
    reason.problem = Some(problem);
    reason
}

fn unsupported_reason(key: &str) -> Reason {
    let mut reason = Reason::new(Code::UnsupportedFeature);
    reason.detail = key.to_owned();
    reason
}

/// Why pods are left aside.
fn aside_reasons(prepared: &Prepared<'_>) -> Vec<Reason> {
    prepared.aside.iter().cloned().map(problem_reason).collect()
}

/// What keeps members with claims from every node for now.
fn blocked_reasons(prepared: &Prepared<'_>) -> Vec<Reason> {
    prepared.blocked.iter().cloned().map(problem_reason).collect()
}

fn gated_reason(prepared: &Prepared<'_>) -> Option<Reason> {
    let gated: usize = prepared.leaves.iter().map(|leaf| leaf.gated).sum();
    (gated > 0).then(|| {
        let mut reason = Reason::new(Code::PodsGated);
        reason.has = 0;
        reason.needs = gated as u32;
        reason
    })
}

/// The first leaf that has too few pods, or the whole gang.
fn not_ready_reason(prepared: &Prepared<'_>) -> Reason {
    let gang = prepared.gang;
    let short = (1..gang.subs.len())
        .find(|sub| gang.subs[*sub].children.is_empty() && !prepared.ready(*sub))
        .unwrap_or(0);
    let leaf = &prepared.leaves[short];
    let mut reason =
        Reason::new(if leaf.gated > 0 { Code::PodsGated } else { Code::NotEnoughPods });
    if !gang.facts.subgroups.is_empty() {
        reason.subgroup.clone_from(&gang.subs[short].name);
    }
    reason.unit = Unit::Pods;
    reason.has = (leaf.n_placed + leaf.waiting.len()) as u32;
    reason.needs = gang.subs[short].min;
    reason
}
