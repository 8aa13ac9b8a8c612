//! The fabric of `nvidia-smi --query-gpu=fabric.clusterUuid,fabric.cliqueId --format=csv,noheader`, a host per line:
//! `host: uuid, clique`, as `pdsh` and `clush` prefix what they collect.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::DiscoveryError;
use crate::fabric::{Fabric, Host};
use crate::names::is_placeholder;

/// Reads the lines of all hosts.
///
/// # Errors
///
/// A line without a host or without the two columns.
pub fn read(text: &str) -> Result<Fabric, DiscoveryError> {
    let mut rows: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let error = |message: &str| DiscoveryError::new("nvidia-smi", format!("line {}", at + 1), message);
        let (host, rest) = line.split_once(':').ok_or_else(|| error("reads `host: clusterUuid, cliqueId`"))?;
        if rest.contains("clusterUuid") {
            continue;
        }
        let (uuid, clique) = rest.split_once(',').ok_or_else(|| error("two columns are needed: fabric.clusterUuid, fabric.cliqueId"))?;
        rows.entry(host.trim().to_owned()).or_default().insert((uuid.trim().to_owned(), clique.trim().to_owned()));
    }
    if rows.is_empty() {
        return Err(DiscoveryError::new("nvidia-smi", "input", "empty: there is no host in it"));
    }
    let mut hosts = BTreeMap::new();
    let mut notes = Fabric::default();
    for (host, rows) in rows {
        match rows.iter().next() {
            Some(_) if rows.len() > 1 => notes.find("MixedFabric", &host, "its GPUs are in different fabrics or cliques: left out"),
            Some((uuid, clique)) if is_placeholder(uuid) || is_placeholder(clique) || uuid.contains("N/A") => {
                notes.find("NoFabric", &host, "its GPUs are in no NVLink fabric between hosts");
            }
            Some((uuid, clique)) => {
                let host_at = Host { accelerator: Some(uuid.clone()), sub_domain: Some(format!("{uuid}.{clique}")), ..Host::default() };
                hosts.insert(host, host_at);
            }
            None => {}
        }
    }
    let mut fabric = Fabric::from_paths(hosts);
    fabric.findings.extend(notes.findings);
    Ok(fabric)
}
