//! One gang of several owners: prefill, decode and router, each with its own workload, that start together or not at all.
//!
//! Every owner (or its pod template) names the gang, its role and all roles: `berth.scheduler/gang`,
//! `berth.scheduler/gang-role`, `berth.scheduler/gang-roles: "prefill=2,decode,router"`. A pod knows its own part only;
//! [`merge`] puts the parts together. A role is a node of the gang with the constraint, minimum and segments that its own
//! workload would have alone; one that is not there yet still counts, so the gang waits for it. With a number behind it, a
//! role has that many owners, or groups of a LeaderWorkerSet, and more of them are the elastic part.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::keys;
use berth_api::pod_group::SubGroup;

use super::object::Object;
use super::segments::{leaf, parent};
use super::{Awaited, Group, GroupProblem, Input, ObjectId, ProblemCode};

/// Start of the name of a joint PodGroup.
const PREFIX: &str = "pg-gang-";

/// The most owners of one gang: each is a node of the tree.
const MOST_OWNERS: i32 = 1_000;

/// What one owner is to a gang of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its node in the gang: the role, or with several owners the role and the owner.
    pub node: String,
    /// Its role.
    pub role: String,
    /// All roles in the order of the annotation, each with the number of its owners.
    pub roles: Vec<(String, i32)>,
}

/// Makes the group of a pod the part of a joint gang, if the pod or an owner names one.
pub(super) fn join(group: &mut Group, input: &Input<'_>) {
    let pod = Object::Pod(input.pod);
    let places: Vec<_> = [pod].into_iter().chain(input.owners.iter().map(|owner| Object::Owner(owner))).collect();
    let find = |key: &str| places.iter().find_map(|place| Some((*place, place.annotations().get(key)?.trim())));
    let Some((place, gang)) = find(keys::GANG).filter(|(_, gang)| !gang.is_empty()) else {
        return;
    };
    match part(&find, place, group, input) {
        Ok(part) => {
            group.name = format!("{PREFIX}{gang}");
            let own = group.subgroup.take();
            group.subgroup = Some(own.map_or_else(|| part.node.clone(), |own| format!("{}-{own}", part.node)));
            group.part = Some(part);
        }
        Err(problem) => group.problems.push(problem),
    }
}

fn part<'a>(
    find: &impl Fn(&str) -> Option<(Object<'a>, &'a str)>,
    place: Object<'a>,
    group: &Group,
    input: &Input<'_>,
) -> Result<Part, GroupProblem> {
    let problem = |place: Object<'_>, key: &str, value: &str, allowed: &str| {
        GroupProblem::text(ProblemCode::InvalidGang, place.display(), key, value, allowed)
    };
    let (roles_place, text) = find(keys::GANG_ROLES).unwrap_or((place, ""));
    let roles = roles(text).ok_or_else(|| {
        let allowed = "the roles of the gang with commas between, each once, such as prefill=2,decode,router";
        problem(roles_place, keys::GANG_ROLES, text, allowed)
    })?;
    let (role_place, role) = find(keys::GANG_ROLE).unwrap_or((place, ""));
    let Some((_, n_owners)) = roles.iter().find(|(name, _)| name == role) else {
        return Err(problem(role_place, keys::GANG_ROLE, role, &format!("a role of {text}")));
    };
    let node = match (n_owners, input.pod_label(keys::LWS_GROUP_INDEX)) {
        (1, _) => role.to_owned(),
        (_, Some(index)) => format!("{role}-{}-{index}", group.owner.name),
        (_, None) => format!("{role}-{}", group.owner.name),
    };
    Ok(Part { node, role: role.to_owned(), roles })
}

/// `prefill=2,decode`: names of subgroups, each once, with a number from 1 on.
fn roles(text: &str) -> Option<Vec<(String, i32)>> {
    let mut roles: Vec<(String, i32)> = Vec::new();
    let mut total = 0_i32;
    for item in text.split(',') {
        let (name, number) = item.split_once('=').unwrap_or((item, "1"));
        let (name, number) = (name.trim(), number.trim().parse::<i32>().ok()?);
        let is_label = !name.is_empty()
            && name.len() <= 40
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !name.starts_with('-');
        total = total.saturating_add(number);
        if !is_label || number < 1 || MOST_OWNERS < total || roles.iter().any(|(known, _)| known == name) {
            return None;
        }
        roles.push((name.to_owned(), number));
    }
    Some(roles)
}

