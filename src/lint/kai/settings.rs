//! How KAI Scheduler is set up (SchedulingShard, Config, and what its archive says), and what does the same here.

use berth_api::keys;
use berth_engine::policy::NodeStrategy;
use serde_json::Value;

use crate::simulate::Options;
use crate::simulate::input::Item;
use crate::simulate::objects::text;

/// What a setting becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Becomes {
    /// These arguments of `berth run`.
    Flags(Vec<String>),
    /// Nothing has to be done: it is so anyway.
    Default,
    /// It has no effect; why, or what there is in its place.
    Nothing(&'static str),
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The object, such as `SchedulingShard default`.
    pub object: String,
    /// The field below `spec`.
    pub field: String,
    /// Its value, as JSON where it is no plain text.
    pub value: String,
    /// What does the same.
    pub becomes: Becomes,
}

/// An argument of KAI Scheduler's scheduler that has an equal of this name.
const ARGUMENTS: [&str; 7] = [
    "scheduler-name", "nodepool-label-key", "partition-label-value", "default-staleness-grace-period", "leader-elect", "log-json", "listen-address",
];

/// Arguments without an equal, with why.
const UNUSED_ARGUMENTS: [(&str, &str); 9] = [
    ("schedule-period", "decisions are made when something changes"),
    ("restrict-node-scheduling", "nodes are not divided by role: use taints"),
    ("max-consolidation-preemptees", "running work is not moved"),
    ("allow-consolidating-reclaim", "running work is not moved"),
    ("schedule-csi-storage", "volumes are always looked at"),
    ("qps", "--bind-concurrency limits what is under way"),
    ("burst", "--bind-concurrency limits what is under way"),
    ("full-hierarchy-fairness", "queues are always a tree"),
    ("usage-query-interval", "shares do not look at use over time"),
];

/// Fields of a shard without an equal, with why.
const UNUSED_SHARD: [(&str, &str); 8] = [
    ("kValue", "shares do not look at use over time"),
    ("usageDBConfig", "shares do not look at use over time"),
    ("queueDepthPerAction", "every gang that could be placed is tried"),
    ("scenarioSearchBudgets", "searches are bounded by steps"),
    ("goMemLimit", "there is no such limit to set"),
    ("goMemLimitRatio", "there is no such limit to set"),
    ("plugins", "there are no plugins"),
    ("actions", "what is done can't be turned off"),
];

/// Every setting of these objects.
#[must_use]
pub fn settings(items: &[Item]) -> Vec<Setting> {
    let mut found = Vec::new();
    for Item { value, .. } in items {
        let kind = text(value, "/kind");
        let of_kai = text(value, "/apiVersion").starts_with("kai.scheduler/");
        let mut list = List { object: format!("{kind} {}", text(value, "/metadata/name")), found: &mut found };
        match kind {
            "SchedulingShard" if of_kai => shard(&value["spec"], &mut list),
            "Config" if of_kai => config(&value["spec"], &mut list),
            "SchedulerParams" if of_kai => parameters(&value["spec"], &mut list),
            "SchedulerConfiguration" if of_kai => configuration(&value["spec"], &mut list),
            _ => {}
        }
    }
    found
}

/// The arguments of `berth run` that all settings of one object, and those of Config, come to.
#[must_use]
pub fn command(settings: &[Setting], object: &str) -> Vec<String> {
    let counts = |setting: &&Setting| setting.object == object || setting.object.starts_with("Config ");
    let mut arguments: Vec<String> = Vec::new();
    for setting in settings.iter().filter(counts) {
        let Becomes::Flags(flags) = &setting.becomes else { continue };
        arguments.extend(flags.iter().filter(|flag| !arguments.contains(flag)).cloned().collect::<Vec<_>>());
    }
    arguments
}

struct List<'a> {
    object: String,
    found: &'a mut Vec<Setting>,
}

