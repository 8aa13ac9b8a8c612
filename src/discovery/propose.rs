//! A Topology from the labels that nodes have already, with the evidence for it.
//!
//! Per pool of nodes that bear the same keys: every level must be on every node, every domain lies in one wider domain,
//! levels that tell nothing apart are left out. A level label that is missing takes a node out of a topology, so what is
//! missing where is said as plainly as what was found.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{is_placeholder, listed};
use crate::node::Node;
use crate::profiles::{self, HOSTNAME, PLACES, Profile};

/// Most levels that a Topology may have.
const MAX_LEVELS: usize = 16;

/// A level of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// The node label.
    pub key: String,
    /// Domains that it makes, inside those of the levels above.
    pub domains: usize,
    /// Nodes of the smallest.
    pub smallest: usize,
    /// Nodes of the largest.
    pub largest: usize,
}

/// A key that was seen and is no level, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The node label.
    pub key: String,
    /// Why, for people.
    pub why: String,
}

/// Nodes that lack a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outside {
    /// The label that is missing, or says nothing.
    pub key: String,
    /// Nodes without it.
    pub without: Vec<String>,
    /// Nodes where it says nothing, with what it says.
    pub empty: Vec<(String, String)>,
}

/// A Topology that the labels support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Whose labels they are.
    pub profile: String,
    /// Levels, widest first; the last is the host name.
    pub levels: Vec<Level>,
    /// Nodes in it.
    pub nodes: usize,
    /// Nodes that were looked at.
    pub of: usize,
    /// Keys left out.
    pub dropped: Vec<Dropped>,
    /// Nodes left out, by the first label that they lack.
    pub outside: Vec<Outside>,
    /// What should be looked at before it is used.
    pub warnings: Vec<String>,
}

/// Which nodes are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Labels that they bear; all nodes with accelerators when empty, all nodes where there are none.
    pub selector: BTreeMap<String, String>,
    /// Nodes without accelerators too.
    pub all_nodes: bool,
}

/// Proposals, the one for most nodes first; nodes that bear different keys of a profile are pools of their own. Empty when
/// there is no node, or none with a usable label besides its host name.
#[must_use]
pub fn propose(nodes: &[Node], options: &Options) -> Vec<Proposal> {
    let nodes = chosen(nodes, options);
    let keys: BTreeSet<&str> = nodes.iter().flat_map(|node| node.labels.keys()).map(String::as_str).collect();
    let mut best: Vec<Proposal> = Vec::new();
    for profile in profiles::all(&keys) {
        let proposals = of_profile(&nodes, &profile);
        if better(&proposals, &best) {
            best = proposals;
        }
    }
    best
}

/// The nodes that the options mean.
#[must_use]
pub fn chosen<'a>(nodes: &'a [Node], options: &Options) -> Vec<&'a Node> {
    let selected = |node: &&Node| options.selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    let nodes: Vec<&Node> = nodes.iter().filter(selected).collect();
    let is_mixed = nodes.iter().any(|node| node.accelerated) && !options.all_nodes;
    nodes.into_iter().filter(|node| !is_mixed || node.accelerated).collect()
}

/// More levels for more nodes; of equals the profile named first.
fn better(new: &[Proposal], old: &[Proposal]) -> bool {
    let worth = |proposals: &[Proposal]| proposals.first().map_or((0, 0), |first| (first.nodes * (first.levels.len().saturating_sub(1)), first.nodes));
    worth(new) > worth(old)
}

fn of_profile(nodes: &[&Node], profile: &Profile) -> Vec<Proposal> {
    let mut keys: Vec<&str> = profile.fabric.iter().chain(&profile.accelerator).map(String::as_str).collect();
    keys.extend(PLACES);
    let bears = |node: &Node| -> BTreeSet<String> { keys.iter().filter(|key| value(node, key).is_some()).map(|key| (*key).to_owned()).collect() };
    let mut pools: BTreeMap<BTreeSet<String>, Vec<&Node>> = BTreeMap::new();
    for node in nodes {
        pools.entry(bears(node)).or_default().push(node);
    }
    // A pool takes in the nodes of pools that bear its keys and more.
    let mut proposals: Vec<Proposal> = pools
        .keys()
        .map(|own| {
            let members: Vec<&Node> = pools.iter().filter(|(keys, _)| own.is_subset(keys)).flat_map(|(_, nodes)| nodes).copied().collect();
            let mut proposal = for_pool(&members, profile, own);
            proposal.of = nodes.len();
            proposal.outside = outside(nodes, &proposal);
            proposal
        })
        .filter(|proposal| proposal.levels.len() > 1)
        .collect();
    proposals.sort_by_key(|proposal| std::cmp::Reverse((proposal.nodes * (proposal.levels.len() - 1), proposal.nodes)));
    proposals.dedup_by(|a, b| a.levels == b.levels);
    proposals
}

