//! `jobset.x-k8s.io` JobSet: a parent for each replicated job, with a leaf for each of its Jobs.
//!
//! The parents are `<replicated job>` and need all their leaves `<replicated job>-replica-<i>`; a leaf's minimum is
//! `kai.scheduler/batch-min-member` on the Job template, or else its parallelism. Of the parents all are needed, or as many as
//! `kai.scheduler/batch-min-member` on the set says. The Job template's topology
//! keys constrain its leaves, and a segment size cuts them by the completion index.
//!
//! Jobs that start in order (`startupPolicyOrder: InOrder`) or after others (`dependsOn`) do not exist yet when the first pods
//! wait. A pod of the first ones asks for these alone, in a domain where those that come beside them will fit; a pod of later
//! ones no longer asks for what has begun before it, which may have ended. What comes after a Job's end has its room then.
//!
//! With exclusive placement (`alpha.jobset.sigs.k8s.io/exclusive-topology`) the followers of a Job are created only when its
//! leader, the pod of index 0, has a node: until then the leaf asks for the leader alone, in a domain where the others will fit.
//!
//! Names and labels are the controller's (kubernetes-sigs/jobset, `api/jobset/v1alpha2`, `pkg/controllers`): Jobs
//! `<set>-<replicated job>-<i>`, pods `<job>-<completion index>-<suffix>`.

use std::collections::BTreeMap;

use berth_api::keys;
use berth_api::pod_group::TopologyConstraint;
use serde_json::{Value, json};

use super::job;
use crate::grouping::defaults::{Defaults, min_member};
use crate::grouping::expand::{ExpandProblem, Identity, Plan, Workload};
use crate::grouping::object::{Notes, Object, integer};
use crate::grouping::segments::{MOST_SEGMENTS, Place, Places, Segments, leaf, parent};
use crate::grouping::{Awaited, Group, GroupProblem, Input, ProblemCode};

const EXCLUSIVE: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
const SELECTOR_STRATEGY: &str = "alpha.jobset.sigs.k8s.io/node-selector";
const ORDER: &str = "/spec/startupPolicy/startupPolicyOrder";

/// A replicated job.
struct Replicated<'a> {
    name: String,
    n_jobs: i32,
    /// Pods of one Job, and of them at least.
    n_pods: i32,
    least: i32,
    segments: Option<Segments>,
    constraint: Option<TopologyConstraint>,
    index_label: Option<&'a str>,
    has_leader: bool,
    template: Option<&'a Value>,
    after: Vec<Predecessor<'a>>,
}

/// A replicated job that must be there before another one.
struct Predecessor<'a> {
    name: &'a str,
    /// It must have ended; otherwise it must be ready.
    complete: bool,
}

/// When the Jobs of a replicated job are there, seen from a pod of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// They began before the pod's own, and may have ended.
    Before,
    /// They are there with the pod.
    Now,
    /// They come, and run beside what is there.
    Next,
    /// They come when something else has ended.
    Later,
}

/// The group of a JobSet's pod.
pub fn group(input: &Input<'_>) -> Group {
    group_from(input, input.top(), vec![input.top()])
}

/// The group of a pod of this set, with the sources whose labels and annotations count.
pub(super) fn group_from<'a>(input: &Input<'a>, set: Object<'a>, sources: Vec<Object<'a>>) -> Group {
    let mut group = Defaults::new(input).sources(sources).with_segments().with_min_member().build();
    let built = replicated_jobs(set).and_then(|jobs| Ok((minimum(set, &jobs)?, jobs)));
    let (least, jobs) = match built {
        Ok(built) => built,
        Err(problem) => {
            group.problems.push(problem);
            return group;
        }
    };
    group.spec.min_member = None;
    group.spec.min_sub_group = Some(least);
    let place = member(input, &jobs);
    let waits = place.as_ref().ok().filter(|place| waits_for_leader(input, place));
    let has_leader_only = waits.is_some();
    let own = place.as_ref().ok().map(|place| place.job.name.as_str());
    // Who says how many of them are enough has chosen among them.
    let may_choose = set.annotations().get(keys::BATCH_MIN_MEMBER).is_some();
    let turns = if may_choose { vec![Turn::Now; jobs.len()] } else { turns(&jobs, own) };
    group.step = turns.iter().filter(|turn| **turn == Turn::Before).count();
    for (job, turn) in jobs.iter().zip(turns) {
        add_job(&mut group, job, turn, has_leader_only);
    }
    match place {
        Ok(place) => {
            let name = leaf_name(place.job, place.job_index);
            let segments = place.job.segments.as_ref();
            group.subgroup = Some(segments.map_or_else(|| name.clone(), |segments| segments.leaf(&name, place.pod_index)));
            group.index = Some(place.rank);
        }
        Err(problem) => group.pod_problem = Some(problem),
    }
    group
}

