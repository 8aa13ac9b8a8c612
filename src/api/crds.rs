//! The custom resource definitions as objects and as the files of `crds/`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::{PodGroup, Queue, Topology};

/// Every definition with the name of its file, sorted by that name.
pub fn crds() -> Vec<(&'static str, CustomResourceDefinition)> {
    vec![
        ("kai.scheduler_topologies.yaml", Topology::crd()),
        ("scheduling.run.ai_podgroups.yaml", PodGroup::crd()),
        ("scheduling.run.ai_queues.yaml", Queue::crd()),
    ]
}

/// Every definition as YAML, with the name of its file: what `crds/` holds.
pub fn crds_yaml() -> Result<Vec<(&'static str, String)>, serde_saphyr::ser::Error> {
    let files = crds().into_iter();
    files.map(|(file, crd)| Ok((file, serde_saphyr::to_string(&crd)?))).collect()
}
