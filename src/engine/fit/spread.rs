//! Topology spread constraints, as plugins/podtopologyspread/{common,filtering}.go of
//! kube-scheduler has them.
//!
//! Terminating pods do not count. Domains come from nodes that have the labels of
//! all hard constraints; with fewer of them than `minDomains` the emptiest one
//! counts as empty. An empty selector counts every pod of the namespace, as the
//! API says and as kube-scheduler does since kubernetes/kubernetes#141340; before,
//! up to 1.36.3 at least, it counted none, so the constraint refused nothing.
//!
//! Constraints that a cluster adds by default for the pods of a Service are an
//! option of that scheduler, soft, and not applied here.

use super::tallies::{Mark, Tallies};
use super::{node_affinity, taints};
use crate::facts::{NodeFacts, SpreadFacts};
use crate::ids::{NodeIdx, TermIdx};
use crate::outcome::Rule;
use crate::rooms::{Rooms, Shape};
use std::collections::BTreeMap;

/// Matching pods beyond this many in a domain make it no dearer.
const MOST_COUNTED: i64 = 100;

/// One hard constraint of a shape with the counts of its eligible domains.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// The pods counted.
    pub term: TermIdx,
    key: String,
    max_skew: i64,
    min_domains: usize,
    matches_itself: bool,
    /// Nodes that count.
    pub counted: Vec<bool>,
    counts: BTreeMap<u32, i64>,
    /// How many domains have a count.
    domains_with: BTreeMap<i64, usize>,
    /// The emptiest domain's count.
    least: i64,
}

impl Spread {
    /// The hard constraints of a shape, counted on the ledger as it is: one walk over the nodes.
    pub(crate) fn all(rooms: &Rooms, nodes: &[Option<&NodeFacts>], shape: &Shape) -> Vec<Self> {
        let hard: Vec<(&SpreadFacts, TermIdx)> = shape
            .facts
            .spread
            .iter()
            .zip(shape.terms.spread.iter().copied())
            .filter(|(facts, _)| facts.hard)
            .collect();
        let tallies = rooms.tallies();
        let mut all: Vec<Self> = hard.iter().map(|(facts, term)| Self::empty(facts, *term, shape, nodes.len())).collect();
        for (at, facts) in nodes.iter().enumerate() {
            let node = NodeIdx(at as u32);
            let Some(facts) = facts else { continue };
            // A node without one of the labels is no part of any domain.
            if hard.iter().any(|(_, term)| tallies.value(*term, node).is_none()) {
                continue;
            }
            for (spread, (written, term)) in all.iter_mut().zip(&hard) {
                let refused = (written.honor_affinity && !node_affinity::matches(facts, &shape.facts))
                    || (written.honor_taints && taints::untolerated(facts, &shape.facts).next().is_some());
                if let (false, Some(value)) = (refused, tallies.value(*term, node)) {
                    spread.counted[at] = true;
                    *spread.counts.entry(value).or_default() += rooms.marks(node, Mark::Member(*term));
                }
            }
        }
        for spread in &mut all {
            for count in spread.counts.values() {
                *spread.domains_with.entry(*count).or_default() += 1;
            }
            spread.settle();
        }
        all
    }

    fn empty(facts: &SpreadFacts, term: TermIdx, shape: &Shape, n_nodes: usize) -> Self {
        Self {
            term,
            key: facts.topology_key.clone(),
            max_skew: i64::from(facts.max_skew),
            min_domains: facts.min_domains as usize,
            matches_itself: shape.terms.member_of.contains(&term),
            counted: vec![false; n_nodes],
            counts: BTreeMap::new(),
            domains_with: BTreeMap::new(),
            least: 0,
        }
    }

    /// A pod that the constraint counts came to a node, or left it.
    pub(crate) fn shift(&mut self, tallies: &Tallies, node: NodeIdx, by: i64) {
        if let (true, Some(value)) = (self.counted[node.at()], tallies.value(self.term, node)) {
            let count = self.counts.entry(value).or_default();
            let before = *count;
            *count += by;
            *self.domains_with.entry(*count).or_default() += 1;
            if let Some(n) = self.domains_with.get_mut(&before) {
                *n -= 1;
                if *n == 0 {
                    self.domains_with.remove(&before);
                }
            }
            self.settle();
        }
    }

    fn settle(&mut self) {
        let few = self.counts.len() < self.min_domains.max(1);
        self.least = if few { 0 } else { self.domains_with.keys().next().copied().unwrap_or(0) };
    }

    /// Pods counted in the node's domain.
    pub(crate) fn count_at(&self, tallies: &Tallies, node: NodeIdx) -> Option<i64> {
        self.counts.get(&tallies.value(self.term, node)?).copied()
    }

    /// Why one more pod may not go to the node.
    pub(crate) fn refusal(&self, tallies: &Tallies, node: NodeIdx) -> Option<Rule> {
        let Some(value) = tallies.value(self.term, node) else {
            return Some(Rule::MissingLabel(self.key.clone()));
        };
        let here = self.counts.get(&value).copied().unwrap_or(0) + i64::from(self.matches_itself);
        (here - self.least > self.max_skew).then(|| Rule::TopologySpread(self.key.clone()))
    }
}

/// Soft constraints: the pods counted in the node's domain, less is better.
pub(crate) fn cost(tallies: &Tallies, node: NodeIdx, shape: &Shape) -> i64 {
    let soft = shape.facts.spread.iter().zip(&shape.terms.spread).filter(|(facts, _)| !facts.hard);
    soft.map(|(_, term)| match tallies.value(*term, node) {
        Some(_) => tallies.near(Mark::Member(*term), node).min(MOST_COUNTED),
        None => MOST_COUNTED,
    })
    .sum()
}