/// The value of a label, if it says something.
fn value<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    let value = if key == HOSTNAME { node.labels.get(key).unwrap_or(&node.name) } else { node.labels.get(key)? };
    (!is_placeholder(value)).then_some(value)
}

fn for_pool(nodes: &[&Node], profile: &Profile, own: &BTreeSet<String>) -> Proposal {
    let mut dropped = Vec::new();
    let present = |keys: &[String]| -> Vec<String> { keys.iter().filter(|key| own.contains(*key)).cloned().collect() };
    let mut keys: Vec<String> = PLACES.iter().filter(|key| own.contains(**key)).map(|key| (*key).to_owned()).collect();
    keys.extend(present(&profile.fabric));
    let mut keys = order_by_nesting(nodes, keys, &mut dropped);
    for key in present(&profile.accelerator) {
        insert_accelerator(nodes, &mut keys, key, &mut dropped);
    }
    let mut kept: Vec<String> = Vec::new();
    for key in keys {
        match useless(nodes, &kept, &key) {
            Some(why) => dropped.push(Dropped { key, why }),
            None => kept.push(key),
        }
    }
    let limit = MAX_LEVELS - 1;
    for key in kept.split_off(kept.len().min(limit)) {
        dropped.push(Dropped { key, why: format!("a Topology has at most {MAX_LEVELS} levels") });
    }
    kept.push(HOSTNAME.to_owned());
    let warnings = reused(nodes, &kept);
    let levels: Vec<Level> = (0..kept.len()).map(|at| level(nodes, &kept[..=at])).collect();
    let is_its_own = levels.iter().any(|level: &Level| profile.fabric.iter().chain(&profile.accelerator).any(|key| *key == level.key));
    let name = if is_its_own { profile.name } else { "well-known places" };
    Proposal { profile: name.to_owned(), levels, nodes: nodes.len(), of: nodes.len(), dropped, outside: Vec::new(), warnings }
}

/// Which values of the wider key each value of the narrower one lies in.
fn parents<'a>(nodes: &[&'a Node], wide: &str, narrow: &str) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut parents: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in nodes {
        if let (Some(wide), Some(narrow)) = (value(node, wide), value(node, narrow)) {
            parents.entry(narrow).or_default().insert(wide);
        }
    }
    parents
}

fn nests(nodes: &[&Node], wide: &str, narrow: &str) -> bool {
    parents(nodes, wide, narrow).values().all(|parents| parents.len() == 1)
}

/// The keys in their order; one that lies the other way round is moved, one that crosses all wider ones is left out.
fn order_by_nesting(nodes: &[&Node], keys: Vec<String>, dropped: &mut Vec<Dropped>) -> Vec<String> {
    let mut ordered: Vec<String> = Vec::new();
    for key in keys {
        let Some(last) = ordered.last() else {
            ordered.push(key);
            continue;
        };
        if nests(nodes, last, &key) || is_reuse(nodes, last, &key) {
            ordered.push(key);
            continue;
        }
        let at = ordered.iter().position(|wide| nests(nodes, &key, wide));
        match at.filter(|at| ordered[..*at].iter().all(|wide| nests(nodes, wide, &key))) {
            Some(at) => ordered.insert(at, key),
            None => {
                let why = crossing(nodes, last, &key);
                dropped.push(Dropped { key, why });
            }
        }
    }
    ordered
}

/// Names that every wider domain uses anew ("rack 1" in each block), so that they say nothing about where a domain ends.
fn is_reuse(nodes: &[&Node], wide: &str, narrow: &str) -> bool {
    let parents = parents(nodes, wide, narrow);
    let many = parents.values().filter(|parents| parents.len() > 1).count();
    many * 2 >= parents.len() && many > 1
}

