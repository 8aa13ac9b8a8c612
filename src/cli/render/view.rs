//! A cluster as one document: nodes with what stands on them, gangs with their sentences, queues, decisions. The tree, the
//! drawing and the page are made from it.

use std::collections::BTreeMap;

use berth_engine::facts::{Amounts, ObjectKey};
use berth_engine::outcome::{DomainPath, GangReport, GangState};
use berth_engine::remedy;
use berth_engine::world::view::NodeView;
use serde_json::{Value, json};

use super::words::{notes, state_word, title};
use crate::explain;
use crate::moment::Moment;
use crate::simulate::cluster::Cluster;
use crate::simulate::result::SimulationResult;

/// Gangs whose fixes are looked for; the others have their sentence only.
const MAX_EXPLAINED: usize = 50;

/// Trials for each of them.
const TRIALS: u32 = 24;

/// How work is called that is not known.
pub const OTHERS: &str = "other work";

/// Decisions that are listed, the latest.
const MAX_DECISIONS: usize = 200;

/// A domain with everything below it; the leaves are nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Label of its level; `node` for a node, empty for the cluster.
    pub level: String,
    /// Nodes in it.
    pub nodes: u32,
    /// All, in use, held, stranded.
    pub amounts: [i64; 4],
    /// Titles of the gangs on it.
    pub gangs: std::collections::BTreeSet<String>,
    /// Domains below, by name.
    pub below: BTreeMap<String, Place>,
}

/// The cluster in the levels of one topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The topology's name; empty where there is none.
    pub topology: String,
    /// GPUs, or cores in a cluster without GPUs.
    pub unit: &'static str,
    /// The whole.
    pub root: Place,
}

/// Amounts of a node in the cluster's unit: all, in use, held, stranded.
fn amounts(node: &NodeView, in_cores: bool) -> [i64; 4] {
    let [all, used, held] = if in_cores { node.cpu_millis.map(|millis| millis / 1000) } else { node.gpus };
    let free = (all - used - held).max(0);
    [all, used, held, if node.stranded.is_some() { free } else { 0 }]
}

fn is_in_cores(nodes: &[NodeView]) -> bool {
    nodes.iter().all(|node| node.gpus[0] == 0)
}

/// The tree of a topology: the one named, the default one, or the first.
#[must_use]
pub fn tree(cluster: &Cluster, topology: &str) -> Tree {
    let nodes = cluster.world().node_views();
    let in_cores = is_in_cores(&nodes);
    let titles: BTreeMap<String, String> = cluster.world().gang_reports().iter().map(|gang| (gang.uid.clone(), title(gang))).collect();
    let mut root = Place::default();
    for node in &nodes {
        let domains: BTreeMap<_, _> = cluster.world().domains_of_node(&node.name).into_iter().collect();
        let path = domains.get(topology).into_iter().flatten().filter(|(level, _)| level != "kubernetes.io/hostname").cloned();
        let path: Vec<(String, String)> = path.chain([("node".to_owned(), node.name.clone())]).collect();
        let gangs: Vec<&String> = node.work.iter().filter_map(|work| titles.get(work.gang.as_ref()?)).collect();
        root.add(&path, amounts(node, in_cores), &gangs);
    }
    Tree { topology: topology.to_owned(), unit: if in_cores { "cores" } else { "GPUs" }, root }
}

impl Place {
    fn add(&mut self, path: &[(String, String)], amounts: [i64; 4], gangs: &[&String]) {
        self.nodes += 1;
        for (sum, amount) in self.amounts.iter_mut().zip(amounts) {
            *sum = sum.saturating_add(amount);
        }
        self.gangs.extend(gangs.iter().map(|gang| (*gang).clone()));
        if let Some(((level, name), rest)) = path.split_first() {
            let below = self.below.entry(name.clone()).or_default();
            below.level.clone_from(level);
            below.add(rest, amounts, gangs);
        }
    }

    /// What a pod could use.
    #[must_use]
    pub fn free(&self) -> i64 {
        let [all, used, held, stranded] = self.amounts;
        (all - used - held - stranded).max(0)
    }

    /// For scripts.
    #[must_use]
    pub fn json(&self, name: &str) -> Value {
        let [all, used, held, stranded] = self.amounts;
        json!({
            "name": name, "level": self.level, "nodes": self.nodes, "total": all, "used": used, "reserved": held, "stranded": stranded,
            "free": self.free(), "podGroups": self.gangs,
            "domains": self.below.iter().map(|(name, below)| below.json(name)).collect::<Vec<_>>(),
        })
    }
}

/// What of a cluster is shown to somebody, and how it is called.
pub trait Eyes {
    /// The name of a node.
    fn node(&mut self, name: &str) -> String;
    /// The names of a domain and those around it.
    fn path(&mut self, path: &DomainPath) -> DomainPath;
    /// A gang as it may be seen; none of it where only its queue may be known.
    fn gang(&mut self, gang: &GangReport) -> Option<GangReport>;
    /// Whether the gang of this name may be seen.
    fn knows(&self, gang: &ObjectKey) -> bool;
    /// Whether the queue may be seen.
    fn knows_queue(&self, name: &str) -> bool;
}

/// Sees everything.
pub struct Open;

impl Eyes for Open {
    fn node(&mut self, name: &str) -> String {
        name.to_owned()
    }
    fn path(&mut self, path: &DomainPath) -> DomainPath {
        path.clone()
    }
    fn gang(&mut self, gang: &GangReport) -> Option<GangReport> {
        Some(gang.clone())
    }
    fn knows(&self, _gang: &ObjectKey) -> bool {
        true
    }
    fn knows_queue(&self, _name: &str) -> bool {
        true
    }
}

