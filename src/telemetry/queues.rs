//! Metrics of queues. Names, labels and units are KAI Scheduler's where it has them, so that dashboards keep working.
//!
//! There is one series a queue, and it goes when the queue goes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use berth_engine::outcome::QueueShare;
use prometheus::{CounterVec, GaugeVec};

use super::{QUEUE_LABELS, Table};

/// Thousandths.
const MILLI: f64 = 1000.0;

/// Milliseconds of an hour.
const HOUR: f64 = 3_600_000.0;

/// A queue, as it is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRow {
    /// Its name.
    pub name: String,
    /// The name shown to people; empty when it has none.
    pub display: String,
    /// How it stands.
    pub share: QueueShare,
}

/// Gauges and counters by queue.
#[derive(Debug)]
pub struct QueueMetrics {
    gauges: Vec<(GaugeVec, fn(&QueueShare) -> f64)>,
    gpu_hours: CounterVec,
    /// What each has series for.
    known: Mutex<BTreeMap<String, String>>,
}

fn amount(thousandths: i64) -> f64 {
    // Amounts that people have are far below what a float holds exactly.
    thousandths as f64 / MILLI
}

/// The amount in these units of what a resource is counted in; without end it is -1.
fn or_unlimited(thousandths: Option<i64>, unit: f64) -> f64 {
    thousandths.map_or(-1.0, |thousandths| amount(thousandths) * unit)
}

/// Thousandths of GPUs that a queue deserves and neither uses nor asks for.
fn idle(share: &QueueShare) -> i64 {
    share.quota[0].map_or(0, |quota| quota.saturating_sub(share.requested[0]).max(0))
}

impl QueueMetrics {
    pub(super) fn new(t: &mut Table) -> Result<Self, prometheus::Error> {
        let rows: [(&'static str, &'static str, fn(&QueueShare) -> f64); 13] = [
            ("kai_queue_info", "Queues; always 1", |_| 1.0),
            ("kai_queue_deserved_gpus", "GPUs that a queue deserves (its quota); -1 is all there are", |s| or_unlimited(s.quota[0], 1.0)),
            ("kai_queue_quota_cpu_cores", "Cores that a queue deserves; -1 is all there are", |s| or_unlimited(s.quota[1], 1e-3)),
            ("kai_queue_quota_memory_bytes", "Bytes of memory that a queue deserves; -1 is all there is", |s| or_unlimited(s.quota[2], 1e6)),
            ("kai_queue_allocated_gpus", "GPUs of a queue's pods on nodes", |s| amount(s.allocated[0])),
            ("kai_queue_allocated_cpu_cores", "Cores of a queue's pods on nodes", |s| amount(s.allocated[1]) * 1e-3),
            ("kai_queue_allocated_memory_bytes", "Bytes of memory of a queue's pods on nodes", |s| amount(s.allocated[2]) * 1e6),
            ("kai_queue_fair_share_gpu", "Fair share of a queue in GPUs", |s| amount(s.fair[0])),
            ("kai_queue_fair_share_cpu_cores", "Fair share of a queue in cores", |s| amount(s.fair[1]) * 1e-3),
            ("kai_queue_fair_share_memory_gb", "Fair share of a queue in GB of memory", |s| amount(s.fair[2]) * 1e-3),
            ("berth_queue_limit_gpus", "GPUs that a queue may use at most; -1 is no limit", |s| or_unlimited(s.limit[0], 1.0)),
            ("berth_queue_requested_gpus", "GPUs that a queue's pods have or wait for", |s| amount(s.requested[0])),
            ("berth_queue_unplaceable_gpus", "GPUs of a queue's gangs that found no place for their minimum", |s| amount(s.unplaceable[0])),
        ];
        let mut gauges = Vec::new();
        for (name, help, value) in rows {
            gauges.push((t.gauge_by(name, help, &QUEUE_LABELS)?, value));
        }
        let help = "GPU-hours of a queue: busy (of its pods on nodes), idle (deserved, neither used nor asked for), unplaceable (asked for by gangs that find no place)";
        let gpu_hours = t.float_counter_by("berth_queue_gpu_hours_total", help, &["queue_name", "state"])?;
        Ok(Self { gauges, gpu_hours, known: Mutex::default() })
    }

