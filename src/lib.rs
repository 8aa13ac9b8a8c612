//! Berth: a Kubernetes scheduler for AI workloads.

pub mod cli;
pub mod cluster;
pub mod explain;
pub mod grouping;
pub mod simulate;
