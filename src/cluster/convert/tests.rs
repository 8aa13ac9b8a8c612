use berth_engine::facts::{SelectorOperator, ShapeFacts};
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
fn a_pod_resized_in_place_holds_the_larger_of_what_it_has_and_what_it_asks_for() {
    let resized = |asked: &str, held: &str, reason: &str| {
        let mut pod = pod(json!({"containers": [{"name": "main", "resources": {"requests": {"cpu": asked}}}]}));
        let status = json!({
            "containerStatuses": [{
                "name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "resources": {"requests": {"cpu": held}},
            }],
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
        });
        pod.status = serde_json::from_value(status).unwrap();
        pod_facts(&pod, &Membership::default(), "").unwrap().shape.requests["cpu"]
    };
    assert_eq!(resized("1", "3", "Deferred"), 3_000);
    assert_eq!(resized("4", "3", "Deferred"), 4_000);
    assert_eq!(resized("9", "3", "Infeasible"), 3_000);
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
    }));
    pod.metadata.annotations = Some(BTreeMap::from([("gpu-fraction".to_owned(), "0.5".to_owned())]));
    let keys = shape_facts(&pod).unwrap().unsupported;
    let expected = [
        "gpu-fraction",
        "spec.resourceClaims",
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

/// A pod with labels `app: a`, `rev: 7` and these rules.
fn ruled(spec: serde_json::Value) -> std::result::Result<ShapeFacts, ConvertError> {
    let mut pod = pod(spec);
    pod.metadata.labels = Some([("app", "a"), ("rev", "7")].map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    shape_facts(&pod)
}

#[test]
fn rules_about_other_pods_become_facts() {
    let shape = ruled(json!({
        "containers": [{"name": "main"}],
        "affinity": {
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm":
                {"topologyKey": "zone", "namespaceSelector": {}, "labelSelector": {"matchLabels": {"app": "a"}}}}]},
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["rev", "absent"],
                     "mismatchLabelKeys": ["app"]}],
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm":
                    {"topologyKey": "host", "namespaces": ["x"]}}]}},
        "topologySpreadConstraints": [
            {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3,
             "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["b", "a"]}]},
             "nodeTaintsPolicy": "Honor", "nodeAffinityPolicy": "Ignore"},
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}))
    .unwrap();
    assert!(shape.unsupported.is_empty());
    let anti = &shape.pod_anti_affinity[0];
    assert!(anti.namespaces.contains("default"));
    let merged: Vec<_> = anti.selector.as_ref().unwrap().requirements.iter().map(|r| (r.key.as_str(), r.operator)).collect();
    assert_eq!(merged, [("app", SelectorOperator::NotIn), ("rev", SelectorOperator::In)]);
    let weights: Vec<i32> = shape.preferred_pod_affinity.iter().map(|(weight, _)| *weight).collect();
    assert_eq!(weights, [5, -7]);
    let (liked, disliked) = (&shape.preferred_pod_affinity[0].1, &shape.preferred_pod_affinity[1].1);
    assert!(liked.namespaces.is_empty() && liked.namespace_selector.is_some());
    assert!(disliked.selector.is_none() && disliked.namespaces.contains("x"));
    let (hard, soft) = (&shape.spread[0], &shape.spread[1]);
    assert!(hard.hard && hard.honor_taints && !hard.honor_affinity);
    assert_eq!((hard.max_skew, hard.min_domains), (2, 3));
    assert_eq!(hard.selector.as_ref().unwrap().requirements[0].values, ["a", "b"]);
    assert!(!soft.hard && !soft.honor_taints && soft.honor_affinity && soft.selector.is_none());
}

#[test]
fn mistakes_in_rules_about_other_pods_are_named() {
    let spread = |change: (&str, serde_json::Value)| {
        let mut written = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
        written[change.0] = change.1;
        json!({"containers": [], "topologySpreadConstraints": [written]})
    };
    let term = |term: serde_json::Value| {
        let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
        json!({"containers": [], "affinity": {"podAffinity": terms}})
    };
    let operator = json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]});
    let weight = json!([{"weight": 101, "podAffinityTerm": {"topologyKey": "z"}}]);
    let cases = [
        (spread(("maxSkew", json!(0))), "maxSkew"),
        (spread(("minDomains", json!(-1))), "minDomains"),
        (spread(("whenUnsatisfiable", json!("Maybe"))), "DoNotSchedule and ScheduleAnyway"),
        (spread(("nodeTaintsPolicy", json!("Maybe"))), "Honor and Ignore"),
        (spread(("topologyKey", json!(""))), "topologyKey"),
        (term(json!({"topologyKey": ""})), "podAffinity.required"),
        (term(json!({"topologyKey": "z", "labelSelector": operator})), "matchExpressions[0].operator"),
        (
            json!({"containers": [], "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weight}}}),
            "weight",
        ),
    ];
    for (spec, named) in cases {
        let error = ruled(spec).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}