impl List<'_> {
    fn add(&mut self, field: &str, value: &Value, becomes: Becomes) {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.found.push(Setting { object: self.object.clone(), field: field.to_owned(), value, becomes });
    }

    /// A text with a flag of its own, which is not needed for the default.
    fn flag(&mut self, field: &str, value: &Value, flag: &str, default: &str) {
        let Some(text) = value.as_str() else { return };
        let becomes = if text == default { Becomes::Default } else { Becomes::Flags(vec![argument(flag, text)]) };
        self.add(field, value, becomes);
    }

    fn unused(&mut self, field: &str, value: &Value, why: &'static str) {
        let is_empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty) || value.as_str() == Some("");
        if !is_empty {
            self.add(field, value, Becomes::Nothing(why));
        }
    }

    fn strategy(&mut self, field: &str, value: &Value, resource: &str) {
        let becomes = match value.as_str() {
            None => return,
            Some("binpack") => Becomes::Default,
            Some("spread") => Becomes::Flags(vec![format!("--{resource}-strategy=spread")]),
            Some(_) => Becomes::Nothing("allowed are binpack and spread"),
        };
        self.add(field, value, becomes);
    }

    fn queue_label(&mut self, field: &str, value: &Value) {
        match value.as_str() {
            None => {}
            Some(keys::QUEUE) => self.add(field, value, Becomes::Default),
            Some(_) => self.add(field, value, Becomes::Nothing("queues are named by the label kai.scheduler/queue")),
        }
    }
}

fn argument(flag: &str, value: &str) -> String {
    if value.contains(' ') { format!("--{flag}='{value}'") } else { format!("--{flag}={value}") }
}

fn shard(spec: &Value, list: &mut List<'_>) {
    match spec["partitionLabelValue"].as_str() {
        Some(value) if !value.is_empty() => list.add("partitionLabelValue", &spec["partitionLabelValue"], Becomes::Flags(vec![argument("partition-label-value", value)])),
        _ => {}
    }
    list.strategy("placementStrategy.gpu", &spec["placementStrategy"]["gpu"], "gpu");
    list.strategy("placementStrategy.cpu", &spec["placementStrategy"]["cpu"], "cpu");
    for (name, value) in spec["args"].as_object().into_iter().flatten() {
        scheduler_argument(name, value, list);
    }
    for field in ["preemptMinRuntime", "reclaimMinRuntime"] {
        list.unused(&format!("minRuntime.{field}"), &spec["minRuntime"][field], "write it on the queues: their spec has the same field");
    }
    for (field, why) in UNUSED_SHARD {
        list.unused(field, &spec[field], why);
    }
}

fn scheduler_argument(name: &str, value: &Value, list: &mut List<'_>) {
    let field = format!("args.{name}");
    if name == "queue-label-key" {
        list.queue_label(&field, value);
    } else if ARGUMENTS.contains(&name) {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // A switch takes no value here.
        let becomes = match (name, text.as_str()) {
            ("log-json", "true") => Becomes::Flags(vec!["--log-json".to_owned()]),
            ("log-json", _) => Becomes::Default,
            _ => Becomes::Flags(vec![argument(name, &text)]),
        };
        list.add(&field, value, becomes);
    } else {
        let why = UNUSED_ARGUMENTS.iter().find(|(known, _)| *known == name).map_or("has no equal", |(_, why)| why);
        list.unused(&field, value, why);
    }
}

fn config(spec: &Value, list: &mut List<'_>) {
    let global = &spec["global"];
    list.flag("global.schedulerName", &global["schedulerName"], "scheduler-name", keys::SCHEDULER_NAME);
    list.flag("global.nodePoolLabelKey", &global["nodePoolLabelKey"], "nodepool-label-key", keys::NODE_POOL);
    list.queue_label("global.queueLabelKey", &global["queueLabelKey"]);
    if global["jsonLog"] == true {
        list.add("global.jsonLog", &global["jsonLog"], Becomes::Flags(vec!["--log-json".to_owned()]));
    }
    list.unused("global.replicaCount", &global["replicaCount"], "replicas are those of the Deployment (chart: replicas)");
    for field in ["namespaceLabelSelector", "podLabelSelector"] {
        list.unused(&format!("global.{field}"), &global[field], "everything that names the scheduler is seen");
    }
    list.unused("global.gpuSharingMode", &global["gpuSharingMode"], "GPUs are not shared yet");
    let grouper = &spec["podGrouper"]["args"];
    for (field, flag) in [("defaultPrioritiesConfigMapName", "name"), ("defaultPrioritiesConfigMapNamespace", "namespace")] {
        list.flag(&format!("podGrouper.args.{field}"), &grouper[field], &format!("default-priorities-configmap-{flag}"), "");
    }
    for (name, value) in grouper.as_object().into_iter().flatten().filter(|(name, _)| !name.starts_with("defaultPriorities")) {
        list.unused(&format!("podGrouper.args.{name}"), value, "has no equal");
    }
    let sections = spec.as_object().into_iter().flatten().filter(|(name, _)| !["global", "namespace", "podGrouper"].contains(&name.as_str()));
    for (name, value) in sections {
        // What a section says of images, resources and replicas is about programs that are not there.
        if value.as_object().is_some_and(|section| !section.is_empty()) {
            list.add(name, &Value::String("…".to_owned()), Becomes::Nothing("one program does it all"));
        }
    }
}

