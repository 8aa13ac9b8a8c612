//! What a fabric looks like to a scheduler: hosts with a domain per tier.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{KnownNodes, Match};
use crate::weights::{Measurement, Weight};

/// A host and where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Domains, nearest first. All hosts of a fabric have the same number; a tier that is not there repeats the one below.
    pub tiers: Vec<String>,
    /// The NVLink or ultraserver domain.
    pub accelerator: Option<String>,
    /// A part of that domain.
    pub sub_domain: Option<String>,
    /// What was measured of it and of the domains it is in, next to their peers: the worst, in percent, whole tens, so that a
    /// small change is none.
    pub health: Option<u64>,
}

/// Something that was left out, or that somebody should look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// What kind of thing it is; stable: `UnnamedAdapter`, `NotANode`, `MissingLinks`.
    pub kind: &'static str,
    /// What it is about.
    pub subject: String,
    /// One sentence.
    pub message: String,
}

/// Hosts by name, and what was not understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fabric {
    /// Hosts by name.
    pub hosts: BTreeMap<String, Host>,
    /// Number of tiers of every host; 0 without a fabric.
    pub depth: usize,
    /// What was left out and why, in order.
    pub findings: Vec<Finding>,
    /// Links as measured.
    pub measured: Vec<Measurement>,
    /// Domains that were measured, next to their peers: what [`weighed`](Fabric::weighed) makes of that.
    pub weights: Vec<Weight>,
}

impl Fabric {
    /// A fabric of paths of any length, nearest domain first: a shorter one repeats its widest domain, so that the number of
    /// a tier means the same on every host, and a domain is told apart from one of the same name elsewhere.
    #[must_use]
    pub fn from_paths(paths: BTreeMap<String, Host>) -> Self {
        let depth = paths.values().map(|host| host.tiers.len()).max().unwrap_or(0);
        let mut fabric = Self { depth, ..Self::default() };
        let mut short = Vec::new();
        for (name, mut host) in paths {
            if let Some(widest) = host.tiers.last().cloned()
                && host.tiers.len() < depth
            {
                short.push(name.clone());
                host.tiers.resize(depth, widest);
            }
            fabric.hosts.insert(name, host);
        }
        if let Some(first) = short.first() {
            fabric.find("ShortPath", first, format!("{} hosts have fewer than {depth} tiers: their widest domain stands for the rest", short.len()));
        }
        fabric.check_parents();
        fabric
    }

    /// Joins what two sources say of the same hosts: tiers of the one that has them, accelerator domains of either; the first
    /// wins where both speak.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let (mut first, second) = if self.depth > 0 || other.depth == 0 { (self, other) } else { (other, self) };
        let known = crate::names::Known::new(first.hosts.keys().map(String::as_str));
        let has_both = first.depth > 0 && second.depth > 0;
        let mut paths = std::mem::take(&mut first.hosts);
        for (name, host) in second.hosts {
            let name = if let crate::names::Match::Node(found) = known.find(&name) { found } else { name };
            let entry = paths.entry(name).or_default();
            if entry.tiers.is_empty() && has_both {
                entry.tiers = host.tiers;
            }
            entry.accelerator = entry.accelerator.take().or(host.accelerator);
            entry.sub_domain = entry.sub_domain.take().or(host.sub_domain);
        }
        let mut joined = Self::from_paths(paths);
        joined.findings.extend(first.findings);
        joined.findings.extend(second.findings);
        joined.measured = first.measured;
        joined.measured.extend(second.measured);
        joined
    }

    /// Notes something.
    pub fn find(&mut self, kind: &'static str, subject: &str, message: impl Into<String>) {
        self.findings.push(Finding { kind, subject: subject.to_owned(), message: message.into() });
    }

    /// Notes domains that lie in two wider ones: the network is no tree there.
    fn check_parents(&mut self) {
        for tier in 1..self.depth {
            let mut parents: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
            for host in self.hosts.values().filter(|host| host.tiers.len() == self.depth) {
                parents.entry(&host.tiers[tier - 1]).or_default().insert(&host.tiers[tier]);
            }
            let crossing: Vec<(String, String)> = parents
                .iter()
                .filter(|(_, parents)| parents.len() > 1)
                .map(|(domain, parents)| ((*domain).to_owned(), crate::names::listed(parents.iter().copied(), 3)))
                .collect();
            for (domain, parents) in crossing {
                self.find("NotATree", &domain, format!("a domain of tier {} lies in several of tier {tier}: {parents}", tier - 1));
            }
        }
    }

    /// Hosts of each domain of a tier, by domain.
    #[must_use]
    pub fn domains(&self, tier: usize) -> BTreeMap<&str, Vec<&str>> {
        let mut domains: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, host) in &self.hosts {
            if let Some(domain) = host.tiers.get(tier) {
                domains.entry(domain).or_default().push(name);
            }
        }
        domains
    }

    /// Hosts of each accelerator domain.
    #[must_use]
    pub fn accelerators(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut domains: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, host) in &self.hosts {
            if let Some(domain) = &host.accelerator {
                domains.entry(domain).or_default().push(name);
            }
        }
        domains
    }

    /// Only these hosts, by their nodes' names; what is no node, and nodes that are nowhere, are noted.
    #[must_use]
    pub fn for_nodes(mut self, nodes: &[crate::Node]) -> Self {
        let known = KnownNodes::new(nodes);
        let hosts = std::mem::take(&mut self.hosts);
        let mut fabric = self;
        let mut nobody = Vec::new();
        for (name, host) in hosts {
            match known.find(&name) {
                Match::Node(node) => {
                    fabric.hosts.insert(node, host);
                }
                Match::Nobody => nobody.push(name),
                Match::Ambiguous(nodes) => {
                    fabric.find("Ambiguous", &name, format!("several nodes have this name without its domain: {}", nodes.join(", ")));
                }
            }
        }
        for name in nobody {
            fabric.find("NotANode", &name, "is in the fabric and no node of the cluster");
        }
        for node in nodes.iter().filter(|node| node.accelerated).map(|node| node.name.clone()).collect::<Vec<_>>() {
            if !fabric.hosts.contains_key(&node) {
                fabric.find("NotInFabric", &node, "is a node with accelerators and was not found in the fabric: it gets no label");
            }
        }
        fabric
    }
}
