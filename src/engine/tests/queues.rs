//! Queues: whose turn it is, and the ground it is decided on.

use proptest::prelude::*;

use super::fixture::Lab;
use crate::facts::*;
use crate::outcome::{Code, FixKind};

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
fn a_queue_that_hangs_from_nothing_takes_no_work() {
    let mut lab = Lab::new("b/r1: a");
    lab.send(queue("one", Some("two"), 4, 1));
    lab.send(queue("two", Some("one"), 4, 1));
    lab.send(queue("self", Some("self"), 4, 1));
    lab.send(queue("lost", Some("nowhere"), 4, 1));
    submit(&mut lab, "lost", 0, 1, true);
    submit(&mut lab, "self", 0, 1, true);
    lab.pass();
    let standings = lab.world.standings();
    assert!(!standings.roots.is_empty() && standings.queues.iter().all(|queue| queue.children.len() < 4));
    assert!(standings.queues.iter().all(|queue| queue.fair[0] == 0), "work that can't start has no share");
    let reason = |gang: &str, lab: &Lab| lab.world.gang_report(&format!("gang-{gang}")).unwrap().reasons[0].clone();
    let lost = reason("lost-0", &lab);
    assert_eq!((lost.code, lost.detail.as_str()), (Code::QueueOrphaned, "nowhere"));
    assert_eq!(lost.fixes.iter().map(|fix| (fix.kind, fix.target[0].as_str())).collect::<Vec<_>>(), [(FixKind::CreateObject, "Queue nowhere")]);
    let own = reason("self-0", &lab);
    assert_eq!((own.code, own.detail.as_str()), (Code::QueueOrphaned, ""));
    // What is missing comes: at once.
    lab.send(queue("nowhere", None, 4, 1));
    lab.send(queue("self", None, 4, 1));
    lab.pass();
    assert_eq!((lab.places("lost-0").as_str(), lab.places("self-0").as_str()), ("a", "a"));
}

#[test]
fn queues_that_take_work_are_named() {
    let mut lab = Lab::new("b/r1: a");
    lab.send(queue("top", None, 4, 1));
    lab.send(queue("other", None, 4, 1));
    for n in 0..5 {
        lab.send(queue(&format!("leaf-{n}"), Some("top"), 4, 1));
    }
    submit(&mut lab, "top", 0, 1, true);
    submit(&mut lab, "none", 0, 1, true);
    lab.pass();
    let fixes = |gang: &str| -> Vec<(FixKind, i64, Vec<String>)> {
        let reasons = lab.world.gang_report(&format!("gang-{gang}")).unwrap().reasons;
        assert_eq!(reasons.len(), 1);
        reasons[0].fixes.iter().map(|fix| (fix.kind, fix.count, fix.target.clone())).collect()
    };
    let names = |names: [&str; 3]| names.map(str::to_owned).to_vec();
    assert_eq!(fixes("top-0"), [(FixKind::NameQueue, 5, names(["leaf-0", "leaf-1", "leaf-2"]))]);
    let create = (FixKind::CreateObject, 1, vec!["Queue none".to_owned()]);
    assert_eq!(fixes("none-0"), [create, (FixKind::NameQueue, 6, names(["leaf-0", "leaf-1", "leaf-2"]))]);
}

/// What queues are charged, report and may have.
fn books(lab: &Lab) -> String {
    let standings = lab.world.standings();
    let mut queues: Vec<_> = standings.queues.iter().map(|queue| format!("{queue:?}")).collect();
    queues.sort();
    let charged: Vec<_> = lab.world.charged.iter().filter(|(_, charge)| charge.iter().any(|amount| *amount != 0)).collect();
    format!("{charged:?} {:?} {queues:?}", lab.world.queue_reports())
}

#[test]
fn a_moved_gang_and_a_moved_queue_are_counted_where_they_are_now() {
    let start = |events: &[Event]| {
        let mut lab = Lab::new("b/r1: a");
        events.iter().cloned().for_each(|event| lab.send(event));
        lab
    };
    let queues = [queue("top", None, 4, 1), queue("side", None, 4, 1), queue("one", Some("top"), 4, 1), queue("two", Some("side"), 4, 1)];
    let mut lab = start(&queues);
    for n in 0..3 {
        submit(&mut lab, "one", n, 1, n > 0);
    }
    lab.pass();
    assert_eq!((has(&lab, "top"), has(&lab, "side")), (3, 0));
    // One gang goes to the other queue, then that queue below the first one's parent.
    let moved = GangFacts { queue: "two".into(), preemptible: false, ..Lab::gang_facts("one-0", 1, ConstraintFacts::default()) };
    lab.send(Event::GangUpsert(moved.clone()));
    assert_eq!((has(&lab, "one"), has(&lab, "two"), has(&lab, "top"), has(&lab, "side")), (2, 1, 2, 1));
    lab.send(queue("two", Some("top"), 4, 1));
    assert_eq!((has(&lab, "top"), has(&lab, "side")), (3, 0));
    lab.pass();
    // As if it had never been otherwise.
    let mut anew = start(&[queues[0].clone(), queues[1].clone(), queues[2].clone(), queue("two", Some("top"), 4, 1)]);
    for n in 0..3 {
        submit(&mut anew, "one", n, 1, n > 0);
    }
    anew.send(Event::GangUpsert(moved));
    anew.pass();
    assert_eq!(books(&lab), books(&anew));
}

