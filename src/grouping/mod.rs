//! Which gang a pod belongs to, and what that gang asks for.
//!
//! A pod's owners are followed to the top ([`owners::walk`]); the kind of the top owner picks one pure function from the
//! table in [`kinds`], which says the gang's name, minimum, subgroups, rules and queue, and which member the pod is. The
//! same workload, pod and context always give the same group. Guarantees: nothing is guessed (a value that can't be used
//! is a [`GroupProblem`]) and nothing recognised is dropped (what is not built is in `unsupported`).
//!
//! It does not know: topologies (whether a level exists, which is the lowest), nodes, a client, a clock.

mod compat;
pub mod core_group;
mod defaults;
pub mod expand;
mod joint;
pub mod kind_defaults;
pub mod kinds;
pub mod leaders;
mod object;
pub mod owners;
pub mod pod_gang;
pub mod problem;
pub mod rules;
mod segments;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_api::keys;
use berth_api::pod_group::PodGroupSpec;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use self::object::Object;
pub use self::joint::{Part, Parts, merge};
pub use self::owners::{Chain, ObjectId, ObjectIndex, OwnerLookup, Owners, UnreadOwner, WalkEnd, walk};
pub use self::problem::{GroupProblem, ProblemCode};

/// The priority classes that an installation of KAI Scheduler brings, for clusters that are only files.
pub const INSTALLED_PRIORITY_CLASSES: [(&str, i32); 4] =
    [("train", 50), ("build-preemptible", 75), ("build", 100), ("inference", 125)];

/// The classes that every cluster has.
const SYSTEM_PRIORITY_CLASSES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Priority when neither a class nor a global default says one.
const FALLBACK_PRIORITY: i32 = 50;

/// What grouping must know of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct GroupingContext<'a> {
    /// Values of the priority classes, by name.
    pub priority_classes: &'a BTreeMap<String, i32>,
    /// Name of the class that is the global default, if there is one.
    pub global_default: Option<&'a str>,
    /// What workloads of a kind have that name no class and no preemptibility.
    pub kind_defaults: &'a kind_defaults::KindDefaults,
    /// Read workloads as KAI Scheduler does, also where Berth differs on purpose.
    pub compat_kai: bool,
}

impl GroupingContext<'_> {
    /// The value of a priority class, if it exists.
    #[must_use]
    pub fn priority_class(&self, name: &str) -> Option<i32> {
        let system = || SYSTEM_PRIORITY_CLASSES.iter().find(|(class, _)| *class == name).map(|(_, value)| *value);
        self.priority_classes.get(name).copied().or_else(system)
    }

    /// The priority of a gang: its class, or else the global default, or else 50.
    #[must_use]
    pub fn priority(&self, spec: &PodGroupSpec) -> i32 {
        let named = spec.priority_class_name.as_deref().and_then(|name| self.priority_class(name));
        named.or_else(|| self.global_default.and_then(|name| self.priority_class(name))).unwrap_or(FALLBACK_PRIORITY)
    }
}

/// The gang of a pod, as its workload describes it, and the pod's place in it.
///
/// Everything but the fields named "of the pod" is the same for all pods of a group, but where pods
/// wait for others to be created (a leader's followers, a launcher): then the pod that asks for more counts
/// ([`Group::outranks`]).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Namespace of the pod and of its PodGroup.
    pub namespace: String,
    /// Name of the PodGroup.
    pub name: String,
    /// The object that owns the PodGroup: when it goes, the PodGroup goes.
    pub owner: ObjectId,
    /// Of a gang of several owners the others: the PodGroup goes with the last of them.
    pub further_owners: Vec<ObjectId>,
    /// The workload that a person wrote; often the same as the owner.
    pub workload: ObjectId,
    /// Labels of the PodGroup.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the PodGroup.
    pub annotations: BTreeMap<String, String>,
    /// What the gang asks for.
    pub spec: PodGroupSpec,
    /// Subgroups that prefer the lowest level of their topology, because segments were asked for and nothing else was said.
    pub auto_preferred: BTreeSet<String>,
    /// Topology of those subgroups; absent is the default topology.
    pub auto_preferred_topology: Option<String>,
    /// Of a workload whose parts begin one after the other: how many began before those that are described.
    pub step: usize,
    /// Pods of leaves that are created later, for which the gang's domains must have room.
    pub awaited: Vec<Awaited>,
    /// Mistakes that keep the gang pending.
    pub problems: Vec<GroupProblem>,
    /// Mistakes that change nothing about where it can run, so that it runs without what they meant.
    pub warnings: Vec<GroupProblem>,
    /// Keys that are recognised and not built; they keep the pod pending.
    pub unsupported: Vec<String>,
    /// The owner that could not be read, so that the group may be too small.
    pub unread_owner: Option<UnreadOwner>,
    /// Name of the PodGang of Grove that the gang is.
    pub pod_gang: Option<String>,
    /// What this is to a gang of several owners; then [`merge`] makes the gang of all parts.
    pub part: Option<Part>,
    /// Of the pod: its leaf.
    pub subgroup: Option<String>,
    /// Of the pod: its rank within the gang.
    pub index: Option<u32>,
    /// Of the pod: it goes first within its gang.
    pub leader: bool,
    /// Of the pod: why it can't be placed, although the rest of the gang can.
    pub pod_problem: Option<GroupProblem>,
}

