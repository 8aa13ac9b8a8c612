use serde_json::json;

use super::*;

fn pod(spec: serde_json::Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "default"}, "spec": spec})).unwrap()
}

fn requests(spec: serde_json::Value) -> Amounts {
    shape_facts(&pod(spec)).unwrap().requests
}

#[test]
fn sidecars_declared_before_an_init_container_run_beside_it() {
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
    let spec = json!({
        "containers": [{"name": "main", "resources": cpu("4")}],
        "initContainers": [
            {"name": "a", "resources": cpu("3")},
            {"name": "s", "restartPolicy": "Always", "resources": cpu("250m")},
            {"name": "b", "resources": cpu("5")},
            {"name": "t", "restartPolicy": "Always", "resources": cpu("500m")}],
        "overhead": {"cpu": "100m"}});
    assert_eq!(requests(spec)["cpu"], 5_350);
}

#[test]
fn a_limit_alone_is_a_request() {
    let spec = json!({"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "1"}, "requests": {"cpu": "0"}}}]});
    assert_eq!(requests(spec), Amounts::from([("nvidia.com/gpu".to_owned(), 2)]));
}

#[test]
fn sums_out_of_range_are_refused() {
    let most = json!({"requests": {"memory": "9223372036854775807"}});
    let spec = json!({"containers": [{"name": "a", "resources": most}, {"name": "b", "resources": most}]});
    assert!(
        shape_facts(&pod(spec))
            .unwrap_err()
            .to_string()
            .contains("out of range")
    );
}

#[test]
fn what_is_not_built_yet_is_named() {
    let mut pod = pod(json!({
        "containers": [{"name": "main"}],
        "resourceClaims": [{"name": "gpu"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}}));
    pod.metadata.annotations = Some(BTreeMap::from([("gpu-fraction".to_owned(), "0.5".to_owned())]));
    let keys = shape_facts(&pod).unwrap().unsupported;
    let expected = [
        "gpu-fraction",
        "spec.affinity.podAntiAffinity",
        "spec.resourceClaims",
        "spec.topologySpreadConstraints",
    ];
    assert_eq!(keys.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn errors_name_field_value_and_what_is_allowed() {
    let node: Node =
        serde_json::from_value(json!({"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "1e999"}}}))
            .unwrap();
    let error = node_facts(&node).unwrap_err();
    assert_eq!(
        (error.object.as_str(), error.field.as_str(), error.value.as_str()),
        ("v1/Node a", "status.allocatable.cpu", "1e999")
    );
    assert!(error.allowed.contains("out of range"), "{error}");
    let bare: Node = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    assert_eq!(node_facts(&bare).unwrap_err().field, "status");
}

#[test]
fn a_level_may_appear_once() {
    let levels = json!([{"nodeLabel": "rack"}, {"nodeLabel": "rack"}]);
    let topology: Topology =
        serde_json::from_value(json!({"metadata": {"name": "t"}, "spec": {"levels": levels}})).unwrap();
    assert_eq!(topology_facts(&topology).unwrap_err().field, "spec.levels[1].nodeLabel");
}

#[test]
fn an_omitted_limit_is_zero_and_minus_one_is_none() {
    let queue: Queue = serde_json::from_value(
        json!({"metadata": {"name": "q"}, "spec": {"resources": {"gpu": {"limit": -1, "quota": 2.5}, "cpu": {}}}}),
    )
    .unwrap();
    let facts = queue_facts(&queue).unwrap();
    assert_eq!(
        (facts.gpu.limit_millis, facts.gpu.quota_millis, facts.cpu.limit_millis),
        (None, Some(2_500), Some(0))
    );
}

#[test]
fn a_static_pods_mirror_only_holds_room() {
    let mut pod = pod(json!({"containers": [{"name": "main"}], "schedulerName": "kai-scheduler"}));
    assert!(pod_facts(&pod, &Membership::default(), "kai-scheduler").unwrap().ours);
    pod.metadata.annotations = Some(BTreeMap::from([(
        "kubernetes.io/config.mirror".to_owned(),
        "x".to_owned(),
    )]));
    assert!(!pod_facts(&pod, &Membership::default(), "kai-scheduler").unwrap().ours);
}
