//! From a pod up to the workload that a person wrote. Pure over a lookup, so that files and caches use the same walk.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api::grouping_rule::GroupingRuleSpec;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::object::Object;
use super::pod_gang;

/// Longer chains are taken for a cycle: real ones have at most five.
const MAX_OWNERS: usize = 16;

/// Which object: everything that an owner reference says, and the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Group and version (`batch/v1`).
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

impl ObjectId {
    /// The identity of an object of any kind; what it lacks is empty.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
        }
    }

    /// The API group; empty for the core.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.rsplit_once('/').map_or("", |(group, _)| group)
    }

    /// The API version without the group.
    #[must_use]
    pub fn version(&self) -> &str {
        self.api_version.rsplit_once('/').map_or(&self.api_version, |(_, version)| version)
    }

    /// `Kind/name`, as people write it.
    #[must_use]
    pub fn display(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }
}

/// What a lookup knows about an owner.
#[derive(Clone, Debug)]
pub enum OwnerLookup {
    /// The object, whole, with `apiVersion` and `kind`.
    Found(Arc<Value>),
    /// There is no such object, or not yet.
    Missing,
    /// It may exist, but we may not read it.
    Forbidden,
}

/// Where owners are looked up: files, or caches of a cluster.
pub trait Owners {
    /// The object of this identity. One with the same name and another UID counts as missing; the walk checks that too.
    fn get(&self, id: &ObjectId) -> OwnerLookup;

    /// The rule that the cluster has for a kind.
    fn rule(&self, _group: &str, _kind: &str) -> Option<Arc<GroupingRuleSpec>> {
        None
    }

    /// The PodGang of Grove with this name.
    fn pod_gang(&self, _namespace: &str, _name: &str) -> Option<Arc<Value>> {
        None
    }
}

/// Why the walk ended before the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkEnd {
    /// The owner is not there: not yet seen, or already gone.
    Missing,
    /// We lack the permission to read its kind.
    Forbidden,
    /// Owners own each other.
    TooDeep,
}

/// An owner that is named and could not be read.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
#[error("owner {} ({}) in namespace {} {}", id.display(), id.api_version, id.namespace, match end {
    WalkEnd::Missing => "is missing",
    WalkEnd::Forbidden => "may not be read: the permission to get, list and watch its kind is missing",
    WalkEnd::TooDeep => "is beyond the longest chain of owners that is followed, probably a cycle",
})]
pub struct UnreadOwner {
    /// Which one.
    pub id: ObjectId,
    /// Why.
    pub end: WalkEnd,
}

/// The owners of a pod, nearest first.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// What could be read.
    pub owners: Vec<Arc<Value>>,
    /// The owner at which the walk stopped early.
    pub unread: Option<UnreadOwner>,
}

/// Follows the owner references of a pod to the top: the controller at each step, or else the first.
#[must_use]
pub fn walk(pod: &Pod, owners: &dyn Owners) -> Chain {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let mut chain = Chain::default();
    let mut next = owner_of_pod(pod, &namespace);
    while let Some(id) = next {
        let end = if chain.owners.len() < MAX_OWNERS {
            match owners.get(&id) {
                OwnerLookup::Found(object) if ObjectId::of(&object).uid == id.uid => {
                    next = owner_of(&object, &namespace);
                    chain.owners.push(object);
                    continue;
                }
                OwnerLookup::Found(_) | OwnerLookup::Missing => WalkEnd::Missing,
                OwnerLookup::Forbidden => WalkEnd::Forbidden,
            }
        } else {
            WalkEnd::TooDeep
        };
        chain.unread = Some(UnreadOwner { id, end });
        break;
    }
    chain
}

/// The owner that a pod names.
fn owner_of_pod(pod: &Pod, namespace: &str) -> Option<ObjectId> {
    let references = pod.metadata.owner_references.as_ref()?;
    let reference =
        references.iter().find(|reference| reference.controller == Some(true)).or_else(|| references.first())?;
    Some(ObjectId {
        api_version: reference.api_version.clone(),
        kind: reference.kind.clone(),
        namespace: namespace.to_owned(),
        name: reference.name.clone(),
        uid: reference.uid.clone(),
    })
}

/// The owner that an object of any kind names: its controller, or else the first.
#[must_use]
pub fn owner_of(object: &Value, namespace: &str) -> Option<ObjectId> {
    let references = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let is_controller = |reference: &&Value| reference.get("controller").and_then(Value::as_bool) == Some(true);
    let reference = references.iter().find(is_controller).or_else(|| references.first())?;
    let text = |key: &str| reference.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(ObjectId {
        api_version: text("apiVersion"),
        kind: text("kind"),
        namespace: namespace.to_owned(),
        name: text("name"),
        uid: text("uid"),
    })
}

/// Objects by UID: the lookup of everything that comes from files.
#[derive(Clone, Debug, Default)]
pub struct ObjectIndex {
    by_uid: BTreeMap<String, Arc<Value>>,
    rules: BTreeMap<(String, String), Arc<GroupingRuleSpec>>,
    pod_gangs: BTreeMap<(String, String), Arc<Value>>,
}

impl ObjectIndex {
    /// Adds the rule for a kind.
    pub fn insert_rule(&mut self, rule: GroupingRuleSpec) {
        self.rules.insert((rule.group.clone(), rule.kind.clone()), Arc::new(rule));
    }

    /// Adds an object; one without a UID can't be an owner and is left out, unless it is found by its name.
    pub fn insert(&mut self, object: Arc<Value>) {
        let id = ObjectId::of(&object);
        if pod_gang::is_pod_gang(&object) {
            self.pod_gangs.insert(pod_gang::key(&id.namespace, &id.name), Arc::clone(&object));
        }
        if !id.uid.is_empty() {
            self.by_uid.insert(id.uid, object);
        }
    }
}

impl FromIterator<Value> for ObjectIndex {
    fn from_iter<T: IntoIterator<Item = Value>>(objects: T) -> Self {
        let mut index = Self::default();
        for object in objects {
            index.insert(Arc::new(object));
        }
        index
    }
}

impl Owners for ObjectIndex {
    fn get(&self, id: &ObjectId) -> OwnerLookup {
        match self.by_uid.get(&id.uid) {
            Some(object) if Object::Owner(object).id().name == id.name => OwnerLookup::Found(Arc::clone(object)),
            _ => OwnerLookup::Missing,
        }
    }

    fn rule(&self, group: &str, kind: &str) -> Option<Arc<GroupingRuleSpec>> {
        self.rules.get(&(group.to_owned(), kind.to_owned())).cloned()
    }

    fn pod_gang(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.pod_gangs.get(&pod_gang::key(namespace, name)).cloned()
    }
}
