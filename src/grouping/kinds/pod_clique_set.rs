//! `grove.io` PodCliqueSet (and PodGangSet, its older name), also below a DynamoGraphDeployment: each PodGang is a gang.
//!
//! The pod's label `grove.io/podgang` names its PodGang. A replica's first one (`<set>-<replica>`) holds the cliques of no
//! scaling group and the first `minAvailable` replicas of each scaling group; every further replica of a scaling group is a
//! PodGang of its own (`<set>-<replica>-<scaling group>-<n>`), whose pods Grove gates until the first one runs. Leaves are the PodCliques, `<set>-<replica>-<clique>` or
//! `<set>-<replica>-<scaling group>-<n>-<clique>`, each with the clique's `minAvailable`. All this follows from the set;
//! where the PodGang object is there, what it says comes first ([`pod_gang`]), and a gang that the set does not have (an
//! autoscaler made it) follows from the PodGang alone. The group is `pg-<podgang>-<uid of the set>` either way, so that it
//! keeps its name when the PodGang comes late; KAI writes the PodGang's UID.
//!
//! A topology constraint of the set, a scaling group or a clique (`topologyConstraint.packDomain`, required) is that of the
//! gang, a parent or a leaf; the topology is that of `grove.io/topology-name`, else `kai.scheduler/topology`. Names and
//! labels: ai-dynamo/grove, `docs/user-guide/pod-and-resource-naming-conventions` and `operator/api/common/labels.go`.

use berth_api::keys;
use berth_api::pod_group::{SubGroup, TopologyConstraint};
use serde_json::{Value, json};

use crate::grouping::defaults::{Defaults, group_name};
use crate::grouping::expand::{Draft, ExpandProblem, Identity, Plan, Workload};
use crate::grouping::object::{Object, integer};
use crate::grouping::segments::{MOST_SEGMENTS, leaf, parent};
use crate::grouping::{pod_gang, Group, GroupProblem, Input, ProblemCode};

const POD_CLIQUE: &str = "grove.io/podclique";
const SET_REPLICA: &str = "grove.io/podcliqueset-replica-index";
const SCALING_GROUP: &str = "grove.io/podcliquescalinggroup";
const SCALING_REPLICA: &str = "grove.io/podcliquescalinggroup-replica-index";
const CLIQUES: &str = "/spec/template/cliques";
const SCALING_GROUPS: &str = "/spec/template/podCliqueScalingGroups";
const GROUP_CONFIGS: &str = "/spec/template/podCliqueScalingGroupConfigs";

/// A clique of the set's template.
struct Clique<'a> {
    position: usize,
    name: &'a str,
    n_pods: i32,
    least: i32,
    level: Option<&'a str>,
}

/// A scaling group: cliques that come and go together.
struct Scaling<'a> {
    name: &'a str,
    cliques: Vec<&'a str>,
    n_replicas: i32,
    least: i32,
    level: Option<&'a str>,
}

/// One PodClique of a gang.
struct Part {
    name: String,
    position: usize,
    /// Name of the parent: one replica of a scaling group.
    scaling: Option<(String, String, i32)>,
    n_pods: i32,
    least: i32,
}

/// The group of a pod under a PodCliqueSet.
pub fn group(input: &Input<'_>) -> Group {
    let set = input.nearest("PodCliqueSet").or_else(|| input.nearest("PodGangSet")).unwrap_or_else(|| input.top());
    let mut group = Defaults::new(input).sources(vec![set, input.top()]).build();
    let Some(gang) = input.pod_label(keys::GROVE_POD_GANG) else {
        group.pod_problem = Some(input.bad_label(keys::GROVE_POD_GANG, None, "the name of a PodGang"));
        return group;
    };
    group.name = group_name(gang, &group.owner.uid, "");
    group.pod_gang = Some(gang.to_owned());
    if let Err(problem) = fill(&mut group, input, set, gang) {
        group.problems.push(problem);
    }
    group
}

