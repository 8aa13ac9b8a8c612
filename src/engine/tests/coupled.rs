//! Gangs whose pods depend on each other: found whenever brute force finds a placement, never illegal.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::fixture::Lab;
use super::legal::Scene;
use crate::facts::*;
use crate::ids::{NodeIdx, ShapeIdx, TreeIdx};
use crate::outcome::{Code, GangState, Rule};
use crate::place::Solver;

/// A selector of pods with label `app`.
pub(crate) fn app(value: &str) -> Option<LabelSelector> {
    let requirement =
        LabelRequirement { key: "app".into(), operator: SelectorOperator::In, values: vec![value.into()] };
    Some(LabelSelector { requirements: vec![requirement] })
}

pub(crate) fn near(value: &str, key: &str) -> PodTerm {
    PodTerm { selector: app(value), namespaces: ["ns".to_owned()].into(), namespace_selector: None, topology_key: key.into() }
}

pub(crate) fn spread(value: &str, key: &str, max_skew: u32, min_domains: u32) -> SpreadFacts {
    SpreadFacts {
        max_skew,
        topology_key: key.into(),
        hard: true,
        selector: app(value),
        min_domains,
        honor_affinity: true,
        honor_taints: true,
    }
}

/// Rules of one kind of pod: kind, value of `app` meant, key.
#[derive(Clone, Debug)]
struct Ruled {
    app: u8,
    gpus: i64,
    rules: Vec<(u8, u8, u8)>,
}

const APPS: [&str; 3] = ["a", "b", "c"];
const KEYS: [&str; 3] = ["rack", "host", "zone"];

fn ruled() -> impl Strategy<Value = Ruled> {
    (0..3u8, 1..5i64, prop::collection::vec((0..5u8, 0..3u8, 0..3u8), 0..3))
        .prop_map(|(app, gpus, rules)| Ruled { app, gpus, rules })
}

fn pod_of(kind: &Ruled, gang: &str, sub: Option<&str>, index: u32) -> PodFacts {
    let mut pod = Lab::pod_facts(gang, sub, index, kind.gpus);
    pod.labels = BTreeMap::from([("app".to_owned(), APPS[kind.app as usize].to_owned())]);
    for (rule, meant, key) in &kind.rules {
        let (meant, key) = (APPS[*meant as usize], KEYS[*key as usize]);
        match rule {
            0 => pod.shape.pod_affinity.push(near(meant, key)),
            1 => pod.shape.pod_anti_affinity.push(near(meant, key)),
            2 => pod.shape.spread.push(spread(meant, key, 1, 1)),
            3 => pod.shape.spread.push(spread(meant, key, 1, 3)),
            _ => pod.shape.preferred_pod_affinity.push((10, near(meant, key))),
        }
    }
    pod
}

/// Nodes of small racks; a rack or zone of 0 is no label.
fn lab_of(nodes: &[(u8, u8, i64)]) -> (Lab, Scene) {
    let mut lab = Lab::new("b/r9: gone");
    lab.send(Event::NodeDelete("node-gone".into()));
    let mut scene = Scene::default();
    for (at, (rack, zone, gpus)) in nodes.iter().enumerate() {
        let mut facts = Lab::node_facts(&format!("n{at}"), &[], *gpus);
        facts.labels = [("block", "b".to_owned()), ("host", format!("n{at}"))].map(|(k, v)| (k.to_owned(), v)).into();
        for (key, value) in [("rack", rack), ("zone", zone)] {
            if *value > 0 {
                facts.labels.insert(key.to_owned(), format!("{value}"));
            }
        }
        lab.send(Event::NodeUpsert(facts.clone()));
        scene.nodes.push(facts);
    }
    (lab, scene)
}

