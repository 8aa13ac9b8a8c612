//! What goes wrong around a scheduler: the API server restarts, the process is stopped, objects are deleted under it.

use std::collections::{BTreeMap, BTreeSet};

use berth_harness::{Options, wait_for};
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::load::{LOAD, PODS_PER_GANG, create_gangs, nodes};
use crate::rig::{RACK, REGION, Rig, SOON, ZONE, gpu_pod_spec, two_regions};
use crate::stories::{region, required_region};

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_restarts_is_followed() {
    let mut rig = Rig::new(two_regions(2)).await;
    rig.topology("cluster-topology", &[REGION, ZONE]).await;
    rig.log = Some(rig.plane.log_path("berth"));
    rig.start_berth();
    rig.ready().await;
    rig.job("before", 2, required_region()).await;
    let before = rig.bound("before-", 2, SOON).await;
    rig.idle().await;

    // Those watched from the start, and Jobs.
    let kinds = berth::cluster::store::base_kinds().len() + 1;
    rig.plane.kill_apiserver().unwrap();
    wait_for("Berth to notice", SOON, || async {
        let metrics = rig.http("/metrics").await;
        let failed = |line: &&str| line.starts_with("berth_watch_errors_total{") && !line.ends_with(" 0");
        let errors = metrics.lines().filter(failed).count();
        if errors == kinds { Ok(Some(())) } else { Err(format!("{errors} watches do")) }
    })
    .await
    .unwrap();
    assert!(rig.http("/livez").await.starts_with("HTTP/1.1 200"), "nothing is wrong with the process");
    rig.plane.start_apiserver_again().await.unwrap();

    rig.job("after", 2, required_region()).await;
    let after = rig.bound("after-", 2, LOAD).await;
    let regions: BTreeSet<&str> = after.values().map(|node| region(node)).collect();
    assert_eq!(regions.len(), 1, "{after:?}");
    assert_eq!(rig.places("before-").await, before, "what ran goes on");
    let log = rig.logged();
    let told = log.lines().filter(|line| line.contains("watch failed")).count();
    assert!((1..=2 * kinds).contains(&told), "an error that goes on is not told again and again:\n{log}");
    assert_eq!(rig.stop_berth(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_with_bindings_under_way_it_leaves_no_half_gang() {
    const COUNT: u32 = 100;
    let all = (COUNT * PODS_PER_GANG) as usize;
    let mut rig = Rig::new(nodes()).await;
    rig.topology("t", &[RACK]).await;
    create_gangs(&rig, COUNT).await;
    wait_for("all pods to exist", LOAD, || async {
        let pods = rig.pods().list(&ListParams::default()).await.map_err(|error| error.to_string())?.items.len();
        if pods == all { Ok(Some(())) } else { Err(format!("{pods} do")) }
    })
    .await
    .unwrap();
    rig.log = Some(rig.plane.log_path("berth"));
    // One at a time, so that the stop comes in the middle.
    rig.start_berth_with(&["--bind-concurrency", "1"]);
    wait_for("some pods to be bound", LOAD, || async {
        let bound = rig.places("g").await.len();
        if bound > 4 { Ok(Some(())) } else { Err(format!("{bound} are")) }
    })
    .await
    .unwrap();
    assert_eq!(rig.stop_berth(), Some(0), "{}", rig.logged());
    let places = rig.places("g").await;
    let mut gangs: BTreeMap<&str, u32> = BTreeMap::new();
    for pod in places.keys() {
        *gangs.entry(&pod[..4]).or_default() += 1;
    }
    assert!(gangs.values().all(|pods| *pods == PODS_PER_GANG), "a gang is half bound: {gangs:?}");
    assert!(places.len() < all, "it was not stopped in the middle");
    let log = rig.logged();
    assert!(log.contains("gangs under way are finished") && log.contains("given_back"), "{log}");

    rig.start_berth();
    let after = rig.bound("g", all, LOAD).await;
    assert!(places.iter().all(|(pod, node)| after[pod] == *node), "nothing is bound again elsewhere");
    assert!(!rig.logged().contains("waiting out"), "a stop in good order costs no wait: {}", rig.logged());
    let counts = rig.plane.request_counts(&rig.client).await.unwrap();
    let bindings: u64 = counts.iter().filter(|c| c.verb == "POST" && c.subresource == "binding").map(|c| c.count).sum();
    assert_eq!(bindings, all as u64, "every Binding is sent once");
    assert_eq!(rig.stop_berth(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_group_is_made_again_or_missed() {
    let mut rig = Rig::new(two_regions(1)).await;
    rig.topology("cluster-topology", &[REGION, ZONE]).await;
    rig.start_berth();
    rig.ready().await;
    // A workload's: Berth makes it again, and says again why its pods wait.
    rig.job("waits", 2, required_region()).await;
    rig.group_status("pg-waits-", |status| status["reason"] == "RequiredDomainTooSmall").await;
    let group = rig.pod_groups().list(&ListParams::default()).await.unwrap().items.remove(0).metadata;
    rig.pod_groups().delete(group.name.as_deref().unwrap(), &DeleteParams::default()).await.unwrap();
    wait_for("the PodGroup to be made again", SOON, || async {
        let groups = rig.pod_groups().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let again = groups.items.into_iter().find(|other| other.metadata.uid != group.uid);
        Ok::<_, String>(again.filter(|again| again.metadata.name == group.name).map(|_| ()))
    })
    .await
    .unwrap();
    rig.group_status("pg-waits-", |status| status["reason"] == "RequiredDomainTooSmall").await;

    // One written by hand: its pods say that it is missing, until somebody writes it again.
    let written = |minimum: u32| {
        json!({
            "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": "mine"}, "spec": {"minMember": minimum, "queue": "default-queue"},
        })
    };
    rig.create(&written(3)).await;
    for name in ["mine-a", "mine-b"] {
        rig.create(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {"pod-group-name": "mine"}}, "spec": gpu_pod_spec(),
        }))
        .await;
    }
    rig.waits_because("mine-", "NotEnoughPods").await;
    rig.pod_groups().delete("mine", &DeleteParams::default()).await.unwrap();
    let message = rig.waits_because("mine-", "PodGroupNotFound").await;
    assert!(message.contains("mine"), "{message}");
    assert!(rig.places("mine-").await.is_empty());
    rig.create(&written(2)).await;
    rig.bound("mine-", 2, SOON).await;
    assert_eq!(rig.stop_berth(), Some(0));
}

/// Field report D1: a cluster where the definitions are forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn without_definitions_plain_pods_run_and_the_rest_follows_when_they_come() {
    let mut rig = Rig::bare(Options::default(), two_regions(2)).await;
    rig.log = Some(rig.plane.log_path("berth"));
    rig.start_berth();
    rig.ready().await;
    rig.create(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain", "namespace": rig.namespace}, "spec": gpu_pod_spec(),
    }))
    .await;
    rig.bound("plain", 1, SOON).await;
    rig.job("train", 2, required_region()).await;
    let message = rig.waits("train-").await;
    assert_eq!(message.0, "UnknownTopology", "{message:?}");

    rig.apply_crds().await;
    rig.topology("cluster-topology", &[REGION, ZONE]).await;
    let places = rig.bound("train-", 2, LOAD).await;
    let regions: BTreeSet<&str> = places.values().map(|node| region(node)).collect();
    assert_eq!(regions.len(), 1, "{places:?}");
    let log = rig.logged();
    let said = log.lines().filter(|line| line.contains("topologies") || line.contains("Topology")).count();
    assert!((1..10).contains(&said), "it is said, and not again and again:\n{log}");
    assert_eq!(rig.stop_berth(), Some(0));
}

