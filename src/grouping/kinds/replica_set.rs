//! `apps/v1` ReplicaSet of its own: its pods are one group, which starts pod by pod.

use serde_json::json;

use super::generic::TEMPLATE_ANNOTATIONS;
use crate::grouping::defaults::Defaults;
use crate::grouping::expand::{Draft, ExpandProblem, Identity, Plan, Workload};
use crate::grouping::object::{Notes, integer};
use crate::grouping::segments::cut;
use crate::grouping::{Group, Input, ProblemCode};

/// The group of a ReplicaSet's pod.
pub fn group(input: &Input<'_>) -> Group {
    let set = input.top().value();
    let template = Notes::at(set, TEMPLATE_ANNOTATIONS);
    let mut group = Defaults::new(input).template(template).with_segments().build();
    let n_pods = integer(set, "/spec/replicas", (0, i32::MAX), ProblemCode::InvalidReplicas).map(|n| n.unwrap_or(1));
    // Its pods have no index but one that a label holds.
    cut(&mut group, input, template, n_pods, None);
    group
}

/// The pods of a ReplicaSet.
pub fn expand(replica_set: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    for index in 0..replica_set.replicas("/spec/replicas")? {
        let name = format!("{}-{index}", replica_set.name());
        let pod = replica_set.pod("/spec/template", &name, &replica_set.object)?.labels(&json!({})).finish();
        plan.pods.push(Draft { pod, identity: Identity::Any });
    }
    Ok(())
}
