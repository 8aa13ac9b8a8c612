//! Berth: a Kubernetes scheduler for AI workloads.
//!
//! Modules in reading order: facts come in (`cluster`, `grouping`), the engine
//! (package `berth-engine`) decides, and answers go out (`explain`, `simulate`, `cli`).

pub mod access;
pub mod bind;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod collector;
pub mod explain;
#[cfg(test)]
mod fake_api;
pub mod grouping;
pub mod http;
pub mod leader;
pub mod lint;
pub mod moment;
pub mod rbac;
pub mod rights;
pub mod scheduler;
pub mod simulate;
pub mod snapshot;
pub mod status;
pub mod telemetry;
