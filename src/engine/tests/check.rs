//! The checker must be able to say no: every kind of wrong answer, made from a right one.

use super::coupled::{app, near, spread};
use super::fixture::Lab;
use crate::check::{FaultKind, decisions_from, pass};
use crate::facts::*;
use crate::outcome::{Outcome, Rule, VolumeChoice};
use crate::schedule::schedule;
use crate::world::World;

/// A lab before a pass, and the pass's answer.
struct Case {
    lab: Lab,
    before: World,
    outcome: Outcome,
}

impl Case {
    fn new(mut lab: Lab) -> Self {
        let before = lab.world.fork();
        let outcome = schedule(&mut lab.world, &lab.policy, lab.now);
        let case = Self { lab, before, outcome };
        assert_eq!(case.faults(), [], "the right answer is accepted");
        assert!(!case.outcome.decisions.is_empty(), "something was decided");
        case
    }

    fn faults(&self) -> Vec<FaultKind> {
        let found = decisions_from(&self.before, &self.lab.policy, &self.outcome);
        assert_eq!(found.undecided, 0);
        found.faults.into_iter().map(|fault| fault.kind).collect()
    }

    /// Puts the pod (by number in the last decision) on another node.
    fn moved(mut self, pod: usize, node: &str) -> Vec<FaultKind> {
        let placement = &mut self.outcome.decisions.last_mut().unwrap().placements[pod];
        placement.node = node.to_owned();
        placement.node_uid = format!("node-{node}");
        self.faults()
    }

    fn changed(mut self, change: impl FnOnce(&mut Outcome)) -> Vec<FaultKind> {
        change(&mut self.outcome);
        self.faults()
    }

    /// The same answer in a world that something else happened to before.
    fn after(mut self, event: Event) -> Vec<FaultKind> {
        self.before.apply(event, 0).unwrap();
        self.faults()
    }
}

/// Two pods of four GPUs in one rack.
fn pair() -> Case {
    let mut lab = Lab::new("b1/r1: a b; b1/r2: c d");
    lab.gang("g", 2, 8, "rack", "");
    Case::new(lab)
}

#[test]
fn who_and_where_must_exist() {
    assert_eq!(pair().moved(0, "nowhere"), [
        FaultKind::UnknownNode("nowhere".into()),
        FaultKind::BelowMinimum(String::new()),
        FaultKind::BelowMinimum("default".into()),
    ]);
    let other_node = |outcome: &mut Outcome| outcome.decisions[0].placements[0].node_uid = "older".into();
    assert!(pair().changed(other_node).contains(&FaultKind::UnknownNode("a".into())));
    let other_pod = |outcome: &mut Outcome| outcome.decisions[0].placements[0].pod.name = "namesake".into();
    assert!(pair().changed(other_pod).contains(&FaultKind::UnknownPod("namesake".into())));
    let other_gang = |outcome: &mut Outcome| outcome.decisions[0].gang_uid = "older".into();
    assert_eq!(pair().changed(other_gang), [FaultKind::UnknownGang]);
}

#[test]
fn only_waiting_members_are_placed_once() {
    let twice = |outcome: &mut Outcome| {
        let again = outcome.decisions[0].placements[0].clone();
        outcome.decisions[0].placements.push(again);
    };
    assert_eq!(pair().changed(twice), [FaultKind::PlacedTwice("g-0".into())]);
    let again = |outcome: &mut Outcome| {
        let decision = outcome.decisions[0].clone();
        outcome.decisions.push(decision);
    };
    assert!(pair().changed(again).contains(&FaultKind::NotWaiting("g-0".into())));
    let gated = PodFacts { gated: true, ..Lab::pod_facts("g", None, 0, 8) };
    assert_eq!(pair().after(Event::PodUpsert(gated)), [FaultKind::NotWaiting("g-0".into())]);
    let foreign = PodFacts { gang: Some("h".into()), ..Lab::pod_facts("g", None, 0, 8) };
    assert!(pair().after(Event::PodUpsert(foreign)).contains(&FaultKind::WrongGroup("g-0".into())));
    let mislabelled = |outcome: &mut Outcome| outcome.decisions[0].placements[0].subgroup = "other".into();
    assert_eq!(pair().changed(mislabelled), [FaultKind::WrongGroup("g-0".into())]);
}

