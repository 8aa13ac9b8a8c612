//! KAI Scheduler's snapshot: a zip archive with `snapshot.json`, whose `rawObjects` are lists without kinds.

use std::io::Read;

use flate2::read::DeflateDecoder;
use serde_json::{Map, Value, json};

/// How a zip archive begins.
pub(super) const ZIP: [u8; 4] = *b"PK\x03\x04";

/// Kinds by the name of their list.
const LISTS: [(&str, &str, &str); 14] = [
    ("nodes", "v1", "Node"),
    ("pods", "v1", "Pod"),
    ("queues", "scheduling.run.ai/v2", "Queue"),
    ("podGroups", "scheduling.run.ai/v2alpha2", "PodGroup"),
    ("bindRequests", "scheduling.run.ai/v1alpha2", "BindRequest"),
    ("topologies", "kai.scheduler/v1alpha1", "Topology"),
    ("priorityClasses", "scheduling.k8s.io/v1", "PriorityClass"),
    ("persistentVolumeClaims", "v1", "PersistentVolumeClaim"),
    ("persistentVolumes", "v1", "PersistentVolume"),
    ("storageClasses", "storage.k8s.io/v1", "StorageClass"),
    ("csiStorageCapacities", "storage.k8s.io/v1", "CSIStorageCapacity"),
    ("csiDrivers", "storage.k8s.io/v1", "CSIDriver"),
    ("csiNodes", "storage.k8s.io/v1", "CSINode"),
    ("namespaces", "v1", "Namespace"),
];

/// The version of objects that no cluster holds: what an archive says of the scheduler.
pub(super) const SETTINGS_VERSION: &str = "kai.scheduler/snapshot";

/// How the scheduler was set up: the fields that stand beside the objects, and what they are called here.
const SETTINGS: [(&str, &str); 2] = [("schedulerParams", "SchedulerParams"), ("config", "SchedulerConfiguration")];

/// The text of every JSON file in a zip archive, in the archive's order.
pub(super) fn json_files(bytes: &[u8], most: u64) -> Result<Vec<String>, String> {
    let end = bytes.windows(4).rposition(|window| window == b"PK\x05\x06").ok_or("the archive has no end: it was cut off")?;
    let count = number(bytes, end + 10, 2)?;
    let mut at = number(bytes, end + 16, 4)?;
    let mut files = Vec::new();
    for _ in 0..count {
        if bytes.get(at..at.saturating_add(4)) != Some(b"PK\x01\x02") {
            return Err("its list of files is broken".to_owned());
        }
        let (method, packed) = (number(bytes, at + 10, 2)?, number(bytes, at + 20, 4)?);
        let (name, extra, comment) = (number(bytes, at + 28, 2)?, number(bytes, at + 30, 2)?, number(bytes, at + 32, 2)?);
        let local = number(bytes, at + 42, 4)?;
        if bytes.get(at + 46..at + 46 + name).is_some_and(|name| name.ends_with(b".json")) {
            let start = local.saturating_add(30 + number(bytes, local.saturating_add(26), 2)? + number(bytes, local.saturating_add(28), 2)?);
            let data = bytes.get(start..start.saturating_add(packed)).ok_or("a file in it was cut off")?;
            files.push(unpacked(method, data, most)?);
        }
        at += 46 + name + extra + comment;
    }
    if files.is_empty() {
        return Err("the archive holds no .json file".to_owned());
    }
    Ok(files)
}

fn unpacked(method: usize, data: &[u8], most: u64) -> Result<String, String> {
    let mut text = String::new();
    match method {
        0 => data.take(most).read_to_string(&mut text),
        8 => DeflateDecoder::new(data).take(most).read_to_string(&mut text),
        other => return Err(format!("a file in it is packed by method {other}; allowed are 0 and 8")),
    }
    .map_err(|error| format!("a file in it can't be unpacked: {error}"))?;
    Ok(text)
}

fn number(bytes: &[u8], at: usize, width: usize) -> Result<usize, String> {
    let slice = bytes.get(at..at.saturating_add(width)).ok_or("it was cut off")?;
    Ok(slice.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
}

/// True for the document of such a snapshot.
pub(super) fn is_snapshot(document: &Map<String, Value>) -> bool {
    document.get("rawObjects").is_some_and(Value::is_object)
}

/// Its objects with their kinds, and how the scheduler was set up.
pub(super) fn objects(mut document: Map<String, Value>) -> Vec<Value> {
    let mut objects = Vec::new();
    for (field, kind) in SETTINGS {
        let Some(Value::Object(fields)) = document.remove(field) else { continue };
        objects.push(json!({"apiVersion": SETTINGS_VERSION, "kind": kind, "metadata": {"name": "snapshot"}, "spec": fields}));
    }
    let Some(Value::Object(mut lists)) = document.remove("rawObjects") else { return objects };
    for (list, version, kind) in LISTS {
        let Some(Value::Array(items)) = lists.remove(list) else { continue };
        for mut item in items.into_iter().filter(Value::is_object) {
            item["apiVersion"] = Value::String(version.to_owned());
            item["kind"] = Value::String(kind.to_owned());
            objects.push(item);
        }
    }
    objects
}
