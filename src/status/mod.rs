//! OUT: PodGroup objects and their status, pod conditions, events.
//!
//! One queue, latest wins per object: a gang whose report changes ten times before its turn is written once. A pending
//! reason is written only when it has stood for a moment, so that a gang on its way costs nothing. Nothing is written that
//! stands there already. What a reason means is `explain`'s to say.

mod render;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use berth_engine::facts::ObjectKey;
use berth_engine::outcome::{Cause, Eviction, GangReport, QueueReport};
use kube::Client;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::convert::write_promise;
use crate::cluster::directory::SharedDirectory;
use crate::leader::Fence;
use crate::telemetry::Metrics;
pub use render::Condition;

/// Status writes at a time: a fraction of what Bindings may use, because Bindings matter more.
const WRITES_IN_FLIGHT: usize = 16;

/// Writes wanted at a time: one per pod and gang of a large cluster. Above it they are dropped and counted; the next
/// change of the object asks again.
const MAX_WANTED: usize = 200_000;

/// A reason must stand this long before it is told: gangs whose pods are still being created are not pending, they arrive.
const SETTLE: Duration = Duration::from_secs(2);

/// A placed gang's status waits this long, so that late pods join the same write.
const PLACED_SETTLE: Duration = Duration::from_millis(500);

/// Conditions of pods written per second at most: a gang of a thousand pods that waits is told in ten seconds, and costs the
/// API server a few percent of what it can do meanwhile.
const CONDITIONS_PER_SECOND: u32 = 100;

/// A message that changes while the reason stays is written again only after this time: numbers in it move all the time.
const REWRITE_AFTER: Duration = Duration::from_secs(15);

/// Tries of one write; then the next change of the object asks again.
const MAX_TRIES: u32 = 6;

/// Wait after the first failed try; doubles.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// What a write is about; the order is the order of importance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    /// The PodGroup object.
    PodGroup(ObjectKey),
    /// The room that is kept for a gang (engine UID), on its PodGroup.
    Promise(String),
    /// The status of a gang (engine UID).
    Gang(String),
    /// The status of a queue (name).
    Queue(String),
    /// An event about a gang (engine UID, code).
    Notice(String, &'static str),
    /// The condition of a pod (UID).
    Pod(String),
}

#[derive(Clone, Debug)]
enum Write {
    Create(Value),
    Patch(Value),
    Promise { gang: String, text: Option<String> },
    Status(Box<GangReport>),
    Condition(Box<PodReport>),
    Notice(Box<Notice>),
    Queue(Box<QueueReport>),
}

/// Something that happened to a gang, told once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Notice {
    gang: String,
    condition: Condition,
    /// What makes it another one: it began at another moment.
    since: i64,
    /// Annotations of the event.
    annotations: BTreeMap<&'static str, String>,
}

/// A pending pod and why it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PodReport {
    uid: String,
    key: ObjectKey,
    gang: String,
    condition: Condition,
    /// The node that is kept for it.
    nominated: Option<String>,
}

struct Wanted {
    due: Instant,
    write: Write,
    tries: u32,
}

#[derive(Default)]
struct Queue {
    wanted: BTreeMap<Target, Wanted>,
    due: BTreeSet<(Instant, Target)>,
    /// Being written now; a newer wish waits for its end.
    busy: BTreeSet<Target>,
}

impl Queue {
    fn put(&mut self, target: Target, wanted: Wanted) -> bool {
        if let Some(old) = self.wanted.remove(&target) {
            self.due.remove(&(old.due, target.clone()));
        } else if self.wanted.len() >= MAX_WANTED {
            return false;
        }
        self.due.insert((wanted.due, target.clone()));
        self.wanted.insert(target, wanted);
        true
    }

    fn cancel(&mut self, target: &Target) {
        if let Some(old) = self.wanted.remove(target) {
            self.due.remove(&(old.due, target.clone()));
        }
    }

    /// The longest due write whose object is not being written: objects and statuses before conditions of pods.
    fn take(&mut self, now: Instant, conditions_too: bool) -> Option<(Target, Wanted)> {
        let mut due = self.due.iter().take_while(|(at, _)| *at <= now).filter(|(_, target)| !self.busy.contains(target));
        let first = due.next()?.clone();
        let is_condition = |entry: &(Instant, Target)| matches!(entry.1, Target::Pod(_));
        let (at, target) = if is_condition(&first) {
            due.find(|entry| !is_condition(entry)).cloned().or_else(|| conditions_too.then_some(first))?
        } else {
            first
        };
        self.due.remove(&(at, target.clone()));
        let wanted = self.wanted.remove(&target)?;
        self.busy.insert(target.clone());
        Some((target, wanted))
    }

