//! Reads a cluster once, for the commands that answer and go: the kinds that decisions need, the owners of pods whatever
//! their kinds, and what pods name. Page by page; a kind that may not be read is named, nodes and pods are needed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use berth_api::keys;
use kube::api::{Api, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, discovery};
use serde_json::{Value, json};

use super::Gvk;
use super::store::base_kinds;
use crate::grouping::{core_group, pod_gang};

/// Objects asked for at a time.
const PAGE: u32 = 500;

/// Times that a list is begun anew because it took longer than the server keeps its state.
const MAX_RESTARTS: u32 = 3;

/// Owners above owners that are followed.
const MAX_OWNERS: usize = 5;

/// Kinds of owners that are read at the most.
const MAX_KINDS: usize = 64;

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Every object, nodes first.
    pub objects: Vec<Value>,
    /// Kinds that the server has and that could not be read.
    pub missing: Vec<Missing>,
}

/// A kind that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its plural; the kind where that is not known.
    pub resource: String,
    /// Group and version, as in `apiVersion`.
    pub api_version: String,
    /// Why not.
    pub why: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {}: {}", self.resource, self.api_version, self.why)
    }
}

/// Why a kind could not be read.
#[derive(Debug)]
struct Unread {
    /// The kind's plural; `None` when even that could not be found out.
    plural: Option<String>,
    /// What the API said.
    error: kube::Error,
}

impl Unread {
    fn is_forbidden(&self) -> bool {
        matches!(&self.error, kube::Error::Api(status) if status.code == 403)
    }

    /// For the list of what is missing.
    fn told(&self, gvk: &Gvk) -> Missing {
        let why = match &self.error {
            kube::Error::Api(status) if status.code == 403 => "may not be listed".to_owned(),
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        };
        let resource = self.plural.clone().unwrap_or_else(|| gvk.kind.clone());
        Missing { resource, api_version: gvk.api_version(), why }
    }

    /// As the end of a command.
    fn into_error(self, gvk: &Gvk) -> anyhow::Error {
        let what = self.plural.unwrap_or_else(|| gvk.kind.clone());
        match self.error {
            kube::Error::Api(status) if status.code == 403 => anyhow::anyhow!(
                "{what} can't be read: {}. Rights needed: list of nodes and pods in all namespaces; wanted as well: podgroups, queues, \
                 topologies, priorityclasses, poddisruptionbudgets and the kinds that own pods (`berth generate rbac` writes these and more)",
                status.message
            ),
            error => anyhow::Error::new(error).context(format!("reading {what}")),
        }
    }
}

fn node() -> Gvk {
    Gvk::new("", "v1", "Node")
}

/// Every object of a kind, each as `keep` leaves it; none where the server does not have the kind.
async fn of_kind(client: &Client, gvk: &Gvk, keep: fn(Value) -> Value) -> Result<Vec<Value>, Unread> {
    of_kind_in(client, gvk, None, keep).await
}

/// The same, of one namespace.
async fn of_kind_in(client: &Client, gvk: &Gvk, namespace: Option<&str>, keep: fn(Value) -> Value) -> Result<Vec<Value>, Unread> {
    let kind = GroupVersionKind::gvk(&gvk.group, &gvk.version, &gvk.kind);
    let resource = match discovery::pinned_kind(client, &kind).await {
        Ok((resource, _)) => resource,
        Err(kube::Error::Discovery(_)) => return Ok(Vec::new()),
        Err(error) if is_code(&error, 404) => return Ok(Vec::new()),
        Err(error) => return Err(Unread { plural: None, error }),
    };
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let (mut objects, mut restarts) = (Vec::new(), 0);
    let first = ListParams::default().limit(PAGE);
    let mut params = first.clone();
    loop {
        let page = match api.list(&params).await {
            Ok(page) => page,
            Err(error) if is_code(&error, 404) => return Ok(Vec::new()),
            Err(error) if is_code(&error, 410) && restarts < MAX_RESTARTS => {
                restarts += 1;
                objects.clear();
                params = first.clone();
                continue;
            }
            Err(error) => return Err(Unread { plural: Some(resource.plural), error }),
        };
        for object in page.items {
            let mut value = if object.data.is_object() { object.data } else { json!({}) };
            // Items of a list leave these out.
            value["apiVersion"] = Value::String(resource.api_version.clone());
            value["kind"] = Value::String(resource.kind.clone());
            value["metadata"] = serde_json::to_value(&object.metadata).unwrap_or_default();
            objects.push(keep(value));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = first.clone().continue_token(&token),
            None => return Ok(objects),
        }
    }
}

fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// The nodes.
///
/// # Errors
///
/// They can't be listed.
pub async fn nodes(client: &Client) -> anyhow::Result<Vec<Value>> {
    of_kind(client, &node(), |object| object).await.map_err(|unread| unread.into_error(&node()))
}

/// Every object that decisions depend on, each as `keep` leaves it (`metadata` and what pods name must stay).
///
/// # Errors
///
/// Nodes or pods may not be listed: nothing can be said without them. Another of the kinds that decide can't be listed for
/// another reason than that it may not be: what is not known to be absent is not taken for absent.
pub async fn cluster(client: &Client, keep: fn(Value) -> Value) -> anyhow::Result<Reading> {
    let mut reading = Reading::default();
    let mut seen: BTreeSet<(String, String)> = BTreeSet::new();
    let more = [Gvk::new("node.k8s.io", "v1", "RuntimeClass")];
    for gvk in base_kinds().into_iter().chain(more) {
        seen.insert(gvk.group_kind());
        let is_needed = gvk.group.is_empty() && ["Node", "Pod"].contains(&gvk.kind.as_str());
        match of_kind(client, &gvk, keep).await {
            Ok(objects) => reading.objects.extend(objects),
            Err(unread) if unread.is_forbidden() && !is_needed => reading.missing.push(unread.told(&gvk)),
            Err(unread) => return Err(unread.into_error(&gvk)),
        }
    }
    for gvk in named(&reading.objects) {
        reading.take(client, &gvk, keep).await;
    }
    for _ in 0..MAX_OWNERS {
        let kinds: Vec<Gvk> = owners(&reading.objects).into_values().filter(|gvk| !seen.contains(&gvk.group_kind())).collect();
        if kinds.is_empty() {
            break;
        }
        for gvk in kinds.into_iter().take(MAX_KINDS.saturating_sub(seen.len())) {
            seen.insert(gvk.group_kind());
            reading.take(client, &gvk, keep).await;
        }
    }
    Ok(reading)
}

impl Reading {
    /// Takes a kind in that some work needs; why it can't be read is noted.
    async fn take(&mut self, client: &Client, gvk: &Gvk, keep: fn(Value) -> Value) {
        self.take_in(client, gvk, None, keep).await;
    }

    /// The same, of one namespace.
    async fn take_in(&mut self, client: &Client, gvk: &Gvk, namespace: Option<&str>, keep: fn(Value) -> Value) {
        match of_kind_in(client, gvk, namespace, keep).await {
            Ok(objects) => self.objects.extend(objects),
            Err(unread) => self.missing.push(unread.told(gvk)),
        }
    }

    /// The same again, of several kinds at once: all in the cluster, or all of these namespaces.
    ///
    /// What can't be read is noted, whatever the reason: none of it is needed.
    pub async fn more(&mut self, client: &Client, kinds: &[Gvk], namespaces: Option<&BTreeSet<String>>, keep: fn(Value) -> Value) {
        for gvk in kinds {
            match namespaces {
                None => self.take(client, gvk, keep).await,
                Some(namespaces) => {
                    for namespace in namespaces {
                        self.take_in(client, gvk, Some(namespace), keep).await;
                    }
                }
            }
        }
    }
}

/// Kinds that pods name by something else than an owner: their group of `scheduling.k8s.io`, and the PodGang of Grove.
fn named(objects: &[Value]) -> Vec<Gvk> {
    let is_pod = |object: &&Value| object["kind"] == "Pod" && object["apiVersion"] == "v1";
    let mut kinds = Vec::new();
    if objects.iter().filter(is_pod).any(|pod| core_group::named(pod).is_some()) {
        kinds.extend(core_group::VERSIONS.map(|version| Gvk::new(core_group::API_GROUP, version, "PodGroup")));
    }
    let label = |pod: &Value| pod["metadata"]["labels"][keys::GROVE_POD_GANG].as_str().is_some_and(|name| !name.is_empty());
    if objects.iter().filter(is_pod).any(label) {
        kinds.push(Gvk::new(pod_gang::API_GROUP, pod_gang::VERSION, pod_gang::KIND));
    }
    kinds
}

