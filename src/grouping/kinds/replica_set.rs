//! `apps/v1` ReplicaSet of its own: its pods are one group, which starts pod by pod.

use serde_json::json;

use super::generic::TEMPLATE_ANNOTATIONS;
use crate::grouping::defaults::Defaults;
use crate::grouping::expand::{Draft, ExpandProblem, Identity, Plan, Workload};
use crate::grouping::object::Notes;
use crate::grouping::{Group, Input};

/// The group of a ReplicaSet's pod.
pub fn group(input: &Input<'_>) -> Group {
    Defaults::new(input).template(Notes::at(input.top().value(), TEMPLATE_ANNOTATIONS)).build()
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
