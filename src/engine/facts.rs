//! What the outside tells the engine: plain facts about objects, and the
//! events that carry them.
//!
//! Facts hold strings and integers only; the world interns them on arrival.
//! Units are fixed by name: `cpu` in milli-cores, `memory` and
//! `ephemeral-storage` in bytes, every other resource in whole units; time is
//! milliseconds since the epoch. This file does not know Kubernetes types.

use std::collections::{BTreeMap, BTreeSet};

use crate::policy::Objective;

pub use crate::problem::{Problem, ProblemCode};

/// Milliseconds since the Unix epoch (or since the start of a simulation).
pub type Millis = i64;

/// Amounts by resource name; see the module text for units.
pub type Amounts = BTreeMap<String, i64>;

/// Namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectKey {
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// A key from its two parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// New pods stay away.
    NoSchedule,
    /// New pods stay away when there is room elsewhere.
    PreferNoSchedule,
    /// New pods stay away, running ones are removed.
    NoExecute,
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// The taint's key.
    pub key: String,
    /// Its value; empty when none.
    pub value: String,
    /// What it does.
    pub effect: TaintEffect,
}

/// A toleration of a pod, as in the core API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// The key; empty (with `Exists`) matches every taint.
    pub key: String,
    /// How the value is compared.
    pub operator: TolerationOperator,
    /// The value that `Equal`, `Lt` and `Gt` compare with.
    pub value: String,
    /// `None` matches every effect.
    pub effect: Option<TaintEffect>,
}

/// How a toleration compares values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TolerationOperator {
    /// Any value.
    Exists,
    /// The same value.
    Equal,
    /// The taint's integer is below the toleration's.
    Lt,
    /// The taint's integer is above the toleration's.
    Gt,
}

/// A node, as the scheduler needs it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NodeFacts {
    /// The object's UID: identity.
    pub uid: String,
    /// The node's name.
    pub name: String,
    /// All its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints, the cordon taint included where the API has it.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Condition Ready is True (absent counts as not ready).
    pub ready: bool,
    /// `status.allocatable`.
    pub allocatable: Amounts,
}

/// An operator of a node selector requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SelectorOperator {
    /// The label's value is one of the list.
    In,
    /// The label is absent or its value is not in the list.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label's integer is above the one value.
    Gt,
    /// The label's integer is below the one value.
    Lt,
}

/// One requirement on a node's labels, or on its name (`matchFields`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    /// The label key; ignored for fields.
    pub key: String,
    /// How to compare.
    pub operator: SelectorOperator,
    /// What to compare with.
    pub values: Vec<String>,
    /// True when this is `matchFields: metadata.name`.
    pub on_name: bool,
}

/// One node selector term: all requirements must hold. An empty term matches nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeTerm {
    /// The requirements, all of which must hold.
    pub requirements: Vec<Requirement>,
}

/// One requirement on labels of a pod or namespace; `Gt` and `Lt` never match there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelRequirement {
    /// The label key.
    pub key: String,
    /// How to compare.
    pub operator: SelectorOperator,
    /// What to compare with, sorted.
    pub values: Vec<String>,
}

/// A label selector: all requirements must hold; without any it matches everything.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LabelSelector {
    /// The requirements, `matchLabels` included, sorted.
    pub requirements: Vec<LabelRequirement>,
}

/// Which pods a pod (anti-)affinity term speaks of, and the node label that makes a domain.
/// `matchLabelKeys` and `mismatchLabelKeys` are merged into the selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PodTerm {
    /// Labels of the pods meant; `None` matches no pod.
    pub selector: Option<LabelSelector>,
    /// Namespaces by name (the pod's own when the term names none and has no selector).
    pub namespaces: BTreeSet<String>,
    /// Namespaces by their labels, besides those by name.
    pub namespace_selector: Option<LabelSelector>,
    /// `topologyKey`: nodes with the same value of this label are one domain.
    pub topology_key: String,
}

/// A topology spread constraint, counting pods of the pod's own namespace.
/// `matchLabelKeys` is merged into the selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpreadFacts {
    /// The largest difference allowed between a domain and the emptiest one.
    pub max_skew: u32,
    /// `topologyKey`.
    pub topology_key: String,
    /// `DoNotSchedule` (a rule) or `ScheduleAnyway` (a score).
    pub hard: bool,
    /// Labels of the pods counted; `None` counts no pod.
    pub selector: Option<LabelSelector>,
    /// With fewer eligible domains than this, the emptiest one counts as empty.
    pub min_domains: u32,
    /// `nodeAffinityPolicy: Honor`: nodes that the pod's selector and affinity refuse do not count.
    pub honor_affinity: bool,
    /// `nodeTaintsPolicy: Honor`: nodes with a taint that the pod does not tolerate do not count.
    pub honor_taints: bool,
}