#[test]
fn a_minimum_is_reached_or_nothing_is_placed() {
    let one_less = |outcome: &mut Outcome| {
        outcome.decisions[0].placements.pop();
    };
    let below = |names: [&str; 2]| names.map(|name| FaultKind::BelowMinimum(name.into()));
    assert_eq!(pair().changed(one_less), below(["", "default"]));
    // A whole subgroup is missing: the other one's minimum is no excuse.
    let mut lab = Lab::new("b1/r1: a b; b1/r2: c d");
    lab.groups("g", ("", ""), &[("s0", 2, 8, "", ""), ("s1", 1, 8, "", "")]);
    let faults = Case::new(lab).changed(|outcome| outcome.decisions[0].placements.retain(|p| p.subgroup == "s0"));
    assert_eq!(faults, [FaultKind::BelowMinimum(String::new())]);
}

#[test]
fn a_required_level_holds_all_live_members() {
    assert_eq!(pair().moved(1, "c"), [FaultKind::Split(String::new(), "rack".into())]);
    // The member that runs already pins the rack.
    let pinned = || {
        let mut lab = Lab::new("b1/r1: a b; b1/r2: c d");
        lab.gang("g", 2, 8, "rack", "");
        lab.pass();
        lab.send(Event::PodDelete("g-1".into()));
        lab.send(Event::PodUpsert(PodFacts { uid: "again".into(), ..Lab::pod_facts("g", None, 1, 8) }));
        Case::new(lab)
    };
    assert_eq!(pinned().moved(0, "d"), [FaultKind::Split(String::new(), "rack".into())]);
    // Racks of one name in two blocks are two; a node without the label is in none.
    let same_name = || {
        let mut lab = Lab::new("b1/r1: a b; b2/r1: c d; b1/-: e");
        lab.groups("g", ("", ""), &[("s", 2, 8, "rack", "")]);
        Case::new(lab)
    };
    assert_eq!(same_name().moved(1, "a"), [FaultKind::Split("s".into(), "rack".into())]);
    assert_eq!(same_name().moved(1, "e"), [FaultKind::Split("s".into(), "rack".into())]);
}

#[test]
fn nodes_have_room_for_what_they_hold() {
    assert_eq!(pair().moved(1, "a"), [FaultKind::Overfull("a".into(), "nvidia.com/gpu".into())]);
    let mut other = Lab::pod_facts("other", None, 0, 1);
    (other.ours, other.gang, other.node) = (false, None, Some("b".into()));
    assert_eq!(pair().after(Event::PodUpsert(other)), [FaultKind::Overfull("b".into(), "nvidia.com/gpu".into())]);
    let held = Event::Held("h".into(), "b".into(), [("nvidia.com/gpu".to_owned(), 1)].into());
    assert_eq!(pair().after(held), [FaultKind::Overfull("b".into(), "nvidia.com/gpu".into())]);
    // The number of pods is a resource, and is asked for by pods that ask for nothing.
    let mut facts = Lab::node_facts("a", &["b1", "r1"], 8);
    facts.allocatable.insert("pods".into(), 0);
    assert_eq!(pair().after(Event::NodeUpsert(facts)), [FaultKind::Overfull("a".into(), "pods".into())]);
}

#[test]
fn rules_of_the_node_hold() {
    let cordoned = NodeFacts { unschedulable: true, ..Lab::node_facts("a", &["b1", "r1"], 8) };
    assert_eq!(pair().after(Event::NodeUpsert(cordoned)), [FaultKind::Refused("g-0".into(), Rule::Cordoned)]);
    let ports = || {
        let mut lab = Lab::new("b1/r1: a b");
        lab.send(Event::GangUpsert(Lab::gang_facts("g", 2, Lab::constraint("", ""))));
        for index in 0..2 {
            let mut pod = Lab::pod_facts("g", None, index, 1);
            pod.shape.host_ports.push(HostPort { ip: String::new(), protocol: "TCP".into(), port: 80 });
            lab.send(Event::PodUpsert(pod));
        }
        Case::new(lab)
    };
    assert_eq!(ports().moved(1, "a"), [FaultKind::PortTaken("a".into(), 80)]);
}

