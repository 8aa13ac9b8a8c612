//! Differences that the keys of a workload show, whatever its kind.

use berth_api::keys::{
    POD_INDEX_LABEL, SEGMENT_PREFERRED, SEGMENT_REQUIRED, SEGMENT_SIZE, TOPOLOGY, TOPOLOGY_PREFERRED, TOPOLOGY_REQUIRED,
};

use super::work::{Work, annotation};

const LEVELS: [&str; 2] = [TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED];
const SEGMENT_LEVELS: [&str; 2] = [SEGMENT_REQUIRED, SEGMENT_PREFERRED];

type Found = Option<(String, String)>;

/// A template of which KAI Scheduler reads nothing.
fn is_unread_template(work: &Work<'_>, path: &str) -> bool {
    let of_set = work.kind == "LeaderWorkerSet" && path.ends_with("Template");
    let has_one = !["ray.io", "kubeflow.org", "jobset.x-k8s.io", "grove.io"].contains(&work.group.as_str());
    has_one && (of_set || path.ends_with("spec.template") || (path.is_empty() && work.kind != "Pod"))
}

pub(super) fn template_annotations(work: &Work<'_>) -> Found {
    let (path, key) = work.templates.iter().filter(|(path, _)| is_unread_template(work, path)).find_map(|(path, template)| {
        let keys = [TOPOLOGY, TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED];
        // The topology's name alone is read for segments.
        let says_level = LEVELS.iter().any(|key| template["metadata"]["annotations"][*key].is_string());
        let counts = |key: &&str| template["metadata"]["annotations"][*key].is_string() && work.own(key).is_none();
        Some((path, *keys.iter().find(|key| says_level && counts(key))?))
    })?;
    Some((annotation(path, key), "KAI does not read it in a pod template; here it constrains the gang".to_owned()))
}

pub(super) fn role_templates(work: &Work<'_>) -> Found {
    if work.group != "kubeflow.org" {
        return None;
    }
    let found = work.templates.iter().filter(|(path, _)| path.contains("ReplicaSpecs.")).find_map(|(path, template)| {
        let key = LEVELS.into_iter().find(|key| template["metadata"]["annotations"][*key].is_string())?;
        Some(annotation(path, key))
    })?;
    Some((found, "KAI does not read it on a role's template; here it constrains the pods of that role".to_owned()))
}

pub(super) fn level_without_topology(work: &Work<'_>) -> Found {
    let of_group = &work.item.value["spec"]["topologyConstraint"];
    if work.kind == "PodGroup" && work.group == "scheduling.run.ai" {
        let field = ["requiredTopologyLevel", "preferredTopologyLevel"].into_iter().find(|field| of_group[*field].is_string())?;
        let has_topology = of_group["topology"].as_str().is_some_and(|name| !name.is_empty());
        let field = format!("spec.topologyConstraint.{field}");
        return (!has_topology).then(|| (field, without_topology()));
    }
    if work.anywhere(TOPOLOGY).is_some() {
        return None;
    }
    let (field, _) = LEVELS.into_iter().chain(SEGMENT_LEVELS).find_map(|key| work.anywhere(key))?;
    Some((field, without_topology()))
}

fn without_topology() -> String {
    "names a level and no topology: KAI ignores it; here the default topology counts, or the pods wait and say so".to_owned()
}

/// Where KAI Scheduler has segments as well.
fn has_segments_in_kai(work: &Work<'_>) -> bool {
    ["PyTorchJob", "LeaderWorkerSet"].contains(&work.kind.as_str())
}

/// Kinds whose pods may have an index.
fn may_have_index(work: &Work<'_>) -> bool {
    let by_kind = work.is("batch", &["Job", "CronJob"]) || work.is("apps", &["StatefulSet", "ReplicaSet"]);
    by_kind || ["jobset.x-k8s.io", "ray.io", "kubeflow.org", "trainer.kubeflow.org"].contains(&work.group.as_str()) || work.anywhere(POD_INDEX_LABEL).is_some()
}

pub(super) fn segment_kinds(work: &Work<'_>) -> Found {
    let (field, _) = work.anywhere(SEGMENT_SIZE).filter(|_| !has_segments_in_kai(work) && may_have_index(work))?;
    Some((field, format!("KAI has no segments of a {}; here its pods are cut by their index", work.kind)))
}

pub(super) fn segment_size_elsewhere(work: &Work<'_>) -> Found {
    let (field, _) = work.anywhere(SEGMENT_SIZE).filter(|_| !has_segments_in_kai(work) && !may_have_index(work) && work.kind != "PodGroup")?;
    Some((field, format!("KAI ignores it on a {}; here the pods wait, because they can't be cut", work.kind)))
}

pub(super) fn automatic_preferred(work: &Work<'_>) -> Found {
    let (field, _) = work.anywhere(SEGMENT_SIZE).filter(|_| work.kind == "PyTorchJob")?;
    let is_plain = SEGMENT_LEVELS.iter().all(|key| work.anywhere(key).is_none());
    is_plain.then(|| (field, "no level is named for the segments: in KAI they go anywhere; here each prefers the lowest level".to_owned()))
}
