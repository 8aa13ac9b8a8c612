//! Logs and metrics. Every metric Berth exports is declared here, in one table; nothing else names one.
//!
//! Logs carry a constant message and fields, so that they can be counted and searched.

mod queues;
mod topology;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use berth_engine::outcome::Action;
use prometheus::{
    CounterVec, Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry, TextEncoder,
};
use tracing_subscriber::EnvFilter;

pub use queues::QueueRow;
use queues::QueueMetrics;
pub use topology::{Look, TopologyMetrics};

/// Seconds: from a fraction of a millisecond (one pass) to minutes (a gang that waits).
const SECONDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Seconds that work waits: from one (a free cluster) to two weeks.
const WAITS: &[f64] = &[
    1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0, 1_209_600.0,
];

/// KAI Scheduler's milliseconds: 5, doubled up to 2 560.
const MILLISECONDS: &[f64] = &[5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1_280.0, 2_560.0];

/// KAI Scheduler's labels of a queue.
pub(super) const QUEUE_LABELS: [&str; 3] = ["queue_name", "queue_metadata_name", "queue_display_name"];

/// KAI Scheduler's name of the one action that places.
const ALLOCATE: &str = "allocate";

/// KAI Scheduler's name of what happens to gangs that run below their minimum for too long.
pub const STALE_GANGS: &str = "stalegangeviction";

/// Everything that is measured. Labels have few, fixed values: no object names but those of queues that exist.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// All of them, in the order of this table.
    rows: Vec<Row>,
    /// Events applied to the model.
    pub events: IntCounter,
    /// Events that the model refused.
    pub events_rejected: IntCounter,
    /// Objects that could not be read, by kind.
    pub objects_skipped: IntCounterVec,
    /// Watch errors, by kind.
    pub watch_errors: IntCounterVec,
    /// Passes of the engine.
    pub passes: IntCounter,
    /// Time of one pass.
    pub pass_seconds: Histogram,
    /// Time of one copy of the model for those who ask.
    pub copy_seconds: Histogram,
    /// Requests that the HTTP API answered, by status.
    pub answers: IntCounterVec,
    /// Search steps.
    pub search_steps: IntCounter,
    /// Answers checked from the facts.
    pub checks: IntCounter,
    /// Checked answers that could not be judged.
    pub checks_undecided: IntCounter,
    /// Faults that the checker found.
    pub check_faults: IntCounter,
    /// Gangs decided.
    pub gangs_decided: IntCounter,
    /// Bindings that ended, by result.
    pub bindings: IntCounterVec,
    /// Time from the decision to the end of the Binding.
    pub binding_seconds: Histogram,
    /// Bindings between decision and end.
    pub bindings_in_flight: IntGauge,
    /// Gangs released after refused Bindings.
    pub gangs_released: IntCounter,
    /// Gangs given up because they ran below their minimum.
    pub gangs_evicted: IntCounter,
    /// Evictions that ended, by result.
    pub evictions: IntCounterVec,
    /// What was evicted, by action.
    evicted: Evicted,
    /// Queues.
    pub queues: QueueMetrics,
    /// Ages of the gangs that wait now, by reason.
    pending_age: HistogramVec,
    /// Time from a gang's creation to its first decision, by its size.
    time_to_place: HistogramVec,
    /// The last pass, in KAI's words.
    last_pass: (Gauge, GaugeVec),
    /// Time from a pod's creation to its decision.
    task_scheduling: Histogram,
    /// Time from the decision to the end of the Binding, in KAI's words.
    task_bind: Histogram,
    /// Gangs placed, in KAI's words.
    scheduled: IntCounterVec,
    /// Requests sent to the API server other than reads of watches, by verb.
    pub api_requests: IntCounterVec,
    /// Gangs that wait.
    pub gangs_pending: IntGauge,
    /// Pods of ours known.
    pub pods: IntGauge,
    /// Writes of statuses, conditions and PodGroups that wait or are under way.
    pub status_waiting: IntGauge,
    /// Decisions of a dry run, by what became of their pods.
    pub shadow_gangs: IntCounterVec,
    /// 1 while this process decides.
    pub leading: IntGauge,
    /// Rights that are missing.
    pub rights_missing: IntGauge,
    /// Status writes that were dropped because the queue was full; they are made again by the next change.
    pub status_dropped: IntCounter,
}

