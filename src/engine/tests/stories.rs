//! Stories of placement: each is a small cluster, a gang, and where it must go.

use super::fixture::Lab;
use crate::facts::*;
use crate::outcome::*;

#[test]
fn required_level_takes_the_tighter_domain() {
    let mut lab = Lab::new("b1/r1: a b c; b1/r2: d e");
    lab.gang("g", 2, 8, "rack", "");
    lab.pass();
    assert_eq!(lab.places("g"), "d e");
    assert_eq!(lab.report("g").quality.unwrap().status, QualityStatus::Optimal);
}

#[test]
fn too_small_domain_says_how_far_off() {
    let mut lab = Lab::new("i: a=2; s: b=2");
    lab.busy("a", 1);
    lab.busy("b", 1);
    lab.gang("g", 2, 1, "rack", "");
    let outcome = lab.pass();
    assert!(outcome.decisions.is_empty());
    let report = lab.report("g");
    assert_eq!(lab.code("g"), "RequiredDomainTooSmall 1/2");
    let kinds: Vec<_> = report.reasons[0].fixes.iter().map(|f| (f.kind, f.verified, f.count)).collect();
    assert_eq!(kinds, [(FixKind::FreeCapacity, true, 1), (FixKind::RelaxLevel, true, 0)]);
}

#[test]
fn unlike_subgroups_need_backtracking() {
    let mut lab = Lab::new("b/r5: a b c d e; b/r4: f g h i");
    lab.groups("g", ("", ""), &[("two", 2, 8, "rack", ""), ("three", 3, 8, "rack", ""), ("four", 4, 8, "rack", "")]);
    lab.pass();
    assert_eq!(lab.report("g").state, GangState::Placed);
    // By name: four, three, two; of those in one rack the first declared comes first.
    assert_eq!(lab.places("g"), "f g h i c d e a b");
}

#[test]
fn fewest_child_domains_inside() {
    let mut lab = Lab::new(
        "b/r1: a=1; b/r2: c=3; b/r3: d=2; b/r4: e=4",
    );
    lab.gang("g", 7, 1, "block", "");
    lab.pass();
    assert_eq!(lab.places("g"), "c c c e e e e");
}

#[test]
fn segments_stay_whole_and_follow_rank() {
    let mut lab = Lab::new("z/b/r1: a b c d e; z/b/r2: f g h i; z/b/r3: j k l m");
    let segments: Vec<String> = (0..3).map(|i| format!("s{i}")).collect();
    let groups: Vec<_> = segments.iter().map(|name| (name.as_str(), 4, 8, "rack", "")).collect();
    lab.groups("g", ("zone", ""), &groups);
    lab.pass();
    assert_eq!(lab.places("g"), "a b c d f g h i j k l m");
}

#[test]
fn too_few_racks_for_segments_counts_segments() {
    let mut lab = Lab::new("z/b/r1: a b c d e f; z/b/r2: g h i; z/b/r3: j k l");
    let groups: Vec<_> = ["s0", "s1", "s2"].iter().map(|name| (*name, 4, 8, "rack", "")).collect();
    lab.groups("g", ("zone", ""), &groups);
    lab.pass();
    let reason = lab.report("g").reasons[0].clone();
    assert_eq!((reason.code, reason.unit, reason.has, reason.needs), (Code::RequiredDomainTooSmall, Unit::Segments, 1, 3));
    assert_eq!(reason.best_domain, Some(vec![("zone".into(), "z".into())]));
}

#[test]
fn preferred_segments_break_only_where_they_must() {
    let mut lab = Lab::new("b/r1: a b; b/r2: c; b/r3: d");
    lab.groups("g", ("block", ""), &[("s0", 2, 8, "", "rack"), ("s1", 2, 8, "", "rack")]);
    lab.pass();
    assert_eq!(lab.places("g"), "a b c d");
}

