//! Ten thousand pods of a thousand owners: what that costs the API server, counted.

use std::collections::BTreeMap;

use berth_api::pod_group::PodGroup;
use serde_json::{Value, json};

use super::{end_lists, pod_kind, store};
use crate::cluster::store::Store;
use crate::cluster::{Change, Effect, Gvk};

const OWNERS: usize = 1_000;
const PODS_EACH: usize = 10;

/// Requests that follow from changes, by kind; the PodGroups among them come back as the API server would show them.
#[derive(Default)]
struct Api {
    requests: BTreeMap<&'static str, usize>,
    watched: Vec<Gvk>,
    groups: Vec<Value>,
    told: usize,
}

impl Api {
    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            let name = match effect {
                Effect::Engine(_) => {
                    self.told += 1;
                    continue;
                }
                Effect::Watch(gvk) => {
                    self.watched.push(gvk);
                    "watch"
                }
                Effect::Fetch(_) => "get",
                Effect::CreatePodGroup(_, object) => {
                    self.groups.push(stored(*object, self.groups.len()));
                    "create"
                }
                Effect::PatchPodGroup(..) => "patch",
                Effect::Skipped { object, message, .. } => panic!("{object}: {message}"),
            };
            *self.requests.entry(name).or_default() += 1;
        }
    }

    fn count(&self, name: &str) -> usize {
        self.requests.get(name).copied().unwrap_or(0)
    }
}

/// A PodGroup as the API server keeps it: what its definition lacks is gone, and it has an identity.
fn stored(object: Value, number: usize) -> Value {
    let mut stored = serde_json::to_value(serde_json::from_value::<PodGroup>(object).unwrap()).unwrap();
    stored["metadata"]["uid"] = json!(format!("pg-{number}"));
    stored["metadata"]["resourceVersion"] = json!("1");
    stored["metadata"]["generation"] = json!(1);
    stored
}

fn owned(api_version: &str, kind: &str, name: &str, owner: Option<(&str, &str, &str)>) -> Value {
    let mut object = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "namespace": "ns", "uid": format!("{kind}-{name}"), "annotations": {}, "labels": {}},
    });
    if let Some((api_version, kind, name)) = owner {
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": format!("{kind}-{name}"), "controller": true}]);
    }
    object
}

fn pod(name: &str, owner: (&str, &str, &str), labels: Value) -> Value {
    let mut pod = owned("v1", "Pod", name, Some(owner));
    pod["metadata"]["labels"] = labels;
    pod["spec"] = json!({
        "schedulerName": "kai-scheduler",
        "containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}],
    });
    pod["status"] = json!({"phase": "Pending"});
    pod
}

/// The workloads by turns: a Job, a PyTorchJob in segments, a LeaderWorkerSet behind two StatefulSets, a JobSet.
fn workloads() -> (BTreeMap<(String, String), Vec<Value>>, Vec<Value>) {
    let (mut owners, mut pods): (BTreeMap<(String, String), Vec<Value>>, _) = (BTreeMap::new(), Vec::new());
    let mut add = |object: Value| {
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        owners.entry((text("apiVersion"), text("kind"))).or_default().push(object);
    };
    for number in 0..OWNERS {
        let name = format!("w{number:03}");
        match number % 4 {
            0 => {
                let mut job = owned("batch/v1", "Job", &name, None);
                job["metadata"]["annotations"] = json!({"kai.scheduler/batch-min-member": "10"});
                job["spec"] = json!({"parallelism": 10, "completions": 10});
                add(job);
                pods.extend((0..PODS_EACH).map(|i| pod(&format!("{name}-{i}"), ("batch/v1", "Job", &name), json!({}))));
            }
            1 => {
                let mut job = owned("kubeflow.org/v1", "PyTorchJob", &name, None);
                job["metadata"]["annotations"] = json!({"kai.scheduler/segment-size": "5"});
                job["spec"] = json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 10, "template": {}}}});
                add(job);
                let labels = |i: usize| json!({
                    "training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": i.to_string(),
                });
                pods.extend((0..PODS_EACH).map(|i| pod(&format!("{name}-{i}"), ("kubeflow.org/v1", "PyTorchJob", &name), labels(i))));
            }
            2 => {
                let set = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name.as_str());
                let mut object = owned(set.0, set.1, &name, None);
                object["spec"] = json!({"leaderWorkerTemplate": {"size": 10}});
                add(object);
                let leader = format!("{name}-0");
                add(owned("apps/v1", "StatefulSet", &name, Some(set)));
                add(owned("apps/v1", "StatefulSet", &leader, Some(("v1", "Pod", &leader))));
                let labels = |i: usize| json!({
                    "leaderworkerset.sigs.k8s.io/group-index": "0", "leaderworkerset.sigs.k8s.io/worker-index": i.to_string(),
                });
                pods.push(pod(&leader, ("apps/v1", "StatefulSet", &name), labels(0)));
                pods.extend((1..PODS_EACH).map(|i| pod(&format!("{leader}-{i}"), ("apps/v1", "StatefulSet", &leader), labels(i))));
            }
            _ => {
                let set = ("jobset.x-k8s.io/v1alpha2", "JobSet", name.as_str());
                let mut object = owned(set.0, set.1, &name, None);
                let template = json!({"spec": {"parallelism": 10, "completions": 10}});
                object["spec"] = json!({"replicatedJobs": [{"name": "a", "replicas": 1, "template": template}]});
                add(object);
                let job = format!("{name}-a-0");
                add(owned("batch/v1", "Job", &job, Some(set)));
                let labels = |i: usize| json!({
                    "jobset.sigs.k8s.io/replicatedjob-name": "a", "jobset.sigs.k8s.io/job-index": "0",
                    "batch.kubernetes.io/job-completion-index": i.to_string(),
                });
                pods.extend((0..PODS_EACH).map(|i| pod(&format!("{job}-{i}"), ("batch/v1", "Job", &job), labels(i))));
            }
        }
    }
    (owners, pods)
}

