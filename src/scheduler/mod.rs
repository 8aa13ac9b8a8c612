//! The loop: events in, the engine's pass, decisions out. It owns the model and runs on a thread of its own.
//!
//! Event driven: it wakes for an event, for the moment that the engine asked for, or for the heartbeat. It makes no call
//! to the API. What is in flight is bounded: above the limit it takes events in but does not decide.

pub(crate) mod flights;
pub mod sight;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_engine::check;
use berth_engine::facts::{BindResult, Event, Millis};
use berth_engine::outcome::{Cause, Code, Decision, Eviction, GangReport, GangState, Outcome, PodState, QueueReport, Reason, Victim};
use berth_engine::policy::Policy;
use berth_engine::schedule::schedule;
use berth_engine::world::World;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tracing::{debug, error, info, warn};

use crate::bind::{Command, Ended, Told};
use crate::clock::now_millis;
use crate::cluster::directory::SharedDirectory;
use crate::http::Health;
use crate::status::Writer;
use crate::telemetry::{Metrics, QueueRow, STALE_GANGS};
use flights::{Flights, How};
use sight::{Ask, Window};

/// Events between the store and the engine; a full queue slows the watches down.
pub const EVENT_QUEUE: usize = 16_384;

/// Events taken in before the next pass: enough to swallow a burst, few enough to decide within a fraction of a second.
const MAX_BATCH: usize = 4_096;

/// Bindings in flight above which nothing more is decided: seconds of work for any API server.
const MAX_IN_FLIGHT: usize = 20_000;

/// The loop turns at least this often.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Unusable events that are told apart: more than a person would read.
const MAX_REJECTED: usize = 10_000;

/// [`HEARTBEAT`] in the engine's unit.
const HEARTBEAT_MILLIS: Millis = 1_000;

/// Queues are told what they use this often, and only when it changed: pods come and go by the hundred in a second.
const QUEUE_PERIOD_MILLIS: Millis = 5_000;

/// Turns of the heartbeat between two counts of all pending gangs, which read every gang.
const TURNS_PER_COUNT: u64 = 10;

/// What wakes the loop.
enum Input {
    Event(Event),
    Told(Told),
}

/// The engine thread.
pub struct Scheduler {
    world: World,
    policy: Policy,
    events: mpsc::Receiver<Event>,
    results: mpsc::UnboundedReceiver<Told>,
    binder: Option<mpsc::UnboundedSender<Command>>,
    writer: Writer,
    directory: SharedDirectory,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    flights: Flights,
    window: Window,
    /// Gangs with a new pod or a new PodGroup object: what was found out about them before is to be written there, too.
    joined: BTreeSet<String>,
    /// What was said of events that the model could not use: each is logged once.
    rejected: BTreeSet<String>,
    synced: bool,
    looked_back: bool,
    wakeup: Option<Millis>,
    turns: u64,
    sample: Sample,
    /// Reports of queues as last told.
    queues: BTreeMap<String, QueueReport>,
    queues_told: Millis,
    /// Start of the process: makes decision marks unique over restarts.
    epoch: Millis,
}

/// Which answers are checked: a count, no clock.
#[derive(Debug, Default)]
struct Sample {
    /// Every so many-th; 0 is none.
    every: u64,
    /// Answers until the next.
    left: u64,
}

impl Sample {
    /// Counts these answers; true when one of them is to be checked.
    fn is_due(&mut self, answers: u64) -> bool {
        let is_due = self.every > 0 && answers > self.left;
        self.left = if is_due { self.every.saturating_sub(1) } else { self.left.saturating_sub(answers) };
        is_due
    }
}

/// What the loop is joined to.
pub struct Wiring {
    /// From the store.
    pub events: mpsc::Receiver<Event>,
    /// From the binder.
    pub results: mpsc::UnboundedReceiver<Told>,
    /// To the binder.
    pub binder: mpsc::UnboundedSender<Command>,
    /// To the API.
    pub writer: Writer,
    /// Who is in which gang.
    pub directory: SharedDirectory,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Heartbeat.
    pub health: Arc<Health>,
    /// Who may look at the model.
    pub window: Window,
}

