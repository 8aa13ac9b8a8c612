//! Real dumps, documented shapes, garbage.

mod propose;
mod sources;
