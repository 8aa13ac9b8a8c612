//! What the engine answers: decisions, and verdicts about what must wait.
//! Data only; text is made at the edges.

mod proof;

use std::collections::BTreeMap;

use crate::facts::{Amounts, Millis, ObjectKey};
use crate::policy::Objective;
pub use proof::{Counted, Proof};

/// What one call of `schedule` decided.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Decisions in the order they were taken; each is one gang, whole.
    pub decisions: Vec<Decision>,
    /// Pods to be evicted, by gang.
    pub evictions: Vec<Eviction>,
    /// Room that was promised, or is no longer.
    pub promised: Vec<Promised>,
    /// Gangs (by UID) whose report changed in this pass: re-read with `World::gang_report`.
    pub changed: Vec<String>,
    /// Ask again no later than this moment, even without an event.
    pub next_wakeup: Option<Millis>,
    /// Search steps used.
    pub steps: u64,
}

/// One gang's placement, decided at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Running number, unique within the world.
    pub id: u64,
    /// UID of the gang.
    pub gang_uid: String,
    /// Namespace and name of the gang.
    pub gang: ObjectKey,
    /// Every pod that was given a node.
    pub placements: Vec<Placement>,
    /// How good it is.
    pub quality: Quality,
}

/// Why pods are evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Their gang ran below its minimum for too long: all that is left of it goes.
    Stale(Stale),
    /// Another gang gets their room.
    Room(Box<RoomFor>),
}

/// By which right a gang gets the room of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// It has a higher priority in the same queue.
    Preempt,
    /// Its queue has less than its fair share, and the other one owes it.
    Reclaim,
}

impl Action {
    /// KAI Scheduler's name of the action.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Preempt => "preempt",
            Self::Reclaim => "reclaim",
        }
    }
}

/// For whom pods are evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomFor {
    /// By which right.
    pub action: Action,
    /// UID of the gang that gets the room.
    pub by_uid: String,
    /// Its namespace and name.
    pub by: ObjectKey,
    /// Its priority.
    pub by_priority: i32,
    /// Its queue.
    pub by_queue: String,
    /// Queue of the gang that gives it.
    pub queue: String,
    /// Priority of the gang that gives it.
    pub priority: i32,
    /// The gang goes as a whole; else only pods above its minimum.
    pub whole: bool,
}

/// Room that is kept for a gang until what is in it has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promised {
    /// UID of the gang.
    pub gang_uid: String,
    /// Namespace and name of the gang.
    pub gang: ObjectKey,
    /// Its pods with the nodes that they will go to; empty when the promise is over.
    pub places: Vec<Placement>,
}

/// Pods of one gang that are to be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// UID of the gang.
    pub gang_uid: String,
    /// Namespace and name of the gang.
    pub gang: ObjectKey,
    /// Why.
    pub cause: Cause,
    /// The pods, by namespace and name.
    pub pods: Vec<Victim>,
}

/// A pod to be evicted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Victim {
    /// Namespace and name of the pod.
    pub pod: ObjectKey,
    /// UID of the pod.
    pub pod_uid: String,
}

/// A gang that ran whole and has too few pods left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Since when.
    pub since: Millis,
    /// It had its grace period: its pods are being evicted.
    pub evicting: bool,
    /// The first leaf below its minimum; empty is the implicit one.
    pub subgroup: String,
    /// Pods of that leaf on nodes.
    pub has: u32,
    /// Its minimum.
    pub needs: u32,
}

/// One pod and its node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placement {
    /// UID of the pod.
    pub pod_uid: String,
    /// Namespace and name of the pod.
    pub pod: ObjectKey,
    /// Leaf subgroup name, empty for the implicit leaf.
    pub subgroup: String,
    /// The node's name.
    pub node: String,
    /// The node's UID.
    pub node_uid: String,
    /// The node's domains in the topology that the gang was placed on.
    pub domain: DomainPath,
    /// Claims that wait for this pod's node, with what was chosen for them.
    pub volumes: Vec<VolumeChoice>,
}

