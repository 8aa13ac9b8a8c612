//! Choices of the operator that decisions depend on. Passed explicitly, never global.

use crate::facts::Millis;

/// How pods fill nodes (placement.md section 3, line 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeStrategy {
    /// Fewest nodes.
    Pack,
    /// Even use of nodes.
    Spread,
}

impl NodeStrategy {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Pack, Self::Spread];

    /// What KAI Scheduler calls it, and the flags.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pack => "binpack",
            Self::Spread => "spread",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == name)
    }
}

/// Which of the legal placements is the best (placement.md section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Objective {
    /// KAI Scheduler's order: of the smallest domains that hold the gang the tightest, then the fewest domains inside it.
    #[default]
    Kai,
    /// Of those domains the one in which the gang needs the fewest domains, then the tightest.
    Compact,
}

impl Objective {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Kai, Self::Compact];

    /// What it is called in annotations, flags and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kai => "kai",
            Self::Compact => "compact",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|objective| objective.name() == name)
    }

    /// The names, for messages.
    #[must_use]
    pub fn allowed() -> String {
        Self::ALL.map(Self::name).join(" or ")
    }
}

/// Policy of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Name given by `--default-topology`; `None` falls to the annotated or the only one.
    pub default_topology: Option<String>,
    /// Objective of gangs that name none.
    pub objective: Objective,
    /// Strategy for pods that ask for GPUs.
    pub gpu_strategy: NodeStrategy,
    /// Strategy for other pods.
    pub cpu_strategy: NodeStrategy,
    /// Turn every deliberate difference from KAI off.
    pub compat_kai: bool,
    /// Steps one gang's general search may take.
    pub search_steps: u64,
    /// How long a gang may run below its minimum before it is evicted, unless it says otherwise; negative: for ever.
    pub staleness_grace_millis: Millis,
    /// Age from which the figures of a verdict that is out of date are made anew; 0: at once.
    pub verdict_age_millis: Millis,
    /// Verdicts made anew in one pass for their age alone.
    pub verdicts_per_pass: usize,
}

impl Policy {
    /// The documented default (placement.md section 3: 20 000 steps).
    pub const DEFAULT_SEARCH_STEPS: u64 = 20_000;

    /// KAI Scheduler's default.
    pub const STALENESS_GRACE_MILLIS: Millis = 60_000;

    /// Pending gangs are told new figures this often, at the most: every figure that changes
    /// is a write to the API.
    pub const VERDICT_AGE_MILLIS: Millis = 30_000;
    /// A few hundred microseconds each: so many keep a pass within a fraction of a second.
    pub const VERDICTS_PER_PASS: usize = 256;

    /// The policy of an unconfigured scheduler, every verdict up to date after each pass.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            default_topology: None,
            objective: Objective::Kai,
            gpu_strategy: NodeStrategy::Pack,
            cpu_strategy: NodeStrategy::Pack,
            compat_kai: false,
            search_steps: Self::DEFAULT_SEARCH_STEPS,
            staleness_grace_millis: Self::STALENESS_GRACE_MILLIS,
            verdict_age_millis: 0,
            verdicts_per_pass: usize::MAX,
        }
    }
}
