//! A simulation's result as JSON: the stable interface that scripts read.

use berth_engine::facts::Problem;
use berth_engine::outcome::{Cause, Eviction, Fix, GangReport, GangState, PodState, Proof, Quality, QualityStatus, Reason, Unit};
use serde_json::{Map, Value, json};

use crate::explain;
use crate::simulate::result::{PodResult, SimulationResult};

/// The whole result.
#[must_use]
pub fn result(result: &SimulationResult, with_stats: bool) -> Value {
    let skipped = result.skipped.iter().map(|skipped| {
        json!({
            "file": skipped.place.file,
            "document": skipped.place.document,
            "object": skipped.object,
            "field": skipped.field,
            "message": skipped.message,
        })
    });
    let mut value = json!({
        "apiVersion": "berth.scheduler/v1alpha1",
        "kind": "SimulationResult",
        "pods": result.pods.iter().map(pod).collect::<Vec<_>>(),
        "podGroups": result.gangs.iter().map(gang).collect::<Vec<_>>(),
        "evictions": result.evictions.iter().map(eviction).collect::<Vec<_>>(),
        "ignored": result.ignored,
        "skipped": skipped.collect::<Vec<_>>(),
        "summary": {
            "pods": result.pods.len(),
            "bound": result.bound(),
            "pending": result.pending(),
            "evicted": result.evicted(),
            "gangsPlaced": result.gangs_placed(),
            "gangsPending": result.gangs_pending(),
            "gangsDone": result.gangs_done(),
        },
    });
    if with_stats && let Value::Object(map) = &mut value {
        let (steps, events, micros) = result.stats;
        map.insert(
            "stats".to_owned(),
            json!({"solveMicros": u64::try_from(micros).unwrap_or(u64::MAX), "steps": steps, "events": events}),
        );
    }
    value
}

/// Pods of one gang that go, and for whom.
fn eviction(eviction: &Eviction) -> Value {
    let mut value = json!({
        "namespace": eviction.gang.namespace,
        "podGroup": eviction.gang.name,
        "pods": eviction.pods.iter().map(|victim| &victim.pod.name).collect::<Vec<_>>(),
        "action": "stale",
        "message": explain::eviction(eviction),
    });
    if let Cause::Room(room) = &eviction.cause {
        value["action"] = json!(room.action.name());
        value["whole"] = json!(room.whole);
        value["for"] = json!({"namespace": room.by.namespace, "podGroup": room.by.name});
    }
    value
}

fn pod(pod: &PodResult) -> Value {
    let state = match pod.state {
        PodState::Running => "Running",
        PodState::Bound => "Bound",
        PodState::Pending => "Pending",
        PodState::Gated => "Gated",
        PodState::Done => "Done",
    };
    let subgroup = if pod.subgroup.is_empty() {
        "default"
    } else {
        &pod.subgroup
    };
    let mut value = Map::new();
    value.insert("namespace".to_owned(), json!(pod.namespace));
    value.insert("name".to_owned(), json!(pod.name));
    value.insert("podGroup".to_owned(), json!(pod.gang));
    value.insert("subGroup".to_owned(), json!(subgroup));
    value.insert("state".to_owned(), json!(state));
    if let Some(node) = &pod.node {
        let domains: Map<String, Value> = pod
            .domains
            .iter()
            .map(|(topology, path)| {
                (
                    topology.clone(),
                    Value::Object(
                        path.iter()
                            .map(|(level, value)| (level.clone(), json!(value)))
                            .collect(),
                    ),
                )
            })
            .collect();
        value.insert("node".to_owned(), json!(node));
        value.insert("domains".to_owned(), Value::Object(domains));
    }
    Value::Object(value)
}

/// One gang.
#[must_use]
pub fn gang(gang: &GangReport) -> Value {
    let state = match gang.state {
        GangState::Placed => "Placed",
        GangState::Partial => "Partial",
        GangState::Pending => "Pending",
        GangState::Done => "Done",
    };
    let mut value = json!({
        "namespace": gang.key.namespace,
        "name": gang.key.name,
        "owner": gang.owner,
        "queue": gang.queue,
        "state": state,
        "minMember": gang.min_member,
        "pods": gang.pods,
        "bound": gang.bound,
        "reasons": gang.reasons.iter().map(reason).collect::<Vec<_>>(),
        "warnings": gang.warnings.iter().map(warning).collect::<Vec<_>>(),
    });
    if let (Some(found), Value::Object(map)) = (&gang.quality, &mut value)
        && gang.state != GangState::Pending
    {
        map.insert("quality".to_owned(), quality(found));
    }
    value
}

