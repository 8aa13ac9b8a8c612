//! Many gangs at once: all bound, exactly; across a kill; and within the budget of requests.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use berth_api::pod_group::PodGroupPhase;
use berth_harness::{NodeSpec, wait_for};
use futures::{StreamExt, stream};
use kube::api::ListParams;
use serde_json::json;

use crate::rig::{RACK, Rig, SOON};

const GANGS: u32 = 250;
pub(crate) const PODS_PER_GANG: u32 = 4;
const PODS: usize = (GANGS * PODS_PER_GANG) as usize;
/// The whole load, created by the Job controller on two cores.
pub(crate) const LOAD: Duration = Duration::from_secs(300);

/// Exactly as many GPUs as pods: 125 nodes of 8.
pub(crate) fn nodes() -> Vec<NodeSpec> {
    (0..125).map(|i| NodeSpec::new(format!("n{i:03}")).gpus(8).label(RACK, format!("r{}", i / 5))).collect()
}

pub(crate) async fn create_gangs(rig: &Rig, count: u32) {
    stream::iter(0..count)
        .for_each_concurrent(16, |i| async move {
            let annotations = json!({
                "kai.scheduler/batch-min-member": PODS_PER_GANG.to_string(),
                "kai.scheduler/topology": "t",
                "kai.scheduler/topology-required-placement": RACK,
            });
            rig.job(&format!("g{i:03}"), PODS_PER_GANG, annotations).await;
        })
        .await;
}

fn check_exact(places: &BTreeMap<String, String>) {
    let mut per_node: BTreeMap<&str, u32> = BTreeMap::new();
    for node in places.values() {
        *per_node.entry(node).or_default() += 1;
    }
    assert!(per_node.values().all(|count| *count == 8) && per_node.len() == 125, "{per_node:?}");
    let mut racks: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (pod, node) in places {
        racks.entry(&pod[..4]).or_default().push(node[1..].parse::<u32>().unwrap() / 5);
    }
    assert!(racks.values().all(|racks| racks.iter().all(|rack| *rack == racks[0])), "a gang is split over racks");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_pods_within_the_budget_of_requests() {
    let mut rig = Rig::new(nodes()).await;
    rig.topology("t", &[RACK]).await;
    let all = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    for (name, parent) in [("top", None), ("default-queue", Some("top"))] {
        rig.create(&json!({
            "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name},
            "spec": {"parentQueue": parent, "resources": {"gpu": all, "cpu": all, "memory": all}},
        }))
        .await;
    }
    rig.start_berth();
    rig.ready().await;
    let started = Instant::now();
    create_gangs(&rig, GANGS).await;
    let places = rig.bound("g", PODS, LOAD).await;
    eprintln!("1000 pods of 250 Jobs created and bound in {:?}", started.elapsed());
    check_exact(&places);

    rig.group_status("pg-g249-", |status| status["phase"] == "Placed").await;
    rig.queue_status("top", |status| status["allocated"]["nvidia.com/gpu"] == PODS.to_string()).await;
    rig.idle().await;
    let periods = started.elapsed().as_secs() / 5 + 2;
    let counts = rig.plane.request_counts(&rig.client).await.unwrap();
    let count = |verb: &str, resource: &str, subresource: &str| -> u64 {
        let same = |c: &&berth_harness::RequestCount| c.verb == verb && c.resource == resource && c.subresource == subresource;
        counts.iter().filter(same).map(|c| c.count).sum()
    };
    let metrics = rig.http("/metrics").await;
    for line in metrics.lines().filter(|line| line.starts_with("berth_api_requests_total") || line.starts_with("berth_bindings")) {
        eprintln!("{line}");
    }
    let (bindings, creates, statuses) =
        (count("POST", "pods", "binding"), count("POST", "podgroups", ""), count("PATCH", "podgroups", "status"));
    let queues = count("PATCH", "queues", "status");
    eprintln!("bindings {bindings}, PodGroups created {creates}, statuses {statuses}, statuses of queues {queues}");
    assert!((2..=2 * periods).contains(&queues), "{queues} statuses of queues in {periods} periods");
    assert_eq!(bindings, PODS as u64, "nothing is bound twice");
    assert_eq!(creates, u64::from(GANGS));
    let ours: u64 = metrics
        .lines()
        .filter(|line| line.starts_with("berth_api_requests_total"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum();
    assert!(ours <= 2 * PODS as u64 + 2 * u64::from(GANGS), "{ours} requests");
    assert!(statuses <= u64::from(GANGS) + u64::from(GANGS) / 10, "{statuses} PodGroup statuses");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_and_started_again() {
    let mut rig = Rig::new(nodes()).await;
    rig.topology("t", &[RACK]).await;
    rig.start_berth();
    rig.ready().await;
    create_gangs(&rig, GANGS).await;
    for share in [PODS / 5, PODS / 2] {
        wait_for("some pods to be bound", LOAD, || async {
            let bound = rig.places("g").await.len();
            if share <= bound { Ok(Some(())) } else { Err(format!("{bound} are")) }
        })
        .await
        .unwrap();
        rig.kill();
        eprintln!("killed with {} pods bound", rig.places("g").await.len());
        rig.start_berth();
    }
    let places = rig.bound("g", PODS, LOAD).await;
    check_exact(&places);
    // Every gang ends with the status that an undisturbed run would have written.
    wait_for("every PodGroup to say that it is placed", SOON, || async {
        let groups = rig.pod_groups().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        assert_eq!(groups.items.len(), GANGS as usize);
        let placed = groups.items.iter().filter_map(|group| group.status.as_ref());
        let placed = placed.filter(|status| status.phase == Some(PodGroupPhase::Placed) && status.bound == Some(4)).count();
        if placed == GANGS as usize { Ok(Some(())) } else { Err(format!("{placed} do")) }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_wait_already_are_bound_in_seconds() {
    let mut rig = Rig::new(nodes()).await;
    rig.topology("t", &[RACK]).await;
    create_gangs(&rig, GANGS).await;
    wait_for("all pods to exist", LOAD, || async {
        let pods = rig.pods().list(&ListParams::default()).await.map_err(|error| error.to_string())?.items.len();
        if pods == PODS { Ok(Some(())) } else { Err(format!("{pods} do")) }
    })
    .await
    .unwrap();
    let started = Instant::now();
    rig.start_berth();
    let places = rig.bound("g", PODS, LOAD).await;
    eprintln!("1000 waiting pods bound {:?} after the start of the process", started.elapsed());
    check_exact(&places);
    let metrics = rig.http("/metrics").await;
    for name in ["berth_pass_seconds_sum", "berth_passes_total", "process_resident_memory_bytes", "process_cpu_seconds_total", "berth_binding_seconds_sum"] {
        eprintln!("{}", metrics.lines().find(|line| line.starts_with(name)).unwrap_or_default());
    }
    assert!(started.elapsed() < Duration::from_secs(60));
}
