//! `berth check`: what it finds, what it lets pass, and its exit codes.

use serde_json::Value;

use super::{berth, path, stderr, stdout};

/// Codes by object, sorted, of what is found in these documents.
fn found(name: &str, text: &str) -> (Option<i32>, Vec<(String, String)>) {
    let file = path("target").join(format!("check-{name}.yaml"));
    std::fs::create_dir_all(path("target")).expect("a folder");
    std::fs::write(&file, text).expect("a file");
    let output = berth(&["check", "-o", "json", &file.to_string_lossy()]);
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |finding: &Value, field: &str| finding[field].as_str().unwrap_or_default().to_owned();
    let mut codes: Vec<(String, String)> = value["findings"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|finding| (text(finding, "object").rsplit([' ', '/']).next().unwrap_or_default().to_owned(), text(finding, "code")))
        .collect();
    codes.sort();
    (output.status.code(), codes)
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(object, code)| ((*object).to_owned(), (*code).to_owned())).collect()
}

#[test]
fn keys_are_looked_at_where_they_stand() {
    let manifest = r#"
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  labels: {kai.scheduler/topology: net, project: old}
  annotations: {kai.scheduler/topology-required-placment: rack, kai.scheduler/queue: team, kai.scheduler/nothing-at-all: x}
spec:
  parallelism: 4
  template:
    metadata: {annotations: {kai.scheduler/batch-min-member: "4", pod-group-name: mine}}
    spec: {containers: [{name: c}]}
---
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: hand, annotations: {kai.scheduler/topology: net}}
spec: {minMember: 1}
"#;
    let expected = pairs(&[
        ("hand", "KeyOnWrongObject"),
        ("train", "KeyInWrongPlace"),
        ("train", "KeyInWrongPlace"),
        ("train", "KeyOnWrongObject"),
        ("train", "OldKey"),
        ("train", "OtherScheduler"),
        ("train", "PodGroupNotUsed"),
        ("train", "UnknownKey"),
        ("train", "UnknownKey"),
    ]);
    assert_eq!(found("keys", manifest), (Some(1), expected));
    let page = stdout(&berth(&["check", &path("target/check-keys.yaml").to_string_lossy()]));
    let words: String = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("did you mean kai.scheduler/topology-required-placement?"), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
}

#[test]
fn queues_are_a_tree_with_limits() {
    let queue = |name: &str, parent: &str, gpu: &str| {
        let all = "{quota: -1, limit: -1}";
        format!("---\n{{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {{name: {name}}}, spec: {{parentQueue: '{parent}', resources: {{gpu: {gpu}, cpu: {all}, memory: {all}}}}}}}\n")
    };
    let good = [queue("top", "", "{quota: 8, limit: -1}"), queue("a", "top", "{quota: 4, limit: 8}"), queue("b", "top", "{quota: 4, limit: 8}")].concat();
    assert_eq!(found("good-queues", &good), (Some(0), Vec::new()));
    let bad = [
        queue("top", "", "{quota: 4, limit: -1}"),
        queue("a", "top", "{quota: 8}"),
        queue("lost", "gone", "{quota: 1, limit: 1}"),
        queue("x", "y", "{quota: 1, limit: 1}"),
        queue("y", "x", "{quota: 1, limit: 1}"),
        "---\n{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {kai.scheduler/queue: top}}, spec: {schedulerName: kai-scheduler, containers: [{name: c}]}}\n".to_owned(),
    ]
    .concat();
    let expected = pairs(&[
        ("a", "QueueWithoutLimit"),
        ("lost", "QueueOrphaned"),
        ("p", "QueueNotLeaf"),
        ("top", "QuotaOfChildren"),
        ("x", "QueueOrphaned"),
        ("y", "QueueOrphaned"),
    ]);
    assert_eq!(found("bad-queues", &bad), (Some(1), expected));
}

#[test]
fn topologies_are_held_against_the_nodes() {
    let node = |name: &str, labels: &str| format!("---\n{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{{labels}}}}}, status: {{allocatable: {{cpu: 8}}}}}}\n");
    let text = [
        "{apiVersion: kai.scheduler/v1alpha1, kind: Topology, metadata: {name: net}, spec: {levels: [{nodeLabel: topology.kubernetes.io/zone}, {nodeLabel: block}, {nodeLabel: rack}, {nodeLabel: pod}]}}\n".to_owned(),
        node("n1", "topology.kubernetes.io/zone: z, block: b1, rack: r1"),
        node("n2", "topology.kubernetes.io/zone: z, block: b1, rack: r1"),
        node("n3", "topology.kubernetes.io/zone: z, block: b2, rack: r2"),
        node("n4", "topology.kubernetes.io/zone: z, block: b2, rack: r2"),
        node("n5", "topology.kubernetes.io/zone: z, block: b2, rack: r1"),
        node("n6", "failure-domain.beta.kubernetes.io/zone: z, block: b3, rack: r3"),
    ]
    .concat();
    let (code, codes) = found("topology", &text);
    let codes: Vec<&str> = codes.iter().map(|(_, code)| code.as_str()).collect();
    assert_eq!((code, codes), (Some(1), vec!["LevelWithoutNodes", "MixedKeys", "NodesWithoutLabel", "OddSize", "OneNameTwoDomains"]));
}

