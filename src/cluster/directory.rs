//! Who belongs to which gang, as the writers (`bind`, `status`) and the release of half-bound gangs need it.
//!
//! One writer, the store; readers hold the lock for a look-up only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use berth_engine::facts::{Millis, ObjectKey};
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
    /// Reason and message of `PodScheduled=False`, when it is there.
    pub condition: Option<(String, String)>,
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
    /// Its pods by UID.
    pub members: BTreeMap<String, Member>,
}

/// All gangs by the engine's UID.
#[derive(Debug, Default)]
pub struct Directory {
    gangs: BTreeMap<String, Entry>,
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
