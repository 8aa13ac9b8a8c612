//! Every file of tests/scenarios holds.

use std::collections::BTreeSet;

use berth::simulate::input::read_paths;
use berth::simulate::{Options, scenario};

use super::{berth, path, stderr, stdout};

#[test]
fn every_scenario_holds() {
    let items = read_paths(&[path("tests/scenarios")]).unwrap();
    assert!(items.len() > 30, "only {} scenarios were found", items.len());
    let mut failures = Vec::new();
    for item in &items {
        match scenario::run(item, &Options::standard()) {
            Ok(run) => failures.extend(run.unmet.map(|unmet| format!("{}: {unmet}", item.place.file))),
            Err(error) => failures.push(error.to_string()),
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} scenarios fail:\n{}",
        failures.len(),
        items.len(),
        failures.join("\n")
    );
}

#[test]
fn every_difference_from_kai_is_run_both_ways() {
    let page = std::fs::read_to_string(path("docs/compat.md")).unwrap();
    let code = |line: &str| line.split(|c: char| !c.is_alphanumeric()).find(|word| word.starts_with("KaiDiff")).map(str::to_owned);
    let differences: BTreeSet<String> = page.lines().filter(|line| line.starts_with("| KaiDiff")).filter_map(code).collect();
    let fixed: BTreeSet<String> = page.lines().filter(|line| line.starts_with("- KaiDiff")).filter_map(code).collect();
    let items = read_paths(&[path("tests/scenarios")]).unwrap();
    let both = items.iter().filter(|item| item.value.get("expectKai").is_some());
    let tried: BTreeSet<String> = both.filter_map(|item| code(item.value["source"].as_str()?)).collect();
    assert_eq!(differences.difference(&fixed).cloned().collect::<BTreeSet<_>>(), tried);
    assert!(fixed.is_subset(&differences) && !tried.is_empty());
}

#[test]
fn the_flag_follows_kai() {
    let file = "tests/scenarios/compat-level-without-topology.yaml";
    assert_eq!(berth(&["simulate", "--strict", "--compat", "kai", file]).status.code(), Some(0));
    let both = berth(&["simulate", "--compat", "kai", "--default-topology", "t", file]);
    assert_eq!(both.status.code(), Some(2), "{}", stderr(&both));
    let output = berth(&["simulate", "--compat", "kai", file]);
    assert!(stdout(&output).contains("2/2 pods placed"), "{}", stdout(&output));
}

/// Codes that no scenario can produce, with the test that does.
const ELSEWHERE: [(&str, &str); 5] = [
    ("Problem", "every mistake has a code of its own"),
    ("NotFoundWithinBudget", "src/engine/tests/stories.rs and coupled.rs"),
    ("Preempted", "src/engine/tests/evict.rs: in `simulate` the evicted are gone at once"),
    ("StaleGang", "src/engine/tests/life.rs"),
    ("VolumesNotReady", "tests/e2e/volumes.rs"),
];

#[test]
fn every_reason_code_has_a_scenario() {
    let mut text = String::new();
    for entry in std::fs::read_dir(super::path("tests/scenarios")).unwrap() {
        text += &std::fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    let words: std::collections::BTreeSet<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    for code in berth_engine::outcome::Code::ALL.map(berth_engine::outcome::Code::name) {
        let elsewhere = ELSEWHERE.iter().any(|(known, _)| *known == code);
        assert_ne!(words.contains(code), elsewhere, "{code}: a scenario that produces it, or the test that does");
    }
}
