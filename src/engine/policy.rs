//! Choices of the operator that decisions depend on. Passed explicitly, never global.

/// How pods fill nodes (placement.md section 3, line 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeStrategy {
    /// Fewest nodes.
    Pack,
    /// Even use of nodes.
    Spread,
}

/// Policy of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Name given by `--default-topology`; `None` falls to the annotated or the only one.
    pub default_topology: Option<String>,
    /// Strategy for pods that ask for GPUs.
    pub gpu_strategy: NodeStrategy,
    /// Strategy for other pods.
    pub cpu_strategy: NodeStrategy,
    /// Turn every deliberate difference from KAI off.
    pub compat_kai: bool,
    /// Steps one gang's general search may take.
    pub search_steps: u64,
}

impl Policy {
    /// The documented default (placement.md section 3: 20 000 steps).
    pub const DEFAULT_SEARCH_STEPS: u64 = 20_000;

    /// The policy of an unconfigured scheduler.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            default_topology: None,
            gpu_strategy: NodeStrategy::Pack,
            cpu_strategy: NodeStrategy::Pack,
            compat_kai: false,
            search_steps: Self::DEFAULT_SEARCH_STEPS,
        }
    }
}
