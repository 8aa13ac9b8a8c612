//! `berth where`: from files to the map of ranks.

use serde_json::Value;

use super::{berth, path, stderr, stdout};

/// A cluster of three nodes in two racks, and a gang of which two pods run already.
const DUMP: &str = r#"
apiVersion: kai.scheduler/v1alpha1
kind: Topology
metadata: {name: net}
spec: {levels: [{nodeLabel: rack}]}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a, labels: {rack: r1}}, status: {allocatable: {nvidia.com/gpu: "2", pods: "9"}}}
- {apiVersion: v1, kind: Node, metadata: {name: b, labels: {rack: r1}}, status: {allocatable: {nvidia.com/gpu: "2", pods: "9"}}}
- {apiVersion: v1, kind: Node, metadata: {name: c, labels: {rack: r2}}, status: {allocatable: {nvidia.com/gpu: "2", pods: "9"}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train, uid: u, annotations: {kai.scheduler/batch-min-member: "4"}}
spec:
  completionMode: Indexed
  parallelism: 4
  completions: 4
  template: {spec: {schedulerName: kai-scheduler, containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}}
"#;

/// The same with the first two pods on node c.
fn running() -> String {
    let pod = |index: usize| {
        format!(
            r#"
---
apiVersion: v1
kind: Pod
metadata:
  name: train-{index}-x
  uid: p{index}
  labels: {{batch.kubernetes.io/job-completion-index: "{index}"}}
  ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}}]
spec:
  schedulerName: kai-scheduler
  {node}
  containers: [{{name: c, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]
status: {{phase: {phase}}}
"#,
            node = if index < 2 { "nodeName: c" } else { "" },
            phase = if index < 2 { "Running" } else { "Pending" },
        )
    };
    (0..4).map(pod).fold(DUMP.to_owned(), |text, pod| text + &pod)
}

/// Writes the input beside the tests' other files and asks.
fn ask(name: &str, text: &str, arguments: &[&str]) -> (i32, String, String) {
    let file = path("target").join(format!("where-{name}-{}.yaml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let mut all = vec!["where"];
    all.extend(arguments);
    all.push(file.to_str().unwrap());
    let output = berth(&all);
    std::fs::remove_file(&file).unwrap();
    (output.status.code().unwrap(), stdout(&output), stderr(&output))
}

#[test]
fn ranks_are_told_by_node_and_domain() {
    let (code, text, _) = ask("table", DUMP, &["job/train"]);
    assert_eq!(code, 0);
    assert_eq!(text, "Job/train: 4 of 4 ranks have a node, on 2 nodes.\nRANK  NODE  DOMAIN  PODS\n 0-1  a     r1      train 0-1\n 2-3  b     r1      train 2-3\n\n");
    let (_, hosts, _) = ask("hostfile", DUMP, &["Job/train", "--hostfile"]);
    assert_eq!(hosts, "a slots=2\nb slots=2\n");
    let (_, same, _) = ask("hostfile-o", DUMP, &["Job/train", "-o", "hostfile"]);
    assert_eq!(same, hosts);
}

#[test]
fn pods_that_run_keep_their_rank_and_any_of_them_names_the_gang() {
    let (code, text, error) = ask("running", &running(), &["pod/train-3-x", "-o", "json"]);
    assert_eq!(code, 0, "{error}");
    let map: Value = serde_json::from_str(&text).unwrap();
    let ranks = map["gangs"][0]["ranks"].as_array().unwrap();
    let nodes: Vec<&str> = ranks.iter().map(|rank| rank["node"].as_str().unwrap()).collect();
    assert_eq!((&nodes[..2], nodes[2] == nodes[3]), (&["c", "c"][..], true), "{map}");
    assert_eq!(ranks[0]["domains"]["rack"], "r2");
    assert_eq!((ranks[3]["rank"].as_u64(), ranks[3]["index"].as_u64()), (Some(3), Some(3)));
    assert_eq!((&map["kind"], &map["gangs"][0]["topology"], &map["gangs"][0]["owner"]), (&"RankMap".into(), &"net".into(), &"Job/train".into()));
}

#[test]
fn a_rank_that_waits_is_a_no_and_a_stranger_an_error() {
    let crowded = DUMP.replace("nvidia.com/gpu: \"2\"", "nvidia.com/gpu: \"1\"");
    let (code, text, _) = ask("waits", &crowded, &["job/train"]);
    assert_eq!(code, 1);
    assert!(text.starts_with("Job/train: 0 of 4 ranks have a node") && text.contains(" 0-3  waits"), "{text}");
    let (code, text, error) = ask("stranger", DUMP, &["job/other"]);
    assert_eq!((code, text.as_str()), (2, ""));
    assert!(error.contains("no gang of job/other in namespace default; gangs: Job/train"), "{error}");
    let (code, _, error) = ask("plain", DUMP, &["train"]);
    assert!(code == 2 && error.contains("KIND/NAME"), "{error}");
}