impl Group {
    /// Whether pods of this gang wait for each other. Without it they are placed one by one.
    #[must_use]
    pub fn is_gang(&self) -> bool {
        self.spec.min_member.is_some_and(|minimum| 1 < minimum) || 1 < self.leaves_minimum()
    }

    /// The pods that all leaves ask for together.
    fn leaves_minimum(&self) -> i32 {
        self.spec.sub_groups.iter().map(|leaf| leaf.min_member.unwrap_or(0)).fold(0, i32::saturating_add)
    }

    /// Of two descriptions of one group, by different pods, whether this one counts: the later step does, or the larger
    /// minimum.
    #[must_use]
    pub fn outranks(&self, other: &Self) -> bool {
        let rank = |group: &Self| (group.step, group.spec.min_member, group.leaves_minimum());
        rank(other) < rank(self)
    }
}

/// Pods of a leaf that are created later.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Awaited {
    /// The leaf; empty in a gang without subgroups.
    pub leaf: String,
    /// How many pods the leaf has once all are there.
    pub n_pods: i32,
    /// The gang is of no use without them. Otherwise it only prefers to begin where they fit.
    pub needed: bool,
    /// Their template; `None` is as the pods that are there.
    pub template: Option<Value>,
}

/// What grouping says about a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Grouping {
    /// Berth keeps its PodGroup.
    Group(Box<Group>),
    /// Somebody else keeps it: the pod or an owner says so, or a pod without owners names one.
    External(Box<External>),
}

/// A pod whose PodGroup is written by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// Namespace of both.
    pub namespace: String,
    /// Name of the PodGroup; absent while nobody has named one.
    pub name: Option<String>,
    /// Leaf that the pod names.
    pub subgroup: Option<String>,
    /// Rank of the pod, where its labels say one.
    pub index: Option<u32>,
    /// The pod goes first within its gang.
    pub leader: bool,
    /// The workload that a person wrote.
    pub workload: ObjectId,
    /// Keys that are recognised and not built; they keep the pod pending.
    pub unsupported: Vec<String>,
}

/// A pod, its owners and the cluster: what a kind's function sees.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its owners, nearest first; empty for a pod of its own.
    pub owners: &'a [Arc<Value>],
    /// What is known of the cluster.
    pub context: &'a GroupingContext<'a>,
    /// Where the cluster's rules are looked up.
    pub(crate) lookup: Lookup<'a>,
}

/// The lookup of owners, of which a kind's function sees the rules only.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a>(&'a dyn Owners);

impl std::fmt::Debug for Lookup<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lookup")
    }
}

impl<'a> Input<'a> {
    /// The group of a pod whose top owner is this: by its code, or a rule of the cluster, or a rule that comes with the
    /// program.
    pub(crate) fn group_by(&self, top: &Value) -> Group {
        let id = ObjectId::of(top);
        if let Some(kind) = kinds::find(id.group(), &id.kind) {
            return (kind.group_pod)(self);
        }
        let own = self.lookup.0.rule(id.group(), &id.kind);
        match own.as_deref().or_else(|| rules::builtin(id.group(), &id.kind)) {
            Some(rule) => rules::group(self, rule),
            None => kinds::generic::group(self),
        }
    }

