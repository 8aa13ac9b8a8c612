//! Pods of several shapes on the nodes of a domain without domains below it.

use std::collections::BTreeMap;

use super::states::Layout;
use crate::fit;
use crate::ids::{DomainIdx, NodeIdx, ShapeIdx, TreeIdx};
use crate::place::Solver;
use crate::rooms::{self, Shape};
use crate::world::model::Room;

/// The largest combinations of pods that one node takes, counts by shape.
pub(super) type Largest = Vec<Vec<usize>>;

/// Nodes that take the same.
#[derive(Default)]
pub(super) struct Classes {
    numbers: BTreeMap<Vec<i64>, usize>,
    pub(super) largest: Vec<Largest>,
}

impl Solver<'_> {
    /// Classes of a domain's nodes, in the tree's order.
    pub(super) fn classes_of(&self, layout: &Layout, tree: TreeIdx, domain: DomainIdx, classes: &mut Classes) -> Vec<usize> {
        let shapes: Vec<(ShapeIdx, usize)> = layout.shapes().collect();
        let entry = &self.trees[tree.at()];
        entry.positions(domain).map(|position| self.class_of(&shapes, entry.order[position], classes)).collect()
    }

    fn class_of(&self, shapes: &[(ShapeIdx, usize)], node: NodeIdx, classes: &mut Classes) -> usize {
        let slots: Vec<usize> =
            shapes.iter().map(|(shape, most)| (self.rooms.node_slots(*shape, node) as usize).min(*most)).collect();
        let mut key: Vec<i64> = slots.iter().map(|n| *n as i64).collect();
        let room = self.rooms.room(node).filter(|_| slots.iter().any(|n| *n > 0));
        if let Some(room) = room {
            key.extend(&room.free);
        }
        let next = classes.largest.len();
        let number = *classes.numbers.entry(key).or_insert(next);
        if number == next {
            let entries: Vec<&Shape> = shapes.iter().map(|(shape, _)| &self.shapes[shape.at()]).collect();
            classes.largest.push(room.map_or_else(|| vec![vec![0; shapes.len()]], |room| largest(room, &entries, &slots)));
        }
        number
    }
}

/// The combinations that no other one of the node holds.
fn largest(room: &Room, shapes: &[&Shape], slots: &[usize]) -> Largest {
    let mut found = Vec::new();
    go(room, shapes, slots, &mut Vec::new(), &mut found);
    let within = |a: &[usize], b: &[usize]| a != b && a.iter().zip(b).all(|(a, b)| a <= b);
    let largest = found.iter().filter(|one| !found.iter().any(|other| within(one, other)));
    largest.cloned().collect()
}

fn go(room: &Room, shapes: &[&Shape], slots: &[usize], counts: &mut Vec<usize>, found: &mut Largest) {
    let Some(shape) = shapes.get(counts.len()) else { return found.push(counts.clone()) };
    let most = slots[counts.len()].min(fit::slots(room, shape) as usize);
    // Of the last one nothing but the most is of use.
    let from = if counts.len() + 1 == shapes.len() { most } else { 0 };
    let mut room = room.clone();
    for n in 0..=most {
        if n > 0 {
            rooms::occupy(&mut room, shape);
        }
        if n >= from {
            counts.push(n);
            go(&room, shapes, slots, counts, found);
            counts.pop();
        }
    }
}

/// The states that nodes can hold together, after each of them; the work is what it took.
pub(super) fn held(nodes: &[&Largest], layout: &Layout, work: &mut u64) -> Vec<Vec<bool>> {
    let mut now = vec![false; layout.n_states()];
    now[0] = true;
    let mut after = Vec::with_capacity(nodes.len() + 1);
    after.push(now.clone());
    for largest in nodes {
        let mut next = now.clone();
        for (state, _) in now.iter().enumerate().filter(|(_, held)| **held) {
            *work += largest.len() as u64;
            for more in largest.iter() {
                next[layout.more(state, more)] = true;
            }
        }
        layout.close(&mut next);
        *work += next.len() as u64;
        after.push(next.clone());
        now = next;
    }
    after
}

/// Counts by node and shape for a state that the nodes hold.
pub(super) fn split(nodes: &[&Largest], layout: &Layout, state: usize) -> Option<Vec<Vec<usize>>> {
    let after = held(nodes, layout, &mut 0);
    let mut left = state;
    let mut counts = Vec::with_capacity(nodes.len());
    for (at, largest) in nodes.iter().enumerate().rev() {
        let rests = std::iter::once(left).chain(largest.iter().map(|less| layout.less(left, less)));
        let rest = rests.into_iter().find(|rest| after[at][*rest])?;
        let taken = layout.counts(left).iter().zip(layout.counts(rest)).map(|(n, rest)| n - rest).collect();
        counts.push(taken);
        left = rest;
    }
    counts.reverse();
    (left == 0).then_some(counts)
}
