//! Real dumps, documented shapes, garbage.

mod drift;
mod propose;
mod sources;
mod topograph;
mod weights;