/// What was chosen for a claim that waited for its first consumer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeChoice {
    /// Name of the claim, in the pod's namespace.
    pub claim: String,
    /// UID of the claim.
    pub claim_uid: String,
    /// The free volume to bind it to; `None` when one is to be provisioned for the node.
    pub volume: Option<String>,
}

/// Whether anything better exists for the objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum QualityStatus {
    /// Proven: nothing better exists.
    Optimal,
    /// Within the stated gap of a proven bound.
    Bounded,
    /// Legal, with no proof.
    #[default]
    Unknown,
}

/// Quality of a placement for its objective (placement.md section 3).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Quality {
    /// Proof status.
    pub status: QualityStatus,
    /// What it was placed by: `Kai` wherever the general search placed it.
    pub objective: Objective,
    /// `Optimal` speaks of every line of the order; else of the containing domain and the number of domains used.
    pub whole_order: bool,
    /// Score in thousandths: 1000 means nothing better exists.
    pub score_millis: u32,
    /// The topology that was used; empty when none.
    pub topology: String,
    /// The smallest domain that holds the whole gang, as (label, value); empty is the whole cluster.
    pub containing: DomainPath,
    /// Domains used per level, widest first, against what no placement can beat.
    pub levels: Vec<LevelQuality>,
}

/// One level of a quality report.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LevelQuality {
    /// The level's label.
    pub level: String,
    /// Domains touched.
    pub domains: u32,
    /// No placement of this gang can touch fewer inside the containing domain, and (where the proof speaks of the whole
    /// order) none that is as good in what comes before.
    pub lower_bound: u32,
}

/// A domain as the list of (label, value) from the widest level down.
pub type DomainPath = Vec<(String, String)>;

/// State of a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GangState {
    /// Its minimum has places.
    Placed,
    /// Some pods run, below the minimum.
    Partial,
    /// Waiting.
    Pending,
    /// Over: every pod has succeeded or failed.
    Done,
}

/// State of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodState {
    /// Was already on a node when the engine first saw it.
    Running,
    /// Placed by this engine.
    Bound,
    /// Waiting for a place.
    Pending,
    /// Has scheduling gates.
    Gated,
    /// Over: succeeded or failed.
    Done,
}

/// What the engine knows of a gang now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangReport {
    /// UID.
    pub uid: String,
    /// Namespace and name.
    pub key: ObjectKey,
    /// The workload the user wrote.
    pub owner: String,
    /// Queue name.
    pub queue: String,
    /// State.
    pub state: GangState,
    /// Effective minimum of pods: the sum over the subgroups that must be ready.
    pub min_member: u32,
    /// Live pods (gated ones included).
    pub pods: u32,
    /// Pods that have a node.
    pub bound: u32,
    /// Quality of the latest placement; `None` while pending.
    pub quality: Option<Quality>,
    /// Why pods wait; the blocking reason first. Empty when nothing waits.
    pub reasons: Vec<Reason>,
    /// The node that is kept for each pod (by name) until others have left it.
    pub promised: BTreeMap<String, String>,
    /// It ran whole and has too few pods left.
    pub stale: Option<Stale>,
    /// May be preempted.
    pub preemptible: bool,
    /// What its pods on nodes ask for.
    pub allocated: Amounts,
    /// What all its pods ask for that are not over.
    pub requested: Amounts,
    /// Mistakes without which it runs all the same.
    pub warnings: Vec<crate::facts::Problem>,
}

/// What a queue and the queues below it have and ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueReport {
    /// Its name.
    pub name: String,
    /// Names of the queues directly below.
    pub children: Vec<String>,
    /// Of pods on nodes.
    pub allocated: Amounts,
    /// The part of it that can't be preempted.
    pub allocated_non_preemptible: Amounts,
    /// Of all pods that are not over.
    pub requested: Amounts,
    /// What it may have.
    pub share: QueueShare,
}

