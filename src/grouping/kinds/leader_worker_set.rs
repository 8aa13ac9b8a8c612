//! `leaderworkerset.x-k8s.io` LeaderWorkerSet: each of its groups is a gang of a leader and its workers, which may be cut
//! into segments. The annotation for their size counts before the set's own `subGroupSize`.
//!
//! Segments are `segment-<k>`. The leader is in the first one (`LeaderWorker`), which then holds the leaves `leader` and
//! `workers`, or outside of all (`LeaderExcluded`). When the workers divide evenly, the leader is extra in its segment.
//!
//! With `LeaderReady`, and with exclusive placement (`leaderworkerset.sigs.k8s.io/exclusive-topology`), the workers are
//! created when the leader is there (kubernetes-sigs/lws, `pkg/controllers`): it begins alone, where they will fit.

use std::collections::BTreeMap;

use berth_api::keys;
use serde_json::{Value, json};

use crate::grouping::defaults::{Defaults, group_name};
use crate::grouping::expand::{Draft, ExpandProblem, Identity, Plan, Workload};
use crate::grouping::object::{Notes, Object, between, integer};
use crate::grouping::segments::{Place, Places, allowed, count, is_allowed, leaf, parent};
use crate::grouping::{Awaited, Group, GroupProblem, Input, ProblemCode};

const LEADER_NAME: &str = "leaderworkerset.sigs.k8s.io/leader-name";

/// The annotation of a set whose groups have a domain each.
const EXCLUSIVE: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";

const SIZE_FIELD: &str = "/spec/leaderWorkerTemplate/size";
const WORKER_TEMPLATE: &str = "/spec/leaderWorkerTemplate/workerTemplate";
const LEADER_TEMPLATE: &str = "/spec/leaderWorkerTemplate/leaderTemplate";
const NATIVE_SIZE: &str = "/spec/leaderWorkerTemplate/subGroupPolicy/subGroupSize";
const NATIVE_TYPE: &str = "/spec/leaderWorkerTemplate/subGroupPolicy/subGroupPolicyType";
const STARTUP: &str = "/spec/startupPolicy";

const LEADER: &str = "leader";
const WORKERS: &str = "workers";

/// What of the set decides about one of its groups.
struct Shape {
    size: i32,
    segments: Option<Segments>,
}

struct Segments {
    size: i32,
    excludes_leader: bool,
}

/// The group of a LeaderWorkerSet's pod.
pub fn group(input: &Input<'_>) -> Group {
    let top = input.top();
    let defaults = Defaults::new(input).with_segments();
    let mut group = match has_leader_template(top.value()) {
        // Two templates: what one of them says is about its own pods.
        true => defaults.build(),
        false => defaults.template(worker_notes(top.value())).build(),
    };
    match input.pod_index(keys::LWS_GROUP_INDEX) {
        Ok(index) => group.name = group_name(&group.owner.name, &group.owner.uid, &format!("-group-{index}")),
        Err(problem) => {
            group.pod_problem = Some(problem);
            return group;
        }
    }
    let shape = match shape(top, input) {
        Ok(shape) => shape,
        Err(problem) => {
            group.problems.push(problem);
            return group;
        }
    };
    let minimum = if waits_for_leader(input) { 1 } else { shape.size };
    add_subgroups(&mut group, top, &shape, minimum);
    constrain_exclusive(&mut group, top);
    if minimum < shape.size {
        await_workers(&mut group, top, &shape);
    }
    match member(input, &shape) {
        Ok((subgroup, index)) => (group.subgroup, group.index) = (Some(subgroup), Some(index)),
        Err(problem) => group.pod_problem = Some(problem),
    }
    group
}

/// Whether this is a leader without a node, of a set that creates the workers only after it: because it is to be ready
/// first, or because its node says where the others go.
fn waits_for_leader(input: &Input<'_>) -> bool {
    let is_ordered = input.top().value().pointer(STARTUP).and_then(Value::as_str) == Some("LeaderReady")
        || input.top().annotations().get(EXCLUSIVE).is_some();
    let has_node =
        input.pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|node| !node.is_empty());
    is_ordered && !has_node && input.pod_label(keys::LWS_WORKER_INDEX) == Some("0")
}

/// Exclusive placement is one domain for one group: the same as a required level, where no other is named.
fn constrain_exclusive(group: &mut Group, set: Object<'_>) {
    let Some((level, topology)) = set.annotations().get(EXCLUSIVE).zip(set.annotations().get(keys::TOPOLOGY)) else {
        return;
    };
    let rule = group.spec.topology_constraint.get_or_insert_default();
    rule.topology.get_or_insert_with(|| topology.to_owned());
    rule.required_topology_level.get_or_insert_with(|| level.to_owned());
}

