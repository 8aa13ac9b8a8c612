//! What all kinds share: queue, priority, words and durations, the walk, hand-written groups, what is not built.

use super::*;
use crate::grouping::{ObjectId, OwnerLookup, Owners, WalkEnd, walk};

fn pod(labels: &str, annotations: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: p, uid: p, labels: {{{labels}}}, annotations: {{{annotations}}}}},
           spec: {{{spec} containers: []}}}}"
    )
}

/// A pod under a Job, with labels for both.
fn job_and_pod(job: &str, labels: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{name: j, uid: u, labels: {{{job}}}}}, spec: {{parallelism: 0}}}}
---
{{apiVersion: v1, kind: Pod, metadata: {{name: p, uid: p, labels: {{{labels}}},
  ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: j, uid: u, controller: true}}]}}, spec: {{{spec} containers: []}}}}"
    )
}

#[test]
fn queues() {
    for (job, pod, queue) in [
        ("kai.scheduler/queue: a", "kai.scheduler/queue: b", "a"),
        ("project: a", "kai.scheduler/queue: b", "b"),
        ("project: a", "project: b", "a"),
        ("", "project: b", "b"),
        ("", "project: b, kai.scheduler/node-pool: np", "b-np"),
        ("", "", "default-queue"),
    ] {
        assert_eq!(group(&job_and_pod(job, pod, "")).spec.queue.as_deref(), Some(queue), "{job} / {pod}");
    }
    let group = group(&job_and_pod("team: x", "user: me, kai.scheduler/node-pool: np", ""));
    let labels: Vec<_> = group.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(labels, ["kai.scheduler/node-pool=np", "team=x", "user=me"]);
}

#[test]
fn priorities() {
    for (job, pod, spec, class) in [
        ("priorityClassName: build", "priorityClassName: inference", "", "build"),
        ("", "priorityClassName: inference", "priorityClassName: build,", "inference"),
        ("", "", "priorityClassName: build,", "build"),
        ("", "", "priorityClassName: system-node-critical,", "system-node-critical"),
        ("", "", "", "train"),
    ] {
        let group = group(&job_and_pod(job, pod, spec));
        assert_eq!(group.spec.priority_class_name.as_deref(), Some(class), "{job} / {pod} / {spec}");
        assert_eq!(problems(&group), [] as [&str; 0]);
    }
    let group = group(&job_and_pod("priorityClassName: nope", "", "priorityClassName: build,"));
    assert_eq!(group.spec.priority_class_name.as_deref(), Some("build"));
    assert_eq!(
        problems(&group),
        [
            "~UnknownPriorityClass Job/j: priorityClassName is \"nope\"; allowed is the name of a PriorityClass that exists"
        ]
    );
}

#[test]
fn global_default_is_what_admission_writes() {
    let class = |spec: &str| match groupings(&pod("", "", spec), Some("build")).remove(0).1 {
        Grouping::Group(group) => group.spec.priority_class_name,
        Grouping::External(external) => panic!("{external:?}"),
    };
    assert_eq!(class("").as_deref(), Some("build"));
    assert_eq!(class("priority: 0,").as_deref(), Some("train"));
}

#[test]
fn words_and_durations() {
    let good = "kai.scheduler/preemption-delay: 2m, kai.scheduler/staleness-grace-period: -1s";
    let group_of = |labels: &str, annotations: &str| group(&pod(labels, annotations, ""));
    let group = group_of("kai.scheduler/preemptibility: non-preemptible", good);
    let spec = serde_json::to_value(&group.spec).unwrap();
    assert_eq!(spec["preemptibility"], "non-preemptible");
    assert_eq!((&spec["preemptionDelay"], &spec["stalenessGracePeriod"]), (&Value::from("2m"), &Value::from("-1s")));
    let bad = "kai.scheduler/preemption-delay: -1s, kai.scheduler/staleness-grace-period: soon";
    let group = group_of("kai.scheduler/preemptibility: never", bad);
    assert_eq!(
        problems(&group),
        [
            "~InvalidPreemptibility Pod/p: kai.scheduler/preemptibility is \"never\"; allowed is preemptible or non-preemptible",
            "~InvalidDuration Pod/p: kai.scheduler/preemption-delay is \"-1s\"; allowed is a duration from 0 on, such as 90s \
             or 1h30m",
            "~InvalidDuration Pod/p: kai.scheduler/staleness-grace-period is \"soon\"; allowed is a duration such as 90s or \
             1h30m; a negative one is for ever",
        ]
    );
}

