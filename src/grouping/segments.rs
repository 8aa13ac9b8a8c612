//! Segments: equal parts of a gang, cut by rank, each with its own place. KAI's keys and names.

use berth_api::keys;
use berth_api::pod_group::{SubGroup, TopologyConstraint};

use super::object::{Notes, between};
use super::{Group, GroupProblem, ProblemCode};

/// The most segments of one gang.
const MOST_SEGMENTS: i32 = 10_000;

/// A place to read annotations from, and what to call it in a message.
pub(crate) struct Place<'a> {
    pub(crate) object: String,
    pub(crate) annotations: Notes<'a>,
}

/// Where the keys of segments are read: the pod template first, then the workload.
pub(crate) struct Places<'a>(pub(crate) [Place<'a>; 2]);

impl<'a> Places<'a> {
    fn get(&self, key: &str) -> Option<(&str, &'a str)> {
        self.0.iter().find_map(|place| Some((place.object.as_str(), place.annotations.get(key)?)))
    }

    /// `kai.scheduler/segment-size`: absent, or an integer above 1 and not above what there is to cut.
    pub(crate) fn size(&self, replicas: i32) -> Result<Option<i32>, GroupProblem> {
        let Some((object, text)) = self.get(keys::SEGMENT_SIZE) else {
            return Ok(None);
        };
        let size = text.trim().parse::<i64>().ok().and_then(|size| i32::try_from(size).ok());
        match size.filter(|size| is_allowed(*size, replicas)) {
            Some(size) => Ok(Some(size)),
            None => {
                let code = ProblemCode::InvalidSegmentSize;
                Err(GroupProblem::text(code, object.to_owned(), keys::SEGMENT_SIZE, text, allowed(replicas)))
            }
        }
    }

    /// The rule of every segment, with the topology's name inherited from the workload; nothing when no level is named.
    pub(crate) fn constraint(&self) -> Option<TopologyConstraint> {
        let read = |key: &str| self.get(key).map(|(_, value)| value.to_owned()).filter(|value| !value.is_empty());
        let required = read(keys::SEGMENT_REQUIRED);
        let preferred = read(keys::SEGMENT_PREFERRED);
        if required.is_none() && preferred.is_none() {
            return None;
        }
        Some(TopologyConstraint {
            topology: self.topology(),
            required_topology_level: required,
            preferred_topology_level: preferred,
        })
    }

    /// Name of the segments' topology.
    pub(crate) fn topology(&self) -> Option<String> {
        self.get(keys::TOPOLOGY).map(|(_, value)| value.to_owned()).filter(|value| !value.is_empty())
    }
}

/// Whether a segment may have this size.
pub(crate) fn is_allowed(size: i32, replicas: i32) -> bool {
    1 < size && size <= replicas && count(replicas, size) <= MOST_SEGMENTS
}

/// The sentence for what a segment size may be.
pub(crate) fn allowed(replicas: i32) -> String {
    let least = count(replicas, MOST_SEGMENTS).max(2);
    match replicas {
        ..2 => format!("none: {replicas} replicas can't be cut"),
        _ => format!("{} (its replicas)", between(least, replicas)),
    }
}

/// How many segments: the last one may be short.
pub(crate) fn count(replicas: i32, size: i32) -> i32 {
    let whole = replicas / size.max(1);
    whole + i32::from(whole.saturating_mul(size.max(1)) < replicas)
}

/// The minimum of one segment when the whole needs `minimum` pods: full ones first, then the rest, then none. So the
/// minimum is never rounded up.
pub(crate) fn minimum(minimum: i32, size: i32, segment_idx: i32) -> i32 {
    minimum.saturating_sub(segment_idx.saturating_mul(size)).clamp(0, size)
}

/// A leaf of the gang.
pub(crate) fn leaf(
    name: &str,
    parent: Option<&str>,
    min_member: i32,
    constraint: Option<TopologyConstraint>,
) -> SubGroup {
    SubGroup {
        name: name.to_owned(),
        parent: parent.map(str::to_owned),
        min_member: Some(min_member),
        min_sub_group: None,
        topology_constraint: constraint,
    }
}

/// A subgroup that holds others.
pub(crate) fn parent(name: &str, min_sub_group: i32, constraint: Option<TopologyConstraint>) -> SubGroup {
    SubGroup {
        name: name.to_owned(),
        parent: None,
        min_member: None,
        min_sub_group: Some(min_sub_group),
        topology_constraint: constraint,
    }
}

/// Marks a segment as preferring the lowest level of its topology.
pub(crate) fn prefer_lowest(group: &mut Group, segment: &str, topology: Option<String>) {
    group.auto_preferred.insert(segment.to_owned());
    group.auto_preferred_topology = topology;
}
