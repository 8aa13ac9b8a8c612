//! The look at one's own rights at the start: what `berth generate rbac` lists and this account does not have is named once,
//! with what does not work without it. Everything else works.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::authorization::v1::{ResourceRule, SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::Value;
use tracing::{info, warn};

use crate::rbac::{self, Options};
use crate::telemetry::Metrics;

/// A right that is not there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Missing {
    /// API group; empty is the core.
    pub group: String,
    /// Resource in the plural, with its subresource.
    pub resource: String,
    /// Verbs, in order.
    pub verbs: Vec<String>,
}

impl Missing {
    /// What does not work without it.
    #[must_use]
    pub fn lost(&self) -> &'static str {
        match (self.group.as_str(), self.resource.as_str()) {
            ("", "pods") if self.verbs == ["patch"] => "labels before Bindings, which API server 1.34 needs",
            ("", "pods" | "nodes") => "everything: nothing is decided without them",
            ("", "pods/binding") => "placing: no pod gets a node",
            ("", "pods/eviction") => "evictions: for others, and of gangs below their minimum",
            ("", "events") => "events about pods and gangs",
            ("", "pods/status") => "the reason on a pod, and nominated nodes",
            ("scheduling.run.ai", "podgroups") => "PodGroups of workloads, which make gangs of pods",
            ("scheduling.run.ai", "podgroups/status" | "queues/status") => "statuses that people and dashboards read",
            ("scheduling.run.ai", "queues") => "queues: shares and limits",
            ("kai.scheduler", "topologies") => "topologies: constraints that name one",
            ("scheduler.grove.io", "podgangs/status") => "the placement score that Grove reads",
            ("coordination.k8s.io", _) => "leader election",
            _ => "what depends on this kind: its pods wait and say so",
        }
    }
}

/// Whether one of the granted rules allows it. A rule for named objects allows those only.
fn allows(rule: &ResourceRule, group: &str, resource: &str, verb: &str, name: Option<&str>) -> bool {
    let has = |list: Option<&Vec<String>>, wanted: &str| list.is_some_and(|list| list.iter().any(|one| one == "*" || one == wanted));
    let any_sub = resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
    let names = rule.resource_names.as_deref().unwrap_or_default();
    has(Some(&rule.verbs), verb)
        && has(rule.api_groups.as_ref(), group)
        && (has(rule.resources.as_ref(), resource) || any_sub.is_some_and(|any| has(rule.resources.as_ref(), &any)))
        && (names.is_empty() || name.is_some_and(|name| names.iter().any(|one| one == name)))
}

/// Group, resource and verb of everything that a rule allows.
fn each(rule: &Value) -> Vec<(&str, &str, &str)> {
    let words = |key: &str| rule[key].as_array().into_iter().flatten().filter_map(Value::as_str);
    words("apiGroups").flat_map(|group| words("resources").flat_map(move |resource| words("verbs").map(move |verb| (group, resource, verb)))).collect()
}

/// The rights among `wanted` (rules of roles) that `granted` does not hold, in order.
fn missing(wanted: &[Value], granted: &[ResourceRule]) -> Vec<Missing> {
    let mut found: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for rule in wanted {
        let name = rule["resourceNames"][0].as_str();
        for (group, resource, verb) in each(rule) {
            if !granted.iter().any(|rule| allows(rule, group, resource, verb, name)) {
                found.entry((group, resource)).or_default().insert(verb);
            }
        }
    }
    let owned = |verbs: BTreeSet<&str>| verbs.into_iter().map(str::to_owned).collect();
    found.into_iter().map(|((group, resource), verbs)| Missing { group: group.to_owned(), resource: resource.to_owned(), verbs: owned(verbs) }).collect()
}

/// Asks the API server what this process may do, in one request, and names what is missing in the log and a metric.
pub async fn check(client: &Client, options: &Options<'_>, metrics: &Metrics) {
    let spec = SelfSubjectRulesReviewSpec { namespace: Some(options.namespace.to_owned()) };
    let review = SelfSubjectRulesReview { spec, ..SelfSubjectRulesReview::default() };
    let answer = Api::<SelfSubjectRulesReview>::all(client.clone()).create(&PostParams::default(), &review).await;
    let status = match answer {
        Ok(review) => review.status.unwrap_or_default(),
        Err(error) => {
            info!(%error, "the own rights could not be looked at");
            return;
        }
    };
    let wanted: Vec<Value> = rbac::manifests(options)
        .into_iter()
        .filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role")))
        .filter(|role| role["metadata"]["namespace"].as_str().is_none_or(|namespace| namespace == options.namespace))
        .flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default())
        .collect();
    let missing = missing(&wanted, &status.resource_rules);
    if status.incomplete && !missing.is_empty() {
        // An authorizer that can't list what it allows (a webhook) may allow the rest.
        info!(unknown = missing.len(), "some rights are not known; what is refused later is said then");
        return;
    }
    let count = missing.iter().map(|one| one.verbs.len()).sum::<usize>();
    metrics.rights_missing.set(i64::try_from(count).unwrap_or(i64::MAX));
    for one in &missing {
        let verbs = one.verbs.join(",");
        warn!(verbs, resource = one.resource, group = one.group, lost = one.lost(), "a right is missing; the rest works");
    }
    if missing.is_empty() {
        info!("every right is there");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn granted(groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]) -> ResourceRule {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
        ResourceRule {
            api_groups: Some(words(groups)),
            resources: Some(words(resources)),
            verbs: words(verbs),
            resource_names: Some(words(names)),
        }
    }

    #[test]
    fn what_is_granted_in_any_way_is_not_missing() {
        let wanted = [
            json!({"apiGroups": [""], "resources": ["pods", "pods/binding"], "verbs": ["create", "list"]}),
            json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"], "resourceNames": ["mine"]}),
        ];
        assert!(missing(&wanted, &[granted(&["*"], &["*"], &["*"], &[])]).is_empty());
        let some = [
            granted(&[""], &["pods"], &["list"], &[]),
            granted(&[""], &["*/binding"], &["create"], &[]),
            granted(&[""], &["pods"], &["create"], &["one-pod"]),
            granted(&["coordination.k8s.io"], &["leases"], &["get"], &["mine"]),
        ];
        let missing = missing(&wanted, &some);
        let named: Vec<(&str, &[String])> = missing.iter().map(|one| (one.resource.as_str(), one.verbs.as_slice())).collect();
        assert_eq!(named, [("pods", &["create".to_owned()][..]), ("pods/binding", &["list".to_owned()][..])]);
        assert!(missing[1].lost().starts_with("placing"));
    }

    #[test]
    fn every_generated_right_is_found_in_what_is_generated() {
        let options = Options { namespace: "ns", account: "berth", scheduler_name: "s", owners: &[], defaults_map: None, api: true, labels_first: true, read_only: false };
        let rules: Vec<Value> = rbac::manifests(&options).iter().flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default()).collect();
        let granted: Vec<ResourceRule> = rules.iter().map(|rule| serde_json::from_value(rule.clone()).expect("a rule")).collect();
        assert!(missing(&rules, &granted).is_empty());
        let named: usize = missing(&rules, &[]).iter().map(|one| one.verbs.len()).sum();
        let all: BTreeSet<(&str, &str, &str)> = rules.iter().flat_map(each).collect();
        assert_eq!(named, all.len());
    }
}
