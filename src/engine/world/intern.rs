//! Interning: pods that no rule can tell apart share one shape.
//!
//! Labels matter only through the terms that are in use: a pod's key is its
//! facts and the set of terms it belongs to. A term is taken up when the first
//! pod with it comes, which looks once at every pod (matching pods change
//! shape); so does a change of a namespace's labels, for the pods in it. Terms
//! and shapes are kept once made: their number is that of distinct rules.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{PodFacts, PodTerm, ShapeFacts, SpreadFacts};
use crate::fit::selectors::belongs;
use crate::fit::tallies::{Mark, Term, Who};
use crate::fit::volumes::{VolumeNeeds, driver_column};
use crate::ids::{NodeIdx, PodIdx, ShapeIdx, TermIdx};
use crate::rooms::{Shape, Terms};
use crate::world::World;

/// Terms in use, and how pods find those they belong to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    /// Terms by index.
    pub(crate) terms: Vec<Term>,
    by_term: BTreeMap<Term, TermIdx>,
    /// Terms whose first part names namespaces only.
    by_namespace: BTreeMap<String, Vec<TermIdx>>,
    /// Terms that select namespaces by label.
    anywhere: Vec<TermIdx>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

impl Registry {
    /// Terms that a pod with these labels belongs to, sorted.
    fn member_of(&self, facts: &PodFacts) -> Vec<TermIdx> {
        let none = BTreeMap::new();
        let home = self.namespaces.get(&facts.namespace).unwrap_or(&none);
        let near = self.by_namespace.get(&facts.namespace).into_iter().flatten();
        let mut found: Vec<TermIdx> = near
            .chain(&self.anywhere)
            .copied()
            .filter(|term| belongs(&self.terms[term.at()], &facts.namespace, home, &facts.labels))
            .collect();
        found.sort_unstable();
        found
    }

    fn add(&mut self, term: Term) -> TermIdx {
        let idx = TermIdx(self.terms.len() as u32);
        match term.who.first() {
            Some(who) if who.namespace_selector.is_none() => {
                for namespace in &who.namespaces {
                    self.by_namespace.entry(namespace.clone()).or_default().push(idx);
                }
            }
            _ => self.anywhere.push(idx),
        }
        self.terms.push(term.clone());
        self.by_term.insert(term, idx);
        idx
    }
}

impl World {
    /// The shape of a pod.
    pub(crate) fn intern(&mut self, facts: &PodFacts, volumes: &VolumeNeeds) -> ShapeIdx {
        let known = self.registry.terms.len();
        let mut terms = self.terms_of(facts);
        for at in known..self.registry.terms.len() {
            self.admit_members(TermIdx(at as u32));
        }
        terms.member_of = self.registry.member_of(facts);
        self.intern_shape(&facts.shape, terms, volumes)
    }

    pub(super) fn intern_shape(&mut self, facts: &ShapeFacts, terms: Terms, volumes: &VolumeNeeds) -> ShapeIdx {
        let key = (facts.clone(), terms, volumes.clone());
        if let Some(idx) = self.shape_by_key.get(&key) {
            return *idx;
        }
        let mut requests = vec![(self.column("pods"), 1)];
        for (name, amount) in &facts.requests {
            if name != "pods" && *amount > 0 {
                requests.push((self.column(name), *amount));
            }
        }
        let n_columns = self.columns.len();
        for (driver, count) in &volumes.private {
            requests.push((self.column(&driver_column(driver)), i64::from(*count)));
        }
        requests.sort_unstable();
        let mut shared = Vec::new();
        for volume in &volumes.shared {
            shared.push((self.column(&driver_column(&volume.0)), self.shared_volume(volume)));
        }
        let idx = ShapeIdx(self.shapes.len() as u32);
        let terms = key.1.clone();
        self.shapes.push(Shape { facts: facts.clone(), requests, volumes: volumes.clone(), shared, terms });
        self.shape_by_key.insert(key, idx);
        if self.columns.len() > n_columns {
            // Nodes have room in a new column of volumes, unlike in a resource that they do not list.
            for at in 0..self.nodes.len() {
                self.push_room(NodeIdx(at as u32));
            }
        }
        idx
    }

