//! Who belongs to which gang and what the nodes are now, as the writers (`bind`, `status`) and the release of half-bound
//! gangs need it. It is never behind the engine: the store writes here first and tells the engine then.
//!
//! One writer, the store; readers hold the lock for a look-up only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use berth_engine::facts::{Millis, NodeFacts, ObjectKey, QueueFacts, ShapeFacts};
use berth_engine::fit;
use berth_engine::outcome::{Decision, Placement};
use serde_json::Value;

/// A pod of a gang.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Member {
    /// Namespace and name.
    pub key: ObjectKey,
    /// A controller makes a new one when this one goes.
    pub has_controller: bool,
    /// Where it is.
    pub node: Option<String>,
    /// Being deleted, or over.
    pub leaving: bool,
    /// The decision mark.
    pub decision: Option<String>,
    /// Creation time.
    pub created: Millis,
    /// When its node began with it.
    pub started: Option<Millis>,
    /// Reason and message of `PodScheduled=False`, when it is there.
    pub condition: Option<(String, String)>,
    /// Has scheduling gates.
    pub gated: bool,
    /// The node that its status nominates.
    pub nominated: Option<String>,
    /// The resource version, while it waits: a write that must not come after a Binding is guarded by it.
    pub version: String,
    /// Where it fits, while it waits.
    pub shape: Option<Arc<ShapeFacts>>,
}

impl Member {
    /// Why it can't be bound now, if it can't.
    fn unfit(&self) -> Option<String> {
        match &self.node {
            Some(node) => Some(format!("it has a node by now ({node})")),
            None if self.leaving => Some("it is being deleted, or over".to_owned()),
            None if self.gated => Some("it has scheduling gates by now".to_owned()),
            None => None,
        }
    }
}

/// A gang.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Namespace and name of its PodGroup.
    pub key: ObjectKey,
    /// The PodGroup was written by hand: its pods are not relabelled.
    pub handwritten: bool,
    /// UID of the PodGroup object, once it exists.
    pub object_uid: Option<String>,
    /// `spec.markUnschedulable` is not false.
    pub mark_unschedulable: bool,
    /// The status in the API.
    pub status: Value,
    /// Room that is kept for it, as written on the PodGroup.
    pub promised: Option<String>,
    /// Node pool of the PodGroup; empty is the default one.
    pub node_pool: String,
    /// Since when it is stale, as its PodGroup says.
    pub stale_note: Option<String>,
    /// The PodGang of Grove that it is, in the namespace of its PodGroup.
    pub pod_gang: Option<String>,
    /// Its pods by UID.
    pub members: BTreeMap<String, Member>,
}

/// A PodGang of Grove.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodGangEntry {
    /// UID of the object.
    pub uid: String,
    /// Its `status.placementScore` in the API.
    pub score: Value,
}

/// A queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueEntry {
    /// As the engine was told.
    pub facts: QueueFacts,
    /// The status in the API.
    pub status: Value,
    /// The name shown to people; empty when it has none.
    pub display: String,
}

/// All gangs by the engine's UID.
#[derive(Debug, Default)]
pub struct Directory {
    gangs: BTreeMap<String, Entry>,
    queues: BTreeMap<String, QueueEntry>,
    nodes: BTreeMap<String, NodeFacts>,
    pod_gangs: BTreeMap<ObjectKey, PodGangEntry>,
}