/// Work of which only the queue is known.
#[must_use]
pub fn of_queue(queue: &str) -> String {
    if queue.is_empty() { "work of no queue".to_owned() } else { format!("work of queue {queue}") }
}

/// Everything that the page shows of a cluster made of files.
#[must_use]
pub fn document_of(cluster: &Cluster, heading: &str) -> Value {
    document(&cluster.moment(), heading, &notes(&SimulationResult::of(cluster)), TRIALS, &mut Open)
}

/// Everything that the page shows. What would help is looked for in so many trials a gang; in none, the page asks for it
/// when somebody wants to know.
#[must_use]
pub fn document(moment: &Moment<'_>, heading: &str, notes: &[String], trials: u32, eyes: &mut dyn Eyes) -> Value {
    let world = moment.world;
    let nodes = world.node_views();
    let in_cores = is_in_cores(&nodes);
    let gangs = world.gang_reports();
    let index: BTreeMap<&str, usize> = gangs.iter().enumerate().map(|(at, gang)| (gang.uid.as_str(), at)).collect();
    let shown: Vec<Value> = nodes
        .iter()
        .map(|node| {
            let paths: BTreeMap<String, Vec<String>> = world
                .domains_of_node(&node.name)
                .into_iter()
                .map(|(name, path)| (name, eyes.path(&path).into_iter().filter(|(level, _)| level != "kubernetes.io/hostname").map(|(_, value)| value).collect()))
                .collect();
            let work: Vec<Value> = node
                .work
                .iter()
                .map(|work| json!([work.gang.as_deref().and_then(|uid| index.get(uid)), if in_cores { work.cpu_millis / 1000 } else { work.gpus }, work.pods]))
                .collect();
            json!({"n": eyes.node(&node.name), "a": amounts(node, in_cores), "s": node.stranded.as_ref().map(explain::rule), "w": work, "p": paths})
        })
        .collect();
    let mut levels: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, labels) in world.levels() {
        levels.insert(name, labels.into_iter().filter(|label| label != "kubernetes.io/hostname").collect());
    }
    let mut left = MAX_EXPLAINED;
    let shown_gangs: Vec<Value> = gangs.iter().map(|gang| self::gang(moment, gang, trials, &mut left, eyes)).collect();
    let queues: Vec<Value> = world
        .queue_reports()
        .iter()
        .filter(|queue| eyes.knows_queue(&queue.name))
        .map(|queue| json!({"name": queue.name, "children": queue.children, "allocated": shares(&queue.allocated), "requested": shares(&queue.requested)}))
        .collect();
    let decisions: Vec<Value> = moment
        .placed
        .iter()
        .rev()
        .take(MAX_DECISIONS)
        .map(|placed| {
            let name = if eyes.knows(&placed.gang) { placed.gang.name.as_str() } else { OTHERS };
            let nodes: Vec<String> = placed.nodes.iter().map(|node| eyes.node(node)).collect();
            json!({"gang": index.get(placed.gang_uid.as_str()), "name": name, "pods": placed.pods, "nodes": nodes})
        })
        .collect();
    let evictions: Vec<Value> = moment
        .gone
        .iter()
        .rev()
        .take(MAX_DECISIONS)
        .filter(|gone| eyes.knows(&gone.gang))
        .map(|gone| {
            let hides = gone.by.as_ref().is_some_and(|by| !eyes.knows(by));
            let why = if hides { "evicted to make room for other work" } else { gone.why.as_str() };
            json!({"gang": index.get(gone.gang_uid.as_str()), "name": gone.gang.name, "pods": gone.pods, "why": why})
        })
        .collect();
    let evicted: Vec<&String> = moment.gone.iter().filter(|gone| eyes.knows(&gone.gang)).flat_map(|gone| &gone.pods).collect();
    json!({
        "heading": heading, "unit": if in_cores { "cores" } else { "GPUs" }, "topologies": levels, "nodes": shown, "gangs": shown_gangs,
        "queues": queues, "decisions": decisions, "evictions": evictions, "evicted": evicted, "notes": notes,
    })
}

/// GPUs and cores of an amount, as text.
fn shares(amounts: &Amounts) -> Value {
    let of = |name: &str| amounts.get(name).copied().unwrap_or(0);
    let gpus: i64 = amounts.iter().filter(|(name, _)| berth_engine::fit::is_gpu(name)).map(|(_, amount)| *amount).sum();
    json!({"gpus": gpus, "cores": of("cpu") / 1000})
}

fn gang(moment: &Moment<'_>, gang: &GangReport, trials: u32, left: &mut usize, eyes: &mut dyn Eyes) -> Value {
    let Some(gang) = eyes.gang(gang) else {
        return json!({
            "title": of_queue(&gang.queue), "id": null, "queue": gang.queue, "state": state_word(gang.state), "pods": gang.pods, "bound": gang.bound,
            "min": gang.min_member, "code": null, "reasons": [], "fixes": [],
        });
    };
    let waits = gang.state != GangState::Done && !gang.reasons.is_empty();
    let mut remedies = Vec::new();
    if waits && trials > 0 && *left > 0 {
        *left -= 1;
        let found = remedy::remedies(moment.world, &moment.policy, moment.now, &gang.uid, trials).found;
        remedies = found.iter().map(|remedy| explain::remedy(&remedy.fixes)).collect();
    }
    let reasons: Vec<String> = gang.reasons.iter().map(explain::sentence).collect();
    json!({
        "title": title(&gang), "id": [gang.key.namespace, gang.key.name], "queue": gang.queue, "state": state_word(gang.state), "pods": gang.pods, "bound": gang.bound, "min": gang.min_member,
        "code": gang.reasons.first().map(|reason| reason.code_name()), "reasons": reasons, "fixes": remedies,
    })
}
