//! Answers of NetQ: the topology graph, and the compute nodes of NMX with their NVLink domains.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Filter, json, switches::Links};
use crate::error::DiscoveryError;
use crate::fabric::{Fabric, Host};
use crate::names::is_own_name;

const SOURCE: &str = "netq";

/// Reads a topology graph: `[{nodes: [{compounded_nodes: [{id, name, tier}]}], links: [{id: "a-*-b"}]}]`, hosts at tier -1.
///
/// # Errors
///
/// Not JSON, not of this shape, or without a host.
pub fn read(text: &str, filter: &Filter) -> Result<Fabric, DiscoveryError> {
    let value = json(SOURCE, text)?;
    let graphs = value.as_array().ok_or_else(|| DiscoveryError::new(SOURCE, "input", "not a list; allowed is the answer of fetch-topology"))?;
    let mut links = Links::default();
    let mut hosts: BTreeMap<String, String> = BTreeMap::new();
    let list = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    for node in graphs.iter().flat_map(|graph| list(graph, "nodes")).flat_map(|node| list(&node, "compounded_nodes")) {
        let (id, name) = (text(&node, "id"), text(&node, "name"));
        let name = if name.is_empty() { id.clone() } else { name };
        if id.is_empty() {
            return Err(DiscoveryError::new(SOURCE, "nodes[].compounded_nodes[].id", "missing or not text"));
        }
        match node.get("tier").and_then(Value::as_i64) {
            Some(-1) if is_own_name(&name) && !Filter::any(&filter.hosts, &name) => _ = hosts.insert(id, name),
            Some(-1) => {}
            Some(_) if Filter::any(&filter.switches, &name) => {}
            Some(_) => _ = links.switches.insert(id, name),
            None => return Err(DiscoveryError::new(SOURCE, format!("node {id}: tier"), "missing or not a number; hosts have -1")),
        }
    }
    for link in graphs.iter().flat_map(|graph| list(graph, "links")) {
        let id = text(&link, "id");
        let n = link.get("size").and_then(Value::as_u64).map_or(1, |n| u32::try_from(n).unwrap_or(u32::MAX));
        let Some((a, b)) = id.split_once("-*-") else {
            return Err(DiscoveryError::new(SOURCE, format!("links[].id {id:?}"), "reads \"a-*-b\""));
        };
        for (a, b) in [(a, b), (b, a)] {
            if !links.switches.contains_key(b) {
                continue;
            }
            if let Some(host) = hosts.get(a) {
                links.leaves.insert(b.to_owned());
                let count = links.hosts.entry(host.clone()).or_default().entry(b.to_owned()).or_default();
                *count = count.saturating_add(n);
            } else if links.switches.contains_key(a) {
                links.between.entry(a.to_owned()).or_default().insert(b.to_owned(), n);
            }
        }
    }
    if links.hosts.is_empty() {
        return Err(DiscoveryError::new(SOURCE, "input", "no host (tier -1) with a link to a switch in it"));
    }
    Ok(links.fabric())
}

/// Reads the compute nodes of NMX: the NVLink domain of every tray.
///
/// # Errors
///
/// Not JSON, or an entry without a name or domain.
pub fn compute_nodes(text: &str) -> Result<Fabric, DiscoveryError> {
    let value = json("nmx", text)?;
    let list = value.as_array().ok_or_else(|| DiscoveryError::new("nmx", "input", "not a list; allowed is the answer of compute-nodes"))?;
    let mut hosts = BTreeMap::new();
    for (at, node) in list.iter().enumerate() {
        let text = |key: &str| node.get(key).and_then(Value::as_str).unwrap_or_default();
        let (name, domain) = (text("Name"), text("DomainUUID"));
        if name.is_empty() {
            return Err(DiscoveryError::new("nmx", format!("[{at}].Name"), "missing or not text"));
        }
        let accelerator = (!crate::names::is_placeholder(domain)).then(|| domain.to_owned());
        hosts.insert(name.to_owned(), Host { accelerator, ..Host::default() });
    }
    Ok(Fabric::from_paths(hosts))
}
