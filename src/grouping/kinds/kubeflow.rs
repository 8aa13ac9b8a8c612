//! What the jobs of Kubeflow's training operator share: replica types, each with a template and a number of pods.
//!
//! The gang's minimum is `schedulingPolicy.minAvailable`, else the elastic minimum where the kind has one, else all pods. It
//! is met by the replica types in their order. Types become leaves (and may be cut into segments) where a kind always has
//! leaves, or else only where a segment size or a template's own level asks for it: otherwise the gang is flat, as in KAI.
//!
//! Labels and names of pods as the operator writes them (kubeflow/training-operator, `pkg/apis/kubeflow.org/v1`; for
//! `v2beta1` MPIJobs kubeflow/mpi-operator, `pkg/controller`): `<job>-<type>-<index>` and `training.kubeflow.org/…`.

use berth_api::keys;
use berth_api::pod_group::TopologyConstraint;
use serde_json::{Value, json};

use crate::grouping::defaults::Defaults;
use crate::grouping::expand::{Draft, ExpandProblem, Identity, Plan, Workload};
use crate::grouping::object::{Notes, Object, between, integer};
use crate::grouping::segments::{Place, Places, Segments, leaf, parent};
use crate::grouping::{Awaited, Group, GroupProblem, Input, ProblemCode};

/// The label with the operator's name.
pub(super) const OPERATOR_NAME: &str = "training.kubeflow.org/operator-name";
const ELASTIC_MINIMUM: &str = "/spec/elasticPolicy/minReplicas";
const POLICY_MINIMUM: &str = "/spec/runPolicy/schedulingPolicy/minAvailable";

/// The type whose pods the workload's own segment keys are about.
pub(super) const WORKER: &str = "Worker";

/// How one kind differs from the others.
pub(super) struct Framework {
    /// The kind, for messages.
    pub(super) kind: &'static str,
    /// Field of the spec with the replica types.
    pub(super) field: &'static str,
    /// Replica types, in the order in which they get ranks and their part of the minimum.
    pub(super) types: &'static [&'static str],
    /// The types whose pods carry `job-role: master`; in a job without any of them the first worker does.
    pub(super) masters: &'static [&'static str],
    /// Value of the operator's name label.
    pub(super) operator: &'static str,
    /// Whether every type is a leaf even if nothing asks for it.
    pub(super) has_leaves: bool,
}

/// One replica type of a job.
pub(super) struct Role<'a> {
    /// Its leaf: the type in lower case.
    name: String,
    replica_type: &'static str,
    n_pods: i32,
    template: Notes<'a>,
    /// The template itself.
    whole_template: &'a Value,
    segments: Option<Segments>,
    /// The rule that the template states for its own pods.
    constraint: Option<TopologyConstraint>,
    index_label: Option<&'a str>,
}

/// What of the job decides about the gang.
struct Shape<'a> {
    roles: Vec<Role<'a>>,
    minimum: i32,
}

/// The group of a pod of a job, when `late` pods of a type are created only after the others run.
pub(super) fn group(input: &Input<'_>, framework: &Framework, late: Option<&str>) -> Group {
    let top = input.top();
    let mut group = Defaults::new(input).with_segments().build();
    let shape = match shape(top, framework) {
        Ok(shape) => shape,
        Err(problem) => {
            // Pending until it is corrected; the minimum tells how many pods that concerns.
            let counts = framework.types.iter().map(|word| replicas(top.value(), framework, word));
            group.spec.min_member =
                counts.sum::<Result<i64, _>>().ok().and_then(|all| i32::try_from(all).ok()).map(|all| all.max(1));
            group.problems.push(problem);
            return group;
        }
    };
    let n_late = late.map_or(0, |late| shape.roles.iter().filter(|role| role.replica_type == late).map(|role| role.n_pods).sum());
    group.spec.min_member = Some(shape.minimum.saturating_sub(n_late).max(1));
    let is_flat = !framework.has_leaves
        && shape.roles.iter().all(|role| role.segments.is_none() && role.constraint.is_none());
    if !is_flat {
        add_leaves(&mut group, &shape, late);
    }
    await_late(&mut group, &shape, late, is_flat);
    match member(input, framework, &shape) {
        Ok((subgroup, index)) => {
            group.subgroup = Some(subgroup).filter(|_| !is_flat);
            group.index = Some(index);
        }
        Err(problem) => group.pod_problem = Some(problem),
    }
    group
}

