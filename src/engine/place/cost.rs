//! Costs of the exact solver: vectors compared lexicographically, packed into words.
//!
//! Lexicographic order is translation-invariant, so sums of packed vectors
//! compare like the vectors as long as no component overflows its bits; the
//! layout reserves bits for the largest sum each component can reach.

/// A packed cost.
pub(crate) trait Cost: Copy + Ord {
    /// Nothing.
    const ZERO: Self;
    /// Larger than every real cost: infeasible.
    const NONE: Self;
    /// Bits available.
    const BITS: u32;
    /// Sum; the layout guarantees that it does not overflow.
    fn plus(self, other: Self) -> Self;
    /// `value` at a bit offset counted from the least significant end.
    fn component(value: u64, offset: u32) -> Self;
    /// `width` bits from a bit offset on.
    fn read(self, offset: u32, width: u32) -> u64;
}

fn bits(word: u128, offset: u32, width: u32) -> u64 {
    (word >> offset) as u64 & 1_u64.checked_shl(width).map_or(u64::MAX, |top| top - 1)
}

impl Cost for u128 {
    const ZERO: Self = 0;
    const NONE: Self = u128::MAX;
    const BITS: u32 = 127;
    fn plus(self, other: Self) -> Self {
        self + other
    }
    fn component(value: u64, offset: u32) -> Self {
        u128::from(value) << offset
    }
    fn read(self, offset: u32, width: u32) -> u64 {
        bits(self, offset, width)
    }
}

/// Four words, most significant first; a component never straddles two words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wide([u128; 8]);

impl Cost for Wide {
    const ZERO: Self = Wide([0; 8]);
    const NONE: Self = Wide([u128::MAX; 8]);
    const BITS: u32 = 8 * 127;
    fn plus(self, other: Self) -> Self {
        let mut sum = self.0;
        for (at, word) in sum.iter_mut().enumerate() {
            *word += other.0[at];
        }
        Wide(sum)
    }
    fn component(value: u64, offset: u32) -> Self {
        let mut words = [0; 8];
        words[7 - (offset / 128) as usize] = u128::from(value) << (offset % 128);
        Wide(words)
    }
    fn read(self, offset: u32, width: u32) -> u64 {
        bits(self.0[7 - (offset / 128) as usize], offset % 128, width)
    }
}

/// Bit offsets of the components, most significant first.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Offset by component.
    pub offsets: Vec<u32>,
    /// Width by component.
    widths: Vec<u32>,
    /// Bits used in all.
    pub bits: u32,
}

impl Layout {
    /// Lays out components given the largest sum each can reach.
    pub(crate) fn new(largest: &[u64]) -> Self {
        let mut offsets = vec![0; largest.len()];
        let mut widths = vec![0; largest.len()];
        let mut at = 0;
        for (component, bound) in largest.iter().enumerate().rev() {
            let width = 64 - bound.leading_zeros();
            // Stay inside one 128-bit word, its top bit left for `NONE`.
            if at % 128 + width > 127 {
                at = at.next_multiple_of(128);
            }
            (offsets[component], widths[component]) = (at, width);
            at += width;
        }
        Self { offsets, widths, bits: at }
    }

    /// The components of a cost, most significant first: costs of different layouts compare by them.
    pub(crate) fn unpack<C: Cost>(&self, cost: C) -> Vec<i64> {
        self.offsets.iter().zip(&self.widths).map(|(offset, width)| cost.read(*offset, *width) as i64).collect()
    }
}
