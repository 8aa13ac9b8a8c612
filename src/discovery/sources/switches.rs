//! From links between switches and hosts to tiers of domains.
//!
//! A leaf is a switch with any adapter, asked for or not: what is asked for never changes where the tiers are. Leaves of
//! one rail group share most of their hosts, not all of them, since cables are missing and adapters have no name;
//! so groups are made by overlap: two belong together when at least half of the hosts of either are on both. The tiers
//! above are made alike, over the groups below.

use std::collections::{BTreeMap, BTreeSet};

use crate::fabric::{Fabric, Host};
use crate::names::listed;

/// Links as a source tells them; counted once whichever end tells them.
#[derive(Clone, Debug, Default)]
pub struct Links {
    /// Name of every switch, by id.
    pub switches: BTreeMap<String, String>,
    /// Switches with an adapter of anybody.
    pub leaves: BTreeSet<String>,
    /// Number of links of a host to a switch, by host and switch id.
    pub hosts: BTreeMap<String, BTreeMap<String, u32>>,
    /// Number of links between two switches, both ways.
    pub between: BTreeMap<String, BTreeMap<String, u32>>,
}

/// Domains of one tier: members (switch ids) by number.
#[derive(Clone, Debug, Default)]
struct Tier {
    names: Vec<String>,
    group_of: BTreeMap<String, usize>,
    members: Vec<Vec<String>>,
}

impl Links {
    /// Hosts with their domains.
    #[must_use]
    pub fn fabric(&self) -> Fabric {
        let distance = self.distances();
        let mut notes = Fabric::default();
        let hosts_of = self.hosts_by_leaf();
        let first = self.tier(hosts_of.clone());
        self.note_leaves(&first, &hosts_of, &mut notes);
        let mut tiers = vec![first];
        let mut parents: Vec<Vec<Option<usize>>> = Vec::new();
        let highest = distance.values().copied().max().unwrap_or(0);
        for height in 1..=highest {
            let below = &tiers[height - 1];
            let at: Vec<&String> = distance.iter().filter(|(_, at)| **at == height).map(|(switch, _)| switch).collect();
            let children = at.into_iter().map(|switch| (switch.clone(), self.children(switch, below))).filter(|(_, children)| !children.is_empty());
            let tier = self.tier(children.collect());
            if tier.members.is_empty() {
                break;
            }
            parents.push((0..below.members.len()).map(|group| self.parent(group, below, &tier)).collect());
            tiers.push(tier);
        }
        let mut paths = BTreeMap::new();
        for (host, links) in &self.hosts {
            let Some(group) = self.group(host, links, &tiers[0], &mut notes) else { continue };
            let mut path = vec![tiers[0].names[group].clone()];
            let mut at = Some(group);
            for (height, parents) in parents.iter().enumerate() {
                at = at.and_then(|group| parents[group]);
                path.extend(at.map(|group| tiers[height + 1].names[group].clone()));
            }
            paths.insert(host.clone(), Host { tiers: path, ..Host::default() });
        }
        let mut fabric = Fabric::from_paths(paths);
        self.note_uplinks(&tiers[0], &distance, &mut notes);
        fabric.findings.extend(notes.findings);
        fabric
    }

    fn hosts_by_leaf(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut hosts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (host, links) in &self.hosts {
            for switch in links.keys() {
                hosts.entry(switch.clone()).or_default().insert(host.clone());
            }
        }
        hosts
    }

    /// Steps from the nearest leaf.
    fn distances(&self) -> BTreeMap<String, usize> {
        let mut distance: BTreeMap<String, usize> = self.leaves.iter().map(|leaf| (leaf.clone(), 0)).collect();
        let mut front: Vec<String> = self.leaves.iter().cloned().collect();
        let mut height = 0;
        while !front.is_empty() {
            height += 1;
            let mut next = BTreeSet::new();
            for switch in front {
                for peer in self.between.get(&switch).into_iter().flat_map(BTreeMap::keys) {
                    if !distance.contains_key(peer) {
                        next.insert(peer.clone());
                    }
                }
            }
            next.iter().for_each(|switch| _ = distance.insert(switch.clone(), height));
            front = next.into_iter().collect();
        }
        distance
    }

    /// Groups of the tier below that a switch is linked to, as text for the overlap.
    fn children(&self, switch: &str, below: &Tier) -> BTreeSet<String> {
        let peers = self.between.get(switch).into_iter().flat_map(BTreeMap::keys);
        peers.filter_map(|peer| below.group_of.get(peer)).map(ToString::to_string).collect()
    }