#[test]
fn a_node_without_the_label_is_left_out_of_that_level_only() {
    let mut lab = Lab::new("b/r1: a b; b/-: c");
    lab.gang("hard", 3, 8, "rack", "");
    lab.pass();
    assert_eq!(lab.code("hard"), "RequiredDomainTooSmall 2/3");
    assert_eq!(lab.report("hard").reasons[0].unlabelled_nodes, 1);
    lab.gang("soft", 3, 8, "block", "");
    lab.pass();
    assert_eq!(lab.places("soft"), "a b c");
}

#[test]
fn a_recreated_pod_returns_to_the_pinned_domain() {
    let mut lab = Lab::new("b/r1: a b; b/r2: c d");
    lab.gang("g", 2, 8, "rack", "");
    lab.pass();
    assert_eq!(lab.places("g"), "a b");
    lab.send(Event::PodDelete("g-1".into()));
    lab.busy("b", 8);
    let mut again = Lab::pod_facts("g", None, 1, 8);
    again.uid = "g-1-again".into();
    lab.send(Event::PodUpsert(again));
    lab.pass();
    assert_eq!(lab.code("g"), "PinnedDomainFull 1/2");
    assert_eq!(lab.report("g").state, GangState::Partial);
    lab.send(Event::PodDelete("busy-b-0".into()));
    lab.pass();
    assert_eq!(lab.places("g"), "a b");
}

#[test]
fn preferred_replacement_stays_in_the_same_block() {
    let mut lab = Lab::new("b0/r0: z; b1/r1: a b; b1/r2: c");
    lab.gang("g", 2, 8, "", "rack");
    lab.pass();
    assert_eq!(lab.places("g"), "a b");
    lab.send(Event::PodDelete("g-1".into()));
    lab.busy("b", 8);
    lab.send(Event::PodUpsert(PodFacts { uid: "again".into(), ..Lab::pod_facts("g", None, 1, 8) }));
    lab.pass();
    assert_eq!(lab.places("g"), "a c");
}

#[test]
fn elastic_pods_grow_in_the_pinned_domain_where_most_fit() {
    let mut lab = Lab::new("b/r1: a b; b/r2: c d e f");
    let facts = Lab::gang_facts("g", 2, Lab::constraint("rack", ""));
    lab.send(Event::GangUpsert(facts));
    for index in 0..4 {
        lab.send(Event::PodUpsert(Lab::pod_facts("g", None, index, 8)));
    }
    lab.pass();
    assert_eq!(lab.places("g"), "c d e f");
}

#[test]
fn small_pods_fill_the_rack_in_use() {
    let mut lab = Lab::new("b/r1: a b c d; b/r2: e f g h; b/r3: i j k l");
    for n in 0..12 {
        lab.gang(&format!("one{n:02}"), 1, 1, "", "");
    }
    lab.gang("whole", 4, 8, "rack", "");
    lab.pass();
    assert_eq!(lab.report("whole").state, GangState::Placed);
    assert_eq!(lab.places("one11"), "b");
}

#[test]
fn a_failed_gang_holds_nothing() {
    let mut lab = Lab::new("r1: a b c d e f g h i");
    lab.gang("big", 10, 8, "", "");
    for n in 0..5 {
        lab.gang(&format!("one{n}"), 1, 8, "", "");
    }
    lab.pass();
    assert_eq!(lab.code("big"), "NotEnoughRoom 4/10");
    assert_eq!(lab.places("one4"), "e");
}

#[test]
fn pods_that_ask_for_nothing_are_placed() {
    let mut lab = Lab::new("r1: a b");
    lab.gang("g", 2, 0, "rack", "");
    lab.pass();
    assert_eq!(lab.report("g").state, GangState::Placed);
}

#[test]
fn mistakes_name_key_value_and_what_is_allowed() {
    let mut lab = Lab::new("b/r1: a b");
    lab.gang("level", 1, 1, "row", "");
    lab.gang("order", 1, 1, "rack", "block");
    lab.pass();
    let problem = lab.report("level").reasons[0].problem.clone().unwrap();
    assert_eq!((problem.code, problem.value.as_str()), (ProblemCode::UnknownLevel, "row"));
    assert!(problem.allowed.contains("block, rack"), "{}", problem.allowed);
    assert_eq!(lab.report("order").reasons[0].code_name(), "PreferredAboveRequired");
}

