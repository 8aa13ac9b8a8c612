//! `ray.io` RayCluster, RayJob and RayService: the head and the minimum of each worker group start together.
//!
//! Leaves are `headgroup` and the groups' names; a group's minimum is `minReplicas`, or else `replicas`, times
//! `numOfHosts`. Suspended groups and groups of none are left out. A group's template constrains its leaf, and a segment
//! size there cuts it. A RayJob's or RayService's cluster is the RayCluster among the pod's owners, so nothing is read from
//! a status; the pod that submits a RayJob is a gang of its own, because it runs only when the cluster does.
//!
//! Names and labels of pods are KubeRay's (ray-project/kuberay, `ray-operator/controllers/ray/common`): `<cluster>-head`,
//! `<cluster>-<group>-worker-<suffix>`, `ray.io/group`, and with the feature gate `RayMultiHostIndexing` of 1.5
//! `ray.io/worker-group-replica-index` and, for groups of several hosts, `ray.io/replica-host-index`. `simulate` has it on.

use berth_api::keys;
use berth_api::pod_group::TopologyConstraint;
use serde_json::{Value, json};

use super::job;
use crate::grouping::defaults::Defaults;
use crate::grouping::expand::{Draft, ExpandProblem, Identity, Plan, Workload};
use crate::grouping::object::{Notes, Object, integer};
use crate::grouping::segments::{Place, Places, Segments, leaf, parent};
use crate::grouping::{Group, GroupProblem, Input, ProblemCode};

const SUBMITTER: &str = "/spec/submitterPodTemplate";
const HEAD: &str = "headgroup";
const CLUSTER: &str = "ray.io/cluster";
const NODE_TYPE: &str = "ray.io/node-type";
const IDENTIFIER: &str = "ray.io/identifier";
const REPLICA_INDEX: &str = "ray.io/worker-group-replica-index";
const HOST_INDEX: &str = "ray.io/replica-host-index";

/// A group of equal pods.
struct Role<'a> {
    name: String,
    /// Where its template is in the cluster's spec.
    pointer: String,
    /// Pods, and pods at least.
    n_pods: i32,
    least: i32,
    n_hosts: i32,
    segments: Option<Segments>,
    constraint: Option<TopologyConstraint>,
    index_label: Option<&'a str>,
}

/// The group of a Ray pod.
pub fn group(input: &Input<'_>) -> Group {
    let Some(cluster) = input.nearest("RayCluster") else {
        return match input.nearest("Job") {
            Some(submitter) => job::group_from(input, vec![submitter, input.top()], submitter.value()),
            None => super::generic::group(input),
        };
    };
    let mut group = Defaults::new(input).with_segments().build();
    let class = [input.top(), cluster].into_iter().find_map(|owner| owner.labels().get(keys::RAY_PRIORITY_CLASS));
    if let Some(class) = class {
        class_from_label(&mut group, input, class);
    }
    let roles = match roles(cluster, input.top(), "/spec") {
        Ok(roles) => roles,
        Err(problem) => {
            group.problems.push(problem);
            return group;
        }
    };
    group.spec.min_member = Some(roles.iter().fold(0, |sum, role| role.least.saturating_add(sum)));
    for role in &roles {
        match &role.segments {
            None => group.spec.sub_groups.push(leaf(&role.name, None, role.least, role.constraint.clone())),
            Some(segments) => {
                let n_outer = segments.n_outer(role.n_pods);
                group.spec.sub_groups.push(parent(&role.name, n_outer, role.constraint.clone()));
                segments.add(&mut group, Some(&role.name), &role.name, role.n_pods, role.least);
            }
        }
    }
    if let Err(problem) = join(&mut group, input, &roles) {
        group.pod_problem = Some(problem);
    }
    group
}

/// Ray's own label for the class counts first. KAI takes it unseen; here it must exist, or it is said.
fn class_from_label(group: &mut Group, input: &Input<'_>, class: &str) {
    if input.context.priority_class(class).is_some() {
        group.spec.priority_class_name = Some(class.to_owned());
        return;
    }
    let allowed = "the name of a PriorityClass that exists";
    let (code, key) = (ProblemCode::UnknownPriorityClass, keys::RAY_PRIORITY_CLASS);
    group.warnings.push(GroupProblem::text(code, input.top().display(), key, class, allowed));
}