fn shape<'a>(job: Object<'a>, framework: &Framework) -> Result<Shape<'a>, GroupProblem> {
    let value = job.value();
    let mut roles = Vec::new();
    for replica_type in framework.types {
        let Some((_, spec)) = replica_spec(value, framework, replica_type) else {
            continue;
        };
        let n_pods = i32::try_from(replicas(value, framework, replica_type)?).unwrap_or(i32::MAX);
        let template = Notes::at(spec, "/template/metadata/annotations");
        let places = places(job, replica_type, template);
        roles.push(Role {
            name: replica_type.to_ascii_lowercase(),
            replica_type,
            n_pods,
            template,
            whole_template: spec.get("template").unwrap_or(&Value::Null),
            segments: places.read(n_pods)?,
            constraint: None,
            index_label: places.index_label(),
        });
    }
    for role in &mut roles {
        role.constraint = template_constraint(job, role.template);
    }
    let all = roles.iter().fold(0_i32, |sum, role| sum.saturating_add(role.n_pods));
    let read = |pointer: &str| integer(value, pointer, (1, all), ProblemCode::InvalidMinMember);
    let minimum = match read(POLICY_MINIMUM)? {
        Some(minimum) => minimum,
        None => read(ELASTIC_MINIMUM)?.unwrap_or(all),
    };
    Ok(Shape { roles, minimum })
}

/// Where segments of a type are described: its template, and for the workers the job too.
fn places<'a>(job: Object<'a>, replica_type: &str, template: Notes<'a>) -> Places<'a> {
    let of_job = if replica_type == WORKER { job.annotations() } else { Notes::Typed(None) };
    Places([
        Place { object: format!("{}, {replica_type} template", job.display()), annotations: template },
        Place { object: job.display(), annotations: of_job },
    ])
}

/// The spec of a replica type, whose name the operator reads in any case.
pub(super) fn replica_spec<'a>(job: &'a Value, framework: &Framework, replica_type: &str) -> Option<(&'a String, &'a Value)> {
    let specs = job.pointer(&format!("/spec/{}", framework.field))?.as_object()?;
    specs.iter().find(|(name, _)| name.eq_ignore_ascii_case(replica_type))
}

/// The number of pods of a type; none when the job lacks it.
pub(super) fn replicas(job: &Value, framework: &Framework, replica_type: &str) -> Result<i64, GroupProblem> {
    let Some((name, _)) = replica_spec(job, framework, replica_type) else {
        return Ok(0);
    };
    let pointer = format!("/spec/{}/{name}/replicas", framework.field);
    Ok(integer(job, &pointer, (0, i32::MAX), ProblemCode::InvalidReplicas)?.map_or(1, i64::from))
}

fn template_constraint(job: Object<'_>, template: Notes<'_>) -> Option<TopologyConstraint> {
    let read = |key: &str| template.get(key).map(str::to_owned).filter(|value| !value.is_empty());
    let (required, preferred) = (read(keys::TOPOLOGY_REQUIRED), read(keys::TOPOLOGY_PREFERRED));
    if required.is_none() && preferred.is_none() {
        return None;
    }
    Some(TopologyConstraint {
        topology: read(keys::TOPOLOGY).or_else(|| job.annotations().get(keys::TOPOLOGY).map(str::to_owned)),
        required_topology_level: required,
        preferred_topology_level: preferred,
    })
}

fn add_leaves(group: &mut Group, shape: &Shape<'_>, late: Option<&str>) {
    let mut left = shape.minimum;
    for role in shape.roles.iter().filter(|role| 0 < role.n_pods) {
        // A minimum below the pods of the first types must not ask for more than itself.
        let part = role.n_pods.min(left);
        left = left.saturating_sub(part);
        let least = if late == Some(role.replica_type) { 0 } else { part };
        match &role.segments {
            None => group.spec.sub_groups.push(leaf(&role.name, None, least, role.constraint.clone())),
            Some(segments) => {
                let n_outer = segments.n_outer(role.n_pods);
                group.spec.sub_groups.push(parent(&role.name, n_outer, role.constraint.clone()));
                segments.add(group, Some(&role.name), &role.name, role.n_pods, least);
            }
        }
    }
}

