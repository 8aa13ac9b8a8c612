//! OUT: Bindings and evictions, many in flight.
//!
//! Guarantees: every Binding carries the pod's UID, so that it can't hit a namesake; a result is told for every pod of a
//! decision, once; what is not known after a time-out or a conflict is read, not guessed; after a permanent refusal
//! nothing more of the decision is sent. Before the first Binding of a decision every target is looked at once more: if
//! one changed, none is sent. It decides nothing: what follows from a result is the loop's business.

mod request;
mod shadow;
mod volumes;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use berth_engine::facts::BindResult;
use berth_engine::outcome::{Decision, Placement, Victim};
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::cluster::directory::SharedDirectory;
use crate::telemetry::Metrics;
pub use request::{REQUEST_TIMEOUT, Sender, copies_labels};
pub use shadow::Shadow;
pub use volumes::DEFAULT_TIMEOUT as DEFAULT_VOLUME_TIMEOUT;

/// Bindings at a time unless `--bind-concurrency` says otherwise: 64 pooled connections keep an API server busy (a Binding
/// takes 2 to 10 ms there) and stay far below the 200 mutating requests that it takes in flight by default.
pub const DEFAULT_CONCURRENCY: usize = 64;

/// How long a stop waits for Bindings under way: longer than one request may take.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// What the loop asks for.
#[derive(Debug)]
pub enum Command {
    /// Bind a decided gang.
    Bind {
        /// The decision.
        decision: Box<Decision>,
        /// The decision mark without the count: unique over restarts.
        mark: String,
        /// Pods of hand-written groups are not labelled.
        handwritten: bool,
    },
    /// Evict what is bound of a gang that is given up.
    Evict(Vec<Victim>),
    /// Evict these to make room for one gang: what is not sent when one is refused is not sent at all.
    MakeRoom(Vec<Victim>),
}

/// What the loop is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A Binding ended.
    Binding(Ended),
    /// An eviction ended.
    Eviction {
        /// UID of the pod.
        pod: String,
        /// The API's words when it was refused, by a disruption budget for one.
        refused: Option<String>,
    },
    /// An eviction (of this UID) was not sent: another one for the same gang was refused.
    NotEvicted(String),
}

/// How the Binding of one pod ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// UID of the pod.
    pub pod: String,
    /// How.
    pub result: BindResult,
    /// Nothing of the decision was sent, because a target had changed: decide again.
    pub stale: bool,
    /// Nothing of the decision was sent, because this pod's claims did not get their volumes on this node.
    pub unprepared: bool,
}

struct Job {
    at: usize,
    group: Arc<Flight>,
}

impl Job {
    fn placement(&self) -> Option<&Placement> {
        self.group.decision.placements.get(self.at)
    }
}

/// What the Bindings of one decision share.
struct Flight {
    decision: Decision,
    mark: String,
    handwritten: bool,
    cancelled: AtomicBool,
    /// Whether a target had changed before the first Binding left; unset until that is known.
    stale: OnceLock<Option<String>>,
    decided: Instant,
}

/// Evictions for one gang in flight: after a refusal few more have left.
const EVICTIONS_AT_A_TIME: usize = 8;

/// What an eviction needs.
struct Evictor {
    sender: Sender,
    results: mpsc::UnboundedSender<Told>,
    metrics: Arc<Metrics>,
}

impl Evictor {
    /// True when the API took it.
    async fn evict(&self, victim: Victim) -> bool {
        let refused = self.sender.evict(&victim).await;
        let accepted = refused.is_none();
        self.metrics.evictions.with_label_values(&[if accepted { "accepted" } else { "refused" }]).inc();
        // A closed channel means that the process ends.
        let _closed = self.results.send(Told::Eviction { pod: victim.pod_uid, refused }).is_err();
        accepted
    }

