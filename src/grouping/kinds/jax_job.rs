//! `kubeflow.org/v1` JAXJob: the workers start together, in one flat gang unless segments are asked for.

use super::kubeflow::{self, Framework};
use crate::grouping::expand::{ExpandProblem, Plan, Workload};
use crate::grouping::{Group, Input};

const FRAMEWORK: Framework = Framework {
    kind: "JAXJob",
    field: "jaxReplicaSpecs",
    types: &["Worker"],
    masters: &[],
    operator: "jaxjob-controller",
    has_leaves: false,
};

/// The group of a pod of a JAXJob.
pub fn group(input: &Input<'_>) -> Group {
    kubeflow::group(input, &FRAMEWORK, None)
}

/// The pods of a JAXJob.
pub fn expand(job: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    kubeflow::expand(job, plan, &FRAMEWORK, None)
}
