//! Gangs after their start, and what their statuses say of it.

use std::collections::BTreeSet;

use berth_api::pod_group::PodGroup;
use berth_harness::{NodeSpec, wait_for};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::rig::{RACK, Rig, SOON, gpu_pod_spec};
use crate::rights::{become_account, generated};

fn nodes(count: usize) -> Vec<NodeSpec> {
    (0..count).map(|i| NodeSpec::new(format!("n{i}")).gpus(1).label(RACK, "r")).collect()
}

impl Rig {
    /// Names of the pods whose name starts with `prefix`, the leaving and the ended ones left out.
    async fn alive(&self, prefix: &str) -> BTreeSet<String> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap().items.into_iter();
        let alive = pods.filter(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
        });
        alive.filter_map(|pod| pod.metadata.name).filter(|name| name.starts_with(prefix)).collect()
    }

    async fn cordon(&self, node: &str, cordoned: bool) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = json!({"spec": {"unschedulable": cordoned}});
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits for events of a reason, on objects of a kind; gives the names of the objects.
    async fn told(&self, reason: &str, kind: &str, count: usize) -> BTreeSet<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        wait_for(&format!("{count} events {reason} on {kind}"), SOON, || async {
            let events = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
            let about = |event: &Event| event.reason.as_deref() == Some(reason) && event.involved_object.kind.as_deref() == Some(kind);
            let told: BTreeSet<String> = events.into_iter().filter(about).filter_map(|event| event.involved_object.name).collect();
            if told.len() == count { Ok(Some(told)) } else { Err(format!("{told:?}")) }
        })
        .await
        .unwrap()
    }

    async fn gone(&self, what: &str, pod: &str) {
        wait_for(what, SOON * 2, || async {
            let alive = self.alive(pod).await;
            if alive.is_empty() { Ok::<_, String>(Some(())) } else { Err(format!("{alive:?}")) }
        })
        .await
        .unwrap();
    }
}

/// A gang that lost a pod for good goes as a whole, as far as its disruption budget lets it; one that is finishing stays.
/// With no more rights than those of `berth generate rbac`.
#[tokio::test(flavor = "multi_thread")]
async fn a_stale_gang_is_evicted_whole_and_a_finishing_one_is_not() {
    let mut rig = Rig::new(nodes(5)).await;
    for object in generated(&rig.namespace) {
        rig.create(&object).await;
    }
    become_account(&mut rig).await;
    rig.log = Some(rig.plane.log_path("berth"));
    rig.start_berth();
    rig.ready().await;
    let short = |pods: u32| {
        json!({"kai.scheduler/batch-min-member": pods.to_string(), "kai.scheduler/staleness-grace-period": "3s"})
    };
    // One of its pods has succeeded, and that before the other gang loses one.
    rig.indexed_job("done", 2, short(2)).await;
    let done = rig.bound("done-", 2, SOON).await;
    let first = done.keys().next().unwrap();
    let ends = json!({"metadata": {"annotations": {"berth.test/complete": "true"}}});
    rig.pods().patch(first, &PatchParams::default(), &Patch::Merge(ends)).await.unwrap();
    rig.group_status("pg-done-", |status| status["bound"] == 1).await;
    let rest = rig.alive("done-").await;
    assert_eq!(rest.len(), 1);

    rig.indexed_job("half", 3, short(3)).await;
    let half = rig.bound("half-", 3, SOON).await;
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {
            "batch.kubernetes.io/job-completion-index": "1", "batch.kubernetes.io/job-name": "half",
        }}},
    }))
    .unwrap();
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(rig.client.clone(), &rig.namespace);
    budgets.create(&kube::api::PostParams::default(), &budget).await.unwrap();
    // No node for what comes instead of the pod that goes.
    for node in half.values().chain(done.values()) {
        rig.cordon(node, true).await;
    }
    let lost = half.keys().find(|pod| pod.starts_with("half-0-")).unwrap();
    rig.pods().delete(lost, &DeleteParams::default()).await.unwrap();
    let told = rig.told("StaleJob", "PodGroup", 1).await;
    assert!(told.iter().all(|name| name.starts_with("pg-half-")), "{told:?}");
    let moment = |groups: Vec<PodGroup>| {
        let half = groups.into_iter().find(|group| group.metadata.name.as_deref().is_some_and(|name| name.starts_with("pg-half-")));
        half.and_then(|group| group.metadata.annotations?.remove("kai.scheduler/stale-podgroup-timestamp"))
    };
    wait_for("the moment to be written down", SOON, || async {
        let groups = rig.pod_groups().list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        Ok::<_, String>(moment(groups))
    })
    .await
    .unwrap();
    let old = |index: u32| half.keys().find(|pod| pod.starts_with(&format!("half-{index}-"))).unwrap();
    rig.gone("what no budget keeps to be evicted", old(2)).await;
    rig.told("Evict", "PodGroup", 1).await;
    let message = rig.waits_because("half-0-", "StaleGang").await;
    assert!(message.contains("disruption budget"), "{message}");
    assert_eq!(rig.alive(old(1)).await.len(), 1, "the budget holds");
    budgets.delete("keep", &DeleteParams::default()).await.unwrap();
    rig.gone("the rest to be evicted once the budget is gone", old(1)).await;

    // The controller made new pods. With nodes again, they start as any gang does.
    for node in half.values().chain(done.values()) {
        rig.cordon(node, false).await;
    }
    let again = rig.bound("half-", 3, SOON * 2).await;
    assert!(again.keys().all(|pod| !half.contains_key(pod)), "{again:?}");
    wait_for("what was written down to be taken away", SOON, || async {
        let groups = rig.pod_groups().list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        moment(groups).map_or(Ok(Some(())), Err)
    })
    .await
    .unwrap();
    assert_eq!(rig.alive("done-").await, rest, "a gang with a success is not stale");
    let metrics = rig.http("/metrics").await;
    assert!(metrics.contains("berth_evictions_total{result=\"accepted\"} 2"), "{metrics}");
    assert_eq!(rig.stop_berth(), Some(0));
    let log = rig.logged();
    assert!(!log.contains("write refused") && !log.contains("forbidden"), "{log}");
}

