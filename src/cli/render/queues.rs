//! Queues and the line of gangs in front of them, as a table and as JSON.

use std::collections::BTreeSet;

use berth_engine::facts::Millis;
use berth_engine::outcome::{GangReport, QueueReport, Turn};
use berth_engine::world::World;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::json::gang as gang_json;
use super::words::{hanging, title};
use crate::explain;

/// Widest name of a queue that is not cut.
const NAME_WIDTH: usize = 26;

/// A gang in the line.
struct Waiter {
    position: usize,
    turn: Turn,
    gang: GangReport,
}

/// What is shown.
pub struct View {
    queues: Vec<QueueReport>,
    waiters: Vec<Waiter>,
    /// Gangs that wait in all, whatever is shown.
    total: usize,
    now: Millis,
}

impl View {
    /// What waits, in this order. `now` is for ages.
    #[must_use]
    pub fn of(world: &World, line: Vec<Turn>, namespace: Option<&str>, now: Millis) -> Self {
        let total = line.len();
        let waiters = line.into_iter().enumerate().filter_map(|(at, turn)| {
            let gang = world.gang_report(&turn.uid)?;
            let is_shown = namespace.is_none_or(|namespace| gang.key.namespace == namespace);
            is_shown.then_some(Waiter { position: at + 1, turn, gang })
        });
        let waiters = waiters.collect();
        Self { queues: world.queue_reports(), waiters, total, now }
    }

    /// Shows the gangs otherwise.
    pub fn change_gangs(&mut self, mut change: impl FnMut(&GangReport) -> GangReport) {
        for waiter in &mut self.waiters {
            waiter.gang = change(&waiter.gang);
        }
    }

    /// Leaves only these queues.
    pub fn keep_queues(&mut self, names: &BTreeSet<String>) {
        self.queues.retain(|queue| names.contains(&queue.name));
        for queue in &mut self.queues {
            queue.children.retain(|name| names.contains(name));
        }
    }