#[test]
fn the_line_goes_as_the_passes_would() {
    let mut lab = Lab::new("b/r1: a");
    lab.busy("a", 8);
    lab.send(queue("one", None, 0, 1));
    lab.send(queue("two", None, 0, 1));
    for n in 0..3 {
        submit(&mut lab, "one", n, 1, true);
    }
    submit(&mut lab, "two", 0, 2, true);
    lab.pass();
    let line = crate::schedule::line(&mut lab.world, &lab.policy, 0);
    let names: Vec<&str> = line.iter().map(|turn| turn.uid.as_str()).collect();
    assert_eq!(names, ["gang-one-0", "gang-two-0", "gang-one-1", "gang-one-2"], "who has less comes first");
    assert_eq!(line[1].waiting[0], 2_000);
    let reports = lab.world.queue_reports();
    let share = |name: &str| reports.iter().find(|report| report.name == name).unwrap().share.clone();
    assert_eq!((share("one").unplaceable[0], share("two").unplaceable[0]), (3_000, 2_000));
    assert_eq!((share("one").requested[0], share("one").fair[0]), (3_000, 0), "there is nothing to divide");
}

/// A random tree: each queue's parent comes before it; quota, weight, priority, and what a leaf asks for.
fn tree() -> impl Strategy<Value = Vec<(usize, i64, i64, i64, usize)>> {
    prop::collection::vec((0..100usize, 0..6i64, 0..4i64, 0..2i64, 0..9usize), 1..9)
}

/// The tree as queues with work, on so many GPUs; the names of the leaves.
fn plant(lab: &mut Lab, rows: &[(usize, i64, i64, i64, usize)]) -> Vec<String> {
    let parent = |at: usize| (at > 0 && !rows[at].0.is_multiple_of(3)).then(|| rows[at].0 % at);
    let leaf = |at: usize| (0..rows.len()).all(|other| parent(other) != Some(at));
    for (at, (_, quota, weight, priority, _)) in rows.iter().enumerate() {
        let above = parent(at).map(|above| format!("q{above}"));
        let Event::QueueUpsert(facts) = queue(&format!("q{at}"), above.as_deref(), *quota, *weight) else { continue };
        lab.send(Event::QueueUpsert(QueueFacts { priority: *priority, ..facts }));
    }
    let leaves: Vec<usize> = (0..rows.len()).filter(|at| leaf(*at)).collect();
    for at in &leaves {
        for n in 0..rows[*at].4 {
            submit(lab, &format!("q{at}"), n, 1, true);
        }
    }
    leaves.into_iter().map(|at| format!("q{at}")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// What is divided in a tree is what there is: children have their parent's share, and somebody goes short only where
    /// nothing is left, but for quotas, which are not cut.
    #[test]
    fn shares_of_a_tree_sum_to_what_there_is(rows in tree()) {
        let mut lab = Lab::new("b/r1: a b");
        plant(&mut lab, &rows);
        lab.pass();
        let standings = lab.world.standings();
        let mut groups = vec![(standings.total[0], standings.roots.clone())];
        while let Some((total, siblings)) = groups.pop() {
            let each = siblings.iter().map(|at| &standings.queues[*at]);
            let sum: i64 = each.clone().map(|queue| queue.fair[0]).sum();
            let deserved = |queue: &crate::world::shares::Standing| queue.amounts[0].quota_millis.unwrap_or(i64::MAX).min(queue.requested[0]);
            let promised: i64 = each.clone().map(deserved).sum();
            prop_assert!(sum <= total.max(promised));
            for queue in each.clone() {
                prop_assert!(deserved(queue) <= queue.fair[0] && queue.fair[0] <= queue.requested[0]);
            }
            if each.clone().any(|queue| queue.amounts[0].weight_millis > 0 && queue.fair[0] < queue.requested[0]) {
                prop_assert_eq!(sum, total.max(promised));
            }
            for at in siblings {
                let children = standings.queues[at].children.clone();
                if !children.is_empty() {
                    groups.push((standings.queues[at].fair[0], children));
                }
            }
        }
    }

    /// A larger weight lowers the share of no queue on the way from the top to it, nor of any below it.
    #[test]
    fn a_larger_weight_in_a_tree_never_lowers_a_share(rows in tree(), at in 0..9usize, more in 1..4i64) {
        let at = at % rows.len();
        let fair = |rows: &[(usize, i64, i64, i64, usize)]| {
            let mut lab = Lab::new("b/r1: a b");
            plant(&mut lab, rows);
            lab.pass();
            let standings = lab.world.standings();
            let share = |name: &str| standings.queues[standings.by_name[name]].fair[0];
            (share(&format!("q{at}")), standings)
        };
        let mut heavier = rows.clone();
        heavier[at].2 += more;
        let ((before, old), (after, new)) = (fair(&rows), fair(&heavier));
        prop_assert!(before <= after);
        let index = old.by_name[&format!("q{at}")];
        let mut above = old.queues[index].parent;
        while let Some(queue) = above {
            prop_assert_eq!(old.queues[queue].fair[0], new.queues[queue].fair[0], "its siblings pay for it, nobody above");
            above = old.queues[queue].parent;
        }
    }
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
