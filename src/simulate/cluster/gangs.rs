//! Gangs of the offline cluster: derived from workloads, or PodGroups of the input.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::PodGroup;
use berth_engine::facts::{Event, GangFacts, Millis, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::{Cluster, DEFAULT_QUEUE, Stored};
use crate::cluster::convert::{self, Membership};
use crate::grouping::{Group, Grouping, WalkEnd, core_group, group_pod, pod_gang};
use crate::simulate::input::Place;
use crate::simulate::objects::{ObjectId, message_of, text};

impl Cluster {
    pub(super) fn feed_group(&mut self, id: &ObjectId) {
        let Some(group) = self.read::<PodGroup>(id) else { return };
        let Some(stored) = self.objects.get(id).cloned() else {
            return;
        };
        let key = ObjectKey::new(id.namespace.clone(), id.name.clone());
        if self.derived.contains_key(&key) {
            self.feed_derived(&key, stored.created, &stored.place);
            return;
        }
        let owner = group.metadata.owner_references.iter().flatten().next();
        let owner = owner.map_or_else(
            || format!("PodGroup/{}", id.name),
            |owner| format!("{}/{}", owner.kind, owner.name),
        );
        if !self.is_of_our_pool(&key, group.metadata.labels.as_ref()) {
            return;
        }
        match convert::gang_facts(&group, &owner, &self.priorities) {
            Ok(mut facts) => {
                facts.created = stored.created;
                if facts.queue.is_empty() && !self.has_queue {
                    DEFAULT_QUEUE.clone_into(&mut facts.queue);
                }
                self.feed_gang(facts, &stored.place);
            }
            Err(error) => self.refuse(id, &error),
        }
    }

    /// Pods besides `batch` that name a PodGroup of `scheduling.k8s.io`: they may have waited for it.
    pub(super) fn naming_core_groups(&self, batch: &[ObjectId]) -> Vec<ObjectId> {
        let named = self.pods().filter(|(id, pod)| core_group::named(&pod.value).is_some() && !batch.contains(id));
        named.map(|(id, _)| id.clone()).collect()
    }

    /// The nearest owners of pods besides `batch` that name one of these PodGangs of Grove.
    pub(super) fn below_pod_gangs(&self, gangs: &[Value], batch: &[ObjectId]) -> BTreeSet<String> {
        let gangs_by_key: BTreeSet<_> =
            gangs.iter().map(|gang| pod_gang::key(text(gang, "/metadata/namespace"), text(gang, "/metadata/name"))).collect();
        let is_named = |pod: &Value| {
            let name = text(pod, "/metadata/labels/grove.io~1podgang");
            gangs_by_key.contains(&pod_gang::key(text(pod, "/metadata/namespace"), name))
        };
        let pods = self.pods().filter(|(id, pod)| !batch.contains(id) && is_named(&pod.value));
        pods.filter_map(|(_, pod)| self.owner_uids(&pod.value).into_iter().next()).collect()
    }

    fn feed_gang(&mut self, facts: GangFacts, place: &Place) {
        if self.gangs.get(&facts.key) == Some(&facts) {
            return;
        }
        self.gangs.insert(facts.key.clone(), facts.clone());
        self.send(Event::GangUpsert(facts), place);
    }

    /// Finds the gang of a pod, and tells the engine of it unless it is written by hand.
    pub(super) fn group(&mut self, pod: &Pod, stored: &Stored) -> Membership {
        match group_pod(pod, &self.owners, &self.priorities.context()) {
            Grouping::Group(mut group) => {
                let core = core_group::named(&stored.value);
                if let Some(name) = core {
                    let topology = self.core_groups.apply(&mut group, name);
                    topology.into_iter().for_each(|event| { self.send(event, &stored.place); });
                }
                let membership = Membership::of_group(&group);
                self.derive(*group, core.is_some(), stored);
                membership
            }
            Grouping::External(external) => Membership::of_external(*external),
        }
    }

    /// Describes the gangs of edited workloads (by UID) anew: they may ask for less than before.
    pub(super) fn regroup(&mut self, edited: &BTreeSet<String>) {
        if edited.is_empty() {
            return;
        }
        let key = |id: &ObjectId, stored: &Stored| ObjectKey::new(id.namespace.clone(), self.membership(&stored.uid).0);
        let pods: Vec<(ObjectId, ObjectKey, bool)> = self
            .pods()
            .map(|(id, stored)| {
                let is_below = self.owner_uids(&stored.value).iter().any(|uid| edited.contains(uid));
                (id.clone(), key(id, stored), is_below)
            })
            .collect();
        let gangs: BTreeSet<ObjectKey> = pods.iter().filter(|(.., is_below)| *is_below).map(|(_, gang, _)| gang.clone()).collect();
        for gang in &gangs {
            self.derived.remove(gang);
            self.parts.remove(gang);
        }
        // All members: the other owners of a joint gang describe their parts again, too.
        for (pod, ..) in pods.iter().filter(|(_, gang, _)| gangs.contains(gang)) {
            self.feed_pod(pod);
        }
    }

    /// Tells the engine of a gang as its workload describes it, or the object of `scheduling.k8s.io` that its pods name.
    fn derive(&mut self, group: Group, is_core: bool, stored: &Stored) {
        let key = ObjectKey::new(group.namespace.clone(), group.name.clone());
        // Without its owner a PodGroup of the input knows more than its pods do.
        let unread = group.unread_owner.is_some() && self.objects.contains_key(&group_id(&key));
        // Of two descriptions of one gang the larger minimum counts; a part of a gang is weighed with its like.
        let is_part = group.part.is_some();
        if unread || (!is_part && !is_core && self.derived.get(&key).is_some_and(|old| old.outranks(&group))) {
            return;
        }
        let mut group = self.parts.entry(key.clone()).or_default().with(&group);
        let pool = self.options.node_pool.key();
        if let Some(value) = stored.value["metadata"]["labels"][pool].as_str() {
            group.labels.entry(pool.to_owned()).or_insert_with(|| value.to_owned());
        }
        let created = self.gangs.get(&key).map(|gang| gang.created);
        let created = created.or_else(|| self.owner_created(&stored.value)).unwrap_or(stored.created);
        self.derived.insert(key.clone(), group);
        self.feed_derived(&key, created, &stored.place);
    }

    /// The gang of a workload, with what people changed in its PodGroup when that is in the input too.
    fn feed_derived(&mut self, key: &ObjectKey, created: Millis, place: &Place) {
        let object = self.read::<PodGroup>(&group_id(key));
        let labels = object.as_ref().and_then(|object| object.metadata.labels.clone()).unwrap_or_default();
        let Some(group) = self.derived.get(key) else { return };
        // What the PodGroup says comes before its workload.
        let labels: BTreeMap<String, String> = group.labels.clone().into_iter().chain(labels).collect();
        if !self.is_of_our_pool(key, Some(&labels)) {
            return;
        }
        let Some(group) = self.derived.get(key) else { return };
        match convert::derived_gang_facts(group, object.as_ref(), &self.priorities) {
            Ok(mut facts) => {
                // In files an owner that is missing was left out, and with it what it asks for.
                let missing = group.unread_owner.iter().filter(|unread| unread.end == WalkEnd::Missing);
                facts.warnings.extend(missing.map(convert::unread_owner_fact));
                facts.created = created;
                if let Some(object) = &object {
                    facts.uid = convert::uid_of("PodGroup", &object.metadata);
                }
                self.feed_gang(facts, place);
            }
            Err(error) => self.skip(place, &error.object, &error.field, message_of(&error)),
        }
    }

    /// Whether a gang with these labels is seen; when not, it is gone for the engine.
    fn is_of_our_pool(&mut self, key: &ObjectKey, labels: Option<&BTreeMap<String, String>>) -> bool {
        let pool = &self.options.node_pool;
        if pool.holds(labels.and_then(|labels| labels.get(pool.key())).map(String::as_str)) {
            self.outside.remove(key);
            return true;
        }
        self.outside.insert(key.clone());
        if let Some(facts) = self.gangs.remove(key) {
            self.send(Event::GangDelete(facts.uid), &Place::default());
        }
        false
    }

    /// Takes a PodGroup out of the gangs. While pods of its workload are there, the gang is made again.
    pub(super) fn lose_group(&mut self, id: &ObjectId, stored: Stored) {
        let key = ObjectKey::new(id.namespace.clone(), id.name.clone());
        let known = self.gangs.remove(&key);
        let has_pods = self.pods().any(|(pod, stored)| pod.namespace == key.namespace && self.membership(&stored.uid).0 == key.name);
        match known {
            Some(known) if has_pods && self.derived.contains_key(&key) => self.feed_derived(&key, known.created, &stored.place),
            _ => {
                self.derived.remove(&key);
                self.send(Event::GangDelete(stored.uid), &stored.place);
            }
        }
    }
}

/// The PodGroup of a gang.
fn group_id(key: &ObjectKey) -> ObjectId {
    ObjectId { kind: "PodGroup".to_owned(), namespace: key.namespace.clone(), name: key.name.clone() }
}
