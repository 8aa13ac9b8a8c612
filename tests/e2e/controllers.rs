//! The kinds of Kubernetes itself, whose pods the controller-manager makes; and LeaderWorkerSets and JobSets with the
//! StatefulSets, Jobs, labels and owners that their controllers write (kubernetes-sigs/lws v0.7, kubernetes-sigs/jobset
//! v0.10), so that the pods themselves come from the controller-manager too.

use std::collections::{BTreeMap, BTreeSet};

use berth_harness::wait_for;
use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::operators::{in_one_zone, in_racks_of_four, leaves, template, zone, zones};
use crate::rig::{RACK, Rig, SOON, ZONE};

/// Names of PodGroups that start with a prefix.
async fn groups(rig: &Rig, prefix: &str) -> Vec<String> {
    let groups = rig.pod_groups().list(&ListParams::default()).await.unwrap();
    groups.items.into_iter().filter_map(|group| group.metadata.name).filter(|name| name.starts_with(prefix)).collect()
}

fn racks<'a>(places: &'a BTreeMap<String, String>, names: impl Iterator<Item = String>) -> BTreeSet<&'a String> {
    names.map(|name| &places[&name]).collect()
}

async fn started(racks_per_zone: usize) -> Rig {
    let racks = vec![4; racks_per_zone];
    let mut rig = Rig::new(zones(&[("za", &racks), ("zb", &racks)])).await;
    rig.topology("cluster-topology", &[ZONE, RACK]).await;
    rig.start_berth();
    rig.ready().await;
    rig
}

fn both(one: Value, other: Value) -> Value {
    let (mut one, other) = (one.as_object().cloned().unwrap_or_default(), other.as_object().cloned().unwrap_or_default());
    one.extend(other);
    Value::Object(one)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_manager_makes_the_pods() {
    let rig = started(5).await;
    // First, because it begins at the next full minute.
    rig.create(&json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"},
        "spec": {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {
            "metadata": {"annotations": both(in_one_zone(), json!({"kai.scheduler/batch-min-member": "2"}))},
            "spec": {"parallelism": 2, "completions": 2, "template": template("main", json!({}), 1)},
        }},
    }))
    .await;
    stateful_set(&rig).await;
    indexed_job(&rig).await;
    deployment(&rig).await;
    let nightly = rig.bound("nightly-", 2, SOON * 2).await;
    assert_eq!(nightly.values().map(|node| zone(node)).collect::<BTreeSet<_>>().len(), 1, "{nightly:?}");
    let status = rig.group_status("pg-nightly-", |status| status["phase"] == "Placed").await;
    assert_eq!(status["minMember"], 2, "{status}");
}

async fn stateful_set(rig: &Rig) {
    let mut template = template("main", both(in_racks_of_four(), in_one_zone()), 1);
    template["metadata"]["labels"] = json!({"app": "db"});
    template["spec"]["restartPolicy"] = json!("Always");
    rig.create(&json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "replicas": 8, "serviceName": "db", "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "db"}}, "template": template,
        },
    }))
    .await;
    let places = rig.bound("db-", 8, SOON).await;
    assert_eq!(places.values().map(|node| zone(node)).collect::<BTreeSet<_>>().len(), 1, "{places:?}");
    for segment in 0..2 {
        assert_eq!(racks(&places, (0..4).map(|i| format!("db-{}", segment * 4 + i))).len(), 1, "{places:?}");
    }
    // A pod of the same name and a new UID takes the place beside its segment.
    let lost = rig.pods().get("db-5").await.unwrap();
    rig.pods().delete("db-5", &DeleteParams::default()).await.unwrap();
    wait_for("the pod of the same name to be bound", SOON, || async {
        let pod = rig.pods().get("db-5").await.map_err(|error| error.to_string())?;
        let is_new = pod.metadata.uid != lost.metadata.uid;
        let node = pod.spec.and_then(|spec| spec.node_name).filter(|_| is_new).ok_or("it has no node yet")?;
        if node == places["db-4"] { Ok(Some(())) } else { Err(format!("it is on {node}")) }
    })
    .await
    .unwrap();
}