/// A host port a pod occupies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Host address; empty or `0.0.0.0` means every address.
    pub ip: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The port number.
    pub port: i32,
}

/// Everything about a pod that decides where it fits, and nothing else.
/// Equal shapes are interned and share every cached answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ShapeFacts {
    /// Effective requests (containers, sidecars, init phases, overhead), `pods` excluded.
    pub requests: Amounts,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: one of the terms must match; `None` when absent.
    pub required_affinity: Option<Vec<NodeTerm>>,
    /// Preferred node affinity: weight and term.
    pub preferred_affinity: Vec<(i32, NodeTerm)>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Host ports.
    pub host_ports: Vec<HostPort>,
    /// Required pod affinity: every term must hold.
    pub pod_affinity: Vec<PodTerm>,
    /// Required pod anti-affinity: no term may be hit, in either direction.
    pub pod_anti_affinity: Vec<PodTerm>,
    /// Preferred pod affinity: weight (negative for anti-affinity) and term.
    pub preferred_pod_affinity: Vec<(i32, PodTerm)>,
    /// Topology spread constraints.
    pub spread: Vec<SpreadFacts>,
    /// Keys that were recognised but are not supported yet, such as `gpu-fraction`.
    pub unsupported: BTreeSet<String>,
}

/// Where a pod is in its life, as far as room is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum PodPhase {
    /// Not started yet (with or without a node).
    #[default]
    Pending,
    /// Running, or in a phase that still holds room.
    Running,
    /// Ended well: holds no room.
    Succeeded,
    /// Ended badly: holds no room.
    Failed,
}

/// A pod, as the scheduler needs it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PodFacts {
    /// The object's UID: identity.
    pub uid: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// Creation time.
    pub created: Millis,
    /// True when this scheduler is asked to place it; others only hold room.
    pub ours: bool,
    /// Name of its PodGroup in the same namespace.
    pub gang: Option<String>,
    /// Leaf subgroup it belongs to; `None` is the implicit leaf.
    pub subgroup: Option<String>,
    /// Rank within the gang, where the workload has one.
    pub index: Option<u32>,
    /// True for pods that go first within their gang (masters, launchers, heads).
    pub leader: bool,
    /// What decides where it fits.
    pub shape: ShapeFacts,
    /// Its labels: what terms of other pods select by.
    pub labels: BTreeMap<String, String>,
    /// PersistentVolumeClaims it uses, by name, in its namespace (those of ephemeral volumes included).
    pub claims: Vec<String>,
    /// Those of `claims` that ephemeral volumes stand for: they must be owned by this pod.
    pub owned_claims: Vec<String>,
    /// `status.nominatedNodeName`, when set: a pod of another scheduler holds its room there before it is
    /// bound, one of ours goes there when that is legal.
    pub nominated: Option<String>,
    /// `spec.nodeName`, when set.
    pub node: Option<String>,
    /// Phase.
    pub phase: PodPhase,
    /// A deletion timestamp is set.
    pub terminating: bool,
    /// The deletion timestamp: it is meant to be gone by then.
    pub gone_by: Option<Millis>,
    /// `status.startTime`.
    pub started: Option<Millis>,
    /// `spec.terminationGracePeriodSeconds`: how long its end may take.
    pub grace_millis: Millis,
    /// `spec.preemptionPolicy: Never`: nobody is evicted for it.
    pub never_preempts: bool,
    /// Has scheduling gates.
    pub gated: bool,
    /// The `berth.scheduler/decision` mark (`<id>/<n>`), when present.
    pub decision: Option<String>,
    /// Mistakes of this pod alone: it is never placed, the rest of its gang may be.
    pub problems: Vec<Problem>,
}

/// A topology constraint of a gang or subgroup, as written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ConstraintFacts {
    /// Topology name; `None` falls to the default topology.
    pub topology: Option<String>,
    /// Hard level: label or alias.
    pub required: Option<String>,
    /// Soft level: label or alias.
    pub preferred: Option<String>,
}

impl ConstraintFacts {
    /// True when no level is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.required.is_none() && self.preferred.is_none()
    }
}

