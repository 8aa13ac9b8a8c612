//! The rights that `berth run` needs, as data: the manifest of `berth generate rbac` is made from it, and an end-to-end test
//! runs Berth with exactly these. Who adds a request to `bind`, `status`, `cluster` or `leader` adds its right here.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::cluster::store::base_kinds;
use crate::grouping::kinds::KINDS;
use crate::leader::lease_name;

/// What to make the manifest for.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// Namespace and name of the service account.
    pub namespace: &'a str,
    /// See above.
    pub account: &'a str,
    /// `--scheduler-name` of the process.
    pub scheduler_name: &'a str,
    /// More kinds of owners, as `plural.group`.
    pub owners: &'a [String],
    /// Namespace and name of the ConfigMap with the defaults of kinds.
    pub defaults_map: Option<(&'a str, &'a str)>,
    /// `--api-address` is given: who asks is reviewed.
    pub api: bool,
    /// The API server is 1.34: pods are labelled before their Bindings.
    pub labels_first: bool,
    /// For `berth run --dry-run`: only what is read, and no Lease.
    pub read_only: bool,
}

const WATCH: &[&str] = &["list", "watch"];

/// The rights of `berth topology apply` and `run`: an account that may patch nodes, which the scheduler's may not. Its status
/// is one ConfigMap; Events of a Topology, which has no namespace, are kept in `default`.
pub fn labeller(namespace: &str) -> Vec<Value> {
    let name = "berth-topology";
    let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}]);
    let own_map = only(rule("", &["configmaps"], &["get", "patch"]), name);
    let mut objects = vec![json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}})];
    let everywhere = vec![
        rule("", &["nodes"], &["list", "watch", "patch"]),
        rule("kai.scheduler", &["topologies"], &["get", "list", "create"]),
        // Before keys of older generations are cleaned up: whose levels are they?
        rule("kueue.x-k8s.io", &["topologies"], &["list"]),
    ];
    objects.extend(granted("ClusterRole", name, None, &everywhere, &subjects));
    // What is created has no name yet, as far as rules are concerned.
    objects.extend(granted("Role", name, Some(namespace), &[rule("", &["configmaps"], &["create"]), own_map], &subjects));
    objects.extend(granted("Role", "berth-topology-events", Some("default"), &[rule("", &["events"], &["create", "patch"])], &subjects));
    objects
}

/// Kinds that stand between a pod and the kinds that grouping knows, or own pods by themselves.
const MORE_OWNERS: &[(&str, &str)] = &[
    ("", "replicationcontrollers"),
    ("apps", "daemonsets"),
    ("grove.io", "podcliques"),
    ("grove.io", "podcliquescalinggroups"),
    // No owner: found by the label of a pod of Grove.
    ("scheduler.grove.io", "podgangs"),
    ("serving.knative.dev", "configurations"),
    ("serving.knative.dev", "revisions"),
];

/// The plural of a kind, as resources of the API are named.
fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    match lower.strip_suffix('s') {
        Some(_) => format!("{lower}es"),
        None => lower.strip_suffix('y').map_or_else(|| format!("{lower}s"), |stem| format!("{stem}ies")),
    }
}

/// Kinds of owners by group: those that grouping knows, and others that are common between them and a pod.
fn owners() -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut owners: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for kind in KINDS.iter().filter(|kind| kind.kind != "Pod") {
        owners.entry(kind.group).or_default().insert(plural(kind.kind));
    }
    for (group, resource) in MORE_OWNERS {
        owners.entry(group).or_default().insert((*resource).to_owned());
    }
    owners
}

/// A rule about resources of one API group.
pub(crate) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// The rule for the object of this name alone.
pub(crate) fn only(mut rule: Value, name: &str) -> Value {
    rule["resourceNames"] = json!([name]);
    rule
}

/// A Role in a namespace, or a ClusterRole, and the binding of the same name that grants it.
pub(crate) fn granted(kind: &str, name: &str, namespace: Option<&str>, rules: &[Value], subjects: &Value) -> [Value; 2] {
    let version = "rbac.authorization.k8s.io/v1";
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let mut metadata = json!({"name": name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    [
        json!({"apiVersion": version, "kind": kind, "metadata": metadata, "rules": rules}),
        json!({"apiVersion": version, "kind": format!("{kind}Binding"), "metadata": metadata, "roleRef": reference, "subjects": subjects}),
    ]
}

/// The rules of the ClusterRole.
fn cluster_rules(options: &Options<'_>) -> Vec<Value> {
    let mut rules = vec![
        rule("", &["nodes"], WATCH),
        // A Binding without an answer is cleared up by reading its pod.
        rule("", &["pods"], &["get", "list", "watch"]),
        rule("", &["pods/binding", "pods/eviction", "events"], &["create"]),
        rule("", &["pods/status"], &["patch"]),
        rule("scheduling.run.ai", &["queues"], WATCH),
        rule("scheduling.run.ai", &["podgroups"], &["create", "list", "patch", "watch"]),
        rule("scheduling.run.ai", &["podgroups/status", "queues/status"], &["patch"]),
        // The score of a placement, for Grove.
        rule("scheduler.grove.io", &["podgangs/status"], &["patch"]),
        rule("kai.scheduler", &["topologies"], WATCH),
        rule("scheduling.k8s.io", &["priorityclasses"], WATCH),
        // Named by pods in spec.schedulingGroup, where the server has them.
        rule("scheduling.k8s.io", &["podgroups"], WATCH),
    ];
    if options.labels_first {
        rules.push(rule("", &["pods"], &["patch"]));
    }
    if options.api {
        rules.push(rule("authentication.k8s.io", &["tokenreviews"], &["create"]));
        rules.push(rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]));
    }
    // What else is watched from the start: storage, grouping rules.
    for gvk in base_kinds() {
        let resource = plural(&gvk.kind);
        let has = |rule: &Value| rule["apiGroups"] == json!([gvk.group]) && rule["resources"] == json!([resource]);
        if !rules.iter().any(has) {
            rules.push(rule(&gvk.group, &[&resource], WATCH));
        }
    }
    // `get` is for the time when list or watch is taken away: then each owner is read once.
    let owner_verbs = &["get", "list", "watch"];
    rules.extend(owners().iter().map(|(group, resources)| {
        rule(group, &resources.iter().map(String::as_str).collect::<Vec<&str>>(), owner_verbs)
    }));
    for owner in options.owners {
        let (plural, group) = owner.split_once('.').unwrap_or((owner, ""));
        rules.push(rule(group, &[plural], owner_verbs));
    }
    if options.read_only {
        rules.retain_mut(only_reads);
    }
    rules
}

