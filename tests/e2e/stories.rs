//! The stories that a user would try first.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_harness::{NodeSpec, wait_for};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};

use crate::rig::{RACK, REGION, Rig, SOON, ZONE, gpu_pod_spec, two_regions};

pub(crate) fn required_region() -> Value {
    json!({
        "kai.scheduler/batch-min-member": "2",
        "kai.scheduler/topology": "cluster-topology",
        "kai.scheduler/topology-required-placement": REGION,
        "kai.scheduler/topology-preferred-placement": ZONE,
    })
}

pub(crate) fn region(node: &str) -> &str {
    node.split('-').next().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_regions_story() {
    let mut rig = Rig::new(two_regions(2)).await;
    rig.topology("cluster-topology", &[REGION, ZONE]).await;
    rig.start_berth();
    rig.ready().await;

    rig.job("first", 2, required_region()).await;
    let first = rig.bound("first-", 2, SOON).await;
    let regions: BTreeSet<&str> = first.values().map(|node| region(node)).collect();
    assert_eq!(regions.len(), 1, "{first:?}");

    // One GPU of the other region is taken: a gang of two has no place, and says so.
    rig.job("single", 1, json!({})).await;
    rig.bound("single-", 1, SOON).await;
    rig.job("second", 2, required_region()).await;
    let (reason, message) = rig.waits("second-").await;
    assert_eq!(reason, "Unschedulable");
    assert!(message.contains('1') && message.contains('2'), "{message}");
    assert!(rig.places("second-").await.is_empty());
    let status = rig.group_status("pg-second-", |status| status["phase"] == "Pending").await;
    assert_eq!(status["reason"], "RequiredDomainTooSmall", "{status}");
    let events: Api<Event> = Api::namespaced(rig.client.clone(), &rig.namespace);
    let events = events.list(&ListParams::default()).await.unwrap();
    let kinds: BTreeSet<String> = events
        .items
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some("RequiredDomainTooSmall"))
        .filter_map(|event| event.involved_object.kind)
        .collect();
    assert_eq!(kinds, ["Pod".to_owned(), "PodGroup".to_owned()].into());

    // The annotation and label came with the Binding, and the first gang's status is complete.
    let pod = rig.pods().get(first.keys().next().unwrap()).await.unwrap();
    let annotations = pod.metadata.annotations.unwrap_or_default();
    assert!(annotations["pod-group-name"].starts_with("pg-first-"));
    assert!(annotations["berth.scheduler/decision"].ends_with("/2"));
    let placed = rig.group_status("pg-first-", |status| status["phase"] == "Placed").await;
    assert_eq!((&placed["bound"], &placed["minMember"]), (&json!(2), &json!(2)));

    // Room appears: the pending gang is placed without anything else happening.
    rig.pods().delete(first.keys().next().unwrap(), &kube::api::DeleteParams::default()).await.unwrap();
    assert!(rig.http("/metrics").await.contains("berth_gangs_decided_total"));
    assert_eq!(rig.stop_berth(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn pytorch_segments_each_in_one_rack() {
    let mut nodes = Vec::new();
    for zone in ["za", "zb"] {
        for rack in 0..5 {
            let (free, name) = (if zone == "za" && rack > 2 { 3 } else { 4 }, format!("{zone}-r{rack}"));
            nodes.push(NodeSpec::new(&name).gpus(free).label(ZONE, zone).label(RACK, &name));
        }
    }
    let mut rig = Rig::new(nodes).await;
    rig.topology("cluster-topology", &[ZONE, RACK]).await;
    rig.start_berth();
    rig.ready().await;
    // The CRD is installed after the start: its watch switches on when the first pod names the kind.
    rig.loose_kind("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs").await;
    let segments = json!({
        "kai.scheduler/segment-size": "4",
        "kai.scheduler/segment-topology-required-placement": RACK,
    });
    let template = json!({"metadata": {"annotations": segments}, "spec": gpu_pod_spec()});
    let owner = rig
        .create(&json!({
            "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "metadata": {"name": "train", "annotations": {
                "kai.scheduler/topology": "cluster-topology",
                "kai.scheduler/topology-required-placement": ZONE,
            }},
            "spec": {"pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "template": {"spec": gpu_pod_spec()}},
                "Worker": {"replicas": 16, "template": template},
            }},
        }))
        .await;
    let owner = json!([{
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "controller": true,
        "name": "train", "uid": owner.metadata.uid,
    }]);
    for index in 0..17 {
        let (kind, rank) = if index == 0 { ("master", 0) } else { ("worker", index - 1) };
        rig.create(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("train-{kind}-{rank}"), "ownerReferences": owner,
                "annotations": if index == 0 { json!({}) } else { segments.clone() },
                "labels": {
                    "training.kubeflow.org/job-name": "train",
                    "training.kubeflow.org/replica-type": kind,
                    "training.kubeflow.org/replica-index": rank.to_string(),
                },
            },
            "spec": gpu_pod_spec(),
        }))
        .await;
    }
    let places = rig.bound("train-", 17, SOON).await;
    assert!(places.values().all(|node| node.starts_with("zb-")), "{places:?}");
    for segment in 0..4 {
        let racks: BTreeSet<&String> = (0..4).map(|i| &places[&format!("train-worker-{}", segment * 4 + i)]).collect();
        assert_eq!(racks.len(), 1, "segment {segment}: {places:?}");
    }
    let pod = rig.pods().get("train-worker-5").await.unwrap();
    assert_eq!(pod.metadata.labels.unwrap_or_default()["kai.scheduler/subgroup-name"], "worker-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn handwritten_group_is_used_as_it_is() {
    let mut rig = Rig::new(two_regions(2)).await;
    rig.start_berth();
    rig.create(&json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": "mine"}, "spec": {"minMember": 2, "queue": "default-queue"},
    }))
    .await;
    let pod = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {"pod-group-name": "mine"}}, "spec": gpu_pod_spec(),
        })
    };
    rig.create(&pod("a")).await;
    let (reason, _) = rig.waits("a").await;
    assert_eq!(reason, "NotEnoughPods");
    rig.create(&pod("b")).await;
    rig.bound("", 2, SOON).await;
    let bound = rig.pods().get("a").await.unwrap();
    assert!(!bound.metadata.labels.unwrap_or_default().contains_key("kai.scheduler/subgroup-name"));
    assert_eq!(rig.pod_groups().list(&ListParams::default()).await.unwrap().items.len(), 1);
}