#[test]
fn constraint_of_owner_before_template() {
    let job = |own: &str, template: &str| {
        format!(
            "{{apiVersion: batch/v1, kind: Job, metadata: {{name: j, annotations: {{{own}}}}}, spec: {{template:
               {{metadata: {{annotations: {{{template}}}}}, spec: SPEC}}}}}}"
        )
    };
    let zone = "kai.scheduler/topology: t, kai.scheduler/topology-required-placement: zone";
    let rack = "kai.scheduler/topology: s, kai.scheduler/topology-preferred-placement: rack";
    check(&job(zone, ""), "min 1 @t:zone:-");
    check(&job("", rack), "min 1 @s:-:rack");
    check(&job(zone, rack), "min 1 @t:zone:rack");
    check(&job("kai.scheduler/topology-required-placement: zone", ""), "min 1 @-:zone:-");
}

#[test]
fn what_is_not_built_is_named() {
    for key in ["gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "mps", "kai.scheduler/segment-size"] {
        assert_eq!(group(&pod("", &format!("{key}: '2'"), "")).unsupported, [key]);
    }
    assert_eq!(group(&pod("", "mps: 'false'", "")).unsupported, [] as [&str; 0]);
    let ignored = group(&pod("", "kai.scheduler/batch-min-member: '2'", ""));
    assert!(problems(&ignored)[0].starts_with("~MinMemberIgnored Pod/p"));
}

#[test]
fn hand_written_groups() {
    let external = |yaml: &str| match groupings(yaml, None).remove(0).1 {
        Grouping::External(external) => Some((external.name, external.subgroup)),
        Grouping::Group(_) => None,
    };
    let named = "pod-group-name: mine";
    assert_eq!(
        external(&pod("kai.scheduler/subgroup-name: workers", named, "")),
        Some((Some("mine".to_owned()), Some("workers".to_owned())))
    );
    // Our own mark on a pod that was bound is no hand-written group.
    assert_eq!(external(&pod("", "pod-group-name: pg-p-p", "")), None);
    assert_eq!(external(&pod("", "kai.scheduler/skip-podgrouper: 'true'", "")), Some((None, None)));
    let job = |skip: &str| {
        format!(
            "{{apiVersion: batch/v1, kind: Job, metadata: {{name: j, annotations: {{kai.scheduler/skip-podgrouper: '{skip}'}}}},
               spec: {{template: {{metadata: {{annotations: {{{named}}}}}, spec: SPEC}}}}}}"
        )
    };
    assert_eq!(external(&job("true")), Some((Some("mine".to_owned()), None)));
    assert_eq!(external(&job("false")), None);
}

/// A lookup that knows nothing but how it fails.
struct Nothing(OwnerLookup);

impl Owners for Nothing {
    fn get(&self, _: &ObjectId) -> OwnerLookup {
        self.0.clone()
    }
}

#[test]
fn walks_end_early_and_say_so() {
    let yaml = "{apiVersion: v1, kind: Pod, metadata: {name: p, uid: p, ownerReferences: [
      {apiVersion: v1, kind: ConfigMap, name: first, uid: f}, {apiVersion: x/v1, kind: T, name: t, uid: u, controller: true}]}}";
    let pod: Pod = serde_saphyr::from_str(yaml).unwrap();
    let looped: Value = serde_saphyr::from_str(
        "{apiVersion: x/v1, kind: T, metadata: {name: t, uid: u, ownerReferences: [{apiVersion: x/v1, kind: T, name: t, uid: u}]}}",
    )
    .unwrap();
    let replaced: Value =
        serde_saphyr::from_str("{apiVersion: x/v1, kind: T, metadata: {name: t, uid: other}}").unwrap();
    for (lookup, end, n_owners) in [
        (OwnerLookup::Missing, WalkEnd::Missing, 0),
        (OwnerLookup::Forbidden, WalkEnd::Forbidden, 0),
        (OwnerLookup::Found(replaced.into()), WalkEnd::Missing, 0),
        (OwnerLookup::Found(looped.into()), WalkEnd::TooDeep, 16),
    ] {
        let chain = walk(&pod, &Nothing(lookup));
        let unread = chain.unread.unwrap();
        assert_eq!((unread.end, unread.id.name.as_str(), chain.owners.len()), (end, "t", n_owners));
    }
}

#[test]
fn long_names_are_cut() {
    for name in ["é".repeat(200), format!("a{}", "é".repeat(200))] {
        let group = group(&pod("", "", "").replace("name: p", &format!("name: {name}")));
        assert!(group.name.len() <= 253 && group.name.ends_with("é-p"), "{}", group.name);
    }
}
