//! Kubernetes objects become engine facts here, and nowhere else.
//!
//! Guarantees: arithmetic is checked, nothing is guessed, and every refusal names the object, the field, the value and
//! what is allowed. What is recognised but not built yet lands in [`ShapeFacts::unsupported`], so that it is never
//! placed as if it were absent. Knows nothing about files, a client or grouping.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::duration::parse_duration_millis;
use berth_api::quantity::{parse_millis, parse_millis_floor, parse_units, parse_units_floor};
use berth_api::{Amount, Bound, Queue, Topology};
use berth_engine::facts::{
    Amounts, LevelFacts, Millis, NodeFacts, PodFacts, PodPhase, Problem, QueueAmount, QueueFacts, Taint, TaintEffect,
    TopologyFacts,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::grouping::kind_defaults::KindDefaults;
use crate::grouping::leaders::leads;
use crate::grouping::{self, External, Group, GroupingContext};

pub mod automatic;
pub mod budget;
mod gang;
mod shape;
pub mod storage;

pub use gang::{
    DERIVED, derived_gang_facts, gang_facts, has_derived_constraint, is_derived, unread_owner_fact, write_promise,
};
pub use shape::shape_facts;

/// The label that may only be the last level of a topology.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Annotation of a Topology that makes it the default.
pub const DEFAULT_TOPOLOGY: &str = "berth.scheduler/default";

/// Annotation of a pod that names its PodGroup.
pub const POD_GROUP_NAME: &str = "pod-group-name";

/// Label of a pod that names its leaf subgroup.
pub const SUBGROUP_NAME: &str = "kai.scheduler/subgroup-name";

/// Annotation of a bound pod that names the decision.
pub const DECISION: &str = "berth.scheduler/decision";

/// How long the end of a pod may take that does not say so: the API server's default.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// An object that can't be used, and why.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
#[error("{field}{}: {allowed}", shown(.value))]
pub struct ConvertError {
    /// The object, such as `v1/Node a`.
    pub object: String,
    /// The field at fault, as a path.
    pub field: String,
    /// The value found; empty when it is missing.
    pub value: String,
    /// What is wrong with it and what is allowed.
    pub allowed: String,
}

fn shown(value: &str) -> String {
    if value.is_empty() {
        String::new()
    } else {
        format!(" is \"{value}\"")
    }
}

/// Result of a conversion.
pub type Result<T> = std::result::Result<T, ConvertError>;

/// A field that is wrong, before the object is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    field: String,
    value: String,
    allowed: String,
}

impl FieldError {
    pub(crate) fn new(field: impl Into<String>, value: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            value: value.into(),
            allowed: allowed.into(),
        }
    }

    fn of(self, object: String) -> ConvertError {
        ConvertError {
            object,
            field: self.field,
            value: self.value,
            allowed: self.allowed,
        }
    }
}

/// Which gang a pod belongs to, as grouping found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Name of the PodGroup, in the pod's namespace.
    pub gang: Option<String>,
    /// Leaf subgroup.
    pub subgroup: Option<String>,
    /// Rank within the gang.
    pub index: Option<u32>,
    /// Goes first within its gang.
    pub leader: bool,
    /// Keys that grouping recognised and that are not supported.
    pub unsupported: Vec<String>,
    /// Mistakes of the pod alone.
    pub problems: Vec<Problem>,
}

impl Membership {
    /// As grouping derived it from the pod's workload.
    #[must_use]
    pub fn of_group(group: &Group) -> Self {
        Self {
            gang: Some(group.name.clone()),
            subgroup: group.subgroup.clone(),
            index: group.index,
            leader: group.leader,
            unsupported: group.unsupported.clone(),
            problems: group.pod_problem.iter().map(gang::problem_fact).collect(),
        }
    }

    /// In a group that somebody else keeps.
    #[must_use]
    pub fn of_external(external: External) -> Self {
        Self {
            gang: external.name,
            subgroup: external.subgroup,
            index: external.index,
            leader: external.leader,
            unsupported: external.unsupported,
            problems: Vec::new(),
        }
    }

    /// What the pod itself says: the annotation of its PodGroup and the label of its subgroup.
    #[must_use]
    pub fn written_on(pod: &Pod) -> Self {
        let annotation = |key: &str| pod.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        let label = |key: &str| pod.metadata.labels.as_ref().and_then(|all| all.get(key)).cloned();
        let index = [
            "batch.kubernetes.io/job-completion-index",
            "apps.kubernetes.io/pod-index",
            "training.kubeflow.org/replica-index",
        ]
        .iter()
        .find_map(|key| label(key).or_else(|| annotation(key)))
        .and_then(|text| text.parse().ok());
        Self {
            gang: annotation(POD_GROUP_NAME),
            subgroup: label(SUBGROUP_NAME),
            index,
            leader: leads(pod),
            ..Self::default()
        }
    }
}