impl Directory {
    /// One gang.
    #[must_use]
    pub fn gang(&self, uid: &str) -> Option<&Entry> {
        self.gangs.get(uid)
    }
    /// Every gang.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.gangs.iter()
    }
    /// The gang, made when it is new.
    pub fn gang_mut(&mut self, uid: &str) -> &mut Entry {
        self.gangs.entry(uid.to_owned()).or_default()
    }
    /// The gang is gone.
    pub fn remove(&mut self, uid: &str) {
        self.gangs.remove(uid);
    }
    /// A queue by its name.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<&QueueEntry> {
        self.queues.get(name)
    }
    /// The queue as it is now. False when nothing that the engine knows of it changed.
    pub fn put_queue(&mut self, queue: QueueEntry) -> bool {
        let name = queue.facts.name.clone();
        let facts = queue.facts.clone();
        self.queues.insert(name, queue).is_none_or(|before| before.facts != facts)
    }
    /// The queue (by UID) is gone. False when there was none.
    pub fn remove_queue(&mut self, uid: &str) -> bool {
        let before = self.queues.len();
        self.queues.retain(|_, queue| queue.facts.uid != uid);
        self.queues.len() < before
    }
    /// A PodGang by namespace and name.
    #[must_use]
    pub fn pod_gang(&self, key: &ObjectKey) -> Option<&PodGangEntry> {
        self.pod_gangs.get(key)
    }
    /// The PodGang as it is now. True when it was not there, or another of its name was.
    pub fn put_pod_gang(&mut self, key: ObjectKey, pod_gang: PodGangEntry) -> bool {
        let uid = pod_gang.uid.clone();
        self.pod_gangs.insert(key, pod_gang).is_none_or(|before| before.uid != uid)
    }
    /// The PodGang (by UID) is gone.
    pub fn remove_pod_gang(&mut self, uid: &str) {
        self.pod_gangs.retain(|_, pod_gang| pod_gang.uid != uid);
    }
    /// A node by its name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodeFacts> {
        self.nodes.get(name)
    }
    /// The node as it is now.
    pub fn put_node(&mut self, node: NodeFacts) {
        self.nodes.insert(node.name.clone(), node);
    }
    /// The node (by UID) is gone. False when there was none: another of its name is not touched.
    pub fn remove_node(&mut self, uid: &str) -> bool {
        let before = self.nodes.len();
        self.nodes.retain(|_, node| node.uid != uid);
        self.nodes.len() < before
    }
    /// Why a decision does not hold any more, if it does not: what is wrong with the first target that changed since.
    #[must_use]
    pub fn stale(&self, decision: &Decision) -> Option<String> {
        let Some(entry) = self.gang(&decision.gang_uid) else { return Some("the gang is gone".to_owned()) };
        decision.placements.iter().find_map(|placement| self.stale_target(entry, placement))
    }

    fn stale_target(&self, entry: &Entry, placement: &Placement) -> Option<String> {
        let pod = format!("pod {}/{}", placement.pod.namespace, placement.pod.name);
        let Some(member) = entry.members.get(&placement.pod_uid) else { return Some(format!("{pod} is gone")) };
        if let Some(why) = member.unfit() {
            return Some(format!("{pod}: {why}"));
        }
        let node = self.nodes.get(&placement.node).filter(|node| node.uid == placement.node_uid);
        let Some(node) = node else { return Some(format!("node {} is gone", placement.node)) };
        let refusal = member.shape.as_deref().and_then(|shape| fit::refusal(node, shape))?;
        Some(format!("node {} does not take {pod} any more ({refusal:?})", placement.node))
    }

    /// The pod left the gang.
    pub fn remove_member(&mut self, gang: &str, pod: &str) {
        if let Some(entry) = self.gangs.get_mut(gang) {
            entry.members.remove(pod);
        }
    }
}

/// The directory, shared.
#[derive(Clone, Debug, Default)]
pub struct SharedDirectory(Arc<Mutex<Directory>>);

impl SharedDirectory {
    /// Locks it. A holder that panicked left plain data behind: it is still usable.
    pub fn lock(&self) -> MutexGuard<'_, Directory> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_engine::outcome::Quality;

    fn decision() -> Decision {
        let placement = |pod: &str, node: &str| Placement {
            pod_uid: pod.to_owned(),
            pod: ObjectKey::new("ns", pod),
            subgroup: String::new(),
            node: node.to_owned(),
            node_uid: format!("uid-{node}"),
            volumes: Vec::new(),
            domain: Vec::new(),
        };
        Decision {
            id: 1,
            gang_uid: "g".to_owned(),
            gang: ObjectKey::new("ns", "g"),
            placements: vec![placement("a", "n1"), placement("b", "n2")],
            quality: Quality::default(),
        }
    }

    fn node(name: &str) -> NodeFacts {
        NodeFacts { uid: format!("uid-{name}"), name: name.to_owned(), ready: true, ..NodeFacts::default() }
    }

    fn directory() -> Directory {
        let mut directory = Directory::default();
        for name in ["n1", "n2"] {
            directory.put_node(node(name));
        }
        for pod in ["a", "b"] {
            let member = Member { shape: Some(Arc::default()), ..Member::default() };
            directory.gang_mut("g").members.insert(pod.to_owned(), member);
        }
        directory
    }

    /// What is said of the decision after a change.
    fn after(change: impl FnOnce(&mut Directory)) -> String {
        let mut directory = directory();
        assert_eq!(directory.stale(&decision()), None);
        change(&mut directory);
        directory.stale(&decision()).unwrap_or_default()
    }

    #[test]
    fn every_change_of_a_target_makes_the_decision_stale() {
        let pod = |change: fn(&mut Member)| {
            after(move |all| all.gang_mut("g").members.entry("b".to_owned()).and_modify(change).or_default().key = ObjectKey::default())
        };
        assert!(pod(|pod| pod.node = Some("n9".to_owned())).contains("n9"));
        assert!(pod(|pod| pod.leaving = true).contains("deleted"));
        assert!(pod(|pod| pod.gated = true).contains("gates"));
        assert!(after(|all| all.remove_member("g", "b")).contains("ns/b is gone"));
        assert!(after(|all| all.remove("g")).contains("gang is gone"));
        assert!(after(|all| assert!(all.remove_node("uid-n2"))).contains("n2 is gone"));
        assert!(after(|all| all.put_node(NodeFacts { uid: "new".to_owned(), ..node("n2") })).contains("n2 is gone"));
        assert!(after(|all| all.put_node(NodeFacts { ready: false, ..node("n2") })).contains("NotReady"));
        assert!(after(|all| all.put_node(NodeFacts { unschedulable: true, ..node("n2") })).contains("Cordoned"));
    }
}