    async fn make_room(self, victims: Vec<Victim>) {
        let refused = AtomicBool::new(false);
        let (evictor, refused) = (&self, &refused);
        let evictions = victims.into_iter().map(|victim| async move {
            if refused.load(Ordering::Acquire) {
                evictor.metrics.evictions.with_label_values(&["dropped"]).inc();
                let _closed = evictor.results.send(Told::NotEvicted(victim.pod_uid)).is_err();
            } else if !evictor.evict(victim).await {
                refused.store(true, Ordering::Release);
            }
        });
        futures::stream::iter(evictions).buffer_unordered(EVICTIONS_AT_A_TIME).collect::<()>().await;
    }
}

/// The binder.
pub struct Binder {
    sender: Sender,
    results: mpsc::UnboundedSender<Told>,
    directory: SharedDirectory,
    metrics: Arc<Metrics>,
    concurrency: usize,
    volume_timeout: Duration,
}

impl Binder {
    /// `results` hears one event per pod; it is unbounded because the loop bounds what is in flight.
    #[must_use]
    pub fn new(
        sender: Sender,
        results: mpsc::UnboundedSender<Told>,
        directory: SharedDirectory,
        concurrency: usize,
    ) -> Self {
        let metrics = Arc::clone(&sender.metrics);
        let volume_timeout = DEFAULT_VOLUME_TIMEOUT;
        Self { sender, results, directory, metrics, concurrency: concurrency.max(1), volume_timeout }
    }

    /// How long the claims of a gang may take to be bound.
    #[must_use]
    pub fn volume_timeout(mut self, timeout: Duration) -> Self {
        self.volume_timeout = timeout;
        self
    }

