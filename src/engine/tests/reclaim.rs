//! Reclaiming between queues: who owes what to whom.

use proptest::prelude::*;

use super::fixture::Lab;
use crate::facts::*;
use crate::outcome::*;

fn queue(name: &str, parent: Option<&str>, quota: i64, weight: i64) -> QueueFacts {
    QueueFacts {
        uid: name.into(),
        name: name.into(),
        parent: parent.map(str::to_owned),
        gpu: QueueAmount { quota_millis: Some(quota * 1000), limit_millis: None, weight_millis: weight * 1000 },
        cpu: QueueAmount::UNLIMITED,
        memory: QueueAmount::UNLIMITED,
        ..QueueFacts::default()
    }
}

impl Lab {
    fn in_queue(&mut self, queue: &str, name: &str, nodes: &[&str], pods: u32, gpus: i64) {
        let facts = GangFacts {
            preemptible: true,
            queue: queue.into(),
            ..Lab::gang_facts(name, pods.max(nodes.len() as u32), Lab::constraint("", ""))
        };
        self.send(Event::GangUpsert(facts));
        for index in 0..pods.max(nodes.len() as u32) {
            let pod = Lab::pod_facts(name, None, index, gpus);
            let node = nodes.get(index as usize).map(|node| (*node).to_owned());
            let phase = if node.is_some() { PodPhase::Running } else { PodPhase::Pending };
            self.send(Event::PodUpsert(PodFacts { node, phase, ..pod }));
        }
    }
}

#[test]
fn a_share_comes_back_whichever_gang_is_the_larger() {
    // 8 and 24 GPUs of a; b deserves 16 of 32 and asks for 8: the small gang goes.
    let mut lab = Lab::new("r1: a b c d");
    for facts in [queue("qa", None, 16, 1), queue("qb", None, 16, 1)] {
        lab.send(Event::QueueUpsert(facts));
    }
    lab.in_queue("qa", "large", &["a", "b", "c"], 3, 8);
    lab.in_queue("qa", "small", &["d"], 1, 8);
    lab.in_queue("qb", "asks", &[], 1, 8);
    assert_eq!(lab.hunted(), ["small-0"]);
    // Two together: only both would do, and after the small one the large one still is above the quota.
    let mut lab = Lab::new("r1: a b c d");
    for facts in [queue("qa", None, 16, 1), queue("qb", None, 16, 1)] {
        lab.send(Event::QueueUpsert(facts));
    }
    lab.in_queue("qa", "large", &["a", "b", "c"], 3, 8);
    lab.in_queue("qa", "small", &["d"], 1, 8);
    lab.in_queue("qb", "asks", &[], 2, 8);
    assert_eq!(lab.hunted(), ["large-0", "large-1", "large-2"], "one gang");
}

#[test]
fn a_gang_is_woken_when_others_come_to_owe_it() {
    let mut lab = Lab::new("r1: a b");
    for facts in [queue("qa", None, 8, 1), queue("qb", None, 8, 1)] {
        lab.send(Event::QueueUpsert(facts));
    }
    // Both are on their way: what becomes of them is not known yet.
    lab.in_queue("qa", "a0", &[], 1, 8);
    lab.in_queue("qa", "a1", &[], 1, 8);
    assert_eq!(lab.pass().decisions.len(), 2);
    lab.in_queue("qb", "b0", &[], 1, 8);
    assert!(lab.hunted().is_empty());
    for pod in ["a0-0", "a1-0"] {
        lab.send(Event::BindEnded(pod.into(), BindResult::Bound));
    }
    assert_eq!(lab.hunted().len(), 1);
}

#[test]
fn sides_are_compared_where_the_ways_part() {
    // Department x holds 24 of 32, and deserves 16. Within it, y has less than z, and still z owes nothing to w of the
    // other department that y does not.
    let mut lab = Lab::new("r1: a b c d");
    let all = [queue("x", None, 16, 1), queue("v", None, 16, 1), queue("y", Some("x"), 8, 1), queue("z", Some("x"), 8, 1), queue("w", Some("v"), 16, 1)];
    for facts in all {
        lab.send(Event::QueueUpsert(facts));
    }
    lab.in_queue("y", "y0", &["a"], 1, 8);
    lab.in_queue("z", "z0", &["b"], 1, 8);
    lab.in_queue("z", "z1", &["c"], 1, 8);
    lab.in_queue("w", "w0", &["d"], 1, 8);
    lab.in_queue("w", "w1", &[], 1, 8);
    assert_eq!(lab.hunted(), ["z0-0"], "y has what it deserves");
    lab.gone(&["z0-0"]);
    lab.pass();
    // Now x is at its quota: no more.
    lab.in_queue("w", "w2", &[], 1, 8);
    assert!(lab.hunted().is_empty());
}