fn queue(name: &str, parent: Option<&str>, cpu: i64) -> Value {
    let any = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let cpu = json!({"quota": 0, "limit": cpu, "overQuotaWeight": 1});
    json!({
        "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name},
        "spec": {"parentQueue": parent, "resources": {"gpu": any, "cpu": cpu, "memory": any}},
    })
}

/// A pod of its own in a queue, asking for some CPU.
fn pod(name: &str, queue: &str, cpu: &str) -> Value {
    let mut spec = gpu_pod_spec();
    spec["containers"][0]["resources"] = json!({"requests": {"cpu": cpu, "memory": "1Gi"}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"kai.scheduler/queue": queue}}, "spec": spec})
}

/// What KAI's users and dashboards read: conditions with their transitions, resources of gangs and of queues.
#[tokio::test(flavor = "multi_thread")]
async fn statuses_say_what_gangs_and_queues_use_and_why_they_wait() {
    let mut rig = Rig::new(nodes(2)).await;
    rig.create(&queue("top", None, -1)).await;
    rig.create(&queue("team", Some("top"), 500)).await;
    rig.start_berth();
    rig.ready().await;
    // Field report G17: a limit of half a core, and two that ask for 400m.
    rig.create(&pod("a", "team", "400m")).await;
    rig.bound("a", 1, SOON).await;
    rig.create(&pod("b", "team", "400m")).await;
    rig.waits_because("b", "QueueOverLimit").await;
    let waits = rig.group_status("pg-b-", |status| !status["schedulingConditions"].is_null()).await;
    let condition = &waits["schedulingConditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("UnschedulableOnNodePool"), &json!("True")), "{waits}");
    assert_eq!((&condition["transitionID"], &condition["nodePool"]), (&json!("1"), &json!("default")), "{waits}");
    assert_eq!(condition["reasons"][0]["reason"], "OverLimit", "{waits}");
    let details = &condition["reasons"][0]["details"]["queueDetails"];
    assert_eq!((&details["name"], &details["queueResourceLimits"]["cpu"]), (&json!("team"), &json!("500m")), "{waits}");
    assert_eq!(waits["resourcesStatus"], json!({"requested": {"cpu": "400m", "memory": "1Gi"}}), "{waits}");
    let used = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
    let status = rig.queue_status("team", |status| status["requested"] == used("800m", "2Gi")).await;
    assert_eq!(status["allocated"], used("400m", "1Gi"), "{status}");
    let status = rig.queue_status("top", |status| status["requested"] == used("800m", "2Gi")).await;
    assert_eq!((&status["childQueues"], &status["allocated"]), (&json!(["team"]), &used("400m", "1Gi")), "{status}");

    // The first goes: the other runs, and nothing says any more that it can't.
    rig.pods().delete("a", &DeleteParams::default()).await.unwrap();
    rig.bound("b", 1, SOON).await;
    let placed = rig.group_status("pg-b-", |status| status["phase"] == "Placed").await;
    assert!(placed["schedulingConditions"].is_null() && placed["reason"].is_null(), "{placed}");
    assert_eq!(placed["resourcesStatus"]["allocated"], used("400m", "1Gi"), "{placed}");
    let pod = rig.pods().get("b").await.unwrap();
    let conditions = pod.status.unwrap().conditions.unwrap();
    assert!(conditions.iter().any(|c| c.type_ == "PodScheduled" && c.status == "True"), "{conditions:?}");
    rig.queue_status("team", |status| status["requested"] == used("400m", "1Gi")).await;

    // A mistake that is made later is told of a gang that runs, too.
    let wrong = json!({"metadata": {"labels": {"priorityClassName": "nope"}}});
    rig.pods().patch("b", &PatchParams::default(), &Patch::Merge(wrong)).await.unwrap();
    rig.told("UnknownPriorityClass", "PodGroup", 1).await;

    // Field report G20: four members, room for two. Every one of them, and the PodGroup, says the same.
    rig.create(&queue("free", None, -1)).await;
    rig.create(&json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "four",
            "labels": {"kai.scheduler/queue": "free"}, "annotations": {"kai.scheduler/batch-min-member": "4"},
        },
        "spec": {"parallelism": 4, "completions": 4, "template": {"spec": gpu_pod_spec()}},
    }))
    .await;
    let told = rig.told("NotEnoughRoom", "Pod", 4).await;
    assert!(told.iter().all(|name| name.starts_with("four-")), "{told:?}");
    rig.told("NotEnoughRoom", "PodGroup", 1).await;
    let status = rig.group_status("pg-four-", |status| status["reason"] == "NotEnoughRoom").await;
    let pods = rig.pods().list(&ListParams::default()).await.unwrap().items;
    let messages: Vec<Option<String>> = pods
        .into_iter()
        .filter(|pod| pod.metadata.name.as_deref().is_some_and(|name| name.starts_with("four-")))
        .flat_map(|pod| pod.status.and_then(|status| status.conditions).unwrap_or_default())
        .filter(|condition| condition.type_ == "PodScheduled")
        .map(|condition| condition.message)
        .collect();
    assert_eq!(messages.len(), 4);
    assert!(messages.iter().all(|message| message.as_deref() == status["message"].as_str()), "{messages:?} {status}");

    // Field report G16: what is deleted while nobody looks leaves nothing behind.
    assert_eq!(rig.stop_berth(), Some(0));
    rig.delete_job("four").await;
    rig.start_berth();
    rig.ready().await;
    wait_for("the PodGroup of the deleted Job to be collected", SOON, || async {
        let groups = rig.pod_groups().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let left: Vec<String> = groups.items.into_iter().filter_map(|group| group.metadata.name).collect();
        let is_gone = !left.iter().any(|name| name.starts_with("pg-four-"));
        if is_gone { Ok(Some(())) } else { Err(format!("{left:?}")) }
    })
    .await
    .unwrap();
    rig.queue_status("free", |status| status["requested"].is_null()).await;
    assert_eq!(rig.stop_berth(), Some(0));
}