/// The turn of each replicated job, seen from a pod of one of them.
fn turns(jobs: &[Replicated<'_>], own: Option<&str>) -> Vec<Turn> {
    let (mut before, mut ended): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut open: Vec<&Replicated<'_>> = jobs.iter().filter(|job| Some(job.name.as_str()) == own).collect();
    while let Some(job) = open.pop() {
        for predecessor in &job.after {
            if predecessor.complete {
                ended.push(predecessor.name);
            }
            if !before.contains(&predecessor.name) {
                before.push(predecessor.name);
                open.extend(jobs.iter().find(|job| job.name == predecessor.name));
            }
        }
    }
    let mut turns: BTreeMap<&str, Turn> = BTreeMap::new();
    for job in jobs {
        let is_over = |after: &Predecessor<'_>| !after.complete || ended.contains(&after.name);
        let comes = |after: &Predecessor<'_>| is_over(after) && turns.get(after.name).is_some_and(|turn| *turn != Turn::Later);
        let turn = if before.contains(&job.name.as_str()) {
            Turn::Before
        } else if job.after.iter().all(|after| before.contains(&after.name) && is_over(after)) {
            Turn::Now
        } else if job.after.iter().all(comes) {
            Turn::Next
        } else {
            Turn::Later
        };
        turns.insert(&job.name, turn);
    }
    jobs.iter().map(|job| turns.get(job.name.as_str()).copied().unwrap_or(Turn::Now)).collect()
}

fn add_job(group: &mut Group, job: &Replicated<'_>, turn: Turn, has_leader_only: bool) {
    group.spec.sub_groups.push(parent(&job.name, job.n_jobs, None));
    for job_index in 0..job.n_jobs {
        let name = leaf_name(job, job_index);
        // While leaders look for their nodes there are no followers, in none of the Jobs.
        let least = match turn {
            Turn::Now if job.has_leader && has_leader_only => job.least.min(1),
            Turn::Now => job.least,
            Turn::Before | Turn::Next | Turn::Later => 0,
        };
        match &job.segments {
            None => group.spec.sub_groups.push(leaf(&name, Some(&job.name), least, job.constraint.clone())),
            Some(segments) => {
                let mut node = parent(&name, segments.n_outer(job.n_pods), job.constraint.clone());
                node.parent = Some(job.name.clone());
                group.spec.sub_groups.push(node);
                segments.add(group, Some(&name), &name, job.n_pods, least);
            }
        }
        if least < job.least && matches!(turn, Turn::Now | Turn::Next) {
            await_followers(group, job, &name);
        }
    }
}

/// The pods that are created when the leader has a node, or the Jobs before theirs are ready, need room where those go.
fn await_followers(group: &mut Group, job: &Replicated<'_>, name: &str) {
    let mut pods: BTreeMap<String, i32> = BTreeMap::new();
    for index in 0..job.least {
        let leaf = job.segments.as_ref().map_or_else(|| name.to_owned(), |segments| segments.leaf(name, index));
        *pods.entry(leaf).or_default() += 1;
    }
    group.awaited.retain(|awaited| !pods.contains_key(&awaited.leaf));
    let awaited = |(leaf, n_pods)| Awaited { leaf, n_pods, needed: true, template: job.template.cloned() };
    group.awaited.extend(pods.into_iter().map(awaited));
}

fn leaf_name(job: &Replicated<'_>, job_index: i32) -> String {
    format!("{}-replica-{job_index}", job.name)
}

fn replicated_jobs<'a>(set: Object<'a>) -> Result<Vec<Replicated<'a>>, GroupProblem> {
    let listed = set.value().pointer("/spec/replicatedJobs").and_then(Value::as_array);
    let is_ordered = set.value().pointer(ORDER).and_then(Value::as_str) == Some("InOrder");
    let mut jobs: Vec<Replicated<'_>> = Vec::new();
    let mut previous = None;
    for (position, value) in listed.into_iter().flatten().enumerate() {
        let mut job = replicated_job(set, &format!("/spec/replicatedJobs/{position}"))?;
        let text = |value: &'a Value, key: &str| value.get(key).and_then(Value::as_str);
        let named = value.get("dependsOn").and_then(Value::as_array).into_iter().flatten();
        let named = named.filter_map(|on| Some(Predecessor { name: text(on, "name")?, complete: text(on, "status") == Some("Complete") }));
        // Only those before it in the list can come first; JobSet refuses others.
        job.after.extend(named.filter(|after| jobs.iter().any(|job| job.name == after.name)));
        job.after.extend(previous.filter(|_| is_ordered).map(|name| Predecessor { name, complete: false }));
        if 0 < job.n_jobs && 0 < job.n_pods {
            previous = text(value, "name");
            jobs.push(job);
        }
    }
    let leaves = |job: &Replicated<'_>| job.segments.as_ref().map_or(1, |segments| segments.n_leaves(job.n_pods));
    let total = jobs.iter().fold(0_i32, |sum, job| sum.saturating_add(job.n_jobs.saturating_mul(leaves(job))));
    if MOST_SEGMENTS < total {
        return Err(GroupProblem {
            code: ProblemCode::InvalidReplicas,
            object: set.display(),
            key: "spec.replicatedJobs".to_owned(),
            value: format!("{total} Jobs and segments"),
            allowed: format!("at most {MOST_SEGMENTS} of them"),
        });
    }
    Ok(jobs)
}

