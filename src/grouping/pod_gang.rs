//! Grove's PodGang (`scheduler.grove.io`): what its operator asks of a scheduler for one gang of a PodCliqueSet.
//!
//! The pod's label `grove.io/podgang` names it. What it says counts before what the set says: the priority class, the
//! topology, required and preferred levels (node labels) of the gang, of groups of PodCliques and of single ones, and
//! which PodCliques there are with how many pods at least. What it does not say stays as the set has it.
//! `reuseReservationRef` asks for the room of an earlier PodGang; its API lets a scheduler leave that out, and Berth does:
//! it reserves nothing. Fields: ai-dynamo/grove, `docs/api-reference/scheduler-api`.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::keys;
use berth_api::pod_group::{SubGroup, TopologyConstraint};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::object::{Object, integer};
use super::segments::{leaf, parent};
use super::{Group, GroupProblem, GroupingContext, ProblemCode};

/// API group of the object.
pub const API_GROUP: &str = "scheduler.grove.io";

/// Version that is read; there is no other.
pub const VERSION: &str = "v1alpha1";

/// Kind of the object.
pub const KIND: &str = "PodGang";

/// True for an object of this kind.
#[must_use]
pub fn is_pod_gang(object: &Value) -> bool {
    let id = Object::Owner(object).id();
    (id.group(), id.kind.as_str()) == (API_GROUP, KIND)
}

/// The PodGang that a pod names.
#[must_use]
pub fn named(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.as_ref()?.get(keys::GROVE_POD_GANG).map(String::as_str).filter(|name| !name.is_empty())
}

/// Namespace and name, as PodGangs are looked up.
#[must_use]
pub fn key(namespace: &str, name: &str) -> (String, String) {
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    (namespace.to_owned(), name.to_owned())
}

/// The PodClique of a pod that the PodGang lists by name.
pub(super) fn clique_of(gang: &Value, pod: &str) -> Option<String> {
    let lists = |group: &&Value| {
        let pods = group.get("podReferences").and_then(Value::as_array);
        pods.into_iter().flatten().any(|reference| reference.get("name").and_then(Value::as_str) == Some(pod))
    };
    listed(gang, "/spec/podgroups").iter().find(lists).and_then(name_of).map(str::to_owned)
}

/// Makes the gang that the set describes the one that its PodGang describes.
pub(super) fn apply(group: &mut Group, gang: &Value, context: &GroupingContext<'_>) -> Result<(), GroupProblem> {
    let annotations = Object::Owner(gang).annotations();
    let topology = annotations.get(keys::GROVE_TOPOLOGY).or_else(|| annotations.get(keys::TOPOLOGY));
    priority_class(group, Object::Owner(gang), "/spec/priorityClassName", context);
    let of_set = group.spec.topology_constraint.take();
    group.spec.topology_constraint = over(of_set, gang.get("spec"), topology);
    if !listed(gang, "/spec/podgroups").is_empty() {
        let known = std::mem::take(&mut group.spec.sub_groups);
        group.spec.sub_groups = subgroups(known, gang, topology)?;
    }
    Ok(())
}

/// The class that a field names, when it exists.
pub(super) fn priority_class(group: &mut Group, object: Object<'_>, field: &str, context: &GroupingContext<'_>) {
    let class = object.value().pointer(field).and_then(Value::as_str).filter(|class| !class.is_empty());
    let Some(class) = class else { return };
    if context.priority_class(class).is_some() {
        group.spec.priority_class_name = Some(class.to_owned());
        return;
    }
    let (code, field) = (ProblemCode::UnknownPriorityClass, super::object::field(field));
    let allowed = "the name of a PriorityClass that exists";
    group.warnings.push(GroupProblem::text(code, object.display(), &field, class, allowed));
}

/// The PodCliques of the gang below the groups that hold several of them; each keeps what the set says of it.
fn subgroups(known: Vec<SubGroup>, gang: &Value, topology: Option<&str>) -> Result<Vec<SubGroup>, GroupProblem> {
    let known: BTreeMap<String, SubGroup> = known.into_iter().map(|subgroup| (subgroup.name.clone(), subgroup)).collect();
    let configs = listed(gang, "/spec/topologyConstraintGroupConfigs");
    let mut config_of: BTreeMap<&str, &str> = BTreeMap::new();
    let mut constraints: BTreeMap<&str, Option<TopologyConstraint>> = BTreeMap::new();
    for config in configs {
        let Some(name) = name_of(config) else { continue };
        let of_set = known.get(name).and_then(|holder| holder.topology_constraint.clone());
        constraints.insert(name, over(of_set, Some(config), topology));
        let members = config.get("podGroupNames").and_then(Value::as_array);
        for member in members.into_iter().flatten().filter_map(Value::as_str) {
            config_of.entry(member).or_insert(name);
        }
    }
    let mut leaves = Vec::new();
    for (position, clique) in listed(gang, "/spec/podgroups").iter().enumerate() {
        let name = name_of(clique).unwrap_or_default();
        let of_set = known.get(name);
        let field = format!("/spec/podgroups/{position}/minReplicas");
        let least = integer(gang, &field, (1, i32::MAX), ProblemCode::InvalidMinMember)?;
        let least = least.or_else(|| of_set?.min_member).unwrap_or(1);
        let holder = config_of.get(name).copied().or_else(|| of_set?.parent.as_deref());
        let rule = over(of_set.and_then(|leaf| leaf.topology_constraint.clone()), Some(clique), topology);
        leaves.push(leaf(name, holder, least, rule));
    }
    let mut n_below: BTreeMap<String, i32> = BTreeMap::new();
    for holder in leaves.iter().filter_map(|leaf| leaf.parent.clone()) {
        let n = n_below.entry(holder).or_default();
        *n = n.saturating_add(1);
    }
    let (mut all, mut told) = (Vec::new(), BTreeSet::new());
    for leaf in leaves {
        if let Some(holder) = leaf.parent.clone().filter(|holder| told.insert(holder.clone())) {
            let of_set = || over(known.get(&holder).and_then(|holder| holder.topology_constraint.clone()), None, topology);
            let rule = constraints.remove(holder.as_str()).unwrap_or_else(of_set);
            all.push(parent(&holder, n_below.get(&holder).copied().unwrap_or(1), rule));
        }
        all.push(leaf);
    }
    Ok(all)
}

/// A constraint of the set with what a part of the PodGang says over it.
fn over(of_set: Option<TopologyConstraint>, part: Option<&Value>, topology: Option<&str>) -> Option<TopologyConstraint> {
    let level = |kind: &str| {
        let found = part?.pointer(&format!("/topologyConstraint/packConstraint/{kind}"));
        found.and_then(Value::as_str).filter(|level| !level.is_empty()).map(str::to_owned)
    };
    let (required, preferred) = (level("required"), level("preferred"));
    if of_set.is_none() && required.is_none() && preferred.is_none() {
        return None;
    }
    let of_set = of_set.unwrap_or_default();
    Some(TopologyConstraint {
        topology: topology.map(str::to_owned).or(of_set.topology),
        required_topology_level: required.or(of_set.required_topology_level),
        preferred_topology_level: preferred.or(of_set.preferred_topology_level),
    })
}

fn listed<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn name_of(object: &Value) -> Option<&str> {
    object.get("name").and_then(Value::as_str)
}
