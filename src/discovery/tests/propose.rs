use std::collections::BTreeMap;

use crate::Node;
use crate::propose::{Options, Proposal, propose};

fn node(name: &str, labels: &[(&str, &str)]) -> Node {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Node { name: name.into(), labels, accelerated: true, ..Node::default() }
}

fn keys(proposal: &Proposal) -> Vec<&str> {
    proposal.levels.iter().map(|level| level.key.as_str()).collect()
}

const BLOCK: &str = "cloud.google.com/gce-topology-block";
const SUB: &str = "cloud.google.com/gce-topology-subblock";
const HOST: &str = "kubernetes.io/hostname";
const CLIQUE: &str = "nvidia.com/gpu.clique";

fn google() -> Vec<Node> {
    (0..8)
        .map(|at| {
            let (block, sub) = (format!("b{}", at / 4), format!("s{}", at / 2));
            node(&format!("n{at}"), &[("topology.kubernetes.io/region", "r"), (BLOCK, &block), (SUB, &sub), ("cloud.google.com/gce-topology-host", &format!("h{at}"))])
        })
        .collect()
}

#[test]
fn levels_come_with_evidence_and_what_says_nothing_is_left_out() {
    let proposals = propose(&google(), &Options::default());
    let first = &proposals[0];
    assert_eq!(first.profile, "Google GKE");
    assert_eq!(keys(first), [BLOCK, SUB, HOST]);
    assert_eq!((first.levels[0].domains, first.levels[0].smallest, first.levels[1].domains), (2, 4, 4));
    let dropped: BTreeMap<&str, &str> = first.dropped.iter().map(|dropped| (dropped.key.as_str(), dropped.why.as_str())).collect();
    assert_eq!(dropped["topology.kubernetes.io/region"], "the same on all 8 nodes");
    assert!(dropped["cloud.google.com/gce-topology-host"].contains("one value per node"));
    assert!(first.outside.is_empty() && first.warnings.is_empty());
}

#[test]
fn empty_values_and_missing_labels_take_nodes_out_and_are_named() {
    let mut nodes = google();
    nodes[0].labels.insert(SUB.into(), String::new());
    nodes[1].labels.remove(BLOCK);
    nodes.push(Node { name: "cpu".into(), ..Node::default() });
    let first = &propose(&nodes, &Options::default())[0];
    assert_eq!((keys(first), first.nodes, first.of), (vec![BLOCK, SUB, HOST], 6, 8));
    assert_eq!(first.outside[0].without, ["n1"]);
    assert_eq!(first.outside[1].empty, [("n0".to_owned(), String::new())]);
}

#[test]
fn cliques_stand_where_they_nest() {
    let zero = "00000000-0000-0000-0000-000000000000.0";
    // A clique of two nodes inside a subblock of four.
    let inside: Vec<Node> = (0..8).map(|at| node(&format!("n{at}"), &[(SUB, &format!("s{}", at / 4)), (CLIQUE, &format!("u.{}", at / 2))])).collect();
    assert_eq!(keys(&propose(&inside, &Options::default())[0]), [SUB, CLIQUE, HOST]);
    let around: Vec<Node> = (0..8).map(|at| node(&format!("n{at}"), &[(SUB, &format!("s{}", at / 2)), (CLIQUE, &format!("u.{}", at / 4))])).collect();
    assert_eq!(keys(&propose(&around, &Options::default())[0]), [CLIQUE, SUB, HOST]);
    let across: Vec<Node> = (0..8).map(|at| node(&format!("n{at}"), &[(SUB, &format!("s{}", at / 4)), (CLIQUE, &format!("u.{}", (at + 2) % 8 / 4))])).collect();
    let first = &propose(&across, &Options::default())[0];
    assert_eq!(keys(first), [SUB, HOST]);
    assert!(first.dropped[0].why.contains("lie in more than one of"), "{:?}", first.dropped);
    let none: Vec<Node> = (0..8).map(|at| node(&format!("n{at}"), &[(CLIQUE, zero)])).collect();
    assert!(propose(&none, &Options::default()).is_empty());
}

