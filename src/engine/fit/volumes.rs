//! What a pod's claims ask of nodes, as part of its shape, and which nodes can give it.
//!
//! A claim that is bound restricts nodes by its volume's node affinity and zone
//! labels. One that waits for its first consumer is served by a free volume that
//! the node reaches, the smallest first, or by provisioning. Volumes that count
//! against a limit of the node are requests like any other (`driver_column`);
//! those that several pods use count once per node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::selectors::selects;
use crate::facts::{LabelSelector, NodeFacts, NodeTerm, ObjectKey, Problem};
use crate::ids::NodeIdx;
use crate::outcome::Rule;

/// Labels of a volume that restrict nodes, each with the name that replaced it.
const ZONE_LABELS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];
/// Separates the zones of a volume that is in several.
const ZONE_SEPARATOR: &str = "__";
/// Claims of one pod that may wait for a node: one bit each.
pub const MAX_WAITS: usize = 64;
/// Begins the name of the column that counts the volumes of a driver: no resource has a blank in its name.
const COLUMN_PREFIX: &str = "volumes of ";
/// Volumes that a node without a limit takes: more than anybody attaches, and sums over a cluster stay in range.
pub const NO_LIMIT: i64 = 1 << 40;

/// The column that counts the volumes of a driver.
#[must_use]
pub fn driver_column(driver: &str) -> String {
    format!("{COLUMN_PREFIX}{driver}")
}

/// The driver that a column counts the volumes of.
#[must_use]
pub fn driver_of(column: &str) -> Option<&str> {
    column.strip_prefix(COLUMN_PREFIX)
}

/// What the claims of a pod ask of a node. Pods whose claims ask the same share a shape.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VolumeNeeds {
    /// Why no node will do before something else happens.
    pub blocked: BTreeSet<Problem>,
    /// Node affinity of bound volumes: of each list one term must match.
    pub node_terms: BTreeSet<Vec<NodeTerm>>,
    /// Zone labels of bound volumes: the label and the values that will do.
    pub zones: BTreeSet<(String, BTreeSet<String>)>,
    /// Claims that wait for a node, smallest first.
    pub waits: Vec<Wait>,
    /// Volumes of its own by driver.
    pub private: BTreeMap<String, u32>,
    /// Volumes that other pods use too: driver and handle.
    pub shared: BTreeSet<(String, String)>,
}

/// A claim that waits for its first consumer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Wait {
    /// Requested size in bytes.
    pub bytes: i64,
    /// Storage class.
    pub class: String,
    /// Access modes asked for.
    pub access_modes: Vec<String>,
    /// Asks for a raw device.
    pub block: bool,
    /// Labels of the volumes it may take.
    pub selector: Option<LabelSelector>,
    /// The node that was chosen for it already.
    pub selected: Option<String>,
    /// The volume that is reserved for it.
    pub prebound: Option<String>,
    /// The node on which it was not served in time: another one is tried first.
    pub avoid: Option<String>,
    /// Its key, when several pods use it: one place for all of them.
    pub shared: Option<ObjectKey>,
}

/// A volume that no claim has, with the nodes that reach it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FreeVolume {
    /// Capacity in bytes; first, so that lists are sorted by it.
    pub bytes: i64,
    /// Its name.
    pub name: String,
    /// Storage class.
    pub class: String,
    /// Access modes.
    pub access_modes: Vec<String>,
    /// A raw device.
    pub block: bool,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Nodes that reach it.
    pub reach: Vec<NodeIdx>,
}

/// Where the one place of a shared claim is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// Provisioned for this node.
    Node(NodeIdx),
    /// On this volume.
    Volume(Arc<FreeVolume>),
}

impl Pin {
    /// True when a pod on the node can use it.
    #[must_use]
    pub fn serves(&self, node: NodeIdx) -> bool {
        match self {
            Pin::Node(other) => *other == node,
            Pin::Volume(volume) => volume.reach.contains(&node),
        }
    }
}

