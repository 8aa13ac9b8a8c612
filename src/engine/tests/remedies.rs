//! What would help: named only after it was tried, and true when it is applied.

use proptest::prelude::*;

use super::fixture::Lab;
use crate::facts::*;
use crate::outcome::{FixKind, GangState};
use crate::policy::Policy;
use crate::remedy::{DEFAULT_TRIALS, Remedies, domain_rooms, is_better, remedies};
use crate::schedule::schedule;
use crate::world::World;

impl Lab {
    fn remedies(&self, gang: &str) -> Remedies {
        remedies(&self.world, &self.policy, self.now, &format!("gang-{gang}"), DEFAULT_TRIALS)
    }

    /// `kind count target,…` of every remedy.
    fn helps(&self, gang: &str) -> Vec<String> {
        let found = self.remedies(gang).found;
        let words = found.iter().map(|remedy| {
            let fixes = remedy.fixes.iter().map(|fix| format!("{} {} {}", fix.kind.name(), fix.count, fix.target.join(",")));
            fixes.collect::<Vec<_>>().join(" + ")
        });
        words.collect()
    }
}

/// The events applied to a world that is built anew, and a whole pass there.
fn apply_anew(world: &World, policy: &Policy, changes: &[Event]) -> World {
    let mut anew = World::new();
    for event in world.export().into_iter().chain(changes.iter().cloned()) {
        anew.apply(event, 0).unwrap();
    }
    schedule(&mut anew, policy, 0);
    anew
}

#[test]
fn a_full_rack_is_helped_by_ending_its_work_a_wider_level_fewer_pods_or_more_nodes() {
    let mut lab = Lab::new("b1/r1: a b c; b1/r2: d e; b2/r3: f");
    lab.gang("old", 1, 8, "", "");
    lab.pass();
    for node in ["d", "e", "f"] {
        lab.busy(node, 8);
    }
    lab.gang("g", 4, 8, "rack", "");
    lab.pass();
    let world = lab.world.digest();
    let helps = lab.helps("g");
    assert_eq!(lab.world.digest(), world, "a search changes nothing");
    // Three nodes at the most in any rack: ending work there is not enough.
    assert!(!helps.iter().any(|text| text.starts_with("EndWork")), "{helps:?}");
    assert!(helps.iter().any(|text| text.starts_with("AddNodes")), "{helps:?}");
    assert!(helps.iter().any(|text| text.starts_with("LowerMinimum")), "{helps:?}");
}

#[test]
fn the_work_that_stands_in_the_way_is_named_with_the_fewest_pods() {
    let mut lab = Lab::new("r1: a b; r2: c");
    lab.busy("c", 8);
    lab.gang("big", 1, 8, "", "");
    lab.pass();
    lab.gang("g", 2, 8, "rack", "");
    lab.pass();
    let helps = lab.helps("g");
    assert!(helps.iter().any(|text| text.starts_with("EndWork 1 ")), "{helps:?}");
}

#[test]
fn a_cordon_is_lifted_on_as_few_nodes_as_needed() {
    let mut lab = Lab::new("r1: a b c d");
    for name in ["b", "c", "d"] {
        let facts = NodeFacts { unschedulable: true, ..Lab::node_facts(name, &["r1"], 8) };
        lab.send(Event::NodeUpsert(facts));
    }
    lab.gang("g", 2, 8, "rack", "");
    lab.pass();
    assert!(lab.helps("g").contains(&"Uncordon 1 b".to_owned()), "{:?}", lab.helps("g"));
}

#[test]
fn nodes_without_a_label_and_nodes_with_a_taint_are_named() {
    let mut lab = Lab::new("r1: a; -: b");
    lab.gang("g", 2, 8, "rack", "");
    lab.pass();
    assert!(lab.helps("g").contains(&"LabelNodes 1 b".to_owned()), "{:?}", lab.helps("g"));
    let mut lab = Lab::new("r1: a b");
    let taint = Taint { key: "held".into(), value: String::new(), effect: TaintEffect::NoSchedule };
    lab.send(Event::NodeUpsert(NodeFacts { taints: vec![taint], ..Lab::node_facts("b", &["r1"], 8) }));
    lab.gang("g", 2, 8, "rack", "");
    lab.pass();
    assert!(lab.helps("g").contains(&"RemoveTaint 1 held,b".to_owned()), "{:?}", lab.helps("g"));
}

