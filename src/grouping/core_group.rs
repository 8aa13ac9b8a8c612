//! Pods that name a PodGroup of `scheduling.k8s.io` in `spec.schedulingGroup`: that object decides the gang.
//!
//! Its minimum and topology key take the place of what the workload says of them; queue, priority and preemptibility stay
//! those of the workload unless the object names a priority class. A pod whose group is not there waits and says so.

use berth_api::CorePodGroupSpec;
use berth_api::pod_group::TopologyConstraint;
use serde::Deserialize;
use serde_json::Value;

use super::{Group, GroupProblem, ObjectId, ProblemCode};

/// API group of the object.
pub const API_GROUP: &str = "scheduling.k8s.io";

/// Versions that are read, the newest first: a server has one of them.
pub const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha2"];

/// Field of a pod that names its group.
const FIELD: &str = "spec.schedulingGroup.podGroupName";

/// Start of the name of such a gang; no workload's name begins like this.
const PREFIX: &str = "pg-group-";

/// The group that a pod names.
#[must_use]
pub fn named(pod: &Value) -> Option<&str> {
    pod.pointer("/spec/schedulingGroup/podGroupName").and_then(Value::as_str).filter(|name| !name.is_empty())
}

/// True for an object of this kind, in a version that is read.
#[must_use]
pub fn is_core_group(api_version: &str, kind: &str) -> bool {
    let version = api_version.strip_prefix(API_GROUP).and_then(|rest| rest.strip_prefix('/'));
    kind == "PodGroup" && version.is_some_and(|version| VERSIONS.contains(&version))
}

/// Makes the gang of a pod the one that its scheduling group describes. Gives the node label in whose domains the gang
/// must be, when the object names one; which topology that is a level of is not known here.
pub fn apply(group: &mut Group, name: &str, object: Option<&Value>) -> Option<String> {
    group.name = format!("{PREFIX}{name}");
    group.part = None;
    group.subgroup = None;
    group.auto_preferred.clear();
    group.auto_preferred_topology = None;
    group.spec.sub_groups.clear();
    group.spec.min_sub_group = None;
    group.spec.min_member = None;
    let Some(object) = object else {
        let pod = if group.workload.name.is_empty() { group.owner.display() } else { group.workload.display() };
        let allowed = "a PodGroup of scheduling.k8s.io that exists in the pod's namespace and may be read";
        group.problems.push(GroupProblem::text(ProblemCode::SchedulingGroupNotFound, pod, FIELD, name, allowed));
        return None;
    };
    group.owner = ObjectId::of(object);
    if group.workload.name.is_empty() || group.workload.kind == "Pod" {
        group.workload = group.owner.clone();
    }
    let spec = match CorePodGroupSpec::deserialize(&object["spec"]) {
        Ok(spec) => spec,
        Err(error) => {
            let problem = ProblemCode::InvalidField;
            group.problems.push(GroupProblem::text(problem, group.owner.display(), "spec", &error.to_string(), "a PodGroup"));
            return None;
        }
    };
    let minimum = spec.scheduling_policy.gang.map_or(1, |gang| gang.min_count);
    if minimum < 1 {
        let (key, value) = ("spec.schedulingPolicy.gang.minCount", minimum.to_string());
        let problem = ProblemCode::InvalidMinMember;
        group.problems.push(GroupProblem::text(problem, group.owner.display(), key, &value, "an integer from 1 on"));
    }
    group.spec.min_member = Some(minimum.max(1));
    if let Some(class) = spec.priority_class_name.filter(|class| !class.is_empty()) {
        group.spec.priority_class_name = Some(class);
    }
    if spec.parent_composite_pod_group_name.is_some_and(|parent| !parent.is_empty()) {
        group.unsupported.push("spec.parentCompositePodGroupName".to_owned());
    }
    let mut keys = spec.scheduling_constraints.unwrap_or_default().topology;
    if keys.len() > 1 {
        group.unsupported.push("spec.schedulingConstraints.topology[1]".to_owned());
    }
    keys.drain(..).next().map(|constraint| constraint.key)
}

/// Requires one domain of a level.
pub fn require(group: &mut Group, topology: String, label: String) {
    group.spec.topology_constraint = Some(TopologyConstraint {
        topology: Some(topology),
        required_topology_level: Some(label),
        preferred_topology_level: None,
    });
}
