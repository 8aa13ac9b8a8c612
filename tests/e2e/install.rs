//! The chart through its life on a real control plane: installed, tested, upgraded, rolled back, removed; and over what
//! another scheduler left behind.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::queue::Queue;
use berth_harness::{Options, wait_for};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::{Api, discovery};
use serde_json::{Value, json};

use crate::release::{Helm, Kubelet, NAMESPACE, chart};
use crate::rights::refused;
use crate::rig::{REGION, Rig, SOON, ZONE, two_regions};
use crate::stories::{region, required_region};

/// What one would like to be told at once: two mistakes in annotations.
fn mistaken_job(name: &str, scheduler: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "annotations": {"kai.scheduler/batch-min-member": "two", "kai.scheduler/segment-size": "four"}},
        "spec": {"template": {"spec": {
            "schedulerName": scheduler, "restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}],
        }}},
    })
}

/// What the API server says to a Job, without keeping it.
async fn tried(rig: &Rig, job: &Value) -> Result<(), String> {
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(rig.client.clone(), &rig.namespace);
    let job = serde_json::from_value(job.clone()).unwrap();
    jobs.create(&PostParams { dry_run: true, ..PostParams::default() }, &job).await.map(|_| ()).map_err(|error| error.to_string())
}

/// Waits until the API server, which hears of policies a moment after they are written, takes the Job.
async fn is_taken(rig: &Rig, job: &Value) {
    wait_for("the Job to be taken", SOON, || async { tried(rig, job).await.map(Some) }).await.unwrap();
}

/// Waits until it does not; its words.
async fn is_refused(rig: &Rig, job: &Value) -> String {
    wait_for("the Job to be refused", SOON, || async { Ok::<_, String>(tried(rig, job).await.err()) }).await.unwrap()
}

/// Names of the objects of all kinds that the API server has and that bear the label of the chart.
async fn left(rig: &Rig) -> BTreeSet<String> {
    let ours = ListParams::default().labels("app.kubernetes.io/part-of=berth");
    let mut left = BTreeSet::new();
    for group in discovery::Discovery::new(rig.client.clone()).run().await.unwrap().groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if capabilities.supports_operation(discovery::verbs::LIST) {
                let api: Api<DynamicObject> = Api::all_with(rig.client.clone(), &resource);
                let names = api.list(&ours).await.unwrap().items.into_iter().filter_map(|object| object.metadata.name);
                left.extend(names.map(|name| format!("{}/{name}", resource.kind)));
            }
        }
    }
    left
}

/// A control plane with kube-scheduler, helm, and what runs Berth's pods.
pub(crate) async fn rig() -> (Rig, Helm, Kubelet) {
    let options = Options { scheduler: true, ..Options::default() };
    let rig = Rig::bare(options, two_regions(2)).await;
    let helm = Helm::ready(rig.plane.kubeconfig_path()).await;
    let kubelet = Kubelet::start(rig.client.clone(), rig.plane.kubeconfig_path());
    (rig, helm, kubelet)
}

