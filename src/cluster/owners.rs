//! The owners part of the store: which are known, which are still to come, and which can't be read.
//!
//! Kinds are watched from the first pod that names them on. Where that is not allowed each owner is read, and again when its
//! pods bring news or now and then; where that is
//! not allowed either its pods wait, because nobody can say whether they are a gang, and the permission is asked for again
//! now and then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_api::grouping_rule::GroupingRuleSpec;
use berth_engine::facts::{Millis, ObjectKey, Problem, ProblemCode};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::core_groups::core_dependency;
use super::pod_gangs::pod_gang_dependency;
use super::raw;
use super::store::{Bad, Kind, KindState, Store, is_base_kind};
use super::{Effect, Gvk, Unreadable};
use crate::grouping::{Group, ObjectId, OwnerLookup, Owners, WalkEnd, pod_gang};

/// An owner that a complete watch does not show within this time is gone: the walk ends below it.
const OWNER_PATIENCE_MILLIS: Millis = 10_000;

/// How often one owner of a kind and namespace that may not be read is asked for again: soon enough for a person who has just
/// granted the permission, and next to nothing for the API server.
const ASK_AGAIN_MILLIS: Millis = 30_000;

/// An owner of a kind that may not be watched is read again when one of its pods brings news, but not more often than this:
/// its pods come by the dozen when it is scaled.
const FRESH_MILLIS: Millis = 5_000;

/// Such an owner is read again after this time at the latest: an edit that touches no pod is seen then.
const READ_AGAIN_MILLIS: Millis = 300_000;

/// Owners read again for their age in one tick, a second: a few in a hundred of what may be read at a time.
const READS_PER_TICK: usize = 4;

/// Owners followed at most, as in grouping: a longer chain is a cycle, and none of it is still to come.
const MAX_CHAIN: usize = 16;

/// An owner that can't be read.
struct Blind {
    id: ObjectId,
    why: Unreadable,
    /// When that was found.
    since: Millis,
}

impl Blind {
    fn is_forbidden_like(&self, id: &ObjectId) -> bool {
        let same = self.id.kind == id.kind && self.id.group() == id.group() && self.id.namespace == id.namespace;
        same && self.why == Unreadable::Forbidden
    }
}

/// Owners by UID, and those that can't be read.
#[derive(Default)]
pub(super) struct OwnerCache {
    by_uid: BTreeMap<String, Arc<Value>>,
    /// When each owner of a kind that may not be watched was read.
    read_at: BTreeMap<String, Millis>,
    blind: BTreeMap<String, Blind>,
    /// PodGangs of Grove by namespace and name.
    pub(super) pod_gangs: BTreeMap<(String, String), Arc<Value>>,
    /// Grouping rules by the UID of their object; of two for one kind the one of the lower UID counts, whatever came first.
    pub(super) rules: BTreeMap<String, Arc<GroupingRuleSpec>>,
}

impl Owners for OwnerCache {
    fn rule(&self, group: &str, kind: &str) -> Option<Arc<GroupingRuleSpec>> {
        self.rules.values().find(|rule| rule.group == group && rule.kind == kind).cloned()
    }

    fn pod_gang(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.pod_gangs.get(&pod_gang::key(namespace, name)).cloned()
    }

    fn get(&self, id: &ObjectId) -> OwnerLookup {
        match (self.by_uid.get(&id.uid), self.blind.get(&id.uid)) {
            (Some(object), _) => OwnerLookup::Found(Arc::clone(object)),
            (None, Some(Blind { why: Unreadable::Forbidden, .. })) => OwnerLookup::Forbidden,
            (None, _) => OwnerLookup::Missing,
        }
    }
}

impl OwnerCache {
    pub(super) fn remove(&mut self, uid: &str) {
        self.by_uid.remove(uid);
        self.read_at.remove(uid);
    }

    /// Whether the walk ends at this owner, as far as is known.
    fn ends_walk(&self, uid: &str) -> bool {
        self.blind.contains_key(uid)
    }

    /// UIDs of the owners of the same kind and namespace that may not be read.
    fn forbidden_like(&self, id: &ObjectId) -> Vec<String> {
        self.blind.iter().filter(|(_, blind)| blind.is_forbidden_like(id)).map(|(uid, _)| uid.clone()).collect()
    }
}

/// The mistake that keeps the pods of an owner waiting which may not be read.
pub(super) fn forbidden_owner(group: &Group) -> Option<Problem> {
    let unread = group.unread_owner.as_ref().filter(|unread| unread.end == WalkEnd::Forbidden)?;
    let id = &unread.id;
    let kind = if id.group().is_empty() { id.kind.clone() } else { format!("{} ({})", id.kind, id.group()) };
    Some(Problem {
        code: ProblemCode::OwnerForbidden,
        object: id.display(),
        key: format!("the permission of Berth to get, list and watch {kind}"),
        value: "missing".to_owned(),
        allowed: "a role that grants it, see berth generate rbac".to_owned(),
    })
}

