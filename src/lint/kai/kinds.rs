//! Differences that belong to a kind.

use berth_api::keys::{BATCH_MIN_MEMBER, PREEMPTIBILITY, PREEMPTION_DELAY, SEGMENT_REQUIRED, SEGMENT_SIZE, STALENESS_GRACE_PERIOD, TOPOLOGY_PREFERRED, TOPOLOGY_REQUIRED};
use serde_json::Value;

use super::work::{Work, annotation};

const EXCLUSIVE_JOB_SET: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
const EXCLUSIVE_LWS: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";
const NATIVE_SEGMENT_SIZE: &str = "/spec/leaderWorkerTemplate/subGroupPolicy/subGroupSize";

type Found = Option<(String, String)>;

fn found(field: impl Into<String>, message: &str) -> Found {
    Some((field.into(), message.to_owned()))
}

fn is_lws(work: &Work<'_>) -> bool {
    work.is("leaderworkerset.x-k8s.io", &["LeaderWorkerSet"])
}

fn is_job_set(work: &Work<'_>) -> bool {
    work.is("jobset.x-k8s.io", &["JobSet"])
}

pub(super) fn lws_segment_size(work: &Work<'_>) -> Found {
    let native = work.object().pointer(NATIVE_SEGMENT_SIZE).and_then(Value::as_i64).filter(|_| is_lws(work))?;
    let (field, text) = work.anywhere(SEGMENT_SIZE)?;
    (text.trim().parse() != Ok(native)).then(|| (field, format!("says {text}, subGroupPolicy.subGroupSize says {native}: KAI takes the field; here the annotation counts")))
}

pub(super) fn cron_job_minimum(work: &Work<'_>) -> Found {
    if !work.is("batch", &["CronJob"]) {
        return None;
    }
    let below = &work.object()["spec"]["jobTemplate"]["metadata"]["annotations"][BATCH_MIN_MEMBER];
    let field = if work.own(BATCH_MIN_MEMBER).is_some() { annotation("", BATCH_MIN_MEMBER) } else { below.as_str().map(|_| annotation("spec.jobTemplate", BATCH_MIN_MEMBER))? };
    found(field, "KAI does not read it on a CronJob, so its pods start one by one; here so many start together")
}

/// Workers of a PyTorchJob: how many, and how many of them at least.
fn workers(job: &Value) -> Option<(i64, i64)> {
    let specs = job["spec"]["pytorchReplicaSpecs"].as_object()?;
    let replicas = |role: &str| specs.iter().find(|(name, _)| name.eq_ignore_ascii_case(role)).map(|(_, spec)| spec["replicas"].as_i64().unwrap_or(1).max(0));
    let (masters, workers) = (replicas("master").unwrap_or(0), replicas("worker")?);
    let minimum = |pointer: &str| job.pointer(pointer).and_then(Value::as_i64);
    let all = masters.saturating_add(workers);
    let least = minimum("/spec/runPolicy/schedulingPolicy/minAvailable").or_else(|| minimum("/spec/elasticPolicy/minReplicas")).unwrap_or(all);
    Some((workers, least.saturating_sub(masters).clamp(0, workers)))
}

pub(super) fn elastic_segments(work: &Work<'_>) -> Found {
    let (workers, least) = workers(work.object()).filter(|_| work.kind == "PyTorchJob")?;
    let (field, text) = work.anywhere(SEGMENT_SIZE)?;
    let size = text.trim().parse::<i64>().ok().filter(|size| *size > 1)?;
    let rounded = least.saturating_add(size - 1) / size * size;
    (least < workers && least % size != 0).then(|| (field, format!("KAI rounds the minimum of {least} workers up to {}; here it stays {least}", rounded.min(workers))))
}

pub(super) fn replicas_default(work: &Work<'_>) -> Found {
    if work.group != "kubeflow.org" {
        return None;
    }
    let specs = work.object()["spec"].as_object()?.iter().filter(|(name, _)| name.ends_with("ReplicaSpecs"));
    let mut roles = specs.flat_map(|(name, roles)| roles.as_object().into_iter().flatten().map(move |(role, spec)| (name, role, spec)));
    let (name, role, _) = roles.find(|(_, _, spec)| spec["replicas"].as_i64().unwrap_or(0) == 0)?;
    found(format!("spec.{name}.{role}.replicas"), "is absent or 0: KAI makes no group of such a job; here it counts 1 when absent, as its operator does, or 0")
}

