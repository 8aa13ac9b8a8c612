//! Priority class and preemptibility of workloads that name none, by their kind: what an operator writes into a ConfigMap, as
//! KAI Scheduler reads it. Its key `types` is a JSON list of `{typeName, group, priorityName, preemptibility}`; an entry with a
//! group counts before one without.

use std::collections::BTreeMap;

use berth_api::pod_group::Preemptibility;
use serde::Deserialize;
use serde_json::Value;

use super::rules::RuleProblem;

const TYPES: &str = "data.types";

/// What workloads of one kind have when they say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindDefault {
    /// Name of the priority class.
    pub priority: Option<String>,
    /// Whether they may be preempted.
    pub preemptibility: Option<Preemptibility>,
}

/// All of them, by `Kind.group` or `Kind`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindDefaults(BTreeMap<String, KindDefault>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    type_name: String,
    #[serde(default)]
    group: String,
    #[serde(default)]
    priority_name: String,
    #[serde(default)]
    preemptibility: String,
}

impl KindDefaults {
    /// That of a kind.
    #[must_use]
    pub fn get(&self, group: &str, kind: &str) -> Option<&KindDefault> {
        self.0.get(&format!("{kind}.{group}")).or_else(|| self.0.get(kind))
    }

    /// Those of a ConfigMap. One mistake refuses all of it, and is named.
    pub fn parse(map: &Value) -> Result<Self, RuleProblem> {
        let problem = |field: String, message: String| RuleProblem { field, message };
        let text = map.pointer("/data/types").and_then(Value::as_str);
        let text = text.ok_or_else(|| problem(TYPES.to_owned(), "is missing; allowed is a JSON list".to_owned()))?;
        let entries: Vec<Entry> =
            serde_json::from_str(text).map_err(|error| problem(TYPES.to_owned(), format!("can't be read: {error}")))?;
        let mut all = BTreeMap::new();
        for (position, entry) in entries.into_iter().enumerate() {
            let field = |name: &str| format!("{TYPES}[{position}].{name}");
            if entry.type_name.is_empty() {
                return Err(problem(field("typeName"), "is empty; allowed is a kind".to_owned()));
            }
            let preemptibility = match entry.preemptibility.as_str() {
                "" => None,
                "preemptible" => Some(Preemptibility::Preemptible),
                "non-preemptible" => Some(Preemptibility::NonPreemptible),
                other => {
                    let message = format!("is \"{other}\"; allowed is preemptible or non-preemptible");
                    return Err(problem(field("preemptibility"), message));
                }
            };
            let key = if entry.group.is_empty() { entry.type_name } else { format!("{}.{}", entry.type_name, entry.group) };
            let priority = Some(entry.priority_name).filter(|name| !name.is_empty());
            all.insert(key, KindDefault { priority, preemptibility });
        }
        Ok(Self(all))
    }
}