#[derive(Debug)]
struct Evicted {
    gangs: IntCounterVec,
    pods: IntCounterVec,
    gpu_hours: CounterVec,
}

/// A metric, as people look it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its labels.
    pub labels: Vec<&'static str>,
    /// What it says.
    pub help: &'static str,
}

/// A registry that remembers what was put into it.
#[derive(Default)]
struct Table {
    registry: Registry,
    rows: Vec<Row>,
}

impl Table {
    fn put<M>(&mut self, metric: M, row: Row) -> Result<M, prometheus::Error>
    where
        M: prometheus::core::Collector + Clone + 'static,
    {
        self.registry.register(Box::new(metric.clone()))?;
        self.rows.push(row);
        Ok(metric)
    }

    fn counter(&mut self, name: &'static str, help: &'static str) -> Result<IntCounter, prometheus::Error> {
        self.put(IntCounter::new(name, help)?, Row { name, kind: "counter", labels: Vec::new(), help })
    }

    fn counter_by(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
    ) -> Result<IntCounterVec, prometheus::Error> {
        self.put(IntCounterVec::new(Opts::new(name, help), &[label])?, Row { name, kind: "counter", labels: vec![label], help })
    }

    fn gauge(&mut self, name: &'static str, help: &'static str) -> Result<IntGauge, prometheus::Error> {
        self.put(IntGauge::new(name, help)?, Row { name, kind: "gauge", labels: Vec::new(), help })
    }

    fn seconds(&mut self, name: &'static str, help: &'static str) -> Result<Histogram, prometheus::Error> {
        let options = HistogramOpts::new(name, help).buckets(SECONDS.to_vec());
        self.put(Histogram::with_opts(options)?, Row { name, kind: "histogram", labels: Vec::new(), help })
    }

    fn milliseconds(&mut self, name: &'static str, help: &'static str) -> Result<Histogram, prometheus::Error> {
        let options = HistogramOpts::new(name, help).buckets(MILLISECONDS.to_vec());
        self.put(Histogram::with_opts(options)?, Row { name, kind: "histogram", labels: Vec::new(), help })
    }

    fn waits_by(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
    ) -> Result<HistogramVec, prometheus::Error> {
        let options = HistogramOpts::new(name, help).buckets(WAITS.to_vec());
        self.put(HistogramVec::new(options, &[label])?, Row { name, kind: "histogram", labels: vec![label], help })
    }

    fn float_gauge(&mut self, name: &'static str, help: &'static str) -> Result<Gauge, prometheus::Error> {
        self.put(Gauge::new(name, help)?, Row { name, kind: "gauge", labels: Vec::new(), help })
    }

