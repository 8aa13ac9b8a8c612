//! From reports to what is written: conditions and PodGroup statuses, as JSON.

use berth_engine::facts::Problem;
use berth_engine::outcome::{Code, GangReport, GangState, QualityStatus, Reason, Stale};
use serde_json::{Value, json};

use crate::explain;

/// Messages longer than this are cut: the API accepts 32 KiB, people read less.
const MAX_MESSAGE: usize = 1_024;

/// What a pod that waits says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The code: for events and the PodGroup.
    pub code: String,
    /// `Unschedulable` where a new node could help, else the code.
    pub reason: String,
    /// One sentence.
    pub message: String,
}

/// The condition for a reason.
pub(super) fn condition(reason: &Reason) -> Condition {
    let code = reason.code_name().to_owned();
    // Autoscalers buy machines on `Unschedulable`.
    let shown = if reason.code.new_node_could_help() { "Unschedulable".to_owned() } else { code.clone() };
    let message: String = explain::sentence(reason).chars().take(MAX_MESSAGE).collect();
    Condition { code, reason: shown, message }
}

/// KAI Scheduler's word for a gang that is below its minimum.
pub(super) const STALE: &str = "StaleJob";

/// KAI Scheduler's word for a gang whose pods are evicted.
pub(super) const EVICTED: &str = "Evict";

/// What an event says of a gang that has too few pods left.
pub(super) fn stale(stale: &Stale) -> Condition {
    let code = if stale.evicting { EVICTED } else { STALE };
    Condition { code: code.to_owned(), reason: code.to_owned(), message: explain::stale(stale) }
}

/// What an event says of a mistake that does not keep a gang from running.
pub(super) fn warning(problem: &Problem) -> Condition {
    let message: String = explain::problem(problem).chars().take(MAX_MESSAGE).collect();
    Condition { code: problem.code.to_string(), reason: problem.code.to_string(), message }
}

/// The part of a PodGroup's status that is ours; null clears a field.
pub(super) fn status(report: &GangReport) -> Value {
    let phase = match report.state {
        GangState::Placed => "Placed",
        GangState::Partial => "Partial",
        GangState::Pending => "Pending",
        GangState::Done => "Done",
    };
    let below = |stale: &Stale| Condition { code: Code::StaleGang.name().to_owned(), ..self::stale(stale) };
    let reason = report.reasons.first().map(condition).or_else(|| report.stale.as_ref().map(below));
    let quality = report.quality.as_ref().map(|quality| {
        let status = match quality.status {
            QualityStatus::Optimal => "Optimal",
            QualityStatus::Bounded => "Bounded",
            QualityStatus::Unknown => "Unknown",
        };
        let levels: Vec<Value> = quality
            .levels
            .iter()
            .map(|level| json!({"level": level.level, "domains": level.domains, "lowerBound": level.lower_bound}))
            .collect();
        json!({"status": status, "score": score(quality.score_millis), "objective": "kai", "levels": levels})
    });
    let level = report.quality.as_ref().and_then(|quality| quality.containing.last()).map(|(label, _)| label.clone());
    let mut status = json!({
        "phase": phase,
        "bound": report.bound,
        "minMember": report.min_member,
        "reason": reason.as_ref().map(|reason| reason.code.clone()),
        "message": reason.as_ref().map(|reason| reason.message.clone()),
    });
    // A gang that an earlier process placed keeps what that one said of its quality.
    if quality.is_some() || report.state == GangState::Pending {
        status["level"] = json!(level);
        status["quality"] = json!(quality);
    }
    status
}

/// Thousandths as a JSON number, without floats: 1000 is 1, 875 is 0.875.
fn score(millis: u32) -> Value {
    if millis.is_multiple_of(1000) {
        return json!(millis / 1000);
    }
    let text = format!("{}.{:03}", millis / 1000, millis % 1000);
    serde_json::from_str(text.trim_end_matches('0')).unwrap_or(Value::Null)
}

/// Whether a status in the API says already what we would write.
pub(super) fn says_already(existing: &Value, ours: &Value) -> bool {
    ours.as_object().into_iter().flatten().all(|(field, value)| {
        let old = existing.get(field).unwrap_or(&Value::Null);
        old == value
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_engine::facts::ObjectKey;

    #[test]
    fn unschedulable_only_where_a_node_could_help() {
        assert_eq!(condition(&Reason::new(Code::NotEnoughRoom)).reason, "Unschedulable");
        assert_eq!(condition(&Reason::new(Code::QueueNotFound)).reason, "QueueNotFound");
    }

    #[test]
    fn a_written_status_is_not_written_again() {
        let report = GangReport {
            uid: "u".to_owned(),
            key: ObjectKey::new("n", "g"),
            owner: String::new(),
            queue: "q".to_owned(),
            state: GangState::Placed,
            min_member: 2,
            pods: 2,
            bound: 2,
            quality: None,
            reasons: Vec::new(),
            stale: None,
            warnings: Vec::new(),
        };
        let ours = status(&report);
        assert!(says_already(&json!({"phase": "Placed", "bound": 2, "minMember": 2, "resourcesStatus": {}}), &ours));
        assert!(!says_already(&json!({"phase": "Placed", "bound": 1, "minMember": 2}), &ours));
        assert_eq!(score(875), json!(0.875));
    }
}
