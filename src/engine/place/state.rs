//! States of the exact solver's tables, and their order in memory.

/// Most levels whose domains are limited in one solve.
pub(super) const MAX_CAPS: usize = 2;

/// What a table's states count: whole segments, short ones, loose pods, guests, and domains used of limited levels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct State {
    pub j: usize,
    pub b: usize,
    pub m: usize,
    pub g: usize,
    pub used: [usize; MAX_CAPS],
}

impl State {
    pub(super) const NOTHING: Self = Self { j: 0, b: 0, m: 0, g: 0, used: [0; MAX_CAPS] };

    pub(super) fn less(self, taken: Self) -> Self {
        let mut used = self.used;
        used.iter_mut().zip(taken.used).for_each(|(left, taken)| *left -= taken);
        Self { j: self.j - taken.j, b: self.b - taken.b, m: self.m - taken.m, g: self.g - taken.g, used }
    }
}

/// Sizes of a table: its states are those with no count above these.
pub(super) type Dims = State;

impl Dims {
    /// States that differ by more than the domains they use.
    pub(super) fn things(self) -> usize {
        (self.j + 1) * (self.b + 1) * (self.m + 1) * (self.g + 1)
    }
    pub(super) fn states(self) -> usize {
        self.used.iter().fold(self.things(), |states, most| states * (most + 1))
    }
    pub(super) fn at(self, state: State) -> usize {
        let used = self.used.iter().zip(state.used).fold(0, |at, (most, used)| at * (most + 1) + used);
        (((used * (self.j + 1) + state.j) * (self.b + 1) + state.b) * (self.m + 1) + state.m) * (self.g + 1) + state.g
    }
    pub(super) fn of(self, index: usize) -> State {
        let (rest, g) = (index / (self.g + 1), index % (self.g + 1));
        let (rest, m) = (rest / (self.m + 1), rest % (self.m + 1));
        let (rest, b) = (rest / (self.b + 1), rest % (self.b + 1));
        let (mut rest, j) = (rest / (self.j + 1), rest % (self.j + 1));
        let mut used = [0; MAX_CAPS];
        for (used, most) in used.iter_mut().zip(self.used).rev() {
            if rest == 0 {
                break;
            }
            (rest, *used) = (rest / (most + 1), rest % (most + 1));
        }
        State { j, b, m, g, used }
    }
    pub(super) fn holds(self, state: State) -> bool {
        let within = self.used.iter().zip(state.used).all(|(most, used)| used <= *most);
        within && state.j <= self.j && state.b <= self.b && state.m <= self.m && state.g <= self.g
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_stand_for_states_and_add_up_like_them() {
        let dims = Dims { j: 2, b: 1, m: 3, g: 1, used: [2, 1] };
        assert_eq!(dims.states(), 3 * 2 * 4 * 2 * 3 * 2);
        for a in 0..dims.states() {
            assert_eq!(dims.at(dims.of(a)), a);
            for b in 0..dims.states() {
                let (whole, part) = (dims.of(a), dims.of(b));
                if whole.holds(part) {
                    assert_eq!(dims.at(whole.less(part)), a - b);
                }
            }
        }
    }
}
