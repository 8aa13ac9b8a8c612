//! `berth queue`: from files to the line of gangs.

use serde_json::Value;

use super::{berth, path, stderr, stdout};

/// Eight GPUs; one team under another, one beside it; more work than fits.
fn dump() -> String {
    let queue = |name: &str, parent: &str, quota: i64, limit: i64| {
        let all = "{quota: -1, limit: -1}";
        format!("---\n{{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {{name: {name}}}, spec: {{parentQueue: '{parent}', resources: {{gpu: {{quota: {quota}, overQuotaWeight: 1, limit: {limit}}}, cpu: {all}, memory: {all}}}}}}}\n")
    };
    let pod = |name: &str, queue: &str, gpus: u32, day: u32| {
        format!("---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, creationTimestamp: '2026-01-0{day}T00:00:00Z', labels: {{kai.scheduler/queue: {queue}}}}}, spec: {{schedulerName: kai-scheduler, containers: [{{name: c, resources: {{requests: {{nvidia.com/gpu: {gpus}}}}}}}]}}}}\n")
    };
    let node = "{apiVersion: v1, kind: Node, metadata: {name: a, creationTimestamp: '2026-01-01T00:00:00Z'}, status: {allocatable: {nvidia.com/gpu: 8, cpu: 64, memory: 1Ti, pods: 99}}}\n";
    [
        node.to_owned(),
        queue("research", "", 4, -1),
        queue("vision", "research", 4, 6),
        queue("speech", "", 4, -1),
        pod("v1", "vision", 4, 1),
        pod("v2", "vision", 4, 2),
        pod("s1", "speech", 4, 3),
        pod("s2", "speech", 2, 4),
        pod("lost", "nowhere", 1, 5),
    ]
    .concat()
}

fn written() -> String {
    let file = path("target/queues-test.yaml");
    std::fs::create_dir_all(path("target")).expect("a folder");
    // Several tests write the same.
    std::fs::write(&file, dump()).expect("a file");
    file.to_string_lossy().into_owned()
}

#[test]
fn the_line_says_who_waits_in_which_order_and_why() {
    let output = berth(&["queue", &written()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = stdout(&output);
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    assert!(page.starts_with("3 gangs wait; the first in line is Pod/"), "{page}");
    let row = |name: &str| -> Vec<String> {
        let line = page.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(row("research"), ["research", "4", "4", "4", "-", "8", "0"]);
    assert_eq!(row("vision"), ["vision", "4", "4", "4", "6", "8", "1"]);
    assert_eq!(row("speech"), ["speech", "4", "4", "4", "-", "6", "1"]);
    assert!(page.contains("\n  vision"), "it is below research: {page}");
    assert!(page.contains("Pod/v2  queue vision, priority"), "{page}");
    let words: String = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("QueueOverLimit: queue vision may use 6 GPUs, uses 4, and 4 more are asked for"), "{page}");
    assert!(words.contains("QueueNotFound: queue nowhere does not exist"), "{page}");
    assert!(words.contains("1 of 1 pods wait, for 3d 0h"), "{page}");
}

#[test]
fn the_line_as_json_has_figures_and_reasons() {
    let output = berth(&["queue", "-o", "json", &written()]);
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["kind"], "QueueView");
    let vision = value["queues"].as_array().into_iter().flatten().find(|queue| queue["name"] == "vision").expect("it is there");
    assert_eq!((&vision["parent"], &vision["gpu"]["limit"], &vision["gpu"]["fairShare"]), (&"research".into(), &6.into(), &4.into()));
    assert_eq!((&vision["cpu"]["quota"], &vision["gpu"]["overQuotaWeight"]), (&(-1).into(), &1.into()));
    let waiting = value["waiting"].as_array().expect("a list");
    let positions: Vec<u64> = waiting.iter().filter_map(|waiter| waiter["position"].as_u64()).collect();
    assert_eq!(positions, [1, 2, 3]);
    assert!(waiting.iter().all(|waiter| waiter["reasons"][0]["code"].is_string() && waiter["since"].is_string()), "{value}");
    let elsewhere = berth(&["queue", "-n", "other", &written()]);
    assert!(stdout(&elsewhere).starts_with("Nothing waits here; 3 gangs elsewhere."), "{}", stdout(&elsewhere));
    let yaml = berth(&["queue", "-o", "yaml", &written()]);
    assert!(stdout(&yaml).contains("kind: QueueView"));
}

#[test]
fn an_empty_line_and_a_scenario() {
    let output = berth(&["queue", "examples/split-capacity/cluster.yaml"]);
    assert!(stdout(&output).starts_with("Nothing waits."), "{}", stdout(&output));
    let scenario = berth(&["queue", "tests/scenarios/g19-queue-mistakes-are-named.yaml"]);
    assert_eq!(scenario.status.code(), Some(2));
}
