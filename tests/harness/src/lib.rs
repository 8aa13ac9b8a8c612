//! Starts a real control plane for tests and the demo.
//!
//! [`ControlPlane::start`] runs etcd, kube-apiserver, kube-controller-manager
//! and kwok on loopback; [`shared`] gives all tests of a binary the same one;
//! [`ControlPlane::start_operator`] adds a real operator of workloads.
//! kwok plays the kubelets of nodes with the annotation
//! `kwok.x-k8s.io/node=fake` ([`ControlPlane::create_nodes`] sets it): bound
//! pods run, and these annotations steer them:
//!
//! | annotation | on | effect |
//! |---|---|---|
//! | `berth.test/complete: "true"` | pod | succeeds once it runs |
//! | `berth.test/fail: "true"` | pod | fails once it runs |
//! | `berth.test/start-after: 2s` | pod | runs that much later |
//! | `berth.test/end-after: 2s` | pod | completes or fails that much later |
//! | `berth.test/terminate-after: 2s` | pod | is gone that much after its deletion |
//! | `berth.test/not-ready: "true"` | node | is not made Ready again |

mod certificates;
mod cluster;
mod components;
mod error;
mod metrics;
mod nodes;
mod operators;
mod plane;
mod process;
mod programs;
mod shared;

pub use cluster::wait_for;
pub use error::{Error, Result};
pub use metrics::RequestCount;
pub use nodes::NodeSpec;
pub use operators::Operator;
pub use plane::{ControlPlane, Options, program};
pub use shared::shared;
