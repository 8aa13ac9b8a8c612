//! PodGroups of Kubernetes itself, served by a real API server.

use berth_harness::{Options, wait_for};
use serde_json::json;

use crate::rig::{REGION, Rig, SOON, gpu_pod_spec, two_regions};

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_scheduling_group_start_together_in_one_domain() {
    let options = Options {
        feature_gates: ["GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling"]
            .map(|gate| format!("{gate}=true"))
            .into(),
        runtime_config: vec!["scheduling.k8s.io/v1alpha2=true".to_owned()],
        ..Options::default()
    };
    let mut rig = Rig::with(options, two_regions(2)).await;
    rig.start_berth();
    rig.ready().await;

    for name in ["train-0", "train-1"] {
        let mut spec = gpu_pod_spec();
        spec["schedulingGroup"] = json!({"podGroupName": "train"});
        let metadata = json!({"name": name, "namespace": rig.namespace});
        rig.create(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).await;
    }
    wait_for("the pods to say what they wait for", SOON, || async {
        let (_, message) = rig.waits("train-").await;
        if message.contains("podGroupName") { Ok(Some(())) } else { Err(message) }
    })
    .await
    .unwrap();
    rig.create(&json!({
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": rig.namespace},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "schedulingConstraints": {"topology": [{"key": REGION}]},
        },
    }))
    .await;
    let places = rig.bound("train-", 2, SOON).await;
    let region = |node: &String| node.split('-').next().unwrap_or_default().to_owned();
    let regions: std::collections::BTreeSet<String> = places.values().map(region).collect();
    assert_eq!(regions.len(), 1, "{places:?}");
}
