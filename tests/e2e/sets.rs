//! Real operators with their admission webhooks: JobSet and LeaderWorkerSet. What they write is what grouping reads, and what
//! `simulate` must make up.

use std::collections::{BTreeMap, BTreeSet};

use berth::grouping::expand::expand;
use berth_harness::{Operator, wait_for};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::operators::{in_one_zone, in_racks_of_four, leaves, template, with_operator, zone, zones};
use crate::rig::{RACK, Rig};

/// An operator reads its kinds and makes some pods a second on two busy cores, one group after the other.
const WORKED: std::time::Duration = std::time::Duration::from_secs(60);

fn racks<'a>(places: &'a BTreeMap<String, String>, names: impl Iterator<Item = String>) -> BTreeSet<&'a String> {
    names.map(|name| &places[&name]).collect()
}

fn zones_of(places: &BTreeMap<String, String>) -> BTreeSet<&str> {
    places.values().map(|node| zone(node)).collect()
}

/// The pods of a workload by their names; those of Jobs without the letters at random.
async fn made(rig: &Rig, prefix: &str) -> BTreeMap<String, Pod> {
    let pods = rig.pods().list(&ListParams::default()).await.unwrap().items.into_iter();
    let known = |pod: &Pod| {
        let name = pod.name_any();
        match pod.labels().contains_key("batch.kubernetes.io/job-name") {
            true => name.rsplit_once('-').map_or(name.clone(), |(name, _)| name.to_owned()),
            false => name,
        }
    };
    pods.map(|pod| (known(&pod), pod)).filter(|(name, _)| name.starts_with(prefix)).collect()
}

/// `simulate` makes pods of these names, and every label that it gives them is one that the real ones have.
async fn simulated_within(rig: &Rig, workload: &DynamicObject, prefix: &str) {
    let expansion = expand(&[serde_json::to_value(workload).unwrap()]);
    assert!(expansion.problems.is_empty(), "{:?}", expansion.problems);
    let made = made(rig, prefix).await;
    let mut names = BTreeSet::new();
    for pod in &expansion.pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let real = made.get(name).unwrap_or_else(|| panic!("no pod is {name}, but {:?}", made.keys()));
        for (notes, real) in [("labels", real.labels()), ("annotations", real.annotations())] {
            for (key, value) in pod["metadata"][notes].as_object().into_iter().flatten() {
                // UIDs of Jobs are of the cluster.
                if !key.ends_with("controller-uid") {
                    assert_eq!(real.get(key).map(String::as_str), value.as_str(), "{key} of {name}");
                }
            }
        }
        names.insert(name.to_owned());
    }
    assert_eq!(names, made.keys().cloned().collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lws_operator_makes_the_pods() {
    let rig = with_operator(zones(&[("za", &[4, 4, 4, 4]), ("zb", &[4, 4, 4, 4])]), Operator::LeaderWorkerSet).await;
    lws_in_segments(&rig).await;
    lws_leader_ready(&rig).await;
    lws_exclusive(&rig).await;
}

async fn lws(rig: &Rig, name: &str, annotations: Value, spec: Value) -> DynamicObject {
    rig.create(&json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "annotations": annotations}, "spec": spec,
    }))
    .await
}

fn workers(size: u32, annotations: Value) -> Value {
    let mut template = template("main", annotations, 1);
    template["spec"]["restartPolicy"] = json!("Always");
    json!({"size": size, "workerTemplate": template})
}

