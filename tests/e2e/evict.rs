//! Room for a gang that has others evicted: budgets, slow ends, ends with success, a kill, and somebody who is faster.

use std::collections::BTreeSet;

use berth_harness::{NodeSpec, wait_for};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::rights::{become_account, generated};
use crate::rig::{Rig, SOON, gpu_pod_spec};

/// Keeps a pod from going before the test lets it.
const SLOW: &str = "berth.test/slow";

fn nodes(count: usize) -> Vec<NodeSpec> {
    (0..count).map(|i| NodeSpec::new(format!("n{i}")).gpus(1)).collect()
}

/// A pod of its own with one GPU, which ends when the test says so.
fn slow_pod(name: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "spec": gpu_pod_spec(),
        "metadata": {"name": name, "labels": labels, "finalizers": [SLOW]},
    })
}

fn queue(name: &str, gpus: i64) -> Value {
    let any = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    json!({
        "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name},
        "spec": {"resources": {"gpu": {"quota": gpus, "limit": -1, "overQuotaWeight": 1}, "cpu": any, "memory": any}},
    })
}

impl Rig {
    /// Pods that are being deleted.
    async fn leaving(&self) -> BTreeSet<String> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap().items.into_iter();
        pods.filter(|pod| pod.metadata.deletion_timestamp.is_some()).filter_map(|pod| pod.metadata.name).collect()
    }

    async fn leave(&self, names: &[&str]) {
        let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        wait_for(&format!("{names:?} to be evicted"), SOON, || async {
            let leaving = self.leaving().await;
            if leaving == names { Ok(Some(())) } else { Err(format!("{leaving:?} are")) }
        })
        .await
        .unwrap();
    }

    async fn run(&self, prefix: &str, count: usize) {
        wait_for(&format!("{count} pods {prefix}* to run"), SOON, || async {
            let pods = self.pods().list(&ListParams::default()).await.map_err(|error| error.to_string())?.items.into_iter();
            let named = pods.filter(|pod| pod.metadata.name.as_deref().is_some_and(|name| name.starts_with(prefix)));
            let phases: Vec<String> = named.filter_map(|pod| pod.status?.phase).collect();
            let running = phases.iter().filter(|phase| *phase == "Running").count();
            if running == count { Ok(Some(())) } else { Err(format!("{phases:?}")) }
        })
        .await
        .unwrap();
    }

    async fn let_go(&self, pod: &str) {
        let patch = json!({"metadata": {"finalizers": null}});
        self.pods().patch(pod, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn rights(&mut self) {
        for object in generated(&self.namespace) {
            self.create(&object).await;
        }
        become_account(self).await;
        self.log = Some(self.plane.log_path("berth"));
    }

    async fn nominated(&self, prefix: &str) -> BTreeSet<String> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap().items.into_iter();
        let named = pods.filter(|pod| pod.metadata.name.as_deref().is_some_and(|name| name.starts_with(prefix)));
        named.filter_map(|pod| pod.status?.nominated_node_name).collect()
    }
}

