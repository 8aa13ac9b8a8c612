//! Preemption: who is evicted for whom, and what is left alone.

use proptest::prelude::*;

use super::fixture::Lab;
use crate::facts::*;
use crate::outcome::*;

impl Lab {
    /// A preemptible gang of pods of so many GPUs that waits.
    pub(super) fn low(&mut self, name: &str, min: u32, pods: u32, gpus: i64, priority: i32) {
        let facts = GangFacts { preemptible: true, priority, ..Lab::gang_facts(name, min, Lab::constraint("", "")) };
        self.send(Event::GangUpsert(facts));
        for index in 0..pods {
            self.send(Event::PodUpsert(Lab::pod_facts(name, None, index, gpus)));
        }
    }

    /// A running pod of a preemptible gang of its own, on a node.
    fn runs(&mut self, name: &str, node: &str, gpus: i64, priority: i32) {
        self.runs_on(name, &[node], 1, gpus, priority);
    }

    /// A preemptible gang that runs, a pod on each of the nodes.
    pub(super) fn runs_on(&mut self, name: &str, nodes: &[&str], min: u32, gpus: i64, priority: i32) {
        let facts = GangFacts { preemptible: true, priority, ..Lab::gang_facts(name, min, Lab::constraint("", "")) };
        self.send(Event::GangUpsert(facts));
        for (index, node) in nodes.iter().enumerate() {
            let pod = Lab::pod_facts(name, None, index as u32, gpus);
            self.send(Event::PodUpsert(PodFacts { node: Some((*node).into()), phase: PodPhase::Running, ..pod }));
        }
    }

    pub(super) fn high(&mut self, name: &str, pods: u32, gpus: i64, required: &str) {
        self.gang(name, pods, gpus, required, "");
        let facts = GangFacts { priority: 50, ..Lab::gang_facts(name, pods, Lab::constraint(required, "")) };
        self.send(Event::GangUpsert(facts));
    }

    /// Names of the pods that a pass evicts, by gang.
    pub(super) fn hunted(&mut self) -> Vec<String> {
        let outcome = self.pass();
        let mut pods: Vec<String> = outcome.evictions.into_iter().flat_map(|eviction| eviction.pods).map(|victim| victim.pod_uid).collect();
        pods.sort();
        pods
    }

    pub(super) fn gone(&mut self, pods: &[&str]) {
        for pod in pods {
            self.send(Event::PodDelete((*pod).to_owned()));
        }
    }
}

#[test]
fn a_gang_gets_the_room_of_lower_priority_whole_or_nobody_goes() {
    let mut lab = Lab::new("r1: a b");
    lab.runs("low", "b", 8, 1);
    lab.high("g", 2, 8, "");
    // Idle and evicted room together.
    assert_eq!(lab.hunted(), ["low-0"]);
    assert_eq!(lab.code("g"), "WaitingForRoom 0/1");
    assert!(lab.hunted().is_empty(), "once for one cause");
    // Nobody else takes the room, not even what is idle.
    lab.gang("other", 1, 8, "", "");
    assert!(lab.pass().decisions.is_empty());
    lab.gone(&["low-0"]);
    lab.pass();
    assert_eq!((lab.places("g"), lab.places("other")), ("a b".into(), "-".into()));
    // A gang that would not fit in the end has nobody evicted.
    lab.high("big", 3, 8, "");
    assert!(lab.hunted().is_empty());
}

#[test]
fn equal_priority_protected_and_unwilling_work_stays() {
    let mut lab = Lab::new("r1: a");
    lab.runs("equal", "a", 8, 50);
    lab.high("g", 1, 8, "");
    assert!(lab.hunted().is_empty());
    let mut lab = Lab::new("r1: a");
    lab.runs("protected", "a", 8, 1);
    lab.send(Event::GangUpsert(GangFacts { priority: 1, ..Lab::gang_facts("protected", 1, Lab::constraint("", "")) }));
    lab.high("g", 1, 8, "");
    assert!(lab.hunted().is_empty());
    let mut lab = Lab::new("r1: a");
    lab.runs("low", "a", 8, 1);
    lab.high("g", 1, 8, "");
    lab.send(Event::PodUpsert(PodFacts { never_preempts: true, ..Lab::pod_facts("g", None, 0, 8) }));
    assert!(lab.hunted().is_empty());
    lab.send(Event::PodUpsert(Lab::pod_facts("g", None, 0, 8)));
    assert_eq!(lab.hunted(), ["low-0"]);
}

