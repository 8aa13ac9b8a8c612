//! The model: nodes, pods, gangs, queues and topologies, kept up to date event by event.
//!
//! `apply` is the only way in. The model guarantees that what a node uses is
//! the sum of its holding pods, always; a test compares it with a world built
//! from scratch. It decides nothing and knows nothing of the API.

mod apply;
mod intern;
mod budgets;
pub(crate) mod life;
pub mod model;
pub(crate) mod promises;
pub(crate) mod queues;
mod report;
pub(crate) mod shares;
pub(crate) mod usage;
pub mod view;
pub mod volumes;
pub(crate) mod wake;

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{
    BudgetFacts, Event, Millis, NodeFacts, ObjectKey, QueueFacts, ShapeFacts, TopologyFacts,
};
use crate::fit::volumes::VolumeNeeds;
use crate::fit::tallies::Mark;
use crate::ids::{GangIdx, NodeIdx, PodIdx, ShapeIdx, TreeIdx};
use crate::outcome::DomainPath;
use crate::rooms::{Rooms, Shape, Terms};
use crate::topology::Tree;
use model::{Gang, Node, Pod, Room};
use queues::Charge;
use volumes::Volumes;

pub use queues::{DEFAULT_QUEUE, QueueError};

/// The model of one cluster.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// Resource names by column.
    pub(crate) columns: Vec<String>,
    pub(crate) nodes: Vec<Option<Node>>,
    pub(crate) node_by_name: BTreeMap<String, NodeIdx>,
    node_name_by_uid: BTreeMap<String, String>,
    pub(crate) pods: Vec<Option<Pod>>,
    free_pods: Vec<PodIdx>,
    pub(crate) pod_by_uid: BTreeMap<String, PodIdx>,
    /// Pods that hold room, by the name of their node (which may not exist yet).
    pods_by_node: BTreeMap<String, BTreeSet<PodIdx>>,
    /// Pods by gang key; the gang may not exist yet.
    pub(crate) pods_by_gang: BTreeMap<ObjectKey, BTreeSet<PodIdx>>,
    pub(crate) gangs: Vec<Option<Gang>>,
    gang_by_uid: BTreeMap<String, GangIdx>,
    pub(crate) gang_by_key: BTreeMap<ObjectKey, GangIdx>,
    pub(crate) queues: BTreeMap<String, QueueFacts>,
    pub(crate) topologies: BTreeMap<String, TopologyFacts>,
    /// Amounts charged by leaf queue name.
    pub(crate) charged: BTreeMap<String, Charge>,
    pub(crate) shapes: Vec<Shape>,
    shape_by_key: BTreeMap<(ShapeFacts, Terms, VolumeNeeds), ShapeIdx>,
    pub(crate) registry: intern::Registry,
    pub(crate) volumes: Volumes,
    /// Trees by index; 0 has no levels.
    pub(crate) trees: Vec<Tree>,
    pub(crate) tree_by_topology: BTreeMap<String, TreeIdx>,
    trees_dirty: bool,
    whole_paths: bool,
    pub(crate) rooms: Rooms,
    holds: BTreeMap<String, Vec<(String, BTreeMap<String, i64>)>>,
    /// Promises that ended, until the outcome tells of them: UID and key of the gang.
    pub(crate) withdrawn: Vec<(String, ObjectKey)>,
    pub(crate) budgets: BTreeMap<String, BudgetFacts>,
    /// Pods of ours without a place (gated ones included), by gang key.
    waiting_pods: BTreeMap<ObjectKey, u32>,
    /// Gangs with a pod that waits.
    pub(crate) waiting: BTreeSet<GangIdx>,
    /// Gangs whose pods changed since their lives were last looked at.
    touched: BTreeSet<GangIdx>,
    /// Gangs that ran whole and are below their minimum.
    stale: BTreeSet<GangIdx>,
    /// Something changed since the last pass.
    pub(crate) dirty: bool,
    /// What changed since the last pass, as far as it can let a parked gang go on.
    pub(crate) changes: wake::Changes,
    /// Counts events and commits: verdicts made at another count may be out of date.
    pub(crate) version: u64,
    /// Initial lists are complete.
    pub(crate) synced: bool,
    /// This process may decide.
    pub(crate) leading: bool,
    pub(crate) next_decision: u64,
}

