//! The pure scheduling engine.
