//! Topograph's own files: models of its simulators, of all generations, and its graph, as `--to graph` writes it.
//!
//! Models have `switches` with what is below them; nodes stand below switches, in `blocks` that name their switch, or in
//! `capacity_blocks`. Older files have lists of objects with a name where newer ones have maps.

use std::collections::BTreeMap;

use serde_json::Value;

use super::slurm::{Switch, assemble};
use crate::error::DiscoveryError;
use crate::fabric::{Fabric, Host};
use crate::hostlist::expand;
use crate::names::is_placeholder;

const SOURCE: &str = "topograph";

/// Labels and annotations that name accelerator domains, and parts of them.
const DOMAINS: [&str; 5] = [
    "accelerator.topology.test/domain",
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "accelerated.topology.nvidia.com/level-0",
    "xclr.topology.nvidia.com/domain",
];
const SUB_DOMAINS: [&str; 3] = ["accelerator.topology.test/sub-domain", "accelerator.topograph.run/sub-domain", "xclr.topology.nvidia.com/sub-domain"];

fn error(place: impl Into<String>, message: impl Into<String>) -> DiscoveryError {
    DiscoveryError::new(SOURCE, place, message)
}

/// Reads a model or a graph, as YAML or JSON.
///
/// # Errors
///
/// Neither, lists of hosts that can't be read, switches that are no tree, a node in two places.
pub fn read(text: &str) -> Result<Fabric, DiscoveryError> {
    if text.trim().is_empty() {
        return Err(error("input", "empty: there is nothing in it"));
    }
    let value: Value = serde_saphyr::from_str(text).map_err(|e| error("input", format!("neither YAML nor JSON: {e}")))?;
    if let Some(instances) = value.get("instances").and_then(Value::as_array) {
        return graph(instances);
    }
    if value.get("switches").is_none() && value.get("blocks").is_none() {
        return Err(error("input", "neither switches nor instances in it: this is no model and no graph"));
    }
    Model::read(&value)?.fabric()
}

fn graph(instances: &[Value]) -> Result<Fabric, DiscoveryError> {
    let mut hosts = BTreeMap::new();
    for (at, instance) in instances.iter().enumerate() {
        let place = format!("instances[{at}]");
        let id = instance.get("id").and_then(Value::as_str).filter(|id| !id.is_empty()).ok_or_else(|| error(&place, "has no id"))?;
        let layers = instance.get("network_layers").and_then(Value::as_array).into_iter().flatten();
        let host = Host {
            tiers: layers.filter_map(Value::as_str).filter(|layer| !is_placeholder(layer)).map(ToOwned::to_owned).collect(),
            accelerator: named(instance, &DOMAINS),
            sub_domain: named(instance, &SUB_DOMAINS),
            health: instance.get("health").and_then(Value::as_u64).filter(|health| *health <= 100),
        };
        if hosts.insert(id.to_owned(), host).is_some() {
            return Err(error(place, format!("{id} is there twice")));
        }
    }
    Ok(Fabric::from_paths(hosts))
}

/// What an object's labels or annotations say under one of these keys.
fn named(value: &Value, keys: &[&str]) -> Option<String> {
    let maps = ["annotations", "labels"].into_iter().filter_map(|part| value.get(part));
    let mut found = maps.flat_map(|map| keys.iter().filter_map(|key| map.get(*key)?.as_str()));
    found.find(|text| !is_placeholder(text)).map(ToOwned::to_owned)
}

/// The entries of a map, or of a list of objects with a name.
fn entries<'a>(value: &'a Value, part: &str) -> Result<Vec<(String, String, &'a Value)>, DiscoveryError> {
    match value.get(part) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Object(map)) => Ok(map.iter().map(|(name, value)| (format!("{part}.{name}"), name.clone(), value)).collect()),
        Some(Value::Array(list)) => {
            let named = |(at, value): (usize, &'a Value)| {
                let place = format!("{part}[{at}]");
                let name = value.get("name").and_then(Value::as_str).ok_or_else(|| error(&place, "has no name"))?;
                Ok((place, name.to_owned(), value))
            };
            list.iter().enumerate().map(named).collect()
        }
        Some(_) => Err(error(part, "allowed are a map by name, or a list of objects with a name")),
    }
}

