//! Real operators make the pods: Kubeflow's training operator and KubeRay. What they write is what grouping reads, and
//! what `simulate` must make up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth::grouping::expand::expand;
use berth_harness::{NodeSpec, Operator, wait_for};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::rig::{RACK, Rig, ZONE, gpu_pod_spec};

/// An operator starts, reads its kinds and makes some pods a second on two busy cores.
const WORKED: Duration = Duration::from_secs(60);

/// Zones of racks of one node; `free` are the GPUs of each rack.
pub(crate) fn zones(zones: &[(&str, &[u32])]) -> Vec<NodeSpec> {
    let mut nodes = Vec::new();
    for (zone, racks) in zones {
        for (number, free) in racks.iter().enumerate() {
            let name = format!("{zone}-r{number}");
            nodes.push(NodeSpec::new(&name).gpus(*free).label(ZONE, *zone).label(RACK, &name));
        }
    }
    nodes
}

pub(crate) fn zone(node: &str) -> &str {
    node.split('-').next().unwrap_or_default()
}

pub(crate) fn in_one_zone() -> Value {
    json!({"kai.scheduler/topology": "cluster-topology", "kai.scheduler/topology-required-placement": ZONE})
}

pub(crate) fn in_racks_of_four() -> Value {
    json!({"kai.scheduler/segment-size": "4", "kai.scheduler/segment-topology-required-placement": RACK})
}

/// A pod template whose container has the name that the operator looks for, and a port of its own.
pub(crate) fn template(container: &str, annotations: Value, gpus: u32) -> Value {
    let mut spec = gpu_pod_spec();
    spec["containers"][0] = json!({"name": container, "image": "none"});
    if 0 < gpus {
        spec["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": gpus}});
    }
    json!({"metadata": {"annotations": annotations}, "spec": spec})
}

pub(crate) async fn with_operator(nodes: Vec<NodeSpec>, operator: Operator) -> Rig {
    let mut rig = Rig::new(nodes).await;
    rig.topology("cluster-topology", &[ZONE, RACK]).await;
    let client = rig.client.clone();
    rig.plane.start_operator(&client, operator).await.unwrap();
    rig.start_berth();
    rig.ready().await;
    rig
}

/// The pods whose name starts with a prefix.
async fn pods_of(rig: &Rig, prefix: &str) -> Vec<Pod> {
    let pods = rig.pods().list(&ListParams::default()).await.unwrap();
    pods.items.into_iter().filter(|pod| pod.metadata.name.as_deref().is_some_and(|name| name.starts_with(prefix))).collect()
}

fn label<'a>(pod: &'a Pod, key: &str) -> &'a str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map_or("", String::as_str)
}

/// The pods by leaf of their gang, with their nodes.
pub(crate) async fn leaves(rig: &Rig, prefix: &str) -> BTreeMap<String, Vec<String>> {
    let mut leaves: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in pods_of(rig, prefix).await {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        leaves.entry(label(&pod, "kai.scheduler/subgroup-name").to_owned()).or_default().push(node);
    }
    leaves
}

