//! Pods that have a node and can't be read as they are: what they hold, never less than it is.
//!
//! Rules of placement (affinity, tolerations, volumes) do not matter any more for a pod that has a node: without them its
//! requests are mostly readable, and exact. Where they are not, its node counts as full.

use std::collections::BTreeSet;

use berth_engine::facts::{PodFacts, PodPhase, ShapeFacts};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};

use super::convert::{self, Membership};
use super::raw::{self, text};

/// What an unreadable pod holds of each resource: more than any node has (64 TiB, 70 thousand million cores), and few enough
/// that a hundred of them add up within the engine's integers.
const EVERYTHING: i64 = 1 << 46;

/// Resources that every node has, whatever it says.
const ALWAYS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Facts, and how they were made, as the end of a sentence. `resources` are the names that nodes use.
pub(super) fn pod_facts(
    object: &Value,
    membership: &Membership,
    scheduler: &str,
    resources: &BTreeSet<String>,
) -> (PodFacts, &'static str) {
    let reduced: Option<Pod> = serde_json::from_value(reduced(object)).ok();
    if let Some(facts) = reduced.and_then(|pod| convert::pod_facts(&pod, membership, scheduler).ok()) {
        return (facts, "it has a node, and holds there what it requests");
    }
    (full(object, resources), "it has a node, which counts as full until this one ends")
}

/// The pod with nothing but what says how much it holds.
fn reduced(object: &Value) -> Value {
    let pick = |from: &Value, keys: &[&str]| -> Map<String, Value> {
        keys.iter().filter_map(|key| Some(((*key).to_owned(), from.get(*key)?.clone()))).collect()
    };
    let containers = |key: &str| -> Value {
        let list = object["spec"][key].as_array().into_iter().flatten();
        list.map(|container| Value::Object(pick(container, &["name", "resources", "ports", "restartPolicy"]))).collect()
    };
    let keys = ["name", "namespace", "uid", "annotations", "labels", "ownerReferences", "creationTimestamp", "deletionTimestamp"];
    let metadata = pick(&object["metadata"], &keys);
    let mut spec = pick(&object["spec"], &["nodeName", "schedulerName", "overhead", "hostNetwork", "resources"]);
    spec.insert("containers".to_owned(), containers("containers"));
    spec.insert("initContainers".to_owned(), containers("initContainers"));
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec,
        "status": {"phase": object["status"]["phase"]},
    })
}

/// It holds everything. It counts in no gang and no queue: how much it would count is not known.
fn full(object: &Value, resources: &BTreeSet<String>) -> PodFacts {
    let key = raw::key(object);
    let names = resources.iter().map(String::as_str).chain(ALWAYS).filter(|name| *name != "pods");
    let phase = match text(object, "/status/phase") {
        "Succeeded" => PodPhase::Succeeded,
        "Failed" => PodPhase::Failed,
        "" | "Pending" => PodPhase::Pending,
        _ => PodPhase::Running,
    };
    PodFacts {
        uid: raw::uid(object).to_owned(),
        namespace: key.namespace,
        name: key.name,
        shape: ShapeFacts { requests: names.map(|name| (name.to_owned(), EVERYTHING)).collect(), ..ShapeFacts::default() },
        node: Some(text(object, "/spec/nodeName").to_owned()),
        phase,
        terminating: !text(object, "/metadata/deletionTimestamp").is_empty(),
        ..PodFacts::default()
    }
}
