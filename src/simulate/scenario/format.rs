//! The fields of a scenario. Unknown ones are refused.

use std::collections::BTreeMap;

use berth_engine::facts::BindResult;
use serde::Deserialize;
use serde_json::Value;

/// A scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    /// What happens and what must hold, in a sentence or two.
    pub description: String,
    /// The report or document that it comes from.
    #[serde(default)]
    pub source: String,
    /// The node pool that is seen: a value of the label `kai.scheduler/node-pool`, empty for what lacks it; absent is all.
    #[serde(default)]
    pub node_pool: Option<String>,
    /// How nodes are filled, `binpack` or `spread`.
    #[serde(default)]
    pub strategy: Strategies,
    /// Nodes and topology.
    #[serde(default)]
    pub cluster: ClusterSpec,
    /// Manifests to read, relative to the scenario.
    #[serde(default)]
    pub files: Vec<String>,
    /// Kubernetes objects, or the shorthands `gang` and `busy`.
    #[serde(default)]
    pub objects: Vec<Value>,
    /// What must hold before the first step.
    #[serde(default)]
    pub expect: Option<Expect>,
    /// What must hold before the first step with every deliberate difference from KAI Scheduler turned off.
    #[serde(default)]
    pub expect_kai: Option<Expect>,
    /// What happens then.
    #[serde(default)]
    pub steps: Vec<Step>,
}

/// How nodes are filled, for pods that ask for GPUs and for others; absent is `binpack`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Strategies {
    /// For pods that ask for GPUs.
    #[serde(default)]
    pub gpu: Option<String>,
    /// For others.
    #[serde(default)]
    pub cpu: Option<String>,
}

/// Nodes and their topology.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterSpec {
    /// Node labels, widest first; none is no topology.
    #[serde(default)]
    pub levels: Vec<String>,
    /// Name of the Topology; `cluster-topology` when absent.
    #[serde(default)]
    pub topology: Option<String>,
    /// The nodes.
    #[serde(default)]
    pub nodes: Vec<NodeSpec>,
}

/// One node, or `count` alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSpec {
    /// Name; `{i}` is the running number from 0.
    pub name: String,
    /// How many.
    #[serde(default)]
    pub count: Option<u32>,
    /// Labels; `{i}` works here too.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// A value for each level, widest first; fewer leave the rest unlabelled.
    #[serde(default)]
    pub at: Vec<String>,
    /// GPUs; 8 when absent.
    #[serde(default)]
    pub gpus: Option<u32>,
    /// CPU quantity; 64 when absent.
    #[serde(default)]
    pub cpu: Option<Value>,
    /// Memory quantity; 512Gi when absent.
    #[serde(default)]
    pub memory: Option<Value>,
    /// Further allocatable resources, or others in place of the above.
    #[serde(default)]
    pub capacity: BTreeMap<String, Value>,
    /// Taints as in the core API.
    #[serde(default)]
    pub taints: Vec<Value>,
    /// Cordoned.
    #[serde(default)]
    pub cordoned: bool,
    /// Ready; true when absent.
    #[serde(default)]
    pub ready: Option<bool>,
}

/// A gang with its pods, in short.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct GangSpec {
    /// Name of the PodGroup; pods are `<name>-<i>` or `<name>-<subgroup>-<i>`.
    pub(super) name: String,
    /// Namespace; `default` when absent.
    #[serde(default)]
    pub(super) namespace: Option<String>,
    /// Number of pods when there are no subgroups; 1 when absent.
    #[serde(default)]
    pub(super) pods: Option<u32>,
    /// Minimum; every pod when absent.
    #[serde(default)]
    pub(super) min_member: Option<u32>,
    /// Minimum of ready subgroups.
    #[serde(default)]
    pub(super) min_sub_group: Option<u32>,
    /// What every pod is like.
    #[serde(flatten)]
    pub(super) common: Common,
    /// Subgroups, parents and leaves.
    #[serde(default)]
    pub(super) subgroups: Vec<SubgroupSpec>,
    /// Queue; `default-queue` when absent.
    #[serde(default)]
    pub(super) queue: Option<String>,
    /// Priority class.
    #[serde(default)]
    pub(super) priority: Option<String>,
    /// Grace period of a gang below its minimum; 60s when absent.
    #[serde(default)]
    pub(super) staleness_grace_period: Option<String>,
    /// Objective; the operator's when absent.
    #[serde(default)]
    pub(super) objective: Option<String>,
    /// Limits on domains, as the annotation has them.
    #[serde(default)]
    pub(super) max_domains: Option<String>,
    /// Nodes on which the first pods run already, in order.
    #[serde(default)]
    pub(super) on: Vec<String>,
}

/// A subgroup of a gang.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SubgroupSpec {
    /// Name.
    pub(super) name: String,
    /// Parent subgroup.
    #[serde(default)]
    pub(super) parent: Option<String>,
    /// Pods, for a leaf.
    #[serde(default)]
    pub(super) pods: Option<u32>,
    /// Minimum of pods; every pod when absent.
    #[serde(default)]
    pub(super) min_member: Option<u32>,
    /// Minimum of ready children.
    #[serde(default)]
    pub(super) min_sub_group: Option<u32>,
    /// What its pods are like, where that differs from the gang's.
    #[serde(flatten)]
    pub(super) common: Common,
}

