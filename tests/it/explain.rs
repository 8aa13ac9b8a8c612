//! `berth explain`: the sentence, what would help, and what a change would do, from files.

use serde_json::Value;

use super::{berth, path, stderr, stdout};

/// Two racks of two nodes; a Job that holds half of each, and one that needs a whole rack.
fn input() -> String {
    let mut text = "apiVersion: kai.scheduler/v1alpha1\nkind: Topology\nmetadata: {name: net}\nspec: {levels: [{nodeLabel: rack}]}\n".to_owned();
    for (name, rack) in [("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2")] {
        text += &format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{rack: {rack}}}}}\nstatus: {{allocatable: {{nvidia.com/gpu: \"8\", pods: \"9\"}}}}\n"
        );
    }
    for (name, day, gpus, rack) in [("first", 1, 8, false), ("second", 2, 4, false), ("train", 3, 8, true)] {
        let (pods, level) = if rack { (2, ", kai.scheduler/topology: net, kai.scheduler/topology-required-placement: rack") } else { (1, "") };
        text += &format!(
            "---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}, uid: u-{name}, creationTimestamp: \"2026-01-0{day}T00:00:00Z\", annotations: {{kai.scheduler/batch-min-member: \"{pods}\"{level}}}}}\n\
             spec:\n  completionMode: Indexed\n  parallelism: {pods}\n  completions: {pods}\n  template: {{spec: {{schedulerName: kai-scheduler, nodeSelector: {selector}, containers: [{{name: c, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]}}}}\n",
            selector = if name == "second" { "{rack: r2}" } else { "{}" },
        );
    }
    text
}

fn ask(name: &str, arguments: &[&str]) -> (i32, String, String) {
    let file = path("target").join(format!("explain-{name}-{}.yaml", std::process::id()));
    std::fs::write(&file, input()).unwrap();
    let mut all = vec!["explain"];
    all.extend(arguments);
    let file_name = file.display().to_string();
    all.push(&file_name);
    let output = berth(&all);
    std::fs::remove_file(&file).unwrap();
    (output.status.code().unwrap(), stdout(&output), stderr(&output))
}

#[test]
fn a_sentence_comes_first_then_what_would_help_then_the_evidence() {
    let (code, text, _) = ask("table", &["Job/train"]);
    assert_eq!(code, 1, "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "Job/train  0/2 pods have a node, pending");
    assert!(lines[1].starts_with("  needs 2 pods in one rack; the best, "), "{text}");
    for said in ["- end Job/first (1 pod), which runs in r1", "- start with a minimum of 1 pod", "- allow a wider level", "rack r2: 1 of 2 pods on 2 nodes"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn the_json_holds_the_same_sentence_as_simulate() {
    let (_, by_job, _) = ask("json-job", &["job/train", "-o", "json"]);
    let by_job: Value = serde_json::from_str(&by_job).unwrap();
    let group = &by_job["podGroups"][0];
    assert_eq!(group["message"], group["reasons"][0]["message"]);
    assert!(group["remedies"].as_array().unwrap().iter().all(|remedy| remedy["verified"] == true));
    assert!(group["domains"].as_array().unwrap().len() == 3, "{group}");
    // The PodGroup and a pod lead to the same answer.
    for other in [format!("PodGroup/{}", group["name"].as_str().unwrap()), "pod/train-1".to_owned()] {
        let (_, text, _) = ask("json", &[&other, "-o", "json"]);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), by_job, "{other}");
    }
}

#[test]
fn what_if_says_who_is_hit_and_who_gets_on() {
    let (_, text, _) = ask("end", &["Job/train", "--what-if", "end=Job/first"]);
    assert!(text.contains("Job/first is gone") && text.contains("Job/train would be placed"), "{text}");
    let (_, text, _) = ask("drain", &["-A", "--what-if", "drain=r2"]);
    assert!(text.contains("With drain=r2:") && text.contains("Job/second would be pending with 0 of 1 pods: 1 of its pods leave "), "{text}");
    let (_, text, _) = ask("add", &["Job/train", "--what-if", "add=2:a", "--what-if", "relax=Job/train"]);
    assert!(text.contains("Job/train would be placed"), "{text}");
    for (wrong, said) in [("grow=3", "allowed is add="), ("drain=r9", "no node is called r9"), ("end=Job/none", "no gang of Job/none")] {
        let (code, _, complaint) = ask("wrong", &["-A", "--what-if", wrong]);
        assert!(code == 2 && complaint.contains(said), "{wrong}: {complaint}");
    }
}

#[test]
fn what_runs_is_said_and_what_is_not_there_names_what_is() {
    let (code, text, _) = ask("runs", &["Job/first"]);
    assert!(code == 0 && text.contains("nothing waits: 1 of 1 pods have a node"), "{text}");
    let (code, _, complaint) = ask("none", &["Job/frist"]);
    assert!(code == 2 && complaint.contains("no gang of Job/frist") && complaint.contains("Job/first"), "{complaint}");
}

#[test]
fn completions_and_the_manual_are_written() {
    for shell in ["bash", "zsh", "fish"] {
        let text = stdout(&berth(&["generate", "completions", shell, "--name", "kubectl-berth"]));
        assert!(text.contains("kubectl-berth") && text.contains("explain"), "{shell}");
    }
    let page = stdout(&berth(&["generate", "man"]));
    assert!(page.starts_with(".ie") && page.contains("simulate"), "{page}");
}