/// The parts of a gang as they are seen.
#[derive(Clone, Debug, Default)]
pub struct Parts(BTreeMap<String, Box<Group>>);

impl Parts {
    /// The whole gang with what a pod says of its part; the group itself when it is no part of another.
    pub fn with(&mut self, group: &Group) -> Group {
        let Some(part) = &group.part else {
            return group.clone();
        };
        if !self.0.get(&part.node).is_some_and(|old| old.outranks(group)) {
            self.0.insert(part.node.clone(), Box::new(group.clone()));
        }
        merge(&self.0).unwrap_or_else(|| group.clone())
    }
}

/// One gang of its parts, by their nodes. `None` when there is no part.
#[must_use]
pub fn merge(parts: &BTreeMap<String, Box<Group>>) -> Option<Group> {
    let all = &parts.values().find_map(|group| group.part.as_ref())?.roles;
    let role_of = |group: &Group| group.part.as_ref().map(|part| part.role.clone()).unwrap_or_default();
    let first = all.iter().find_map(|(role, _)| parts.values().find(|group| role_of(group) == *role))?;
    let mut joint = Group { problems: Vec::new(), warnings: Vec::new(), ..Group::clone(first) };
    joint.auto_preferred.clear();
    joint.awaited.clear();
    // The score of several PodGangs together is that of none.
    joint.pod_gang = None;
    let others: BTreeSet<&ObjectId> = parts.values().map(|group| &group.owner).filter(|owner| **owner != first.owner).collect();
    joint.further_owners = others.into_iter().cloned().collect();
    joint.spec.topology_constraint = None;
    joint.spec.sub_groups.clear();
    joint.spec.min_member = None;
    joint.spec.min_sub_group = i32::try_from(all.len()).ok();
    for (role, n_owners) in all {
        let own: Vec<_> = parts.iter().filter(|(_, group)| role_of(group) == *role).collect();
        let above = (1 < *n_owners).then_some(role.as_str());
        if above.is_some() {
            joint.spec.sub_groups.push(parent(role, *n_owners, None));
        }
        for (node, group) in &own {
            add(&mut joint, node, above, group);
        }
        // Who is missing still counts: a leaf without pods keeps the gang waiting.
        let n_missing = usize::try_from(*n_owners).unwrap_or(0).saturating_sub(own.len());
        for number in 0..n_missing {
            let name = above.map_or_else(|| role.clone(), |role| format!("{role}-to-come-{number}"));
            joint.spec.sub_groups.push(leaf(&name, above, 1, None));
        }
    }
    Some(joint)
}

/// Adds one part below its role.
fn add(joint: &mut Group, node: &str, above: Option<&str>, group: &Group) {
    let constraint = group.spec.topology_constraint.clone();
    let below: Vec<&SubGroup> = group.spec.sub_groups.iter().collect();
    if below.is_empty() {
        joint.spec.sub_groups.push(leaf(node, above, group.spec.min_member.unwrap_or(1), constraint));
    } else {
        let n_roots = below.iter().filter(|subgroup| subgroup.parent.is_none()).count();
        let least = group.spec.min_sub_group.unwrap_or(i32::try_from(n_roots).unwrap_or(i32::MAX));
        let mut holder = parent(node, least, constraint);
        holder.parent = above.map(str::to_owned);
        joint.spec.sub_groups.push(holder);
    }
    for subgroup in below {
        let holder = subgroup.parent.as_ref().map_or_else(|| node.to_owned(), |parent| format!("{node}-{parent}"));
        let name = format!("{node}-{}", subgroup.name);
        if group.auto_preferred.contains(&subgroup.name) {
            joint.auto_preferred.insert(name.clone());
            joint.auto_preferred_topology.clone_from(&group.auto_preferred_topology);
        }
        joint.spec.sub_groups.push(SubGroup { name, parent: Some(holder), ..subgroup.clone() });
    }
    let within = |leaf: &str| if leaf.is_empty() { node.to_owned() } else { format!("{node}-{leaf}") };
    joint.awaited.extend(group.awaited.iter().map(|awaited| Awaited { leaf: within(&awaited.leaf), ..awaited.clone() }));
    joint.problems.extend(group.problems.iter().cloned());
    joint.warnings.extend(group.warnings.iter().cloned());
}
