//! Logs and metrics. Every metric Berth exports is declared here, in one table; nothing else names one.
//!
//! Logs carry a constant message and fields, so that they can be counted and searched.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use prometheus::{
    Encoder, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
};
use tracing_subscriber::EnvFilter;

/// Seconds: from a fraction of a millisecond (one pass) to minutes (a gang that waits).
const SECONDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Everything that is measured. Labels have few, fixed values: no object names.
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
    /// Search steps.
    pub search_steps: IntCounter,
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
    /// Requests sent to the API server other than reads of watches, by verb.
    pub api_requests: IntCounterVec,
    /// Gangs that wait.
    pub gangs_pending: IntGauge,
    /// Pods of ours known.
    pub pods: IntGauge,
    /// Writes of statuses, conditions and PodGroups that wait or are under way.
    pub status_waiting: IntGauge,
    /// Status writes that were dropped because the queue was full; they are made again by the next change.
    pub status_dropped: IntCounter,
}

/// A metric, as people look it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its label; empty when it has none.
    pub label: &'static str,
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
        self.put(IntCounter::new(name, help)?, Row { name, kind: "counter", label: "", help })
    }

    fn counter_by(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
    ) -> Result<IntCounterVec, prometheus::Error> {
        self.put(IntCounterVec::new(Opts::new(name, help), &[label])?, Row { name, kind: "counter", label, help })
    }

    fn gauge(&mut self, name: &'static str, help: &'static str) -> Result<IntGauge, prometheus::Error> {
        self.put(IntGauge::new(name, help)?, Row { name, kind: "gauge", label: "", help })
    }

    fn seconds(&mut self, name: &'static str, help: &'static str) -> Result<Histogram, prometheus::Error> {
        let options = HistogramOpts::new(name, help).buckets(SECONDS.to_vec());
        self.put(Histogram::with_opts(options)?, Row { name, kind: "histogram", label: "", help })
    }
}

impl Metrics {
    /// A registry of its own with every metric.
    pub fn new() -> Result<Self, prometheus::Error> {
        let mut t = Table::default();
        Ok(Self {
            events: t.counter("berth_events_total", "Events applied to the model of the cluster")?,
            events_rejected: t.counter("berth_events_rejected_total", "Events that the model could not use")?,
            objects_skipped: t.counter_by("berth_objects_skipped_total", "Objects that could not be read", "kind")?,
            watch_errors: t.counter_by("berth_watch_errors_total", "Errors of watches", "kind")?,
            passes: t.counter("berth_passes_total", "Passes of the engine")?,
            pass_seconds: t.seconds("berth_pass_seconds", "Time of one pass of the engine")?,
            search_steps: t.counter("berth_search_steps_total", "Steps of the placement search")?,
            gangs_decided: t.counter("berth_gangs_decided_total", "Placements decided, one a gang")?,
            bindings: t.counter_by("berth_bindings_total", "Bindings that ended, by result", "result")?,
            binding_seconds: t.seconds("berth_binding_seconds", "Time from decision to the end of a Binding")?,
            bindings_in_flight: t.gauge("berth_bindings_in_flight", "Bindings decided and not yet ended")?,
            gangs_released: t.counter("berth_gangs_released_total", "Gangs released after refused Bindings")?,
            gangs_evicted: t.counter("berth_gangs_evicted_total", "Gangs evicted because they ran below their minimum for too long")?,
            evictions: t.counter_by("berth_evictions_total", "Evictions that ended, by result", "result")?,
            api_requests: t.counter_by("berth_api_requests_total", "Writes and single reads sent to the API server", "verb")?,
            gangs_pending: t.gauge("berth_gangs_pending", "Gangs that wait for a place")?,
            pods: t.gauge("berth_pods", "Pods that ask for this scheduler")?,
            status_waiting: t.gauge("berth_status_waiting", "Status writes that wait or are under way")?,
            status_dropped: t.counter("berth_status_dropped_total", "Status writes dropped because too many were waiting")?,
            rows: t.rows,
            registry: {
                #[cfg(target_os = "linux")]
                t.registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
                t.registry
            },
        })
    }

    /// Every metric as a table in Markdown: docs/metrics.md.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = "# Metrics\n\nServed at `/metrics` on `--listen-address`. This page is made by `berth generate metrics-docs`.\n\n\
            | name | type | label | what it says |\n|---|---|---|---|\n"
            .to_owned();
        for Row { name, kind, label, help } in &self.rows {
            text.push_str(&format!("| `{name}` | {kind} | {label} | {help} |\n"));
        }
        text.push_str("\nOn Linux also the customary `process_*`: memory, processor time, open files, start.\n");
        text
    }

    /// The metrics in the text format of Prometheus.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        let mut buffer = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer).into_owned())
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
            assert!(line.starts_with("berth_") || line.starts_with("process_"), "{line}");
        }
    }

    #[test]
    fn the_page_is_made_from_the_table() {
        let metrics = Metrics::new().expect("the table is consistent");
        assert!(metrics.markdown() == include_str!("../../docs/metrics.md"), "run: berth generate metrics-docs > docs/metrics.md");
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
