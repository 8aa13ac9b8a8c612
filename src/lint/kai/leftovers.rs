//! What KAI Scheduler leaves in a cluster: requests that are under way, and webhooks that refuse what nobody answers for.

use std::collections::BTreeSet;

use berth_api::keys;
use serde_json::Value;

use super::super::{Finding, Severity};
use crate::simulate::bindings;
use crate::simulate::input::Item;
use crate::simulate::objects::text;

/// The kinds of webhook configurations.
const WEBHOOKS: [&str; 2] = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];

/// Those that an installation of KAI Scheduler has.
const NAMES: [&str; 4] = ["mutating-kai-admission", "validating-kai-admission", "kai-queue-validation-v2", "kai-podgroup-validation-v2alpha2"];

/// API groups of KAI Scheduler's objects, which only its webhooks judge.
const GROUPS: [&str; 2] = ["scheduling.run.ai", "kai.scheduler"];

/// A Binding that KAI Scheduler has decided and not made yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenRequest {
    /// Namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The pod.
    pub pod: String,
    /// The node chosen.
    pub node: String,
}

/// The requests that are under way, of pods that have no node yet.
#[must_use]
pub fn open_requests(items: &[Item]) -> Vec<OpenRequest> {
    let at = |item: &Item, pointer: &str| text(&item.value, pointer).to_owned();
    let placed: BTreeSet<(&str, &str)> = items
        .iter()
        .filter(|item| item.value["kind"] == "Pod" && !text(&item.value, "/spec/nodeName").is_empty())
        .map(|item| (text(&item.value, "/metadata/namespace"), text(&item.value, "/metadata/name")))
        .collect();
    let mut open: Vec<OpenRequest> = items
        .iter()
        .filter(|item| bindings::is_request(&item.value) && bindings::is_open(&item.value))
        .map(|item| OpenRequest { namespace: at(item, "/metadata/namespace"), name: at(item, "/metadata/name"), pod: at(item, "/spec/podName"), node: at(item, "/spec/selectedNode") })
        .filter(|request| !placed.contains(&(request.namespace.as_str(), request.pod.as_str())))
        .collect();
    open.sort();
    open
}

/// Pods that hold a whole GPU for those that share it.
#[must_use]
pub fn reservations(items: &[Item]) -> Vec<Finding> {
    let is_one = |item: &&Item| item.value["kind"] == "Pod" && item.value["metadata"]["labels"][keys::APP] == keys::RESERVATION_APP;
    let message = "holds a GPU for pods that share it: nobody ends it when KAI's binder is gone; delete it after them";
    items.iter().filter(is_one).map(|item| Finding::warning(item, "GpuReservation", "metadata.labels.app", message.to_owned())).collect()
}

/// KAI Scheduler's programs that run, by the label `app` of their pods.
const PROGRAMS: [&str; 6] = ["kai-operator", "binder", "pod-grouper", "podgroup-controller", "queue-controller", "admission"];

/// What of KAI Scheduler runs: two schedulers must not decide for one name.
#[must_use]
pub fn running(items: &[Item], scheduler: &str) -> Vec<Finding> {
    let config = items.iter().find(|item| item.value["kind"] == "Config" && text(&item.value, "/apiVersion").starts_with("kai.scheduler/"));
    let home = config.map(|config| text(&config.value, "/spec/namespace")).filter(|namespace| !namespace.is_empty()).unwrap_or("kai-scheduler");
    let mut findings = Vec::new();
    for item in items.iter().filter(|item| item.value["kind"] == "Pod" && text(&item.value, "/metadata/namespace") == home && text(&item.value, "/status/phase") == "Running") {
        let app = item.value["metadata"]["labels"][keys::APP].as_str().unwrap_or_default();
        let message = if app.starts_with("kai-scheduler") {
            format!("decides for {scheduler}, if that is its name: Berth needs another one until it is stopped")
        } else if PROGRAMS.contains(&app) {
            "goes on beside Berth until it is stopped (docs/migrate-from-kai.md says in which order)".to_owned()
        } else {
            continue;
        };
        findings.push(Finding::new(item, Severity::Note, "KaiRuns", "status.phase", message));
    }
    findings
}

/// What is known of the services that webhooks ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// All services of the namespaces concerned are given.
    pub services: bool,
    /// All their endpoints are.
    pub endpoints: bool,
}

