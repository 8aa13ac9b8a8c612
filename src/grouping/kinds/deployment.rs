//! `apps/v1` Deployment: each pod is a group of its own, so that a rolling update never waits for itself.

use serde_json::{Value, json};

use super::generic::TEMPLATE_ANNOTATIONS;
use crate::grouping::defaults::{Defaults, group_name};
use crate::grouping::expand::{Draft, ExpandProblem, Identity, Plan, Workload, short_hash};
use crate::grouping::object::{Notes, Object};
use crate::grouping::{Group, Input};

const HASH: &str = "pod-template-hash";

/// The group of one pod of a Deployment.
pub fn group(input: &Input<'_>) -> Group {
    let template = Notes::at(input.top().value(), TEMPLATE_ANNOTATIONS);
    let mut group = Defaults::new(input).template(template).priority("inference").build();
    group.owner = Object::Pod(input.pod).id();
    group.name = group_name(&group.owner.name, &group.owner.uid, "");
    group.index = Some(0);
    group
}

/// The pods of a Deployment, through its current ReplicaSet.
pub fn expand(deployment: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    let replicas = deployment.replicas("/spec/replicas")?;
    let is_current = |set: &&Value| {
        let wants = |set: &Value| set.pointer("/spec/replicas").and_then(Value::as_i64) != Some(0);
        set.get("kind").and_then(Value::as_str) == Some("ReplicaSet") && wants(set)
    };
    let set = match deployment.children.iter().rev().copied().find(is_current) {
        Some(set) => set.clone(),
        None => {
            let template = deployment.object.pointer("/spec/template").cloned().unwrap_or_default();
            let name = format!("{}-{}", deployment.name(), short_hash(&template.to_string()));
            let mut set = deployment.child("apps/v1", "ReplicaSet", &name);
            set["spec"] = json!({"replicas": replicas, "template": template});
            plan.objects.push(set.clone());
            set
        }
    };
    let set_name = set.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let hash = set_name.rsplit_once('-').map_or("", |(_, hash)| hash);
    for index in 0..replicas {
        let pod = deployment.pod("/spec/template", &format!("{set_name}-{index}"), &set)?;
        plan.pods.push(Draft { pod: pod.labels(&json!({HASH: hash})).finish(), identity: Identity::Any });
    }
    Ok(())
}