/// Segments of two in one of four.
async fn indexed_job(rig: &Rig) {
    let nested = json!({
        "kai.scheduler/segment-size": "4,2",
        "kai.scheduler/segment-topology-required-placement": format!("{RACK},"),
    });
    rig.create(&json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "sweep", "annotations": both(both(in_one_zone(), nested), json!({"kai.scheduler/batch-min-member": "4"}))},
        "spec": {
            "parallelism": 4, "completions": 4, "completionMode": "Indexed", "template": template("main", json!({}), 1),
        },
    }))
    .await;
    rig.bound("sweep-", 4, SOON).await;
    let leaves = leaves(rig, "sweep-").await;
    let sizes: Vec<(&str, usize)> = leaves.iter().map(|(leaf, nodes)| (leaf.as_str(), nodes.len())).collect();
    assert_eq!(sizes, [("segment-0-0", 2), ("segment-0-1", 2)]);
    assert_eq!(leaves.values().flatten().collect::<BTreeSet<_>>().len(), 1, "{leaves:?}");
}

/// Each pod is alone.
async fn deployment(rig: &Rig) {
    let mut template = template("main", json!({}), 1);
    template["metadata"]["labels"] = json!({"app": "web"});
    template["spec"]["restartPolicy"] = json!("Always");
    rig.create(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }))
    .await;
    let places = rig.bound("web-", 3, SOON).await;
    let expected: BTreeSet<String> = places.keys().map(|pod| format!("pg-{pod}-")).collect();
    let groups = groups(rig, "pg-web-").await;
    assert_eq!(groups.len(), 3, "{groups:?}");
    assert!(expected.iter().all(|prefix| groups.iter().any(|group| group.starts_with(prefix))), "{groups:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_worker_sets_and_job_sets_as_their_controllers_write_them() {
    let rig = started(5).await;
    rig.loose_kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets").await;
    rig.loose_kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets").await;
    leader_worker_set(&rig).await;
    job_set(&rig).await;
}

const LWS: &str = "leaderworkerset.sigs.k8s.io";

/// What the set's admission webhook does to pods: the ordinal is the index of the leader's group or of the worker.
async fn number_pods(rig: &Rig) {
    let ordinal = "object.metadata.name.substring(object.metadata.name.lastIndexOf('-') + 1)";
    let path = |label: &str| format!("'/metadata/labels/' + jsonpatch.escapeKey('{LWS}/{label}')");
    let is_leader = format!("('{LWS}/worker-index' in object.metadata.labels)");
    let expression = format!(
        "[{is_leader} ? JSONPatch{{op: 'add', path: {}, value: {ordinal}}} : JSONPatch{{op: 'add', path: {}, value: {ordinal}}}]",
        path("group-index"),
        path("worker-index"),
    );
    rig.create(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "lws"},
        "spec": {
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            }]},
            "matchConditions": [{"name": "of-a-set", "expression": format!("'{LWS}/name' in object.metadata.?labels.orValue({{}})")}],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        },
    }))
    .await;
    rig.create(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "lws"}, "spec": {"policyName": "lws"},
    }))
    .await;
    // It works some moments after it is there.
    let probe = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe-7", "labels": {format!("{LWS}/name"): "probe"}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]},
    });
    let dry = kube::api::PostParams { dry_run: true, ..Default::default() };
    let pod = serde_json::from_value(probe).unwrap();
    wait_for("the pods to be numbered", SOON, || async {
        let pod = rig.pods().create(&dry, &pod).await.map_err(|error| error.to_string())?;
        let index = pod.labels().get(&format!("{LWS}/worker-index")).map(String::as_str);
        if index == Some("7") { Ok(Some(())) } else { Err(format!("the index is {index:?}")) }
    })
    .await
    .unwrap();
}

