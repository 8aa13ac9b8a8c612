//! Results as people and programs read them.

pub mod json;
pub mod table;