/// A policy of the API server that refuses the Binding of one pod of a gang for good.
async fn refuse_bindings_of(rig: &Rig, prefix: &str) {
    rig.create(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "refuse"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"],
            }]},
            "validations": [{"expression": format!("!object.metadata.name.startsWith('{prefix}')"), "message": "not this one"}],
        },
    }))
    .await;
    rig.create(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "refuse"}, "spec": {"policyName": "refuse", "validationActions": ["Deny"]},
    }))
    .await;
}

/// Waits until the policy refuses: a Binding that would change nothing is tried again and again.
async fn policy_works(rig: &Rig, pod: &str) {
    let mut spec = gpu_pod_spec();
    spec["schedulerName"] = json!("nobody");
    rig.create(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}, "spec": spec})).await;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
        "target": {"kind": "Node", "name": "iowa-0"},
    });
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    wait_for("the policy to refuse", SOON, || async {
        match rig.pods().create_subresource::<Value, Value>("binding", pod, &dry, &binding).await {
            Err(kube::Error::Api(status)) if status.message.contains("not this one") => Ok(Some(())),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    rig.pods().delete(pod, &kube::api::DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_the_leader_is_followed_by_the_one_that_stands_by() {
    let mut rig = Rig::new(two_regions(2)).await;
    rig.start_candidate();
    rig.ready().await;
    let mut leader = rig.start_candidate().unwrap();
    wait_for("the second to stand by", SOON, || async {
        let answer = rig.http("/readyz").await;
        if answer.ends_with("standing by\n") { Ok(Some(())) } else { Err(answer) }
    })
    .await
    .unwrap();
    rig.job("first", 1, json!({})).await;
    rig.bound("first-", 1, SOON).await;
    leader.kill().unwrap();
    leader.wait().unwrap();
    let killed = std::time::Instant::now();
    rig.job("second", 1, json!({})).await;
    rig.bound("second-", 1, SOON).await;
    eprintln!("bound by the successor {:?} after the leader was killed", killed.elapsed());
    assert!(killed.elapsed() > Duration::from_secs(5), "what the killed one sent must have ended");
    // One that stops in good order gives the Lease back: nobody waits.
    assert_eq!(rig.stop_berth(), Some(0));
    rig.start_candidate();
    let stopped = std::time::Instant::now();
    rig.ready().await;
    assert!(stopped.elapsed() < Duration::from_secs(10), "{:?}", stopped.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_for_good_the_gang_is_released_and_tried_again() {
    let mut rig = Rig::new(two_regions(2)).await;
    rig.topology("cluster-topology", &[REGION, ZONE]).await;
    refuse_bindings_of(&rig, "half-1-").await;
    policy_works(&rig, "half-1-probe").await;
    rig.start_berth();
    rig.ready().await;
    rig.indexed_job("half", 2, required_region()).await;
    let first = rig.bound("half-0-", 1, SOON).await;
    let (reason, message) = rig.waits("half-1-").await;
    assert_eq!(reason, "BindRefused");
    assert!(message.contains("not this one"), "{message}");
    // Half a gang is no gang: what is bound is evicted after the grace period, and its controller makes a new pod.
    let bound = first.keys().next().unwrap();
    wait_for("the bound half to be evicted", SOON, || async {
        match rig.pods().get_opt(bound).await {
            Ok(None) => Ok(Some(())),
            other => Err(format!("{other:?}").chars().take(80).collect::<String>()),
        }
    })
    .await
    .unwrap();
    assert!(rig.http("/metrics").await.contains("berth_gangs_released_total 1"));
    rig.delete_policy("refuse").await;
    let places = rig.bound("half-", 2, Duration::from_secs(180)).await;
    let regions: BTreeSet<&str> = places.values().map(|node| region(node)).collect();
    assert_eq!(regions.len(), 1, "{places:?}");
}
