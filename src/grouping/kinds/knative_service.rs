//! `serving.knative.dev` Service: each Revision is a gang of `autoscaling.knative.dev/min-scale` pods, of class `inference`.
//!
//! The Revision is among the pod's owners (Pod, ReplicaSet, Deployment, Revision, Configuration, Service). Unlike KAI, a
//! Service's topology, preemptibility and durations count: the Revision first, then the Service.

use berth_api::keys;
use serde_json::json;

use super::deployment;
use crate::grouping::defaults::Defaults;
use crate::grouping::expand::{ExpandProblem, Plan, Workload};
use crate::grouping::object::Object;
use crate::grouping::{Group, Input};

const MIN_SCALE_OLD: &str = "autoscaling.knative.dev/minScale";
const TEMPLATE: &str = "/spec/template";

/// The group of a Knative pod.
pub fn group(input: &Input<'_>) -> Group {
    let Some(revision) = input.nearest("Revision") else {
        return super::generic::group(input);
    };
    let sources = vec![revision, input.top()];
    let mut group = Defaults::new(input).sources(sources).priority("inference").build();
    group.spec.min_member = Some(min_scale(revision).unwrap_or(1));
    group
}

/// Pods at least; 0 is allowed, and anything unreadable is as if it were not there, as for Knative's own autoscaler.
fn min_scale(revision: Object<'_>) -> Option<i32> {
    let notes = revision.annotations();
    let text = notes.get(keys::KNATIVE_MIN_SCALE).or_else(|| notes.get(MIN_SCALE_OLD))?;
    text.parse::<i32>().ok().filter(|least| 0 <= *least)
}

/// The pods of a Service's first Revision: as many as it has at least, or one while it is tried out.
pub fn expand(service: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    let configuration = service.child("serving.knative.dev/v1", "Configuration", service.name());
    let name = format!("{}-00001", service.name());
    let mut revision = service.child_of("serving.knative.dev/v1", "Revision", &name, &configuration);
    for field in ["labels", "annotations"] {
        if let Some(notes) = service.object.pointer(&format!("{TEMPLATE}/metadata/{field}")) {
            revision["metadata"][field] = notes.clone();
        }
    }
    let least = min_scale(Object::Owner(&revision)).unwrap_or(1).max(1);
    let mut deployment = service.child_of("apps/v1", "Deployment", &format!("{name}-deployment"), &revision);
    let mut template = service.object.pointer(TEMPLATE).cloned().unwrap_or_default();
    for field in ["/metadata", "/metadata/labels"] {
        if template.pointer(field).is_some_and(|value| !value.is_object() && !value.is_null()) {
            return Err(service.problem(&format!("{TEMPLATE}{field}"), "is no map"));
        }
    }
    if template.is_object() {
        template["metadata"]["labels"][keys::KNATIVE_REVISION] = json!(name);
        template["metadata"]["labels"]["serving.knative.dev/service"] = json!(service.name());
    }
    deployment["spec"] = json!({"replicas": least, "template": template});
    let workload = Workload { object: deployment.clone(), children: Vec::new(), others: service.others };
    deployment::expand(&workload, plan).map_err(|problem| ExpandProblem { object: service.display(), ..problem })?;
    plan.objects.extend([configuration, revision, deployment]);
    Ok(())
}