    fn gauge_by(&mut self, name: &'static str, help: &'static str, labels: &[&'static str]) -> Result<GaugeVec, prometheus::Error> {
        self.put(GaugeVec::new(Opts::new(name, help), labels)?, Row { name, kind: "gauge", labels: labels.to_vec(), help })
    }

    fn float_counter_by(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[&'static str],
    ) -> Result<CounterVec, prometheus::Error> {
        self.put(CounterVec::new(Opts::new(name, help), labels)?, Row { name, kind: "counter", labels: labels.to_vec(), help })
    }
}

impl Metrics {
    /// A registry of its own with every metric.
    pub fn new() -> Result<Self, prometheus::Error> {
        let mut t = Table::default();
        let metrics = Self {
            events: t.counter("berth_events_total", "Events applied to the model of the cluster")?,
            events_rejected: t.counter("berth_events_rejected_total", "Events that the model could not use")?,
            objects_skipped: t.counter_by("berth_objects_skipped_total", "Objects that could not be read", "kind")?,
            watch_errors: t.counter_by("berth_watch_errors_total", "Errors of watches", "kind")?,
            passes: t.counter("berth_passes_total", "Passes of the engine")?,
            pass_seconds: t.seconds("berth_pass_seconds", "Time of one pass of the engine")?,
            copy_seconds: t.seconds("berth_copy_seconds", "Time of one copy of the model for the HTTP API (--api-address)")?,
            answers: t.counter_by("berth_answers_total", "Requests that the HTTP API answered, by status", "code")?,
            search_steps: t.counter("berth_search_steps_total", "Steps of the placement search")?,
            checks: t.counter("berth_checks_total", "Answers of the engine checked from the facts (--check-every)")?,
            checks_undecided: t.counter("berth_checks_undecided_total", "Checked answers that the checker could not judge")?,
            check_faults: t.counter("berth_check_faults_total", "Wrong answers that the checker found: each is a bug")?,
            gangs_decided: t.counter("berth_gangs_decided_total", "Placements decided, one a gang")?,
            bindings: t.counter_by("berth_bindings_total", "Bindings that ended, by result", "result")?,
            binding_seconds: t.seconds("berth_binding_seconds", "Time from decision to the end of a Binding")?,
            bindings_in_flight: t.gauge("berth_bindings_in_flight", "Bindings decided and not yet ended")?,
            gangs_released: t.counter("berth_gangs_released_total", "Gangs released after refused Bindings")?,
            gangs_evicted: t.counter("berth_gangs_evicted_total", "Gangs evicted because they ran below their minimum for too long")?,
            evictions: t.counter_by("berth_evictions_total", "Evictions that ended, by result", "result")?,
            evicted: Evicted {
                gangs: t.counter_by("berth_evicted_gangs_total", "Gangs evicted, in whole or in part, by action", "action")?,
                pods: t.counter_by("kai_pod_group_evicted_pods_total", "Pods evicted, by action; unlike in KAI Scheduler not by gang", "action")?,
                gpu_hours: t.float_counter_by("berth_evicted_gpu_hours_total", "GPU-hours that evicted pods had run for, by action", &["action"])?,
            },
            pending_age: t.waits_by("berth_pending_age_seconds", "Ages of the gangs that wait now, by the code of the reason; a snapshot, not a sum over time", "reason")?,
            time_to_place: t.waits_by("berth_time_to_place_seconds", "Time from the creation of a gang to the decision for its minimum, by the number of pods in it", "pods")?,
            last_pass: (
                t.float_gauge("kai_e2e_scheduling_latency_milliseconds", "Time of the last pass of the engine")?,
                t.gauge_by("kai_action_scheduling_latency_milliseconds", "Time of the last pass, which is one action", &["action"])?,
            ),
            task_scheduling: t.milliseconds("kai_task_scheduling_latency_milliseconds", "Time from the creation of a pod to the decision for it")?,
            task_bind: t.milliseconds("kai_task_bind_latency_milliseconds", "Time from the decision for a pod to the end of its Binding")?,
            scheduled: t.counter_by("kai_podgroups_scheduled_by_action", "Placements decided, one a gang, by action", "action")?,
            queues: QueueMetrics::new(&mut t)?,
            api_requests: t.counter_by("berth_api_requests_total", "Writes and single reads sent to the API server", "verb")?,
            gangs_pending: t.gauge("berth_gangs_pending", "Gangs that wait for a place")?,
            pods: t.gauge("berth_pods", "Pods that ask for this scheduler")?,
            status_waiting: t.gauge("berth_status_waiting", "Status writes that wait or are under way")?,
            shadow_gangs: t.counter_by("berth_dry_run_gangs_total", "Gangs that a dry run would have placed, against where another scheduler put them: better, same, worse, gone", "verdict")?,
            leading: t.gauge("berth_leading", "1 while this process decides, 0 while it stands by")?,
            rights_missing: t.gauge("berth_rights_missing", "Rights of `berth generate rbac` that the account does not have, as seen at the start")?,
            status_dropped: t.counter("berth_status_dropped_total", "Status writes dropped because too many were waiting")?,
            rows: t.rows,
            registry: with_process(t.registry)?,
        };
        metrics.show_zeros();
        Ok(metrics)
    }

    /// What is counted by a label whose values are known is there from the start: a rate needs the zero before the first one.
    fn show_zeros(&self) {
        for result in ["bound", "stale", "transient", "refused", "unknown"] {
            self.bindings.with_label_values(&[result]);
        }
        for result in ["accepted", "refused", "dropped"] {
            self.evictions.with_label_values(&[result]);
        }
        for action in [Action::Preempt.name(), Action::Reclaim.name(), STALE_GANGS] {
            self.evicted.gangs.with_label_values(&[action]);
            self.evicted.pods.with_label_values(&[action]);
            self.evicted.gpu_hours.with_label_values(&[action]);
        }
        self.scheduled.with_label_values(&[ALLOCATE]);
        for verb in ["bind", "create_event", "create_podgroup", "evict", "get", "patch_podgroup_status", "patch_queue_status", "patch_pod_status"] {
            self.api_requests.with_label_values(&[verb]);
        }
    }

    /// A pass took so long.
    pub fn passed(&self, took: Duration) {
        self.passes.inc();
        self.pass_seconds.observe(took.as_secs_f64());
        let millis = took.as_secs_f64() * 1000.0;
        self.last_pass.0.set(millis);
        self.last_pass.1.with_label_values(&[ALLOCATE]).set(millis);
    }

    /// A placement of so many pods was decided; for the first one of a gang, so long after its creation.
    pub fn decided(&self, pods: usize, first_after: Option<Duration>) {
        self.gangs_decided.inc();
        self.scheduled.with_label_values(&[ALLOCATE]).inc();
        if let Some(waited) = first_after {
            self.time_to_place.with_label_values(&[size_class(pods)]).observe(waited.as_secs_f64());
        }
    }

    /// A pod was decided so long after its creation.
    pub fn pod_decided(&self, waited: Duration) {
        self.task_scheduling.observe(waited.as_secs_f64() * 1000.0);
    }

    /// A Binding ended so long after its decision.
    pub fn binding_ended(&self, took: Duration) {
        self.binding_seconds.observe(took.as_secs_f64());
        self.task_bind.observe(took.as_secs_f64() * 1000.0);
    }

    /// Pods of one gang are evicted by this action, which had run for so many GPU-hours together.
    pub fn evicted(&self, action: &str, pods: usize, gpu_hours: f64) {
        self.evicted.gangs.with_label_values(&[action]).inc();
        self.evicted.pods.with_label_values(&[action]).inc_by(pods as u64);
        self.evicted.gpu_hours.with_label_values(&[action]).inc_by(gpu_hours.max(0.0));
    }

    /// All gangs that wait now: the code of the reason, and for how long.
    pub fn pending(&self, waits: &[(&str, Duration)]) {
        self.gangs_pending.set(i64::try_from(waits.len()).unwrap_or(i64::MAX));
        self.pending_age.reset();
        for (reason, age) in waits {
            self.pending_age.with_label_values(&[reason]).observe(age.as_secs_f64());
        }
    }

    /// Every metric as a table in Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = "# Metrics\n\nServed at `/metrics` on `--listen-address`. This page is made by `berth generate metrics-docs`.\n\n".to_owned();
        text += &table(&self.rows);
        text.push_str("\nOn Linux also the customary `process_*`: memory, processor time, open files, start.\n");
        text
    }

    /// The metrics in the text format of Prometheus.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        rendered(&self.registry)
    }
}

