//! Slurm's topology.conf and topology.yaml, tree and block.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::error::DiscoveryError;
use crate::fabric::{Fabric, Host};
use crate::hostlist::expand;

const SOURCE: &str = "slurm";

/// A switch of a tree: switches and nodes below it.
#[derive(Debug, Default)]
pub(super) struct Switch {
    /// Where it is described.
    pub(super) place: String,
    /// Switches below it.
    pub(super) switches: Vec<String>,
    /// Nodes on it.
    pub(super) nodes: Vec<String>,
}

/// Reads a file: topology.yaml when it begins with a list, else topology.conf.
///
/// # Errors
///
/// What Slurm would not take either: unknown keys, unknown or repeated switches, a switch below itself or below two others.
pub fn read(text: &str) -> Result<Fabric, DiscoveryError> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    match lines.next() {
        None => Err(error("input", "empty: there is no switch and no block in it")),
        Some(first) if first.starts_with('-') && !first.contains("Name=") => yaml(text),
        Some(_) => conf(text),
    }
}

fn error(place: impl Into<String>, message: impl Into<String>) -> DiscoveryError {
    DiscoveryError::new(SOURCE, place, message)
}

fn conf(text: &str) -> Result<Fabric, DiscoveryError> {
    let mut switches: BTreeMap<String, Switch> = BTreeMap::new();
    let mut blocks: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let place = format!("line {}", at + 1);
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let mut words: BTreeMap<String, &str> = BTreeMap::new();
        for word in line.split_whitespace() {
            let (key, value) = word.split_once('=').ok_or_else(|| error(&place, format!("{word:?} is not key=value")))?;
            words.insert(key.to_lowercase(), value);
        }
        let hosts = |key: &str| words.get(key).map_or(Ok(Vec::new()), |list| expand(list)).map_err(|message| error(&place, message));
        if let Some(name) = words.get("switchname") {
            let switch = Switch { place: place.clone(), switches: hosts("switches")?, nodes: hosts("nodes")? };
            if switches.insert((*name).to_owned(), switch).is_some() {
                return Err(error(&place, format!("switch {name} is there twice")));
            }
        } else if let Some(name) = words.get("blockname") {
            if blocks.insert((*name).to_owned(), (place.clone(), hosts("nodes")?)).is_some() {
                return Err(error(&place, format!("block {name} is there twice")));
            }
        } else if !words.contains_key("blocksizes") {
            return Err(error(&place, "allowed are lines with SwitchName=, BlockName= or BlockSizes="));
        }
    }
    assemble(SOURCE, &switches, &blocks)
}

fn yaml(text: &str) -> Result<Fabric, DiscoveryError> {
    let value: Value = serde_saphyr::from_str(text).map_err(|e| error("input", format!("not YAML: {e}")))?;
    let mut switches: BTreeMap<String, Switch> = BTreeMap::new();
    let mut blocks: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    let list = |value: &Value, at: &str| value.pointer(at).and_then(Value::as_array).cloned().unwrap_or_default();
    for topology in value.as_array().cloned().unwrap_or_default() {
        let hosts = |value: &Value, key: &str, place: &str| {
            let text = value.get(key).and_then(Value::as_str).unwrap_or_default();
            expand(text).map_err(|message| error(place, message))
        };
        for (at, entry) in list(&topology, "/tree/switches").iter().enumerate() {
            let place = format!("tree.switches[{at}]");
            let name = entry.get("switch").and_then(Value::as_str).ok_or_else(|| error(&place, "has no switch"))?;
            let switch = Switch { place: place.clone(), switches: hosts(entry, "children", &place)?, nodes: hosts(entry, "nodes", &place)? };
            if switches.insert(name.to_owned(), switch).is_some() {
                return Err(error(place, format!("switch {name} is there twice")));
            }
        }
        for (at, entry) in list(&topology, "/block/blocks").iter().enumerate() {
            let place = format!("block.blocks[{at}]");
            let name = entry.get("block").and_then(Value::as_str).ok_or_else(|| error(&place, "has no block"))?;
            if blocks.insert(name.to_owned(), (place.clone(), hosts(entry, "nodes", &place)?)).is_some() {
                return Err(error(place, format!("block {name} is there twice")));
            }
        }
    }
    if switches.is_empty() && blocks.is_empty() {
        return Err(error("input", "no tree.switches and no block.blocks in it"));
    }
    assemble(SOURCE, &switches, &blocks)
}

/// Hosts below a tree of switches and in blocks; errors name this source.
pub(super) fn assemble(source: &str, switches: &BTreeMap<String, Switch>, blocks: &BTreeMap<String, (String, Vec<String>)>) -> Result<Fabric, DiscoveryError> {
    let error = |place: &str, message: String| DiscoveryError::new(source, place, message);
    let mut parent: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, switch) in switches {
        for child in &switch.switches {
            if !switches.contains_key(child) {
                return Err(error(&switch.place, format!("switch {child} is nowhere described")));
            }
            if let Some(other) = parent.insert(child, name) {
                return Err(error(&switch.place, format!("switch {child} is below {other} and below {name}")));
            }
        }
    }
    let mut hosts: BTreeMap<String, Host> = BTreeMap::new();
    for (name, switch) in switches {
        let mut path = vec![name.clone()];
        let mut seen = BTreeSet::from([name.as_str()]);
        while let Some(above) = path.last().and_then(|last| parent.get(last.as_str())) {
            if !seen.insert(above) {
                return Err(error(&switch.place, format!("switch {name} is below itself")));
            }
            path.push((*above).to_owned());
        }
        for node in &switch.nodes {
            if hosts.insert(node.clone(), Host { tiers: path.clone(), ..Host::default() }).is_some() {
                return Err(error(&switch.place, format!("node {node} is below two switches")));
            }
        }
    }
    for (name, (place, nodes)) in blocks {
        for node in nodes {
            let host = hosts.entry(node.clone()).or_default();
            if let Some(other) = host.accelerator.replace(name.clone()) {
                return Err(error(place, format!("node {node} is in block {other} and in block {name}")));
            }
        }
    }
    Ok(Fabric::from_paths(hosts))
}
