//! Queues: limits that are left out, and trees that do not hang together.

use std::collections::BTreeMap;

use super::{Finding, of_kind};
use crate::simulate::input::Item;

const RESOURCES: [&str; 3] = ["gpu", "cpu", "memory"];

fn parent(queue: &Item) -> Option<&str> {
    queue.value["spec"]["parentQueue"].as_str().filter(|parent| !parent.is_empty())
}

pub(super) fn check(items: &[Item], findings: &mut Vec<Finding>) {
    let queues = of_kind(items, "scheduling.run.ai", "Queue");
    let by_name: BTreeMap<&str, &Item> =
        queues.iter().filter_map(|item| Some((item.value["metadata"]["name"].as_str()?, *item))).collect();
    for queue in &queues {
        let resources = &queue.value["spec"]["resources"];
        let absent: Vec<&str> = RESOURCES.into_iter().filter(|resource| resources[*resource]["limit"].is_null()).collect();
        if resources.is_object() && !absent.is_empty() {
            let message = format!("without a limit of {}: a limit that is left out is 0, so nothing that asks for it runs; -1 is none", absent.join(", "));
            findings.push(Finding::warning(queue, "QueueWithoutLimit", "spec.resources", message));
        } else if !resources.is_object() {
            findings.push(Finding::error(queue, "QueueWithoutResources", "spec.resources", "missing; -1 means unlimited".to_owned()));
        }
        tree(queue, &by_name, findings);
        quotas(queue, &queues, findings);
    }
}

fn tree<'a>(queue: &'a Item, by_name: &BTreeMap<&str, &'a Item>, findings: &mut Vec<Finding>) {
    let mut at = queue;
    for _ in 0..by_name.len() {
        let Some(name) = parent(at) else { return };
        let Some(above) = by_name.get(name) else {
            if std::ptr::eq(at, queue) {
                let message = format!("names queue {name}, which is not there: no work starts in this queue or below it");
                findings.push(Finding::error(queue, "QueueOrphaned", "spec.parentQueue", message));
            }
            return;
        };
        at = above;
    }
    if parent(at).is_some() {
        let message = "leads in a circle: no work starts in this queue".to_owned();
        findings.push(Finding::error(queue, "QueueOrphaned", "spec.parentQueue", message));
    }
}

/// The children together deserve more than their parent.
fn quotas(queue: &Item, queues: &[&Item], findings: &mut Vec<Finding>) {
    let quota = |queue: &Item, resource: &str| queue.value["spec"]["resources"][resource]["quota"].as_f64().unwrap_or(0.0);
    for resource in RESOURCES {
        let own = quota(queue, resource);
        let name = queue.value["metadata"]["name"].as_str();
        let below: f64 = queues.iter().filter(|other| name.is_some() && parent(other) == name).map(|other| quota(other, resource).max(0.0)).sum();
        if own >= 0.0 && below > own {
            let message = format!("the queues below deserve {below} together, this one {own}: they do not get what they deserve when it matters");
            findings.push(Finding::warning(queue, "QuotaOfChildren", &format!("spec.resources.{resource}.quota"), message));
        }
    }
}

/// Whether any Queue is among the objects.
pub(super) fn any(items: &[Item]) -> bool {
    items.iter().any(|item| item.value["kind"] == "Queue")
}
