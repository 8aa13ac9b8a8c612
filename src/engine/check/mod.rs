//! The checker: says whether answers are true, from the facts alone.
//!
//! It shares no code with the solver and reads none of its caches (ledger, trees,
//! counts, charges): places come from the pods, rooms from what nodes and pods
//! say, domains from node labels. A decision must be legal (placement.md section
//! 2); a proof beside a "no" must hold. It is slow and simple on purpose: tests
//! run it on every answer, a scheduler on every so many.

mod evictions;
mod legal;
mod order;
mod proof;
mod scene;

use std::collections::BTreeSet;
use std::fmt;

use crate::facts::ObjectKey;
use crate::outcome::{Code, Outcome, Rule};
use crate::policy::Policy;
use crate::world::World;
use scene::Scene;

/// Something in an answer that is not so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The gang that the answer is about.
    pub gang: ObjectKey,
    /// What is wrong.
    pub kind: FaultKind,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// There is no such gang.
    UnknownGang,
    /// There is no such pod, or it is another one by now (its name).
    UnknownPod(String),
    /// There is no such node, or it is another one by now (its name).
    UnknownNode(String),
    /// The pod belongs to another gang or subgroup (its name).
    WrongGroup(String),
    /// The pod does not wait for a place: it has one, is gated, over, not ours, or holds a mistake (its name).
    NotWaiting(String),
    /// The pod is given two places (its name).
    PlacedTwice(String),
    /// The node refuses the pod, room aside (pod, rule).
    Refused(String, Rule),
    /// More is asked of a node than it has (node, resource).
    Overfull(String, String),
    /// Two pods on a node want one host port (node, port).
    PortTaken(String, i32),
    /// An anti-affinity, of the pod or of another, is hit (pod, topology key).
    Repelled(String, String),
    /// Affinity and spread constraints allow no order in which the pods could come.
    NoOrder,
    /// A claim of the pod is not served by what was chosen (pod, claim).
    Claim(String, String),
    /// Pods were placed, and this subgroup is below its minimum (empty: the gang).
    BelowMinimum(String),
    /// Live members are in several domains, or outside every domain, of a required level (subgroup, level).
    Split(String, String),
    /// Live members are in more domains of a level than the gang may use (level, how many they are in).
    TooManyDomains(String, usize),
    /// The queue takes no work: it does not exist, has queues below it, or one above it is missing.
    QueueClosed(String),
    /// A limit is passed (queue, `gpu`, `cpu` or `memory`).
    OverLimit(String, &'static str),
    /// Work that can't be preempted passes a quota (queue, `gpu`, `cpu` or `memory`).
    OverQuota(String, &'static str),
    /// The pod may not be evicted for this gang, or is not there to be evicted (its name).
    WrongVictim(String),
    /// The pod is evicted for two causes (its name).
    EvictedTwice(String),
    /// More of a disruption budget's pods are evicted than it allows (the first one above it).
    OverBudget(String),
    /// Pods are evicted for a gang for which no room is kept.
    InVain,
    /// A "no" that is said to be more than "not found", without a proof.
    Unproven(Code),
    /// The proof beside a "no" does not hold.
    FalseProof(Code),
}

/// Most gangs whose reasons are checked after one pass: the ones that changed last.
const MAX_REASONS: usize = 64;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gang {}/{}: {:?}", self.gang.namespace, self.gang.name, self.kind)
    }
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// What is wrong; empty when all that was checked is true.
    pub faults: Vec<Fault>,
    /// Answers that could not be judged within the checker's own budget of steps.
    pub undecided: u32,
}

/// Checks the decisions of a pass against the world as it was before the pass.
#[must_use]
pub fn decisions_from(before: &World, policy: &Policy, outcome: &Outcome) -> Findings {
    play(Scene::new(before, policy, &BTreeSet::new()), outcome)
}

/// Checks the answers of the pass that just ended: decisions against the world with their places taken back, and the
/// proofs beside reasons that changed.
#[must_use]
pub fn pass(after: &World, policy: &Policy, outcome: &Outcome) -> Findings {
    let placements = outcome.decisions.iter().flat_map(|decision| &decision.placements);
    let placed: BTreeSet<&str> = placements.map(|placement| placement.pod_uid.as_str()).collect();
    let mut findings = Findings::default();
    if !placed.is_empty() {
        findings = play(Scene::new(after, policy, &placed), outcome);
    }
    if !outcome.evictions.is_empty() || !outcome.promised.is_empty() {
        evictions::all(&Scene::new(after, policy, &BTreeSet::new()), outcome, &mut findings);
    }
    let mut changed: Vec<&String> = outcome.changed.iter().rev().collect();
    changed.dedup();
    let told = changed.into_iter().filter_map(|uid| after.gang_by_uid(uid)).filter(|gang| !gang.reasons.is_empty());
    let told: Vec<_> = told.take(MAX_REASONS).collect();
    if !told.is_empty() {
        let scene = Scene::new(after, policy, &BTreeSet::new());
        let mut known = proof::Known::default();
        for gang in told {
            proof::reasons(&scene, &mut known, &gang.facts, &gang.reasons, &mut findings);
        }
    }
    findings
}

fn play(mut scene: Scene<'_>, outcome: &Outcome) -> Findings {
    let mut findings = Findings::default();
    // What was kept and is no longer is free for everybody.
    let given_up = outcome.promised.iter().filter(|promised| promised.places.is_empty());
    scene.served.extend(given_up.map(|promised| promised.gang_uid.clone()));
    for decision in &outcome.decisions {
        legal::decision(&mut scene, decision, &mut findings);
    }
    findings
}
