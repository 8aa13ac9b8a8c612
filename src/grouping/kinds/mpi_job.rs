//! `kubeflow.org` MPIJob, `v1` and `v2beta1`: launcher and workers start together, unless the launcher waits.
//!
//! With `launcherCreationPolicy: WaitForWorkersReady` the operator creates the launcher only when all workers are ready, so
//! the workers' gang does not count it until it is there; its own pod describes the whole gang, which then counts
//! ([`Group::outranks`]). A `v2beta1` launcher is the pod of a Job and has no index; when it runs as a worker too, the
//! workers' index starts at 1 (kubeflow/mpi-operator, `pkg/controller`). A `v1` launcher has no index either; it is `<job>-launcher`.

use berth_api::keys;
use serde_json::{Value, json};

use super::kubeflow::{self, Framework};
use crate::grouping::expand::{Draft, ExpandProblem, Identity, Plan, Workload};
use crate::grouping::{Group, Input, ObjectId};

const LAUNCHER: &str = "Launcher";
/// Value of the operator's name label for `v2beta1`, which an operator of its own reads.
const SECOND_OPERATOR: &str = "mpi-operator";

const FRAMEWORK: Framework = Framework {
    kind: "MPIJob",
    field: "mpiReplicaSpecs",
    types: &[LAUNCHER, kubeflow::WORKER],
    masters: &[LAUNCHER],
    operator: "mpijob-controller",
    has_leaves: false,
};

/// The group of an MPIJob's pod.
pub fn group(input: &Input<'_>) -> Group {
    let is_launcher = kubeflow::type_of(input).is_some_and(|word| word.eq_ignore_ascii_case(LAUNCHER));
    let late = waits(input.top().value()).filter(|_| !is_launcher);
    if !is_launcher && input.top().value().pointer("/spec/runLauncherAsWorker").and_then(Value::as_bool) == Some(true) {
        return from_one(input, late);
    }
    kubeflow::group(input, &FRAMEWORK, late)
}

/// The group of a worker whose index counts the launcher.
fn from_one(input: &Input<'_>, late: Option<&'static str>) -> Group {
    let mut pod = input.pod.clone();
    let index = pod.metadata.labels.as_mut().and_then(|labels| labels.get_mut(keys::TRAINING_REPLICA_INDEX));
    if let Some(index) = index
        && let Some(from_zero) = index.parse::<u32>().ok().and_then(|number| number.checked_sub(1))
    {
        *index = from_zero.to_string();
    }
    kubeflow::group(&Input { pod: &pod, ..*input }, &FRAMEWORK, late)
}

/// The type that comes after the others, if one does.
fn waits(job: &Value) -> Option<&'static str> {
    let policy = job.pointer("/spec/launcherCreationPolicy").and_then(Value::as_str);
    (policy == Some("WaitForWorkersReady")).then_some(LAUNCHER)
}

/// The pods of an MPIJob; a launcher that waits is not among them yet.
pub fn expand(job: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    if ObjectId::of(&job.object).version() != "v2beta1" {
        kubeflow::expand(job, plan, &FRAMEWORK, waits(&job.object))?;
        name_launcher(job, plan);
        return Ok(());
    }
    kubeflow::expand(job, plan, &FRAMEWORK, Some(LAUNCHER))?;
    let offset = i32::from(job.is_true("/spec/runLauncherAsWorker"));
    for (index, draft) in (offset..).zip(&mut plan.pods) {
        let labels = &mut draft.pod["metadata"]["labels"];
        labels[keys::TRAINING_REPLICA_INDEX] = json!(index.to_string());
        labels[keys::TRAINING_JOB_ROLE] = json!("worker");
        labels[kubeflow::OPERATOR_NAME] = json!(SECOND_OPERATOR);
        // This operator says roles, no types.
        if let Some(labels) = labels.as_object_mut() {
            labels.remove(keys::TRAINING_REPLICA_TYPE);
        }
    }
    let Some((name, _)) = kubeflow::replica_spec(&job.object, &FRAMEWORK, LAUNCHER) else {
        return Ok(());
    };
    if waits(&job.object).is_some() {
        return Ok(());
    }
    let launcher = job.child("batch/v1", "Job", &format!("{}-launcher", job.name()));
    let labels = json!({
        keys::TRAINING_JOB_NAME: job.name(), keys::TRAINING_JOB_ROLE: "launcher",
        kubeflow::OPERATOR_NAME: SECOND_OPERATOR, keys::JOB_NAME: format!("{}-launcher", job.name()),
    });
    let template = format!("/spec/{}/{name}/template", FRAMEWORK.field);
    let pod = job.pod(&template, &format!("{}-launcher-0", job.name()), &launcher)?.labels(&labels).finish();
    plan.objects.push(launcher);
    plan.pods.push(Draft { pod, identity: Identity::Label(keys::TRAINING_JOB_ROLE, "launcher".to_owned()) });
    Ok(())
}

/// Of the launcher there is one, so it has neither a number in its name nor an index.
fn name_launcher(job: &Workload<'_>, plan: &mut Plan) {
    let numbered = format!("{}-launcher-0", job.name());
    for draft in plan.pods.iter_mut().filter(|draft| draft.pod["metadata"]["name"] == numbered.as_str()) {
        let name = format!("{}-launcher", job.name());
        draft.pod["metadata"]["uid"] = json!(crate::grouping::expand::uid("Pod", draft.pod["metadata"]["namespace"].as_str().unwrap_or_default(), &name));
        draft.pod["metadata"]["name"] = json!(name);
        if let Some(labels) = draft.pod["metadata"]["labels"].as_object_mut() {
            labels.remove(keys::TRAINING_REPLICA_INDEX);
        }
    }
}
