//! Wake-ups: what a gang that failed waits for, and which changes let it go on.
//!
//! A failed gang is parked with what it waits for (placement.md section 4);
//! later passes leave it alone until something that could help has changed: its
//! own pods or facts, a topology, a queue or its charges, or room on a node that
//! its pods may use. The rule errs on the side of waking: a gang left asleep that
//! would fit is a bug that nobody sees (a property test holds it to a full retry).

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{Millis, ObjectKey};
use crate::fit::tallies::Mark;
use crate::fit::volumes::VolumeNeeds;
use crate::ids::{GangIdx, NodeIdx, ShapeIdx, TermIdx};
use crate::outcome::{Code, Reason};
use crate::policy::Policy;
use crate::rooms::Context;
use crate::world::World;
use crate::world::queues::Charge;
use crate::world::apply::gang_key;
use crate::world::model::Room;

/// What a gang waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parked {
    /// Room, on a node that one of the shapes may use.
    pub room: bool,
    /// A queue, its limits, or what is charged to it.
    pub queue: bool,
    /// How many pods had still to leave the room that is kept for it.
    pub leavers: usize,
    /// Shapes of its pods that wait.
    pub shapes: BTreeSet<ShapeIdx>,
    /// When the verdict was made.
    pub since: Millis,
    /// The world's version then.
    pub version: u64,
}

/// What changed since the last pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Something that every gang may depend on.
    pub all: bool,
    /// Queues were made, changed or deleted.
    pub queues: bool,
    /// Rooms as they were at the last pass, of nodes whose room changed since;
    /// `None` for nodes that were not there, or not under the same rules.
    rooms: BTreeMap<NodeIdx, Option<Room>>,
    /// What pods hold that began to leave, by node: room that can be waited for.
    leavers: BTreeMap<NodeIdx, BTreeSet<usize>>,
    /// Charges as they were at the last pass, when some fell since.
    charged: Option<BTreeMap<String, Charge>>,
    /// Lowest priority of the preemptible gangs, by queue, of which a pod came to run.
    prey: BTreeMap<String, i32>,
    /// A disruption budget allows more than before.
    pub budgets: bool,
    /// Queues (of preemptible gangs) of which a Binding was confirmed.
    pub(super) bound: BTreeSet<String>,
    /// A gang asks for less than before: the shares of others may have grown.
    pub(super) requests: bool,
}

impl Changes {
    /// Remembers that a pod came to run which gangs of a higher priority may have evicted.
    pub(super) fn note_prey(&mut self, queue: &str, priority: i32) {
        match self.prey.get_mut(queue) {
            Some(lowest) => *lowest = priority.min(*lowest),
            None => {
                self.prey.insert(queue.to_owned(), priority);
            }
        }
    }

    /// Remembers a room before its first change since the last pass.
    pub(super) fn note_room(&mut self, node: NodeIdx, before: Option<&Room>) {
        self.rooms.entry(node).or_insert_with(|| before.cloned());
    }

    /// Remembers that a pod began to leave, with what it holds.
    pub(super) fn note_leaver(&mut self, node: NodeIdx, requests: &[(usize, i64)]) {
        self.leavers.entry(node).or_default().extend(requests.iter().filter(|(_, amount)| *amount > 0).map(|(column, _)| *column));
    }

    /// Remembers that a node is new, or that its labels, taints or conditions changed.
    pub(super) fn note_new(&mut self, node: NodeIdx) {
        self.rooms.insert(node, None);
    }

    /// Remembers the charges before they first fell since the last pass.
    pub(super) fn note_charges(&mut self, charged: &BTreeMap<String, Charge>) {
        if self.charged.is_none() {
            self.charged = Some(charged.clone());
        }
    }
}

/// A node with more room than at the last pass, or with room that can be waited for.
struct Gain {
    node: NodeIdx,
    /// Columns that gained; every column when the node is new.
    columns: Option<Vec<usize>>,
    ports: bool,
}

