//! Every label, annotation and name that Berth reads or writes, under one constant each.
//!
//! The keys are KAI Scheduler's and the workload controllers', unless they start with `berth.scheduler/`. No other file
//! spells a key out. A doc line says where the key stands and what its value is.

// Ours.

/// Annotation on a Topology, `"true"`: used by constraints that name a level but no topology.
pub const DEFAULT_TOPOLOGY: &str = "berth.scheduler/default";

/// Annotation on an owner, its only pod template or a PodGroup: what the best placement is, `kai` or `compact`.
pub const OBJECTIVE: &str = "berth.scheduler/objective";

/// Annotation on a derived PodGroup, `"true"`: its objective came from the workload, and goes when that no longer names one.
pub const DERIVED_OBJECTIVE: &str = "berth.scheduler/derived-objective";

/// Annotation on an owner, its only pod template or a PodGroup, `rack=2` or `block=1,rack=4`: of these levels (label or alias)
/// of its topology the gang uses at most so many domains.
pub const MAX_DOMAINS: &str = "berth.scheduler/max-domains";

/// Annotation on a derived PodGroup, `"true"`: its limits on domains came from the workload, and go when that no longer has some.
pub const DERIVED_MAX_DOMAINS: &str = "berth.scheduler/derived-max-domains";

/// Annotation on a PodGroup of ours, JSON: subgroups that prefer the lowest level of their topology on their own.
pub const AUTOMATIC_PREFERRED: &str = "berth.scheduler/automatic-preferred";

/// Annotation on a bound pod, `<id>/<n>`: the decision that bound it and its place there.
pub const DECISION: &str = "berth.scheduler/decision";

/// Annotation on a bound pod, written with its Binding: the node's domain at each level of the topology that the gang was
/// placed on, the widest first, as `<level>=<value>` with commas between.
pub const DOMAIN: &str = "berth.scheduler/domain";

/// Annotation on a PodGroup: places that are kept for its pods until others have left them (JSON: pods by node).
pub const PROMISED: &str = "berth.scheduler/promised";

/// Annotation on a derived PodGroup, `"true"`: its constraint came from the workload, and goes when that no longer names one.
pub const DERIVED_CONSTRAINT: &str = "berth.scheduler/derived-constraint";

/// Annotation on an owner or pod: name of a gang of several owners in the namespace, each of which is one role of it.
pub const GANG: &str = "berth.scheduler/gang";

/// Annotation on an owner or pod: its role in that gang.
pub const GANG_ROLE: &str = "berth.scheduler/gang-role";

/// Annotation on an owner or pod: all roles of the gang, with commas between; a number of owners or groups may follow: `prefill=2`.
pub const GANG_ROLES: &str = "berth.scheduler/gang-roles";

// Values and names.

/// Default of `--scheduler-name`: pods with this `schedulerName` are ours.
pub const SCHEDULER_NAME: &str = "kai-scheduler";

/// Queue of workloads that name none.
pub const DEFAULT_QUEUE: &str = "default-queue";

/// Start of a derived PodGroup's name: `pg-<owner>-<uid>`.
pub const POD_GROUP_NAME_PREFIX: &str = "pg-";

/// The value that turns a switch annotation on.
pub const TRUE: &str = "true";

// Workload to PodGroup: labels.

/// Label on owner or pod: name of the queue.
pub const QUEUE: &str = "kai.scheduler/queue";

/// Label on owner or pod: queue when no queue label is set, with `-<node pool>` appended if there is one.
pub const PROJECT: &str = "project";

/// Label on owner or pod: name of the PriorityClass.
pub const PRIORITY_CLASS_NAME: &str = "priorityClassName";

/// Label on owner or pod: `preemptible` or `non-preemptible`.
pub const PREEMPTIBILITY: &str = "kai.scheduler/preemptibility";

/// Label, and annotation of a pod: who submitted the workload.
pub const USER: &str = "user";

/// Label on nodes, queues, PodGroups and pods: the node pool they belong to.
pub const NODE_POOL: &str = "kai.scheduler/node-pool";

/// Label on pods: leaf subgroup; absent is `default`.
pub const SUB_GROUP: &str = "kai.scheduler/subgroup-name";

/// Label on pods: order within the gang, an integer.
pub const TASK_PRIORITY: &str = "kai.scheduler/task-priority";

/// Annotation: which label holds the pod's index. KAI designed it and does not read it.
pub const POD_INDEX_LABEL: &str = "kai.scheduler/pod-index-label";

// Workload to PodGroup: annotations.

/// Annotation on pods: name of the PodGroup in the pod's namespace.
pub const POD_GROUP: &str = "pod-group-name";

/// Annotation on owner or pod: Go duration, 0 or more, before the gang may cause evictions.
pub const PREEMPTION_DELAY: &str = "kai.scheduler/preemption-delay";

/// Annotation on owner or pod: Go duration below the minimum before eviction; negative is for ever.
pub const STALENESS_GRACE_PERIOD: &str = "kai.scheduler/staleness-grace-period";

/// Annotation: name of the Topology.
pub const TOPOLOGY: &str = "kai.scheduler/topology";