fn owner(object: &DynamicObject) -> Value {
    let types = object.types.as_ref().unwrap();
    json!([{
        "apiVersion": types.api_version, "kind": types.kind, "name": object.name_any(), "uid": object.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// A StatefulSet of a set: that of the leaders, or the workers of one.
fn stateful(name: &str, owner: Value, (start, replicas): (i32, i32), selector: Value, labels: Value, annotations: Value) -> Value {
    let mut template = template("main", annotations, 1);
    template["metadata"]["labels"] = labels.clone();
    template["spec"]["restartPolicy"] = json!("Always");
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "ownerReferences": owner, "labels": labels},
        "spec": {
            "replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel", "ordinals": {"start": start},
            "selector": {"matchLabels": selector}, "template": template,
        },
    })
}

/// Creates the leaders of a set, as its controller does.
async fn create_leaders(rig: &Rig, set: &DynamicObject, n_groups: i32, notes: Value) {
    let name = set.name_any();
    let selector = json!({format!("{LWS}/name"): name, format!("{LWS}/worker-index"): "0"});
    let labels = both(selector.clone(), json!({format!("{LWS}/template-revision-hash"): "r1"}));
    rig.create(&stateful(&name, owner(set), (0, n_groups), selector, labels, notes)).await;
}

/// Creates the workers of a leader, as the set's controller does once it may.
async fn create_workers(rig: &Rig, set: &str, group: i32, n_workers: i32, notes: Value) {
    let name = format!("{set}-{group}");
    let leader = wait_for("the leader", SOON, || async { rig.pods().get_opt(&name).await }).await.unwrap();
    assert_eq!(leader.labels()[&format!("{LWS}/group-index")], group.to_string());
    let selector = json!({
        format!("{LWS}/name"): set, format!("{LWS}/group-index"): group.to_string(), format!("{LWS}/group-key"): format!("key{group}"),
    });
    let labels = both(selector.clone(), json!({format!("{LWS}/template-revision-hash"): "r1"}));
    let of_leader = json!([{
        "apiVersion": "v1", "kind": "Pod", "name": name, "uid": leader.metadata.uid, "controller": true, "blockOwnerDeletion": true,
    }]);
    let notes = both(notes, json!({format!("{LWS}/leader-name"): name}));
    rig.create(&stateful(&name, of_leader, (1, n_workers), selector, labels, notes)).await;
}

/// Two groups of a leader and seven workers, in segments of four: the leader is one of the first four.
async fn leader_worker_set(rig: &Rig) {
    number_pods(rig).await;
    let segments = json!({"kai.scheduler/segment-topology-required-placement": RACK});
    let set = rig
        .create(&json!({
            "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
            "metadata": {"name": "llm", "annotations": both(in_one_zone(), segments)},
            "spec": {"replicas": 2, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": {
                "size": 8, "subGroupPolicy": {"type": "LeaderWorker", "subGroupSize": 4}, "workerTemplate": template("main", json!({}), 1),
            }},
        }))
        .await;
    let sizes = json!({format!("{LWS}/size"): "8", format!("{LWS}/subgroup-size"): "4"});
    create_leaders(rig, &set, 2, both(sizes.clone(), json!({format!("{LWS}/subgroup-policy-type"): "LeaderWorker"}))).await;
    for group in 0..2 {
        create_workers(rig, "llm", group, 7, sizes.clone()).await;
    }
    let places = rig.bound("llm-", 16, SOON).await;
    for group in 0..2 {
        let of_group: BTreeMap<&String, &String> = places.iter().filter(|(pod, _)| pod.starts_with(&format!("llm-{group}"))).collect();
        assert_eq!(of_group.len(), 8, "{places:?}");
        assert_eq!(of_group.values().map(|node| zone(node)).collect::<BTreeSet<_>>().len(), 1, "{places:?}");
        let first = (1..4).map(|i| format!("llm-{group}-{i}")).chain([format!("llm-{group}")]);
        assert_eq!(racks(&places, first).len(), 1, "{places:?}");
        assert_eq!(racks(&places, (4..8).map(|i| format!("llm-{group}-{i}"))).len(), 1, "{places:?}");
    }
    assert_eq!(groups(rig, "pg-llm-").await.len(), 2);
}

