//! PodGroups of `scheduling.k8s.io` and the topologies that their keys are levels of: one memory for the store and
//! for `simulate`.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_engine::facts::{Event, LevelFacts, ObjectKey, TopologyFacts};
use serde_json::Value;

use super::raw;
use super::store::{Kind, KindState, Store};
use super::{Effect, Gvk};
use crate::grouping::{Group, core_group};

/// Start of the name of a topology that was made for one label; no object can have it.
const MADE: &str = "label:";

/// What is known of them.
#[derive(Debug, Default)]
pub struct CoreGroups {
    objects: BTreeMap<ObjectKey, Arc<Value>>,
    /// Topologies by UID, those made for a label included.
    topologies: BTreeMap<String, TopologyFacts>,
}

impl CoreGroups {
    /// Takes an object in; gives its key.
    pub fn applied(&mut self, object: &Value) -> ObjectKey {
        let key = raw::key(object);
        self.objects.insert(key.clone(), Arc::new(raw::trim_owner(object)));
        key
    }

    /// Takes it out; gives its key when it was the one with this UID.
    pub fn deleted(&mut self, uid: &str) -> Option<ObjectKey> {
        let key = self.objects.iter().find(|(_, object)| raw::uid(object) == uid).map(|(key, _)| key.clone())?;
        self.objects.remove(&key);
        Some(key)
    }

    /// Notes the levels of a topology. True when a label may now be found elsewhere.
    pub fn topology_applied(&mut self, facts: &TopologyFacts) -> bool {
        self.topologies.insert(facts.uid.clone(), facts.clone()).as_ref() != Some(facts) && !self.objects.is_empty()
    }

    /// Forgets a topology. True when a label may now be found elsewhere.
    pub fn topology_deleted(&mut self, uid: &str) -> bool {
        self.topologies.remove(uid).is_some() && !self.objects.is_empty()
    }

    /// Makes the gang of a pod the one that its scheduling group describes; gives a topology that must be told first.
    ///
    /// The key is a level of the default topology when that has it, or else of the first by name that has it; a key
    /// that is a level of none is a topology of its own, as it is for Kubernetes.
    pub fn apply(&mut self, group: &mut Group, name: &str) -> Option<Event> {
        let object = self.objects.get(&ObjectKey::new(group.namespace.clone(), name)).cloned();
        let label = core_group::apply(group, name, object.as_deref())?;
        let has_it = |facts: &&TopologyFacts| facts.levels.iter().any(|level| level.label == label);
        let made = |facts: &TopologyFacts| facts.name.starts_with(MADE);
        let found = self.topologies.values().filter(has_it).min_by_key(|facts| (made(facts), !facts.default, &facts.name));
        let (topology, told) = match found {
            Some(facts) => (facts.name.clone(), None),
            None => {
                let name = format!("{MADE}{label}");
                let levels = vec![LevelFacts { label: label.clone(), alias: None }];
                let facts = TopologyFacts { uid: name.clone(), name: name.clone(), levels, default: false };
                self.topologies.insert(name.clone(), facts.clone());
                (name, Some(Event::TopologyUpsert(facts)))
            }
        };
        core_group::require(group, topology, label);
        told
    }
}

impl Store {
    /// Sees to it that PodGroups of `scheduling.k8s.io` are watched once a pod names one: a server without them is not
    /// asked for them all the time. True while they are listed.
    pub(super) fn await_core_group(&mut self, uid: &str) -> bool {
        if self.pods.get(uid).is_none_or(|entry| entry.core_group.is_none()) {
            return false;
        }
        let state = self.state(core_group::API_GROUP, "PodGroup");
        if state.is_none() {
            let gvk = Gvk::new(core_group::API_GROUP, core_group::VERSIONS[0], "PodGroup");
            self.kinds.insert(gvk.group_kind(), Kind::new());
            self.effects.push(Effect::Watch(gvk));
        }
        matches!(state, None | Some(KindState::Syncing))
    }

    /// Finds the gangs of pods again that name a PodGroup of `scheduling.k8s.io`.
    pub(super) fn regroup_core(&mut self) {
        let named = self.pods.iter().filter(|(_, entry)| entry.core_group.is_some());
        for pod in named.map(|(uid, _)| uid.clone()).collect::<Vec<_>>() {
            self.regroup(&pod);
        }
    }
}

/// What a pod depends on besides the UIDs of its owners; no UID looks like this.
pub(super) fn core_dependency(key: &ObjectKey) -> String {
    format!("{}/{}/{}", core_group::API_GROUP, key.namespace, key.name)
}
