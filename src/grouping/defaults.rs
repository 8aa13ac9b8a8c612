//! What all kinds share: name, labels, queue, priority, durations and the constraint of the whole gang.

use std::collections::BTreeMap;

use berth_api::pod_group::{PodGroupSpec, Preemptibility, TopologyConstraint};
use berth_api::{keys, max_domains, parse_duration_millis, parse_max_domains};
use berth_engine::policy::Objective;
use k8s_openapi::api::core::v1::Pod;

use super::kind_defaults::KindDefault;
use super::object::{Notes, Object};
use super::{Group, GroupProblem, Input, ObjectId, ProblemCode};

/// Names of objects are at most this long.
const LONGEST_NAME: usize = 253;

/// Annotations on a pod that ask for a part of a device. They are recognised, so that such a pod is never placed as if
/// it had asked for nothing.
const DEVICE_SHARING: [&str; 4] = [keys::GPU_FRACTION, keys::GPU_MEMORY, keys::GPU_FRACTION_NUM_DEVICES, keys::MPS];

/// Annotations that speak about the very object they are on, or that binding writes on a pod that is its own owner.
const NOT_COPIED: [&str; 10] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
    keys::POD_GROUP,
    keys::DECISION,
    keys::AUTOMATIC_PREFERRED,
    keys::DERIVED_OBJECTIVE,
    keys::DERIVED_MAX_DOMAINS,
    keys::RECEIVED_RESOURCE_TYPE,
    keys::NUMA_PREDICTED,
    keys::NUMA_OBSERVED,
];

/// How a kind differs from the usual. Every kind starts here and then changes the group it gets.
pub(crate) struct Defaults<'a> {
    input: Input<'a>,
    /// The objects whose annotations count, the first one first. The same for all pods of a group, so that they agree.
    sources: Vec<Object<'a>>,
    /// The objects whose labels and durations count; usually the same.
    label_sources: Vec<Object<'a>>,
    /// Annotations of the only pod template, when there is only one: they count where the sources say nothing.
    template: Option<Notes<'a>>,
    default_priority: &'a str,
    has_min_member: bool,
    has_segments: bool,
}

impl<'a> Defaults<'a> {
    /// From the top owner alone: what the user wrote.
    pub(crate) fn new(input: &Input<'a>) -> Self {
        Self {
            input: *input,
            sources: vec![input.top()],
            label_sources: vec![input.top()],
            template: None,
            default_priority: "train",
            has_min_member: false,
            has_segments: false,
        }
    }

    /// Other sources, in this order.
    pub(crate) fn sources(self, sources: Vec<Object<'a>>) -> Self {
        Self { label_sources: sources.clone(), sources, ..self }
    }

    /// Other sources of labels and durations only, in this order.
    pub(crate) fn label_sources(self, label_sources: Vec<Object<'a>>) -> Self {
        Self { label_sources, ..self }
    }

    /// All pods come from one template, with these annotations.
    pub(crate) fn template(self, annotations: Notes<'a>) -> Self {
        Self { template: Some(annotations), ..self }
    }

    /// The priority class when nobody names one.
    pub(crate) fn priority(self, default_priority: &'a str) -> Self {
        Self { default_priority, ..self }
    }

    /// The kind reads `kai.scheduler/batch-min-member`.
    pub(crate) fn with_min_member(self) -> Self {
        Self { has_min_member: true, ..self }
    }

    /// The kind reads `kai.scheduler/segment-size`.
    pub(crate) fn with_segments(self) -> Self {
        Self { has_segments: true, ..self }
    }

    /// An annotation from the sources, or else the template.
    pub(crate) fn annotation(&self, key: &str) -> Option<(String, &'a str)> {
        let of_source = |source: &Object<'a>| Some((source.display(), source.annotations().get(key)?));
        let of_template = || Some((format!("{}, pod template", self.first().display()), self.template?.get(key)?));
        self.sources.iter().find_map(of_source).or_else(of_template)
    }

    /// The group with one pod as its minimum.
    pub(crate) fn build(&self) -> Group {
        let first = self.first();
        let owner = first.id();
        let mut group = Group {
            namespace: self.input.pod.metadata.namespace.clone().unwrap_or_default(),
            name: group_name(&owner.name, &owner.uid, ""),
            workload: self.input.top().id(),
            labels: self.labels(),
            annotations: self.annotations(&owner),
            unsupported: device_sharing(self.input.pod),
            owner,
            ..Group::default()
        };
        group.spec = PodGroupSpec {
            min_member: Some(1),
            queue: Some(self.queue()),
            priority_class_name: Some(self.priority_class(&mut group.warnings)),
            preemptibility: self.preemptibility(&mut group.warnings),
            preemption_delay: self.duration(keys::PREEMPTION_DELAY, false, &mut group.warnings),
            staleness_grace_period: self.duration(keys::STALENESS_GRACE_PERIOD, true, &mut group.warnings),
            topology_constraint: self.constraint(),
            ..PodGroupSpec::default()
        };
        self.read_objective(&mut group);
        self.read_max_domains(&mut group);
        self.note_what_is_not_read(&mut group);
        group
    }