/// How a queue stands in the three resources that queues divide: GPUs, milli-cores and megabytes, in thousandths.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct QueueShare {
    /// The queue above.
    pub parent: Option<String>,
    /// Larger is served first.
    pub priority: i64,
    /// What it deserves; `None` is all there is.
    pub quota: [Option<i64>; 3],
    /// The most it may have; `None` is no limit.
    pub limit: [Option<i64>; 3],
    /// Weight above the quota, in thousandths.
    pub weight: [i64; 3],
    /// Its fair share of what there is now, for what it asks for now.
    pub fair: [i64; 3],
    /// What its pods on nodes have, and the queues' below it.
    pub allocated: [i64; 3],
    /// What they and the pods that wait ask for; work that its queue does not take counts while it runs.
    pub requested: [i64; 3],
    /// What pods ask for whose gang is below its minimum because it found no place.
    pub unplaceable: [i64; 3],
}

/// A gang with pods that wait, and when it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// UID of the gang.
    pub uid: String,
    /// Priority value of the gang.
    pub priority: i32,
    /// When it was created.
    pub created: Millis,
    /// It has its minimum: what waits is above it.
    pub surplus: bool,
    /// What its pods ask for that have no node: thousandths of GPUs, milli-cores and megabytes.
    pub waiting: [i64; 3],
}

/// Stable reason codes. Each has a section in docs/reasons.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The object holds a mistake; `Reason::problem` says which.
    Problem,
    /// A recognised key that is not supported yet.
    UnsupportedFeature,
    /// The queue named does not exist.
    QueueNotFound,
    /// The queue named has children; only leaves take work.
    QueueNotLeaf,
    /// A queue above the one named does not exist, or the queue is above itself.
    QueueOrphaned,
    /// A limit of the queue or of an ancestor would be passed.
    QueueOverLimit,
    /// Work that can't be preempted would pass a queue's quota.
    QueueOverQuota,
    /// Fewer pods exist than the minimum.
    NotEnoughPods,
    /// Pods are held by scheduling gates.
    PodsGated,
    /// No domain of the required level can hold the (sub)group.
    RequiredDomainTooSmall,
    /// The domain that running members pin is full.
    PinnedDomainFull,
    /// Running members already violate the required level.
    AlreadySplit,
    /// There is a place, but in more domains of a level than the gang may use.
    DomainLimit,
    /// Every subgroup fits alone, not all together.
    SubgroupsDoNotFitTogether,
    /// The cluster (or the nodes that pass the rules) has too little room.
    NotEnoughRoom,
    /// No node passes the pod's rules, room aside.
    NoNodeMatches,
    /// Room exists, but affinity, anti-affinity or spread rules between pods allow no placement of all.
    PodRulesUnmet,
    /// The search ended before an answer: not a proof.
    NotFoundWithinBudget,
    /// A Binding was refused; waiting before the next try.
    BindRefused,
    /// The gang ran below its minimum for too long: its other pods are being evicted.
    StaleGang,
    /// Claims did not get their volumes in time; waiting before the next try.
    VolumesNotReady,
    /// Room is kept for the gang; pods that are there have still to leave.
    WaitingForRoom,
    /// The gang was evicted for another; it starts anew once its pods are gone.
    Preempted,
}

impl Code {
    /// Every code, for documentation checks.
    pub const ALL: [Code; 23] = [
        Code::Problem,
        Code::UnsupportedFeature,
        Code::QueueNotFound,
        Code::QueueNotLeaf,
        Code::QueueOrphaned,
        Code::QueueOverLimit,
        Code::QueueOverQuota,
        Code::NotEnoughPods,
        Code::PodsGated,
        Code::RequiredDomainTooSmall,
        Code::PinnedDomainFull,
        Code::AlreadySplit,
        Code::DomainLimit,
        Code::SubgroupsDoNotFitTogether,
        Code::NotEnoughRoom,
        Code::NoNodeMatches,
        Code::PodRulesUnmet,
        Code::NotFoundWithinBudget,
        Code::BindRefused,
        Code::StaleGang,
        Code::VolumesNotReady,
        Code::WaitingForRoom,
        Code::Preempted,
    ];

