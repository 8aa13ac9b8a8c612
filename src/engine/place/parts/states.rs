//! Numbered states: how many of each atom are in a domain.

use super::kinds::{Atom, Content};

/// Most states of a table.
const MAX_STATES: usize = 20_000;

/// The states of one depth: every count of every atom up to the most there can be.
pub(super) struct Layout {
    atoms: Vec<Atom>,
    most: Vec<usize>,
    stride: Vec<usize>,
    /// Counts of each state side by side in one word, a spare bit above each.
    packed: Vec<u64>,
    /// Added to a sum of two states it sets the spare bit of each count that is above the most.
    bias: u64,
    spare: u64,
}

impl Layout {
    /// `most` may be below the content's counts where a domain can't hold more. `None` when there are too many states.
    pub(super) fn new(content: &Content, most: impl Fn(Atom, usize) -> usize) -> Option<Self> {
        let (mut atoms, mut mosts, mut stride) = (Vec::new(), Vec::new(), Vec::new());
        let mut n = 1_usize;
        for (atom, count) in content {
            let most = most(*atom, *count).min(*count);
            atoms.push(*atom);
            mosts.push(most);
            stride.push(n);
            n = n.checked_mul(most + 1).filter(|n| *n <= MAX_STATES)?;
        }
        let mut layout = Self { atoms, most: mosts, stride, packed: Vec::new(), bias: 0, spare: 0 };
        let mut shifts = Vec::new();
        let mut shift = 0;
        for most in &layout.most {
            let bits = usize::BITS - most.leading_zeros();
            shifts.push(shift);
            layout.bias |= (((1_u64 << bits) - 1) - *most as u64) << shift;
            layout.spare |= 1 << (shift + bits);
            shift += bits + 1;
            if shift > 60 {
                return None;
            }
        }
        let packed = |state| layout.counts(state).iter().zip(&shifts).map(|(n, shift)| (*n as u64) << shift).sum();
        layout.packed = (0..n).map(packed).collect();
        Some(layout)
    }

    pub(super) fn n_states(&self) -> usize {
        self.packed.len()
    }

    /// Counts by atom.
    pub(super) fn counts(&self, state: usize) -> Vec<usize> {
        self.stride.iter().zip(&self.most).map(|(stride, most)| state / stride % (most + 1)).collect()
    }

    /// Atoms with their counts, those that are there.
    pub(super) fn share(&self, state: usize) -> Vec<(Atom, usize)> {
        self.atoms.iter().copied().zip(self.counts(state)).filter(|(_, n)| *n > 0).collect()
    }

    /// The state with these counts; `None` when no domain can hold it.
    pub(super) fn state(&self, content: &Content) -> Option<usize> {
        let mut state = 0;
        for (atom, n) in content {
            let at = self.atoms.binary_search(atom).ok()?;
            if *n > self.most[at] {
                return None;
            }
            state += n * self.stride[at];
        }
        Some(state)
    }

    /// Both together; `None` when that is more than there can be.
    pub(super) fn sum(&self, a: usize, b: usize) -> Option<usize> {
        ((self.packed[a] + self.packed[b] + self.bias) & self.spare == 0).then_some(a + b)
    }

    /// What is left of a state without as much of another as it has.
    pub(super) fn less(&self, state: usize, other: &[usize]) -> usize {
        self.counts(state).iter().zip(other).zip(&self.stride).map(|((n, less), stride)| n.saturating_sub(*less) * stride).sum()
    }

    /// A state with counts added, none above the most.
    pub(super) fn more(&self, state: usize, other: &[usize]) -> usize {
        let counts = self.counts(state);
        counts.iter().zip(other).zip(self.most.iter().zip(&self.stride)).map(|((n, more), (most, stride))| (n + more).min(*most) * stride).sum()
    }

    /// Marks every state that is part of a marked one.
    pub(super) fn close(&self, marked: &mut [bool]) {
        for (stride, most) in self.stride.iter().zip(&self.most) {
            for state in (0..marked.len()).rev() {
                if marked[state] && state / stride % (most + 1) > 0 {
                    marked[state - stride] = true;
                }
            }
        }
    }

    /// Shapes of the atoms; every one is a pod at the last depth.
    pub(super) fn shapes(&self) -> impl Iterator<Item = (crate::ids::ShapeIdx, usize)> + '_ {
        self.atoms.iter().zip(&self.most).filter_map(|(atom, most)| match atom {
            Atom::Pod(shape) => Some((*shape, *most)),
            Atom::Part(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ShapeIdx;

    #[test]
    fn states_add_up_within_the_most() {
        let content = Content::from([(Atom::Part(0), 3), (Atom::Part(1), 1), (Atom::Pod(ShapeIdx(4)), 6)]);
        let layout = Layout::new(&content, |_, n| n).unwrap();
        assert_eq!(layout.n_states(), 4 * 2 * 7);
        for a in 0..layout.n_states() {
            for b in 0..layout.n_states() {
                let sums: Vec<usize> = layout.counts(a).iter().zip(layout.counts(b)).map(|(a, b)| a + b).collect();
                let fits = sums[0] <= 3 && sums[1] <= 1 && sums[2] <= 6;
                assert_eq!(layout.sum(a, b).is_some(), fits, "{sums:?}");
                if let Some(sum) = layout.sum(a, b) {
                    assert_eq!(layout.counts(sum), sums);
                    assert_eq!(layout.less(sum, &layout.counts(a)), b);
                }
            }
        }
        assert_eq!(layout.state(&content), Some(layout.n_states() - 1));
        assert!(Layout::new(&Content::from([(Atom::Part(0), 1 << 20)]), |_, n| n).is_none(), "too many states");
    }
}