fn crossing(nodes: &[&Node], wide: &str, narrow: &str) -> String {
    let parents = parents(nodes, wide, narrow);
    let crossing = parents.iter().filter(|(_, parents)| parents.len() > 1);
    let n = crossing.clone().count();
    let example = crossing.map(|(value, parents)| format!("{value} lies in {}", listed(parents.iter().copied(), 3))).next();
    format!("{n} of its {} domains lie in more than one of {wide}: {}", parents.len(), example.unwrap_or_default())
}

/// Puts an accelerator domain where it nests: below the narrowest level, or above those that lie inside it.
fn insert_accelerator(nodes: &[&Node], keys: &mut Vec<String>, key: String, dropped: &mut Vec<Dropped>) {
    let at = (0..=keys.len()).rev().find(|at| {
        let above = at.checked_sub(1).and_then(|at| keys.get(at)).is_none_or(|wide| nests(nodes, wide, &key));
        above && keys.get(*at).is_none_or(|narrow| nests(nodes, &key, narrow))
    });
    match at {
        Some(at) => keys.insert(at, key),
        None => {
            let why = keys.last().map(|wide| crossing(nodes, wide, &key)).unwrap_or_default();
            dropped.push(Dropped { key, why });
        }
    }
}

/// Why a key makes no level below these, if so.
fn useless(nodes: &[&Node], above: &[String], key: &str) -> Option<String> {
    let with: Vec<String> = above.iter().cloned().chain([key.to_owned()]).collect();
    let domains = sizes(nodes, &with);
    if domains.len() == 1 && nodes.len() > 1 {
        return Some(format!("the same on all {} nodes", nodes.len()));
    }
    if domains.len() == nodes.len() {
        return Some("one value per node: that is what the host name says".to_owned());
    }
    let wider = above.last()?;
    (sizes(nodes, above).len() == domains.len()).then(|| format!("the same domains as {wider}"))
}

/// Nodes per domain; a domain is the values of all keys.
fn sizes<'a>(nodes: &[&'a Node], keys: &[String]) -> BTreeMap<Vec<&'a str>, usize> {
    let mut sizes: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
    for node in nodes {
        let path: Option<Vec<&str>> = keys.iter().map(|key| value(node, key)).collect();
        if let Some(path) = path {
            *sizes.entry(path).or_default() += 1;
        }
    }
    sizes
}

fn level(nodes: &[&Node], keys: &[String]) -> Level {
    let sizes = sizes(nodes, keys);
    Level {
        key: keys.last().cloned().unwrap_or_default(),
        domains: sizes.len(),
        smallest: sizes.values().copied().min().unwrap_or(0),
        largest: sizes.values().copied().max().unwrap_or(0),
    }
}

/// Values that stand in several wider domains: each counts as a domain of its own.
fn reused(nodes: &[&Node], keys: &[String]) -> Vec<String> {
    let mut warnings = Vec::new();
    for pair in keys.windows(2).filter(|pair| pair[1] != HOSTNAME) {
        let parents = parents(nodes, &pair[0], &pair[1]);
        let reused = parents.iter().filter(|(_, parents)| parents.len() > 1);
        if let Some((value, within)) = reused.clone().next() {
            let n = reused.count();
            warnings.push(format!(
                "{n} values of {} stand in several domains of {} ({value} in {}): each counts as a domain of its own there",
                pair[1],
                pair[0],
                listed(within.iter().copied(), 3)
            ));
        }
    }
    let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
    nodes.iter().filter_map(|node| value(node, HOSTNAME)).for_each(|host| *hosts.entry(host).or_default() += 1);
    if let Some((host, n)) = hosts.iter().find(|(_, n)| **n > 1) {
        warnings.push(format!("{n} nodes bear {HOSTNAME}={host}"));
    }
    warnings
}

fn outside(nodes: &[&Node], proposal: &Proposal) -> Vec<Outside> {
    let mut by_key: BTreeMap<usize, Outside> = BTreeMap::new();
    for node in nodes {
        let Some((at, level)) = proposal.levels.iter().enumerate().find(|(_, level)| value(node, &level.key).is_none()) else { continue };
        let entry = by_key.entry(at).or_insert_with(|| Outside { key: level.key.clone(), without: Vec::new(), empty: Vec::new() });
        match node.labels.get(&level.key) {
            None => entry.without.push(node.name.clone()),
            Some(value) => entry.empty.push((node.name.clone(), value.clone())),
        }
    }
    by_key.into_values().collect()
}