    /// The stable CamelCase name (that of the problem itself for `Problem`).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Code::Problem => "Problem",
            Code::UnsupportedFeature => "UnsupportedFeature",
            Code::QueueNotFound => "QueueNotFound",
            Code::QueueNotLeaf => "QueueNotLeaf",
            Code::QueueOrphaned => "QueueOrphaned",
            Code::QueueOverLimit => "QueueOverLimit",
            Code::QueueOverQuota => "QueueOverQuota",
            Code::NotEnoughPods => "NotEnoughPods",
            Code::PodsGated => "PodsGated",
            Code::RequiredDomainTooSmall => "RequiredDomainTooSmall",
            Code::PinnedDomainFull => "PinnedDomainFull",
            Code::AlreadySplit => "AlreadySplit",
            Code::DomainLimit => "DomainLimit",
            Code::SubgroupsDoNotFitTogether => "SubgroupsDoNotFitTogether",
            Code::NotEnoughRoom => "NotEnoughRoom",
            Code::NoNodeMatches => "NoNodeMatches",
            Code::PodRulesUnmet => "PodRulesUnmet",
            Code::NotFoundWithinBudget => "NotFoundWithinBudget",
            Code::BindRefused => "BindRefused",
            Code::StaleGang => "StaleGang",
            Code::VolumesNotReady => "VolumesNotReady",
            Code::WaitingForRoom => "WaitingForRoom",
            Code::Preempted => "Preempted",
        }
    }

    /// True when a new node could help: then, and only then, the pod condition
    /// says `Unschedulable` (autoscalers buy machines on it).
    #[must_use]
    pub fn new_node_could_help(self) -> bool {
        matches!(
            self,
            Code::RequiredDomainTooSmall
                | Code::PinnedDomainFull
                | Code::DomainLimit
                | Code::SubgroupsDoNotFitTogether
                | Code::NotEnoughRoom
                | Code::NoNodeMatches
                | Code::PodRulesUnmet
                | Code::NotFoundWithinBudget
        )
    }
}

/// What `has` and `needs` count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Unit {
    /// Pods.
    #[default]
    Pods,
    /// Segments: subgroups of one size that each need one domain.
    Segments,
    /// Subgroups.
    Subgroups,
    /// Domains: allowed, and needed at the least.
    Domains,
}

/// One reason: data, never prose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What kind of reason.
    pub code: Code,
    /// The subgroup it speaks of; empty is the whole gang.
    pub subgroup: String,
    /// Topology and level it speaks of (label), when one blocks.
    pub topology: Option<String>,
    /// The blocking level's label.
    pub level: Option<String>,
    /// The best domain: it comes nearest to enough.
    pub best_domain: Option<DomainPath>,
    /// What `has` and `needs` count.
    pub unit: Unit,
    /// How many the best domain holds, live ones included.
    pub has: u32,
    /// How many are needed.
    pub needs: u32,
    /// Nodes in the domain (or the cluster) that each rule refuses, by rule, most first.
    pub refusals: Vec<(Rule, u32)>,
    /// Nodes without the level's label that could have taken these pods otherwise.
    pub unlabelled_nodes: u32,
    /// The mistake, for `Code::Problem`.
    pub problem: Option<crate::facts::Problem>,
    /// The limit or quota, for `Code::QueueOverLimit` and `Code::QueueOverQuota`; the queue's name for the other queue codes.
    pub queue: Option<QueueBlock>,
    /// Free text: the missing parent for `Code::QueueOrphaned` (empty when the queue is above itself), the API server's for `Code::BindRefused` and `Code::StaleGang`, what is awaited for
    /// `Code::VolumesNotReady`, all limits where no single one is to blame for `Code::DomainLimit`, the key for `Code::UnsupportedFeature`.
    pub detail: String,
    /// Smallest changes that would help.
    pub fixes: Vec<Fix>,
    /// What makes it more than "not found"; `None` where nothing is proven.
    pub proof: Option<Proof>,
}

