//! What would help a gang that waits: changes to the world, each tried before it is named.
//!
//! A trial is a whole pass over a copy of the world with the change applied, so what other gangs would take first counts
//! as well. What is returned can be applied as events. The number of trials is bounded; a search that ended for it says so.
//! Nothing here knows how a change is told to people: `Fix` is data.

mod candidates;
mod rooms;
mod what_if;

use crate::facts::{Event, Millis};
use crate::outcome::{Fix, GangReport, GangState, Reason};
use crate::policy::Policy;
use crate::schedule::schedule;
use crate::world::World;

pub use rooms::{DomainRoom, domain_rooms};
pub use what_if::{Change, Effect, Unknown, effects};

/// Trials of one gang unless the caller says otherwise: some tenths of a second on 5 000 nodes.
pub const DEFAULT_TRIALS: u32 = 96;

/// Changes that make the gang fit, together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// What to do; several only where one alone is not enough.
    pub fixes: Vec<Fix>,
    /// The same as events.
    pub changes: Vec<Event>,
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Remedies {
    /// Every one was tried and helps.
    pub found: Vec<Remedy>,
    /// Passes that were tried.
    pub tried: u32,
    /// The bound on trials ended the search: others may help too.
    pub cut_short: bool,
}

/// Looks for changes that let a gang go on, the cheapest of each kind.
///
/// Nothing is looked for where only the object itself is wrong: its own reason says what to correct.
#[must_use]
pub fn remedies(world: &World, policy: &Policy, now: Millis, uid: &str, most_trials: u32) -> Remedies {
    let Some(report) = world.gang_report(uid) else { return Remedies::default() };
    let Some(reason) = report.reasons.first().cloned() else { return Remedies::default() };
    let mut world = world.fork();
    world.refresh_trees();
    // Figures of other gangs are not looked at.
    let policy = Policy { verdicts_per_pass: 0, ..policy.clone() };
    let mut search = Search { world: &world, policy: &policy, now, before: &report, reason: &reason, left: most_trials, result: Remedies::default() };
    search.run();
    search.result
}

/// True when a gang got on: it reached its minimum, or more of it has a place above it.
#[must_use]
pub fn is_better(before: &GangReport, after: &GangReport) -> bool {
    match (before.state, after.state) {
        (GangState::Placed, GangState::Placed) => after.bound > before.bound,
        (before, after) => before != GangState::Placed && after == GangState::Placed,
    }
}

struct Search<'a> {
    world: &'a World,
    policy: &'a Policy,
    now: Millis,
    before: &'a GangReport,
    reason: &'a Reason,
    left: u32,
    result: Remedies,
}

impl Search<'_> {
    /// The world after a change and a pass; `None` when it can't be applied or no trial is left.
    fn after(&mut self, changes: &[Event]) -> Option<World> {
        if self.left == 0 {
            self.result.cut_short = true;
            return None;
        }
        self.left -= 1;
        self.result.tried += 1;
        let mut world = self.world.fork();
        for change in changes {
            world.apply(change.clone(), self.now).ok()?;
        }
        schedule(&mut world, self.policy, self.now);
        Some(world)
    }

    fn helps(&mut self, changes: &[Event]) -> bool {
        let Some(world) = self.after(changes) else { return false };
        world.gang_report(&self.before.uid).is_some_and(|after| is_better(self.before, &after))
    }

    fn found(&mut self, fixes: Vec<Fix>, changes: Vec<Event>) {
        self.result.found.push(Remedy { fixes, changes });
    }

    /// The fewest of these parts, taken from the front, that help together; then without those that are not needed.
    fn fewest<T: Clone>(&mut self, parts: &[T], changes: impl Fn(&[T]) -> Vec<Event>) -> Option<Vec<T>> {
        let mut high = 1;
        while !self.helps(&changes(&parts[..high.min(parts.len())])) {
            if high >= parts.len() || self.left == 0 {
                return None;
            }
            high *= 2;
        }
        let mut high = high.min(parts.len());
        let mut low = high / 2;
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if self.helps(&changes(&parts[..middle])) {
                high = middle;
            } else {
                low = middle;
            }
        }
        let mut chosen = parts[..high].to_vec();
        let mut at = 0;
        while chosen.len() > 1 && at < chosen.len() && chosen.len() <= MOST_PARTS {
            let mut fewer = chosen.clone();
            fewer.remove(at);
            if self.helps(&changes(&fewer)) {
                chosen = fewer;
            } else {
                at += 1;
            }
        }
        Some(chosen)
    }
}

/// Parts of one fix that are left out one by one to see whether it helps without them.
const MOST_PARTS: usize = 8;
