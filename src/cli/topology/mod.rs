//! `berth topology`: how the network is built, from labels or from the fabric itself.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use berth_discovery::Node;
use clap::{Args, Subcommand};

use super::YES;
use super::connect::Connection;
use crate::cluster::list;
use crate::simulate::input::read_paths;

mod apply;
mod collect;
mod discover;
mod drift;
mod keep;
mod page;
mod propose;
mod report;

pub(super) use propose::pair;

/// Arguments of `berth topology`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print a Topology from the labels that nodes have, with the evidence. Changes nothing.
    Propose(propose::Arguments),
    /// Read the fabric, and print labels, a Topology or Slurm files. Changes nothing.
    Discover(discover::Arguments),
    /// Read the fabric, label the nodes of a cluster and make its Topology.
    Apply(apply::Arguments),
    /// Keep labels and Topology so while nodes come and go.
    Run(keep::Arguments),
    /// Compare the labels of nodes with what `topology run` last discovered. Changes nothing.
    Drift(drift::Arguments),
    /// Check what ibnetdiscover printed, and write it into a ConfigMap: the writing half of `berth generate collector`.
    Collect(collect::Arguments),
    /// The rights of `topology apply` and `topology run`: an account of its own, apart from the scheduler's.
    Rbac {
        /// Namespace of the service account, and of the status ConfigMap.
        #[arg(long, short, env = "BERTH_NAMESPACE", default_value = "berth")]
        namespace: String,
    },
}

/// Runs the command.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    match &arguments.command {
        Command::Propose(arguments) => propose::run(arguments, out),
        Command::Discover(arguments) => discover::run(arguments, out),
        Command::Apply(arguments) => apply::run(arguments, out),
        Command::Run(arguments) => keep::run(arguments),
        Command::Drift(arguments) => drift::run(arguments, out),
        Command::Collect(arguments) => collect::run(arguments, out),
        Command::Rbac { namespace } => write_yaml(out, &crate::rbac::labeller(namespace)).map(|()| YES),
    }
}

/// Nodes of manifests and dumps.
fn nodes_of(paths: &[PathBuf]) -> Result<Vec<Node>> {
    let items = read_paths(paths)?;
    let nodes = items.iter().filter(|item| item.value["kind"] == "Node" && item.value["apiVersion"] == "v1");
    let nodes: Vec<Node> = nodes.filter_map(|item| Node::from_json(&item.value)).collect();
    if nodes.is_empty() {
        bail!("no Node in the input; `kubectl get nodes -o json` prints them");
    }
    Ok(nodes)
}

/// Nodes of the cluster.
async fn live_nodes(client: kube::Client) -> Result<Vec<Node>> {
    Ok(list::nodes(&client).await?.iter().filter_map(Node::from_json).collect())
}

/// Nodes of the paths, or of the cluster when there are none.
fn nodes(paths: &[PathBuf], connection: &Connection) -> Result<Vec<Node>> {
    if paths.is_empty() { connection.block_on(live_nodes) } else { nodes_of(paths) }
}

/// Writes documents, each as YAML.
fn write_yaml(out: &mut dyn Write, documents: &[serde_json::Value]) -> Result<()> {
    for (at, document) in documents.iter().enumerate() {
        if at > 0 {
            writeln!(out, "---")?;
        }
        out.write_all(serde_saphyr::to_string(document)?.as_bytes())?;
    }
    Ok(())
}
