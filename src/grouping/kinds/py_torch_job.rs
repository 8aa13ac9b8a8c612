//! `kubeflow.org/v1` PyTorchJob: masters and workers start together; workers may be cut into segments.
//!
//! The minimum counts masters and workers. Segments of size S are leaves `worker-<i>` of `worker`; the first ones carry the
//! workers' minimum, the last of those only the rest of it, and the others none: those are the elastic part.

use berth_api::keys;
use berth_api::pod_group::TopologyConstraint;
use serde_json::{Value, json};

use crate::grouping::defaults::Defaults;
use crate::grouping::expand::{Draft, ExpandProblem, Identity, Plan, Workload};
use crate::grouping::object::{Notes, Object, between, integer};
use crate::grouping::segments::{Place, Places, count, leaf, minimum, parent, prefer_lowest};
use crate::grouping::{Group, GroupProblem, Input, ProblemCode};

const OPERATOR_NAME: &str = "training.kubeflow.org/operator-name";

const MASTER: &str = "master";
const WORKER: &str = "worker";
const ELASTIC_MINIMUM: &str = "/spec/elasticPolicy/minReplicas";
const POLICY_MINIMUM: &str = "/spec/runPolicy/schedulingPolicy/minAvailable";

/// What of the job decides about the gang.
struct Shape {
    n_masters: i32,
    n_workers: i32,
    /// Pods that must start together.
    minimum: i32,
    segment_size: Option<i32>,
}

/// The group of a PyTorchJob's pod.
pub fn group(input: &Input<'_>) -> Group {
    let top = input.top();
    let job = top.value();
    let mut group = Defaults::new(input).with_segments().build();
    match shape(top) {
        Ok(shape) => {
            add_subgroups(&mut group, top, &shape);
            match member(input, &shape) {
                Ok((subgroup, index)) => (group.subgroup, group.index) = (Some(subgroup), Some(index)),
                Err(problem) => group.pod_problem = Some(problem),
            }
        }
        Err(problem) => {
            // Pending until it is corrected; the minimum tells how many pods that concerns.
            group.spec.min_member = replicas(job, "Master").ok().zip(replicas(job, "Worker").ok()).map(sum);
            group.problems.push(problem);
        }
    }
    group
}

fn sum((masters, workers): (i32, i32)) -> i32 {
    masters.saturating_add(workers)
}

fn shape(job: Object<'_>) -> Result<Shape, GroupProblem> {
    let value = job.value();
    let (n_masters, n_workers) = (replicas(value, "Master")?, replicas(value, "Worker")?);
    let all = sum((n_masters, n_workers));
    let read = |pointer: &str| integer(value, pointer, (1, all), ProblemCode::InvalidMinMember);
    let minimum = match read(POLICY_MINIMUM)? {
        Some(minimum) => minimum,
        None => read(ELASTIC_MINIMUM)?.unwrap_or(all),
    };
    let segment_size = places(job).size(n_workers)?;
    Ok(Shape { n_masters, n_workers, minimum, segment_size })
}

/// Where segments are described: the workers' template, then the job.
fn places<'a>(job: Object<'a>) -> Places<'a> {
    Places([
        Place { object: format!("{}, Worker template", job.display()), annotations: template(job.value(), "Worker") },
        Place { object: job.display(), annotations: job.annotations() },
    ])
}

/// The spec of a replica type, whose name the operator reads in any case.
fn replica_spec<'a>(job: &'a Value, replica_type: &str) -> Option<(&'a String, &'a Value)> {
    let specs = job.pointer("/spec/pytorchReplicaSpecs")?.as_object()?;
    specs.iter().find(|(name, _)| name.eq_ignore_ascii_case(replica_type))
}

fn replicas(job: &Value, replica_type: &str) -> Result<i32, GroupProblem> {
    let Some((name, _)) = replica_spec(job, replica_type) else {
        return Ok(0);
    };
    let pointer = format!("/spec/pytorchReplicaSpecs/{name}/replicas");
    Ok(integer(job, &pointer, (0, i32::MAX), ProblemCode::InvalidReplicas)?.unwrap_or(1))
}

fn template<'a>(job: &'a Value, replica_type: &str) -> Notes<'a> {
    let spec = replica_spec(job, replica_type).map(|(_, spec)| spec);
    Notes::at(spec.unwrap_or(&Value::Null), "/template/metadata/annotations")
}