impl Wait {
    /// True when the claim may take the volume.
    #[must_use]
    pub fn takes(&self, volume: &FreeVolume) -> bool {
        self.selected.is_none()
            && self.class == volume.class
            && self.bytes <= volume.bytes
            && self.block == volume.block
            && self.access_modes.iter().all(|mode| volume.access_modes.contains(mode))
            && self.selector.as_ref().is_none_or(|selector| selects(selector, &volume.labels))
    }
}

/// The zone labels of a volume: each label with the values that will do.
pub fn zones(labels: &BTreeMap<String, String>) -> impl Iterator<Item = (String, BTreeSet<String>)> {
    ZONE_LABELS.iter().filter_map(|(label, _)| {
        let values: BTreeSet<String> =
            labels.get(*label)?.split(ZONE_SEPARATOR).map(|zone| zone.trim().to_owned()).collect();
        // A label with an empty zone says nothing that could be followed.
        (!values.contains("")).then(|| ((*label).to_owned(), values))
    })
}

/// Why bound volumes, or claims that are not ready, keep the pod from the node.
#[must_use]
pub fn refusal(node: &NodeFacts, needs: &VolumeNeeds) -> Option<Rule> {
    let off = needs.node_terms.iter().any(|terms| !terms.iter().any(|term| super::term_matches(node, term)));
    if off || !needs.blocked.is_empty() || !in_zones(node, needs) {
        return Some(Rule::VolumeNode);
    }
    needs.waits.iter().any(|wait| wait.avoid.as_ref() == Some(&node.name)).then_some(Rule::NoVolume)
}

fn in_zones(node: &NodeFacts, needs: &VolumeNeeds) -> bool {
    // A node without any of these labels is taken to be in the one zone there is.
    if !ZONE_LABELS.iter().any(|(label, _)| node.labels.contains_key(*label)) {
        return true;
    }
    needs.zones.iter().all(|(label, values)| {
        let now = ZONE_LABELS.iter().find(|(old, _)| old == label).map_or(label.as_str(), |(_, now)| now);
        node.labels.get(label).or_else(|| node.labels.get(now)).is_some_and(|zone| values.contains(zone))
    })
}

/// Volumes for one more copy, by position in `free`, `None` where none is needed. `open` marks the claims that
/// need no free volume here, `done` those that are served already.
#[must_use]
pub fn choose(
    waits: &[Wait],
    free: &[Arc<FreeVolume>],
    taken: &mut [bool],
    open: u64,
    done: u64,
) -> Option<Vec<Option<usize>>> {
    let mut chosen = Vec::with_capacity(waits.len());
    for (at, wait) in waits.iter().enumerate() {
        let bit = 1_u64.checked_shl(at as u32).unwrap_or(0);
        let volume = if done & bit != 0 || wait.prebound.is_some() {
            None
        } else {
            (0..free.len()).find(|volume| !taken[*volume] && wait.takes(&free[*volume]))
        };
        match volume {
            Some(volume) => taken[volume] = true,
            None if (done | open) & bit != 0 => {}
            None => {
                for volume in chosen.into_iter().flatten() {
                    taken[volume] = false;
                }
                return None;
            }
        }
        chosen.push(volume);
    }
    Some(chosen)
}

/// Copies whose claims can be served together, at most `most`.
#[must_use]
pub fn copies(waits: &[Wait], free: &[Arc<FreeVolume>], open: u64, mut done: u64, most: u32) -> u32 {
    let mut taken = vec![false; free.len()];
    for copy in 0..most {
        let Some(chosen) = choose(waits, free, &mut taken, open, done) else { return copy };
        if chosen.iter().all(Option::is_none) {
            // The next copy needs no more than this one.
            return most;
        }
        for (at, _) in waits.iter().enumerate().filter(|(_, wait)| wait.shared.is_some()) {
            done |= 1_u64.checked_shl(at as u32).unwrap_or(0);
        }
    }
    most
}
