//! Who may be evicted for a gang, and what may not be touched.

use std::collections::{BTreeMap, BTreeSet};

use super::fair::Fair;
use crate::facts::Millis;
use crate::fit;
use crate::ids::{GangIdx, NodeIdx, PodIdx, ShapeIdx};
use crate::outcome::Action;
use crate::world::World;
use crate::world::model::{Gang, PlaceState};
use crate::world::shares::Amounts3;

/// For whom, by which right, and when.
pub(crate) struct Rules<'a> {
    /// The gang that needs room.
    pub gang: &'a Gang,
    /// By which right.
    pub action: Action,
    /// How queues stand, where that decides.
    pub fair: Option<&'a Fair>,
    /// What its queue must be given back first: it is at a limit.
    pub owed: Amounts3,
    /// The moment.
    pub now: Millis,
}

/// A pod that may be evicted.
#[derive(Clone, Debug)]
pub(super) struct Quarry {
    pub prey: usize,
    pub node: NodeIdx,
    pub shape: ShapeIdx,
    pub leaf: usize,
    /// When it started.
    pub since: Millis,
    pub created: Millis,
    /// Its GPUs, at least one: what an hour of it is worth.
    pub weight: i64,
    /// What it is charged.
    pub charge: Amounts3,
    /// The budget that protects it.
    pub budget: Option<String>,
}

impl Quarry {
    /// Work that is lost with it: milliseconds, times GPUs.
    pub(super) fn lost(&self, now: Millis) -> i128 {
        i128::from((now - self.since).max(1)) * i128::from(self.weight)
    }
}

/// A gang of which pods may be evicted.
#[derive(Clone, Debug)]
pub(super) struct Prey {
    pub gang: GangIdx,
    pub priority: i32,
    /// Its queue, by number, where queues decide.
    pub queue: usize,
    /// Its queue has no more than it deserves, though a queue above it owes.
    pub within_quota: bool,
    /// Those of its pods that may be evicted.
    pub pods: BTreeSet<PodIdx>,
    /// It may go as a whole.
    pub whole: bool,
    /// Pods above the minimum, by leaf.
    pub spare: Vec<u32>,
}

/// Everybody who may be evicted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Field {
    pub(super) preys: Vec<Prey>,
    pub(super) quarries: BTreeMap<PodIdx, Quarry>,
    pub(super) by_node: BTreeMap<NodeIdx, Vec<PodIdx>>,
    /// What disruption budgets allow.
    pub(super) allowed: BTreeMap<String, u32>,
    /// When more may be evicted than now.
    pub(super) again: Option<Millis>,
    /// Queues of the gangs, by number, where queues decide.
    pub(super) queues: BTreeSet<usize>,
    /// How queues stand, where that decides.
    pub(super) fair: Option<Fair>,
    /// What must be given back for the gang to be within the limits of its queue.
    pub(super) owed: Amounts3,
}

impl Field {
    pub(super) fn on(&self, node: NodeIdx) -> &[PodIdx] {
        self.by_node.get(&node).map_or(&[], Vec::as_slice)
    }
}

/// Preempting: preemptible gangs of a lower priority in the same queue that have had their time. Reclaiming: those of
/// other queues that owe it (KAI's rules).
pub(crate) fn field(world: &World, rules: &Rules<'_>) -> Field {
    let mut field = Field { allowed: world.allowances(), ..Field::default() };
    let mut owing: BTreeMap<&str, bool> = BTreeMap::new();
    for (at, gang) in world.gangs.iter().enumerate() {
        let Some(gang) = gang.as_ref().filter(|gang| gang.facts.preemptible) else { continue };
        let (facts, own) = (&gang.facts, &rules.gang.facts);
        let may_go = match rules.action {
            Action::Preempt => facts.queue == own.queue && facts.priority < own.priority,
            Action::Reclaim => facts.queue != own.queue && *owing.entry(&facts.queue).or_insert_with(|| owes(rules, &facts.queue)),
        };
        if may_go {
            add(world, rules, GangIdx(at as u32), gang, &mut field);
        }
    }
    field
}