/// An event that could not be used as it is; the rest of the world goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The object, such as `Topology/t`.
    pub object: String,
    /// Field.
    pub field: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// A live member of a gang; its place in the list is its rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Namespace and name.
    pub pod: ObjectKey,
    /// Leaf subgroup; empty for the implicit one.
    pub subgroup: String,
    /// Index that the workload gave it.
    pub index: Option<u32>,
    /// The node, once it has one.
    pub node: Option<String>,
}

/// Capacity of one domain, for `tree` and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainCapacity {
    /// The path.
    pub path: DomainPath,
    /// Nodes below.
    pub nodes: u32,
    /// GPUs: allocatable, used.
    pub gpus: i64,
    /// GPUs in use.
    pub gpus_used: i64,
}

impl World {
    /// An empty world that may decide as soon as it is synced.
    #[must_use]
    pub fn new() -> Self {
        Self { leading: true, trees_dirty: true, ..Self::default() }
    }

    /// Applies one event. A rejected event leaves the model as it was.
    ///
    /// # Errors
    /// `Rejected` names the object and field that cannot be used.
    pub fn apply(&mut self, event: Event, now: Millis) -> Result<(), Rejected> {
        self.dirty = true;
        self.version += 1;
        self.apply_event(event, now)
    }

    /// A copy that can be changed without touching this one (what-if, verified fixes).
    #[must_use]
    pub fn fork(&self) -> Self {
        self.clone()
    }

    /// The events that rebuild this world.
    #[must_use]
    pub fn export(&self) -> Vec<Event> {
        let mut events = Vec::new();
        events.extend(
            self.namespaces().map(|(name, labels)| Event::NamespaceUpsert(name.clone(), labels.clone())),
        );
        events.extend(self.topologies.values().cloned().map(Event::TopologyUpsert));
        events.extend(self.queues.values().cloned().map(Event::QueueUpsert));
        events.extend(self.nodes.iter().flatten().map(|n| Event::NodeUpsert(n.facts.clone())));
        events.extend(self.storage_events());
        events.extend(self.budgets.values().cloned().map(Event::BudgetUpsert));
        let mut gangs: Vec<&Gang> = self.gangs.iter().flatten().collect();
        gangs.sort_by(|a, b| a.facts.key.cmp(&b.facts.key));
        events.extend(gangs.into_iter().map(|gang| Event::GangUpsert(self.with_promise(gang))));
        for pod in self.pods.iter().flatten() {
            let mut facts = pod.facts.clone();
            facts.node.clone_from(&pod.node);
            events.push(Event::PodUpsert(facts));
        }
        if self.synced {
            events.push(Event::Synced);
        }
        events
    }

    /// Amounts held on a node, one entry for each hold.
    pub(crate) fn held_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = (&'a str, &'a BTreeMap<String, i64>)> {
        let all = self.holds.iter().flat_map(|(gang, holds)| holds.iter().map(move |hold| (gang.as_str(), hold)));
        all.filter(move |(_, (name, _))| name == node).map(|(gang, (_, amounts))| (gang, amounts))
    }

    pub(crate) fn column(&mut self, name: &str) -> usize {
        match self.columns.iter().position(|column| column == name) {
            Some(at) => at,
            None => {
                self.columns.push(name.to_owned());
                self.columns.len() - 1
            }
        }
    }

    /// The node's free room: allocatable minus used minus held.
    pub(crate) fn room_of(&self, node: &Node) -> Room {
        let free = (0..self.columns.len())
            .map(|column| {
                let at = |amounts: &[i64]| amounts.get(column).copied().unwrap_or(0);
                // What is kept may be what others have still to leave: that is used already.
                let kept = at(&node.held).saturating_sub(at(&node.releasing)).max(0);
                self.allocatable_of(node, column).saturating_sub(at(&node.used)).saturating_sub(kept)
            })
            .collect();
        let mut room = Room { free, volumes: self.free_volumes(&node.facts), ..Room::default() };
        for pod in node.pods.iter().filter_map(|pod| self.pods[pod.at()].as_ref()) {
            room.ports.extend(pod.facts.shape.host_ports.iter().cloned());
            let shape = &self.shapes[pod.shape.at()];
            for (column, volume) in &shape.shared {
                room.attach(*column, *volume, 1);
            }
            for (mark, weight) in shape.terms.marks() {
                let live_only = matches!(mark, Mark::Member(term) if self.registry.terms[term.at()].live_only);
                if !(live_only && pod.facts.terminating) {
                    *room.marks.entry(mark).or_default() += weight;
                }
            }
        }
        room
    }

