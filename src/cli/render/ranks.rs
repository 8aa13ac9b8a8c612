//! The map from ranks to nodes: a table for people, JSON for scripts, a hostfile for launchers.

use std::fmt::Write;

use berth_engine::outcome::{DomainPath, GangReport};
use berth_engine::world::Rank;
use serde_json::{Map as Object, Value, json};

use super::words::{hanging, ranges};
use crate::explain;
use crate::simulate::cluster::Cluster;

pub use super::words::title;

/// One gang's ranks.
pub struct Map<'a> {
    gang: &'a GangReport,
    topology: String,
    ranks: Vec<(Rank, DomainPath)>,
}

/// Ranks that follow each other on one node.
struct Run<'m> {
    first: usize,
    pods: Vec<String>,
    node: Option<&'m str>,
    domain: String,
}

impl<'a> Map<'a> {
    /// Reads the ranks of a gang.
    #[must_use]
    pub fn new(cluster: &Cluster, gang: &'a GangReport, default_topology: Option<&str>) -> Self {
        let world = cluster.world();
        let topology = world.topology_of_gang(&gang.uid, default_topology).unwrap_or_default();
        let path = |node: &String| {
            let all = world.domains_of_node(node).into_iter();
            all.filter(|(name, _)| *name == topology).map(|(_, path)| path).next().unwrap_or_default()
        };
        let ranks = world.ranks(&gang.uid).into_iter();
        let ranks = ranks.map(|rank| {
            let path = rank.node.as_ref().map(path).unwrap_or_default();
            (rank, path)
        });
        Self { gang, ranks: ranks.collect(), topology }
    }

    /// Every rank has a node.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.ranks.iter().all(|(rank, _)| rank.node.is_some())
    }

    fn runs(&self) -> Vec<Run<'_>> {
        let mut runs: Vec<Run<'_>> = Vec::new();
        for (at, (rank, path)) in self.ranks.iter().enumerate() {
            match runs.last_mut().filter(|run| run.node == rank.node.as_deref()) {
                Some(run) => run.pods.push(rank.pod.name.clone()),
                None => runs.push(Run {
                    first: at,
                    pods: vec![rank.pod.name.clone()],
                    node: rank.node.as_deref(),
                    domain: explain::domain(path),
                }),
            }
        }
        runs
    }

    /// A sentence, then a line for each run of ranks on a node.
    #[must_use]
    pub fn table(&self) -> String {
        let placed = self.ranks.iter().filter(|(rank, _)| rank.node.is_some()).count();
        let mut nodes: Vec<&str> = self.ranks.iter().filter_map(|(rank, _)| rank.node.as_deref()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let plural = if nodes.len() == 1 { "" } else { "s" };
        let mut text = hanging(
            &format!("{}: {placed} of {} ranks have a node, on {} node{plural}.", title(self.gang), self.ranks.len(), nodes.len()),
            "",
            "  ",
        );
        let mut rows = vec![["RANK".to_owned(), "NODE".to_owned(), "DOMAIN".to_owned(), "PODS".to_owned()]];
        for run in self.runs() {
            let last = run.first + run.pods.len() - 1;
            let ranks = if last == run.first { last.to_string() } else { format!("{}-{last}", run.first) };
            rows.push([ranks, run.node.unwrap_or("waits").to_owned(), run.domain, ranges(&run.pods)]);
        }
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let (rank, node, domain) = (width(0), width(1), width(2));
        for row in &rows {
            let start = format!("{:>rank$}  {:<node$}  {:<domain$}  ", row[0], row[1], row[2]);
            let _ = write!(text, "{}", hanging(&row[3], &start, &" ".repeat(start.chars().count().min(40))));
        }
        text.push('\n');
        text
    }

    /// One line for each run of ranks on a node, in rank order.
    #[must_use]
    pub fn hostfile(&self) -> String {
        let runs = self.runs();
        let lines = runs.iter().filter_map(|run| Some(format!("{} slots={}\n", run.node?, run.pods.len())));
        lines.collect()
    }

    fn json(&self) -> Value {
        let ranks = self.ranks.iter().enumerate().map(|(at, (rank, path))| {
            let domains: Object<String, Value> = path.iter().map(|(level, value)| (level.clone(), json!(value))).collect();
            json!({
                "rank": at,
                "pod": rank.pod.name,
                "subGroup": if rank.subgroup.is_empty() { "default" } else { &rank.subgroup },
                "index": rank.index,
                "node": rank.node,
                "domains": domains,
            })
        });
        json!({
            "namespace": self.gang.key.namespace,
            "podGroup": self.gang.key.name,
            "owner": self.gang.owner,
            "topology": self.topology,
            "ranks": ranks.collect::<Vec<_>>(),
        })
    }
}

/// The maps as one document.
#[must_use]
pub fn json(maps: &[Map<'_>]) -> Value {
    json!({
        "apiVersion": "berth.scheduler/v1alpha1",
        "kind": "RankMap",
        "gangs": maps.iter().map(Map::json).collect::<Vec<_>>(),
    })
}
