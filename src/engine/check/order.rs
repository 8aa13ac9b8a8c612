//! Affinity and spread between pods: is there an order in which the pods of a decision could have come?
//!
//! Each pod must be legal with those before it counted. Pods that no rule in play
//! can tell apart, on one node, are one group; orders are tried depth first,
//! states that failed once are not tried again.

use std::collections::{BTreeMap, BTreeSet};

use super::scene::{Scene, picks, selected, tolerated};
use crate::facts::{NodeFacts, PodFacts, SpreadFacts};

/// Pods put before the answer is "cannot say", besides four for each pod: greedy orders nearly always do.
const STEPS: usize = 20_000;

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// There is one.
    Found,
    /// There is none.
    Impossible,
    /// Not known: too many orders.
    Undecided,
}

/// What one rule counts, by value of its label.
struct Tally<'a> {
    key: &'a str,
    what: What<'a>,
    counts: BTreeMap<&'a str, i64>,
}

enum What<'a> {
    /// Pods that all affinity terms of this one mean.
    Near(&'a PodFacts),
    /// Live pods of this one's namespace that the constraint picks, on nodes that count.
    Spread(&'a PodFacts, &'a SpreadFacts),
}

/// Pods alike on one node.
struct Batch<'a> {
    left: usize,
    /// By tally: its value on the node, when the pods count there.
    adds: Vec<Option<&'a str>>,
    /// Rules of these pods: tally, value on the node, whether the pods match themselves.
    near: Vec<(usize, Option<&'a str>, bool)>,
    spread: Vec<(usize, Option<&'a str>, bool)>,
}

/// Rules that depend on what came before.
pub(super) fn is_drawn(pod: &PodFacts) -> bool {
    !pod.shape.pod_affinity.is_empty() || pod.shape.spread.iter().any(|rule| rule.hard)
}

/// Looks for an order in which the pods may come to their nodes, which hold none of them yet.
pub(super) fn exists(scene: &Scene<'_>, pods: &[(&PodFacts, &NodeFacts)]) -> Order {
    if !pods.iter().any(|(pod, _)| is_drawn(pod)) {
        return Order::Found;
    }
    let mut tallies = Vec::new();
    // Pods of one shape, labels and namespace have the same rules.
    let mut kinds: Vec<(&PodFacts, Vec<usize>, Vec<usize>)> = Vec::new();
    for (pod, _) in pods.iter().filter(|(pod, _)| is_drawn(pod)) {
        if !kinds.iter().any(|(other, ..)| same_rules(other, pod)) {
            let near = tallies.len();
            tallies.extend(pod.shape.pod_affinity.iter().map(|term| Tally::new(scene, &term.topology_key, What::Near(pod))));
            let spread = tallies.len();
            let hard = pod.shape.spread.iter().filter(|rule| rule.hard);
            tallies.extend(hard.map(|rule| Tally::new(scene, &rule.topology_key, What::Spread(pod, rule))));
            kinds.push((pod, (near..spread).collect(), (spread..tallies.len()).collect()));
        }
    }
    let mut batches: BTreeMap<(Option<usize>, Vec<bool>, &str), Batch<'_>> = BTreeMap::new();
    for (pod, node) in pods {
        let kind = kinds.iter().position(|(other, ..)| is_drawn(pod) && same_rules(other, pod));
        let counted: Vec<bool> = tallies.iter().map(|tally| tally.counts_pod(scene, pod)).collect();
        let batch = batches.entry((kind, counted.clone(), node.name.as_str())).or_insert_with(|| {
            let adds = tallies.iter().zip(&counted);
            let rules = |tallies_of: &[usize]| -> Vec<(usize, Option<&str>, bool)> {
                tallies_of.iter().map(|at| (*at, value(node, tallies[*at].key), counted[*at])).collect()
            };
            Batch {
                left: 0,
                adds: adds.map(|(tally, counted)| value(node, tally.key).filter(|_| *counted && tally.counts_node(node))).collect(),
                near: kind.map_or_else(Vec::new, |kind| rules(&kinds[kind].1)),
                spread: kind.map_or_else(Vec::new, |kind| rules(&kinds[kind].2)),
            }
        });
        batch.left += 1;
    }
    search(&mut tallies, &mut batches.into_values().collect::<Vec<_>>(), STEPS + 4 * pods.len())
}

fn search(tallies: &mut [Tally<'_>], batches: &mut [Batch<'_>], most: usize) -> Order {
    let mut failed: BTreeSet<Vec<usize>> = BTreeSet::new();
    // Batches put so far, and where to go on after each.
    let mut path: Vec<usize> = Vec::new();
    let (mut next, mut steps) = (0, 0);
    loop {
        if batches.iter().all(|batch| batch.left == 0) {
            return Order::Found;
        }
        let open = (next..batches.len()).find(|at| batches[*at].left > 0 && may_come(tallies, &batches[*at]));
        if let Some(at) = open {
            steps += 1;
            if steps > most {
                return Order::Undecided;
            }
            count(tallies, &mut batches[at], 1);
            let state: Vec<usize> = batches.iter().map(|batch| batch.left).collect();
            if failed.contains(&state) {
                count(tallies, &mut batches[at], -1);
                next = at + 1;
            } else {
                path.push(at);
                next = 0;
            }
            continue;
        }
        failed.insert(batches.iter().map(|batch| batch.left).collect());
        let Some(last) = path.pop() else { return Order::Impossible };
        count(tallies, &mut batches[last], -1);
        next = last + 1;
    }
}

fn count(tallies: &mut [Tally<'_>], batch: &mut Batch<'_>, by: i64) {
    batch.left = batch.left.saturating_add_signed(-by as isize);
    for at in 0..tallies.len() {
        if let Some(value) = batch.adds[at]
            && let Some(count) = tallies[at].counts.get_mut(value) {
                *count += by;
            }
    }
}

fn may_come(tallies: &[Tally<'_>], batch: &Batch<'_>) -> bool {
    let labelled = batch.near.iter().all(|(_, value, _)| value.is_some());
    let here = |at: usize, value: &Option<&str>| value.and_then(|value| tallies[at].counts.get(value)).copied().unwrap_or(0);
    let near = batch.near.iter().all(|(at, value, _)| here(*at, value) > 0);
    let nobody = batch.near.iter().all(|(at, ..)| tallies[*at].counts.values().all(|count| *count == 0));
    let itself = batch.near.iter().all(|(.., itself)| *itself);
    let drawn = batch.near.is_empty() || (labelled && (near || (nobody && itself)));
    drawn
        && batch.spread.iter().all(|(at, value, itself)| {
            let What::Spread(_, rule) = &tallies[*at].what else { return false };
            let counts = &tallies[*at].counts;
            let few = counts.len() < rule.min_domains.max(1) as usize;
            let least = if few { 0 } else { counts.values().min().copied().unwrap_or(0) };
            value.is_some() && here(*at, value) + i64::from(*itself) <= least + i64::from(rule.max_skew)
        })
}

fn value<'a>(node: &'a NodeFacts, key: &str) -> Option<&'a str> {
    node.labels.get(key).map(String::as_str)
}

fn same_rules(a: &PodFacts, b: &PodFacts) -> bool {
    a.namespace == b.namespace && a.labels == b.labels && a.shape == b.shape
}

impl<'a> Tally<'a> {
    fn new(scene: &Scene<'a>, key: &'a str, what: What<'a>) -> Self {
        let mut tally = Self { key, what, counts: BTreeMap::new() };
        let counted = scene.nodes().filter(|node| tally.counts_node(node));
        tally.counts = counted.filter_map(|node| value(node, key)).map(|value| (value, 0)).collect();
        for (pod, node) in scene.placed() {
            if let Some(value) = value(node, key)
                && tally.counts_node(node) && tally.counts_pod(scene, pod) {
                    *tally.counts.entry(value).or_default() += 1;
                }
        }
        tally
    }

    fn counts_pod(&self, scene: &Scene<'_>, pod: &PodFacts) -> bool {
        match &self.what {
            What::Near(of) => of.shape.pod_affinity.iter().all(|term| scene.means(term, pod)),
            What::Spread(of, rule) => {
                !pod.terminating && pod.namespace == of.namespace && picks(rule.selector.as_ref(), pod)
            }
        }
    }

    fn counts_node(&self, node: &NodeFacts) -> bool {
        match &self.what {
            What::Near(_) => true,
            What::Spread(of, rule) => {
                let hard = of.shape.spread.iter().filter(|other| other.hard);
                hard.into_iter().all(|other| node.labels.contains_key(&other.topology_key))
                    && (!rule.honor_affinity || selected(node, of))
                    && (!rule.honor_taints || tolerated(node, of))
            }
        }
    }
}