/// Annotation on the top owner: level (label or alias) of which one domain must hold the gang.
pub const TOPOLOGY_REQUIRED: &str = "kai.scheduler/topology-required-placement";

/// Annotation on the top owner: level of which one domain should hold the gang.
pub const TOPOLOGY_PREFERRED: &str = "kai.scheduler/topology-preferred-placement";

/// Annotation on the pod template: pods in a segment, 1 or more.
pub const SEGMENT_SIZE: &str = "kai.scheduler/segment-size";

/// Annotation on the pod template: level of which one domain must hold each segment.
pub const SEGMENT_REQUIRED: &str = "kai.scheduler/segment-topology-required-placement";

/// Annotation on the pod template: level of which one domain should hold each segment.
pub const SEGMENT_PREFERRED: &str = "kai.scheduler/segment-topology-preferred-placement";

/// Annotation on a Job, or a JobSet's job template: pods that must start together.
pub const BATCH_MIN_MEMBER: &str = "kai.scheduler/batch-min-member";

/// Annotation on a pod or owner, `"true"`: no PodGroup is derived; bring your own.
pub const SKIP_POD_GROUPER: &str = "kai.scheduler/skip-podgrouper";

// On PodGroups: annotations.

/// Name, UID, group, version and kind of the top owner, as YAML.
pub const TOP_OWNER_METADATA: &str = "kai.scheduler/top-owner-metadata";

/// Since when the gang runs below its minimum (RFC 3339, UTC).
pub const STALE_TIMESTAMP: &str = "kai.scheduler/stale-podgroup-timestamp";

/// When the gang was last started (RFC 3339, UTC).
pub const LAST_START_TIMESTAMP: &str = "kai.scheduler/last-start-timestamp";

/// When the gang was last evicted (RFC 3339, UTC).
pub const LAST_EVICTION_TIMESTAMP: &str = "kai.scheduler/last-eviction-timestamp";

// Devices and NUMA on pods.

/// Annotation: part of a GPU, above 0 and below 1.
pub const GPU_FRACTION: &str = "gpu-fraction";

/// Annotation: GPU memory in MiB.
pub const GPU_MEMORY: &str = "gpu-memory";

/// Annotation: number of devices that each give the fraction.
pub const GPU_FRACTION_NUM_DEVICES: &str = "gpu-fraction-num-devices";

/// Annotation: the container that gets the fraction.
pub const GPU_FRACTION_CONTAINER: &str = "gpu-fraction-container-name";

/// Annotation: share the device through MPS.
pub const MPS: &str = "mps";

/// Annotation written at binding: `Regular`, `Fraction` or `MigInstance`.
pub const RECEIVED_RESOURCE_TYPE: &str = "received-resource-type";

/// Label: the shared device of a fraction; `runai-gpu-group/<group>` when there are several.
pub const GPU_GROUP: &str = "runai-gpu-group";

/// Start of the label keys of several shared devices.
pub const GPU_GROUP_PREFIX: &str = "runai-gpu-group/";

/// Annotation: prefix of the ConfigMaps of a fraction.
pub const SHARED_GPU_CONFIG_MAP: &str = "runai/shared-gpu-configmap";

/// Annotation written at binding: predicted NUMA zones, as JSON.
pub const NUMA_PREDICTED: &str = "kai.scheduler/numa-placement-predicted";

/// Annotation written by the NUMA exporter: zones that the kubelet chose.
pub const NUMA_OBSERVED: &str = "kai.scheduler/numa-placement-observed";

/// Value of the label `app` on reservation pods.
pub const RESERVATION_APP: &str = "kai-resource-reservation";

/// Annotation on reservation pods: UUID of the device.
pub const RESERVE_FOR_GPU_INDEX: &str = "run.ai/reserve_for_gpu_index";

/// Value of the label `app` on scaling pods.
pub const SCALING_POD_APP: &str = "scaling-pod";

/// On scaling pods: name of the pod that waits.
pub const SHARED_GPU_POD_NAME: &str = "shared-gpu-pod-name";

/// On scaling pods: namespace of the pod that waits.
pub const SHARED_GPU_POD_NAMESPACE: &str = "shared-gpu-pod-namespace";

/// Label: application.
pub const APP: &str = "app";

/// Label on KAI's BindRequests: the node.
pub const SELECTED_NODE: &str = "selected-node";

/// Label on metrics objects, `"true"`: read for usage accounting.
pub const ACCOUNTING: &str = "kai.scheduler/accounting";

/// Resource name in statuses: GPU memory asked for.
pub const GPU_MEMORY_RESOURCE: &str = "run.ai/gpu.memory";

// On nodes.

/// Resource name: whole NVIDIA GPUs.
pub const NVIDIA_GPU: &str = "nvidia.com/gpu";

/// Label: memory of each GPU in MiB.
pub const NVIDIA_GPU_MEMORY: &str = "nvidia.com/gpu.memory";

/// Label: number of GPUs.
pub const NVIDIA_GPU_COUNT: &str = "nvidia.com/gpu.count";

/// Label: `none`, `single` or `mixed`.
pub const NVIDIA_MIG_STRATEGY: &str = "nvidia.com/mig.strategy";