/// What the parts of a gang's own constraint are called where a person wrote them, so that a message names those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConstraintKeys {
    /// Of the topology's name.
    pub topology: &'static str,
    /// Of the hard level.
    pub required: &'static str,
    /// Of the soft level.
    pub preferred: &'static str,
}

impl ConstraintKeys {
    /// The fields of a PodGroup.
    pub const FIELDS: Self =
        Self { topology: "topology", required: "requiredTopologyLevel", preferred: "preferredTopologyLevel" };
}

impl Default for ConstraintKeys {
    fn default() -> Self {
        Self::FIELDS
    }
}

/// A subgroup of a gang: a node of its tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SubgroupFacts {
    /// Its name, unique in the gang.
    pub name: String,
    /// Name of the parent subgroup; `None` under the root.
    pub parent: Option<String>,
    /// Minimum of pods, for a leaf.
    pub min_member: Option<u32>,
    /// Minimum of ready children, for an inner node; `None` means all.
    pub min_subgroup: Option<u32>,
    /// Its own constraint.
    pub constraint: ConstraintFacts,
    /// Set by grouping for segments: the preferred level is the lowest one of the
    /// topology, never beyond the required one (placement.md section 8).
    pub auto_preferred: bool,
}

/// Pods of a leaf that are created later: when others of the gang have a node, or as their controller gets to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedFacts {
    /// The leaf; empty in a gang without subgroups.
    pub subgroup: String,
    /// How many pods the leaf has once all are there.
    pub n_pods: u32,
    /// The gang does not begin where they do not fit. Without it, they fit if that is possible.
    pub needed: bool,
    /// Where they fit; `None` is as the gang's other pods.
    pub shape: Option<ShapeFacts>,
}

/// A limit on the domains of a level that a gang uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainLimit {
    /// The level, by label or alias.
    pub level: String,
    /// Domains at the most; 1 at least.
    pub most: u32,
}

/// A gang: one PodGroup.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GangFacts {
    /// The object's UID: identity.
    pub uid: String,
    /// Namespace and name.
    pub key: ObjectKey,
    /// The workload the user wrote, such as `Job/trainer`; empty when unknown.
    pub owner: String,
    /// Leaf queue.
    pub queue: String,
    /// Priority value; larger first.
    pub priority: i32,
    /// May be preempted.
    pub preemptible: bool,
    /// Creation time.
    pub created: Millis,
    /// Minimum of pods when there are no subgroups; `None` is 1.
    pub min_member: Option<u32>,
    /// Minimum of ready parent-less subgroups; `None` is all.
    pub min_subgroup: Option<u32>,
    /// Constraint of the whole gang.
    pub constraint: ConstraintFacts,
    /// How long it may run below its minimum before it is evicted; negative is for ever, `None` the operator's choice.
    pub staleness_grace_millis: Option<Millis>,
    /// How old it must be before anybody is evicted for it.
    pub preemption_delay_millis: Millis,
    /// Places that were promised to its pods (node by pod name), as written down by an earlier process.
    pub promised: BTreeMap<String, String>,
    /// Since when it runs below its minimum, as an earlier process wrote it down; counts until the gang was looked at.
    pub stale_since: Option<Millis>,
    /// What the best placement of it is; `None`: the operator's choice.
    pub objective: Option<Objective>,
    /// How many domains of which levels it may use.
    pub limits: Vec<DomainLimit>,
    /// How its parts are called.
    pub constraint_keys: ConstraintKeys,
    /// The flat list that encodes the tree.
    pub subgroups: Vec<SubgroupFacts>,
    /// Pods to come, for which its domains must have room.
    pub awaited: Vec<AwaitedFacts>,
    /// Mistakes that keep it pending.
    pub problems: Vec<Problem>,
    /// Mistakes that change nothing about where it can run: it runs without what they meant.
    pub warnings: Vec<Problem>,
}

/// One resource of a queue. `None` means unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct QueueAmount {
    /// Deserved amount, in thousandths of the unit.
    pub quota_millis: Option<i64>,
    /// Hard limit, in thousandths of the unit.
    pub limit_millis: Option<i64>,
    /// Over-quota weight, in thousandths.
    pub weight_millis: i64,
}

impl QueueAmount {
    /// No limit, no quota bound, weight one.
    pub const UNLIMITED: Self = Self { quota_millis: None, limit_millis: None, weight_millis: 1000 };
}

