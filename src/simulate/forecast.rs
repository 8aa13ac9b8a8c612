//! What would become of a cluster's work under this scheduler: what waits and would start, and how its domains would be used.

use std::collections::{BTreeMap, BTreeSet};

use berth_engine::outcome::{GangReport, GangState};
use berth_engine::world::view::NodeView;
use serde_json::json;

use super::Options;
use super::cluster::Cluster;
use super::input::Item;
use super::objects::text;
use super::result::SimulationResult;

/// Keeps pods from being placed where they are not to be counted.
const FORECAST_GATE: &str = "berth.scheduler/forecast";

/// A level of a topology, and how many of its domains are whole: without a GPU in use, or without a pod of a gang where there
/// are no GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// The topology.
    pub topology: String,
    /// The level's label.
    pub label: String,
    /// Domains that count.
    pub domains: usize,
    /// Whole as it is.
    pub now: usize,
    /// Whole once what waits is placed.
    pub then: usize,
    /// Whole if what runs had been placed by this scheduler.
    pub anew: usize,
}

/// A gang that waits, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// After what waits was placed.
    pub gang: GangReport,
    /// Its minimum has places, and more of its pods than before.
    pub starts: bool,
}

/// Where a gang is that runs: domains in use at each level, the widest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// The gang.
    pub gang: GangReport,
    /// The topology that is counted in.
    pub topology: String,
    /// By level: its label, domains in use now, and if it were placed anew; `None` if it found no place then.
    pub levels: Vec<(String, usize, Option<usize>)>,
}

/// The whole forecast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// What waits.
    pub waiting: Vec<Waiting>,
    /// What runs, gangs of several pods.
    pub running: Vec<Running>,
    /// Levels of every topology.
    pub levels: Vec<Level>,
    /// Pods that would be evicted for what waits, by gang.
    pub evicted: BTreeMap<String, usize>,
    /// Gangs that run and would not find a place if everything were placed anew.
    pub homeless: usize,
}

/// Places what waits on the cluster as it is, and what runs on the cluster as it would be without our pods.
#[must_use]
pub fn forecast(items: &[Item], options: &Options) -> Forecast {
    let mut cluster = Cluster::new(options.clone());
    cluster.apply(items.to_vec());
    let before = cluster.world().gang_reports();
    let (views, places) = (cluster.world().node_views(), places(&cluster));
    let runs: BTreeSet<(String, String)> = SimulationResult::of(&cluster).pods.into_iter().filter(|pod| pod.node.is_some()).map(|pod| (pod.namespace, pod.name)).collect();
    // A pass makes the trees of the topologies, in which what was there before it is counted as well.
    cluster.settle();
    let now = whole(&cluster, &views);
    let used = used(&cluster, places);
    let then = whole(&cluster, &cluster.world().node_views());
    let waiting = waiting(&before, &cluster);
    let mut evicted: BTreeMap<String, usize> = BTreeMap::new();
    for eviction in &cluster.evictions {
        *evicted.entry(format!("{}/{}", eviction.gang.namespace, eviction.gang.name)).or_default() += eviction.pods.len();
    }
    let mut empty = Cluster::new(options.clone());
    empty.apply(items.iter().map(|item| unbound(item, &runs, options)).collect());
    empty.settle();
    let (anew, used_anew) = (whole(&empty, &empty.world().node_views()), self::used(&empty, self::places(&empty)));
    let levels = now.iter().map(|((topology, label), (domains, whole))| {
        let of = |other: &Wholes| other.get(&(topology.clone(), label.clone())).map_or(0, |(_, whole)| *whole);
        Level { topology: topology.clone(), label: label.clone(), domains: *domains, now: *whole, then: of(&then), anew: of(&anew) }
    });
    let levels = in_order(levels.collect(), &cluster);
    let running = running(&before, &cluster, &used, &used_anew);
    let is_homeless = |running: &&Running| running.levels.iter().all(|(.., anew)| anew.is_none());
    Forecast { waiting, homeless: running.iter().filter(is_homeless).count(), running, levels, evicted }
}

/// A pod of ours that runs, as if it had never been placed; one that waits, kept from it; everything else as it is.
fn unbound(item: &Item, runs: &BTreeSet<(String, String)>, options: &Options) -> Item {
    let mut item = item.clone();
    let is_ours = text(&item.value, "/kind") == "Pod" && text(&item.value, "/spec/schedulerName") == options.scheduler_name;
    if is_ours && item.value["metadata"]["deletionTimestamp"].is_null() {
        let namespace = Some(text(&item.value, "/metadata/namespace")).filter(|namespace| !namespace.is_empty()).unwrap_or("default");
        let key = (namespace.to_owned(), text(&item.value, "/metadata/name").to_owned());
        if runs.contains(&key) {
            if let Some(spec) = item.value["spec"].as_object_mut() {
                spec.remove("nodeName");
            }
            item.value["status"] = json!({"phase": "Pending"});
        } else if text(&item.value, "/spec/nodeName").is_empty() && item.value["spec"].is_object() {
            item.value["spec"]["schedulingGates"] = json!([{"name": FORECAST_GATE}]);
        }
    } else if super::bindings::is_request(&item.value) {
        // What KAI Scheduler decided is as undone as the rest.
        item.value["status"] = json!({"phase": "Failed"});
    }
    item
}

