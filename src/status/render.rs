//! From reports to what is written: conditions and PodGroup statuses, as JSON.

use berth_engine::facts::{Amounts, Problem};
use berth_engine::outcome::{Code, GangReport, GangState, QualityStatus, QueueBlock, QueueReport, Reason, Stale};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::explain;

/// Messages longer than this are cut: the API accepts 32 KiB, people read less.
const MAX_MESSAGE: usize = 1_024;

/// Reasons written of one gang: as many as the schema takes.
const MAX_REASONS: usize = 64;

/// The node pool of PodGroups without a label, in KAI Scheduler's words.
const DEFAULT_NODE_POOL: &str = "default";

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

/// KAI Scheduler's words for a reason, where it has them; alerts match on these.
fn kai_reason(code: Code) -> &'static str {
    match code {
        Code::QueueOverLimit => "OverLimit",
        Code::QueueOverQuota => "NonPreemptibleOverQuota",
        Code::QueueNotFound | Code::QueueOrphaned => "QueueDoesNotExist",
        _ => "PodSchedulingErrors",
    }
}

/// Figures of the queue that refused: its limit, or what it deserves.
fn queue_details(code: Code, block: &QueueBlock) -> Value {
    let amount = |thousandths: i64| match block.resource {
        "gpu" => json!({"nvidia.com/gpu": share_quantity("gpu", thousandths)}),
        resource => json!({resource: share_quantity(resource, thousandths)}),
    };
    let [used, limit, asked] = match code {
        Code::QueueOverQuota => {
            ["queueAllocatedNonPreemptibleResources", "queueDeservedResources", "podGroupRequestedNonPreemptibleResources"]
        }
        _ => ["queueAllocatedResources", "queueResourceLimits", "podGroupRequestedResources"],
    };
    let figures = [(used, block.used_millis), (limit, block.limit_millis), (asked, block.asked_millis)];
    let mut details = json!({"name": block.queue});
    for (field, thousandths) in figures {
        details[field] = amount(thousandths);
    }
    json!({"queueDetails": details})
}

/// The scheduling conditions of a PodGroup; null clears them.
///
/// As in KAI Scheduler there is one for each node pool in which the gang found no place, the newest last; a change is
/// another condition with the next transition ID.
pub(super) fn scheduling_conditions(report: &GangReport, node_pool: &str, known: &Value, now: Timestamp) -> Value {
    let known: Vec<Value> = known.as_array().cloned().unwrap_or_default();
    let Some(first) = report.reasons.first().filter(|_| is_below_minimum(report)) else {
        // With surplus pods left over, the gang itself is placed.
        return Value::Null;
    };
    let reasons: Vec<Value> = report
        .reasons
        .iter()
        .take(MAX_REASONS)
        .map(|reason| {
            let mut entry = json!({"reason": kai_reason(reason.code), "message": condition(reason).message});
            if let Some(block) = reason.queue.as_ref().filter(|_| matches!(reason.code, Code::QueueOverLimit | Code::QueueOverQuota)) {
                entry["details"] = queue_details(reason.code, block);
            }
            entry
        })
        .collect();
    let pool = if node_pool.is_empty() { DEFAULT_NODE_POOL } else { node_pool };
    let mut ours = json!({
        "type": "UnschedulableOnNodePool", "status": "True", "reason": "Unschedulable", "nodePool": pool,
        "message": condition(first).message, "reasons": reasons,
    });
    let of_pool = |condition: &&Value| condition["nodePool"] == pool;
    let stands = known.iter().rfind(of_pool);
    let is_same = |old: &Value| ["message", "reasons", "status", "type"].iter().all(|field| old[field] == ours[field]);
    if stands.is_some_and(is_same) {
        return Value::Array(known);
    }
    let id = |condition: &Value| condition["transitionID"].as_str().and_then(|id| id.parse::<u64>().ok());
    let next = known.iter().filter_map(id).max().map_or(1, |last| last.saturating_add(1));
    ours["transitionID"] = json!(next.to_string());
    ours["lastTransitionTime"] = json!(Time(now));
    let mut all: Vec<Value> = known.into_iter().filter(|condition| !of_pool(&condition)).collect();
    all.push(ours);
    Value::Array(all)
}

/// Whether the gang waits for its minimum, not only for surplus pods.
fn is_below_minimum(report: &GangReport) -> bool {
    matches!(report.state, GangState::Pending | GangState::Partial)
}

