//! Reading loose JSON, and cutting objects down to what is read later.

use berth_engine::facts::ObjectKey;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodSpec, PodStatus};
use serde_json::{Value, json};

/// Text at a JSON pointer; empty when there is none.
#[must_use]
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The UID.
#[must_use]
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// Namespace and name.
#[must_use]
pub fn key(object: &Value) -> ObjectKey {
    ObjectKey::new(text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// Namespace and name of a pod.
#[must_use]
pub fn pod_key(pod: &Pod) -> ObjectKey {
    ObjectKey::new(pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default())
}

/// The node of a pod.
#[must_use]
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

/// An owner without what grouping never reads: status, resource version, generation, the last applied copy of itself.
#[must_use]
pub fn trim_owner(object: &Value) -> Value {
    let mut trimmed = json!({"apiVersion": object["apiVersion"], "kind": object["kind"]});
    let mut metadata = object["metadata"].clone();
    if let Value::Object(map) = &mut metadata {
        for key in ["resourceVersion", "generation", "managedFields"] {
            map.remove(key);
        }
        if let Some(Value::Object(annotations)) = map.get_mut("annotations") {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    trimmed["metadata"] = metadata;
    trimmed["spec"] = object["spec"].clone();
    trimmed
}

/// A pod as the owner of others: the leader of a LeaderWorkerSet's workers. What changes while it runs is left out.
#[must_use]
pub fn pod_as_owner(metadata: &Value) -> Value {
    let mut kept = json!({});
    for key in ["name", "namespace", "uid", "labels", "annotations", "ownerReferences"] {
        if let Some(value) = metadata.get(key) {
            kept[key] = value.clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": kept})
}

/// A pod without what neither grouping nor facts read.
#[must_use]
pub fn trim_pod(mut pod: Pod) -> Pod {
    pod.metadata.managed_fields = None;
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    if let Some(status) = &mut pod.status {
        let conditions = status.conditions.take().unwrap_or_default();
        let kept = |condition: &PodCondition| ["PodScheduled", "PodResizePending"].contains(&condition.type_.as_str());
        let conditions = conditions.into_iter().filter(kept).collect();
        *status = PodStatus {
            phase: status.phase.take(),
            start_time: status.start_time.take(),
            conditions: Some(conditions),
            container_statuses: held(status.container_statuses.take()),
            init_container_statuses: held(status.init_container_statuses.take()),
            nominated_node_name: status.nominated_node_name.take(),
            ..PodStatus::default()
        };
    }
    for container in pod.spec.iter_mut().flat_map(|spec| spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten())) {
        container.env = None;
        container.args = None;
        container.command = None;
        container.volume_mounts = None;
    }
    pod
}

/// What containers hold, which a resize may make differ from what they ask for.
fn held(statuses: Option<Vec<ContainerStatus>>) -> Option<Vec<ContainerStatus>> {
    let cut = |status: ContainerStatus| ContainerStatus {
        name: status.name,
        resources: status.resources,
        allocated_resources: status.allocated_resources,
        ..ContainerStatus::default()
    };
    statuses.map(|statuses| statuses.into_iter().map(cut).collect())
}

/// A pod that runs: its shape does not matter any more.
#[must_use]
pub fn trim_bound(mut pod: Pod) -> Pod {
    pod.metadata.resource_version = None;
    if let Some(spec) = pod.spec.take() {
        pod.spec = Some(PodSpec {
            node_name: spec.node_name,
            scheduler_name: spec.scheduler_name,
            priority_class_name: spec.priority_class_name,
            ..PodSpec::default()
        });
    }
    pod
}

/// Reason and message of `PodScheduled=False`.
#[must_use]
pub fn unscheduled_condition(pod: &Pod) -> Option<(String, String)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    Some((found.reason.clone().unwrap_or_default(), found.message.clone().unwrap_or_default()))
}