/// Kinds of owners by group and kind.
fn owners(objects: &[Value]) -> BTreeMap<(String, String), Gvk> {
    let of = |object: &Value| object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let gvk = |owner: Value| Gvk::parse(owner["apiVersion"].as_str().unwrap_or_default(), owner["kind"].as_str().unwrap_or_default());
    objects.iter().flat_map(of).map(gvk).filter(|gvk| !gvk.kind.is_empty()).map(|gvk| (gvk.group_kind(), gvk)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_api::{FakeApi, failure};

    fn resources(version: &str, named: &[(&str, &str)]) -> (u16, Value) {
        let resources: Vec<Value> =
            named.iter().map(|(name, kind)| json!({"name": name, "kind": kind, "namespaced": true, "singularName": "", "verbs": ["list"]})).collect();
        (200, json!({"kind": "APIResourceList", "groupVersion": version, "resources": resources}))
    }

    fn page(items: Value, next: &str) -> (u16, Value) {
        (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"continue": next}, "items": items}))
    }

    /// A core with nodes on two pages, a pod that a Job owns, a budget, and volumes that may not be read.
    fn core(path: &str, query: &str) -> (u16, Value) {
        let second = query.contains("continue=next");
        match path {
            "/api/v1" => resources("v1", &[("nodes", "Node"), ("pods", "Pod"), ("persistentvolumes", "PersistentVolume")]),
            "/api/v1/nodes" if second => page(json!([{"metadata": {"name": "b"}}]), ""),
            "/api/v1/nodes" => page(json!([{"metadata": {"name": "a"}}]), "next"),
            "/api/v1/pods" => page(json!([{"metadata": {"name": "p", "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}]}}]), ""),
            "/api/v1/persistentvolumes" => failure(403, "no"),
            "/apis/batch/v1" => resources("batch/v1", &[("jobs", "Job")]),
            "/apis/batch/v1/jobs" => page(json!([{"metadata": {"name": "j", "uid": "u"}}]), ""),
            "/apis/policy/v1" => resources("policy/v1", &[("poddisruptionbudgets", "PodDisruptionBudget")]),
            "/apis/policy/v1/poddisruptionbudgets" => page(json!([{"metadata": {"name": "budget"}}]), ""),
            _ => failure(404, "not found"),
        }
    }

    fn names(reading: &Reading) -> Vec<String> {
        let name = |object: &Value| format!("{}/{}", object["kind"].as_str().unwrap_or(""), object["metadata"]["name"].as_str().unwrap_or(""));
        reading.objects.iter().map(name).collect()
    }

    #[tokio::test]
    async fn a_cluster_is_read_page_by_page_with_owners_and_without_what_it_lacks() {
        let api = FakeApi::start(|asked| core(&asked.path, &asked.query)).await;
        let reading = cluster(&api.client, |object| object).await.expect("it is read");
        assert_eq!(names(&reading), ["Node/a", "Node/b", "Pod/p", "PodDisruptionBudget/budget", "Job/j"]);
        let missing: Vec<String> = reading.missing.iter().map(ToString::to_string).collect();
        assert_eq!(missing, ["persistentvolumes of v1: may not be listed"]);
    }

    #[tokio::test]
    async fn a_list_that_took_too_long_is_begun_anew_and_nothing_is_told_twice() {
        let expired = std::sync::atomic::AtomicBool::new(false);
        let api = FakeApi::start(move |asked| {
            let is_second = asked.path == "/api/v1/nodes" && asked.query.contains("continue=next");
            if is_second && !expired.swap(true, std::sync::atomic::Ordering::Relaxed) {
                return failure(410, "too old");
            }
            core(&asked.path, &asked.query)
        })
        .await;
        let nodes = nodes(&api.client).await.expect("they are read");
        assert_eq!(nodes.iter().map(|node| node["metadata"]["name"].clone()).collect::<Vec<_>>(), [json!("a"), json!("b")]);
    }

    #[tokio::test]
    async fn nodes_that_may_not_be_read_end_it_and_owners_that_may_not_are_named() {
        let api = FakeApi::start(|asked| if asked.path == "/api/v1/nodes" { failure(403, "nodes is forbidden") } else { core(&asked.path, &asked.query) }).await;
        let error = cluster(&api.client, |object| object).await.expect_err("nothing can be said").to_string();
        assert!(error.starts_with("nodes can't be read: nodes is forbidden") && error.contains("Rights needed"), "{error}");
        let api = FakeApi::start(|asked| if asked.path == "/apis/batch/v1/jobs" { failure(403, "no") } else { core(&asked.path, &asked.query) }).await;
        let reading = cluster(&api.client, |object| object).await.expect("it is read");
        assert_eq!(reading.missing[1].to_string(), "jobs of batch/v1: may not be listed");
        // What decides and fails otherwise is not taken for absent.
        let api = FakeApi::start(|asked| if asked.path.ends_with("budgets") { failure(500, "broken") } else { core(&asked.path, &asked.query) }).await;
        let error = format!("{:#}", cluster(&api.client, |object| object).await.expect_err("it is not whole"));
        assert!(error.contains("poddisruptionbudgets") && error.contains("broken"), "{error}");
    }
}