/// Label: runs pods without GPUs.
pub const CPU_WORKER: &str = "node-role.kubernetes.io/cpu-worker";

/// Label: runs pods with GPUs.
pub const GPU_WORKER: &str = "node-role.kubernetes.io/gpu-worker";

/// Label: runs pods with MIG instances.
pub const MIG_WORKER: &str = "node-role.kubernetes.io/mig-enabled";

/// Label: name of the host; the last level of a topology at most.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

// Evictions, on events.

/// Annotation: pods evicted together.
pub const NUM_EVICTED_PODS: &str = "num-evicted-pods";

/// Annotation: the action that evicted.
pub const EVICTOR_ACTION: &str = "evictor-action-type";

/// Annotation: PodGroup for which the pod was evicted.
pub const EVICTOR_POD_GROUP: &str = "evictor-pod-group-name";

/// Annotation: namespace of that PodGroup.
pub const EVICTOR_NAMESPACE: &str = "evictor-pod-group-namespace";

// Workload controllers' own.

/// Label and annotation on pods of an indexed Job: index.
pub const JOB_COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Label on pods of a Job: its name.
pub const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// Label on pods of a StatefulSet: ordinal.
pub const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// Label on pods of a Kubeflow job: its name.
pub const TRAINING_JOB_NAME: &str = "training.kubeflow.org/job-name";

/// Label on pods of a Kubeflow job: `master` or `launcher`.
pub const TRAINING_JOB_ROLE: &str = "training.kubeflow.org/job-role";

/// Label on pods of a Kubeflow job: `master`, `worker`, ... in lower case.
pub const TRAINING_REPLICA_TYPE: &str = "training.kubeflow.org/replica-type";

/// Label on pods of a Kubeflow job: index within the replica type.
pub const TRAINING_REPLICA_INDEX: &str = "training.kubeflow.org/replica-index";

/// Label on pods of a LeaderWorkerSet: its name.
pub const LWS_NAME: &str = "leaderworkerset.sigs.k8s.io/name";

/// Label: index of the group of one leader and its workers.
pub const LWS_GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";

/// Label: hash that tells groups apart.
pub const LWS_GROUP_KEY: &str = "leaderworkerset.sigs.k8s.io/group-key";

/// Label: index in the group; 0 is the leader.
pub const LWS_WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";

/// Annotation: pods in the group, leader included.
pub const LWS_SIZE: &str = "leaderworkerset.sigs.k8s.io/size";

/// Label: index of the native subgroup.
pub const LWS_SUB_GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/subgroup-index";

/// Annotation: pods in a native subgroup.
pub const LWS_SUB_GROUP_SIZE: &str = "leaderworkerset.sigs.k8s.io/subgroup-size";

/// Annotation: `LeaderWorker` or `LeaderExcluded`.
pub const LWS_SUB_GROUP_POLICY: &str = "leaderworkerset.sigs.k8s.io/subgroup-policy-type";

/// Label on pods of a JobSet: its name.
pub const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";

/// Label on pods of a JobSet: name of the replicated job.
pub const JOBSET_REPLICATED_JOB: &str = "jobset.sigs.k8s.io/replicatedjob-name";

/// Label on pods of a JobSet: index within the replicated job.
pub const JOBSET_JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";

/// Label on Ray pods: `headgroup` or the worker group's name.
pub const RAY_GROUP: &str = "ray.io/group";

/// Label on Ray pods: `head` or `worker`.
pub const RAY_NODE_TYPE: &str = "ray.io/node-type";

/// Label on a Ray owner: name of the PriorityClass.
pub const RAY_PRIORITY_CLASS: &str = "ray.io/priority-class-name";

/// Label on Grove pods: name of the PodGang.
pub const GROVE_POD_GANG: &str = "grove.io/podgang";

/// Label of Grove on pods of a scaled PodGang: name of its base PodGang.
pub const GROVE_BASE_POD_GANG: &str = "grove.io/base-podgang";

/// Scheduling gate of Grove on pods whose PodGang is not to be scheduled yet.
pub const GROVE_GATE: &str = "grove.io/podgang-pending-creation";

/// Annotation on a PodGang: name of the Topology.
pub const GROVE_TOPOLOGY: &str = "grove.io/topology-name";

/// Label on Knative pods: name of the Revision.
pub const KNATIVE_REVISION: &str = "serving.knative.dev/revision";

/// Annotation on a Revision: pods at least.
pub const KNATIVE_MIN_SCALE: &str = "autoscaling.knative.dev/min-scale";

/// Label on Spark pods: name of the application.
pub const SPARK_APP_NAME: &str = "spark-app-name";

/// Label on Spark pods: id of the application, which names the group.
pub const SPARK_APP_SELECTOR: &str = "spark-app-selector";

/// Label on a Karta: API group of the kind it describes.
pub const KARTA_GROUP: &str = "run.ai/karta-group";

/// Label on a Karta: version of the kind it describes.
pub const KARTA_VERSION: &str = "run.ai/karta-version";

/// Label on a Karta: the kind it describes.
pub const KARTA_KIND: &str = "run.ai/karta-kind";