/// The registry with what is customary about the process itself, where that can be read.
fn with_process(registry: Registry) -> Result<Registry, prometheus::Error> {
    #[cfg(target_os = "linux")]
    registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
    Ok(registry)
}

/// Everything in a registry, in the text format of Prometheus.
fn rendered(registry: &Registry) -> Result<String, prometheus::Error> {
    let mut buffer = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer).into_owned())
}

/// Metrics as a table in Markdown.
fn table(rows: &[Row]) -> String {
    let mut text = "| name | type | labels | what it says |\n|---|---|---|---|\n".to_owned();
    for Row { name, kind, labels, help } in rows {
        text.push_str(&format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", ")));
    }
    text
}

/// The page docs/metrics.md: metrics of `berth run`, and of `berth topology run`.
#[must_use]
pub fn metrics_page(metrics: &Metrics, topology: &TopologyMetrics) -> String {
    let mut text = metrics.markdown();
    text += "\n## `berth topology run`\n\nServed at `/metrics` on `--metrics-address`, when that is given; with `process_*` too.\n\n";
    text + &table(topology.rows())
}

/// Gangs of a like number of pods.
fn size_class(pods: usize) -> &'static str {
    match pods {
        0 | 1 => "1",
        2..=8 => "2-8",
        9..=64 => "9-64",
        65..=512 => "65-512",
        _ => "513+",
    }
}