    /// The objective goes to the PodGroup also where the template names it; a wrong one keeps the gang pending.
    fn read_objective(&self, group: &mut Group) {
        let Some((object, value)) = self.annotation(keys::OBJECTIVE) else { return };
        group.annotations.insert(keys::OBJECTIVE.to_owned(), value.to_owned());
        if Objective::named(value).is_none() {
            let code = ProblemCode::InvalidPolicy;
            group.problems.push(GroupProblem::text(code, object, keys::OBJECTIVE, value, Objective::allowed()));
        }
    }

    /// Limits on domains, likewise.
    fn read_max_domains(&self, group: &mut Group) {
        let Some((object, value)) = self.annotation(keys::MAX_DOMAINS) else { return };
        group.annotations.insert(keys::MAX_DOMAINS.to_owned(), value.to_owned());
        if parse_max_domains(value).is_err() {
            let code = ProblemCode::InvalidMaxDomains;
            group.problems.push(GroupProblem::text(code, object, keys::MAX_DOMAINS, value, max_domains::ALLOWED));
        }
    }

    fn first(&self) -> Object<'a> {
        self.sources.first().copied().unwrap_or(Object::Pod(self.input.pod))
    }

    fn pod(&self) -> Object<'a> {
        Object::Pod(self.input.pod)
    }

    /// What a message calls an object. All pods of a group say the same, so a pod of a workload is called by that.
    fn display(&self, object: Object<'a>) -> String {
        match object {
            Object::Pod(_) if !self.input.owners.is_empty() => format!("pods of {}", self.input.top().display()),
            object => object.display(),
        }
    }

    /// A label or annotation of the sources, or else of the pod.
    fn sources_then_pod(&self, read: impl Fn(Object<'a>) -> Option<&'a str>) -> Option<(Object<'a>, &'a str)> {
        self.label_sources.iter().copied().chain([self.pod()]).find_map(|object| Some((object, read(object)?)))
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.first().labels().to_map();
        labels.remove(keys::SUB_GROUP);
        for key in [keys::USER, keys::NODE_POOL] {
            if let Some(value) = self.input.pod_label(key) {
                labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
            }
        }
        labels
    }

    fn annotations(&self, owner: &ObjectId) -> BTreeMap<String, String> {
        let mut annotations = self.first().annotations().to_map();
        annotations.retain(|key, _| !NOT_COPIED.contains(&key.as_str()));
        annotations.insert(keys::TOP_OWNER_METADATA.to_owned(), top_owner(owner));
        if let Some(user) = self.pod().annotations().get(keys::USER) {
            annotations.insert(keys::USER.to_owned(), user.to_owned());
        }
        annotations
    }

    fn queue(&self) -> String {
        if let Some((_, queue)) = self.sources_then_pod(|object| object.labels().get(keys::QUEUE)) {
            return queue.to_owned();
        }
        match self.sources_then_pod(|object| object.labels().get(keys::PROJECT)) {
            Some((_, project)) => match self.input.pod_label(keys::NODE_POOL) {
                Some(pool) if !pool.is_empty() => format!("{project}-{pool}"),
                _ => project.to_owned(),
            },
            None => keys::DEFAULT_QUEUE.to_owned(),
        }
    }

    /// The first class that exists, asking the owners in order and the pod after the first of them.
    fn priority_class(&self, warnings: &mut Vec<GroupProblem>) -> String {
        let label = |object: Object<'a>| {
            Some((object, keys::PRIORITY_CLASS_NAME, object.labels().get(keys::PRIORITY_CLASS_NAME)?))
        };
        let spec = self.input.pod.spec.as_ref();
        let of_pod = spec.and_then(|spec| spec.priority_class_name.as_deref()).filter(|name| !name.is_empty());
        let of_pod = of_pod.map(|name| (self.pod(), "spec.priorityClassName", name));
        // Admission writes the global default into every pod; a pod from a file has not been through it.
        let is_admitted = spec.is_some_and(|spec| spec.priority.is_some());
        let admitted = self.input.context.global_default.filter(|_| !is_admitted);
        let mut candidates: Vec<_> = self.label_sources.iter().take(1).map(|source| label(*source)).collect();
        candidates.extend([label(self.pod()), of_pod]);
        candidates.extend(self.label_sources.iter().skip(1).map(|source| label(*source)));
        for (object, key, name) in candidates.into_iter().flatten() {
            if self.input.context.priority_class(name).is_some() {
                return name.to_owned();
            }
            let allowed = "the name of a PriorityClass that exists";
            let code = ProblemCode::UnknownPriorityClass;
            warnings.push(GroupProblem::text(code, self.display(object), key, name, allowed));
        }
        if let Some(name) = admitted {
            return name.to_owned();
        }
        // Of the operator's choice for the kind, too, only what exists counts.
        let of_kind = self.kind_default().and_then(|of_kind| of_kind.priority.as_deref());
        of_kind.filter(|name| self.input.context.priority_class(name).is_some()).unwrap_or(self.default_priority).to_owned()
    }

    fn kind_default(&self) -> Option<&'a KindDefault> {
        let top = self.input.top().id();
        self.input.context.kind_defaults.get(top.group(), &top.kind)
    }

    fn preemptibility(&self, warnings: &mut Vec<GroupProblem>) -> Option<Preemptibility> {
        let key = keys::PREEMPTIBILITY;
        let Some((object, word)) = self.sources_then_pod(|object| object.labels().get(key)) else {
            return self.kind_default()?.preemptibility;
        };
        match word {
            "preemptible" => Some(Preemptibility::Preemptible),
            "non-preemptible" => Some(Preemptibility::NonPreemptible),
            "" => None,
            _ => {
                let allowed = "preemptible or non-preemptible";
                let code = ProblemCode::InvalidPreemptibility;
                warnings.push(GroupProblem::text(code, self.display(object), key, word, allowed));
                None
            }
        }
    }

    fn duration(&self, key: &str, may_be_negative: bool, warnings: &mut Vec<GroupProblem>) -> Option<String> {
        let (object, text) = self.sources_then_pod(|object| object.annotations().get(key))?;
        if parse_duration_millis(text).is_ok_and(|millis| may_be_negative || 0 <= millis) {
            return Some(text.to_owned());
        }
        let allowed = match may_be_negative {
            true => "a duration such as 90s or 1h30m; a negative one is for ever",
            false => "a duration from 0 on, such as 90s or 1h30m",
        };
        warnings.push(GroupProblem::text(ProblemCode::InvalidDuration, self.display(object), key, text, allowed));
        None
    }

    /// The rule for the whole gang. A level without a topology's name is kept: a default topology may be meant.
    fn constraint(&self) -> Option<TopologyConstraint> {
        let read =
            |key: &str| self.annotation(key).map(|(_, value)| value.to_owned()).filter(|value| !value.is_empty());
        let constraint = TopologyConstraint {
            topology: read(keys::TOPOLOGY),
            required_topology_level: read(keys::TOPOLOGY_REQUIRED),
            preferred_topology_level: read(keys::TOPOLOGY_PREFERRED),
        };
        (constraint != TopologyConstraint::default()).then_some(constraint)
    }

    /// Keys that other kinds read and this one does not are never dropped in silence.
    fn note_what_is_not_read(&self, group: &mut Group) {
        let on_pod = |key: &str| Some((self.display(self.pod()), self.pod().annotations().get(key)?));
        let find = |key: &str| self.annotation(key).or_else(|| on_pod(key));
        if !self.has_segments && find(keys::SEGMENT_SIZE).is_some() {
            group.unsupported.push(keys::SEGMENT_SIZE.to_owned());
        }
        if let Some((object, value)) = find(keys::BATCH_MIN_MEMBER).filter(|_| !self.has_min_member) {
            let allowed = "this annotation on a Job or CronJob only: here the pods start one by one";
            let code = ProblemCode::MinMemberIgnored;
            group.warnings.push(GroupProblem::text(code, object, keys::BATCH_MIN_MEMBER, value, allowed));
        }
    }
}

