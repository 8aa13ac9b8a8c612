//! One file a kind, one line a kind. To add one: write `kinds/<kind>.rs` with a pure `group` (and `expand`, when
//! `simulate` should create its pods), add its line to [`KINDS`], and a case to the table test.

pub mod cron_job;
pub mod deployment;
pub mod dynamo_graph_deployment;
pub mod generic;
pub mod jax_job;
pub mod job;
pub mod job_set;
pub mod knative_service;
mod kubeflow;
pub mod leader_worker_set;
pub mod mpi_job;
pub mod notebook;
pub mod pod;
pub mod pod_clique_set;
pub mod py_torch_job;
pub mod ray_cluster;
pub mod replica_set;
pub mod runai_job;
pub mod skipped;
pub mod stateful_set;
pub mod tf_job;
pub mod train_job;
pub mod workflow;
pub mod xg_boost_job;

use super::expand::ExpandFn;
use super::{Group, Input};

/// The group of a pod whose top owner is of the kind.
pub type GroupFn = fn(&Input<'_>) -> Group;

/// A kind that somebody coded.
#[derive(Debug)]
pub struct Kind {
    /// API group; empty for the core. Every version counts: what is read has been the same in all of them.
    pub group: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// The group of a pod under it.
    pub group_pod: GroupFn,
    /// The pods that its controller creates.
    pub expand: Option<ExpandFn>,
}

/// Every kind; any other is grouped by [`generic::group`].
pub const KINDS: &[Kind] = &[
    kind("", "Pod", pod::group, None),
    kind("apps", "Deployment", deployment::group, Some(deployment::expand)),
    kind("apps", "ReplicaSet", replica_set::group, Some(replica_set::expand)),
    kind("apps", "StatefulSet", stateful_set::group, Some(stateful_set::expand)),
    kind("argoproj.io", "Workflow", skipped::group, Some(workflow::expand)),
    kind("batch", "CronJob", cron_job::group, Some(cron_job::expand)),
    kind("batch", "Job", job::group, Some(job::expand)),
    kind("grove.io", "PodCliqueSet", pod_clique_set::group, Some(pod_clique_set::expand)),
    kind("grove.io", "PodGangSet", pod_clique_set::group, Some(pod_clique_set::expand)),
    kind("jobset.x-k8s.io", "JobSet", job_set::group, Some(job_set::expand)),
    kind("kubeflow.org", "JAXJob", jax_job::group, Some(jax_job::expand)),
    kind("kubeflow.org", "MPIJob", mpi_job::group, Some(mpi_job::expand)),
    kind("kubeflow.org", "Notebook", notebook::group, Some(notebook::expand)),
    kind("kubeflow.org", "PyTorchJob", py_torch_job::group, Some(py_torch_job::expand)),
    kind("kubeflow.org", "TFJob", tf_job::group, Some(tf_job::expand)),
    kind("kubeflow.org", "XGBoostJob", xg_boost_job::group, Some(xg_boost_job::expand)),
    kind("leaderworkerset.x-k8s.io", "LeaderWorkerSet", leader_worker_set::group, Some(leader_worker_set::expand)),
    kind("nvidia.com", "DynamoGraphDeployment", skipped::group, Some(dynamo_graph_deployment::expand)),
    kind("ray.io", "RayCluster", ray_cluster::group, Some(ray_cluster::expand)),
    kind("ray.io", "RayJob", ray_cluster::group, Some(ray_cluster::expand_job)),
    kind("ray.io", "RayService", ray_cluster::group, Some(ray_cluster::expand_service)),
    kind("run.ai", "DistributedInferenceWorkload", skipped::group, None),
    kind("run.ai", "DistributedWorkload", skipped::group, None),
    kind("run.ai", "InferenceWorkload", skipped::group, None),
    kind("run.ai", "InteractiveWorkload", skipped::group, None),
    kind("run.ai", "RunaiJob", runai_job::group, None),
    kind("run.ai", "TrainingWorkload", skipped::group, None),
    kind("serving.knative.dev", "Service", knative_service::group, Some(knative_service::expand)),
    kind("trainer.kubeflow.org", "TrainJob", train_job::group, Some(train_job::expand)),
];

const fn kind(group: &'static str, kind: &'static str, group_pod: GroupFn, expand: Option<ExpandFn>) -> Kind {
    Kind { group, kind, group_pod, expand }
}

/// The kind of this API group and name.
#[must_use]
pub fn find(group: &str, kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|known| known.group == group && known.kind == kind)
}
