//! A replay of a public trace, `kai` against `compact`: the trace's machines and run times, gangs and racks made up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use berth_engine::facts::{ConstraintFacts, Event, GangFacts, LevelFacts, NodeFacts, ObjectKey, PodFacts, ShapeFacts, TopologyFacts};
use berth_engine::policy::{Objective, Policy};
use berth_engine::schedule::schedule;
use berth_engine::world::World;

use crate::model::Rng;

/// Where the part of the page about the replay begins.
const MARK: &str = "\n## Replay of a trace\n";
/// Machines of a rack, and racks of a block.
const RACK: usize = 16;
const BLOCK: usize = 8;
/// Pods of a gang, with how many of a hundred gangs have so many.
const SIZES: [(usize, usize); 5] = [(1, 40), (4, 25), (8, 15), (16, 12), (32, 8)];
const GANGS: usize = 2_000;
/// Work offered, in per cent of the GPUs, while gangs arrive.
const OFFERED: u64 = 95;

/// A new board with the replay that the page had.
pub(crate) fn keep(board: &str, page: &str) -> String {
    let kept = page.find(MARK).map_or("", |at| &page[at..]);
    format!("{board}{kept}")
}

struct Machine {
    cpu: i64,
    memory: i64,
    gpus: i64,
}

struct Job {
    arrives: u64,
    runs: u64,
    pods: usize,
    cpu: i64,
    memory: i64,
    gpus: i64,
}

/// Values of named columns, row by row.
fn columns(path: &Path, names: &[&str]) -> Vec<Vec<i64>> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap_or_default();
    let at: Vec<usize> = names.iter().map(|name| head.iter().position(|column| column == name).unwrap()).collect();
    lines.map(|row| at.iter().map(|at| row[*at].parse().unwrap_or(0)).collect()).collect()
}

fn machines(folder: &Path) -> Vec<Machine> {
    let rows = columns(&folder.join("nodes.csv"), &["cpu_milli", "memory_mib", "gpu"]);
    rows.into_iter().map(|row| Machine { cpu: row[0], memory: row[1] << 20, gpus: row[2] }).collect()
}

/// Every gang takes the requests and the run time of one task of the trace for each of its pods; machines of 8 GPUs hold
/// eight of its pods at the most. They arrive evenly, so fast that the work offered is `OFFERED`.
fn jobs(folder: &Path, all_gpus: u64) -> Vec<Job> {
    let rows = columns(&folder.join("pods-default.csv"), &["cpu_milli", "memory_mib", "num_gpu", "creation_time", "deletion_time"]);
    let tasks: Vec<Vec<i64>> = rows.into_iter().filter(|row| row[2] > 0 && row[4] > row[3]).collect();
    let mut rng = Rng::new(2023);
    let mut jobs: Vec<Job> = (0..GANGS)
        .map(|_| {
            let task = &tasks[rng.below(tasks.len())];
            let mut share = rng.below(100);
            let size = SIZES.iter().find(|(_, of)| share < *of || { share -= of; false }).map_or(1, |(size, _)| *size);
            // Tasks of years would outlast the replay.
            let runs = (task[4] - task[3]).clamp(60, 7_200) as u64 * 1000;
            let gpus = if rng.below(3) == 0 { 8 } else { task[2] };
            Job { arrives: 0, runs, pods: size, cpu: task[0].min(8_000 * gpus), memory: task[1] << 20, gpus }
        })
        .collect();
    let work: u64 = jobs.iter().map(|job| job.runs * job.pods as u64 * job.gpus as u64).sum();
    let span = work * 100 / (all_gpus * OFFERED);
    for (at, job) in jobs.iter_mut().enumerate() {
        job.arrives = span * at as u64 / GANGS as u64;
    }
    jobs
}

fn cluster(machines: &[Machine]) -> World {
    let mut world = World::new();
    let mut send = |event| world.apply(event, 0).unwrap();
    let levels = ["block", "rack"].map(|label| LevelFacts { label: label.to_owned(), alias: None }).into();
    send(Event::TopologyUpsert(TopologyFacts { uid: "t".into(), name: "t".into(), levels, default: true }));
    for (at, machine) in machines.iter().enumerate() {
        let labels = [("block", at / RACK / BLOCK), ("rack", at / RACK)].map(|(label, value)| (label.to_owned(), format!("{label}-{value:03}")));
        let amounts = [("nvidia.com/gpu", machine.gpus), ("cpu", machine.cpu), ("memory", machine.memory), ("pods", 110)];
        send(Event::NodeUpsert(NodeFacts {
            uid: format!("node-{at}"),
            name: name_of(at),
            labels: labels.into(),
            ready: true,
            allocatable: amounts.map(|(name, amount)| (name.to_owned(), amount)).into(),
            ..NodeFacts::default()
        }));
    }
    send(Event::Synced);
    world
}

