//! A cluster in memory: objects in, engine events out, decisions carried out in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use berth_api::{Queue, Topology};
use berth_engine::check::Fault;
use berth_engine::facts::{BindResult, Event, GangFacts, Millis, ObjectKey};
use berth_engine::outcome::{Decision, Eviction, Turn};
use berth_engine::policy::Policy;
use berth_engine::schedule::line;
use berth_engine::world::{Rejected, World};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::Value;

mod budgets;
mod gangs;
mod grove;
mod outcomes;

use super::{Options, archive, bindings};
use super::input::{Item, Place};
use super::objects::{ObjectId, Skipped, admit_runtime_class, complete, default_queue, id_of, is_cluster_scoped, is_known, message_of, name_of, stamp, text, typed};
use crate::cluster::convert::storage::{StorageError, StorageKinds};
use crate::cluster::convert::{self, ConvertError, Membership, Priorities};
use crate::cluster::core_groups::CoreGroups;
use crate::grouping::expand::{expand, is_template, is_workload};
use crate::moment::{Gone, Moment, Placed};
use crate::grouping::core_group::is_core_group;
use crate::grouping::kind_defaults::KindDefaults;
use crate::grouping::pod_gang::is_pod_gang;
use crate::grouping::{Group, ObjectIndex, Parts, rules, walk};

/// Name of the queue that exists when none is given.
pub const DEFAULT_QUEUE: &str = "default-queue";

/// Most passes without new events before a run is ended: far more than any queue of gangs needs.
const MAX_PASSES: usize = 100_000;

/// An object that is in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stored {
    pub(super) place: Place,
    pub(super) value: Value,
    pub(super) uid: String,
    pub(super) created: Millis,
}

/// How a bind is to end, set by a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) result: BindResult,
    pub(super) times: u32,
}

/// The cluster and the engine that schedules it.
#[derive(Debug)]
pub struct Cluster {
    pub(super) world: World,
    pub(super) options: Options,
    pub(super) now: Millis,
    pub(super) objects: BTreeMap<ObjectId, Stored>,
    priorities: Priorities,
    storage: StorageKinds,
    core_groups: CoreGroups,
    runtime_classes: BTreeMap<String, Value>,
    owners: ObjectIndex,
    /// Objects from which workloads take their pods' template.
    templates: Vec<Value>,
    gangs: BTreeMap<ObjectKey, GangFacts>,
    /// Gangs of other node pools.
    outside: BTreeSet<ObjectKey>,
    /// Gangs as their workloads describe them.
    derived: BTreeMap<ObjectKey, Group>,
    /// Parts of the gangs of several owners.
    parts: BTreeMap<ObjectKey, Parts>,
    created_by_uid: BTreeMap<String, Millis>,
    /// Gang and subgroup by pod UID.
    members: BTreeMap<String, (String, String)>,
    generations: BTreeMap<ObjectId, u64>,
    synced: bool,
    has_queue: bool,
    /// Pods that a Binding is refused for, by name, each with what is left of it.
    pub(super) rejections: BTreeMap<String, Rejection>,
    /// Decisions in the order they were taken.
    pub decisions: Vec<Decision>,
    /// Answers of the engine that the checker refused: each is a bug of ours.
    pub faults: Vec<Fault>,
    /// Names of the pods that were evicted, in that order.
    pub evicted: Vec<String>,
    /// Evictions in the order they were decided.
    pub evictions: Vec<Eviction>,
    /// Next moment that the engine asked for.
    pub next_wakeup: Option<Millis>,
    /// Objects of kinds that play no part.
    pub ignored: BTreeSet<String>,
    /// Objects that could not be used.
    pub skipped: BTreeSet<Skipped>,
    /// Search steps used.
    pub steps: u64,
    /// Events applied.
    pub events: u64,
    /// Time inside the engine, in microseconds.
    pub solve_micros: u128,
}

