//! Gangs that a PodGroup of `scheduling.k8s.io` describes.

use super::*;
use crate::grouping::core_group;

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: p, uid: u}, spec: SPEC}";

/// The gang of a pod by this spec, in either version, and its topology key.
fn by(spec: &str) -> (Group, Option<String>) {
    let of = |version: &str| {
        let yaml = format!(
            "{{apiVersion: scheduling.k8s.io/{version}, kind: PodGroup, metadata: {{name: train, uid: g}}, spec: {spec}}}"
        );
        let object = &objects(&yaml)[0];
        assert!(core_group::is_core_group(object["apiVersion"].as_str().unwrap(), "PodGroup"));
        let mut group = group(POD);
        let key = core_group::apply(&mut group, "train", Some(object));
        assert_eq!((group.owner.version(), group.owner.uid.as_str()), (version, "g"));
        group.owner.api_version.clear();
        group.workload.api_version.clear();
        (group, key)
    };
    let [one, other] = core_group::VERSIONS.map(of);
    assert_eq!(one, other);
    one
}

#[test]
fn minimum_key_and_priority_are_those_of_the_object() {
    let spec = "{schedulingPolicy: {gang: {minCount: 3}}, schedulingConstraints: {topology: [{key: example.com/rack}]},
                 priorityClassName: build, disruptionMode: {all: {}}, workloadRef: {workloadName: w}}";
    let (group, key) = by(spec);
    assert_eq!((group.name.as_str(), sketch(&group).as_str()), ("pg-group-train", "min 3"));
    assert_eq!((key.as_deref(), group.spec.priority_class_name.as_deref()), (Some("example.com/rack"), Some("build")));
    assert_eq!((problems(&group), group.unsupported), (Vec::new(), Vec::new()));
    assert_eq!(group.workload.display(), "PodGroup/train");
    // Without a gang the pods start one by one, and the class of the workload stays.
    let (group, key) = by("{schedulingPolicy: {basic: {}}}");
    assert_eq!((sketch(&group).as_str(), key, group.spec.priority_class_name.as_deref()), ("min 1", None, Some("train")));
}

#[test]
fn what_cannot_be_used_is_named() {
    let (group, _) = by("{schedulingPolicy: {gang: {minCount: 0}}}");
    assert!(problems(&group)[0].starts_with("InvalidMinMember"), "{:?}", problems(&group));
    let (group, _) = by("{schedulingPolicy: {gang: {minCount: many}}}");
    assert!(problems(&group)[0].starts_with("InvalidField"), "{:?}", problems(&group));
    let (group, _) = by("{schedulingPolicy: {basic: {}}, parentCompositePodGroupName: whole}");
    assert_eq!(group.unsupported, ["spec.parentCompositePodGroupName"]);
    let (group, _) = by("{schedulingPolicy: {basic: {}}, schedulingConstraints: {topology: [{key: a}, {key: b}]}}");
    assert_eq!(group.unsupported, ["spec.schedulingConstraints.topology[1]"]);
    let mut group = group;
    assert_eq!(core_group::apply(&mut group, "train", None), None);
    assert!(problems(&group)[0].starts_with("SchedulingGroupNotFound"), "{:?}", problems(&group));
    // Other objects of the same kind or group are not taken for one.
    assert!(!core_group::is_core_group("scheduling.run.ai/v2alpha2", "PodGroup"));
    assert!(!core_group::is_core_group("scheduling.k8s.io/v1", "PriorityClass"));
}
