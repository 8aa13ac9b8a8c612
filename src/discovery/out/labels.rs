//! Node labels, in the keys of Topograph's generations.

use std::collections::BTreeMap;

use crate::fabric::Fabric;
use crate::names::label_value;
use crate::node::Node;

/// How the links of a node do next to those of its peers, in whole tens of a percent: for node affinities with `Gt` and `Lt`.
pub const LINK_HEALTH: &str = "berth.scheduler/link-health";

/// Which keys are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    /// `fabric.topograph.run/tier-0` and so on: since Topograph 1.0.
    #[default]
    Current,
    /// `network.topology.nvidia.com/leaf`, `spine`, `core`: Topograph 0.3 to 0.5.
    Leaf,
    /// `network.topology.nvidia.com/block`, `spine`, `datacenter`: Topograph 0.1.
    Block,
}

impl Keys {
    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Leaf => "leaf",
            Self::Block => "block",
        }
    }

    /// By its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Current, Self::Leaf, Self::Block].into_iter().find(|keys| keys.name() == name)
    }

    /// The key of a tier; `None` above the highest that has a name.
    #[must_use]
    pub fn tier(self, tier: usize) -> Option<String> {
        let named = |names: [&str; 3]| names.get(tier).map(|name| format!("network.topology.nvidia.com/{name}"));
        match self {
            Self::Current => Some(format!("fabric.topograph.run/tier-{tier}")),
            Self::Leaf => named(["leaf", "spine", "core"]),
            Self::Block => named(["block", "spine", "datacenter"]),
        }
    }

    /// The key of the accelerator domain.
    #[must_use]
    pub fn accelerator(self) -> &'static str {
        match self {
            Self::Current => "accelerator.topograph.run/domain",
            Self::Leaf | Self::Block => "network.topology.nvidia.com/accelerator",
        }
    }

    /// The key of a part of it, where there is one.
    #[must_use]
    pub fn sub_domain(self) -> Option<&'static str> {
        (self == Self::Current).then_some("accelerator.topograph.run/sub-domain")
    }

    /// Whether a label is one that is written with these keys.
    #[must_use]
    pub fn owns(self, key: &str) -> bool {
        let tier = key.strip_prefix("fabric.topograph.run/tier-").is_some_and(|n| n.parse::<u32>().is_ok());
        match self {
            _ if key == LINK_HEALTH => true,
            Self::Current => tier || key == self.accelerator() || Some(key) == self.sub_domain(),
            Self::Leaf | Self::Block => key == self.accelerator() || (0..3).any(|tier| self.tier(tier).as_deref() == Some(key)),
        }
    }
}

/// Keys that Topograph wrote before its version 1, and the tiers that it never released.
const BEFORE_CURRENT: [&str; 8] = [
    "network.topology.nvidia.com/leaf",
    "network.topology.nvidia.com/spine",
    "network.topology.nvidia.com/core",
    "network.topology.nvidia.com/block",
    "network.topology.nvidia.com/datacenter",
    "network.topology.nvidia.com/accelerator",
    "xclr.topology.nvidia.com/domain",
    "xclr.topology.nvidia.com/sub-domain",
];

impl Keys {
    /// Whether a label is one that an older generation of Topograph wrote, and this one does not: nothing else under the same
    /// prefixes, since sites have labels of their own there.
    #[must_use]
    pub fn is_older(self, key: &str) -> bool {
        let tier = key.strip_prefix("network.topology.nvidia.com/tier-").is_some_and(|n| n.parse::<u32>().is_ok());
        match self {
            Self::Current => tier || BEFORE_CURRENT.contains(&key),
            Self::Leaf => Self::Block.owns(key) && !self.owns(key),
            Self::Block => false,
        }
    }
}

/// Keys of older generations that nodes of the fabric bear, by node; but those that somebody uses. Nodes that the fabric does
/// not know keep theirs: nothing newer says where they are.
#[must_use]
pub fn old(fabric: &Fabric, keys: Keys, nodes: &[Node], in_use: &BTreeMap<String, String>) -> BTreeMap<String, Patch> {
    let known = nodes.iter().filter(|node| fabric.hosts.contains_key(&node.name));
    let patch = |node: &Node| node.labels.keys().filter(|key| keys.is_older(key) && !in_use.contains_key(*key)).map(|key| (key.clone(), None)).collect();
    known.map(|node| (node.name.clone(), patch(node))).filter(|(_, patch): &(String, Patch)| !patch.is_empty()).collect()
}

/// Labels of every host of the fabric.
#[must_use]
pub fn labels(fabric: &Fabric, keys: Keys) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for (name, host) in &fabric.hosts {
        let mut labels = BTreeMap::new();
        for (tier, domain) in host.tiers.iter().enumerate() {
            if let Some(key) = keys.tier(tier) {
                labels.insert(key, label_value(domain));
            }
        }
        if let Some(domain) = &host.accelerator {
            labels.insert(keys.accelerator().to_owned(), label_value(domain));
        }
        if let (Some(key), Some(domain)) = (keys.sub_domain(), &host.sub_domain) {
            labels.insert(key.to_owned(), label_value(domain));
        }
        if let Some(health) = host.health {
            labels.insert(LINK_HEALTH.to_owned(), health.to_string());
        }
        all.insert(name.clone(), labels);
    }
    all
}

/// What to change on a node: a label to set, or, with `None`, to take away.
pub type Patch = BTreeMap<String, Option<String>>;

/// Changes that make the labels of nodes those of the fabric; only keys of this kind are touched, only nodes that change are
/// named, and a node that the fabric does not know keeps what it has.
#[must_use]
pub fn patches(fabric: &Fabric, keys: Keys, nodes: &[Node]) -> BTreeMap<String, Patch> {
    crate::drift::drift(fabric, keys, nodes).patches()
}