/// Names in a list, each of which may be a list of hosts; objects with a `node_id` are nodes with their NVLink network.
fn names(value: &Value, part: &str, place: &str) -> Result<Vec<(String, Option<String>)>, DiscoveryError> {
    let mut names = Vec::new();
    for entry in value.get(part).and_then(Value::as_array).into_iter().flatten() {
        if let Some(id) = entry.get("node_id").and_then(Value::as_str) {
            let network = entry.get("accelerated_network_id").and_then(Value::as_str).filter(|network| !is_placeholder(network));
            names.push((id.to_owned(), network.map(ToOwned::to_owned)));
            continue;
        }
        if let Some(number) = entry.as_u64() {
            // Without quotes YAML reads a name of digits as a number.
            names.push((number.to_string(), None));
            continue;
        }
        let text = entry.as_str().ok_or_else(|| error(format!("{place}.{part}"), "holds what is neither a name nor a node"))?;
        names.extend(expand(text).map_err(|message| error(format!("{place}.{part}"), message))?.into_iter().map(|name| (name, None)));
        if names.len() > crate::hostlist::MOST {
            return Err(error(format!("{place}.{part}"), format!("more than {} names", crate::hostlist::MOST)));
        }
    }
    Ok(names)
}

#[derive(Default)]
struct Model {
    switches: BTreeMap<String, Switch>,
    accelerators: BTreeMap<String, String>,
    sub_domains: BTreeMap<String, String>,
}

impl Model {
    fn read(value: &Value) -> Result<Self, DiscoveryError> {
        let mut model = Self::default();
        let mut capacity: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (place, name, block) in entries(value, "capacity_blocks")? {
            let nodes: Vec<String> = names(block, "nodes", &place)?.into_iter().map(|(node, _)| node).collect();
            let domain = block.get("nvlink").and_then(Value::as_str).unwrap_or(&name).to_owned();
            nodes.iter().for_each(|node| _ = model.accelerators.insert(node.clone(), domain.clone()));
            capacity.insert(name, nodes);
        }
        for (_, name, node) in entries(value, "nodes")? {
            let text = |at: &str| node.pointer(at).and_then(Value::as_str);
            if let Some(domain) = text("/attributes/nvlink").or_else(|| text("/capacity_block")) {
                model.accelerators.insert(name, domain.to_owned());
            }
        }
        for (place, name, switch) in entries(value, "switches")? {
            let below = names(switch, "switches", &place)?.into_iter().map(|(name, _)| name).collect();
            let own = names(switch, "nodes", &place)?;
            own.iter().for_each(|(node, network)| _ = network.as_ref().map(|network| model.accelerators.insert(node.clone(), network.clone())));
            let mut nodes: Vec<String> = own.into_iter().map(|(node, _)| node).collect();
            for (block, _) in names(switch, "capacity_blocks", &place)? {
                nodes.extend(capacity.get(&block).ok_or_else(|| error(&place, format!("capacity block {block} is nowhere described")))?.iter().cloned());
            }
            if model.switches.insert(name.clone(), Switch { place: place.clone(), switches: below, nodes }).is_some() {
                return Err(error(place, format!("switch {name} is there twice")));
            }
        }
        for (at, block) in value.get("blocks").and_then(Value::as_array).into_iter().flatten().enumerate() {
            let place = format!("blocks[{at}]");
            let switch = block.get("switch").and_then(Value::as_str).ok_or_else(|| error(&place, "has no switch"))?;
            let nodes: Vec<String> = names(block, "nodes", &place)?.into_iter().map(|(node, _)| node).collect();
            for (found, into) in [(named(block, &DOMAINS), &mut model.accelerators), (named(block, &SUB_DOMAINS), &mut model.sub_domains)] {
                found.iter().for_each(|domain| nodes.iter().for_each(|node| _ = into.insert(node.clone(), domain.clone())));
            }
            let entry = model.switches.entry(switch.to_owned()).or_insert_with(|| Switch { place, ..Switch::default() });
            entry.nodes.extend(nodes);
        }
        Ok(model)
    }

    fn fabric(self) -> Result<Fabric, DiscoveryError> {
        let mut fabric = assemble(SOURCE, &self.switches, &BTreeMap::new())?;
        for (node, domain) in self.accelerators {
            fabric.hosts.entry(node).or_default().accelerator = Some(domain);
        }
        for (node, domain) in self.sub_domains {
            fabric.hosts.entry(node).or_default().sub_domain = Some(domain);
        }
        Ok(fabric)
    }
}
