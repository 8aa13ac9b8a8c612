//! `berth check --from kai`: what differs by code, what becomes of the work, what the settings become, what is left behind.

use std::collections::BTreeSet;

use berth::lint::kai::{self, leftovers, settings};
use berth::lint::{Shown, check};
use berth::simulate::Options;
use berth::simulate::forecast::forecast;
use berth::simulate::input::{Item, read_paths};
use serde_json::{Value, json};

use super::snapshot::{temporary, zip};
use super::{berth, path, stdout};

/// The report on a file, with its exit code.
fn report(arguments: &[&str]) -> (Option<i32>, Value) {
    let output = berth(&[&["check", "--from", "kai", "-o", "json"], arguments].concat());
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Codes of findings, as a set.
fn codes(findings: &Value) -> BTreeSet<String> {
    list(findings).iter().map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
}

/// The codes at the beginnings of such lines of docs/compat.md.
fn documented(beginning: &str) -> BTreeSet<String> {
    let page = std::fs::read_to_string(path("docs/compat.md")).unwrap();
    let word = |line: &str| line.split(|c: char| !c.is_alphanumeric()).find(|word| word.starts_with("KaiDiff")).map(str::to_owned);
    page.lines().filter(|line| line.starts_with(beginning)).filter_map(word).collect()
}

/// `KaiDiffLwsSegmentSize` as a name: `lws-segment-size`.
fn kebab(code: &str) -> String {
    let mut name = String::new();
    for letter in code.trim_start_matches("KaiDiff").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

#[test]
fn every_difference_is_found_in_the_object_that_has_it_and_in_no_other() {
    let file = path("tests/data/kai/differences.yaml");
    let (_, found) = report(&[&file.to_string_lossy()]);
    let name = |finding: &Value| finding["object"].as_str().unwrap().rsplit([' ', '/']).next().unwrap().to_owned();
    for finding in list(&found["differences"]) {
        assert_eq!(kebab(finding["code"].as_str().unwrap()), name(finding), "{finding}");
    }
    let everywhere = codes(&found["everywhere"]);
    let by_object = codes(&found["differences"]);
    assert!(everywhere.is_disjoint(&by_object) && by_object.len() > 20);
    assert_eq!(everywhere.union(&by_object).cloned().collect::<BTreeSet<_>>(), documented("| KaiDiff"));
    assert_eq!(kai::codes().into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), documented("| KaiDiff"));
    // With the flag those stay that it does not turn off.
    let (_, kept) = report(&["--compat", "kai", &file.to_string_lossy()]);
    assert_eq!(codes(&kept["differences"]), documented("- KaiDiff").intersection(&by_object).cloned().collect());
}

#[test]
fn a_dump_is_told_as_a_page() {
    let output = berth(&["check", "--from", "kai", "tests/data/kai/dump.yaml"]);
    let page = stdout(&output);
    // A webhook that nobody answers for, and work that can't be placed again.
    assert_eq!(output.status.code(), Some(1));
    let long = |line: &&str| line.chars().count() > 80 && line.trim().contains(' ');
    assert_eq!(page.lines().find(long), None);
    let expected = std::fs::read_to_string(path("tests/data/kai/dump.txt")).unwrap();
    assert_eq!(page, expected, "as it is now:\n{page}");
}

#[test]
fn a_dump_is_told_to_scripts() {
    let (code, found) = report(&["tests/data/kai/dump.yaml"]);
    let summary = json!({
        "objects": 31, "waiting": 2, "starting": 1, "differences": 2, "unsupported": 1, "bindRequests": 1, "errors": 2, "warnings": 2, "homeless": 0,
    });
    assert_eq!((code, &found["summary"]), (Some(1), &summary));
    let waiting: Vec<(&str, bool)> = list(&found["waiting"]).iter().map(|gang| (gang["owner"].as_str().unwrap(), gang["starts"] == true)).collect();
    assert_eq!(waiting, [("Pod/small", true), ("Job/wide", false)]);
    let racks = list(&found["wholeDomains"]).iter().find(|level| level["level"] == "rack").unwrap();
    assert_eq!(racks, &json!({"topology": "net", "level": "rack", "domains": 3, "now": 0, "then": 0, "anew": 1}));
    let arguments = &found["commands"][0]["arguments"];
    assert_eq!(arguments.to_string().matches("--").count(), 5, "{arguments}");
    assert!(arguments.to_string().contains("--cpu-strategy=spread"));
    // Only what is in the namespace that was asked for.
    let (code, elsewhere) = report(&["-n", "nowhere", "tests/data/kai/dump.yaml"]);
    assert_eq!((code, &elsewhere["summary"]["waiting"], &elsewhere["summary"]["differences"]), (Some(0), &json!(0), &json!(0)));
}

#[test]
fn kais_archive_shows_what_its_pods_and_podgroups_bear() {
    let pod = |name: &str, owner: &str, annotations: Value| {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "a", "uid": name, "annotations": annotations,
                         "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner}]},
            "spec": {"schedulerName": "site", "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}, "status": {"phase": "Pending"},
        });
        pod["metadata"]["annotations"]["pod-group-name"] = json!(format!("pg-{owner}"));
        pod
    };
    let group = |owner: &str| json!({"metadata": {"name": format!("pg-{owner}"), "namespace": "a", "uid": owner, "annotations": {
        "kai.scheduler/top-owner-metadata": "name: x\nuid: x\ngroup: apps\nversion: v1\nkind: ReplicaSet\n"}}, "spec": {"minMember": 1, "queue": "q"}});
    let unlimited = json!({"quota": -1, "limit": -1});
    let archive = json!({
        "config": {"actions": "allocate", "tiers": [{"plugins": [{"name": "nodeplacement", "arguments": {"gpu": "spread", "cpu": "binpack"}}]}]},
        "schedulerParams": {"schedulerName": "site", "partitionParams": {"NodePoolLabelKey": "pool", "NodePoolLabelValue": ""}, "globalDefaultStalenessGracePeriod": 120_000_000_000_u64},
        "rawObjects": {
            "nodes": [{"metadata": {"name": "n", "uid": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "8", "pods": "9"}}}],
            "pods": [
                pod("p-0", "p", json!({"kai.scheduler/topology": "net", "kai.scheduler/topology-preferred-placement": "rack"})),
                pod("p-1", "p", json!({"kai.scheduler/topology": "net", "kai.scheduler/topology-preferred-placement": "rack"})),
                pod("s-0", "s", json!({"gpu-fraction": "0.5"})),
            ],
            "podGroups": [group("p"), group("s")],
            "queues": [{"metadata": {"name": "q", "uid": "q"}, "spec": {"resources": {"gpu": unlimited, "cpu": unlimited, "memory": unlimited}}}],
        },
    });
    let file = temporary("from-kai.zip");
    std::fs::write(&file, zip("snapshot.json", &archive.to_string())).unwrap();
    let (code, found) = report(&[&file]);
    assert_eq!((code, &found["scheduler"]), (Some(1), &json!("site")), "the scheduler's name is the archive's");
    // One pod speaks for all of its owner.
    let said = |part: &str| list(&found[part]).iter().map(|finding| format!("{} {}", finding["code"].as_str().unwrap(), finding["object"].as_str().unwrap())).collect::<Vec<_>>();
    assert_eq!(said("differences"), ["KaiDiffTemplateAnnotations v1/Pod a/p-0"]);
    assert_eq!(said("unsupported"), ["UnsupportedFeature v1/Pod a/s-0"]);
    let arguments: Vec<&str> = list(&found["commands"][0]["arguments"]).iter().map(|flag| flag.as_str().unwrap()).collect();
    assert_eq!(arguments, ["--scheduler-name=site", "--nodepool-label-key=pool", "--default-staleness-grace-period=120s", "--gpu-strategy=spread"]);
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn where_nothing_differs_it_is_said_and_is_no_error() {
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: 8, pods: 110}}}\n";
    let file = temporary("from-kai.yaml");
    std::fs::write(&file, node).unwrap();
    let output = berth(&["check", "--from", "kai", &file]);
    std::fs::remove_file(&file).unwrap();
    let page = stdout(&output);
    assert_eq!((output.status.code(), page.lines().next()), (Some(0), Some("No gang of kai-scheduler waits; no object behaves differently.")), "{page}");
    assert_eq!(berth(&["check", "--from", "slurm", "x.yaml"]).status.code(), Some(2));
}