#[test]
fn every_limit_on_the_way_is_raised_together_or_another_queue_is_used() {
    let mut lab = Lab::new("r1: a b");
    let queue = |name: &str, parent: Option<&str>, gpus: Option<i64>| {
        let gpu = QueueAmount { limit_millis: gpus.map(|gpus| gpus * 1000), ..QueueAmount::UNLIMITED };
        let (cpu, memory) = (QueueAmount::UNLIMITED, QueueAmount::UNLIMITED);
        Event::QueueUpsert(QueueFacts { uid: name.into(), name: name.into(), parent: parent.map(str::to_owned), gpu, cpu, memory, ..QueueFacts::default() })
    };
    for event in [queue("top", None, Some(9)), queue("default-queue", Some("top"), Some(8)), queue("spare", None, None)] {
        lab.send(event);
    }
    lab.gang("g", 2, 8, "rack", "");
    lab.pass();
    let helps = lab.helps("g");
    assert_eq!(helps[0], "RaiseLimit 16000 default-queue,gpu + RaiseLimit 16000 top,gpu", "{helps:?}");
    assert!(helps.contains(&"ChangeQueue 0 spare".to_owned()), "{helps:?}");
}

#[test]
fn a_mistake_has_no_remedy_and_the_bound_on_trials_holds() {
    let mut lab = Lab::new("r1: a b");
    lab.gang("g", 3, 8, "rack", "");
    lab.pass();
    let found = remedies(&lab.world, &lab.policy, 0, "gang-g", 1);
    assert_eq!((found.tried, found.cut_short), (1, true));
    lab.gang("wrong", 1, 8, "shelf", "");
    lab.pass();
    assert_eq!(lab.remedies("wrong"), Remedies::default());
}

#[test]
fn rooms_are_those_of_the_verdict() {
    let mut lab = Lab::new("b1/r1: a b; b1/r2: c; b2/r3: d");
    lab.busy("b", 8);
    lab.gang("g", 3, 8, "rack", "");
    lab.pass();
    let rooms = domain_rooms(&lab.world, &lab.policy, "gang-g");
    let shown: Vec<String> = rooms.iter().map(|room| format!("{}={}/{}", room.path.last().map_or("", |(_, value)| value), room.has, room.needs)).collect();
    assert_eq!(shown, ["=3/3", "b1=2/3", "r1=1/3", "r2=1/3", "b2=1/3", "r3=1/3"]);
}

/// (rack, GPUs, cordoned, GPUs in use) by node; (pods, GPUs, constrained) by gang.
type Draw = (Vec<(u8, i64, bool, i64)>, Vec<(u32, i64, bool)>);

fn draws() -> impl Strategy<Value = Draw> {
    let node = (0_u8..4, 1_i64..5, prop::bool::weighted(0.2), 0_i64..5);
    let gang = (1_u32..6, 1_i64..4, prop::bool::ANY);
    (prop::collection::vec(node, 1..8), prop::collection::vec(gang, 1..6))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Applied to a world that is built from scratch, every remedy makes the gang fit.
    #[test]
    fn every_remedy_helps_when_it_is_applied((nodes, gangs) in draws()) {
        let mut lab = Lab::new("r0: z=1");
        for (at, (rack, gpus, cordoned, used)) in nodes.iter().enumerate() {
            let name = format!("n{at}");
            let rack = if *rack == 3 { "-".to_owned() } else { format!("r{rack}") };
            let facts = NodeFacts { unschedulable: *cordoned, ..Lab::node_facts(&name, &[&rack], *gpus) };
            lab.send(Event::NodeUpsert(facts));
            if *used > 0 {
                lab.busy(&name, (*used).min(*gpus));
            }
        }
        for (at, (pods, gpus, constrained)) in gangs.iter().enumerate() {
            lab.gang(&format!("g{at}"), *pods, *gpus, if *constrained { "rack" } else { "" }, "");
        }
        lab.pass();
        for at in 0..gangs.len() {
            let uid = format!("gang-g{at}");
            let before = lab.world.gang_report(&uid).unwrap();
            let found = lab.remedies(&format!("g{at}"));
            prop_assert!(found.tried <= DEFAULT_TRIALS);
            prop_assert!(before.state != GangState::Placed || found.found.is_empty());
            for remedy in found.found {
                prop_assert!(remedy.fixes.iter().all(|fix| fix.verified && fix.kind != FixKind::CorrectValue));
                let anew = apply_anew(&lab.world, &lab.policy, &remedy.changes);
                let after = anew.gang_report(&uid).unwrap();
                prop_assert!(is_better(&before, &after), "{:?} {:?}", remedy.fixes, after.reasons);
            }
        }
    }
}
