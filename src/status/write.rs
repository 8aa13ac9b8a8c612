//! The requests of the status writer, one function per kind of write, and what their failures mean.

mod pod_gangs;
mod stale_note;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use berth_api::keys;
use berth_api::pod_group::PodGroup;
use berth_api::queue::Queue;
use berth_engine::facts::ObjectKey;
use berth_engine::outcome::{GangReport, QueueReport};
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::render::{self, Condition};
use super::{Notice, PodReport, REWRITE_AFTER, Write};
use crate::clock::now_millis;
use crate::cluster::directory::SharedDirectory;
use crate::grouping::expand::short_hash;
use crate::leader::Fence;
use crate::telemetry::{Complaint, Metrics};

/// The component that events name.
const COMPONENT: &str = "berth";

/// Objects whose last written state is remembered: one per gang and pending pod of a large cluster. When it is full it is
/// emptied, which costs at most one more write per object.
const MAX_REMEMBERED: usize = 200_000;

/// Longest text of a promise: annotations of an object take 256 KiB together.
const MAX_PROMISE: usize = 200_000;

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Done, or not needed, or pointless.
    Done,
    /// It failed: try again.
    Again,
    /// It was written lately: not before this moment.
    NotBefore(Instant),
}

/// Makes the requests and remembers what was written.
pub(super) struct Scribe {
    client: Client,
    fence: Fence,
    metrics: Arc<Metrics>,
    directory: SharedDirectory,
    /// Condition or status last written, by UID.
    written: Mutex<BTreeMap<String, (Value, Instant)>>,
    events: AtomicU64,
    /// Refused writes by what they were.
    complaints: Mutex<BTreeMap<&'static str, Complaint>>,
}

struct Subject<'a> {
    api_version: &'a str,
    kind: &'a str,
    key: &'a ObjectKey,
    uid: &'a str,
}

impl<'a> Subject<'a> {
    fn pod_group(key: &'a ObjectKey, uid: &'a str) -> Self {
        Self { api_version: "scheduling.run.ai/v2alpha2", kind: "PodGroup", key, uid }
    }
}

impl Scribe {
    pub(super) fn new(client: Client, fence: Fence, metrics: Arc<Metrics>, directory: SharedDirectory) -> Self {
        Self { client, fence, metrics, directory, written: Mutex::default(), events: AtomicU64::new(0), complaints: Mutex::default() }
    }

    pub(super) async fn write(&self, write: &Write) -> End {
        if !self.fence.lets_pass() {
            return End::Again;
        }
        match write {
            Write::Create(object) => self.create(object).await,
            Write::Patch(patch) => self.patch(patch).await,
            Write::Promise { gang, text } => self.promise(gang, text.as_deref()).await,
            Write::Status(report) => self.status(report).await,
            Write::Condition(pod) => self.condition(pod).await,
            Write::Notice(notice) => self.notice(notice).await,
            Write::Queue(report) => self.queue(report).await,
        }
    }

    fn count(&self, verb: &str) {
        self.metrics.api_requests.with_label_values(&[verb]).inc();
    }

    fn last(&self, uid: &str) -> Option<(Value, Instant)> {
        let written = self.written.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        written.get(uid).cloned()
    }

    fn remember(&self, uid: &str, value: Value) {
        let mut written = self.written.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if written.len() >= MAX_REMEMBERED {
            written.clear();
        }
        written.insert(uid.to_owned(), (value, Instant::now()));
    }

    fn pod_groups(&self, namespace: &str) -> Api<PodGroup> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn create(&self, object: &Value) -> End {
        self.count("create_podgroup");
        let group: PodGroup = match serde_json::from_value(object.clone()) {
            Ok(group) => group,
            Err(error) => {
                warn!(%error, "PodGroup could not be made");
                return End::Done;
            }
        };
        let namespace = group.metadata.namespace.clone().unwrap_or_default();
        let result = self.pod_groups(&namespace).create(&PostParams::default(), &group).await;
        match result {
            // It exists: the watch shows it, and what differs is patched then.
            Err(Error::Api(status)) if status.code == 409 => End::Done,
            result => self.ended("create PodGroup", result.map(|_| ())),
        }
    }