impl Store {
    /// Follows the owners of a pod and remembers them. True when one is still to come.
    pub(super) fn walk(&mut self, uid: &str, pod: &Pod) -> bool {
        let mut chain = crate::grouping::walk(pod, &self.owners);
        while let Some(leader) = chain.unread.as_ref().and_then(|unread| self.pod_as_owner(&unread.id)) {
            self.owners.by_uid.insert(raw::uid(&leader).to_owned(), Arc::new(leader));
            chain = crate::grouping::walk(pod, &self.owners);
        }
        for owner in &chain.owners {
            self.refresh(raw::uid(owner), FRESH_MILLIS);
        }
        let mut known: Vec<String> = chain.owners.iter().map(|owner| raw::uid(owner).to_owned()).collect();
        let missing = chain.unread.map(|unread| unread.id).filter(|id| {
            known.push(id.uid.clone());
            !self.owners.ends_walk(&id.uid) && known.len() < MAX_CHAIN
        });
        let missing = missing.filter(|id| self.await_owner(id));
        let waits = missing.is_some();
        let named = self.pods.get(uid).and_then(|entry| entry.core_group.as_ref());
        known.extend(pod_gang::named(pod).map(|name| pod_gang_dependency(&raw::pod_key(pod).namespace, name)));
        known.extend(named.map(|name| core_dependency(&ObjectKey::new(raw::pod_key(pod).namespace, name.clone()))));
        self.set_dependencies(uid, known, missing);
        waits
    }

    /// A pod of ours that owns others, if the walk stopped at it for the first time.
    fn pod_as_owner(&self, id: &ObjectId) -> Option<Value> {
        let is_pod = id.group().is_empty() && id.kind == "Pod";
        let entry = self.pods.get(&id.uid).filter(|_| is_pod && !self.owners.by_uid.contains_key(&id.uid))?;
        Some(raw::pod_as_owner(&serde_json::to_value(&entry.pod.metadata).ok()?))
    }

    /// Sees to it that an owner arrives. False when it can't.
    fn await_owner(&mut self, id: &ObjectId) -> bool {
        match self.state(id.group(), &id.kind) {
            None => {
                let gvk = Gvk::new(id.group(), id.version(), &id.kind);
                self.kinds.insert(gvk.group_kind(), Kind::new());
                self.effects.push(Effect::Watch(gvk));
            }
            Some(KindState::Absent) => {
                self.note_blind(id.clone(), Unreadable::Gone);
                return false;
            }
            Some(KindState::Forbidden) => self.fetch(id),
            // The watch has shown it, or will soon; what it showed was not kept as an owner.
            Some(KindState::Synced) if is_base_kind(id.group(), &id.kind) => self.fetch(id),
            Some(KindState::Syncing | KindState::Synced) => {}
        }
        true
    }

    /// Reads an owner again that was read and is not watched, when that was so long ago. True when it is.
    fn refresh(&mut self, uid: &str, age: Millis) -> bool {
        let is_old = self.owners.read_at.get(uid).is_some_and(|at| age <= self.now - at);
        let id = self.owners.by_uid.get(uid).filter(|_| is_old).map(|owner| ObjectId::of(owner));
        let Some(id) = id.filter(|id| self.state(id.group(), &id.kind) == Some(KindState::Forbidden)) else { return false };
        self.fetch(&id);
        true
    }

    fn fetch(&mut self, id: &ObjectId) {
        if self.fetching.insert(id.uid.clone()) {
            self.effects.push(Effect::Fetch(id.clone()));
        }
    }

    fn note_blind(&mut self, id: ObjectId, why: Unreadable) -> Option<Unreadable> {
        let blind = Blind { id, why, since: self.now };
        self.owners.blind.insert(blind.id.uid.clone(), blind).map(|before| before.why)
    }

