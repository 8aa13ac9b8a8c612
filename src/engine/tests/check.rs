//! The checker must be able to say no: every kind of wrong answer, made from a right one.

use super::coupled::{app, near, spread};
use super::fixture::Lab;
use crate::check::{FaultKind, decisions_from, pass};
use crate::facts::*;
use crate::outcome::{Code, Counted, GangState, Outcome, Proof, Reason, Rule, Unit, VolumeChoice};
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
fn limits_on_domains_hold_with_all_live_members() {
    let limited = |level: &str, most| {
        let mut lab = Lab::new("b1/r1: a b; b2/r1: c; b2/-: d e");
        lab.gang("g", 2, 8, "", "");
        let limits = vec![DomainLimit { level: level.into(), most }];
        lab.send(Event::GangUpsert(GangFacts { limits, ..Lab::gang_facts("g", 2, Lab::constraint("", "")) }));
        Case::new(lab)
    };
    let too_many = |level: &str| [FaultKind::TooManyDomains(level.into(), 2)];
    assert_eq!(limited("rack", 1).moved(1, "c"), too_many("rack"), "one name, two racks");
    assert_eq!(limited("block", 1).moved(1, "d"), too_many("block"));
    assert_eq!(limited("rack", 2).moved(1, "d"), []);
    let without_label = limited("rack", 1).changed(|outcome| {
        for (placement, node) in outcome.decisions[0].placements.iter_mut().zip(["d", "e"]) {
            (placement.node, placement.node_uid) = (node.to_owned(), format!("node-{node}"));
        }
    });
    assert_eq!(without_label, too_many("rack"), "each node without the label is one");
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
            ..QueueFacts::default()
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

#[test]
fn work_that_cannot_be_preempted_stays_within_quotas() {
    let quota = |quota: i64| {
        let gpu = QueueAmount { quota_millis: Some(quota), ..QueueAmount::UNLIMITED };
        let [cpu, memory] = [QueueAmount::UNLIMITED; 2];
        Event::QueueUpsert(QueueFacts { uid: "q".into(), name: "default-queue".into(), gpu, cpu, memory, ..QueueFacts::default() })
    };
    let gang = |preemptible| {
        let facts = GangFacts { preemptible, ..Lab::gang_facts("g", 2, Lab::constraint("rack", "")) };
        let mut case = pair();
        case.before.apply(Event::GangUpsert(facts), 0).unwrap();
        case
    };
    let over = FaultKind::OverQuota("default-queue".into(), "gpu");
    assert_eq!(gang(false).after(quota(15_000)), [over]);
    assert_eq!(gang(false).after(quota(16_000)), []);
    assert_eq!(gang(true).after(quota(15_000)), []);
    let mut lab = Lab::new("b1/r1: a b");
    lab.send(quota(15_000));
    lab.gang("g", 2, 8, "rack", "");
    assert_eq!(refused(&mut lab).code, Code::QueueOverQuota);
    assert_eq!(told(&lab, |reason| reason.code = Code::QueueOverLimit), [FaultKind::FalseProof(Code::QueueOverLimit)]);
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

/// A gang that can't be placed, with its one reason.
fn refused(lab: &mut Lab) -> Reason {
    let outcome = lab.pass();
    assert!(outcome.decisions.is_empty());
    lab.report("g").reasons[0].clone()
}

/// What the checker says of the gang when its reason is changed.
fn told(lab: &Lab, change: impl FnOnce(&mut Reason)) -> Vec<FaultKind> {
    let mut world = lab.world.fork();
    let gang = world.gang_by_key[&ObjectKey::new("ns", "g")];
    let uid = world.gangs[gang.at()].as_ref().unwrap().facts.uid.clone();
    change(&mut world.gangs[gang.at()].as_mut().unwrap().reasons[0]);
    let outcome = Outcome { changed: vec![uid], ..Outcome::default() };
    pass(&world, &lab.policy, &outcome).faults.into_iter().map(|fault| fault.kind).collect()
}

fn counted(reason: &mut Reason) -> &mut Counted {
    match reason.proof.as_mut().unwrap() {
        Proof::Counted(counted) => counted,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_no_is_proven_by_counting_and_the_count_is_made_again() {
    let mut lab = Lab::new("b1/r1: a b; b1/r2: c d e; b2/r1: f");
    lab.gang("g", 4, 8, "rack", "");
    let mut reason = refused(&mut lab);
    assert_eq!(reason.code, Code::RequiredDomainTooSmall);
    assert_eq!(*counted(&mut reason), Counted {
        together: None,
        subgroup: String::new(),
        level: Some("rack".into()),
        unit: Unit::Pods,
        size: 1,
        needs: 4,
        domains: vec![(3, 1), (2, 1), (1, 1)],
    });
    let code = Code::RequiredDomainTooSmall;
    assert_eq!(told(&lab, |_| {}), []);
    assert_eq!(told(&lab, |reason| reason.proof = None), [FaultKind::Unproven(code)]);
    let wrong: [fn(&mut Counted); 7] = [
        |counted| counted.needs = 5,
        |counted| counted.domains[0].0 = 2,
        |counted| counted.domains[0].0 = 4,
        |counted| counted.domains.truncate(2),
        |counted| counted.level = Some("block".into()),
        |counted| counted.level = None,
        |counted| counted.subgroup = "other".into(),
    ];
    for (n, change) in wrong.into_iter().enumerate() {
        assert_eq!(told(&lab, |reason| change(counted(reason))), [FaultKind::FalseProof(code)], "change {n}");
    }
    assert_eq!(told(&lab, |reason| reason.proof = Some(Proof::Stated)), [FaultKind::FalseProof(code)]);
    // One more node, and the proof holds no longer.
    let mut grown = lab.world.fork();
    grown.apply(Event::NodeUpsert(Lab::node_facts("g", &["b1", "r2"], 8)), 0).unwrap();
    lab.world = grown;
    assert_eq!(told(&lab, |_| {}), [FaultKind::FalseProof(code)]);
}

#[test]
fn segments_are_counted_in_whole_ones() {
    let mut lab = Lab::new("z/b/r1: a b c d e f; z/b/r2: g h i; z/b/r3: j k l");
    let groups: Vec<_> = ["s0", "s1", "s2"].iter().map(|name| (*name, 4, 8, "rack", "")).collect();
    lab.groups("g", ("zone", ""), &groups);
    let mut reason = refused(&mut lab);
    let found = counted(&mut reason).clone();
    assert_eq!((found.unit, found.size, found.needs, found.domains), (Unit::Segments, 4, 3, vec![(1, 1)]));
    let code = Code::RequiredDomainTooSmall;
    assert_eq!(told(&lab, |reason| counted(reason).size = 3), [FaultKind::FalseProof(code)]);
    assert_eq!(told(&lab, |reason| counted(reason).needs = 4), [FaultKind::FalseProof(code)]);
}

#[test]
fn of_subgroups_of_which_some_are_needed_too_few_are_left() {
    let mut lab = Lab::new("b1/r1: a b; b1/r2: c d");
    lab.groups("g", ("", ""), &[("s0", 3, 8, "rack", ""), ("s1", 1, 8, "rack", ""), ("s2", 3, 4, "node", "")]);
    let mut facts = Lab::gang_facts("g", 1, Lab::constraint("", ""));
    facts.subgroups = [("s0", 3), ("s1", 1), ("s2", 5)]
        .map(|(name, min)| SubgroupFacts {
            name: name.into(),
            min_member: Some(min),
            constraint: Lab::constraint("rack", ""),
            ..SubgroupFacts::default()
        })
        .to_vec();
    (facts.min_member, facts.min_subgroup) = (None, Some(2));
    for index in 0..5 {
        lab.send(Event::PodUpsert(Lab::pod_facts("g", Some("s2"), index, 4)));
    }
    lab.send(Event::GangUpsert(facts));
    let reason = refused(&mut lab);
    let Some(Proof::TooFew { needed, ready, impossible, .. }) = &reason.proof else { panic!("{:?}", reason.proof) };
    assert_eq!((*needed, *ready, impossible.len()), (2, 3, 2));
    let false_proof = [FaultKind::FalseProof(reason.code)];
    let edit = |change: fn(&mut Vec<(String, Proof)>)| {
        told(&lab, |reason| match reason.proof.as_mut() {
            Some(Proof::TooFew { impossible, .. }) => change(impossible),
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(edit(|_| {}), []);
    assert_eq!(edit(|impossible| impossible.truncate(1)), false_proof);
    assert_eq!(edit(|impossible| impossible[1] = impossible[0].clone()), false_proof);
    assert_eq!(edit(|impossible| impossible[0].0 = "s1".into()), false_proof);
    // Of two that are left out, one alone is no proof for the gang.
    let Proof::Counted(first) = impossible[0].1.clone() else { panic!() };
    assert_eq!(told(&lab, |reason| reason.proof = Some(Proof::Counted(first))), false_proof);
}

#[test]
fn what_the_search_did_not_finish_is_no_proof() {
    let mut lab = Lab::new("b/r1: a b c d e; b/r2: f g h i j; b/r3: k l m n o");
    lab.groups("g", ("", ""), &[("s0", 3, 8, "rack", ""), ("s1", 4, 8, "rack", ""), ("s2", 3, 8, "rack", ""), ("s3", 4, 4, "block", "rack")]);
    lab.busy("a", 4);
    lab.busy("f", 8);
    let mut strict = lab.world.fork();
    lab.policy.search_steps = 2;
    let reason = refused(&mut lab);
    assert_eq!((reason.code, reason.proof), (Code::NotFoundWithinBudget, None));
    let claim = |reason: &mut Reason| reason.proof = Some(Proof::Exhausted { steps: 2 });
    assert_eq!(told(&lab, claim), [FaultKind::FalseProof(Code::NotFoundWithinBudget)]);
    std::mem::swap(&mut lab.world, &mut strict);
    lab.policy.search_steps = 20_000;
    lab.pass();
    let report = lab.report("g");
    assert!(report.state == GangState::Placed || report.reasons[0].proof.is_some(), "{report:?}");
}

#[test]
fn limits_hold_for_the_subgroups_that_are_chosen() {
    let mut lab = Lab::new("b1/r1: a b");
    let gpu = QueueAmount { limit_millis: Some(8_000), ..QueueAmount::UNLIMITED };
    lab.send(Event::QueueUpsert(QueueFacts {
        uid: "q".into(),
        name: "default-queue".into(),
        parent: None,
        priority: 100,
        created: 0,
        gpu,
        cpu: QueueAmount::UNLIMITED,
        memory: QueueAmount::UNLIMITED,
        ..QueueFacts::default()
    }));
    // The small one fits nowhere, the large one fits and passes the limit.
    lab.groups("g", ("", ""), &[("s0", 1, 1, "", ""), ("s1", 2, 8, "", "")]);
    let mut facts = lab.world.gangs[lab.world.gang_by_key[&ObjectKey::new("ns", "g")].at()].as_ref().unwrap().facts.clone();
    facts.min_subgroup = Some(1);
    lab.send(Event::GangUpsert(facts));
    let mut pod = Lab::pod_facts("g", Some("s0"), 0, 1);
    pod.shape.node_selector.insert("rack".into(), "r9".into());
    lab.send(Event::PodUpsert(pod));
    let reason = refused(&mut lab);
    assert_eq!((reason.code, reason.proof), (Code::QueueOverLimit, None));
    // A limit that every choice passes is a proof, with the least that is asked for.
    let mut lab = Lab::new("b1/r1: a b");
    let none = QueueAmount { limit_millis: Some(0), ..QueueAmount::UNLIMITED };
    let queue = QueueFacts {
        uid: "q".into(),
        name: "default-queue".into(),
        parent: None,
        priority: 100,
        created: 0,
        gpu: none,
        cpu: QueueAmount::UNLIMITED,
        memory: QueueAmount::UNLIMITED,
        ..QueueFacts::default()
    };
    lab.send(Event::QueueUpsert(queue));
    lab.gang("g", 2, 4, "", "");
    assert_eq!(refused(&mut lab).proof, Some(Proof::Stated));
    let asked = |by: i64| move |reason: &mut Reason| reason.queue.as_mut().unwrap().asked_millis = by;
    assert_eq!(told(&lab, asked(8_000)), []);
    assert_eq!(told(&lab, asked(9_000)), [FaultKind::FalseProof(Code::QueueOverLimit)]);
}

#[test]
fn what_a_gang_states_of_itself_is_looked_up() {
    let mut lab = Lab::new("b1/r1: a b; b1/r2: c");
    lab.gang("g", 2, 8, "rack", "");
    lab.send(Event::PodDelete("g-1".into()));
    assert_eq!(refused(&mut lab).code, Code::NotEnoughPods);
    assert_eq!(told(&lab, |_| {}), []);
    assert_eq!(told(&lab, |reason| reason.code = Code::AlreadySplit), [FaultKind::FalseProof(Code::AlreadySplit)]);
    assert_eq!(told(&lab, |reason| reason.code = Code::QueueNotFound), []);
    assert_eq!(told(&lab, |reason| reason.code = Code::QueueNotLeaf), [FaultKind::FalseProof(Code::QueueNotLeaf)]);
    lab.send(Event::PodUpsert(Lab::pod_facts("g", None, 1, 8)));
    let stale = told(&lab, |_| {});
    assert_eq!(stale, [FaultKind::FalseProof(Code::NotEnoughPods)]);
}
