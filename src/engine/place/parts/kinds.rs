//! What a task consists of: subgroups that stay whole, alike ones under one number, and loose pods by shape.

use std::collections::BTreeMap;

use crate::ids::{NodeIdx, PodIdx, ShapeIdx, TreeIdx};
use crate::place::task::Item;

/// Something that is handed to domains as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Atom {
    /// A subgroup of a kind that has no domain of its own yet.
    Part(usize),
    /// A pod that may go anywhere in the domain.
    Pod(ShapeIdx),
}

/// How many of each.
pub(super) type Content = BTreeMap<Atom, usize>;

/// Subgroups that can be exchanged for each other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// Depth of the domain that must hold one.
    pub(super) depth: usize,
    /// What is inside.
    content: Content,
    /// Where members live; one with such members is like no other.
    pub(super) live: Vec<NodeIdx>,
}

/// All kinds of a task.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    pub(super) list: Vec<Kind>,
    /// By number of the subgroup.
    of: BTreeMap<usize, usize>,
}

impl Kinds {
    /// The task taken apart; `None` where it holds what counts can't tell: a choice among subgroups, a soft level, a second tree.
    pub(super) fn of(root: &Item, tree: TreeIdx) -> Option<(Self, Content)> {
        let mut kinds = Self::default();
        let mut content = Content::new();
        kinds.take_in(root, tree, 0, &mut content)?;
        Some((kinds, content))
    }

    /// Adds what is inside an item that is in one domain of a depth.
    fn take_in(&mut self, item: &Item, tree: TreeIdx, depth: usize, content: &mut Content) -> Option<()> {
        if item.choose < item.children.len() {
            return None;
        }
        for (shape, pods) in item.pods.iter().filter(|(_, pods)| !pods.is_empty()) {
            *content.entry(Atom::Pod(*shape)).or_default() += pods.len();
        }
        for child in &item.children {
            let Some(bound) = child.bound else {
                self.take_in(child, tree, depth, content)?;
                continue;
            };
            let required = bound.required?;
            if bound.tree != tree || bound.preferred.is_some_and(|preferred| preferred > required) {
                return None;
            }
            if required <= depth {
                self.take_in(child, tree, depth, content)?;
            } else if child.n_pods() > 0 {
                let mut inside = Content::new();
                self.take_in(child, tree, required, &mut inside)?;
                let kind = Kind { depth: required, content: inside, live: child.live.clone() };
                *content.entry(Atom::Part(self.number(child.sub, kind))).or_default() += 1;
            }
        }
        Some(())
    }

    fn number(&mut self, sub: usize, kind: Kind) -> usize {
        let known = self.list.iter().position(|other| kind.live.is_empty() && *other == kind);
        let number = known.unwrap_or(self.list.len());
        if known.is_none() {
            self.list.push(kind);
        }
        self.of.insert(sub, number);
        number
    }

    /// Pods in a share, those in its parts included.
    pub(super) fn n_pods(&self, share: &[(Atom, usize)]) -> usize {
        let each = |atom: &Atom| match atom {
            Atom::Pod(_) => 1,
            Atom::Part(kind) => self.n_pods(&self.list[*kind].content.iter().map(|(atom, n)| (*atom, *n)).collect::<Vec<_>>()),
        };
        share.iter().map(|(atom, n)| n * each(atom)).sum()
    }

    /// A content with every part open that a domain of the depth holds whole.
    pub(super) fn opened(&self, content: &Content, depth: usize) -> Content {
        let mut open = Content::new();
        for (atom, n) in content {
            match atom {
                Atom::Part(kind) if self.list[*kind].depth <= depth => {
                    for (inner, each) in self.opened(&self.list[*kind].content, depth) {
                        *open.entry(inner).or_default() += each * n;
                    }
                }
                _ => *open.entry(*atom).or_default() += n,
            }
        }
        open
    }
}

/// The subgroups and pods themselves, each atom's in declared order.
#[derive(Default)]
pub(super) struct Pool<'i> {
    parts: BTreeMap<usize, Vec<&'i Item>>,
    pods: BTreeMap<ShapeIdx, Vec<PodIdx>>,
}

impl<'i> Pool<'i> {
    /// Adds what is in an item that is inside one domain of a depth, subgroups that this opens included.
    pub(super) fn open(&mut self, item: &'i Item, kinds: &Kinds, depth: usize) {
        for (shape, pods) in &item.pods {
            self.pods.entry(*shape).or_default().extend(pods);
        }
        for child in &item.children {
            match child.bound.and_then(|bound| bound.required) {
                Some(required) if required > depth => {
                    if let Some(kind) = kinds.of.get(&child.sub) {
                        self.parts.entry(*kind).or_default().push(child);
                    }
                }
                _ => self.open(child, kinds, depth),
            }
        }
    }

    /// Takes the first of each atom out, for a domain of a depth, and opens what that holds whole.
    pub(super) fn take(&mut self, share: &[(Atom, usize)], kinds: &Kinds, depth: usize) -> Self {
        let mut taken = Self::default();
        for (atom, n) in share {
            match atom {
                Atom::Pod(shape) => {
                    let pods = self.pods.entry(*shape).or_default();
                    taken.pods.entry(*shape).or_default().extend(pods.drain(..(*n).min(pods.len())));
                }
                Atom::Part(kind) => {
                    let parts = self.parts.entry(*kind).or_default();
                    for part in parts.drain(..(*n).min(parts.len())) {
                        if kinds.list[*kind].depth <= depth {
                            taken.open(part, kinds, depth);
                        } else {
                            taken.parts.entry(*kind).or_default().push(part);
                        }
                    }
                }
            }
        }
        taken
    }

    /// Pods by shape, in rank order.
    pub(super) fn into_pods(self, rank: &BTreeMap<PodIdx, usize>) -> Vec<(ShapeIdx, Vec<PodIdx>)> {
        let sorted = |mut pods: Vec<PodIdx>| {
            pods.sort_by_key(|pod| rank.get(pod));
            pods
        };
        self.pods.into_iter().filter(|(_, pods)| !pods.is_empty()).map(|(shape, pods)| (shape, sorted(pods))).collect()
    }
}