#[test]
fn nodes_with_fewer_layers_are_a_pool_of_their_own() {
    let layer = |n: usize| format!("topology.k8s.aws/network-node-layer-{n}");
    let nodes: Vec<Node> = (0..12)
        .map(|at| {
            let mut node = node(&format!("n{at:02}"), &[]);
            node.labels.insert(layer(1), "top".into());
            node.labels.insert(layer(2), format!("m{}", at / 6));
            node.labels.insert(layer(3), format!("l{}", at / 3));
            if at < 6 {
                node.labels.insert(layer(4), format!("x{}", at / 3 * 2 + at % 3 / 2));
            }
            node
        })
        .collect();
    let proposals = propose(&nodes, &Options::default());
    assert_eq!(proposals[0].nodes, 12);
    assert_eq!(keys(&proposals[0]), [layer(2).as_str(), layer(3).as_str(), HOST]);
    assert_eq!(proposals[1].nodes, 6);
    assert!(!proposals[1].outside[0].without.is_empty());
}

#[test]
fn names_used_anew_in_every_block_are_kept_and_told() {
    let nodes: Vec<Node> = (0..8).map(|at| node(&format!("n{at}"), &[("block", &format!("b{}", at / 4)), ("rack", &format!("rack{}", at / 2 % 2))])).collect();
    let first = &propose(&nodes, &Options::default())[0];
    assert_eq!(keys(first), ["block", "rack", HOST]);
    assert_eq!((first.levels[1].domains, first.warnings.len()), (4, 1));
    // One rack in two blocks is a mistake: the level would cut it in two.
    let nodes: Vec<Node> = (0..8).map(|at| node(&format!("n{at}"), &[("block", if at < 3 { "b0" } else { "b1" }), ("rack", &format!("rack{}", at / 2))])).collect();
    let first = &propose(&nodes, &Options::default())[0];
    assert!(first.dropped.iter().any(|dropped| dropped.key == "rack" && dropped.why.contains("rack1 lies in b0, b1")), "{first:?}");
}

#[test]
fn a_selector_and_all_nodes_say_who_is_looked_at() {
    let mut nodes = google();
    nodes.extend((0..4).map(|at| Node { accelerated: false, ..node(&format!("cpu{at}"), &[(BLOCK, "b9"), (SUB, "s9")]) }));
    assert_eq!(propose(&nodes, &Options::default())[0].of, 8);
    assert_eq!(propose(&nodes, &Options { all_nodes: true, ..Options::default() })[0].of, 12);
    let selector = BTreeMap::from([(BLOCK.to_owned(), "b1".to_owned())]);
    assert_eq!(propose(&nodes, &Options { selector, ..Options::default() })[0].of, 4);
    assert!(propose(&[], &Options::default()).is_empty());
}

#[test]
fn words_behind_a_prefix_of_the_site_are_levels_and_places_alone_are_called_so() {
    let zone = "topology.kubernetes.io/zone";
    let nodes: Vec<Node> = (0..8)
        .map(|at| node(&format!("n{at}"), &[(zone, &format!("z{}", at / 4)), ("example.com/rack", &format!("z{}-r{}", at / 4, at / 2))]))
        .collect();
    let first = &propose(&nodes, &Options::default())[0];
    assert_eq!((first.profile.as_str(), keys(first)), ("a site's own words", vec![zone, "example.com/rack", HOST]));
    let nodes: Vec<Node> = (0..8).map(|at| node(&format!("n{at}"), &[(zone, &format!("z{}", at / 4))])).collect();
    let first = &propose(&nodes, &Options::default())[0];
    assert_eq!((first.profile.as_str(), keys(first)), ("well-known places", vec![zone, HOST]));
}
