//! `batch/v1` Job: pod by pod, or a gang of `kai.scheduler/batch-min-member`. An Indexed Job may be cut into segments
//! `segment-<k>` by `kai.scheduler/segment-size`; the first ones carry the minimum.

use berth_api::keys;
use serde_json::{Value, json};

use super::generic::TEMPLATE_ANNOTATIONS;
use crate::grouping::defaults::{Defaults, min_member};
use crate::grouping::expand::{Draft, ExpandProblem, Identity, Plan, Workload};
use crate::grouping::object::{Notes, Object, integer};
use crate::grouping::segments::cut;
use crate::grouping::{Group, GroupProblem, Input, ProblemCode};

const JOB_UID: &str = "batch.kubernetes.io/controller-uid";

/// The group of a Job's pod.
pub fn group(input: &Input<'_>) -> Group {
    let job = input.top();
    group_from(input, vec![job], job.value())
}

/// The group of a pod of this Job, with the sources whose labels and annotations count.
pub(super) fn group_from<'a>(input: &Input<'a>, sources: Vec<Object<'a>>, job: &'a Value) -> Group {
    let template = Notes::at(job, TEMPLATE_ANNOTATIONS);
    let defaults = Defaults::new(input).sources(sources).template(template).with_min_member().with_segments();
    let mut group = defaults.build();
    set_minimum(&mut group, &defaults, job);
    cut(&mut group, input, template, n_indices(job), index(input));
    group
}

/// How many pods have an index of their own: those of all completions, not only the ones that run at once.
fn n_indices(job: &Value) -> Result<i32, GroupProblem> {
    let completions = integer(job, "/spec/completions", (0, i32::MAX), ProblemCode::InvalidReplicas)?;
    completions.map_or_else(|| pods_at_once(job), Ok)
}

/// The minimum from the annotation, if there is one.
fn set_minimum(group: &mut Group, defaults: &Defaults<'_>, job: &Value) {
    let Some((object, text)) = defaults.annotation(keys::BATCH_MIN_MEMBER) else {
        return;
    };
    let (minimum, most) = match (min_member(object.clone(), text), pods_at_once(job)) {
        (Ok(minimum), Ok(most)) => (minimum, most),
        (Err(problem), _) | (_, Err(problem)) => {
            group.problems.push(problem);
            return;
        }
    };
    if most < minimum {
        let allowed = format!("at most {most}, as many as run at once by parallelism and completions");
        let code = ProblemCode::InvalidMinMember;
        group.warnings.push(GroupProblem::text(code, object, keys::BATCH_MIN_MEMBER, text, allowed));
    }
    group.spec.min_member = Some(minimum.min(left(job)).max(1));
}

fn index(input: &Input<'_>) -> Option<u32> {
    let key = keys::JOB_COMPLETION_INDEX;
    input.pod_index(key).ok().or_else(|| Object::Pod(input.pod).annotations().get(key)?.parse().ok())
}

/// Pods that have yet to succeed: the last ones of a Job must not wait for pods that will never come.
fn left(job: &Value) -> i32 {
    let completions = job.pointer("/spec/completions").and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok());
    completions.map_or(i32::MAX, |completions| completions.saturating_sub(succeeded(job)))
}

fn succeeded(job: &Value) -> i32 {
    let number = job.pointer("/status/succeeded").and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok());
    number.unwrap_or(0).max(0)
}

/// How many pods the Job's controller runs at once.
fn pods_at_once(job: &Value) -> Result<i32, GroupProblem> {
    let count = |pointer: &str| integer(job, pointer, (0, i32::MAX), ProblemCode::InvalidReplicas);
    let parallelism = count("/spec/parallelism")?.unwrap_or(1);
    Ok(parallelism.min(count("/spec/completions")?.unwrap_or(i32::MAX)))
}

/// The pods that a Job's controller creates first.
pub fn expand(job: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    if job.is_true("/spec/suspend") {
        return Err(job.problem("/spec/suspend", "the Job is suspended, so its controller creates no pods"));
    }
    let is_indexed = job.object.pointer("/spec/completionMode").and_then(Value::as_str) == Some("Indexed");
    let n_active = pods_at_once(&job.object)?.min(left(&job.object).max(0));
    // Indices that have succeeded are not run again: their pods, if they are in the input, are skipped by label.
    let n_pods = if is_indexed { n_active.saturating_add(succeeded(&job.object)) } else { n_active };
    for index in 0..job.limit("/spec/parallelism", n_pods)? {
        let name = format!("{}-{index}", job.name());
        let identity =
            if is_indexed { Identity::Label(keys::JOB_COMPLETION_INDEX, index.to_string()) } else { Identity::Any };
        let mut labels = json!({
            "job-name": job.name(), "controller-uid": job.uid(), keys::JOB_NAME: job.name(), JOB_UID: job.uid(),
        });
        let mut annotations = json!({});
        if is_indexed {
            labels[keys::JOB_COMPLETION_INDEX] = json!(index.to_string());
            annotations[keys::JOB_COMPLETION_INDEX] = json!(index.to_string());
        }
        let pod = job.pod("/spec/template", &name, &job.object)?;
        plan.pods.push(Draft { pod: pod.labels(&labels).annotations(&annotations).finish(), identity });
    }
    Ok(())
}
