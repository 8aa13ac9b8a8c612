//! Pods to come: a gang begins where those that are created later will fit.

use super::fixture::Lab;
use crate::facts::*;
use crate::outcome::*;

fn awaited(subgroup: &str, n_pods: u32, needed: bool, gpus: Option<i64>) -> AwaitedFacts {
    let shape = gpus.map(|gpus| Lab::pod_facts("g", None, 0, gpus).shape);
    AwaitedFacts { subgroup: subgroup.to_owned(), n_pods, needed, shape }
}

fn leaf(name: &str, least: u32, constraint: ConstraintFacts) -> SubgroupFacts {
    SubgroupFacts { name: name.to_owned(), min_member: Some(least), constraint, ..SubgroupFacts::default() }
}

/// A leader whose workers are created once it has a node, all in one rack.
fn leader_of(workers: u32, leader_gpus: i64) -> (GangFacts, PodFacts) {
    let mut facts = Lab::gang_facts("g", 1, Lab::constraint("rack", ""));
    facts.subgroups =
        vec![leaf("leader", 1, ConstraintFacts::default()), leaf("workers", 0, ConstraintFacts::default())];
    facts.min_member = None;
    facts.awaited = vec![awaited("workers", workers, true, Some(1))];
    (facts, Lab::pod_facts("g", Some("leader"), 0, leader_gpus))
}

fn begin(lab: &mut Lab, workers: u32, leader_gpus: i64) {
    let (facts, pod) = leader_of(workers, leader_gpus);
    lab.send(Event::GangUpsert(facts));
    lab.send(Event::PodUpsert(pod));
}

#[test]
fn a_leader_goes_where_its_followers_will_fit() {
    for leader_gpus in [0, 1] {
        let mut lab = Lab::new("r1: a=3; r2: b=4; r3: c=9");
        begin(&mut lab, 4 - leader_gpus as u32, leader_gpus);
        let outcome = lab.pass();
        assert_eq!(lab.places("g"), "b", "a leader with {leader_gpus} GPUs");
        assert_eq!(outcome.decisions[0].placements.len(), 1, "those to come are not placed");
        // They hold nothing: what is theirs can be taken.
        lab.gang("other", 9, 1, "rack", "");
        lab.gang("small", 3, 1, "rack", "");
        lab.pass();
        assert_eq!((lab.report("other").state, lab.report("small").state), (GangState::Placed, GangState::Placed));
    }
}

#[test]
fn a_leader_waits_until_its_followers_fit_somewhere() {
    let mut lab = Lab::new("r1: a=3; r2: b=3");
    lab.busy("b", 1);
    begin(&mut lab, 4, 0);
    assert!(lab.pass().decisions.is_empty());
    assert_eq!(lab.report("g").reasons[0].code, Code::RequiredDomainTooSmall, "{:?}", lab.report("g").reasons);
    // Room on a node wakes it, although the leader itself asks for none of it.
    lab.node("c", &["r3"], 4);
    assert_eq!(lab.pass().decisions.len(), 1);
}

#[test]
fn the_queue_must_admit_them_too() {
    let mut lab = Lab::new("r1: a=8");
    let mut queue = QueueFacts {
        uid: "q".into(),
        name: "default-queue".into(),
        parent: None,
        priority: 0,
        created: 0,
        gpu: QueueAmount { limit_millis: Some(3_000), ..QueueAmount::UNLIMITED },
        cpu: QueueAmount::UNLIMITED,
        memory: QueueAmount::UNLIMITED,
        ..QueueFacts::default()
    };
    lab.send(Event::QueueUpsert(queue.clone()));
    begin(&mut lab, 3, 1);
    assert!(lab.pass().decisions.is_empty());
    assert_eq!(lab.report("g").reasons[0].code, Code::QueueOverLimit);
    queue.gpu.limit_millis = Some(4_000);
    lab.send(Event::QueueUpsert(queue));
    assert_eq!(lab.pass().decisions.len(), 1);
}

/// Two segments, each in one rack, of which the first pod is enough to begin.
fn elastic_segments(size: u32) -> GangFacts {
    let mut facts = Lab::gang_facts("g", 1, Lab::constraint("block", ""));
    facts.min_member = None;
    facts.subgroups = (0..2).map(|i| leaf(&format!("s{i}"), u32::from(i == 0), Lab::constraint("rack", ""))).collect();
    facts.awaited = (0..2).map(|i| awaited(&format!("s{i}"), size, false, None)).collect();
    facts
}

#[test]
fn a_segment_that_has_begun_keeps_room_for_its_rest() {
    // One by one, in the order that leaves least room: without care both segments begin in the first rack.
    let mut lab = Lab::new("z/r1: a=4; z/r2: b=4; z/r3: c=4");
    lab.send(Event::GangUpsert(elastic_segments(4)));
    for (segment, index) in [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2), (1, 3), (0, 3)] {
        lab.send(Event::PodUpsert(Lab::pod_facts("g", Some(&format!("s{segment}")), index, 1)));
        assert_eq!(lab.pass().decisions.len(), 1, "segment {segment}, pod {index}");
    }
    assert_eq!(lab.places("g"), "a a a a b b b b");
    // In one large rack, room for the rest of both.
    let mut lab = Lab::new("z/r1: a=7; z/r2: b=8; z/r3: c=4");
    lab.busy("b", 1);
    lab.send(Event::GangUpsert(elastic_segments(4)));
    for segment in [0, 1] {
        lab.send(Event::PodUpsert(Lab::pod_facts("g", Some(&format!("s{segment}")), 0, 1)));
        lab.pass();
    }
    assert!(!lab.places("g").contains('-'), "{}", lab.places("g"));
    let places = lab.places("g");
    assert_ne!(places.split_once(' ').map(|(one, _)| one), places.split_once(' ').map(|(_, two)| two), "{places}");
}

#[test]
fn an_elastic_segment_begins_where_not_all_of_it_fits_rather_than_nowhere() {
    let mut lab = Lab::new("z/r1: a=2; z/r2: b=3");
    lab.send(Event::GangUpsert(elastic_segments(4)));
    lab.send(Event::PodUpsert(Lab::pod_facts("g", Some("s0"), 0, 1)));
    lab.send(Event::PodUpsert(Lab::pod_facts("g", Some("s1"), 0, 1)));
    lab.pass();
    assert!(!lab.places("g").contains('-'), "{}", lab.places("g"));
}