/// A pod of a StatefulSet comes back under its name; the one that leaves holds its room until it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_pod_returns_when_the_old_one_is_gone() {
    let mut rig = Rig::new(nodes(3)).await;
    rig.topology("t", &[RACK]).await;
    rig.start_berth();
    rig.ready().await;
    let slow = json!({"annotations": {"berth.test/terminate-after": "3s"}, "labels": {"app": "s"}});
    rig.create(&json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "s", "annotations": {
            "kai.scheduler/topology": "t", "kai.scheduler/topology-required-placement": RACK,
        }},
        "spec": {
            "replicas": 3, "serviceName": "s", "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "s"}},
            "template": {"metadata": slow, "spec": stateful_spec()},
        },
    }))
    .await;
    let before = rig.bound("s-", 3, SOON).await;
    let old = rig.pods().get("s-1").await.unwrap().metadata.uid;
    rig.job("other", 1, json!({})).await;
    rig.pods().delete("s-1", &DeleteParams::default()).await.unwrap();
    rig.waits_because("other-", "WaitingForRoom").await;
    wait_for("a new pod of the old name", SOON, || async {
        let pod = rig.pods().get_opt("s-1").await.map_err(|error| error.to_string())?;
        Ok::<_, String>(pod.filter(|pod| pod.metadata.uid != old).map(|_| ()))
    })
    .await
    .unwrap();
    // One node is free, and two ask for it: exactly one has it.
    let places = wait_for("four pods for three nodes", SOON, || async {
        let mut places = rig.places("s-").await;
        places.extend(rig.places("other-").await);
        if places.len() == 3 { Ok(Some(places)) } else { Err(format!("{places:?}")) }
    })
    .await
    .unwrap();
    let used: BTreeSet<&String> = places.values().collect();
    assert_eq!(used.len(), 3, "{places:?}");
    assert!(before.iter().filter(|(pod, _)| *pod != "s-1").all(|(pod, node)| places[pod] == *node), "{before:?} {places:?}");
    assert_eq!(rig.stop_berth(), Some(0));
}

