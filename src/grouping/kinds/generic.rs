//! Any kind that nobody coded: all pods under one top owner are one group, which starts pod by pod.

use berth_api::keys;

use crate::grouping::defaults::Defaults;
use crate::grouping::object::{Notes, Object};
use crate::grouping::{Group, Input};

/// Where a kind with one pod template usually keeps it.
pub(crate) const TEMPLATE_ANNOTATIONS: &str = "/spec/template/metadata/annotations";

/// The group of a pod under an owner of any kind.
pub fn group(input: &Input<'_>) -> Group {
    // Nearest first: the labels of a Job inside an unknown wrapper are about its pods more than those of the wrapper.
    let chain: Vec<_> = input.owners.iter().map(|owner| Object::Owner(owner)).collect();
    let template = Notes::at(input.top().value(), TEMPLATE_ANNOTATIONS);
    let mut group = Defaults::new(input).label_sources(chain).template(template).build();
    group.index = [keys::JOB_COMPLETION_INDEX, keys::POD_INDEX].into_iter().find_map(|key| input.pod_index(key).ok());
    group
}
