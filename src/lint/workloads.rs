//! Workloads: the scheduler's name, the queue, one PodGroup, a minimum that covers the group, levels that nodes have.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::keys;
use berth_engine::outcome::{Code, GangReport};

use super::keys::{ANNOTATIONS, LABELS};
use super::{Finding, Severity, Shown, of_kind, pod_templates};
use crate::explain;
use crate::grouping::expand::is_workload;
use crate::simulate::Options;
use crate::simulate::cluster::Cluster;
use crate::simulate::input::{Item, Place};
use crate::simulate::objects::text;

/// Names of schedulers that read our keys: the one that is asked about, and those under which Berth has placed pods, as a canary
/// beside another one does.
pub(super) fn readers<'a>(items: &'a [Item], scheduler: &'a str) -> BTreeSet<&'a str> {
    let is_placed = |item: &&Item| item.value["kind"] == "Pod" && item.value["metadata"]["annotations"][keys::DECISION].is_string();
    items.iter().filter(is_placed).map(|item| text(&item.value, "/spec/schedulerName")).chain([scheduler]).collect()
}

/// Keys that only our scheduler reads, on pods that name another one.
pub(super) fn check_scheduler(item: &Item, scheduler: &str, readers: &BTreeSet<&str>, findings: &mut Vec<Finding>) {
    let has_ours = |metadata: &serde_json::Value| {
        let any = |place: &str, keys: &[&str]| keys.iter().any(|key| !metadata[place][*key].is_null());
        any("annotations", &ANNOTATIONS) || any("labels", &LABELS)
    };
    for (path, template) in pod_templates(&item.value) {
        let name = template["spec"]["schedulerName"].as_str().unwrap_or("default-scheduler");
        if !readers.contains(name) && (has_ours(&template["metadata"]) || has_ours(&item.value["metadata"])) {
            let field = if path.is_empty() { "spec.schedulerName".to_owned() } else { format!("{path}.spec.schedulerName") };
            if name == keys::SCHEDULER_NAME {
                let message = format!("is {name}, which is not {scheduler}: this object is left to KAI Scheduler");
                findings.push(Finding::warning(item, "OtherScheduler", &field, message));
            } else {
                let message = format!("is {name}: the keys of this object have no effect; write schedulerName: {scheduler}");
                findings.push(Finding::error(item, "OtherScheduler", &field, message));
            }
        }
    }
}

/// The objects as a cluster, and what its gangs say of themselves.
pub(super) fn check_gangs(items: &[Item], shown: Shown, options: &Options, findings: &mut Vec<Finding>) {
    let mut cluster = Cluster::new(options.clone());
    cluster.apply(items.to_vec());
    cluster.settle();
    for skipped in &cluster.skipped {
        findings.push(Finding {
            place: skipped.place.clone(),
            object: skipped.object.clone(),
            namespace: String::new(),
            severity: Severity::Error,
            code: "Unusable",
            field: skipped.field.clone(),
            message: skipped.message.clone(),
        });
    }
    external_groups(items, findings);
    let by_name = by_name(items);
    for gang in cluster.world().gang_reports() {
        let at = source(&gang, &by_name);
        let object = if gang.owner.is_empty() { format!("PodGroup/{}", gang.key.name) } else { gang.owner.clone() };
        let mut push = |severity, code, field: &str, message| {
            let (place, namespace) = (at.clone().unwrap_or_default(), gang.key.namespace.clone());
            findings.push(Finding { place, object: object.clone(), namespace, severity, code, field: field.to_owned(), message });
        };
        for reason in gang.reasons.iter().filter(|reason| shown.judges(reason.code, reason.code_name())) {
            let field = reason.problem.as_ref().map_or("", |problem| problem.key.as_str());
            push(Severity::Error, reason.code_name(), field, explain::sentence(reason));
        }
        for warning in gang.warnings.iter().filter(|warning| shown.judges(Code::Problem, warning.code.as_str()) && at.is_some()) {
            push(Severity::Warning, warning.code.as_str(), &warning.key, explain::problem(warning));
        }
        if gang.min_member < gang.pods && gang.min_member <= 1 {
            let message = format!("has {} pods and a minimum of {}: they start one by one, and no gang protects them", gang.pods, gang.min_member);
            push(Severity::Warning, "MinimumBelowGroup", "minMember", message);
        }
    }
}

impl Shown {
    /// Whether a reason is the manifest's own, and not for want of a cluster.
    fn judges(&self, code: Code, name: &str) -> bool {
        match code {
            Code::QueueNotFound | Code::QueueNotLeaf | Code::QueueOrphaned => self.queues,
            Code::Problem => self.topologies || !["UnknownTopology", "UnknownLevel", "NoTopology"].contains(&name),
            Code::UnsupportedFeature | Code::NotEnoughPods => true,
            // Room, nodes and limits are the cluster's matter.
            _ => false,
        }
    }
}

fn by_name(items: &[Item]) -> BTreeMap<(String, String, String), Place> {
    let key = |item: &Item| {
        let namespace = text(&item.value, "/metadata/namespace");
        let namespace = if namespace.is_empty() { "default" } else { namespace };
        (namespace.to_owned(), text(&item.value, "/kind").to_owned(), text(&item.value, "/metadata/name").to_owned())
    };
    items.iter().filter(|item| is_workload(&item.value) || ["Pod", "PodGroup"].contains(&text(&item.value, "/kind"))).map(|item| (key(item), item.place.clone())).collect()
}

/// Where what a gang comes from stands.
fn source(gang: &GangReport, by_name: &BTreeMap<(String, String, String), Place>) -> Option<Place> {
    let find = |kind: &str, name: &str| by_name.get(&(gang.key.namespace.clone(), kind.to_owned(), name.to_owned())).cloned();
    let owner = gang.owner.split_once('/').and_then(|(kind, name)| find(kind, name));
    owner.or_else(|| find("PodGroup", &gang.key.name))
}

/// Pods that bring their own PodGroup: it must be there, and they must say so.
fn external_groups(items: &[Item], findings: &mut Vec<Finding>) {
    let groups: BTreeSet<&str> =
        of_kind(items, "scheduling.run.ai", "PodGroup").into_iter().map(|item| text(&item.value, "/metadata/name")).collect();
    for item in items {
        for (path, template) in pod_templates(&item.value) {
            let annotations = &template["metadata"]["annotations"];
            let Some(group) = annotations[keys::POD_GROUP].as_str() else { continue };
            let at = if path.is_empty() { "metadata".to_owned() } else { format!("{path}.metadata") };
            let field = format!("{at}.annotations.{}", keys::POD_GROUP);
            let skips = [annotations, &item.value["metadata"]["annotations"]].iter().any(|all| all[keys::SKIP_POD_GROUPER] == keys::TRUE);
            // A pod that nothing made names its PodGroup by itself.
            let is_made = !path.is_empty() || template["metadata"]["ownerReferences"].is_array();
            // A grouper writes the name of the PodGroup that it made.
            let by_grouper = path.is_empty() && is_made && group.starts_with(keys::POD_GROUP_NAME_PREFIX);
            if !skips && is_made && !by_grouper && template["spec"]["nodeName"].is_null() {
                let message = format!("has no effect without the annotation {}: \"true\": the pods get a PodGroup of their own", keys::SKIP_POD_GROUPER);
                findings.push(Finding::error(item, "PodGroupNotUsed", &field, message));
            } else if (skips || !is_made) && !groups.is_empty() && !groups.contains(group) {
                findings.push(Finding::error(item, "PodGroupMissing", &field, format!("names PodGroup {group}, which is not there")));
            }
        }
    }
}
