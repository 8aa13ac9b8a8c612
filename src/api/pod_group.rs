//! `PodGroup`, `scheduling.run.ai/v2alpha2`: a gang, its subgroups, and what became of it.
//!
//! The schema refuses what one item shows: both minimums at once, names that are no DNS labels, negative minimums. What
//! takes several items or objects (unknown parents, cycles, duplicate names, unknown levels) is a reason of the engine.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats each type inside a function"
)]

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::amount::Amount;
use crate::duration::{DurationError, parse_duration_millis};
use crate::queue::ResourceList;

/// Name of the leaf that a gang without subgroups has.
pub const DEFAULT_SUB_GROUP: &str = "default";

/// The most subgroups of a gang: room for 10 000 segments and their parents, and a bound for the cost of the rules.
pub const MAX_SUB_GROUPS: usize = 16_384;

/// Pattern of a subgroup's name: a DNS label (RFC 1123).
const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// A gang: pods that start together or not at all.
#[derive(
    CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq,
)]
#[kube(
    group = "scheduling.run.ai",
    version = "v2alpha2",
    kind = "PodGroup",
    plural = "podgroups",
    shortname = "pg",
    namespaced,
    status = "PodGroupStatus",
    derive = "PartialEq",
    doc = "PodGroup is a gang: pods that start together or not at all.",
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "Placed, Partial, Pending or Done"
    ),
    printcolumn(
        name = "Bound",
        type_ = "integer",
        json_path = ".status.bound",
        description = "Pods that have a node"
    ),
    printcolumn(
        name = "Min",
        type_ = "integer",
        json_path = ".status.minMember",
        description = "Pods that the gang needs"
    ),
    printcolumn(name = "Queue", type_ = "string", json_path = ".spec.queue"),
    printcolumn(
        name = "Level",
        type_ = "string",
        json_path = ".status.level",
        description = "Narrowest level that holds the gang"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.reason",
        description = "Why the gang is pending"
    ),
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
#[x_kube(validation = Rule::new("!(has(self.minMember) && has(self.minSubGroup))")
    .message("minMember and minSubGroup exclude each other"))]
pub struct PodGroupSpec {
    /// Pods that must be placed together; absent is 1, and 0 is no gang. Ignored when there are subgroups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_member: Option<i32>,

    /// How many of the subgroups without a parent must be satisfied; absent is all, and 0 is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_sub_group: Option<i32>,

    /// Name of the queue in which the gang waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,

    /// Name of a PriorityClass; when there is none of this name, the global default class, or else 50, applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,

    /// Whether the gang may be evicted for another; absent follows the priority: below 100 it may.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "empty_is_absent"
    )]
    pub preemptibility: Option<Preemptibility>,

    /// Where the whole gang must or should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<TopologyConstraint>,

    /// The subgroups: a tree, written as a flat list with the name of each one's parent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_SUB_GROUPS))]
    pub sub_groups: Vec<SubGroup>,

    /// Whether pending pods get the condition `PodScheduled=False`, reason `Unschedulable`; absent is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark_unschedulable: Option<bool>,

    /// -1 (or absent) retries for ever; anything else gives up on a node pool after one failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling_backoff: Option<i32>,

    /// How long the gang waits before it may cause evictions (a Go duration).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = crate::duration::PATTERN))]
    pub preemption_delay: Option<String>,

    /// How long a running gang may be below its minimum before it is evicted (a Go duration); negative is for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = crate::duration::PATTERN))]
    pub staleness_grace_period: Option<String>,
}

/// A part of a gang: a leaf that holds pods, or a parent that holds subgroups.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.minMember) && has(self.minSubGroup))")
    .message("minMember and minSubGroup exclude each other: a leaf has minMember, a parent minSubGroup"))]
pub struct SubGroup {
    /// Name, unique in the gang: a DNS label.
    #[schemars(length(min = 1, max = 63), regex(pattern = DNS_LABEL))]
    pub name: String,

    /// Name of the subgroup that holds this one; absent is the gang itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = DNS_LABEL))]
    pub parent: Option<String>,

    /// Leaf: pods that must be placed together; 0 is no minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_member: Option<i32>,

    /// Parent: how many of its subgroups must be satisfied; absent is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_sub_group: Option<i32>,

    /// Where this subgroup must or should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<TopologyConstraint>,
}

/// Levels of one Topology, each by its node label or alias.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TopologyConstraint {
    /// Name of the Topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,

    /// All pods must be in one domain of this level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_topology_level: Option<String>,

    /// All pods should be in one domain of this level, or else in as few as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_topology_level: Option<String>,
}

/// Whether a gang may be evicted for another.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Preemptibility {
    /// It may.
    Preemptible,
    /// It may not, and it has to fit its queue's quota.
    NonPreemptible,
}

