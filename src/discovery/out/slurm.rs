//! Slurm's topology.conf (tree and block) and topology.yaml.
//!
//! Blocks are complemented: every domain is cut into base blocks and filled up with empty ones to a power of two, so that a
//! block's number tells its aggregate, as Slurm computes it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::fabric::Fabric;
use crate::hostlist::compact;

/// The most sizes that Slurm takes.
const MOST_SIZES: usize = 20;

/// A switch of the tree: its name, what is below it.
struct Row<'a> {
    name: String,
    children: BTreeSet<String>,
    nodes: Vec<&'a str>,
}

/// Switches from the widest tier down; a tier that repeats the one below on all of its hosts is one switch.
fn rows(fabric: &Fabric) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for tier in (0..fabric.depth).rev() {
        for (domain, hosts) in fabric.domains(tier) {
            let below: BTreeSet<&str> = if tier == 0 { BTreeSet::new() } else { hosts.iter().map(|host| fabric.hosts[*host].tiers[tier - 1].as_str()).collect() };
            if below.len() == 1 && below.contains(domain) {
                continue;
            }
            let children = below.iter().map(|child| switch(child)).collect();
            rows.push(Row { name: switch(domain), children, nodes: if tier == 0 { hosts } else { Vec::new() } });
        }
    }
    rows
}

/// Names of switches have at most 64 characters, and none that a list of hosts uses.
fn switch(domain: &str) -> String {
    let plain = domain.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c));
    if domain.len() <= 64 && plain { domain.to_owned() } else { crate::names::label_value(domain) }
}

/// `topology.conf` of the tree plugin.
#[must_use]
pub fn tree(fabric: &Fabric) -> String {
    let mut text = String::new();
    for row in rows(fabric) {
        let below = if row.nodes.is_empty() { format!("Switches={}", compact(row.children.iter().map(String::as_str))) } else { format!("Nodes={}", compact(row.nodes)) };
        let _ = writeln!(text, "SwitchName={} {below}", row.name);
    }
    text
}

/// Sizes of blocks, smallest first: the smallest domain, doubled while the number of domains allows it.
///
/// # Errors
///
/// Sizes that Slurm refuses: none, more than 20, 0, more than 65536, or one that is no power of two times the one before.
pub fn sizes(fabric: &Fabric, wanted: &[u32]) -> Result<Vec<u32>, String> {
    if wanted.is_empty() {
        let domains = fabric.accelerators();
        let smallest = domains.values().map(Vec::len).min().and_then(|n| u32::try_from(n).ok()).unwrap_or(1).max(1);
        let doublings = domains.len().max(1).ilog2();
        return Ok((0..=doublings).filter_map(|n| smallest.checked_mul(1 << n)).filter(|size| *size <= 65_536).take(MOST_SIZES).collect());
    }
    if wanted.len() > MOST_SIZES {
        return Err(format!("{} block sizes; Slurm takes at most {MOST_SIZES}", wanted.len()));
    }
    for (at, size) in wanted.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| wanted[at]);
        let follows = before.is_none_or(|before| before < *size && size.is_multiple_of(before) && (size / before).is_power_of_two());
        if *size == 0 || *size > 65_536 || !follows {
            return Err(format!("block size {size}: allowed are 1 to 65536, each a power of two times the one before it"));
        }
    }
    Ok(wanted.to_vec())
}

/// Base blocks with their hosts; empty ones fill a domain up. With the name of the domain.
fn blocks<'a>(fabric: &'a Fabric, sizes: &[u32]) -> Vec<(String, &'a str, Vec<&'a str>)> {
    let base = sizes.first().copied().unwrap_or(1).max(1) as usize;
    let domains = ordered(fabric);
    let slots = domains.iter().map(|(_, hosts)| hosts.len().div_ceil(base)).max().unwrap_or(0).next_power_of_two();
    let mut blocks = Vec::new();
    for (domain, hosts) in domains {
        let mut parts = hosts.chunks(base);
        for _ in 0..slots {
            let name = format!("block{:03}", blocks.len() + 1);
            blocks.push((name, domain, parts.next().unwrap_or_default().to_vec()));
        }
    }
    let whole = sizes.last().map_or(1, |last| *last as usize / base).max(1);
    while !blocks.len().is_multiple_of(whole) {
        blocks.push((format!("block{:03}", blocks.len() + 1), "", Vec::new()));
    }
    blocks
}

/// Accelerator domains in the order of the tree, so that neighbours in number are neighbours in the network.
fn ordered(fabric: &Fabric) -> Vec<(&str, Vec<&str>)> {
    let mut domains: Vec<(&str, Vec<&str>)> = fabric.accelerators().into_iter().collect();
    let place = |hosts: &[&str]| hosts.first().map(|host| fabric.hosts[*host].tiers.iter().rev().cloned().collect::<Vec<_>>());
    domains.sort_by_cached_key(|(domain, hosts)| (place(hosts), (*domain).to_owned()));
    domains
}

/// `topology.conf` of the block plugin.
///
/// # Errors
///
/// No accelerator domain at all, or sizes that Slurm refuses.
pub fn block(fabric: &Fabric, wanted: &[u32]) -> Result<String, String> {
    let sizes = sizes(fabric, wanted)?;
    let blocks = blocks(fabric, &sizes);
    if blocks.is_empty() {
        return Err("no host has an accelerator domain: blocks are made of those; --to slurm-tree needs none".to_owned());
    }
    let mut text = String::new();
    for (name, domain, hosts) in &blocks {
        if !domain.is_empty() {
            let _ = writeln!(text, "# {name}={domain}");
        }
        let nodes = if hosts.is_empty() { String::new() } else { format!(" Nodes={}", compact(hosts.iter().copied())) };
        let _ = writeln!(text, "BlockName={name}{nodes}");
    }
    let list: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    let _ = writeln!(text, "BlockSizes={}", list.join(","));
    Ok(text)
}

/// `topology.yaml` with a tree, and blocks where there are accelerator domains. The first is the cluster's default.
///
/// # Errors
///
/// Sizes that Slurm refuses, or a fabric with neither.
pub fn yaml(fabric: &Fabric, wanted: &[u32]) -> Result<serde_json::Value, String> {
    let mut list = Vec::new();
    if fabric.depth > 0 {
        let switches: Vec<serde_json::Value> = rows(fabric)
            .into_iter()
            .map(|row| match row.nodes.is_empty() {
                true => serde_json::json!({ "switch": row.name, "children": compact(row.children.iter().map(String::as_str)) }),
                false => serde_json::json!({ "switch": row.name, "nodes": compact(row.nodes) }),
            })
            .collect();
        list.push(serde_json::json!({ "topology": "tree", "cluster_default": true, "tree": { "switches": switches } }));
    }
    if !fabric.accelerators().is_empty() {
        let sizes = sizes(fabric, wanted)?;
        let blocks: Vec<serde_json::Value> = blocks(fabric, &sizes)
            .into_iter()
            .map(|(name, _, hosts)| match hosts.is_empty() {
                true => serde_json::json!({ "block": name }),
                false => serde_json::json!({ "block": name, "nodes": compact(hosts) }),
            })
            .collect();
        let is_first = list.is_empty();
        list.push(serde_json::json!({ "topology": "block", "cluster_default": is_first, "block": { "block_sizes": sizes, "blocks": blocks } }));
    }
    if list.is_empty() { Err("neither tiers nor accelerator domains in it".to_owned()) } else { Ok(list.into()) }
}

