//! The API of the running scheduler on a real cluster: reviews by a real API server, tokens of real accounts.

use std::process::Output;

use berth_harness::NodeSpec;
use serde_json::{Value, json};

use crate::rig::{RACK, Rig, SOON, ZONE, free_address};
use crate::rights::{become_account, become_named, generated_with};

/// Two racks of two nodes in one zone.
fn racks() -> Vec<NodeSpec> {
    let node = |rack: &str, n: u32| {
        NodeSpec::new(format!("metal-{rack}-{n}")).gpus(1).label(ZONE, "zone-1").label(RACK, format!("cage-{rack}"))
    };
    ["a", "b"].iter().flat_map(|rack| [node(rack, 0), node(rack, 1)]).collect()
}

fn one_rack(pods: u32) -> Value {
    json!({
        "kai.scheduler/batch-min-member": pods.to_string(), "kai.scheduler/topology": "cluster-topology",
        "kai.scheduler/topology-required-placement": RACK,
    })
}

/// A service account that may do these things with the pods of a namespace.
async fn local_account(rig: &Rig, name: &str, verbs: &[&str]) {
    let rbac = "rbac.authorization.k8s.io/v1";
    let metadata = json!({"name": name, "namespace": rig.namespace});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": rig.namespace}]);
    rig.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})).await;
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]);
    rig.create(&json!({"apiVersion": rbac, "kind": "Role", "metadata": metadata, "rules": rules})).await;
    rig.create(&json!({"apiVersion": rbac, "kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": subjects})).await;
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn numbers(gang: &Value) -> Vec<Value> {
    let rooms = gang["domains"].as_array().unwrap().iter().map(|room| json!([room["nodes"], room["has"], room["needs"]]));
    rooms.chain([gang["reasons"][0]["has"].clone(), gang["reasons"][0]["needs"].clone(), json!(gang["remedies"].as_array().unwrap().len())]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_running_scheduler_answers_each_what_they_may_see() {
    let mut rig = Rig::new(racks()).await;
    rig.topology("cluster-topology", &[ZONE, RACK]).await;
    for object in generated_with(&rig.namespace, &["--api"]) {
        rig.create(&object).await;
    }
    let admin = rig.kubeconfig.clone();
    become_account(&mut rig).await;
    rig.log = Some(rig.plane.log_path("berth"));
    let address = free_address();
    rig.start_berth_with(&["--api-address", &address]);
    rig.ready().await;
    let scheduler = format!("http://{address}");

    // Another team has a rack; what our second Job needs is not there any more.
    let ours = rig.namespace.clone();
    let other = rig.plane.namespace(&rig.client, "secret").await.unwrap();
    rig.namespace.clone_from(&other);
    rig.job("theirs", 2, one_rack(2)).await;
    rig.bound("theirs-", 2, SOON).await;
    rig.namespace.clone_from(&ours);
    rig.job("first", 1, json!({})).await;
    rig.bound("first-", 1, SOON).await;
    rig.job("second", 2, one_rack(2)).await;
    rig.waits_because("second-", "Unschedulable").await;
    rig.idle().await;
    local_account(&rig, "dev", &["get", "list"]).await;
    rig.account("seer", json!([{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list"]}])).await;
    rig.account("stranger", json!([])).await;
    let explain = ["explain", "Job/second", "-n", &ours, "-o", "json"];
    let asked = |name: &'static str, namespace: &str| -> Vec<String> {
        ["explain", name, "-n", namespace, "--scheduler", &scheduler, "-o", "json"].map(str::to_owned).into()
    };

    // The kubeconfig of the control plane has a certificate: that is said, and nothing else is asked instead.
    rig.kubeconfig = admin;
    let (code, own_engine) = rig.answer(&explain);
    assert_eq!(code, Some(1));
    let words = asked("Job/second", &ours);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = rig.ask(&words);
    assert!(output.status.code() == Some(2) && error(&output).contains("no token") && output.stdout.is_empty(), "{output:?}");

    // Who may read nodes and pods gets the answer of a command with an engine of its own.
    become_named(&mut rig, "seer").await;
    let (code, all) = rig.answer(&words);
    let gang = &all["podGroups"][0];
    assert_eq!((code, &gang["reasons"][0]["code"]), (Some(1), &json!("RequiredDomainTooSmall")), "{all}");
    for part in ["reasons", "remedies", "domains", "message", "state", "pods", "bound", "minMember"] {
        assert_eq!(gang[part], own_engine["podGroups"][0][part], "{part}");
    }
    let text = all.to_string();
    assert!(["metal-", "cage-", "theirs"].iter().all(|name| text.contains(name)), "{text}");

    // They have the page as well; what it shows asks for the same.
    let token = token(&rig);
    let (code, page) = http(&address, "/", "").await;
    assert!(code == 200 && page.contains("/v1/snapshot") && !page.contains("metal-"), "{page}");
    let (code, snapshot) = http(&address, "/v1/snapshot", &token).await;
    let decided = ["\"pods\":2", "metal-a-0", "cage-b", "Job/second", "needs 2 pods in one example.com/rack"];
    assert!(code == 200 && decided.iter().all(|part| snapshot.contains(part)), "{snapshot}");

    // Who may read the pods of one namespace gets their own without the names of others.
    become_named(&mut rig, "dev").await;
    let dev = self::token(&rig);
    let (code, masked) = rig.answer(&words);
    let text = masked.to_string();
    assert!(code == Some(1) && text.contains("zone-1/rack#1") && text.contains("queue default-queue"), "{text}");
    assert!(!["metal-", "cage-", "theirs", "secret"].iter().any(|name| text.contains(name)), "{text}");
    assert_eq!(numbers(&masked["podGroups"][0]), numbers(gang), "counts stay");
    let output = rig.ask(&["explain", "Job/second", "-n", &ours, "--scheduler", &scheduler]);
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.code() == Some(1) && table.starts_with("Job/second in ") && !table.contains("metal-"), "{output:?}");
    assert_eq!(rig.ask(&["explain", "Job/first", "-n", &ours, "--scheduler", &scheduler]).status.code(), Some(0));
    let queue = ["queue", "-n", &ours, "--scheduler", &scheduler, "-o", "json"];
    let (code, line) = rig.answer(&queue);
    assert_eq!((code, &line["waiting"][0]["owner"], &line["summary"]["waitingEverywhere"]), (Some(0), &json!("Job/second"), &json!(1)), "{line}");
    let refused = asked("Job/theirs", &other);
    let output = rig.ask(&refused.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(output.status.code() == Some(2) && error(&output).contains("403") && error(&output).contains(&format!("get pods in namespace {other}")), "{output:?}");
    become_named(&mut rig, "stranger").await;
    assert!(error(&rig.ask(&words)).contains("403"));

    // A flood is answered from few copies of the model.
    let (before, asked_at) = (copies(&rig).await, std::time::Instant::now());
    for _ in 0..200 {
        let (code, text) = http(&address, &format!("/v1/explain/{ours}/Job/second"), &dev).await;
        assert_eq!(code, 200, "{text}");
    }
    let made = copies(&rig).await - before;
    assert!(made <= 1 + asked_at.elapsed().as_secs() / 2, "{made} copies in {:?}", asked_at.elapsed());

    // Without a token, and with a forged one.
    let path = format!("/v1/explain/{ours}/Job/second");
    assert_eq!((http(&address, &path, "").await.0, http(&address, &path, "forged").await.0), (401, 401));
    assert_eq!(http(&address, "/v1/snapshot", &dev).await.0, 403);
    let (code, page) = http(&address, &format!("/v1/snapshot?namespace={ours}"), &dev).await;
    assert!(code == 200 && page.contains("Job/second") && page.contains("node#1"), "{page}");
    assert!(!["metal-", "cage-", "theirs", "secret"].iter().any(|name| page.contains(name)), "{page}");

    // No right was missing, no token was written down, and without the scheduler there is no answer.
    let log = rig.logged();
    assert!(!log.contains("can't be reviewed") && !log.contains(&dev), "{log}");
    assert_eq!(rig.stop_berth(), Some(0));
    let output = rig.ask(&words);
    assert!(output.status.code() == Some(2) && error(&output).contains("asking the scheduler") && output.stdout.is_empty(), "{output:?}");
}

/// Copies of the model made so far.
async fn copies(rig: &Rig) -> u64 {
    let metrics = rig.http("/metrics").await;
    metrics.lines().find_map(|line| line.strip_prefix("berth_copy_seconds_count ")).unwrap().parse().unwrap()
}

/// The token of the account that commands run as.
fn token(rig: &Rig) -> String {
    let config: Value = serde_json::from_str(&std::fs::read_to_string(&rig.kubeconfig).unwrap()).unwrap();
    config["users"][0]["user"]["token"].as_str().unwrap().to_owned()
}

/// Status code and text of a path.
async fn http(address: &str, path: &str, token: &str) -> (u16, String) {
    use std::io::{Read, Write};
    let (address, path, token) = (address.to_owned(), path.to_owned(), token.to_owned());
    let ask = move || -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect(address)?;
        let token = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
        write!(stream, "GET {path} HTTP/1.1\r\nHost: berth\r\nConnection: close\r\n{token}\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    let text = tokio::task::spawn_blocking(ask).await.unwrap().unwrap();
    (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
}