impl World {
    /// The waiting gangs that changes since the last pass may help. Forgets the changes.
    pub(crate) fn take_woken(&mut self) -> BTreeSet<GangIdx> {
        let changes = std::mem::take(&mut self.changes);
        let gains = self.gains(&changes);
        let charge_fell = self.charge_fell(&changes);
        let queue_gained = changes.queues || charge_fell;
        let moved = queue_gained || changes.requests || !changes.bound.is_empty();
        let owed = if moved { self.owed() } else { BTreeSet::new() };
        self.waiting
            .clone()
            .into_iter()
            .filter(|idx| {
                let Some(gang) = self.gangs[idx.at()].as_ref() else { return false };
                let Some(parked) = gang.parked.clone() else { return true };
                changes.all
                    || (parked.queue && queue_gained)
                    || (gang.promise.is_some() && self.awaited_leavers(gang).0 != parked.leavers)
                    || (parked.room && (changes.budgets || owed.contains(&gang.facts.queue)))
                    || (parked.room && changes.prey.get(&gang.facts.queue).is_some_and(|lowest| *lowest < gang.facts.priority))
                    || (parked.room && parked.shapes.iter().any(|shape| self.gained(*shape, &gains)))
            })
            .collect()
    }

    /// Queues with gangs that wait for room and less than their fair share: others may owe them some.
    fn owed(&self) -> BTreeSet<String> {
        let waits = |idx: &GangIdx| self.gangs[idx.at()].as_ref()?.parked.as_ref().map(|parked| parked.room);
        if self.queues.len() < 2 || !self.waiting.iter().any(|idx| waits(idx) == Some(true)) {
            return BTreeSet::new();
        }
        let standings = self.standings();
        let below = standings.queues.iter().filter(|queue| (0..3).any(|slot| queue.allocated[slot] < queue.fair[slot]));
        below.map(|queue| queue.name.clone()).collect()
    }

    fn gains(&self, changes: &Changes) -> Vec<Gain> {
        let leavers = changes.leavers.iter().map(|(node, columns)| Gain { node: *node, columns: Some(columns.iter().copied().collect()), ports: true });
        let mut gains: Vec<Gain> = leavers.collect();
        for (node, before) in &changes.rooms {
            let Some(now) = self.rooms.room(*node) else { continue };
            let Some(before) = before else {
                gains.push(Gain { node: *node, columns: None, ports: true });
                continue;
            };
            let columns: Vec<usize> = (0..now.free.len())
                .filter(|column| now.free[*column] > before.free.get(*column).copied().unwrap_or(0))
                .collect();
            let ports = before.ports.iter().any(|port| !now.ports.contains(port));
            if ports || !columns.is_empty() {
                gains.push(Gain { node: *node, columns: Some(columns), ports });
            }
        }
        gains
    }

    fn charge_fell(&self, changes: &Changes) -> bool {
        changes.charged.as_ref().is_some_and(|before| {
            before.iter().any(|(queue, old)| {
                let now = self.charged.get(queue).copied().unwrap_or_default();
                now.iter().zip(old).any(|(now, old)| now < old)
            })
        })
    }

    /// True when one of the gains is on a node that the shape may use, in something it asks for.
    fn gained(&mut self, idx: ShapeIdx, gains: &[Gain]) -> bool {
        if gains.is_empty() {
            return false;
        }
        let nodes: Vec<_> = self.nodes.iter().map(|node| node.as_ref().map(|node| &node.facts)).collect();
        let shape = &self.shapes[idx.at()];
        self.rooms.refresh(idx, shape, &Context { nodes: &nodes, trees: &self.trees, volumes: &self.volumes });
        gains.iter().any(|gain| {
            let asked = match &gain.columns {
                None => true,
                Some(columns) => shape.requests.iter().any(|(column, _)| columns.contains(column)),
            };
            (asked || (gain.ports && !shape.facts.host_ports.is_empty()))
                && self.rooms.eligible(idx, gain.node)
        })
    }

    /// Wakes the gangs with members on a node that comes, goes or moves: the domain that
    /// those members pin is another one now.
    pub(super) fn wake_members_on(&mut self, node: &str) {
        let pods = self.pods_by_node.get(node).into_iter().flatten();
        let keys: BTreeSet<ObjectKey> = pods
            .filter_map(|pod| gang_key(&self.pods[pod.at()].as_ref()?.facts))
            .collect();
        for key in keys {
            let gang = self.gang_by_key.get(&key).and_then(|idx| self.gangs[idx.at()].as_mut());
            if let Some(gang) = gang {
                gang.parked = None;
            }
        }
    }

    /// Ends back-offs that are over: such gangs are tried again.
    pub(crate) fn end_waits(&mut self, now: Millis) {
        for idx in &self.waiting {
            let Some(gang) = self.gangs[idx.at()].as_mut() else { continue };
            if gang.backoff.as_ref().is_some_and(|(until, _)| *until <= now) {
                gang.backoff = None;
                gang.parked = None;
                self.dirty = true;
            }
            if gang.hunt_from.is_some_and(|from| from <= now) {
                gang.hunt_from = None;
                gang.parked = None;
                self.dirty = true;
            }
        }
    }