/// Name of an object in messages: `v1/Node a`, `v1/Pod default/p`.
#[must_use]
pub fn object_name(api_version: &str, kind: &str, meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or("(no name)");
    match meta.namespace.as_deref() {
        Some(namespace) if !namespace.is_empty() => format!("{api_version}/{kind} {namespace}/{name}"),
        _ => format!("{api_version}/{kind} {name}"),
    }
}

/// The UID, or for a manifest without one, the identity that takes its place.
#[must_use]
pub fn uid_of(kind: &str, meta: &ObjectMeta) -> String {
    match meta.uid.as_deref() {
        Some(uid) if !uid.is_empty() => uid.to_owned(),
        _ => format!(
            "{kind}/{}/{}",
            meta.namespace.as_deref().unwrap_or(""),
            meta.name.as_deref().unwrap_or("")
        ),
    }
}

/// Creation time in milliseconds; a manifest without one is older than everything.
#[must_use]
pub fn created_millis(meta: &ObjectMeta) -> Millis {
    meta.creation_timestamp
        .as_ref()
        .map_or(0, |time| time.0.as_millisecond())
}

/// Facts of a node.
pub fn node_facts(node: &Node) -> Result<NodeFacts> {
    node_fields(node).map_err(|error| error.of(object_name("v1", "Node", &node.metadata)))
}

fn node_fields(node: &Node) -> std::result::Result<NodeFacts, FieldError> {
    let name = required_name(&node.metadata)?;
    let Some(status) = &node.status else {
        return Err(FieldError::new(
            "status",
            "",
            "missing; a node needs status.allocatable",
        ));
    };
    let Some(allocatable) = &status.allocatable else {
        return Err(FieldError::new(
            "status.allocatable",
            "",
            "missing; allowed is a map such as {cpu: 8, memory: 32Gi, pods: 110}",
        ));
    };
    let spec = node.spec.clone().unwrap_or_default();
    let mut taints = Vec::new();
    for (i, taint) in spec.taints.iter().flatten().enumerate() {
        let effect = taint_effect(&format!("spec.taints[{i}].effect"), &taint.effect)?;
        taints.push(Taint {
            key: taint.key.clone(),
            value: taint.value.clone().unwrap_or_default(),
            effect,
        });
    }
    let ready = status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    Ok(NodeFacts {
        uid: uid_of("Node", &node.metadata),
        name,
        labels: node.metadata.labels.clone().unwrap_or_default(),
        taints,
        unschedulable: spec.unschedulable.unwrap_or(false),
        ready,
        allocatable: amounts("status.allocatable", allocatable, Round::Down)?,
    })
}

pub(crate) fn taint_effect(field: &str, text: &str) -> std::result::Result<TaintEffect, FieldError> {
    match text {
        "NoSchedule" => Ok(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Ok(TaintEffect::PreferNoSchedule),
        "NoExecute" => Ok(TaintEffect::NoExecute),
        _ => Err(FieldError::new(
            field,
            text,
            "allowed are NoSchedule, PreferNoSchedule and NoExecute",
        )),
    }
}

/// How a quantity finer than the unit is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// Up: requests are never understated.
    Up,
    /// Down: capacity is never overstated.
    Down,
}

/// Quantities in the engine's units. Zero counts as absent.
pub(crate) fn amounts(
    field: &str,
    list: &BTreeMap<String, Quantity>,
    round: Round,
) -> std::result::Result<Amounts, FieldError> {
    let mut amounts = Amounts::new();
    for (name, quantity) in list {
        let text = quantity.0.as_str();
        let parsed = match (name.as_str(), round) {
            ("cpu", Round::Up) => parse_millis(text),
            ("cpu", Round::Down) => parse_millis_floor(text),
            (_, Round::Up) => parse_units(text),
            (_, Round::Down) => parse_units_floor(text),
        };
        let field = || format!("{field}.{name}");
        let amount = parsed.map_err(|error| FieldError::new(field(), text, error.to_string()))?;
        if amount < 0 {
            return Err(FieldError::new(field(), text, "negative; allowed is 0 or more"));
        }
        if amount > 0 {
            amounts.insert(name.clone(), amount);
        }
    }
    Ok(amounts)
}

/// Facts of a pod. `scheduler` is the name that makes a pod ours.
pub fn pod_facts(pod: &Pod, membership: &Membership, scheduler: &str) -> Result<PodFacts> {
    pod_fields(pod, membership, scheduler).map_err(|error| error.of(object_name("v1", "Pod", &pod.metadata)))
}

