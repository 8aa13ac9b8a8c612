//! Input that can't be right: a clear message each, the right exit code, and no panic.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// Runs `simulate -` on bytes: exit code, output, errors.
fn simulate(bytes: &[u8], arguments: &[&str]) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(["simulate", "-"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    let code = output.status.code().expect("no signal");
    (
        code,
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// The one skipped object: object, field, message.
fn skipped(input: &str) -> (String, String, String) {
    let (code, out, err) = simulate(input.as_bytes(), &["-o", "json"]);
    assert_eq!(code, 0, "{err}");
    let result: Value = serde_json::from_str(&out).unwrap();
    let skipped = result["skipped"].as_array().unwrap();
    assert_eq!(skipped.len(), 1, "{out}");
    assert_eq!(skipped[0]["file"], "-");
    let text = |key: &str| skipped[0][key].as_str().unwrap().to_owned();
    (text("object"), text("field"), text("message"))
}

#[test]
fn an_empty_file_says_so() {
    for bytes in [&b""[..], b" \n\n"] {
        let (code, _, err) = simulate(bytes, &[]);
        assert_eq!(code, 2);
        assert!(err.contains("berth: -: empty"), "{err}");
    }
    // An answer without objects is one.
    let (code, out, _) = simulate(b"{apiVersion: v1, kind: List, items: []}", &[]);
    assert_eq!(code, 0);
    assert!(out.contains("Nothing to place"), "{out}");
}

#[test]
fn a_directory_without_manifests_says_so() {
    let output = super::berth(&["simulate", concat!(env!("CARGO_MANIFEST_DIR"), "/src/engine")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(super::stderr(&output).contains("nothing to read"), "{}", super::stderr(&output));
}

#[test]
fn a_mistake_is_named_as_the_workload_has_it() {
    let text = "\
{apiVersion: kai.scheduler/v1alpha1, kind: Topology, metadata: {name: t}, spec: {levels: [{nodeLabel: zone}]}}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: j
  annotations: {kai.scheduler/topology: t, kai.scheduler/topology-required-placement: zon}
spec: {template: {spec: {schedulerName: kai-scheduler, containers: [{name: c, image: i}]}}}
";
    let (_, out, err) = simulate(text.as_bytes(), &["-o", "json"]);
    let result: Value = serde_json::from_str(&out).expect(&err);
    let message = result["podGroups"][0]["reasons"][0]["message"].as_str().unwrap();
    assert!(message.starts_with("kai.scheduler/topology-required-placement is \"zon\""), "{message}");
}

#[test]
fn files_that_can_not_be_read_end_the_run() {
    for (bytes, words) in [
        (&b"\xff\xfe\x00\x01"[..], "not text"),
        (b"a\0b", "zero byte"),
        (b"\x1f\x8bnonsense", "not a gzip file"),
        (b"{\"kind\": [", "document 1 line 1"),
        (b"a: 1\n  b: 2\n", "document 1 line 2"),
        (b"just words", "not an object"),
        (b"a: 1", "document 1 kind: missing"),
    ] {
        let (code, _, err) = simulate(bytes, &[]);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(words) && err.contains("berth: -"), "{words}: {err}");
    }
    let output = super::berth(&["simulate", "/does/not/exist"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(super::stderr(&output).contains("/does/not/exist"));
}

#[test]
fn a_node_without_status_is_skipped() {
    let (object, field, message) = skipped("{apiVersion: v1, kind: Node, metadata: {name: x}}");
    assert_eq!((object.as_str(), field.as_str()), ("v1/Node x", "status"));
    assert!(message.contains("allocatable"), "{message}");
}

#[test]
fn quantities_out_of_range_are_named_however_they_are_written() {
    for quantity in ["1e999", "\"1e999\""] {
        let node = format!(
            "{{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {{\"name\": \"x\"}}, \"status\": {{\"allocatable\": {{\"cpu\": {quantity}}}}}}}"
        );
        let (object, field, message) = skipped(&node);
        assert_eq!(
            (object.as_str(), field.as_str()),
            ("v1/Node x", "status.allocatable.cpu")
        );
        assert!(message.contains("1e999"), "{message}");
    }
}

#[test]
fn the_second_pod_of_one_name_is_skipped() {
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: []}}\n";
    let (object, field, message) = skipped(&format!("{pod}---\n{pod}"));
    assert_eq!((object.as_str(), field.as_str()), ("v1/Pod default/p", "metadata.name"));
    assert!(message.contains("document 1"), "{message}");
}

#[test]
fn a_topology_with_one_level_twice_is_skipped() {
    let topology = "{apiVersion: kai.scheduler/v1alpha1, kind: Topology, metadata: {name: t}, spec: {levels: [{nodeLabel: rack}, {nodeLabel: rack}]}}";
    let (object, field, _) = skipped(topology);
    assert_eq!(
        (object.as_str(), field.as_str()),
        ("kai.scheduler/v1alpha1/Topology t", "spec.levels[1].nodeLabel")
    );
}

#[test]
fn a_field_of_the_wrong_type_is_named() {
    let (_, field, _) = skipped("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: 7}]}}");
    assert_eq!(field, "spec.containers[0].name");
}

#[test]
fn a_cycle_of_subgroups_keeps_the_gang_pending() {
    let group = json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {
        "queue": "default-queue",
        "subGroups": [{"name": "a", "parent": "b", "minMember": 1}, {"name": "b", "parent": "a", "minMember": 1}]}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"pod-group-name": "g"},
        "labels": {"kai.scheduler/subgroup-name": "a"}}, "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]}});
    let (code, out, err) = simulate(format!("{group}\n{pod}").as_bytes(), &["-o", "json", "--strict"]);
    assert_eq!(code, 1, "{err}");
    let result: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(result["podGroups"][0]["reasons"][0]["code"], "SubgroupCycle", "{out}");
}

#[test]
fn a_scenario_with_an_unknown_field_is_refused() {
    let text = "{apiVersion: berth.scheduler/v1alpha1, kind: Scenario, description: d, clutser: {}}";
    let (code, _, err) = simulate(text.as_bytes(), &["--strict"]);
    assert_eq!(code, 2);
    assert!(err.contains("clutser"), "{err}");
}

#[test]
fn an_unmet_expectation_is_a_no_under_strict() {
    let text = "{apiVersion: berth.scheduler/v1alpha1, kind: Scenario, description: d, cluster: {nodes: [{name: n}]}, \
                objects: [{gang: {name: g}}], expect: {bound: 0, pending: {g: \"\"}}}";
    let (code, _, err) = simulate(text.as_bytes(), &["--strict"]);
    assert_eq!(code, 1);
    assert!(err.contains("decision"), "{err}");
}

#[test]
fn words_that_yaml_once_read_as_truth_values_stay_names() {
    let node = |unschedulable: &str| {
        format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: n, labels: {{on: off}}}}, spec: {{unschedulable: {unschedulable}}}, \
             status: {{allocatable: {{cpu: 8, pods: 10}}}}}}\n---\n{{apiVersion: v1, kind: Pod, metadata: {{name: y}}, \
             spec: {{schedulerName: kai-scheduler, nodeSelector: {{on: off}}, containers: [{{name: no}}]}}}}\n"
        )
    };
    let (_, out, err) = simulate(node("no").as_bytes(), &["-o", "yaml"]);
    assert!(out.contains("name: \"y\"") && out.contains("node: \"n\""), "{out}{err}");
    let (_, out, _) = simulate(node("yes").as_bytes(), &["-o", "json"]);
    assert!(out.contains("cordoned") && out.contains("\"skipped\": []"), "{out}");
    let (_, field, _) = skipped(node("maybe").split("---").next().unwrap());
    assert_eq!(field, "spec.unschedulable");
}
