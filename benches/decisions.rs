//! Decisions per second and memory, in process; printed, never asserted.
//!
//! Every time is also given as a multiple of one streaming pass over the
//! capacity arrays of the same cluster, measured in the same run.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints, and stops on a bug")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use berth_engine::facts::{
    ConstraintFacts, Event, GangFacts, LabelSelector, LevelFacts, NodeFacts, ObjectKey, PodFacts,
    PodPhase, PodTerm, QueueAmount, QueueFacts, ShapeFacts, TopologyFacts,
};
use berth_engine::policy::Policy;
use berth_engine::schedule::schedule;
use berth_engine::world::World;

const RUNS: usize = 5;

fn cluster(levels: &[&str], shape: &[usize]) -> World {
    let mut world = World::new();
    let mut send = |event| world.apply(event, 0).unwrap();
    send(Event::TopologyUpsert(TopologyFacts {
        uid: "t".into(),
        name: "t".into(),
        levels: levels
            .iter()
            .map(|label| LevelFacts { label: (*label).to_owned(), alias: None })
            .collect(),
        default: true,
    }));
    let n_nodes: usize = shape.iter().product();
    for n in 0..n_nodes {
        let mut labels = BTreeMap::new();
        let mut below: usize = n_nodes;
        for (level, width) in levels.iter().zip(shape) {
            below /= width;
            labels.insert((*level).to_owned(), format!("{level}-{:05}", n / below));
        }
        send(Event::NodeUpsert(NodeFacts {
            uid: format!("node-{n}"),
            name: format!("n{n:05}"),
            labels,
            ready: true,
            allocatable: [("nvidia.com/gpu", 8), ("cpu", 128_000), ("memory", 1 << 40), ("pods", 110)]
                .map(|(name, amount)| (name.to_owned(), amount))
                .into(),
            ..NodeFacts::default()
        }));
    }
    send(Event::Synced);
    world
}

fn pod(gang: &str, n: usize, gpus: i64) -> PodFacts {
    PodFacts {
        uid: format!("{gang}-{n}"),
        namespace: "ns".into(),
        name: format!("{gang}-{n}"),
        ours: true,
        gang: Some(gang.to_owned()),
        index: Some(n as u32),
        shape: ShapeFacts {
            requests: [("nvidia.com/gpu".to_owned(), gpus), ("cpu".to_owned(), 1000)].into(),
            ..ShapeFacts::default()
        },
        ..PodFacts::default()
    }
}

fn submit(world: &mut World, name: &str, pods: usize, gpus: i64, required: Option<&str>, preferred: Option<&str>) {
    submit_to(world, "default-queue", name, pods, gpus, required, preferred);
}

fn submit_to(
    world: &mut World,
    queue: &str,
    name: &str,
    pods: usize,
    gpus: i64,
    required: Option<&str>,
    preferred: Option<&str>,
) {
    let facts = GangFacts {
        uid: format!("gang-{name}"),
        key: ObjectKey::new("ns", name),
        queue: queue.to_owned(),
        preemptible: true,
        min_member: Some(pods as u32),
        constraint: ConstraintFacts {
            topology: None,
            required: required.map(str::to_owned),
            preferred: preferred.map(str::to_owned),
        },
        ..GangFacts::default()
    };
    world.apply(Event::GangUpsert(facts), 0).unwrap();
    for n in 0..pods {
        world.apply(Event::PodUpsert(pod(name, n, gpus)), 0).unwrap();
    }
}