#[test]
fn some_of_the_subgroups_suffice() {
    let mut lab = Lab::new("r1: a b; r2: c");
    let mut facts = Lab::gang_facts("g", 1, Lab::constraint("", ""));
    facts.min_member = None;
    facts.min_subgroup = Some(2);
    facts.subgroups = ["x", "y", "z"]
        .map(|name| SubgroupFacts {
            name: name.into(),
            min_member: Some(if name == "x" { 9 } else { 1 }),
            constraint: Lab::constraint("rack", ""),
            ..SubgroupFacts::default()
        })
        .to_vec();
    lab.send(Event::GangUpsert(facts));
    for (sub, n) in [("x", 9), ("y", 1), ("z", 1)] {
        for index in 0..n {
            lab.send(Event::PodUpsert(Lab::pod_facts("g", Some(sub), index, 8)));
        }
    }
    lab.pass();
    assert_eq!(lab.report("g").state, GangState::Placed);
    assert_eq!(lab.report("g").bound, 2);
}

#[test]
fn queue_limits_hold_from_leaf_to_root() {
    let mut lab = Lab::new("r1: a b");
    let unlimited = QueueAmount::UNLIMITED;
    let queue = |name: &str, parent: Option<&str>, limit: Option<i64>| QueueFacts {
        uid: name.into(),
        name: name.into(),
        parent: parent.map(str::to_owned),
        priority: 100,
        created: 0,
        gpu: QueueAmount { limit_millis: limit, ..unlimited },
        cpu: unlimited,
        memory: unlimited,
        ..QueueFacts::default()
    };
    lab.send(Event::QueueUpsert(queue("top", None, Some(12_000))));
    lab.send(Event::QueueUpsert(queue("default-queue", Some("top"), None)));
    lab.gang("g", 2, 8, "", "");
    lab.pass();
    let block = lab.report("g").reasons[0].queue.clone().unwrap();
    assert_eq!((block.queue.as_str(), block.limit_millis, block.asked_millis), ("top", 12_000, 16_000));
    lab.gang("small", 1, 8, "", "");
    lab.pass();
    assert_eq!(lab.report("small").state, GangState::Placed);
}

#[test]
fn a_gated_or_missing_pod_is_named() {
    let mut lab = Lab::new("r1: a b");
    lab.send(Event::GangUpsert(Lab::gang_facts("g", 2, Lab::constraint("", ""))));
    lab.send(Event::PodUpsert(Lab::pod_facts("g", None, 0, 1)));
    lab.pass();
    assert_eq!(lab.code("g"), "NotEnoughPods 1/2");
    lab.send(Event::PodUpsert(PodFacts { gated: true, ..Lab::pod_facts("g", None, 1, 1) }));
    lab.pass();
    assert_eq!(lab.code("g"), "PodsGated 1/2");
}

#[test]
fn a_refused_binding_waits_and_others_run() {
    let mut lab = Lab::new("r1: a=1");
    lab.gang("bad", 1, 1, "", "");
    lab.pass();
    assert_eq!(lab.places("bad"), "a");
    lab.send(Event::BindEnded("bad-0".into(), BindResult::Permanent("no".into())));
    lab.send(Event::Backoff("gang-bad".into(), 5_000, "no".into()));
    lab.gang("good", 1, 1, "", "");
    let outcome = lab.pass();
    assert_eq!(lab.places("good"), "a");
    assert_eq!(outcome.next_wakeup, Some(5_000));
    assert_eq!(lab.code("bad"), "BindRefused 0/0");
}

