//! The edge's memory: what must be kept of each object to form gangs, as a plain synchronous state machine.
//!
//! Guarantees: the engine hears of a pod of ours only when its owners are known (or known to be unreadable), each gang is
//! told before its pods, and no call to the API is made per pod. An object that can't be read is skipped and named once.
//! Knows no client and no clock; time arrives with each change.

use std::collections::{BTreeMap, BTreeSet};

use berth_engine::facts::{Event, Millis, ObjectKey, PodFacts, PodPhase};
use serde_json::Value;

use super::directory::{Member, SharedDirectory};
use super::gangs::Gang;
use super::lower::{Bad, Lowering, Priorities};
use super::raw::{self, boolean, int, text};
use super::{Change, Effect, Gvk, OwnerRef};

/// Owners above a pod at most: real chains have three; a longer one is a loop or a mistake.
const MAX_OWNER_DEPTH: usize = 8;

/// An owner that a complete watch does not show within this time is gone: the walk ends below it.
const OWNER_PATIENCE_MILLIS: Millis = 10_000;

/// Names of skipped objects remembered, so that each is logged once: enough for any cluster a person repairs.
const MAX_SKIPPED_NAMES: usize = 10_000;

/// Kinds that must be listed before decisions begin.
const BASE_KINDS: [(&str, &str, &str); 6] = [
    ("", "v1", "Node"),
    ("", "v1", "Pod"),
    ("scheduling.run.ai", "v2alpha2", "PodGroup"),
    ("scheduling.run.ai", "v2", "Queue"),
    ("kai.scheduler", "v1alpha1", "Topology"),
    ("scheduling.k8s.io", "v1", "PriorityClass"),
];

