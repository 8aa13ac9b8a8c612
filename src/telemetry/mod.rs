//! Logs and metrics. Every metric Berth exports is declared here, in one table; nothing else names one.
//!
//! Logs carry a constant message and fields, so that they can be counted and searched.

use std::io::IsTerminal;

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

fn counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
    let metric = IntCounter::new(name, help)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn counter_by(registry: &Registry, name: &str, help: &str, label: &str) -> Result<IntCounterVec, prometheus::Error> {
    let metric = IntCounterVec::new(Opts::new(name, help), &[label])?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
    let metric = IntGauge::new(name, help)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn seconds(registry: &Registry, name: &str, help: &str) -> Result<Histogram, prometheus::Error> {
    let metric = Histogram::with_opts(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()))?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

impl Metrics {
    /// A registry of its own with every metric.
    pub fn new() -> Result<Self, prometheus::Error> {
        let r = Registry::new();
        #[cfg(target_os = "linux")]
        r.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        Ok(Self {
            events: counter(&r, "berth_events_total", "Events applied to the model of the cluster")?,
            events_rejected: counter(&r, "berth_events_rejected_total", "Events that the model could not use")?,
            objects_skipped: counter_by(&r, "berth_objects_skipped_total", "Objects that could not be read", "kind")?,
            watch_errors: counter_by(&r, "berth_watch_errors_total", "Errors of watches", "kind")?,
            passes: counter(&r, "berth_passes_total", "Passes of the engine")?,
            pass_seconds: seconds(&r, "berth_pass_seconds", "Time of one pass of the engine")?,
            search_steps: counter(&r, "berth_search_steps_total", "Steps of the placement search")?,
            gangs_decided: counter(&r, "berth_gangs_decided_total", "Placements decided, one a gang")?,
            bindings: counter_by(&r, "berth_bindings_total", "Bindings that ended, by result", "result")?,
            binding_seconds: seconds(&r, "berth_binding_seconds", "Time from decision to the end of a Binding")?,
            bindings_in_flight: gauge(&r, "berth_bindings_in_flight", "Bindings decided and not yet ended")?,
            gangs_released: counter(&r, "berth_gangs_released_total", "Gangs released after refused Bindings")?,
            api_requests: counter_by(&r, "berth_api_requests_total", "Writes and single reads sent to the API server", "verb")?,
            gangs_pending: gauge(&r, "berth_gangs_pending", "Gangs that wait for a place")?,
            pods: gauge(&r, "berth_pods", "Pods that ask for this scheduler")?,
            status_waiting: gauge(&r, "berth_status_waiting", "Status writes that wait or are under way")?,
            status_dropped: counter(&r, "berth_status_dropped_total", "Status writes dropped because too many were waiting")?,
            registry: r,
        })
    }

    /// The metrics in the text format of Prometheus.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        let mut buffer = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer).into_owned())
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
}
