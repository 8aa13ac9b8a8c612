//! Changes that a person thinks of, and what they would do to everybody.

use std::collections::BTreeMap;

use crate::facts::{ConstraintFacts, Event, GangFacts, Millis, NodeFacts, PodFacts, PodPhase};
use crate::outcome::GangReport;
use crate::policy::Policy;
use crate::schedule::schedule;
use crate::world::World;

/// A change to the cluster. Gangs are meant by UID, nodes by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// So many nodes like this one are added, free and in order.
    AddNodes(u32, String),
    /// The gang and its pods are gone.
    End(String),
    /// The gang has no required level any more, nor have its subgroups.
    DropConstraint(String),
    /// These nodes take no new pods, and their pods are made anew elsewhere.
    Drain(Vec<String>),
    /// These nodes take pods again.
    Uncordon(Vec<String>),
    /// The gang's minimum is so many pods.
    Minimum(String, u32),
    /// The gang is in another queue.
    Queue(String, String),
}

/// A change speaks of something that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(pub String);

impl std::fmt::Display for Unknown {
    fn fmt(&self, text: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(text, "there is no {}", self.0)
    }
}

impl std::error::Error for Unknown {}

/// What became of a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// As it was.
    pub before: GangReport,
    /// As it would be; `None` when it is gone.
    pub after: Option<GangReport>,
    /// Nodes that its pods leave, and those that they go to.
    pub moved: Vec<(String, String)>,
}

/// What changes would do, after one pass: every gang that they touch, by namespace and name.
///
/// # Errors
/// A gang or node that is not known.
pub fn effects(world: &World, policy: &Policy, now: Millis, changes: &[Change]) -> Result<Vec<Effect>, Unknown> {
    let mut after = world.fork();
    for change in changes {
        for event in events(&after, change)? {
            // Facts that were accepted once are so again.
            after.apply(event, now).map_err(|rejected| Unknown(rejected.message))?;
        }
    }
    schedule(&mut after, policy, now);
    let reports = world.gang_reports().into_iter();
    Ok(reports.filter_map(|before| effect(world, &after, before)).collect())
}

fn effect(world: &World, changed: &World, before: GangReport) -> Option<Effect> {
    let after = changed.gang_report(&before.uid).filter(|after| after.pods > 0 || before.pods == 0);
    let places = |world: &World| -> BTreeMap<String, String> {
        world.ranks(&before.uid).into_iter().filter_map(|rank| Some((rank.pod.name, rank.node?))).collect()
    };
    let (old, new) = (places(world), places(changed));
    let moved: Vec<(String, String)> = old
        .into_iter()
        .filter_map(|(pod, node)| {
            let to = new.get(&pod).cloned().unwrap_or_default();
            (to != node).then_some((node, to))
        })
        .collect();
    let same = after.as_ref().is_some_and(|after| after.state == before.state && after.bound == before.bound);
    (!same || !moved.is_empty()).then_some(Effect { before, after, moved })
}

fn events(world: &World, change: &Change) -> Result<Vec<Event>, Unknown> {
    let gang = |uid: &String| world.gang_by_uid(uid).map(|gang| gang.facts.clone()).ok_or_else(|| Unknown(format!("gang {uid}")));
    Ok(match change {
        Change::AddNodes(count, name) => {
            let model = node(world, name)?;
            let numbers = (0_u32..).filter(|number| !world.node_by_name.contains_key(&format!("{name}-new-{number}")));
            numbers.take(*count as usize).map(|number| Event::NodeUpsert(like(&model, &format!("{name}-new-{number}")))).collect()
        }
        Change::End(uid) => {
            let facts = gang(uid)?;
            world.gang_pods(&facts.key).map(|(_, pod)| Event::PodDelete(pod.facts.uid.clone())).collect()
        }
        Change::DropConstraint(uid) => {
            let mut facts = gang(uid)?;
            let free = |constraint: &mut ConstraintFacts| constraint.required = None;
            free(&mut facts.constraint);
            facts.subgroups.iter_mut().for_each(|sub| free(&mut sub.constraint));
            vec![Event::GangUpsert(facts)]
        }
        Change::Minimum(uid, count) => {
            let facts = gang(uid)?;
            if !facts.subgroups.is_empty() {
                return Err(Unknown(format!("minimum of the whole gang {}: it has subgroups", facts.key.name)));
            }
            vec![Event::GangUpsert(GangFacts { min_member: Some(*count), ..facts })]
        }
        Change::Queue(uid, queue) => vec![Event::GangUpsert(GangFacts { queue: queue.clone(), ..gang(uid)? })],
        Change::Uncordon(names) => {
            let free = |name: &String| {
                let mut facts = node(world, name)?;
                facts.unschedulable = false;
                facts.taints.retain(|taint| taint.key != "node.kubernetes.io/unschedulable");
                Ok(Event::NodeUpsert(facts))
            };
            names.iter().map(free).collect::<Result<_, Unknown>>()?
        }
        Change::Drain(names) => {
            let mut events = Vec::new();
            for name in names {
                events.push(Event::NodeUpsert(NodeFacts { unschedulable: true, ..node(world, name)? }));
                events.extend(emptied(world, name));
            }
            events
        }
    })
}

/// The node's pods are gone; those that this scheduler places are made anew.
fn emptied(world: &World, node: &str) -> Vec<Event> {
    let idx = world.node_by_name.get(node);
    let pods = idx.and_then(|idx| world.nodes[idx.at()].as_ref()).into_iter().flat_map(|node| &node.pods);
    let mut events = Vec::new();
    for pod in pods.filter_map(|idx| world.pods[idx.at()].as_ref()) {
        events.push(Event::PodDelete(pod.facts.uid.clone()));
        if pod.facts.ours {
            let fresh = PodFacts {
                uid: format!("{}-again", pod.facts.uid),
                node: None,
                nominated: None,
                decision: None,
                phase: PodPhase::Pending,
                terminating: false,
                ..pod.facts.clone()
            };
            events.push(Event::PodUpsert(fresh));
        }
    }
    events
}

fn node(world: &World, name: &str) -> Result<NodeFacts, Unknown> {
    let idx = world.node_by_name.get(name).ok_or_else(|| Unknown(format!("node {name}")))?;
    world.nodes[idx.at()].as_ref().map(|node| node.facts.clone()).ok_or_else(|| Unknown(format!("node {name}")))
}

/// A free node in good order like another.
pub(super) fn like(model: &NodeFacts, name: &str) -> NodeFacts {
    let mut facts = NodeFacts { uid: name.to_owned(), name: name.to_owned(), ready: true, unschedulable: false, ..model.clone() };
    facts.taints.retain(|taint| !taint.key.starts_with("node.kubernetes.io/"));
    if let Some(host) = facts.labels.get_mut("kubernetes.io/hostname") {
        name.clone_into(host);
    }
    facts
}
