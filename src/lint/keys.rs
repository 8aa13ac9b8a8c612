//! Labels and annotations: unknown keys near a known one, labels written as annotations and the other way round, keys on an
//! object where nobody reads them, and keys that have a newer name.

use berth_api::keys;
use serde_json::Value;

use super::{Finding, pod_templates};
use crate::simulate::input::Item;

/// Annotations that are read or written.
pub(super) const ANNOTATIONS: [&str; 29] = [
    keys::TOPOLOGY, keys::TOPOLOGY_REQUIRED, keys::TOPOLOGY_PREFERRED, keys::SEGMENT_SIZE, keys::SEGMENT_REQUIRED,
    keys::SEGMENT_PREFERRED, keys::BATCH_MIN_MEMBER, keys::SKIP_POD_GROUPER, keys::PREEMPTION_DELAY,
    keys::STALENESS_GRACE_PERIOD, keys::POD_INDEX_LABEL, keys::TOP_OWNER_METADATA, keys::STALE_TIMESTAMP,
    keys::LAST_START_TIMESTAMP, keys::LAST_EVICTION_TIMESTAMP, keys::NUMA_PREDICTED, keys::NUMA_OBSERVED,
    keys::DEFAULT_TOPOLOGY, keys::AUTOMATIC_PREFERRED, keys::DECISION, keys::DOMAIN, keys::DERIVED_CONSTRAINT, keys::GANG,
    keys::GANG_ROLE, keys::OBJECTIVE, keys::DERIVED_OBJECTIVE, keys::PROMISED,
    keys::MAX_DOMAINS, keys::DERIVED_MAX_DOMAINS,
];

/// Labels that are read or written.
pub(super) const LABELS: [&str; 6] =
    [keys::QUEUE, keys::PREEMPTIBILITY, keys::NODE_POOL, keys::SUB_GROUP, keys::TASK_PRIORITY, keys::ACCOUNTING];

/// Annotations that may have more to their name, or stand as either.
const FREE: [&str; 1] = [keys::GANG_ROLES];

/// Keys that have a newer name, or that another scheduler reads.
const OLD: [(&str, &str); 5] = [
    ("runai/queue", keys::QUEUE),
    ("runai/topology", keys::TOPOLOGY),
    (keys::PROJECT, keys::QUEUE),
    ("kueue.x-k8s.io/podset-required-topology", keys::TOPOLOGY_REQUIRED),
    ("kueue.x-k8s.io/podset-preferred-topology", keys::TOPOLOGY_PREFERRED),
];

/// The constraint of a PodGroup written by hand is a field.
const CONSTRAINTS: [&str; 3] = [keys::TOPOLOGY, keys::TOPOLOGY_REQUIRED, keys::TOPOLOGY_PREFERRED];

/// Most letters by which a key may differ from the one that was meant.
const MAX_DISTANCE: usize = 3;

pub(super) fn check(item: &Item, findings: &mut Vec<Finding>) {
    let kind = item.value["kind"].as_str().unwrap_or_default();
    metadata(item, "metadata", &item.value["metadata"], findings);
    for (path, template) in pod_templates(&item.value).into_iter().filter(|(path, _)| !path.is_empty()) {
        metadata(item, &format!("{path}.metadata"), &template["metadata"], findings);
        if template["metadata"]["annotations"][keys::BATCH_MIN_MEMBER].is_string() {
            let field = format!("{path}.metadata.annotations.{}", keys::BATCH_MIN_MEMBER);
            let message = format!("the minimum is read on the {kind} itself, not in its pod template: move it to metadata.annotations");
            findings.push(Finding::error(item, "KeyOnWrongObject", &field, message));
        }
    }
    if kind == "PodGroup" {
        for key in CONSTRAINTS.iter().filter(|key| item.value["metadata"]["annotations"][**key].is_string()) {
            let message = "a PodGroup's constraint is its field spec.topologyConstraint; the annotation is read on workloads".to_owned();
            findings.push(Finding::error(item, "KeyOnWrongObject", &format!("metadata.annotations.{key}"), message));
        }
    }
}

fn metadata(item: &Item, path: &str, metadata: &Value, findings: &mut Vec<Finding>) {
    for (place, right, wrong, other) in [("labels", &LABELS[..], &ANNOTATIONS[..], "annotation"), ("annotations", &ANNOTATIONS[..], &LABELS[..], "label")] {
        for key in metadata[place].as_object().into_iter().flat_map(|map| map.keys()) {
            let field = format!("{path}.{place}.{key}");
            if let Some((_, new)) = OLD.iter().find(|(old, _)| old == key) {
                findings.push(Finding::warning(item, "OldKey", &field, format!("write {new} instead")));
            } else if wrong.contains(&key.as_str()) {
                let message = format!("is an {other} or nothing: as one of the {place} nobody reads it").replace("an label", "a label");
                findings.push(Finding::error(item, "KeyInWrongPlace", &field, message));
            } else if !right.contains(&key.as_str()) && !FREE.contains(&key.as_str()) && is_like_ours(key) {
                findings.push(unknown(item, &field, key));
            }
        }
    }
}

/// A key that says something to whoever looks at keys: ours, one that is nearly ours, or one with a newer name.
#[must_use]
pub fn is_looked_at(key: &str) -> bool {
    is_like_ours(key) || OLD.iter().any(|(old, _)| *old == key)
}

/// A key that is ours by its prefix, or nearly.
fn is_like_ours(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    ["kai.scheduler", "berth.scheduler"].iter().any(|ours| !prefix.is_empty() && distance(prefix, ours) <= 2)
}

fn unknown(item: &Item, field: &str, key: &str) -> Finding {
    let known = ANNOTATIONS.iter().chain(&LABELS);
    match nearest(key, known.copied()) {
        Some(known) => Finding::error(item, "UnknownKey", field, format!("is no key that anybody reads; did you mean {known}?")),
        None => Finding::warning(item, "UnknownKey", field, "is no key that anybody reads".to_owned()),
    }
}

/// The known word that is close enough to have been meant.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.map(|known| (distance(word, known), known)).min();
    near.filter(|(distance, _)| *distance <= MAX_DISTANCE).map(|(_, known)| known)
}

/// Letters to insert, take out or exchange to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let exchanged = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_letters() {
        assert_eq!([distance("", "abc"), distance("abc", "abc"), distance("kitten", "sitting"), distance("ab", "ba")], [3, 0, 3, 2]);
    }

    #[test]
    fn every_key_of_ours_is_known() {
        let source = include_str!("../api/keys.rs");
        let values = source.lines().filter(|line| line.starts_with("pub const")).filter_map(|line| line.split('"').nth(1));
        let ours: Vec<&str> = values.filter(|value| value.starts_with("kai.scheduler/") || value.starts_with("berth.scheduler/")).collect();
        assert!(ours.len() > 25, "the keys are read: {ours:?}");
        for key in ours {
            assert!(ANNOTATIONS.contains(&key) || LABELS.contains(&key) || FREE.contains(&key), "{key}");
        }
    }
}
