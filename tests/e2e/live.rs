//! The commands that ask a cluster, on a real one: one reader, the same answers as from its snapshot, and plain words where a
//! right is missing.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::rig::{REGION, Rig, SOON, ZONE, two_regions};
use crate::rights::become_named;
use crate::stories::{region, required_region};

impl Rig {
    /// Runs a command with the rights of the rig's kubeconfig.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_berth")).args(arguments).arg("--kubeconfig").arg(&self.kubeconfig).output().unwrap()
    }

    /// The JSON that a command answers, with its exit code.
    pub(crate) fn answer(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let output = self.ask(arguments);
        let value = serde_json::from_slice(&output.stdout);
        (output.status.code(), value.unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}")))
    }

    /// A service account with these rights in the whole cluster.
    pub(crate) async fn account(&self, name: &str, rules: Value) {
        let rbac = "rbac.authorization.k8s.io/v1";
        let metadata = json!({"name": name, "namespace": self.namespace});
        self.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})).await;
        self.create(&json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})).await;
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": self.namespace}]);
        self.create(&json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": name}, "roleRef": role, "subjects": subjects})).await;
    }
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn live_commands_answer_and_say_what_may_not_be_read() {
    let mut rig = Rig::new(two_regions(2)).await;
    rig.topology("cluster-topology", &[REGION, ZONE]).await;
    let selector = json!({"matchLabels": {"batch.kubernetes.io/job-name": "first"}});
    rig.create(&json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep", "namespace": rig.namespace},
        "spec": {"minAvailable": 1, "selector": selector},
    }))
    .await;
    rig.start_berth();
    rig.ready().await;
    rig.job("first", 2, required_region()).await;
    let places = rig.bound("first-", 2, SOON).await;
    let mut three = required_region();
    three["kai.scheduler/batch-min-member"] = json!("3");
    rig.job("second", 3, three).await;
    rig.waits_because("second-", "Unschedulable").await;
    rig.idle().await;
    let namespace = rig.namespace.clone();

    let (code, explained) = rig.answer(&["explain", "Job/second", "-n", &namespace, "-o", "json"]);
    let gang = &explained["podGroups"][0];
    assert_eq!((code, &gang["owner"], &gang["reasons"][0]["code"]), (Some(1), &json!("Job/second"), &json!("RequiredDomainTooSmall")), "{explained}");
    assert_eq!((&gang["reasons"][0]["needs"], &gang["reasons"][0]["has"]), (&json!(3), &json!(2)), "{explained}");
    assert!(gang["remedies"].as_array().is_some_and(|remedies| !remedies.is_empty()), "{explained}");

    let (code, queue) = rig.answer(&["queue", "-o", "json"]);
    assert_eq!((code, &queue["waiting"][0]["owner"], &queue["summary"]["waiting"]), (Some(0), &json!("Job/second"), &json!(1)), "{queue}");
    assert_eq!(queue["queues"][0]["gpu"]["allocated"], 2, "{queue}");

    let output = rig.ask(&["where", "Job/first", "-n", &namespace, "--hostfile"]);
    let lines: Vec<String> = places.values().map(|node| format!("{node} slots=1")).collect();
    let mut hosts: Vec<String> = String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_owned).collect();
    hosts.sort();
    assert_eq!((output.status.code(), hosts), (Some(0), lines), "{output:?}");

    let (code, tree) = rig.answer(&["tree", "-o", "json"]);
    let used: Vec<&Value> = tree["root"]["domains"].as_array().unwrap().iter().filter(|domain| domain["used"] == 2).map(|domain| &domain["name"]).collect();
    assert_eq!((code, used), (Some(0), vec![&json!(region(places.values().next().unwrap()))]), "{tree}");

    let (code, proposed) = rig.answer(&["topology", "propose", "-o", "json"]);
    let levels: Vec<&Value> = proposed["proposals"][0]["levels"].as_array().unwrap().iter().map(|level| &level["nodeLabel"]).collect();
    assert_eq!((code, &proposed["nodes"], &levels[..1]), (Some(0), &json!(4), &[&json!(REGION)][..]), "{proposed}");

    // A snapshot holds all that the answers rest on.
    let file = rig.plane.log_path("snapshot");
    assert!(rig.ask(&["snapshot", "-o", &file.display().to_string()]).status.success());
    let text = std::fs::read_to_string(&file).unwrap();
    for kind in ["\"Node\"", "\"Pod\"", "\"PodGroup\"", "\"Topology\"", "\"Job\"", "\"PodDisruptionBudget\"", "\"Namespace\""] {
        assert!(text.contains(&format!("\"kind\": {kind}")), "{kind}");
    }
    let (code, again) = rig.answer(&["explain", "Job/second", "-n", &namespace, "-o", "json", "--snapshot", &file.display().to_string()]);
    assert_eq!((code, again), (Some(1), explained));

    check(&rig).await;

    // Without rights it is said which are missing; with the least of them the rest is named, and the answer stays.
    rig.account("stranger", json!([])).await;
    rig.account("reader", json!([{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]}])).await;
    become_named(&mut rig, "stranger").await;
    for command in [&["queue"][..], &["tree"], &["snapshot"], &["explain", "-A"], &["where", "Job/first"], &["topology", "propose"], &["check", "--live"]] {
        let output = rig.ask(command);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {output:?}");
        assert!(error(&output).contains("nodes can't be read") && error(&output).contains("berth generate rbac"), "{command:?}: {output:?}");
        assert!(output.stdout.is_empty());
    }
    become_named(&mut rig, "reader").await;
    let output = rig.ask(&["tree", "-o", "json"]);
    assert!(output.status.success() && error(&output).contains("left out: topologies of kai.scheduler/v1alpha1: may not be listed"), "{output:?}");
    assert!(error(&output).contains("left out: jobs of batch/v1: may not be listed"), "{output:?}");
    let (_, checked) = rig.answer(&["check", "--live", "-o", "json"]);
    let missing = checked["missing"].to_string();
    assert!(missing.contains("queues of scheduling.run.ai/v2") && missing.contains("topologies of kai.scheduler/v1alpha1"), "{checked}");
}