impl Reason {
    /// A reason with a code and nothing else.
    #[must_use]
    pub fn new(code: Code) -> Self {
        Self {
            code,
            subgroup: String::new(),
            topology: None,
            level: None,
            best_domain: None,
            unit: Unit::Pods,
            has: 0,
            needs: 0,
            refusals: Vec::new(),
            unlabelled_nodes: 0,
            problem: None,
            queue: None,
            detail: String::new(),
            fixes: Vec::new(),
            proof: match code {
                Code::Problem
                | Code::UnsupportedFeature
                | Code::QueueNotFound
                | Code::QueueNotLeaf
                | Code::QueueOrphaned
                | Code::QueueOverLimit
                | Code::QueueOverQuota
                | Code::NotEnoughPods
                | Code::PodsGated
                | Code::AlreadySplit => Some(Proof::Stated),
                Code::RequiredDomainTooSmall
                | Code::PinnedDomainFull
                | Code::DomainLimit
                | Code::SubgroupsDoNotFitTogether
                | Code::NotEnoughRoom
                | Code::NoNodeMatches
                | Code::PodRulesUnmet
                | Code::NotFoundWithinBudget
                | Code::BindRefused
                | Code::StaleGang
                | Code::VolumesNotReady
                | Code::WaitingForRoom
                | Code::Preempted => None,
            },
        }
    }

    /// The code that users see: that of the mistake itself when there is one.
    #[must_use]
    pub fn code_name(&self) -> &'static str {
        match (&self.code, &self.problem) {
            (Code::Problem, Some(problem)) => problem.code.as_str(),
            (code, _) => code.name(),
        }
    }
}

/// A queue that blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueBlock {
    /// The queue whose limit would be passed, or the queue that is wrong.
    pub queue: String,
    /// `gpu`, `cpu` or `memory`; empty when no limit is concerned.
    pub resource: &'static str,
    /// The limit, in thousandths of GPUs, milli-cores or megabytes.
    pub limit_millis: i64,
    /// Used now, same unit.
    pub used_millis: i64,
    /// Asked, same unit.
    pub asked_millis: i64,
}

/// A rule that refuses a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Too little of a resource is free (its name; `pods` is the pod count).
    Insufficient(String),
    /// `nodeSelector` or required node affinity does not match.
    NodeAffinity,
    /// A taint (its key) is not tolerated.
    Taint(String),
    /// The node is cordoned.
    Cordoned,
    /// The node is not ready.
    NotReady,
    /// A host port is taken (its number).
    HostPort(i32),
    /// The node has no label of the level, or of a rule's topology key.
    MissingLabel(String),
    /// A bound volume cannot be reached from the node (its affinity or zone).
    VolumeNode,
    /// No free volume for a claim is reached from the node, and none can be made for it.
    NoVolume,
    /// The node takes no more volumes of a driver (its name).
    VolumeLimit(String),
    /// No pod that the required pod affinity asks for is in the node's domain (its topology key).
    PodAffinity(String),
    /// A pod that the required anti-affinity avoids is in the node's domain (its topology key).
    PodAntiAffinity(String),
    /// A pod in one of the node's domains has an anti-affinity against this one.
    AntiAffinityOfOthers,
    /// One more pod would pass a spread constraint's largest skew (its topology key).
    TopologySpread(String),
}

impl Rule {
    /// The code of every rule, in the order of the variants. Each has a section in docs/reasons.md.
    pub const NAMES: [&'static str; 14] = [
        "Insufficient", "NodeAffinity", "Taint", "Cordoned", "NotReady", "HostPort", "MissingLabel", "VolumeNode",
        "NoVolume", "VolumeLimit", "PodAffinity", "PodAntiAffinity", "AntiAffinityOfOthers", "TopologySpread",
    ];

