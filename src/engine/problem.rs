//! Mistakes in what a user wrote, as data, and the one list of their codes.

use std::fmt;

/// Declares the codes once: the enum, the list of all, and their names.
macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident,)*) => {
        /// What kind of mistake it is. The words are stable: people and programs match on them. Each has a section in
        /// docs/reasons.md.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ProblemCode {
            $($(#[$doc])* $code,)*
        }

        impl ProblemCode {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$code,)*];

            /// The stable CamelCase word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => stringify!($code),)*
                }
            }
        }
    };
}

codes! {
    /// A claim for one pod at a time that another pod uses.
    ClaimInUse,
    /// A claim whose volume is gone.
    ClaimLost,
    /// A claim that placing the pod would not bind.
    ClaimNotBound,
    /// A claim that does not exist.
    ClaimNotFound,
    /// A claim of an ephemeral volume that was made for another pod.
    ClaimNotOwned,
    /// A claim that is being deleted.
    ClaimTerminating,
    /// Two subgroups of one name.
    DuplicateSubgroup,
    /// A duration that can't be read, or is negative where it must not be.
    InvalidDuration,
    /// A value that a grouping rule points to and can't use.
    InvalidField,
    /// A gang of several owners whose roles are not said, or not said right.
    InvalidGang,
    /// Limits on domains that can't be read.
    InvalidMaxDomains,
    /// A pod without a label that says which member it is, or with an unusable one.
    InvalidMemberLabel,
    /// A minimum that is no positive integer, or more than there will ever be pods.
    InvalidMinMember,
    /// A minimum of subgroups that is more than there are.
    InvalidMinSubGroup,
    /// A policy word that does not exist.
    InvalidPolicy,
    /// `kai.scheduler/preemptibility` with an unknown word.
    InvalidPreemptibility,
    /// A replica count that is no integer from 0 on.
    InvalidReplicas,
    /// A list of segment levels that is not as long as that of the sizes.
    InvalidSegmentLevels,
    /// A segment size that is no integer above 1, or more than there are pods to cut.
    InvalidSegmentSize,
    /// A LeaderWorkerSet's size that is no positive integer.
    InvalidSize,
    /// A level without a topology's name, and no default topology.
    LevelWithoutTopology,
    /// A minimum where the kind has none.
    MinMemberIgnored,
    /// An owner that may not be read: nobody can say whether its pods are a gang.
    OwnerForbidden,
    /// A PodGroup that does not exist.
    PodGroupNotFound,
    /// A preferred level wider than the required one.
    PreferredAboveRequired,
    /// A `spec.schedulingGroup` whose PodGroup of `scheduling.k8s.io` is not there.
    SchedulingGroupNotFound,
    /// Segments of pods that have no index.
    SegmentsWithoutIndex,
    /// A storage class that does not exist.
    StorageClassNotFound,
    /// Subgroups that are each other's parents.
    SubgroupCycle,
    /// More claims of one pod than are looked at.
    TooManyClaims,
    /// Levels on a pod template that constrain nothing.
    TopologyIgnored,
    /// A level that the topology does not have.
    UnknownLevel,
    /// A parent that does not exist.
    UnknownParent,
    /// A priority class that does not exist.
    UnknownPriorityClass,
    /// A pod in a subgroup that the gang does not have.
    UnknownSubgroup,
    /// A topology that does not exist.
    UnknownTopology,
    /// An owner that could not be read.
    UnreadOwner,
    /// A PodGang of Grove that could not be read.
    UnreadPodGang,
    /// A volume that does not exist.
    VolumeNotFound,
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A mistake in an object, found before or inside the engine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// What kind of mistake.
    pub code: ProblemCode,
    /// The object, such as `PyTorchJob/train`, or empty when it is the gang itself.
    pub object: String,
    /// The annotation, label or field.
    pub key: String,
    /// The value found.
    pub value: String,
    /// What is allowed, as a phrase.
    pub allowed: String,
}