fn run_pod(lab: &mut Lab, scene: &mut Scene, kind: &Ruled, n: usize, node: usize, terminating: bool) {
    let mut pod = pod_of(kind, &format!("run{n}"), None, 0);
    pod.shape.requests.clear();
    (pod.ours, pod.gang, pod.terminating) = (false, None, terminating);
    (pod.phase, pod.node) = (PodPhase::Running, Some(format!("n{node}")));
    lab.send(Event::PodUpsert(pod.clone()));
    scene.placed.push((pod, node));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn gangs_with_rules_between_pods_equal_brute_force(
        nodes in prop::collection::vec((0..3u8, 0..3u8, 2..9i64), 2..5),
        running in prop::collection::vec((ruled(), 0..4usize, any::<bool>()), 0..3),
        kinds in prop::collection::vec(ruled(), 1..3),
        counts in prop::collection::vec(1..3u32, 2),
        levels in (0..3usize, 0..3usize, 0..3usize),
        one_leaf in any::<bool>(),
        racks in prop_oneof![2 => Just(0u32), 1 => 1..3u32],
    ) {
        let (mut lab, mut scene) = lab_of(&nodes);
        for (n, (kind, node, terminating)) in running.iter().enumerate() {
            run_pod(&mut lab, &mut scene, kind, n, node % nodes.len(), *terminating);
        }
        // Subgroups of one kind each, or one leaf with all kinds.
        let level = |at: usize| ["", "block", "rack"][at];
        let root = if levels.0 > 0 { level(levels.0) } else { "" };
        let leaf_levels = [level(levels.1), level(levels.2)];
        let total: u32 = counts.iter().take(kinds.len()).sum();
        let mut gang = Lab::gang_facts("g", total, Lab::constraint(root, ""));
        if !one_leaf {
            gang.min_member = None;
            gang.subgroups = (0..kinds.len()).map(|at| SubgroupFacts {
                name: format!("s{at}"),
                min_member: Some(counts[at]),
                constraint: Lab::constraint(leaf_levels[at], ""),
                ..SubgroupFacts::default()
            }).collect();
        }
        if racks > 0 {
            gang.constraint.topology = Some("t".into());
            gang.limits = vec![DomainLimit { level: "rack".into(), most: racks }];
        }
        lab.send(Event::GangUpsert(gang));
        let mut pods = Vec::new();
        for (at, kind) in kinds.iter().enumerate() {
            let sub = format!("s{at}");
            for index in 0..counts[at] {
                let index = if one_leaf { pods.len() as u32 } else { index };
                pods.push((at, pod_of(kind, "g", (!one_leaf).then_some(sub.as_str()), index)));
            }
        }
        for (_, pod) in &pods {
            lab.send(Event::PodUpsert(pod.clone()));
        }
        lab.pass();

        let groups: Vec<usize> = pods.iter().map(|(at, _)| *at).collect();
        let n_running = scene.placed.len();
        let mut constraints: Vec<(Option<usize>, &str)> = vec![(None, root)];
        if !one_leaf {
            constraints.extend((0..kinds.len()).map(|at| (Some(at), leaf_levels[at])));
        }
        let used = |scene: &Scene| {
            let rack = |node: usize| scene.nodes[node].labels.get("rack").cloned().ok_or(node);
            scene.placed[n_running..].iter().map(|(_, node)| rack(*node)).collect::<BTreeSet<_>>().len() as u32
        };
        let within = |scene: &Scene| (racks == 0 || used(scene) <= racks) && constraints.iter().all(|(sub, level)| {
            if level.is_empty() {
                return true;
            }
            // A domain is the whole path; the one block is the same for all.
            let members = scene.placed[n_running..].iter().filter(|(pod, _)| {
                sub.is_none_or(|sub| pod.subgroup.as_deref() == Some(&format!("s{sub}")))
            });
            let values: BTreeSet<Option<&String>> =
                members.map(|(_, node)| scene.nodes[*node].labels.get(*level)).collect();
            values.len() <= 1 && !values.contains(&None)
        });
        let facts: Vec<PodFacts> = pods.iter().map(|(_, pod)| pod.clone()).collect();
        let anywhere: BTreeSet<usize> = (0..nodes.len()).collect();
        let possible = scene.can_place(&facts, &vec![anywhere; facts.len()], &mut |end| within(end));
        let report = lab.report("g");
        prop_assert_eq!(report.state == GangState::Placed, possible, "{:?} {:?}", report.reasons, groups);
        if possible {
            let at: Vec<BTreeSet<usize>> = facts.iter().map(|pod| {
                let idx = lab.world.pod_by_uid[&pod.uid];
                let node = lab.world.pods[idx.at()].as_ref().unwrap().node.clone().unwrap();
                BTreeSet::from([node[1..].parse().unwrap()])
            }).collect();
            prop_assert!(scene.can_place(&facts, &at, &mut |end| within(end)), "an illegal placement: {:?}", at);
        } else {
            prop_assert!(report.reasons[0].code != Code::NotFoundWithinBudget, "small enough to prove");
        }
    }
}