fn replicated_job<'a>(set: Object<'a>, base: &str) -> Result<Replicated<'a>, GroupProblem> {
    let value = set.value();
    let name = value.pointer(&format!("{base}/name")).and_then(Value::as_str).unwrap_or_default().to_owned();
    let count = |field: &str| integer(value, &format!("{base}/{field}"), (0, i32::MAX), ProblemCode::InvalidReplicas);
    let completions = count("template/spec/completions")?;
    let parallelism = count("template/spec/parallelism")?.unwrap_or(1);
    let n_pods = parallelism.min(completions.unwrap_or(i32::MAX));
    let of_job = Notes::at(value, &format!("{base}/template/metadata/annotations"));
    let of_pod = Notes::at(value, &format!("{base}/template/spec/template/metadata/annotations"));
    let read = |key: &str| of_job.get(key).or_else(|| of_pod.get(key)).filter(|value| !value.is_empty());
    let object = format!("{}, replicated job {name}", set.display());
    let least = match of_job.get(keys::BATCH_MIN_MEMBER) {
        Some(text) => min_member(object.clone(), text)?.min(n_pods),
        None => n_pods,
    };
    let exclusive = [of_job, set.annotations()].into_iter().find_map(|notes| notes.get(EXCLUSIVE));
    let places = Places([
        Place { object, annotations: if of_pod.get(keys::SEGMENT_SIZE).is_some() { of_pod } else { of_job } },
        Place { object: set.display(), annotations: set.annotations() },
    ]);
    // Exclusive placement is one domain for one Job: the same as a required level, where no other is named.
    let required = read(keys::TOPOLOGY_REQUIRED).or(exclusive);
    let preferred = read(keys::TOPOLOGY_PREFERRED);
    let constraint = (required.is_some() || preferred.is_some()).then(|| TopologyConstraint {
        topology: read(keys::TOPOLOGY).or_else(|| set.annotations().get(keys::TOPOLOGY)).map(str::to_owned),
        required_topology_level: required.map(str::to_owned),
        preferred_topology_level: preferred.map(str::to_owned),
    });
    Ok(Replicated {
        n_jobs: count("replicas")?.unwrap_or(1),
        n_pods,
        least,
        segments: places.read(n_pods)?,
        constraint,
        index_label: places.index_label(),
        template: value.pointer(&format!("{base}/template/spec/template")),
        after: Vec::new(),
        // With node selectors there is no leader: all pods are made at once.
        has_leader: exclusive.is_some() && set.annotations().get(SELECTOR_STRATEGY).or_else(|| of_job.get(SELECTOR_STRATEGY)).is_none(),
        name,
    })
}

/// How many of the replicated jobs must start together.
fn minimum(set: Object<'_>, jobs: &[Replicated<'_>]) -> Result<i32, GroupProblem> {
    let all = i32::try_from(jobs.len()).unwrap_or(i32::MAX);
    if let Some(text) = set.annotations().get(keys::BATCH_MIN_MEMBER) {
        return Ok(min_member(set.display(), text)?.min(all));
    }
    Ok(all)
}

/// Where a pod is.
struct Member<'a, 'b> {
    job: &'b Replicated<'a>,
    job_index: i32,
    pod_index: i32,
    rank: u32,
}

