//! The gangs part of the store: derived from workloads or written by hand, and the PodGroup objects that mirror them.
//!
//! A derived gang is told to the engine at once; its PodGroup is created alongside and afterwards changed only where it
//! differs, never in the fields that belong to people (queue, markUnschedulable, schedulingBackoff, node pool).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_api::keys;
use berth_api::pod_group::PodGroup;
use berth_engine::facts::{Event, GangFacts, Millis, ObjectKey, Problem, ProblemCode};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};

use super::convert::{self, Membership, automatic, has_derived_constraint, is_derived};
use super::directory::Member;
use super::owners::forbidden_owner;
use super::raw;
use super::store::{Bad, PodEntry, Store, typed};
use super::Effect;
use crate::grouping::{Group, Grouping, ObjectId, group_pod, merge};

/// A PodGroup write that had no visible effect is tried again after this time: a lost request, or a webhook that undoes it.
const REWRITE_AFTER_MILLIS: Millis = 60_000;

/// A gang, from either side.
#[derive(Default)]
pub(super) struct Gang {
    /// UID under which the engine knows it.
    pub(super) engine_uid: String,
    /// Pods.
    members: BTreeSet<String>,
    /// As its workload describes it, and by which pod.
    derived: Option<(String, Box<Group>)>,
    /// The parts of a gang of several owners, by their nodes, each as one of its pods describes it.
    parts: BTreeMap<String, (String, Box<Group>)>,
    /// The part that each pod is of.
    part_of: BTreeMap<String, String>,
    /// The object in the API.
    object: Option<(PodGroup, Value)>,
    /// Told to the engine.
    pub(super) told: Option<GangFacts>,
    /// Last write asked for: what, and when.
    written: Option<(Value, Millis)>,
}

impl Gang {
    /// As its workload describes it.
    pub(super) fn group(&self) -> Option<&Group> {
        self.derived.as_ref().map(|(_, group)| &**group)
    }

    /// Takes in what a pod says of its gang. Of two descriptions by different pods the larger minimum counts, as long as the
    /// pod that gave it is there: after a restart, what was created later than the others is to come again.
    fn describe(&mut self, uid: &str, group: Box<Group>) {
        let node = group.part.as_ref().map(|part| part.node.clone());
        let before = node.clone().and_then(|node| self.part_of.insert(uid.to_owned(), node));
        if let Some(before) = before.filter(|before| Some(before) != node.as_ref()) {
            self.drop_part_without_pods(&before);
        }
        let keeps = |(source, old): &(String, Box<Group>)| {
            source != uid && self.members.contains(source) && old.outranks(&group)
        };
        let Some(node) = node else {
            if !self.derived.as_ref().is_some_and(keeps) {
                self.derived = Some((uid.to_owned(), group));
            }
            return;
        };
        if self.parts.get(&node).is_some_and(keeps) || self.parts.get(&node).is_some_and(|(_, old)| *old == group) {
            return;
        }
        self.parts.insert(node, (uid.to_owned(), group));
        self.join_parts(uid);
    }

    fn join_parts(&mut self, uid: &str) {
        let parts = self.parts.iter().map(|(node, (_, group))| (node.clone(), group.clone())).collect();
        self.derived = merge(&parts).map(|joint| (uid.to_owned(), Box::new(joint)));
    }

    /// A pod is gone. A part without pods is as one that has not come yet: its owner may be gone, or scaled down.
    fn leave(&mut self, uid: &str) {
        self.members.remove(uid);
        if let Some(node) = self.part_of.remove(uid) {
            self.drop_part_without_pods(&node);
        }
        if self.members.is_empty() {
            self.derived = None;
            self.parts.clear();
        }
    }

    fn drop_part_without_pods(&mut self, node: &str) {
        if !self.part_of.values().any(|other| other == node) && self.parts.remove(node).is_some() {
            self.join_parts("");
        }
    }
}

