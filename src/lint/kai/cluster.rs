//! Differences that need more than one object: nodes beside topologies, pools, priority classes.

use std::collections::BTreeSet;

use berth_api::keys::{NODE_POOL, RAY_PRIORITY_CLASS};
use berth_discovery::names;
use serde_json::Value;

use super::super::{Finding, Severity, of_kind};
use crate::simulate::Options;
use crate::simulate::input::Item;
use crate::simulate::objects::text;

/// Classes that every installation has.
const SHIPPED: [&str; 6] = ["train", "build", "build-preemptible", "inference", "system-node-critical", "system-cluster-critical"];

/// Names that a sentence lists; the rest is counted.
const MAX_NAMED: usize = 3;

pub(super) fn check(items: &[Item], options: &Options, findings: &mut Vec<Finding>) {
    unlabelled_nodes(items, findings);
    pools(items, options, findings);
    ray_priority(items, findings);
    budgets(items, options, findings);
}

fn note(item: &Item, code: &'static str, field: &str, message: String) -> Finding {
    Finding::new(item, Severity::Note, code, field, message)
}

/// Nodes that KAI Scheduler leaves out of a topology because one label is missing.
fn unlabelled_nodes(items: &[Item], findings: &mut Vec<Finding>) {
    let nodes = of_kind(items, "", "Node");
    for topology in of_kind(items, "kai.scheduler", "Topology") {
        let levels: Vec<&str> =
            topology.value["spec"]["levels"].as_array().into_iter().flatten().filter_map(|level| level["nodeLabel"].as_str()).collect();
        let has = |node: &Item, key: &str| node.value["metadata"]["labels"][key].as_str().is_some_and(|value| !value.is_empty());
        let is_part = |node: &&&Item| levels.first().is_some_and(|first| has(node, first)) && !levels.iter().all(|key| has(node, key));
        let parts: Vec<&str> = nodes.iter().filter(is_part).map(|node| text(&node.value, "/metadata/name")).collect();
        if !parts.is_empty() {
            let listed = names::listed(parts.iter().copied(), MAX_NAMED);
            let message = format!("nodes that lack the label of a level ({listed}) are left out by KAI; here they take part above that level");
            findings.push(note(topology, "KaiDiffUnlabelledNodes", "spec.levels", message));
        }
    }
}

/// Nodes of pools that a shard without a value does not see.
fn pools(items: &[Item], options: &Options, findings: &mut Vec<Finding>) {
    let in_pools = of_kind(items, "", "Node").into_iter().filter(|node| node.value["metadata"]["labels"][NODE_POOL].is_string()).count();
    if in_pools == 0 || options.node_pool.is_part() {
        return;
    }
    for shard in of_kind(items, "kai.scheduler", "SchedulingShard").into_iter().filter(|shard| text(&shard.value, "/spec/partitionLabelValue").is_empty()) {
        let message = format!("KAI sees what lacks the label {NODE_POOL} only; here, without --partition-label-value, what has it is seen, too ({in_pools} of the nodes)");
        findings.push(note(shard, "KaiDiffPools", "spec.partitionLabelValue", message));
    }
}

/// Disruption budgets where our pods are.
fn budgets(items: &[Item], options: &Options, findings: &mut Vec<Finding>) {
    let is_ours = |item: &&Item| super::super::pod_templates(&item.value).iter().any(|(_, template)| template["spec"]["schedulerName"] == *options.scheduler_name);
    let namespaces: BTreeSet<&str> = items.iter().filter(is_ours).map(|item| text(&item.value, "/metadata/namespace")).collect();
    for budget in of_kind(items, "policy", "PodDisruptionBudget").into_iter().filter(|budget| namespaces.contains(text(&budget.value, "/metadata/namespace"))) {
        findings.push(note(budget, "KaiDiffEviction", "spec", "KAI deletes pods and does not look at it; here pods are evicted, and it counts".to_owned()));
    }
}

fn ray_priority(items: &[Item], findings: &mut Vec<Finding>) {
    let known: BTreeSet<&str> = of_kind(items, "scheduling.k8s.io", "PriorityClass").into_iter().map(|class| text(&class.value, "/metadata/name")).collect();
    if known.is_empty() {
        return;
    }
    for item in items.iter().filter(|item| text(&item.value, "/apiVersion").starts_with("ray.io/")) {
        let Value::String(class) = &item.value["metadata"]["labels"][RAY_PRIORITY_CLASS] else { continue };
        if !known.contains(class.as_str()) && !SHIPPED.contains(&class.as_str()) {
            let message = format!("names {class}, which is not there: KAI does not look; here the class of its kind counts, and it is said");
            findings.push(note(item, "KaiDiffRayPriority", &format!("metadata.labels.{RAY_PRIORITY_CLASS}"), message));
        }
    }
}