/// A gang of two with a higher priority: nobody goes while a budget keeps one of the two that would have to; then both go,
/// once each; their room is kept for it over their slow ends and over a kill; one that ends with success is no reason to stop.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_preempts_within_budgets_and_keeps_its_room() {
    let mut rig = Rig::new(nodes(2)).await;
    rig.rights().await;
    for name in ["low-a", "low-b"] {
        rig.create(&slow_pod(name, json!({"priorityClassName": "train", "app": name}))).await;
    }
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "low-b"}}},
    });
    rig.create(&budget).await;
    rig.start_berth();
    rig.bound("low-", 2, SOON).await;
    // What has not started is protected by no budget.
    rig.run("low-", 2).await;
    rig.create(&json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "high", "labels": {"priorityClassName": "build-preemptible"},
            "annotations": {"kai.scheduler/batch-min-member": "2"},
        },
        "spec": {"parallelism": 2, "completions": 2, "template": {"spec": gpu_pod_spec()}},
    }))
    .await;
    rig.waits_because("high-", "Unschedulable").await;
    assert!(rig.leaving().await.is_empty(), "half of the room helps nobody");
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(rig.client.clone(), &rig.namespace);
    budgets.delete("keep", &DeleteParams::default()).await.unwrap();
    rig.leave(&["low-a", "low-b"]).await;
    let message = rig.waits_because("high-", "WaitingForRoom").await;
    assert!(message.contains("0 of the 2 pods"), "{message}");
    let nominated = rig.nominated("high-").await;
    assert!(!nominated.is_empty() && nominated.iter().all(|node| ["n0", "n1"].contains(&node.as_str())), "{nominated:?}");
    let kept = |group: &kube::core::ObjectMeta| group.annotations.as_ref().and_then(|all| all.get("berth.scheduler/promised")).cloned();
    let groups = rig.pod_groups().list(&ListParams::default()).await.unwrap().items;
    let promise = groups.iter().find_map(|group| kept(&group.metadata)).expect("the promise is written down");
    assert!(promise.contains("n0") && promise.contains("n1"), "{promise}");
    let events: Api<Event> = Api::namespaced(rig.client.clone(), &rig.namespace);
    let told = events.list(&ListParams::default()).await.unwrap().items;
    let evicted: Vec<&Event> = told.iter().filter(|event| event.reason.as_deref() == Some("Evict")).collect();
    assert_eq!(evicted.len(), 2, "{evicted:?}");
    let by = |event: &Event| event.metadata.annotations.clone().unwrap_or_default();
    assert!(evicted.iter().all(|event| by(event)["evictor-action-type"] == "preempt"), "{evicted:?}");

    // Somebody of the same queue comes, and the process is killed: the room stays kept.
    rig.create(&slow_pod("mid", json!({"priorityClassName": "build-preemptible"}))).await;
    rig.kill();
    rig.start_berth();
    rig.ready().await;
    // One of them ends with success while it is being evicted.
    let ends = json!({"status": {"phase": "Succeeded"}});
    rig.pods().patch_status("low-a", &PatchParams::default(), &Patch::Merge(ends)).await.unwrap();
    rig.let_go("low-a").await;
    rig.waits_because("mid", "Unschedulable").await;
    assert!(rig.places("high-").await.is_empty() && rig.places("mid").await.is_empty());
    rig.let_go("low-b").await;
    rig.bound("high-", 2, SOON).await;
    let groups = rig.pod_groups().list(&ListParams::default()).await.unwrap().items;
    assert!(groups.iter().all(|group| kept(&group.metadata).is_none()) || rig.places("mid").await.is_empty());
    assert_eq!(rig.stop_berth(), Some(0));
    let log = rig.logged();
    assert!(!log.contains("write refused") && !log.contains("forbidden") && !log.contains("checker refuses"), "{log}");
    rig.let_go("mid").await;
}

/// A team has its share freed once; somebody else takes that room before it. Nobody more is evicted for it, and it gets
/// room when there is some.
#[tokio::test(flavor = "multi_thread")]
async fn a_team_reclaims_its_share_and_somebody_is_faster() {
    let mut rig = Rig::new(nodes(2)).await;
    rig.rights().await;
    for object in [queue("a", 1), queue("b", 1)] {
        rig.create(&object).await;
    }
    rig.start_berth();
    for name in ["a-0", "a-1"] {
        rig.create(&slow_pod(name, json!({"kai.scheduler/queue": "a"}))).await;
    }
    let places = rig.bound("a-", 2, SOON).await;
    rig.create(&slow_pod("b-0", json!({"kai.scheduler/queue": "b"}))).await;
    wait_for("one of a's pods to be evicted", SOON, || async {
        let leaving = rig.leaving().await;
        Ok::<_, String>((leaving.len() == 1).then_some(()))
    })
    .await
    .unwrap();
    let victim = rig.leaving().await.into_iter().next().unwrap();
    let node = &places[&victim];
    let mut faster = gpu_pod_spec();
    faster["schedulerName"] = json!("somebody-else");
    faster["nodeName"] = json!(node);
    rig.create(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "faster"}, "spec": faster})).await;
    rig.let_go(&victim).await;
    let message = rig.waits_because("b-0", "Unschedulable").await;
    assert!(rig.places("b-0").await.is_empty() && rig.leaving().await.is_empty(), "{message}");
    rig.pods().delete("faster", &DeleteParams::default().grace_period(0)).await.unwrap();
    let got = rig.bound("b-0", 1, SOON).await;
    assert_eq!(&got["b-0"], node);
    let metrics = rig.http("/metrics").await;
    assert!(metrics.contains("berth_evictions_total{result=\"accepted\"} 1"), "{metrics}");
    assert_eq!(rig.stop_berth(), Some(0));
    let log = rig.logged();
    assert!(!log.contains("write refused") && !log.contains("checker refuses"), "{log}");
    for pod in ["b-0", "a-0", "a-1"] {
        if pod != victim {
            rig.let_go(pod).await;
        }
    }
}