/// Puts the pod into its leaf.
fn join(group: &mut Group, input: &Input<'_>, roles: &[Role<'_>]) -> Result<(), GroupProblem> {
    let word = input.pod_label(keys::RAY_GROUP);
    let Some((position, role)) = roles.iter().enumerate().find(|(_, role)| word == Some(&role.name)) else {
        let names: Vec<_> = roles.iter().map(|role| role.name.as_str()).collect();
        return Err(input.bad_label(keys::RAY_GROUP, word, &names.join(" or ")));
    };
    let index = match role.index_label {
        Some(label) => Some(input.pod_index(label)?),
        None => native_index(input, role),
    };
    let before = roles.iter().take(position).fold(0_u32, |sum, role| sum.saturating_add(role.n_pods.unsigned_abs()));
    group.index = if position == 0 { Some(0) } else { index.map(|index| index.saturating_add(before)) };
    group.subgroup = Some(role.name.clone());
    let Some(segments) = &role.segments else {
        return Ok(());
    };
    let key = role.index_label.unwrap_or(REPLICA_INDEX);
    let number = index.and_then(|index| i32::try_from(index).ok()).filter(|number| *number < role.n_pods);
    let Some(number) = number else {
        let allowed = format!("an index below {}, the pods of the group: KubeRay 1.5 writes it with its feature gate RayMultiHostIndexing", role.n_pods);
        return Err(input.bad_label(key, input.pod_label(key), &allowed));
    };
    group.subgroup = Some(segments.leaf(&role.name, number));
    Ok(())
}

/// The index of a pod in its group, where KubeRay says it.
fn native_index(input: &Input<'_>, role: &Role<'_>) -> Option<u32> {
    let replica = input.pod_index(REPLICA_INDEX).ok()?;
    let host = if role.n_hosts == 1 { 0 } else { input.pod_index(HOST_INDEX).ok()? };
    replica.checked_mul(role.n_hosts.unsigned_abs())?.checked_add(host)
}

/// The groups of a cluster, the head first. `top` is the object whose annotations name the topology.
fn roles<'a>(cluster: Object<'a>, top: Object<'a>, base: &str) -> Result<Vec<Role<'a>>, GroupProblem> {
    let spec = cluster.value();
    let mut roles = vec![role(cluster, top, HEAD.to_owned(), format!("{base}/headGroupSpec"), (1, 1, 1))?];
    let groups = spec.pointer(&format!("{base}/workerGroupSpecs")).and_then(Value::as_array).map_or(0, Vec::len);
    for position in 0..groups {
        let pointer = format!("{base}/workerGroupSpecs/{position}");
        if spec.pointer(&format!("{pointer}/suspend")).and_then(Value::as_bool) == Some(true) {
            continue;
        }
        let read = |field: &str, range| integer(spec, &format!("{pointer}/{field}"), range, ProblemCode::InvalidReplicas);
        let most = read("replicas", (0, i32::MAX))?;
        let least = read("minReplicas", (0, most.unwrap_or(i32::MAX)))?.filter(|least| 0 < *least);
        let (most, n_hosts) = (most.or(least).unwrap_or(0), read("numOfHosts", (1, i32::MAX))?.unwrap_or(1));
        if most == 0 {
            continue;
        }
        let name = spec.pointer(&format!("{pointer}/groupName")).and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.map_or_else(|| format!("worker-group-{position}"), str::to_owned);
        let counts = (most.saturating_mul(n_hosts), least.unwrap_or(most).saturating_mul(n_hosts), n_hosts);
        roles.push(role(cluster, top, name, pointer, counts)?);
    }
    Ok(roles)
}

fn role<'a>(
    cluster: Object<'a>,
    top: Object<'a>,
    name: String,
    pointer: String,
    (n_pods, least, n_hosts): (i32, i32, i32),
) -> Result<Role<'a>, GroupProblem> {
    let template = Notes::at(cluster.value(), &format!("{pointer}/template/metadata/annotations"));
    // Segments cut workers: what the whole workload says of them is not about its head.
    let of_top = if name == HEAD { Notes::Typed(None) } else { top.annotations() };
    let places = Places([
        Place { object: format!("{}, template of {name}", cluster.display()), annotations: template },
        Place { object: top.display(), annotations: of_top },
    ]);
    let read = |key: &str| template.get(key).filter(|value| !value.is_empty()).map(str::to_owned);
    let (required, preferred) = (read(keys::TOPOLOGY_REQUIRED), read(keys::TOPOLOGY_PREFERRED));
    let constraint = (required.is_some() || preferred.is_some()).then(|| TopologyConstraint {
        topology: read(keys::TOPOLOGY).or_else(|| top.annotations().get(keys::TOPOLOGY).map(str::to_owned)),
        required_topology_level: required,
        preferred_topology_level: preferred,
    });
    let (segments, index_label) = (places.read(n_pods)?, places.index_label());
    Ok(Role { name, pointer, n_pods, least, n_hosts, segments, constraint, index_label })
}

