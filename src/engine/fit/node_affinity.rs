//! Node selector and node affinity, required and preferred, as plugins/nodeaffinity of
//! kube-scheduler has them: a list of no terms matches no node.

use crate::facts::{NodeFacts, NodeTerm, Requirement, SelectorOperator, ShapeFacts};
use crate::outcome::Rule;

/// The selector or the required affinity does not match.
pub(super) fn refusal(node: &NodeFacts, shape: &ShapeFacts) -> Option<Rule> {
    (!matches(node, shape)).then_some(Rule::NodeAffinity)
}

/// Weights of preferred terms that do not match.
pub(super) fn cost(node: &NodeFacts, shape: &ShapeFacts) -> i64 {
    let unmatched = shape.preferred_affinity.iter().filter(|(_, term)| !term_matches(node, term));
    unmatched.map(|(weight, _)| i64::from((*weight).clamp(0, 100))).sum()
}

/// True when the selector and the required affinity allow the node.
pub(super) fn matches(node: &NodeFacts, shape: &ShapeFacts) -> bool {
    shape.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && shape
            .required_affinity
            .as_ref()
            .is_none_or(|terms| terms.iter().any(|term| term_matches(node, term)))
}

/// True when every requirement of the term holds; an empty term matches nothing.
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