/// Whether the queue has more of anything that is asked for than it may keep.
fn owes(rules: &Rules<'_>, queue: &str) -> bool {
    let Some(fair) = rules.fair else { return false };
    let Some(queue) = fair.standings.by_name.get(queue).copied() else { return false };
    fair.allows(&[(queue, [1; 3])])
}

fn add(world: &World, rules: &Rules<'_>, idx: GangIdx, gang: &Gang, field: &mut Field) {
    let on_nodes: Vec<_> = world.gang_pods(&gang.facts.key).filter(|(_, pod)| pod.live() && pod.node.is_some()).collect();
    // Bindings are under way: what becomes of them is not known yet.
    if on_nodes.is_empty() || on_nodes.iter().any(|(_, pod)| pod.place == PlaceState::Assumed) {
        return;
    }
    let since = on_nodes.iter().map(|(_, pod)| pod.facts.started.unwrap_or(pod.facts.created)).min().unwrap_or(0);
    let runtime = match rules.action {
        Action::Preempt => world.preempt_min_runtime(&gang.facts.queue),
        Action::Reclaim => world.reclaim_min_runtime(&gang.facts.queue, &rules.gang.facts.queue),
    };
    let until = since.saturating_add(runtime);
    let has_time_left = rules.now < until;
    if has_time_left {
        field.again = Some(field.again.map_or(until, |again| again.min(until)));
    }
    let placed = world.placed_by_leaf(gang);
    let spare = placed.iter().enumerate().map(|(leaf, n)| gang.subs.get(leaf).filter(|sub| sub.children.is_empty()).map_or(0, |sub| n.saturating_sub(sub.min)));
    let queue = rules.fair.and_then(|fair| fair.standings.by_name.get(&gang.facts.queue)).copied().unwrap_or(0);
    let within_quota = rules.fair.is_some_and(|fair| fair.is_within_quota(queue));
    let mut prey = Prey { gang: idx, queue, within_quota, priority: gang.facts.priority, pods: BTreeSet::new(), whole: !has_time_left, spare: spare.collect() };
    let number = field.preys.len();
    for (pod_idx, pod) in on_nodes {
        let budgets = world.budgets_of(pod);
        let node = pod.node.as_ref().and_then(|node| world.node_by_name.get(node)).copied();
        let leaf = gang.leaf(pod.facts.subgroup.as_deref());
        // The API evicts no pod that two budgets protect.
        let (Some(node), Some(leaf), true) = (node, leaf, budgets.len() <= 1 && !pod.evicting && pod.spared_until <= rules.now) else {
            prey.whole = false;
            continue;
        };
        if budgets.first().is_some_and(|budget| field.allowed.get(*budget) == Some(&0)) {
            prey.whole = false;
            continue;
        }
        let gpus = pod.requests.iter().filter(|(column, _)| fit::is_gpu(&world.columns[*column])).map(|(_, amount)| *amount).sum::<i64>();
        let quarry = Quarry {
            prey: number,
            node,
            shape: pod.shape,
            leaf,
            since: pod.facts.started.unwrap_or(pod.facts.created),
            created: pod.facts.created,
            weight: gpus.max(1),
            charge: world.charge_of(&pod.requests),
            budget: budgets.first().map(|budget| (*budget).to_owned()),
        };
        prey.pods.insert(pod_idx);
        field.quarries.insert(pod_idx, quarry);
    }
    if !prey.whole {
        // Only what is above a minimum can go.
        prey.pods.retain(|pod| prey.spare.get(field.quarries[pod].leaf).is_some_and(|spare| *spare > 0));
        field.quarries.retain(|pod, quarry| quarry.prey != number || prey.pods.contains(pod));
    }
    for pod in &prey.pods {
        field.by_node.entry(field.quarries[pod].node).or_default().push(*pod);
    }
    field.queues.insert(queue);
    field.preys.push(prey);
}
