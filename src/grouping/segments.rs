//! Segments: equal parts of a gang, cut by rank, each with its own place. KAI's keys and names.

use berth_api::keys;
use berth_api::pod_group::{SubGroup, TopologyConstraint};

use super::object::{Notes, Object, between};
use super::{Awaited, Group, GroupProblem, Input, ProblemCode};

/// Name of the segments of a gang that has no roles.
pub(crate) const SEGMENT: &str = "segment";

/// The most segments of one gang.
pub(crate) const MOST_SEGMENTS: i32 = 10_000;

/// The most layers of nested segments: topologies have at most 16 levels, and nobody nests more than a few.
const MOST_LAYERS: usize = 8;

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

    /// `kai.scheduler/segment-size`: absent, or one size, or a list of them from the widest layer to the narrowest. Each is
    /// an integer above 1, smaller than the one before it, and the first not above what there is to cut.
    pub(crate) fn sizes(&self, replicas: i32) -> Result<Vec<i32>, GroupProblem> {
        let Some((object, text)) = self.get(keys::SEGMENT_SIZE) else {
            return Ok(Vec::new());
        };
        let problem = |allowed: String| {
            let code = ProblemCode::InvalidSegmentSize;
            GroupProblem::text(code, object.to_owned(), keys::SEGMENT_SIZE, text, allowed)
        };
        let mut sizes: Vec<i32> = Vec::new();
        for part in text.split(',') {
            let most = sizes.last().map_or(replicas, |wider| wider - 1);
            match part.trim().parse::<i32>().ok().filter(|size| is_allowed(*size, most)) {
                Some(size) => sizes.push(size),
                None if sizes.is_empty() => return Err(problem(allowed(replicas))),
                None => return Err(problem(format!("a list of sizes from {replicas} down to 2, each smaller than the last"))),
            }
        }
        let n_leaves = sizes.last().map_or(0, |narrowest| count(replicas, *narrowest));
        if MOST_SEGMENTS < n_leaves || MOST_LAYERS < sizes.len() {
            return Err(problem(format!("at most {MOST_LAYERS} sizes that give at most {MOST_SEGMENTS} segments")));
        }
        Ok(sizes)
    }

    /// `kai.scheduler/segment-size` as it is written.
    pub(crate) fn text(&self) -> &'a str {
        self.get(keys::SEGMENT_SIZE).map_or("", |(_, text)| text)
    }

    /// The segments that were asked for, layer by layer; nothing when no size is named.
    pub(crate) fn read(&self, replicas: i32) -> Result<Option<Segments>, GroupProblem> {
        let sizes = self.sizes(replicas)?;
        let n_layers = sizes.len();
        if n_layers == 0 {
            return Ok(None);
        }
        let required = self.levels(keys::SEGMENT_REQUIRED, n_layers)?;
        let preferred = self.levels(keys::SEGMENT_PREFERRED, n_layers)?;
        let layers = sizes.into_iter().zip(required.into_iter().zip(preferred));
        let layers = layers.map(|(size, (required, preferred))| Layer { size, constraint: self.rule(required, preferred) });
        Ok(Some(Segments { layers: layers.collect(), topology: self.topology() }))
    }

    /// One level a layer, from a list as long as that of the sizes; an empty word is no level.
    fn levels(&self, key: &str, n_layers: usize) -> Result<Vec<Option<String>>, GroupProblem> {
        let Some((object, text)) = self.get(key).filter(|(_, text)| !text.is_empty()) else {
            return Ok(vec![None; n_layers]);
        };
        let word = |word: &str| Some(word.trim().to_owned()).filter(|word| !word.is_empty());
        let levels: Vec<_> = text.split(',').map(word).collect();
        if levels.len() == n_layers {
            return Ok(levels);
        }
        let allowed = format!("{n_layers} levels with commas between, one for each segment size");
        Err(GroupProblem::text(ProblemCode::InvalidSegmentLevels, object.to_owned(), key, text, allowed))
    }

    /// The rule of every segment, with the topology's name inherited from the workload; nothing when no level is named.
    pub(crate) fn constraint(&self) -> Option<TopologyConstraint> {
        let read = |key: &str| self.get(key).map(|(_, value)| value.to_owned()).filter(|value| !value.is_empty());
        self.rule(read(keys::SEGMENT_REQUIRED), read(keys::SEGMENT_PREFERRED))
    }

    fn rule(&self, required: Option<String>, preferred: Option<String>) -> Option<TopologyConstraint> {
        if required.is_none() && preferred.is_none() {
            return None;
        }
        Some(TopologyConstraint {
            topology: self.topology(),
            required_topology_level: required,
            preferred_topology_level: preferred,
        })
    }

    /// The label that holds the pods' index, where `kai.scheduler/pod-index-label` names one.
    pub(crate) fn index_label(&self) -> Option<&'a str> {
        self.get(keys::POD_INDEX_LABEL).map(|(_, label)| label).filter(|label| !label.is_empty())
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

/// One layer of segments.
#[derive(Clone, Debug)]
struct Layer {
    size: i32,
    constraint: Option<TopologyConstraint>,
}

/// How the pods of one template are cut: the widest layer first.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    layers: Vec<Layer>,
    topology: Option<String>,
}

