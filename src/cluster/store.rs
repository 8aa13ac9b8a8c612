//! The edge's memory: what must be kept of each object to form gangs, as a plain synchronous state machine.
//!
//! Guarantees: the engine hears of a pending pod of ours only when its owners are known (or known to be unreadable), each
//! gang is told before its pods, and no call to the API is made per pod. An object that can't be read is skipped and named
//! once. Knows no client and no clock; time arrives with each change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_api::queue::Queue;
use berth_api::topology::Topology;
use berth_engine::facts::{Event, Millis, ObjectKey, PodFacts, ShapeFacts};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::convert::storage::{StorageError, StorageKinds};
use super::convert::{self, Membership, Priorities};
use super::core_groups::{CoreGroups, core_dependency};
use super::directory::{QueueEntry, SharedDirectory};
use super::gangs::Gang;
use super::held;
use super::owners::OwnerCache;
use super::pool::NodePool;
use super::raw::{self, text};
use super::{Change, Effect, Gvk};
use crate::grouping::ObjectId;
use crate::grouping::core_group::{self, is_core_group};
use crate::grouping::kind_defaults::KindDefaults;
use crate::grouping::pod_gang;

/// Skipped objects remembered, so that each is logged once: more than a person would read.
const MAX_SKIPPED_NAMES: usize = 10_000;

/// Kinds that must be listed before decisions begin.
const BASE_KINDS: [(&str, &str, &str); 8] = [
    ("", "v1", "Node"),
    ("", "v1", "Pod"),
    ("scheduling.run.ai", "v2alpha2", "PodGroup"),
    ("scheduling.run.ai", "v2", "Queue"),
    ("kai.scheduler", "v1alpha1", "Topology"),
    ("scheduling.k8s.io", "v1", "PriorityClass"),
    ("berth.scheduler", "v1alpha1", "GroupingRule"),
    ("policy", "v1", "PodDisruptionBudget"),
];

const CONFIG_MAP: &str = "ConfigMap";

/// The kinds to watch from the start.
#[must_use]
pub fn base_kinds() -> Vec<Gvk> {
    BASE_KINDS.iter().chain(&StorageKinds::KINDS).map(|(group, version, kind)| Gvk::new(group, version, kind)).collect()
}