/// A gang of equal pods with label `app: a` and these rules.
fn gang(lab: &mut Lab, name: &str, pods: u32, required: &str, rules: impl Fn(&mut ShapeFacts)) {
    lab.send(Event::GangUpsert(Lab::gang_facts(name, pods, Lab::constraint(required, ""))));
    for index in 0..pods {
        let mut pod = Lab::pod_facts(name, None, index, 1);
        pod.labels = [("app".to_owned(), "a".to_owned()), ("index".to_owned(), index.to_string())].into();
        rules(&mut pod.shape);
        lab.send(Event::PodUpsert(pod));
    }
}

#[test]
fn labels_that_matter_to_nobody_do_not_part_shapes() {
    let mut lab = Lab::new("b/r1: a b");
    gang(&mut lab, "g", 4, "", |_| {});
    assert_eq!(lab.world.shapes.len(), 1);
    // A pod that avoids index 2 tells that one apart, and only that one.
    let mut pod = Lab::pod_facts("h", None, 0, 1);
    let index = LabelRequirement { key: "index".into(), operator: SelectorOperator::In, values: vec!["2".into()] };
    let term = PodTerm { selector: Some(LabelSelector { requirements: vec![index] }), ..near("", "rack") };
    pod.shape.pod_anti_affinity.push(term);
    lab.send(Event::PodUpsert(pod));
    let shapes: Vec<u32> = (0..4)
        .map(|n| lab.world.pods[lab.world.pod_by_uid[&format!("g-{n}")].at()].as_ref().unwrap().shape.0)
        .collect();
    assert_eq!((shapes[0], shapes[1]), (shapes[1], shapes[3]));
    assert_ne!(shapes[0], shapes[2]);
}

#[test]
fn a_namespace_that_changes_its_labels_changes_what_a_term_means() {
    let mut lab = Lab::new("b/r1: a; b/r2: c");
    let team = LabelRequirement { key: "team".into(), operator: SelectorOperator::In, values: vec!["x".into()] };
    let by_team = PodTerm {
        selector: Some(LabelSelector::default()),
        namespace_selector: Some(LabelSelector { requirements: vec![team] }),
        namespaces: BTreeSet::new(),
        topology_key: "rack".into(),
    };
    lab.busy("a", 1);
    gang(&mut lab, "g", 1, "", |shape| shape.pod_affinity.push(by_team.clone()));
    lab.pass();
    assert_eq!(lab.places("g"), "-");
    lab.send(Event::NamespaceUpsert("ns".into(), [("team".to_owned(), "x".to_owned())].into()));
    lab.pass();
    assert_eq!(lab.places("g"), "a");
    // It matches itself, so a first pod goes anywhere: nothing else tells that the busy pod counted.
    let digest = lab.world.digest();
    assert!(digest.contains("\"r1\": 2"), "{digest}");
}

#[test]
fn what_an_affinity_waits_for_may_come_later_in_the_pass() {
    let mut lab = Lab::new("b/r1: a; b/r2: c");
    // First by name, but needs a pod of z.
    gang(&mut lab, "a", 1, "", |shape| shape.pod_affinity.push(near("z", "rack")));
    lab.send(Event::GangUpsert(Lab::gang_facts("z", 1, Lab::constraint("", ""))));
    let mut pod = Lab::pod_facts("z", None, 0, 4);
    pod.labels.insert("app".into(), "z".into());
    lab.send(Event::PodUpsert(pod));
    lab.pass();
    assert_eq!((lab.places("z"), lab.places("a")), ("a".to_owned(), "a".to_owned()));
}

#[test]
fn a_rule_that_refuses_is_named_with_its_nodes() {
    let mut lab = Lab::new("b/r1: a c; b/r2: e");
    gang(&mut lab, "apart", 3, "", |shape| shape.pod_anti_affinity.push(near("a", "rack")));
    lab.pass();
    let report = lab.report("apart");
    assert_eq!(report.reasons[0].code, Code::PodRulesUnmet);
    gang(&mut lab, "wants", 1, "", |shape| shape.pod_affinity.push(near("nobody", "rack")));
    lab.pass();
    assert_eq!(lab.report("wants").reasons[0].refusals, [(Rule::PodAffinity("rack".into()), 3)]);
}

#[test]
fn a_gang_apart_by_host_stays_in_the_exact_class() {
    let mut lab = Lab::new("b/r1: a c; b/r2: e f g");
    for (name, rack) in [("a", "r1"), ("c", "r1"), ("e", "r2"), ("f", "r2"), ("g", "r2")] {
        let mut facts = Lab::node_facts(name, &["b", rack], 8);
        facts.labels.insert("kubernetes.io/hostname".into(), name.into());
        lab.send(Event::NodeUpsert(facts));
    }
    gang(&mut lab, "g", 3, "rack", |shape| shape.pod_anti_affinity.push(near("a", "kubernetes.io/hostname")));
    lab.pass();
    assert_eq!(lab.places("g"), "e f g");
    assert_eq!(lab.report("g").quality.unwrap().status, crate::outcome::QualityStatus::Optimal);
}