impl Store {
    /// Finds the group of a pod whose owners are known. False when its gang is not ours to derive.
    pub(super) fn group(&mut self, uid: &str, pod: &Pod) -> bool {
        let grouping = group_pod(pod, &self.owners, &self.priorities.context());
        match grouping {
            Grouping::External(external) => {
                self.join(uid, Membership::of_external(*external));
            }
            Grouping::Group(mut group) => {
                if let Some(name) = self.pods.get(uid).and_then(|entry| entry.core_group.clone()) {
                    let topology = self.core_groups.apply(&mut group, &name);
                    topology.into_iter().for_each(|event| self.tell(event));
                }
                let marked = Membership::written_on(pod).gang;
                if group.unread_owner.is_some() && raw::node_of(pod).is_some() && marked.is_some() {
                    return false;
                }
                let key = ObjectKey::new(group.namespace.clone(), group.name.clone());
                let membership = Membership::of_group(&group);
                let gang = self.gangs.entry(key.clone()).or_default();
                gang.describe(uid, group);
                // Joined when it is described: before, it would look like a gang whose PodGroup is missing.
                self.join(uid, membership);
                self.refresh_gang(&key);
            }
        }
        true
    }

    /// Moves a pod to a gang, or to none.
    pub(super) fn join(&mut self, uid: &str, membership: Membership) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let namespace = raw::pod_key(&entry.pod).namespace;
        let key = membership.gang.clone().map(|name| ObjectKey::new(namespace, name));
        entry.membership = membership;
        let before = std::mem::replace(&mut entry.gang, key.clone());
        if before == key {
            return;
        }
        if let Some(before) = before {
            let mut described = false;
            if let Some(gang) = self.gangs.get_mut(&before) {
                described = gang.derived.as_ref().is_some_and(|(source, _)| source == uid);
                gang.leave(uid);
                self.directory.lock().remove_member(&gang.engine_uid, uid);
            }
            self.refresh_gang(&before);
            if described {
                self.describe_again(&before);
            }
        }
        if let Some(key) = key {
            self.gangs.entry(key.clone()).or_default().members.insert(uid.to_owned());
            self.refresh_gang(&key);
        }
    }

    /// The pod that described a gang is gone: one that waits says what is asked for now. It may be less, when a workload
    /// starts again from its first step.
    fn describe_again(&mut self, key: &ObjectKey) {
        let waits = |entry: &PodEntry| raw::node_of(&entry.pod).is_none() && entry.pod.metadata.deletion_timestamp.is_none();
        let members = self.gangs.get(key).into_iter().flat_map(|gang| &gang.members);
        let waiting = members.into_iter().find(|uid| self.pods.get(*uid).is_some_and(waits));
        if let Some(uid) = waiting.cloned() {
            self.regroup(&uid);
        }
    }

    /// A rule that can't be used is no rule: its kind is grouped as if there were none.
    pub(super) fn rule_applied(&mut self, uid: String, object: &Value) -> Result<(), Bad> {
        let rule = crate::grouping::rules::parse(object);
        let known = match &rule {
            Ok(rule) => self.owners.rules.insert(uid, Arc::new(rule.clone())),
            Err(_) => self.owners.rules.remove(&uid),
        };
        if known.as_deref() != rule.as_ref().ok() {
            self.regroup_all();
        }
        rule.map(|_| ()).map_err(|problem| Bad { object: raw::key(object).name, message: problem.to_string() })
    }

    pub(super) fn rule_deleted(&mut self, uid: &str) {
        if self.owners.rules.remove(uid).is_some() {
            self.regroup_all();
        }
    }

    /// Writes what the writers must know of a pod into the directory.
    pub(super) fn note_member(&self, uid: &str) {
        let Some(entry) = self.pods.get(uid) else { return };
        let Some(gang) = entry.gang.as_ref().and_then(|key| self.gangs.get(key)) else { return };
        if !gang.engine_uid.is_empty() {
            self.directory.lock().gang_mut(&gang.engine_uid).members.insert(uid.to_owned(), member(entry));
        }
    }

    pub(super) fn pod_group_applied(&mut self, object: &Value) -> Result<(), Bad> {
        let group: PodGroup = typed(object)?;
        let key = raw::key(object);
        let gang = self.gangs.entry(key.clone()).or_default();
        let uid = group.metadata.uid.clone();
        let before = gang.object.replace((group, object["status"].clone()));
        let told = gang.told.clone().filter(|_| before.is_none_or(|(before, _)| before.metadata.uid != uid));
        self.refresh_gang(&key);
        if let Some(told) = told
            && self.gangs.get(&key).is_some_and(|gang| gang.told.as_ref() == Some(&told))
        {
            // Nothing new about the gang, but its object is: what is known of the gang is to be written there.
            self.tell(Event::GangUpsert(told));
        }
        Ok(())
    }

    pub(super) fn pod_group_deleted(&mut self, uid: &str) {
        let has_it = |gang: &Gang| gang.object.as_ref().is_some_and(|(group, _)| group.metadata.uid.as_deref() == Some(uid));
        let keys: Vec<ObjectKey> = self.gangs.iter().filter(|(_, gang)| has_it(gang)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            if let Some(gang) = self.gangs.get_mut(&key) {
                gang.object = None;
                gang.written = None;
            }
            self.refresh_gang(&key);
        }
    }

    pub(super) fn refresh_all_gangs(&mut self) {
        let keys: Vec<ObjectKey> = self.gangs.keys().cloned().collect();
        for key in keys {
            self.refresh_gang(&key);
        }
    }

    pub(super) fn tick_gangs(&mut self) {
        let late = |gang: &Gang| gang.written.as_ref().is_some_and(|(_, at)| self.now - at >= REWRITE_AFTER_MILLIS);
        let keys: Vec<ObjectKey> = self.gangs.iter().filter(|(_, gang)| late(gang)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            if let Some(gang) = self.gangs.get_mut(&key) {
                gang.written = None;
            }
            self.refresh_gang(&key);
        }
    }

    /// Brings the engine, the directory and the object in line with what is known of a gang.
    pub(super) fn refresh_gang(&mut self, key: &ObjectKey) {
        let Some(gang) = self.gangs.get(key) else { return };
        let known = gang.derived.is_some() || gang.object.is_some();
        if !known && (gang.members.is_empty() || self.is_listing_pod_groups()) {
            self.forget_gang(key);
            return;
        }
        if !self.pool.holds(self.pool_of(gang)) {
            // Another scheduler's: its pods hold room here where they are on nodes.
            self.forget_gang(key);
            return;
        }
        match self.facts_of(key, gang) {
            Ok(facts) => self.tell_gang(key, facts),
            Err(bad) => self.skip("PodGroup", &format!("{}/{}", key.namespace, key.name), bad),
        }
        self.note_gang(key);
        self.write_gang(key);
    }

    /// The node pool that the PodGroup names, or else its workload, or one of its pods.
    fn pool_of<'a>(&'a self, gang: &'a Gang) -> Option<&'a str> {
        let key = self.pool.key();
        let of_object = gang.object.as_ref().and_then(|(object, _)| object.metadata.labels.as_ref()?.get(key));
        let of_group = || gang.derived.as_ref().and_then(|(_, group)| group.labels.get(key));
        let of_pods = || {
            let derived = gang.derived.is_some();
            let mut pods = gang.members.iter().filter(|_| derived).filter_map(|uid| self.pods.get(uid));
            pods.find_map(|entry| entry.pod.metadata.labels.as_ref()?.get(key))
        };
        of_object.or_else(of_group).or_else(of_pods).map(String::as_str)
    }

    fn facts_of(&self, key: &ObjectKey, gang: &Gang) -> Result<GangFacts, Bad> {
        let mut facts = self.described(key, gang)?;
        // What was written down counts at the start; later the engine knows better, and it is its own word that comes back.
        if self.synced {
            facts.stale_since = gang.told.as_ref().and_then(|told| told.stale_since);
        }
        Ok(facts)
    }

    fn described(&self, key: &ObjectKey, gang: &Gang) -> Result<GangFacts, Bad> {
        let Some((_, group)) = &gang.derived else {
            return match &gang.object {
                Some((object, _)) => Ok(convert::gang_facts(object, "", &self.priorities)?),
                None => Ok(missing_group(key)),
            };
        };
        let object = gang.object.as_ref().map(|(object, _)| object);
        let mut facts = convert::derived_gang_facts(group, object, &self.priorities)?;
        facts.problems.extend(forbidden_owner(group));
        facts.warnings.extend(self.unread_pod_gang(group));
        facts.uid = format!("derived/{}/{}", facts.key.namespace, facts.key.name);
        let members = gang.members.iter().filter_map(|uid| self.pods.get(uid));
        let oldest = members.map(|entry| convert::created_millis(&entry.pod.metadata)).min();
        facts.created = gang.told.as_ref().map(|told| told.created).or(oldest).unwrap_or(self.now);
        Ok(facts)
    }

    fn tell_gang(&mut self, key: &ObjectKey, mut facts: GangFacts) {
        let Some(gang) = self.gangs.get_mut(key) else { return };
        let recreated = gang.derived.is_none() && !gang.engine_uid.is_empty() && gang.engine_uid != facts.uid;
        if gang.derived.is_some() && !gang.engine_uid.is_empty() {
            // Its object was seen first (after a restart): the same gang keeps its UID.
            facts.uid.clone_from(&gang.engine_uid);
        }
        if gang.told.as_ref() == Some(&facts) {
            return;
        }
        if recreated {
            let old = std::mem::take(&mut gang.engine_uid);
            self.directory.lock().remove(&old);
            self.effects.push(Effect::Engine(Event::GangDelete(old)));
        }
        gang.engine_uid.clone_from(&facts.uid);
        gang.told = Some(facts.clone());
        self.effects.push(Effect::Engine(Event::GangUpsert(facts)));
    }

    fn forget_gang(&mut self, key: &ObjectKey) {
        let Some(gang) = self.gangs.get_mut(key) else { return };
        gang.told = None;
        let uid = std::mem::take(&mut gang.engine_uid);
        if gang.members.is_empty() {
            self.gangs.remove(key);
        }
        if !uid.is_empty() {
            self.directory.lock().remove(&uid);
            self.tell(Event::GangDelete(uid));
        }
    }

    fn note_gang(&mut self, key: &ObjectKey) {
        let Some(gang) = self.gangs.get(key) else { return };
        if gang.engine_uid.is_empty() {
            return;
        }
        let mut directory = self.directory.lock();
        let entry = directory.gang_mut(&gang.engine_uid);
        entry.key = key.clone();
        entry.handwritten = gang.derived.is_none();
        entry.object_uid = gang.object.as_ref().and_then(|(object, _)| object.metadata.uid.clone());
        entry.mark_unschedulable = gang.object.as_ref().is_none_or(|(object, _)| object.spec.mark_unschedulable != Some(false));
        let labels = gang.object.as_ref().and_then(|(object, _)| object.metadata.labels.as_ref());
        let annotations = gang.object.as_ref().and_then(|(object, _)| object.metadata.annotations.as_ref());
        entry.promised = annotations.and_then(|all| all.get(keys::PROMISED)).cloned();
        entry.node_pool = labels.and_then(|labels| labels.get(keys::NODE_POOL)).cloned().unwrap_or_default();
        entry.pod_gang = gang.group().and_then(|group| group.pod_gang.clone());
        let notes = gang.object.as_ref().and_then(|(object, _)| object.metadata.annotations.as_ref());
        entry.stale_note = notes.and_then(|notes| notes.get(keys::STALE_TIMESTAMP)).cloned();
        entry.status = gang.object.as_ref().map_or(Value::Null, |(_, status)| status.clone());
        if entry.members.len() != gang.members.len() {
            let pods = gang.members.iter().filter_map(|uid| Some((uid.clone(), member(self.pods.get(uid)?))));
            entry.members = pods.collect();
        }
    }

    fn write_gang(&mut self, key: &ObjectKey) {
        if !self.knows_pod_groups() {
            return;
        }
        let now = self.now;
        let Some(gang) = self.gangs.get_mut(key) else { return };
        let Some((_, group)) = &gang.derived else { return };
        if forbidden_owner(group).is_some() {
            // What is known of the gang is too little to write it down, or over what somebody wrote who knew more.
            return;
        }
        let wanted = manifest(group);
        let write = match &gang.object {
            None => wanted,
            Some((object, _)) => match difference(object, &wanted) {
                Some(patch) => patch,
                None => {
                    gang.written = None;
                    return;
                }
            },
        };
        if gang.written.as_ref().is_some_and(|(same, _)| *same == write) {
            return;
        }
        gang.written = Some((write.clone(), now));
        let effect = if gang.object.is_none() { Effect::CreatePodGroup } else { Effect::PatchPodGroup };
        self.effects.push(effect(key.clone(), Box::new(write)));
    }
}

