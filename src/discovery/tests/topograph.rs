use proptest::prelude::*;

use crate::sources::topograph::read;

/// A model of each generation with the same four hosts.
const NEWEST: &str = r#"
switches:
  core: {labels: {topology.kubernetes.io/region: us}, switches: [leaf-1, leaf-2]}
blocks:
- switch: leaf-1
  nodes: ["srv[01-02]"]
  annotations: {accelerator.topology.test/domain: nvl-1, accelerator.topology.test/sub-domain: rack01}
- switch: leaf-2
  nodes: [srv03, srv04]
  labels: {network.topology.nvidia.com/accelerator: nvl-2}
"#;
const NODES: &str = r#"
switches:
  core: {switches: [leaf-1, leaf-2]}
  leaf-1: {nodes: [srv01, srv02]}
  leaf-2: {nodes: [srv03, srv04]}
nodes:
  srv01: {capacity_block: c, attributes: {nvlink: nvl-1}}
  srv02: {capacity_block: nvl-1, type: H100}
capacity_blocks:
  nvl-2: {nodes: ["srv[03-04]"]}
"#;
const OLDEST: &str = r#"
switches:
- name: core
  metadata: {region: us-west}
  switches: [leaf-1, leaf-2]
- {name: leaf-1, capacity_blocks: [cb1]}
- {name: leaf-2, capacity_blocks: [cb2]}
capacity_blocks:
- {name: cb1, type: GB200, nvlink: nvl-1, nodes: [srv01, srv02]}
- {name: cb2, nvlink: nvl-2, nodes: [srv03, srv04]}
"#;
const NETWORKS: &str = r#"{"switches":{"core":{"switches":["leaf-1","leaf-2"]},
    "leaf-1":{"nodes":[{"node_id":"srv01","accelerated_network_id":"nvl-1"},{"node_id":"srv02","accelerated_network_id":"nvl-1"}]},
    "leaf-2":{"nodes":[{"node_id":"srv03","accelerated_network_id":"nvl-2"},{"node_id":"srv04","accelerated_network_id":"nvl-2"}]}}}"#;
const GRAPH: &str = r#"{"instances":[
    {"id":"srv01","network_layers":["leaf-1","core"],"labels":{"accelerator.topograph.run/domain":"nvl-1"}},
    {"id":"srv02","network_layers":["leaf-1","core"],"labels":{"accelerator.topograph.run/domain":"nvl-1"}},
    {"id":"srv03","network_layers":["leaf-2","core"],"labels":{"accelerator.topograph.run/domain":"nvl-2"}},
    {"id":"srv04","network_layers":["leaf-2","core"],"labels":{"accelerator.topograph.run/domain":"nvl-2"},"health":40}]}"#;

#[test]
fn every_generation_of_models_says_the_same() {
    for (what, text) in [("newest", NEWEST), ("nodes", NODES), ("oldest", OLDEST), ("networks", NETWORKS), ("graph", GRAPH)] {
        let fabric = read(text).unwrap_or_else(|error| panic!("{what}: {error}"));
        let places: Vec<(&str, String, &str)> =
            fabric.hosts.iter().map(|(name, host)| (name.as_str(), host.tiers.join(" < "), host.accelerator.as_deref().unwrap_or_default())).collect();
        let wanted = [("srv01", "leaf-1 < core", "nvl-1"), ("srv02", "leaf-1 < core", "nvl-1"), ("srv03", "leaf-2 < core", "nvl-2"), ("srv04", "leaf-2 < core", "nvl-2")];
        let wanted: Vec<(&str, String, &str)> = wanted.into_iter().map(|(name, tiers, domain)| (name, tiers.to_owned(), domain)).collect();
        assert_eq!(places, wanted, "{what}");
        assert_eq!((fabric.depth, fabric.findings.len()), (2, 0), "{what}");
    }
    assert!(read("switches: {a: {nodes: [1101, 1102]}}").unwrap().hosts.contains_key("1102"));
    assert_eq!(read(NEWEST).unwrap().hosts["srv02"].sub_domain.as_deref(), Some("rack01"));
    assert_eq!(read(GRAPH).unwrap().hosts["srv04"].health, Some(40));
}

#[test]
fn broken_models_are_refused_with_the_place() {
    for (text, wanted) in [
        ("", "empty"),
        ("a: b", "neither switches nor instances"),
        ("{", "neither YAML nor JSON"),
        ("switches: 3", "switches: allowed are a map by name"),
        ("switches: [{switches: [a]}]", "switches[0]: has no name"),
        ("switches: {a: {switches: [b]}}", "switches.a: switch b is nowhere described"),
        ("switches: {a: {switches: [b]}, b: {switches: [a], nodes: [n1]}}", "is below itself"),
        ("switches: {a: {nodes: [n1]}, b: {nodes: ['n[1-2]']}}", "node n1 is below two switches"),
        ("switches: {a: {nodes: ['n[1-']}}", "switches.a.nodes"),
        ("switches: {a: {nodes: [{x: y}]}}", "neither a name nor a node"),
        ("switches: {a: {capacity_blocks: [c]}}", "capacity block c is nowhere described"),
        ("blocks: [{nodes: [a]}]", "blocks[0]: has no switch"),
        ("instances: [{}]", "instances[0]: has no id"),
        ("instances: [{id: a}, {id: a}]", "a is there twice"),
    ] {
        let said = read(text).unwrap_err().to_string();
        assert!(said.contains(wanted), "{text}: {said}");
    }
}

proptest! {
    #[test]
    fn garbage_is_no_model(at in 0_usize..600, junk in "\\PC{0,6}", cut in 0_usize..600) {
        for text in [NEWEST, NODES, OLDEST, NETWORKS, GRAPH] {
            let mut text: String = text.chars().take(cut).collect();
            text.insert_str(text.char_indices().map(|(place, _)| place).nth(at).unwrap_or(0), &junk);
            let _ = read(&text);
        }
    }
}
