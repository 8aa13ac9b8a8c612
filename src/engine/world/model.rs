//! What the world stores about nodes, pods and gangs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::facts::{GangFacts, HostPort, Millis, NodeFacts, PodFacts, PodPhase};
use crate::fit::volumes::FreeVolume;
use crate::fit::tallies::Marks;
use crate::ids::{GangIdx, PodIdx, ShapeIdx};
use crate::outcome::{Quality, Reason};

/// Room on a node: integers by resource column, and host ports.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Room {
    /// Allocatable minus used minus held, by column; may be negative when overcommitted.
    pub free: Vec<i64>,
    /// Host ports in use.
    pub ports: Vec<HostPort>,
    /// What its pods add to the counts of terms.
    pub marks: Marks,
    /// Volumes that no claim has and that the node reaches, smallest first.
    pub volumes: Vec<Arc<FreeVolume>>,
    /// Volumes that pods here share, with the number of those pods; each takes one of its driver's column.
    pub attached: BTreeMap<u32, i64>,
}

impl Room {
    /// Counts `count` more pods that use a shared volume.
    pub(crate) fn attach(&mut self, column: usize, volume: u32, count: i64) {
        let pods = self.attached.entry(volume).or_default();
        let before = *pods;
        *pods += count;
        let change = i64::from(*pods > 0) - i64::from(before > 0);
        if *pods == 0 {
            self.attached.remove(&volume);
        }
        if self.free.len() <= column {
            self.free.resize(column + 1, 0);
        }
        self.free[column] -= change;
    }

    /// Volumes of a column that are not here yet.
    pub(crate) fn new_volumes(&self, shared: &[(usize, u32)], column: usize) -> i64 {
        shared.iter().filter(|(other, volume)| *other == column && !self.attached.contains_key(volume)).count() as i64
    }
}

/// A node with what it holds.
#[derive(Clone, Debug)]
pub struct Node {
    /// As told.
    pub facts: NodeFacts,
    /// Allocatable by column.
    pub allocatable: Vec<i64>,
    /// Sum of its holding pods, by column.
    pub used: Vec<i64>,
    /// Part of `used` that terminating pods hold.
    pub releasing: Vec<i64>,
    /// Held for gangs, by column.
    pub held: Vec<i64>,
    /// Pods that hold room here.
    pub pods: BTreeSet<PodIdx>,
}

/// Where the place of a pod comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceState {
    /// It has none.
    None,
    /// The API says so, and said so when first seen.
    Running,
    /// We decided it; the API has not confirmed.
    Assumed,
    /// We decided it and the API confirmed.
    Bound,
}

/// A pod with its place.
#[derive(Clone, Debug)]
pub struct Pod {
    /// As told.
    pub facts: PodFacts,
    /// Interned shape.
    pub shape: ShapeIdx,
    /// Requests by column, the pod count included.
    pub requests: Vec<(usize, i64)>,
    /// The node it holds room on (name), whoever placed it.
    pub node: Option<String>,
    /// Where that comes from.
    pub place: PlaceState,
    /// It is to be evicted; it counts as leaving until that is refused.
    pub(crate) evicting: bool,
    /// Its eviction was refused: not asked for again before this moment.
    pub(crate) spared_until: Millis,
    /// Queue and amounts it is charged to.
    pub charged: Option<(String, crate::world::queues::Charge)>,
}

impl Pod {
    /// True when it uses room: it has a place and is not over.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.node.is_some() && !self.over()
    }

    /// True when its phase is terminal.
    #[must_use]
    pub fn over(&self) -> bool {
        matches!(self.facts.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// True when it holds room that it is about to give back.
    #[must_use]
    pub(crate) fn leaves(&self) -> bool {
        self.holds() && (self.facts.terminating || self.evicting)
    }

    /// True when it counts toward its gang's minimum.
    #[must_use]
    pub fn live(&self) -> bool {
        !self.over() && !self.facts.terminating
    }

    /// True when it waits for a place that we may give.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.facts.ours && self.live() && self.node.is_none() && !self.facts.gated
    }
}

/// A node of a gang's tree; 0 is the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sub {
    /// Name; empty for the root, `default` for the implicit leaf.
    pub name: String,
    /// The subgroup above; the root is its own.
    pub parent: usize,
    /// Children in declared order.
    pub children: Vec<usize>,
    /// Minimum of pods (leaf) or ready children (inner).
    pub min: u32,
    /// Its constraint as written.
    pub constraint: crate::facts::ConstraintFacts,
    /// The preferred level is the lowest one.
    pub auto_preferred: bool,
}

/// A gang with its tree and what was decided.
#[derive(Clone, Debug)]
pub struct Gang {
    /// As told.
    pub facts: GangFacts,
    /// The tree, the root first.
    pub subs: Vec<Sub>,
    /// Shapes of the pods to come, in the order of the facts.
    pub(crate) awaited: Vec<Option<ShapeIdx>>,
    /// Mistakes in its structure.
    pub problems: Vec<crate::facts::Problem>,
    /// Quality of the latest decision.
    pub quality: Option<Quality>,
    /// Why it waits.
    pub reasons: Vec<Reason>,
    /// No try before this moment, with the reason.
    pub backoff: Option<(Millis, String)>,
    /// What it has been through since it started.
    pub(crate) life: crate::world::life::Life,
    /// What its pods ask for and have, as last looked at.
    pub(crate) usage: crate::world::usage::Usage,
    /// Room that is kept for it.
    pub(crate) promise: Option<crate::world::promises::Promise>,
    /// When looking for pods to evict may have another answer: a delay or a minimal run time ends.
    pub(crate) hunt_from: Option<Millis>,
    /// Claims of the latest decision did not get their volumes.
    pub unprepared: bool,
    /// What it waits for since its last failure; `None`: the next pass tries it.
    pub(crate) parked: Option<crate::world::wake::Parked>,
}

impl Gang {
    /// Index of the leaf a pod belongs to.
    #[must_use]
    pub fn leaf(&self, subgroup: Option<&str>) -> Option<usize> {
        match subgroup {
            None | Some("" | "default") if self.facts.subgroups.is_empty() => Some(1),
            None => self.subs.iter().position(|s| s.name == "default" && s.children.is_empty()),
            Some(name) => self
                .subs
                .iter()
                .skip(1)
                .position(|s| s.children.is_empty() && s.name == name)
                .map(|at| at + 1),
        }
    }
}

/// A gang's key in the pending order: smaller goes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OrderKey {
    /// Gang priority, larger first.
    pub priority: std::cmp::Reverse<i32>,
    /// Below its minimum before above.
    pub surplus: bool,
    /// Creation time.
    pub created: Millis,
    /// Namespace and name.
    pub name: (String, String),
    /// The gang.
    pub gang: GangIdx,
}