/// Constraint and shape, of a gang or a subgroup.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Common {
    /// Topology; that of the cluster when absent and a level is named.
    #[serde(default)]
    pub(super) topology: Option<String>,
    /// Required level.
    #[serde(default)]
    pub(super) required: Option<String>,
    /// Preferred level.
    #[serde(default)]
    pub(super) preferred: Option<String>,
    /// GPUs per pod; 8 when absent.
    #[serde(default)]
    pub(super) gpus: Option<u32>,
    /// CPU per pod.
    #[serde(default)]
    pub(super) cpu: Option<Value>,
    /// Memory per pod.
    #[serde(default)]
    pub(super) memory: Option<Value>,
    /// Fields of the pod's spec, merged over the rest.
    #[serde(default)]
    pub(super) spec: Option<Value>,
}

/// Pods of another scheduler that hold room.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct BusySpec {
    /// The nodes; one pod, `busy-<node>`, on each.
    pub(super) nodes: Vec<String>,
    /// GPUs per pod; 8 when absent.
    #[serde(default)]
    pub(super) gpus: Option<u32>,
    /// CPU per pod.
    #[serde(default)]
    pub(super) cpu: Option<Value>,
    /// Memory per pod.
    #[serde(default)]
    pub(super) memory: Option<Value>,
}

/// One step: its changes, the passes that follow, and what must hold then.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    /// Objects or shorthands to create or replace.
    #[serde(default)]
    pub apply: Option<Vec<Value>>,
    /// Manifests to apply, named from the scenario's folder.
    #[serde(default)]
    pub files: Vec<String>,
    /// Objects to delete, as `Kind/name` or `Kind/namespace/name`.
    #[serde(default)]
    pub delete: Option<Vec<String>>,
    /// A JSON merge patch.
    #[serde(default)]
    pub patch: Option<Patch>,
    /// A node that is no longer ready.
    #[serde(default)]
    pub fail_node: Option<String>,
    /// A pod that succeeds.
    #[serde(default)]
    pub finish_pod: Option<String>,
    /// A pod that is gone.
    #[serde(default)]
    pub delete_pod: Option<String>,
    /// A pod that its controller replaces by one of the same name.
    #[serde(default)]
    pub recreate_pod: Option<String>,
    /// Time that passes, such as `60s`.
    #[serde(default)]
    pub advance: Option<String>,
    /// Bindings that are refused.
    #[serde(default)]
    pub reject_bind: Option<RejectBind>,
    /// What must hold now.
    #[serde(default)]
    pub expect: Option<Expect>,
}

/// A merge patch of one object.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Patch {
    /// `Kind/name` or `Kind/namespace/name`.
    pub object: String,
    /// The patch.
    pub merge: Value,
}

/// Bindings of a pod that the API server refuses.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RejectBind {
    /// The pod.
    pub pod: String,
    /// `Permanent`, `Transient` or `Unknown`.
    pub with: String,
    /// How often; once when absent.
    #[serde(default = "once")]
    pub times: u32,
    /// The server's words.
    #[serde(default)]
    pub message: String,
}

fn once() -> u32 {
    1
}

impl RejectBind {
    pub(super) fn result(&self) -> Result<BindResult, String> {
        match self.with.as_str() {
            "Permanent" => Ok(BindResult::Permanent(self.message.clone())),
            "Transient" => Ok(BindResult::Transient(self.message.clone())),
            "Unknown" => Ok(BindResult::Unknown(self.message.clone())),
            other => Err(format!("is \"{other}\"; allowed are Permanent, Transient and Unknown")),
        }
    }
}

/// What must hold. A gang is named by its PodGroup or by its workload (`Job/trainer`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expect {
    /// Gangs whose minimum is placed, with exactly the nodes used; an empty list is any.
    #[serde(default)]
    pub placed: BTreeMap<String, Vec<String>>,
    /// Pods and the node of each.
    #[serde(default)]
    pub pods: BTreeMap<String, String>,
    /// Pods that are in one domain.
    #[serde(default)]
    pub same_domain: Vec<SameDomain>,
    /// How many domains of a level are used.
    #[serde(default)]
    pub domains_used: Vec<DomainsUsed>,
    /// Gangs that wait, with the code of the blocking reason; empty is any.
    #[serde(default)]
    pub pending: BTreeMap<String, String>,
    /// Words that the sentence of a gang's blocking reason holds.
    #[serde(default)]
    pub sentence: BTreeMap<String, String>,
    /// Gangs whose pods have all ended.
    #[serde(default)]
    pub done: Vec<String>,
    /// Codes of a gang's warnings, all of them.
    #[serde(default)]
    pub warnings: BTreeMap<String, Vec<String>>,
    /// Pods of this scheduler that have a node.
    #[serde(default)]
    pub bound: Option<usize>,
    /// The same, by gang.
    #[serde(default)]
    pub bound_of: BTreeMap<String, u32>,
    /// Objects that were skipped.
    #[serde(default)]
    pub skipped: Option<usize>,
    /// Names of all pods that were evicted so far, in any order.
    #[serde(default)]
    pub evicted: Option<Vec<String>>,
}

/// Pods in one domain of a level.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SameDomain {
    /// All pods of a gang, or of its subgroup.
    #[serde(default)]
    pub gang: Option<String>,
    /// A leaf of that gang.
    #[serde(default)]
    pub subgroup: Option<String>,
    /// Or pods by name.
    #[serde(default)]
    pub pods: Vec<String>,
    /// The level's label.
    pub level: String,
    /// Which domain, when it matters.
    #[serde(default)]
    pub domain: Option<String>,
}

/// Domains that a gang uses.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DomainsUsed {
    /// The gang; absent is all pods of this scheduler.
    #[serde(default)]
    pub gang: Option<String>,
    /// The level's label.
    pub level: String,
    /// How many.
    pub count: usize,
}