/// Two groups of eight in segments of four; then one pod is lost, which recreates its group.
async fn lws_in_segments(rig: &Rig) {
    let set = lws(rig, "llm", in_one_zone(), json!({"replicas": 2, "leaderWorkerTemplate": workers(8, in_racks_of_four())})).await;
    let whole = |places: &BTreeMap<String, String>| {
        for group in 0..2 {
            let own: BTreeMap<_, _> = places.iter().filter(|(pod, _)| pod.starts_with(&format!("llm-{group}"))).collect();
            assert_eq!((own.len(), own.values().map(|node| zone(node)).collect::<BTreeSet<_>>().len()), (8, 1), "{places:?}");
            let first = (1..4).map(|i| format!("llm-{group}-{i}")).chain([format!("llm-{group}")]);
            assert_eq!(racks(places, first).len(), 1, "{places:?}");
            assert_eq!(racks(places, (4..8).map(|i| format!("llm-{group}-{i}"))).len(), 1, "{places:?}");
        }
    };
    whole(&rig.bound("llm-", 16, WORKED).await);
    simulated_within(rig, &set, "llm-").await;

    let before = made(rig, "llm-1").await;
    rig.pods().delete("llm-1-6", &DeleteParams::default()).await.unwrap();
    wait_for("the group to be made again", WORKED, || async {
        let now = made(rig, "llm-1").await;
        let is_new = |(name, pod): (&String, &Pod)| before[name].metadata.uid != pod.metadata.uid;
        let bound = now.values().filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())).count();
        let n_new = now.iter().filter(|(name, pod)| is_new((name, pod))).count();
        if (n_new, bound) == (8, 8) { Ok(Some(())) } else { Err(format!("{n_new} of 8 are new, {bound} bound")) }
    })
    .await
    .unwrap();
    whole(&rig.bound("llm-", 16, WORKED).await);
    remove(rig, &set, "llm-").await;
}

/// Deletes a workload and waits until its pods are gone.
async fn remove(rig: &Rig, workload: &DynamicObject, prefix: &str) {
    rig.delete(workload).await;
    wait_for("its pods to be gone", WORKED, || async {
        let left = made(rig, prefix).await.len();
        if left == 0 { Ok(Some(())) } else { Err(format!("{left} are left")) }
    })
    .await
    .unwrap();
}

/// The workers come when the leader is ready; it goes where they will fit.
async fn lws_leader_ready(rig: &Rig) {
    // By packing, the leader would join this one.
    rig.job("small", 1, json!({})).await;
    let small = rig.bound("small-", 1, WORKED).await;
    let one_rack = json!({"kai.scheduler/topology": "cluster-topology", "kai.scheduler/topology-required-placement": RACK});
    let spec = json!({"replicas": 1, "startupPolicy": "LeaderReady", "leaderWorkerTemplate": workers(4, json!({}))});
    let set = lws(rig, "late", one_rack, spec).await;
    let places = rig.bound("late-", 4, WORKED).await;
    let used: BTreeSet<&String> = places.values().collect();
    assert!(used.len() == 1 && used.is_disjoint(&small.values().collect()), "{places:?} beside {small:?}");
    remove(rig, &set, "late-").await;
}

/// Each group has a rack of its own, by the affinity that the webhook writes.
async fn lws_exclusive(rig: &Rig) {
    let mut exclusive = json!({"kai.scheduler/topology": "cluster-topology"});
    exclusive["leaderworkerset.sigs.k8s.io/exclusive-topology"] = json!(RACK);
    let set = lws(rig, "own", exclusive, json!({"replicas": 3, "leaderWorkerTemplate": workers(2, json!({}))})).await;
    let places = rig.bound("own-", 6, WORKED).await;
    let of = |group: u32| racks(&places, [format!("own-{group}"), format!("own-{group}-1")].into_iter());
    assert!((0..3).all(|group| of(group).len() == 1), "{places:?}");
    assert_eq!(places.values().collect::<BTreeSet<_>>().len(), 3, "{places:?}");
    remove(rig, &set, "own-").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_jobset_operator_makes_the_pods() {
    let rig = with_operator(zones(&[("za", &[4, 4, 4, 3]), ("zb", &[4, 4, 4, 1])]), Operator::JobSet).await;
    job_set_in_racks(&rig).await;
    job_set_exclusive(&rig).await;
    job_set_in_order(&rig).await;
    job_set_after_another(&rig).await;
}

fn replicated(name: &str, n_jobs: u32, n_pods: u32) -> Value {
    let job = json!({
        "parallelism": n_pods, "completions": n_pods, "completionMode": "Indexed", "backoffLimit": 100,
        "template": template("main", json!({}), 1),
    });
    json!({"name": name, "replicas": n_jobs, "template": {"spec": job}})
}

async fn job_set(rig: &Rig, name: &str, annotations: Value, spec: Value) -> DynamicObject {
    rig.create(&json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": name, "annotations": annotations}, "spec": spec,
    }))
    .await
}