impl Segments {
    /// Adds the segments of `n_pods` pods below a parent, of which `least` must start together. They are named by a prefix
    /// and their number; those of the narrowest layer are leaves. Without any level, the leaves prefer the lowest one.
    pub(crate) fn add(&self, group: &mut Group, parent_name: Option<&str>, prefix: &str, n_pods: i32, least: i32) {
        add_layer(group, self, &self.layers, parent_name, prefix, (n_pods, least));
    }

    /// How many segments the widest layer has.
    pub(crate) fn n_outer(&self, n_pods: i32) -> i32 {
        self.layers.first().map_or(1, |layer| count(n_pods, layer.size))
    }

    /// How many leaves there are.
    pub(crate) fn n_leaves(&self, n_pods: i32) -> i32 {
        self.layers.last().map_or(1, |layer| count(n_pods, layer.size))
    }

    /// The leaf of the pod at an index.
    pub(crate) fn leaf(&self, prefix: &str, index: i32) -> String {
        let mut name = prefix.to_owned();
        let mut index = index;
        for layer in &self.layers {
            name = format!("{name}-{}", index / layer.size);
            index %= layer.size;
        }
        name
    }
}

fn add_layer(
    group: &mut Group,
    segments: &Segments,
    layers: &[Layer],
    parent_name: Option<&str>,
    prefix: &str,
    (n_pods, least): (i32, i32),
) {
    let Some((layer, narrower)) = layers.split_first() else {
        return;
    };
    for segment_idx in 0..count(n_pods, layer.size) {
        let name = format!("{prefix}-{segment_idx}");
        let n_own = minimum(n_pods, layer.size, segment_idx);
        let own_least = minimum(least, layer.size, segment_idx);
        if let Some(next) = narrower.first() {
            let mut node = parent(&name, count(n_own, next.size), layer.constraint.clone());
            node.parent = parent_name.map(str::to_owned);
            group.spec.sub_groups.push(node);
            add_layer(group, segments, narrower, Some(&name), &name, (n_own, own_least));
            continue;
        }
        if segments.layers.iter().all(|layer| layer.constraint.is_none()) {
            prefer_lowest(group, &name, segments.topology.clone());
        }
        let is_bound = |layer: &Layer| layer.constraint.as_ref().is_some_and(|rule| rule.required_topology_level.is_some());
        if own_least < n_own && segments.layers.iter().any(is_bound) {
            // Once it has begun somewhere, its other pods can go nowhere else.
            group.awaited.push(Awaited { leaf: name.clone(), n_pods: n_own, ..Awaited::default() });
        }
        group.spec.sub_groups.push(leaf(&name, parent_name, own_least, layer.constraint.clone()));
    }
}

/// Cuts a gang of pods of one template into segments at the root, `segment-<k>`. `index` is the pod's own; a label that the
/// workload names with `kai.scheduler/pod-index-label` counts before it. Pods that can have no index can't be cut.
pub(crate) fn cut(
    group: &mut Group,
    input: &Input<'_>,
    template: Notes<'_>,
    n_pods: Result<i32, GroupProblem>,
    index: Option<u32>,
) {
    let top = input.top();
    let places = Places([
        Place { object: format!("{}, pod template", top.display()), annotations: template },
        Place { object: top.display(), annotations: top.annotations() },
    ]);
    let label = places.index_label();
    let index = match label.map(|label| input.pod_index(label)) {
        None => index,
        Some(Ok(index)) => Some(index),
        Some(Err(problem)) => {
            group.pod_problem = Some(problem);
            return;
        }
    };
    group.index = index;
    let (segments, n_pods) = match n_pods.and_then(|n_pods| Ok((places.read(n_pods)?, n_pods))) {
        Ok((Some(segments), n_pods)) => (segments, n_pods),
        Ok((None, _)) => return,
        Err(problem) => {
            if !places.text().is_empty() {
                group.problems.push(problem);
            }
            return;
        }
    };
    let Some(index) = index else {
        let code = ProblemCode::SegmentsWithoutIndex;
        let allowed = "this annotation on pods with an index: an Indexed Job, a StatefulSet, or a label that \
                       kai.scheduler/pod-index-label names";
        group.problems.push(GroupProblem::text(code, top.display(), keys::SEGMENT_SIZE, places.text(), allowed));
        return;
    };
    let least = group.spec.min_member.unwrap_or(1);
    segments.add(group, None, SEGMENT, n_pods, least);
    match i32::try_from(index).ok().filter(|number| *number < n_pods) {
        Some(number) => group.subgroup = Some(segments.leaf(SEGMENT, number)),
        None => {
            let allowed = format!("{}, by the number of pods", between(0, n_pods.saturating_sub(1)));
            let key = label.unwrap_or("index");
            let problem = GroupProblem::text(ProblemCode::InvalidMemberLabel, Object::Pod(input.pod).display(), key, &index.to_string(), allowed);
            group.pod_problem = Some(problem);
        }
    }
}

/// Marks a segment as preferring the lowest level of its topology.
fn prefer_lowest(group: &mut Group, segment: &str, topology: Option<String>) {
    group.auto_preferred.insert(segment.to_owned());
    group.auto_preferred_topology = topology;
}