impl Cluster {
    /// An empty cluster.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            world: World::new(),
            priorities: Priorities::shipped().compat_kai(options.compat_kai),
            options,
            now: 0,
            objects: BTreeMap::new(),
            storage: StorageKinds::of_files(),
            core_groups: CoreGroups::default(),
            runtime_classes: BTreeMap::new(),
            owners: ObjectIndex::default(),
            templates: Vec::new(),
            gangs: BTreeMap::new(),
            outside: BTreeSet::new(),
            derived: BTreeMap::new(),
            parts: BTreeMap::new(),
            created_by_uid: BTreeMap::new(),
            members: BTreeMap::new(),
            generations: BTreeMap::new(),
            synced: false,
            has_queue: false,
            rejections: BTreeMap::new(),
            decisions: Vec::new(),
            faults: Vec::new(),
            evicted: Vec::new(),
            evictions: Vec::new(),
            next_wakeup: None,
            ignored: BTreeSet::new(),
            skipped: BTreeSet::new(),
            steps: 0,
            events: 0,
            solve_micros: 0,
        }
    }

    /// The model, for reports.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The moment that it is in this cluster.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.now
    }

    /// The choices that decisions depend on.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.options.policy()
    }

    /// What answers are made from.
    #[must_use]
    pub fn moment(&self) -> Moment<'_> {
        let placed = self.decisions.iter().map(|decision| Arc::new(Placed::of(decision, self.now))).collect();
        let gone = self.evictions.iter().map(|eviction| Arc::new(Gone::of(eviction))).collect();
        Moment { world: &self.world, policy: self.policy(), now: self.now, placed, gone }
    }

    /// Pods with their namespace and name, in that order.
    pub(super) fn pods(&self) -> impl Iterator<Item = (&ObjectId, &Stored)> {
        let first = ObjectId {
            kind: "Pod".to_owned(),
            ..ObjectId::default()
        };
        self.objects.range(first..).take_while(|(id, _)| id.kind == "Pod")
    }

    /// The gangs that wait, in the order of their turns.
    pub fn line(&mut self) -> Vec<Turn> {
        line(&mut self.world, &self.options.policy(), self.now)
    }

    /// True for a pod whose gang belongs to another node pool.
    pub(super) fn is_outside(&self, namespace: &str, gang: &str) -> bool {
        self.outside.contains(&ObjectKey::new(namespace, gang))
    }

    /// True for a pod that this scheduler places.
    pub(super) fn is_ours(&self, pod: &Value) -> bool {
        text(pod, "/spec/schedulerName") == self.options.scheduler_name
    }

    /// Gang and subgroup of a pod by UID; empty when it has none.
    pub(super) fn membership(&self, uid: &str) -> (String, String) {
        self.members.get(uid).cloned().unwrap_or_default()
    }

    /// Reads the ConfigMap with the defaults of kinds, if one is named and among the objects.
    fn read_kind_defaults(&mut self, items: &[Item]) {
        let Some(key) = &self.options.defaults_map else { return };
        let is_it = |item: &&Item| {
            let metadata = |field: &str| text(&item.value, &format!("/metadata/{field}"));
            text(&item.value, "/kind") == "ConfigMap" && (metadata("namespace"), metadata("name")) == (key.namespace.as_str(), key.name.as_str())
        };
        let Some(item) = items.iter().find(is_it) else { return };
        match KindDefaults::parse(&item.value) {
            Ok(defaults) => self.priorities.set_kind_defaults(defaults),
            Err(problem) => {
                let (place, name) = (item.place.clone(), name_of(&item.value));
                self.skip(&place, &name, &problem.field, problem.message);
            }
        }
    }

    /// Adds or changes objects. Creation order is their timestamp, then their order here.
    pub fn apply(&mut self, mut items: Vec<Item>) {
        bindings::apply(&mut items);
        self.read_kind_defaults(&items);
        let names_group = items.iter().any(|item| is_core_group(text(&item.value, "/apiVersion"), text(&item.value, "/kind")));
        let pod_gangs: Vec<Value> = items.iter().filter(|item| is_pod_gang(&item.value)).map(|item| item.value.clone()).collect();
        let mut used = Vec::new();
        let mut seen: BTreeMap<ObjectId, Place> = BTreeMap::new();
        for mut item in items {
            let Some(id) = self.usable(&mut item) else { continue };
            if let Some(first) = seen.get(&id) {
                let message = format!(
                    "appears twice; the first is in {} document {}",
                    first.file, first.document
                );
                self.skip(&item.place, &name_of(&item.value), "metadata.name", message);
                continue;
            }
            seen.insert(id, item.place.clone());
            used.push(item);
        }
        let pods = self.expand(&used);
        used.extend(pods);
        let mut ordered: Vec<(Option<Millis>, Item)> =
            used.into_iter().map(|item| (stamp(&item.value), item)).collect();
        // Without a timestamp an object is new: younger than everything that has one.
        ordered.sort_by_key(|(created, _)| created.unwrap_or(Millis::MAX));
        let mut batch = Vec::new();
        let mut edited = BTreeSet::new();
        for (created, item) in ordered {
            self.now = created.unwrap_or(self.now).max(self.now.saturating_add(1));
            let id = id_of(&item.value);
            let created = self.objects.get(&id).map_or(self.now, |old| old.created);
            let uid = text(&item.value, "/metadata/uid").to_owned();
            if self.objects.contains_key(&id) && is_workload(&item.value) {
                edited.insert(uid.clone());
            }
            batch.push(id.clone());
            self.created_by_uid.insert(uid.clone(), created);
            self.objects.insert(
                id,
                Stored {
                    place: item.place,
                    value: item.value,
                    uid,
                    created,
                },
            );
        }
        if names_group {
            batch.extend(self.naming_core_groups(&batch));
        }
        edited.extend(self.below_pod_gangs(&pod_gangs, &batch));
        self.feed(&batch);
        self.regroup(&edited);
    }

    /// Completes an object; `None` when it plays no part or can't be used.
    fn usable(&mut self, item: &mut Item) -> Option<ObjectId> {
        let kind = text(&item.value, "/kind").to_owned();
        let version = text(&item.value, "/apiVersion").to_owned();
        if kind == "GroupingRule" && version.starts_with("berth.scheduler/") {
            match rules::parse(&item.value) {
                Ok(rule) => self.owners.insert_rule(rule),
                Err(problem) => self.skip(&item.place, &name_of(&item.value), &problem.field, problem.message),
            }
            return None;
        }
        if is_template(&item.value) {
            self.templates.push(item.value.clone());
            return None;
        }
        if bindings::is_request(&item.value) || version == archive::SETTINGS_VERSION {
            return None;
        }
        if is_pod_gang(&item.value) {
            self.owners.insert(Arc::new(item.value.clone()));
            return None;
        }
        if !is_core_group(&version, &kind) && !is_known(&version, &kind) && !is_workload(&item.value) {
            self.ignored.insert(name_of(&item.value));
            self.owners.insert(Arc::new(item.value.clone()));
            return None;
        }
        if text(&item.value, "/metadata/name").is_empty() {
            let message = "missing; every object needs a name".to_owned();
            self.skip(&item.place, &name_of(&item.value), "metadata.name", message);
            return None;
        }
        if is_core_group(&version, &kind) {
            complete(&mut item.value, 0);
            self.core_groups.applied(&item.value);
            return None;
        }
        let mut id = id_of(&item.value);
        if is_cluster_scoped(&kind) {
            id.namespace.clear();
        } else if id.namespace.is_empty() {
            id.namespace = "default".to_owned();
        }
        let generation = self.generations.get(&id).copied().unwrap_or(0);
        complete(&mut item.value, generation);
        Some(id)
    }

    /// Pods of the workloads that have none yet.
    fn expand(&mut self, items: &[Item]) -> Vec<Item> {
        let mut values: Vec<Value> = items.iter().map(|item| item.value.clone()).collect();
        values.extend(self.pods().map(|(_, stored)| stored.value.clone()));
        values.extend(self.templates.iter().cloned());
        let expansion = expand(&values);
        for owner in expansion.owners {
            self.owners.insert(Arc::new(owner));
        }
        for problem in expansion.problems {
            if let Some(item) = items.get(problem.position) {
                self.skip(
                    &item.place.clone(),
                    &name_of(&item.value),
                    &problem.field,
                    problem.message,
                );
            }
        }
        let places: BTreeMap<&str, &Place> = items
            .iter()
            .map(|item| (text(&item.value, "/metadata/uid"), &item.place))
            .collect();
        let mut pods = Vec::new();
        for mut value in expansion.pods {
            let generation = self.generations.get(&id_of(&value)).copied().unwrap_or(0);
            complete(&mut value, generation);
            let place = self
                .owner_uids(&value)
                .iter()
                .find_map(|uid| places.get(uid.as_str()).copied())
                .cloned()
                .unwrap_or_default();
            pods.push(Item { place, value });
        }
        pods
    }

    /// UIDs of the owners of a pod, nearest first.
    fn owner_uids(&self, value: &Value) -> Vec<String> {
        let pod: Pod = serde_json::from_value(value.clone()).unwrap_or_default();
        let mut uids: Vec<String> = walk(&pod, &self.owners)
            .owners
            .iter()
            .map(|owner| text(owner, "/metadata/uid").to_owned())
            .collect();
        uids.extend(
            pod.metadata
                .owner_references
                .into_iter()
                .flatten()
                .map(|owner| owner.uid),
        );
        uids
    }

    /// Tells the engine about a batch of stored objects, those that others refer to first.
    fn feed(&mut self, batch: &[ObjectId]) {
        let of = |kinds: &[&str]| {
            batch
                .iter()
                .filter(|id| kinds.contains(&id.kind.as_str()))
                .cloned()
                .collect::<Vec<_>>()
        };
        for id in of(&["PriorityClass"]) {
            if let Some(class) = self.read::<PriorityClass>(&id) {
                self.priorities.insert(&class);
            }
        }
        for id in of(&["Topology"]) {
            self.convert::<Topology>(&id, |topology| {
                convert::topology_facts(topology).map(Event::TopologyUpsert)
            });
            let facts = self.read::<Topology>(&id).and_then(|topology| convert::topology_facts(&topology).ok());
            facts.into_iter().for_each(|facts| { self.core_groups.topology_applied(&facts); });
        }
        let queues = self.of_our_pool(of(&["Queue"]), Event::QueueDelete);
        self.has_queue |= !queues.is_empty();
        for id in queues {
            self.convert::<Queue>(&id, |queue| convert::queue_facts(queue).map(Event::QueueUpsert));
        }
        if !self.has_queue && !self.synced {
            self.send(Event::QueueUpsert(default_queue()), &Place::default());
        }
        for id in self.of_our_pool(of(&["Node"]), Event::NodeDelete) {
            self.convert::<Node>(&id, |node| convert::node_facts(node).map(Event::NodeUpsert));
        }
        for id in of(&["RuntimeClass"]) {
            if let Some(stored) = self.objects.get(&id) {
                self.runtime_classes.insert(id.name.clone(), stored.value.clone());
            }
        }
        for (_, _, kind) in StorageKinds::KINDS {
            for id in of(&[kind]) {
                self.feed_storage(&id);
            }
        }
        for id in of(&["PodGroup"]) {
            self.feed_group(&id);
        }
        for id in of(&["Pod"]) {
            self.feed_pod(&id);
        }
        if !self.synced {
            self.synced = true;
            self.send(Event::Synced, &Place::default());
        }
    }

    /// Those of our node pool; the others are gone for the engine.
    fn of_our_pool(&mut self, ids: Vec<ObjectId>, gone: fn(String) -> Event) -> Vec<ObjectId> {
        let is_ours = |id: &ObjectId| self.objects.get(id).is_none_or(|stored| self.options.node_pool.holds_object(&stored.value));
        let (ours, others): (Vec<ObjectId>, Vec<ObjectId>) = ids.into_iter().partition(is_ours);
        let uids: Vec<String> = others.iter().filter_map(|id| self.objects.get(id)).map(|stored| stored.uid.clone()).collect();
        for uid in uids {
            self.send(gone(uid), &Place::default());
        }
        ours
    }

    fn read<T: serde::de::DeserializeOwned>(&mut self, id: &ObjectId) -> Option<T> {
        let stored = self.objects.get(id)?;
        match typed(&stored.value, &stored.place) {
            Ok(object) => Some(object),
            Err(skipped) => {
                self.objects.remove(id);
                self.skipped.insert(skipped);
                None
            }
        }
    }

    fn convert<T: serde::de::DeserializeOwned>(
        &mut self,
        id: &ObjectId,
        facts: impl Fn(&T) -> Result<Event, ConvertError>,
    ) {
        let Some(object) = self.read::<T>(id) else { return };
        let place = self
            .objects
            .get(id)
            .map(|stored| stored.place.clone())
            .unwrap_or_default();
        match facts(&object) {
            Ok(event) => {
                if !self.send(event, &place) {
                    self.objects.remove(id);
                }
            }
            Err(error) => self.refuse(id, &error),
        }
    }

    fn feed_storage(&mut self, id: &ObjectId) {
        let Some(stored) = self.objects.get(id).cloned() else { return };
        match self.storage.applied(&id.kind, &stored.value) {
            Ok(events) => {
                for event in events {
                    self.send(event, &stored.place);
                }
            }
            Err(StorageError::Unusable(error)) => self.refuse(id, &error),
            Err(StorageError::Unreadable(error)) => {
                self.objects.remove(id);
                self.skip(&stored.place, &name_of(&stored.value), "", error.to_string());
            }
        }
    }

    /// Claims of a pod's ephemeral volumes, which a controller makes in a cluster.
    fn feed_ephemeral_claims(&mut self, id: &ObjectId, stored: &Stored) {
        let volumes = stored.value.pointer("/spec/volumes").and_then(Value::as_array).cloned().unwrap_or_default();
        for volume in volumes {
            let Some(template) = volume.pointer("/ephemeral/volumeClaimTemplate") else { continue };
            let name = format!("{}-{}", id.name, text(&volume, "/name"));
            let claim = ObjectId { kind: "PersistentVolumeClaim".to_owned(), namespace: id.namespace.clone(), name };
            if self.objects.contains_key(&claim) {
                continue;
            }
            let value = serde_json::json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": template["spec"],
                "metadata": {
                    "name": claim.name, "namespace": claim.namespace, "uid": format!("{}-{}", stored.uid, claim.name),
                    "ownerReferences": [{
                        "apiVersion": "v1", "kind": "Pod", "name": id.name, "uid": stored.uid, "controller": true,
                    }],
                },
            });
            // A template that can't be read leaves the claim missing: the pod says so.
            for event in self.storage.applied("PersistentVolumeClaim", &value).unwrap_or_default() {
                self.send(event, &stored.place);
            }
        }
    }

    fn refuse(&mut self, id: &ObjectId, error: &ConvertError) {
        if let Some(stored) = self.objects.remove(id) {
            self.skip(&stored.place, &error.object, &error.field, message_of(error));
        }
    }

    pub(super) fn feed_pod(&mut self, id: &ObjectId) {
        if let Some(stored) = self.objects.get_mut(id) {
            let class = self.runtime_classes.get(text(&stored.value, "/spec/runtimeClassName"));
            class.into_iter().for_each(|class| admit_runtime_class(&mut stored.value, class));
        }
        let Some(pod) = self.read::<Pod>(id) else { return };
        let Some(stored) = self.objects.get(id).cloned() else {
            return;
        };
        self.feed_ephemeral_claims(id, &stored);
        let membership = if self.is_ours(&stored.value) {
            self.group(&pod, &stored)
        } else {
            Membership::default()
        };
        match convert::pod_facts(&pod, &membership, &self.options.scheduler_name) {
            Ok(mut facts) => {
                facts.created = stored.created;
                let member = (
                    facts.gang.clone().unwrap_or_default(),
                    facts.subgroup.clone().unwrap_or_default(),
                );
                self.members.insert(facts.uid.clone(), member);
                self.send(Event::PodUpsert(facts), &stored.place);
            }
            Err(error) => self.refuse(id, &error),
        }
    }

    fn owner_created(&self, pod: &Value) -> Option<Millis> {
        self.owner_uids(pod)
            .iter()
            .filter_map(|uid| self.created_by_uid.get(uid))
            .min()
            .copied()
    }

    /// Removes an object. False when there is none.
    pub fn delete(&mut self, id: &ObjectId) -> bool {
        let Some(stored) = self.objects.remove(id) else {
            return false;
        };
        *self.generations.entry(id.clone()).or_default() += 1;
        let event = match id.kind.as_str() {
            "Node" => Event::NodeDelete(stored.uid),
            "Pod" => Event::PodDelete(stored.uid),
            "PodGroup" => {
                self.lose_group(id, stored);
                return true;
            }
            "Queue" => Event::QueueDelete(stored.uid),
            "Topology" => Event::TopologyDelete(stored.uid),
            budgets::BUDGET => Event::BudgetDelete(stored.uid),
            kind if StorageKinds::has(kind) => {
                for event in self.storage.deleted(kind, &stored.uid) {
                    self.send(event, &stored.place);
                }
                return true;
            }
            _ => {
                let uid = stored.uid;
                let pods = self
                    .pods()
                    .filter(|(_, pod)| text(&pod.value, "/metadata/ownerReferences/0/uid") == uid);
                let pods: Vec<ObjectId> = pods.map(|(id, _)| id.clone()).collect();
                for pod in &pods {
                    self.delete(pod);
                }
                return true;
            }
        };
        self.send(event, &stored.place);
        true
    }

    /// Applies one event; a refusal is listed with the object's place.
    fn send(&mut self, event: Event, place: &Place) -> bool {
        let started = Instant::now();
        let result = self.world.apply(event, self.now);
        self.solve_micros += started.elapsed().as_micros();
        self.events += 1;
        match result {
            Ok(()) => true,
            Err(Rejected { object, field, message }) => {
                self.skip(place, &object, &field, message);
                false
            }
        }
    }

    fn skip(&mut self, place: &Place, object: &str, field: &str, message: String) {
        self.skipped.insert(Skipped {
            place: place.clone(),
            object: object.to_owned(),
            field: field.to_owned(),
            message,
        });
    }
}
