//! Legality by the letter, from facts alone: what tests compare the engine with.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::*;
use crate::fit::selectors::selects;

/// A cluster at one moment.
#[derive(Clone, Default)]
pub(crate) struct Scene {
    pub nodes: Vec<NodeFacts>,
    /// Pods with their nodes.
    pub placed: Vec<(PodFacts, usize)>,
}

impl Scene {
    /// True when one more pod passes every rule on a node.
    pub(crate) fn admits(&self, pod: &PodFacts, node: usize) -> bool {
        self.has_room(pod, node)
            && self.anti_affinity_holds(pod, node)
            && self.affinity_holds(pod, node)
            && pod.shape.spread.iter().filter(|c| c.hard).all(|c| self.spread_holds(pod, c, node))
    }

    fn has_room(&self, pod: &PodFacts, node: usize) -> bool {
        pod.shape.requests.iter().all(|(name, amount)| {
            let here = self.placed.iter().filter(|(_, at)| *at == node);
            let used: i64 = here.map(|(other, _)| other.shape.requests.get(name).unwrap_or(&0)).sum();
            used + amount <= *self.nodes[node].allocatable.get(name).unwrap_or(&0)
        })
    }

    fn same_domain(&self, key: &str, a: usize, b: usize) -> bool {
        let value = |at: usize| self.nodes[at].labels.get(key);
        value(a).is_some() && value(a) == value(b)
    }

    fn anti_affinity_holds(&self, pod: &PodFacts, node: usize) -> bool {
        self.placed.iter().all(|(other, at)| {
            let hit = |holder: &PodFacts, target: &PodFacts| {
                holder.shape.pod_anti_affinity.iter().any(|term| {
                    meant(term, target) && self.same_domain(&term.topology_key, *at, node)
                })
            };
            !hit(pod, other) && !hit(other, pod)
        })
    }

    fn affinity_holds(&self, pod: &PodFacts, node: usize) -> bool {
        let terms = &pod.shape.pod_affinity;
        let all = |other: &PodFacts| terms.iter().all(|term| meant(term, other));
        let labelled = |term: &PodTerm, at: usize| self.nodes[at].labels.contains_key(&term.topology_key);
        if !terms.iter().all(|term| labelled(term, node)) {
            return false;
        }
        let near = terms.iter().all(|term| {
            self.placed.iter().any(|(other, at)| all(other) && self.same_domain(&term.topology_key, *at, node))
        });
        let nobody = !self.placed.iter().any(|(other, at)| all(other) && terms.iter().any(|term| labelled(term, *at)));
        near || (nobody && all(pod))
    }

    fn spread_holds(&self, pod: &PodFacts, rule: &SpreadFacts, node: usize) -> bool {
        let keys: Vec<&String> = pod.shape.spread.iter().filter(|c| c.hard).map(|c| &c.topology_key).collect();
        let Some(here) = self.nodes[node].labels.get(&rule.topology_key) else { return false };
        let mut counts: BTreeMap<&String, u32> = BTreeMap::new();
        for (at, facts) in self.nodes.iter().enumerate() {
            let selected = pod.shape.node_selector.iter().all(|(key, value)| facts.labels.get(key) == Some(value));
            let counted = keys.iter().all(|key| facts.labels.contains_key(*key))
                && (!rule.honor_affinity || selected)
                && (!rule.honor_taints || facts.taints.is_empty());
            if counted && let Some(value) = facts.labels.get(&rule.topology_key) {
                let pods = self.placed.iter().filter(|(other, on)| *on == at && counts_for(rule, pod, other));
                *counts.entry(value).or_default() += pods.count() as u32;
            }
        }
        let few = counts.len() < rule.min_domains as usize;
        let least = if few { 0 } else { counts.values().copied().min().unwrap_or(0) };
        let own = rule.selector.as_ref().is_some_and(|selector| selects(selector, &pod.labels));
        counts.get(here).copied().unwrap_or(0) + u32::from(own) <= least + rule.max_skew
    }

    /// True when the pods can come one by one, each legal, so that `accept` likes the end.
    pub(crate) fn can_place(&mut self, pods: &[PodFacts], targets: &[BTreeSet<usize>], accept: &mut dyn FnMut(&Scene) -> bool) -> bool {
        if pods.is_empty() {
            return accept(self);
        }
        for at in 0..pods.len() {
            let (mut rest, mut left) = (pods.to_vec(), targets.to_vec());
            let (pod, nodes) = (rest.remove(at), left.remove(at));
            for node in nodes {
                if self.admits(&pod, node) {
                    self.placed.push((pod.clone(), node));
                    let found = self.can_place(&rest, &left, accept);
                    self.placed.pop();
                    if found {
                        return true;
                    }
                }
            }
        }
        false
    }
}

fn meant(term: &PodTerm, pod: &PodFacts) -> bool {
    term.namespaces.contains(&pod.namespace)
        && term.selector.as_ref().is_some_and(|selector| selects(selector, &pod.labels))
}

fn counts_for(rule: &SpreadFacts, pod: &PodFacts, other: &PodFacts) -> bool {
    !other.terminating
        && other.namespace == pod.namespace
        && rule.selector.as_ref().is_some_and(|selector| selects(selector, &other.labels))
}
