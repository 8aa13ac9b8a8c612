//! What stands on every node, for trees and maps.

use std::collections::BTreeMap;

use crate::outcome::Rule;
use crate::world::World;
use crate::world::model::Node;

/// Work on a node: the pods of one gang, or of none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// UID of the gang; `None` for pods that are in none.
    pub gang: Option<String>,
    /// GPUs that its pods ask for.
    pub gpus: i64,
    /// Milli-cores that they ask for.
    pub cpu_millis: i64,
    /// How many pods.
    pub pods: u32,
}

/// A node with what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// GPUs: all, in use, held for gangs.
    pub gpus: [i64; 3],
    /// Milli-cores: all, in use, held for gangs.
    pub cpu_millis: [i64; 3],
    /// Why what is free can't be used by a plain pod: the node takes none, or another resource is used up.
    pub stranded: Option<Rule>,
    /// By gang, those without a gang last.
    pub work: Vec<Work>,
}

impl World {
    /// Every node, by name.
    #[must_use]
    pub fn node_views(&self) -> Vec<NodeView> {
        self.node_by_name.values().filter_map(|idx| self.nodes[idx.at()].as_ref()).map(|node| self.node_view(node)).collect()
    }

    fn node_view(&self, node: &Node) -> NodeView {
        let sums = |counts: &dyn Fn(&str) -> bool| {
            let sum = |row: &[i64]| row.iter().zip(&self.columns).filter(|(_, name)| counts(name)).map(|(amount, _)| *amount).sum();
            [sum(&node.allocatable), sum(&node.used), sum(&node.held)]
        };
        let is_cpu = |name: &str| name == "cpu";
        let mut work: BTreeMap<Option<String>, Work> = BTreeMap::new();
        for pod in node.pods.iter().filter_map(|idx| self.pods[idx.at()].as_ref()) {
            let gang = self.gang_of_pod(&pod.facts.uid);
            let entry = work.entry(gang.clone()).or_insert(Work { gang, gpus: 0, cpu_millis: 0, pods: 0 });
            entry.pods += 1;
            for (column, amount) in &pod.requests {
                let name = self.columns[*column].as_str();
                entry.gpus += if crate::fit::is_gpu(name) { *amount } else { 0 };
                entry.cpu_millis += if name == "cpu" { *amount } else { 0 };
            }
        }
        let mut work: Vec<Work> = work.into_values().collect();
        work.sort_by_key(|work| work.gang.is_none());
        NodeView {
            name: node.facts.name.clone(),
            gpus: sums(&crate::fit::is_gpu),
            cpu_millis: sums(&is_cpu),
            stranded: self.stranded(node),
            work,
        }
    }

    fn stranded(&self, node: &Node) -> Option<Rule> {
        if node.facts.unschedulable {
            return Some(Rule::Cordoned);
        }
        if !node.facts.ready {
            return Some(Rule::NotReady);
        }
        let used_up = |name: &&str| {
            let column = self.columns.iter().position(|column| column == name);
            column.is_some_and(|column| {
                let at = |row: &[i64]| row.get(column).copied().unwrap_or(0);
                at(&node.allocatable) > 0 && at(&node.allocatable) <= at(&node.used).saturating_add(at(&node.held))
            })
        };
        ["cpu", "memory", "pods"].iter().find(|name| used_up(name)).map(|name| Rule::Insufficient((*name).to_owned()))
    }
}
