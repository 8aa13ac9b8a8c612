//! How many pods of each term are in each domain: what rules between pods read.
//!
//! A *term* is a set of pods and the node label whose values are its domains.
//! A *mark* is what a placed pod adds on its node: that it belongs to a term,
//! that it avoids the pods of a term, or that it likes them. Sums by domain are
//! moved with every pod that comes or goes, on the ledger too; no rule walks
//! over pods.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{LabelSelector, PodTerm};
use crate::ids::{NodeIdx, TermIdx};

/// Which pods: labels and namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Who {
    /// Labels; `None` matches no pod.
    pub selector: Option<LabelSelector>,
    /// Namespaces by name.
    pub namespaces: std::collections::BTreeSet<String>,
    /// Namespaces by their labels.
    pub namespace_selector: Option<LabelSelector>,
}

impl Who {
    /// The pods of an affinity term.
    #[must_use]
    pub fn of(term: &PodTerm) -> Self {
        Self {
            selector: term.selector.clone(),
            namespaces: term.namespaces.clone(),
            namespace_selector: term.namespace_selector.clone(),
        }
    }
}

/// A set of pods, those that every part matches, counted by one node label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term {
    /// All must match.
    pub who: Vec<Who>,
    /// The node label.
    pub key: String,
    /// Terminating pods do not count (spread constraints).
    pub live_only: bool,
}

/// What a placed pod adds for a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// It is one of the pods.
    Member(TermIdx),
    /// It keeps the pods out of its domain.
    Avoids(TermIdx),
    /// It would like the pods in its domain (or not, when negative).
    Likes(TermIdx),
}

impl Mark {
    fn at(self) -> usize {
        match self {
            Mark::Member(term) => 3 * term.at(),
            Mark::Avoids(term) => 3 * term.at() + 1,
            Mark::Likes(term) => 3 * term.at() + 2,
        }
    }

    fn term(self) -> TermIdx {
        let (Mark::Member(term) | Mark::Avoids(term) | Mark::Likes(term)) = self;
        term
    }
}

/// Marks of a node, with how often.
pub type Marks = BTreeMap<Mark, i64>;

/// One node label: each node's value, each value's nodes.
#[derive(Clone, Debug, Default)]
struct Key {
    names: BTreeMap<String, u32>,
    by_node: Vec<Option<u32>>,
    nodes: Vec<Vec<NodeIdx>>,
    /// Values that more than one node has.
    shared: usize,
}

impl Key {
    fn label(&mut self, node: NodeIdx, value: Option<&String>) {
        if self.by_node.len() <= node.at() {
            self.by_node.resize(node.at() + 1, None);
        }
        if let Some(old) = self.by_node[node.at()].take() {
            let nodes = &mut self.nodes[old as usize];
            nodes.retain(|other| *other != node);
            self.shared -= usize::from(nodes.len() == 1);
        }
        if let Some(name) = value {
            let next = self.names.len() as u32;
            let value = *self.names.entry(name.clone()).or_insert(next);
            if self.nodes.len() <= value as usize {
                self.nodes.resize_with(value as usize + 1, Vec::new);
            }
            let nodes = &mut self.nodes[value as usize];
            nodes.push(node);
            self.shared += usize::from(nodes.len() == 2);
            self.by_node[node.at()] = Some(value);
        }
    }
}

/// The sum of one mark.
#[derive(Clone, Debug, Default)]
struct Sum {
    by_value: Vec<i64>,
    total: i64,
    /// Rises with every change.
    changes: u64,
}

/// Sums of every mark by domain.
#[derive(Clone, Debug, Default)]
pub struct Tallies {
    key_by_name: BTreeMap<String, usize>,
    keys: Vec<Key>,
    key_of_term: Vec<usize>,
    sums: Vec<Sum>,
    /// Domains whose sum changed, in order.
    log: Vec<(Mark, u32)>,
    /// How often the log was started afresh.
    epoch: u64,
}

/// Sums kept as changed before the log starts afresh: some passes' worth. What was
/// made from older sums is made anew then.
const MAX_LOG: usize = 1 << 18;

