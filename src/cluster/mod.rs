//! IN: watches become engine events.
//!
//! `watch` turns API watches into a stream of [`Change`]s and survives whatever the server does; `store` is a plain,
//! synchronous state machine that keeps what is needed of each object, forms gangs, and answers with [`Effect`]s;
//! `ingest` joins the two. Nothing here writes to the API: effects that do are handed to `status`.

pub mod convert;
pub mod core_groups;
pub mod directory;
pub mod ingest;
pub mod list;
mod gangs;
mod held;
mod owners;
mod pod_gangs;
pub mod pool;
pub mod raw;
pub mod store;
#[cfg(test)]
mod tests;
pub mod watch;

use berth_engine::facts::{Event, ObjectKey};
use serde_json::Value;

use crate::grouping::ObjectId;

/// Group, version and kind, as owner references and watches name them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gvk {
    /// API group; empty for the core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

impl Gvk {
    /// From its parts.
    #[must_use]
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }
    /// From `apiVersion` and `kind`.
    #[must_use]
    pub fn parse(api_version: &str, kind: &str) -> Self {
        match api_version.split_once('/') {
            Some((group, version)) => Self::new(group, version, kind),
            None => Self::new("", api_version, kind),
        }
    }
    /// `apiVersion` of the two.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
    /// Group and kind: versions of one kind are one set of objects.
    #[must_use]
    pub fn group_kind(&self) -> (String, String) {
        (self.group.clone(), self.kind.clone())
    }
}

/// What a watch saw.
#[derive(Clone, Debug)]
pub enum Change {
    /// A list of the kind begins: what it does not contain is gone.
    ListStarted(Gvk),
    /// An object of that list.
    Listed(Gvk, Box<Value>),
    /// The list is complete.
    ListEnded(Gvk),
    /// The API server does not have the kind (now). Its objects are gone.
    Absent(Gvk),
    /// We may not watch the kind.
    Forbidden(Gvk),
    /// An object appeared or changed.
    Applied(Gvk, Box<Value>),
    /// An object is gone.
    Deleted(Gvk, Box<Value>),
    /// A single owner was asked for that is of a kind whose watch keeps no owners; here it is.
    Owner(Box<Value>),
    /// A single owner was asked for and can't be read: the walk ends below it.
    Unreadable(ObjectId, Unreadable),
    /// Time passed: look for what waits too long.
    Tick,
}

/// Why an owner can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It is gone, or the API server lacks its kind.
    Gone,
    /// We lack the permission: whether it makes its pods a gang is not known.
    Forbidden,
}

/// What the store wants done.
#[expect(clippy::large_enum_variant, reason = "nearly all are of the large variant, and none lives long")]
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Tell the engine.
    Engine(Event),
    /// Watch a kind of owners.
    Watch(Gvk),
    /// Read one owner, because its kind can't be watched, or is watched for something else.
    Fetch(ObjectId),
    /// Create a PodGroup.
    CreatePodGroup(ObjectKey, Box<Value>),
    /// Change a PodGroup (a merge patch), guarded by this UID.
    PatchPodGroup(ObjectKey, Box<Value>),
    /// An object could not be used: kind, object, field, message.
    Skipped {
        /// Kind of the object.
        kind: String,
        /// The object, such as `v1/Pod default/p`.
        object: String,
        /// What is wrong.
        message: String,
    },
}