#[test]
fn an_impossible_spread_over_many_equal_zones_is_proven() {
    // Twelve equal zones with room for 30 pods in each of eleven; the last one is full.
    let racks: Vec<String> = (0..12).map(|rack| format!("b/r{rack:02}: a{rack}=30 c{rack}=1")).collect();
    let mut lab = Lab::new(&racks.join(";"));
    lab.busy("a11", 30);
    lab.busy("c11", 1);
    gang(&mut lab, "g", 13, "", |shape| shape.spread.push(spread("a", "rack", 1, 1)));
    lab.pass();
    assert_eq!(lab.report("g").reasons[0].code, Code::PodRulesUnmet);
    gang(&mut lab, "h", 11, "", |shape| shape.spread.push(spread("a", "rack", 1, 1)));
    lab.pass();
    assert_eq!(lab.report("h").state, GangState::Placed);
}

/// Soft costs of every shape on every node, from a copy of the ledger.
fn soft_costs(lab: &Lab, afresh: bool) -> Vec<Vec<u32>> {
    let mut rooms = lab.world.rooms.clone();
    if afresh {
        rooms.reset();
    }
    let mut solver = Solver::new(&lab.world, &mut rooms, &lab.policy);
    let shapes = (0..lab.world.shapes.len()).map(|at| ShapeIdx(at as u32));
    shapes
        .map(|idx| {
            solver.rooms.freeze(idx, &lab.world.shapes[idx.at()], false);
            solver.ready(idx, TreeIdx(0));
            (0..lab.world.nodes.len()).map(|at| solver.rooms.soft_cost(idx, NodeIdx(at as u32))).collect()
        })
        .collect()
}

#[test]
fn soft_costs_that_follow_changes_equal_those_made_afresh() {
    let racks: Vec<String> = (0..6).map(|rack| format!("b/r{rack}: n{rack} m{rack}")).collect();
    let mut lab = Lab::new(&racks.join(";"));
    for n in 0..16 {
        gang(&mut lab, &format!("g{n:02}"), 1 + n % 3, "", |shape| {
            shape.spread.push(SpreadFacts { hard: false, ..spread("a", "rack", 1, 1) });
            shape.preferred_pod_affinity.push((if n % 2 == 0 { 5 } else { -5 }, near("a", "rack")));
        });
        lab.pass();
        assert_eq!(soft_costs(&lab, false), soft_costs(&lab, true), "after gang {n}");
        if n % 4 == 3 {
            lab.send(Event::PodDelete(format!("g{:02}-0", n - 2)));
            assert_eq!(soft_costs(&lab, false), soft_costs(&lab, true), "after a pod of gang {} went", n - 2);
        }
    }
    assert!(soft_costs(&lab, false).iter().flatten().any(|cost| *cost > 0));
}

#[test]
fn preferred_affinity_and_soft_spread_decide_between_equals() {
    let mut lab = Lab::new("b/r1: a; b/r2: c; b/r3: e");
    let mut service = Lab::pod_facts("s", None, 0, 1);
    (service.ours, service.gang, service.node) = (false, None, Some("c".into()));
    service.labels.insert("app".into(), "service".into());
    lab.send(Event::PodUpsert(service));
    // Equally full, so that only the soft rule tells the racks apart.
    lab.busy("a", 1);
    lab.busy("e", 1);
    gang(&mut lab, "near", 1, "", |shape| shape.preferred_pod_affinity.push((5, near("service", "rack"))));
    lab.pass();
    assert_eq!(lab.places("near"), "c");
    lab.busy("a", 2);
    lab.busy("e", 2);
    gang(&mut lab, "far", 1, "", |shape| {
        shape.preferred_pod_affinity.push((-5, near("service", "rack")));
        shape.spread.push(SpreadFacts { hard: false, ..spread("a", "rack", 1, 1) });
    });
    lab.pass();
    assert_eq!(lab.places("far"), "a");
    lab.busy("a", 1);
    lab.busy("c", 1);
    lab.busy("e", 3);
    gang(&mut lab, "even", 1, "", |shape| {
        shape.spread.push(SpreadFacts { hard: false, ..spread("a", "rack", 1, 1) });
    });
    lab.pass();
    assert_eq!(lab.places("even"), "e");
}