/// Whether a kind is watched from the start, and so for more than the owners of pods.
#[must_use]
pub fn is_base_kind(group: &str, kind: &str) -> bool {
    BASE_KINDS.iter().chain(&StorageKinds::KINDS).any(|(of_group, _, of_kind)| (*of_group, *of_kind) == (group, kind))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KindState {
    Syncing,
    Synced,
    Absent,
    Forbidden,
}

#[derive(Debug)]
pub(super) struct Kind {
    pub(super) state: KindState,
    /// Live objects.
    pub(super) uids: BTreeSet<String>,
    /// Objects of the list that is under way.
    listed: Option<BTreeSet<String>>,
}

impl Kind {
    pub(super) fn new() -> Self {
        Self { state: KindState::Syncing, uids: BTreeSet::new(), listed: None }
    }
}

/// A pod of ours.
pub(super) struct PodEntry {
    /// The pod, cut down: much while it waits, little once it runs.
    pub(super) pod: Box<Pod>,
    /// It runs, and its shape was forgotten: the engine was told all there is.
    pub(super) settled: bool,
    /// The PodGroup of `scheduling.k8s.io` that it names.
    pub(super) core_group: Option<String>,
    /// Where grouping found it to belong.
    pub(super) membership: Membership,
    /// The gang it was told to be in.
    pub(super) gang: Option<ObjectKey>,
    /// Owners it depends on, to be told of their changes.
    pub(super) owners: Vec<String>,
    /// Where it fits, while it waits.
    pub(super) shape: Option<Arc<ShapeFacts>>,
    /// Waits for an owner since.
    pub(super) waiting: Option<(ObjectId, Millis)>,
}

/// The edge's memory.
pub struct Store {
    pub(super) scheduler_name: String,
    pub(super) pool: NodePool,
    pub(super) kinds: BTreeMap<(String, String), Kind>,
    pub(super) pods: BTreeMap<String, PodEntry>,
    pub(super) owners: OwnerCache,
    pub(super) dependents: BTreeMap<String, BTreeSet<String>>,
    pub(super) fetching: BTreeSet<String>,
    pub(super) gangs: BTreeMap<ObjectKey, Gang>,
    pub(super) priorities: Priorities,
    /// The ConfigMap with the defaults of kinds.
    defaults_map: Option<ObjectKey>,
    storage: StorageKinds,
    pub(super) core_groups: CoreGroups,
    /// Names of the priority classes by UID.
    class_names: BTreeMap<String, String>,
    skipped: BTreeSet<String>,
    /// Pods of other schedulers that hold room where they are nominated.
    nominated: BTreeSet<String>,
    /// Names of everything that any node has.
    resources: BTreeSet<String>,
    pub(super) synced: bool,
    pub(super) directory: SharedDirectory,
    pub(super) effects: Vec<Effect>,
    pub(super) now: Millis,
}

/// What is wrong with an object, for the log.
pub(super) struct Bad {
    pub(super) object: String,
    pub(super) message: String,
}

impl From<convert::ConvertError> for Bad {
    fn from(error: convert::ConvertError) -> Self {
        Self { object: error.object.clone(), message: error.to_string() }
    }
}

/// Reads an object as its kind.
pub(super) fn typed<K: DeserializeOwned>(object: &Value) -> Result<K, Bad> {
    K::deserialize(object).map_err(|error| {
        let key = raw::key(object);
        let object = format!("{}/{} {}/{}", text(object, "/apiVersion"), text(object, "/kind"), key.namespace, key.name);
        Bad { object, message: error.to_string() }
    })
}

impl Store {
    /// An empty memory.
    #[must_use]
    pub fn new(scheduler_name: &str, directory: SharedDirectory) -> Self {
        Self {
            scheduler_name: scheduler_name.to_owned(),
            pool: NodePool::all(),
            kinds: base_kinds().into_iter().map(|gvk| (gvk.group_kind(), Kind::new())).collect(),
            pods: BTreeMap::new(),
            owners: OwnerCache::default(),
            dependents: BTreeMap::new(),
            fetching: BTreeSet::new(),
            gangs: BTreeMap::new(),
            priorities: Priorities::shipped(),
            defaults_map: None,
            storage: StorageKinds::default(),
            core_groups: CoreGroups::default(),
            class_names: BTreeMap::new(),
            skipped: BTreeSet::new(),
            nominated: BTreeSet::new(),
            resources: BTreeSet::new(),
            synced: false,
            directory,
            effects: Vec::new(),
            now: 0,
        }
    }

    /// The same, with workloads read as KAI Scheduler reads them.
    #[must_use]
    pub fn compat_kai(self, compat_kai: bool) -> Self {
        Self { priorities: self.priorities.compat_kai(compat_kai), ..self }
    }

    /// The same, with the defaults of kinds in this ConfigMap.
    #[must_use]
    pub fn defaults_map(mut self, map: Option<ObjectKey>) -> Self {
        if map.is_some() {
            self.kinds.insert((String::new(), CONFIG_MAP.to_owned()), Kind::new());
        }
        self.defaults_map = map;
        self
    }

    /// The one ConfigMap that is to be watched.
    #[must_use]
    pub fn watched_map(&self) -> Option<(Gvk, ObjectKey)> {
        self.defaults_map.clone().map(|key| (Gvk::new("", "v1", CONFIG_MAP), key))
    }

    /// A mistake takes all defaults back: half of them would be a guess.
    fn set_kind_defaults(&mut self, map: Option<&Value>) -> Result<(), Bad> {
        let parsed = map.map(KindDefaults::parse).transpose();
        let before = self.priorities.clone();
        self.priorities.set_kind_defaults(parsed.as_ref().ok().cloned().flatten().unwrap_or_default());
        if before != self.priorities {
            self.regroup_all();
        }
        let object = map.map(|map| format!("v1/ConfigMap {}/{}", raw::key(map).namespace, raw::key(map).name));
        parsed.map(|_| ()).map_err(|problem| Bad { object: object.unwrap_or_default(), message: problem.to_string() })
    }

    /// The same, for the nodes, queues and PodGroups of one pool.
    #[must_use]
    pub fn node_pool(self, pool: NodePool) -> Self {
        Self { pool, ..self }
    }

    /// Takes one change in and says what follows from it.
    pub fn apply(&mut self, change: Change, now: Millis) -> Vec<Effect> {
        self.now = now;
        match change {
            Change::ListStarted(gvk) => self.kind(&gvk).listed = Some(BTreeSet::new()),
            Change::Listed(gvk, object) => {
                let uid = raw::uid(&object).to_owned();
                if let Some(listed) = &mut self.kind(&gvk).listed {
                    listed.insert(uid);
                }
                self.applied(&gvk, &object);
            }
            Change::ListEnded(gvk) => self.list_ended(&gvk, KindState::Synced),
            Change::Absent(gvk) => self.list_ended(&gvk, KindState::Absent),
            Change::Forbidden(gvk) => self.list_ended(&gvk, KindState::Forbidden),
            Change::Applied(gvk, object) => self.applied(&gvk, &object),
            Change::Deleted(gvk, object) => self.deleted(&gvk, raw::uid(&object)),
            Change::Owner(object) => self.owner_read(&object),
            Change::Unreadable(id, why) => self.end_walk_at(id, why),
            Change::Tick => {
                self.tick_owners();
                self.tick_gangs();
            }
        }
        self.check_synced();
        std::mem::take(&mut self.effects)
    }

    /// Pods of ours.
    #[must_use]
    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    fn kind(&mut self, gvk: &Gvk) -> &mut Kind {
        self.kinds.entry(gvk.group_kind()).or_insert_with(Kind::new)
    }

    pub(super) fn state(&self, group: &str, kind: &str) -> Option<KindState> {
        self.kinds.get(&(group.to_owned(), kind.to_owned())).map(|kind| kind.state)
    }

    /// PodGroups are served and listed, so that one we do not know does not exist.
    pub(super) fn knows_pod_groups(&self) -> bool {
        self.state("scheduling.run.ai", "PodGroup") == Some(KindState::Synced)
    }

    /// Whether there are PodGroups is not known yet.
    pub(super) fn is_listing_pod_groups(&self) -> bool {
        self.state("scheduling.run.ai", "PodGroup") == Some(KindState::Syncing)
    }

    fn list_ended(&mut self, gvk: &Gvk, state: KindState) {
        let kind = self.kind(gvk);
        kind.state = state;
        let listed = kind.listed.take().unwrap_or_default();
        let gone: Vec<String> = kind.uids.difference(&listed).cloned().collect();
        for uid in gone {
            self.deleted(gvk, &uid);
        }
        if gvk.group == core_group::API_GROUP {
            self.regroup_core();
        } else if (gvk.group.as_str(), gvk.kind.as_str()) == (pod_gang::API_GROUP, pod_gang::KIND) {
            self.regroup_pod_gangs();
        } else if gvk.kind == "PodGroup" {
            self.refresh_all_gangs();
        }
        if state == KindState::Synced {
            self.look_again_at(gvk);
        }
        let pods: Vec<String> = self.pods.iter().filter(|(_, entry)| entry.waits_for(gvk)).map(|(uid, _)| uid.clone()).collect();
        for pod in pods {
            self.regroup(&pod);
        }
    }

    fn check_synced(&mut self) {
        // Without nodes and pods there is no knowing what is free; without the other kinds there is.
        let listed = |(kind, entry): (&(String, String), &Kind)| match kind.1.as_str() {
            "Node" | "Pod" => entry.state == KindState::Synced,
            _ => entry.state != KindState::Syncing,
        };
        if !self.synced && self.kinds.iter().all(listed) {
            self.synced = true;
            self.effects.push(Effect::Engine(Event::Synced));
        }
    }

    fn applied(&mut self, gvk: &Gvk, object: &Value) {
        let uid = raw::uid(object).to_owned();
        self.kind(gvk).uids.insert(uid.clone());
        if let Err(bad) = self.try_apply(gvk, uid.clone(), object) {
            self.skip(&gvk.kind, &uid, bad);
        }
    }

    fn try_apply(&mut self, gvk: &Gvk, uid: String, object: &Value) -> Result<(), Bad> {
        if self.dependents.contains_key(&uid) && is_base_kind(&gvk.group, &gvk.kind) {
            self.owner_applied(uid.clone(), object);
        }
        match (gvk.group.as_str(), gvk.kind.as_str()) {
            ("", "Node") => self.node_applied(&uid, object)?,
            ("", "Pod") => self.pod_applied(uid, object)?,
            ("scheduling.run.ai", "PodGroup") => self.pod_group_applied(object)?,
            ("scheduling.run.ai", "Queue") => self.queue_applied(object)?,
            ("kai.scheduler", "Topology") => {
                let facts = convert::topology_facts(&typed::<Topology>(object)?)?;
                let moved = self.core_groups.topology_applied(&facts);
                self.tell(Event::TopologyUpsert(facts));
                if moved {
                    self.regroup_core();
                }
            }
            (core_group::API_GROUP, kind) if is_core_group(text(object, "/apiVersion"), kind) => {
                let key = self.core_groups.applied(object);
                self.regroup_dependents(&core_dependency(&key));
            }
            ("scheduling.k8s.io", "PriorityClass") => {
                let before = self.priorities.clone();
                self.priorities.insert(&typed::<PriorityClass>(object)?);
                self.class_names.insert(uid, raw::key(object).name);
                if before != self.priorities {
                    self.regroup_all();
                }
            }
            ("" | "storage.k8s.io", kind) if StorageKinds::has(kind) => match self.storage.applied(kind, object) {
                Ok(events) => events.into_iter().for_each(|event| self.tell(event)),
                Err(StorageError::Unusable(error)) => return Err(error.into()),
                Err(StorageError::Unreadable(error)) => {
                    let key = raw::key(object);
                    let object = format!("{kind} {}/{}", key.namespace, key.name);
                    return Err(Bad { object, message: error.to_string() });
                }
            },
            ("policy", "PodDisruptionBudget") => {
                let facts = convert::budget::budget_facts(&typed::<PodDisruptionBudget>(object)?)?;
                self.tell(Event::BudgetUpsert(facts));
            }
            ("", CONFIG_MAP) if self.defaults_map == Some(raw::key(object)) => self.set_kind_defaults(Some(object))?,
            ("berth.scheduler", "GroupingRule") => self.rule_applied(uid, object)?,
            (pod_gang::API_GROUP, pod_gang::KIND) => self.pod_gang_applied(object),
            _ => self.owner_applied(uid, object),
        }
        Ok(())
    }

    fn deleted(&mut self, gvk: &Gvk, uid: &str) {
        self.kind(gvk).uids.remove(uid);
        if is_base_kind(&gvk.group, &gvk.kind) {
            self.owners.remove(uid);
        }
        match (gvk.group.as_str(), gvk.kind.as_str()) {
            ("", "Node") => self.node_gone(uid),
            ("", "Pod") => self.pod_deleted(uid),
            ("scheduling.run.ai", "PodGroup") => self.pod_group_deleted(uid),
            ("scheduling.run.ai", "Queue") => {
                self.queue_gone(uid);
            }
            ("kai.scheduler", "Topology") => {
                let moved = self.core_groups.topology_deleted(uid);
                self.tell(Event::TopologyDelete(uid.to_owned()));
                if moved {
                    self.regroup_core();
                }
            }
            (core_group::API_GROUP, "PodGroup") => {
                if let Some(key) = self.core_groups.deleted(uid) {
                    self.regroup_dependents(&core_dependency(&key));
                }
            }
            ("scheduling.k8s.io", "PriorityClass") => {
                if let Some(name) = self.class_names.remove(uid) {
                    self.priorities.remove(&name);
                    self.regroup_all();
                }
            }
            ("" | "storage.k8s.io", kind) if StorageKinds::has(kind) => {
                self.storage.deleted(kind, uid).into_iter().for_each(|event| self.tell(event));
            }
            ("policy", "PodDisruptionBudget") => self.tell(Event::BudgetDelete(uid.to_owned())),
            // Of this kind only that one is watched.
            ("", CONFIG_MAP) if self.defaults_map.is_some() => {
                if let Err(bad) = self.set_kind_defaults(None) {
                    self.skip(CONFIG_MAP, uid, bad);
                }
            }
            ("berth.scheduler", "GroupingRule") => self.rule_deleted(uid),
            (pod_gang::API_GROUP, pod_gang::KIND) => self.pod_gang_deleted(uid),
            _ => self.owners.remove(uid),
        }
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.effects.push(Effect::Engine(event));
    }

    pub(super) fn skip(&mut self, kind: &str, uid: &str, bad: Bad) {
        let once = format!("{uid}|{}", bad.message);
        if self.skipped.len() < MAX_SKIPPED_NAMES && self.skipped.insert(once) {
            self.effects.push(Effect::Skipped { kind: kind.to_owned(), object: bad.object, message: bad.message });
        }
    }

    /// Our own writes of its status come back, too: they are nothing new to the engine.
    fn queue_applied(&mut self, object: &Value) -> Result<(), Bad> {
        if !self.pool.holds_object(object) {
            self.queue_gone(raw::uid(object));
            return Ok(());
        }
        let queue = typed::<Queue>(object)?;
        let facts = convert::queue_facts(&queue)?;
        let display = queue.spec.display_name.unwrap_or_default();
        let entry = QueueEntry { facts: facts.clone(), status: object["status"].clone(), display };
        let is_new = self.directory.lock().put_queue(entry);
        if is_new {
            self.tell(Event::QueueUpsert(facts));
        }
        Ok(())
    }

    fn queue_gone(&mut self, uid: &str) {
        if self.directory.lock().remove_queue(uid) {
            self.tell(Event::QueueDelete(uid.to_owned()));
        }
    }

    // ---- nodes ----

    fn node_applied(&mut self, uid: &str, object: &Value) -> Result<(), Bad> {
        if !self.pool.holds_object(object) {
            self.node_gone(uid);
            return Ok(());
        }
        let facts = match typed::<Node>(object).and_then(|node| Ok(convert::node_facts(&node)?)) {
            Ok(facts) => facts,
            Err(bad) => {
                // What can't be read may have changed in any way: nothing is placed there until it can.
                self.node_gone(uid);
                return Err(bad);
            }
        };
        self.resources.extend(facts.allocatable.keys().cloned());
        self.directory.lock().put_node(facts.clone());
        self.tell(Event::NodeUpsert(facts));
        Ok(())
    }

    fn node_gone(&mut self, uid: &str) {
        if self.directory.lock().remove_node(uid) {
            self.tell(Event::NodeDelete(uid.to_owned()));
        }
    }

    // ---- pods ----

    fn pod_applied(&mut self, uid: String, object: &Value) -> Result<(), Bad> {
        let ours = text(object, "/spec/schedulerName") == self.scheduler_name;
        if !ours {
            self.foreign_pod_applied(uid, object);
            return Ok(());
        }
        let pod = match typed::<Pod>(object) {
            Ok(pod) => raw::trim_pod(pod),
            Err(bad) if !text(object, "/spec/nodeName").is_empty() => {
                let facts = self.held(&uid, object, Membership::default(), bad);
                self.tell(Event::PodUpsert(facts));
                return Ok(());
            }
            Err(bad) => return Err(bad),
        };
        // Without a gang it may still wait for what describes it.
        let is_open = |entry: &PodEntry| entry.waiting.is_some() || entry.gang.is_none();
        let regroup = self.pods.get(&uid).is_none_or(|entry| is_open(entry) || grouping_changed(&entry.pod, &pod));
        let entry = self.pods.entry(uid.clone()).or_insert_with(PodEntry::new);
        *entry.pod = pod;
        entry.settled = false;
        entry.core_group = core_group::named(object).map(str::to_owned);
        if regroup { self.regroup(&uid) } else { self.tell_pod(&uid) }
        Ok(())
    }

    /// Pods of other schedulers hold room where they are bound or, before that, nominated.
    fn foreign_pod_applied(&mut self, uid: String, object: &Value) {
        let bound = !text(object, "/spec/nodeName").is_empty();
        let nominated = !bound && !text(object, "/status/nominatedNodeName").is_empty();
        let was_nominated = if nominated { !self.nominated.insert(uid.clone()) } else { self.nominated.remove(&uid) };
        if bound || nominated {
            let read = typed::<Pod>(object)
                .and_then(|pod| Ok(convert::pod_facts(&pod, &Membership::default(), &self.scheduler_name)?));
            let facts = read.unwrap_or_else(|bad| self.held(&uid, object, Membership::default(), bad));
            self.tell(Event::PodUpsert(facts));
        } else if was_nominated {
            self.tell(Event::PodDelete(uid));
        }
    }

    /// Finds the gang of a pod again and tells the engine.
    pub(super) fn regroup(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid) else { return };
        let pod = entry.pod.clone();
        let missing = self.walk(uid, &pod) | self.await_core_group(uid) | self.await_pod_gang(&pod);
        let runs = raw::node_of(&pod).is_some();
        let marked = Membership::written_on(&pod);
        if missing && !runs {
            return;
        }
        // A pod that runs counts in the gang it is marked with, whatever becomes of its owners.
        if missing || !self.group(uid, &pod) {
            self.join(uid, marked);
        }
        self.tell_pod(uid);
    }

    pub(super) fn regroup_all(&mut self) {
        let pods: Vec<String> = self.pods.keys().cloned().collect();
        for pod in pods {
            self.regroup(&pod);
        }
        self.refresh_all_gangs();
    }

    fn tell_pod(&mut self, uid: &str) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let runs = raw::node_of(&entry.pod).is_some();
        if entry.settled || (entry.waiting.is_some() && !runs) {
            return;
        }
        let converted = convert::pod_facts(&entry.pod, &entry.membership, &self.scheduler_name);
        let unreadable = converted.is_err().then(|| (serde_json::to_value(&entry.pod), entry.membership.clone()));
        if runs && entry.waiting.is_none() {
            entry.settled = true;
            *entry.pod = raw::trim_bound(std::mem::take(&mut *entry.pod));
        }
        match converted {
            Ok(facts) => {
                entry.shape = (!runs).then(|| Arc::new(facts.shape.clone()));
                self.note_member(uid);
                self.tell(Event::PodUpsert(facts));
            }
            Err(error) => match unreadable {
                Some((Ok(object), membership)) if runs => {
                    let facts = self.held(uid, &object, membership, error.into());
                    self.note_member(uid);
                    self.tell(Event::PodUpsert(facts));
                }
                _ => self.skip("Pod", uid, error.into()),
            },
        }
    }

    /// Facts of a pod that has a node and can't be read: it holds room all the same, and that is said once.
    fn held(&mut self, uid: &str, object: &Value, membership: Membership, bad: Bad) -> PodFacts {
        let (facts, what) = held::pod_facts(object, &membership, &self.scheduler_name, &self.resources);
        self.skip("Pod", uid, Bad { object: bad.object, message: format!("{}; {what}", bad.message) });
        facts
    }

    fn pod_deleted(&mut self, uid: &str) {
        self.forget_dependencies(uid);
        self.join(uid, Membership::default());
        self.pods.remove(uid);
        self.nominated.remove(uid);
        self.tell(Event::PodDelete(uid.to_owned()));
    }
}

/// Whether what grouping reads of a pod changed.
fn grouping_changed(before: &Pod, after: &Pod) -> bool {
    before.metadata.labels != after.metadata.labels
        || before.metadata.annotations != after.metadata.annotations
        || before.metadata.owner_references != after.metadata.owner_references
        || raw::node_of(before) != raw::node_of(after)
}

impl PodEntry {
    fn new() -> Self {
        Self {
            pod: Box::default(),
            settled: false,
            core_group: None,
            membership: Membership::default(),
            gang: None,
            owners: Vec::new(),
            shape: None,
            waiting: None,
        }
    }

    fn waits_for(&self, gvk: &Gvk) -> bool {
        self.waiting.as_ref().is_some_and(|(owner, _)| owner.group() == gvk.group && owner.kind == gvk.kind)
    }
}
