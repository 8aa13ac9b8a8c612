//! Reading a cluster: the kinds that decisions need, and the owners of pods, whatever their kinds.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use serde_json::Value;

use super::stripped;
use crate::cluster::Gvk;
use crate::cluster::convert::storage::StorageKinds;
use crate::cluster::list::of_kind;

/// Owners above owners that are followed.
const MAX_OWNERS: usize = 5;

/// Kinds of owners that are read at the most.
const MAX_KINDS: usize = 64;

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// Objects, stripped.
    pub objects: Vec<Value>,
    /// Kinds that the server has and that may not be listed, or whose list failed, each with why.
    pub missing: Vec<String>,
}

/// Reads everything that decisions need. Absent kinds are left out; those that may not be read are named.
///
/// # Errors
/// Pods or nodes that can't be listed: nothing can be said without them.
pub async fn collect(client: &Client) -> anyhow::Result<Collected> {
    let mut collected = Collected::default();
    for gvk in [Gvk::new("", "v1", "Node"), Gvk::new("", "v1", "Pod")] {
        match list(client, &gvk).await {
            Ok(objects) => collected.objects.extend(objects),
            Err(why) => anyhow::bail!(
                "{}s can't be listed: {why}. Rights needed: list of nodes, pods, podgroups, queues, topologies, priorityclasses and the kinds \
                 that own pods, in all namespaces (`berth generate rbac` writes them and more)",
                gvk.kind
            ),
        }
    }
    let mut kinds = vec![
        Gvk::new("scheduling.run.ai", "v2alpha2", "PodGroup"),
        Gvk::new("scheduling.run.ai", "v2", "Queue"),
        Gvk::new("kai.scheduler", "v1alpha1", "Topology"),
        Gvk::new("berth.scheduler", "v1alpha1", "GroupingRule"),
        Gvk::new("scheduling.k8s.io", "v1", "PriorityClass"),
        Gvk::new("node.k8s.io", "v1", "RuntimeClass"),
    ];
    kinds.extend(StorageKinds::KINDS.iter().map(|(group, version, kind)| Gvk::new(group, version, kind)));
    let mut seen: BTreeSet<(String, String)> = BTreeSet::from([(String::new(), "Pod".to_owned()), (String::new(), "Node".to_owned())]);
    for _ in 0..MAX_OWNERS {
        for gvk in std::mem::take(&mut kinds) {
            if seen.len() < MAX_KINDS && seen.insert(gvk.group_kind()) {
                match list(client, &gvk).await {
                    Ok(objects) => collected.objects.extend(objects),
                    Err(why) => collected.missing.push(format!("{} of {}: {why}", gvk.kind, gvk.api_version())),
                }
            }
        }
        kinds = owners(&collected.objects).into_values().filter(|gvk| !seen.contains(&gvk.group_kind())).collect();
        if kinds.is_empty() {
            break;
        }
    }
    Ok(collected)
}

/// Kinds of owners by group and kind.
fn owners(objects: &[Value]) -> BTreeMap<(String, String), Gvk> {
    let of = |object: &Value| object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let gvk = |owner: Value| Gvk::parse(owner["apiVersion"].as_str().unwrap_or_default(), owner["kind"].as_str().unwrap_or_default());
    objects.iter().flat_map(of).map(gvk).filter(|gvk| !gvk.kind.is_empty()).map(|gvk| (gvk.group_kind(), gvk)).collect()
}

/// Every object of a kind, stripped page by page; none where the server does not have it.
async fn list(client: &Client, gvk: &Gvk) -> Result<Vec<Value>, String> {
    let mut objects = Vec::new();
    of_kind(client, gvk, |object| objects.push(stripped(&object))).await.map_err(|unread| said(&unread.error))?;
    Ok(objects)
}

fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => "may not be listed".to_owned(),
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