/// The rule that a replica type's template states for its own pods.
fn template_constraint(job: Object<'_>, replica_type: &str) -> Option<TopologyConstraint> {
    let notes = template(job.value(), replica_type);
    let read = |key: &str| notes.get(key).map(str::to_owned).filter(|value| !value.is_empty());
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

fn add_subgroups(group: &mut Group, job: Object<'_>, shape: &Shape) {
    group.spec.min_member = Some(shape.minimum);
    if 0 < shape.n_masters {
        let constraint = template_constraint(job, MASTER);
        // A minimum below the number of masters must not ask for more than itself.
        group.spec.sub_groups.push(leaf(MASTER, None, shape.n_masters.min(shape.minimum), constraint));
    }
    if shape.n_workers == 0 {
        return;
    }
    let workers_minimum = shape.minimum.saturating_sub(shape.n_masters).max(0);
    let constraint = template_constraint(job, WORKER);
    let Some(size) = shape.segment_size else {
        group.spec.sub_groups.push(leaf(WORKER, None, workers_minimum, constraint));
        return;
    };
    let n_segments = count(shape.n_workers, size);
    group.spec.sub_groups.push(parent(WORKER, n_segments, constraint));
    let places = places(job);
    let constraint = places.constraint();
    for segment_idx in 0..n_segments {
        let name = segment_name(segment_idx);
        if constraint.is_none() {
            prefer_lowest(group, &name, places.topology());
        }
        let least = minimum(workers_minimum, size, segment_idx);
        group.spec.sub_groups.push(leaf(&name, Some(WORKER), least, constraint.clone()));
    }
}

fn segment_name(segment_idx: i32) -> String {
    format!("{WORKER}-{segment_idx}")
}

/// Leaf and rank of the pod: masters first, then workers.
fn member(input: &Input<'_>, shape: &Shape) -> Result<(String, u32), GroupProblem> {
    let replica_type = input.pod_label(keys::TRAINING_REPLICA_TYPE);
    let index = input.pod_index(keys::TRAINING_REPLICA_INDEX)?;
    let n_of_type = match replica_type {
        Some(word) if word.eq_ignore_ascii_case(MASTER) => shape.n_masters,
        Some(word) if word.eq_ignore_ascii_case(WORKER) => shape.n_workers,
        other => return Err(input.bad_label(keys::TRAINING_REPLICA_TYPE, other, "master or worker")),
    };
    let Some(number) = i32::try_from(index).ok().filter(|number| *number < n_of_type) else {
        // A leftover of a larger job: it must not take the place of a member.
        let allowed = format!("{}, by the replicas of the job", between(0, n_of_type.saturating_sub(1)));
        return Err(input.bad_label(
            keys::TRAINING_REPLICA_INDEX,
            input.pod_label(keys::TRAINING_REPLICA_INDEX),
            &allowed,
        ));
    };
    if replica_type.is_some_and(|word| word.eq_ignore_ascii_case(MASTER)) {
        return Ok((MASTER.to_owned(), index));
    }
    let leaf = shape.segment_size.map_or_else(|| WORKER.to_owned(), |size| segment_name(number / size));
    Ok((leaf, index.saturating_add(shape.n_masters.unsigned_abs())))
}

/// The pods that the training operator creates.
pub fn expand(job: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    if job.is_true("/spec/runPolicy/suspend") {
        return Err(
            job.problem("/spec/runPolicy/suspend", "the PyTorchJob is suspended, so its operator creates no pods")
        );
    }
    for replica_type in ["Master", "Worker"] {
        let Some((name, _)) = replica_spec(&job.object, replica_type) else {
            continue;
        };
        let base = format!("/spec/pytorchReplicaSpecs/{name}");
        let word = replica_type.to_ascii_lowercase();
        let n_pods = job.limit(&format!("{base}/replicas"), replicas(&job.object, replica_type)?)?;
        for index in 0..n_pods {
            let pod_name = format!("{}-{word}-{index}", job.name());
            let mut labels = json!({
                keys::TRAINING_REPLICA_TYPE: word, keys::TRAINING_REPLICA_INDEX: index.to_string(), keys::TRAINING_JOB_NAME: job.name(),
                OPERATOR_NAME: "pytorchjob-controller",
            });
            if word == MASTER {
                labels[keys::TRAINING_JOB_ROLE] = json!(MASTER);
            }
            let pod = job.pod(&format!("{base}/template"), &pod_name, &job.object)?.labels(&labels).finish();
            plan.pods.push(Draft { pod, identity: Identity::Name });
        }
    }
    if replica_spec(&job.object, MASTER).or_else(|| replica_spec(&job.object, WORKER)).is_none() {
        return Err(job.problem("/spec/pytorchReplicaSpecs", "neither Master nor Worker is there"));
    }
    Ok(())
}
