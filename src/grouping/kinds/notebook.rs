//! `kubeflow.org` Notebook: a gang of its pod, of class `build` because a person sits in front of it.
//!
//! The pod is `<notebook>-0` of a StatefulSet of the notebook's name, with the label `notebook-name`
//! (kubeflow/kubeflow, `components/notebook-controller`).

use serde_json::json;

use crate::grouping::defaults::Defaults;
use crate::grouping::expand::{Draft, ExpandProblem, Identity, Plan, Workload};
use crate::grouping::object::Notes;
use crate::grouping::{Group, Input};

/// The group of a Notebook's pod.
pub fn group(input: &Input<'_>) -> Group {
    let template = Notes::at(input.top().value(), super::generic::TEMPLATE_ANNOTATIONS);
    let mut group = Defaults::new(input).template(template).priority("build").build();
    group.index = Some(0);
    group
}

/// The pod of a Notebook; none when it is stopped.
pub fn expand(notebook: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    if notebook.object.pointer("/metadata/annotations/kubeflow-resource-stopped").is_some() {
        return Ok(());
    }
    let set = notebook.child("apps/v1", "StatefulSet", notebook.name());
    let labels = json!({"notebook-name": notebook.name(), "statefulset": notebook.name()});
    let pod = notebook.pod("/spec/template", &format!("{}-0", notebook.name()), &set)?.labels(&labels).finish();
    plan.objects.push(set);
    plan.pods.push(Draft { pod, identity: Identity::Name });
    Ok(())
}
