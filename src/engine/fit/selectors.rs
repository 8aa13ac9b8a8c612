//! Label selectors of pods and namespaces.

use std::collections::BTreeMap;

use super::tallies::Term;
use crate::facts::{LabelRequirement, LabelSelector, SelectorOperator};

/// True when every requirement holds; a selector without any matches everything.
#[must_use]
pub fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    selector.requirements.iter().all(|requirement| holds(requirement, labels))
}

fn holds(requirement: &LabelRequirement, labels: &BTreeMap<String, String>) -> bool {
    let found = labels.get(&requirement.key);
    match requirement.operator {
        SelectorOperator::In => found.is_some_and(|value| requirement.values.contains(value)),
        SelectorOperator::NotIn => found.is_none_or(|value| !requirement.values.contains(value)),
        SelectorOperator::Exists => found.is_some(),
        SelectorOperator::DoesNotExist => found.is_none(),
        SelectorOperator::Gt | SelectorOperator::Lt => false,
    }
}

/// True when a pod belongs to a term.
pub(crate) fn belongs(
    term: &Term,
    namespace: &str,
    namespace_labels: &BTreeMap<String, String>,
    labels: &BTreeMap<String, String>,
) -> bool {
    term.who.iter().all(|who| {
        let at_home = who.namespaces.contains(namespace)
            || who.namespace_selector.as_ref().is_some_and(|selector| selects(selector, namespace_labels));
        at_home && who.selector.as_ref().is_some_and(|selector| selects(selector, labels))
    })
}
