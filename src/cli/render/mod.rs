//! What is printed: text for people, JSON and YAML for scripts, a page for browsers.

pub mod html;
pub mod json;
pub mod queues;
pub mod ranks;
pub mod table;
mod words;

pub(super) use words::hanging;