    /// The terms of a pod's own rules; those not seen before are taken up.
    fn terms_of(&mut self, facts: &PodFacts) -> Terms {
        let shape = &facts.shape;
        let all: Vec<Who> = shape.pod_affinity.iter().map(Who::of).collect();
        let one = |term: &PodTerm| Term { who: vec![Who::of(term)], key: term.topology_key.clone(), live_only: false };
        let spread = |written: &SpreadFacts| Term {
            who: vec![Who {
                selector: written.selector.clone(),
                namespaces: [facts.namespace.clone()].into(),
                namespace_selector: None,
            }],
            key: written.topology_key.clone(),
            live_only: true,
        };
        let together = |term: &PodTerm| Term { who: all.clone(), key: term.topology_key.clone(), live_only: false };
        Terms {
            affinity: shape.pod_affinity.iter().map(|term| self.term(together(term))).collect(),
            anti: shape.pod_anti_affinity.iter().map(|term| self.term(one(term))).collect(),
            preferred: shape
                .preferred_pod_affinity
                .iter()
                .map(|(weight, term)| (*weight, self.term(one(term))))
                .collect(),
            spread: shape.spread.iter().map(|written| self.term(spread(written))).collect(),
            member_of: Vec::new(),
        }
    }

    fn term(&mut self, term: Term) -> TermIdx {
        if let Some(idx) = self.registry.by_term.get(&term) {
            return *idx;
        }
        let labels = self.nodes.iter().enumerate().map(|(at, node)| {
            let value = node.as_ref().and_then(|node| node.facts.labels.get(&term.key));
            (NodeIdx(at as u32), value)
        });
        self.rooms.tallies_mut().add_term(&term.key, labels);
        self.registry.add(term)
    }

    /// Gives the pods that belong to a new term their new shape.
    fn admit_members(&mut self, term: TermIdx) {
        let none = BTreeMap::new();
        let registry = &self.registry;
        let members: Vec<PodIdx> = (0..self.pods.len())
            .filter(|at| {
                self.pods[*at].as_ref().is_some_and(|pod| {
                    let home = registry.namespaces.get(&pod.facts.namespace).unwrap_or(&none);
                    belongs(&registry.terms[term.at()], &pod.facts.namespace, home, &pod.facts.labels)
                })
            })
            .map(|at| PodIdx(at as u32))
            .collect();
        for pod in members {
            self.reintern(pod);
        }
    }

    fn reintern(&mut self, idx: PodIdx) {
        let Some(pod) = self.pods[idx.at()].as_ref() else { return };
        let mut terms = self.shapes[pod.shape.at()].terms.clone();
        terms.member_of = self.registry.member_of(&pod.facts);
        let facts = pod.facts.shape.clone();
        let volumes = self.shapes[pod.shape.at()].volumes.clone();
        let shape = self.intern_shape(&facts, terms, &volumes);
        let Some(pod) = self.pods[idx.at()].as_mut() else { return };
        if pod.shape == shape {
            return;
        }
        pod.shape = shape;
        let node = pod.node.as_ref().and_then(|name| self.node_by_name.get(name)).copied();
        if let Some(node) = node {
            self.push_room(node);
        }
    }

    /// A namespace's labels changed (`None`: it is gone): its pods may belong to other terms.
    pub(super) fn label_namespace(&mut self, name: &str, labels: Option<BTreeMap<String, String>>) {
        if self.registry.namespaces.get(name) == labels.as_ref() {
            return;
        }
        match labels {
            Some(labels) => self.registry.namespaces.insert(name.to_owned(), labels),
            None => self.registry.namespaces.remove(name),
        };
        if self.registry.anywhere.is_empty() {
            return;
        }
        self.changes.all = true;
        for at in 0..self.pods.len() {
            if self.pods[at].as_ref().is_some_and(|pod| pod.facts.namespace == name) {
                self.reintern(PodIdx(at as u32));
            }
        }
    }

    /// Labels of a namespace, as told; none when it is not known.
    pub(crate) fn namespace_labels(&self, name: &str) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.registry.namespaces.get(name).unwrap_or(&NONE)
    }

    /// Namespaces and their labels, as told.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = (&String, &BTreeMap<String, String>)> {
        self.registry.namespaces.iter()
    }

    /// Counts by term and domain as text, independent of the order in which terms came.
    /// Terms that no pod has any more are left out.
    pub(super) fn counts_digest(&self) -> String {
        let used: BTreeSet<TermIdx> =
            self.pods.iter().flatten().flat_map(|pod| self.shapes[pod.shape.at()].terms.own()).collect();
        let mut lines: Vec<String> = Vec::new();
        for (term, idx) in self.registry.by_term.iter().filter(|(_, idx)| used.contains(idx)) {
            for (name, mark) in
                [("in", Mark::Member(*idx)), ("avoided", Mark::Avoids(*idx)), ("liked", Mark::Likes(*idx))]
            {
                let counts = self.rooms.tallies().by_name(mark);
                if !counts.is_empty() {
                    lines.push(format!("{name} {term:?}: {counts:?}"));
                }
            }
        }
        lines.sort_unstable();
        lines.join("\n")
    }
}
