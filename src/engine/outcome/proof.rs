//! What stands behind a "no".

use super::Unit;

/// What makes a "no" a proof. `check` verifies it from the facts, but for `Exhausted`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The reason's own data say it: a mistake, missing or gated pods, a queue, members that are split already.
    Stated,
    /// Whichever domain is taken, too few copies fit.
    Counted(Counted),
    /// Too few of a subgroup's children can be placed.
    TooFew {
        /// The subgroup; empty is the whole gang.
        subgroup: String,
        /// Children that must be placed.
        needed: u32,
        /// Children that could be, as far as pods go.
        ready: u32,
        /// Those that can't, each with its proof.
        impossible: Vec<(String, Proof)>,
    },
    /// Every placement was tried.
    Exhausted {
        /// Steps it took.
        steps: u64,
    },
}

/// A count of what every candidate domain could hold at the most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The subgroup; empty is the whole gang.
    pub subgroup: String,
    /// Label of the required (or limited) level whose domains are the candidates (the members' own where some are placed); `None` is
    /// the cluster as one.
    pub level: Option<String>,
    /// What is counted.
    pub unit: Unit,
    /// Pods of a segment; 1 for pods.
    pub size: u32,
    /// So many candidates may hold it together, by a limit on the level's domains; `None` where the level is required.
    pub together: Option<u32>,
    /// How many must be placed, whatever is chosen.
    pub needs: u32,
    /// How many candidates have room for how many, most room first: (room, candidates).
    pub domains: Vec<(u32, u32)>,
}
