//! Topology trees: nodes in depth-first order, so that a domain is a range.
//!
//! A tree has one root (depth 0) and one layer of domains per level. Identity
//! is the whole path: `b1/r1` and `b2/r1` are two domains. A node takes part
//! down to its first missing, empty or placeholder label; below that it stands
//! alone in *absent* domains, which count when domains are counted and are
//! never chosen to contain a gang. The tree holds structure only, no capacity.

use crate::facts::{LevelFacts, NodeFacts};
use crate::ids::{DomainIdx, NodeIdx};
use crate::outcome::DomainPath;

/// Label values that say "no value" (lower case), as labellers write them.
const PLACEHOLDERS: [&str; 6] =
    ["", "none", "null", "unknown", "n/a", "00000000-0000-0000-0000-000000000000"];

/// One domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// 0 for the root, `i + 1` for level `i`.
    pub depth: usize,
    /// The domain above; the root is its own parent.
    pub parent: DomainIdx,
    /// Label value; the node's name for an absent domain; empty for the root.
    pub value: String,
    /// The node has no value at this level: a domain of its own.
    pub absent: bool,
    /// First position of its nodes in `Tree::order`.
    pub start: u32,
    /// One past its last position.
    pub end: u32,
}

/// A tree over all live nodes for one list of levels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Level labels, widest first.
    pub labels: Vec<String>,
    /// Aliases by level.
    pub aliases: Vec<Option<String>>,
    /// Nodes in depth-first name order.
    pub order: Vec<NodeIdx>,
    /// Domains in depth-first order, the root first.
    pub domains: Vec<Domain>,
    /// Domain indices by depth.
    pub by_depth: Vec<Vec<DomainIdx>>,
    /// Position by node index; `u32::MAX` where the node is not in the tree.
    position: Vec<u32>,
    /// The deepest domain of each position.
    leaf: Vec<DomainIdx>,
    /// Children by domain.
    children: Vec<Vec<DomainIdx>>,
}

impl Tree {
    /// The root domain.
    pub const ROOT: DomainIdx = DomainIdx(0);

    /// Builds the tree over the nodes given as (index, facts).
    #[must_use]
    pub fn build(levels: &[LevelFacts], nodes: &[(NodeIdx, &NodeFacts)]) -> Self {
        let mut rows: Vec<(Vec<(bool, &str)>, &str, NodeIdx)> = nodes
            .iter()
            .map(|(idx, facts)| (path_of(levels, facts), facts.name.as_str(), *idx))
            .collect();
        rows.sort_unstable();
        let mut tree = Self {
            labels: levels.iter().map(|level| level.label.clone()).collect(),
            aliases: levels.iter().map(|level| level.alias.clone()).collect(),
            order: rows.iter().map(|row| row.2).collect(),
            domains: Vec::new(),
            by_depth: vec![Vec::new(); levels.len() + 1],
            position: Vec::new(),
            leaf: Vec::new(),
            children: Vec::new(),
        };
        let n_slots = nodes.iter().map(|(idx, _)| idx.at() + 1).max().unwrap_or(0);
        tree.position = vec![u32::MAX; n_slots];
        tree.open(0, Self::ROOT, String::new(), false, 0);
        let mut path: Vec<DomainIdx> = vec![Self::ROOT];
        for (position, (values, _, idx)) in rows.iter().enumerate() {
            let position = position as u32;
            tree.position[idx.at()] = position;
            let common = if position == 0 {
                0
            } else {
                let before = &rows[position as usize - 1].0;
                before.iter().zip(values).take_while(|(a, b)| a == b).count()
            };
            path.truncate(common + 1);
            for (level, (absent, value)) in values.iter().enumerate().skip(common) {
                let parent = path[level];
                path.push(tree.open(level + 1, parent, (*value).to_owned(), *absent, position));
            }
            for domain in &path {
                tree.domains[domain.at()].end = position + 1;
            }
            tree.leaf.push(path[levels.len()]);
        }
        tree
    }

    fn open(
        &mut self,
        depth: usize,
        parent: DomainIdx,
        value: String,
        absent: bool,
        start: u32,
    ) -> DomainIdx {
        let idx = DomainIdx(self.domains.len() as u32);
        self.domains.push(Domain { depth, parent, value, absent, start, end: start });
        self.by_depth[depth].push(idx);
        self.children.push(Vec::new());
        if idx != parent {
            self.children[parent.at()].push(idx);
        }
        idx
    }

