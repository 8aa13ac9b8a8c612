//! `run.ai` RunaiJob: each pod's attempt is a gang, named by the pod without its last part.

use crate::grouping::defaults::{Defaults, group_name};
use crate::grouping::{Group, Input};

/// The group of a RunaiJob's pod.
pub fn group(input: &Input<'_>) -> Group {
    let mut group = Defaults::new(input).build();
    let pod = input.pod.metadata.name.as_deref().unwrap_or_default();
    let name = pod.rsplit_once('-').map_or(pod, |(name, _)| name);
    group.name = group_name(name, &group.owner.uid, "");
    group
}