/// What `simulate` makes up for a workload has the labels (and, where nothing random is in them, the names) of the pods
/// that its operator has made.
async fn simulated_alike(rig: &Rig, workload: &DynamicObject, prefix: &str, has_names: bool) {
    let expansion = expand(&[serde_json::to_value(workload).unwrap()]);
    assert!(expansion.problems.is_empty(), "{:?}", expansion.problems);
    let sign = |name: &str, labels: &BTreeMap<String, String>| {
        // The API server copies the zone of its node to a bound pod.
        let others = ["kai.scheduler/", "berth.scheduler/", "topology.kubernetes.io/"];
        let is_random = |key: &str| key == "ray.io/worker-group-replica-name";
        let own = |key: &&String| others.iter().all(|prefix| !key.starts_with(prefix)) && !is_random(key);
        let labels: Vec<String> = labels.iter().filter(|(key, _)| own(key)).map(|(key, value)| format!("{key}={value}")).collect();
        (if has_names { name.to_owned() } else { String::new() }, labels.join(" "))
    };
    let mut simulated: Vec<_> = expansion
        .pods
        .iter()
        .map(|pod| sign(pod["metadata"]["name"].as_str().unwrap(), &serde_json::from_value(pod["metadata"]["labels"].clone()).unwrap()))
        .collect();
    let mut made: Vec<_> = pods_of(rig, prefix)
        .await
        .into_iter()
        .map(|pod| sign(pod.metadata.name.as_deref().unwrap(), &pod.metadata.labels.unwrap_or_default()))
        .collect();
    simulated.sort();
    made.sort();
    for (simulated, made) in simulated.iter().zip(&made) {
        assert_eq!(simulated, made);
    }
    assert_eq!(simulated.len(), made.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_training_operator_makes_the_pods() {
    // Only zb holds 17 pods with four racks whole; za then holds the rest.
    let rig = with_operator(zones(&[("za", &[4, 4, 4, 3, 3]), ("zb", &[4, 4, 4, 4, 1])]), Operator::Training).await;
    pytorch(&rig).await;
    mpi(&rig).await;
    tensorflow(&rig).await;
    small_frameworks(&rig).await;
}

async fn pytorch(rig: &Rig) {
    let job = rig
        .create(&json!({
            "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "metadata": {"name": "torch", "annotations": in_one_zone()},
            "spec": {"pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "restartPolicy": "Never", "template": template("pytorch", json!({}), 1)},
                "Worker": {"replicas": 16, "restartPolicy": "OnFailure", "template": template("pytorch", in_racks_of_four(), 1)},
            }},
        }))
        .await;
    let places = rig.bound("torch-", 17, WORKED).await;
    assert!(places.values().all(|node| zone(node) == "zb"), "{places:?}");
    for segment in 0..4 {
        let racks: BTreeSet<&String> = (0..4).map(|i| &places[&format!("torch-worker-{}", segment * 4 + i)]).collect();
        assert_eq!(racks.len(), 1, "segment {segment}: {places:?}");
    }
    simulated_alike(rig, &job, "torch-", true).await;

    // One pod is lost: the operator makes it again with its name, and its place is beside its segment.
    let lost = rig.pods().get("torch-worker-5").await.unwrap();
    rig.pods().delete("torch-worker-5", &DeleteParams::default()).await.unwrap();
    wait_for("the lost pod to run again", WORKED, || async {
        let pod = rig.pods().get("torch-worker-5").await.map_err(|error| error.to_string())?;
        let is_new = pod.metadata.uid != lost.metadata.uid;
        let node = pod.spec.and_then(|spec| spec.node_name).filter(|_| is_new).ok_or("it has no node yet")?;
        if node == places["torch-worker-4"] { Ok(Some(())) } else { Err(format!("it is on {node}")) }
    })
    .await
    .unwrap();
}

/// A launcher without a GPU beside eight workers in two racks.
async fn mpi(rig: &Rig) {
    let job = rig
        .create(&json!({
            "apiVersion": "kubeflow.org/v1", "kind": "MPIJob",
            "metadata": {"name": "mpi", "annotations": in_one_zone()},
            "spec": {"mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": template("mpi", json!({}), 0)},
                "Worker": {"replicas": 8, "restartPolicy": "Never", "template": template("mpi", in_racks_of_four(), 1)},
            }},
        }))
        .await;
    let places = rig.bound("mpi-", 9, WORKED).await;
    assert!(places.values().all(|node| zone(node) == "za"), "{places:?}");
    let leaves = leaves(rig, "mpi-").await;
    let sizes: Vec<(&str, usize)> = leaves.iter().map(|(leaf, nodes)| (leaf.as_str(), nodes.len())).collect();
    assert_eq!(sizes, [("launcher", 1), ("worker-0", 4), ("worker-1", 4)]);
    for (leaf, nodes) in &leaves {
        assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), 1, "{leaf}: {nodes:?}");
    }
    simulated_alike(rig, &job, "mpi-", true).await;
}

async fn tensorflow(rig: &Rig) {
    let job = rig
        .create(&json!({
            "apiVersion": "kubeflow.org/v1", "kind": "TFJob",
            "metadata": {"name": "tf", "annotations": in_one_zone()},
            "spec": {"tfReplicaSpecs": {
                "PS": {"replicas": 2, "restartPolicy": "Never", "template": template("tensorflow", json!({}), 1)},
                "Worker": {"replicas": 4, "restartPolicy": "Never", "template": template("tensorflow", in_racks_of_four(), 1)},
            }},
        }))
        .await;
    let places = rig.bound("tf-", 6, WORKED).await;
    assert!(places.values().all(|node| zone(node) == "za"), "{places:?}");
    let racks: BTreeSet<&String> = (0..4).map(|i| &places[&format!("tf-worker-{i}")]).collect();
    assert_eq!(racks.len(), 1, "{places:?}");
    simulated_alike(rig, &job, "tf-", true).await;
}