fn name_of(at: usize) -> String {
    format!("n{at:05}")
}

fn submit(world: &mut World, at: usize, job: &Job, now: u64) {
    let gang = format!("g{at:05}");
    let constraint = ConstraintFacts { topology: Some("t".into()), required: None, preferred: Some("rack".into()) };
    let facts = GangFacts {
        uid: gang.clone(),
        key: ObjectKey::new("ns", gang.as_str()),
        queue: "default-queue".into(),
        min_member: Some(job.pods as u32),
        created: job.arrives as i64,
        constraint,
        ..GangFacts::default()
    };
    world.apply(Event::GangUpsert(facts), now as i64).unwrap();
    let requests = [("nvidia.com/gpu", job.gpus), ("cpu", job.cpu), ("memory", job.memory)];
    for index in 0..job.pods {
        let name = format!("{gang}-{index:03}");
        let pod = PodFacts {
            uid: name.clone(),
            namespace: "ns".into(),
            name,
            ours: true,
            gang: Some(gang.clone()),
            index: Some(index as u32),
            shape: ShapeFacts { requests: requests.map(|(name, amount)| (name.to_owned(), amount)).into(), ..ShapeFacts::default() },
            ..PodFacts::default()
        };
        world.apply(Event::PodUpsert(pod), now as i64).unwrap();
    }
}

/// What came of one objective.
#[derive(Default)]
struct Outcome {
    /// GPUs used and free over time, while gangs arrive.
    used: u128,
    offered: u128,
    /// Free GPUs while some gang waited.
    stranded: u128,
    /// Waits by number of pods.
    waits: BTreeMap<usize, Vec<u64>>,
    racks: u64,
    hops: u64,
    gangs_of_many: u64,
    /// The most pods of 8 GPUs that one rack would take, over time.
    largest: u128,
    time: u128,
}

fn play(machines: &[Machine], jobs: &[Job], objective: Objective) -> Outcome {
    let policy = Policy { objective, verdict_age_millis: i64::MAX, ..Policy::standard() };
    let mut world = cluster(machines);
    let mut free: Vec<i64> = machines.iter().map(|machine| machine.gpus).collect();
    let all: i64 = free.iter().sum();
    let mut out = Outcome::default();
    let mut ends: BTreeSet<(u64, usize)> = BTreeSet::new();
    let mut homes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let (mut next, mut now, mut waiting) = (0, 0, 0_usize);
    let last = jobs.last().map_or(0, |job| job.arrives);
    while next < jobs.len() || !ends.is_empty() {
        let moment = jobs.get(next).map(|job| job.arrives).into_iter().chain(ends.first().map(|end| end.0)).min().unwrap_or(now);
        // The first tenth fills the cluster.
        let counted = u128::from(moment.min(last).saturating_sub(now.max(last / 10)));
        let left: i64 = free.iter().sum();
        out.used += counted * (all - left) as u128;
        out.offered += counted * all as u128;
        out.stranded += if waiting > 0 { counted * left as u128 } else { 0 };
        out.largest += counted * free.chunks(RACK).map(|rack| rack.iter().map(|free| free / 8).sum::<i64>()).max().unwrap_or(0) as u128;
        out.time += counted;
        now = moment;
        while ends.first().is_some_and(|end| end.0 == now) {
            let Some((_, at)) = ends.pop_first() else { break };
            for (index, node) in homes.remove(&at).unwrap_or_default().into_iter().enumerate() {
                free[node] += jobs[at].gpus;
                world.apply(Event::PodDelete(format!("g{at:05}-{index:03}")), now as i64).unwrap();
            }
            world.apply(Event::GangDelete(format!("g{at:05}")), now as i64).unwrap();
        }
        while jobs.get(next).is_some_and(|job| job.arrives == now) {
            submit(&mut world, next, &jobs[next], now);
            waiting += 1;
            next += 1;
        }
        for decision in schedule(&mut world, &policy, now as i64).decisions {
            let at: usize = decision.gang_uid[1..].parse().unwrap();
            let mut nodes: Vec<(String, usize)> =
                decision.placements.iter().map(|placement| (placement.pod_uid.clone(), placement.node[1..].parse().unwrap())).collect();
            nodes.sort_unstable();
            let nodes: Vec<usize> = nodes.into_iter().map(|(_, node)| node).collect();
            nodes.iter().for_each(|node| free[*node] -= jobs[at].gpus);
            out.count(&jobs[at], &nodes, now);
            ends.insert((now + jobs[at].runs, at));
            homes.insert(at, nodes);
            waiting -= 1;
        }
    }
    assert_eq!(waiting, 0, "every gang fits an empty cluster");
    out
}