    fn next_due(&self) -> Option<Instant> {
        self.due.iter().find(|(_, target)| !self.busy.contains(target)).map(|(at, _)| *at)
    }
}

/// How often the budget of conditions is looked at while it is spent.
const SLICE: Duration = Duration::from_millis(50);

/// The conditions that may be written in this second.
struct Budget {
    left: u32,
    since: Instant,
}

impl Budget {
    fn has_some(&mut self, now: Instant) -> bool {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            *self = Self { left: CONDITIONS_PER_SECOND, since: now };
        }
        self.left > 0
    }
}

struct Shared {
    /// A dry run: nothing is written.
    silent: bool,
    queue: Mutex<Queue>,
    changed: Notify,
    metrics: Arc<Metrics>,
    directory: SharedDirectory,
}

/// Asks for writes; cheap to clone, never blocks.
#[derive(Clone)]
pub struct Writer(Arc<Shared>);

impl Writer {
    /// A writer with nothing to do.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>, directory: SharedDirectory) -> Self {
        Self(Arc::new(Shared { silent: false, queue: Mutex::default(), changed: Notify::new(), metrics, directory }))
    }

    /// A writer that takes everything and writes nothing.
    #[must_use]
    pub fn silent(metrics: Arc<Metrics>, directory: SharedDirectory) -> Self {
        Self(Arc::new(Shared { silent: true, queue: Mutex::default(), changed: Notify::new(), metrics, directory }))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn put(&self, target: Target, write: Write, after: Duration) {
        if self.0.silent {
            return;
        }
        let wanted = Wanted { due: Instant::now() + after, write, tries: 0 };
        if !self.queue().put(target, wanted) {
            self.0.metrics.status_dropped.inc();
        }
        self.0.changed.notify_one();
    }

    /// Creates the PodGroup of a derived gang.
    pub fn create_pod_group(&self, key: ObjectKey, object: Value) {
        self.put(Target::PodGroup(key), Write::Create(object), Duration::ZERO);
    }

    /// Changes it.
    pub fn patch_pod_group(&self, key: ObjectKey, patch: Value) {
        self.put(Target::PodGroup(key), Write::Patch(patch), Duration::ZERO);
    }

    /// A gang's report changed. `pending` are its pods (by UID) that wait.
    pub fn report(&self, report: GangReport, pending: &BTreeSet<String>) {
        let waits = report.reasons.first();
        let members: Vec<(String, ObjectKey)> = {
            let directory = self.0.directory.lock();
            let Some(entry) = directory.gang(&report.uid) else { return };
            let free = entry.members.iter().filter(|(_, member)| member.node.is_none() && !member.leaving);
            free.map(|(uid, member)| (uid.clone(), member.key.clone())).collect()
        };
        for (uid, key) in members {
            let target = Target::Pod(uid.clone());
            match waits {
                Some(reason) if pending.contains(&uid) => {
                    let condition = render::condition(reason);
                    let nominated = report.promised.get(&key.name).cloned();
                    let pod = PodReport { uid, key, gang: report.uid.clone(), condition, nominated };
                    self.keep_due(target, Write::Condition(Box::new(pod)), SETTLE);
                }
                _ => self.queue().cancel(&target),
            }
        }
        self.promise(&report);
        self.notice_stale(&report);
        let settle = if waits.is_some() { SETTLE } else { PLACED_SETTLE };
        self.keep_due(Target::Gang(report.uid.clone()), Write::Status(Box::new(report)), settle);
    }

    /// What a queue uses changed. The loop says so now and then, not with every pod.
    pub fn report_queue(&self, report: QueueReport) {
        self.keep_due(Target::Queue(report.name.clone()), Write::Queue(Box::new(report)), Duration::ZERO);
    }

    /// Has what is kept for a gang written down where it differs, or was lately written otherwise.
    fn promise(&self, report: &GangReport) {
        let text = write_promise(&report.promised);
        let target = Target::Promise(report.uid.clone());
        let stands = self.0.directory.lock().gang(&report.uid).and_then(|entry| entry.promised.clone());
        let is_open = { let queue = self.queue(); queue.wanted.contains_key(&target) || queue.busy.contains(&target) };
        if text != stands || is_open {
            self.keep_due(target, Write::Promise { gang: report.uid.clone(), text }, Duration::ZERO);
        }
    }

    /// Pods of a gang are evicted for another: told on its PodGroup.
    pub fn evicted(&self, eviction: &Eviction, now: i64) {
        let Cause::Room(room) = &eviction.cause else { return };
        let notice = Notice {
            gang: eviction.gang_uid.clone(),
            condition: render::evicted(eviction, room),
            since: now,
            annotations: render::evicted_annotations(eviction, room),
        };
        self.put(Target::Notice(eviction.gang_uid.clone(), render::EVICTED), Write::Notice(Box::new(notice)), Duration::ZERO);
    }

    /// Tells of a gang below its minimum, when that lasts a moment, and of its end.
    fn notice_stale(&self, report: &GangReport) {
        let early = Target::Notice(report.uid.clone(), render::STALE);
        let Some(stale) = &report.stale else {
            self.queue().cancel(&early);
            return;
        };
        let condition = render::stale(stale);
        let notice = Notice { gang: report.uid.clone(), condition, since: stale.since, annotations: BTreeMap::new() };
        let (target, after) = match stale.evicting {
            true => (Target::Notice(report.uid.clone(), render::EVICTED), Duration::ZERO),
            false => (early, SETTLE),
        };
        self.keep_due(target, Write::Notice(Box::new(notice)), after);
    }

    /// Like `put`, but a write that already waits keeps its turn: changes that never stop are told all the same.
    fn keep_due(&self, target: Target, write: Write, after: Duration) {
        let mut queue = self.queue();
        if let Some(wanted) = queue.wanted.get_mut(&target) {
            wanted.write = write;
            return;
        }
        drop(queue);
        self.put(target, write, after);
    }

    /// Writes until told to stop; then PodGroup objects and statuses that are due are left to the next start.
    pub async fn run(self, client: Client, fence: Fence, mut stop: watch::Receiver<bool>) {
        let scribe = Arc::new(write::Scribe::new(client, fence, Arc::clone(&self.0.metrics), self.0.directory.clone()));
        let mut running: JoinSet<(Target, Wanted, write::End)> = JoinSet::new();
        let mut budget = Budget { left: CONDITIONS_PER_SECOND, since: Instant::now() };
        while !*stop.borrow() {
            {
                let queue = self.queue();
                let waiting = queue.wanted.len() + queue.busy.len();
                self.0.metrics.status_waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
            }
            while running.len() < WRITES_IN_FLIGHT {
                let conditions_too = budget.has_some(Instant::now());
                let Some((target, wanted)) = self.queue().take(Instant::now(), conditions_too) else { break };
                budget.left = budget.left.saturating_sub(u32::from(matches!(target, Target::Pod(_))));
                let scribe = Arc::clone(&scribe);
                running.spawn(async move {
                    let end = scribe.write(&wanted.write).await;
                    (target, wanted, end)
                });
            }
            let next = self.queue().next_due().filter(|_| running.len() < WRITES_IN_FLIGHT);
            // With the budget spent, what is due waits for the next slice of it.
            let next = if budget.left == 0 { next.map(|at| at.max(Instant::now() + SLICE)) } else { next };
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.0.changed.notified() => {}
                Some(ended) = running.join_next() => if let Ok((target, wanted, end)) = ended {
                    self.ended(target, wanted, end);
                },
                () = due => {}
                _ = stop.changed() => {}
            }
        }
    }

    fn ended(&self, target: Target, mut wanted: Wanted, end: write::End) {
        let mut queue = self.queue();
        queue.busy.remove(&target);
        if let write::End::NotBefore(at) = end {
            if !queue.wanted.contains_key(&target) {
                wanted.due = at;
                queue.put(target, wanted);
            }
        } else if end == write::End::Again && !queue.wanted.contains_key(&target) && wanted.tries < MAX_TRIES {
            wanted.due = Instant::now() + FIRST_WAIT * 2_u32.saturating_pow(wanted.tries);
            wanted.tries += 1;
            queue.put(target, wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(due: Instant, value: &str) -> Wanted {
        Wanted { due, write: Write::Patch(Value::String(value.to_owned())), tries: 0 }
    }

    #[test]
    fn the_latest_wish_wins_and_a_busy_object_waits() {
        let now = Instant::now();
        let target = Target::Gang("g".to_owned());
        let mut queue = Queue::default();
        assert!(queue.put(target.clone(), wanted(now, "a")) && queue.put(target.clone(), wanted(now, "b")));
        let (_, first) = queue.take(now, true).expect("one is due");
        assert!(matches!(first.write, Write::Patch(Value::String(text)) if text == "b"));
        queue.put(target.clone(), wanted(now, "c"));
        assert!(queue.take(now, true).is_none() && queue.next_due().is_none());
        queue.busy.remove(&target);
        assert!(queue.take(now, true).is_some());
    }

    #[test]
    fn objects_go_before_statuses_before_conditions() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.put(Target::Pod("p".to_owned()), wanted(now, "1"));
        queue.put(Target::PodGroup(ObjectKey::new("n", "g")), wanted(now, "2"));
        assert!(matches!(queue.take(now, true), Some((Target::PodGroup(_), _))));
        assert!(queue.take(now, false).is_none(), "the budget of conditions is spent");
        assert!(queue.take(now, true).is_some());
    }
}
