//! `berth topology` on a real control plane: a real dump becomes labels and a Topology, the scheduler uses them at once, and
//! they follow the nodes; with the labeller's own rights.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use berth_api::Topology;
use berth_harness::{NodeSpec, wait_for};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::rig::{Rig, SOON, free_address, http};
use crate::rights::become_named;

const TIER: &str = "fabric.topograph.run/tier-0";
/// A key of an older generation, and one that looks like it and is the site's.
const OLD: &str = "network.topology.nvidia.com/leaf";
const ROOM: &str = "network.topology.nvidia.com/room";

/// Ends with the test.
struct Labeller(Child);

impl Drop for Labeller {
    fn drop(&mut self) {
        let _gone_already = self.0.kill().is_err();
        let _ended = self.0.wait().is_ok();
    }
}

fn nodes(names: &[&str]) -> Vec<NodeSpec> {
    names.iter().map(|name| NodeSpec::new(*name).gpus(1)).collect()
}

fn from() -> String {
    let dump = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fabric/ibnetdiscover-8-racks.txt");
    format!("ibnetdiscover={}", dump.display())
}

/// Writes that the labeller says it made, so far. The API server's own counts hold those of the node controllers too.
fn writes(log: &Path) -> u64 {
    let text = std::fs::read_to_string(log).unwrap();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter_map(|line| line["fields"]["labelled"].as_u64()).sum()
}

