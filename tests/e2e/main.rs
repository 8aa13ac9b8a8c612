//! `berth run` on a real control plane: kube-apiserver, etcd, controller-manager, and kwok for the kubelets.
//!
//! Each test has a control plane and a Berth of its own; run them one at a time (`make e2e`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod api;
mod compat;
mod controllers;
mod core_groups;
mod differential;
mod discovery;
mod evict;
mod faults;
mod grove;
mod install;
mod life;
mod live;
mod load;
mod migrate;
mod monitoring;
mod operators;
mod release;
mod rig;
mod rights;
mod sets;
mod stories;
mod volumes;
