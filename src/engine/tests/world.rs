//! Properties of the world: incremental equals rebuilt, quiescence, atomicity, determinism.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::coupled::{near, spread};
use super::fixture::Lab;
use crate::facts::*;
use crate::outcome::{Cause, GangState};
use crate::world::World;
use crate::world::model::PlaceState;

#[derive(Clone, Debug)]
enum Op {
    Gang { id: u8, pods: u8, gpus: u8, level: u8 },
    Finish(u8),
    Delete(u8),
    Busy { node: u8, gpus: u8 },
    Cordon(u8, bool),
    DropNode(u8),
    /// A gang whose pods have a label and a rule about others.
    Ruled { id: u8, pods: u8, app: u8, meant: u8, rule: u8 },
    Terminate(u8),
    Namespace(u8),
    Limit(u8),
    Relabel(u8, u8),
    Gpus(u8, u8),
    Pass,
    /// Every Binding under way succeeds.
    Confirm,
    /// Time passes: a third of a grace period each.
    Wait(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..12u8, 1..6u8, 0..9u8, 0..8u8).prop_map(|(id, pods, gpus, level)| Op::Gang { id, pods, gpus, level }),
        2 => (0..60u8).prop_map(Op::Finish),
        2 => (0..60u8).prop_map(Op::Delete),
        1 => (0..6u8, 1..9u8).prop_map(|(node, gpus)| Op::Busy { node, gpus }),
        1 => (0..6u8, any::<bool>()).prop_map(|(node, on)| Op::Cordon(node, on)),
        1 => (0..6u8).prop_map(Op::DropNode),
        4 => (0..12u8, 1..4u8, 0..3u8, 0..3u8, 0..6u8)
            .prop_map(|(id, pods, app, meant, rule)| Op::Ruled { id, pods, app, meant, rule }),
        1 => (0..60u8).prop_map(Op::Terminate),
        1 => (0..3u8).prop_map(Op::Namespace),
        1 => (0..40u8).prop_map(Op::Limit),
        1 => (0..6u8, 0..6u8).prop_map(|(node, like)| Op::Relabel(node, like)),
        1 => (0..6u8, 0..9u8).prop_map(|(node, gpus)| Op::Gpus(node, gpus)),
        3 => Just(Op::Pass),
        2 => Just(Op::Confirm),
        1 => (1..5u8).prop_map(Op::Wait),
    ]
}

const NODES: [(&str, [&str; 2]); 6] = [
    ("a", ["b1", "r1"]),
    ("b", ["b1", "r1"]),
    ("c", ["b1", "r2"]),
    ("d", ["b2", "r1"]),
    ("e", ["b2", "r1"]),
    ("f", ["b2", "-"]),
];

fn start() -> Lab {
    Lab::new("b1/r1: a b; b1/r2: c; b2/r1: d e; b2/-: f")
}