/// Every place in an object, with what stands there taken for something else.
fn bent(object: &Value) -> Vec<Value> {
    fn places(value: &Value, at: &str, found: &mut Vec<String>) {
        found.push(at.to_owned());
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| places(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found)),
            Value::Array(list) => list.iter().enumerate().for_each(|(i, value)| places(value, &format!("{at}/{i}"), found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    places(object, "", &mut found);
    let others = [Value::Null, json!(true), json!(-1), json!(1e300), json!(""), json!("ü/="), json!([[]]), json!({"": {}})];
    let mut bent = Vec::new();
    for place in found.iter().filter(|place| !["", "/kind", "/apiVersion"].contains(&place.as_str())) {
        for other in &others {
            let mut object = object.clone();
            *object.pointer_mut(place).unwrap() = other.clone();
            bent.push(object);
        }
    }
    bent
}

#[test]
fn objects_that_are_bent_out_of_shape_are_no_reason_to_panic() {
    let mut items = read_paths(&[path("tests/data/kai/differences.yaml"), path("tests/data/kai/dump.yaml")]).unwrap();
    // A kind that makes pods, and differs in nothing.
    let steps = json!([{"name": "a", "container": {"name": "c", "image": "i"}}]);
    let workflow = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": {"entrypoint": "a", "templates": steps}});
    items.push(Item { place: items[0].place.clone(), value: workflow });
    let options = Options::standard();
    let mut tried = 0;
    for item in &items {
        for value in bent(&item.value) {
            let bent = [Item { place: item.place.clone(), value }];
            let known = leftovers::Known { services: true, endpoints: true };
            let told = kai::differences(&bent, &options).len() + settings::settings(&bent).len() + leftovers::webhooks(&bent, known).len() + leftovers::open_requests(&bent).len();
            let forecast = forecast(&bent, &options);
            let linted = check(&bent, Shown::by(&bent), &options).len();
            assert!(told + linted < 200 && forecast.waiting.len() < 100);
            tried += 1;
        }
    }
    assert!(tried > 5_000, "{tried}");
}
