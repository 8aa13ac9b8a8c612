//! Topology discovery: from what a site knows of its network to levels, labels, a Topology and Slurm files.
//!
//! Texts come in, values go out: no IO, no client, no clock, and the same input gives the same bytes. Two roads lead to a
//! topology. [`propose`] reads the labels that nodes have already. [`sources`] read a fabric (dumps, answers of clouds,
//! Slurm files) into a [`Fabric`], which [`out`] turns into labels and files. Nothing is guessed: what is left out is
//! a [`Finding`] that says why.

pub mod drift;
pub mod error;
pub mod fabric;
pub mod hostlist;
pub mod names;
pub mod node;
pub mod out;
pub mod profiles;
pub mod propose;
pub mod record;
pub mod sources;
#[cfg(test)]
mod tests;
pub mod weights;

pub use drift::{Drift, drift};
pub use error::DiscoveryError;
pub use fabric::{Fabric, Finding, Host};
pub use node::Node;