/// XGBoostJob and JAXJob: gangs in one zone, without segments.
async fn small_frameworks(rig: &Rig) {
    let gpus = |container: &str| json!({"replicas": 1, "restartPolicy": "Never", "template": template(container, json!({}), 1)});
    let boost = rig
        .create(&json!({
            "apiVersion": "kubeflow.org/v1", "kind": "XGBoostJob",
            "metadata": {"name": "boost", "annotations": in_one_zone()},
            "spec": {"xgbReplicaSpecs": {"Master": gpus("xgboost"), "Worker": gpus("xgboost")}},
        }))
        .await;
    let places = rig.bound("boost-", 2, WORKED).await;
    assert_eq!(places.values().map(|node| zone(node)).collect::<BTreeSet<_>>().len(), 1, "{places:?}");
    simulated_alike(rig, &boost, "boost-", true).await;
    let jax = rig
        .create(&json!({
            "apiVersion": "kubeflow.org/v1", "kind": "JAXJob", "metadata": {"name": "jax"},
            "spec": {"jaxReplicaSpecs": {"Worker": gpus("jax")}},
        }))
        .await;
    rig.bound("jax-", 1, WORKED).await;
    simulated_alike(rig, &jax, "jax-", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kuberay_makes_the_pods() {
    let rig = with_operator(zones(&[("za", &[4, 3, 3, 3, 3]), ("zb", &[4, 4, 4, 4, 4])]), Operator::Ray).await;
    let one_rack = || json!({"kai.scheduler/topology-required-placement": RACK});
    let worker = |name: &str, replicas: u32, least: u32, hosts: u32, annotations: Value| {
        json!({
            "groupName": name, "replicas": replicas, "minReplicas": least, "maxReplicas": 8, "numOfHosts": hosts,
            "rayStartParams": {}, "template": template("worker", annotations, 1),
        })
    };
    let spec = |groups: Vec<Value>| {
        json!({
            "rayVersion": "2.46.0", "workerGroupSpecs": groups,
            "headGroupSpec": {"rayStartParams": {}, "template": template("head", json!({}), 1)},
        })
    };
    // A head, eight workers in two segments, and two workers of two hosts: in one zone, each segment and pair of pairs in
    // one rack.
    let cluster = rig
        .create(&json!({
            "apiVersion": "ray.io/v1", "kind": "RayCluster",
            "metadata": {"name": "ray", "annotations": in_one_zone()},
            "spec": spec(vec![worker("eight", 8, 8, 1, in_racks_of_four()), worker("pairs", 2, 2, 2, one_rack())]),
        }))
        .await;
    let places = rig.bound("ray-", 13, WORKED).await;
    assert!(places.values().all(|node| zone(node) == "zb"), "{places:?}");
    let leaves_seen = leaves(&rig, "ray-").await;
    let sizes: Vec<(&str, usize)> = leaves_seen.iter().map(|(leaf, nodes)| (leaf.as_str(), nodes.len())).collect();
    assert_eq!(sizes, [("eight-0", 4), ("eight-1", 4), ("headgroup", 1), ("pairs", 4)]);
    for (leaf, nodes) in &leaves_seen {
        assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), 1, "{leaf}: {nodes:?}");
    }
    let status = rig.group_status("pg-ray-", |status| status["phase"] == "Placed").await;
    assert_eq!(status["minMember"], 13, "{status}");
    simulated_alike(&rig, &cluster, "ray-", false).await;

    // The cluster of a RayJob and of a RayService belongs to them.
    let submitter = template("submitter", json!({}), 0);
    let job = json!({
        "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "tune", "annotations": in_one_zone()},
        "spec": {"entrypoint": "none", "submitterPodTemplate": submitter, "rayClusterSpec": spec(vec![worker("two", 2, 2, 1, one_rack())])},
    });
    rig.create(&job).await;
    let service = json!({
        "apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "serve", "annotations": in_one_zone()},
        "spec": {"serveConfigV2": "applications: []", "rayClusterConfig": spec(vec![worker("two", 2, 1, 1, one_rack())])},
    });
    rig.create(&service).await;
    for (prefix, least) in [("tune-", 3), ("serve-", 2)] {
        rig.group_status(&format!("pg-{prefix}"), |status| status["phase"] == "Placed" && status["minMember"] == least).await;
        let leaves = leaves(&rig, prefix).await;
        let racks: BTreeSet<&String> = leaves["two"].iter().collect();
        assert_eq!((leaves["two"].len(), racks.len()), (2, 1), "{leaves:?}");
        assert_eq!(leaves["headgroup"].len(), 1, "{leaves:?}");
    }
    // The pod that submits the RayJob comes when the cluster runs, and is no part of its gang.
    rig.bound("tune-", 4, WORKED).await;
    assert_eq!(leaves(&rig, "tune-").await[""].len(), 1);
}
