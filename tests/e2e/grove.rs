//! Pods, PodCliqueSet and PodGang as Grove's operator writes them, in its order, with the rights of `berth generate rbac`.

use std::collections::BTreeSet;

use berth_harness::wait_for;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::operators::{in_one_zone, template, zone, zones};
use crate::rig::{RACK, Rig, SOON, ZONE};
use crate::rights::{become_account, generated};

const SET: &str = "PodCliqueSet";

fn is_about_grove(rule: &Value) -> bool {
    rule["apiGroups"] == json!(["scheduler.grove.io"])
}

/// Berth may not read PodGangs at first; gives the rules with everything.
async fn without_pod_gangs() -> (Rig, Value) {
    let mut rig = Rig::new(zones(&[("za", &[2, 2]), ("zb", &[4])])).await;
    rig.topology("cluster-topology", &[ZONE, RACK]).await;
    rig.loose_kind("grove.io", "v1alpha1", SET, "podcliquesets").await;
    rig.loose_kind("scheduler.grove.io", "v1alpha1", "PodGang", "podgangs").await;
    let mut rules = Value::Null;
    for mut object in generated(&rig.namespace) {
        if object["kind"] == "ClusterRole" {
            rules = object["rules"].clone();
            object["rules"].as_array_mut().unwrap().retain(|rule| !is_about_grove(rule));
        }
        rig.create(&object).await;
    }
    become_account(&mut rig).await;
    rig.start_berth();
    rig.ready().await;
    (rig, rules)
}

/// The set, its pods behind Grove's gate, and then the PodGang that lists them; the gates are left.
async fn create(rig: &Rig, name: &str, least: u32) {
    let clique = json!({"name": "w", "spec": {"replicas": 2, "minAvailable": least, "podSpec": template("main", json!({}), 1)["spec"]}});
    let set = rig
        .create(&json!({
            "apiVersion": "grove.io/v1alpha1", "kind": SET,
            "metadata": {"name": name, "annotations": in_one_zone()},
            "spec": {"replicas": 1, "template": {"cliques": [clique]}},
        }))
        .await;
    let owner = json!([{"apiVersion": "grove.io/v1alpha1", "kind": SET, "name": name, "uid": set.metadata.uid, "controller": true}]);
    let (gang, part) = (format!("{name}-0"), format!("{name}-0-w"));
    let mut references = Vec::new();
    for index in 0..2 {
        let pod = format!("{part}-{index}");
        let mut spec = template("main", json!({}), 1)["spec"].clone();
        spec["schedulingGates"] = json!([{"name": "grove.io/podgang-pending-creation"}]);
        let labels = json!({"grove.io/podgang": gang, "grove.io/podclique": part});
        rig.create(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "labels": labels, "ownerReferences": owner}, "spec": spec,
        }))
        .await;
        references.push(json!({"namespace": rig.namespace, "name": pod}));
    }
    rig.create(&json!({
        "apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang", "metadata": {"name": gang},
        "spec": {
            "podgroups": [{"name": part, "minReplicas": 2, "podReferences": references}],
            "topologyConstraint": {"packConstraint": {"preferred": RACK}},
        },
    }))
    .await;
}

/// Grove takes the gates away once the PodGang is there.
async fn ungate(rig: &Rig, prefix: &str) {
    let named = |pod: &Pod| pod.metadata.name.clone().filter(|name| name.starts_with(prefix));
    for name in rig.pods().list(&ListParams::default()).await.unwrap().items.iter().filter_map(named) {
        let patch = json!({"spec": {"schedulingGates": null}});
        rig.pods().patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
}

fn pod_gangs(rig: &Rig) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("scheduler.grove.io", "v1alpha1", "PodGang");
    Api::namespaced_with(rig.client.clone(), &rig.namespace, &ApiResource::from_gvk_with_plural(&gvk, "podgangs"))
}

async fn score(rig: &Rig, gang: &str) -> Value {
    wait_for(&format!("the score of {gang}"), SOON, || async {
        let found = pod_gangs(rig).get(gang).await.map_err(|error| error.to_string())?;
        Ok::<_, String>(found.data.pointer("/status/placementScore").cloned().filter(|score| !score.is_null()))
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_gangs_are_read_and_scored_and_a_missing_right_is_said() {
    let (rig, rules) = without_pod_gangs().await;
    // Read as the set alone says it, its pods need not start together; and what is not read is named.
    create(&rig, "blind", 1).await;
    let events: Api<Event> = Api::namespaced(rig.client.clone(), &rig.namespace);
    let message = wait_for("a warning about the right", SOON, || async {
        let events = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        Ok::<_, String>(events.into_iter().find(|event| event.reason.as_deref() == Some("UnreadPodGang")).and_then(|event| event.message))
    })
    .await
    .unwrap();
    assert!(message.contains("blind-0") && message.contains("permission"), "{message}");
    rig.group_status("pg-blind-0-", |status| status["minMember"] == 1).await;

    // The right comes: nothing else has to be done.
    let roles: Api<ClusterRole> = Api::all(rig.client.clone());
    roles.patch("berth", &PatchParams::default(), &Patch::Merge(json!({"rules": rules}))).await.unwrap();
    rig.group_status("pg-blind-0-", |status| status["minMember"] == 2).await;
    assert!(rig.places("blind-").await.is_empty(), "Grove has not taken the gates away");
    ungate(&rig, "blind-").await;
    let places = rig.bound("blind-", 2, SOON).await;
    assert_eq!(places.values().collect::<BTreeSet<_>>().len(), 1, "one rack, which is one node: {places:?}");
    assert_eq!(score(&rig, "blind-0").await.as_f64(), Some(1.0));

    // The status does not come back as news, and a second gang fares the same.
    create(&rig, "seen", 2).await;
    ungate(&rig, "seen-").await;
    let places = rig.bound("seen-", 2, SOON).await;
    assert_eq!(places.values().map(|node| zone(node)).collect::<BTreeSet<_>>().len(), 1, "{places:?}");
    assert_eq!(score(&rig, "seen-0").await.as_f64(), Some(1.0));
    rig.idle().await;
    let counts = rig.plane.request_counts(&rig.client).await.unwrap();
    let scores: u64 = counts
        .iter()
        .filter(|count| (count.resource.as_str(), count.verb.as_str()) == ("podgangs", "PATCH"))
        .map(|count| count.count)
        .sum();
    assert_eq!(scores, 2, "one write for each");
}