impl Known {
    /// Of files: all of a kind or none.
    #[must_use]
    pub fn by(items: &[Item]) -> Self {
        let any = |kinds: &[&str]| items.iter().any(|item| kinds.contains(&text(&item.value, "/kind")));
        Self { services: any(&["Service"]), endpoints: any(&["EndpointSlice", "Endpoints"]) }
    }
}

/// The webhooks of a configuration.
fn hooks(object: &Value) -> impl Iterator<Item = &Value> {
    object["webhooks"].as_array().into_iter().flatten()
}

/// The rules of all of them.
fn rules(object: &Value) -> impl Iterator<Item = &Value> {
    hooks(object).flat_map(|hook| hook["rules"].as_array().into_iter().flatten())
}

/// True for a webhook configuration of KAI Scheduler.
#[must_use]
pub fn is_webhook(object: &Value) -> bool {
    if !WEBHOOKS.contains(&text(object, "/kind")) {
        return false;
    }
    let mut groups = rules(object).flat_map(|rule| rule["apiGroups"].as_array().into_iter().flatten()).filter_map(Value::as_str);
    NAMES.contains(&text(object, "/metadata/name")) || groups.any(|group| GROUPS.contains(&group))
}

/// Namespace and name of every service that these configurations ask.
#[must_use]
pub fn services(object: &Value) -> Vec<(String, String)> {
    let service = |hook: &Value| (text(hook, "/clientConfig/service/namespace").to_owned(), text(hook, "/clientConfig/service/name").to_owned());
    let mut services: Vec<_> = hooks(object).map(service).filter(|(_, name)| !name.is_empty()).collect();
    services.sort();
    services.dedup();
    services
}

/// What there is to say of webhooks that fail closed: those that nobody answers for, and those that go when KAI goes.
#[must_use]
pub fn webhooks(items: &[Item], known: Known) -> Vec<Finding> {
    let mut findings = Vec::new();
    for item in items.iter().filter(|item| is_webhook(&item.value)) {
        let closed = hooks(&item.value).any(|hook| hook["failurePolicy"] != "Ignore");
        if !closed {
            continue;
        }
        let kind = text(&item.value, "/kind").to_lowercase();
        let remove = format!("kubectl delete {kind} {}", text(&item.value, "/metadata/name"));
        let dead = services(&item.value).into_iter().find_map(|(namespace, name)| Some(format!("its service {namespace}/{name} {}", dead(items, known, &namespace, &name)?)));
        findings.push(match dead {
            Some(dead) => {
                let message = format!("fails closed, and {dead}: what it judges ({}) can't be written. Remove it: {remove}", judged(&item.value));
                Finding::new(item, Severity::Error, "WebhookLeftBehind", "webhooks", message)
            }
            None => {
                let message = format!("fails closed ({}): it has to go when KAI goes: {remove}", judged(&item.value));
                Finding::new(item, Severity::Note, "WebhookOfKai", "webhooks", message)
            }
        });
    }
    findings
}

/// Why a service can't answer; nothing when it can, or when that is not known.
fn dead(items: &[Item], known: Known, namespace: &str, name: &str) -> Option<&'static str> {
    let is = |item: &&Item, kind: &str| item.value["kind"] == kind && text(&item.value, "/metadata/namespace") == namespace;
    let service = items.iter().filter(|item| is(item, "Service")).any(|item| text(&item.value, "/metadata/name") == name);
    if known.services && !service {
        return Some("is not there");
    }
    let slices = items.iter().filter(|item| is(item, "EndpointSlice") && item.value["metadata"]["labels"]["kubernetes.io/service-name"] == *name);
    let is_ready = |endpoint: &Value| endpoint["conditions"]["ready"] != false;
    let in_slices = slices.flat_map(|slice| slice.value["endpoints"].as_array().into_iter().flatten()).any(is_ready);
    let old = items.iter().filter(|item| is(item, "Endpoints") && text(&item.value, "/metadata/name") == name);
    let in_old = old.flat_map(|object| object.value["subsets"].as_array().into_iter().flatten()).any(|subset| subset["addresses"].as_array().is_some_and(|all| !all.is_empty()));
    (known.endpoints && !in_slices && !in_old).then_some("has no endpoint that is ready")
}

/// The resources that it judges.
fn judged(object: &Value) -> String {
    let mut resources: Vec<&str> = rules(object).flat_map(|rule| rule["resources"].as_array().into_iter().flatten()).filter_map(Value::as_str).collect();
    resources.sort_unstable();
    resources.dedup();
    resources.join(", ")
}
