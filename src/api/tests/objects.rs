//! Objects as users and KAI Scheduler write them.

use berth_api::pod_group::{PodGroupPhase, Preemptibility};
use berth_api::{PodGroup, Queue, Topology, keys};

#[test]
fn pod_group() {
    let group: PodGroup = serde_saphyr::from_str(
        r#"
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: trainer, namespace: default}
spec:
  minSubGroup: 2
  queue: team-a
  preemptibility: non-preemptible
  preemptionDelay: 1m30s
  stalenessGracePeriod: -1s
  topologyConstraint: {topology: net, requiredTopologyLevel: zone}
  subGroups:
  - {name: worker, minSubGroup: 2}
  - {name: worker-0, parent: worker, minMember: 4, topologyConstraint: {topology: net, preferredTopologyLevel: rack}}
  unheardOf: 1
status:
  phase: Running
  schedulingConditions:
  - {type: UnschedulableOnNodePool, status: "True", nodePool: default, transitionID: "3", lastTransitionTime: "2026-01-02T03:04:05Z"}
  resourcesStatus: {requested: {nvidia.com/gpu: "8"}}
"#,
    )
    .unwrap();
    assert_eq!(
        group.spec.preemptibility,
        Some(Preemptibility::NonPreemptible)
    );
    assert_eq!(group.spec.preemption_delay_millis(), Ok(Some(90_000)));
    assert_eq!(group.spec.staleness_grace_period_millis(), Ok(Some(-1_000)));
    assert_eq!(group.spec.sub_groups[1].parent.as_deref(), Some("worker"));
    let status = group.status.unwrap();
    assert_eq!(status.phase, Some(PodGroupPhase::Unknown));
    assert_eq!(
        status.scheduling_conditions[0].transition_id.as_deref(),
        Some("3")
    );
}

#[test]
fn absent_fields_stay_absent() {
    let json = r#"{"apiVersion":"scheduling.run.ai/v2alpha2","kind":"PodGroup","metadata":{"name":"a"},"spec":{}}"#;
    let group: PodGroup = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_string(&group).unwrap(), json);
    let empty: PodGroup =
        serde_json::from_str(&json.replace("{}", r#"{"preemptibility":""}"#)).unwrap();
    assert_eq!(empty.spec, group.spec);
    let bad =
        serde_json::from_str::<PodGroup>(&json.replace("{}", r#"{"preemptibility":"maybe"}"#))
            .unwrap_err();
    assert!(bad.to_string().contains("non-preemptible"), "{bad}");
}

#[test]
fn queue() {
    let queue: Queue = serde_saphyr::from_str(
        "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: a}, spec: {parentQueue: org, resources: {gpu: {quota: 2.5, limit: -1, overQuotaWeight: 1}}}}",
    )
    .unwrap();
    let gpu = queue.spec.resources.unwrap().gpu.unwrap();
    assert_eq!(gpu.quota.unwrap().to_millis(), Ok(2500));
}

#[test]
fn topology() {
    let topology: Topology = serde_saphyr::from_str(
        "{apiVersion: kai.scheduler/v1alpha1, kind: Topology, metadata: {name: net}, spec: {levels: [{nodeLabel: a/zone, alias: zone}, {nodeLabel: kubernetes.io/hostname}]}}",
    )
    .unwrap();
    assert_eq!(topology.spec.level_index("zone"), Some(0));
    assert_eq!(topology.spec.level_index(keys::HOSTNAME), Some(1));
    assert_eq!(topology.spec.level_index("rack"), None);
}