fn member<'a, 'b>(input: &Input<'_>, jobs: &'b [Replicated<'a>]) -> Result<Member<'a, 'b>, GroupProblem> {
    let word = input.pod_label(keys::JOBSET_REPLICATED_JOB);
    let Some(job) = jobs.iter().find(|job| word == Some(&job.name)) else {
        let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
        return Err(input.bad_label(keys::JOBSET_REPLICATED_JOB, word, &names.join(" or ")));
    };
    let bounded = |key: &str, most: i32| {
        let index = i32::try_from(input.pod_index(key)?).ok().filter(|index| *index < most);
        index.ok_or_else(|| input.bad_label(key, input.pod_label(key), &format!("an integer from 0 to {}", most - 1)))
    };
    let job_index = bounded(keys::JOBSET_JOB_INDEX, job.n_jobs)?;
    let key = job.index_label.unwrap_or(keys::JOB_COMPLETION_INDEX);
    let pod_index = match input.pod_label(key) {
        None if job.segments.is_none() && job.index_label.is_none() => 0,
        _ if job.segments.is_none() => i32::try_from(input.pod_index(key)?).unwrap_or(i32::MAX),
        _ => bounded(key, job.n_pods)?,
    };
    let before = jobs.iter().take_while(|other| other.name != job.name);
    let before = before.fold(0_i32, |sum, job| sum.saturating_add(job.n_jobs.saturating_mul(job.n_pods)));
    let rank = before.saturating_add(job_index.saturating_mul(job.n_pods)).saturating_add(pod_index);
    Ok(Member { job, job_index, pod_index, rank: rank.unsigned_abs() })
}

/// Whether this is a leader without a node, whose followers do not exist yet.
fn waits_for_leader(input: &Input<'_>, place: &Member<'_, '_>) -> bool {
    let node = input.pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    place.job.has_leader && place.pod_index == 0 && node.is_none_or(str::is_empty)
}

/// The pods of a JobSet, through its Jobs; those of jobs that start later are not among them.
pub fn expand(set: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    if set.is_true("/spec/suspend") {
        return Err(set.problem("/spec/suspend", "the JobSet is suspended, so its controller creates no pods"));
    }
    let n_listed = set.object.pointer("/spec/replicatedJobs").and_then(Value::as_array).map_or(0, Vec::len);
    if n_listed == 0 {
        return Err(set.problem("/spec/replicatedJobs", "there is no replicated job"));
    }
    let is_ordered = set.object.pointer(ORDER).and_then(Value::as_str) == Some("InOrder");
    let jobs = replicated_jobs(Object::Owner(&set.object))?;
    let total = jobs.iter().fold(0_i32, |sum, job| sum.saturating_add(job.n_jobs));
    let mut global_index = 0;
    for position in 0..n_listed {
        let base = format!("/spec/replicatedJobs/{position}");
        let depends = set.object.pointer(&format!("{base}/dependsOn")).and_then(Value::as_array);
        if (is_ordered && 0 < position) || depends.is_some_and(|jobs| !jobs.is_empty()) {
            continue;
        }
        let job = replicated_job(Object::Owner(&set.object), &base)?;
        set.limit(&format!("{base}/replicas"), job.n_jobs.saturating_mul(job.n_pods))?;
        for job_index in 0..job.n_jobs {
            let name = format!("{}-{}-{job_index}", set.name(), job.name);
            let marks = json!({
                keys::JOBSET_NAME: set.name(), "jobset.sigs.k8s.io/jobset-uid": set.uid(),
                keys::JOBSET_REPLICATED_JOB: job.name, "jobset.sigs.k8s.io/replicatedjob-replicas": job.n_jobs.to_string(),
                keys::JOBSET_JOB_INDEX: job_index.to_string(), "jobset.sigs.k8s.io/job-global-index": global_index.to_string(),
                "jobset.sigs.k8s.io/global-replicas": total.to_string(), "jobset.sigs.k8s.io/restart-attempt": "0",
            });
            global_index += 1;
            expand_job(set, plan, &base, &name, &marks)?;
        }
    }
    Ok(())
}

/// One Job with its pods. JobSet makes every Job indexed that does not say otherwise.
fn expand_job(set: &Workload<'_>, plan: &mut Plan, base: &str, name: &str, marks: &Value) -> Result<(), ExpandProblem> {
    let template = set.object.pointer(&format!("{base}/template")).cloned().unwrap_or_default();
    let mut run = set.child("batch/v1", "Job", name);
    run["metadata"]["labels"] = marks.clone();
    run["metadata"]["annotations"] = template.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({}));
    run["spec"] = template.get("spec").filter(|spec| spec.is_object()).cloned().unwrap_or_else(|| json!({}));
    if run["spec"].get("completionMode").is_none() {
        run["spec"]["completionMode"] = json!("Indexed");
    }
    let first = plan.pods.len();
    let workload = Workload { object: run.clone(), children: Vec::new(), others: set.others };
    job::expand(&workload, plan).map_err(|problem| ExpandProblem {
        object: set.display(),
        field: format!("{}.template.{}", base.trim_start_matches('/').replace('/', "."), problem.field),
        ..problem
    })?;
    for draft in plan.pods.iter_mut().skip(first) {
        for notes in ["labels", "annotations"] {
            for (key, value) in marks.as_object().into_iter().flatten() {
                draft.pod["metadata"][notes][key] = value.clone();
            }
        }
        draft.identity = match draft.pod.pointer("/metadata/labels").and_then(|labels| labels.get(keys::JOB_COMPLETION_INDEX)) {
            Some(_) => Identity::Name,
            None => Identity::Any,
        };
    }
    plan.objects.push(run);
    Ok(())
}