fn run(lab: &mut Lab, op: &Op) {
    match op {
        Op::Gang { id, pods, gpus, level } => {
            let (required, preferred) =
                [("", ""), ("rack", ""), ("block", "rack"), ("", "rack"), ("block", "")][*level as usize % 5];
            let name = format!("g{id}");
            lab.gang(&name, u32::from(*pods), i64::from(*gpus), required, preferred);
            if *level >= 5 {
                let facts = Lab::gang_facts(&name, u32::from(*pods), Lab::constraint(required, preferred));
                let limits = vec![DomainLimit { level: "rack".into(), most: u32::from(*level - 4) }];
                lab.send(Event::GangUpsert(GangFacts { limits, ..facts }));
            }
        }
        Op::Finish(n) => {
            let uid = format!("g{}-{}", n / 5, n % 5);
            let pod = lab.world.pod_by_uid.get(&uid).copied();
            if let Some(pod) = pod.and_then(|pod| lab.world.pods[pod.at()].clone()) {
                let facts = PodFacts { phase: PodPhase::Succeeded, node: pod.node.clone(), ..pod.facts };
                lab.send(Event::PodUpsert(facts));
            }
        }
        Op::Delete(n) => lab.send(Event::PodDelete(format!("g{}-{}", n / 5, n % 5))),
        Op::Busy { node, gpus } => lab.busy(NODES[*node as usize].0, i64::from(*gpus)),
        Op::Cordon(node, on) => {
            let (name, values) = NODES[*node as usize];
            let facts = NodeFacts { unschedulable: *on, ..Lab::node_facts(name, &values, 8) };
            lab.send(Event::NodeUpsert(facts));
        }
        Op::Limit(gpus) => {
            let amount = QueueAmount { limit_millis: Some(i64::from(*gpus) * 1000), ..QueueAmount::UNLIMITED };
            lab.send(Event::QueueUpsert(QueueFacts {
                uid: "queue".into(),
                name: "default-queue".into(),
                parent: None,
                priority: 100,
                created: 0,
                gpu: amount,
                cpu: QueueAmount::UNLIMITED,
                memory: QueueAmount::UNLIMITED,
                ..QueueFacts::default()
            }));
        }
        Op::Relabel(node, like) => {
            let facts = Lab::node_facts(NODES[*node as usize].0, &NODES[*like as usize].1, 8);
            lab.send(Event::NodeUpsert(facts));
        }
        Op::Gpus(node, gpus) => {
            let (name, values) = NODES[*node as usize];
            lab.send(Event::NodeUpsert(Lab::node_facts(name, &values, i64::from(*gpus))));
        }
        Op::DropNode(node) => lab.send(Event::NodeDelete(format!("node-{}", NODES[*node as usize].0))),
        Op::Ruled { id, pods, app, meant, rule } => ruled_gang(lab, *id, *pods, *app, (*meant, *rule)),
        Op::Terminate(n) => {
            let pod = lab.world.pod_by_uid.get(&format!("g{}-{}", n / 5, n % 5)).copied();
            if let Some(pod) = pod.and_then(|pod| lab.world.pods[pod.at()].clone()) {
                let facts = PodFacts { terminating: true, node: pod.node.clone(), ..pod.facts };
                lab.send(Event::PodUpsert(facts));
            }
        }
        Op::Namespace(team) => {
            let labels = [("team".to_owned(), APPS[*team as usize].to_owned())].into();
            lab.send(Event::NamespaceUpsert("ns".into(), labels));
        }
        Op::Pass => pass(lab),
        Op::Confirm => {
            let pods = lab.world.pods.iter().flatten().filter(|pod| pod.place == PlaceState::Assumed);
            let uids: Vec<String> = pods.map(|pod| pod.facts.uid.clone()).collect();
            uids.into_iter().for_each(|uid| lab.send(Event::BindEnded(uid, BindResult::Bound)));
        }
        Op::Wait(times) => lab.now += i64::from(*times) * 20_000,
    }
}

/// A pass. Nobody starts in part, and who is evicted is gone.
fn pass(lab: &mut Lab) {
    let before: BTreeMap<String, u32> = lab.world.gang_reports().into_iter().map(|report| (report.uid, report.bound)).collect();
    let outcome = lab.pass();
    for report in lab.world.gang_reports().iter().filter(|report| before.get(&report.uid) == Some(&0)) {
        assert!(report.state != GangState::Partial, "{report:?}");
    }
    for eviction in outcome.evictions {
        let report = lab.world.gang_report(&eviction.gang_uid).unwrap();
        if matches!(eviction.cause, Cause::Stale(_)) {
            assert_eq!((report.state, report.stale.is_some()), (GangState::Partial, true), "{report:?}");
        }
        eviction.pods.into_iter().for_each(|victim| lab.send(Event::PodDelete(victim.pod_uid)));
    }
}

const APPS: [&str; 3] = ["a", "b", "c"];

fn ruled_gang(lab: &mut Lab, id: u8, pods: u8, app: u8, (meant, rule): (u8, u8)) {
    let name = format!("g{id}");
    lab.send(Event::GangUpsert(Lab::gang_facts(&name, u32::from(pods), Lab::constraint("", ""))));
    let meant = APPS[meant as usize];
    for index in 0..u32::from(pods) {
        let mut pod = Lab::pod_facts(&name, None, index, 1);
        pod.labels = [("app", APPS[app as usize].to_owned()), ("index", index.to_string())]
            .map(|(key, value)| (key.to_owned(), value))
            .into();
        let mut by_team = near(meant, "rack");
        let team = LabelRequirement { key: "team".into(), operator: SelectorOperator::In, values: vec![meant.into()] };
        by_team.namespaces.clear();
        by_team.namespace_selector = Some(LabelSelector { requirements: vec![team] });
        match rule {
            0 => pod.shape.pod_affinity.push(near(meant, "rack")),
            1 => pod.shape.pod_anti_affinity.push(near(meant, "block")),
            2 => pod.shape.spread.push(spread(meant, "block", 1, 1)),
            3 => pod.shape.spread.push(SpreadFacts { hard: false, ..spread(meant, "rack", 1, 1) }),
            4 => pod.shape.pod_anti_affinity.push(by_team),
            _ => pod.shape.preferred_pod_affinity.push((5, near(meant, "rack"))),
        }
        lab.send(Event::PodUpsert(pod));
    }
}

