//! Whose turn it is: gangs of one queue by priority and age, queues by how they stand.
//!
//! The order of queues is KAI Scheduler's (proportion): among siblings, from the top of the tree down to a leaf, and made
//! afresh after every decision, because a queue that was just served stands otherwise. Ratios are compared by
//! multiplication, never divided.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::ids::GangIdx;
use crate::world::World;
use crate::world::model::OrderKey;
use crate::world::queues::Charge;
use crate::world::shares::{Amounts3, Standing, Standings};

/// The work of a pass.
#[derive(Default)]
pub(crate) struct Work {
    leaves: BTreeMap<String, BTreeSet<OrderKey>>,
    standings: Option<Standings>,
    /// What the next decision of a gang asks for; asked once.
    asked: BTreeMap<(GangIdx, bool), Amounts3>,
}

/// A queue with the work that speaks for it.
#[derive(Clone, Copy)]
struct Candidate {
    queue: usize,
    leaf: usize,
    asked: Amounts3,
}

impl Work {
    pub(crate) fn insert(&mut self, queue: &str, key: OrderKey) {
        self.asked.remove(&(key.gang, key.surplus));
        if let Some(leaf) = self.leaves.get_mut(queue) {
            leaf.insert(key);
        } else {
            self.leaves.insert(queue.to_owned(), BTreeSet::from([key]));
        }
    }

    /// Takes the next out. `ask` says what a gang's next decision would place.
    pub(crate) fn pop(&mut self, world: &World, ask: impl Fn(&OrderKey) -> Amounts3) -> Option<OrderKey> {
        self.pop_charged(world, &world.charged, ask)
    }

    /// All of it in the order in which it would be taken out if each were given what it asks for.
    pub(crate) fn line(mut self, world: &World, ask: impl Fn(&OrderKey) -> Amounts3) -> Vec<OrderKey> {
        let mut charged = world.charged.clone();
        let mut line = Vec::new();
        while let Some(key) = self.pop_charged(world, &charged, &ask) {
            if let Some(gang) = world.gangs[key.gang.at()].as_ref() {
                let asked = self.asked.get(&(key.gang, key.surplus)).copied().unwrap_or_else(|| ask(&key));
                let charge = charged.entry(gang.facts.queue.clone()).or_default();
                for (sum, amount) in charge.iter_mut().zip(asked) {
                    *sum = sum.saturating_add(amount);
                }
            }
            line.push(key);
        }
        line
    }

    fn pop_charged(
        &mut self,
        world: &World,
        charged: &BTreeMap<String, Charge>,
        ask: impl Fn(&OrderKey) -> Amounts3,
    ) -> Option<OrderKey> {
        let name = if self.leaves.len() > 1 {
            let mut standings = self.standings.take().unwrap_or_else(|| world.standings());
            standings.follow(charged);
            let best = self.best(&standings, &standings.roots, &ask).map(|best| standings.queues[best.leaf].name.clone());
            self.standings = Some(standings);
            best?
        } else {
            self.leaves.keys().next()?.clone()
        };
        let leaf = self.leaves.get_mut(&name)?;
        let key = leaf.pop_first();
        if leaf.is_empty() {
            self.leaves.remove(&name);
        }
        key
    }

    /// The first of siblings, and the leaf below it whose work comes first.
    fn best(&mut self, standings: &Standings, siblings: &[usize], ask: &impl Fn(&OrderKey) -> Amounts3) -> Option<Candidate> {
        let mut best: Option<Candidate> = None;
        for at in siblings {
            let children = &standings.queues[*at].children;
            let own = self.leaves.get(&standings.queues[*at].name).and_then(BTreeSet::first);
            let candidate = match own {
                // A queue with children takes no work: what names it is told so, at once.
                Some(key) => {
                    let id = (key.gang, key.surplus);
                    let asked = *self.asked.entry(id).or_insert_with(|| ask(key));
                    Some(Candidate { queue: *at, leaf: *at, asked })
                }
                None => self.best(standings, children, ask).map(|below| Candidate { queue: *at, ..below }),
            };
            if let Some(candidate) = candidate
                && best.is_none_or(|best| order(standings, candidate, best).is_lt()) {
                    best = Some(candidate);
                }
        }
        best
    }
}

/// Which of two siblings is served first; KAI's list, line by line.
fn order(standings: &Standings, a: Candidate, b: Candidate) -> Ordering {
    let (ours, theirs) = (&standings.queues[a.queue], &standings.queues[b.queue]);
    over_used(ours).cmp(&over_used(theirs))
        .then_with(|| within_quota(theirs, &b.asked).cmp(&within_quota(ours, &a.asked)))
        .then_with(|| theirs.priority.cmp(&ours.priority))
        .then_with(|| has_no_right(ours, &a.asked).cmp(&has_no_right(theirs, &b.asked)))
        .then_with(|| dominant(standings, ours, &a.asked).cmp(&dominant(standings, theirs, &b.asked)))
        .then_with(|| dominant(standings, ours, &[0; 3]).cmp(&dominant(standings, theirs, &[0; 3])))
        .then_with(|| rights(standings, ours).cmp(&rights(standings, theirs)))
        .then_with(|| (ours.created, &ours.name).cmp(&(theirs.created, &theirs.name)))
}

/// More than the fair share of everything.
fn over_used(queue: &Standing) -> bool {
    (0..3).all(|slot| queue.allocated[slot] > queue.fair[slot])
}

fn within_quota(queue: &Standing, asked: &Amounts3) -> bool {
    let fits = |slot: usize, quota: i64| queue.allocated[slot].saturating_add(asked[slot]) <= quota;
    (0..3).all(|slot| queue.amounts[slot].quota_millis.is_none_or(|quota| fits(slot, quota)))
}

/// Asks for something of which it may have nothing.
fn has_no_right(queue: &Standing, asked: &Amounts3) -> bool {
    (0..3).any(|slot| asked[slot] > 0 && queue.allocatable(slot) == Some(0))
}

fn rights(standings: &Standings, queue: &Standing) -> Amounts3 {
    [0, 1, 2].map(|slot| queue.allocatable(slot).unwrap_or(standings.total[slot]))
}

/// What is used of what may be used.
struct Ratio {
    used: i128,
    of: i128,
}

impl Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.used * other.of).cmp(&(other.used * self.of))
    }
}

/// The largest ratio over the resources, with so much more.
fn dominant(standings: &Standings, queue: &Standing, more: &Amounts3) -> Ratio {
    let ratios = (0..3).map(|slot| {
        let used = i128::from(queue.allocated[slot].saturating_add(more[slot]));
        match queue.allocatable(slot).unwrap_or(standings.total[slot]) {
            // KAI: a thousand times what is used, in units.
            0 => Ratio { used, of: 1 },
            of => Ratio { used, of: i128::from(of) },
        }
    });
    ratios.fold(Ratio { used: 0, of: 1 }, |most, ratio| if most.cmp(&ratio).is_lt() { ratio } else { most })
}