/// A gang whose pods name a PodGroup that is not there: it waits, and says so.
fn missing_group(key: &ObjectKey) -> GangFacts {
    let problem = Problem {
        code: ProblemCode::PodGroupNotFound,
        object: String::new(),
        key: keys::POD_GROUP.to_owned(),
        value: key.name.clone(),
        allowed: format!("the name of a PodGroup that exists in namespace {}", key.namespace),
    };
    GangFacts {
        uid: format!("missing/{}/{}", key.namespace, key.name),
        key: key.clone(),
        problems: vec![problem],
        ..GangFacts::default()
    }
}

fn member(entry: &PodEntry) -> Member {
    let pod = &entry.pod;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let annotations = pod.metadata.annotations.as_ref();
    Member {
        key: raw::pod_key(pod),
        has_controller: pod.metadata.owner_references.iter().flatten().any(|owner| owner.controller == Some(true)),
        node: raw::node_of(pod).map(str::to_owned),
        leaving: pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed")),
        decision: annotations.and_then(|all| all.get(keys::DECISION)).cloned(),
        created: convert::created_millis(&pod.metadata),
        started: pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0.as_millisecond()),
        condition: raw::unscheduled_condition(pod),
        nominated: pod.status.as_ref().and_then(|status| status.nominated_node_name.clone()).filter(|node| !node.is_empty()),
        gated: pod.spec.as_ref().is_some_and(|spec| spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty())),
        version: pod.metadata.resource_version.clone().unwrap_or_default(),
        shape: entry.shape.clone(),
    }
}