fn stateful_spec() -> Value {
    let mut spec = gpu_pod_spec();
    spec["restartPolicy"] = json!("Always");
    spec
}

/// Field report T7: a pod whose node is tainted is made anew, waits for room in its rack, and is never sent back.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_back_to_a_tainted_node() {
    let mut rig = Rig::new(nodes(2)).await;
    rig.topology("t", &[RACK]).await;
    rig.start_berth();
    rig.ready().await;
    let annotations = json!({
        "kai.scheduler/batch-min-member": "2", "kai.scheduler/staleness-grace-period": "-1s",
        "kai.scheduler/topology": "t", "kai.scheduler/topology-required-placement": RACK,
    });
    rig.indexed_job("g", 2, annotations).await;
    let before = rig.bound("g-", 2, SOON).await;
    let (pod, node) = before.first_key_value().unwrap();
    let nodes: Api<Node> = Api::all(rig.client.clone());
    let taint = json!({"spec": {"taints": [{"key": "broken", "effect": "NoExecute"}]}});
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(taint)).await.unwrap();
    rig.gone("the pod to leave its node", pod).await;
    let message = rig.waits_because("g-0-", "Unschedulable").await;
    assert!(message.contains("broken"), "{message}");
    rig.idle().await;
    let after = rig.places("g-").await;
    assert!(after.len() == 1 && after.keys().all(|pod| before.contains_key(pod)), "{after:?}");
    let counts = rig.plane.request_counts(&rig.client).await.unwrap();
    let bindings: u64 = counts.iter().filter(|c| c.verb == "POST" && c.subresource == "binding").map(|c| c.count).sum();
    assert_eq!(bindings, 2, "no Binding since the taint");
    let clean = json!({"spec": {"taints": null}});
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(clean)).await.unwrap();
    rig.bound("g-", 2, SOON).await;
    assert_eq!(rig.stop_berth(), Some(0));
}

/// Field report W14: a surge pod waits for room and says so, and the old ones run on; with room the update goes through.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_update_with_surge_goes_through_when_there_is_room() {
    let mut rig = Rig::new(nodes(3)).await;
    rig.start_berth();
    rig.ready().await;
    // Of the same priority: a Job would be preempted.
    let taker = rig
        .create(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "taker"},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": {"app": "taker"}},
                "template": {"metadata": {"labels": {"app": "taker"}}, "spec": stateful_spec()},
            },
        }))
        .await;
    let taken = rig.bound("taker-", 1, SOON).await;
    let template = |version: &str| {
        json!({"metadata": {"labels": {"app": "web"}, "annotations": {"version": version}}, "spec": stateful_spec()})
    };
    rig.create(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template("1"),
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        },
    }))
    .await;
    let old = rig.bound("web-", 2, SOON).await;
    let deployments: Api<Deployment> = Api::namespaced(rig.client.clone(), &rig.namespace);
    let update = json!({"spec": {"template": template("2")}});
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(update)).await.unwrap();
    rig.waits_because("web-", "Unschedulable").await;
    rig.idle().await;
    assert_eq!(rig.places("web-").await, old, "the old ones run on");
    assert_eq!(taken.len(), 1);
    rig.delete(&taker).await;
    wait_for("the update to be through", SOON, || async {
        let alive = rig.alive("web-").await;
        let places = rig.places("web-").await;
        let is_through = alive.len() == 2 && alive.iter().all(|pod| places.contains_key(pod) && !old.contains_key(pod));
        if is_through { Ok::<_, String>(Some(())) } else { Err(format!("{alive:?} {places:?}")) }
    })
    .await
    .unwrap();
    assert_eq!(rig.stop_berth(), Some(0));
}
