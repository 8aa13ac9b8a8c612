//! What is printed: text for people, JSON and YAML for scripts, a page for browsers.

pub mod explanation;
pub mod findings;
pub mod from_kai;
pub mod json;
pub mod page;
pub mod queues;
pub mod ranks;
pub mod table;
pub mod tree;
pub mod view;
mod words;

pub use words::title;
