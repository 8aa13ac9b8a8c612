//! `batch/v1` CronJob: each run is a group of its own, owned by the run's Job. The minimum is honoured, from the Job, the
//! CronJob or the pod template.

use serde_json::{Value, json};

use super::job;
use crate::grouping::expand::{ExpandProblem, Plan, Workload};
use crate::grouping::{Group, Input};

/// The group of a pod of one run.
pub fn group(input: &Input<'_>) -> Group {
    match input.nearest("Job") {
        Some(run) => job::group_from(input, vec![run, input.top()], run.value()),
        None => super::generic::group(input),
    }
}

/// One run, now.
pub fn expand(cron_job: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    let Some(template) = cron_job.object.pointer("/spec/jobTemplate").filter(|template| template.is_object()) else {
        return Err(cron_job.problem("/spec/jobTemplate", "the template of the Job is missing"));
    };
    if cron_job.is_true("/spec/suspend") {
        return Err(cron_job.problem("/spec/suspend", "the CronJob is suspended, so it starts no Job"));
    }
    let mut run = cron_job.child("batch/v1", "Job", &format!("{}-0", cron_job.name()));
    for field in ["labels", "annotations"] {
        if let Some(notes) = template.pointer(&format!("/metadata/{field}")) {
            run["metadata"][field] = notes.clone();
        }
    }
    run["spec"] = template.get("spec").cloned().unwrap_or(Value::Null);
    if !run["spec"].is_object() {
        run["spec"] = json!({});
    }
    let workload = Workload { object: run.clone(), ..cron_job.clone() };
    plan.objects.push(run);
    // The field that is wrong is in the CronJob, one level deeper than the Job's own code knows.
    job::expand(&workload, plan).map_err(|problem| ExpandProblem {
        object: cron_job.display(),
        field: format!("spec.jobTemplate.{}", problem.field),
        ..problem
    })
}