/// The workers that are created when the leader has a node need room where it goes.
fn await_workers(group: &mut Group, set: Object<'_>, shape: &Shape) {
    let template = set.value().pointer(WORKER_TEMPLATE).cloned();
    let mut workers: BTreeMap<String, i32> = BTreeMap::new();
    for index in 1..shape.size {
        *workers.entry(leaf_of(shape, index)).or_default() += 1;
    }
    let awaited = |(leaf, n_pods)| Awaited { leaf, n_pods, needed: true, template: template.clone() };
    group.awaited = workers.into_iter().map(awaited).collect();
}

fn has_leader_template(set: &Value) -> bool {
    set.pointer(LEADER_TEMPLATE).is_some_and(Value::is_object)
}

fn worker_notes(set: &Value) -> Notes<'_> {
    Notes::at(set.pointer(WORKER_TEMPLATE).unwrap_or(&Value::Null), "/metadata/annotations")
}

fn places<'a>(set: Object<'a>) -> Places<'a> {
    Places([
        Place { object: format!("{}, worker template", set.display()), annotations: worker_notes(set.value()) },
        Place { object: set.display(), annotations: set.annotations() },
    ])
}

fn shape(set: Object<'_>, input: &Input<'_>) -> Result<Shape, GroupProblem> {
    let of_set = integer(set.value(), SIZE_FIELD, (1, i32::MAX), ProblemCode::InvalidSize)?.unwrap_or(1);
    // While a new size rolls out, groups of the old one live on: each pod says the size of its own.
    let of_pod = Object::Pod(input.pod).annotations().get(keys::LWS_SIZE).and_then(|text| text.parse::<i32>().ok());
    let size = of_pod.filter(|size| 1 <= *size).unwrap_or(of_set);
    Ok(Shape { size, segments: segments(set, size)? })
}

fn segments(set: Object<'_>, size: i32) -> Result<Option<Segments>, GroupProblem> {
    let excludes_leader = match set.value().pointer(NATIVE_TYPE).and_then(Value::as_str) {
        None | Some("LeaderWorker") => false,
        Some("LeaderExcluded") => true,
        Some(other) => {
            let allowed = "LeaderWorker or LeaderExcluded";
            let key = crate::grouping::object::field(NATIVE_TYPE);
            return Err(GroupProblem::text(ProblemCode::InvalidPolicy, set.display(), &key, other, allowed));
        }
    };
    let replicas = if excludes_leader { size - 1 } else { size };
    let (segment_size, key) = match places(set).sizes(replicas)?[..] {
        [segment_size] => (segment_size, keys::SEGMENT_SIZE.to_owned()),
        [_, ..] => {
            let text = places(set).text().to_owned();
            let allowed = "one size: the segments of a LeaderWorkerSet are not nested";
            return Err(GroupProblem::text(ProblemCode::InvalidSegmentSize, set.display(), keys::SEGMENT_SIZE, &text, allowed));
        }
        [] => match integer(set.value(), NATIVE_SIZE, (i32::MIN, i32::MAX), ProblemCode::InvalidSegmentSize)? {
            Some(segment_size) => (segment_size, crate::grouping::object::field(NATIVE_SIZE)),
            None => return Ok(None),
        },
    };
    let problem = |allowed: String| GroupProblem {
        code: ProblemCode::InvalidSegmentSize,
        object: set.display(),
        key: key.clone(),
        value: segment_size.to_string(),
        allowed,
    };
    if !is_allowed(segment_size, replicas) {
        return Err(problem(allowed(replicas)));
    }
    if excludes_leader && replicas % segment_size != 0 {
        return Err(problem(format!("a divisor of {replicas}, the workers without their leader")));
    }
    Ok(Some(Segments { size: segment_size, excludes_leader }))
}

impl Segments {
    /// The number of segments in a group of this size.
    fn n_segments(&self, size: i32) -> i32 {
        match self.is_leader_extra(size) {
            true => (size - 1) / self.size,
            false => count(size, self.size),
        }
    }

    /// Whether the workers alone fill whole segments.
    fn is_leader_extra(&self, size: i32) -> bool {
        (size - 1) % self.size == 0
    }

    /// The segment of the pod at a rank above the leader's.
    fn of_worker(&self, size: i32, index: i32) -> i32 {
        if self.is_leader_extra(size) { (index - 1) / self.size } else { index / self.size }
    }

    /// The workers in a segment.
    fn n_workers(&self, size: i32, segment_idx: i32) -> i32 {
        if self.is_leader_extra(size) {
            return self.size;
        }
        let n_pods = (size - segment_idx * self.size).min(self.size);
        if segment_idx == 0 { n_pods - 1 } else { n_pods }
    }
}

