//! The pure scheduling engine of Berth.
//!
//! `World::apply(event)` keeps the model, `schedule(&mut world, …)` decides.
//! No IO, no clock, no async, no floats, no iteration over hash maps.
//! Reading order: facts → outcome → policy → world → topology → fit → rooms →
//! gang → place → schedule. `check` says from the facts alone whether answers are true.

pub mod check;
pub mod facts;
pub mod fit;
mod evict;
mod gang;
pub mod ids;
mod order;
pub mod outcome;
mod place;
pub mod policy;
pub mod problem;
pub mod remedy;
pub mod rooms;
pub mod schedule;
mod share;
pub mod topology;
mod verdict;
pub mod world;
#[cfg(test)]
mod tests;
