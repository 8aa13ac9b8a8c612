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

fn evictions(result: &Value) -> Vec<(String, String)> {
    let all = result["evictions"].as_array().unwrap().iter();
    all.map(|one| (one["podGroup"].as_str().unwrap().to_owned(), one["action"].as_str().unwrap().to_owned())).collect()
}

#[test]
fn a_gang_has_one_rack_freed_and_a_team_its_share() {
    let result = simulate("preempt-a-rack");
    let preempted = |gang: &str| (gang.to_owned(), "preempt".to_owned());
    assert_eq!(evictions(&result), [preempted("old-2"), preempted("old-3")], "{result}");
    assert_eq!((&result["evictions"][0]["for"]["podGroup"], &result["summary"]["evicted"]), (&"training".into(), &2.into()));
    let result = simulate("reclaim-a-share");
    assert_eq!(evictions(&result), [("research-1".to_owned(), "reclaim".to_owned())], "{result}");
    let output = berth(&["simulate", "examples/reclaim-a-share"]);
    let page = stdout(&output);
    assert!(page.contains("Evicted") && page.contains("evicted for default/product"), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
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
fn at_most_two_racks_cost_a_second_zone() {
    let result = simulate("max-domains");
    assert_eq!(nodes(&result), [["b1"; 4], ["c1"; 4]].concat());
    assert_eq!(result["podGroups"][0]["quality"]["status"], "Optimal", "{result}");
    // Without the limit four racks of one zone, and with a lower one nothing, with a way out.
    let job = std::fs::read_to_string(super::path("examples/max-domains/job.yaml")).unwrap();
    let with = |name: &str, line: &str| {
        let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&file, job.replace("    berth.scheduler/max-domains: example.com/rack=2\n", line)).unwrap();
        let output = berth(&["simulate", "examples/max-domains/cluster.yaml", &file.display().to_string(), "-o", "json"]);
        serde_json::from_str::<Value>(&stdout(&output)).unwrap()
    };
    assert!(nodes(&with("no-limit.yaml", "")).iter().all(|node| node.starts_with('a')));
    let refused = with("one-rack.yaml", "    berth.scheduler/max-domains: example.com/rack=1\n");
    let reason = &refused["podGroups"][0]["reasons"][0];
    assert_eq!((&reason["code"], &reason["proof"]["together"]), (&"DomainLimit".into(), &1.into()), "{refused}");
    let sentence = "it may use at most 1 domain of example.com/rack, and needs 2: allow 2 domains of example.com/rack";
    assert!(reason["message"].as_str().unwrap().contains(sentence), "{refused}");
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

/// Each of KAI's examples alone on the cluster beside them; what must come of it elsewhere is in the scenarios `story-*`.
#[test]
fn every_example_of_kai_is_placed() {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(super::path("examples/kai")).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        if name == "README" || name == "cluster" {
            continue;
        }
        // What comes after something else is tried with it.
        let before = [("priorities-build", "priorities"), ("preemption-delay-later", "preemption-delay")];
        let before = before.iter().find(|(later, _)| *later == name).map(|(_, before)| format!("examples/kai/{before}.yaml"));
        let file = file.display().to_string();
        let mut arguments = vec!["simulate", "examples/kai/cluster.yaml", &file, "-o", "json"];
        arguments.extend(before.as_deref());
        if name == "scheduling-shards" {
            arguments.extend(["--partition-label-value", "blue"]);
        }
        let output = berth(&arguments);
        let result: Value = serde_json::from_str(&stdout(&output)).unwrap();
        // The limit of a queue is what that example shows.
        let waits = u64::from(["queues", "priorities-build", "preemption-delay-later"].contains(&name.as_str()));
        let (bound, pending) = (result["summary"]["bound"].as_u64().unwrap(), result["summary"]["pending"].as_u64().unwrap());
        assert!(0 < bound && pending == waits, "{name}: {}", result["summary"]);
        names.push(name);
    }
    let scenarios = std::fs::read_dir(super::path("tests/scenarios")).unwrap();
    let stories: String = scenarios
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("story-")))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let page = std::fs::read_to_string(super::path("examples/kai/README.md")).unwrap();
    for name in &names {
        assert!(stories.contains(&format!("examples/kai/{name}.yaml")), "{name} is in no story");
        // The page lists kinds of one example together: the second one by its end.
        let ends = ["-sample2", "-in-a-zone", "-build", "-later"];
        let end = ends.iter().find_map(|end| name.find(end)).unwrap_or(0);
        assert!(page.contains(&name[end..]), "{name} is not on the page");
    }
    assert_eq!(names.len(), 25, "{names:?}");
}

/// Parts of devices and claims are not built: the pods wait, and say which key it is.
#[test]
fn examples_of_what_is_not_built_wait_and_name_it() {
    let expected = [
        ("gpu-sharing-fraction", "gpu-fraction"),
        ("gpu-sharing-memory", "gpu-memory"),
        ("gpu-sharing-init-container", "gpu-fraction"),
        ("gpu-sharing-other-container", "gpu-fraction"),
        ("mps", "gpu-fraction"),
        ("hami", "gpu-fraction"),
        ("dra-imex", "resourceClaims"),
    ];
    // Beside them a page and a cluster.
    assert_eq!(std::fs::read_dir(super::path("examples/kai-not-yet")).unwrap().count(), expected.len() + 2);
    for (name, key) in expected {
        let file = format!("examples/kai-not-yet/{name}.yaml");
        let output = berth(&["simulate", "examples/kai-not-yet/cluster.yaml", &file, "-o", "json"]);
        let result: Value = serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{name}: {}", stderr(&output)));
        assert_eq!((&result["summary"]["bound"], &result["summary"]["pending"]), (&0.into(), &1.into()), "{name}");
        let said = result["podGroups"].to_string();
        assert!(said.contains("UnsupportedFeature") && said.contains(key), "{name}: {said}");
    }
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
fn defaults_of_a_kind_come_from_the_named_map() {
    let file = std::env::temp_dir().join(format!("berth-kind-defaults-{}.yaml", std::process::id()));
    let shown = |types: &str| {
        let map = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: m, namespace: kai}}, data: {{types: '{types}'}}}}");
        std::fs::write(&file, map).unwrap();
        let flags = ["--default-priorities-configmap-name", "m", "--default-priorities-configmap-namespace", "kai", "-o", "json"];
        let mut arguments = vec!["simulate", "examples/kai/cluster.yaml", "examples/kai/queues.yaml", file.to_str().unwrap()];
        arguments.extend(flags);
        let output = berth(&arguments);
        serde_json::from_str::<Value>(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)))
    };
    // Work that is not preemptible stays within the quotas: 4, 2 and 0.
    let result = shown(r#"[{"typeName": "Job", "preemptibility": "non-preemptible"}]"#);
    assert_eq!(result["summary"]["bound"], 6, "{}", result["summary"]);
    let result = shown(r#"[{"typeName": "Job", "group": "example.com", "preemptibility": "non-preemptible"}]"#);
    assert_eq!(result["summary"]["bound"], 11, "{}", result["summary"]);
    let result = shown(r#"[{"typeName": "Job", "preemptibility": "perhaps"}]"#);
    assert!(result["skipped"][0].to_string().contains("preemptible or non-preemptible"), "{}", result["skipped"]);
    std::fs::remove_file(&file).unwrap();
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
    for outside in ["http:", "https:", "src=", "<link", "<script ", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains(r#""bound":17,"#) && page.contains(r#""title":"PyTorchJob/llm""#), "{page}");
    assert!(page.contains(r#""code":"UnknownLevel""#) && page.contains("Topology cluster-topology"), "{page}");
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