/// A queue. Units: GPUs, milli-cores and megabytes (10^6 bytes), each in thousandths.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct QueueFacts {
    /// The object's UID.
    pub uid: String,
    /// Its name (cluster-scoped).
    pub name: String,
    /// Parent queue; `None` at the top.
    pub parent: Option<String>,
    /// Larger is served first.
    pub priority: i64,
    /// Creation time.
    pub created: Millis,
    /// How long its gangs run before others of the queue may have them evicted; `None` falls to the queue above.
    pub preempt_min_runtime: Option<Millis>,
    /// The same, for gangs of other queues.
    pub reclaim_min_runtime: Option<Millis>,
    /// GPUs.
    pub gpu: QueueAmount,
    /// Milli-cores.
    pub cpu: QueueAmount,
    /// Megabytes.
    pub memory: QueueAmount,
}

/// One level of a topology.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LevelFacts {
    /// The node label.
    pub label: String,
    /// Another name a workload may use.
    pub alias: Option<String>,
}

/// A Topology object.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TopologyFacts {
    /// The object's UID.
    pub uid: String,
    /// Its name (cluster-scoped).
    pub name: String,
    /// Levels, widest first.
    pub levels: Vec<LevelFacts>,
    /// Annotated as the default topology.
    pub default: bool,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BudgetFacts {
    /// The object's UID.
    pub uid: String,
    /// Namespace and name.
    pub key: ObjectKey,
    /// Pods of its namespace that it protects; `None` is none of them.
    pub selector: Option<LabelSelector>,
    /// Pods that may go now (`status.disruptionsAllowed`).
    pub allowed: u32,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ClaimFacts {
    /// The object's UID.
    pub uid: String,
    /// Namespace and name.
    pub key: ObjectKey,
    /// Storage class; `None` when it names none and there is no default, empty for `""`.
    pub class: Option<String>,
    /// `spec.volumeName`, when set.
    pub volume: Option<String>,
    /// Bound for good (`pv.kubernetes.io/bind-completed`, or phase Bound).
    pub bound: bool,
    /// Phase Lost: its volume is gone.
    pub lost: bool,
    /// Being deleted.
    pub terminating: bool,
    /// Access mode ReadWriteOncePod: one pod in the cluster at a time.
    pub one_pod: bool,
    /// Access modes asked for, sorted.
    pub access_modes: Vec<String>,
    /// `volumeMode: Block`.
    pub block: bool,
    /// Requested size in bytes.
    pub bytes: i64,
    /// Labels of the volumes it may take, when unbound.
    pub selector: Option<LabelSelector>,
    /// Annotation `volume.kubernetes.io/selected-node`.
    pub selected_node: Option<String>,
    /// UID of the pod that owns it, when one does (claims of ephemeral volumes).
    pub owner_uid: Option<String>,
}

/// A PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct VolumeFacts {
    /// The object's UID.
    pub uid: String,
    /// Its name (cluster-scoped).
    pub name: String,
    /// Its labels (zone and region labels restrict nodes, as in the core scheduler).
    pub labels: BTreeMap<String, String>,
    /// `spec.nodeAffinity.required`: one of the terms must match; `None` when absent.
    pub node_terms: Option<Vec<NodeTerm>>,
    /// Storage class; empty when none.
    pub class: String,
    /// Capacity in bytes.
    pub bytes: i64,
    /// Access modes, sorted.
    pub access_modes: Vec<String>,
    /// `volumeMode: Block`.
    pub block: bool,
    /// Claim it is bound or reserved to.
    pub claim: Option<ObjectKey>,
    /// UID of that claim; empty when only reserved by name.
    pub claim_uid: String,
    /// Phase Available (or none yet): a claim may take it.
    pub available: bool,
    /// CSI driver; empty when not CSI.
    pub driver: String,
    /// Handle that tells volumes of one driver apart; the volume's name when it has none.
    pub handle: String,
}

/// A StorageClass.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StorageClassFacts {
    /// The object's UID.
    pub uid: String,
    /// Its name (cluster-scoped).
    pub name: String,
    /// The provisioner (the CSI driver's name).
    pub provisioner: String,
    /// `volumeBindingMode: WaitForFirstConsumer`.
    pub waits: bool,
    /// Volumes are made on demand (false for `kubernetes.io/no-provisioner`).
    pub provisions: bool,
    /// `allowedTopologies`: one of the terms must match; `None` when absent.
    pub topologies: Option<Vec<NodeTerm>>,
    /// The driver publishes capacities that must be honoured (`CSIDriver.spec.storageCapacity`).
    pub has_capacity: bool,
    /// Marked as the cluster's default.
    pub default: bool,
}

