//! `Topology`, `kai.scheduler/v1alpha1`: the named levels of a network, widest first.
//!
//! The schema refuses what the server can see in one object: 1 to 16 levels, unique labels and aliases, the host name only
//! as the last level, and no change of the labels after creation. Whether any node carries the labels is not known here.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats each type inside a function"
)]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// Pattern of a label key: a name with an optional DNS prefix.
const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";

/// The most levels that a topology may have.
pub const MAX_LEVELS: usize = 16;

/// The levels of one network. Cluster scoped; the object's name is what workloads refer to.
#[derive(
    CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq,
)]
#[kube(
    group = "kai.scheduler",
    version = "v1alpha1",
    kind = "Topology",
    plural = "topologies",
    derive = "PartialEq",
    doc = "Topology names the levels of a network, widest first, by the node labels that tell their domains apart.",
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[allow(
    clippy::duplicated_attributes,
    reason = "each printer column is an attribute of its own"
)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpec {
    /// The levels, widest first; 1 to 16. The labels can't be changed later, aliases can.
    #[schemars(length(min = 1, max = MAX_LEVELS), extend("x-kubernetes-list-type" = "atomic"))]
    #[x_kube(
        validation = Rule::new("self.map(l, l.nodeLabel) == oldSelf.map(l, l.nodeLabel)")
            .message("the node labels of the levels and their order can't be changed"),
        validation = Rule::new("self.all(x, self.exists_one(y, y.nodeLabel == x.nodeLabel))")
            .message("every nodeLabel may appear once"),
        validation = Rule::new("self.all(l, l.nodeLabel != 'kubernetes.io/hostname' || l == self[self.size() - 1])")
            .message("kubernetes.io/hostname may only be the last level"),
        validation = Rule::new("self.all(x, !has(x.alias) || (self.exists_one(y, has(y.alias) && y.alias == x.alias) && !self.exists(y, y.nodeLabel == x.alias)))")
            .message("every alias may appear once and may not equal a nodeLabel")
    )]
    pub levels: Vec<TopologyLevel>,
}

/// One level: the nodes with the same value of the label, and of those above it, are one domain.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    /// Key of the node label; 1 to 316 characters.
    #[schemars(
        length(min = 1, max = 316),
        regex(pattern = LABEL_KEY)
    )]
    pub node_label: String,

    /// Another name for the level, which workloads may use in place of the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 316),
        regex(pattern = LABEL_KEY)
    )]
    pub alias: Option<String>,
}

impl TopologySpec {
    /// Index of the level that `name` means: a node label, or else an alias.
    pub fn level_index(&self, name: &str) -> Option<usize> {
        let by_label = self
            .levels
            .iter()
            .position(|level| level.node_label == name);
        by_label.or_else(|| {
            self.levels
                .iter()
                .position(|level| level.alias.as_deref() == Some(name))
        })
    }
}
