//! Lint of manifests and dumps: what would keep work from starting, or from being placed as meant, found before it is applied.
//!
//! Everything is judged from the objects given. What they do not hold (queues, topologies, nodes) is not judged: a manifest
//! alone can't be blamed for a cluster that was not shown.

mod derived;
pub mod kai;
mod keys;
mod queues;
mod topology;
mod workloads;

use std::collections::BTreeMap;

use serde_json::Value;

pub use keys::is_looked_at;
pub(crate) use keys::nearest;

use crate::simulate::Options;
use crate::simulate::input::{Item, Place};
use crate::simulate::objects::{name_of, text};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Work does not start, or a key has no effect.
    Error,
    /// Probably not what was meant.
    Warning,
    /// As it should be, and otherwise than it was.
    Note,
}

impl Severity {
    /// As it is printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Where the object stands.
    pub place: Place,
    /// The object, such as `batch/v1/Job train`.
    pub object: String,
    /// Its namespace; empty when it has none, or names none.
    pub namespace: String,
    /// How bad it is.
    pub severity: Severity,
    /// Stable CamelCase code.
    pub code: &'static str,
    /// The field or key; empty when the whole object is meant.
    pub field: String,
    /// What is wrong and what would be right, in a sentence.
    pub message: String,
}

impl Finding {
    fn new(item: &Item, severity: Severity, code: &'static str, field: &str, message: String) -> Self {
        let namespace = text(&item.value, "/metadata/namespace").to_owned();
        Self { place: item.place.clone(), object: name_of(&item.value), namespace, severity, code, field: field.to_owned(), message }
    }

    fn error(item: &Item, code: &'static str, field: &str, message: String) -> Self {
        Self::new(item, Severity::Error, code, field, message)
    }

    fn warning(item: &Item, code: &'static str, field: &str, message: String) -> Self {
        Self::new(item, Severity::Warning, code, field, message)
    }
}

/// What the objects show of the cluster that they are for: of the rest nothing is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// All its queues.
    pub queues: bool,
    /// All its topologies.
    pub topologies: bool,
}

impl Shown {
    /// Of files: every queue or none, every topology or none.
    #[must_use]
    pub fn by(items: &[Item]) -> Self {
        Self { queues: queues::any(items), topologies: !of_kind(items, "kai.scheduler", "Topology").is_empty() }
    }
}

/// Everything that is to be said of these objects, by place.
#[must_use]
pub fn check(items: &[Item], shown: Shown, options: &Options) -> Vec<Finding> {
    let mut findings = Vec::new();
    let readers = workloads::readers(items, &options.scheduler_name);
    // What was made from something else is judged where it is written.
    for item in derived::written(items) {
        keys::check(item, &mut findings);
        workloads::check_scheduler(item, &options.scheduler_name, &readers, &mut findings);
    }
    queues::check(items, &mut findings);
    topology::check(items, &mut findings);
    workloads::check_gangs(items, shown, options, &mut findings);
    let namespaces: BTreeMap<String, &str> = items.iter().map(|item| (name_of(&item.value), text(&item.value, "/metadata/namespace"))).collect();
    for finding in findings.iter_mut().filter(|finding| finding.namespace.is_empty()) {
        finding.namespace = namespaces.get(&finding.object).copied().unwrap_or_default().to_owned();
    }
    findings.sort();
    findings.dedup();
    findings
}

/// The API group of an `apiVersion`.
fn group_of(version: &str) -> &str {
    version.split_once('/').map_or("", |(group, _)| group)
}

fn of_kind<'a>(items: &'a [Item], group: &str, kind: &str) -> Vec<&'a Item> {
    let is_meant = |item: &&Item| {
        let version = item.value["apiVersion"].as_str().unwrap_or_default();
        item.value["kind"] == kind && group_of(version) == group
    };
    items.iter().filter(is_meant).collect()
}

/// What describes pods inside an object: the object itself when it is a pod, and templates at any depth, with their path.
fn pod_templates(value: &Value) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), value)];
    while let Some((path, value)) = open.pop() {
        if value["spec"]["containers"].is_array() {
            found.push((path, value));
            continue;
        }
        match value {
            Value::Object(map) => {
                let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
                open.extend(map.iter().rev().map(|(key, value)| (below(key), value)));
            }
            Value::Array(list) => open.extend(list.iter().enumerate().rev().map(|(at, value)| (format!("{path}[{at}]"), value))),
            _ => {}
        }
    }
    found
}
