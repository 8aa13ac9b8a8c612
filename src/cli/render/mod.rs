//! What is printed: text for people, JSON and YAML for scripts, a page for browsers.

pub mod explanation;
pub mod html;
pub mod json;
pub mod ranks;
pub mod table;
mod words;