/// An amount in the engine's units as a quantity.
fn quantity(resource: &str, amount: i64) -> String {
    if resource == "cpu" {
        return if amount % 1000 == 0 { (amount / 1000).to_string() } else { format!("{amount}m") };
    }
    if ["memory", "ephemeral-storage"].contains(&resource) || resource.starts_with("hugepages-") {
        let units = [(1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
        if let Some((size, unit)) = units.into_iter().find(|(size, _)| amount != 0 && amount % size == 0) {
            return format!("{}{unit}", amount / size);
        }
    }
    amount.to_string()
}

/// A list of resources; null when it is empty.
fn resources(amounts: &Amounts) -> Value {
    let list: Map<String, Value> = amounts.iter().map(|(name, amount)| (name.clone(), json!(quantity(name, *amount)))).collect();
    if list.is_empty() { Value::Null } else { Value::Object(list) }
}

/// The status of a queue; null clears a field.
pub(super) fn queue_status(report: &QueueReport) -> Value {
    let children = if report.children.is_empty() { Value::Null } else { json!(report.children) };
    json!({
        "childQueues": children,
        "allocated": resources(&report.allocated),
        "allocatedNonPreemptible": resources(&report.allocated_non_preemptible),
        "requested": resources(&report.requested),
        "fairShare": shares(&report.share.fair),
    })
}

/// GPUs, milli-cores and megabytes in thousandths as quantities; what is nothing is left out.
fn shares(amounts: &[i64; 3]) -> Value {
    let names = [("nvidia.com/gpu", "gpu"), ("cpu", "cpu"), ("memory", "memory")];
    let some = names.iter().zip(amounts).filter(|(_, amount)| **amount != 0);
    let list: Map<String, Value> = some.map(|((name, kind), amount)| ((*name).to_owned(), share_quantity(kind, *amount))).collect();
    if list.is_empty() { Value::Null } else { Value::Object(list) }
}

/// An amount of a resource as queues count it (thousandths of GPUs, milli-cores, megabytes) as a quantity.
fn share_quantity(resource: &str, thousandths: i64) -> Value {
    match resource {
        "gpu" => json!(quantity("cpu", thousandths)),
        "cpu" => json!(quantity("cpu", thousandths / 1000)),
        // Thousandths of megabytes are kilobytes.
        _ => json!(quantity("memory", thousandths.saturating_mul(1000))),
    }
}

/// A merge patch that makes the fields of `known` what they are in `ours`: what a map lacks is taken out of it.
pub(super) fn replacing(known: &Value, ours: &Value) -> Value {
    let (Value::Object(known), Value::Object(ours)) = (known, ours) else { return ours.clone() };
    let mut patch = Map::new();
    for (field, value) in ours {
        let old = known.get(field).unwrap_or(&Value::Null);
        let mut value = replacing(old, value);
        if let (Value::Object(old), Value::Object(new)) = (old, &mut value) {
            for gone in old.keys() {
                new.entry(gone.clone()).or_insert(Value::Null);
            }
        }
        patch.insert(field.clone(), value);
    }
    Value::Object(patch)
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
        json!({"status": status, "score": score(quality.score_millis), "objective": quality.objective.name(), "levels": levels})
    });
    let level = report.quality.as_ref().and_then(|quality| quality.containing.last()).map(|(label, _)| label.clone());
    let mut status = json!({
        "phase": phase,
        "bound": report.bound,
        "minMember": report.min_member,
        "reason": reason.as_ref().map(|reason| reason.code.clone()),
        "message": reason.as_ref().map(|reason| reason.message.clone()),
        "resourcesStatus": resources_status(report),
    });
    // A gang that an earlier process placed keeps what that one said of its quality.
    if quality.is_some() || report.state == GangState::Pending {
        status["level"] = json!(level);
        status["quality"] = json!(quality);
    }
    status
}

