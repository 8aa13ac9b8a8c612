//! A gang's facts: derived from a workload, or read from a PodGroup.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::{PodGroup, keys, max_domains, parse_max_domains};
use berth_api::pod_group::{Preemptibility, TopologyConstraint};
use berth_engine::facts::{AwaitedFacts, ConstraintFacts, ConstraintKeys, DomainLimit, GangFacts, Millis, ObjectKey, Problem, ProblemCode, SubgroupFacts};
use berth_engine::policy::Objective;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{FieldError, automatic, Priorities, Result, created_millis, object_name, required_name, shape_facts, uid_of};
use crate::grouping::{Awaited, Group, GroupProblem, UnreadOwner, WalkEnd};

/// Priorities from here on are not preemptible unless the gang says so.
const NON_PREEMPTIBLE_FROM: i32 = 100;

/// What a workload calls the parts of its constraint.
const ANNOTATIONS: ConstraintKeys = ConstraintKeys {
    topology: keys::TOPOLOGY,
    required: keys::TOPOLOGY_REQUIRED,
    preferred: keys::TOPOLOGY_PREFERRED,
};

/// Facts of a gang as grouping derived it from a workload, with what people changed in its PodGroup, if there is one.
pub fn derived_gang_facts(group: &Group, object: Option<&PodGroup>, priorities: &Priorities) -> Result<GangFacts> {
    let mut written = PodGroup::new(&group.name, group.spec.clone());
    written.metadata.namespace = Some(group.namespace.clone());
    let owner = if group.workload.name.is_empty() {
        &group.owner
    } else {
        &group.workload
    };
    let mut facts = gang_facts(&written, &owner.display(), priorities)?;
    automatic::mark(&mut facts.subgroups, group.auto_preferred_topology.as_ref(), |subgroup| {
        group.auto_preferred.contains(&subgroup.name)
    });
    if facts.constraint != ConstraintFacts::default() {
        facts.constraint_keys = ANNOTATIONS;
    }
    // What is wrong with the workload's own value, grouping has said.
    facts.objective = group.annotations.get(keys::OBJECTIVE).and_then(|value| Objective::named(value));
    facts.limits = group.annotations.get(keys::MAX_DOMAINS).and_then(|value| read_limits(value)).unwrap_or_default();
    facts.problems = group.problems.iter().map(problem_fact).collect();
    let by_hand = |key: &str| object.filter(|object| !group.annotations.contains_key(key) && !is_derived(object, key));
    if let Some(object) = by_hand(keys::OBJECTIVE) {
        facts.objective = objective(object, &mut facts.problems);
    }
    if let Some(object) = by_hand(keys::MAX_DOMAINS) {
        facts.limits = limits(object, &mut facts.problems);
    }
    if let Some(object) = object {
        // A person moves a gang by editing its PodGroup; a constraint that the workload does not name stays.
        if let Some(queue) = &object.spec.queue {
            facts.queue.clone_from(queue);
        }
        facts.stale_since = stale_since(object);
        if facts.constraint == ConstraintFacts::default() && !has_derived_constraint(object) {
            facts.constraint = constraint(object.spec.topology_constraint.as_ref());
        }
    }
    facts.promised = object.map(promised).unwrap_or_default();
    facts.awaited = group.awaited.iter().map(|awaited| awaited_facts(group, awaited)).collect();
    let unread = group.unread_owner.iter().filter(|unread| unread.end != WalkEnd::Missing);
    let warnings: BTreeSet<Problem> =
        group.warnings.iter().map(problem_fact).chain(unread.map(unread_owner_fact)).collect();
    facts.warnings = warnings.into_iter().collect();
    Ok(facts)
}

/// Pods to come. A template that can't be read is told by its own pods; until then they count as the others.
fn awaited_facts(group: &Group, awaited: &Awaited) -> AwaitedFacts {
    let pod = awaited.template.as_ref().and_then(|template| serde_json::from_value::<Pod>(template.clone()).ok());
    let shape = pod.and_then(|mut pod| {
        pod.metadata.namespace = Some(group.namespace.clone());
        shape_facts(&pod).ok()
    });
    AwaitedFacts {
        subgroup: awaited.leaf.clone(),
        n_pods: u32::try_from(awaited.n_pods).unwrap_or(0),
        needed: awaited.needed,
        shape,
    }
}

/// Whether the constraint of a PodGroup was written for its workload, not by a person.
pub fn has_derived_constraint(object: &PodGroup) -> bool {
    let mark = object.metadata.annotations.as_ref().and_then(|all| all.get(keys::DERIVED_CONSTRAINT));
    mark.is_some_and(|mark| mark == keys::TRUE)
}