#[test]
fn victims_are_all_in_the_one_rack_that_can_be_freed() {
    let mut lab = Lab::new("r1: a b c d; r2: e f g h; r3: i j k l");
    for (at, node) in ["a", "b", "e", "f", "i", "j", "k", "l"].into_iter().enumerate() {
        lab.runs(&format!("low{at}"), node, 8, 1);
    }
    for node in ["c", "d", "g", "h"] {
        lab.busy(node, 8);
    }
    lab.high("gang", 4, 8, "rack");
    assert_eq!(lab.hunted(), ["low4-0", "low5-0", "low6-0", "low7-0"]);
}

#[test]
fn pods_above_a_minimum_go_before_whole_gangs_and_only_as_many_as_needed() {
    let mut lab = Lab::new("r1: a b c");
    lab.runs_on("elastic", &["a", "b"], 1, 8, 9);
    lab.runs("single", "c", 8, 1);
    lab.high("g", 1, 8, "");
    assert_eq!(lab.hunted().len(), 1);
    assert_eq!(lab.report("single").bound, 1);
    let mut lab = Lab::new("r1: a b c");
    lab.runs_on("wide", &["a", "b"], 2, 8, 1);
    lab.runs("single", "c", 8, 1);
    lab.high("g", 2, 8, "");
    assert_eq!(lab.hunted(), ["wide-0", "wide-1"], "one gang, not two");
}

#[test]
fn a_disruption_budget_is_never_passed() {
    let mut lab = Lab::new("r1: a b");
    lab.runs("low0", "a", 8, 1);
    lab.runs("low1", "b", 8, 1);
    let budget = |allowed| BudgetFacts { uid: "b".into(), key: ObjectKey::new("ns", "b"), selector: Some(LabelSelector::default()), allowed };
    lab.send(Event::BudgetUpsert(budget(1)));
    lab.high("g", 2, 8, "");
    assert!(lab.hunted().is_empty());
    lab.send(Event::BudgetUpsert(budget(2)));
    assert_eq!(lab.hunted(), ["low0-0", "low1-0"]);
}

#[test]
fn a_refusal_frees_the_hold_and_another_is_looked_for() {
    let mut lab = Lab::new("r1: a b");
    lab.runs("low0", "a", 8, 1);
    lab.runs("low1", "b", 8, 2);
    lab.high("g", 1, 8, "");
    assert_eq!(lab.hunted(), ["low0-0"]);
    lab.send(Event::EvictRefused("low0-0".into(), "a budget".into()));
    assert_eq!(lab.hunted(), ["low1-0"]);
    lab.gone(&["low1-0"]);
    lab.pass();
    assert_eq!(lab.places("g"), "b");
}

#[test]
fn pods_that_leave_anyway_are_waited_for() {
    let mut lab = Lab::new("r1: a b");
    lab.runs("low0", "a", 8, 1);
    lab.runs("low1", "b", 8, 1);
    let leaving = Lab::pod_facts("low1", None, 0, 8);
    lab.send(Event::PodUpsert(PodFacts { node: Some("b".into()), phase: PodPhase::Running, terminating: true, gone_by: Some(5_000), ..leaving }));
    lab.high("g", 1, 8, "");
    assert!(lab.hunted().is_empty());
    assert_eq!(lab.code("g"), "WaitingForRoom 0/1");
    // It should be gone for long: then somebody else is found.
    lab.now = 66_000;
    assert_eq!(lab.hunted(), ["low0-0"]);
}