    /// Groups switches by what is below them.
    fn tier(&self, below: BTreeMap<String, BTreeSet<String>>) -> Tier {
        let switches: Vec<&String> = below.keys().collect();
        let mut of: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, children) in below.values().enumerate() {
            children.iter().for_each(|child| of.entry(child).or_default().push(at));
        }
        let mut union: Vec<usize> = (0..switches.len()).collect();
        let sizes: Vec<usize> = below.values().map(BTreeSet::len).collect();
        let mut shared: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for above in of.values() {
            // Many switches over one child: compared with the first of them, which all resemble if any do.
            for (n, a) in above.iter().enumerate() {
                let most = if above.len() > 64 { 8 } else { above.len() };
                above[n + 1..].iter().take(most).for_each(|b| *shared.entry((*a, *b)).or_default() += 1);
            }
        }
        for ((a, b), both) in shared {
            if both * 2 >= sizes[a] + sizes[b] - both {
                let (a, b) = (root(&union, a), root(&union, b));
                union[a.max(b)] = a.min(b);
            }
        }
        let mut groups: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for (at, switch) in switches.iter().enumerate() {
            groups.entry(root(&union, at)).or_default().push((*switch).clone());
        }
        self.named(groups.into_values().collect())
    }

    /// A group is called as the first of its switches; by its id where names are not their own.
    fn named(&self, members: Vec<Vec<String>>) -> Tier {
        let name = |switch: &String| self.switches.get(switch).filter(|name| !name.is_empty()).unwrap_or(switch).clone();
        let mut names: Vec<String> = members.iter().map(|group| group.iter().map(name).min().unwrap_or_default()).collect();
        let unique: BTreeSet<&String> = names.iter().collect();
        if unique.len() < names.len() {
            names = members.iter().map(|group| group.first().cloned().unwrap_or_default()).collect();
        }
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by(|a, b| names[*a].cmp(&names[*b]));
        let mut tier = Tier::default();
        for (at, old) in order.into_iter().enumerate() {
            members[old].iter().for_each(|switch| _ = tier.group_of.insert(switch.clone(), at));
            tier.names.push(names[old].clone());
            tier.members.push(members[old].clone());
        }
        tier
    }

    /// The group above with the most links; the first of equals.
    fn parent(&self, group: usize, below: &Tier, above: &Tier) -> Option<usize> {
        let mut links: BTreeMap<usize, u32> = BTreeMap::new();
        for switch in &below.members[group] {
            for (peer, n) in self.between.get(switch).into_iter().flatten() {
                if let Some(parent) = above.group_of.get(peer) {
                    *links.entry(*parent).or_default() += n;
                }
            }
        }
        links.into_iter().max_by_key(|(parent, n)| (*n, std::cmp::Reverse(*parent))).map(|(parent, _)| parent)
    }

    /// The rail group of a host: the one with most of its links; of equals the one with fewer leaves, then the first.
    fn group(&self, host: &str, links: &BTreeMap<String, u32>, leaves: &Tier, notes: &mut Fabric) -> Option<usize> {
        let mut by_group: BTreeMap<usize, u32> = BTreeMap::new();
        for (switch, n) in links {
            if let Some(group) = leaves.group_of.get(switch) {
                *by_group.entry(*group).or_default() += n;
            }
        }
        let best = by_group.iter().max_by_key(|(group, n)| (**n, std::cmp::Reverse((leaves.members[**group].len(), **group)))).map(|(group, _)| *group)?;
        if by_group.len() > 1 {
            let names = by_group.keys().map(|group| leaves.names[*group].as_str());
            notes.find("SeveralGroups", host, format!("is on the leaves of several groups: {}; {} is taken", listed(names, 4), leaves.names[best]));
        }
        let rails = leaves.members[best].len();
        let on = links.keys().filter(|switch| leaves.group_of.get(*switch) == Some(&best)).count();
        if on < rails {
            notes.find("MissingLinks", host, format!("is on {on} of the {rails} leaves of its group {}", leaves.names[best]));
        }
        Some(best)
    }

    /// Groups with fewer leaves than most have, and leaves without hosts.
    fn note_leaves(&self, leaves: &Tier, hosts: &BTreeMap<String, BTreeSet<String>>, notes: &mut Fabric) {
        let mut sizes: Vec<usize> = leaves.members.iter().map(Vec::len).collect();
        sizes.sort_unstable();
        let usual = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
        for (name, members) in leaves.names.iter().zip(&leaves.members).filter(|(_, members)| members.len() < usual) {
            notes.find("FewLeaves", name, format!("has {} leaves; most groups have {usual}", members.len()));
        }
        for leaf in self.leaves.iter().filter(|leaf| !hosts.contains_key(*leaf)) {
            notes.find("NoHosts", self.switches.get(leaf).unwrap_or(leaf), "is a leaf on which no adapter has the name of a host");
        }
    }

    /// Leaves with fewer uplinks than others of the fabric.
    fn note_uplinks(&self, leaves: &Tier, distance: &BTreeMap<String, usize>, notes: &mut Fabric) {
        let up = |switch: &String| -> u32 {
            let peers = self.between.get(switch).into_iter().flatten();
            peers.filter(|(peer, _)| distance.get(*peer) == Some(&1)).map(|(_, n)| n).sum()
        };
        let most = leaves.group_of.keys().map(up).max().unwrap_or(0);
        for leaf in leaves.group_of.keys().filter(|leaf| up(leaf) < most) {
            notes.find("FewUplinks", self.switches.get(leaf).unwrap_or(leaf), format!("has {} links up; others have {most}", up(leaf)));
        }
    }
}

fn root(union: &[usize], mut at: usize) -> usize {
    while union[at] != at {
        at = union[at];
    }
    at
}
