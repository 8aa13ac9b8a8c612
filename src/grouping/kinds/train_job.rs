//! `trainer.kubeflow.org` TrainJob: its JobSet is the gang; the TrainJob's labels and annotations fill what that lacks.
//!
//! `simulate` makes the JobSet from the runtime that the job names, if that is among the objects: the replicated job of the
//! ancestor `trainer` runs `numNodes` pods with the job's image, command and resources, and its labels and annotations
//! (kubeflow/trainer, `pkg/runtime/framework/plugins/jobset`).

use serde_json::{Value, json};

use super::{job, job_set};
use crate::grouping::expand::{ExpandProblem, Plan, Workload};
use crate::grouping::{Group, Input, ObjectId};

/// The label of a runtime's replicated job that says what it is for.
const ANCESTOR: &str = "/template/metadata/labels/trainer.kubeflow.org~1trainjob-ancestor-step";

/// The group of a TrainJob's pod.
pub fn group(input: &Input<'_>) -> Group {
    match (input.nearest("JobSet"), input.nearest("Job")) {
        (Some(set), _) => job_set::group_from(input, set, vec![set, input.top()]),
        (None, Some(run)) => job::group_from(input, vec![run, input.top()], run.value()),
        (None, None) => super::skipped::group(input),
    }
}

/// The pods of a TrainJob.
pub fn expand(train_job: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    if train_job.is_true("/spec/suspend") {
        return Err(train_job.problem("/spec/suspend", "the TrainJob is suspended, so its controller creates no pods"));
    }
    let text = |pointer: &str| train_job.object.pointer(pointer).and_then(Value::as_str);
    let kind = text("/spec/runtimeRef/kind").unwrap_or("ClusterTrainingRuntime");
    let name = text("/spec/runtimeRef/name").unwrap_or_default();
    let is_named = |object: &&Value| {
        let id = ObjectId::of(object);
        id.kind == kind && id.name == name && id.group() == "trainer.kubeflow.org"
    };
    let Some(runtime) = train_job.others.iter().find(is_named) else {
        let message = format!("{kind}/{name} is not among the objects, so its pods are not known");
        return Err(train_job.problem("/spec/runtimeRef/name", message));
    };
    let mut set = train_job.child("jobset.x-k8s.io/v1alpha2", "JobSet", train_job.name());
    for field in ["labels", "annotations"] {
        if let Some(notes) = runtime.pointer(&format!("/spec/template/metadata/{field}")) {
            set["metadata"][field] = notes.clone();
        }
        for (key, value) in train_job.object.pointer(&format!("/spec/{field}")).and_then(Value::as_object).into_iter().flatten() {
            set["metadata"][field][key] = value.clone();
        }
    }
    set["spec"] = runtime.pointer("/spec/template/spec").cloned().unwrap_or_else(|| json!({}));
    let nodes = train_job.object.pointer("/spec/trainer/numNodes").or_else(|| runtime.pointer("/spec/mlPolicy/numNodes"));
    for replicated in set.pointer_mut("/spec/replicatedJobs").and_then(Value::as_array_mut).into_iter().flatten() {
        if replicated.pointer(ANCESTOR).and_then(Value::as_str) == Some("trainer") {
            adapt(replicated, nodes.cloned(), train_job.object.pointer("/spec/trainer"));
        }
    }
    plan.objects.push(set.clone());
    job_set::expand(&Workload { object: set, children: Vec::new(), others: train_job.others }, plan)
}

/// Writes what the job says of its trainer into the replicated job.
fn adapt(replicated: &mut Value, nodes: Option<Value>, trainer: Option<&Value>) {
    if let Some(nodes) = nodes
        && let Some(spec) = replicated.pointer_mut("/template/spec").and_then(Value::as_object_mut)
    {
        spec.insert("parallelism".to_owned(), nodes.clone());
        spec.insert("completions".to_owned(), nodes);
    }
    let containers = replicated.pointer_mut("/template/spec/template/spec/containers").and_then(Value::as_array_mut);
    let is_node = |container: &&mut Value| container.get("name").and_then(Value::as_str) == Some("node");
    let Some(node) = containers.into_iter().flatten().find(is_node) else {
        return;
    };
    for (from, to) in [("image", "image"), ("command", "command"), ("args", "args"), ("resourcesPerNode", "resources")] {
        if let Some(value) = trainer.and_then(|trainer| trainer.get(from)) {
            node[to] = value.clone();
        }
    }
}
