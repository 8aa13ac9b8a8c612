//! The pass: which gang next, place it, commit, until nothing more fits.

use crate::facts::Millis;
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::world::World;

/// Decides for every pending gang; see placement.md section 4.
pub fn schedule(_world: &mut World, _policy: &Policy, _now: Millis) -> Outcome {
    Outcome::default()
}
