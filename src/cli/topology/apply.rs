//! `berth topology apply`: labels on nodes, node by node, and the Topology.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

use anyhow::{Context, Result};
use berth_api::topology::TopologyLevel;
use berth_api::{Topology, TopologySpec};
use berth_discovery::out::labels::{Keys, Patch};
use berth_discovery::out::topology::of_fabric;
use berth_discovery::{Drift, Fabric, Node as Known, drift};
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
    pub(super) name: String,
    /// Label nodes only, make no Topology.
    #[arg(long, env = "BERTH_LABELS_ONLY", value_parser = clap::builder::FalseyValueParser::new())]
    labels_only: bool,
    /// Say what would change, and change nothing.
    #[arg(long, env = "BERTH_DRY_RUN", value_parser = clap::builder::FalseyValueParser::new())]
    pub(super) dry_run: bool,
}

/// Arguments of `berth topology apply`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    target: Target,
}

/// The Topology after a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Only labels were asked for.
    NotAsked,
    /// It has the levels of the fabric.
    AsItShouldBe {
        /// Its UID.
        uid: String,
        /// It was made just now.
        made: bool,
    },
    /// A dry run: there is none yet.
    WouldBeMade,
    /// It has other levels, and was left as it is.
    OtherLevels {
        /// Its UID.
        uid: String,
        /// Its levels.
        has: Vec<String>,
        /// Those of the fabric.
        wanted: Vec<String>,
    },
    /// No tier tells nodes apart.
    NoTier,
    /// It could not be read or made.
    Failed(String),
}

/// What was found, and what was done.
#[derive(Debug)]
pub(super) struct Done {
    /// The fabric, with nodes as hosts.
    pub(super) fabric: Fabric,
    /// The keys of labels.
    pub(super) keys: Keys,
    /// Nodes that were looked at.
    pub(super) nodes: usize,
    /// How their labels were before.
    pub(super) drift: Drift,
    /// Nodes whose labels could not be changed, with the reason.
    pub(super) failed: BTreeMap<String, String>,
    /// Nothing was written.
    pub(super) dry_run: bool,
    /// Name of the Topology.
    pub(super) name: String,
    /// The Topology.
    pub(super) topology: Standing,
}

impl Done {
    /// Everything is as it should be.
    pub(super) fn is_whole(&self) -> bool {
        self.failed.is_empty() && matches!(self.topology, Standing::NotAsked | Standing::WouldBeMade | Standing::AsItShouldBe { .. })
    }

    /// Nodes whose labels were changed.
    pub(super) fn labelled(&self) -> impl Iterator<Item = &str> + Clone {
        self.drift.differs.keys().filter(|node| !self.dry_run && !self.failed.contains_key(*node)).map(String::as_str)
    }

    /// How things stand, for people.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{} of {} nodes are in the fabric; {} with accelerators are not in it.\n",
            self.fabric.hosts.len(),
            self.nodes,
            self.drift.missed().count()
        );
        for (node, patch) in self.drift.patches().iter().filter(|_| self.dry_run) {
            let _ = writeln!(text, "{node}: {}", said(patch));
        }
        for (node, error) in &self.failed {
            let _ = writeln!(text, "{node}: not labelled: {error}");
        }
        text + &self.topology_text()
    }

    fn topology_text(&self) -> String {
        let name = &self.name;
        match &self.topology {
            Standing::NotAsked => String::new(),
            Standing::AsItShouldBe { .. } => format!("Topology {name} is as it should be.\n"),
            Standing::WouldBeMade => format!("Topology {name} would be made.\n"),
            Standing::OtherLevels { has, wanted, .. } => format!(
                "Topology {name} has other levels, and levels can't be changed: it was left as it is.\n  has:  {}\n  here: {}\n  Make a \
                 new one with --name, move the workloads to it, then delete {name}.\n",
                has.join(" > "),
                wanted.join(" > ")
            ),
            Standing::NoTier => "No Topology: no tier of the fabric tells these nodes apart.\n".to_owned(),
            Standing::Failed(error) => format!("Topology {name}: {error}\n"),
        }
    }
}

/// Runs the command: 0 when all is as it should be, 1 when something could not be done.
pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let done = arguments.target.connection.block_on(async |client| {
        let nodes = live_nodes(client.clone()).await.context("listing nodes")?;
        apply(&arguments.target, &arguments.sources, client, &nodes).await
    })?;
    out.write_all(done.text().as_bytes())?;
    Ok(if done.is_whole() { YES } else { NO })
}

/// Labels these nodes of the cluster, and makes the Topology.
pub(super) async fn apply(target: &Target, sources: &Sources, client: kube::Client, nodes: &[Known]) -> Result<Done> {
    let fabric = of_cluster(sources, nodes)?;
    let keys = sources.keys();
    let drift = drift(&fabric, keys, nodes);
    let failed = if target.dry_run { BTreeMap::new() } else { label(&client, &drift.patches()).await };
    let topology = if target.labels_only { Standing::NotAsked } else { topology(target, client, &fabric, keys).await };
    Ok(Done { fabric, keys, nodes: nodes.len(), drift, failed, dry_run: target.dry_run, name: target.name.clone(), topology })
}

fn said(patch: &Patch) -> String {
    let change = |(key, value): (&String, &Option<String>)| value.as_ref().map_or_else(|| format!("-{key}"), |value| format!("{key}={value}"));
    patch.iter().map(change).collect::<Vec<_>>().join(" ")
}

/// Labels every node; those that could not be are given back with the reason, and hold nobody else up.
async fn label(client: &kube::Client, changes: &BTreeMap<String, Patch>) -> BTreeMap<String, String> {
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
                    Err(error) => return Some((node, error.to_string())),
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

/// Makes the Topology. Its levels can't be changed: one with others is left alone.
async fn topology(target: &Target, client: kube::Client, fabric: &Fabric, keys: Keys) -> Standing {
    let Some(proposal) = of_fabric(fabric, keys) else { return Standing::NoTier };
    let wanted: Vec<String> = proposal.levels.into_iter().map(|level| level.key).collect();
    let api: Api<Topology> = Api::all(client);
    let uid = |topology: &Topology| topology.metadata.uid.clone().unwrap_or_default();
    match api.get_opt(&target.name).await {
        Err(error) => Standing::Failed(format!("can't be read: {error}")),
        Ok(Some(known)) => {
            let has: Vec<String> = known.spec.levels.iter().map(|level| level.node_label.clone()).collect();
            let uid = uid(&known);
            if has == wanted { Standing::AsItShouldBe { uid, made: false } } else { Standing::OtherLevels { uid, has, wanted } }
        }
        Ok(None) if target.dry_run => Standing::WouldBeMade,
        Ok(None) => {
            let levels = wanted.into_iter().map(|node_label| TopologyLevel { node_label, alias: None }).collect();
            match api.create(&PostParams::default(), &Topology::new(&target.name, TopologySpec { levels })).await {
                Ok(made) => Standing::AsItShouldBe { uid: uid(&made), made: true },
                Err(error) => Standing::Failed(format!("can't be made: {error}")),
            }
        }
    }
}
