//! One Binding, one eviction: the requests, their retries, and how an unclear end is cleared up.

use std::time::Duration;

use berth_api::keys;
use berth_engine::facts::{BindResult, ObjectKey};
use berth_engine::outcome::Placement;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::telemetry::Metrics;

/// One request may take this long; the API server itself gives up on one that is slower.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Tries of one Binding: with doubling waits from 50 ms about 13 s, enough for an API server that restarts in place.
const MAX_TRIES: u32 = 9;

/// Wait after the first failed try.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// A bound pod of a gang that is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// UID, the guard.
    pub uid: String,
    /// Namespace and name.
    pub key: ObjectKey,
}

enum Try {
    Done(BindResult),
    Again(String),
}

/// Binds a pod and says how it ended.
pub(super) async fn bind(
    client: &Client,
    metrics: &Metrics,
    placement: &Placement,
    gang: &str,
    mark: &str,
    handwritten: bool,
) -> BindResult {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &placement.pod.namespace);
    let body = body(placement, gang, mark, handwritten);
    let mut wait = FIRST_WAIT;
    let mut last = String::new();
    for _ in 0..MAX_TRIES {
        match try_bind(&pods, metrics, placement, &body).await {
            Try::Done(result) => return result,
            Try::Again(text) => last = text,
        }
        sleep(wait).await;
        wait *= 2;
    }
    BindResult::Transient(last)
}

fn body(placement: &Placement, gang: &str, mark: &str, handwritten: bool) -> Value {
    let mut metadata = json!({
        "name": placement.pod.name,
        "namespace": placement.pod.namespace,
        "uid": placement.pod_uid,
        "annotations": {keys::POD_GROUP: gang, keys::DECISION: mark},
    });
    if !handwritten && !placement.subgroup.is_empty() {
        metadata["labels"] = json!({keys::SUB_GROUP: placement.subgroup});
    }
    json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": placement.node},
    })
}

async fn try_bind(pods: &Api<Pod>, metrics: &Metrics, placement: &Placement, body: &Value) -> Try {
    metrics.api_requests.with_label_values(&["bind"]).inc();
    let parameters = PostParams::default();
    let request = pods.create_subresource::<Value, Value>("binding", &placement.pod.name, &parameters, body);
    match timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(answer)) if answer.get("status").and_then(Value::as_str) == Some("Failure") => {
            let text = answer.get("message").and_then(Value::as_str).unwrap_or("Failure without a message");
            Try::Done(BindResult::Permanent(text.to_owned()))
        }
        Ok(Ok(_)) => Try::Done(BindResult::Bound),
        Ok(Err(Error::Api(status))) => match status.code {
            429 => Try::Again(status.message.clone()),
            409 | 500..=599 => clear_up(pods, metrics, placement, &status.message).await,
            _ => Try::Done(BindResult::Permanent(status.message.clone())),
        },
        Ok(Err(error)) => clear_up(pods, metrics, placement, &error.to_string()).await,
        Err(_) => clear_up(pods, metrics, placement, "the request timed out").await,
    }
}

/// Reads the pod: whether the Binding took effect is written there.
async fn clear_up(pods: &Api<Pod>, metrics: &Metrics, placement: &Placement, text: &str) -> Try {
    metrics.api_requests.with_label_values(&["get"]).inc();
    match timeout(REQUEST_TIMEOUT, pods.get_opt(&placement.pod.name)).await {
        Ok(Ok(Some(pod))) => judge(&pod, placement, text),
        Ok(Ok(None)) => Try::Done(BindResult::Permanent("the pod is gone".to_owned())),
        Ok(Err(error)) => Try::Again(format!("{text}; and the pod could not be read: {error}")),
        Err(_) => Try::Again(format!("{text}; and reading the pod timed out")),
    }
}

fn judge(pod: &Pod, placement: &Placement, text: &str) -> Try {
    let refused = |why: String| Try::Done(BindResult::Permanent(why));
    if pod.metadata.uid.as_deref() != Some(&placement.pod_uid) {
        return refused("the pod was replaced by another of the same name".to_owned());
    }
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    if node == placement.node {
        return Try::Done(BindResult::Bound);
    }
    if !node.is_empty() {
        return refused(format!("the pod was bound to {node} by somebody else"));
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return refused("the pod is being deleted".to_owned());
    }
    if pod.spec.as_ref().is_some_and(|spec| spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty())) {
        return refused(text.to_owned());
    }
    Try::Again(text.to_owned())
}

/// Evicts a pod through the Eviction API, guarded by its UID. A disruption budget may refuse; then the pod stays.
pub(super) async fn evict(client: &Client, metrics: &Metrics, victim: &Victim) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &victim.key.namespace);
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": victim.key.name, "namespace": victim.key.namespace},
        "deleteOptions": {"preconditions": {"uid": victim.uid}},
    });
    metrics.api_requests.with_label_values(&["evict"]).inc();
    let parameters = PostParams::default();
    let request = pods.create_subresource::<Value, Value>("eviction", &victim.key.name, &parameters, &body);
    let (pod, namespace) = (&victim.key.name, &victim.key.namespace);
    match timeout(REQUEST_TIMEOUT, request).await {
        // A success may carry a failure in its body.
        Ok(Ok(answer)) if answer.get("status").and_then(Value::as_str) == Some("Failure") => {
            warn!(pod, namespace, answer = %answer, "eviction refused");
        }
        Ok(Ok(_)) => info!(pod, namespace, "pod of a released gang evicted"),
        Ok(Err(error)) => warn!(pod, namespace, %error, "eviction failed"),
        Err(_) => warn!(pod, namespace, "eviction timed out"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement() -> Placement {
        Placement {
            pod_uid: "u1".to_owned(),
            pod: ObjectKey::new("ns", "p"),
            subgroup: "worker-0".to_owned(),
            node: "n1".to_owned(),
            node_uid: String::new(),
            volumes: Vec::new(),
        }
    }

    fn pod(uid: &str, node: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": uid}, "spec": {"nodeName": node, "containers": []}}))
            .expect("a pod")
    }

    #[test]
    fn an_unclear_end_is_read_from_the_pod() {
        let ended = |pod: &Pod| judge(pod, &placement(), "conflict");
        assert!(matches!(ended(&pod("u1", "n1")), Try::Done(BindResult::Bound)));
        assert!(matches!(ended(&pod("u1", "n2")), Try::Done(BindResult::Permanent(_))));
        assert!(matches!(ended(&pod("u2", "n1")), Try::Done(BindResult::Permanent(_))));
        assert!(matches!(ended(&pod("u1", "")), Try::Again(_)));
    }

    #[test]
    fn pods_of_handwritten_groups_are_not_labelled() {
        assert_eq!(body(&placement(), "g", "1-1/2", false)["metadata"]["labels"][keys::SUB_GROUP], "worker-0");
        assert!(body(&placement(), "g", "1-1/2", true)["metadata"]["labels"].is_null());
        assert_eq!(body(&placement(), "g", "1-1/2", true)["metadata"]["uid"], "u1");
    }
}