fn pod_fields(pod: &Pod, membership: &Membership, scheduler: &str) -> std::result::Result<PodFacts, FieldError> {
    let name = required_name(&pod.metadata)?;
    let Some(spec) = &pod.spec else {
        return Err(FieldError::new("spec", "", "missing; a pod needs spec.containers"));
    };
    let annotations = pod.metadata.annotations.clone().unwrap_or_default();
    let phase = match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
        None | Some("" | "Pending") => PodPhase::Pending,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some(_) => PodPhase::Running,
    };
    let node = spec.node_name.clone().filter(|node| !node.is_empty());
    let resized = shape::resized(pod);
    let mut shape = shape::shape_fields(resized.as_ref().unwrap_or(spec), &pod.metadata)?;
    shape.unsupported.extend(membership.unsupported.iter().cloned());
    let (claims, owned_claims) = storage::claims_of(pod);
    Ok(PodFacts {
        uid: uid_of("Pod", &pod.metadata),
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name,
        created: created_millis(&pod.metadata),
        ours: spec.scheduler_name.as_deref() == Some(scheduler)
            && !annotations.contains_key("kubernetes.io/config.mirror"),
        gang: membership.gang.clone(),
        subgroup: membership.subgroup.clone(),
        index: membership.index,
        leader: membership.leader,
        shape,
        labels: pod.metadata.labels.clone().unwrap_or_default(),
        claims,
        owned_claims,
        nominated: (pod.status.as_ref())
            .and_then(|status| status.nominated_node_name.clone())
            .filter(|name| !name.is_empty()),
        node,
        phase,
        terminating: pod.metadata.deletion_timestamp.is_some(),
        gone_by: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0.as_millisecond()),
        started: (pod.status.as_ref()).and_then(|status| status.start_time.as_ref()).map(|time| time.0.as_millisecond()),
        grace_millis: spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE_SECONDS).max(0).saturating_mul(1_000),
        never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
        gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
        decision: annotations.get(DECISION).cloned(),
        problems: membership.problems.clone(),
    })
}

fn required_name(meta: &ObjectMeta) -> std::result::Result<String, FieldError> {
    match meta.name.as_deref() {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(FieldError::new(
            "metadata.name",
            "",
            "missing; every object needs a name",
        )),
    }
}

/// Facts of a topology.
pub fn topology_facts(topology: &Topology) -> Result<TopologyFacts> {
    topology_fields(topology)
        .map_err(|error| error.of(object_name("kai.scheduler/v1alpha1", "Topology", &topology.metadata)))
}

fn topology_fields(topology: &Topology) -> std::result::Result<TopologyFacts, FieldError> {
    let name = required_name(&topology.metadata)?;
    let levels = &topology.spec.levels;
    if levels.is_empty() || levels.len() > berth_api::topology::MAX_LEVELS {
        return Err(FieldError::new(
            "spec.levels",
            levels.len().to_string(),
            "allowed are 1 to 16 levels",
        ));
    }
    let mut seen = BTreeSet::new();
    for (i, level) in levels.iter().enumerate() {
        let label = level.node_label.as_str();
        let field = format!("spec.levels[{i}].nodeLabel");
        if label.is_empty() {
            return Err(FieldError::new(field, "", "empty; allowed is the key of a node label"));
        }
        if !seen.insert(label) {
            return Err(FieldError::new(
                field,
                label,
                "appears twice; every level needs a label of its own",
            ));
        }
        if label == HOSTNAME_LABEL && i + 1 < levels.len() {
            return Err(FieldError::new(field, label, "allowed as the last level only"));
        }
    }
    for (i, level) in levels.iter().enumerate() {
        if let Some(alias) = level.alias.as_deref()
            && !seen.insert(alias)
        {
            let field = format!("spec.levels[{i}].alias");
            return Err(FieldError::new(
                field,
                alias,
                "names another level already; every alias needs to be unique",
            ));
        }
    }
    let annotations = topology.metadata.annotations.as_ref();
    Ok(TopologyFacts {
        uid: uid_of("Topology", &topology.metadata),
        name,
        levels: levels
            .iter()
            .map(|level| LevelFacts {
                label: level.node_label.clone(),
                alias: level.alias.clone(),
            })
            .collect(),
        default: annotations
            .and_then(|all| all.get(DEFAULT_TOPOLOGY))
            .is_some_and(|value| value == "true"),
    })
}

/// Facts of a queue.
pub fn queue_facts(queue: &Queue) -> Result<QueueFacts> {
    queue_fields(queue).map_err(|error| error.of(object_name("scheduling.run.ai/v2", "Queue", &queue.metadata)))
}