impl Rig {
    /// Tier by node, and the generation of writes: the resource versions of nodes.
    async fn tiers(&self) -> BTreeMap<String, String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let list = nodes.list(&ListParams::default()).await.unwrap().items.into_iter();
        list.filter_map(|node| Some((node.metadata.name?, node.metadata.labels?.get(TIER)?.clone()))).collect()
    }

    async fn status_says(&self, wanted: &[&str]) {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        wait_for("the status", SOON, || async {
            let text = maps.get("berth-topology").await.map_err(|error| error.to_string())?.data.unwrap_or_default();
            let text = text.get("status").cloned().unwrap_or_default();
            if wanted.iter().all(|wanted| text.contains(wanted)) { Ok(Some(())) } else { Err(text) }
        })
        .await
        .unwrap();
    }

    /// Waits for Events of these reasons on a Topology; those that must not be there are not.
    async fn events_are(&self, topology: &str, wanted: &[&str], never: &[&str]) {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let of_it = ListParams::default().fields(&format!("involvedObject.kind=Topology,involvedObject.name={topology}"));
        let reasons = wait_for("events", SOON, || async {
            let list = events.list(&of_it).await.map_err(|error| error.to_string())?;
            let reasons: Vec<String> = list.items.into_iter().filter_map(|event| event.reason).collect();
            if wanted.iter().all(|wanted| reasons.iter().any(|reason| reason == wanted)) { Ok(Some(reasons)) } else { Err(format!("{reasons:?}")) }
        })
        .await
        .unwrap();
        assert!(!reasons.iter().any(|reason| never.contains(&reason.as_str())), "{reasons:?}");
    }

    async fn tiers_are(&self, what: &str, wanted: &[(&str, &str)]) {
        let wanted: BTreeMap<String, String> = wanted.iter().map(|(node, tier)| ((*node).into(), (*tier).into())).collect();
        wait_for(what, SOON, || async {
            let tiers = self.tiers().await;
            if tiers == wanted { Ok(Some(())) } else { Err(format!("{tiers:?}")) }
        })
        .await
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_follow_the_fabric_and_gangs_follow_the_labels() {
    let (one, two) = ("A09-P1-IBLEAF-01-03", "A09-P1-IBLEAF-01-04");
    let (a1, a2, a3) = ("a07-p1-dgx-03-c01", "a07-p1-dgx-03-c02", "a07-p1-dgx-03-c03");
    let (b1, b2) = ("a08-p1-dgx-04-c01", "a08-p1-dgx-04-c02");
    let mut first = nodes(&[b1, a2, b2, "stranger"]);
    first.push(NodeSpec::new(a1).gpus(1).label(OLD, "l").label(ROOM, "r"));
    let mut rig = Rig::new(first).await;
    let admin = rig.kubeconfig.clone();
    let topologies: Api<Topology> = Api::all(rig.client.clone());
    let is_served = || async { topologies.list(&ListParams::default()).await.map(|_| Some(())) };
    wait_for("the kind to be served", SOON, is_served).await.unwrap();
    let rights = Command::new(env!("CARGO_BIN_EXE_berth")).args(["topology", "rbac", "-n", &rig.namespace]).output().unwrap();
    for object in String::from_utf8(rights.stdout).unwrap().split("---\n") {
        rig.create(&serde_saphyr::from_str::<Value>(object).unwrap()).await;
    }
    become_named(&mut rig, "berth-topology").await;
    let log = rig.plane.log_path("labeller");
    let metrics = free_address();
    let labeller = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(["topology", "run", "--clean-old-keys", "--name", "net", "--aggregation-seconds", "1", "--from", &from()])
        .args(["--log-json", "--metrics-address", &metrics, "--status-namespace", &rig.namespace, "--kubeconfig"])
        .arg(&rig.kubeconfig)
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let labeller = Labeller(labeller);
    rig.tiers_are("labels", &[(a1, one), (a2, one), (b1, two), (b2, two)]).await;
    let api: Api<Node> = Api::all(rig.client.clone());
    let labels = api.get(a1).await.unwrap().metadata.labels.unwrap();
    assert!(!labels.contains_key(OLD) && labels.contains_key(ROOM), "the old generation went, the site's own label stays: {labels:?}");
    wait_for("the Topology", SOON, || async { topologies.get_opt("net").await.map_err(|error| error.to_string()) }).await.unwrap();

    rig.kubeconfig = admin;
    rig.start_berth();
    rig.ready().await;
    let in_one_rack = json!({
        "kai.scheduler/topology": "net", "kai.scheduler/topology-required-placement": TIER, "kai.scheduler/batch-min-member": "2",
    });
    rig.job("first", 2, in_one_rack.clone()).await;
    let racks: Vec<&str> = rig.bound("first-", 2, SOON).await.into_values().map(|node| if node.starts_with("a07") { one } else { two }).collect();
    assert_eq!(racks[0], racks[1]);

    // A node comes, one goes, one is relabelled by hand.
    rig.plane.create_nodes(&rig.client, nodes(&[a3])).await.unwrap();
    rig.tiers_are("the new node's label", &[(a1, one), (a2, one), (a3, one), (b1, two), (b2, two)]).await;
    api.delete("stranger", &DeleteParams::default()).await.unwrap();
    let wrong = json!({"metadata": {"labels": {TIER: "elsewhere", "mine": "stays"}}});
    api.patch(b2, &PatchParams::default(), &Patch::Merge(wrong)).await.unwrap();
    rig.tiers_are("the label to be put right", &[(a1, one), (a2, one), (a3, one), (b1, two), (b2, two)]).await;
    assert_eq!(api.get(b2).await.unwrap().metadata.labels.unwrap()["mine"], "stays");

    rig.status_says(&["5 of 5 nodes are in the fabric", "Topology net is as it should be", "Last written at 2", "Tier 0: 2 domains."]).await;
    rig.events_are("net", &["TopologyMade", "NodesLabelled", "NodesOutside"], &["NodesNotLabelled", "DiscoveryFailed", "LevelsDiffer"]).await;
    let text = http(&metrics, "/metrics").await;
    for line in ["berth_topology_labelled_total 6", "berth_topology_nodes{state=\"same\"} 5", "berth_topology_domains{tier=\"0\"} 2", "berth_topology_as_it_should_be 1"] {
        assert!(text.lines().any(|other| other == line), "no {line} in {text}");
    }
    assert_eq!(writes(&log), 6, "one for each of the first four nodes, one for the new, one for the relabelled");
    // Asked from outside, with the labeller's record.
    let drift = |rig: &Rig| Command::new(env!("CARGO_BIN_EXE_berth")).args(["topology", "drift", "-n", &rig.namespace, "--kubeconfig"]).arg(&rig.kubeconfig).output().unwrap();
    let agree = drift(&rig);
    assert_eq!(agree.status.code(), Some(0), "{agree:?}");
    rig.job("second", 2, in_one_rack).await;
    rig.bound("second-", 2, SOON).await;
    drop(labeller);
    let wrong = json!({"metadata": {"labels": {TIER: "elsewhere"}}});
    api.patch(b1, &PatchParams::default(), &Patch::Merge(wrong)).await.unwrap();
    let differ = drift(&rig);
    assert_eq!(differ.status.code(), Some(1), "{differ:?}");
    assert!(String::from_utf8_lossy(&differ.stdout).contains(&format!("{TIER} is elsewhere, the fabric says {two}")), "{differ:?}");
}

/// The manifest is taken by the API server, and its account writes the dump with exactly the rights that it gets; what can't
/// be read does not take the place of what can.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_writes_one_config_map_and_nothing_else() {
    let mut rig = Rig::bare(berth_harness::Options::default(), Vec::new()).await;
    let berth = |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_berth")).args(arguments).output().unwrap();
    let manifests = berth(&["generate", "collector", "-n", &rig.namespace, "--tools-image", "tools", "--image", "berth", "-l", "fabric=a", "--adapter", "mlx5_4"]);
    let text = String::from_utf8(manifests.stdout).unwrap();
    let objects: Vec<Value> = text.split("---\n").filter(|object| !object.is_empty()).map(|object| serde_saphyr::from_str(object).unwrap()).collect();
    assert_eq!(objects.len(), 4);
    for object in &objects {
        rig.create(object).await;
    }
    become_named(&mut rig, "berth-collector").await;
    let kubeconfig = rig.kubeconfig.display().to_string();
    let collect = |dump: &str, map: &str| berth(&["topology", "collect", "--dump", dump, "--config-map", map, "-n", &rig.namespace, "--kubeconfig", &kubeconfig]);
    let dump = from();
    let (_, dump) = dump.split_once('=').unwrap();
    let written = collect(dump, "berth-fabric");
    assert_eq!(String::from_utf8_lossy(&written.stdout).split(" bytes").next().unwrap().rsplit_once(", ").unwrap().0, format!("ConfigMap {}/berth-fabric: 119 hosts, 2 tiers", rig.namespace), "{written:?}");

    let maps: Api<ConfigMap> = Api::namespaced(rig.client.clone(), &rig.namespace);
    let packed = async || maps.get("berth-fabric").await.unwrap().binary_data.unwrap()["dump.gz"].0.clone();
    let first = packed().await;
    let mounted = rig.plane.log_path("dump.gz");
    std::fs::write(&mounted, &first).unwrap();
    let read = |from: &str| String::from_utf8(berth(&["topology", "discover", "--to", "graph", "--from", &format!("ibnetdiscover={from}")]).stdout).unwrap();
    assert_eq!(read(&mounted.display().to_string()), read(dump), "what is mounted is the same fabric");

    std::fs::write(&mounted, "ibwarn: mad_rpc_open_port: client_register failed\n").unwrap();
    let broken = collect(&mounted.display().to_string(), "berth-fabric");
    assert_eq!(broken.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&broken.stderr).contains("no Switch record"), "{broken:?}");
    assert_eq!(packed().await, first);
    // Once there is another one, it is nobody's business.
    let other: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "other"}, "data": {"a": "b"}})).unwrap();
    maps.create(&kube::api::PostParams::default(), &other).await.unwrap();
    let refused = collect(dump, "other");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("forbidden"), "{refused:?}");
}
