//! Objects as they were read: names, kinds and typed reading with the field that fails.

use berth_engine::facts::{Millis, QueueAmount, QueueFacts};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cluster::DEFAULT_QUEUE;
use super::input::Place;
use crate::cluster::convert::storage::StorageKinds;

/// An object that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skipped {
    /// Where it stood.
    pub place: Place,
    /// The object, such as `v1/Node x`.
    pub object: String,
    /// The field at fault.
    pub field: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// Kind, namespace and name: one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId {
    /// The kind.
    pub kind: String,
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// A text field by JSON pointer; empty when absent.
#[must_use]
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// `v1/Node x` or `v1/Pod default/p`.
#[must_use]
pub fn name_of(value: &Value) -> String {
    let meta = ObjectMeta {
        name: Some(text(value, "/metadata/name").to_owned()).filter(|name| !name.is_empty()),
        namespace: Some(text(value, "/metadata/namespace").to_owned()),
        ..ObjectMeta::default()
    };
    crate::cluster::convert::object_name(text(value, "/apiVersion"), text(value, "/kind"), &meta)
}

/// Identity of an object.
#[must_use]
pub fn id_of(value: &Value) -> ObjectId {
    ObjectId {
        kind: text(value, "/kind").to_owned(),
        namespace: text(value, "/metadata/namespace").to_owned(),
        name: text(value, "/metadata/name").to_owned(),
    }
}

/// Kinds without a namespace, of those that are used.
#[must_use]
pub fn is_cluster_scoped(kind: &str) -> bool {
    matches!(
        kind,
        "Node"
            | "Topology"
            | "Queue"
            | "PriorityClass"
            | "PersistentVolume"
            | "StorageClass"
            | "CSINode"
            | "RuntimeClass"
            | "CSIDriver"
            | "ResourceSlice"
            | "Namespace"
    )
}

/// Fills in what the API server would: the namespace, the UID, and quantities written as numbers.
pub fn complete(value: &mut Value, generation: u64) {
    let kind = text(value, "/kind").to_owned();
    let Some(Value::Object(meta)) = value.get_mut("metadata") else {
        return;
    };
    if is_cluster_scoped(&kind) {
        meta.remove("namespace");
    } else if meta.get("namespace").and_then(Value::as_str).is_none_or(str::is_empty) {
        meta.insert("namespace".to_owned(), Value::String("default".to_owned()));
    }
    if meta.get("uid").and_then(Value::as_str).is_none_or(str::is_empty) {
        let field = |key: &str| meta.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
        let space = field("namespace");
        let mut uid = [kind.to_lowercase(), space, field("name")]
            .iter()
            .filter(|part| !part.is_empty())
            .cloned()
            .collect::<Vec<_>>()
            .join("-");
        if generation > 0 {
            uid.push_str(&format!("-{generation}"));
        }
        meta.insert("uid".to_owned(), Value::String(uid));
    }
    if kind != "Queue" {
        quantities(value);
    }
    // A pod written by hand with a node is meant to run there.
    let is_to_run = kind == "Pod" && !text(value, "/spec/nodeName").is_empty() && text(value, "/status/phase").is_empty();
    if is_to_run && (value["status"].is_null() || value["status"].is_object()) {
        value["status"]["phase"] = json!("Running");
    }
    // A kubelet always writes conditions; a node written by hand without any is meant to work.
    if kind == "Node"
        && let Some(Value::Object(status)) = value.get_mut("status")
        && status
            .get("conditions")
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty)
    {
        status.insert("conditions".to_owned(), json!([{"type": "Ready", "status": "True"}]));
    }
}

/// Quantities may be numbers in a manifest; they are text in the types.
fn quantities(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(quantities),
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match (key.as_str(), value) {
                    ("requests" | "limits" | "allocatable" | "capacity" | "overhead", Value::Object(list)) => {
                        for amount in list.values_mut() {
                            if let Value::Number(number) = amount {
                                *amount = Value::String(number.to_string());
                            }
                        }
                    }
                    (_, value) => quantities(value),
                }
            }
        }
        _ => {}
    }
}

/// Creation time in milliseconds, when the object has one.
pub(super) fn stamp(value: &Value) -> Option<Millis> {
    let text = text(value, "/metadata/creationTimestamp");
    let meta: Result<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time, _> = serde_json::from_value(json!(text));
    meta.ok().map(|time| time.0.as_millisecond())
}