impl Scheduler {
    /// A loop with an empty model.
    #[must_use]
    pub fn new(policy: Policy, wiring: Wiring) -> Self {
        Self {
            world: World::new(),
            policy,
            events: wiring.events,
            results: wiring.results,
            binder: Some(wiring.binder),
            writer: wiring.writer,
            directory: wiring.directory,
            metrics: wiring.metrics,
            health: wiring.health,
            flights: Flights::default(),
            window: wiring.window,
            joined: BTreeSet::new(),
            rejected: BTreeSet::new(),
            synced: false,
            looked_back: false,
            wakeup: None,
            turns: 0,
            sample: Sample::default(),
            queues: BTreeMap::new(),
            queues_told: 0,
            epoch: now_millis(),
        }
    }

    /// Has every so many-th answer checked from the facts (0: none), with all others of its pass.
    #[must_use]
    pub fn check_every(mut self, answers: u64) -> Self {
        self.sample = Sample { every: answers, left: 0 };
        self
    }

    /// Runs until told to stop. Call it on a thread that may block.
    pub fn run(mut self, handle: &Handle, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            let Some(batch) = handle.block_on(self.next_batch(&mut stop)) else { break };
            let now = now_millis();
            self.health.beat(now);
            for input in batch {
                match input {
                    Input::Event(event) => self.take(event, now),
                    Input::Told(Told::Binding(ended)) => self.binding_ended(ended, now),
                    Input::Told(Told::NotEvicted(pod)) => self.apply(Event::EvictDropped(pod), now),
                    Input::Told(Told::Eviction { pod, refused: None }) => self.apply(Event::EvictAccepted(pod), now),
                    Input::Told(Told::Eviction { pod, refused: Some(text) }) => {
                        self.apply(Event::EvictRefused(pod, text), now);
                    }
                }
            }
            if *stop.borrow() {
                break;
            }
            self.turn(now);
            // Those that came meanwhile; the first one alone may cost a copy.
            while let Some(ask) = self.window.next() {
                self.show(ask);
            }
        }
        // Dropping the sender tells the binder to finish what is under way.
        self.binder = None;
        info!("engine stopped");
    }

    /// Waits for something to do and takes what is there. `None` ends the loop.
    async fn next_batch(&mut self, stop: &mut watch::Receiver<bool>) -> Option<Vec<Input>> {
        let asked = self.wakeup.map(|at| Duration::from_millis(u64::try_from(at - now_millis()).unwrap_or(0)));
        let wait = asked.unwrap_or(HEARTBEAT).clamp(Duration::from_millis(1), HEARTBEAT);
        let end = tokio::time::Instant::now() + wait;
        let first = loop {
            let ask = tokio::select! {
                biased;
                _ = stop.changed() => return None,
                result = self.results.recv() => break Some(Input::Told(result?)),
                event = self.events.recv() => break Some(Input::Event(event?)),
                () = tokio::time::sleep_until(end) => break None,
                // Work comes before questions, and a question makes no turn.
                ask = self.window.asked() => ask,
            };
            self.show(ask);
        };
        let mut batch: Vec<Input> = first.into_iter().collect();
        while batch.len() < MAX_BATCH {
            let ended = self.results.try_recv().map(Input::Told);
            let Ok(input) = ended.or_else(|_| self.events.try_recv().map(Input::Event)) else { break };
            batch.push(input);
        }
        Some(batch)
    }

    /// Shows the model to who asks.
    fn show(&mut self, ask: Ask) {
        if let Some(millis) = self.window.answer(ask, &self.world, &self.policy, now_millis()) {
            self.metrics.copy_seconds.observe(millis / 1000.0);
        }
    }

    fn take(&mut self, event: Event, now: Millis) {
        if event == Event::Synced {
            self.synced = true;
            self.health.set_synced();
            info!(pods = self.metrics.pods.get(), "initial lists are complete; deciding");
        }
        let pod = match &event {
            Event::PodUpsert(facts) => Some(facts.uid.clone()),
            Event::PodDelete(uid) => Some(uid.clone()),
            _ => None,
        };
        let held = |world: &World| pod.as_deref().and_then(|uid| world.live_place(uid));
        let before = held(&self.world);
        let is_new = pod.as_deref().is_some_and(|uid| self.world.pod_state(uid).is_none());
        if let Event::GangUpsert(facts) = &event {
            self.joined.insert(facts.uid.clone());
        }
        self.apply(event, now);
        let after = held(&self.world);
        if is_new {
            self.joined.extend(pod.as_deref().and_then(|uid| self.world.gang_of_pod(uid)));
        }
        if before != after {
            // A pod came to a node, left it or is over: `bound` of its gang is another by now.
            for (gang, _) in [before, after].into_iter().flatten() {
                self.flights.touch(gang);
            }
        }
    }

    fn binding_ended(&mut self, ended: Ended, now: Millis) {
        let refusal = match &ended.result {
            BindResult::Bound => None,
            BindResult::Transient(text) | BindResult::Permanent(text) | BindResult::Unknown(text) => Some(text.clone()),
        };
        let how = match &refusal {
            None => How::Bound,
            Some(_) if ended.stale => How::Stale,
            Some(_) => How::Refused,
        };
        let waits = self.flights.ended(&ended.pod, how);
        if let (true, BindResult::Transient(text)) = (ended.unprepared, &ended.result) {
            self.apply(Event::PreparationFailed(ended.pod.clone(), text.clone()), now);
        }
        self.apply(Event::BindEnded(ended.pod, ended.result), now);
        if let (Some(gang), Some(text)) = (waits, refusal) {
            let until = self.flights.back_off(&gang, now);
            self.apply(Event::Backoff(gang, until, text), now);
        }
    }

    fn apply(&mut self, event: Event, now: Millis) {
        self.metrics.events.inc();
        if let Err(rejected) = self.world.apply(event, now) {
            self.metrics.events_rejected.inc();
            let what = format!("{}|{}|{}", rejected.object, rejected.field, rejected.message);
            if self.rejected.len() < MAX_REJECTED && self.rejected.insert(what) {
                warn!(object = %rejected.object, field = %rejected.field, message = %rejected.message, "event not usable");
            }
        }
    }

    /// One turn: settle what ended, decide, report.
    fn turn(&mut self, now: Millis) {
        self.turns += 1;
        self.window.tidy(now);
        self.settle(now);
        if self.synced && !self.looked_back {
            self.looked_back = true;
            self.look_back(now);
        }
        if self.synced && self.flights.in_flight() < MAX_IN_FLIGHT {
            self.decide(now);
        }
        for gang in std::mem::take(&mut self.joined) {
            // A gang on its way has nothing to say yet.
            let has_news = |report: &GangReport| report.bound > 0 || !report.reasons.is_empty();
            if self.synced && self.world.gang_report(&gang).as_ref().is_some_and(has_news) {
                self.flights.touch(gang);
            }
        }
        for gang in self.flights.take_reportable() {
            self.report(&gang);
        }
        if self.synced && QUEUE_PERIOD_MILLIS <= now - self.queues_told {
            // Before the first time nothing is known of what queues had.
            let elapsed = if self.queues_told == 0 { 0 } else { now - self.queues_told };
            self.queues_told = now;
            self.report_queues(elapsed);
        }
        self.metrics.bindings_in_flight.set(i64::try_from(self.flights.in_flight()).unwrap_or(i64::MAX));
        if self.turns % TURNS_PER_COUNT == 1 {
            self.count_pending(now);
        }
    }

    /// Counts the gangs that wait, by why and for how long.
    fn count_pending(&self, now: Millis) {
        let reports = self.world.gang_reports();
        let waits = reports.iter().filter(|report| report.pods > report.bound);
        let ages: Vec<(&str, Duration)> = waits
            .map(|report| {
                let created = self.world.gang_created(&report.uid).unwrap_or(now);
                // Without a reason it is about to be placed, or its pods are just arriving.
                (report.reasons.first().map_or("None", Reason::code_name), since(created, now))
            })
            .collect();
        self.metrics.pending(&ages);
    }

    /// One pass of the engine.
    fn decide(&mut self, now: Millis) {
        let started = Instant::now();
        let outcome = schedule(&mut self.world, &self.policy, now);
        self.metrics.passed(started.elapsed());
        self.metrics.search_steps.inc_by(outcome.steps);
        self.wakeup = outcome.next_wakeup;
        self.check(&outcome);
        for decision in outcome.decisions {
            self.hand_over(decision, now);
        }
        let mut for_gangs: BTreeMap<String, Vec<Victim>> = BTreeMap::new();
        for eviction in outcome.evictions {
            self.writer.evicted(&eviction, now);
            self.window.evicted(&eviction);
            match &eviction.cause {
                Cause::Stale(_) => self.give_up(eviction, now),
                Cause::Room(room) => {
                    let (gang, by) = (&eviction.gang, &room.by);
                    info!(
                        gang = %gang.name, namespace = %gang.namespace, pods = eviction.pods.len(), whole = room.whole,
                        action = room.action.name(), by = %by.name, by_namespace = %by.namespace, "evicted to make room",
                    );
                    self.count_evicted(room.action.name(), &eviction.gang_uid, &eviction.pods, now);
                    for_gangs.entry(room.by_uid.clone()).or_default().extend(eviction.pods);
                }
            }
        }
        for victims in for_gangs.into_values() {
            self.make_room(victims, now);
        }
        for gang in outcome.changed {
            self.flights.touch(gang);
        }
    }

    /// Checks the answers of a pass when it is their turn. A wrong one is told; nothing else comes of it.
    fn check(&mut self, outcome: &Outcome) {
        let answers = (outcome.decisions.len() + outcome.changed.len()) as u64;
        if !self.sample.is_due(answers) {
            return;
        }
        let findings = check::pass(&self.world, &self.policy, outcome);
        self.metrics.checks.inc_by(answers);
        self.metrics.checks_undecided.inc_by(u64::from(findings.undecided));
        for fault in findings.faults {
            self.metrics.check_faults.inc();
            error!(gang = %fault.gang.name, namespace = %fault.gang.namespace, fault = ?fault.kind, "the checker refuses an answer of the engine");
        }
    }

    /// A gang that ran below its minimum for too long: all that is left of it goes.
    fn give_up(&mut self, eviction: Eviction, now: Millis) {
        self.metrics.gangs_evicted.inc();
        self.count_evicted(STALE_GANGS, &eviction.gang_uid, &eviction.pods, now);
        let gang = &eviction.gang;
        warn!(gang = %gang.name, namespace = %gang.namespace, pods = eviction.pods.len(), "gang below its minimum for too long; evicted");
        self.evict(eviction.pods, now);
    }

    /// Has pods evicted for one gang: all, or none after the first refusal.
    fn make_room(&mut self, victims: Vec<Victim>, now: Millis) {
        for victim in &victims {
            self.apply(Event::EvictSent(victim.pod_uid.clone()), now);
        }
        if let Some(binder) = &self.binder {
            // A closed channel means that the process ends.
            let _closed = binder.send(Command::MakeRoom(victims)).is_err();
        }
    }

    /// Counts what an action evicts of one gang, with the GPU-hours that are lost.
    fn count_evicted(&self, action: &str, gang: &str, victims: &[Victim], now: Millis) {
        let directory = self.directory.lock();
        let hours = |victim: &Victim| {
            let started = directory.gang(gang)?.members.get(&victim.pod_uid)?.started?;
            Some(self.world.gpu_millis_of_pod(&victim.pod_uid) as f64 / 1000.0 * since(started, now).as_secs_f64() / 3600.0)
        };
        let lost = victims.iter().filter_map(hours).sum();
        self.metrics.evicted(action, victims.len(), lost);
    }

    fn evict(&mut self, victims: Vec<Victim>, now: Millis) {
        for victim in &victims {
            self.apply(Event::EvictSent(victim.pod_uid.clone()), now);
        }
        if let Some(binder) = &self.binder {
            // A closed channel means that the process ends.
            let _closed = binder.send(Command::Evict(victims)).is_err();
        }
    }

    /// Counts a decision, with the time that the gang and its pods waited for it.
    fn count_decided(&self, decision: &Decision, now: Millis) {
        let is_first = self.world.gang_report(&decision.gang_uid).is_some_and(|report| report.bound as usize == decision.placements.len());
        let created = self.world.gang_created(&decision.gang_uid).filter(|_| is_first);
        self.metrics.decided(decision.placements.len(), created.map(|created| since(created, now)));
        let directory = self.directory.lock();
        let Some(entry) = directory.gang(&decision.gang_uid) else { return };
        for member in decision.placements.iter().filter_map(|placement| entry.members.get(&placement.pod_uid)) {
            self.metrics.pod_decided(since(member.created, now));
        }
    }

    fn hand_over(&mut self, decision: Decision, now: Millis) {
        self.count_decided(&decision, now);
        self.window.placed(&decision, now);
        debug!(gang = %decision.gang.name, namespace = %decision.gang.namespace, pods = decision.placements.len(), "decided");
        let pods: Vec<String> = decision.placements.iter().map(|placement| placement.pod_uid.clone()).collect();
        for uid in &pods {
            self.apply(Event::BindSent(uid.clone()), now);
        }
        self.flights.started(&decision.gang_uid, &pods);
        let handwritten = self.directory.lock().gang(&decision.gang_uid).is_some_and(|entry| entry.handwritten);
        let mark = format!("{:x}-{}", self.epoch.max(0), decision.id);
        if let Some(binder) = &self.binder {
            // A closed channel means that the process ends.
            let _closed = binder.send(Command::Bind { decision: Box::new(decision), mark, handwritten }).is_err();
        }
    }

    /// Looks at gangs whose Bindings have ended: all well, or a back-off; and gives up on those that stay half bound.
    fn settle(&mut self, now: Millis) {
        for (gang, refused) in self.flights.take_ended() {
            self.flights.touch(gang.clone());
            let partial = self.world.gang_report(&gang).is_some_and(|report| report.state == GangState::Partial);
            if refused && partial {
                self.flights.half_bound(&gang, now);
            }
        }
        for gang in self.flights.half_bound_gangs() {
            match self.world.gang_report(&gang).map(|report| report.state) {
                Some(GangState::Partial) => {
                    if self.flights.patience_is_over(&gang, now) {
                        self.release(&gang, now);
                    }
                }
                Some(GangState::Placed) => self.flights.whole(&gang),
                Some(GangState::Pending | GangState::Done) | None => self.flights.not_half_bound(&gang),
            }
        }
    }

    /// Gives up a half-bound gang: its bound pods are evicted, and it waits before the next try.
    fn release(&mut self, gang: &str, now: Millis) {
        self.flights.not_half_bound(gang);
        let mut victims = Vec::new();
        let mut kept = 0;
        if let Some(entry) = self.directory.lock().gang(gang) {
            for (uid, member) in entry.members.iter().filter(|(_, member)| member.node.is_some() && !member.leaving) {
                if member.has_controller {
                    victims.push(Victim { pod: member.key.clone(), pod_uid: uid.clone() });
                } else {
                    kept += 1;
                }
            }
        }
        self.metrics.gangs_released.inc();
        let until = self.flights.back_off(gang, now);
        warn!(gang, evicted = victims.len(), without_controller = kept, "half-bound gang released");
        let text = format!("released: only a part of it could be bound ({kept} pods without a controller stay)");
        self.apply(Event::Backoff(gang.to_owned(), until, text), now);
        self.evict(victims, now);
    }

    /// After a start: gangs that an earlier process left half bound come before all others, because their domain is decided
    /// and somebody else could take the room. Those that can't be completed get the same patience as after a refusal.
    fn look_back(&mut self, now: Millis) {
        let half: BTreeSet<String> = {
            let directory = self.directory.lock();
            directory.iter().filter(|(_, entry)| flights::was_left_half_bound(entry)).map(|(uid, _)| uid.clone()).collect()
        };
        let reports = self.world.gang_reports();
        if !half.is_empty() {
            info!(gangs = half.len(), "gangs were left half bound; they come first");
            let others = reports.iter().filter(|report| report.pods > report.bound && !half.contains(&report.uid));
            let others: Vec<String> = others.map(|report| report.uid.clone()).collect();
            let later = now.saturating_add(HEARTBEAT_MILLIS);
            for gang in &others {
                self.apply(Event::Backoff(gang.clone(), later, "half-bound gangs come first".to_owned()), now);
            }
            self.decide(now);
            for gang in others {
                // A moment that is over ends the wait.
                self.apply(Event::Backoff(gang, now, String::new()), now);
            }
            for gang in half {
                if self.world.gang_report(&gang).is_some_and(|report| report.state == GangState::Partial) {
                    self.flights.half_bound(&gang, now);
                }
            }
        }
        // Statuses that the earlier process did not get to write; those that are right cost nothing.
        for report in reports {
            self.flights.touch(report.uid);
        }
    }

    /// Tells what queues use where that changed, and measures them after so many milliseconds.
    fn report_queues(&mut self, elapsed: Millis) {
        let mut reports = BTreeMap::new();
        let told = self.world.queue_reports();
        let rows: Vec<QueueRow> = {
            let directory = self.directory.lock();
            let display = |name: &str| directory.queue(name).map(|queue| queue.display.clone()).unwrap_or_default();
            told.iter().map(|report| QueueRow { name: report.name.clone(), display: display(&report.name), share: report.share.clone() }).collect()
        };
        self.metrics.queues.show(&rows, elapsed);
        for report in told {
            if self.queues.get(&report.name) != Some(&report) {
                self.writer.report_queue(report.clone());
            }
            reports.insert(report.name.clone(), report);
        }
        self.queues = reports;
    }

    fn report(&mut self, gang: &str) {
        let Some(report) = self.world.gang_report(gang) else { return };
        if report.state == GangState::Placed && !report.reasons.first().is_some_and(waits_after_refusal) {
            self.flights.whole(gang);
        }
        let waiting = |uid: &String| matches!(self.world.pod_state(uid), Some((PodState::Pending, _)));
        let pending: BTreeSet<String> = if report.reasons.is_empty() {
            BTreeSet::new()
        } else {
            let directory = self.directory.lock();
            let members = directory.gang(gang).into_iter().flat_map(|entry| entry.members.keys());
            members.filter(|uid| waiting(uid)).cloned().collect()
        };
        self.writer.report(report, &pending);
    }
}

/// The time from a moment of the API server's clock until now, which may be behind it.
fn since(moment: Millis, now: Millis) -> Duration {
    Duration::from_millis(u64::try_from(now.saturating_sub(moment)).unwrap_or(0))
}

/// True when the gang's latest decision came to nothing.
fn waits_after_refusal(reason: &Reason) -> bool {
    matches!(reason.code, Code::BindRefused | Code::VolumesNotReady)
}

#[cfg(test)]
mod tests {
    use super::Sample;

    #[test]
    fn every_so_many_th_answer_is_checked() {
        let mut sample = Sample { every: 3, left: 0 };
        let due: Vec<bool> = [0, 1, 1, 1, 1, 0, 5, 1].into_iter().map(|answers| sample.is_due(answers)).collect();
        assert_eq!(due, [false, true, false, false, true, false, true, false]);
        assert!(!Sample::default().is_due(1_000), "none when none is asked for");
    }
}
