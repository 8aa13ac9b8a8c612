//! Topology objects of KAI Scheduler and of Kueue.

use serde_json::{Value, json};

use super::labels::Keys;
use crate::fabric::Fabric;
use crate::node::Node;
use crate::profiles::HOSTNAME;
use crate::propose::{self, Options, Proposal};

/// A Topology of `kai.scheduler/v1alpha1` with these levels, widest first.
#[must_use]
pub fn kai(name: &str, levels: &[&str]) -> Value {
    object("kai.scheduler/v1alpha1", name, levels)
}

/// A Topology of `kueue.x-k8s.io/v1beta2`.
#[must_use]
pub fn kueue(name: &str, levels: &[&str]) -> Value {
    object("kueue.x-k8s.io/v1beta2", name, levels)
}

fn object(version: &str, name: &str, levels: &[&str]) -> Value {
    let levels: Vec<Value> = levels.iter().map(|key| json!({ "nodeLabel": key })).collect();
    json!({ "apiVersion": version, "kind": "Topology", "metadata": { "name": name }, "spec": { "levels": levels } })
}

/// The levels that the labels of a fabric support: what `propose` says of nodes that bear just these labels.
#[must_use]
pub fn of_fabric(fabric: &Fabric, keys: Keys) -> Option<Proposal> {
    let labels = super::labels::labels(fabric, keys);
    let nodes: Vec<Node> = labels
        .into_iter()
        .map(|(name, mut labels)| {
            labels.insert(HOSTNAME.to_owned(), name.clone());
            Node { name, labels, ..Node::default() }
        })
        .collect();
    propose::propose(&nodes, &Options::default()).into_iter().next()
}
