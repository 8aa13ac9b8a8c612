//! What the command-line tools of clouds print about the network: read from files, since their calls are signed.

use std::collections::BTreeMap;

use serde_json::Value;

use super::json;
use crate::error::DiscoveryError;
use crate::fabric::{Fabric, Host};
use crate::names::is_placeholder;

/// A cloud whose answers can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cloud {
    /// `aws ec2 describe-instance-topology`.
    Aws,
    /// `gcloud compute instances list --format=json`.
    Gcp,
    /// `oci compute compute-host list`, or what the metadata service says, a host per object.
    Oci,
    /// `nebius compute instance list --format json`.
    Nebius,
    /// Answers of Lambda's topology API.
    Lambda,
    /// Answers of Nscale's Radar.
    Nscale,
}

impl Cloud {
    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Gcp => "gcp",
            Self::Oci => "oci",
            Self::Nebius => "nebius",
            Self::Lambda => "lambda",
            Self::Nscale => "nscale",
        }
    }

    /// Where the list of instances stands in an answer.
    fn lists(self) -> &'static [&'static str] {
        match self {
            Self::Aws => &["/Instances"],
            Self::Gcp => &[""],
            Self::Oci => &["/data/items", "/data", "/items", ""],
            Self::Nebius => &["/items", ""],
            Self::Lambda => &["/data"],
            Self::Nscale => &["/results"],
        }
    }
}

/// Reads an answer. Hosts are called by their instance ids, those of Google by their names.
///
/// # Errors
///
/// Not JSON, not a list of instances, or an instance without an id.
pub fn read(cloud: Cloud, text: &str) -> Result<Fabric, DiscoveryError> {
    let value = json(cloud.name(), text)?;
    let whole = [&value];
    let lists = cloud.lists();
    let list = lists.iter().find_map(|at| value.pointer(at).and_then(Value::as_array));
    let items: Vec<&Value> = match list {
        Some(list) => list.iter().collect(),
        None if cloud == Cloud::Oci && value.is_object() => whole.to_vec(),
        None => return Err(DiscoveryError::new(cloud.name(), "input", format!("no list of instances at {:?}", lists[0]))),
    };
    let mut hosts = BTreeMap::new();
    let mut notes = Fabric::default();
    for (at, item) in items.into_iter().enumerate() {
        let (id, path, host) = instance(cloud, item);
        if id.is_empty() {
            return Err(DiscoveryError::new(cloud.name(), format!("[{at}]"), "an instance without an id"));
        }
        if path.is_empty() && host.accelerator.is_none() {
            notes.find("NoNetwork", &id, "the answer says nothing of its place in the network");
            continue;
        }
        if hosts.insert(id.clone(), Host { tiers: path, ..host }).is_some() {
            notes.find("Duplicate", &id, "stands in the answer more than once: the last one counts");
        }
    }
    let rest = value.get("NextToken").or_else(|| value.get("page_token")).and_then(Value::as_str).filter(|token| !token.is_empty());
    if rest.is_some() {
        notes.find("MorePages", cloud.name(), "the answer is one page of several: give the other pages too");
    }
    let mut fabric = Fabric::from_paths(hosts);
    fabric.findings.extend(notes.findings);
    Ok(fabric)
}

/// Id, path from the nearest domain, accelerator domain.
fn instance(cloud: Cloud, item: &Value) -> (String, Vec<String>, Host) {
    // Command lines print kebab case where APIs have camel case.
    let text = |names: &[&str]| -> Option<String> {
        let found = names.iter().find_map(|name| item.pointer(name))?;
        let found = found.as_str().map(ToOwned::to_owned).or_else(|| found.as_u64().map(|n| n.to_string()))?;
        (!is_placeholder(&found)).then_some(found)
    };
    let list = |name: &str| -> Vec<String> {
        let list = item.pointer(name).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(|part| part.as_str().or_else(|| part.get("id")?.as_str())).map(ToOwned::to_owned).collect()
    };
    let all = |parts: Vec<Option<String>>| parts.into_iter().collect::<Option<Vec<String>>>().unwrap_or_default();
    let reversed = |mut path: Vec<String>| {
        path.reverse();
        path
    };
    let (id, path, accelerator, sub_domain) = match cloud {
        Cloud::Aws => (text(&["/InstanceId"]), reversed(list("/NetworkNodes")), text(&["/CapacityBlockId"]), None),
        Cloud::Gcp => {
            let at = |part: &str| text(&[&format!("/resourceStatus/physicalHostTopology/{part}")]);
            (text(&["/name"]), all(vec![at("subblock"), at("block"), at("cluster")]), None, None)
        }
        Cloud::Oci => {
            let path = vec![
                text(&["/localBlockId", "/local-block-id", "/customerLocalBlock"]),
                text(&["/networkBlockId", "/network-block-id", "/customerNetworkBlock"]),
                text(&["/hpcIslandId", "/hpc-island-id", "/customerHPCIslandId"]),
            ];
            let domain = text(&["/gpuMemoryFabricId", "/gpu-memory-fabric-id", "/customerGpuMemoryFabric"]);
            (text(&["/instanceId", "/instance-id", "/id"]), all(path), domain, None)
        }
        Cloud::Nebius => (
            text(&["/metadata/id"]),
            reversed(list("/status/infiniband_topology_path/path")),
            text(&["/spec/nvl_instance_group_id"]),
            None,
        ),
        Cloud::Lambda => {
            let domain = text(&["/nvlink/domain_id"]);
            let clique = text(&["/nvlink/clique_id"]);
            let sub = domain.clone().zip(clique).map(|(domain, clique)| format!("{domain}.{clique}"));
            (text(&["/id"]), list("/networkPath"), domain, sub)
        }
        Cloud::Nscale => (text(&["/instance_id"]), reversed(list("/network_node_path")), text(&["/block_id"]), None),
    };
    (id.unwrap_or_default(), path, Host { accelerator, sub_domain, ..Host::default() })
}
