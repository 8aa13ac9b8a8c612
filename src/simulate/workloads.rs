//! Workloads become pods, and pods become members of gangs.

use std::collections::BTreeMap;

use berth_engine::facts::{GangFacts, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::cluster::{DEFAULT_QUEUE, Stored};
use super::objects::{ObjectId, text};
use crate::cluster::convert::{Membership, Priorities, uid_of};

/// A pod's gang.
pub(super) struct Grouped {
    pub(super) membership: Membership,
    /// The gang, when it is derived and not written by hand.
    pub(super) gang: Option<GangFacts>,
}

/// True for kinds that make pods.
pub(super) fn is_workload(_value: &Value) -> bool {
    false
}

/// The pods that a workload's controller would create; else field and message.
pub(super) fn expand(_workload: &Value) -> Result<Vec<Value>, (String, String)> {
    Ok(Vec::new())
}

/// Finds the gang of a pod that names none.
pub(super) fn group(pod: &Pod, value: &Value, _objects: &BTreeMap<ObjectId, Stored>, priorities: &Priorities) -> Grouped {
    let uid = uid_of("Pod", &pod.metadata);
    let name = pod.metadata.name.clone().unwrap_or_default();
    let key = ObjectKey::new(pod.metadata.namespace.clone().unwrap_or_default(), format!("pg-{name}-{uid}"));
    let label = |pointer: &str| Some(text(value, pointer)).filter(|text| !text.is_empty()).map(str::to_owned);
    let class = label("/metadata/labels/priorityClassName").or_else(|| label("/spec/priorityClassName"));
    let priority = priorities.value(class.as_deref().filter(|class| priorities.contains(class)));
    let gang = GangFacts {
        uid: format!("podgroup-{}-{}", key.namespace, key.name),
        key: key.clone(),
        owner: format!("Pod/{name}"),
        queue: label("/metadata/labels/kai.scheduler~1queue").unwrap_or_else(|| DEFAULT_QUEUE.to_owned()),
        priority,
        preemptible: priority < 100,
        min_member: Some(1),
        ..GangFacts::default()
    };
    let membership = Membership { gang: Some(key.name), ..Membership::written_on(pod) };
    Grouped { membership, gang: Some(gang) }
}