/// A driver and two Jobs of four, each in one rack, all in one zone.
async fn job_set_in_racks(rig: &Rig) {
    let mut workers = replicated("workers", 2, 4);
    workers["template"]["metadata"] =
        json!({"annotations": {"kai.scheduler/topology": "cluster-topology", "kai.scheduler/topology-required-placement": RACK}});
    let set = job_set(rig, "train", in_one_zone(), json!({"replicatedJobs": [replicated("driver", 1, 1), workers]})).await;
    let places = rig.bound("train-", 9, WORKED).await;
    assert_eq!(zones_of(&places).len(), 1, "{places:?}");
    let leaves = leaves(rig, "train-").await;
    let sizes: Vec<(&str, usize)> = leaves.iter().map(|(leaf, nodes)| (leaf.as_str(), nodes.len())).collect();
    assert_eq!(sizes, [("driver-replica-0", 1), ("workers-replica-0", 4), ("workers-replica-1", 4)]);
    assert!(leaves.values().all(|nodes| nodes.iter().collect::<BTreeSet<_>>().len() == 1), "{leaves:?}");
    simulated_within(rig, &set, "train-").await;
    remove(rig, &set, "train-").await;
}

/// The followers of each Job are admitted once its leader has a node, and go where that is.
async fn job_set_exclusive(rig: &Rig) {
    let mut exclusive = json!({"kai.scheduler/topology": "cluster-topology"});
    exclusive["alpha.jobset.sigs.k8s.io/exclusive-topology"] = json!(RACK);
    let set = job_set(rig, "alone", exclusive, json!({"replicatedJobs": [replicated("w", 2, 4)]})).await;
    let places = rig.bound("alone-", 8, WORKED).await;
    let of = |job: &str| places.iter().filter(|(pod, _)| pod.starts_with(job)).map(|(_, node)| node).collect::<BTreeSet<_>>();
    let (first, second) = (of("alone-w-0-"), of("alone-w-1-"));
    assert!(first.len() == 1 && second.len() == 1 && first.is_disjoint(&second), "{places:?}");
    remove(rig, &set, "alone-").await;
}

/// The workers are made when the driver is ready: it goes to the zone where they will fit.
async fn job_set_in_order(rig: &Rig) {
    // By packing, the driver would go to the fuller zone, zb.
    let spec = json!({
        "startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": [replicated("driver", 1, 1), replicated("w", 1, 13)],
    });
    let set = job_set(rig, "ordered", in_one_zone(), spec).await;
    let places = rig.bound("ordered-", 14, WORKED).await;
    assert_eq!(zones_of(&places), BTreeSet::from(["za"]), "{places:?}");
    remove(rig, &set, "ordered-").await;
}

/// The trainers are made when the first Job is complete: its room is theirs again.
async fn job_set_after_another(rig: &Rig) {
    let mut prepare = replicated("prepare", 1, 15);
    prepare["template"]["spec"]["template"]["metadata"]["annotations"]["berth.test/complete"] = json!("true");
    let mut train = replicated("w", 1, 12);
    train["dependsOn"] = json!([{"name": "prepare", "status": "Complete"}]);
    let set = job_set(rig, "stages", in_one_zone(), json!({"replicatedJobs": [prepare, train]})).await;
    let places = rig.bound("stages-w-", 12, WORKED).await;
    assert_eq!(zones_of(&places).len(), 1, "{places:?}");
    let group = rig.group_status("pg-stages-", |status| status["phase"] == "Placed").await;
    assert_eq!(group["bound"], 12, "{group}");
    remove(rig, &set, "stages-").await;
}
