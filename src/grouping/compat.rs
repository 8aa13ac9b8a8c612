//! `--compat kai`: a workload is read as KAI Scheduler reads it, and its group is what KAI makes of it.
//!
//! All of it is here, so that no kind knows of it: before grouping, what KAI does not read is taken out of copies of the
//! pod and its owners; afterwards the group is changed where KAI computes otherwise. docs/compat.md has a line for each.

use std::sync::Arc;

use berth_api::keys;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};

use super::Group;

const TRAINING: &str = "kubeflow.org/";
const NATIVE_SEGMENT_SIZE: &str = "/spec/leaderWorkerTemplate/subGroupPolicy/subGroupSize";
const LWS_TEMPLATES: [&str; 2] =
    ["/spec/leaderWorkerTemplate/leaderTemplate", "/spec/leaderWorkerTemplate/workerTemplate"];

/// The kinds whose segments KAI knows.
const SEGMENTED: [&str; 2] = ["PyTorchJob", "LeaderWorkerSet"];

/// A pod as KAI reads it.
pub(super) struct AsKai {
    pub(super) pod: Pod,
    /// The set's Jobs begin in order: for KAI one of them is enough, whichever it is.
    is_ordered: bool,
}

/// Takes out of the owners what KAI does not read, and gives the pod as KAI reads it.
pub(super) fn read(pod: &Pod, owners: &mut [Arc<Value>]) -> AsKai {
    let top = owners.last().cloned().unwrap_or_default();
    let kind = top["kind"].as_str().unwrap_or_default();
    let mut pod = pod.clone();
    let mut is_ordered = false;
    for owner in owners {
        let owner = Arc::make_mut(owner);
        is_ordered |= forget_order(owner);
        // KaiDiffTemplateAnnotations.
        forget(owner, "/spec/template", &[keys::TOPOLOGY, keys::BATCH_MIN_MEMBER]);
        for template in templates(owner) {
            forget(owner, &template, &[keys::TOPOLOGY_REQUIRED, keys::TOPOLOGY_PREFERRED]);
        }
        if kind == "CronJob" {
            // KaiDiffCronJobMinimum.
            forget(owner, "", &[keys::BATCH_MIN_MEMBER]);
        }
        // KaiDiffSegmentSizeElsewhere, and KaiDiffLwsSegmentSize where the set has a size of its own.
        if !SEGMENTED.contains(&kind) || owner.pointer(NATIVE_SEGMENT_SIZE).is_some_and(|size| !size.is_null()) {
            forget(owner, "", &[keys::SEGMENT_SIZE]);
            for template in templates(owner) {
                forget(owner, &template, &[keys::SEGMENT_SIZE]);
            }
        }
    }
    if !SEGMENTED.contains(&kind)
        && let Some(annotations) = &mut pod.metadata.annotations
    {
        annotations.remove(keys::SEGMENT_SIZE);
    }
    AsKai { pod, is_ordered }
}

/// KaiDiffOrderedJobSet. True when a minimum was written in place of the order.
fn forget_order(owner: &mut Value) -> bool {
    if owner["kind"] != "JobSet" {
        return false;
    }
    for job in owner.pointer_mut("/spec/replicatedJobs").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(job) = job.as_object_mut() {
            job.remove("dependsOn");
        }
    }
    let is_ordered = owner.pointer("/spec/startupPolicy/startupPolicyOrder") == Some(&json!("InOrder"));
    let metadata = owner.pointer_mut("/metadata").and_then(Value::as_object_mut).filter(|_| is_ordered);
    let annotations = metadata.and_then(|metadata| metadata.entry("annotations").or_insert_with(|| json!({})).as_object_mut());
    let Some(annotations) = annotations.filter(|annotations| !annotations.contains_key(keys::BATCH_MIN_MEMBER)) else {
        return false;
    };
    annotations.insert(keys::BATCH_MIN_MEMBER.to_owned(), json!("1"));
    true
}

/// Where the pod templates of an owner are.
fn templates(owner: &Value) -> Vec<String> {
    let mut found = vec!["/spec/template".to_owned()];
    found.extend(LWS_TEMPLATES.map(str::to_owned));
    for (field, roles) in owner["spec"].as_object().into_iter().flatten().filter(|(field, _)| field.ends_with("ReplicaSpecs")) {
        let roles = roles.as_object().into_iter().flatten();
        found.extend(roles.map(|(role, _)| format!("/spec/{field}/{role}/template")));
    }
    found
}

/// Removes annotations of the object at a pointer.
fn forget(owner: &mut Value, pointer: &str, keys: &[&str]) {
    let annotations = owner.pointer_mut(&format!("{pointer}/metadata/annotations"));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.retain(|key, _| !keys.contains(&key.as_str()));
    }
}

/// Changes a group into what KAI makes of it.
pub(super) fn group(group: &mut Group, as_kai: &AsKai, top: Option<&Arc<Value>>) {
    if as_kai.is_ordered {
        group.annotations.remove(keys::BATCH_MIN_MEMBER);
    }
    // KaiDiffAutomaticPreferred.
    group.auto_preferred.clear();
    group.auto_preferred_topology = None;
    // KaiDiffAwaitedPods.
    group.awaited.clear();
    // KaiDiffElasticSegments.
    if let Some(job) = top.filter(|top| top["kind"] == "PyTorchJob" && is_training(top)) {
        round_up(group, job);
    }
}

fn is_training(object: &Value) -> bool {
    object["apiVersion"].as_str().is_some_and(|version| version.starts_with(TRAINING))
}

/// Raises the minimum of every mandatory segment to its size.
fn round_up(group: &mut Group, job: &Value) {
    let none = Map::new();
    let specs = job["spec"]["pytorchReplicaSpecs"].as_object().unwrap_or(&none);
    let Some((_, worker)) = specs.iter().find(|(role, _)| role.eq_ignore_ascii_case("worker")) else { return };
    let count = |value: &Value| value.as_i64().and_then(|count| i32::try_from(count).ok());
    let n_workers = count(&worker["replicas"]).unwrap_or(1);
    let of = |object: &Value| object["metadata"]["annotations"][keys::SEGMENT_SIZE].as_str()?.trim().parse::<i32>().ok();
    let Some(size) = of(&worker["template"]).or_else(|| of(job)).filter(|size| 1 < *size) else { return };
    let segments = group.spec.sub_groups.iter_mut().filter(|leaf| leaf.parent.is_some());
    for (leaf, at) in segments.zip(0_i32..) {
        let own = n_workers.saturating_sub(at.saturating_mul(size)).clamp(0, size);
        leaf.min_member = leaf.min_member.map(|least| if 0 < least { own } else { least });
    }
}
