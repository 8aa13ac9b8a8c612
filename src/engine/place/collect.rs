//! From the tables of the exact solver to positions: the choices walked from the top down.

use super::cost::Cost;
use super::exact::{Chosen, Run, Table};
use super::state::State;
use crate::ids::DomainIdx;

impl<C: Cost> Run<'_, C> {
    /// Walks the choices of a segmented table down to positions.
    pub(super) fn collect(&self, domain: DomainIdx, table: &Table<C>, index: usize, chosen: &mut Chosen) {
        let (state, dims) = table.uncounted(table.dims.of(index));
        if table.lifted.is_some() {
            let counted = State { j: 0, b: 0, m: self.pods_of(state), ..state };
            let mut pods = Vec::new();
            self.collect_pods(domain, table, counted, &mut pods, &mut chosen.guests);
            self.cut(&mut pods.into_iter(), state.j, state.b > 0, chosen);
            return;
        }
        let merged = if table.broken.is_empty() {
            table.merged.at(state)
        } else {
            table.broken[dims.at(state)] as usize
        };
        let whole = table.merged.of(merged);
        let mut below = Chosen::default();
        let mut rest = whole;
        for (at, child) in self.instance.tree.children(domain).iter().enumerate() {
            // A child that was left out takes nothing.
            let take = table.choices[at].get(table.merged.at(rest)).map_or(0, |take| *take as usize);
            self.collect(*child, &table.children[at], take, &mut below);
            rest = rest.less(table.children[at].dims.of(take));
        }
        chosen.segments.append(&mut below.segments);
        chosen.short.append(&mut below.short);
        chosen.guests.append(&mut below.guests);
        let mut loose = below.loose.into_iter();
        self.cut(&mut loose, state.j - whole.j, state.b > whole.b, chosen);
    }

    /// Cuts positions into segments, the short one, and loose pods.
    pub(super) fn cut(
        &self,
        pods: &mut impl Iterator<Item = usize>,
        segments: usize,
        short: bool,
        chosen: &mut Chosen,
    ) {
        for _ in 0..segments {
            chosen.segments.push(pods.by_ref().take(self.demand.size).collect());
        }
        if short {
            chosen.short.extend(pods.by_ref().take(self.demand.short));
        }
        chosen.loose.extend(pods);
    }

    /// Walks the choices of a table that counts pods.
    pub(super) fn collect_pods(
        &self,
        domain: DomainIdx,
        table: &Table<C>,
        state: State,
        pods: &mut Vec<usize>,
        guests: &mut Vec<usize>,
    ) {
        let (mut rest, _) = table.uncounted(state);
        // Before lifting, if it was: the choices are those of the merge.
        let dims = table.merged;
        for (at, choice) in table.choices.iter().enumerate() {
            let take = choice.get(dims.at(rest)).map_or(0, |take| *take as usize);
            let taken = match table.children.get(at) {
                Some(child) => {
                    let taken = child.dims.of(take);
                    let below = self.instance.tree.children(domain)[at];
                    self.collect_pods(below, child, taken, pods, guests);
                    taken
                }
                None => {
                    let position = self.instance.tree.positions(domain).start + at;
                    let taken = State { m: take / (dims.g + 1), g: take % (dims.g + 1), ..State::NOTHING };
                    pods.extend(std::iter::repeat_n(position, taken.m));
                    guests.extend(std::iter::repeat_n(position, taken.g));
                    taken
                }
            };
            rest = rest.less(taken);
        }
    }
}
