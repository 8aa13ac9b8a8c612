//! A pod of its own: a group of one. Spark's driver and its executors are one group, named by the application.

use berth_api::keys;

use crate::grouping::defaults::Defaults;
use crate::grouping::object::Object;
use crate::grouping::{Group, Input};

/// The group of a pod that is its own top, or whose top is another pod.
pub fn group(input: &Input<'_>) -> Group {
    let mut group = Defaults::new(input).template(Object::Pod(input.pod).annotations()).build();
    if let (Some(_), Some(selector)) =
        (input.pod_label(keys::SPARK_APP_NAME), input.pod_label(keys::SPARK_APP_SELECTOR))
    {
        selector.clone_into(&mut group.name);
    }
    if input.owners.is_empty() {
        group.index = Some(0);
    }
    group
}