fn queue(name: String, parent: Option<String>) -> QueueFacts {
    QueueFacts {
        uid: format!("queue-{name}"),
        name,
        parent,
        priority: 100,
        created: 0,
        gpu: QueueAmount { quota_millis: Some(1_000_000), limit_millis: None, weight_millis: 1000 },
        cpu: QueueAmount::UNLIMITED,
        memory: QueueAmount::UNLIMITED,
        ..QueueFacts::default()
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// One pass over `n` nodes' capacity arrays of four columns.
fn streaming_pass(n: usize) -> Duration {
    let free: Vec<i64> = (0..n * 4).map(|at| at as i64).collect();
    let times = (0..101)
        .map(|_| {
            let start = Instant::now();
            black_box(black_box(&free).iter().fold(0_i64, |sum, amount| sum.wrapping_add(*amount)));
            start.elapsed()
        })
        .collect();
    median(times)
}

fn measure(name: &str, nodes: usize, prepare: impl Fn() -> World) {
    let mut times = Vec::new();
    let mut pods = 0;
    for _ in 0..RUNS {
        let mut world = prepare();
        let start = Instant::now();
        let outcome = schedule(&mut world, &Policy::standard(), 0);
        times.push(start.elapsed());
        pods = outcome.decisions.iter().map(|decision| decision.placements.len()).sum();
    }
    let time = median(times);
    let pass = streaming_pass(nodes);
    println!(
        "{name}: {pods} pods in {:.2} ms, {:.0} pods/s, {:.0} streaming passes",
        time.as_secs_f64() * 1e3,
        pods as f64 / time.as_secs_f64(),
        time.as_secs_f64() / pass.as_secs_f64().max(1e-9),
    );
}

/// One more pod while 5 000 gangs of unlike sizes wait: with wake-ups, and with every gang tried again.
fn waiting_gangs() {
    let mut world = cluster(&["rack"], &[50, 100]);
    for n in 0..5000 {
        submit(&mut world, &format!("w{n:04}"), 101 + n % 50, 8, Some("rack"), None);
    }
    for (name, age) in [("gangs woken by need", i64::MAX), ("all gangs tried again", 0)] {
        let policy = Policy { verdict_age_millis: age, ..Policy::standard() };
        schedule(&mut world, &policy, 0);
        let mut times = Vec::new();
        for n in 0..RUNS {
            let mut facts = pod("single", n, 0);
            facts.uid = format!("{name}-{n}");
            world.apply(Event::PodUpsert(facts), 0).unwrap();
            let start = Instant::now();
            black_box(schedule(&mut world, &policy, 0));
            times.push(start.elapsed());
        }
        println!("one pod arrives while 5 000 gangs wait, {name}: {:.3} ms", median(times).as_secs_f64() * 1e3);
    }
}

/// Queues `a` and `b` that deserve so many GPUs, and a cluster full of `a`'s single-GPU work.
fn taken(racks: usize, nodes: usize, quotas: [i64; 2]) -> World {
    let mut world = cluster(&["rack"], &[racks, nodes]);
    for (name, quota) in ["a", "b"].into_iter().zip(quotas) {
        let gpu = QueueAmount { quota_millis: Some(quota * 1000), limit_millis: None, weight_millis: 1000 };
        world.apply(Event::QueueUpsert(QueueFacts { gpu, ..queue(name.to_owned(), None) }), 0).unwrap();
    }
    for n in 0..racks * nodes * 8 {
        let name = format!("a{n:05}");
        submit_to(&mut world, "a", &name, 1, 1, None, None);
        let running = PodFacts { node: Some(format!("n{:05}", n / 8)), phase: PodPhase::Running, ..pod(&name, 0, 1) };
        world.apply(Event::PodUpsert(running), 0).unwrap();
    }
    world
}

/// Gangs that have others evicted.
fn evictions() {
    let evict = |name: &str, mut world: World| {
        let before = peak_memory_mib();
        let start = Instant::now();
        let outcome = schedule(&mut world, &Policy::standard(), 60_000);
        let time = start.elapsed();
        let victims: usize = outcome.evictions.iter().map(|eviction| eviction.pods.len()).sum();
        let more = peak_memory_mib() - before;
        println!("{name}: {victims} evictions in {:.1} ms, {more} MiB more at the peak", time.as_secs_f64() * 1e3);
    };
    let gang = |pods: usize| {
        let mut world = taken(50, 20, [4000, 4000]);
        submit_to(&mut world, "b", "gang", pods, 8, Some("rack"), None);
        world
    };
    evict("reclaim a required rack of 160 GPUs, 1 000 nodes full of single-GPU work", gang(20));
    evict("the same for a gang that no rack can hold", gang(21));
    let mut world = taken(25, 20, [0, 4000]);
    for n in 0..4000 {
        submit_to(&mut world, "b", &format!("b{n:05}"), 1, 1, None, None);
    }
    evict("4 000 single-GPU reclaims, 500 nodes", world);
}

fn peak_memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// One gang of one pod; `kind` tells shapes apart.
fn single(world: &mut World, name: &str, kind: usize, apart: bool) {
    let facts = GangFacts {
        uid: format!("gang-{name}"),
        key: ObjectKey::new("ns", name),
        queue: "default-queue".into(),
        min_member: Some(1),
        ..GangFacts::default()
    };
    world.apply(Event::GangUpsert(facts), 0).unwrap();
    let mut facts = pod(name, 0, 0);
    facts.shape.requests.insert("memory".into(), 1 << (10 + kind % 20));
    facts.shape.requests.insert("cpu".into(), 1000 + (kind / 20) as i64);
    facts.labels.insert("app".into(), format!("app-{kind}"));
    if apart {
        let requirement = berth_engine::facts::LabelRequirement {
            key: "app".into(),
            operator: berth_engine::facts::SelectorOperator::In,
            values: vec![format!("app-{kind}")],
        };
        facts.shape.pod_anti_affinity.push(PodTerm {
            selector: Some(LabelSelector { requirements: vec![requirement] }),
            namespaces: ["ns".to_owned()].into(),
            namespace_selector: None,
            topology_key: "host".into(),
        });
    }
    world.apply(Event::PodUpsert(facts), 0).unwrap();
}

/// The rules that decide where a pod fits, as multiples of one streaming pass.
fn rules(apart: bool) {
    let said = if apart { "with anti-affinity by host" } else { "without rules between pods" };
    let times = |time: Duration| time.as_secs_f64() / streaming_pass(5000).as_secs_f64().max(1e-9);
    let mut world = cluster(&["rack", "host"], &[50, 100]);
    single(&mut world, "warm", 1000, apart);
    black_box(schedule(&mut world, &Policy::standard(), 0));
    let (mut new_shape, mut node_change) = (Vec::new(), Vec::new());
    for n in 0..RUNS {
        single(&mut world, &format!("new-{n}"), n, apart);
        let start = Instant::now();
        black_box(schedule(&mut world, &Policy::standard(), 0));
        new_shape.push(start.elapsed());
        let mut busy = pod(&format!("busy-{n}"), 0, 1);
        (busy.ours, busy.gang, busy.node) = (false, None, Some("n00007".into()));
        single(&mut world, &format!("again-{n}"), n, apart);
        let start = Instant::now();
        world.apply(Event::PodUpsert(busy), 0).unwrap();
        black_box(schedule(&mut world, &Policy::standard(), 0));
        node_change.push(start.elapsed());
    }
    println!("5 000 nodes, {said}: one pod of a new shape {:.0} streaming passes", times(median(new_shape)));
    println!("5 000 nodes, {said}: one node changed and one pod of a known shape {:.0} streaming passes", times(median(node_change)));
    let mut world = cluster(&["rack", "host"], &[50, 100]);
    for n in 0..10_000 {
        single(&mut world, &format!("p{n:05}"), n % 50, apart);
    }
    let start = Instant::now();
    let outcome = schedule(&mut world, &Policy::standard(), 0);
    let time = start.elapsed();
    println!(
        "10 000 single pods of 50 shapes, 5 000 nodes, {said}: {} placed in {:.0} ms, {:.0} streaming passes",
        outcome.decisions.len(),
        time.as_secs_f64() * 1e3,
        times(time)
    );
}

/// 5 000 nodes in 50 racks with 100 000 running pods.
fn full() -> World {
    let mut world = cluster(&["rack"], &[50, 100]);
    for n in 0..100_000 {
        let mut facts = pod(&format!("r{}", n / 4), n, 0);
        facts.node = Some(format!("n{:05}", n % 5000));
        facts.phase = PodPhase::Running;
        world.apply(Event::PodUpsert(facts), 0).unwrap();
    }
    world
}

/// What the engine thread spends on one copy for those who ask, the end of the one before included.
fn copies() {
    let mut world = full();
    submit(&mut world, "one", 4, 8, Some("rack"), None);
    schedule(&mut world, &Policy::standard(), 0);
    let mut copy = world.fork();
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            drop(std::mem::take(&mut copy));
            copy = black_box(world.fork());
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("a copy of the model, 5 000 nodes and 100 000 running pods: {:.1} ms", times[RUNS / 2].as_secs_f64() * 1e3);
}

fn main() {
    if std::env::args().any(|arg| arg == "copies") {
        copies();
        return;
    }
    if std::env::args().any(|arg| arg == "rules") {
        rules(false);
        rules(true);
        return;
    }
    if std::env::args().any(|arg| arg == "evictions") {
        evictions();
        return;
    }
    measure("1 000 gangs of 4, required rack, 5 000 nodes in 50 racks", 5000, || {
        let mut world = cluster(&["rack"], &[50, 100]);
        for n in 0..1000 {
            submit(&mut world, &format!("g{n:04}"), 4, 8, Some("rack"), None);
        }
        world
    });
    measure("the same of 20 queues in 4 departments", 5000, || {
        let mut world = cluster(&["rack"], &[50, 100]);
        for n in 0..24 {
            let (name, parent) = if n < 4 { (format!("d{n}"), None) } else { (format!("q{}", n - 4), Some(format!("d{}", n % 4))) };
            world.apply(Event::QueueUpsert(queue(name, parent)), 0).unwrap();
        }
        for n in 0..1000 {
            submit_to(&mut world, &format!("q{}", n % 20), &format!("g{n:04}"), 4, 8, Some("rack"), None);
        }
        world
    });
    measure("one gang of 512, preferred rack, 512 nodes in 4 x 8 x 8 x 2", 512, || {
        let mut world = cluster(&["zone", "block", "rack"], &[4, 8, 8, 2]);
        submit(&mut world, "g", 512, 8, None, Some("rack"));
        world
    });
    measure("one gang of 4 096 GPUs, 5 004 nodes in 278 racks of 18", 5004, || {
        let mut world = cluster(&["rack"], &[278, 18]);
        submit(&mut world, "g", 4096, 1, None, Some("rack"));
        world
    });
    // The peak is that of the process: whatever needs more memory comes later.
    let mut world = full();
    submit(&mut world, "one", 4, 8, Some("rack"), None);
    let start = Instant::now();
    black_box(schedule(&mut world, &Policy::standard(), 0));
    println!(
        "5 000 nodes and 100 000 running pods: peak memory {} MiB, one gang of 4 in {:.2} ms",
        peak_memory_mib(),
        start.elapsed().as_secs_f64() * 1e3
    );
    waiting_gangs();
    copies();
    evictions();
    rules(false);
    rules(true);
}