    /// Shows all queues as they stand now. What they did since the last time, so many milliseconds ago, is added up.
    pub fn show(&self, rows: &[QueueRow], elapsed_millis: i64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now: BTreeMap<String, String> = rows.iter().map(|row| (row.name.clone(), row.display.clone())).collect();
        for (name, display) in known.iter().filter(|(name, display)| now.get(*name) != Some(display)) {
            for (gauge, _) in &self.gauges {
                // One that is not there is as good as removed.
                let _absent = gauge.remove_label_values(&[name, name, display]).is_err();
            }
            if !now.contains_key(name) {
                for state in ["busy", "idle", "unplaceable"] {
                    let _absent = self.gpu_hours.remove_label_values(&[name, state]).is_err();
                }
            }
        }
        for row in rows {
            for (gauge, value) in &self.gauges {
                gauge.with_label_values(&[&row.name, &row.name, &row.display]).set(value(&row.share));
            }
            let hours = elapsed_millis.max(0) as f64 / HOUR;
            let share = &row.share;
            for (state, gpus) in [("busy", share.allocated[0]), ("idle", idle(share)), ("unplaceable", share.unplaceable[0])] {
                self.gpu_hours.with_label_values(&[&row.name, state]).inc_by(amount(gpus.max(0)) * hours);
            }
        }
        *known = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Metrics;

    fn row(name: &str) -> QueueRow {
        let share = QueueShare {
            quota: [Some(4_000), None, Some(2_000_000)],
            limit: [None; 3],
            fair: [3_000, 64_000_000, 5_000_000],
            allocated: [2_000, 1_500_000, 1_000_000],
            requested: [3_000, 1_500_000, 1_000_000],
            unplaceable: [1_000, 0, 0],
            ..QueueShare::default()
        };
        QueueRow { name: name.to_owned(), display: format!("Team {name}"), share }
    }

    #[test]
    fn queues_are_shown_in_kais_units_and_go_with_their_queue() {
        let metrics = Metrics::new().expect("the table is consistent");
        metrics.queues.show(&[row("a"), row("b")], 0);
        metrics.queues.show(&[row("a")], 3_600_000);
        let text = metrics.render().expect("renders");
        let labels = "{queue_display_name=\"Team a\",queue_metadata_name=\"a\",queue_name=\"a\"}";
        for (name, value) in [
            ("kai_queue_info", "1"),
            ("kai_queue_deserved_gpus", "4"),
            ("kai_queue_quota_cpu_cores", "-1"),
            ("kai_queue_quota_memory_bytes", "2000000000"),
            ("kai_queue_allocated_gpus", "2"),
            ("kai_queue_allocated_cpu_cores", "1.5"),
            ("kai_queue_allocated_memory_bytes", "1000000000"),
            ("kai_queue_fair_share_gpu", "3"),
            ("kai_queue_fair_share_cpu_cores", "64"),
            ("kai_queue_fair_share_memory_gb", "5"),
            ("berth_queue_limit_gpus", "-1"),
            ("berth_queue_unplaceable_gpus", "1"),
        ] {
            assert!(text.contains(&format!("{name}{labels} {value}\n")), "{name} is not {value} in {text}");
        }
        for (state, hours) in [("busy", "2"), ("idle", "1"), ("unplaceable", "1")] {
            let line = format!("berth_queue_gpu_hours_total{{queue_name=\"a\",state=\"{state}\"}} {hours}\n");
            assert!(text.contains(&line), "no {line} in {text}");
        }
        assert!(!text.contains("\"b\""), "the series of a queue that is gone stay");
    }
}
