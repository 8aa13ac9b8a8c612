//! How the labels of nodes stand to a fabric: what differs, and who is not in it and why.

use std::collections::BTreeMap;

use crate::fabric::Fabric;
use crate::names::{KnownNodes, Match};
use crate::node::Node;
use crate::out::labels::{Keys, Patch, labels};

/// A label that is not as the fabric says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What the node has; `None` without the label.
    pub has: Option<String>,
    /// What the fabric says; `None` when the node should not bear the label.
    pub wanted: Option<String>,
}

/// A node that the fabric does not know. It keeps what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outside {
    /// Why it is not in it: one sentence that goes on after the node's name.
    pub why: String,
    /// It offers an accelerator, so somebody may miss it.
    pub accelerated: bool,
    /// Labels with these keys that it bears all the same: from an earlier discovery, or somebody else's.
    pub bears: BTreeMap<String, String>,
}

/// How the labels of nodes stand to a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Nodes whose labels are those of the fabric.
    pub same: usize,
    /// Labels that differ, by node and key.
    pub differs: BTreeMap<String, BTreeMap<String, Difference>>,
    /// Nodes that are not in the fabric.
    pub outside: BTreeMap<String, Outside>,
}

impl Drift {
    /// What makes the labels of a node those of the fabric.
    #[must_use]
    pub fn patches(&self) -> BTreeMap<String, Patch> {
        let patch = |labels: &BTreeMap<String, Difference>| labels.iter().map(|(key, label)| (key.clone(), label.wanted.clone())).collect();
        self.differs.iter().map(|(node, labels)| (node.clone(), patch(labels))).collect()
    }

    /// Nodes with accelerators that are not in the fabric: those that somebody may miss.
    pub fn missed(&self) -> impl Iterator<Item = &str> + Clone {
        self.outside.iter().filter(|(_, outside)| outside.accelerated).map(|(node, _)| node.as_str())
    }

    /// The differences of a node in one line: `key=has, wanted x; ...`.
    #[must_use]
    pub fn line(&self, node: &str) -> String {
        let one = |(key, label): (&String, &Difference)| match (&label.has, &label.wanted) {
            (Some(has), Some(wanted)) => format!("{key} is {has}, the fabric says {wanted}"),
            (None, Some(wanted)) => format!("{key} is missing, the fabric says {wanted}"),
            (Some(has), None) => format!("{key} is {has}, the fabric has no such label for it"),
            (None, None) => format!("{key} is as it should be"),
        };
        self.differs.get(node).into_iter().flatten().map(one).collect::<Vec<_>>().join("; ")
    }
}

/// Compares the labels of nodes with a fabric whose hosts are called as the nodes
/// ([`for_nodes`](Fabric::for_nodes), or a record of the last discovery). Only keys of this generation count.
#[must_use]
pub fn drift(fabric: &Fabric, keys: Keys, nodes: &[Node]) -> Drift {
    let wanted = labels(fabric, keys);
    let reasons = reasons(fabric, nodes);
    let mut drift = Drift::default();
    for node in nodes {
        let Some(wanted) = wanted.get(&node.name) else {
            let why = reasons.get(&node.name).cloned().unwrap_or_else(|| "was not found in the fabric".to_owned());
            let bears = node.labels.iter().filter(|(key, _)| keys.owns(key)).map(|(key, value)| (key.clone(), value.clone())).collect();
            drift.outside.insert(node.name.clone(), Outside { why, accelerated: node.accelerated, bears });
            continue;
        };
        let mut differs = BTreeMap::new();
        for (key, value) in node.labels.iter().filter(|(key, _)| keys.owns(key) && !wanted.contains_key(*key)) {
            differs.insert(key.clone(), Difference { has: Some(value.clone()), wanted: None });
        }
        for (key, value) in wanted.iter().filter(|(key, value)| node.labels.get(*key) != Some(value)) {
            differs.insert(key.clone(), Difference { has: node.labels.get(key).cloned(), wanted: Some(value.clone()) });
        }
        if differs.is_empty() {
            drift.same += 1;
        } else {
            drift.differs.insert(node.name.clone(), differs);
        }
    }
    drift
}

/// What the source said of nodes that it left out.
fn reasons(fabric: &Fabric, nodes: &[Node]) -> BTreeMap<String, String> {
    let known = KnownNodes::new(nodes);
    let mut reasons = BTreeMap::new();
    // These two are what `for_nodes` itself makes of a missing node.
    for finding in fabric.findings.iter().filter(|finding| !["NotANode", "NotInFabric"].contains(&finding.kind)) {
        let of = match known.find(&finding.subject) {
            Match::Node(node) => vec![node],
            Match::Ambiguous(nodes) => nodes,
            Match::Nobody => Vec::new(),
        };
        for node in of {
            reasons.entry(node).or_insert_with(|| format!("was left out: {} {}", finding.subject, finding.message));
        }
    }
    reasons
}
