//! The way from KAI Scheduler and back, as docs/migrate-from-kai.md says it: a canary with a pool of its own leaves alone what is
//! not its own, and at the take-over work that runs stays where and what it is.

use std::collections::BTreeMap;

use berth_harness::wait_for;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::rig::{REGION, Rig, SOON, ZONE, gpu_pod_spec, two_regions};
use crate::stories::required_region;

impl Rig {
    /// Pods of a Job, once there are so many.
    async fn pods_of(&self, job: &str, count: usize) -> Vec<Pod> {
        wait_for(&format!("{count} pods of {job}"), SOON, || async {
            let selector = format!("batch.kubernetes.io/job-name={job}");
            let pods = self.pods().list(&ListParams::default().labels(&selector)).await.map_err(|error| error.to_string())?.items;
            if pods.len() == count { Ok(Some(pods)) } else { Err(format!("there are {}", pods.len())) }
        })
        .await
        .unwrap()
    }

    /// Makes a Job's PodGroup and binds its pods, with what KAI Scheduler writes and nothing else.
    async fn as_kai(&self, job: &str, nodes: &[&str]) {
        let pods = self.pods_of(job, nodes.len()).await;
        let owner = serde_json::to_value(&pods[0].metadata.owner_references.as_ref().unwrap()[0]).unwrap();
        let uid = owner["uid"].as_str().unwrap().to_owned();
        let group = format!("pg-{job}-{uid}");
        let top = format!("name: {job}\nuid: {uid}\ngroup: batch\nversion: v1\nkind: Job\n");
        let mut annotations = required_region();
        annotations["kai.scheduler/batch-min-member"] = json!(nodes.len().to_string());
        annotations["kai.scheduler/top-owner-metadata"] = json!(top);
        let constraint = json!({"topology": "cluster-topology", "requiredTopologyLevel": REGION});
        self.create(&json!({
            "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": group, "namespace": self.namespace, "annotations": annotations, "ownerReferences": [owner]},
            "spec": {"minMember": nodes.len(), "queue": "default-queue", "priorityClassName": "train", "topologyConstraint": constraint},
        }))
        .await;
        for (pod, node) in pods.iter().zip(nodes) {
            let name = pod.metadata.name.as_deref().unwrap();
            let patch = json!({"metadata": {"annotations": {"pod-group-name": group}}});
            self.pods().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
            let _bound: Value = self.pods().create_subresource("binding", name, &PostParams::default(), &binding).await.unwrap();
        }
    }

    /// Pods of a Job by name: UID and node.
    async fn standing(&self, job: &str, count: usize) -> BTreeMap<String, (String, String)> {
        let pods = self.pods_of(job, count).await.into_iter();
        let of = |pod: Pod| Some((pod.metadata.name?, (pod.metadata.uid?, pod.spec?.node_name?)));
        pods.filter_map(of).collect()
    }

    /// UIDs of the PodGroups of a Job.
    async fn groups_of(&self, job: &str) -> Vec<String> {
        let groups = self.pod_groups().list(&ListParams::default()).await.unwrap().items;
        let is_of = |name: &Option<String>| name.as_deref().is_some_and(|name| name.starts_with(&format!("pg-{job}-")));
        groups.into_iter().filter(|group| is_of(&group.metadata.name)).filter_map(|group| group.metadata.uid).collect()
    }

    /// Versions of all PodGroups.
    async fn versions(&self) -> Vec<Option<String>> {
        let groups = self.pod_groups().list(&ListParams::default()).await.unwrap().items;
        groups.into_iter().map(|group| group.metadata.resource_version).collect()
    }

    async fn label_node(&self, node: &str, pool: Option<&str>) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = json!({"metadata": {"labels": {"kai.scheduler/node-pool": pool}}});
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn unlimited_queue(&self, name: &str, labels: Value) {
        let all = json!({"quota": -1, "limit": -1});
        self.create(&json!({
            "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name, "labels": labels},
            "spec": {"resources": {"gpu": all, "cpu": all, "memory": all}},
        }))
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_from_kai_leaves_running_work_alone_and_can_be_taken_back() {
    let mut rig = Rig::new(two_regions(2)).await;
    rig.topology("cluster-topology", &[REGION, ZONE]).await;
    rig.unlimited_queue("default-queue", json!({})).await;
    let mut annotations = required_region();
    annotations["kai.scheduler/batch-min-member"] = json!("2");
    rig.job("ran", 2, annotations).await;
    rig.as_kai("ran", &["iowa-0", "iowa-1"]).await;
    rig.job("waits", 1, required_region()).await;
    rig.pods_of("waits", 1).await;
    let (standing, groups) = (rig.standing("ran", 2).await, rig.groups_of("ran").await);
    let before = rig.versions().await;

    // What the switch would bring is said beforehand.
    let (_, report) = rig.answer(&["check", "--live", "--from", "kai", "-o", "json"]);
    assert_eq!((&report["summary"]["waiting"], &report["summary"]["starting"], &report["summary"]["errors"]), (&json!(1), &json!(1), &json!(0)), "{report}");

    // A canary with a name, a queue and a node of its own.
    rig.label_node("seoul-1", Some("berth")).await;
    rig.unlimited_queue("canary", json!({"kai.scheduler/node-pool": "berth"})).await;
    let mut spec = gpu_pod_spec();
    spec["schedulerName"] = json!("berth");
    let labels = json!({"kai.scheduler/queue": "canary", "kai.scheduler/node-pool": "berth"});
    rig.create(&json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "canary", "labels": labels},
        "spec": {"parallelism": 1, "completions": 1, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }))
    .await;
    rig.start_berth_with(&["--scheduler-name", "berth", "--partition-label-value", "berth"]);
    rig.ready().await;
    let placed = rig.bound("canary-", 1, SOON).await;
    assert_eq!(placed.values().collect::<Vec<_>>(), ["seoul-1"]);
    rig.queue_status("canary", |status| status["allocated"]["nvidia.com/gpu"] == "1").await;
    rig.idle().await;
    let after = rig.versions().await;
    assert!(before.iter().all(|version| after.contains(version)), "KAI's PodGroup was not written: {before:?}, {after:?}");
    assert_eq!(rig.queue_status("default-queue", |_| true).await, Value::Null, "nor was its queue");
    assert!(rig.places("waits-").await.is_empty(), "what has KAI's name is KAI's");
    assert_eq!(rig.stop_berth(), Some(0));
    rig.label_node("seoul-1", None).await;

    // The take-over.
    rig.start_berth();
    rig.ready().await;
    let placed = rig.bound("waits-", 1, SOON).await;
    assert_eq!(placed.values().collect::<Vec<_>>(), ["seoul-0"], "the other nodes are in use, whoever placed that");
    rig.idle().await;
    assert_eq!(rig.standing("ran", 2).await, standing);
    assert_eq!((rig.groups_of("ran").await, groups.len()), (groups.clone(), 1));
    rig.queue_status("default-queue", |status| status["allocated"]["nvidia.com/gpu"] == "3").await;

    // The way back: what runs goes on, and its PodGroups are there.
    assert_eq!(rig.stop_berth(), Some(0));
    assert_eq!(rig.standing("ran", 2).await, standing);
    assert_eq!(rig.standing("canary", 1).await.values().map(|(_, node)| node.as_str()).collect::<Vec<_>>(), ["seoul-1"]);
    assert_eq!((rig.groups_of("ran").await, rig.groups_of("waits").await.len()), (groups, 1));
}