/// A pod that is nobody's business but kube-scheduler's gets a node.
async fn a_foreign_pod_runs(rig: &Rig, name: &str) {
    rig.create(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": {"kai.scheduler/segment-size": "four"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }))
    .await;
    rig.bound(name, 1, SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn installed_upgraded_rolled_back_and_removed_without_a_trace() {
    let (rig, helm, kubelet) = rig().await;
    helm.run(&["install", "berth", &chart(), "--create-namespace", "--wait", "--timeout", "2m"]).await;
    kubelet.leads(1).await;

    // It schedules, and the queues of the first installation are there.
    rig.topology("cluster-topology", &[REGION, ZONE]).await;
    rig.job("first", 2, required_region()).await;
    let places = rig.bound("first-", 2, SOON).await;
    assert_eq!(places.values().map(|node| region(node)).collect::<BTreeSet<_>>().len(), 1, "{places:?}");
    rig.queue_status("default-parent-queue", |status| status["childQueues"] == json!(["default-queue"])).await;
    helm.run(&["test", "berth", "--timeout", "1m"]).await;
    // Mistakes are told to their author, and no more than that, until somebody asks for it.
    is_taken(&rig, &mistaken_job("told", "kai-scheduler")).await;

    // An upgrade: the configuration changes, mistakes are refused, both processes are replaced.
    helm.run(&[
        "upgrade", "berth", &chart(), "--wait", "--timeout", "2m", "--set", "policies.annotations=Deny", "--set", "config.bind-concurrency=4",
    ])
    .await;
    kubelet.leads(1).await;
    let refused = is_refused(&rig, &mistaken_job("refused", "kai-scheduler")).await;
    assert!(refused.contains("kai.scheduler/batch-min-member is ") && refused.contains("allowed is a whole number of pods"), "{refused}");
    is_taken(&rig, &mistaken_job("foreign", "default-scheduler")).await;
    a_foreign_pod_runs(&rig, "while-it-runs").await;
    let queues: Api<Queue> = Api::all(rig.client.clone());
    let protected = queues.delete("default-parent-queue", &DeleteParams::default()).await.unwrap_err().to_string();
    assert!(protected.contains("still has children (default-queue)"), "{protected}");
    rig.job("second", 2, required_region()).await;
    rig.bound("second-", 2, SOON).await;

    // And back.
    helm.run(&["rollback", "berth", "1", "--wait", "--timeout", "2m"]).await;
    kubelet.leads(1).await;
    is_taken(&rig, &mistaken_job("told-again", "kai-scheduler")).await;
    rig.delete_job("first").await;
    rig.job("third", 2, required_region()).await;
    rig.bound("third-", 2, SOON).await;

    // Gone: what stays is what users have work in, and it stands in nobody's way.
    let before = rig.places("").await;
    helm.run(&["uninstall", "berth", "--wait", "--timeout", "2m"]).await;
    wait_for("the processes to end", SOON, || async { if kubelet.count() == 0 { Ok(Some(())) } else { Err("they run") } }).await.unwrap();
    let kinds: BTreeSet<String> = left(&rig).await.iter().filter_map(|name| Some(name.split_once('/')?.0.to_owned())).collect();
    // The Job of `helm test` is kept by helm until the next test.
    let kept = ["CustomResourceDefinition", "PriorityClass", "Job", "Pod"].map(str::to_owned);
    assert!(kinds.iter().all(|kind| kept.contains(kind)), "{kinds:?}");
    a_foreign_pod_runs(&rig, "when-it-is-gone").await;
    let after = rig.places("").await;
    assert!(before.iter().all(|(pod, node)| after.get(pod) == Some(node)), "running work is untouched: {before:?} {after:?}");

    // And again, under another name, over what the first left.
    helm.run(&["install", "again", &chart(), "--wait", "--timeout", "2m", "--set", "replicas=1"]).await;
    kubelet.leads(0).await;
    rig.delete_job("second").await;
    rig.job("fourth", 2, required_region()).await;
    rig.bound("fourth-", 2, SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_scheduler_installed_is_used_and_left_alone() {
    let (rig, helm, kubelet) = rig().await;
    // As KAI Scheduler's chart leaves it: definitions without helm's marks, a class and a queue with those of its release.
    rig.apply_crds().await;
    let marks = json!({"meta.helm.sh/release-name": "kai-scheduler", "meta.helm.sh/release-namespace": "kai-scheduler"});
    let managed = json!({"app.kubernetes.io/managed-by": "Helm"});
    rig.create(&json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 51,
        "metadata": {"name": "train", "annotations": marks, "labels": managed},
    }))
    .await;
    let one = json!({"quota": 1, "limit": 1, "overQuotaWeight": 1});
    let all = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    rig.create(&json!({
        "apiVersion": "scheduling.run.ai/v2", "kind": "Queue",
        "metadata": {"name": "default-queue", "annotations": marks, "labels": managed},
        "spec": {"resources": {"gpu": one, "cpu": all, "memory": all}},
    }))
    .await;
    helm.run(&["install", "berth", &chart(), "--create-namespace", "--wait", "--timeout", "2m"]).await;
    kubelet.leads(1).await;
    let class: Value = stored(&rig, "scheduling.k8s.io", "PriorityClass", "train").await;
    assert_eq!((&class["value"], &class["metadata"]["annotations"]), (&json!(51), &marks));
    let queue = stored(&rig, "scheduling.run.ai", "Queue", "default-queue").await;
    assert_eq!(queue["spec"]["resources"]["gpu"], one);

    // The queue's limit holds: it is the one that was there.
    rig.job("one", 1, json!({})).await;
    rig.bound("one-", 1, SOON).await;
    rig.job("two", 1, json!({})).await;
    rig.waits_because("two-", "QueueOverLimit").await;

    // The other chart takes its things away, and an upgrade of ours brings what is missing.
    let classes: Api<k8s_openapi::api::scheduling::v1::PriorityClass> = Api::all(rig.client.clone());
    classes.delete("train", &DeleteParams::default()).await.unwrap();
    helm.run(&["upgrade", "berth", &chart(), "--wait", "--timeout", "2m"]).await;
    assert_eq!(classes.get("train").await.unwrap().value, 50);
    kubelet.leads(1).await;
    helm.run(&["uninstall", "berth", "--wait", "--timeout", "2m"]).await;
    let pods: Api<Pod> = Api::namespaced(rig.client.clone(), NAMESPACE);
    wait_for("its pods to be gone", SOON, || async {
        let found = pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items.len();
        if found == 0 { Ok(Some(())) } else { Err(format!("{found} are there")) }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_writes_nothing_and_says_what_would_have_been_better() {
    let (rig, helm, kubelet) = rig().await;
    helm.run(&["install", "shadow", &chart(), "--create-namespace", "--wait", "--timeout", "2m", "--set", "dryRun=true"]).await;
    kubelet.leads(0).await;
    rig.topology("cluster-topology", &[REGION, ZONE]).await;
    let refused_before = refused(&rig).await;
    rig.job("split", 2, required_region()).await;
    let pods = wait_for("the pods of the Job", SOON, || async {
        let pods = rig.pods().list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let names: Vec<String> = pods.into_iter().filter_map(|pod| pod.metadata.name).collect();
        if names.len() == 2 { Ok(Some(names)) } else { Err(format!("{names:?}")) }
    })
    .await
    .unwrap();
    let metric = |name: &'static str, value: &'static str| {
        let kubelet = &kubelet;
        async move {
            wait_for(&format!("{name} {value}"), SOON, || async {
                let metrics = kubelet.ask("/metrics").await.join("");
                let line = metrics.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
                if line.ends_with(value) { Ok(Some(())) } else { Err(line) }
            })
            .await
            .unwrap();
        }
    };
    metric("berth_gangs_decided_total", " 1").await;
    assert!(rig.places("split-").await.is_empty(), "nothing is bound");
    // Another scheduler puts them an ocean apart.
    for (pod, node) in pods.iter().zip(["iowa-0", "seoul-0"]) {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"kind": "Node", "name": node}});
        let _answer: Value = rig.pods().create_subresource("binding", pod, &PostParams::default(), &binding).await.unwrap();
    }
    metric("berth_dry_run_gangs_total{verdict=\"better\"}", " 1").await;
    assert!(rig.pod_groups().list(&ListParams::default()).await.unwrap().items.is_empty(), "no PodGroup is written");
    let queues: Api<Queue> = Api::all(rig.client.clone());
    assert!(queues.list(&ListParams::default()).await.unwrap().items.is_empty(), "no queue is made");
    assert_eq!(refused(&rig).await, refused_before, "nothing was tried that its rights, which are to read only, refuse");
    helm.run(&["uninstall", "shadow", "--wait", "--timeout", "2m"]).await;
    wait_for("the process to end", SOON, || async { if kubelet.count() == 0 { Ok(Some(())) } else { Err("it runs") } }).await.unwrap();
    let log = kubelet.logs();
    let said = "dry run: gangs that Berth would have placed, against what became of them";
    assert!(log.contains("dry run: would be placed") && log.contains(said) && log.contains("region 1, zone 2, node 2"), "{log}");
}

/// An object of any cluster-wide kind, as it is stored.
async fn stored(rig: &Rig, group: &str, kind: &str, name: &str) -> Value {
    let gvk = GroupVersionKind::gvk(group, if group == "scheduling.run.ai" { "v2" } else { "v1" }, kind);
    let (resource, _): (ApiResource, _) = discovery::pinned_kind(&rig.client, &gvk).await.unwrap();
    let api: Api<DynamicObject> = Api::all_with(rig.client.clone(), &resource);
    serde_json::to_value(api.get(name).await.unwrap()).unwrap()
}

/// Top-level objects of a stream of YAML documents, as text with their kind.
fn documents(text: &str) -> Vec<(String, String)> {
    let documents = text.split("\n---\n").map(|one| one.trim_start_matches("---\n").trim_end());
    let kind = |one: &str| one.lines().find_map(|line| line.strip_prefix("kind: ")).map(str::to_owned);
    documents.filter_map(|one| Some((kind(one)?, one.to_owned()))).collect()
}

/// deploy/: what `helm template` makes of the chart, without what only helm understands.
fn plain(rendered: &str) -> BTreeMap<&'static str, String> {
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}");
    let all = [("Namespace".to_owned(), namespace)].into_iter().chain(documents(rendered));
    for (kind, text) in all {
        let file = match kind.as_str() {
            "CustomResourceDefinition" => "1-crds.yaml",
            "Queue" => "3-queues.yaml",
            _ => "2-berth.yaml",
        };
        let only_helm = ["# Source: ", "helm.sh/", "app.kubernetes.io/managed-by: "];
        let lines = text.lines().filter(|line| !only_helm.iter().any(|words| line.trim_start().starts_with(words)));
        let lines = lines.filter(|line| *line != "  annotations: {helm.sh/resource-policy: keep}");
        // What is left of a map whose only lines were those.
        let text = lines.collect::<Vec<&str>>().join("\n").replace("  annotations:\n  labels:", "  labels:").replace("  annotations:\nspec:", "spec:");
        let into = files.entry(file).or_insert_with(|| "# Made from charts/berth by `UPDATE=1 cargo test --test e2e plain_manifests`.\n".to_owned());
        into.push_str(&format!("---\n{text}\n"));
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_manifests_are_those_of_the_chart() {
    let home = std::env::temp_dir().join(format!("berth-chart-{}", std::process::id()));
    let helm = Helm::ready(&home.join("none")).await;
    let rendered = helm.run(&["template", "berth", &chart(), "--kube-version", "1.36.0", "--skip-tests"]).await;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    for (file, expected) in plain(&rendered) {
        let path = folder.join(file);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &expected).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), expected, "{file} is old; UPDATE=1 writes it");
    }
    // What does not fit is refused before anything is installed, by name.
    for (setting, words) in [
        ("replicas=many", "replicas"),
        ("replica=2", "replica"),
        ("schedulerName=default-scheduler", "schedulerName"),
        ("policies.annotations=Ignore", "annotations"),
        ("topology.enabled=true", "topology.from: name at least one source"),
    ] {
        match helm.try_run(&["template", "berth", &chart(), "--set", setting]).await {
            Ok(_) => panic!("{setting} is taken"),
            Err(message) => assert!(message.contains(words), "{setting}: {message}"),
        }
    }
    if home.exists() {
        std::fs::remove_dir_all(home).unwrap();
    }
}