/// The kinds to watch from the start.
#[must_use]
pub fn base_kinds() -> Vec<Gvk> {
    BASE_KINDS.iter().map(|(group, version, kind)| Gvk::new(group, version, kind)).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KindState {
    Syncing,
    Synced,
    Absent,
    Forbidden,
}

#[derive(Debug)]
struct Kind {
    state: KindState,
    /// Live objects.
    uids: BTreeSet<String>,
    /// Objects of the list that is under way.
    listed: Option<BTreeSet<String>>,
}

/// A pod of ours.
pub(super) struct PodEntry {
    /// Metadata and the fields of the spec that grouping reads.
    pub(super) raw: Value,
    /// Facts as last converted; kept while the pod has no node, because a change of its owner tells the engine again.
    facts: Option<Box<PodFacts>>,
    /// The gang it was told to be in.
    pub(super) gang: Option<ObjectKey>,
    /// Subgroup, rank and leadership from grouping.
    place: (Option<String>, Option<u32>, bool),
    /// Owners it depends on, to be told of their changes.
    owners: Vec<String>,
    /// Waits for an owner since.
    waiting: Option<(OwnerRef, Millis)>,
}

struct Owner {
    raw: Value,
    refs: Vec<OwnerRef>,
}

enum Chain {
    Ready(Vec<String>),
    Waiting(Vec<String>, OwnerRef),
}

/// The edge's memory.
pub struct Store<L> {
    pub(super) lowering: L,
    kinds: BTreeMap<(String, String), Kind>,
    pub(super) pods: BTreeMap<String, PodEntry>,
    owners: BTreeMap<String, Owner>,
    dependents: BTreeMap<String, BTreeSet<String>>,
    unreadable: BTreeSet<String>,
    fetching: BTreeSet<String>,
    pub(super) gangs: BTreeMap<ObjectKey, Gang>,
    pub(super) pod_groups: BTreeMap<ObjectKey, Value>,
    pub(super) priorities: Priorities,
    skipped: BTreeSet<String>,
    synced: bool,
    pub(super) directory: SharedDirectory,
    pub(super) effects: Vec<Effect>,
    pub(super) now: Millis,
}

impl<L: Lowering> Store<L> {
    /// An empty memory.
    pub fn new(lowering: L, directory: SharedDirectory) -> Self {
        let kinds = base_kinds().into_iter().map(|gvk| (kind_key(&gvk), Kind::new())).collect();
        Self {
            lowering,
            kinds,
            pods: BTreeMap::new(),
            owners: BTreeMap::new(),
            dependents: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            fetching: BTreeSet::new(),
            gangs: BTreeMap::new(),
            pod_groups: BTreeMap::new(),
            priorities: Priorities::default(),
            skipped: BTreeSet::new(),
            synced: false,
            directory,
            effects: Vec::new(),
            now: 0,
        }
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
            Change::Unreadable(uid) => self.end_walk_at(&uid),
            Change::Tick => self.tick(),
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
        self.kinds.entry(kind_key(gvk)).or_insert_with(Kind::new)
    }

    pub(super) fn has_kind(&self, group: &str, kind: &str) -> bool {
        let found = self.kinds.get(&(group.to_owned(), kind.to_owned()));
        found.is_some_and(|kind| kind.state == KindState::Synced)
    }

    fn list_ended(&mut self, gvk: &Gvk, state: KindState) {
        let kind = self.kind(gvk);
        kind.state = state;
        let listed = kind.listed.take().unwrap_or_default();
        let gone: Vec<String> = kind.uids.difference(&listed).cloned().collect();
        for uid in gone {
            self.deleted(gvk, &uid);
        }
        if gvk.kind == "PodGroup" && state == KindState::Synced {
            self.refresh_all_gangs();
        }
        self.regroup_waiting(|owner| owner.gvk.same_kind(gvk));
    }

    fn check_synced(&mut self) {
        if !self.synced && self.kinds.values().all(|kind| kind.state != KindState::Syncing) {
            self.synced = true;
            self.effects.push(Effect::Engine(Event::Synced));
        }
    }

    fn applied(&mut self, gvk: &Gvk, object: &Value) {
        let uid = raw::uid(object).to_owned();
        self.kind(gvk).uids.insert(uid.clone());
        let result = match (gvk.group.as_str(), gvk.kind.as_str()) {
            ("", "Node") => self.lowering.node(object).map(|facts| self.tell(Event::NodeUpsert(facts))),
            ("", "Pod") => self.pod_applied(uid, object),
            ("scheduling.run.ai", "PodGroup") => {
                self.pod_group_applied(object);
                Ok(())
            }
            ("scheduling.run.ai", "Queue") => self.lowering.queue(object).map(|facts| self.tell(Event::QueueUpsert(facts))),
            ("kai.scheduler", "Topology") => {
                self.lowering.topology(object).map(|facts| self.tell(Event::TopologyUpsert(facts)))
            }
            ("scheduling.k8s.io", "PriorityClass") => {
                self.priority_applied(object);
                Ok(())
            }
            _ => {
                self.owner_applied(uid, object);
                Ok(())
            }
        };
        if let Err(bad) = result {
            self.skip(object, bad);
        }
    }

    fn deleted(&mut self, gvk: &Gvk, uid: &str) {
        self.kind(gvk).uids.remove(uid);
        match (gvk.group.as_str(), gvk.kind.as_str()) {
            ("", "Node") => self.tell(Event::NodeDelete(uid.to_owned())),
            ("", "Pod") => self.pod_deleted(uid),
            ("scheduling.run.ai", "PodGroup") => self.pod_group_deleted(uid),
            ("scheduling.run.ai", "Queue") => self.tell(Event::QueueDelete(uid.to_owned())),
            ("kai.scheduler", "Topology") => self.tell(Event::TopologyDelete(uid.to_owned())),
            ("scheduling.k8s.io", "PriorityClass") => {} // the value of a deleted class stays with the gangs that use it
            _ => {
                self.owners.remove(uid);
                self.unreadable.remove(uid);
            }
        }
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.effects.push(Effect::Engine(event));
    }

    pub(super) fn skip(&mut self, object: &Value, bad: Bad) {
        let kind = text(object, "/kind").to_owned();
        let key = raw::key(object);
        let name = if key.namespace.is_empty() { key.name } else { format!("{}/{}", key.namespace, key.name) };
        let once = format!("{}|{}|{}", raw::uid(object), bad.field, bad.message);
        if self.skipped.len() >= MAX_SKIPPED_NAMES || !self.skipped.insert(once) {
            return;
        }
        self.effects.push(Effect::Skipped { kind, object: name, field: bad.field, message: bad.message });
    }

    // ---- pods ----

    fn pod_applied(&mut self, uid: String, object: &Value) -> Result<(), Bad> {
        let mut facts = match self.lowering.pod(object) {
            Ok(facts) => facts,
            Err(bad) => {
                // Unreadable now: what it held before is stale, but room must not be given away twice.
                return Err(bad);
            }
        };
        if !facts.ours {
            if facts.node.is_some() {
                facts.gang = None;
                self.tell(Event::PodUpsert(facts));
            }
            return Ok(());
        }
        let trimmed = raw::trim_pod(object);
        let unchanged = self.pods.get(&uid).is_some_and(|entry| entry.raw == trimmed && entry.waiting.is_none());
        let entry = self.pods.entry(uid.clone()).or_insert_with(PodEntry::new);
        entry.raw = trimmed;
        let bound = facts.node.is_some();
        let over = matches!(facts.phase, PodPhase::Succeeded | PodPhase::Failed);
        entry.facts = Some(Box::new(facts));
        if !unchanged {
            self.regroup(&uid);
        } else {
            self.tell_pod(&uid);
        }
        self.note_member(&uid, object, over);
        if bound && let Some(entry) = self.pods.get_mut(&uid) {
            if entry.waiting.is_none() {
                entry.facts = None;
            }
        }
        Ok(())
    }

    fn note_member(&mut self, uid: &str, object: &Value, over: bool) {
        let Some(entry) = self.pods.get(uid) else { return };
        let Some(gang) = entry.gang.as_ref().and_then(|key| self.gangs.get(key)) else { return };
        let member = Member {
            key: raw::key(object),
            has_controller: raw::owner_refs(object).iter().any(|owner| owner.controller),
            node: Some(text(object, "/spec/nodeName").to_owned()).filter(|node| !node.is_empty()),
            leaving: over || object.pointer("/metadata/deletionTimestamp").is_some(),
            decision: raw::annotation(object, super::keys::DECISION).map(str::to_owned),
            created: self.pods.get(uid).and_then(|e| e.facts.as_ref()).map_or(0, |facts| facts.created),
            condition: raw::unscheduled_condition(object),
        };
        self.directory.lock().gang_mut(&gang.engine_uid).members.insert(uid.to_owned(), member);
    }

    /// Finds the gang of a pod again and tells the engine.
    pub(super) fn regroup(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid) else { return };
        let chain = self.walk(&entry.raw);
        let (owners, waiting) = match chain {
            Chain::Ready(owners) => (owners, None),
            Chain::Waiting(owners, missing) => (owners, Some(missing)),
        };
        self.set_dependencies(uid, owners.clone(), waiting.clone());
        if waiting.is_some() {
            // A pod that runs holds room and counts in the gang it is marked with, whatever becomes of its owners.
            let bound = self.pods.get(uid).is_some_and(|e| e.facts.as_ref().is_some_and(|f| f.node.is_some()));
            if bound {
                self.join_by_annotation(uid);
                self.tell_pod(uid);
            }
            return;
        }
        self.group(uid, &owners);
        self.tell_pod(uid);
    }

    fn group(&mut self, uid: &str, owners: &[String]) {
        let Some(entry) = self.pods.get(uid) else { return };
        let chain: Vec<&Value> = owners.iter().filter_map(|owner| self.owners.get(owner)).map(|owner| &owner.raw).collect();
        let annotated = raw::annotation(&entry.raw, super::keys::POD_GROUP).map(str::to_owned);
        match self.lowering.group(&entry.raw, &chain, &self.priorities) {
            Ok(Some(grouped)) if annotated.as_ref().is_none_or(|name| *name == grouped.gang.key.name) => {
                if let Some(entry) = self.pods.get_mut(uid) {
                    entry.place = (grouped.subgroup.clone(), grouped.index, grouped.leader);
                }
                let key = grouped.gang.key.clone();
                self.join(uid, Some(key.clone()));
                self.derive_gang(&key, grouped);
            }
            Ok(_) => self.join_by_annotation(uid),
            Err(bad) => {
                let object = entry.raw.clone();
                self.join_by_annotation(uid);
                self.skip(&object, bad);
            }
        }
    }

    fn join_by_annotation(&mut self, uid: &str) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let name = raw::annotation(&entry.raw, super::keys::POD_GROUP).map(str::to_owned);
        let subgroup = raw::label(&entry.raw, super::keys::SUBGROUP).map(str::to_owned);
        let (index, leader) = entry.facts.as_ref().map_or((None, false), |facts| (facts.index, facts.leader));
        entry.place = (subgroup, index, leader);
        let namespace = raw::key(&entry.raw).namespace;
        let key = name.map(|name| ObjectKey::new(namespace, name));
        self.join(uid, key.clone());
        if let Some(key) = key {
            self.refresh_gang(&key);
        }
    }

    fn tell_pod(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid) else { return };
        let Some(facts) = &entry.facts else { return };
        if entry.waiting.is_some() && facts.node.is_none() {
            return;
        }
        let mut facts = (**facts).clone();
        facts.gang = entry.gang.as_ref().map(|key| key.name.clone());
        (facts.subgroup, facts.index, facts.leader) = entry.place.clone();
        self.tell(Event::PodUpsert(facts));
    }

    fn pod_deleted(&mut self, uid: &str) {
        self.set_dependencies(uid, Vec::new(), None);
        self.join(uid, None);
        self.pods.remove(uid);
        self.tell(Event::PodDelete(uid.to_owned()));
    }

    // ---- owners ----

    fn walk(&mut self, pod: &Value) -> Chain {
        let mut chain = Vec::new();
        let mut refs = raw::owner_refs(pod);
        while chain.len() < MAX_OWNER_DEPTH {
            let Some(next) = refs.iter().find(|owner| owner.controller).or_else(|| refs.first()).cloned() else { break };
            if chain.contains(&next.uid) || self.unreadable.contains(&next.uid) {
                break;
            }
            if let Some(owner) = self.owners.get(&next.uid) {
                refs = owner.refs.clone();
                chain.push(next.uid);
                continue;
            }
            let known = self.kinds.get(&kind_key(&next.gvk)).map(|kind| kind.state);
            match known {
                None => {
                    self.kinds.insert(kind_key(&next.gvk), Kind::new());
                    self.effects.push(Effect::Watch(next.gvk.clone()));
                }
                Some(KindState::Absent) => break,
                Some(KindState::Forbidden) => {
                    if self.fetching.insert(next.uid.clone()) {
                        self.effects.push(Effect::Fetch(next.clone(), raw::key(pod).namespace));
                    }
                }
                Some(KindState::Syncing | KindState::Synced) => {}
            }
            return Chain::Waiting(chain, next);
        }
        Chain::Ready(chain)
    }

    fn set_dependencies(&mut self, uid: &str, mut owners: Vec<String>, waiting: Option<OwnerRef>) {
        if let Some(missing) = &waiting {
            owners.push(missing.uid.clone());
        }
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let before = std::mem::replace(&mut entry.owners, owners.clone());
        entry.waiting = waiting.map(|missing| match entry.waiting.take() {
            Some((same, since)) if same.uid == missing.uid => (same, since),
            _ => (missing, self.now),
        });
        for owner in before {
            if let Some(set) = self.dependents.get_mut(&owner) {
                set.remove(uid);
                if set.is_empty() {
                    self.dependents.remove(&owner);
                }
            }
        }
        for owner in owners {
            self.dependents.entry(owner).or_default().insert(uid.to_owned());
        }
    }

    fn owner_applied(&mut self, uid: String, object: &Value) {
        let trimmed = raw::trim_owner(object);
        self.unreadable.remove(&uid);
        self.fetching.remove(&uid);
        if self.owners.get(&uid).is_some_and(|owner| owner.raw == trimmed) {
            return;
        }
        let refs = raw::owner_refs(&trimmed);
        self.owners.insert(uid.clone(), Owner { raw: trimmed, refs });
        self.regroup_dependents(&uid);
    }

    fn regroup_dependents(&mut self, owner: &str) {
        for pod in self.dependents.get(owner).cloned().unwrap_or_default() {
            self.regroup(&pod);
        }
    }

    fn end_walk_at(&mut self, uid: &str) {
        self.fetching.remove(uid);
        self.unreadable.insert(uid.to_owned());
        self.regroup_dependents(uid);
    }

    fn regroup_waiting(&mut self, concerns: impl Fn(&OwnerRef) -> bool) {
        let waiting = |entry: &PodEntry| entry.waiting.as_ref().is_some_and(|(owner, _)| concerns(owner));
        let pods: Vec<String> = self.pods.iter().filter(|(_, e)| waiting(e)).map(|(uid, _)| uid.clone()).collect();
        for pod in pods {
            self.regroup(&pod);
        }
    }

    fn tick(&mut self) {
        let mut gone = BTreeSet::new();
        for entry in self.pods.values() {
            let Some((owner, since)) = &entry.waiting else { continue };
            let synced = self.kinds.get(&kind_key(&owner.gvk)).is_some_and(|kind| kind.state == KindState::Synced);
            if synced && self.now - since >= OWNER_PATIENCE_MILLIS {
                gone.insert(owner.uid.clone());
            }
        }
        for uid in gone {
            self.end_walk_at(&uid);
        }
        // Verdicts about owners that no pod names any more are forgotten.
        let dependents = &self.dependents;
        self.unreadable.retain(|uid| dependents.contains_key(uid));
        self.fetching.retain(|uid| dependents.contains_key(uid));
        self.tick_gangs();
    }

    fn priority_applied(&mut self, object: &Value) {
        let name = raw::key(object).name;
        let value = int(object, "/value").and_then(|value| i32::try_from(value).ok()).unwrap_or(0);
        if boolean(object, "/globalDefault") {
            self.priorities.global_default = Some(value);
        }
        if self.priorities.by_name.insert(name, value) == Some(value) {
            return;
        }
        let pods: Vec<String> = self.pods.keys().cloned().collect();
        for pod in pods {
            self.regroup(&pod);
        }
        self.refresh_all_gangs();
    }
}

impl Kind {
    fn new() -> Self {
        Self { state: KindState::Syncing, uids: BTreeSet::new(), listed: None }
    }
}

impl PodEntry {
    fn new() -> Self {
        Self { raw: Value::Null, facts: None, gang: None, place: (None, None, false), owners: Vec::new(), waiting: None }
    }
}

fn kind_key(gvk: &Gvk) -> (String, String) {
    (gvk.group.clone(), gvk.kind.clone())
}
