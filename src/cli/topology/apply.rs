//! `berth topology apply`: labels on nodes, node by node, and the Topology.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

use anyhow::{Context, Result};
use berth_api::topology::TopologyLevel;
use berth_api::{Topology, TopologySpec};
use berth_discovery::out::labels::{Keys, Patch, old};
use berth_discovery::out::topology::of_fabric;
use berth_discovery::{Drift, Fabric, Node as Known, drift};
use clap::Args;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, GroupVersionKind, ListParams, Patch as Body, PatchParams, PostParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::super::connect::Connection;
use super::super::{NO, YES};
use super::discover::{Sources, of_cluster};
use super::live_nodes;

/// Nodes labelled at a time.
const AT_A_TIME: usize = 8;

/// How often a request is tried when the API server is busy.
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
    /// Take away labels of Topograph's older generations from nodes that get the new ones, but levels of Topologies.
    #[arg(long, env = "BERTH_CLEAN_OLD_KEYS", value_parser = clap::builder::FalseyValueParser::new())]
    clean_old_keys: bool,
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
    /// What is written, by node: what differs, and keys of older generations when they are cleaned up.
    pub(super) changes: BTreeMap<String, Patch>,
    /// Keys of older generations that stay, since a Topology has them as levels: that Topology.
    pub(super) in_use: BTreeMap<String, String>,
    /// Why older generations are not cleaned up although that was asked for.
    pub(super) unclean: Option<String>,
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
        self.failed.is_empty() && self.unclean.is_none() && matches!(self.topology, Standing::NotAsked | Standing::WouldBeMade | Standing::AsItShouldBe { .. })
    }

    /// Nodes whose labels were changed.
    pub(super) fn labelled(&self) -> impl Iterator<Item = &str> + Clone {
        self.changes.keys().filter(|node| !self.dry_run && !self.failed.contains_key(*node)).map(String::as_str)
    }

    /// How things stand, for people.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{} of {} nodes are in the fabric; {} with accelerators are not in it.\n",
            self.fabric.hosts.len(),
            self.nodes,
            self.drift.missed().count()
        );
        for (node, patch) in self.changes.iter().filter(|_| self.dry_run) {
            let _ = writeln!(text, "{node}: {}", said(patch));
        }
        for (node, error) in &self.failed {
            let _ = writeln!(text, "{node}: not labelled: {error}");
        }
        for (key, topology) in &self.in_use {
            let _ = writeln!(text, "{key}: kept, Topology {topology} has it as a level.");
        }
        if let Some(error) = &self.unclean {
            let _ = writeln!(text, "Keys of older generations are kept: {error}");
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
    let mut changes = drift.patches();
    let mut in_use = BTreeMap::new();
    let mut unclean = None;
    // Whom to ask is known once there is something to clean.
    if target.clean_old_keys && !old(&fabric, keys, nodes, &in_use).is_empty() {
        match levels(&client).await {
            Ok(levels) => {
                in_use = levels.into_iter().filter(|(key, _)| keys.is_older(key)).collect();
                for (node, patch) in old(&fabric, keys, nodes, &in_use) {
                    changes.entry(node).or_default().extend(patch);
                }
            }
            Err(error) => unclean = Some(format!("whether a Topology uses them can't be found out: {error}")),
        }
    }
    let failed = if target.dry_run { BTreeMap::new() } else { label(&client, &changes).await };
    let topology = if target.labels_only { Standing::NotAsked } else { topology(target, client, &fabric, keys).await };
    Ok(Done { fabric, keys, nodes: nodes.len(), drift, changes, in_use, unclean, failed, dry_run: target.dry_run, name: target.name.clone(), topology })
}

/// Levels of every Topology of KAI Scheduler and of Kueue, each with one that has it.
async fn levels(client: &kube::Client) -> Result<BTreeMap<String, String>, kube::Error> {
    let mut levels = BTreeMap::new();
    for (group, version) in [("kai.scheduler", "v1alpha1"), ("kueue.x-k8s.io", "v1beta2"), ("kueue.x-k8s.io", "v1beta1"), ("kueue.x-k8s.io", "v1alpha1")] {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, "Topology"), "topologies");
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let all = ListParams::default();
        let list = match patiently(|| api.list(&all)).await {
            // Nobody has the kind.
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            list => list?,
        };
        for topology in list {
            let name = topology.metadata.name.clone().unwrap_or_default();
            let own = topology.data.pointer("/spec/levels").and_then(Value::as_array).into_iter().flatten();
            levels.extend(own.filter_map(|level| Some((level.get("nodeLabel")?.as_str()?.to_owned(), name.clone()))));
        }
    }
    Ok(levels)
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
        let body = Body::Merge(json!({ "metadata": { "labels": patch } }));
        async move {
            let parameters = PatchParams::default();
            let sent = patiently(|| api.patch(&node, &parameters, &body)).await;
            sent.err().map(|error| (node, error.to_string()))
        }
    };
    futures::stream::iter(changes.iter().map(one)).buffer_unordered(AT_A_TIME).filter_map(async |failed| failed).collect().await
}