fn fill(group: &mut Group, input: &Input<'_>, set: Object<'_>, gang: &str) -> Result<(), GroupProblem> {
    let (cliques, scalings) = (cliques(set.value())?, scalings(set.value())?);
    let topology = set.annotations().get(keys::GROVE_TOPOLOGY).or_else(|| set.annotations().get(keys::TOPOLOGY));
    let rule = |level: Option<&str>| {
        level.map(|level| TopologyConstraint {
            topology: topology.map(str::to_owned),
            required_topology_level: Some(level.to_owned()),
            preferred_topology_level: None,
        })
    };
    if let Some(root) = rule(level(set.value(), "/spec/template")) {
        group.spec.topology_constraint = Some(root);
    }
    let n_replicas = replicas(set.value())?;
    check_size(set, n_replicas, &cliques, &scalings)?;
    let gangs = gangs(set.id().name.as_str(), n_replicas, &cliques, &scalings);
    let object = input.pod_gang();
    let parts = gangs.into_iter().find(|(name, _)| name == gang).map(|(_, parts)| parts);
    if parts.is_none() && object.is_none() {
        group.pod_problem = Some(input.bad_label(keys::GROVE_POD_GANG, Some(gang), "a PodGang of the set"));
        return Ok(());
    }
    pod_gang::priority_class(group, set, "/spec/template/priorityClassName", input.context);
    group.spec.sub_groups = leaves(&parts.unwrap_or_default(), &cliques, &scalings, rule);
    if let Some(object) = &object {
        pod_gang::apply(group, object, input.context)?;
    }
    let least = group.spec.sub_groups.iter().filter_map(|leaf| leaf.min_member);
    group.spec.min_member = Some(least.fold(0, i32::saturating_add));
    place(group, input, object.as_deref());
    Ok(())
}

/// Finds the leaf of the pod: by its label, or else where the PodGang lists it.
fn place(group: &mut Group, input: &Input<'_>, gang: Option<&Value>) {
    let is_leaf = |name: &str| group.spec.sub_groups.iter().any(|leaf| leaf.name == name && leaf.min_member.is_some());
    let word = input.pod_label(POD_CLIQUE);
    let listed = || pod_gang::clique_of(gang?, input.pod.metadata.name.as_deref()?).filter(|name| is_leaf(name));
    group.subgroup = word.filter(|word| is_leaf(word)).map(str::to_owned).or_else(listed);
    if group.subgroup.is_none() {
        let leaves = group.spec.sub_groups.iter().filter(|leaf| leaf.min_member.is_some());
        let names: Vec<_> = leaves.map(|leaf| leaf.name.as_str()).collect();
        group.pod_problem = Some(input.bad_label(POD_CLIQUE, word, &names.join(" or ")));
    }
}

/// The PodCliques of a gang, those of a scaling group with a level below a parent.
fn leaves(
    parts: &[Part],
    cliques: &[Clique<'_>],
    scalings: &[Scaling<'_>],
    rule: impl Fn(Option<&str>) -> Option<TopologyConstraint>,
) -> Vec<SubGroup> {
    let mut leaves: Vec<SubGroup> = Vec::new();
    for part in parts {
        let constraint = rule(cliques.get(part.position).and_then(|clique| clique.level));
        let level = part.scaling.as_ref().and_then(|(_, scaling, _)| scalings.iter().find(|known| known.name == scaling)?.level);
        let holder = part.scaling.as_ref().filter(|_| level.is_some()).map(|(name, _, _)| name.clone());
        if let Some(name) = holder.as_ref().filter(|name| leaves.iter().all(|leaf| leaf.name != **name)) {
            let n_parts = parts.iter().filter(|part| part.scaling.as_ref().is_some_and(|(own, ..)| own == name)).count();
            leaves.push(parent(name, i32::try_from(n_parts).unwrap_or(i32::MAX), rule(level)));
        }
        leaves.push(leaf(&part.name, holder.as_deref(), part.least, constraint));
    }
    leaves
}

fn replicas(set: &Value) -> Result<i32, GroupProblem> {
    Ok(integer(set, "/spec/replicas", (0, i32::MAX), ProblemCode::InvalidReplicas)?.unwrap_or(1))
}

/// The level that must hold something: `packDomain` of its topology constraint.
fn level<'a>(set: &'a Value, base: &str) -> Option<&'a str> {
    set.pointer(&format!("{base}/topologyConstraint/packDomain")).and_then(Value::as_str).filter(|level| !level.is_empty())
}