/// Trouble that goes on is logged this often.
const COMPLAINT_PERIOD: Duration = Duration::from_secs(60);

/// Trouble that goes on: told at once, then now and then, and when it is over.
#[derive(Debug, Default)]
pub struct Complaint {
    told: Option<Instant>,
    errors: u64,
}

impl Complaint {
    /// An error at this moment: how many there were since the last success, when it is time to tell.
    pub fn error(&mut self, now: Instant) -> Option<u64> {
        self.errors = self.errors.saturating_add(1);
        if self.told.is_some_and(|told| now.duration_since(told) < COMPLAINT_PERIOD) {
            return None;
        }
        self.told = Some(now);
        Some(self.errors)
    }

    /// All is well: how many errors there were, if any.
    pub fn over(&mut self) -> Option<u64> {
        self.told.take().map(|_| std::mem::take(&mut self.errors))
    }
}

/// Starts logging to stderr; `RUST_LOG` overrides the level (default `info`).
pub fn start_logging(json: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,kube_client=error,kube_runtime=error"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(std::io::stderr().is_terminal()).with_writer(std::io::stderr);
    // A second call (tests) keeps the first subscriber.
    let _already_started = if json { builder.json().try_init().is_err() } else { builder.try_init().is_err() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_the_prefix_and_renders() {
        let metrics = Metrics::new().expect("the table is consistent");
        metrics.events.inc();
        let text = metrics.render().expect("renders");
        assert!(text.contains("berth_events_total 1"));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert!(["berth_", "kai_", "process_"].iter().any(|prefix| line.starts_with(prefix)), "{line}");
        }
    }

    #[test]
    fn what_waits_now_is_a_snapshot() {
        let metrics = Metrics::new().expect("the table is consistent");
        let hour = Duration::from_secs(3_600);
        metrics.pending(&[("NotEnoughRoom", hour), ("NotEnoughRoom", hour * 30), ("QueueNotFound", hour)]);
        metrics.pending(&[("NotEnoughRoom", hour * 2)]);
        metrics.decided(4, Some(Duration::from_secs(70)));
        metrics.decided(4, None);
        metrics.evicted("stalegangeviction", 8, 2.5);
        let text = metrics.render().expect("renders");
        for line in [
            "berth_gangs_pending 1",
            "berth_pending_age_seconds_count{reason=\"NotEnoughRoom\"} 1",
            "berth_pending_age_seconds_sum{reason=\"NotEnoughRoom\"} 7200",
            "berth_time_to_place_seconds_count{pods=\"2-8\"} 1",
            "berth_time_to_place_seconds_bucket{pods=\"2-8\",le=\"60\"} 0",
            "kai_podgroups_scheduled_by_action{action=\"allocate\"} 2",
            "kai_pod_group_evicted_pods_total{action=\"stalegangeviction\"} 8",
            "berth_evicted_gangs_total{action=\"stalegangeviction\"} 1",
            "berth_evicted_gpu_hours_total{action=\"stalegangeviction\"} 2.5",
        ] {
            assert!(text.lines().any(|other| other == line), "no {line} in {text}");
        }
        assert!(!text.contains("QueueNotFound"), "a reason that nobody waits for any more stays");
    }

    #[test]
    fn the_page_is_made_from_the_table() {
        let metrics = Metrics::new().expect("the table is consistent");
        let topology = TopologyMetrics::new().expect("the table is consistent");
        assert!(metrics_page(&metrics, &topology) == include_str!("../../docs/metrics.md"), "run: berth generate metrics-docs > docs/metrics.md");
    }

    #[test]
    fn an_error_that_goes_on_is_told_now_and_then() {
        let mut complaint = Complaint::default();
        let start = Instant::now();
        assert_eq!(complaint.over(), None);
        assert_eq!(complaint.error(start), Some(1));
        let told: Vec<u64> = (1..120).filter_map(|second| complaint.error(start + Duration::from_secs(second))).collect();
        assert_eq!(told, [61], "two minutes of an error every second");
        assert_eq!((complaint.over(), complaint.over()), (Some(120), None));
        assert_eq!(complaint.error(start), Some(1), "a new trouble is told at once");
    }
}