/// Asks again, a little later each time, while the API server is busy.
async fn patiently<T, F: Future<Output = Result<T, kube::Error>>>(ask: impl Fn() -> F) -> Result<T, kube::Error> {
    let mut tries = 0;
    loop {
        tries += 1;
        match ask().await {
            Err(error) if tries < TRIES && is_passing(&error) => tokio::time::sleep(std::time::Duration::from_millis(250 << tries)).await,
            result => return result,
        }
    }
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::fake_api::{FakeApi, failure};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    const LEAF: &str = "network.topology.nvidia.com/leaf";
    const SPINE: &str = "network.topology.nvidia.com/spine";
    const ROOM: &str = "network.topology.nvidia.com/room";

    /// Two nodes of a fabric and a stranger, all with old keys, and a cluster that answers so about Topologies: what was done,
    /// and the labels sent by node.
    async fn applied(name: &str, flags: &[&str], kai: (u16, Value), kueue: (u16, Value)) -> (Done, BTreeMap<String, Value>) {
        let file = std::env::temp_dir().join(format!("berth-{name}-{}.conf", std::process::id()));
        std::fs::write(&file, "SwitchName=s Switches=l[1-2]\nSwitchName=l1 Nodes=n1\nSwitchName=l2 Nodes=n2\n").expect("a file");
        let from = format!("slurm={}", file.display());
        let line = [&["apply", "--from", &from], flags].concat();
        let arguments = Line::parse_from(line).arguments;
        let api = FakeApi::start(move |asked| match (asked.method.as_str(), asked.path.as_str()) {
            ("GET", "/apis/kai.scheduler/v1alpha1/topologies") => kai.clone(),
            ("GET", path) if path.starts_with("/apis/kueue.x-k8s.io/") => kueue.clone(),
            ("GET", _) => failure(404, "none"),
            _ => (200, json!({"metadata": {}})),
        })
        .await;
        let labels = || [LEAF, SPINE, ROOM].map(|key| (key.to_owned(), "v".to_owned())).into();
        let nodes = ["n1", "n2", "x"].map(|name| Known { name: name.into(), labels: labels(), ..Known::default() });
        let done = apply(&arguments.target, &arguments.sources, api.client.clone(), &nodes).await.expect("the source can be read");
        std::fs::remove_file(&file).expect("it is there");
        let sent = api.asked().into_iter().filter(|asked| asked.method == "PATCH");
        (done, sent.map(|asked| (asked.path, asked.body["metadata"]["labels"].clone())).collect())
    }

    fn list(levels: &[&str]) -> (u16, Value) {
        let levels: Vec<Value> = levels.iter().map(|key| json!({"nodeLabel": key})).collect();
        (200, json!({"metadata": {}, "items": [{"metadata": {"name": "old-net"}, "spec": {"levels": levels}}]}))
    }

    #[tokio::test]
    async fn old_keys_go_when_asked_with_the_write_that_brings_the_new_ones() {
        let none = || (200, json!({"metadata": {}, "items": []}));
        let (done, sent) = applied("plain", &["--labels-only"], none(), failure(404, "none")).await;
        assert!(sent["/api/v1/nodes/n1"].get(LEAF).is_none() && done.is_whole(), "not without being asked");
        let (done, sent) = applied("clean", &["--labels-only", "--clean-old-keys"], none(), failure(404, "none")).await;
        assert_eq!(sent.keys().collect::<Vec<_>>(), ["/api/v1/nodes/n1", "/api/v1/nodes/n2"], "one write each, and none to the stranger");
        assert_eq!(sent["/api/v1/nodes/n1"], json!({"fabric.topograph.run/tier-0": "l1", "fabric.topograph.run/tier-1": "s", LEAF: null, SPINE: null}));
        assert!(done.is_whole());
        let (done, sent) = applied("dry", &["--labels-only", "--clean-old-keys", "--dry-run"], none(), failure(404, "none")).await;
        assert!(sent.is_empty() && done.text().contains(&format!("-{LEAF}")), "{}", done.text());
    }

    #[tokio::test]
    async fn levels_of_a_topology_stay_and_so_does_everything_when_nobody_knows() {
        let (done, sent) = applied("used", &["--labels-only", "--clean-old-keys"], list(&[SPINE]), list(&["a"])).await;
        assert_eq!(sent["/api/v1/nodes/n2"], json!({"fabric.topograph.run/tier-0": "l2", "fabric.topograph.run/tier-1": "s", LEAF: null}));
        assert!(done.text().contains(&format!("{SPINE}: kept, Topology old-net has it as a level.")), "{}", done.text());
        let (_, sent) = applied("kueue", &["--labels-only", "--clean-old-keys"], list(&[]), list(&[LEAF])).await;
        assert_eq!(sent["/api/v1/nodes/n2"].get(LEAF), None);
        let (done, sent) = applied("shut", &["--labels-only", "--clean-old-keys"], failure(403, "topologies is forbidden"), list(&[])).await;
        assert_eq!(sent["/api/v1/nodes/n1"], json!({"fabric.topograph.run/tier-0": "l1", "fabric.topograph.run/tier-1": "s"}));
        assert!(!done.is_whole() && done.text().contains("can't be found out: ") && done.text().contains("topologies is forbidden"), "{}", done.text());
    }
}
