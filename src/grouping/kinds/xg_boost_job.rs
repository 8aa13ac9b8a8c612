//! `kubeflow.org/v1` XGBoostJob: master and workers start together, in one flat gang unless segments are asked for.

use super::kubeflow::{self, Framework};
use crate::grouping::expand::{ExpandProblem, Plan, Workload};
use crate::grouping::{Group, Input};

const FRAMEWORK: Framework = Framework {
    kind: "XGBoostJob",
    field: "xgbReplicaSpecs",
    types: &["Master", "Worker"],
    masters: &["Master"],
    operator: "xgboostjob-controller",
    has_leaves: false,
};

/// The group of a pod of a XGBoostJob.
pub fn group(input: &Input<'_>) -> Group {
    kubeflow::group(input, &FRAMEWORK, None)
}

/// The pods of a XGBoostJob.
pub fn expand(job: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    kubeflow::expand(job, plan, &FRAMEWORK, None)
}