/// Pods of one gang with label `app: a` and rules.
fn ruled(cluster: &str, pods: u32, rules: impl Fn(&mut ShapeFacts)) -> Case {
    let mut lab = Lab::new(cluster);
    lab.send(Event::GangUpsert(Lab::gang_facts("g", pods, Lab::constraint("", ""))));
    for index in 0..pods {
        let mut pod = Lab::pod_facts("g", None, index, 1);
        pod.labels = [("app".to_owned(), "a".to_owned())].into();
        rules(&mut pod.shape);
        lab.send(Event::PodUpsert(pod));
    }
    Case::new(lab)
}

#[test]
fn rules_between_pods_hold() {
    let apart = || ruled("b1/r1: a b; b1/r2: c d", 2, |shape| shape.pod_anti_affinity.push(near("a", "rack")));
    let repelled = ["g-0", "g-1"].map(|pod| FaultKind::Repelled(pod.into(), "rack".into()));
    let first = apart().outcome.decisions[0].placements[0].node.clone();
    assert_eq!(apart().moved(1, if first == "a" { "b" } else { "a" }), repelled);
    // Somebody else's rule counts, too.
    let mut hermit = Lab::pod_facts("hermit", None, 0, 0);
    (hermit.ours, hermit.gang, hermit.node) = (false, None, Some("a".into()));
    hermit.shape.pod_anti_affinity.push(near("a", "block"));
    assert_eq!(apart().after(Event::PodUpsert(hermit)), ["g-0", "g-1"].map(|pod| FaultKind::Repelled(pod.into(), "block".into())));
    let together = || ruled("b1/r1: a b; b1/r2: c d", 2, |shape| shape.pod_affinity.push(near("a", "rack")));
    assert_eq!(together().moved(1, "c"), [FaultKind::NoOrder]);
    let even = || ruled("b1/r1: a b; b1/r2: c d", 4, |shape| shape.spread.push(spread("a", "rack", 1, 1)));
    let case = even();
    let in_first = case.outcome.decisions[0].placements.iter().position(|p| p.node == "c" || p.node == "d").unwrap();
    assert_eq!(case.moved(in_first, "a"), [FaultKind::NoOrder]);
    assert!(app("a").is_some());
}

#[test]
fn order_is_found_where_a_greedy_one_would_get_stuck() {
    // Where the first pod of its kind may go anywhere, the ones it draws must follow it.
    let case = ruled("b1/r1: a b; b1/r2: c d", 6, |shape| {
        shape.pod_affinity.push(near("a", "block"));
        shape.spread.push(spread("a", "rack", 1, 2));
    });
    assert_eq!(case.outcome.decisions[0].placements.len(), 6);
}

#[test]
fn queues_take_work_within_their_limits() {
    let queue = |name: &str, parent: Option<&str>, limit: i64| {
        let gpu = QueueAmount { limit_millis: Some(limit), ..QueueAmount::UNLIMITED };
        Event::QueueUpsert(QueueFacts {
            uid: name.into(),
            name: name.into(),
            parent: parent.map(str::to_owned),
            priority: 100,
            created: 0,
            gpu,
            cpu: QueueAmount::UNLIMITED,
            memory: QueueAmount::UNLIMITED,
        })
    };
    let over = |name: &str| FaultKind::OverLimit(name.into(), "gpu");
    assert_eq!(pair().after(queue("default-queue", None, 15_000)), [over("default-queue")]);
    assert_eq!(pair().after(queue("default-queue", None, 16_000)), []);
    let mut case = pair();
    case.before.apply(queue("default-queue", Some("top"), 16_000), 0).unwrap();
    assert_eq!(case.after(queue("top", None, 8_000)), [over("top")]);
    assert_eq!(pair().after(queue("another", None, 16_000)), [FaultKind::QueueClosed("default-queue".into())]);
    let mut case = pair();
    case.before.apply(queue("default-queue", None, 16_000), 0).unwrap();
    assert_eq!(case.after(queue("below", Some("default-queue"), 16_000)), [FaultKind::QueueClosed("default-queue".into())]);
}

