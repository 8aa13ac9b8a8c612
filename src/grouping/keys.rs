//! Keys of other projects that grouping reads, and nothing else: what belongs to one kind only is in that kind's file.

/// Prefix of the group's name.
pub const GROUP_PREFIX: &str = "pg-";
/// Annotation on a pod: the name of its PodGroup.
pub const POD_GROUP: &str = "pod-group-name";
/// Annotation that leaves a pod's PodGroup to its author.
pub const SKIP: &str = "kai.scheduler/skip-podgrouper";
/// Label on a pod: the subgroup it belongs to.
pub const SUBGROUP: &str = "kai.scheduler/subgroup-name";
/// Annotation on a PodGroup: the workload it was made for, as YAML.
pub const TOP_OWNER: &str = "kai.scheduler/top-owner-metadata";
/// Label: the queue.
pub const QUEUE: &str = "kai.scheduler/queue";
/// Label: the node pool.
pub const NODE_POOL: &str = "kai.scheduler/node-pool";
/// Label: the project, whose name is the queue when no queue is named.
pub const PROJECT: &str = "project";
/// Label or annotation: the person who submitted the work.
pub const USER: &str = "user";
/// The queue of work that names none.
pub const DEFAULT_QUEUE: &str = "default-queue";
/// Label: the priority class.
pub const PRIORITY_CLASS: &str = "priorityClassName";
/// Label: `preemptible` or `non-preemptible`.
pub const PREEMPTIBILITY: &str = "kai.scheduler/preemptibility";
/// Annotation: how long to wait before causing evictions.
pub const PREEMPTION_DELAY: &str = "kai.scheduler/preemption-delay";
/// Annotation: how long a gang may run below its minimum.
pub const STALENESS_GRACE: &str = "kai.scheduler/staleness-grace-period";
/// Annotation: the gang's minimum, on kinds that have no field for it.
pub const MIN_MEMBER: &str = "kai.scheduler/batch-min-member";
/// Annotation: name of the Topology.
pub const TOPOLOGY: &str = "kai.scheduler/topology";
/// Annotation: hard level of the gang.
pub const REQUIRED: &str = "kai.scheduler/topology-required-placement";
/// Annotation: soft level of the gang.
pub const PREFERRED: &str = "kai.scheduler/topology-preferred-placement";
/// Annotation: pods per segment.
pub const SEGMENT_SIZE: &str = "kai.scheduler/segment-size";
/// Annotation: hard level of every segment.
pub const SEGMENT_REQUIRED: &str = "kai.scheduler/segment-topology-required-placement";
/// Annotation: soft level of every segment.
pub const SEGMENT_PREFERRED: &str = "kai.scheduler/segment-topology-preferred-placement";

/// Annotations on a pod that ask for a part of a device. They are recognised, so that such a pod is never placed as if
/// it had asked for nothing.
pub const DEVICE_SHARING: [&str; 4] = ["gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "mps"];

/// Label and annotation: index of an Indexed Job's pod.
pub const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Label: ordinal of a StatefulSet's pod.
pub const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