/// Takes every verb away that changes something. False when nothing is left of the rule.
fn only_reads(rule: &mut Value) -> bool {
    // Who asks may be looked at in any case: a review changes nothing.
    if rule["apiGroups"][0].as_str().is_some_and(|group| ["authentication.k8s.io", "authorization.k8s.io"].contains(&group)) {
        return true;
    }
    let Some(verbs) = rule["verbs"].as_array_mut() else { return false };
    verbs.retain(|verb| ["get", "list", "watch"].iter().any(|read| verb == read));
    !verbs.is_empty()
}

/// The objects to apply: a service account, its ClusterRole, and a Role for its Lease.
#[must_use]
pub fn manifests(options: &Options<'_>) -> Vec<Value> {
    let Options { namespace, account, .. } = *options;
    let subjects = json!([{"kind": "ServiceAccount", "name": account, "namespace": namespace}]);
    let mut manifests = vec![json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace}})];
    manifests.extend(granted("ClusterRole", account, None, &cluster_rules(options), &subjects));
    if !options.read_only {
        let leases = |verbs: &[&str]| rule("coordination.k8s.io", &["leases"], verbs);
        // What is created has no name yet, as far as rules are concerned.
        let rules = [leases(&["create"]), only(leases(&["get", "update"]), &lease_name(options.scheduler_name))];
        manifests.extend(granted("Role", account, Some(namespace), &rules, &subjects));
    }
    if let Some((namespace, map)) = options.defaults_map {
        // That one and no other, where it is.
        let rules = [only(rule("", &["configmaps"], WATCH), map)];
        manifests.extend(granted("Role", &format!("{account}-kind-defaults"), Some(namespace), &rules, &subjects));
    }
    manifests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(owners: &[String]) -> Options<'_> {
        Options { namespace: "ns", account: "berth", scheduler_name: "kai-scheduler", owners, defaults_map: None, api: false, labels_first: false, read_only: false }
    }

    #[test]
    fn plurals_are_those_of_the_api() {
        let kinds = ["Job", "StorageClass", "NetworkPolicy", "PodCliqueSet", "CSINode", "RayCluster"];
        let plurals = ["jobs", "storageclasses", "networkpolicies", "podcliquesets", "csinodes", "rayclusters"];
        assert_eq!(kinds.map(plural), plurals);
        assert!(owners()["batch"].contains("jobs") && owners()["apps"].contains("replicasets"));
    }

    #[test]
    fn nothing_is_granted_with_a_wildcard_and_owners_can_be_added() {
        let owners = ["jobsets.jobset.x-k8s.io".to_owned()];
        let rules = cluster_rules(&options(&owners));
        assert!(!json!(rules).to_string().contains('*'));
        let added = rules.last().expect("rules");
        assert_eq!((&added["apiGroups"], &added["resources"]), (&json!(["jobset.x-k8s.io"]), &json!(["jobsets"])));
        let patches = |labels_first| {
            let rules = cluster_rules(&Options { labels_first, ..options(&[]) });
            rules.iter().any(|rule| rule["resources"] == json!(["pods"]) && rule["verbs"] == json!(["patch"]))
        };
        assert_eq!([patches(false), patches(true)], [false, true]);
    }

    #[test]
    fn reviews_may_be_asked_for_where_the_api_is_served() {
        let reviews = |api| {
            let rules = cluster_rules(&Options { api, ..options(&[]) });
            let reviews = rules.iter().filter(|rule| rule.to_string().contains("reviews"));
            reviews.map(|rule| (rule["resources"].clone(), rule["verbs"].clone())).collect::<Vec<_>>()
        };
        assert_eq!(reviews(false), []);
        let create = json!(["create"]);
        assert_eq!(reviews(true), [(json!(["tokenreviews"]), create.clone()), (json!(["subjectaccessreviews"]), create)]);
    }
}