    async fn patch(&self, patch: &Value) -> End {
        self.count("patch_podgroup");
        let (name, namespace) = (&patch["metadata"]["name"], &patch["metadata"]["namespace"]);
        let (Some(name), Some(namespace)) = (name.as_str(), namespace.as_str()) else { return End::Done };
        let result = self.pod_groups(namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        self.ended("patch PodGroup", result.map(|_| ()))
    }

    async fn status(&self, report: &GangReport) -> End {
        let (object_uid, existing, node_pool) = {
            let directory = self.directory.lock();
            let Some(entry) = directory.gang(&report.uid) else { return End::Done };
            (entry.object_uid.clone(), entry.status.clone(), entry.node_pool.clone())
        };
        // Without its object there is nothing to write on; it is on its way.
        let Some(object_uid) = object_uid else { return End::Again };
        self.warnings(report, &object_uid).await;
        if self.placement_score(report).await == End::Again || self.stale_note(report, &object_uid).await == End::Again {
            return End::Again;
        }
        let (known, at) = match self.last(&object_uid) {
            Some((known, at)) => (known, Some(at)),
            None => (existing, None),
        };
        let mut ours = render::status(report);
        ours["schedulingConditions"] =
            render::scheduling_conditions(report, &node_pool, &known["schedulingConditions"], Timestamp::now());
        if render::says_already(&known, &ours) {
            return End::Done;
        }
        // A Job whose pods end one by one changes `bound` alone: that is told now and then, not once a pod.
        let same = ["phase", "reason"].iter().all(|field| known.get(field) == ours.get(field));
        if let Some(later) = too_early(at, same) {
            return later;
        }
        self.count("patch_podgroup_status");
        let patch = json!({"metadata": {"uid": object_uid}, "status": render::replacing(&known, &ours)});
        let api = self.pod_groups(&report.key.namespace);
        let result = api.patch_status(&report.key.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        let end = self.ended("patch PodGroup status", result.map(|_| ()));
        if end == End::Done {
            let before = known.get("reason").cloned().unwrap_or_default();
            self.remember(&object_uid, ours);
            if let Some(reason) = report.reasons.first() {
                let condition = render::condition(reason);
                if before != condition.code {
                    let name = self.event_name(&report.key.name);
                    self.event(&Subject::pod_group(&report.key, &object_uid), &condition, &name).await;
                }
            }
        }
        end
    }

    /// Writes down which room is kept for a gang, so that the next process knows.
    async fn promise(&self, gang: &str, text: Option<&str>) -> End {
        let (object_uid, key, stands) = {
            let directory = self.directory.lock();
            let Some(entry) = directory.gang(gang) else { return End::Done };
            (entry.object_uid.clone(), entry.key.clone(), entry.promised.clone())
        };
        let Some(object_uid) = object_uid else { return if text.is_some() { End::Again } else { End::Done } };
        let told = format!("{object_uid}/promise");
        let known = self.last(&told).map_or(json!(stands), |(known, _)| known);
        if known == json!(text) {
            return End::Done;
        }
        if text.is_some_and(|text| text.len() > MAX_PROMISE) {
            warn!(gang = %key.name, namespace = %key.namespace, "room that is kept is not written down: it takes too many words");
            return End::Done;
        }
        self.count("patch_podgroup");
        let patch = json!({"metadata": {"uid": object_uid, "annotations": {keys::PROMISED: text}}});
        let result = self.pod_groups(&key.namespace).patch(&key.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        let end = self.ended("patch PodGroup", result.map(|_| ()));
        if end == End::Done {
            self.remember(&told, json!(text));
        }
        end
    }

    async fn queue(&self, report: &QueueReport) -> End {
        let (uid, existing) = {
            let directory = self.directory.lock();
            let Some(entry) = directory.queue(&report.name) else { return End::Done };
            (entry.facts.uid.clone(), entry.status.clone())
        };
        let ours = render::queue_status(report);
        let known = self.last(&uid).map_or(existing, |(known, _)| known);
        if render::says_already(&known, &ours) {
            return End::Done;
        }
        self.count("patch_queue_status");
        let patch = json!({"metadata": {"uid": uid}, "status": render::replacing(&known, &ours)});
        let api: Api<Queue> = Api::all(self.client.clone());
        let result = api.patch_status(&report.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        let end = self.ended("patch Queue status", result.map(|_| ()));
        if end == End::Done {
            self.remember(&uid, ours);
        }
        end
    }

    async fn notice(&self, notice: &Notice) -> End {
        let (object_uid, key) = {
            let directory = self.directory.lock();
            let Some(entry) = directory.gang(&notice.gang) else { return End::Done };
            (entry.object_uid.clone(), entry.key.clone())
        };
        let Some(object_uid) = object_uid else { return End::Again };
        let told = format!("{object_uid}/{}/{}", notice.condition.code, notice.since);
        if self.last(&told).is_none() {
            let name = self.event_name(&key.name);
            self.event_with(&Subject::pod_group(&key, &object_uid), &notice.condition, &name, &notice.annotations).await;
            self.remember(&told, Value::Null);
        }
        End::Done
    }

    /// One event per text: also after a restart, because the text is in the event's name.
    async fn warnings(&self, report: &GangReport, object_uid: &str) {
        for warning in &report.warnings {
            let condition = render::warning(warning);
            let told = format!("{object_uid}/{}", condition.message);
            if self.last(&told).is_some() {
                continue;
            }
            let name = format!("{}.{}", event_prefix(&report.key.name), short_hash(&told));
            self.event(&Subject::pod_group(&report.key, object_uid), &condition, &name).await;
            self.remember(&told, Value::Null);
        }
    }

    async fn condition(&self, pod: &PodReport) -> End {
        let (written_here, marks, version, nominated) = {
            let directory = self.directory.lock();
            let Some(entry) = directory.gang(&pod.gang) else { return End::Done };
            let Some(member) = entry.members.get(&pod.uid) else { return End::Done };
            if member.node.is_some() || member.leaving {
                return End::Done;
            }
            (member.condition.clone(), entry.mark_unschedulable, member.version.clone(), member.nominated.clone())
        };
        let is_gated = written_here.as_ref().is_some_and(|(reason, _)| reason == "SchedulingGated");
        let ours = json!({"reason": pod.condition.reason, "message": pod.condition.message, "nominated": pod.nominated});
        let stands = written_here
            .as_ref()
            .map(|(reason, message)| json!({"reason": reason, "message": message, "nominated": pod.nominated.as_ref().and(nominated)}));
        let (before, at) = match self.last(&pod.uid) {
            Some((before, at)) => (Some(before), Some(at)),
            None => (stands, None),
        };
        if is_gated || before.as_ref() == Some(&ours) {
            return End::Done;
        }
        let was = |field: &str| before.as_ref().and_then(|before| before.get(field)).cloned().unwrap_or_default();
        let same = was("reason") == ours["reason"] && was("nominated") == ours["nominated"];
        // Only what was written here is taken back: others may have nominated a node, too.
        let nominates = was("nominated") != ours["nominated"];
        if let Some(later) = too_early(at, same) {
            return later;
        }
        let mut end = End::Done;
        if marks || nominates {
            self.count("patch_pod_status");
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.key.namespace);
            // A Binding that came first moved the version: then this is refused, and looked at again.
            let metadata = json!({"uid": pod.uid, "resourceVersion": version});
            let mut patch = json!({"metadata": metadata, "status": {}});
            if marks {
                patch["status"]["conditions"] = json!([{
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": pod.condition.reason,
                    "message": pod.condition.message,
                    "lastTransitionTime": Time(Timestamp::now()),
                }]);
            }
            if nominates {
                patch["status"]["nominatedNodeName"] = json!(pod.nominated);
            }
            let result = api.patch_status(&pod.key.name, &PatchParams::default(), &Patch::Strategic(&patch)).await;
            end = match result {
                Err(Error::Api(status)) if status.code == 409 => End::Again,
                result => self.ended("patch pod condition", result.map(|_| ())),
            };
        }
        if end == End::Done {
            self.remember(&pod.uid, ours);
            if !same {
                let subject = Subject { api_version: "v1", kind: "Pod", key: &pod.key, uid: &pod.uid };
                let name = self.event_name(&pod.key.name);
                self.event(&subject, &pod.condition, &name).await;
            }
        }
        end
    }

    /// What the end of a write means. Refusals are logged once a minute for each kind of write: a permission that is missing
    /// is missing for every object.
    fn ended(&self, what: &'static str, result: Result<(), Error>) -> End {
        match result {
            Ok(()) => End::Done,
            // Gone, replaced or refused: the watch brings what is true now.
            Err(Error::Api(status)) if matches!(status.code, 404 | 409) => {
                debug!(write = what, code = status.code, text = %status.message, "write without an object");
                End::Done
            }
            Err(Error::Api(status)) if matches!(status.code, 400 | 403 | 405 | 413 | 422) => {
                let mut complaints = self.complaints.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if let Some(refused) = complaints.entry(what).or_default().error(std::time::Instant::now()) {
                    warn!(write = what, code = status.code, text = %status.message, refused, "write refused");
                }
                End::Done
            }
            Err(error) => {
                debug!(write = what, %error, "write failed; trying again");
                End::Again
            }
        }
    }

    /// A name that no other event has.
    fn event_name(&self, of: &str) -> String {
        let number = self.events.fetch_add(1, Ordering::Relaxed);
        format!("{}.{:x}{number:x}", event_prefix(of), now_millis())
    }

    /// An event, tried once: it is a notice, not a state.
    async fn event(&self, subject: &Subject<'_>, condition: &Condition, name: &str) {
        self.event_with(subject, condition, name, &BTreeMap::new()).await;
    }

    async fn event_with(&self, subject: &Subject<'_>, condition: &Condition, name: &str, annotations: &BTreeMap<&str, String>) {
        self.count("create_event");
        let now = Time(Timestamp::now());
        let event = json!({
            "metadata": {"name": name, "namespace": subject.key.namespace, "annotations": annotations},
            "involvedObject": {
                "apiVersion": subject.api_version, "kind": subject.kind,
                "name": subject.key.name, "namespace": subject.key.namespace, "uid": subject.uid,
            },
            "reason": condition.code, "message": condition.message, "type": "Warning", "count": 1,
            "firstTimestamp": now, "lastTimestamp": now,
            "source": {"component": COMPONENT}, "reportingComponent": COMPONENT, "reportingInstance": "",
        });
        let event: Event = match serde_json::from_value(event) {
            Ok(event) => event,
            Err(error) => {
                warn!(%error, "event could not be made");
                return;
            }
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), &subject.key.namespace);
        // An event that got lost is not made again.
        self.ended("create event", api.create(&PostParams::default(), &event).await.map(|_| ()));
    }
}

/// The part of an event's name that says what it is about.
fn event_prefix(name: &str) -> String {
    name.chars().take(200).collect()
}

/// Whether a write that only changes the words comes too soon after the last one.
fn too_early(last: Option<Instant>, same: bool) -> Option<End> {
    let not_before = last? + REWRITE_AFTER;
    (same && Instant::now() < not_before).then_some(End::NotBefore(not_before))
}

#[cfg(test)]
mod tests {
    use berth_engine::facts::{Amounts, Problem, ProblemCode, QueueFacts};
    use berth_engine::outcome::{GangState, Stale};

    use super::*;
    use crate::cluster::directory::{Member, QueueEntry};
    use crate::fake_api::{FakeApi, failure};

    #[tokio::test]
    async fn a_warning_is_told_once_and_not_again_after_a_restart() {
        let api = FakeApi::start(|_| failure(409, "exists")).await;
        let directory = SharedDirectory::default();
        directory.lock().gang_mut("g").object_uid = Some("object".to_owned());
        let warning = |value: &str| Problem {
            code: ProblemCode::UnknownPriorityClass,
            object: "Job/j".to_owned(),
            key: "priorityClassName".to_owned(),
            value: value.to_owned(),
            allowed: "the name of a PriorityClass that exists".to_owned(),
        };
        let mut report = GangReport {
            uid: "g".to_owned(),
            key: ObjectKey::new("ns", "group"),
            owner: String::new(),
            queue: String::new(),
            state: GangState::Placed,
            min_member: 1,
            pods: 1,
            bound: 1,
            quality: None,
            reasons: Vec::new(),
            stale: None,
            preemptible: true,
            allocated: Amounts::new(),
            requested: Amounts::new(),
            warnings: vec![warning("nope")],
            promised: BTreeMap::new(),
        };
        let scribe = || {
            let metrics = Arc::new(Metrics::new().expect("metrics"));
            Scribe::new(api.client.clone(), Fence::open(), metrics, directory.clone())
        };
        let first = scribe();
        first.status(&report).await;
        first.status(&report).await;
        scribe().status(&report).await;
        report.warnings.push(warning("other"));
        first.status(&report).await;
        let asked = api.asked();
        let events: Vec<_> = asked.iter().filter(|asked| asked.path.ends_with("/events")).map(|asked| &asked.body).collect();
        let names: Vec<_> = events.iter().map(|event| &event["metadata"]["name"]).collect();
        assert_eq!(names.len(), 3, "{events:?}");
        assert!(names[0] == names[1] && names[1] != names[2], "{names:?}");
        assert_eq!((&events[0]["type"], &events[0]["reason"]), (&json!("Warning"), &json!("UnknownPriorityClass")));
        assert_eq!(events[0]["involvedObject"]["kind"], "PodGroup");
        let words = events[0]["message"].as_str().expect("a text");
        assert!(words.contains("priorityClassName on Job/j is \"nope\""), "{words}");
    }

    #[tokio::test]
    async fn a_queue_is_written_when_it_changed_and_not_when_it_says_so_already() {
        let api = FakeApi::start(|_| (200, json!({"metadata": {"name": "team"}, "spec": {"resources": {}}}))).await;
        let directory = SharedDirectory::default();
        let facts = QueueFacts { uid: "q".to_owned(), name: "team".to_owned(), ..QueueFacts::default() };
        let status = json!({"allocated": {"nvidia.com/gpu": "8"}, "requested": {"nvidia.com/gpu": "8"}});
        directory.lock().put_queue(QueueEntry { facts, status, display: String::new() });
        let metrics = Arc::new(Metrics::new().expect("metrics"));
        let scribe = Scribe::new(api.client.clone(), Fence::open(), metrics, directory.clone());
        let gpus = |count| Amounts::from([("nvidia.com/gpu".to_owned(), count)]);
        let mut report = QueueReport {
            name: "team".to_owned(),
            children: Vec::new(),
            allocated: gpus(8),
            allocated_non_preemptible: Amounts::new(),
            requested: gpus(8),
            share: berth_engine::outcome::QueueShare::default(),
        };
        scribe.queue(&report).await;
        assert!(api.asked().is_empty(), "an earlier process wrote this");
        report.allocated = Amounts::from([("cpu".to_owned(), 500)]);
        scribe.queue(&report).await;
        scribe.queue(&report).await;
        let asked = api.asked();
        assert_eq!(asked.len(), 1);
        assert!(asked[0].path.ends_with("/queues/team/status") && asked[0].body["metadata"]["uid"] == "q", "{asked:?}");
        assert_eq!(asked[0].body["status"]["allocated"], json!({"cpu": "500m", "nvidia.com/gpu": null}));
    }

    #[tokio::test]
    async fn a_stale_gang_is_told_once_for_each_time() {
        let api = FakeApi::start(|asked| (201, asked.body.clone())).await;
        let directory = SharedDirectory::default();
        {
            let mut locked = directory.lock();
            let entry = locked.gang_mut("g");
            (entry.object_uid, entry.key) = (Some("object".to_owned()), ObjectKey::new("ns", "group"));
        }
        let metrics = Arc::new(Metrics::new().expect("metrics"));
        let scribe = Scribe::new(api.client.clone(), Fence::open(), metrics, directory.clone());
        for since in [1, 1, 2] {
            let stale = Stale { since, evicting: false, subgroup: String::new(), has: 1, needs: 2 };
            scribe.notice(&Notice { gang: "g".to_owned(), condition: render::stale(&stale), since, annotations: BTreeMap::new() }).await;
        }
        let asked = api.asked();
        assert_eq!(asked.len(), 2, "{asked:?}");
        assert_eq!((&asked[0].body["reason"], &asked[0].body["involvedObject"]["uid"]), (&json!("StaleJob"), &json!("object")));
        assert!(asked[0].body["message"].as_str().is_some_and(|text| text.starts_with("1 of 2 pods")), "{asked:?}");
    }

    #[tokio::test]
    async fn a_condition_never_comes_after_a_binding() {
        // The pod was bound in between: the version of the condition is not the newest any more.
        let api = FakeApi::start(|_| failure(409, "the object has been modified")).await;
        let directory = SharedDirectory::default();
        let note = |node: Option<&str>| {
            let member = Member { version: "7".to_owned(), node: node.map(str::to_owned), ..Member::default() };
            let mut locked = directory.lock();
            let entry = locked.gang_mut("g");
            entry.mark_unschedulable = true;
            entry.members.insert("u".to_owned(), member);
        };
        let metrics = Arc::new(Metrics::new().expect("metrics"));
        let scribe = Scribe::new(api.client.clone(), Fence::open(), metrics, directory.clone());
        let condition =
            Condition { code: "NotEnoughRoom".to_owned(), reason: "Unschedulable".to_owned(), message: "full".to_owned() };
        let report =
            PodReport { uid: "u".to_owned(), key: ObjectKey::new("ns", "p"), gang: "g".to_owned(), condition, nominated: None };
        note(None);
        assert_eq!(scribe.condition(&report).await, End::Again);
        note(Some("n1"));
        assert_eq!(scribe.condition(&report).await, End::Done);
        let asked = api.asked();
        assert_eq!(asked.len(), 1, "once the pod is bound nothing is sent, no event either: {asked:?}");
        assert_eq!((asked[0].method.as_str(), &asked[0].body["metadata"]["resourceVersion"]), ("PATCH", &json!("7")));
    }
}
