//! Berth: a Kubernetes scheduler for AI workloads.

pub mod cluster;