/// A pod with a claim that waits for a volume; one volume is in rack r1.
fn with_claim() -> Case {
    let mut lab = Lab::new("b1/r1: a; b1/r2: c");
    lab.send(Event::StorageClassUpsert(StorageClassFacts {
        uid: "sc".into(),
        name: "sc".into(),
        provisioner: "driver".into(),
        waits: true,
        ..StorageClassFacts::default()
    }));
    let rack = Requirement { key: "rack".into(), operator: SelectorOperator::In, values: vec!["r1".into()], on_name: false };
    lab.send(Event::VolumeUpsert(VolumeFacts {
        uid: "v".into(),
        name: "v".into(),
        class: "sc".into(),
        bytes: 10,
        access_modes: vec!["ReadWriteOnce".into()],
        available: true,
        node_terms: Some(vec![NodeTerm { requirements: vec![rack] }]),
        driver: "driver".into(),
        ..VolumeFacts::default()
    }));
    lab.send(Event::ClaimUpsert(claim("c")));
    lab.send(Event::GangUpsert(Lab::gang_facts("g", 1, Lab::constraint("", ""))));
    let pod = PodFacts { claims: vec!["c".into()], ..Lab::pod_facts("g", None, 0, 1) };
    lab.send(Event::PodUpsert(pod));
    Case::new(lab)
}

fn claim(name: &str) -> ClaimFacts {
    ClaimFacts {
        uid: format!("claim-{name}"),
        key: ObjectKey::new("ns", name),
        class: Some("sc".into()),
        bytes: 10,
        access_modes: vec!["ReadWriteOnce".into()],
        ..ClaimFacts::default()
    }
}

#[test]
fn claims_are_served_by_what_was_chosen() {
    let unserved = [FaultKind::Claim("g-0".into(), "c".into())];
    assert_eq!(with_claim().moved(0, "c"), unserved);
    let without = |outcome: &mut Outcome| outcome.decisions[0].placements[0].volumes.clear();
    assert_eq!(with_claim().changed(without), unserved);
    let provisioned = |outcome: &mut Outcome| {
        outcome.decisions[0].placements[0].volumes =
            vec![VolumeChoice { claim: "c".into(), claim_uid: "claim-c".into(), volume: None }];
    };
    assert_eq!(with_claim().changed(provisioned), unserved);
    assert_eq!(with_claim().after(Event::ClaimUpsert(ClaimFacts { bytes: 11, ..claim("c") })), unserved);
    let bound = ClaimFacts { bound: true, volume: Some("v".into()), ..claim("c") };
    let mut case = with_claim();
    case.before.apply(Event::ClaimUpsert(bound), 0).unwrap();
    assert_eq!(case.moved(0, "c"), [FaultKind::Refused("g-0".into(), Rule::VolumeNode)]);
    let mut case = with_claim();
    let limits = [("driver".to_owned(), 0)].into();
    let csi = CsiNodeFacts { name: "a".into(), limits, drivers: ["driver".to_owned()].into() };
    case.before.apply(Event::CsiNodeUpsert(csi), 0).unwrap();
    assert_eq!(case.after(Event::ClaimUpsert(ClaimFacts { volume: Some("v".into()), ..claim("c") })), [
        FaultKind::Overfull("a".into(), "driver".into()),
    ]);
}

#[test]
fn a_pass_is_checked_without_a_copy_of_the_world() {
    let case = pair();
    assert_eq!(pass(&case.lab.world, &case.lab.policy, &case.outcome).faults, []);
    let mut wrong = case.outcome.clone();
    (wrong.decisions[0].placements[1].node, wrong.decisions[0].placements[1].node_uid) = ("c".into(), "node-c".into());
    let faults = pass(&case.lab.world, &case.lab.policy, &wrong).faults;
    assert_eq!(faults[0].kind, FaultKind::Split(String::new(), "rack".into()));
    assert_eq!(faults[0].to_string(), "gang ns/g: Split(\"\", \"rack\")");
}