/// The PodGroup of a derived gang.
fn manifest(group: &Group) -> Value {
    let mut annotations = group.annotations.clone();
    annotations.extend(automatic::written(group).map(|value| (keys::AUTOMATIC_PREFERRED.to_owned(), value)));
    if group.spec.topology_constraint.is_some() {
        annotations.insert(keys::DERIVED_CONSTRAINT.to_owned(), keys::TRUE.to_owned());
    }
    for (key, mark) in convert::DERIVED {
        if annotations.contains_key(key) {
            annotations.insert(mark.to_owned(), keys::TRUE.to_owned());
        }
    }
    let reference = |owner: &ObjectId| json!({"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid});
    let owners: Vec<Value> = [&group.owner].into_iter().chain(&group.further_owners).map(reference).collect();
    json!({
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {
            "name": group.name,
            "namespace": group.namespace,
            "labels": group.labels,
            "annotations": annotations,
            "ownerReferences": owners,
        },
        "spec": serde_json::to_value(&group.spec).unwrap_or_default(),
    })
}

/// Fields of the spec that the workload decides; the others are people's.
const DERIVED_FIELDS: [&str; 8] = [
    "minMember",
    "minSubGroup",
    "priorityClassName",
    "preemptibility",
    "preemptionDelay",
    "stalenessGracePeriod",
    "subGroups",
    "topologyConstraint",
];

/// The merge patch that makes an existing PodGroup what its workload asks for; `None` when it is so already.
fn difference(object: &PodGroup, wanted: &Value) -> Option<Value> {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    let mut spec = Map::new();
    let existing = serde_json::to_value(&object.spec).unwrap_or_default();
    for field in DERIVED_FIELDS {
        let (old, new) = (&existing[field], &wanted["spec"][field]);
        let keeps = field == "topologyConstraint" && is_empty(new) && !has_derived_constraint(object);
        if keeps || old == new || (is_empty(old) && is_empty(new)) {
            continue;
        }
        spec.insert(field.to_owned(), new.clone());
    }
    if existing["queue"].is_null() && !is_empty(&wanted["spec"]["queue"]) {
        spec.insert("queue".to_owned(), wanted["spec"]["queue"].clone());
    }
    let labels = missing(object.metadata.labels.as_ref(), &wanted["metadata"]["labels"], &[keys::QUEUE, keys::NODE_POOL]);
    let mut annotations = missing(object.metadata.annotations.as_ref(), &wanted["metadata"]["annotations"], &[]);
    let is_there = |key: &&str| object.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(*key));
    if is_there(&keys::AUTOMATIC_PREFERRED) && wanted["metadata"]["annotations"][keys::AUTOMATIC_PREFERRED].is_null() {
        annotations.insert(keys::AUTOMATIC_PREFERRED.to_owned(), Value::Null);
    }
    if has_derived_constraint(object) && is_empty(&wanted["spec"]["topologyConstraint"]) {
        let copied = [keys::DERIVED_CONSTRAINT, keys::TOPOLOGY, keys::TOPOLOGY_REQUIRED, keys::TOPOLOGY_PREFERRED];
        for key in copied.into_iter().filter(is_there) {
            annotations.entry(key).or_insert(Value::Null);
        }
    }
    for (key, mark) in convert::DERIVED {
        if is_derived(object, key) && wanted["metadata"]["annotations"][key].is_null() {
            for key in [mark, key].into_iter().filter(is_there) {
                annotations.insert(key.to_owned(), Value::Null);
            }
        }
    }
    let owners = missing_owners(object, &wanted["metadata"]["ownerReferences"]);
    if spec.is_empty() && labels.is_empty() && annotations.is_empty() && owners.is_none() {
        return None;
    }
    // The UID in a patch is a precondition: an object that was replaced in between is not touched.
    let mut patch = json!({"metadata": {
        "name": object.metadata.name, "namespace": object.metadata.namespace, "uid": object.metadata.uid,
    }});
    if !labels.is_empty() {
        patch["metadata"]["labels"] = Value::Object(labels);
    }
    if !annotations.is_empty() {
        patch["metadata"]["annotations"] = Value::Object(annotations);
    }
    if let Some(owners) = owners {
        patch["metadata"]["ownerReferences"] = owners;
    }
    if !spec.is_empty() {
        patch["spec"] = Value::Object(spec);
    }
    Some(patch)
}

/// The owners of a joint gang, when its PodGroup lacks one: it would go with the others although this one lives. Those that
/// are gone are left to the garbage collector, and a gang of one owner keeps what it has.
fn missing_owners(object: &PodGroup, wanted: &Value) -> Option<Value> {
    let wanted_list = wanted.as_array().filter(|owners| 1 < owners.len())?;
    let has = |owner: &&Value| object.metadata.owner_references.iter().flatten().any(|other| owner["uid"] == other.uid.as_str());
    (!wanted_list.iter().all(|owner| has(&owner))).then(|| wanted.clone())
}

fn missing(have: Option<&BTreeMap<String, String>>, want: &Value, kept: &[&str]) -> Map<String, Value> {
    let mut result = Map::new();
    for (key, value) in want.as_object().into_iter().flatten() {
        let old = have.and_then(|have| have.get(key));
        let differs = old.map(String::as_str) != value.as_str();
        if differs && !(old.is_some() && kept.contains(&key.as_str())) {
            result.insert(key.clone(), value.clone());
        }
    }
    result
}