#[test]
fn minimal_run_time_and_preemption_delay_are_waited_for() {
    let mut lab = Lab::new("r1: a");
    let queue = QueueFacts {
        uid: "q".into(),
        name: "default-queue".into(),
        preempt_min_runtime: Some(10_000),
        gpu: QueueAmount::UNLIMITED,
        cpu: QueueAmount::UNLIMITED,
        memory: QueueAmount::UNLIMITED,
        ..QueueFacts::default()
    };
    lab.send(Event::QueueUpsert(queue));
    lab.runs("low", "a", 8, 1);
    lab.high("g", 1, 8, "");
    assert_eq!(lab.pass().next_wakeup, Some(10_000));
    lab.now = 10_000;
    assert_eq!(lab.hunted(), ["low-0"]);
    let mut lab = Lab::new("r1: a");
    lab.runs("low", "a", 8, 1);
    lab.high("g", 1, 8, "");
    let facts = GangFacts { priority: 50, preemption_delay_millis: 7_000, ..Lab::gang_facts("g", 1, Lab::constraint("", "")) };
    lab.send(Event::GangUpsert(facts));
    assert_eq!(lab.pass().next_wakeup, Some(7_000));
    lab.now = 7_000;
    assert_eq!(lab.hunted(), ["low-0"]);
}

#[test]
fn a_promise_is_kept_over_a_restart() {
    let mut lab = Lab::new("r1: a b");
    lab.runs("low", "b", 8, 1);
    lab.high("g", 2, 8, "");
    assert_eq!(lab.hunted(), ["low-0"]);
    let mut next = Lab::new("r1: a b");
    next.world = crate::world::World::new();
    let terminating = |event| match event {
        Event::PodUpsert(pod) => Event::PodUpsert(PodFacts { terminating: pod.node.is_some(), ..pod }),
        other => other,
    };
    lab.world.export().into_iter().map(terminating).for_each(|event| next.send(event));
    next.gang("other", 1, 8, "", "");
    assert!(next.pass().decisions.is_empty() && next.hunted().is_empty());
    next.gone(&["low-0"]);
    next.pass();
    assert_eq!(next.places("g"), "a b");
}

#[test]
fn a_promise_ends_with_its_gang() {
    let mut lab = Lab::new("r1: a");
    lab.runs("low", "a", 8, 1);
    lab.high("g", 1, 8, "");
    assert_eq!(lab.hunted(), ["low-0"]);
    lab.gone(&["low-0", "g-0"]);
    lab.gang("other", 1, 8, "", "");
    lab.pass();
    assert_eq!(lab.places("other"), "a");
}