    /// Works until `commands` closes, then finishes what is in flight, and the rest of the gangs that are. Whether all that was
    /// sent came to an end.
    pub async fn run(self, mut commands: mpsc::UnboundedReceiver<Command>) -> bool {
        let mut queue: VecDeque<Job> = VecDeque::new();
        let mut running: JoinSet<()> = JoinSet::new();
        // Gangs whose claims wait for volumes: minutes, maybe, and no request in flight. A stop leaves them as they are.
        let mut preparing: JoinSet<Vec<Job>> = JoinSet::new();
        let mut open = true;
        let mut deadline = None;
        while open || !running.is_empty() || !queue.is_empty() {
            while running.len() < self.concurrency {
                let Some(job) = queue.pop_front() else { break };
                self.start(job, &mut running);
            }
            let stop = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                command = commands.recv(), if open => match command {
                    Some(Command::Bind { decision, mark, handwritten }) if volumes::needed(&decision) => {
                        preparing.spawn(self.prepare(*decision, mark, handwritten));
                    }
                    Some(command) => self.take(command, &mut queue, &mut running),
                    None => {
                        open = false;
                        deadline = Some(tokio::time::Instant::now() + STOP_PATIENCE);
                        let wanted = queue.len();
                        // A gang of which nothing left yet is the next process's; of the others all pods are bound.
                        queue.retain(|job| job.group.stale.get().is_some());
                        let (unsent, dropped) = (queue.len(), wanted - queue.len());
                        info!(in_flight = running.len(), unsent, dropped, "stopping: gangs under way are finished");
                    }
                },
                Some(_) = running.join_next() => {}
                Some(prepared) = preparing.join_next(), if open => queue.extend(prepared.unwrap_or_default()),
                () = stop => {
                    warn!(in_flight = running.len(), unsent = queue.len(), "stopping without the end of some Bindings");
                    return false;
                }
            }
        }
        true
    }

    fn take(&self, command: Command, queue: &mut VecDeque<Job>, running: &mut JoinSet<()>) {
        match command {
            Command::Bind { decision, mark, handwritten } => queue.extend(jobs(*decision, &mark, handwritten, Instant::now())),
            Command::Evict(victims) => {
                for victim in victims {
                    let evictor = self.evictor();
                    running.spawn(async move { evictor.evict(victim).await; });
                }
            }
            Command::MakeRoom(victims) => {
                let evictor = self.evictor();
                running.spawn(evictor.make_room(victims));
            }
        }
    }

    fn evictor(&self) -> Evictor {
        Evictor { sender: self.sender.clone(), results: self.results.clone(), metrics: Arc::clone(&self.metrics) }
    }

    /// Gets the claims of a decision their volumes; gives its Bindings, or none when that failed.
    fn prepare(&self, decision: Decision, mark: String, handwritten: bool) -> impl Future<Output = Vec<Job>> + use<> {
        let (sender, results, metrics) = (self.sender.clone(), self.results.clone(), Arc::clone(&self.metrics));
        let (timeout, decided) = (self.volume_timeout, Instant::now());
        async move {
            let Err(failed) = volumes::prepare(&sender, &decision, timeout).await else {
                return jobs(decision, &mark, handwritten, decided).collect();
            };
            let text = failed.first().map(|failed| failed.text.clone()).unwrap_or_default();
            warn!(gang = %decision.gang.name, namespace = %decision.gang.namespace, text, "volumes not ready; the gang is given up for now");
            for placement in decision.placements {
                metrics.bindings.with_label_values(&["transient"]).inc();
                let unprepared = failed.iter().any(|failed| failed.pod_uid == placement.pod_uid);
                let result = BindResult::Transient(text.clone());
                // A closed channel means that the process ends.
                let ended = Ended { pod: placement.pod_uid, result, stale: false, unprepared };
                let _closed = results.send(Told::Binding(ended)).is_err();
            }
            Vec::new()
        }
    }

    /// What changed since the decision, if anything did; looked up once, before the first Binding.
    fn stale(&self, flight: &Flight) -> Option<String> {
        let look = || {
            let why = self.directory.lock().stale(&flight.decision)?;
            let gang = &flight.decision.gang;
            info!(gang = %gang.name, namespace = %gang.namespace, why, "decision is stale; deciding again");
            Some(why)
        };
        flight.stale.get_or_init(look).clone()
    }

    fn start(&self, job: Job, running: &mut JoinSet<()>) {
        let stale = self.stale(&job.group);
        let (sender, results, metrics) = (self.sender.clone(), self.results.clone(), Arc::clone(&self.metrics));
        running.spawn(async move {
            let Some(placement) = job.placement() else { return };
            let flight = &job.group;
            let is_stale = stale.is_some();
            let result = if let Some(why) = stale {
                BindResult::Transient(why)
            } else if flight.cancelled.load(Ordering::Acquire) {
                BindResult::Transient("another pod of the gang was refused".to_owned())
            } else {
                sender.bind(placement, &flight.decision.gang.name, &flight.mark, flight.handwritten).await
            };
            let label = match &result {
                BindResult::Bound => "bound",
                BindResult::Transient(_) if is_stale => "stale",
                BindResult::Transient(_) => "transient",
                BindResult::Permanent(_) => "refused",
                BindResult::Unknown(_) => "unknown",
            };
            if let BindResult::Permanent(text) = &result {
                flight.cancelled.store(true, Ordering::Release);
                warn!(pod = %placement.pod.name, namespace = %placement.pod.namespace, node = %placement.node, text, "Binding refused");
            }
            metrics.bindings.with_label_values(&[label]).inc();
            metrics.binding_ended(flight.decided.elapsed());
            // A closed channel means that the process ends.
            let ended = Ended { pod: placement.pod_uid.clone(), result, stale: is_stale, unprepared: false };
            let _closed = results.send(Told::Binding(ended)).is_err();
        });
    }
}

fn jobs(decision: Decision, mark: &str, handwritten: bool, decided: Instant) -> impl Iterator<Item = Job> {
    let group = Arc::new(Flight {
        mark: format!("{mark}/{}", decision.placements.len()),
        decision,
        handwritten,
        cancelled: AtomicBool::new(false),
        stale: OnceLock::new(),
        decided,
    });
    (0..group.decision.placements.len()).map(move |at| Job { at, group: Arc::clone(&group) })
}

#[cfg(test)]
mod tests;
