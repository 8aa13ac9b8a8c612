//! The pure scheduling engine of Berth.
//!
//! `World::apply(event)` keeps the model, `schedule(&mut world, …)` decides.
//! No IO, no clock, no async, no floats, no iteration over hash maps.

pub mod facts;
pub mod outcome;
pub mod policy;
pub mod schedule;
pub mod world;
