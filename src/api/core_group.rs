//! `PodGroup` of `scheduling.k8s.io` (`v1alpha2` of Kubernetes 1.36, `v1beta1` of 1.37): what is read of it.
//!
//! Both versions spell these fields alike. A group holds a copy of what its Workload's template says, so that the
//! Workload itself need not be read.

use serde::Deserialize;

/// The spec of a group, as far as placement depends on it.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CorePodGroupSpec {
    /// Whether the pods wait for each other.
    #[serde(default)]
    pub scheduling_policy: SchedulingPolicy,
    /// Where they must be together.
    #[serde(default)]
    pub scheduling_constraints: Option<SchedulingConstraints>,
    /// Priority class of the group.
    #[serde(default)]
    pub priority_class_name: Option<String>,
    /// A group of groups that this one is part of (1.37, behind a gate of its own).
    #[serde(default)]
    pub parent_composite_pod_group_name: Option<String>,
}

/// One of its fields is set; without `gang` the pods are placed one by one.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingPolicy {
    /// All or nothing, up to a minimum.
    #[serde(default)]
    pub gang: Option<GangPolicy>,
}

/// How many pods start together.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct GangPolicy {
    /// The minimum, from 1 on.
    pub min_count: i32,
}

/// Constraints of a group.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingConstraints {
    /// At most one, by now.
    #[serde(default)]
    pub topology: Vec<TopologyKey>,
}

/// All pods of the group on nodes with one value of a label.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TopologyKey {
    /// The node label.
    pub key: String,
}