fn counts(set: &Value, base: &str) -> Result<(i32, i32), GroupProblem> {
    let read = |field: &str, range| integer(set, &format!("{base}/{field}"), range, ProblemCode::InvalidReplicas);
    let n = read("replicas", (0, i32::MAX))?.unwrap_or(1);
    Ok((n, read("minAvailable", (1, n.max(1)))?.unwrap_or(n)))
}

fn cliques(set: &Value) -> Result<Vec<Clique<'_>>, GroupProblem> {
    let listed = set.pointer(CLIQUES).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut cliques = Vec::new();
    for (position, clique) in listed.iter().enumerate() {
        let (n_pods, least) = counts(set, &format!("{CLIQUES}/{position}/spec"))?;
        let name = clique.get("name").and_then(Value::as_str).unwrap_or_default();
        let level = level(set, &format!("{CLIQUES}/{position}"));
        cliques.push(Clique { position, name, n_pods, least, level });
    }
    Ok(cliques)
}

/// The scaling groups: the field has two names, by the version of the operator.
fn scalings(set: &Value) -> Result<Vec<Scaling<'_>>, GroupProblem> {
    let base = if set.pointer(GROUP_CONFIGS).is_some() { GROUP_CONFIGS } else { SCALING_GROUPS };
    let listed = set.pointer(base).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut scalings = Vec::new();
    for (position, scaling) in listed.iter().enumerate() {
        let pointer = format!("{base}/{position}");
        let (n_replicas, _) = counts(set, &pointer)?;
        let least = integer(set, &format!("{pointer}/minAvailable"), (1, n_replicas.max(1)), ProblemCode::InvalidReplicas)?;
        let names = scaling.get("cliqueNames").and_then(Value::as_array);
        scalings.push(Scaling {
            name: scaling.get("name").and_then(Value::as_str).unwrap_or_default(),
            cliques: names.into_iter().flatten().filter_map(Value::as_str).collect(),
            n_replicas,
            least: least.unwrap_or(1),
            level: level(set, &pointer),
        });
    }
    Ok(scalings)
}

/// A set of so many PodCliques is a slip of the finger, and must not take all memory.
fn check_size(set: Object<'_>, n_replicas: i32, cliques: &[Clique<'_>], scalings: &[Scaling<'_>]) -> Result<(), GroupProblem> {
    let per_replica = scalings.iter().fold(i32::try_from(cliques.len()).unwrap_or(i32::MAX), |sum, scaling| {
        let own = i32::try_from(scaling.cliques.len()).unwrap_or(i32::MAX).max(1);
        sum.saturating_add(scaling.n_replicas.saturating_mul(own))
    });
    let total = n_replicas.saturating_mul(per_replica.max(1));
    if total <= MOST_SEGMENTS {
        return Ok(());
    }
    Err(GroupProblem {
        code: ProblemCode::InvalidReplicas,
        object: set.display(),
        key: "spec.replicas".to_owned(),
        value: format!("{total} PodCliques"),
        allowed: format!("at most {MOST_SEGMENTS} of them"),
    })
}

