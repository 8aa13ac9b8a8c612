//! A workload as the differences look at it: what its owner says, and what the templates of its pods say.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::keys;
use serde_json::Value;

use super::super::{Finding, Severity, derived, group_of, pod_templates};
use crate::simulate::input::Item;
use crate::simulate::objects::text;

/// One workload. Of one that is not given itself, as in KAI Scheduler's archive, its first pod and its PodGroup say what they can.
pub(super) struct Work<'a> {
    /// What a finding is about.
    pub(super) item: &'a Item,
    /// API group and kind of the top owner.
    pub(super) group: String,
    pub(super) kind: String,
    /// The annotations of the top owner.
    pub(super) own: &'a Value,
    /// Where the pods' metadata stand, and what is there.
    pub(super) templates: Vec<(String, &'a Value)>,
}

impl<'a> Work<'a> {
    /// The object itself; nothing of a workload that is not given.
    pub(super) fn object(&self) -> &'a Value {
        if self.is_given() { &self.item.value } else { &Value::Null }
    }

    fn is_given(&self) -> bool {
        self.templates.iter().all(|(path, _)| !path.is_empty()) || self.item.value["metadata"]["ownerReferences"].is_null()
    }

    /// True for a kind of this group.
    pub(super) fn is(&self, group: &str, kinds: &[&str]) -> bool {
        self.group == group && kinds.contains(&self.kind.as_str())
    }

    /// An annotation of the top owner.
    pub(super) fn own(&self, key: &str) -> Option<&'a str> {
        self.own[key].as_str()
    }

    /// An annotation of the pods, with the field that holds it.
    pub(super) fn of_templates(&self, key: &str) -> Option<(String, &'a str)> {
        self.templates.iter().find_map(|(path, template)| Some((annotation(path, key), template["metadata"]["annotations"][key].as_str()?)))
    }

    /// An annotation of the owner or of its pods, with the field that holds it.
    pub(super) fn anywhere(&self, key: &str) -> Option<(String, &'a str)> {
        self.own(key).map(|value| (annotation("", key), value)).or_else(|| self.of_templates(key))
    }

    /// What is said of it.
    pub(super) fn finding(&self, code: &'static str, field: &str, message: String) -> Finding {
        Finding::new(self.item, Severity::Note, code, field, message)
    }
}

/// The field of an annotation below a path.
pub(super) fn annotation(path: &str, key: &str) -> String {
    if path.is_empty() { format!("metadata.annotations.{key}") } else { format!("{path}.metadata.annotations.{key}") }
}

/// Everything that somebody wrote and that pods come from, or that kinds of KAI Scheduler describe.
pub(super) fn all(items: &[Item]) -> Vec<Work<'_>> {
    let groups: BTreeMap<(&str, &str), &Value> = items
        .iter()
        .filter(|item| item.value["kind"] == "PodGroup")
        .map(|item| ((text(&item.value, "/metadata/namespace"), text(&item.value, "/metadata/name")), &item.value))
        .collect();
    let mut seen = BTreeSet::new();
    let mut works = Vec::new();
    for item in derived::written(items) {
        let value = &item.value;
        let is_made = value["kind"] == "Pod" && value["metadata"]["ownerReferences"].is_array();
        if !is_made {
            let templates: Vec<_> = pod_templates(value);
            works.push(Work { item, group: group_of(text(value, "/apiVersion")).to_owned(), kind: text(value, "/kind").to_owned(), own: &value["metadata"]["annotations"], templates });
            continue;
        }
        // One pod speaks for all that its owner made.
        if !seen.insert(text(value, "/metadata/ownerReferences/0/uid")) {
            continue;
        }
        let name = value["metadata"]["annotations"][keys::POD_GROUP].as_str().unwrap_or_default();
        let pod_group = groups.get(&(text(value, "/metadata/namespace"), name)).copied().unwrap_or(&Value::Null);
        let (group, kind) = top_owner(value, pod_group);
        works.push(Work { item, group, kind, own: &pod_group["metadata"]["annotations"], templates: vec![(String::new(), value)] });
    }
    works
}

/// Group and kind of the top owner: as the PodGroup notes it, or the pod's own owner.
fn top_owner(pod: &Value, pod_group: &Value) -> (String, String) {
    let noted = pod_group["metadata"]["annotations"][keys::TOP_OWNER_METADATA].as_str().unwrap_or_default();
    let line = |field: &str| noted.lines().find_map(|line| line.strip_prefix(field)).map(|value| value.trim().trim_matches('"').to_owned());
    if let (Some(group), Some(kind)) = (line("group:"), line("kind:")) {
        return (group, kind);
    }
    let version = text(pod, "/metadata/ownerReferences/0/apiVersion");
    (group_of(version).to_owned(), text(pod, "/metadata/ownerReferences/0/kind").to_owned())
}
