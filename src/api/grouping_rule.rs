//! `GroupingRule`, `berth.scheduler/v1alpha1`: how pods of a kind that nobody coded are grouped, by field paths.
//!
//! A path is the names of fields with dots between (`spec.worker.replicas`, list places are numbers), or a JSON pointer when
//! it begins with `/`. What the fields hold is not known here.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats each type inside a function"
)]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// Pattern of a path.
const PATH: &str = r"^(/.+|[^./]+(\.[^./]+)*)$";

/// How pods of one kind are grouped. Cluster scoped; one rule for a kind.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "berth.scheduler",
    version = "v1alpha1",
    kind = "GroupingRule",
    plural = "groupingrules",
    derive = "PartialEq",
    doc = "GroupingRule says how the pods of a kind are grouped, where no code knows the kind.",
    printcolumn(name = "Group", type_ = "string", json_path = ".spec.group"),
    printcolumn(name = "Kind", type_ = "string", json_path = ".spec.kind")
)]
#[allow(clippy::duplicated_attributes, reason = "each printer column is an attribute of its own")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GroupingRuleSpec {
    /// API group of the kind; all its versions count.
    #[schemars(length(min = 1, max = 253))]
    pub group: String,

    /// The kind, as owner references write it.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,

    /// Class of workloads that name none; absent is train.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,

    /// How many pods must start together; absent is 1, or what the subgroups need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<RuleMinimum>,

    /// Parts of the gang that each have a minimum of their own; absent is one flat gang.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subgroups: Option<RuleSubgroups>,

    /// Pod label with the pod's index, for ranks and segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 316))]
    pub index_label: Option<String>,

    /// Path of the number of pods that have an index: what a segment size cuts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), regex(pattern = PATH))]
    pub replicas: Option<String>,

    /// Path of the pod template whose annotations count where the object's say nothing; absent is spec.template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), regex(pattern = PATH))]
    pub template: Option<String>,
}

/// Where a minimum is written.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleMinimum {
    /// Path of a number from 1 on, or of a text that is one.
    #[schemars(length(max = 512), regex(pattern = PATH))]
    pub path: String,

    /// Used when there is nothing at the path; absent makes the field required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub default: Option<i32>,
}

/// Where subgroups are written: one for each element of a list.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleSubgroups {
    /// Path of the list.
    #[schemars(length(max = 512), regex(pattern = PATH))]
    pub list: String,

    /// Path of the subgroup's name, within an element.
    #[schemars(length(max = 512), regex(pattern = PATH))]
    pub name: String,

    /// Path of the subgroup's minimum, within an element; nothing there is 1.
    #[schemars(length(max = 512), regex(pattern = PATH))]
    pub minimum: String,

    /// Pod label with the name of the pod's subgroup.
    #[schemars(length(min = 1, max = 316))]
    pub label: String,
}