impl Tallies {
    /// Takes up a term; `labels` are the values of its key on every node. Terms come in order.
    pub fn add_term<'a>(&mut self, key: &str, labels: impl Iterator<Item = (NodeIdx, Option<&'a String>)>) {
        let next = self.keys.len();
        let at = *self.key_by_name.entry(key.to_owned()).or_insert(next);
        if at == next {
            let mut entry = Key::default();
            for (node, value) in labels {
                entry.label(node, value);
            }
            self.keys.push(entry);
        }
        self.key_of_term.push(at);
        self.sums.resize_with(3 * self.key_of_term.len(), Sum::default);
    }

    /// Notes the labels of a node that holds nothing yet (no labels when it is gone).
    pub fn label(&mut self, node: NodeIdx, labels: &BTreeMap<String, String>) {
        for (name, at) in &self.key_by_name {
            self.keys[*at].label(node, labels.get(name));
        }
    }

    /// The domain of a node for a term.
    #[must_use]
    pub fn value(&self, term: TermIdx, node: NodeIdx) -> Option<u32> {
        self.keys[self.key_of_term[term.at()]].by_node.get(node.at()).copied().flatten()
    }

    /// The label of a term, by a number that equal labels share.
    #[must_use]
    pub fn key(&self, term: TermIdx) -> usize {
        self.key_of_term[term.at()]
    }

    /// No domain of the term has more than one node.
    #[must_use]
    pub fn one_node_each(&self, term: TermIdx) -> bool {
        self.keys[self.key_of_term[term.at()]].shared == 0
    }

    /// Adds marks of a node; returns the domains' nodes for which a hard mark appeared or vanished.
    pub fn shift(&mut self, node: NodeIdx, mark: Mark, by: i64, crossed: &mut Vec<NodeIdx>) {
        let key = &self.keys[self.key_of_term[mark.term().at()]];
        let Some(value) = key.by_node.get(node.at()).copied().flatten() else { return };
        let sum = &mut self.sums[mark.at()];
        if sum.by_value.len() <= value as usize {
            sum.by_value.resize(value as usize + 1, 0);
        }
        let count = &mut sum.by_value[value as usize];
        let before = *count;
        *count += by;
        sum.total += by;
        sum.changes += 1;
        if self.log.len() >= MAX_LOG {
            self.log.clear();
            self.epoch += 1;
        }
        self.log.push((mark, value));
        if (before == 0) != (*count == 0) && !matches!(mark, Mark::Likes(_)) {
            crossed.extend(&key.nodes[value as usize]);
        }
    }

    /// The sum of a mark in the node's domain; 0 when the node has no such label.
    #[must_use]
    pub fn near(&self, mark: Mark, node: NodeIdx) -> i64 {
        let Some(value) = self.value(mark.term(), node) else { return 0 };
        self.sums[mark.at()].by_value.get(value as usize).copied().unwrap_or(0)
    }

    /// The sum of a mark over all domains.
    #[must_use]
    pub fn total(&self, mark: Mark) -> i64 {
        self.sums[mark.at()].total
    }

    /// This moment, for `changed_since`.
    #[must_use]
    pub fn now(&self) -> (u64, usize) {
        (self.epoch, self.log.len())
    }

    /// Nodes in domains where a sum of one of the marks changed since; `None` when that is too long ago.
    #[must_use]
    pub fn changed_since(&self, (epoch, from): (u64, usize), marks: &[Mark]) -> Option<Vec<NodeIdx>> {
        if epoch != self.epoch {
            return None;
        }
        let changed = self.log.get(from..)?.iter().filter(|(mark, _)| marks.contains(mark));
        let domains: BTreeSet<(usize, u32)> = changed.map(|(mark, value)| (self.key(mark.term()), *value)).collect();
        Some(domains.iter().flat_map(|(key, value)| &self.keys[*key].nodes[*value as usize]).copied().collect())
    }

    /// A number that rises with every change of the mark.
    #[must_use]
    pub fn changes(&self, mark: Mark) -> u64 {
        self.sums[mark.at()].changes
    }

    /// The sums that are not zero, by name of value: for comparing two worlds.
    #[must_use]
    pub fn by_name(&self, mark: Mark) -> BTreeMap<&str, i64> {
        let key = &self.keys[self.key_of_term[mark.term().at()]];
        let sum = &self.sums[mark.at()].by_value;
        let at = |value: u32| sum.get(value as usize).copied().unwrap_or(0);
        let named = key.names.iter().map(|(name, value)| (name.as_str(), at(*value)));
        named.filter(|(_, count)| *count != 0).collect()
    }
}