/// What an archive says of the process that wrote it.
fn parameters(spec: &Value, list: &mut List<'_>) {
    list.flag("schedulerName", &spec["schedulerName"], "scheduler-name", keys::SCHEDULER_NAME);
    list.queue_label("queueLabelKey", &spec["queueLabelKey"]);
    let pool = &spec["partitionParams"];
    list.flag("partitionParams.NodePoolLabelKey", &pool["NodePoolLabelKey"], "nodepool-label-key", keys::NODE_POOL);
    list.flag("partitionParams.NodePoolLabelValue", &pool["NodePoolLabelValue"], "partition-label-value", "");
    if let Some(nanos) = spec["globalDefaultStalenessGracePeriod"].as_i64() {
        let becomes = if nanos == 60_000_000_000 { Becomes::Default } else { Becomes::Flags(vec![format!("--default-staleness-grace-period={}s", nanos / 1_000_000_000)]) };
        list.add("globalDefaultStalenessGracePeriod", &spec["globalDefaultStalenessGracePeriod"], becomes);
    }
    if spec["restrictSchedulingNodes"] == true {
        list.unused("restrictSchedulingNodes", &spec["restrictSchedulingNodes"], "nodes are not divided by role: use taints");
    }
    list.unused("gpuSharingMode", &spec["gpuSharingMode"], "GPUs are not shared yet");
}

fn configuration(spec: &Value, list: &mut List<'_>) {
    let plugins = spec["tiers"].as_array().into_iter().flatten().flat_map(|tier| tier["plugins"].as_array().into_iter().flatten());
    for plugin in plugins {
        let name = text(plugin, "/name");
        if name == "nodeplacement" {
            list.strategy("nodeplacement.gpu", &plugin["arguments"]["gpu"], "gpu");
            list.strategy("nodeplacement.cpu", &plugin["arguments"]["cpu"], "cpu");
        } else {
            list.unused(&format!("{name}.arguments"), &plugin["arguments"], "there are no plugins");
        }
    }
    for (field, why) in UNUSED_SHARD.iter().filter(|(field, _)| !["plugins", "actions"].contains(field)) {
        list.unused(field, &spec[*field], why);
    }
}

/// Makes of the choices of a run what these settings make of them, where there is one set of them; a scheduler's name that was
/// chosen, other than this default, stays.
pub fn adopt(settings: &[Setting], options: &mut Options, default_name: &str) {
    let mut objects: Vec<&str> = settings.iter().map(|setting| setting.object.as_str()).filter(|object| object.starts_with("SchedulingShard ")).collect();
    objects.dedup();
    let is_shared = |setting: &&Setting| objects.len() < 2 || !setting.object.starts_with("SchedulingShard ");
    let flags = settings.iter().filter(is_shared).filter_map(|setting| match &setting.becomes {
        Becomes::Flags(flags) => Some(flags),
        _ => None,
    });
    for flag in flags.flatten() {
        match flag.split_once('=') {
            Some(("--gpu-strategy", name)) => options.gpu_strategy = NodeStrategy::named(name).unwrap_or(options.gpu_strategy),
            Some(("--cpu-strategy", name)) => options.cpu_strategy = NodeStrategy::named(name).unwrap_or(options.cpu_strategy),
            Some(("--scheduler-name", name)) if options.scheduler_name == default_name => name.clone_into(&mut options.scheduler_name),
            _ => {}
        }
    }
}