fn queue_fields(queue: &Queue) -> std::result::Result<QueueFacts, FieldError> {
    let name = required_name(&queue.metadata)?;
    let Some(resources) = &queue.spec.resources else {
        return Err(FieldError::new(
            "spec.resources",
            "",
            "missing; -1 as a limit means unlimited",
        ));
    };
    let amount = |resource: &str, value: &Option<berth_api::queue::QueueResource>| {
        let value = value.clone().unwrap_or_default();
        let bound = |field: &str, amount: Option<Amount>| match amount.map(|amount| (amount.to_bound(), amount)) {
            None => Ok(Some(0)),
            Some((Ok(Bound::Unlimited), _)) => Ok(None),
            Some((Ok(Bound::Millis(millis)), _)) => Ok(Some(millis)),
            Some((Err(error), amount)) => Err(FieldError::new(
                format!("spec.resources.{resource}.{field}"),
                amount.to_string(),
                error.to_string(),
            )),
        };
        let weight = match value.over_quota_weight {
            None => 0,
            Some(amount) => amount.to_millis().map_err(|error| {
                FieldError::new(
                    format!("spec.resources.{resource}.overQuotaWeight"),
                    amount.to_string(),
                    error.to_string(),
                )
            })?,
        };
        Ok(QueueAmount {
            quota_millis: bound("quota", value.quota)?,
            limit_millis: bound("limit", value.limit)?,
            weight_millis: weight,
        })
    };
    let runtime = |field: &str, written: &Option<String>| {
        let Some(text) = written.as_ref().filter(|text| !text.is_empty()) else { return Ok(None) };
        let millis = parse_duration_millis(text).map_err(|error| FieldError::new(format!("spec.{field}"), text, error.to_string()))?;
        Ok(Some(millis.max(0)))
    };
    Ok(QueueFacts {
        uid: uid_of("Queue", &queue.metadata),
        name,
        parent: queue.spec.parent_queue.clone().filter(|parent| !parent.is_empty()),
        priority: i64::from(queue.spec.priority.unwrap_or(berth_api::queue::DEFAULT_PRIORITY)),
        created: created_millis(&queue.metadata),
        preempt_min_runtime: runtime("preemptMinRuntime", &queue.spec.preempt_min_runtime)?,
        reclaim_min_runtime: runtime("reclaimMinRuntime", &queue.spec.reclaim_min_runtime)?,
        gpu: amount("gpu", &resources.gpu)?,
        cpu: amount("cpu", &resources.cpu)?,
        memory: amount("memory", &resources.memory)?,
    })
}

/// Priority values by class name, and how workloads are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priorities {
    classes: BTreeMap<String, i32>,
    global_default: Option<String>,
    compat_kai: bool,
    kind_defaults: KindDefaults,
}

impl Priorities {
    /// The classes that an installation brings and that are always there.
    #[must_use]
    pub fn shipped() -> Self {
        let classes = grouping::INSTALLED_PRIORITY_CLASSES
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect();
        Self {
            classes,
            global_default: None,
            compat_kai: false,
            kind_defaults: KindDefaults::default(),
        }
    }

    /// What workloads of a kind have that name no class.
    pub fn set_kind_defaults(&mut self, kind_defaults: KindDefaults) {
        self.kind_defaults = kind_defaults;
    }

    /// The same, with workloads read as KAI Scheduler reads them.
    #[must_use]
    pub fn compat_kai(self, compat_kai: bool) -> Self {
        Self { compat_kai, ..self }
    }

    /// Adds or replaces a class.
    pub fn insert(&mut self, class: &PriorityClass) {
        let Some(name) = &class.metadata.name else { return };
        if class.global_default == Some(true) {
            self.global_default = Some(name.clone());
        }
        self.classes.insert(name.clone(), class.value);
    }

    /// Takes a class out; one that every installation has gets its usual value back.
    pub fn remove(&mut self, name: &str) {
        let shipped = grouping::INSTALLED_PRIORITY_CLASSES.iter().find(|(shipped, _)| *shipped == name);
        match shipped {
            Some((_, value)) => self.classes.insert(name.to_owned(), *value),
            None => self.classes.remove(name),
        };
        if self.global_default.as_deref() == Some(name) {
            self.global_default = None;
        }
    }

    /// What grouping must know of them.
    #[must_use]
    pub fn context(&self) -> GroupingContext<'_> {
        GroupingContext {
            priority_classes: &self.classes,
            global_default: self.global_default.as_deref(),
            compat_kai: self.compat_kai,
            kind_defaults: &self.kind_defaults,
        }
    }
}

#[cfg(test)]
#[path = "convert/tests.rs"]
mod tests;
