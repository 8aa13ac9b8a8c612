//! States of the exact solver's tables, and their order in memory.

/// What a table's states count: whole segments, short ones, loose pods, guests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct State {
    pub j: usize,
    pub b: usize,
    pub m: usize,
    pub g: usize,
}

impl State {
    pub(super) const NOTHING: Self = Self { j: 0, b: 0, m: 0, g: 0 };

    pub(super) fn less(self, taken: Self) -> Self {
        Self { j: self.j - taken.j, b: self.b - taken.b, m: self.m - taken.m, g: self.g - taken.g }
    }
}

/// Sizes of a table: its states are those with no count above these.
pub(super) type Dims = State;

impl Dims {
    pub(super) fn states(self) -> usize {
        (self.j + 1) * (self.b + 1) * (self.m + 1) * (self.g + 1)
    }
    pub(super) fn at(self, state: State) -> usize {
        ((state.j * (self.b + 1) + state.b) * (self.m + 1) + state.m) * (self.g + 1) + state.g
    }
    pub(super) fn of(self, index: usize) -> State {
        let (rest, g) = (index / (self.g + 1), index % (self.g + 1));
        let (rest, m) = (rest / (self.m + 1), rest % (self.m + 1));
        State { j: rest / (self.b + 1), b: rest % (self.b + 1), m, g }
    }
    pub(super) fn holds(self, state: State) -> bool {
        state.j <= self.j && state.b <= self.b && state.m <= self.m && state.g <= self.g
    }
}