    fn set_dependencies(&mut self, uid: &str, owners: Vec<String>, missing: Option<ObjectId>) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let before = std::mem::replace(&mut entry.owners, owners.clone());
        let waited = entry.waiting.take();
        entry.waiting = missing.map(|missing| match waited {
            Some((same, since)) if same.uid == missing.uid => (same, since),
            _ => (missing, self.now),
        });
        if before == owners {
            return;
        }
        for owner in before {
            if let Some(pods) = self.dependents.get_mut(&owner) {
                pods.remove(uid);
                if pods.is_empty() {
                    self.dependents.remove(&owner);
                }
            }
        }
        for owner in owners {
            self.dependents.entry(owner).or_default().insert(uid.to_owned());
        }
    }

    /// The pod depends on no owner any more.
    pub(super) fn forget_dependencies(&mut self, uid: &str) {
        self.set_dependencies(uid, Vec::new(), None);
    }

    pub(super) fn owner_applied(&mut self, uid: String, object: &Value) {
        let is_pod = (raw::text(object, "/apiVersion"), raw::text(object, "/kind")) == ("v1", "Pod");
        let trimmed = if is_pod { raw::pod_as_owner(&object["metadata"]) } else { raw::trim_owner(object) };
        self.fetching.remove(&uid);
        let blind = self.owners.blind.remove(&uid);
        let id = ObjectId::of(&trimmed);
        if self.state(id.group(), &id.kind) == Some(KindState::Forbidden) {
            self.owners.read_at.insert(uid.clone(), self.now);
        }
        if blind.is_none() && self.owners.by_uid.get(&uid).is_some_and(|owner| **owner == trimmed) {
            return;
        }
        self.owners.by_uid.insert(uid.clone(), Arc::new(trimmed));
        if let Some(blind) = blind.filter(|blind| blind.why == Unreadable::Forbidden)
            && self.state(blind.id.group(), &blind.id.kind) == Some(KindState::Forbidden)
        {
            // This one may be read now: so may those beside it.
            for other in self.owners.forbidden_like(&blind.id) {
                if let Some(id) = self.owners.blind.get(&other).map(|blind| blind.id.clone()) {
                    self.fetch(&id);
                }
            }
        }
        self.regroup_dependents(&uid);
    }

    /// The answer about an owner that no watch keeps.
    pub(super) fn owner_read(&mut self, object: &Value) {
        let uid = raw::uid(object).to_owned();
        self.fetching.remove(&uid);
        if self.dependents.contains_key(&uid) && !self.owners.by_uid.contains_key(&uid) {
            self.owner_applied(uid, object);
        }
    }

    pub(super) fn regroup_dependents(&mut self, owner: &str) {
        for pod in self.dependents.get(owner).cloned().unwrap_or_default() {
            self.regroup(&pod);
        }
    }

    pub(super) fn end_walk_at(&mut self, id: ObjectId, why: Unreadable) {
        self.fetching.remove(&id.uid);
        if self.owners.by_uid.contains_key(&id.uid) {
            // What was read before still is the best that is known.
            self.owners.read_at.entry(id.uid).and_modify(|at| *at = self.now);
            return;
        }
        if why == Unreadable::Forbidden {
            // One answer stands for all of its kind and namespace until it is time to ask again.
            for other in self.owners.forbidden_like(&id) {
                self.owners.blind.entry(other).and_modify(|blind| blind.since = self.now);
            }
            let object = format!("{}/{} {}/{}", id.api_version, id.kind, id.namespace, id.name);
            let message = "it may not be read: its pods wait, and so do those of others of its kind in the namespace".to_owned();
            self.skip(&id.kind, &format!("forbidden|{}|{}|{}", id.group(), id.kind, id.namespace), Bad { object, message });
        }
        if self.note_blind(id.clone(), why) != Some(why) {
            self.regroup_dependents(&id.uid);
        }
    }

    /// A kind is listed: what could not be read of it is shown by the list, or gone.
    pub(super) fn look_again_at(&mut self, gvk: &Gvk) {
        let of_kind = |blind: &Blind| {
            blind.why == Unreadable::Forbidden && blind.id.kind == gvk.kind && blind.id.group() == gvk.group
        };
        let uids: Vec<String> = self.owners.blind.iter().filter(|(_, b)| of_kind(b)).map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            self.owners.blind.remove(&uid);
            self.regroup_dependents(&uid);
        }
    }

    pub(super) fn tick_owners(&mut self) {
        let mut gone = BTreeMap::new();
        for (owner, since) in self.pods.values().filter_map(|entry| entry.waiting.as_ref()) {
            let synced = self.state(owner.group(), &owner.kind) == Some(KindState::Synced);
            if synced && self.now - since >= OWNER_PATIENCE_MILLIS {
                gone.insert(owner.uid.clone(), owner.clone());
            }
        }
        for id in gone.into_values() {
            self.end_walk_at(id, Unreadable::Gone);
        }
        self.forget_owners_without_pods();
        let mut oldest: Vec<(Millis, String)> = self.owners.read_at.iter().map(|(uid, at)| (*at, uid.clone())).collect();
        oldest.sort_unstable();
        for (_, uid) in oldest.into_iter().take(READS_PER_TICK) {
            self.refresh(&uid, READ_AGAIN_MILLIS);
        }
        let mut asked = BTreeMap::new();
        for blind in self.owners.blind.values() {
            let state = self.state(blind.id.group(), &blind.id.kind);
            let due = blind.why == Unreadable::Forbidden && self.now - blind.since >= ASK_AGAIN_MILLIS;
            if due && state == Some(KindState::Forbidden) {
                let id = &blind.id;
                asked.entry((id.group(), id.kind.as_str(), id.namespace.as_str())).or_insert_with(|| id.clone());
            }
        }
        for id in asked.into_values().collect::<Vec<ObjectId>>() {
            self.fetch(&id);
        }
    }

    /// What is known of owners that no pod names any more is forgotten, unless a watch keeps it.
    fn forget_owners_without_pods(&mut self) {
        let dependents = &self.dependents;
        self.owners.blind.retain(|uid, _| dependents.contains_key(uid));
        self.fetching.retain(|uid| dependents.contains_key(uid));
        for kind in self.kinds.values_mut().filter(|kind| kind.state == KindState::Forbidden) {
            let (kept, gone): (BTreeSet<String>, _) =
                std::mem::take(&mut kind.uids).into_iter().partition(|uid| dependents.contains_key(uid));
            kind.uids = kept;
            for uid in gone {
                self.owners.by_uid.remove(&uid);
                self.owners.read_at.remove(&uid);
            }
        }
    }
}