/// What the pods of a gang ask for and have; null when none is left.
fn resources_status(report: &GangReport) -> Value {
    let mut status = Map::new();
    let held = Amounts::new();
    let held = if report.preemptible { &held } else { &report.allocated };
    for (field, amounts) in [("allocated", &report.allocated), ("allocatedNonPreemptible", held), ("requested", &report.requested)] {
        let list = resources(amounts);
        if !list.is_null() {
            status.insert(field.to_owned(), list);
        }
    }
    if status.is_empty() { Value::Null } else { Value::Object(status) }
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
    use berth_engine::outcome::QueueShare;

    #[test]
    fn unschedulable_only_where_a_node_could_help() {
        assert_eq!(condition(&Reason::new(Code::NotEnoughRoom)).reason, "Unschedulable");
        assert_eq!(condition(&Reason::new(Code::QueueNotFound)).reason, "QueueNotFound");
    }

    fn report() -> GangReport {
        GangReport {
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
            preemptible: true,
            allocated: Amounts::new(),
            requested: Amounts::new(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_written_status_is_not_written_again() {
        let ours = status(&report());
        assert!(says_already(&json!({"phase": "Placed", "bound": 2, "minMember": 2, "conditions": []}), &ours));
        assert!(!says_already(&json!({"phase": "Placed", "bound": 1, "minMember": 2}), &ours));
        assert_eq!(score(875), json!(0.875));
    }

    fn waits(code: Code) -> GangReport {
        GangReport { state: GangState::Pending, reasons: vec![Reason::new(code)], ..report() }
    }

    #[test]
    fn conditions_are_counted_up_and_the_newest_is_last() {
        let now = Timestamp::UNIX_EPOCH;
        let first = scheduling_conditions(&waits(Code::NotEnoughRoom), "", &Value::Null, now);
        assert_eq!((&first[0]["transitionID"], &first[0]["nodePool"]), (&json!("1"), &json!("default")));
        assert_eq!((&first[0]["type"], &first[0]["status"]), (&json!("UnschedulableOnNodePool"), &json!("True")));
        assert_eq!(first[0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        let later = Timestamp::MAX;
        assert_eq!(scheduling_conditions(&waits(Code::NotEnoughRoom), "", &first, later), first, "the same is not a change");
        let second = scheduling_conditions(&waits(Code::NoNodeMatches), "", &first, now);
        assert_eq!((second.as_array().map(Vec::len), &second[0]["transitionID"]), (Some(1), &json!("2")));
        // Another pool's stays, and the number goes on.
        let third = scheduling_conditions(&waits(Code::NoNodeMatches), "blue", &second, now);
        let told: Vec<_> = third.as_array().into_iter().flatten().map(|c| (&c["nodePool"], &c["transitionID"])).collect();
        assert_eq!(told, [(&json!("default"), &json!("2")), (&json!("blue"), &json!("3"))]);
        assert_eq!(scheduling_conditions(&report(), "", &third, now), Value::Null, "placed, it has none");
    }

    #[test]
    fn kais_words_and_figures_of_the_queue() {
        let mut over = waits(Code::QueueOverLimit);
        let block = |resource| QueueBlock {
            queue: "team".to_owned(), resource, limit_millis: 500_000, used_millis: 400_000, asked_millis: 1_500_000,
        };
        let asked = [("cpu", "cpu", "1500m"), ("gpu", "nvidia.com/gpu", "1500"), ("memory", "memory", "1500000000")];
        for (resource, name, amount) in asked {
            over.reasons[0].queue = Some(block(resource));
            let conditions = scheduling_conditions(&over, "", &Value::Null, Timestamp::UNIX_EPOCH);
            let reason = &conditions[0]["reasons"][0];
            assert_eq!(reason["reason"], "OverLimit");
            let details = &reason["details"]["queueDetails"];
            assert_eq!((&details["name"], &details["podGroupRequestedResources"][name]), (&json!("team"), &json!(amount)));
        }
        let mut fixed = waits(Code::QueueOverQuota);
        fixed.reasons[0].queue = Some(block("gpu"));
        let conditions = scheduling_conditions(&fixed, "", &Value::Null, Timestamp::UNIX_EPOCH);
        let details = &conditions[0]["reasons"][0]["details"]["queueDetails"];
        assert_eq!(details["queueDeservedResources"]["nvidia.com/gpu"], "500");
        assert_eq!(details["queueAllocatedNonPreemptibleResources"]["nvidia.com/gpu"], "400");
        assert_eq!(details["queueResourceLimits"], Value::Null);
        let missing = scheduling_conditions(&waits(Code::QueueNotFound), "", &Value::Null, Timestamp::UNIX_EPOCH);
        assert_eq!(missing[0]["reasons"][0]["reason"], "QueueDoesNotExist");
    }

    #[test]
    fn resources_are_quantities_and_non_preemptible_ones_are_told_apart() {
        let amounts = |cpu, memory| Amounts::from([("cpu".to_owned(), cpu), ("memory".to_owned(), memory)]);
        let mut report = GangReport { allocated: amounts(1_500, 3 << 30), requested: amounts(2_000, 1_500_000), ..report() };
        let wanted = json!({"allocated": {"cpu": "1500m", "memory": "3Gi"}, "requested": {"cpu": "2", "memory": "1500000"}});
        assert_eq!(status(&report)["resourcesStatus"], wanted);
        report.preemptible = false;
        assert_eq!(status(&report)["resourcesStatus"]["allocatedNonPreemptible"], wanted["allocated"]);
        report.allocated.clear();
        report.requested.clear();
        assert_eq!(status(&report)["resourcesStatus"], Value::Null);
    }

    #[test]
    fn a_queues_fair_share_is_a_resource_list() {
        let share = QueueShare { fair: [2_500, 1_500_000, 3_000_000], ..QueueShare::default() };
        let mut report = QueueReport {
            name: "q".to_owned(),
            children: Vec::new(),
            allocated: Amounts::new(),
            allocated_non_preemptible: Amounts::new(),
            requested: Amounts::new(),
            share,
        };
        assert_eq!(queue_status(&report)["fairShare"], json!({"nvidia.com/gpu": "2500m", "cpu": "1500m", "memory": "3000000000"}));
        report.share.fair = [0; 3];
        assert_eq!(queue_status(&report)["fairShare"], Value::Null);
    }

    #[test]
    fn what_is_gone_is_taken_out_of_maps() {
        let known = json!({"allocated": {"cpu": "1", "nvidia.com/gpu": "8"}, "childQueues": ["a"], "conditions": []});
        let ours = json!({"allocated": {"cpu": "2"}, "childQueues": null});
        let patch = json!({"allocated": {"cpu": "2", "nvidia.com/gpu": null}, "childQueues": null});
        assert_eq!(replacing(&known, &ours), patch);
    }
}
