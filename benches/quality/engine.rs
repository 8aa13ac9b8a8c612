//! The engine on an instance.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use berth_engine::check;
use berth_engine::facts::{
    ConstraintFacts, Event, GangFacts, LevelFacts, NodeFacts, ObjectKey, PodFacts, PodPhase, ShapeFacts, SubgroupFacts, TopologyFacts,
};
use berth_engine::outcome::{GangState, QualityStatus};
use berth_engine::policy::{Objective, Policy};
use berth_engine::schedule::schedule;
use berth_engine::world::World;

use crate::model::{Gang, Instance, Kind, Places};

/// What the engine said.
pub(crate) struct Answer {
    pub(crate) places: Option<Places>,
    pub(crate) objective: Objective,
    /// Optimal, as far as the answer speaks.
    pub(crate) proven: bool,
    /// In every line of the order.
    pub(crate) whole_order: bool,
    /// Lower bound on the racks.
    pub(crate) bound: u32,
    /// The reason's code when there is no place.
    pub(crate) code: String,
    pub(crate) steps: u64,
    pub(crate) time: Duration,
}

pub(crate) fn solve(instance: &Instance, objective: Objective) -> Answer {
    let policy = Policy { objective, ..Policy::standard() };
    let mut room = instance.free.clone();
    instance.gang.live.iter().for_each(|node| room[*node] += instance.gang.groups[0].gpus);
    let mut world = world(instance.kind, &room);
    submit(&mut world, instance.kind, &instance.gang);
    let before = world.fork();
    let start = Instant::now();
    let outcome = black_box(schedule(&mut world, &policy, 0));
    let time = start.elapsed();
    for findings in [check::decisions_from(&before, &policy, &outcome), check::pass(&world, &policy, &outcome)] {
        assert!(findings.faults.is_empty(), "{:?}", findings.faults);
    }
    let report = world.gang_report("gang").unwrap();
    let quality = report.quality.clone();
    let placed = report.state == GangState::Placed;
    let mut places: Vec<Vec<(String, usize)>> = vec![Vec::new(); instance.gang.groups.len()];
    for placement in outcome.decisions.iter().flat_map(|decision| &decision.placements) {
        let (group, _) = rank(&placement.pod.name);
        places[group].push((placement.pod.name.clone(), placement.node[1..].parse::<usize>().unwrap()));
    }
    let sorted = |mut pods: Vec<(String, usize)>| {
        pods.sort_by_key(|(name, _)| rank(name));
        pods.into_iter().map(|(_, node)| node).collect()
    };
    let bound = quality.as_ref().and_then(|quality| quality.levels.last()).map_or(0, |level| level.lower_bound);
    Answer {
        places: placed.then(|| places.into_iter().map(sorted).collect()),
        objective: quality.as_ref().map_or(objective, |quality| quality.objective),
        proven: quality.as_ref().is_some_and(|quality| quality.status == QualityStatus::Optimal),
        whole_order: quality.as_ref().is_some_and(|quality| quality.whole_order),
        bound,
        code: report.reasons.first().map_or_else(String::new, |reason| reason.code_name().to_owned()),
        steps: outcome.steps,
        time,
    }
}

fn rank(name: &str) -> (usize, usize) {
    let mut parts = name.split('-').skip(1).map(|part| part.parse().unwrap());
    (parts.next().unwrap(), parts.next().unwrap())
}

/// A world of nodes with a topology, and one pod of others on each node in use.
pub(crate) fn world(kind: Kind, free: &[u32]) -> World {
    let mut world = World::new();
    let mut send = |event| world.apply(event, 0).unwrap();
    let levels = kind.levels.iter().map(|label| LevelFacts { label: (*label).to_owned(), alias: None }).collect();
    send(Event::TopologyUpsert(TopologyFacts { uid: "t".into(), name: "t".into(), levels, default: true }));
    for (at, left) in free.iter().enumerate() {
        let labels = (1..=kind.depth()).map(|depth| (kind.levels[depth - 1].to_owned(), format!("d{:05}", at / kind.span(depth))));
        send(Event::NodeUpsert(NodeFacts {
            uid: format!("node-{at}"),
            name: format!("n{at:05}"),
            labels: labels.collect(),
            ready: true,
            allocatable: BTreeMap::from([("nvidia.com/gpu".to_owned(), i64::from(kind.gpus)), ("pods".to_owned(), 110)]),
            ..NodeFacts::default()
        }));
        if *left < kind.gpus {
            let mut other = pod("other", None, at, kind.gpus - left);
            (other.ours, other.gang, other.phase) = (false, None, PodPhase::Running);
            other.node = Some(format!("n{at:05}"));
            send(Event::PodUpsert(other));
        }
    }
    send(Event::Synced);
    world
}

pub(crate) fn pod(prefix: &str, group: Option<usize>, index: usize, gpus: u32) -> PodFacts {
    let name = group.map_or_else(|| format!("{prefix}-{index}"), |group| format!("{prefix}-{group}-{index}"));
    PodFacts {
        uid: name.clone(),
        namespace: "ns".into(),
        name,
        ours: true,
        gang: Some("gang".to_owned()),
        subgroup: group.map(|group| format!("s{group}")),
        index: Some(index as u32),
        shape: ShapeFacts { requests: BTreeMap::from([("nvidia.com/gpu".to_owned(), i64::from(gpus))]), ..ShapeFacts::default() },
        ..PodFacts::default()
    }
}

fn submit(world: &mut World, kind: Kind, gang: &Gang) {
    let level = |depth: usize| (depth > 0).then(|| kind.levels[depth - 1].to_owned());
    let constraint = |required: Option<String>, preferred: Option<String>| ConstraintFacts { topology: Some("t".into()), required, preferred };
    let subgroup = |at: usize| {
        let group = &gang.groups[at];
        SubgroupFacts {
            name: format!("s{at}"),
            parent: group.parent.map(|parent| format!("s{parent}")),
            min_member: (group.pods > 0).then(|| (group.pods + gang.live.len()) as u32),
            constraint: group.required.map_or_else(ConstraintFacts::default, |depth| constraint(level(depth), None)),
            ..SubgroupFacts::default()
        }
    };
    let facts = GangFacts {
        uid: "gang".into(),
        key: ObjectKey::new("ns", "gang"),
        queue: "default-queue".into(),
        constraint: constraint(level(gang.required), level(kind.depth())),
        subgroups: (0..gang.groups.len()).map(subgroup).collect(),
        ..GangFacts::default()
    };
    world.apply(Event::GangUpsert(facts), 0).unwrap();
    for (at, group) in gang.groups.iter().enumerate() {
        for index in 0..group.pods {
            world.apply(Event::PodUpsert(pod("p", Some(at), index, group.gpus)), 0).unwrap();
        }
    }
    for (index, node) in gang.live.iter().enumerate() {
        let mut facts = pod("p", Some(0), gang.groups[0].pods + index, gang.groups[0].gpus);
        (facts.node, facts.phase) = (Some(format!("n{node:05}")), PodPhase::Running);
        world.apply(Event::PodUpsert(facts), 0).unwrap();
    }
}

/// One pass over `n` nodes' capacity arrays of two columns.
pub(crate) fn streaming_pass(n: usize) -> Duration {
    let free: Vec<i64> = (0..n * 2).map(|at| at as i64).collect();
    let mut times: Vec<Duration> = (0..101)
        .map(|_| {
            let start = Instant::now();
            black_box(black_box(&free).iter().fold(0_i64, |sum, amount| sum.wrapping_add(*amount)));
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[50]
}