/// The pods of the late type need room where the others go.
fn await_late(group: &mut Group, shape: &Shape<'_>, late: Option<&str>, is_flat: bool) {
    for role in shape.roles.iter().filter(|role| Some(role.replica_type) == late && 0 < role.n_pods) {
        let (leaf, n_pods) = if is_flat { (String::new(), shape.minimum) } else { (role.name.clone(), role.n_pods) };
        group.awaited.push(Awaited { leaf, n_pods, needed: true, template: Some(role.whole_template.clone()) });
    }
}

/// The replica type that a pod is of: by its type label, or else its role.
pub(super) fn type_of<'a>(input: &Input<'a>) -> Option<&'a str> {
    input.pod_label(keys::TRAINING_REPLICA_TYPE).or_else(|| input.pod_label(keys::TRAINING_JOB_ROLE))
}

/// Leaf and rank of the pod: the types in their order.
fn member(input: &Input<'_>, framework: &Framework, shape: &Shape<'_>) -> Result<(String, u32), GroupProblem> {
    let word = type_of(input);
    let is_own = |role: &&Role<'_>| word.is_some_and(|word| word.eq_ignore_ascii_case(&role.name));
    let Some(role) = shape.roles.iter().find(is_own) else {
        let types: Vec<_> = framework.types.iter().map(|word| word.to_ascii_lowercase()).collect();
        return Err(input.bad_label(keys::TRAINING_REPLICA_TYPE, word, &types.join(" or ")));
    };
    let key = role.index_label.unwrap_or(keys::TRAINING_REPLICA_INDEX);
    // A launcher has no index: there is one.
    let index = match input.pod_label(key) {
        None if role.n_pods == 1 => 0,
        _ => input.pod_index(key)?,
    };
    let Some(number) = i32::try_from(index).ok().filter(|number| *number < role.n_pods) else {
        // A leftover of a larger job: it must not take the place of a member.
        let allowed = format!("{}, by the replicas of the job", between(0, role.n_pods.saturating_sub(1)));
        return Err(input.bad_label(key, input.pod_label(key), &allowed));
    };
    let before = shape.roles.iter().take_while(|other| other.name != role.name).map(|other| other.n_pods);
    let rank = before.fold(number, i32::saturating_add);
    let leaf = role.segments.as_ref().map_or_else(|| role.name.clone(), |segments| segments.leaf(&role.name, number));
    Ok((leaf, rank.unsigned_abs()))
}

/// The pods that the operator creates, but for those of a type that comes later.
pub(super) fn expand(job: &Workload<'_>, plan: &mut Plan, framework: &Framework, late: Option<&str>) -> Result<(), ExpandProblem> {
    if job.is_true("/spec/runPolicy/suspend") {
        let message = format!("the {} is suspended, so its operator creates no pods", framework.kind);
        return Err(job.problem("/spec/runPolicy/suspend", message));
    }
    if framework.types.iter().all(|word| replica_spec(&job.object, framework, word).is_none()) {
        let types = framework.types.join(" nor ");
        return Err(job.problem(&format!("/spec/{}", framework.field), format!("neither {types} is there")));
    }
    let has_master = framework.masters.iter().any(|word| replica_spec(&job.object, framework, word).is_some());
    for replica_type in framework.types.iter().filter(|word| late != Some(**word)) {
        let Some((name, _)) = replica_spec(&job.object, framework, replica_type) else {
            continue;
        };
        let base = format!("/spec/{}/{name}", framework.field);
        let word = replica_type.to_ascii_lowercase();
        let n_pods = i32::try_from(replicas(&job.object, framework, replica_type)?).unwrap_or(i32::MAX);
        for index in 0..job.limit(&format!("{base}/replicas"), n_pods)? {
            let pod_name = format!("{}-{word}-{index}", job.name());
            let mut labels = json!({
                keys::TRAINING_REPLICA_TYPE: word, keys::TRAINING_REPLICA_INDEX: index.to_string(),
                keys::TRAINING_JOB_NAME: job.name(), OPERATOR_NAME: framework.operator,
            });
            let leads = if has_master { framework.masters.contains(replica_type) } else { *replica_type == WORKER && index == 0 };
            if leads {
                labels[keys::TRAINING_JOB_ROLE] = json!("master");
            }
            let pod = job.pod(&format!("{base}/template"), &pod_name, &job.object)?.labels(&labels).finish();
            plan.pods.push(Draft { pod, identity: Identity::Name });
        }
    }
    Ok(())
}