/// A CSINode: how many volumes of each driver a node takes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CsiNodeFacts {
    /// Name of the node (and of the object).
    pub name: String,
    /// Largest number of volumes by driver; drivers without a limit are left out.
    pub limits: BTreeMap<String, u32>,
    /// Drivers installed.
    pub drivers: BTreeSet<String>,
}

/// A CSIStorageCapacity: what a class can still provision on some nodes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StorageCapacityFacts {
    /// The object's UID.
    pub uid: String,
    /// The storage class.
    pub class: String,
    /// Labels of the nodes it speaks of; `None` for no node.
    pub nodes: Option<LabelSelector>,
    /// Bytes available; `None` counts as nothing.
    pub bytes: Option<i64>,
    /// Largest single volume in bytes, when it is told; it takes the place of `bytes`.
    pub largest_bytes: Option<i64>,
}

/// How a Binding that was sent ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BindResult {
    /// The pod is bound to the node we chose.
    Bound,
    /// Refused for now: try again after the backoff.
    Transient(String),
    /// Refused for good: the gang is released. Holds the API's own text.
    Permanent(String),
    /// The outcome is not known: the pod must be read again.
    Unknown(String),
}

/// Something that happened outside. All objects are keyed by UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node appeared or changed.
    NodeUpsert(NodeFacts),
    /// A node is gone (by UID).
    NodeDelete(String),
    /// A pod appeared or changed.
    PodUpsert(PodFacts),
    /// A pod is gone (by UID).
    PodDelete(String),
    /// A gang appeared or changed.
    GangUpsert(GangFacts),
    /// A gang is gone (by UID).
    GangDelete(String),
    /// A queue appeared or changed.
    QueueUpsert(QueueFacts),
    /// A queue is gone (by UID).
    QueueDelete(String),
    /// A topology appeared or changed.
    TopologyUpsert(TopologyFacts),
    /// A topology is gone (by UID).
    TopologyDelete(String),
    /// A namespace appeared or changed: name and labels.
    NamespaceUpsert(String, BTreeMap<String, String>),
    /// A namespace is gone (by name).
    NamespaceDelete(String),
    /// A claim appeared or changed.
    ClaimUpsert(ClaimFacts),
    /// A claim is gone (by UID).
    ClaimDelete(String),
    /// A volume appeared or changed.
    VolumeUpsert(VolumeFacts),
    /// A volume is gone (by UID).
    VolumeDelete(String),
    /// An eviction that was decided is not asked for after all: another one was refused (UID).
    EvictDropped(String),
    /// A disruption budget appeared or changed.
    BudgetUpsert(BudgetFacts),
    /// A disruption budget is gone (by UID).
    BudgetDelete(String),
    /// A storage class appeared or changed.
    StorageClassUpsert(StorageClassFacts),
    /// A storage class is gone (by UID).
    StorageClassDelete(String),
    /// A CSINode appeared or changed.
    CsiNodeUpsert(CsiNodeFacts),
    /// A CSINode is gone (by name).
    CsiNodeDelete(String),
    /// A storage capacity appeared or changed.
    StorageCapacityUpsert(StorageCapacityFacts),
    /// A storage capacity is gone (by UID).
    StorageCapacityDelete(String),
    /// Volumes or claims of a pod are being prepared; its room is kept.
    PreparationStarted(String),
    /// Preparation of a pod succeeded.
    PreparationDone(String),
    /// Preparation of a pod failed, with the reason.
    PreparationFailed(String, String),
    /// A Binding left for the API server (pod UID).
    BindSent(String),
    /// How it ended (pod UID).
    BindEnded(String, BindResult),
    /// An eviction left for the API server (pod UID).
    EvictSent(String),
    /// The eviction was accepted (pod UID).
    EvictAccepted(String),
    /// The eviction was refused by a disruption budget, with the API's text.
    EvictRefused(String, String),
    /// Room on a node is held for a gang (gang UID, node name, amounts).
    Held(String, String, Amounts),
    /// All holds of a gang are released (gang UID).
    Released(String),
    /// A gang must wait until this moment (gang UID), with the reason.
    Backoff(String, Millis, String),
    /// Initial lists are complete: decisions may begin.
    Synced,
    /// This process leads, or no longer does.
    LeadershipChanged(bool),
}