#[test]
fn a_leader_of_another_shape_stays_with_its_segment() {
    let mut lab = Lab::new("z/b/r1: a b; z/b/r2: c d; z/b/r3: e f");
    let mut facts = Lab::gang_facts("g", 1, Lab::constraint("", ""));
    facts.min_member = None;
    let sub = |name: &str, parent: Option<&str>, min, required| SubgroupFacts {
        name: name.into(),
        parent: parent.map(str::to_owned),
        min_member: min,
        constraint: Lab::constraint(required, ""),
        ..SubgroupFacts::default()
    };
    facts.subgroups = vec![
        sub("s0", None, None, "rack"),
        sub("leader", Some("s0"), Some(1), ""),
        sub("workers", Some("s0"), Some(2), ""),
        sub("s1", None, Some(2), "rack"),
    ];
    lab.send(Event::GangUpsert(facts));
    for (sub, n, gpus) in [("leader", 1, 0), ("workers", 2, 8), ("s1", 2, 8)] {
        for index in 0..n {
            lab.send(Event::PodUpsert(Lab::pod_facts("g", Some(sub), index, gpus)));
        }
    }
    lab.pass();
    assert_eq!(lab.report("g").state, GangState::Placed, "{:?}", lab.code("g"));
    assert_eq!(lab.places("g"), "a c d a b");
}

#[test]
fn a_shared_verdict_is_renewed_when_room_shrinks_after_it() {
    let mut lab = Lab::new("b/r1: a; b/r2: c; b/r3: d");
    // By name: g1 fails, g2 takes room, g3 shares the verdict of g1, which is old by then.
    lab.gang("g1", 4, 6, "", "");
    lab.gang("g2", 1, 3, "", "");
    lab.gang("g3", 4, 6, "", "");
    lab.pass();
    assert_eq!(lab.code("g1"), "NotEnoughRoom 2/4");
    assert_eq!(lab.code("g3"), "NotEnoughRoom 2/4");
}

#[test]
fn a_pod_with_a_mistake_is_left_aside_and_named() {
    let mut lab = Lab::new("i: a=4");
    lab.gang("g", 2, 1, "rack", "");
    let problem = Problem {
        code: ProblemCode::InvalidMemberLabel,
        object: "Pod/g-7".into(),
        key: "index".into(),
        value: "7".into(),
        allowed: "0 or 1".into(),
    };
    lab.send(Event::PodUpsert(PodFacts { problems: vec![problem.clone()], ..Lab::pod_facts("g", None, 7, 1) }));
    lab.pass();
    let report = lab.report("g");
    assert_eq!((report.state, report.bound, report.pods), (GangState::Placed, 2, 3));
    assert_eq!(lab.places("g"), "a a -");
    assert_eq!((report.reasons.len(), report.reasons[0].problem.clone()), (1, Some(problem)));
    // It does not count as one of those that the minimum needs.
    lab.send(Event::PodDelete("g-0".into()));
    lab.send(Event::PodDelete("g-1".into()));
    lab.pass();
    let codes: Vec<_> = lab.report("g").reasons.iter().map(Reason::code_name).collect();
    assert_eq!(codes, ["InvalidMemberLabel", "NotEnoughPods"]);
    // Corrected, it is a pod like any other.
    lab.send(Event::PodUpsert(Lab::pod_facts("g", None, 7, 1)));
    lab.send(Event::PodUpsert(Lab::pod_facts("g", None, 0, 1)));
    lab.pass();
    assert_eq!(lab.places("g"), "a a");
}

#[test]
fn a_leader_goes_first_whatever_its_index() {
    let mut lab = Lab::new("b/r1: a=1; b/r2: c=1");
    lab.send(Event::GangUpsert(Lab::gang_facts("g", 2, Lab::constraint("block", "rack"))));
    for index in 0..2 {
        lab.send(Event::PodUpsert(Lab::pod_facts("g", None, index, 1)));
    }
    lab.send(Event::PodUpsert(PodFacts { leader: true, created: 9, ..Lab::pod_facts("g", None, 7, 1) }));
    lab.pass();
    // Of three pods two find room: the leader has the first place, the second worker waits.
    assert_eq!(lab.places("g"), "c - a");
}

