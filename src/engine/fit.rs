//! Which nodes a shape may use, and how many copies fit.
//!
//! `refusal` covers the rules that do not depend on what the node holds;
//! `slots` is the largest number of copies that fit on top of what it holds
//! (placement.md section 1: an oracle, not a division).

pub mod volumes;

use crate::facts::{
    HostPort, NodeFacts, NodeTerm, Requirement, SelectorOperator, ShapeFacts, Taint, TaintEffect,
    Toleration, TolerationOperator,
};
use crate::outcome::Rule;

/// The taint that a cordon adds, and its meaning for pods that tolerate it.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";
/// The taint of nodes that are not ready; daemons tolerate it.
const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
/// The taint of nodes that are not heard of.
const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";

/// The first rule, room aside, by which this node refuses the shape.
#[must_use]
pub fn refusal(node: &NodeFacts, shape: &ShapeFacts) -> Option<Rule> {
    if node.unschedulable && !tolerates_key(shape, CORDON_TAINT) {
        return Some(Rule::Cordoned);
    }
    // Once the cluster has put the taint, toleration of the taint decides.
    let tainted = node.taints.iter().any(|taint| taint.key == NOT_READY_TAINT || taint.key == UNREACHABLE_TAINT);
    if !node.ready && !tainted && !tolerates_key(shape, NOT_READY_TAINT) {
        return Some(Rule::NotReady);
    }
    if !affinity_matches(node, shape) {
        return Some(Rule::NodeAffinity);
    }
    node.taints
        .iter()
        .find(|taint| {
            taint.effect != TaintEffect::PreferNoSchedule
                && !(taint.key == CORDON_TAINT && node.unschedulable)
                && !shape.tolerations.iter().any(|toleration| tolerates(toleration, taint))
        })
        .map(|taint| Rule::Taint(taint.key.clone()))
}

/// Cost of the soft rules for one pod of the shape on this node; smaller is better.
///
/// Integers, not normalised over candidates (placement.md section 3, line 5):
/// the weights of preferred terms that do not match, ten for each untolerated
/// `PreferNoSchedule` taint, and one for a pod without GPUs on a GPU node
/// (KAI's resource type rule).
#[must_use]
pub fn soft_cost(node: &NodeFacts, shape: &ShapeFacts) -> u32 {
    let unmatched: i64 = shape
        .preferred_affinity
        .iter()
        .filter(|(_, term)| !term_matches(node, term))
        .map(|(weight, _)| i64::from((*weight).clamp(0, 100)))
        .sum();
    let disliked = node
        .taints
        .iter()
        .filter(|taint| {
            taint.effect == TaintEffect::PreferNoSchedule
                && !shape.tolerations.iter().any(|toleration| tolerates(toleration, taint))
        })
        .count();
    let wasted = u32::from(
        !shape.requests.keys().any(|name| is_gpu(name))
            && node.allocatable.iter().any(|(name, amount)| is_gpu(name) && *amount > 0),
    );
    let total = unmatched + 10 * disliked as i64 + i64::from(wasted);
    u32::try_from(total).unwrap_or(u32::MAX).min(MAX_SOFT_COST)
}

/// Bound of one pod's soft cost, so that sums stay small integers: 100 preferred
/// terms of weight 100 are more than any pod in the field carries.
pub const MAX_SOFT_COST: u32 = 10_000;

/// True for resources that count as GPUs in queues and strategies.
#[must_use]
pub fn is_gpu(resource: &str) -> bool {
    matches!(resource, "nvidia.com/gpu" | "amd.com/gpu")
}

/// True when two host ports cannot be on one node.
#[must_use]
pub fn ports_conflict(a: &HostPort, b: &HostPort) -> bool {
    let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0" || ip == "::";
    a.port == b.port
        && a.protocol == b.protocol
        && (any(&a.ip) || any(&b.ip) || a.ip == b.ip)
}

fn tolerates_key(shape: &ShapeFacts, key: &str) -> bool {
    let taint =
        Taint { key: key.to_owned(), value: String::new(), effect: TaintEffect::NoSchedule };
    shape.tolerations.iter().any(|toleration| tolerates(toleration, &taint))
}

/// True when the toleration covers the taint (core API rules).
#[must_use]
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    if toleration.effect.is_some_and(|effect| effect != taint.effect) {
        return false;
    }
    if toleration.key.is_empty() {
        return toleration.operator == TolerationOperator::Exists;
    }
    if toleration.key != taint.key {
        return false;
    }
    match toleration.operator {
        TolerationOperator::Exists => true,
        TolerationOperator::Equal => toleration.value == taint.value,
        TolerationOperator::Lt => compare(&taint.value, &toleration.value).is_some_and(|o| o.is_lt()),
        TolerationOperator::Gt => compare(&taint.value, &toleration.value).is_some_and(|o| o.is_gt()),
    }
}

fn compare(a: &str, b: &str) -> Option<std::cmp::Ordering> {
    Some(a.parse::<i64>().ok()?.cmp(&b.parse::<i64>().ok()?))
}

fn affinity_matches(node: &NodeFacts, shape: &ShapeFacts) -> bool {
    shape.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && shape
            .required_affinity
            .as_ref()
            .is_none_or(|terms| terms.iter().any(|term| term_matches(node, term)))
}

pub(crate) fn term_matches(node: &NodeFacts, term: &NodeTerm) -> bool {
    !term.requirements.is_empty()
        && term.requirements.iter().all(|requirement| requirement_matches(node, requirement))
}

fn requirement_matches(node: &NodeFacts, requirement: &Requirement) -> bool {
    let found =
        if requirement.on_name { Some(&node.name) } else { node.labels.get(&requirement.key) };
    match requirement.operator {
        SelectorOperator::In => found.is_some_and(|value| requirement.values.contains(value)),
        SelectorOperator::NotIn => found.is_none_or(|value| !requirement.values.contains(value)),
        SelectorOperator::Exists => found.is_some(),
        SelectorOperator::DoesNotExist => found.is_none(),
        SelectorOperator::Gt => integer_test(found, requirement, |found, wanted| found > wanted),
        SelectorOperator::Lt => integer_test(found, requirement, |found, wanted| found < wanted),
    }
}

fn integer_test(
    found: Option<&String>,
    requirement: &Requirement,
    test: impl Fn(i64, i64) -> bool,
) -> bool {
    match (found.and_then(|value| value.parse().ok()), requirement.values.as_slice()) {
        (Some(found), [wanted]) => wanted.parse().is_ok_and(|wanted| test(found, wanted)),
        _ => false,
    }
}
