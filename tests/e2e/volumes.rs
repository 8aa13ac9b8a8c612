//! Claims that wait for their first consumer, with the real volume controller.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_harness::{NodeSpec, wait_for};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::rig::{RACK, Rig, SOON};

async fn class(rig: &Rig, name: &str, provisioner: &str) {
    rig.create(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
    }))
    .await;
}

async fn claim(rig: &Rig, name: &str, class: &str) {
    rig.create(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }))
    .await;
}

async fn local_volume(rig: &Rig, name: &str, class: &str, node: &str) {
    let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
    rig.create(&json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "storageClassName": class, "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"],
            "local": {"path": "/none"}, "persistentVolumeReclaimPolicy": "Retain",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
    }))
    .await;
    let volumes: Api<PersistentVolume> = Api::all(rig.client.clone());
    wait_for("the volume to be available", SOON, || async {
        let volume = volumes.get(name).await.map_err(|error| error.to_string())?;
        let phase = volume.status.and_then(|status| status.phase).unwrap_or_default();
        if phase == "Available" { Ok(Some(())) } else { Err(phase) }
    })
    .await
    .unwrap();
}

/// A hand-written gang of pods, each with a claim of its own.
async fn gang(rig: &Rig, name: &str, claims: &[&str], constraint: Value) {
    rig.create(&json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"minMember": claims.len(), "queue": "default-queue", "topologyConstraint": constraint},
    }))
    .await;
    for claim in claims {
        let mut spec = crate::rig::gpu_pod_spec();
        spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
        rig.create(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{name}-{claim}"), "annotations": {"pod-group-name": name}},
            "spec": spec,
        }))
        .await;
    }
}

fn nodes() -> Vec<NodeSpec> {
    ["a", "b", "c", "d"]
        .iter()
        .map(|name| NodeSpec::new(*name).gpus(1).label(RACK, if *name < "c" { "r1" } else { "r2" }))
        .collect()
}

/// Volumes are on one rack only: the gang goes there, its claims are bound by the volume controller, then its pods.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_goes_where_its_local_volumes_are() {
    let mut rig = Rig::new(nodes()).await;
    rig.topology("t", &[RACK]).await;
    class(&rig, "local", "kubernetes.io/no-provisioner").await;
    for (volume, node) in [("v-a", "a"), ("v-c", "c"), ("v-d", "d")] {
        local_volume(&rig, volume, "local", node).await;
    }
    for name in ["one", "two"] {
        claim(&rig, name, "local").await;
    }
    rig.start_berth();
    gang(&rig, "g", &["one", "two"], json!({"topology": "t", "requiredTopologyLevel": RACK})).await;
    let places = rig.bound("g-", 2, SOON).await;
    let used: BTreeSet<&str> = places.values().map(String::as_str).collect();
    assert_eq!(used, BTreeSet::from(["c", "d"]));
    // Each claim has the volume of its pod's node.
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(rig.client.clone(), &rig.namespace);
    for name in ["one", "two"] {
        let volume = claims.get(name).await.unwrap().spec.unwrap().volume_name.unwrap();
        assert_eq!(volume, format!("v-{}", places[&format!("g-{name}")]));
    }
    // A claim that does not exist keeps its pod, and only that, and is named; it is placed once it can be.
    gang(&rig, "late", &["three"], json!({})).await;
    let (_, message) = rig.waits("late").await;
    assert!(message.contains("three"), "{message}");
    claim(&rig, "three", "local").await;
    let places = rig.bound("late-", 1, SOON).await;
    assert_eq!(places["late-three"], "a");
}

/// Nobody answers for the class: the whole gang stays unbound, is tried on other nodes, and says why it waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_never_comes_releases_the_gang() {
    let mut rig = Rig::new(nodes()).await;
    class(&rig, "dead", "example.com/nobody").await;
    claim(&rig, "one", "dead").await;
    claim(&rig, "two", "dead").await;
    rig.start_berth_with(&["--volume-timeout-seconds", "2"]);
    gang(&rig, "g", &["one", "two"], json!({})).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(rig.client.clone(), &rig.namespace);
    let mut tried = BTreeSet::new();
    while tried.len() < 2 {
        let node = wait_for("a node to be tried for the claim", SOON, || async {
            let claim = claims.get("one").await.map_err(|error| error.to_string())?;
            let node = claim.annotations().get("volume.kubernetes.io/selected-node").cloned();
            Ok::<_, String>(node.filter(|node| !tried.contains(node)))
        })
        .await
        .unwrap();
        // Whoever looks on sees where the pod is to go.
        nominated(&rig, "g-one", Some(&node)).await;
        tried.insert(node);
    }
    assert!(rig.places("g-").await.is_empty(), "nothing is bound before all claims are");
    wait_for("the pods to say why they wait", SOON, || async {
        let (_, message) = rig.waits("g-").await;
        if message.starts_with("volumes were not ready in time") && message.contains("was not bound within 2 s") { Ok(Some(())) } else { Err(message) }
    })
    .await
    .unwrap();
    // Another gang takes the room that this one does not use.
    rig.job("other", 4, json!({"kai.scheduler/batch-min-member": "4"})).await;
    rig.bound("other-", 4, Duration::from_secs(90)).await;
    nominated(&rig, "g-one", None).await;
}

async fn nominated(rig: &Rig, pod: &str, node: Option<&str>) {
    wait_for(&format!("{pod} to be nominated for {node:?}"), SOON, || async {
        let status = rig.pods().get_status(pod).await.map_err(|error| error.to_string())?.status;
        let written = status.and_then(|status| status.nominated_node_name);
        if written.as_deref() == node { Ok(Some(())) } else { Err(format!("it is for {written:?}")) }
    })
    .await
    .unwrap();
}
