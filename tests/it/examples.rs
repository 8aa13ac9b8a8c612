//! The examples through the binary, with what their pages promise.

use serde_json::Value;

use super::{berth, stderr, stdout};

fn simulate(example: &str) -> Value {
    let output = berth(&["simulate", &format!("examples/{example}"), "-o", "json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

fn nodes(result: &Value) -> Vec<String> {
    let pods = result["pods"].as_array().unwrap();
    pods.iter()
        .map(|pod| pod["node"].as_str().unwrap_or("").to_owned())
        .collect()
}

#[test]
fn two_regions_both_pods_in_one() {
    let result = simulate("two-regions");
    let region = |i: usize| result["pods"][i]["domains"]["cluster-topology"]["topology.kubernetes.io/region"].clone();
    assert_eq!(region(0), region(1));
    assert_eq!(result["summary"]["bound"], 2);
    assert_eq!(nodes(&simulate("one-gpu-taken")), ["seoul-a", "seoul-b"]);
}

#[test]
fn split_capacity_binds_nothing_and_says_why() {
    let result = simulate("split-capacity");
    assert_eq!(result["summary"]["bound"], 0);
    let reason = &result["podGroups"][0]["reasons"][0];
    assert_eq!(reason["code"], "RequiredDomainTooSmall");
    assert_eq!((reason["has"].as_u64(), reason["needs"].as_u64()), (Some(1), Some(2)));
    assert!(!reason["fixes"].as_array().unwrap().is_empty());
}

#[test]
fn no_minimum_is_said() {
    let output = berth(&["simulate", "examples/no-minimum"]);
    assert!(stdout(&output).contains("no gang protects it"), "{}", stdout(&output));
}

#[test]
fn the_tighter_zone_and_its_first_rack() {
    assert_eq!(nodes(&simulate("tightest-zone")), ["a1", "a1", "a2"]);
}

#[test]
fn fewer_racks_before_the_tighter_zone() {
    let result = simulate("compact");
    assert_eq!(nodes(&result), ["b1", "b1", "b1", "b1", "b2"]);
    let quality = &result["podGroups"][0]["quality"];
    assert_eq!((&quality["objective"], &quality["status"]), (&"compact".into(), &"Optimal".into()), "{result}");
    // The same without the annotation, by the flag.
    let job = std::fs::read_to_string(super::path("examples/compact/job.yaml")).unwrap();
    let plain = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("compact-plain.yaml");
    std::fs::write(&plain, job.replace("    berth.scheduler/objective: compact\n", "")).unwrap();
    let plain = plain.display().to_string();
    let racks = |arguments: &[&str]| {
        let all = [&["simulate", "examples/compact/cluster.yaml", &plain, "-o", "json"], arguments].concat();
        let output = berth(&all);
        nodes(&serde_json::from_str(&stdout(&output)).unwrap())
    };
    assert!(racks(&[]).iter().all(|node| node.starts_with('a')));
    assert_eq!(racks(&["--objective", "compact"]), nodes(&result));
    let wrong = berth(&["simulate", "examples/compact", "--objective", "tight"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("[possible values: kai, compact]"), "{}", stderr(&wrong));
}

#[test]
fn segments_and_subgroups_are_placed() {
    assert_eq!(simulate("pytorch-segments")["summary"]["bound"], 17);
    assert_eq!(simulate("subgroups")["summary"]["bound"], 9);
    assert_eq!(simulate("custom-podgroup")["summary"]["bound"], 2);
    assert_eq!(simulate("lws-segments")["summary"]["bound"], 5);
    assert_eq!(simulate("ray-cluster")["summary"]["bound"], 3);
}

#[test]
fn a_node_without_the_label_serves_others_and_is_counted() {
    let result = simulate("unlabelled-node");
    assert_eq!(nodes(&result).into_iter().filter(|node| !node.is_empty()).collect::<Vec<_>>(), ["a", "b"]);
    let strict = result["podGroups"].as_array().unwrap().iter().find(|gang| gang["owner"] == "Job/strict").unwrap();
    assert_eq!(strict["reasons"][0]["unlabelledNodes"], 1, "{strict}");
}

#[test]
fn a_role_that_is_missing_is_waited_for() {
    assert_eq!(simulate("inference-roles")["summary"]["bound"], 5);
    let files: Vec<String> =
        ["cluster", "prefill", "decode"].iter().map(|name| format!("examples/inference-roles/{name}.yaml")).collect();
    let mut arguments = vec!["simulate", "-o", "json"];
    arguments.extend(files.iter().map(String::as_str));
    let output = berth(&arguments);
    let result: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(result["summary"]["bound"], 0, "{}", stderr(&output));
}

#[test]
fn the_same_input_gives_the_same_bytes_and_lines_fit() {
    for entry in std::fs::read_dir(super::path("examples")).unwrap() {
        let example = entry.unwrap().path().display().to_string();
        let first = stdout(&berth(&["simulate", &example, "-o", "json"]));
        assert_eq!(first, stdout(&berth(&["simulate", &example, "-o", "json"])));
        let table = stdout(&berth(&["simulate", &example]));
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    }
}

#[test]
fn definitions_are_generated() {
    let output = berth(&["generate", "crds"]);
    assert!(output.status.success() && stdout(&output).contains("podgroups.scheduling.run.ai"));
}

#[test]
fn yaml_is_the_same_document_as_json() {
    let text = stdout(&berth(&["simulate", "examples/split-capacity", "-o", "yaml"]));
    let items = berth::simulate::input::read_bytes("-", text.as_bytes()).unwrap();
    assert_eq!(items[0].value, simulate("split-capacity"));
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = stdout(&berth(&["simulate", "examples/pytorch-segments", "examples/split-capacity/job.yaml", "-o", "html"]));
    for outside in ["http:", "https:", "src=", "<link", "<script", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("<b>PyTorchJob/llm</b> 17/17 pods") && page.contains("24 of 160 GPUs free"), "{page}");
    assert!(page.contains("<h2>Pending</h2>") && page.contains("<code>"), "{page}");
    assert_eq!(page.matches("<div").count(), page.matches("</div>").count());
}

#[test]
fn warnings_are_in_every_output() {
    let words = "priorityClassName on pods of Job/j is";
    let shown = |output: &str| {
        let file = "tests/scenarios/must-warnings-are-seen.yaml";
        stdout(&berth(&["simulate", file, "-o", output])).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for output in ["table", "json", "yaml", "html"] {
        assert!(shown(output).contains(words), "{output}: {}", shown(output));
    }
}
