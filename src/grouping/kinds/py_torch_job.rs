//! `kubeflow.org/v1` PyTorchJob: masters and workers start together, each type a leaf; workers may be cut into
//! segments `worker-<i>` of `worker`, whose first ones carry the minimum: it is never rounded up.

use super::kubeflow::{self, Framework};
use crate::grouping::expand::{ExpandProblem, Plan, Workload};
use crate::grouping::{Group, Input};

const FRAMEWORK: Framework = Framework {
    kind: "PyTorchJob",
    field: "pytorchReplicaSpecs",
    types: &["Master", "Worker"],
    masters: &["Master"],
    operator: "pytorchjob-controller",
    has_leaves: true,
};

/// The group of a pod of a PyTorchJob.
pub fn group(input: &Input<'_>) -> Group {
    kubeflow::group(input, &FRAMEWORK, None)
}

/// The pods of a PyTorchJob.
pub fn expand(job: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    kubeflow::expand(job, plan, &FRAMEWORK, None)
}