/// Annotations that go from a workload to its PodGroup and from it again, each with the mark that says where it came from.
pub const DERIVED: [(&str, &str); 2] =
    [(keys::OBJECTIVE, keys::DERIVED_OBJECTIVE), (keys::MAX_DOMAINS, keys::DERIVED_MAX_DOMAINS)];

/// Whether such an annotation of a PodGroup was written for its workload, not by a person.
pub fn is_derived(object: &PodGroup, key: &str) -> bool {
    let annotations = object.metadata.annotations.as_ref();
    DERIVED.iter().any(|(of, mark)| *of == key && annotations.and_then(|all| all.get(*mark)).is_some_and(|mark| mark == keys::TRUE))
}

/// The objective that a PodGroup names. A wrong one keeps the gang pending: nothing is guessed.
fn objective(group: &PodGroup, problems: &mut Vec<Problem>) -> Option<Objective> {
    let value = group.metadata.annotations.as_ref()?.get(keys::OBJECTIVE)?;
    let found = Objective::named(value);
    if found.is_none() {
        problems.push(Problem {
            code: ProblemCode::InvalidPolicy,
            object: format!("PodGroup/{}", group.metadata.name.as_deref().unwrap_or_default()),
            key: keys::OBJECTIVE.to_owned(),
            value: value.clone(),
            allowed: Objective::allowed(),
        });
    }
    found
}

/// The limits on domains that a PodGroup has. Wrong ones keep the gang pending.
fn limits(group: &PodGroup, problems: &mut Vec<Problem>) -> Vec<DomainLimit> {
    let Some(value) = group.metadata.annotations.as_ref().and_then(|all| all.get(keys::MAX_DOMAINS)) else { return Vec::new() };
    read_limits(value).unwrap_or_else(|| {
        problems.push(Problem {
            code: ProblemCode::InvalidMaxDomains,
            object: format!("PodGroup/{}", group.metadata.name.as_deref().unwrap_or_default()),
            key: keys::MAX_DOMAINS.to_owned(),
            value: value.clone(),
            allowed: max_domains::ALLOWED.to_owned(),
        });
        Vec::new()
    })
}

fn read_limits(value: &str) -> Option<Vec<DomainLimit>> {
    let limits = parse_max_domains(value).ok()?;
    Some(limits.into_iter().map(|(level, most)| DomainLimit { level, most }).collect())
}

pub(super) fn problem_fact(problem: &GroupProblem) -> Problem {
    Problem {
        code: problem.code,
        object: problem.object.clone(),
        key: problem.key.clone(),
        value: problem.value.trim_matches('"').to_owned(),
        allowed: problem.allowed.clone(),
    }
}

/// The warning that a gang may be too small, because what its owner asks for is not known.
#[must_use]
pub fn unread_owner_fact(unread: &UnreadOwner) -> Problem {
    let allowed = match unread.end {
        WalkEnd::Missing => "an owner that is there: what it asks for is not known",
        WalkEnd::Forbidden => "an owner that may be read: the permission to get, list and watch its kind is missing",
        WalkEnd::TooDeep => "a chain of owners that ends: this one is beyond the longest that is followed",
    };
    Problem {
        code: ProblemCode::UnreadOwner,
        object: String::new(),
        key: "metadata.ownerReferences".to_owned(),
        value: unread.id.display(),
        allowed: allowed.to_owned(),
    }
}

/// Facts of a gang from its PodGroup. `owner` is the workload that the user wrote.
pub fn gang_facts(group: &PodGroup, owner: &str, priorities: &Priorities) -> Result<GangFacts> {
    gang_fields(group, owner, priorities)
        .map_err(|error| error.of(object_name("scheduling.run.ai/v2alpha2", "PodGroup", &group.metadata)))
}

