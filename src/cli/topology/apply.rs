//! `berth topology apply`: labels on nodes, node by node, and the Topology.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

use anyhow::{Context, Result};
use berth_api::topology::TopologyLevel;
use berth_api::{Topology, TopologySpec};
use berth_discovery::out::labels::{Keys, Patch, patches};
use berth_discovery::out::topology::of_fabric;
use berth_discovery::{Fabric, Node as Known};
use clap::Args;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch as Body, PatchParams, PostParams};
use serde_json::json;

use super::super::connect::Connection;
use super::super::{NO, YES};
use super::discover::{Sources, of_cluster};
use super::live_nodes;

/// Nodes labelled at a time.
const AT_A_TIME: usize = 8;

/// How often a node is tried again when the API server is busy.
const TRIES: u32 = 4;

/// Where labels and Topology go; flags that `apply` and `run` share.
#[derive(Debug, Args)]
pub(super) struct Target {
    #[command(flatten)]
    pub(super) connection: Connection,
    /// Name of the Topology.
    #[arg(long, default_value = "cluster-topology", env = "BERTH_TOPOLOGY_NAME")]
    name: String,
    /// Label nodes only, make no Topology.
    #[arg(long, env = "BERTH_LABELS_ONLY", value_parser = clap::builder::FalseyValueParser::new())]
    labels_only: bool,
    /// Say what would change, and change nothing.
    #[arg(long, env = "BERTH_DRY_RUN", value_parser = clap::builder::FalseyValueParser::new())]
    dry_run: bool,
}

/// Arguments of `berth topology apply`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    target: Target,
}

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// How things stand, for people.
    pub(super) text: String,
    /// Nodes whose labels were changed.
    pub(super) labelled: usize,
    /// Nodes whose labels could not be changed.
    pub(super) failed: usize,
    /// There is a Topology with these levels, or none was asked for.
    topology: bool,
}

impl Done {
    /// Everything is as it should be.
    pub(super) fn is_whole(&self) -> bool {
        self.failed == 0 && self.topology
    }
}

/// Runs the command: 0 when all is as it should be, 1 when something could not be done.
pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let done = arguments.target.connection.block_on(async |client| {
        let nodes = live_nodes(client.clone()).await.context("listing nodes")?;
        apply(&arguments.target, &arguments.sources, client, &nodes).await
    })?;
    out.write_all(done.text.as_bytes())?;
    Ok(if done.is_whole() { YES } else { NO })
}

/// Labels these nodes of the cluster, and makes the Topology.
pub(super) async fn apply(target: &Target, sources: &Sources, client: kube::Client, nodes: &[Known]) -> Result<Done> {
    let fabric = of_cluster(sources, nodes)?;
    let keys = sources.keys();
    let changes = patches(&fabric, keys, nodes);
    let unknown = fabric.findings.iter().filter(|finding| finding.kind == "NotInFabric").count();
    let mut done = Done { topology: true, ..Done::default() };
    let _ = writeln!(done.text, "{} of {} nodes are in the fabric; {unknown} with accelerators are not in it.", fabric.hosts.len(), nodes.len());
    if target.dry_run {
        for (node, patch) in &changes {
            let _ = writeln!(done.text, "{node}: {}", said(patch));
        }
    } else {
        let failed = label(&client, &changes).await;
        (done.labelled, done.failed) = (changes.len() - failed.len(), failed.len());
        for (node, error) in failed {
            let _ = writeln!(done.text, "{node}: not labelled: {error}");
        }
    }
    if !target.labels_only {
        topology(target, client, &fabric, keys, &mut done).await?;
    }
    Ok(done)
}

fn said(patch: &Patch) -> String {
    let change = |(key, value): (&String, &Option<String>)| value.as_ref().map_or_else(|| format!("-{key}"), |value| format!("{key}={value}"));
    patch.iter().map(change).collect::<Vec<_>>().join(" ")
}

/// Labels every node; those that could not be are given back with the reason, and hold nobody else up.
async fn label(client: &kube::Client, changes: &BTreeMap<String, Patch>) -> BTreeMap<String, kube::Error> {
    let api: Api<Node> = Api::all(client.clone());
    let one = |(node, patch): (&String, &Patch)| {
        let (api, node) = (api.clone(), node.clone());
        let body = json!({ "metadata": { "labels": patch } });
        async move {
            let mut tries = 0;
            loop {
                tries += 1;
                match api.patch(&node, &PatchParams::default(), &Body::Merge(&body)).await {
                    Ok(_) => return None,
                    Err(error) if tries < TRIES && is_passing(&error) => tokio::time::sleep(std::time::Duration::from_millis(250 << tries)).await,
                    Err(error) => return Some((node, error)),
                }
            }
        }
    };
    futures::stream::iter(changes.iter().map(one)).buffer_unordered(AT_A_TIME).filter_map(async |failed| failed).collect().await
}

/// A later try may go through.
fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        _ => true,
    }
}

/// Makes the Topology. Its levels can't be changed: one with others is left alone, and what to do is said.
async fn topology(target: &Target, client: kube::Client, fabric: &Fabric, keys: Keys, done: &mut Done) -> Result<()> {
    let Some(proposal) = of_fabric(fabric, keys) else {
        done.topology = false;
        done.text += "No Topology: no tier of the fabric tells these nodes apart.\n";
        return Ok(());
    };
    let levels: Vec<&str> = proposal.levels.iter().map(|level| level.key.as_str()).collect();
    let api: Api<Topology> = Api::all(client);
    let name = &target.name;
    let text = match api.get_opt(name).await.context("reading the Topology")? {
        Some(known) => {
            let has: Vec<&str> = known.spec.levels.iter().map(|level| level.node_label.as_str()).collect();
            done.topology = has == levels;
            if done.topology {
                format!("Topology {name} is as it should be.\n")
            } else {
                format!(
                    "Topology {name} has other levels, and levels can't be changed: it was left as it is.\n  has:  {}\n  here: {}\n  Make a \
                     new one with --name, move the workloads to it, then delete {name}.\n",
                    has.join(" > "),
                    levels.join(" > ")
                )
            }
        }
        None if target.dry_run => format!("Topology {name} would be made.\n"),
        None => {
            let levels = levels.iter().map(|key| TopologyLevel { node_label: (*key).to_owned(), alias: None }).collect();
            api.create(&PostParams::default(), &Topology::new(name, TopologySpec { levels })).await.context("making the Topology")?;
            format!("Topology {name} is as it should be.\n")
        }
    };
    done.text += &text;
    Ok(())
}