/// Field report G15: a leader that stood still while another took over writes nothing when it goes on, and ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stood_still_writes_nothing_when_it_goes_on() {
    let mut rig = Rig::new(two_regions(2)).await;
    rig.start_candidate();
    rig.ready().await;
    rig.job("first", 1, json!({})).await;
    rig.bound("first-", 1, SOON).await;
    let mut still = rig.start_candidate().unwrap();
    let signal = |name: &str| {
        let status = std::process::Command::new("kill").args([name, &still.id().to_string()]).status().unwrap();
        assert!(status.success());
    };
    signal("-STOP");
    // It would see these pods waiting, had it not to ask whether it still leads.
    rig.job("second", 2, json!({"kai.scheduler/batch-min-member": "2"})).await;
    rig.bound("second-", 2, SOON).await;
    signal("-CONT");
    let ended = tokio::task::spawn_blocking(move || still.wait().unwrap()).await.unwrap();
    assert_eq!(ended.code(), Some(2), "it says that it does not lead any more");
    rig.job("third", 1, json!({})).await;
    rig.bound("third-", 1, SOON).await;
    let counts = rig.plane.request_counts(&rig.client).await.unwrap();
    let bindings: u64 = counts.iter().filter(|c| c.verb == "POST" && c.subresource == "binding").map(|c| c.count).sum();
    assert_eq!(bindings, 4, "one for each pod");
    assert_eq!(rig.stop_berth(), Some(0));
}
