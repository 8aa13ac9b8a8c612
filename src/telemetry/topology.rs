//! Metrics of `berth topology run`: a process of its own, with a registry of its own.

use std::time::Duration;

use prometheus::{Gauge, GaugeVec, Histogram, IntCounter, IntCounterVec, IntGauge, Registry};

use super::{Row, Table, rendered, with_process};

/// How the labels and the Topology stand after a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Nodes with the labels of the fabric.
    pub same: usize,
    /// Nodes whose labels could not be made so.
    pub failed: usize,
    /// Nodes that are not in the fabric.
    pub outside: usize,
    /// Those of them that offer accelerators.
    pub missed: usize,
    /// Nodes labelled by this look.
    pub labelled: usize,
    /// The Topology has the levels of the fabric, or none was asked for.
    pub topology: bool,
    /// Domains by tier (`0` is the nearest) or `accelerator`.
    pub domains: Vec<(String, usize)>,
    /// Findings by kind.
    pub findings: Vec<(&'static str, usize)>,
}

/// Everything that is measured of the labeller.
#[derive(Debug)]
pub struct TopologyMetrics {
    registry: Registry,
    rows: Vec<Row>,
    looks: IntCounterVec,
    look_seconds: Histogram,
    labelled: IntCounter,
    label_errors: IntCounter,
    /// Errors of the watch of nodes.
    pub watch_errors: IntCounter,
    nodes: GaugeVec,
    domains: GaugeVec,
    findings: GaugeVec,
    topology: IntGauge,
    last_success: Gauge,
}

fn count(n: usize) -> f64 {
    // No cluster has more nodes than a float holds exactly.
    n as f64
}

impl TopologyMetrics {
    /// A registry of its own with every metric.
    ///
    /// # Errors
    ///
    /// Two metrics of one name: never, as the tests show.
    pub fn new() -> Result<Self, prometheus::Error> {
        let mut t = Table::default();
        Ok(Self {
            looks: t.counter_by("berth_topology_looks_total", "Looks at sources and nodes, by result: whole, partial (something is not as it should be), failed (a source can't be read)", "result")?,
            look_seconds: t.seconds("berth_topology_look_seconds", "Time of one look, its writes included")?,
            labelled: t.counter("berth_topology_labelled_total", "Nodes labelled; one write each")?,
            label_errors: t.counter("berth_topology_label_errors_total", "Nodes that could not be labelled, each time")?,
            watch_errors: t.counter("berth_topology_watch_errors_total", "Errors of the watch of nodes")?,
            nodes: t.gauge_by("berth_topology_nodes", "Nodes at the last look: same (as discovered), failed (not labelled), outside (not in the fabric), missed (those of them with accelerators)", &["state"])?,
            domains: t.gauge_by("berth_topology_domains", "Domains with nodes at the last look, by tier; 0 is the nearest", &["tier"])?,
            findings: t.gauge_by("berth_topology_findings", "Findings of the last look, by kind", &["kind"])?,
            topology: t.gauge("berth_topology_as_it_should_be", "1 when the Topology has the levels of the fabric, else 0")?,
            last_success: t.float_gauge("berth_topology_last_success_timestamp_seconds", "When all was as it should be for the last time")?,
            rows: t.rows,
            registry: with_process(t.registry)?,
        })
    }

    /// A look ended; at this moment, in seconds since the epoch.
    pub fn looked(&self, look: &Look, took: Duration, now: f64) {
        let is_whole = look.failed == 0 && look.topology;
        self.looks.with_label_values(&[if is_whole { "whole" } else { "partial" }]).inc();
        self.look_seconds.observe(took.as_secs_f64());
        self.labelled.inc_by(look.labelled as u64);
        self.label_errors.inc_by(look.failed as u64);
        for (state, n) in [("same", look.same), ("failed", look.failed), ("outside", look.outside), ("missed", look.missed)] {
            self.nodes.with_label_values(&[state]).set(count(n));
        }
        self.domains.reset();
        look.domains.iter().for_each(|(tier, n)| self.domains.with_label_values(&[tier]).set(count(*n)));
        self.findings.reset();
        look.findings.iter().for_each(|(kind, n)| self.findings.with_label_values(&[*kind]).set(count(*n)));
        self.topology.set(i64::from(look.topology));
        if is_whole {
            self.last_success.set(now);
        }
    }

    /// A look could not be made: a source can't be read. What the last one found still stands.
    pub fn failed(&self, took: Duration) {
        self.looks.with_label_values(&["failed"]).inc();
        self.look_seconds.observe(took.as_secs_f64());
    }

    /// The rows for docs/metrics.md.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The metrics in the text format of Prometheus.
    ///
    /// # Errors
    ///
    /// Those of the encoder.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        rendered(&self.registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_a_snapshot_and_what_it_wrote_is_added_up() {
        let metrics = TopologyMetrics::new().expect("the table is consistent");
        let first = Look {
            same: 3,
            failed: 1,
            labelled: 2,
            topology: true,
            domains: vec![("0".into(), 2), ("1".into(), 1)],
            findings: vec![("NotANode", 7)],
            ..Look::default()
        };
        metrics.looked(&first, Duration::from_millis(3), 100.0);
        let text = metrics.render().expect("renders");
        assert!(text.contains("berth_topology_last_success_timestamp_seconds 0"), "a partial look is no success: {text}");
        let second = Look { same: 4, outside: 2, missed: 1, topology: true, domains: vec![("0".into(), 2)], ..Look::default() };
        metrics.looked(&second, Duration::from_millis(3), 200.0);
        metrics.failed(Duration::from_millis(1));
        let text = metrics.render().expect("renders");
        for line in [
            "berth_topology_looks_total{result=\"whole\"} 1",
            "berth_topology_looks_total{result=\"partial\"} 1",
            "berth_topology_looks_total{result=\"failed\"} 1",
            "berth_topology_look_seconds_count 3",
            "berth_topology_labelled_total 2",
            "berth_topology_label_errors_total 1",
            "berth_topology_nodes{state=\"same\"} 4",
            "berth_topology_nodes{state=\"failed\"} 0",
            "berth_topology_nodes{state=\"missed\"} 1",
            "berth_topology_domains{tier=\"0\"} 2",
            "berth_topology_as_it_should_be 1",
            "berth_topology_last_success_timestamp_seconds 200",
        ] {
            assert!(text.lines().any(|other| other == line), "no {line} in {text}");
        }
        assert!(!text.contains("NotANode") && !text.contains("tier=\"1\""), "what is no longer found stays: {text}");
    }
}
