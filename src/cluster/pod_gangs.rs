//! The part of the store for PodGangs of Grove: watched once a pod names one, read over the PodCliqueSet of its pods, and
//! given the score of their placement. Without the right to read them the gang is what its set says, and says so.

use std::sync::Arc;

use berth_api::keys;
use berth_engine::facts::{Event, ObjectKey, Problem, ProblemCode};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::directory::PodGangEntry;
use super::raw;
use super::store::{Kind, KindState, Store};
use super::{Effect, Gvk};
use crate::grouping::{Group, pod_gang};

/// What a pod depends on besides the UIDs of its owners; no UID looks like this.
pub(super) fn pod_gang_dependency(namespace: &str, name: &str) -> String {
    format!("{}/{namespace}/{name}", pod_gang::API_GROUP)
}

impl Store {
    fn pod_gangs_state(&self) -> Option<KindState> {
        self.state(pod_gang::API_GROUP, pod_gang::KIND)
    }

    /// Sees to it that PodGangs of Grove are watched once a pod names one. True while they are listed.
    pub(super) fn await_pod_gang(&mut self, pod: &Pod) -> bool {
        if pod_gang::named(pod).is_none() {
            return false;
        }
        let state = self.pod_gangs_state();
        if state.is_none() {
            let gvk = Gvk::new(pod_gang::API_GROUP, pod_gang::VERSION, pod_gang::KIND);
            self.kinds.insert(gvk.group_kind(), Kind::new());
            self.effects.push(Effect::Watch(gvk));
        }
        matches!(state, None | Some(KindState::Syncing))
    }

    /// A PodGang is there, or says something else.
    pub(super) fn pod_gang_applied(&mut self, object: &Value) {
        let (key, trimmed) = (raw::key(object), Arc::new(raw::trim_owner(object)));
        let slot = pod_gang::key(&key.namespace, &key.name);
        let uid = raw::uid(object).to_owned();
        let score = object.pointer("/status/placementScore").cloned().unwrap_or_default();
        let is_new = self.directory.lock().put_pod_gang(key.clone(), PodGangEntry { uid, score });
        let before = self.owners.pod_gangs.insert(slot, Arc::clone(&trimmed));
        // Its status is written all the time.
        if before.is_none_or(|before| before != trimmed) {
            self.regroup_dependents(&pod_gang_dependency(&key.namespace, &key.name));
        }
        if is_new {
            self.tell_gangs_of(&key);
        }
    }

    /// What is known of the placement is to be written to an object that was not there.
    fn tell_gangs_of(&mut self, key: &ObjectKey) {
        let is_of = |group: &Group| group.namespace == key.namespace && group.pod_gang.as_ref() == Some(&key.name);
        let told = self.gangs.values().filter(|gang| gang.group().is_some_and(is_of));
        let told: Vec<_> = told.filter_map(|gang| gang.told.clone()).collect();
        told.into_iter().for_each(|facts| self.tell(Event::GangUpsert(facts)));
    }

    /// A PodGang is gone, unless another has taken its name.
    pub(super) fn pod_gang_deleted(&mut self, uid: &str) {
        let of_uid = |(_, object): &(&(String, String), &Arc<Value>)| raw::uid(object) == uid;
        let Some(key) = self.owners.pod_gangs.iter().find(of_uid).map(|(key, _)| key.clone()) else { return };
        self.owners.pod_gangs.remove(&key);
        self.directory.lock().remove_pod_gang(uid);
        self.regroup_dependents(&pod_gang_dependency(&key.0, &key.1));
    }

    /// The PodGangs are listed, or can't be: pods that name one go on.
    pub(super) fn regroup_pod_gangs(&mut self) {
        let named = self.pods.iter().filter(|(_, entry)| pod_gang::named(&entry.pod).is_some());
        for pod in named.map(|(uid, _)| uid.clone()).collect::<Vec<_>>() {
            self.regroup(&pod);
        }
    }

    /// The warning of a gang whose PodGang can't be read.
    pub(super) fn unread_pod_gang(&self, group: &Group) -> Option<Problem> {
        let name = group.pod_gang.as_ref()?;
        let allowed = match self.pod_gangs_state()? {
            KindState::Forbidden => "a PodGang that may be read: the permission to list and watch PodGang (scheduler.grove.io) is missing",
            KindState::Absent => "a PodGang that can be read: the API server does not serve PodGang (scheduler.grove.io)",
            KindState::Syncing | KindState::Synced => return None,
        };
        Some(Problem {
            code: ProblemCode::UnreadPodGang,
            object: String::new(),
            key: keys::GROVE_POD_GANG.to_owned(),
            value: name.clone(),
            allowed: allowed.to_owned(),
        })
    }
}
