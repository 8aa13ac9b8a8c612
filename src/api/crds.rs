//! The custom resource definitions as objects and as the files of `crds/`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{GroupingRule, PodGroup, Queue, Topology};

/// Every definition with the name of its file, sorted by that name.
pub fn crds() -> Vec<(&'static str, CustomResourceDefinition)> {
    let mut crds = vec![
        ("berth.scheduler_groupingrules.yaml", GroupingRule::crd()),
        ("kai.scheduler_topologies.yaml", Topology::crd()),
        ("scheduling.run.ai_podgroups.yaml", PodGroup::crd()),
        ("scheduling.run.ai_queues.yaml", Queue::crd()),
    ];
    for (_, crd) in &mut crds {
        let schemas = crd
            .spec
            .versions
            .iter_mut()
            .filter_map(|version| version.schema.as_mut());
        schemas
            .filter_map(|schema| schema.open_api_v3_schema.as_mut())
            .for_each(remove_nullable);
    }
    crds
}

/// Every definition as YAML, with the name of its file: what `crds/` holds.
pub fn crds_yaml() -> Result<Vec<(&'static str, String)>, serde_saphyr::ser::Error> {
    let files = crds().into_iter();
    files
        .map(|(file, crd)| Ok((file, serde_saphyr::to_string(&crd)?)))
        .collect()
}

/// Takes the `nullable` that the derive gives every optional field away: KAI Scheduler's fields are absent or have a value,
/// and a null would count as stated in a rule's `has()`.
fn remove_nullable(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema
        .properties
        .iter_mut()
        .flatten()
        .for_each(|(_, child)| remove_nullable(child));
    match schema.items.as_mut() {
        Some(JSONSchemaPropsOrArray::Schema(child)) => remove_nullable(child),
        Some(JSONSchemaPropsOrArray::Schemas(children)) => {
            children.iter_mut().for_each(remove_nullable)
        }
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(child)) = schema.additional_properties.as_mut() {
        remove_nullable(child);
    }
}