    /// Number of levels.
    #[must_use]
    pub fn n_levels(&self) -> usize {
        self.labels.len()
    }

    /// Children of a domain, in name order.
    #[must_use]
    pub fn children(&self, domain: DomainIdx) -> &[DomainIdx] {
        &self.children[domain.at()]
    }

    /// The domain.
    #[must_use]
    pub fn domain(&self, domain: DomainIdx) -> &Domain {
        &self.domains[domain.at()]
    }

    /// Positions of a domain's nodes.
    #[must_use]
    pub fn positions(&self, domain: DomainIdx) -> std::ops::Range<usize> {
        let domain = &self.domains[domain.at()];
        domain.start as usize..domain.end as usize
    }

    /// Position of a node in `order`.
    #[must_use]
    pub fn position(&self, node: NodeIdx) -> Option<usize> {
        self.position.get(node.at()).filter(|p| **p != u32::MAX).map(|p| *p as usize)
    }

    /// The deepest domain at a position.
    #[must_use]
    pub fn leaf_at(&self, position: usize) -> DomainIdx {
        self.leaf[position]
    }

    /// The domain of a node at a depth.
    #[must_use]
    pub fn domain_of(&self, node: NodeIdx, depth: usize) -> Option<DomainIdx> {
        let mut domain = self.leaf[self.position(node)?];
        while self.domains[domain.at()].depth > depth {
            domain = self.domains[domain.at()].parent;
        }
        Some(domain)
    }

    /// Depth of a level named by label or alias.
    #[must_use]
    pub fn depth_of_level(&self, name: &str) -> Option<usize> {
        self.labels
            .iter()
            .position(|label| label == name)
            .or_else(|| self.aliases.iter().position(|alias| alias.as_deref() == Some(name)))
            .map(|level| level + 1)
    }

    /// Label of a depth above 0.
    #[must_use]
    pub fn label(&self, depth: usize) -> &str {
        depth.checked_sub(1).and_then(|level| self.labels.get(level)).map_or("", String::as_str)
    }

    /// Path of a domain as (label, value), absent levels left out.
    #[must_use]
    pub fn path(&self, domain: DomainIdx) -> DomainPath {
        let mut path = Vec::new();
        let mut at = domain;
        while self.domains[at.at()].depth > 0 {
            let domain = &self.domains[at.at()];
            if !domain.absent {
                path.push((self.label(domain.depth).to_owned(), domain.value.clone()));
            }
            at = domain.parent;
        }
        path.reverse();
        path
    }

    /// Path of a node's deepest domain; empty when the node is not in the tree.
    #[must_use]
    pub fn path_of(&self, node: NodeIdx) -> DomainPath {
        self.position(node).map(|position| self.path(self.leaf_at(position))).unwrap_or_default()
    }

    /// True when two domains have the same shape: as many domains of as many nodes, level by level.
    #[must_use]
    pub fn alike(&self, a: DomainIdx, b: DomainIdx) -> bool {
        let (first, second) = (self.domain(a), self.domain(b));
        let (below, other) = (self.children(a), self.children(b));
        first.depth == second.depth
            && first.absent == second.absent
            && first.end - first.start == second.end - second.start
            && below.len() == other.len()
            && below.iter().zip(other).all(|(a, b)| self.alike(*a, *b))
    }

    /// True when `inner` is `outer` or below it.
    #[must_use]
    pub fn contains(&self, outer: DomainIdx, inner: DomainIdx) -> bool {
        let (outer_domain, inner_domain) = (self.domain(outer), self.domain(inner));
        outer_domain.depth <= inner_domain.depth
            && outer_domain.start <= inner_domain.start
            && inner_domain.end <= outer_domain.end
            && (outer == inner || outer_domain.depth < inner_domain.depth)
    }
}

/// (absent, value) per level; below the first missing label the node stands alone.
fn path_of<'a>(levels: &[LevelFacts], node: &'a NodeFacts) -> Vec<(bool, &'a str)> {
    let mut missing = false;
    levels
        .iter()
        .map(|level| {
            let value = node.labels.get(&level.label).map_or("", String::as_str);
            missing = missing || is_placeholder(value);
            if missing { (true, node.name.as_str()) } else { (false, value) }
        })
        .collect()
}

/// True when the value is empty or says that there is none.
#[must_use]
pub fn is_placeholder(value: &str) -> bool {
    PLACEHOLDERS.iter().any(|placeholder| value.eq_ignore_ascii_case(placeholder))
}
