//! `berth topology apply`: labels on nodes, node by node, and the Topology.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context, Result};
use berth_api::{Topology, TopologySpec};
use berth_discovery::out::labels::{Patch, patches};
use berth_discovery::out::topology::of_fabric;
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

/// Arguments of `berth topology apply`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    connection: Connection,
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

/// Runs the command: 0 when all is as it should be, 1 when something could not be done.
pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    arguments.connection.block_on(async |client| apply(arguments, client, out).await)
}

async fn apply(arguments: &Arguments, client: kube::Client, out: &mut dyn Write) -> Result<u8> {
    let nodes = live_nodes(client.clone()).await.context("listing nodes")?;
    let keys = arguments.sources.keys();
    let fabric = of_cluster(&arguments.sources, &nodes)?;
    let changes = patches(&fabric, keys, &nodes);
    let unknown = fabric.findings.iter().filter(|finding| finding.kind == "NotInFabric").count();
    writeln!(out, "{} of {} nodes are in the fabric; {} change; {unknown} with accelerators are not in it.", fabric.hosts.len(), nodes.len(), changes.len())?;
    let mut whole = true;
    if arguments.dry_run {
        for (node, patch) in &changes {
            writeln!(out, "{node}: {}", said(patch))?;
        }
    } else {
        for (node, error) in label(&client, &changes).await {
            whole = false;
            writeln!(out, "{node}: not labelled: {error}")?;
        }
    }
    if !arguments.labels_only {
        let Some(proposal) = of_fabric(&fabric, keys) else {
            writeln!(out, "No Topology: no tier of the fabric tells these nodes apart.")?;
            return Ok(NO);
        };
        let levels: Vec<String> = proposal.levels.into_iter().map(|level| level.key).collect();
        whole &= topology(arguments, client, &levels, out).await?;
    }
    Ok(if whole { YES } else { NO })
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
async fn topology(arguments: &Arguments, client: kube::Client, levels: &[String], out: &mut dyn Write) -> Result<bool> {
    let api: Api<Topology> = Api::all(client);
    let name = &arguments.name;
    if let Some(known) = api.get_opt(name).await.context("reading the Topology")? {
        let has: Vec<&String> = known.spec.levels.iter().map(|level| &level.node_label).collect();
        if has.iter().copied().eq(levels) {
            writeln!(out, "Topology {name} is as it should be.")?;
            return Ok(true);
        }
        writeln!(out, "Topology {name} has other levels, and levels can't be changed: it was left as it is.")?;
        writeln!(out, "  has:  {}", has.iter().map(|key| key.as_str()).collect::<Vec<_>>().join(" > "))?;
        writeln!(out, "  here: {}", levels.join(" > "))?;
        writeln!(out, "  Make a new one with --name, move the workloads to it, then delete {name}.")?;
        return Ok(false);
    }
    let levels = levels.iter().map(|key| berth_api::topology::TopologyLevel { node_label: key.clone(), alias: None }).collect();
    if arguments.dry_run {
        writeln!(out, "Topology {name} would be made.")?;
        return Ok(true);
    }
    api.create(&PostParams::default(), &Topology::new(name, TopologySpec { levels })).await.context("making the Topology")?;
    writeln!(out, "Topology {name} made.")?;
    Ok(true)
}
