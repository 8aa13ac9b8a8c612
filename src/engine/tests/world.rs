//! Properties of the world: incremental equals rebuilt, quiescence, atomicity, determinism.

use proptest::prelude::*;

use super::fixture::Lab;
use crate::facts::*;
use crate::outcome::GangState;
use crate::world::World;

#[derive(Clone, Debug)]
enum Op {
    Gang { id: u8, pods: u8, gpus: u8, level: u8 },
    Finish(u8),
    Delete(u8),
    Busy { node: u8, gpus: u8 },
    Cordon(u8, bool),
    DropNode(u8),
    Limit(u8),
    Relabel(u8, u8),
    Gpus(u8, u8),
    Pass,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..12u8, 1..6u8, 0..9u8, 0..5u8).prop_map(|(id, pods, gpus, level)| Op::Gang { id, pods, gpus, level }),
        2 => (0..60u8).prop_map(Op::Finish),
        2 => (0..60u8).prop_map(Op::Delete),
        1 => (0..6u8, 1..9u8).prop_map(|(node, gpus)| Op::Busy { node, gpus }),
        1 => (0..6u8, any::<bool>()).prop_map(|(node, on)| Op::Cordon(node, on)),
        1 => (0..6u8).prop_map(Op::DropNode),
        1 => (0..40u8).prop_map(Op::Limit),
        1 => (0..6u8, 0..6u8).prop_map(|(node, like)| Op::Relabel(node, like)),
        1 => (0..6u8, 0..9u8).prop_map(|(node, gpus)| Op::Gpus(node, gpus)),
        3 => Just(Op::Pass),
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
                [("", ""), ("rack", ""), ("block", "rack"), ("", "rack"), ("block", "")][*level as usize];
            lab.gang(&format!("g{id}"), u32::from(*pods), i64::from(*gpus), required, preferred);
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
        Op::Pass => {
            lab.pass();
        }
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
