use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::out::labels::{Keys, labels, old};
use crate::sources::slurm;
use crate::{Fabric, Host, Node, drift, record};

fn tree() -> Fabric {
    slurm::read("SwitchName=s Switches=l[1-2]\nSwitchName=l1 Nodes=n[1-2]\nSwitchName=l2 Nodes=n[3-4]\n").unwrap()
}

fn labelled(fabric: &Fabric, name: &str) -> Node {
    Node { name: name.into(), labels: labels(fabric, Keys::Current)[name].clone(), ..Node::default() }
}

#[test]
fn every_way_to_differ_is_named_and_the_rest_is_counted() {
    let fabric = tree();
    let mut moved = labelled(&fabric, "n2");
    moved.labels.insert("fabric.topograph.run/tier-0".into(), "l2".into());
    moved.labels.insert("fabric.topograph.run/tier-7".into(), "old".into());
    moved.labels.insert("mine".into(), "stays".into());
    moved.labels.remove("fabric.topograph.run/tier-1");
    let stranger = Node { name: "x".into(), accelerated: true, labels: BTreeMap::from([("fabric.topograph.run/tier-0".into(), "l9".into()), ("a".into(), "b".into())]), ..Node::default() };
    let nodes = [labelled(&fabric, "n1"), moved, Node { name: "n3".into(), ..Node::default() }, stranger, Node { name: "cpu".into(), ..Node::default() }];
    let drift = drift(&fabric, Keys::Current, &nodes);
    assert_eq!((drift.same, drift.differs.keys().cloned().collect::<Vec<_>>()), (1, vec!["n2".to_owned(), "n3".to_owned()]));
    assert_eq!(
        drift.line("n2"),
        "fabric.topograph.run/tier-0 is l2, the fabric says l1; fabric.topograph.run/tier-1 is missing, the fabric says s; fabric.topograph.run/tier-7 is old, the \
         fabric has no such label for it"
    );
    assert_eq!(drift.patches()["n2"]["fabric.topograph.run/tier-7"], None);
    assert!(!drift.patches()["n2"].contains_key("mine"));
    assert_eq!(drift.missed().collect::<Vec<_>>(), ["x"]);
    assert_eq!(drift.outside["x"].bears.len(), 1, "labels of others are not counted");
    assert_eq!(drift.outside["cpu"].why, "was not found in the fabric");
}

#[test]
fn a_node_that_the_source_left_out_says_why() {
    let nodes = [
        Node { name: "gpu-1.example.org".into(), ..Node::default() },
        Node { name: "a.one".into(), ..Node::default() },
        Node { name: "a.two".into(), ..Node::default() },
        Node { name: "b".into(), provider_id: "aws:///z/i-7".into(), ..Node::default() },
    ];
    let mut fabric = Fabric::default();
    fabric.find("NoFabric", "gpu-1", "its GPUs are in no NVLink fabric between hosts");
    fabric.find("NoNetwork", "i-7", "the answer says nothing of its place in the network");
    fabric.hosts.insert("A".into(), Host { tiers: vec!["l".into()], ..Host::default() });
    let drift = drift(&fabric.for_nodes(&nodes), Keys::Current, &nodes);
    assert_eq!(drift.outside["gpu-1.example.org"].why, "was left out: gpu-1 its GPUs are in no NVLink fabric between hosts");
    assert!(drift.outside["a.two"].why.contains("several nodes have this name without its domain"), "{drift:?}");
    assert!(drift.outside["b"].why.contains("i-7 the answer says nothing"), "{drift:?}");
}

#[test]
fn broken_records_are_refused_with_the_field() {
    for (text, wanted) in [
        ("", "empty"),
        ("{}", "keys: allowed are current, leaf and block"),
        (r#"{"keys":"current","depth":65}"#, "depth"),
        (r#"{"keys":"leaf","depth":1}"#, "places: missing"),
        (r#"{"keys":"leaf","depth":2,"places":[{"tiers":["a"],"nodes":"n1"}]}"#, "places[0].tiers"),
        (r#"{"keys":"leaf","depth":1,"places":[{"tiers":["a"]}]}"#, "places[0].nodes"),
        (r#"{"keys":"leaf","depth":1,"places":[{"nodes":"n[1-"}]}"#, "not closed"),
        (r#"{"keys":"leaf","depth":1,"places":[{"nodes":"n[1-2]"},{"nodes":"n2"}]}"#, "node n2 stands in two places"),
    ] {
        let said = record::read(text).unwrap_err().to_string();
        assert!(said.contains(wanted), "{text}: {said}");
    }
}

#[test]
fn only_keys_of_older_generations_are_old_and_only_on_nodes_that_are_labelled() {
    let ours = ["leaf", "spine", "core", "block", "datacenter", "accelerator", "tier-0", "tier-12"].map(|name| format!("network.topology.nvidia.com/{name}"));
    assert!(ours.iter().all(|key| Keys::Current.is_older(key)));
    let leaf: Vec<&String> = ours.iter().filter(|key| Keys::Leaf.is_older(key)).collect();
    assert_eq!(leaf, ["network.topology.nvidia.com/block", "network.topology.nvidia.com/datacenter"]);
    assert!(!ours.iter().any(|key| Keys::Block.is_older(key)));
    for other in ["network.topology.nvidia.com/room", "network.topology.nvidia.com/tier-x", "example.com/leaf", "leaf", "fabric.topograph.run/tier-0", "nvidia.com/gpu.clique", ""] {
        assert!(!Keys::Current.is_older(other), "{other}");
    }

    let fabric = tree();
    let bears = |name: &str| Node { name: name.into(), labels: [ours[0].clone(), ours[1].clone(), "network.topology.nvidia.com/room".into()].map(|key| (key, "v".to_owned())).into(), ..Node::default() };
    let nodes = [bears("n1"), bears("stranger"), Node { name: "n2".into(), ..Node::default() }];
    let in_use = BTreeMap::from([(ours[1].clone(), "net".to_owned())]);
    let old = old(&fabric, Keys::Current, &nodes, &in_use);
    assert_eq!(old, BTreeMap::from([("n1".to_owned(), BTreeMap::from([(ours[0].clone(), None)]))]));
}

fn host(depth: usize) -> impl Strategy<Value = Host> {
    let domain = || "[a-z]{1,2}";
    let tiers = prop_oneof![Just(Vec::new()), prop::collection::vec(domain(), depth)];
    (tiers, prop::option::of(domain()), prop::option::of(domain()), prop::option::of(0_u64..=10)).prop_map(|(tiers, accelerator, sub_domain, health)| Host { tiers, accelerator, sub_domain, health })
}

proptest! {
    /// What is recorded is what is read, and labels that were written from it show no drift.
    #[test]
    fn a_record_goes_round(hosts in (0_usize..4).prop_flat_map(|depth| (Just(depth), prop::collection::btree_map("[a-c]{1,2}[0-9]{0,3}(\\.x)?", host(depth), 0..30)))) {
        let (depth, hosts) = hosts;
        let fabric = Fabric { hosts, depth, ..Fabric::default() };
        let text = record::write(&fabric, Keys::Leaf).to_string();
        prop_assert_eq!(record::read(&text).unwrap(), (fabric.clone(), Keys::Leaf));
        let nodes: Vec<Node> = labels(&fabric, Keys::Leaf).into_iter().map(|(name, labels)| Node { name, labels, ..Node::default() }).collect();
        let drift = drift(&fabric, Keys::Leaf, &nodes);
        prop_assert_eq!((drift.same, drift.differs.len(), drift.outside.len()), (nodes.len(), 0, 0));
    }
}