/// `pg-<owner>-<uid><suffix>`, with a long owner's name cut: the UID keeps it unique.
pub(crate) fn group_name(owner: &str, uid: &str, suffix: &str) -> String {
    let room = LONGEST_NAME.saturating_sub(keys::POD_GROUP_NAME_PREFIX.len() + 1 + uid.len() + suffix.len());
    let ends = owner.char_indices().map(|(start, letter)| start + letter.len_utf8());
    let end = ends.take_while(|end| *end <= room).last().unwrap_or(0);
    let owner = owner.get(..end).unwrap_or_default();
    format!("{}{owner}-{uid}{suffix}", keys::POD_GROUP_NAME_PREFIX)
}

/// The keys on a pod that ask for a part of a device.
pub(crate) fn device_sharing(pod: &Pod) -> Vec<String> {
    let annotations = Object::Pod(pod).annotations();
    let is_asked = |key: &&&str| annotations.get(key).is_some_and(|value| value != "false");
    DEVICE_SHARING.iter().filter(is_asked).map(|key| (*key).to_owned()).collect()
}

/// The owner as the YAML that dashboards read from the annotation.
fn top_owner(owner: &ObjectId) -> String {
    let group = if owner.group().is_empty() { "\"\"" } else { owner.group() };
    format!(
        "name: {}\nuid: {}\ngroup: {group}\nversion: {}\nkind: {}\n",
        owner.name,
        owner.uid,
        owner.version(),
        owner.kind
    )
}

/// The integer of `kai.scheduler/batch-min-member`.
pub(crate) fn min_member(object: String, value: &str) -> Result<i32, GroupProblem> {
    let number = value.trim().parse::<i32>().ok().filter(|number| 1 <= *number);
    number.ok_or_else(|| {
        let code = ProblemCode::InvalidMinMember;
        GroupProblem::text(code, object, keys::BATCH_MIN_MEMBER, value, "an integer from 1 on")
    })
}