fn gang_fields(group: &PodGroup, owner: &str, priorities: &Priorities) -> std::result::Result<GangFacts, FieldError> {
    let name = required_name(&group.metadata)?;
    let spec = &group.spec;
    let priority = priorities.context().priority(spec);
    let preemptible = match spec.preemptibility {
        Some(Preemptibility::Preemptible) => true,
        Some(Preemptibility::NonPreemptible) => false,
        None => priority < NON_PREEMPTIBLE_FROM,
    };
    if spec.min_member.is_some() && spec.min_sub_group.is_some() {
        return Err(FieldError::new(
            "spec.minSubGroup",
            "",
            "minMember and minSubGroup exclude each other",
        ));
    }
    let mut subgroups = Vec::new();
    for (i, subgroup) in spec.sub_groups.iter().enumerate() {
        let field = format!("spec.subGroups[{i}]");
        if subgroup.name.is_empty() {
            return Err(FieldError::new(
                format!("{field}.name"),
                "",
                "empty; every subgroup needs a name",
            ));
        }
        subgroups.push(SubgroupFacts {
            name: subgroup.name.clone(),
            parent: subgroup.parent.clone().filter(|parent| !parent.is_empty()),
            min_member: count(&format!("{field}.minMember"), subgroup.min_member)?,
            min_subgroup: count(&format!("{field}.minSubGroup"), subgroup.min_sub_group)?,
            constraint: constraint(subgroup.topology_constraint.as_ref()),
            auto_preferred: false,
        });
    }
    let mut warnings = Vec::new();
    let written = group.metadata.annotations.as_ref().and_then(|all| all.get(keys::AUTOMATIC_PREFERRED));
    if let Some(value) = written.filter(|_| !priorities.context().compat_kai)
        && let Err(error) = automatic::read(value, &mut subgroups)
    {
        warnings.push(Problem {
            code: ProblemCode::InvalidPolicy,
            object: format!("PodGroup/{name}"),
            key: keys::AUTOMATIC_PREFERRED.to_owned(),
            value: value.clone(),
            allowed: format!("what berth writes there ({error})"),
        });
    }
    let staleness_grace_millis = spec.staleness_grace_period_millis().unwrap_or_else(|error| {
        warnings.push(Problem {
            code: ProblemCode::InvalidDuration,
            object: format!("PodGroup/{name}"),
            key: "spec.stalenessGracePeriod".to_owned(),
            value: spec.staleness_grace_period.clone().unwrap_or_default(),
            allowed: error.to_string(),
        });
        None
    });
    let preemption_delay_millis = spec.preemption_delay_millis().unwrap_or_else(|error| {
        warnings.push(Problem {
            code: ProblemCode::InvalidDuration,
            object: format!("PodGroup/{name}"),
            key: "spec.preemptionDelay".to_owned(),
            value: spec.preemption_delay.clone().unwrap_or_default(),
            allowed: error.to_string(),
        });
        None
    });
    let mut problems = Vec::new();
    let objective = objective(group, &mut problems);
    let limits = limits(group, &mut problems);
    Ok(GangFacts {
        uid: uid_of("PodGroup", &group.metadata),
        key: ObjectKey::new(group.metadata.namespace.clone().unwrap_or_default(), name),
        owner: owner.to_owned(),
        queue: spec.queue.clone().unwrap_or_default(),
        priority,
        preemptible,
        created: created_millis(&group.metadata),
        stale_since: stale_since(group),
        min_member: count("spec.minMember", spec.min_member)?,
        min_subgroup: count("spec.minSubGroup", spec.min_sub_group)?,
        constraint: constraint(spec.topology_constraint.as_ref()),
        staleness_grace_millis,
        preemption_delay_millis: preemption_delay_millis.unwrap_or(0).max(0),
        promised: promised(group),
        objective,
        limits,
        constraint_keys: ConstraintKeys::FIELDS,
        subgroups,
        awaited: Vec::new(),
        problems,
        warnings,
    })
}

/// Places that were promised to its pods, as written by an earlier process; what can't be read is no promise.
fn promised(group: &PodGroup) -> BTreeMap<String, String> {
    let written = group.metadata.annotations.as_ref().and_then(|all| all.get(keys::PROMISED));
    written.and_then(|text| read_promise(text)).unwrap_or_default()
}

/// Node by pod, from the form in which it is written: pods by node.
fn read_promise(text: &str) -> Option<BTreeMap<String, String>> {
    let by_node: BTreeMap<String, Vec<String>> = serde_json::from_str(text).ok()?;
    Some(by_node.into_iter().flat_map(|(node, pods)| pods.into_iter().map(move |pod| (pod, node.clone()))).collect())
}

/// How a promise is written down: each node is named once. `None` for no promise.
#[must_use]
pub fn write_promise(places: &BTreeMap<String, String>) -> Option<String> {
    let mut by_node: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (pod, node) in places {
        by_node.entry(node).or_default().push(pod);
    }
    (!by_node.is_empty()).then(|| json!(by_node).to_string())
}

/// Since when a PodGroup runs below its minimum, as Berth or KAI Scheduler wrote it down.
fn stale_since(group: &PodGroup) -> Option<Millis> {
    let text = group.metadata.annotations.as_ref()?.get(keys::STALE_TIMESTAMP)?;
    text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

fn count(field: &str, value: Option<i32>) -> std::result::Result<Option<u32>, FieldError> {
    value
        .map(|value| {
            u32::try_from(value)
                .map_err(|_| FieldError::new(field, value.to_string(), "negative; allowed is 0 or more"))
        })
        .transpose()
}

fn constraint(written: Option<&TopologyConstraint>) -> ConstraintFacts {
    let text = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
    written.map_or_else(ConstraintFacts::default, |constraint| ConstraintFacts {
        topology: text(&constraint.topology),
        required: text(&constraint.required_topology_level),
        preferred: text(&constraint.preferred_topology_level),
    })
}