pub(super) fn job_set_minimum(work: &Work<'_>) -> Found {
    let jobs = work.object()["spec"]["replicatedJobs"].as_array().filter(|_| is_job_set(work))?;
    jobs.iter().enumerate().find_map(|(at, job)| {
        let template = &job["template"];
        let parallelism = template["spec"]["parallelism"].as_i64().unwrap_or(1);
        let least = template["metadata"]["annotations"][BATCH_MIN_MEMBER].as_str()?.trim().parse::<i64>().ok()?;
        let field = annotation(&format!("spec.replicatedJobs[{at}].template"), BATCH_MIN_MEMBER);
        (least > parallelism).then(|| (field, format!("is {least} and the parallelism {parallelism}: in KAI it never starts; here it is capped")))
    })
}

pub(super) fn exclusive_job_set(work: &Work<'_>) -> Found {
    work.own(EXCLUSIVE_JOB_SET).filter(|_| is_job_set(work))?;
    found(annotation("", EXCLUSIVE_JOB_SET), "followers wait for their leader's node: KAI asks for all of them at once; here the leaders start, where the others fit")
}

pub(super) fn exclusive_lws(work: &Work<'_>) -> Found {
    work.own(EXCLUSIVE_LWS).filter(|_| is_lws(work))?;
    found(annotation("", EXCLUSIVE_LWS), "workers wait for their leader's node: KAI asks for all of them at once; here the leader starts, where the others fit")
}

pub(super) fn ordered_job_set(work: &Work<'_>) -> Found {
    let spec = &work.object()["spec"];
    if !is_job_set(work) {
        return None;
    }
    if spec["startupPolicy"]["startupPolicyOrder"] == "InOrder" {
        return found("spec.startupPolicy.startupPolicyOrder", "KAI needs any one of the replicated jobs; here those whose turn it is, where those that come beside them fit");
    }
    let at = spec["replicatedJobs"].as_array()?.iter().position(|job| job["dependsOn"].as_array().is_some_and(|on| !on.is_empty()))?;
    found(format!("spec.replicatedJobs[{at}].dependsOn"), "KAI needs all replicated jobs at once, which never are there; here those whose turn it is")
}

pub(super) fn awaited_pods(work: &Work<'_>) -> Found {
    const THERE: &str = "KAI starts the first pods where the others may not fit; here they start where the others fit";
    let spec = &work.object()["spec"];
    if is_lws(work) && spec["startupPolicy"] == "LeaderReady" {
        return found("spec.startupPolicy", THERE);
    }
    if work.is("kubeflow.org", &["MPIJob"]) && spec["launcherCreationPolicy"] == "WaitForWorkersReady" {
        return found("spec.launcherCreationPolicy", THERE);
    }
    let (least, all) = workers(work.object()).map(|(all, least)| (least, all)).filter(|_| work.kind == "PyTorchJob")?;
    let size = work.anywhere(SEGMENT_SIZE).and_then(|(_, text)| text.trim().parse::<i64>().ok()).filter(|size| *size > 1)?;
    let (field, _) = work.anywhere(SEGMENT_REQUIRED)?;
    let begins_short = least < all && least % size != 0;
    begins_short.then_some((field, THERE.to_owned()))
}

pub(super) fn ray_submitter(work: &Work<'_>) -> Found {
    let mode = work.object()["spec"]["submissionMode"].as_str().unwrap_or("K8sJobMode");
    let has_template = work.object()["spec"]["submitterPodTemplate"].is_object();
    (work.is("ray.io", &["RayJob"]) && mode == "K8sJobMode" && has_template)
        .then(|| ("spec.submitterPodTemplate".to_owned(), "in KAI the pod that submits is in the cluster's group; here it is a gang of its own".to_owned()))
}

pub(super) fn knative(work: &Work<'_>) -> Found {
    if !work.is("serving.knative.dev", &["Service"]) {
        return None;
    }
    let message = "KAI does not read it for a Service; here it counts";
    let label = |metadata: &Value| metadata["labels"][PREEMPTIBILITY].is_string();
    if label(&work.object()["metadata"]) {
        return found(format!("metadata.labels.{PREEMPTIBILITY}"), message);
    }
    let keys = [TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED, PREEMPTION_DELAY, STALENESS_GRACE_PERIOD];
    let (field, _) = keys.into_iter().find_map(|key| work.anywhere(key))?;
    found(field, message)
}

pub(super) fn grove(work: &Work<'_>) -> Found {
    work.is("grove.io", &["PodCliqueSet", "PodGangSet"])
        .then(|| ("metadata.name".to_owned(), "its PodGroups get new names, with the UID of the set; running gangs keep their places".to_owned()))
}

pub(super) fn karta(work: &Work<'_>) -> Found {
    work.is("run.ai", &["Karta"]).then(|| ("spec".to_owned(), "is not read: describe the kind by a GroupingRule (docs/workloads.md)".to_owned()))
}
