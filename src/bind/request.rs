//! One Binding, one eviction: the requests, their retries, and how an unclear end is cleared up.

use std::sync::Arc;
use std::time::Duration;

use berth_api::keys;
use berth_engine::facts::BindResult;
use berth_engine::outcome::{Placement, Victim};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::leader::Fence;
use crate::telemetry::Metrics;

/// One request may take this long. A Binding tells the API server so, which gives up at the same time: after a crash nothing
/// can take effect later than this. A healthy server needs 2 to 10 ms; one that is being replaced needs a few seconds.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Tries of one Binding: with doubling waits from 50 ms about 13 s, enough for an API server that restarts in place.
const MAX_TRIES: u32 = 9;

/// Wait after the first failed try.
const FIRST_WAIT: Duration = Duration::from_millis(50);

enum Try {
    Done(BindResult),
    Again(String),
}

/// What requests need.
#[derive(Clone)]
pub struct Sender {
    /// The client.
    pub client: Client,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Whether this process may write.
    pub fence: Fence,
    /// The API server does not copy labels from a Binding to its pod.
    pub labels_first: bool,
}

/// Whether an API server copies the labels of a Binding to its pod: from 1.35 on. A version that can't be read counts as old.
#[must_use]
pub fn copies_labels(major: &str, minor: &str) -> bool {
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u32>().ok();
    match (number(major), number(minor)) {
        (Some(major), Some(minor)) => (major, minor) >= (1, 35),
        _ => false,
    }
}

impl Sender {
    /// Binds a pod and says how it ended.
    pub(super) async fn bind(&self, placement: &Placement, gang: &str, mark: &str, handwritten: bool) -> BindResult {
        let body = body(placement, gang, mark, handwritten);
        let mut wait = FIRST_WAIT;
        let mut last = String::new();
        for _ in 0..MAX_TRIES {
            if !self.fence.lets_pass() {
                return BindResult::Transient("this process does not lead any more".to_owned());
            }
            let labels = body["metadata"].get("labels").filter(|_| self.labels_first);
            let first = match labels {
                Some(labels) => self.try_label(placement, labels).await,
                None => None,
            };
            let tried = match first {
                Some(ended) => ended,
                None => self.try_bind(placement, &body).await,
            };
            match tried {
                Try::Done(result) => return result,
                Try::Again(text) => last = text,
            }
            sleep(wait).await;
            wait *= 2;
        }
        BindResult::Transient(last)
    }

    fn pods(&self, placement: &Placement) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &placement.pod.namespace)
    }

    fn count(&self, verb: &str) {
        self.metrics.api_requests.with_label_values(&[verb]).inc();
    }

    /// Labels the pod before its Binding. `None` when that is done.
    async fn try_label(&self, placement: &Placement, labels: &Value) -> Option<Try> {
        self.count("patch_pod");
        let patch = json!({"metadata": {"uid": placement.pod_uid, "labels": labels}});
        let (pods, parameters, patch) = (self.pods(placement), PatchParams::default(), Patch::Merge(patch));
        let request = pods.patch_metadata(&placement.pod.name, &parameters, &patch);
        match timeout(REQUEST_TIMEOUT, request).await {
            Ok(Ok(_)) => None,
            Ok(Err(Error::Api(status))) if matches!(status.code, 429 | 500..=599) => Some(Try::Again(status.message.clone())),
            Ok(Err(Error::Api(status))) => Some(Try::Done(BindResult::Permanent(status.message.clone()))),
            Ok(Err(error)) => Some(Try::Again(error.to_string())),
            Err(_) => Some(Try::Again("labelling the pod timed out".to_owned())),
        }
    }

    /// Says on a pod which node is being prepared for it, or takes that back. Others (autoscalers, the next process) act on
    /// it; nothing here depends on it, so a failure is left at that.
    pub(super) async fn nominate(&self, placement: &Placement, node: Option<&str>) {
        if !self.fence.lets_pass() {
            return;
        }
        self.count("patch_pod_status");
        let patch = json!({"metadata": {"uid": placement.pod_uid}, "status": {"nominatedNodeName": node}});
        let (pods, parameters, patch) = (self.pods(placement), PatchParams::default(), Patch::Merge(patch));
        let request = pods.patch_status(&placement.pod.name, &parameters, &patch);
        let failed = match timeout(REQUEST_TIMEOUT, request).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the request timed out".to_owned(),
        };
        debug!(pod = %placement.pod.name, namespace = %placement.pod.namespace, error = failed, "node not nominated");
    }

    async fn try_bind(&self, placement: &Placement, body: &Value) -> Try {
        self.count("bind");
        match timeout(REQUEST_TIMEOUT, self.send(placement, body)).await {
            Ok(Ok(answer)) if answer.get("status").and_then(Value::as_str) == Some("Failure") => {
                let text = answer.get("message").and_then(Value::as_str).unwrap_or("Failure without a message");
                Try::Done(BindResult::Permanent(text.to_owned()))
            }
            Ok(Ok(_)) => Try::Done(BindResult::Bound),
            Ok(Err(Error::Api(status))) => match status.code {
                429 => Try::Again(status.message.clone()),
                409 | 500..=599 => self.clear_up(placement, &status.message).await,
                _ => Try::Done(BindResult::Permanent(status.message.clone())),
            },
            Ok(Err(error)) => self.clear_up(placement, &error.to_string()).await,
            Err(_) => self.clear_up(placement, "the request timed out").await,
        }
    }

    /// The request of a Binding, with the time that the server may take for it.
    async fn send(&self, placement: &Placement, body: &Value) -> Result<Value, Error> {
        let url = format!("/api/v1/namespaces/{}/pods", placement.pod.namespace);
        let data = serde_json::to_vec(body).map_err(Error::SerdeError)?;
        let request = Request::new(url).create_subresource("binding", &placement.pod.name, &PostParams::default(), data);
        let mut request = request.map_err(Error::BuildRequest)?;
        let text = request.uri().to_string();
        let joint = if text.contains('?') { "&" } else { "?" };
        if let Ok(uri) = format!("{text}{joint}timeout={}s", REQUEST_TIMEOUT.as_secs()).parse() {
            *request.uri_mut() = uri;
        }
        self.client.request(request).await
    }

    /// Reads the pod: whether the Binding took effect is written there.
    async fn clear_up(&self, placement: &Placement, text: &str) -> Try {
        self.count("get");
        match timeout(REQUEST_TIMEOUT, self.pods(placement).get_opt(&placement.pod.name)).await {
            Ok(Ok(Some(pod))) => judge(&pod, placement, text),
            Ok(Ok(None)) => Try::Done(BindResult::Permanent("the pod is gone".to_owned())),
            Ok(Err(error)) => Try::Again(format!("{text}; and the pod could not be read: {error}")),
            Err(_) => Try::Again(format!("{text}; and reading the pod timed out")),
        }
    }

    /// Evicts a pod through the Eviction API, guarded by its UID. A disruption budget may refuse; then the pod stays, and
    /// the API's words are given.
    pub(super) async fn evict(&self, victim: &Victim) -> Option<String> {
        if !self.fence.lets_pass() {
            return Some("this process does not lead any more".to_owned());
        }
        let (pod, namespace) = (&victim.pod.name, &victim.pod.namespace);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": victim.pod_uid}},
        });
        self.count("evict");
        let parameters = PostParams::default();
        let request = pods.create_subresource::<Value, Value>("eviction", pod, &parameters, &body);
        let refused = match timeout(REQUEST_TIMEOUT, request).await {
            // A success may carry a failure in its body.
            Ok(Ok(answer)) if answer.get("status").and_then(Value::as_str) == Some("Failure") => {
                answer.get("message").and_then(Value::as_str).unwrap_or("Failure without a message").to_owned()
            }
            Ok(Ok(_)) => {
                info!(pod, namespace, "pod evicted");
                return None;
            }
            // Gone, or another of its name: this one is not there any more.
            Ok(Err(Error::Api(status))) if matches!(status.code, 404 | 409) => return None,
            Ok(Err(Error::Api(status))) => status.message.clone(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the eviction timed out".to_owned(),
        };
        warn!(pod, namespace, refused, "eviction refused");
        Some(refused)
    }
}