fn add_subgroups(group: &mut Group, set: Object<'_>, shape: &Shape, minimum: i32) {
    group.spec.min_member = Some(minimum);
    // While the leader is alone, nobody else is needed, in no segment.
    let workers_minimum = |n_workers: i32| if minimum == shape.size { n_workers } else { 0 };
    let subgroups = &mut group.spec.sub_groups;
    let Some(segments) = &shape.segments else {
        subgroups.push(leaf(LEADER, None, 1, None));
        if 1 < shape.size {
            subgroups.push(leaf(WORKERS, None, workers_minimum(shape.size - 1), None));
        }
        note_unread_templates(group, set);
        return;
    };
    // A size says nothing about a level here: only a named level constrains a segment.
    let constraint = places(set).constraint();
    if segments.excludes_leader {
        subgroups.push(leaf(LEADER, None, 1, None));
    }
    for segment_idx in 0..segments.n_segments(shape.size) {
        let name = format!("segment-{segment_idx}");
        let least = workers_minimum(segments.n_workers(shape.size, segment_idx));
        if segment_idx == 0 && !segments.excludes_leader {
            subgroups.push(parent(&name, 2, constraint.clone()));
            subgroups.push(leaf(LEADER, Some(&name), 1, None));
            subgroups.push(leaf(WORKERS, Some(&name), least, None));
        } else {
            subgroups.push(leaf(&name, None, least, constraint.clone()));
        }
    }
    note_unread_templates(group, set);
}

/// Levels on one of two templates can't be the gang's; that they constrain nothing must be said.
fn note_unread_templates(group: &mut Group, set: Object<'_>) {
    if !has_leader_template(set.value()) {
        return;
    }
    for template in [LEADER_TEMPLATE, WORKER_TEMPLATE] {
        let notes = Notes::at(set.value().pointer(template).unwrap_or(&Value::Null), "/metadata/annotations");
        for key in [keys::TOPOLOGY_REQUIRED, keys::TOPOLOGY_PREFERRED] {
            if let Some(value) = notes.get(key) {
                let object = format!("{}, {}", set.display(), template.rsplit('/').next().unwrap_or_default());
                let allowed = "this annotation on the LeaderWorkerSet, for the whole group";
                group.warnings.push(GroupProblem::text(ProblemCode::TopologyIgnored, object, key, value, allowed));
            }
        }
    }
}

/// Leaf and rank of the pod.
fn member(input: &Input<'_>, shape: &Shape) -> Result<(String, u32), GroupProblem> {
    let rank = input.pod_index(keys::LWS_WORKER_INDEX)?;
    let Some(index) = i32::try_from(rank).ok().filter(|index| *index < shape.size) else {
        let allowed = format!("{}, by the size of the set", between(0, shape.size - 1));
        return Err(input.bad_label(keys::LWS_WORKER_INDEX, input.pod_label(keys::LWS_WORKER_INDEX), &allowed));
    };
    Ok((leaf_of(shape, index), rank))
}

/// The leaf of the pod at a rank.
fn leaf_of(shape: &Shape, index: i32) -> String {
    match &shape.segments {
        _ if index == 0 => LEADER.to_owned(),
        None => WORKERS.to_owned(),
        Some(segments) => match segments.of_worker(shape.size, index) {
            0 if !segments.excludes_leader => WORKERS.to_owned(),
            segment_idx => format!("segment-{segment_idx}"),
        },
    }
}

/// The pods of a LeaderWorkerSet, with the StatefulSets between: one for the leaders, one for the workers of each leader.
pub fn expand(set: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    let n_groups = set.replicas("/spec/replicas")?;
    let size = integer(&set.object, SIZE_FIELD, (1, i32::MAX), ProblemCode::InvalidSize)?.unwrap_or(1);
    set.limit(SIZE_FIELD, n_groups.saturating_mul(size))?;
    let leader_template = if has_leader_template(&set.object) { LEADER_TEMPLATE } else { WORKER_TEMPLATE };
    let leaders = set.child("apps/v1", "StatefulSet", set.name());
    for group_idx in 0..n_groups {
        let leader_name = format!("{}-{group_idx}", set.name());
        let labels = |index: i32| json!({keys::LWS_NAME: set.name(), keys::LWS_GROUP_INDEX: group_idx.to_string(), keys::LWS_WORKER_INDEX: index.to_string()});
        let annotations = json!({keys::LWS_SIZE: size.to_string()});
        let leader = set.pod(leader_template, &leader_name, &leaders)?.labels(&labels(0)).annotations(&annotations);
        let leader = leader.finish();
        let workers = set.child_of("apps/v1", "StatefulSet", &leader_name, &leader);
        // The leader is an owner too: the workers' StatefulSet belongs to it.
        plan.objects.push(leader.clone());
        plan.pods.push(Draft { pod: leader, identity: Identity::Name });
        for index in 1..size {
            let name = format!("{leader_name}-{index}");
            let mut pod = set.pod(WORKER_TEMPLATE, &name, &workers)?.labels(&labels(index)).annotations(&annotations);
            pod = pod.annotations(&json!({LEADER_NAME: leader_name}));
            plan.pods.push(Draft { pod: pod.finish(), identity: Identity::Name });
        }
        if 1 < size {
            plan.objects.push(workers);
        }
    }
    plan.objects.push(leaders);
    Ok(())
}
