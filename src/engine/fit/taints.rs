//! Taints and tolerations, as plugins/tainttoleration of kube-scheduler has them.

use crate::facts::{NodeFacts, ShapeFacts, Taint, TaintEffect, Toleration, TolerationOperator};
use crate::outcome::Rule;

/// The first taint that keeps new pods away and is not tolerated.
pub(super) fn refusal(node: &NodeFacts, shape: &ShapeFacts) -> Option<Rule> {
    untolerated(node, shape).next().map(|taint| Rule::Taint(taint.key.clone()))
}

/// Taints that keep new pods away and are not tolerated.
pub(super) fn untolerated<'a>(node: &'a NodeFacts, shape: &'a ShapeFacts) -> impl Iterator<Item = &'a Taint> {
    node.taints.iter().filter(|taint| {
        taint.effect != TaintEffect::PreferNoSchedule
            && !shape.tolerations.iter().any(|toleration| tolerates(toleration, taint))
    })
}

/// Ten for each untolerated `PreferNoSchedule` taint.
pub(super) fn cost(node: &NodeFacts, shape: &ShapeFacts) -> i64 {
    let disliked = node.taints.iter().filter(|taint| {
        taint.effect == TaintEffect::PreferNoSchedule
            && !shape.tolerations.iter().any(|toleration| tolerates(toleration, taint))
    });
    10 * disliked.count() as i64
}

pub(super) fn tolerates_key(shape: &ShapeFacts, key: &str) -> bool {
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
