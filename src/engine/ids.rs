//! Index newtypes: objects are lowered to dense `u32` indices on arrival.

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The index as a position in a vector.
            #[must_use]
            pub fn at(self) -> usize {
                self.0 as usize
            }
        }
    };
}

/// Slots from here on are those of pods that do not exist yet.
const TO_COME: u32 = 1 << 31;

impl PodIdx {
    /// A pod that is still to come, for which a decision keeps room without placing it.
    #[must_use]
    pub fn to_come(number: usize) -> Self {
        Self(TO_COME.saturating_add(u32::try_from(number).unwrap_or(u32::MAX)))
    }

    /// Whether the pod exists.
    #[must_use]
    pub fn exists(self) -> bool {
        self.0 < TO_COME
    }
}

index!(
    /// A node's slot in the world. Slots are reused after a node is gone.
    NodeIdx
);
index!(
    /// A pod's slot in the world.
    PodIdx
);
index!(
    /// A gang's slot in the world.
    GangIdx
);
index!(
    /// An interned shape.
    ShapeIdx
);
index!(
    /// A topology tree; 0 is the tree without levels (hosts only).
    TreeIdx
);
index!(
    /// A domain inside one tree; 0 is its root.
    DomainIdx
);
index!(
    /// A set of pods that a rule counts, by domain of one node label.
    TermIdx
);
