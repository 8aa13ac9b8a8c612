//! Berth with the rights of `berth generate rbac`: exactly these are enough, and one that is missing is named.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use berth_harness::wait_for;
use k8s_openapi::api::core::v1::{Event, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::{Api, Client};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use crate::rig::{REGION, Rig, SOON, ZONE, two_regions};
use crate::stories::{region, required_region};

/// The objects that the command writes.
pub(crate) fn generated(namespace: &str) -> Vec<Value> {
    generated_with(namespace, &[])
}

/// The same with more arguments.
pub(crate) fn generated_with(namespace: &str, more: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_berth")).args(["generate", "rbac", "-n", namespace]).args(more).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split("---\n").filter(|document| !document.is_empty()).map(|one| serde_saphyr::from_str(one).unwrap()).collect()
}

/// Makes Berth run as the service account `berth`.
pub(crate) async fn become_account(rig: &mut Rig) {
    become_named(rig, "berth").await;
}

/// Makes it run as a service account of the rig's namespace.
pub(crate) async fn become_named(rig: &mut Rig, account: &str) {
    let path = rig.plane.kubeconfig_path().with_file_name(format!("{account}.kubeconfig"));
    write_kubeconfig(&rig.client, rig.plane.kubeconfig_path(), (&rig.namespace, account), &path).await;
    rig.kubeconfig = path;
}

/// A kubeconfig for the administrator's cluster with a token of a service account, by its namespace and name.
pub(crate) async fn write_kubeconfig(client: &Client, admin: &Path, (namespace, account): (&str, &str), path: &Path) {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let answer: Value = accounts.create_subresource("token", account, &PostParams::default(), &request).await.unwrap();
    let admin = Kubeconfig::read_from(admin).unwrap();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": admin.clusters[0].cluster}],
        "users": [{"name": "u", "user": {"token": answer["status"]["token"]}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
    });
    std::fs::write(path, config.to_string()).unwrap();
}

fn is_about_jobs(rule: &Value) -> bool {
    rule["apiGroups"] == json!(["batch"])
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_generated_rights_are_enough_and_a_missing_one_is_named() {
    let mut rig = Rig::new(two_regions(2)).await;
    rig.topology("cluster-topology", &[REGION, ZONE]).await;
    let mut rules = Value::Null;
    for mut object in generated(&rig.namespace) {
        if object["kind"] == "ClusterRole" {
            rules = object["rules"].clone();
            // At first Jobs may not be read.
            object["rules"].as_array_mut().unwrap().retain(|rule| !is_about_jobs(rule));
        }
        rig.create(&object).await;
    }
    become_account(&mut rig).await;
    rig.log = Some(rig.plane.log_path("berth"));
    rig.start_berth_with(&["--leader-elect"]);
    rig.ready().await;

    // A Job that may not be read could be a gang: its pods wait, and say what is missing, once.
    rig.job("first", 2, required_region()).await;
    let message = rig.waits_because("first-", "OwnerForbidden").await;
    assert!(message.contains("get, list and watch Job (batch)") && message.contains("Job/first"), "{message}");
    let events: Api<Event> = Api::namespaced(rig.client.clone(), &rig.namespace);
    let told = wait_for("an event for each pod", SOON, || async {
        let events = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let ours = events.into_iter().filter(|event| event.reason.as_deref() == Some("OwnerForbidden"));
        let told: Vec<(Option<String>, Option<String>)> = ours.map(|e| (e.type_, e.involved_object.name)).collect();
        if told.len() < 2 { Err(format!("{told:?}")) } else { Ok(Some(told)) }
    })
    .await
    .unwrap();
    assert!(told.iter().all(|(kind, _)| kind.as_deref() == Some("Warning")), "{told:?}");
    assert_eq!((told.iter().collect::<BTreeSet<_>>().len(), told.len()), (2, 2), "one for each pod: {told:?}");
    assert!(rig.places("first-").await.is_empty());
    assert!(rig.pod_groups().list(&ListParams::default()).await.unwrap().items.is_empty(), "too little is known for one");
    let log = rig.logged();
    let about = |what: &str| log.lines().filter(|line| line.contains(what)).count();
    assert_eq!((about("kind may not be watched"), about("it may not be read")), (1, 1), "{log}");
    // The start said so already, and nothing else.
    let missing: Vec<&str> = log.lines().filter(|line| line.contains("a right is missing")).collect();
    assert!(!missing.is_empty() && missing.iter().all(|line| line.contains("batch")), "{log}");
    assert!(missing.iter().any(|line| line.contains("get,list,watch") && line.contains("\"jobs\"")), "{log}");
    let metrics = rig.http("/metrics").await;
    assert!(metrics.contains(&format!("berth_rights_missing {}\n", 3 * missing.len())) && metrics.contains("berth_leading 1\n"), "{metrics}");

    // The permission comes: nothing else has to be done.
    let roles: Api<ClusterRole> = Api::all(rig.client.clone());
    roles.patch("berth", &PatchParams::default(), &Patch::Merge(json!({"rules": rules}))).await.unwrap();
    let places = rig.bound("first-", 2, SOON).await;
    assert_eq!(places.values().map(|node| region(node)).collect::<BTreeSet<_>>().len(), 1, "{places:?}");
    rig.group_status("pg-first-", |status| status["phase"] == "Placed").await;

    // With these rights everything works: conditions, statuses and events, too.
    let refused_before = refused(&rig).await;
    rig.job("second", 2, required_region()).await;
    rig.bound("second-", 2, SOON).await;
    rig.job("third", 2, required_region()).await;
    rig.waits_because("third-", "Unschedulable").await;
    rig.group_status("pg-third-", |status| status["reason"] == "RequiredDomainTooSmall").await;
    rig.idle().await;
    assert_eq!(rig.stop_berth(), Some(0));
    let log = rig.logged();
    assert!(log.contains("given_back=true") && !log.contains("write refused") && !log.contains("could not"), "{log}");
    assert_eq!(refused(&rig).await, refused_before, "nothing that Berth asked for was forbidden");
    // What a release after a refused Binding needs is not exercised here, but allowed.
    assert!(rules.as_array().unwrap().iter().any(|rule| rule["resources"].as_array().unwrap().contains(&json!("pods/eviction"))));
}

/// How many requests the API server has answered with "forbidden".
pub(crate) async fn refused(rig: &Rig) -> u64 {
    let counts = rig.plane.request_counts(&rig.client).await.unwrap();
    counts.iter().filter(|count| count.code == "403").map(|count| count.count).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_for_good_ends_and_says_why() {
    let mut rig = Rig::new(two_regions(1)).await;
    rig.log = Some(rig.plane.log_path("berth"));
    // An account without any right, and then credentials that nobody knows.
    rig.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": rig.namespace}})).await;
    become_named(&mut rig, "nobody").await;
    for (elects, token, words) in [
        (false, None, ["403", "its account lacks the right: apply what `berth generate rbac` prints"]),
        (true, None, ["Lease: 403", "its account lacks the right"]),
        (false, Some("unknown"), ["401", "its credentials are not accepted: renew the token"]),
    ] {
        if let Some(token) = token {
            let text = std::fs::read_to_string(&rig.kubeconfig).unwrap();
            let mut config: Value = serde_json::from_str(&text).unwrap();
            config["users"][0]["user"]["token"] = json!(token);
            std::fs::write(&rig.kubeconfig, config.to_string()).unwrap();
        }
        let elect = if elects { "--leader-elect=true" } else { "--leader-elect=false" };
        rig.start_berth_with(&[elect, "--refused-seconds", "1"]);
        assert_eq!(rig.ended().await, Some(2), "{}", rig.logged());
        let log = rig.logged();
        let last = log.lines().last().unwrap_or_default();
        assert!(last.starts_with("berth: the API server has refused this process for") && words.iter().all(|word| last.contains(word)), "{log}");
    }
}