/// Victim sets by brute force: the fewest whole gangs with which a gang of one-node pods fits.
fn fewest(nodes: usize, preys: &[Vec<usize>], wanted: usize) -> Option<usize> {
    let free = |mask: u32| {
        let left = |node: &usize| !preys.iter().enumerate().any(|(at, prey)| mask >> at & 1 == 0 && prey.contains(node));
        (0..nodes).filter(left).count()
    };
    (0..1_u32 << preys.len()).filter(|mask| wanted <= free(*mask)).map(u32::count_ones).min().map(|n| n as usize)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Found whenever brute force finds it, and with as few gangs.
    #[test]
    fn found_at_the_cost_of_brute_force(owner in prop::collection::vec(0_usize..5, 6), wanted in 1_usize..6, fixed in 0_usize..6) {
        let mut lab = Lab::new("r1: a b c; r2: d e f");
        let names = ["a", "b", "c", "d", "e", "f"];
        let mut preys: Vec<Vec<usize>> = Vec::new();
        for gang in 0..4 {
            let on: Vec<usize> = (0..6).filter(|node| owner[*node] == gang && *node != fixed).collect();
            if !on.is_empty() {
                let nodes: Vec<&str> = on.iter().map(|node| names[*node]).collect();
                lab.runs_on(&format!("low{gang}"), &nodes, nodes.len() as u32, 8, 1);
                preys.push(on);
            }
        }
        lab.busy(names[fixed], 8);
        lab.high("g", wanted as u32, 8, "");
        let outcome = lab.pass();
        let whole = |preys: &[Vec<usize>]| { let mut all = preys.to_vec(); all.push(vec![fixed]); all };
        // The protected pod is a gang that may not go.
        let all = whole(&preys);
        let n = preys.len();
        let best = (0..1_u32 << n).filter(|mask| {
            let left = |node: &usize| !all.iter().enumerate().any(|(at, prey)| (at == n || mask >> at & 1 == 0) && prey.contains(node));
            wanted <= (0..6).filter(left).count()
        }).map(u32::count_ones).min();
        match best {
            None => prop_assert!(outcome.evictions.is_empty() && outcome.decisions.is_empty()),
            Some(0) => prop_assert!(outcome.evictions.is_empty() && outcome.decisions.len() == 1),
            Some(n) => prop_assert_eq!(outcome.evictions.len(), n as usize),
        }
        prop_assert!(fewest(6, &all, 6).is_some());
    }

    /// Random arrivals and ends: nobody is evicted twice, nothing is evicted without its gang being placed then.
    #[test]
    fn nobody_is_evicted_in_vain(ops in prop::collection::vec((0_u8..3, 1_u32..4, 1_i64..9, 0_i32..4), 1..60)) {
        let mut lab = Lab::new("r1: a b; r2: c d");
        let mut evicted = std::collections::BTreeSet::new();
        for (at, (kind, pods, gpus, priority)) in ops.into_iter().enumerate() {
            lab.now += 1_000;
            match kind {
                0 => {
                    let running = lab.world.pods.iter().flatten().find(|pod| pod.node.is_some()).map(|pod| pod.facts.uid.clone());
                    running.into_iter().for_each(|uid| lab.send(Event::PodDelete(uid)));
                }
                _ => lab.low(&format!("g{at}"), pods, pods, gpus, priority),
            }
            for _ in 0..4 {
                let outcome = lab.pass();
                for placement in outcome.decisions.iter().flat_map(|decision| &decision.placements) {
                    lab.send(Event::BindEnded(placement.pod_uid.clone(), BindResult::Bound));
                }
                let by: Vec<String> = outcome.evictions.iter().filter_map(|eviction| match &eviction.cause {
                    Cause::Room(room) => Some(room.by_uid.clone()),
                    Cause::Stale(_) => None,
                }).collect();
                for victim in outcome.evictions.into_iter().flat_map(|eviction| eviction.pods) {
                    prop_assert!(evicted.insert(victim.pod_uid.clone()), "{victim:?} twice");
                    lab.send(Event::PodDelete(victim.pod_uid));
                }
                if !by.is_empty() {
                    let outcome = lab.pass();
                    for gang in by {
                        prop_assert!(outcome.decisions.iter().any(|decision| decision.gang_uid == gang), "{gang}");
                    }
                    for placement in outcome.decisions.iter().flat_map(|decision| &decision.placements) {
                        lab.send(Event::BindEnded(placement.pod_uid.clone(), BindResult::Bound));
                    }
                    for victim in outcome.evictions.into_iter().flat_map(|eviction| eviction.pods) {
                        prop_assert!(evicted.insert(victim.pod_uid.clone()), "{victim:?} twice");
                        lab.send(Event::PodDelete(victim.pod_uid));
                    }
                }
            }
        }
    }
}

#[test]
fn replacements_of_the_evicted_say_for_whom_they_wait() {
    let mut lab = Lab::new("r1: a b");
    lab.runs_on("low", &["a", "b"], 2, 8, 1);
    lab.high("g", 2, 8, "");
    assert_eq!(lab.hunted(), ["low-0", "low-1"]);
    // Its controller makes them anew before the old ones have left.
    for index in [2, 3] {
        lab.send(Event::PodUpsert(Lab::pod_facts("low", None, index, 8)));
    }
    lab.pass();
    assert!(lab.code("low").starts_with("Preempted"), "{}", lab.code("low"));
}