    /// The top owner, or the pod itself.
    pub(crate) fn top(&self) -> Object<'a> {
        self.owners.last().map_or(Object::Pod(self.pod), |owner| Object::Owner(owner))
    }

    /// The nearest owner of a kind.
    pub(crate) fn nearest(&self, kind: &str) -> Option<Object<'a>> {
        let of_kind = |owner: &&Arc<Value>| owner.get("kind").and_then(Value::as_str) == Some(kind);
        self.owners.iter().find(of_kind).map(|owner| Object::Owner(owner))
    }

    /// The PodGang that the pod names.
    pub(crate) fn pod_gang(&self) -> Option<Arc<Value>> {
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        self.lookup.0.pod_gang(namespace, pod_gang::named(self.pod)?)
    }

    /// A label of the pod.
    pub(crate) fn pod_label(&self, key: &str) -> Option<&'a str> {
        Object::Pod(self.pod).labels().get(key)
    }

    /// A label of the pod that must be an index, below a bound.
    pub(crate) fn pod_index(&self, key: &str) -> Result<u32, GroupProblem> {
        let value = self.pod_label(key);
        value.and_then(|value| value.parse().ok()).ok_or_else(|| self.bad_label(key, value, "an integer from 0 on"))
    }

    /// The problem of a label that is missing or unusable.
    pub(crate) fn bad_label(&self, key: &str, value: Option<&str>, allowed: &str) -> GroupProblem {
        let object = Object::Pod(self.pod).display();
        match value {
            Some(value) => GroupProblem::text(ProblemCode::InvalidMemberLabel, object, key, value, allowed),
            None => GroupProblem {
                code: ProblemCode::InvalidMemberLabel,
                object,
                key: key.to_owned(),
                value: "missing".to_owned(),
                allowed: allowed.to_owned(),
            },
        }
    }
}

/// Finds the group of a pod.
#[must_use]
pub fn group_pod(pod: &Pod, owners: &dyn Owners, context: &GroupingContext<'_>) -> Grouping {
    let mut chain = walk(pod, owners);
    let stub = match &chain.unread {
        Some(unread) if chain.owners.is_empty() => Some(stub(&unread.id)),
        _ => None,
    };
    let is_stub = stub.is_some();
    chain.owners.extend(stub.map(Arc::new));
    let as_kai = context.compat_kai.then(|| compat::read(pod, &mut chain.owners));
    let input = Input { pod: as_kai.as_ref().map_or(pod, |as_kai| &as_kai.pod), owners: &chain.owners, context, lookup: Lookup(owners) };
    let mut group = match input.owners.last() {
        None => kinds::pod::group(&input),
        // Of an owner that can't be read, only who belongs together is known.
        Some(_) if is_stub => kinds::generic::group(&input),
        Some(top) => input.group_by(top),
    };
    if let Some(as_kai) = &as_kai {
        compat::group(&mut group, as_kai, chain.owners.last());
    }
    joint::join(&mut group, &input);
    if group.namespace.is_empty() {
        group.namespace = "default".to_owned();
    }
    group.unread_owner = chain.unread.clone();
    group.leader = leaders::leads(pod);

    let annotations = Object::Pod(pod).annotations();
    let named = annotations.get(keys::POD_GROUP);
    let skip = |object: Object<'_>| object.annotations().get(keys::SKIP_POD_GROUPER) == Some(keys::TRUE);
    let is_skipped = skip(Object::Pod(pod)) || chain.owners.iter().any(|owner| skip(Object::Owner(owner)));
    let is_own = chain.owners.is_empty() && named.is_some_and(|named| named != group.name);
    if !(is_skipped || is_own) {
        return Grouping::Group(Box::new(group));
    }
    Grouping::External(Box::new(External {
        namespace: group.namespace,
        name: named.map(str::to_owned),
        subgroup: input.pod_label(keys::SUB_GROUP).map(str::to_owned),
        index: group.index,
        leader: group.leader,
        workload: group.workload,
        unsupported: defaults::device_sharing(pod),
    }))
}

/// What an owner reference alone says of an owner.
fn stub(id: &ObjectId) -> Value {
    json!({
        "apiVersion": id.api_version,
        "kind": id.kind,
        "metadata": {"name": id.name, "namespace": id.namespace, "uid": id.uid},
    })
}