    /// For people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut page = hanging(&self.sentence(), "", "  ");
        page.push('\n');
        page.push_str(&format!("{:<NAME_WIDTH$} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}\n", "QUEUE (GPUs)", "USED", "SHARE", "QUOTA", "LIMIT", "ASKED", "WAIT"));
        for (queue, depth) in self.tree() {
            let share = &queue.share;
            let name: String = format!("{}{}", "  ".repeat(depth.min(6)), queue.name);
            let cut: String = if name.chars().count() > NAME_WIDTH {
                name.chars().take(NAME_WIDTH - 1).chain(['…']).collect()
            } else {
                name
            };
            let wait = self.waiters.iter().filter(|waiter| waiter.gang.queue == queue.name).count();
            page.push_str(&format!(
                "{cut:<NAME_WIDTH$} {:>8} {:>8} {:>8} {:>8} {:>8} {wait:>6}\n",
                number(share.allocated[0]), number(share.fair[0]), bound(share.quota[0]), bound(share.limit[0]), number(share.requested[0]),
            ));
        }
        if !self.waiters.is_empty() {
            page.push('\n');
        }
        for waiter in &self.waiters {
            let Waiter { position, turn, gang } = waiter;
            let above = if turn.surplus { " above its minimum" } else { "" };
            let head = format!(
                "{position}. {}  queue {}, priority {}, {} of {} pods wait{above}, for {}",
                title(gang), gang.queue, turn.priority, gang.pods.saturating_sub(gang.bound), gang.pods, age(self.now - turn.created)
            );
            page.push_str(&hanging(&head, "", "   "));
            let why = gang.reasons.first().map_or_else(
                || "about to be placed".to_owned(),
                |reason| format!("{}: {}", reason.code_name(), explain::sentence(reason)),
            );
            page.push_str(&hanging(&why, "   ", "     "));
        }
        page
    }

    fn sentence(&self) -> String {
        match (self.waiters.first(), self.total) {
            (_, 0) => "Nothing waits.".to_owned(),
            (None, total) => format!("Nothing waits here; {total} gang{} elsewhere.", plural(total)),
            (Some(first), _) => {
                let shown = self.waiters.len();
                let verb = if shown == 1 { "gang waits" } else { "gangs wait" };
                format!("{shown} {verb}; the first in line is {} of queue {}.", title(&first.gang), first.gang.queue)
            }
        }
    }

    /// Queues with their depth, each before those below it.
    fn tree(&self) -> Vec<(&QueueReport, usize)> {
        let known = |name: &str| self.queues.iter().any(|queue| queue.name == name);
        let top = |queue: &&QueueReport| queue.share.parent.as_deref().is_none_or(|parent| !known(parent));
        let mut open: Vec<(&QueueReport, usize)> = self.queues.iter().filter(top).map(|queue| (queue, 0)).collect();
        open.reverse();
        let mut tree = Vec::new();
        while let Some((queue, depth)) = open.pop() {
            tree.push((queue, depth));
            let below = self.queues.iter().rev().filter(|other| other.share.parent.as_deref() == Some(queue.name.as_str()));
            open.extend(below.map(|other| (other, depth + 1)));
        }
        // Queues that are above themselves hang from nothing.
        let lost: Vec<_> = self.queues.iter().filter(|queue| !tree.iter().any(|(other, _)| other.name == queue.name)).collect();
        tree.extend(lost.into_iter().map(|queue| (queue, 0)));
        tree
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn number(thousandths: i64) -> String {
    explain::thousandths(thousandths)
}

fn bound(thousandths: Option<i64>) -> String {
    thousandths.map_or_else(|| "-".to_owned(), number)
}

/// An age in its largest units.
fn age(millis: Millis) -> String {
    let seconds = millis.max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Thousandths as a number; `None` is -1, as in the objects.
fn amount(thousandths: Option<i64>) -> Value {
    match thousandths {
        None => json!(-1),
        Some(whole) if whole % 1000 == 0 => json!(whole / 1000),
        Some(part) => json!(part as f64 / 1000.0),
    }
}

/// For scripts: GPUs, milli-cores and megabytes, as in Queue objects.
#[must_use]
pub fn json(view: &View) -> Value {
    let queue = |queue: &QueueReport| {
        let share = &queue.share;
        let mut entry = json!({"name": queue.name, "parent": share.parent, "priority": share.priority, "children": queue.children});
        for (slot, resource) in ["gpu", "cpu", "memory"].into_iter().enumerate() {
            entry[resource] = json!({
                "quota": amount(share.quota[slot]), "limit": amount(share.limit[slot]), "overQuotaWeight": amount(Some(share.weight[slot])),
                "fairShare": amount(Some(share.fair[slot])), "allocated": amount(Some(share.allocated[slot])),
                "requested": amount(Some(share.requested[slot])), "unplaceable": amount(Some(share.unplaceable[slot])),
            });
        }
        entry
    };
    let waiter = |waiter: &Waiter| {
        let mut entry = gang_json(&waiter.gang);
        entry["position"] = json!(waiter.position);
        entry["priority"] = json!(waiter.turn.priority);
        entry["surplus"] = json!(waiter.turn.surplus);
        entry["waitingSeconds"] = json!((view.now - waiter.turn.created).max(0) / 1000);
        entry["since"] = json!(Timestamp::from_millisecond(waiter.turn.created).ok().map(|time| time.to_string()));
        entry
    };
    json!({
        "apiVersion": "berth.scheduler/v1alpha1", "kind": "QueueView",
        "queues": view.queues.iter().map(queue).collect::<Vec<_>>(),
        "waiting": view.waiters.iter().map(waiter).collect::<Vec<_>>(),
        "summary": {"waiting": view.waiters.len(), "waitingEverywhere": view.total},
    })
}

#[cfg(test)]
mod tests {
    use super::super::words::WIDTH;
    use super::*;

    #[test]
    fn ages_are_in_their_largest_units_and_lines_fit() {
        let ages: Vec<String> = [-5, 59_000, 61_000, 3_700_000, 90_000_000].into_iter().map(age).collect();
        assert_eq!(ages, ["0s", "59s", "1m", "1h 1m", "1d 1h"]);
        const { assert!(NAME_WIDTH + 5 * 9 + 7 <= WIDTH) };
    }
}