/// Kinds that become facts, or that later versions will read.
pub(super) fn is_known(version: &str, kind: &str) -> bool {
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    let storage = StorageKinds::KINDS.iter().any(|(known, _, name)| (*known, *name) == (group, kind));
    storage
        || matches!(
        (group, kind),
        ("", "Node" | "Pod")
            | ("scheduling.k8s.io", "PriorityClass")
            | ("node.k8s.io", "RuntimeClass")
            | ("kai.scheduler", "Topology")
            | ("policy", "PodDisruptionBudget")
            | ("scheduling.run.ai", "PodGroup" | "Queue")
    )
}

/// What admission does for a pod with a RuntimeClass, once: overhead, node selector, tolerations.
pub(super) fn admit_runtime_class(pod: &mut Value, class: &Value) {
    let Some(Value::Object(spec)) = pod.get_mut("spec") else { return };
    if spec.contains_key("overhead") {
        return;
    }
    spec.insert("overhead".to_owned(), class.pointer("/overhead/podFixed").cloned().unwrap_or_else(|| json!({})));
    if let Some(Value::Object(selector)) = class.pointer("/scheduling/nodeSelector")
        && let Value::Object(own) = spec.entry("nodeSelector").or_insert_with(|| json!({}))
    {
        own.extend(selector.clone());
    }
    if let Some(Value::Array(tolerations)) = class.pointer("/scheduling/tolerations")
        && let Value::Array(own) = spec.entry("tolerations").or_insert_with(|| json!([]))
    {
        own.extend(tolerations.iter().cloned());
    }
}

/// Reads an object as a type; the error names the field. A plain `yes`, `on`, `n` ... is text in the input, so that a
/// node may have that name; where the type has a truth value it is one, as it is for kubectl.
pub fn typed<T: DeserializeOwned>(value: &Value, place: &Place) -> Result<T, Skipped> {
    let (pointer, skipped) = match read(value, place) {
        Ok(object) => return Ok(object),
        Err(error) => error,
    };
    let mut changed = value.clone();
    let mut at = pointer;
    while let Some(field) = changed.pointer_mut(&at)
        && let Some(truth) = field.as_str().and_then(truth_value)
    {
        *field = Value::Bool(truth);
        match read(&changed, place) {
            Ok(object) => return Ok(object),
            Err((next, _)) => at = next,
        }
    }
    Err(skipped)
}

/// The object, or where it fails as a JSON pointer, and the message.
fn read<T: DeserializeOwned>(value: &Value, place: &Place) -> Result<T, (String, Skipped)> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let pointer = error.path().iter().map(|segment| match segment {
            serde_path_to_error::Segment::Map { key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
            serde_path_to_error::Segment::Seq { index } => format!("/{index}"),
            _ => String::new(),
        });
        let skipped = Skipped {
            place: place.clone(),
            object: name_of(value),
            field: if path == "." { String::new() } else { path },
            message: String::new(),
        };
        let pointer = pointer.collect();
        (pointer, Skipped { message: error.into_inner().to_string(), ..skipped })
    })
}

/// The queue that exists when none is given.
pub(super) fn default_queue() -> QueueFacts {
    QueueFacts {
        uid: format!("queue-{DEFAULT_QUEUE}"),
        name: DEFAULT_QUEUE.to_owned(),
        parent: None,
        priority: 100,
        created: 0,
        gpu: QueueAmount::UNLIMITED,
        cpu: QueueAmount::UNLIMITED,
        memory: QueueAmount::UNLIMITED,
        ..QueueFacts::default()
    }
}

/// The words that YAML 1.1 reads as truth values, beside `true` and `false`.
fn truth_value(word: &str) -> Option<bool> {
    match word {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

/// What is wrong with a value, and what is allowed.
pub(super) fn message_of(error: &crate::cluster::convert::ConvertError) -> String {
    if error.value.is_empty() || error.allowed.contains(&error.value) {
        error.allowed.clone()
    } else {
        format!("\"{}\": {}", error.value, error.allowed)
    }
}

/// JSON merge patch (RFC 7386).
pub(super) fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = Value::Object(serde_json::Map::new());
    }
    let Value::Object(map) = value else { return };
    for (key, change) in patch {
        if change.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

/// A pod as its controller creates it anew: no node, no status, another UID.
pub(super) fn fresh_copy(mut pod: Value) -> Value {
    let gone = json!({"metadata": {"uid": null, "creationTimestamp": null, "deletionTimestamp": null}, "spec": {"nodeName": null}, "status": null});
    merge(&mut pod, &gone);
    pod
}
