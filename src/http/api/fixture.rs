//! A small cluster for tests: two racks, one node cordoned; Jobs of another team have one rack and a node of the other, and ours waits.

use serde_json::{Value, json};

use crate::simulate::Options;
use crate::simulate::cluster::Cluster;
use crate::simulate::input::{Item, Place};

/// Names that nobody may learn who has no right beyond the namespace `mine`.
pub(super) const SECRETS: [&str; 4] = ["gold-", "rack-", "their-", "block-x"];

fn node(name: &str, rack: &str, cordoned: bool) -> Value {
    let labels = json!({
        "topology.kubernetes.io/region": "region-1", "topology.kubernetes.io/zone": "zone-1", "example.com/block": "block-x",
        "example.com/rack": rack, "example.com/seat": name,
    });
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {"unschedulable": cordoned},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "4"}},
    })
}

fn job(namespace: &str, name: &str, queue: &str, pods: u32, seat: Option<&str>) -> Value {
    let container = json!({"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 4}}});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": namespace, "labels": {"kai.scheduler/queue": queue},
            "annotations": {
                "kai.scheduler/batch-min-member": pods.to_string(), "kai.scheduler/topology": "network",
                "kai.scheduler/topology-required-placement": "example.com/rack",
            },
        },
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": {
            "schedulerName": "kai-scheduler", "restartPolicy": "Never", "containers": [container],
            "nodeSelector": seat.map(|seat| json!({"example.com/seat": seat})),
        }}},
    })
}

/// The cluster, with everything placed that can be.
pub(super) fn cluster() -> Cluster {
    let levels = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", "example.com/block", "example.com/rack"];
    let levels: Vec<Value> = levels.iter().map(|level| json!({"nodeLabel": level})).collect();
    let unlimited = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let queue = |name: &str| {
        let resources = json!({"gpu": unlimited, "cpu": unlimited, "memory": unlimited});
        json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": {"resources": resources}})
    };
    let objects = [
        json!({"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "network"}, "spec": {"levels": levels}}),
        queue("ours"), queue("theirs"),
        node("gold-1", "rack-a", false), node("gold-2", "rack-a", false), node("gold-3", "rack-b", true), node("gold-4", "rack-b", false),
        node("gold-5", "rack-b", false),
    ];
    let mut cluster = Cluster::new(Options::standard());
    // Theirs have their places before ours comes.
    let theirs = vec![job("other", "their-job", "theirs", 2, None), job("other", "their-other", "theirs", 1, Some("gold-5"))];
    for objects in [objects.to_vec(), theirs, vec![job("mine", "ours", "ours", 2, None)]] {
        cluster.apply(objects.into_iter().map(|value| Item { place: Place::default(), value }).collect());
        cluster.settle();
    }
    assert!(cluster.skipped.is_empty(), "{:?}", cluster.skipped);
    cluster
}