fn check_atomic(lab: &Lab) {
    for report in lab.world.gang_reports() {
        // No deletions in this check's callers: a gang is whole or has nothing.
        assert!(report.state != GangState::Partial, "{report:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn incremental_equals_rebuilt(ops in prop::collection::vec(op(), 1..40)) {
        let mut lab = start();
        for op in &ops {
            run(&mut lab, op);
        }
        let mut rebuilt = World::new();
        for event in lab.world.export() {
            rebuilt.apply(event, 0).unwrap();
        }
        prop_assert_eq!(lab.world.digest(), rebuilt.digest());
    }

    #[test]
    fn caches_equal_fresh_ones(ops in prop::collection::vec(op(), 1..40)) {
        // The same events with caches dropped before every pass decide the same.
        let (mut warm, mut cold) = (start(), start());
        for op in &ops {
            run(&mut warm, op);
            cold.world.rooms.reset();
            run(&mut cold, op);
            prop_assert_eq!(warm.world.digest(), cold.world.digest());
        }
        prop_assert_eq!(warm.world.gang_reports(), cold.world.gang_reports());
    }

    #[test]
    fn a_second_pass_changes_nothing(ops in prop::collection::vec(op(), 1..40)) {
        let mut lab = start();
        for op in &ops {
            run(&mut lab, op);
        }
        lab.pass();
        let before = (lab.world.digest(), lab.world.gang_reports());
        lab.world.changes.all = true;
        lab.world.dirty = true;
        let again = lab.pass();
        prop_assert!(again.decisions.is_empty());
        prop_assert_eq!(before, (lab.world.digest(), lab.world.gang_reports()));
    }

    #[test]
    fn waking_only_whom_a_change_may_help_decides_the_same(ops in prop::collection::vec(op(), 1..60)) {
        // One tries every pending gang in every pass, the other only those that were woken.
        let (mut eager, mut lazy) = (start(), start());
        lazy.policy.verdict_age_millis = Millis::MAX;
        for op in ops.iter().chain([&Op::Pass]) {
            if matches!(op, Op::Pass) {
                eager.world.changes.all = true;
            }
            run(&mut eager, op);
            run(&mut lazy, op);
            prop_assert_eq!(eager.world.digest(), lazy.world.digest());
        }
    }

    #[test]
    fn gangs_are_whole_and_nodes_never_overfull(
        gangs in prop::collection::vec((1..9u32, 0..9i64, 0..5usize), 1..12),
    ) {
        let mut lab = start();
        for (n, (pods, gpus, level)) in gangs.iter().enumerate() {
            let (required, preferred) =
                [("", ""), ("rack", ""), ("block", "rack"), ("", "rack"), ("block", "")][*level];
            lab.gang(&format!("g{n}"), *pods, *gpus, required, preferred);
        }
        lab.pass();
        check_atomic(&lab);
        for node in lab.world.nodes.iter().flatten() {
            for (used, allocatable) in node.used.iter().zip(&node.allocatable) {
                prop_assert!(used <= allocatable, "{}", node.facts.name);
            }
        }
    }

    #[test]
    fn ledger_gives_back_every_byte(gangs in prop::collection::vec((1..9u32, 1..9i64, 1..3usize), 1..6)) {
        let mut lab = start();
        lab.pass();
        for (n, (pods, gpus, level)) in gangs.iter().enumerate() {
            let required = ["", "rack", "block"][*level];
            // Never fits: two subgroups that each want more than a rack.
            lab.groups(&format!("g{n}"), ("", ""), &[("x", *pods, *gpus, required, ""), ("y", 99, 8, "rack", "")]);
        }
        let rooms = |lab: &Lab| -> Vec<_> {
            (0..lab.world.nodes.len() as u32).map(|n| lab.world.rooms.room(crate::ids::NodeIdx(n)).cloned()).collect()
        };
        let expected: Vec<_> = lab.world.nodes.iter().map(|n| n.as_ref().map(|n| lab.world.room_of(n).free)).collect();
        lab.pass();
        let found: Vec<_> = rooms(&lab).into_iter().map(|r| r.map(|r| r.free)).collect();
        for (a, b) in expected.iter().zip(&found) {
            let (Some(a), Some(b)) = (a, b) else { continue };
            for column in 0..a.len().max(b.len()) {
                prop_assert_eq!(a.get(column).unwrap_or(&0), b.get(column).unwrap_or(&0));
            }
        }
    }
}

/// Every field of a shape, changed one at a time.
fn changed(field: usize, by: u8) -> ShapeFacts {
    let mut shape = ShapeFacts::default();
    let text = by.to_string();
    let term = NodeTerm {
        requirements: vec![Requirement {
            key: text.clone(),
            operator: SelectorOperator::Exists,
            values: Vec::new(),
            on_name: false,
        }],
    };
    let hard = spread(&text, "rack", 1, 1);
    match field {
        0 => drop(shape.requests.insert("x".into(), i64::from(by))),
        1 => drop(shape.node_selector.insert("x".into(), text)),
        2 => shape.required_affinity = Some(vec![term]),
        3 => shape.preferred_affinity.push((i32::from(by), NodeTerm::default())),
        4 => shape.tolerations.push(Toleration {
            key: text,
            operator: TolerationOperator::Exists,
            value: String::new(),
            effect: None,
        }),
        5 => shape.host_ports.push(HostPort { ip: String::new(), protocol: "TCP".into(), port: i32::from(by) + 1 }),
        6 => shape.host_ports.push(HostPort { ip: String::new(), protocol: "TCP".into(), port: i32::from(by) + 257 }),
        7 => shape.pod_affinity.push(near(&text, "rack")),
        8 => shape.pod_affinity.push(near("a", &text)),
        9 => shape.pod_anti_affinity.push(near(&text, "rack")),
        10 => shape.preferred_pod_affinity.push((i32::from(by), near("a", "rack"))),
        11 => shape.spread.push(hard),
        12 => shape.spread.push(SpreadFacts { hard: false, ..hard }),
        13 => shape.spread.push(spread("a", "rack", u32::from(by) + 1, 7)),
        14 => shape.spread.push(spread("a", "rack", 9, u32::from(by) + 1)),
        15 => shape.spread.push(SpreadFacts { honor_taints: by.is_multiple_of(2), honor_affinity: by < 2, ..spread("a", "x", 3, 3) }),
        _ => drop(shape.unsupported.insert(text)),
    }
    shape
}

proptest! {
    /// Pods that differ in any rule's input never share a shape, whatever else is in the world.
    #[test]
    fn shapes_never_collide(fields in prop::collection::vec((0..17usize, 0..4u8, any::<bool>()), 2..30)) {
        let mut lab = start();
        let mut seen: Vec<(ShapeFacts, String, u32)> = Vec::new();
        for (n, (field, by, other)) in fields.iter().enumerate() {
            let mut pod = Lab::pod_facts(&format!("p{n}"), None, 0, 0);
            pod.shape = changed(*field, *by);
            // Spread constraints speak of the pod's own namespace.
            pod.namespace = if *other { "other" } else { "ns" }.into();
            lab.send(Event::PodUpsert(pod));
        }
        for pod in lab.world.pods.iter().flatten() {
            let home = if pod.facts.shape.spread.is_empty() { String::new() } else { pod.facts.namespace.clone() };
            seen.push((pod.facts.shape.clone(), home, pod.shape.0));
        }
        for (at, a) in seen.iter().enumerate() {
            for b in &seen[at + 1..] {
                prop_assert_eq!((&a.0, &a.1) == (&b.0, &b.1), a.2 == b.2, "{:?} {:?}", a, b);
            }
        }
    }
}

#[test]
fn a_live_place_ends_with_its_pod() {
    let mut lab = Lab::new("r1: n=2");
    lab.gang("g", 2, 1, "", "");
    let mut pod = Lab::pod_facts("g", None, 0, 1);
    assert_eq!(lab.world.live_place(&pod.uid), None, "it waits");
    pod.node = Some("n".to_owned());
    lab.send(Event::PodUpsert(pod.clone()));
    assert_eq!(lab.world.live_place(&pod.uid), Some(("gang-g".to_owned(), "n".to_owned())));
    pod.phase = PodPhase::Succeeded;
    lab.send(Event::PodUpsert(pod.clone()));
    assert_eq!(lab.world.live_place(&pod.uid), None, "it is over");
    lab.send(Event::PodDelete(pod.uid.clone()));
    assert_eq!(lab.world.live_place(&pod.uid), None);
}