/// Domains that count and those that are whole, by topology and level.
type Wholes = BTreeMap<(String, String), (usize, usize)>;

fn whole(cluster: &Cluster, nodes: &[NodeView]) -> Wholes {
    let world = cluster.world();
    let has_gpus = nodes.iter().any(|node| node.gpus[0] > 0);
    let mut in_use: BTreeMap<(String, String), BTreeMap<Vec<String>, bool>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| !has_gpus || node.gpus[0] > 0) {
        let is_used = if has_gpus { node.gpus[1] > 0 || node.gpus[2] > 0 } else { node.work.iter().any(|work| work.gang.is_some()) };
        for (topology, path) in world.domains_of_node(&node.name) {
            let mut values = Vec::new();
            for (label, value) in path {
                values.push(value);
                *in_use.entry((topology.clone(), label)).or_default().entry(values.clone()).or_default() |= is_used;
            }
        }
    }
    in_use.into_iter().map(|(level, domains)| (level, (domains.len(), domains.values().filter(|used| !**used).count()))).collect()
}

/// Levels by topology, the widest first.
fn in_order(mut levels: Vec<Level>, cluster: &Cluster) -> Vec<Level> {
    let depths: BTreeMap<String, Vec<String>> = cluster.world().levels().into_iter().collect();
    let depth = |level: &Level| depths.get(&level.topology).and_then(|labels| labels.iter().position(|label| *label == level.label));
    levels.sort_by_key(|level| (level.topology.clone(), depth(level)));
    levels
}

/// By gang and topology: the domains in use at each level.
type Used = BTreeMap<(String, String), BTreeMap<String, BTreeMap<String, BTreeSet<Vec<String>>>>>;

/// The nodes of each gang's pods.
fn places(cluster: &Cluster) -> Vec<((String, String), String)> {
    let pods = SimulationResult::of(cluster).pods.into_iter();
    pods.filter_map(|pod| Some(((pod.namespace, pod.gang), pod.node?))).collect()
}

fn used(cluster: &Cluster, places: Vec<((String, String), String)>) -> Used {
    let mut used = Used::new();
    for (gang, node) in places {
        let topologies = used.entry(gang).or_default();
        for (topology, path) in cluster.world().domains_of_node(&node) {
            let mut values = Vec::new();
            for (label, value) in path {
                values.push(value);
                topologies.entry(topology.clone()).or_default().entry(label).or_default().insert(values.clone());
            }
        }
    }
    used
}

fn waiting(before: &[GangReport], cluster: &Cluster) -> Vec<Waiting> {
    let waits = |gang: &&GangReport| gang.state != GangState::Done && gang.bound < gang.pods;
    before
        .iter()
        .filter(waits)
        .filter_map(|before| Some((before, cluster.world().gang_report(&before.uid)?)))
        .map(|(before, gang)| Waiting { starts: gang.state == GangState::Placed && before.bound < gang.bound, gang })
        .collect()
}

fn running(before: &[GangReport], cluster: &Cluster, now: &Used, anew: &Used) -> Vec<Running> {
    let world = cluster.world();
    let default = world.default_topology_name();
    let mut running = Vec::new();
    for gang in before.iter().filter(|gang| gang.bound > 1 && gang.bound == gang.pods) {
        let key = (gang.key.namespace.clone(), gang.key.name.clone());
        let Some(topologies) = now.get(&key) else { continue };
        let named = world.topology_of_gang(&gang.uid, cluster.policy().default_topology.as_deref());
        let Some(topology) = named.or_else(|| default.clone()).or_else(|| topologies.keys().next().cloned()) else { continue };
        let Some(levels) = topologies.get(&topology) else { continue };
        let labels = world.levels().into_iter().find(|(name, _)| *name == topology).map(|(_, labels)| labels).unwrap_or_default();
        let after = anew.get(&key).and_then(|topologies| topologies.get(&topology));
        let count = |label: &String| {
            let now = levels.get(label).map_or(0, BTreeSet::len);
            (label.clone(), now, after.map(|levels| levels.get(label).map_or(0, BTreeSet::len)))
        };
        running.push(Running { gang: gang.clone(), levels: labels.iter().map(count).collect(), topology });
    }
    running
}