/// What became of a gang.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupStatus {
    /// Placed, Partial, Pending or Done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PodGroupPhase>,

    /// Pods that have a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<i32>,

    /// Pods that the gang needs, over all its subgroups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_member: Option<i32>,

    /// Code of the blocking reason while the gang is pending (`RequiredDomainTooSmall`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// The reason in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// Node label of the narrowest level with one domain that holds the whole gang.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,

    /// How good the placement is; absent while pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<PlacementQuality>,

    /// Resources of the gang's pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources_status: Option<ResourcesStatus>,

    /// Why the gang could not be placed, one entry a node pool, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub scheduling_conditions: Vec<SchedulingCondition>,

    /// Conditions of older versions; kept, not written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub conditions: Vec<Condition>,
}

/// Where a gang stands.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodGroupPhase {
    /// The minimum is placed; surplus pods may be pending.
    Placed,
    /// Some pods run, fewer than the minimum.
    Partial,
    /// No pod runs.
    Pending,
    /// Over: every pod has succeeded or failed.
    Done,
    /// A word of another writer. Read, never written, and not in the schema.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// How good a placement is.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PlacementQuality {
    /// Optimal (proven), Bounded (with `gap`) or Unknown.
    pub status: QualityStatus,

    /// 0 to 1; 1 is: nothing better exists for the objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Amount>,

    /// What was optimised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<String>,

    /// How far from the best the placement can be at most, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Amount>,

    /// Domains used per level, widest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub levels: Vec<LevelQuality>,
}

/// What is proven about a placement.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QualityStatus {
    /// Nothing better exists.
    Optimal,
    /// The best is at most `gap` away.
    Bounded,
    /// Nothing is proven.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Domains of one level that a gang uses.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LevelQuality {
    /// Node label of the level.
    pub level: String,

    /// Domains that hold at least one pod.
    pub domains: i64,

    /// The fewest domains with which any placement gets along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_bound: Option<i64>,
}

/// Resources of a gang's pods.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ResourcesStatus {
    /// Of the pods that have a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub allocated: Option<ResourceList>,

    /// The same, when the gang is not preemptible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub allocated_non_preemptible: Option<ResourceList>,

    /// Of the pods that run or wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub requested: Option<ResourceList>,
}

/// Why a gang could not be placed in a node pool.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingCondition {
    /// `UnschedulableOnNodePool`.
    #[serde(rename = "type")]
    pub type_: String,

    /// Value of the node pool's label, or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_pool: Option<String>,

    /// `Unschedulable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// The reason in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// Every reason, the blocking one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub reasons: Vec<UnschedulableReason>,

    /// When the condition changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,

    /// True, False or Unknown.
    pub status: String,

    /// A decimal counter, one higher with each change.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "transitionID"
    )]
    pub transition_id: Option<String>,
}

/// One reason why a gang is pending.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct UnschedulableReason {
    /// Code of the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// The reason in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// Figures behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<UnschedulableDetails>,
}

/// Figures behind a reason.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct UnschedulableDetails {
    /// Of the queue that refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_details: Option<QueueDetails>,
}

/// Figures of a queue that refused a gang.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct QueueDetails {
    /// Name of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// What the queue's pods ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub queue_requested_resources: Option<ResourceList>,

    /// The queue's quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub queue_deserved_resources: Option<ResourceList>,

    /// What its non-preemptible pods use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub queue_allocated_non_preemptible_resources: Option<ResourceList>,

    /// What all its pods use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub queue_allocated_resources: Option<ResourceList>,

    /// The queue's limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub queue_resource_limits: Option<ResourceList>,

    /// What the gang asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub pod_group_requested_resources: Option<ResourceList>,

    /// The same, when the gang is not preemptible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub pod_group_requested_non_preemptible_resources: Option<ResourceList>,
}

/// A condition of a PodGroup or Queue.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Kind of the condition.
    #[serde(rename = "type")]
    pub type_: String,

    /// True, False or Unknown.
    pub status: String,

    /// A counter of changes.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "transitionID"
    )]
    pub transition_id: Option<String>,

    /// When the condition changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,

    /// One word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// One sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl PodGroupSpec {
    /// `preemptionDelay` in milliseconds.
    pub fn preemption_delay_millis(&self) -> Result<Option<i64>, DurationError> {
        self.preemption_delay
            .as_deref()
            .map(parse_duration_millis)
            .transpose()
    }

    /// `stalenessGracePeriod` in milliseconds; negative is for ever.
    pub fn staleness_grace_period_millis(&self) -> Result<Option<i64>, DurationError> {
        self.staleness_grace_period
            .as_deref()
            .map(parse_duration_millis)
            .transpose()
    }
}

impl fmt::Display for PodGroupPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Placed => "Placed",
            Self::Partial => "Partial",
            Self::Pending => "Pending",
            Self::Done => "Done",
            Self::Unknown => "Unknown",
        })
    }
}

/// Reads an empty string as absent: clients that always write the field mean that.
fn empty_is_absent<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Preemptibility>, D::Error> {
    match Option::<String>::deserialize(deserializer)?.as_deref() {
        None | Some("") => Ok(None),
        Some("preemptible") => Ok(Some(Preemptibility::Preemptible)),
        Some("non-preemptible") => Ok(Some(Preemptibility::NonPreemptible)),
        Some(other) => Err(serde::de::Error::unknown_variant(
            other,
            &["preemptible", "non-preemptible"],
        )),
    }
}