/// Every PodGang of the set with its PodCliques.
fn gangs(set: &str, n_replicas: i32, cliques: &[Clique<'_>], scalings: &[Scaling<'_>]) -> Vec<(String, Vec<Part>)> {
    let mut gangs = Vec::new();
    let is_scaled = |clique: &&Clique<'_>| scalings.iter().any(|scaling| scaling.cliques.contains(&clique.name));
    for replica in 0..n_replicas {
        let base = format!("{set}-{replica}");
        let alone = cliques.iter().filter(|clique| !is_scaled(clique));
        let mut first: Vec<Part> = alone.map(|clique| part(format!("{base}-{}", clique.name), clique, None)).collect();
        let mut further = Vec::new();
        for scaling in scalings {
            for index in 0..scaling.n_replicas {
                let holder = format!("{base}-{}-{index}", scaling.name);
                let own = cliques.iter().filter(|clique| scaling.cliques.contains(&clique.name));
                let parts = own.map(|clique| {
                    part(format!("{holder}-{}", clique.name), clique, Some((holder.clone(), scaling.name.to_owned(), index)))
                });
                if index < scaling.least {
                    first.extend(parts);
                } else {
                    // Further gangs count from 0, whatever the replicas that the first one holds.
                    further.push((format!("{base}-{}-{}", scaling.name, index - scaling.least), parts.collect()));
                }
            }
        }
        gangs.push((base, first));
        gangs.append(&mut further);
    }
    gangs
}

fn part(name: String, clique: &Clique<'_>, scaling: Option<(String, String, i32)>) -> Part {
    Part { name, position: clique.position, scaling, n_pods: clique.n_pods, least: clique.least }
}

/// The pods of a PodCliqueSet, through its PodCliques.
pub fn expand(set: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    let n_replicas = replicas(&set.object)?;
    let (cliques, scalings) = (cliques(&set.object)?, scalings(&set.object)?);
    check_size(Object::Owner(&set.object), n_replicas, &cliques, &scalings)?;
    for (gang, parts) in gangs(set.name(), n_replicas, &cliques, &scalings) {
        for part in parts {
            let mut labels = json!({keys::GROVE_POD_GANG: gang, POD_CLIQUE: part.name, "app.kubernetes.io/part-of": set.name()});
            let own = part.name.strip_prefix(&format!("{}-", set.name())).and_then(|rest| rest.split('-').next());
            labels[SET_REPLICA] = json!(own.unwrap_or("0"));
            let first = format!("{}-{}", set.name(), own.unwrap_or("0"));
            let is_scaled = gang != first;
            if is_scaled {
                labels[keys::GROVE_BASE_POD_GANG] = json!(first);
            }
            let scaling = part.scaling.as_ref().and_then(|(holder, _, index)| Some((holder.rsplit_once('-')?.0, index)));
            if let Some((name, index)) = scaling {
                labels[SCALING_GROUP] = json!(name);
                labels[SCALING_REPLICA] = json!(index.to_string());
            }
            let clique = set.child("grove.io/v1alpha1", "PodClique", &part.name);
            let base = format!("{CLIQUES}/{}", part.position);
            for index in 0..set.limit(&format!("{base}/spec/replicas"), part.n_pods)? {
                let name = format!("{}-{index}", part.name);
                let mut pod = pod(set, &base, &name, &clique)?.labels(&labels).finish();
                if is_scaled {
                    gate(&mut pod);
                }
                plan.pods.push(Draft { pod, identity: Identity::Name });
            }
            plan.objects.push(clique);
        }
    }
    Ok(())
}

/// A pod of a scaled gang is not scheduled before its base gang is: `simulate` takes the gate away then.
fn gate(pod: &mut Value) {
    let gate = json!({"name": keys::GROVE_GATE});
    match pod.pointer_mut("/spec/schedulingGates").and_then(Value::as_array_mut) {
        Some(gates) => gates.push(gate),
        None => pod["spec"]["schedulingGates"] = json!([gate]),
    }
}

/// A pod of a clique, whose template keeps labels and annotations beside `spec.podSpec`.
fn pod(set: &Workload<'_>, base: &str, name: &str, clique: &Value) -> Result<crate::grouping::expand::PodDraft, ExpandProblem> {
    let at = |field: &str| set.object.pointer(&format!("{base}/{field}")).cloned();
    let mut holder = set.clone();
    holder.object["spec"]["podOfClique"] = json!({
        "metadata": {"labels": at("labels").unwrap_or_else(|| json!({})), "annotations": at("annotations").unwrap_or_else(|| json!({}))},
        "spec": at("spec/podSpec").unwrap_or_default(),
    });
    holder.pod("/spec/podOfClique", name, clique)
}
