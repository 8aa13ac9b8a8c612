//! Queues: whose turn it is, and the ground it is decided on.

use proptest::prelude::*;

use super::fixture::Lab;
use crate::facts::*;

fn queue(name: &str, parent: Option<&str>, quota: i64, weight: i64) -> Event {
    let gpu = QueueAmount { quota_millis: Some(quota * 1000), limit_millis: None, weight_millis: weight * 1000 };
    Event::QueueUpsert(QueueFacts {
        uid: format!("queue-{name}"),
        name: name.into(),
        parent: parent.map(str::to_owned),
        priority: 100,
        created: 0,
        gpu,
        cpu: QueueAmount::UNLIMITED,
        memory: QueueAmount::UNLIMITED,
        ..QueueFacts::default()
    })
}

fn submit(lab: &mut Lab, queue: &str, n: usize, gpus: i64, preemptible: bool) {
    let name = format!("{queue}-{n}");
    let facts = GangFacts { queue: queue.into(), preemptible, created: n as i64, ..Lab::gang_facts(&name, 1, ConstraintFacts::default()) };
    lab.send(Event::GangUpsert(facts));
    lab.send(Event::PodUpsert(Lab::pod_facts(&name, None, 0, gpus)));
}

/// GPUs that a queue has.
fn has(lab: &Lab, queue: &str) -> i64 {
    lab.world.queue_reports().iter().find(|report| report.name == queue).map_or(0, |report| {
        report.allocated.iter().filter(|(name, _)| name.contains("gpu")).map(|(_, amount)| *amount).sum()
    })
}

#[test]
fn a_queue_that_was_served_steps_back() {
    let mut lab = Lab::new("b/r1: a");
    for event in [queue("one", None, 0, 1), queue("two", None, 0, 1)] {
        lab.send(event);
    }
    for n in 0..8 {
        submit(&mut lab, "one", n, 1, true);
    }
    for n in 0..2 {
        submit(&mut lab, "two", n, 1, true);
    }
    lab.pass();
    assert_eq!((has(&lab, "one"), has(&lab, "two")), (6, 2));
}

#[test]
fn shares_do_not_count_what_others_hold() {
    let mut lab = Lab::new("b/r1: a");
    lab.busy("a", 4);
    lab.send(queue("one", None, 0, 3));
    lab.send(queue("two", None, 0, 1));
    for n in 0..8 {
        submit(&mut lab, "one", n, 1, true);
        submit(&mut lab, "two", n, 1, true);
    }
    let standings = lab.world.standings();
    let fair = |name: &str| standings.queues[standings.by_name[name]].fair[0];
    lab.pass();
    // Requests are summed up by the pass.
    assert_eq!((fair("one"), fair("two")), (0, 0));
    let standings = lab.world.standings();
    let fair = |name: &str| standings.queues[standings.by_name[name]].fair[0];
    assert_eq!((fair("one"), fair("two")), (3000, 1000));
    assert_eq!((has(&lab, "one"), has(&lab, "two")), (3, 1));
}

#[test]
fn a_queue_that_is_its_own_ancestor_stands_at_the_top() {
    let mut lab = Lab::new("b/r1: a");
    lab.send(queue("one", Some("two"), 4, 1));
    lab.send(queue("two", Some("one"), 4, 1));
    lab.send(queue("self", Some("self"), 4, 1));
    lab.send(queue("lost", Some("nowhere"), 4, 1));
    submit(&mut lab, "lost", 0, 1, true);
    lab.pass();
    let standings = lab.world.standings();
    assert!(!standings.roots.is_empty() && standings.queues.iter().all(|queue| queue.children.len() < 4));
    assert_eq!(lab.places("lost-0"), "a");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// One-GPU work of several queues on an empty cluster ends at the fair shares exactly.
    #[test]
    fn an_empty_cluster_is_filled_to_the_fair_shares(
        rows in prop::collection::vec((0..5i64, 1..4i64, 0..20usize), 1..5),
        nested in any::<bool>(),
    ) {
        let mut lab = Lab::new("b/r1: a b");
        if nested {
            lab.send(queue("top", None, 16, 1));
        }
        for (at, (quota, weight, _)) in rows.iter().enumerate() {
            lab.send(queue(&format!("q{at}"), nested.then_some("top"), *quota, *weight));
        }
        for (at, (_, _, n)) in rows.iter().enumerate() {
            for n in 0..*n {
                submit(&mut lab, &format!("q{at}"), n, 1, true);
            }
        }
        lab.pass();
        let standings = lab.world.standings();
        let fair: Vec<i64> = (0..rows.len()).map(|at| standings.queues[standings.by_name[&format!("q{at}")]].fair[0] / 1000).collect();
        let promised: i64 = rows.iter().map(|(quota, _, n)| (*quota).min(*n as i64)).sum();
        if promised <= 16 {
            let have: Vec<i64> = (0..rows.len()).map(|at| has(&lab, &format!("q{at}"))).collect();
            prop_assert_eq!(have, fair);
        }
    }

    /// Fixed work never passes a quota, whatever comes in whatever order.
    #[test]
    fn fixed_work_stays_within_quotas(
        quotas in prop::collection::vec(0..6i64, 1..4),
        gangs in prop::collection::vec((0..4usize, 1..4i64, any::<bool>()), 0..20),
    ) {
        let mut lab = Lab::new("b/r1: a b");
        for (at, quota) in quotas.iter().enumerate() {
            lab.send(queue(&format!("q{at}"), None, *quota, 1));
        }
        for (n, (at, gpus, preemptible)) in gangs.iter().enumerate() {
            submit(&mut lab, &format!("q{}", at % quotas.len()), n, *gpus, *preemptible);
            lab.pass();
        }
        for report in lab.world.queue_reports() {
            let held: i64 = report.allocated_non_preemptible.iter().filter(|(name, _)| name.contains("gpu")).map(|(_, amount)| *amount).sum();
            let at: usize = report.name[1..].parse().unwrap();
            prop_assert!(held <= quotas[at]);
        }
    }
}
