//! `berth topology`: from labels and fabrics to objects that the other commands read.

use super::{berth, path, stderr, stdout};

const DUMP: &str = "ibnetdiscover=tests/data/fabric/ibnetdiscover-8-racks.txt";

fn file(name: &str, text: &str) -> String {
    let file = path("target").join(format!("topology-{name}-{}.yaml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

fn nodes(label: impl Fn(usize) -> String) -> String {
    let node = |at| {
        format!("apiVersion: v1\nkind: Node\nmetadata: {{name: n{at}, labels: {{{}}}}}\nstatus: {{allocatable: {{nvidia.com/gpu: \"8\", pods: \"9\"}}}}\n---\n", label(at))
    };
    (0..6).map(node).collect()
}

/// What is proposed is an input of `simulate`, and keeps a gang in one rack.
#[test]
fn a_proposal_is_a_topology_that_places_gangs() {
    let nodes = file("nodes", &nodes(|at| format!("rack: r{}, topology.kubernetes.io/zone: z", at % 2)));
    let proposed = berth(&["topology", "propose", &nodes, "--name", "net"]);
    assert_eq!(proposed.status.code(), Some(0), "{}", stderr(&proposed));
    let text = stdout(&proposed);
    assert!(text.starts_with("# 2 levels from the labels of a site's own words: 6 of 6 nodes are in it."), "{text}");
    assert!(text.contains("topology.kubernetes.io/zone: the same on all 6 nodes"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let topology = file("proposed", &text);
    let job = file(
        "job",
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: j\n  annotations: {kai.scheduler/topology: net, kai.scheduler/topology-required-placement: rack, kai.scheduler/batch-min-member: '3'}\nspec:\n  parallelism: 3\n  completions: 3\n  template: {spec: {schedulerName: kai-scheduler, containers: [{name: c, resources: {limits: {nvidia.com/gpu: 8}}}]}}\n",
    );
    let placed = berth(&["simulate", "--strict", &nodes, &topology, &job]);
    assert_eq!(placed.status.code(), Some(0), "{}{}", stdout(&placed), stderr(&placed));
    let none = file("bare", &self::nodes(|_| "a: b".into()));
    let none = berth(&["topology", "propose", &none]);
    assert_eq!(none.status.code(), Some(1));
    assert!(stdout(&none).contains("No topology"));
}

#[test]
fn a_dump_becomes_labels_topologies_and_slurm_files() {
    let report = stdout(&berth(&["topology", "discover", "--from", DUMP]));
    assert!(report.starts_with("119 hosts, 2 tiers, 0 accelerator domains, 85 findings."), "{report}");
    for (to, wanted) in [
        ("labels", "fabric.topograph.run/tier-0: A09-P1-IBLEAF-01-03"),
        ("topology", "apiVersion: kai.scheduler/v1alpha1"),
        ("kueue", "apiVersion: kueue.x-k8s.io/v1beta2"),
        ("slurm-tree", "SwitchName=A09-P1-IBLEAF-01-03 Nodes=a07-p1-dgx-03-c[01-18]"),
        ("slurm-yaml", "cluster_default: true"),
        ("slinky", "topograph.run/engine: slinky"),
        ("graph", "network_layers"),
        ("html", "A09-P1-IBLEAF-01-03"),
        ("findings", "UnnamedAdapter"),
    ] {
        let output = berth(&["topology", "discover", "--from", DUMP, "--to", to]);
        assert_eq!(output.status.code(), Some(0), "{to}: {}", stderr(&output));
        assert!(stdout(&output).contains(wanted), "{to}");
    }
    let graph = file("graph", &stdout(&berth(&["topology", "discover", "--from", DUMP, "--to", "graph"])));
    let again = stdout(&berth(&["topology", "discover", "--from", &format!("topograph={graph}"), "--to", "slurm-tree"]));
    assert_eq!(again, stdout(&berth(&["topology", "discover", "--from", DUMP, "--to", "slurm-tree"])), "what is written is read");
    let older = stdout(&berth(&["topology", "discover", "--from", DUMP, "--to", "labels", "--keys", "leaf"]));
    assert!(older.contains("network.topology.nvidia.com/spine"));
}

/// Labels are compared with a fabric, and with what was last discovered, as `topology run` keeps it.
#[test]
fn drift_is_named_and_is_an_exit_code() {
    let tree = format!("slurm={}", file("drift-tree", "SwitchName=s Switches=r[1-2]\nSwitchName=r1 Nodes=n[0-2]\nSwitchName=r2 Nodes=n[3-4]\n"));
    let tier = |at: usize| if at < 3 { "r1" } else { "r2" };
    let good = |at: usize| format!("fabric.topograph.run/tier-0: {}, fabric.topograph.run/tier-1: s", tier(at));
    let five: String = nodes(good).split_inclusive("---\n").take(5).collect();
    let (five, six) = (file("five", &five), file("six", &nodes(|at| if at == 1 { "fabric.topograph.run/tier-0: r2, mine: x".to_owned() } else { good(at) })));
    let agree = berth(&["topology", "discover", "--from", &tree, "--nodes", &five, "--to", "drift"]);
    assert_eq!((agree.status.code(), stdout(&agree).as_str()), (Some(0), "The labels of 5 of 5 nodes are those of the fabric; none differs.\n"));
    let differ = berth(&["topology", "discover", "--from", &tree, "--nodes", &six, "--to", "drift"]);
    let text = stdout(&differ);
    assert_eq!(differ.status.code(), Some(1), "{text}");
    for wanted in ["The labels of 1 of 6 nodes differ from the fabric; those of 4 agree.", "    fabric.topograph.run/tier-0 is r2, the fabric says r1\n", "  n5 (has accelerators) was not found in the fabric; bears 2 labels all the same\n"] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
    assert!(stdout(&berth(&["topology", "discover", "--from", &tree, "--nodes", &six, "--to", "drift-json"])).contains("\"kind\": \"TopologyDrift\""));

    let discovery = r#"{"keys":"current","depth":2,"places":[{"tiers":["r1","s"],"nodes":"n[0-2]"},{"tiers":["r2","s"],"nodes":"n[3-4]"}]}"#;
    let map = |data: &str| file(&format!("map{}", data.len()), &format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: berth-topology}}\ndata: {{{data}}}\n"));
    let kept = map(&format!("discovery.json: '{discovery}'"));
    assert_eq!(berth(&["topology", "drift", &five, &kept]).status.code(), Some(0));
    let differ = berth(&["topology", "drift", &six, &kept]);
    assert_eq!(differ.status.code(), Some(1));
    assert!(stdout(&differ).starts_with("The labels of 1 of 6 nodes differ from the last discovery"), "{}", stdout(&differ));
    for (paths, wanted) in [
        (vec![&six], "`berth topology run --status-namespace` writes it"),
        (vec![&six, &map("status: x")], "data has no discovery.json"),
        (vec![&six, &map("discovery.json: '{}'")], "keys: allowed are current, leaf and block"),
    ] {
        let paths: Vec<&str> = ["topology", "drift"].into_iter().chain(paths.into_iter().map(String::as_str)).collect();
        let refused = berth(&paths);
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains(wanted), "{}", stderr(&refused));
    }
    let refused = berth(&["topology", "discover", "--from", &tree, "--to", "drift"]);
    assert!(stderr(&refused).contains("--nodes is missing"), "{}", stderr(&refused));
}

/// What is slow is said in every form, and where hosts are must come from elsewhere.
#[test]
fn measured_links_join_a_fabric() {
    let tree = file("tree", "SwitchName=s Switches=r[1-3]\nSwitchName=r1 Nodes=a[1-2]\nSwitchName=r2 Nodes=b[1-2]\nSwitchName=r3 Nodes=c[1-2]\n");
    let links = file("links", "from to gbps\na1 a2 97.5\nb1 b2 100\nc1 c2 40\n");
    let (tree, links) = (format!("slurm={tree}"), format!("links={links}"));
    let report = stdout(&berth(&["topology", "discover", "--from", &tree, "--from", &links]));
    assert!(report.contains("  r3         0    40 %           -             1\n"), "{report}");
    assert!(report.contains("SlowDomain: 1\n    r3 is at 40 % of its peers of tier 0, by 1 measurements: links inside it"), "{report}");
    assert!(report.lines().all(|line| line.chars().count() <= 100), "{report}");
    let labels = stdout(&berth(&["topology", "discover", "--from", &links, "--from", &tree, "--to", "labels"]));
    assert_eq!(labels.matches("berth.scheduler/link-health: '40'").count() + labels.matches("berth.scheduler/link-health: \"40\"").count(), 2, "{labels}");
    let graph = stdout(&berth(&["topology", "discover", "--from", &tree, "--from", &links, "--to", "graph"]));
    assert!(graph.contains("\"insidePercent\": 40") && graph.contains("\"health\": 40"), "{graph}");
    let quiet = stdout(&berth(&["topology", "discover", "--from", &tree, "--from", &links, "--slow-below", "30"]));
    assert!(!quiet.contains("SlowDomain"), "{quiet}");
    let alone = berth(&["topology", "discover", "--from", &links]);
    assert_eq!(alone.status.code(), Some(2));
    assert!(stderr(&alone).contains("measurements say nothing of where hosts are"), "{}", stderr(&alone));
}

#[test]
fn wrong_input_is_named() {
    for (arguments, wanted) in [
        (vec!["topology", "discover", "--from", "ufm=x"], "allowed are ibnetdiscover, netq"),
        (vec!["topology", "discover", "--from", "netq=nowhere.json"], "nowhere.json"),
        (vec!["topology", "discover", "--from", "slurm=README.md"], "line 3"),
        (vec!["topology", "discover", "--from", DUMP, "--to", "slurm-block"], "no host has an accelerator domain"),
        (vec!["topology", "propose", "examples/two-regions/job.yaml"], "no Node in the input"),
    ] {
        let output = berth(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(wanted), "{arguments:?}: {}", stderr(&output));
    }
}