#[test]
fn a_manifest_alone_is_not_blamed_for_a_cluster_that_is_not_shown() {
    let job = |minimum: &str, size: &str| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: ok, labels: {{kai.scheduler/queue: team}}, annotations: {{kai.scheduler/batch-min-member: \"{minimum}\", kai.scheduler/topology: net, \
             kai.scheduler/segment-size: \"{size}\", kai.scheduler/segment-topology-required-placement: rack}}}}\nspec:\n  parallelism: 4\n  completions: 4\n  completionMode: Indexed\n  \
             template: {{spec: {{schedulerName: kai-scheduler, containers: [{{name: c, resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]}}}}\n"
        )
    };
    assert_eq!(found("alone", &job("4", "2")), (Some(0), Vec::new()));
    assert_eq!(found("segment", &job("4", "9")), (Some(1), pairs(&[("ok", "InvalidSegmentSize")])));
    let limited = |limits: &str| job("4", "2").replace("annotations: {", &format!("annotations: {{berth.scheduler/max-domains: \"{limits}\", "));
    assert_eq!(found("limited", &limited("rack=2,net/block=1")), (Some(0), Vec::new()));
    assert_eq!(found("wrong-limit", &limited("rack:2")), (Some(1), pairs(&[("ok", "InvalidMaxDomains")])));
    let strict = berth(&["check", "--strict", "examples/no-minimum"]);
    assert_eq!((strict.status.code(), berth(&["check", "examples/no-minimum"]).status.code()), (Some(1), Some(0)));
    assert_eq!(berth(&["check", "no-such-file.yaml"]).status.code(), Some(2));
}

/// A Job with a slip, as a cluster holds it: its pods and its PodGroup bear what it says.
const DUMP: &str = r#"
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 8, pods: 110}, conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: train, namespace: a, uid: u1, annotations: {kai.scheduler/topology-required-placment: rack}},
 spec: {parallelism: 1, template: {spec: {schedulerName: kai-scheduler, containers: [{name: c}]}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: train-0, namespace: a, uid: p0, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u1}],
 annotations: {pod-group-name: pg-train-u1, kai.scheduler/topology-required-placment: rack}}, spec: {schedulerName: kai-scheduler, containers: [{name: c}]}}
---
{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {name: pg-train-u1, namespace: a, annotations: {kai.scheduler/topology: net,
 kai.scheduler/topology-required-placment: rack}, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u1}]}, spec: {minMember: 1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: alone, namespace: b, annotations: {kai.scheduler/topologie: x}}, spec: {schedulerName: kai-scheduler, containers: [{name: c}]}}
"#;

#[test]
fn a_mistake_is_told_where_it_was_written() {
    let expected = pairs(&[("alone", "UnknownKey"), ("train", "UnknownKey")]);
    assert_eq!(found("dump", DUMP), (Some(1), expected));
    let file = path("target/check-dump.yaml");
    for (namespace, said) in [("a", "1 error and 0 warnings in 5 objects."), ("c", "Nothing to object to in 5 objects.")] {
        let page = stdout(&berth(&["check", "--snapshot", &file.to_string_lossy(), "-n", namespace]));
        assert_eq!(page.lines().next(), Some(said), "{page}");
    }
    assert_eq!(berth(&["check"]).status.code(), Some(2), "neither files nor a cluster");
    assert_eq!(berth(&["check", "--live", &file.to_string_lossy()]).status.code(), Some(2), "files and a cluster");
}

#[test]
fn another_scheduler_that_reads_the_keys_is_no_mistake() {
    let pod = |name: &str, scheduler: &str, annotations: &str| {
        format!("---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{kai.scheduler/queue: q}}, annotations: {{{annotations}}}}}, spec: {{schedulerName: {scheduler}, nodeName: n, containers: [{{name: c}}]}}}}\n")
    };
    let text = [pod("ours", "kai-scheduler", ""), pod("canary", "berth", "berth.scheduler/decision: 1-1/1"), pod("next", "berth", ""), pod("lost", "other", "")].concat();
    assert_eq!(found("schedulers", &text), (Some(1), pairs(&[("lost", "OtherScheduler")])));
    let file = path("target/check-schedulers.yaml");
    let output = stdout(&berth(&["check", "--scheduler-name", "berth", &file.to_string_lossy()]));
    assert_eq!(output.lines().next(), Some("1 error and 1 warning in 4 objects."), "{output}");
    let nowhere = berth(&["check", "--live", "--kubeconfig", "no-such-file"]);
    assert_eq!((nowhere.status.code(), nowhere.stdout.len()), (Some(2), 0));
    assert!(stderr(&nowhere).contains("no-such-file"), "{nowhere:?}");
}

#[test]
fn the_examples_have_no_errors() {
    for folder in std::fs::read_dir(path("examples")).expect("a folder").flatten() {
        let output = berth(&["check", &folder.path().to_string_lossy()]);
        // What that folder shows is that it can't be had.
        let errors = folder.file_name() == "kai-not-yet";
        assert_eq!(output.status.code(), Some(i32::from(errors)), "{}", stdout(&output));
    }
}