/// Answers the watches that were asked for, until none is.
fn list_owners(store: &mut Store, api: &mut Api, owners: &BTreeMap<(String, String), Vec<Value>>) {
    while let Some(gvk) = api.watched.pop() {
        api.take(store.apply(Change::ListStarted(gvk.clone()), 1_000));
        for object in owners.get(&(gvk.api_version(), gvk.kind.clone())).into_iter().flatten() {
            api.take(store.apply(Change::Listed(gvk.clone(), Box::new(object.clone())), 1_000));
        }
        api.take(store.apply(Change::ListEnded(gvk), 1_000));
    }
}

fn group_kind() -> Gvk {
    Gvk::new("scheduling.run.ai", "v2alpha2", "PodGroup")
}

#[test]
fn ten_thousand_pods_of_a_thousand_owners() {
    let (owners, pods) = workloads();
    assert_eq!(pods.len(), OWNERS * PODS_EACH);
    let (mut store, mut api) = (store(), Api::default());
    end_lists(&mut store);
    let applied = |store: &mut Store, api: &mut Api, gvk: Gvk, object: &Value| {
        api.take(store.apply(Change::Applied(gvk, Box::new(object.clone())), 1_000));
    };
    // The first pods come before the watches of their owners' kinds have begun.
    for (position, pod) in pods.iter().enumerate() {
        applied(&mut store, &mut api, pod_kind(), pod);
        if position % 2_500 == 0 {
            list_owners(&mut store, &mut api, &owners);
        }
    }
    list_owners(&mut store, &mut api, &owners);
    for group in std::mem::take(&mut api.groups) {
        applied(&mut store, &mut api, group_kind(), &group);
    }
    let kinds = owners.len();
    let expected = |api: &Api| (api.count("watch"), api.count("get"), api.count("create"), api.count("patch"));
    assert_eq!(expected(&api), (kinds, 0, OWNERS, 0), "{:?}", api.requests);

    // All are bound, marked with their gang and run; the owners count their pods. None of that asks for anything.
    for pod in &pods {
        let mut running = pod.clone();
        running["spec"]["nodeName"] = json!("n");
        running["metadata"]["annotations"]["berth.scheduler/decision"] = json!("d");
        applied(&mut store, &mut api, pod_kind(), &running);
        running["status"]["phase"] = json!("Running");
        applied(&mut store, &mut api, pod_kind(), &running);
    }
    for ((api_version, kind), objects) in &owners {
        let (group, version) = api_version.split_once('/').unwrap();
        for object in objects {
            let mut counted = object.clone();
            counted["status"] = json!({"active": 10, "ready": 10});
            counted["metadata"]["resourceVersion"] = json!("2");
            applied(&mut store, &mut api, Gvk::new(group, version, kind), &counted);
        }
    }
    for minute in 1..10 {
        api.take(store.apply(Change::Tick, 60_000 * minute));
    }
    assert_eq!(expected(&api), (kinds, 0, OWNERS, 0), "{:?}", api.requests);
    // A pod is told when it appears, is bound and runs; workers of a LeaderWorkerSet also when their leader is marked.
    assert!(api.told <= 3 * pods.len() + 5 * OWNERS, "{} events for the engine", api.told);
}

#[test]
fn a_restart_writes_nothing() {
    let (owners, pods) = workloads();
    let mut api = Api::default();
    let mut first = store();
    end_lists(&mut first);
    for pod in &pods {
        api.take(first.apply(Change::Applied(pod_kind(), Box::new(pod.clone())), 1_000));
    }
    list_owners(&mut first, &mut api, &owners);
    let groups = std::mem::take(&mut api.groups);
    // The next process lists everything in any order: here PodGroups first, and the owners last.
    let (mut second, mut after) = (store(), Api::default());
    for (gvk, objects) in [(group_kind(), &groups), (pod_kind(), &pods)] {
        after.take(second.apply(Change::ListStarted(gvk.clone()), 1_000));
        for object in objects {
            after.take(second.apply(Change::Listed(gvk.clone(), Box::new(object.clone())), 1_000));
        }
    }
    end_lists(&mut second).into_iter().for_each(|effect| after.take(vec![effect]));
    list_owners(&mut second, &mut after, &owners);
    assert_eq!((after.count("watch"), after.count("get")), (owners.len(), 0), "{:?}", after.requests);
    assert_eq!((after.count("create"), after.count("patch")), (0, 0), "{:?}", after.requests);
}
