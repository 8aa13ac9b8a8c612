//! Mistakes in what a user wrote, as data: where, which key, which value, and what is allowed.

use std::fmt;

/// What kind of mistake it is. The words are stable: people and programs match on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProblemCode {
    /// A minimum that is no positive integer, or more than there will ever be pods.
    InvalidMinMember,
    /// A segment size that is no integer above 1, or more than there are pods to cut.
    InvalidSegmentSize,
    /// A list of segment levels that is not as long as that of the sizes.
    InvalidSegmentLevels,
    /// A gang of several owners whose roles are not said, or not said right.
    InvalidGang,
    /// Segments of pods that have no index.
    SegmentsWithoutIndex,
    /// A value that a grouping rule points to and can't use.
    InvalidField,
    /// A replica count that is no integer from 0 on.
    InvalidReplicas,
    /// A LeaderWorkerSet's size that is no positive integer.
    InvalidSize,
    /// A policy word that does not exist.
    InvalidPolicy,
    /// `kai.scheduler/preemptibility` with an unknown word.
    InvalidPreemptibility,
    /// A duration that can't be read, or is negative where it must not be.
    InvalidDuration,
    /// A priority class that does not exist.
    UnknownPriorityClass,
    /// A minimum where the kind has none.
    MinMemberIgnored,
    /// Levels on a pod template that constrain nothing.
    TopologyIgnored,
    /// A `spec.schedulingGroup` whose PodGroup of `scheduling.k8s.io` is not there.
    SchedulingGroupNotFound,
    /// A pod without a label that says which member it is, or with an unusable one.
    InvalidMemberLabel,
}

impl ProblemCode {
    /// The stable word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidMinMember => "InvalidMinMember",
            Self::InvalidSegmentSize => "InvalidSegmentSize",
            Self::InvalidSegmentLevels => "InvalidSegmentLevels",
            Self::InvalidGang => "InvalidGang",
            Self::SegmentsWithoutIndex => "SegmentsWithoutIndex",
            Self::InvalidField => "InvalidField",
            Self::InvalidReplicas => "InvalidReplicas",
            Self::InvalidSize => "InvalidSize",
            Self::InvalidPolicy => "InvalidPolicy",
            Self::InvalidPreemptibility => "InvalidPreemptibility",
            Self::InvalidDuration => "InvalidDuration",
            Self::UnknownPriorityClass => "UnknownPriorityClass",
            Self::MinMemberIgnored => "MinMemberIgnored",
            Self::TopologyIgnored => "TopologyIgnored",
            Self::SchedulingGroupNotFound => "SchedulingGroupNotFound",
            Self::InvalidMemberLabel => "InvalidMemberLabel",
        }
    }
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One mistake. The message names everything that is needed to correct it.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[error("{object}: {key} is {value}; allowed is {allowed}")]
pub struct GroupProblem {
    /// What kind of mistake it is.
    pub code: ProblemCode,
    /// The object that carries it, as `Kind/name`.
    pub object: String,
    /// The annotation, label or field.
    pub key: String,
    /// The value as written (quoted when it is text), or `missing`.
    pub value: String,
    /// What would be right.
    pub allowed: String,
}

impl GroupProblem {
    /// A mistake in a text value, which is quoted, and shortened when somebody pasted a book.
    pub(crate) fn text(code: ProblemCode, object: String, key: &str, value: &str, allowed: impl Into<String>) -> Self {
        const MOST: usize = 64;
        let short: String = value.chars().take(MOST).collect();
        let tail = if short.len() < value.len() { "…" } else { "" };
        Self { code, object, key: key.to_owned(), value: format!("\"{short}{tail}\""), allowed: allowed.into() }
    }
}