/// The lint of a cluster with one slip, and what a user of KAI Scheduler is told of it.
async fn check(rig: &Rig) {
    let namespace = rig.namespace.as_str();
    rig.job("slip", 1, json!({"kai.scheduler/topologie": "cluster-topology"})).await;
    rig.bound("slip-", 1, SOON).await;
    let found = |value: &Value, list: &str| -> Vec<(String, String)> {
        let text = |finding: &Value, field: &str| finding[field].as_str().unwrap_or_default().to_owned();
        value[list].as_array().into_iter().flatten().map(|finding| (text(finding, "object"), text(finding, "code"))).collect()
    };
    let (code, checked) = rig.answer(&["check", "--live", "-n", namespace, "-o", "json"]);
    // It stands on the Job, its pod and its PodGroup, and is told once.
    assert_eq!((code, found(&checked, "findings")), (Some(1), vec![(format!("batch/v1/Job {namespace}/slip"), "UnknownKey".to_owned())]), "{checked}");
    assert_eq!(checked["missing"], json!([]));
    let (code, elsewhere) = rig.answer(&["check", "--live", "-n", "kube-system", "-o", "json"]);
    assert_eq!((code, found(&elsewhere, "findings")), (Some(0), Vec::new()), "{elsewhere}");

    rig.loose_kind("scheduling.run.ai", "v1alpha2", "BindRequest", "bindrequests").await;
    rig.loose_kind("kai.scheduler", "v1", "SchedulingShard", "schedulingshards").await;
    let metadata = |name: &str| json!({"name": name, "namespace": namespace});
    rig.create(&json!({"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest", "metadata": metadata("soon"), "spec": {"podName": "soon", "selectedNode": "n"}})).await;
    rig.create(&json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": metadata("default"), "spec": {"placementStrategy": {"gpu": "spread"}}})).await;
    rig.create(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "kai-queue-validation-v2"},
        "webhooks": [{
            "name": "queues.kai.scheduler", "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": namespace, "name": "queue-controller", "path": "/v"}},
            "rules": [{"apiGroups": ["scheduling.run.ai"], "apiVersions": ["v2"], "operations": ["CREATE"], "resources": ["queues"]}],
        }],
    }))
    .await;
    let (code, report) = rig.answer(&["check", "--live", "--from", "kai", "-o", "json"]);
    let waiting: Vec<(&Value, &Value)> = report["waiting"].as_array().unwrap().iter().map(|gang| (&gang["owner"], &gang["starts"])).collect();
    assert_eq!((code, waiting), (Some(1), vec![(&json!("Job/second"), &json!(false))]), "{report}");
    assert_eq!(report["bindRequests"][0]["name"], "soon", "{report}");
    assert_eq!(report["commands"], json!([{"for": "SchedulingShard default", "arguments": ["--gpu-strategy=spread"]}]), "{report}");
    let leftovers = found(&report, "leftovers");
    assert_eq!(leftovers, [("admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration kai-queue-validation-v2".to_owned(), "WebhookLeftBehind".to_owned())], "{report}");
    assert_eq!(report["missing"], json!([]));
    assert!(found(&report, "differences").contains(&(format!("policy/v1/PodDisruptionBudget {namespace}/keep"), "KaiDiffEviction".to_owned())), "{report}");
}