impl Outcome {
    fn count(&mut self, job: &Job, nodes: &[usize], now: u64) {
        self.waits.entry(job.pods).or_default().push(now - job.arrives);
        if job.pods > 1 {
            let racks: BTreeSet<usize> = nodes.iter().map(|node| node / RACK).collect();
            self.racks += racks.len() as u64;
            self.gangs_of_many += 1;
            let links = |a: usize, b: usize| if a == b { 0 } else if a / RACK == b / RACK { 2 } else if a / RACK / BLOCK == b / RACK / BLOCK { 4 } else { 6 };
            let sum: u64 = nodes.iter().enumerate().flat_map(|(at, a)| nodes[at + 1..].iter().map(move |b| links(*a, *b))).sum();
            self.hops += sum * 1000 / (nodes.len() * (nodes.len() - 1) / 2) as u64;
        }
    }
}

/// Plays the trace in a folder with `nodes.csv` and `pods-default.csv`, and writes what came of it into the page.
pub(crate) fn run(folder: &Path, docs: &Path) {
    let machines = machines(folder);
    let all: i64 = machines.iter().map(|machine| machine.gpus).sum();
    let jobs = jobs(folder, all as u64);
    let [kai, compact] = [Objective::Kai, Objective::Compact].map(|objective| play(&machines, &jobs, objective));
    let mut out = format!("{MARK}{INTRO}| figure | `kai` | `compact` |\n|---|--:|--:|\n");
    let mut line = |name: &str, value: &dyn Fn(&Outcome) -> f64| {
        let _ = writeln!(out, "| {name} | {:.2} | {:.2} |", value(&kai), value(&compact));
    };
    line("GPUs in use while gangs arrive, %", &|out| out.used as f64 * 100.0 / out.offered as f64);
    line("free GPU-hours while a gang waits", &|out| out.stranded as f64 / 3.6e6);
    line("most pods of 8 GPUs that fit a rack, mean", &|out| out.largest as f64 / out.time as f64);
    line("racks of a gang, mean", &|out| out.racks as f64 / out.gangs_of_many as f64);
    line("links between two pods of a gang, mean", &|out| out.hops as f64 / 1e3 / out.gangs_of_many as f64);
    for (size, _) in SIZES {
        let seconds = |out: &Outcome, share: usize| {
            let mut waits = out.waits.get(&size).cloned().unwrap_or_default();
            waits.sort_unstable();
            waits.get(waits.len() * share / 100).copied().unwrap_or(0) as f64 / 1e3
        };
        let mean = |out: &Outcome| out.waits.get(&size).map_or(0.0, |waits| waits.iter().sum::<u64>() as f64 / 1e3 / waits.len() as f64);
        line(&format!("wait of gangs of {size}, mean, s"), &mean);
        line(&format!("wait of gangs of {size}, 95 of 100, s"), &|out| seconds(out, 95));
    }
    let waits = |out: &Outcome| out.waits.values().flatten().sum::<u64>();
    let named = |kai_wins: bool| if kai_wins { "`kai`" } else { "`compact`" };
    let _ = writeln!(
        out,
        "\nOf the two {} keeps more of the GPUs in use, with {} gangs wait less in all, and {} touches fewer racks.",
        named(kai.used >= compact.used), named(waits(&kai) <= waits(&compact)), named(kai.racks <= compact.racks),
    );
    let file = docs.join("quality.md");
    let page = std::fs::read_to_string(&file).unwrap_or_default();
    let board = page.find(MARK).map_or(page.as_str(), |at| &page[..at]);
    std::fs::write(&file, format!("{board}{out}")).unwrap();
    println!("{out}");
}

/// Kept in step with the constants above.
const INTRO: &str = "
`make replay TRACE=<folder>`: the 1 213 GPU machines and the tasks of the public Alibaba trace cluster-trace-gpu-v2023 (\"Beware of
Fragmentation\", USENIX ATC 2023), which is read and not part of this repository. The trace has no network and no gangs, so both are made
up: racks of 16 machines in the order of the list, blocks of 8 racks; 2 000 gangs of 1, 4, 8, 16 or 32 pods (40, 25, 15, 12 and 8 of a
hundred), whose pods ask for what a task of the trace asked for, parts of a GPU rounded up, one in three for 8 GPUs, and run as long, a
minute at least and two hours at the most. They prefer a rack, and arrive evenly, so fast that they would use 95 % of the GPUs. The first
tenth is not counted.

";