    /// The stable CamelCase code.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let at = match self {
            Self::Insufficient(_) => 0,
            Self::NodeAffinity => 1,
            Self::Taint(_) => 2,
            Self::Cordoned => 3,
            Self::NotReady => 4,
            Self::HostPort(_) => 5,
            Self::MissingLabel(_) => 6,
            Self::VolumeNode => 7,
            Self::NoVolume => 8,
            Self::VolumeLimit(_) => 9,
            Self::PodAffinity(_) => 10,
            Self::PodAntiAffinity(_) => 11,
            Self::AntiAffinityOfOthers => 12,
            Self::TopologySpread(_) => 13,
        };
        Self::NAMES[at]
    }

    /// What it is about: the resource, taint, port, label, driver or topology key.
    #[must_use]
    pub fn subject(&self) -> Option<String> {
        match self {
            Self::Insufficient(name) | Self::Taint(name) | Self::MissingLabel(name) | Self::VolumeLimit(name) => Some(name.clone()),
            Self::PodAffinity(key) | Self::PodAntiAffinity(key) | Self::TopologySpread(key) => Some(key.clone()),
            Self::HostPort(port) => Some(port.to_string()),
            _ => None,
        }
    }
}

/// What kind of change would help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FixKind {
    /// Free room for `count` more pods of this shape in a domain.
    FreeCapacity,
    /// Relax the required level to a wider one.
    RelaxLevel,
    /// Allow more domains of a level: `count`.
    AllowDomains,
    /// Label nodes so that they take part in a level.
    LabelNodes,
    /// Uncordon nodes.
    Uncordon,
    /// Raise a queue's limit.
    RaiseLimit,
    /// Raise a queue's quota, or let the gang be preempted.
    RaiseQuota,
    /// Correct the value named.
    CorrectValue,
    /// Create the object named.
    CreateObject,
    /// Name another queue: one of those listed, of `count` in all.
    NameQueue,
    /// Bring nodes back that are not ready.
    RestoreNodes,
    /// Remove a taint (the first target) from nodes.
    RemoveTaint,
    /// Start with a smaller minimum (of a subgroup).
    LowerMinimum,
    /// Use another queue.
    ChangeQueue,
    /// End running work: `count` pods.
    EndWork,
    /// Add nodes like the one named.
    AddNodes,
}

impl FixKind {
    /// The stable CamelCase name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FixKind::FreeCapacity => "FreeCapacity",
            FixKind::RelaxLevel => "RelaxLevel",
            FixKind::AllowDomains => "AllowDomains",
            FixKind::LabelNodes => "LabelNodes",
            FixKind::Uncordon => "Uncordon",
            FixKind::RaiseLimit => "RaiseLimit",
            FixKind::RaiseQuota => "RaiseQuota",
            FixKind::CorrectValue => "CorrectValue",
            FixKind::CreateObject => "CreateObject",
            FixKind::NameQueue => "NameQueue",
            FixKind::RestoreNodes => "RestoreNodes",
            FixKind::RemoveTaint => "RemoveTaint",
            FixKind::LowerMinimum => "LowerMinimum",
            FixKind::ChangeQueue => "ChangeQueue",
            FixKind::EndWork => "EndWork",
            FixKind::AddNodes => "AddNodes",
        }
    }
}

/// A change that would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// Its kind.
    pub kind: FixKind,
    /// True when the gang was solved again with the change applied, and fits.
    pub verified: bool,
    /// The domain concerned; empty when none.
    pub domain: DomainPath,
    /// How many pods' room, how many nodes or domains, or the new limit in thousandths.
    pub count: i64,
    /// Subgroup, level, node names, queue: what the kind speaks of.
    pub target: Vec<String>,
}
