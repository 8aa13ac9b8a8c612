//! `apps/v1` StatefulSet: its pods are one group, which starts pod by pod; the ordinal is the rank. They may be cut into
//! segments `segment-<k>`.

use berth_api::keys;
use serde_json::{Value, json};

use super::generic::TEMPLATE_ANNOTATIONS;
use crate::grouping::defaults::Defaults;
use crate::grouping::expand::{Draft, ExpandProblem, Identity, Plan, Workload};
use crate::grouping::object::{Notes, integer};
use crate::grouping::segments::cut;
use crate::grouping::{Group, Input, ProblemCode};

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";

/// The group of a StatefulSet's pod.
pub fn group(input: &Input<'_>) -> Group {
    let set = input.top().value();
    let template = Notes::at(set, TEMPLATE_ANNOTATIONS);
    let mut group = Defaults::new(input).template(template).with_segments().build();
    // The label is younger than the kind; the name has always said it.
    let of_name = || input.pod.metadata.name.as_ref()?.rsplit_once('-')?.1.parse().ok();
    let ordinal = input.pod_index(keys::POD_INDEX).ok().or_else(of_name);
    let start = set.pointer("/spec/ordinals/start").and_then(Value::as_u64).and_then(|start| u32::try_from(start).ok());
    let index = ordinal.and_then(|ordinal| ordinal.checked_sub(start.unwrap_or(0)));
    let n_pods = integer(set, "/spec/replicas", (0, i32::MAX), ProblemCode::InvalidReplicas).map(|n| n.unwrap_or(1));
    cut(&mut group, input, template, n_pods, index);
    group
}

/// The pods of a StatefulSet.
pub fn expand(set: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    let start = set.object.pointer("/spec/ordinals/start").and_then(Value::as_i64).unwrap_or(0);
    for offset in 0..set.replicas("/spec/replicas")? {
        let ordinal = start.saturating_add(i64::from(offset));
        let name = format!("{}-{ordinal}", set.name());
        let labels = json!({POD_NAME: name, keys::POD_INDEX: ordinal.to_string()});
        let pod = set.pod("/spec/template", &name, &set.object)?.labels(&labels).finish();
        plan.pods.push(Draft { pod, identity: Identity::Name });
    }
    Ok(())
}
