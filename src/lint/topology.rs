//! Topologies against the nodes that are given: labels that are missing, domains of one name in two places, odd sizes, old
//! keys beside new ones.

use std::collections::{BTreeMap, BTreeSet};

use berth_discovery::names;

use super::{Finding, of_kind};
use crate::simulate::input::Item;

/// Names that a sentence lists; the rest is counted.
const MAX_NAMED: usize = 3;

/// Keys that Kubernetes has renamed.
const RENAMED: [(&str, &str); 3] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

fn label<'a>(node: &'a Item, key: &str) -> Option<&'a str> {
    node.value["metadata"]["labels"][key].as_str().filter(|value| !value.is_empty())
}

fn name(item: &Item) -> &str {
    item.value["metadata"]["name"].as_str().unwrap_or_default()
}

fn listed(names: &[&str]) -> String {
    names::listed(names.iter().copied(), MAX_NAMED)
}

pub(super) fn check(items: &[Item], findings: &mut Vec<Finding>) {
    let nodes = of_kind(items, "", "Node");
    for topology in of_kind(items, "kai.scheduler", "Topology") {
        let levels: Vec<&str> =
            topology.value["spec"]["levels"].as_array().into_iter().flatten().filter_map(|level| level["nodeLabel"].as_str()).collect();
        for (at, key) in levels.iter().enumerate() {
            let field = format!("spec.levels[{at}].nodeLabel");
            if let Some((_, new)) = RENAMED.iter().find(|(old, _)| old == key) {
                findings.push(Finding::warning(topology, "OldKey", &field, format!("{key} is an old name of {new}")));
            }
            if !nodes.is_empty() {
                labels(topology, &field, key, &nodes, findings);
                doubles(topology, &field, &levels[..=at], &nodes, findings);
                sizes(topology, &field, &levels[..=at], &nodes, findings);
            }
        }
    }
}

fn labels(topology: &Item, field: &str, key: &str, nodes: &[&Item], findings: &mut Vec<Finding>) {
    let without: Vec<&str> = nodes.iter().filter(|node| label(node, key).is_none()).map(|node| name(node)).collect();
    if without.len() == nodes.len() {
        let message = format!("no node has the label {key}: nothing that requires this level can be placed");
        findings.push(Finding::error(topology, "LevelWithoutNodes", field, message));
    } else if !without.is_empty() {
        let message = format!("{} of {} nodes have no label {key}, and no part in this level: {}", without.len(), nodes.len(), listed(&without));
        findings.push(Finding::warning(topology, "NodesWithoutLabel", field, message));
    }
    let other = RENAMED.iter().find_map(|(old, new)| if old == &key { Some(*new) } else if new == &key { Some(*old) } else { None });
    if let Some(other) = other {
        let mixed: Vec<&str> = nodes.iter().filter(|node| label(node, key).is_none() && label(node, other).is_some()).map(|node| name(node)).collect();
        if !mixed.is_empty() {
            let message = format!("{} nodes have {other} and not {key}: {}", mixed.len(), listed(&mixed));
            findings.push(Finding::warning(topology, "MixedKeys", field, message));
        }
    }
}

/// One value below two parents: two domains, perhaps one that is mislabelled.
fn doubles(topology: &Item, field: &str, levels: &[&str], nodes: &[&Item], findings: &mut Vec<Finding>) {
    let [above @ .., key] = levels else { return };
    if above.is_empty() {
        return;
    }
    let mut parents: BTreeMap<&str, BTreeSet<Vec<&str>>> = BTreeMap::new();
    for node in nodes {
        let path: Option<Vec<&str>> = above.iter().map(|key| label(node, key)).collect();
        if let (Some(value), Some(path)) = (label(node, key), path) {
            parents.entry(value).or_default().insert(path);
        }
    }
    for (value, parents) in parents.into_iter().filter(|(_, parents)| parents.len() > 1) {
        let paths: Vec<String> = parents.iter().map(|path| path.join("/")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let message = format!("{value} is in {}: these are {} domains, unless a label is wrong", listed(&paths), parents.len());
        findings.push(Finding::warning(topology, "OneNameTwoDomains", field, message));
    }
}

/// Domains that differ in size where most are alike.
fn sizes(topology: &Item, field: &str, levels: &[&str], nodes: &[&Item], findings: &mut Vec<Finding>) {
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for node in nodes {
        let path: Option<Vec<&str>> = levels.iter().map(|key| label(node, key)).collect();
        if let Some(path) = path {
            *count.entry(path.join("/")).or_default() += 1;
        }
    }
    let mut by_size: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for (path, size) in &count {
        by_size.entry(*size).or_default().push(path);
    }
    let Some((usual, alike)) = by_size.iter().max_by_key(|(size, alike)| (alike.len(), **size)) else { return };
    if count.len() < 3 || alike.len() * 2 <= count.len() {
        return;
    }
    for (size, odd) in by_size.iter().filter(|(size, _)| *size != usual) {
        let message = format!("most domains have {usual} nodes; {size} are in {}", listed(odd));
        findings.push(Finding::warning(topology, "OddSize", field, message));
    }
}