/// A driver and two Jobs of four workers: the set in one zone, each Job in one rack.
async fn job_set(rig: &Rig) {
    let one_rack = json!({"kai.scheduler/topology": "cluster-topology", "kai.scheduler/topology-required-placement": RACK});
    let job = |pods: u32| json!({
        "parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": 0,
        "template": template("main", json!({}), 1),
    });
    let set = rig
        .create(&json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {"name": "train", "annotations": in_one_zone()},
            "spec": {"replicatedJobs": [
                {"name": "driver", "groupName": "default", "replicas": 1, "template": {"spec": job(1)}},
                {"name": "workers", "groupName": "default", "replicas": 2, "template": {"metadata": {"annotations": one_rack}, "spec": job(4)}},
            ]},
        }))
        .await;
    let mut global_index = 0;
    for (replicated, n_jobs, n_pods) in [("driver", 1, 1), ("workers", 2, 4)] {
        for index in 0..n_jobs {
            let marks = json!({
                "jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/jobset-uid": set.metadata.uid,
                "jobset.sigs.k8s.io/replicatedjob-name": replicated, "jobset.sigs.k8s.io/restart-attempt": "0",
                "jobset.sigs.k8s.io/replicatedjob-replicas": n_jobs.to_string(), "jobset.sigs.k8s.io/global-replicas": "3",
                "jobset.sigs.k8s.io/job-index": index.to_string(), "jobset.sigs.k8s.io/job-key": format!("{replicated}{index}"),
                "jobset.sigs.k8s.io/job-global-index": global_index.to_string(), "jobset.sigs.k8s.io/group-name": "default",
                "jobset.sigs.k8s.io/group-replicas": "3", "jobset.sigs.k8s.io/job-group-index": global_index.to_string(),
            });
            global_index += 1;
            let mut spec = job(n_pods);
            spec["template"]["metadata"] = json!({"labels": marks, "annotations": marks});
            let own = if replicated == "workers" { one_rack.clone() } else { json!({}) };
            rig.create(&json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {
                    "name": format!("train-{replicated}-{index}"), "ownerReferences": owner(&set), "labels": marks,
                    "annotations": both(marks.clone(), own),
                },
                "spec": spec,
            }))
            .await;
        }
    }
    let places = rig.bound("train-", 9, SOON).await;
    assert_eq!(places.values().map(|node| zone(node)).collect::<BTreeSet<_>>().len(), 1, "{places:?}");
    let leaves = leaves(rig, "train-").await;
    let sizes: Vec<(&str, usize)> = leaves.iter().map(|(leaf, nodes)| (leaf.as_str(), nodes.len())).collect();
    assert_eq!(sizes, [("driver-replica-0", 1), ("workers-replica-0", 4), ("workers-replica-1", 4)]);
    assert!(leaves.values().all(|nodes| nodes.iter().collect::<BTreeSet<_>>().len() == 1), "{leaves:?}");
    assert_eq!(groups(rig, "pg-train-").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_go_where_their_followers_will_fit() {
    let mut rig = Rig::new(zones(&[("za", &[3, 2, 4, 4])])).await;
    rig.topology("cluster-topology", &[ZONE, RACK]).await;
    rig.start_berth();
    rig.ready().await;
    rig.loose_kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets").await;
    rig.loose_kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets").await;
    leader_ready(&rig).await;
    exclusive_job(&rig).await;
}

/// The workers come when the leader is ready. By packing it would go into the smallest rack.
async fn leader_ready(rig: &Rig) {
    number_pods(rig).await;
    let one_rack = json!({"kai.scheduler/topology": "cluster-topology", "kai.scheduler/topology-required-placement": RACK});
    let set = rig
        .create(&json!({
            "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
            "metadata": {"name": "late", "annotations": one_rack},
            "spec": {"replicas": 1, "startupPolicy": "LeaderReady", "leaderWorkerTemplate": {
                "size": 4, "workerTemplate": template("main", json!({}), 1),
            }},
        }))
        .await;
    let size = json!({format!("{LWS}/size"): "4"});
    create_leaders(rig, &set, 1, size.clone()).await;
    let leader = rig.bound("late-", 1, SOON).await;
    create_workers(rig, "late", 0, 3, size).await;
    let places = rig.bound("late-", 4, SOON).await;
    assert_eq!(places.values().collect::<BTreeSet<_>>(), leader.values().collect::<BTreeSet<_>>(), "{places:?}");
}

/// The followers come when the leader has a node, with a selector for its rack, as the set's admission webhook writes it.
async fn exclusive_job(rig: &Rig) {
    let exclusive = "alpha.jobset.sigs.k8s.io/exclusive-topology";
    let mut of_set = json!({"kai.scheduler/topology": "cluster-topology"});
    of_set[exclusive] = json!(RACK);
    let job = json!({
        "parallelism": 4, "completions": 4, "completionMode": "Indexed", "managedBy": "example.com/nobody",
        "template": template("main", json!({}), 1),
    });
    let set = rig
        .create(&json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "alone", "annotations": of_set},
            "spec": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": job}}]},
        }))
        .await;
    let job = rig
        .create(&json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "alone-w-0", "ownerReferences": owner(&set)}, "spec": job,
        }))
        .await;
    let create = async |index: i32, rack: Option<&str>| {
        let mut marks = json!({
            "jobset.sigs.k8s.io/jobset-name": "alone", "jobset.sigs.k8s.io/replicatedjob-name": "w",
            "jobset.sigs.k8s.io/job-index": "0", "jobset.sigs.k8s.io/job-key": "alone",
            "batch.kubernetes.io/job-completion-index": index.to_string(), "batch.kubernetes.io/job-name": "alone-w-0",
        });
        let mut spec = template("main", json!({}), 1)["spec"].clone();
        if let Some(rack) = rack {
            spec["nodeSelector"][RACK] = json!(rack);
        } else {
            let own = |operator: &str| json!({"key": "jobset.sigs.k8s.io/job-key", "operator": operator, "values": ["alone"]});
            let term = |expressions: Value| json!([{
                "labelSelector": {"matchExpressions": expressions}, "topologyKey": RACK, "namespaceSelector": {},
            }]);
            let others = json!([{"key": "jobset.sigs.k8s.io/job-key", "operator": "Exists"}, own("NotIn")]);
            let required = "requiredDuringSchedulingIgnoredDuringExecution";
            spec["affinity"]["podAffinity"][required] = term(json!([own("In")]));
            spec["affinity"]["podAntiAffinity"][required] = term(others);
        }
        let labels = marks.clone();
        marks[exclusive] = json!(RACK);
        rig.create(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("alone-w-0-{index}-x"), "ownerReferences": owner(&job), "labels": labels, "annotations": marks},
            "spec": spec,
        }))
        .await;
    };
    create(0, None).await;
    let leader = rig.bound("alone-", 1, SOON).await;
    let rack = leader.values().next().unwrap();
    for index in 1..4 {
        create(index, Some(rack)).await;
    }
    let places = rig.bound("alone-", 4, SOON).await;
    assert!(places.values().all(|node| node == rack), "{places:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_owners_are_one_gang_until_the_last_is_gone() {
    let rig = started(2).await;
    let notes = |role: &str| {
        both(in_one_zone(), json!({
            "berth.scheduler/gang": "serve", "berth.scheduler/gang-role": role,
            "berth.scheduler/gang-roles": "prefill,decode", "kai.scheduler/batch-min-member": "2",
        }))
    };
    rig.job("prefill", 2, notes("prefill")).await;
    rig.waits_because("prefill-", "NotEnoughPods").await;
    rig.job("decode", 2, notes("decode")).await;
    rig.bound("prefill-", 2, SOON).await;
    let places = rig.bound("decode-", 2, SOON).await;
    assert_eq!(places.values().map(|node| zone(node)).collect::<BTreeSet<_>>().len(), 1, "{places:?}");
    let owners = async || {
        let group = rig.pod_groups().get("pg-gang-serve").await.map_err(|error| error.to_string())?;
        let owners = group.metadata.owner_references.unwrap_or_default().into_iter().map(|owner| owner.name);
        Ok::<_, String>((group.metadata.uid, owners.collect::<Vec<_>>()))
    };
    let both_there = wait_for("both owners to be written down", SOON, || async {
        let (uid, owners) = owners().await?;
        if owners == ["prefill", "decode"] { Ok(Some(uid)) } else { Err(format!("{owners:?} are")) }
    });
    let uid = both_there.await.unwrap();
    // The first owner goes, and with it its pods; the garbage collector leaves the PodGroup to the other.
    let jobs: kube::Api<k8s_openapi::api::batch::v1::Job> = kube::Api::namespaced(rig.client.clone(), &rig.namespace);
    jobs.delete("prefill", &DeleteParams::background()).await.unwrap();
    wait_for("the collector to be through", SOON, || async {
        let (now, owners) = owners().await?;
        if now != uid {
            return Err("the PodGroup was deleted".to_owned());
        }
        if owners == ["decode"] { Ok(Some(())) } else { Err(format!("{owners:?} are its owners")) }
    })
    .await
    .unwrap();
    assert_eq!(rig.places("decode-").await, places);
    // The role comes again, and is part of the same gang: in its zone.
    rig.job("prefill", 2, notes("prefill")).await;
    let again = rig.bound("prefill-", 2, SOON).await;
    assert_eq!(again.values().chain(places.values()).map(|node| zone(node)).collect::<BTreeSet<_>>().len(), 1, "{again:?}");
}