fn warning(warning: &Problem) -> Value {
    json!({"code": warning.code.as_str(), "message": explain::problem(warning)})
}

fn quality(quality: &Quality) -> Value {
    let status = match quality.status {
        QualityStatus::Optimal => "Optimal",
        QualityStatus::Bounded => "Bounded",
        QualityStatus::Unknown => "Unknown",
    };
    let levels = quality
        .levels
        .iter()
        .map(|level| json!({"level": level.level, "domains": level.domains, "lowerBound": level.lower_bound}));
    let score = f64::from(quality.score_millis) / 1000.0;
    let proven = match quality.status {
        QualityStatus::Optimal if quality.whole_order => json!("order"),
        QualityStatus::Optimal => json!("domains"),
        QualityStatus::Bounded | QualityStatus::Unknown => Value::Null,
    };
    let mut value = json!({"status": status, "proven": proven, "objective": quality.objective.name(), "score": score, "levels": levels.collect::<Vec<_>>()});
    if quality.status == QualityStatus::Bounded
        && let Value::Object(map) = &mut value
    {
        map.insert(
            "gap".to_owned(),
            json!(f64::from(1000_u32.saturating_sub(quality.score_millis)) / 1000.0),
        );
    }
    value
}

fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Pods => "pods",
        Unit::Segments => "segments",
        Unit::Subgroups => "subgroups",
        Unit::Domains => "domains",
    }
}

/// What makes a reason a proof.
fn proof(proof: &Proof) -> Value {
    match proof {
        Proof::Stated => json!({"kind": "Stated"}),
        Proof::Exhausted { steps } => json!({"kind": "Exhausted", "steps": steps}),
        Proof::Counted(counted) => {
            let domains = counted.domains.iter().map(|(has, count)| json!({"has": has, "count": count}));
            json!({
                "kind": "Counted",
                "subGroup": counted.subgroup,
                "level": counted.level,
                "unit": unit_name(counted.unit),
                "size": counted.size,
                "together": counted.together,
                "needs": counted.needs,
                "domains": domains.collect::<Vec<_>>(),
            })
        }
        Proof::TooFew { subgroup, needed, ready, impossible } => {
            let impossible = impossible.iter().map(|(name, found)| json!({"subGroup": name, "proof": self::proof(found)}));
            json!({
                "kind": "TooFew",
                "subGroup": subgroup,
                "needed": needed,
                "ready": ready,
                "impossible": impossible.collect::<Vec<_>>(),
            })
        }
    }
}

/// One change that would help.
pub(super) fn fix(fix: &Fix) -> Value {
    let changes = json!([{"domain": explain::domain(&fix.domain), "count": fix.count, "target": fix.target}]);
    json!({"kind": fix.kind.name(), "message": explain::fix_text(fix), "verified": fix.verified, "changes": changes})
}

fn reason(reason: &Reason) -> Value {
    let unit = unit_name(reason.unit);
    let fixes = reason.fixes.iter().map(fix);
    let refusals = reason
        .refusals
        .iter()
        .map(|(rule, nodes)| json!({"code": rule.name(), "subject": rule.subject(), "message": explain::rule(rule), "nodes": nodes}));
    let mut value = json!({
        "code": reason.code_name(),
        "message": explain::sentence(reason),
        "unit": unit,
        "has": reason.has,
        "needs": reason.needs,
        "refusals": refusals.collect::<Vec<_>>(),
        "unlabelledNodes": reason.unlabelled_nodes,
        "fixes": fixes.collect::<Vec<_>>(),
    });
    if let Value::Object(map) = &mut value {
        map.insert("proof".to_owned(), reason.proof.as_ref().map_or(Value::Null, proof));
        let mut put = |key: &str, text: Option<String>| {
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                map.insert(key.to_owned(), Value::String(text));
            }
        };
        put("subGroup", Some(reason.subgroup.clone()));
        put("topology", reason.topology.clone());
        put("level", reason.level.clone());
        put("bestDomain", reason.best_domain.as_ref().map(explain::domain));
        put("queue", reason.queue.as_ref().map(|queue| queue.queue.clone()));
    }
    value
}