/// The pods of a RayCluster.
pub fn expand(cluster: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    if cluster.is_true("/spec/suspend") {
        return Err(cluster.problem("/spec/suspend", "the RayCluster is suspended, so its operator creates no pods"));
    }
    expand_spec(cluster, plan, "/spec", cluster.name(), &cluster.object)
}

/// The pods of a RayJob: those of its cluster, and the one that submits it.
pub fn expand_job(ray_job: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    if ray_job.is_true("/spec/suspend") {
        return Err(ray_job.problem("/spec/suspend", "the RayJob is suspended, so its operator creates no cluster"));
    }
    if ray_job.object.pointer("/spec/clusterSelector").and_then(Value::as_object).is_some_and(|map| !map.is_empty()) {
        return Ok(());
    }
    expand_below(ray_job, plan, "/spec/rayClusterSpec")?;
    expand_submitter(ray_job, plan)
}

/// The pod that submits a RayJob, where its template is written: KubeRay's own one has no scheduler of ours.
fn expand_submitter(ray_job: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    let mode = ray_job.object.pointer("/spec/submissionMode").and_then(Value::as_str).unwrap_or("K8sJobMode");
    if mode != "K8sJobMode" || ray_job.object.pointer(SUBMITTER).is_none() {
        return Ok(());
    }
    let mut submitter = ray_job.child("batch/v1", "Job", ray_job.name());
    submitter["spec"] = json!({"parallelism": 1, "completions": 1, "template": ray_job.object.pointer(SUBMITTER)});
    let labels = json!({"job-name": ray_job.name(), keys::JOB_NAME: ray_job.name()});
    let pod = ray_job.pod(SUBMITTER, &format!("{}-0", ray_job.name()), &submitter)?.labels(&labels).finish();
    plan.objects.push(submitter);
    plan.pods.push(Draft { pod, identity: Identity::Label(keys::JOB_NAME, ray_job.name().to_owned()) });
    Ok(())
}

/// The pods of a RayService: those of its one cluster.
pub fn expand_service(service: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    expand_below(service, plan, "/spec/rayClusterConfig")
}

fn expand_below(workload: &Workload<'_>, plan: &mut Plan, base: &str) -> Result<(), ExpandProblem> {
    let Some(spec) = workload.object.pointer(base).filter(|spec| spec.is_object()) else {
        return Err(workload.problem(base, "the spec of the RayCluster is missing"));
    };
    let version = workload.object.pointer("/apiVersion").and_then(Value::as_str).unwrap_or("ray.io/v1");
    let name = format!("{}-raycluster", workload.name());
    let mut cluster = workload.child(version, "RayCluster", &name);
    cluster["spec"] = spec.clone();
    expand_spec(workload, plan, base, &name, &cluster)?;
    plan.objects.push(cluster);
    Ok(())
}

fn expand_spec(workload: &Workload<'_>, plan: &mut Plan, base: &str, name: &str, cluster: &Value) -> Result<(), ExpandProblem> {
    for role in roles(Object::Owner(&workload.object), Object::Owner(&workload.object), base)? {
        let is_head = role.name == HEAD;
        for index in 0..workload.limit(&format!("{}/replicas", role.pointer), role.n_pods)? {
            let node_type = if is_head { "head" } else { "worker" };
            let pod_name = if is_head { format!("{name}-head") } else { format!("{name}-{}-worker-{index}", role.name) };
            let mut labels = json!({
                CLUSTER: name, NODE_TYPE: node_type, keys::RAY_GROUP: role.name, IDENTIFIER: format!("{name}-{node_type}"),
                "ray.io/is-ray-node": "yes", "app.kubernetes.io/name": "kuberay",
                "app.kubernetes.io/created-by": "kuberay-operator",
            });
            if !is_head {
                labels[REPLICA_INDEX] = json!((index / role.n_hosts).to_string());
                if 1 < role.n_hosts {
                    labels[HOST_INDEX] = json!((index % role.n_hosts).to_string());
                }
            }
            let pod = workload.pod(&format!("{}/template", role.pointer), &pod_name, cluster)?.labels(&labels).finish();
            plan.pods.push(Draft { pod, identity: Identity::Name });
        }
    }
    Ok(())
}