fn body(placement: &Placement, gang: &str, mark: &str, handwritten: bool) -> Value {
    let mut metadata = json!({
        "name": placement.pod.name,
        "namespace": placement.pod.namespace,
        "uid": placement.pod_uid,
        "annotations": {keys::POD_GROUP: gang, keys::DECISION: mark},
    });
    if !placement.domain.is_empty() {
        // Neither a label nor its value has a comma or an equals sign in it.
        let levels: Vec<String> = placement.domain.iter().map(|(level, value)| format!("{level}={value}")).collect();
        metadata["annotations"][keys::DOMAIN] = json!(levels.join(","));
    }
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

#[cfg(test)]
mod tests {
    use berth_engine::facts::ObjectKey;

    use super::*;

    fn placement() -> Placement {
        Placement {
            pod_uid: "u1".to_owned(),
            pod: ObjectKey::new("ns", "p"),
            subgroup: "worker-0".to_owned(),
            node: "n1".to_owned(),
            node_uid: String::new(),
            volumes: Vec::new(),
            domain: Vec::new(),
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
    fn labels_are_copied_from_1_35_on() {
        assert!(copies_labels("1", "35") && copies_labels("1", "36+") && copies_labels("2", "0"));
        assert!(!copies_labels("1", "34") && !copies_labels("1", "34+") && !copies_labels("", "new"));
    }

    #[test]
    fn a_pod_learns_its_domain_with_the_binding() {
        let none = body(&placement(), "g", "1-1/2", false);
        assert!(none["metadata"]["annotations"].get(keys::DOMAIN).is_none());
        let path = [("topology.kubernetes.io/zone", "z1"), ("rack", "r2")];
        let domain = path.map(|(level, value)| (level.to_owned(), value.to_owned())).to_vec();
        let told = body(&Placement { domain, ..placement() }, "g", "1-1/2", false);
        assert_eq!(told["metadata"]["annotations"][keys::DOMAIN], "topology.kubernetes.io/zone=z1,rack=r2");
    }

    #[test]
    fn pods_of_handwritten_groups_are_not_labelled() {
        assert_eq!(body(&placement(), "g", "1-1/2", false)["metadata"]["labels"][keys::SUB_GROUP], "worker-0");
        assert!(body(&placement(), "g", "1-1/2", true)["metadata"]["labels"].is_null());
        assert_eq!(body(&placement(), "g", "1-1/2", true)["metadata"]["uid"], "u1");
    }
}