#[test]
fn a_gang_is_done_when_every_pod_has_ended() {
    let mut lab = Lab::new("i: a=4");
    lab.gang("g", 2, 1, "rack", "");
    lab.pass();
    let end = |index: u32, phase| PodFacts { phase, node: Some("a".into()), ..Lab::pod_facts("g", None, index, 1) };
    lab.send(Event::PodUpsert(end(0, PodPhase::Succeeded)));
    assert_eq!(lab.report("g").state, GangState::Partial);
    lab.send(Event::PodUpsert(PodFacts { terminating: true, ..end(1, PodPhase::Running) }));
    assert_eq!(lab.report("g").state, GangState::Pending, "a pod that leaves may be made again");
    lab.send(Event::PodUpsert(end(1, PodPhase::Failed)));
    lab.pass();
    let report = lab.report("g");
    assert_eq!((report.state, report.bound, report.reasons.len()), (GangState::Done, 0, 0));
}

#[test]
fn a_small_leader_leaves_room_for_whole_segments_and_that_is_proven() {
    // The leader takes half a node: only beside it, in r3, two segments of two stay whole.
    let mut lab = Lab::new("z/b/r1: a b; z/b/r2: c d; z/b/r3: e=4");
    lab.groups(
        "g",
        ("zone", ""),
        &[("leader", 1, 4, "", ""), ("s0", 2, 8, "rack", ""), ("s1", 2, 8, "rack", "")],
    );
    lab.pass();
    assert_eq!(lab.places("g"), "e a b c d");
    assert_eq!(lab.report("g").quality.unwrap().status, QualityStatus::Optimal);
}

/// Nodes by rank, with the pods' indices.
fn ranks(lab: &Lab, gang: &str) -> String {
    let ranks = lab.world.ranks(&format!("gang-{gang}"));
    let word = |rank: &crate::world::Rank| format!("{}:{}", rank.pod.name, rank.node.as_deref().unwrap_or("-"));
    ranks.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn neighbours_in_rank_are_neighbours_in_the_network_and_a_restart_keeps_the_map() {
    let mut lab = Lab::new("b1/r1: a=2 b=2; b1/r2: c=2; b2/r3: d=2");
    lab.gang("g", 6, 1, "block", "");
    let outcome = lab.pass();
    let map = "g-0:a g-1:a g-2:b g-3:b g-4:c g-5:c";
    assert_eq!(ranks(&lab, "g"), map);
    let domain = |pod: usize| outcome.decisions[0].placements[pod].domain.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>();
    assert_eq!((domain(0), domain(5)), (vec!["b1", "r1"], vec!["b1", "r2"]));
    // Two members come again, the later one first.
    for index in [4, 1] {
        lab.send(Event::PodDelete(format!("g-{index}")));
        lab.send(Event::PodUpsert(PodFacts { uid: format!("again-{index}"), ..Lab::pod_facts("g", None, index, 1) }));
    }
    lab.pass();
    assert_eq!(ranks(&lab, "g"), map);
    // All of them, in any order.
    for index in [3, 0, 5, 1, 4, 2] {
        let uid = if [1, 4].contains(&index) { format!("again-{index}") } else { format!("g-{index}") };
        lab.send(Event::PodDelete(uid));
    }
    for index in [2, 5, 0, 3, 1, 4] {
        lab.send(Event::PodUpsert(PodFacts { uid: format!("third-{index}"), ..Lab::pod_facts("g", None, index, 1) }));
    }
    lab.pass();
    assert_eq!(ranks(&lab, "g"), map);
}

#[test]
fn leaders_are_first_and_roles_that_count_on_their_own_follow_each_other() {
    let mut lab = Lab::new("b1/r1: a b c");
    lab.groups("g", ("", ""), &[("z", 2, 1, "", ""), ("a", 2, 1, "", "")]);
    assert_eq!(ranks(&lab, "g"), "g-z-0:- g-z-1:- g-a-0:- g-a-1:-");
    let second = PodFacts { index: Some(7), ..Lab::pod_facts("g", Some("a"), 0, 1) };
    let third = PodFacts { index: Some(8), leader: true, ..Lab::pod_facts("g", Some("a"), 1, 1) };
    lab.send(Event::PodUpsert(second));
    lab.send(Event::PodUpsert(third));
    assert_eq!(ranks(&lab, "g"), "g-a-1:- g-z-0:- g-z-1:- g-a-0:-");
}
