//! OUT: Bindings and evictions, many in flight.
//!
//! Guarantees: every Binding carries the pod's UID, so that it can't hit a namesake; a result is told for every pod of a
//! decision, once; what is not known after a time-out or a conflict is read, not guessed; after a permanent refusal
//! nothing more of the decision is sent. It decides nothing: what follows from a result is the loop's business.

mod request;
mod volumes;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use berth_engine::facts::{BindResult, Event};
use berth_engine::outcome::{Decision, Placement};
use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::telemetry::Metrics;
pub use request::Victim;
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
    /// Evict what is bound of a gang that could not be completed.
    Release(Vec<Victim>),
}

struct Job {
    placement: Placement,
    group: Arc<Flight>,
}

/// What the Bindings of one decision share.
struct Flight {
    gang: String,
    mark: String,
    handwritten: bool,
    cancelled: AtomicBool,
    decided: Instant,
}

/// The binder.
pub struct Binder {
    client: Client,
    results: mpsc::UnboundedSender<Event>,
    metrics: Arc<Metrics>,
    concurrency: usize,
    volume_timeout: Duration,
}

impl Binder {
    /// `results` hears one event per pod; it is unbounded because the loop bounds what is in flight.
    #[must_use]
    pub fn new(client: Client, results: mpsc::UnboundedSender<Event>, metrics: Arc<Metrics>, concurrency: usize) -> Self {
        Self { client, results, metrics, concurrency: concurrency.max(1), volume_timeout: DEFAULT_VOLUME_TIMEOUT }
    }

    /// How long the claims of a gang may take to be bound.
    #[must_use]
    pub fn volume_timeout(mut self, timeout: Duration) -> Self {
        self.volume_timeout = timeout;
        self
    }

    /// Works until `commands` closes, then finishes what is in flight.
    pub async fn run(self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut queue: VecDeque<Job> = VecDeque::new();
        let mut running: JoinSet<()> = JoinSet::new();
        // Gangs whose claims wait for volumes: minutes, maybe, and no request in flight. A stop leaves them as they are.
        let mut preparing: JoinSet<Vec<Job>> = JoinSet::new();
        let mut open = true;
        let mut deadline = None;
        while open || !running.is_empty() {
            while open && running.len() < self.concurrency {
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
                        info!(in_flight = running.len(), unsent = queue.len(), "stopping: Bindings under way are finished");
                    }
                },
                Some(_) = running.join_next() => {}
                Some(prepared) = preparing.join_next(), if open => queue.extend(prepared.unwrap_or_default()),
                () = stop => {
                    warn!(in_flight = running.len(), "stopping without the end of some Bindings");
                    return;
                }
            }
        }
    }

    fn take(&self, command: Command, queue: &mut VecDeque<Job>, running: &mut JoinSet<()>) {
        match command {
            Command::Bind { decision, mark, handwritten } => queue.extend(jobs(*decision, &mark, handwritten, Instant::now())),
            Command::Release(victims) => {
                for victim in victims {
                    let (client, metrics) = (self.client.clone(), Arc::clone(&self.metrics));
                    running.spawn(async move { request::evict(&client, &metrics, &victim).await });
                }
            }
        }
    }

    /// Gets the claims of a decision their volumes; gives its Bindings, or none when that failed.
    fn prepare(&self, decision: Decision, mark: String, handwritten: bool) -> impl Future<Output = Vec<Job>> + use<> {
        let (client, results, metrics) = (self.client.clone(), self.results.clone(), Arc::clone(&self.metrics));
        let (timeout, decided) = (self.volume_timeout, Instant::now());
        async move {
            let Err(failed) = volumes::prepare(&client, &metrics, &decision, timeout).await else {
                return jobs(decision, &mark, handwritten, decided).collect();
            };
            let text = failed.first().map(|failed| failed.text.clone()).unwrap_or_default();
            warn!(gang = %decision.gang.name, namespace = %decision.gang.namespace, text, "volumes not ready; the gang is given up for now");
            let failures = failed.into_iter().map(|failed| Event::PreparationFailed(failed.pod_uid, failed.text));
            let ends = decision.placements.into_iter().map(|placement| {
                metrics.bindings.with_label_values(&["transient"]).inc();
                Event::BindEnded(placement.pod_uid, BindResult::Transient(text.clone()))
            });
            for event in failures.chain(ends) {
                // A closed channel means that the process ends.
                let _closed = results.send(event).is_err();
            }
            Vec::new()
        }
    }

    fn start(&self, job: Job, running: &mut JoinSet<()>) {
        let (client, results, metrics) = (self.client.clone(), self.results.clone(), Arc::clone(&self.metrics));
        running.spawn(async move {
            let uid = job.placement.pod_uid.clone();
            let result = if job.group.cancelled.load(Ordering::Acquire) {
                BindResult::Transient("another pod of the gang was refused".to_owned())
            } else {
                let flight = &job.group;
                request::bind(&client, &metrics, &job.placement, &flight.gang, &flight.mark, flight.handwritten).await
            };
            let label = match &result {
                BindResult::Bound => "bound",
                BindResult::Transient(_) => "transient",
                BindResult::Permanent(_) => "refused",
                BindResult::Unknown(_) => "unknown",
            };
            if let BindResult::Permanent(text) = &result {
                job.group.cancelled.store(true, Ordering::Release);
                warn!(pod = %job.placement.pod.name, namespace = %job.placement.pod.namespace, node = %job.placement.node, text, "Binding refused");
            }
            metrics.bindings.with_label_values(&[label]).inc();
            metrics.binding_seconds.observe(job.group.decided.elapsed().as_secs_f64());
            // A closed channel means that the process ends.
            let _closed = results.send(Event::BindEnded(uid, result)).is_err();
        });
    }
}

fn jobs(decision: Decision, mark: &str, handwritten: bool, decided: Instant) -> impl Iterator<Item = Job> {
    let group = Arc::new(Flight {
        mark: format!("{mark}/{}", decision.placements.len()),
        gang: decision.gang.name.clone(),
        handwritten,
        cancelled: AtomicBool::new(false),
        decided,
    });
    decision.placements.into_iter().map(move |placement| Job { placement, group: Arc::clone(&group) })
}