    /// Gangs whose verdict is out of date and old enough to be made anew, the oldest first.
    pub(crate) fn stale(&self, policy: &Policy, now: Millis) -> Vec<GangIdx> {
        let mut due: Vec<(Millis, GangIdx)> = self
            .stale_verdicts()
            .filter(|(since, _)| since.saturating_add(policy.verdict_age_millis) <= now)
            .collect();
        due.sort_unstable();
        due.truncate(policy.verdicts_per_pass);
        due.into_iter().map(|(_, gang)| gang).collect()
    }

    fn stale_verdicts(&self) -> impl Iterator<Item = (Millis, GangIdx)> {
        self.waiting.iter().filter_map(|idx| {
            let parked = self.gangs[idx.at()].as_ref()?.parked.as_ref()?;
            (parked.version != self.version).then_some((parked.since, *idx))
        })
    }

    /// The next moment at which a pass has something to do even without an event.
    pub(crate) fn next_wakeup(&self, policy: &Policy, now: Millis) -> Option<Millis> {
        let waits = self.waiting.iter().filter_map(|gang| {
            let (until, _) = self.gangs[gang.at()].as_ref()?.backoff.as_ref()?;
            Some(*until)
        });
        let ages = self
            .stale_verdicts()
            .map(|(since, _)| since.saturating_add(policy.verdict_age_millis).max(now));
        let hunts = self.waiting.iter().filter_map(|gang| self.gangs[gang.at()].as_ref()?.hunt_from);
        waits.chain(ages).chain(hunts).chain(self.next_stale(policy)).chain(self.next_promise()).min()
    }

    /// True when pods elsewhere, or claims and volumes, decide where the shape fits: any event may help such a gang.
    fn depends_on_others(&self, shape: ShapeIdx) -> bool {
        let shape = &self.shapes[shape.at()];
        let facts = &shape.facts;
        let avoided = |term: &TermIdx| self.rooms.tallies().total(Mark::Avoids(*term)) > 0;
        !(facts.pod_affinity.is_empty() && facts.pod_anti_affinity.is_empty() && facts.spread.is_empty())
            || shape.volumes != VolumeNeeds::default()
            || shape.terms.member_of.iter().any(avoided)
    }

    /// Notes what a gang waits for after a try that left pods waiting.
    pub(crate) fn park(&mut self, idx: GangIdx, now: Millis) {
        let version = self.version;
        if !self.waiting.contains(&idx) {
            return;
        }
        let Some(gang) = self.gangs[idx.at()].as_ref() else { return };
        let shapes: BTreeSet<ShapeIdx> = self
            .gang_pods(&gang.facts.key)
            .filter(|(_, pod)| pod.waits())
            .map(|(_, pod)| pod.shape)
            .chain(gang.awaited.iter().flatten().copied())
            .collect();
        let coupled = shapes.iter().any(|shape| self.depends_on_others(*shape));
        let parked = (!coupled).then(|| Parked {
            room: gang.promise.is_some() || gang.reasons.iter().any(waits_for_room),
            queue: gang.reasons.iter().any(|reason| waits_for_queue(reason.code)),
            leavers: self.awaited_leavers(gang).0,
            shapes,
            since: now,
            version,
        });
        if let Some(gang) = self.gangs[idx.at()].as_mut() {
            gang.parked = parked;
        }
    }
}

fn waits_for_queue(code: Code) -> bool {
    matches!(
        code,
        Code::QueueNotFound | Code::QueueNotLeaf | Code::QueueOrphaned | Code::QueueOverLimit | Code::QueueOverQuota
    )
}

/// A gang over its limit is told whether it would fit otherwise: that depends on room too.
fn waits_for_room(reason: &Reason) -> bool {
    match reason.code {
        Code::RequiredDomainTooSmall
        | Code::PinnedDomainFull
        | Code::AlreadySplit
        | Code::DomainLimit
        | Code::SubgroupsDoNotFitTogether
        | Code::NotEnoughRoom
        | Code::NoNodeMatches
        | Code::PodRulesUnmet
        | Code::NotFoundWithinBudget
        | Code::QueueOverLimit
        | Code::QueueOverQuota
        | Code::WaitingForRoom => true,
        Code::Problem
        | Code::UnsupportedFeature
        | Code::QueueNotFound
        | Code::QueueNotLeaf
        | Code::QueueOrphaned
        | Code::NotEnoughPods
        | Code::PodsGated
        | Code::BindRefused
        | Code::StaleGang
        | Code::VolumesNotReady
        | Code::Preempted => false,
    }
}
