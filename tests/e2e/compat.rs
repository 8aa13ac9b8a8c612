//! `berth run --compat kai` with the defaults of kinds from a ConfigMap, and exactly the rights that are generated for that.

use std::collections::BTreeSet;

use berth_harness::wait_for;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::rig::{REGION, Rig, SOON, ZONE, gpu_pod_spec, two_regions};
use crate::rights::{become_account, generated_with};

const MAP: &str = "kind-defaults";

/// The class of the PodGroup whose name starts with a prefix, once it is this one.
async fn has_class(rig: &Rig, prefix: &str, class: &str) {
    wait_for(&format!("{prefix}* to be of class {class}"), SOON, || async {
        let groups = rig.pod_groups().list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let named = groups.into_iter().find(|group| group.metadata.name.as_deref().is_some_and(|name| name.starts_with(prefix)));
        let found = named.and_then(|group| group.spec.priority_class_name);
        if found.as_deref() == Some(class) { Ok(Some(())) } else { Err(format!("it is of {found:?}")) }
    })
    .await
    .unwrap();
}

fn job(name: &str, pods: u32, own: &Value, of_template: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "annotations": own},
        "spec": {"parallelism": pods, "completions": pods, "template": {"metadata": {"annotations": of_template}, "spec": gpu_pod_spec()}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_are_read_as_kai_reads_them_when_asked() {
    let mut rig = Rig::new(two_regions(2)).await;
    rig.topology("cluster-topology", &[REGION, ZONE]).await;
    let flags = ["--default-priorities-configmap-name", MAP, "--default-priorities-configmap-namespace", &rig.namespace.clone()];
    for object in generated_with(&rig.namespace, &flags) {
        rig.create(&object).await;
    }
    let types = |class: &str| json!({"data": {"types": json!([{"typeName": "Job", "group": "batch", "priorityName": class}]).to_string()}});
    let maps: Api<ConfigMap> = Api::namespaced(rig.client.clone(), &rig.namespace);
    let mut map = types("build");
    map["metadata"] = json!({"name": MAP});
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    become_account(&mut rig).await;
    rig.log = Some(rig.plane.log_path("berth"));
    let mut arguments = vec!["--compat", "kai"];
    arguments.extend(flags);
    rig.start_berth_with(&arguments);
    rig.ready().await;

    // On the template KAI reads neither the minimum nor the level: three pods are placed over both regions.
    let region = json!({
        "kai.scheduler/topology": "cluster-topology", "kai.scheduler/topology-required-placement": REGION,
        "kai.scheduler/batch-min-member": "2",
    });
    rig.create(&job("loose", 3, &json!({}), &region)).await;
    let places = rig.bound("loose-", 3, SOON).await;
    let regions: BTreeSet<&str> = places.values().map(|node| node.split('-').next().unwrap_or_default()).collect();
    assert_eq!(regions.len(), 2, "{places:?}");
    has_class(&rig, "pg-loose-", "build").await;
    // On the Job itself it counts, and one GPU is left.
    rig.create(&job("strict", 2, &region, &json!({}))).await;
    rig.waits_because("strict-", "Unschedulable").await;

    // An edit counts at once, for what is there too.
    maps.patch(MAP, &PatchParams::default(), &Patch::Merge(types("inference"))).await.unwrap();
    has_class(&rig, "pg-loose-", "inference").await;
    has_class(&rig, "pg-strict-", "inference").await;
    assert_eq!(rig.stop_berth(), Some(0));
    let log = rig.logged();
    assert!(!log.contains("may not be watched") && !log.contains("write refused") && !log.contains("forbidden"), "{log}");
}
