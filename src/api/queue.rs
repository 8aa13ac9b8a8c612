//! `Queue`, `scheduling.run.ai/v2`: a share of the cluster, in a hierarchy whose leaves hold the gangs.
//!
//! Numbers are JSON numbers in the schema, as in KAI Scheduler, and decimal text here: nothing is computed in floats.
//! Whether a parent exists is not known here.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats each type inside a function"
)]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::amount::Amount;
use crate::pod_group::Condition;

/// Priority of a queue that states none.
pub const DEFAULT_PRIORITY: i32 = 100;

/// Resource name to quantity, as in a pod's requests.
pub type ResourceList = BTreeMap<String, Quantity>;

/// A share of the cluster. Cluster scoped.
#[derive(
    CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq,
)]
#[kube(
    group = "scheduling.run.ai",
    version = "v2",
    kind = "Queue",
    plural = "queues",
    status = "QueueStatus",
    derive = "PartialEq",
    doc = "Queue is a share of the cluster; gangs wait in queues that have no children.",
    printcolumn(name = "Priority", type_ = "string", json_path = ".spec.priority"),
    printcolumn(name = "Parent", type_ = "string", json_path = ".spec.parentQueue"),
    printcolumn(name = "Children", type_ = "string", json_path = ".status.childQueues"),
    printcolumn(
        name = "DisplayName",
        type_ = "string",
        json_path = ".spec.displayName"
    )
)]
#[allow(
    clippy::duplicated_attributes,
    reason = "each printer column is an attribute of its own"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.resources)").message("spec.resources must be stated; -1 means unlimited"))]
pub struct QueueSpec {
    /// Name shown to people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,

    /// Name of the queue above; absent or empty for a top queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_queue: Option<String>,

    /// Share of each resource. The schema refuses a queue without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<QueueResources>,

    /// Higher is served first; 100 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,

    /// How long a workload of this queue runs before others of the queue may preempt it (a Go duration).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = crate::duration::PATTERN))]
    pub preempt_min_runtime: Option<String>,

    /// How long a workload of this queue runs before other queues may reclaim its resources (a Go duration).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = crate::duration::PATTERN))]
    pub reclaim_min_runtime: Option<String>,
}

/// Shares of the three resources that queues divide.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueResources {
    /// GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<QueueResource>,

    /// CPU in millicores (1000 = one core).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<QueueResource>,

    /// Memory in megabytes of 1 000 000 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<QueueResource>,
}

/// Share of one resource; the unit is that of the field in [`QueueResources`].
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct QueueResource {
    /// What the queue is entitled to; -1 is unlimited, absent is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Amount>,

    /// Weight by which resources above the quotas are divided; absent is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_quota_weight: Option<Amount>,

    /// What the queue may use at most; -1 is unlimited, absent is 0: nothing may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Amount>,
}

/// What a queue uses, summed over its children and gangs.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// Names of the queues directly below.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    pub child_queues: Vec<String>,

    /// Resources of the pods that have a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub allocated: Option<ResourceList>,

    /// The part of `allocated` that belongs to non-preemptible workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub allocated_non_preemptible: Option<ResourceList>,

    /// Resources of the pods that run or wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub requested: Option<ResourceList>,

    /// The queue's fair share of what there is now, for what it asks for now. KAI Scheduler has it as metrics only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub fair_share: Option<ResourceList>,

    /// Conditions of the queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub conditions: Vec<Condition>,
}