    pub(crate) fn push_room(&mut self, idx: NodeIdx) {
        self.changes.note_room(idx, self.rooms.room(idx));
        let room = self.nodes[idx.at()].as_ref().map(|node| self.room_of(node));
        self.rooms.set(idx, room, false);
    }

    /// Whether a node that lacks the label of one level leaves the whole topology, as in KAI.
    pub(crate) fn set_whole_paths(&mut self, whole_paths: bool) {
        self.trees_dirty |= self.whole_paths != whole_paths;
        self.whole_paths = whole_paths;
    }

    /// Rebuilds trees when nodes or topologies changed since the last call.
    pub(crate) fn refresh_trees(&mut self) {
        if !self.trees_dirty {
            return;
        }
        self.trees_dirty = false;
        let nodes: Vec<(NodeIdx, &NodeFacts)> = self
            .nodes
            .iter()
            .enumerate()
            .filter_map(|(at, node)| Some((NodeIdx(at as u32), &node.as_ref()?.facts)))
            .collect();
        let mut trees = vec![Tree::build(&[], &nodes)];
        let mut by_topology = BTreeMap::new();
        for (name, facts) in &self.topologies {
            by_topology.insert(name.clone(), TreeIdx(trees.len() as u32));
            let has_all = |(_, node): &&(NodeIdx, &NodeFacts)| {
                !self.whole_paths || facts.levels.iter().all(|level| node.labels.contains_key(&level.label))
            };
            let inside: Vec<_> = nodes.iter().filter(has_all).copied().collect();
            trees.push(Tree::build(&facts.levels, &inside));
        }
        self.trees = trees;
        self.tree_by_topology = by_topology;
        self.refresh_reach();
        self.rooms.reset();
    }

    /// The default topology: named by the operator, else annotated, else the only one.
    pub(crate) fn default_topology(&self, named: Option<&str>) -> Option<&str> {
        if let Some(name) = named {
            return self.topologies.get(name).map(|facts| facts.name.as_str());
        }
        let annotated = self.topologies.values().find(|facts| facts.default);
        match (annotated, self.topologies.len()) {
            (Some(facts), _) => Some(&facts.name),
            (None, 1) => self.topologies.keys().next().map(String::as_str),
            _ => None,
        }
    }

    /// Waiting pods of a gang that we may place, by index.
    pub(crate) fn gang_pods(&self, key: &ObjectKey) -> impl Iterator<Item = (PodIdx, &Pod)> {
        self.pods_by_gang
            .get(key)
            .into_iter()
            .flatten()
            .filter_map(|idx| Some((*idx, self.pods[idx.at()].as_ref()?)))
    }

    /// A canonical text of all derived state, for comparing an incremental world with a rebuilt one.
    #[must_use]
    pub fn digest(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for (name, idx) in &self.node_by_name {
            let Some(node) = &self.nodes[idx.at()] else { continue };
            let _ = write!(text, "node {name}");
            let mut amounts = BTreeMap::new();
            for (at, column) in self.columns.iter().enumerate() {
                let get = |v: &[i64]| v.get(at).copied().unwrap_or(0);
                let row =
                    (get(&node.allocatable), get(&node.used), get(&node.releasing), get(&node.held));
                if row != (0, 0, 0, 0) {
                    amounts.insert(column, row);
                }
            }
            let pods: BTreeSet<&String> = node
                .pods
                .iter()
                .filter_map(|pod| self.pods[pod.at()].as_ref())
                .map(|pod| &pod.facts.uid)
                .collect();
            let _ = writeln!(text, " {amounts:?} {pods:?}");
        }
        let waiting: BTreeSet<&ObjectKey> =
            self.waiting.iter().filter_map(|g| Some(&self.gangs[g.at()].as_ref()?.facts.key)).collect();
        let charged: BTreeMap<&String, &Charge> =
            self.charged.iter().filter(|(_, amounts)| **amounts != Charge::default()).collect();
        let _ = writeln!(text, "waiting {waiting:?}\ncharged {charged:?}\n{}", self.counts_digest());
        text
    }
}
