//! The side of the scheduler that faces a cluster.

pub mod convert;