/// By brute force over sets of gangs of one queue: whether the asked GPUs can be had by the rules, and with how few gangs.
fn fewest(sizes: &[i64], asked: i64, quotas: [i64; 2], total: i64) -> Option<u32> {
    let held: i64 = sizes.iter().sum();
    let free = total - held;
    // Shares of two queues of equal weight, both of which ask for what they have and the new gang.
    let share = |own: i64, other: i64, wants: i64, theirs: i64| {
        let (own, other) = (own.min(wants), other.min(theirs));
        let rest = (total - own - other).max(0);
        let (more, less) = (wants - own, theirs - other);
        // The half, or what the other leaves.
        own + more.min((rest / 2).max(rest - less))
    };
    let fair_b = share(quotas[1], quotas[0], asked, held);
    let fair_a = share(quotas[0], quotas[1], held, asked);
    if asked > fair_b {
        return None;
    }
    let right = fair_a.max(quotas[0]);
    let fits = |mask: u32| {
        let gone: Vec<i64> = sizes.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1).map(|(_, size)| *size).collect();
        let sum: i64 = gone.iter().sum();
        let last = gone.iter().max().copied().unwrap_or(0);
        let before = held - (sum - last);
        let owes = gone.is_empty() || before > right || (asked <= quotas[1] && before > quotas[0]);
        owes && asked <= free + sum
    };
    (0..1_u32 << sizes.len()).filter(|mask| fits(*mask)).map(u32::count_ones).min()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Found whenever brute force finds it, and with as few gangs; nobody at its quota or below loses anything.
    #[test]
    fn found_by_the_rules_at_the_cost_of_brute_force(
        sizes in prop::collection::vec(1_usize..4, 1..5),
        asked in 1_i64..5,
        quotas in (0_i64..5, 0_i64..5),
    ) {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        let mut lab = Lab::new("r1: a=1 b=1 c=1 d=1 e=1 f=1; r2: g=1 h=1 i=1 j=1 k=1 l=1");
        for facts in [queue("qa", None, quotas.0, 1), queue("qb", None, quotas.1, 1)] {
            lab.send(Event::QueueUpsert(facts));
        }
        let mut next = 0;
        for (at, size) in sizes.iter().enumerate() {
            lab.in_queue("qa", &format!("low{at}"), &names[next..next + size], *size as u32, 1);
            next += size;
        }
        // What is left is cordoned off by others, so that the queues divide what they hold.
        for node in &names[next..] {
            lab.busy(node, 1);
        }
        lab.in_queue("qb", "asks", &[], asked as u32, 1);
        let outcome = lab.pass();
        let sizes: Vec<i64> = sizes.iter().map(|size| *size as i64).collect();
        let total = sizes.iter().sum();
        let best = fewest(&sizes, asked, [quotas.0, quotas.1], total);
        prop_assert_eq!(outcome.evictions.len() as u32, best.unwrap_or(0), "{:?}", outcome.evictions);
        let lost: Vec<i64> = outcome.evictions.iter().map(|eviction| eviction.pods.len() as i64).collect();
        let before_last = total - lost.iter().sum::<i64>() + lost.iter().max().copied().unwrap_or(0);
        prop_assert!(lost.is_empty() || before_last > quotas.0);
    }

    /// Two queues that go on asking: nobody is evicted twice, and it comes to rest.
    #[test]
    fn it_comes_to_rest(sizes in prop::collection::vec((0_usize..2, 1_u32..4), 1..12), quotas in (0_i64..7, 0_i64..7)) {
        let mut lab = Lab::new("r1: a=1 b=1 c=1; r2: d=1 e=1 f=1");
        for facts in [queue("q0", None, quotas.0, 1), queue("q1", None, quotas.1, 1)] {
            lab.send(Event::QueueUpsert(facts));
        }
        let mut generation = std::collections::BTreeMap::new();
        let mut evictions = 0;
        for (at, (of, pods)) in sizes.iter().enumerate() {
            lab.now += 1_000;
            lab.in_queue(&format!("q{of}"), &format!("g{at}"), &[], *pods, 1);
            for round in 0.. {
                prop_assert!(round < 50, "no rest");
                let outcome = lab.pass();
                for placement in outcome.decisions.iter().flat_map(|decision| &decision.placements) {
                    lab.send(Event::BindEnded(placement.pod_uid.clone(), BindResult::Bound));
                }
                let victims: Vec<Victim> = outcome.evictions.iter().flat_map(|eviction| eviction.pods.clone()).collect();
                evictions += victims.len();
                for victim in &victims {
                    let facts = lab.world.pods.iter().flatten().find(|pod| pod.facts.uid == victim.pod_uid).unwrap().facts.clone();
                    lab.send(Event::PodDelete(victim.pod_uid.clone()));
                    // Its controller makes another.
                    let count: &mut u32 = generation.entry(facts.name.clone()).or_default();
                    *count += 1;
                    let uid = format!("{}-again{count}", facts.name);
                    lab.send(Event::PodUpsert(PodFacts { uid, node: None, phase: PodPhase::Pending, ..facts }));
                }
                if outcome.decisions.is_empty() && victims.is_empty() {
                    break;
                }
            }
        }
        prop_assert!(evictions <= 6 * sizes.len(), "{evictions}");
    }
}
