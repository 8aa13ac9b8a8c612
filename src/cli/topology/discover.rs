//! `berth topology discover`: the fabric, as labels, a Topology, or files of Slurm.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use berth_discovery::names::listed;
use berth_discovery::out::labels::{Keys, labels};
use berth_discovery::out::{slurm as slurm_out, topology};
use berth_discovery::sources::cloud::{self, Cloud};
use berth_discovery::sources::{Filter, ibnet, measure, netq, slurm, smi, topograph};
use berth_discovery::weights::{SLOW_BELOW, Weight};
use berth_discovery::{Fabric, Node, drift};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::super::{Format, YES, write_json};
use super::propose::evidence;
use crate::simulate::input::read_text;

/// Where a fabric is read from; flags that `discover` and `apply` share.
#[derive(Debug, Args)]
pub(super) struct Sources {
    /// What to read: ibnetdiscover, netq, nmx, nvidia-smi, aws, gcp, oci, nebius, lambda, nscale, slurm or topograph, and the file
    /// (- for standard input). Given again, accelerator domains of one source join the tiers of another by host; so do measured links
    /// of nccl-tests, iperf3 or links (`host host figure` lines).
    #[arg(long, value_name = "SOURCE=FILE", required = true, value_parser = source, env = "BERTH_FROM")]
    from: Vec<Source>,
    /// Hosts to leave out; * stands for anything.
    #[arg(long, value_name = "PATTERN", env = "BERTH_EXCLUDE_HOST", value_delimiter = ',')]
    exclude_host: Vec<String>,
    /// Switches to leave out, such as those of the storage rails.
    #[arg(long, value_name = "PATTERN", env = "BERTH_EXCLUDE_SWITCH", value_delimiter = ',')]
    exclude_switch: Vec<String>,
    /// Adapters to leave out, such as those of the storage rails.
    #[arg(long, value_name = "PATTERN", env = "BERTH_EXCLUDE_ADAPTER", value_delimiter = ',')]
    exclude_adapter: Vec<String>,
    /// Measured parts of the fabric below this percentage of their peers are named as slow.
    #[arg(long, value_name = "PERCENT", default_value_t = SLOW_BELOW, env = "BERTH_SLOW_BELOW", value_parser = clap::value_parser!(u64).range(0..=100))]
    slow_below: u64,
    /// Generation of Topograph's label keys.
    #[arg(long, value_enum, default_value = "current", env = "BERTH_LABEL_KEYS")]
    keys: Generation,
}

/// A source and its file.
#[derive(Clone, Debug)]
struct Source {
    name: String,
    file: PathBuf,
}

fn source(text: &str) -> Result<Source, String> {
    let (name, file) = text.split_once('=').ok_or("allowed is SOURCE=FILE, such as ibnetdiscover=dump.txt")?;
    if reader(name).is_none() {
        return Err(format!("{name} is no source; allowed are {}", SOURCES.map(|(name, _)| name).join(", ")));
    }
    Ok(Source { name: name.to_owned(), file: file.into() })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Generation {
    /// fabric.topograph.run/tier-0 and so on.
    Current,
    /// network.topology.nvidia.com/leaf, spine, core.
    Leaf,
    /// network.topology.nvidia.com/block, spine, datacenter.
    Block,
}

type Reader = fn(&str, &Filter) -> Result<Fabric, berth_discovery::DiscoveryError>;

const SOURCES: [(&str, Reader); 15] = [
    ("ibnetdiscover", ibnet::read),
    ("netq", netq::read),
    ("nmx", |text, _| netq::compute_nodes(text)),
    ("nvidia-smi", |text, _| smi::read(text)),
    ("aws", |text, _| cloud::read(Cloud::Aws, text)),
    ("gcp", |text, _| cloud::read(Cloud::Gcp, text)),
    ("oci", |text, _| cloud::read(Cloud::Oci, text)),
    ("nebius", |text, _| cloud::read(Cloud::Nebius, text)),
    ("lambda", |text, _| cloud::read(Cloud::Lambda, text)),
    ("nscale", |text, _| cloud::read(Cloud::Nscale, text)),
    ("slurm", |text, _| slurm::read(text)),
    ("topograph", |text, _| topograph::read(text)),
    ("nccl-tests", |text, _| measure::nccl(text)),
    ("iperf3", |text, _| measure::iperf(text)),
    ("links", |text, _| measure::list(text)),
];

fn reader(name: &str) -> Option<Reader> {
    SOURCES.iter().find(|(known, _)| *known == name).map(|(_, reader)| *reader)
}

impl Sources {
    /// The keys of labels.
    pub(super) fn keys(&self) -> Keys {
        match self.keys {
            Generation::Current => Keys::Current,
            Generation::Leaf => Keys::Leaf,
            Generation::Block => Keys::Block,
        }
    }

    /// Reads every source, joins them, and weighs what was measured: by all of the fabric, whoever is asked for later.
    fn fabric(&self, nodes: &[Node]) -> Result<Fabric> {
        let filter = Filter { hosts: self.exclude_host.clone(), switches: self.exclude_switch.clone(), adapters: self.exclude_adapter.clone() };
        let mut whole: Option<Fabric> = None;
        for source in &self.from {
            let text = read_text(&source.file)?;
            let read = reader(&source.name).ok_or_else(|| anyhow!("{} is no source", source.name))?;
            let fabric = read(&text, &filter).with_context(|| source.file.display().to_string())?;
            whole = Some(match whole {
                None => fabric,
                Some(first) => first.join(fabric),
            });
        }
        let whole = whole.context("--from is missing")?;
        if whole.hosts.is_empty() && !whole.measured.is_empty() {
            bail!("measurements say nothing of where hosts are: --from is needed again, for the fabric");
        }
        Ok(whole.weighed(nodes, self.slow_below))
    }
}

/// Measured domains that the report shows.
const MOST_WEIGHTS: usize = 20;

/// Arguments of `berth topology discover`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    sources: Sources,
    /// Nodes of the cluster, as manifests or dumps: only they are labelled. Without them hosts are called as in the fabric.
    #[arg(long, value_name = "PATH", env = "BERTH_NODES")]
    nodes: Vec<PathBuf>,
    /// What to print.
    #[arg(long, value_enum, default_value = "report", env = "BERTH_TO")]
    to: Target,
    /// Name of the Topology, or of the ConfigMap.
    #[arg(long, default_value = "cluster-topology", env = "BERTH_TOPOLOGY_NAME")]
    name: String,
    /// Namespace of the ConfigMap.
    #[arg(short, long, default_value = "slurm", env = "BERTH_NAMESPACE")]
    namespace: String,
    /// Sizes of Slurm's blocks, smallest first; by default the smallest domain and its doublings.
    #[arg(long, value_name = "N,N", value_delimiter = ',', env = "BERTH_BLOCK_SIZES")]
    block_sizes: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Target {
    /// Tables for people.
    Report,
    /// Nodes with their labels, for kubectl apply --server-side.
    Labels,
    /// A Topology of KAI Scheduler and Berth.
    Topology,
    /// A Topology of Kueue.
    Kueue,
    /// topology.conf, tree.
    SlurmTree,
    /// topology.conf, block.
    SlurmBlock,
    /// topology.yaml with both.
    SlurmYaml,
    /// A ConfigMap with topology.yaml, as Slinky reads it.
    Slinky,
    /// Topograph's graph, as JSON.
    Graph,
    /// One page for a browser, which asks nobody for anything.
    Html,
    /// What was left out and why, as JSON.
    Findings,
    /// What differs between the fabric and the labels of --nodes, for people; exit code 1 when something does.
    Drift,
    /// The same as JSON.
    DriftJson,
}

/// Runs the command.
pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let nodes = if arguments.nodes.is_empty() { Vec::new() } else { super::nodes_of(&arguments.nodes)? };
    let fabric = if nodes.is_empty() { arguments.sources.fabric(&[])? } else { of_cluster(&arguments.sources, &nodes)? };
    let keys = arguments.sources.keys();
    if matches!(arguments.to, Target::Drift | Target::DriftJson) {
        if nodes.is_empty() {
            bail!("--to drift compares with the labels of nodes: --nodes is missing");
        }
        let format = if arguments.to == Target::Drift { Format::Table } else { Format::Json };
        return super::drift::print(&drift(&fabric, keys, &nodes), &nodes, "the fabric", format, out);
    }
    if !matches!(arguments.to, Target::Report | Target::Findings | Target::Html) && !fabric.findings.is_empty() {
        super::super::complain(&format!("{} findings: `--to report` lists them", fabric.findings.len()));
    }
    let refused = |message: String| anyhow!(message);
    match arguments.to {
        Target::Report => out.write_all(report(&fabric).as_bytes())?,
        Target::Labels => super::write_yaml(out, &node_objects(&fabric, keys))?,
        Target::Topology | Target::Kueue => {
            let Some(proposal) = topology::of_fabric(&fabric, keys) else {
                bail!("no Topology: no tier of the fabric tells hosts apart");
            };
            out.write_all(evidence(&proposal).as_bytes())?;
            let levels: Vec<&str> = proposal.levels.iter().map(|level| level.key.as_str()).collect();
            let object = if arguments.to == Target::Kueue { topology::kueue(&arguments.name, &levels) } else { topology::kai(&arguments.name, &levels) };
            super::write_yaml(out, &[object])?;
        }
        Target::SlurmTree if fabric.depth == 0 => bail!("no tiers in this source: a tree needs switches"),
        Target::SlurmTree => out.write_all(slurm_out::tree(&fabric).as_bytes())?,
        Target::SlurmBlock => out.write_all(slurm_out::block(&fabric, &arguments.block_sizes).map_err(refused)?.as_bytes())?,
        Target::SlurmYaml => super::write_yaml(out, &[slurm_out::yaml(&fabric, &arguments.block_sizes).map_err(refused)?])?,
        Target::Slinky => super::write_yaml(out, &[slinky(arguments, &fabric)?])?,
        Target::Html => out.write_all(super::page::html(&fabric).as_bytes())?,
        Target::Graph => write_json(out, &graph(&fabric, keys))?,
        Target::Findings => {
            let list = fabric.findings.iter().map(|finding| json!({ "kind": finding.kind, "subject": finding.subject, "message": finding.message }));
            write_json(out, &list.collect())?;
        }
        // Printed above, with an exit code of their own.
        Target::Drift | Target::DriftJson => {}
    }
    Ok(YES)
}

fn node_objects(fabric: &Fabric, keys: Keys) -> Vec<Value> {
    let all = labels(fabric, keys).into_iter();
    all.map(|(name, labels)| json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } })).collect()
}

/// Topograph's graph; what was measured stands beside it.
fn graph(fabric: &Fabric, keys: Keys) -> Value {
    let labels = labels(fabric, keys);
    let hosts = fabric.hosts.iter().map(|(name, host)| {
        let mut instance = json!({ "id": name, "network_layers": host.tiers, "labels": labels.get(name) });
        if let Some(health) = host.health {
            instance["health"] = health.into();
        }
        instance
    });
    let mut graph = json!({ "instances": hosts.collect::<Vec<_>>() });
    if !fabric.weights.is_empty() {
        let weight = |weight: &Weight| json!({ "tier": weight.tier, "domain": weight.domain, "insidePercent": weight.inside, "outPercent": weight.out, "measurements": weight.measurements });
        graph["weights"] = fabric.weights.iter().map(weight).collect();
    }
    graph
}

/// The ConfigMap that Slinky's Slurm reads its topology from.
fn slinky(arguments: &Arguments, fabric: &Fabric) -> Result<Value> {
    let yaml = slurm_out::yaml(fabric, &arguments.block_sizes).map_err(|message| anyhow!(message))?;
    Ok(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": arguments.name, "namespace": arguments.namespace,
            "annotations": {
                "topograph.run/engine": "slinky", "topograph.run/topology-managed-by": "berth", "topograph.run/slurm-namespace": arguments.namespace,
            },
        },
        "data": { "topology.yaml": serde_saphyr::to_string(&yaml)? },
    }))
}

/// Tiers, domains and findings; one sentence first.
fn report(fabric: &Fabric) -> String {
    let accelerators = fabric.accelerators();
    let mut text = format!("{} hosts, {} tiers, {} accelerator domains, {} findings.\n", fabric.hosts.len(), fabric.depth, accelerators.len(), fabric.findings.len());
    for tier in 0..fabric.depth {
        let domains = fabric.domains(tier);
        text += &format!("\nTIER {tier:<3} {} domains\n", domains.len());
        let width = domains.keys().map(|name| name.len()).max().unwrap_or(0).min(40);
        for (name, hosts) in domains {
            text += &format!("  {name:width$}  {:>5} hosts  {}\n", hosts.len(), listed(hosts.iter().copied(), 2));
        }
    }
    if !accelerators.is_empty() {
        text += "\nACCELERATOR DOMAINS\n";
        for (name, hosts) in accelerators {
            text += &format!("  {name}  {} hosts\n", hosts.len());
        }
    }
    text += &weights(fabric);
    let mut kinds: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for finding in &fabric.findings {
        kinds.entry(finding.kind).or_default().push(format!("{} {}", finding.subject, finding.message));
    }
    if !kinds.is_empty() {
        text += "\nFINDINGS (all of them: --to findings)\n";
    }
    for (kind, lines) in kinds {
        text += &format!("  {kind}: {}\n", lines.len());
        lines.iter().take(3).for_each(|line| text += &format!("    {line}\n"));
    }
    text
}

/// Measured domains, the slowest first.
fn weights(fabric: &Fabric) -> String {
    if fabric.weights.is_empty() {
        return String::new();
    }
    let worst = |weight: &Weight| weight.inside.into_iter().chain(weight.out).min().unwrap_or(u64::MAX);
    let mut sorted: Vec<&Weight> = fabric.weights.iter().collect();
    sorted.sort_by_key(|weight| (worst(weight), weight.tier, &weight.domain));
    let width = sorted.iter().take(MOST_WEIGHTS).map(|weight| weight.domain.len()).max().unwrap_or(0).clamp(6, 40);
    let percent = |percent: Option<u64>| percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent} %"));
    let mut text = format!("\nMEASURED, IN PERCENT OF ITS PEERS\n  {:width$}  TIER  INSIDE  LEAVING IT  MEASUREMENTS\n", "DOMAIN");
    for weight in sorted.iter().take(MOST_WEIGHTS) {
        text += &format!("  {:width$}  {:>4}  {:>6}  {:>10}  {:>12}\n", weight.domain, weight.tier, percent(weight.inside), percent(weight.out), weight.measurements);
    }
    if sorted.len() > MOST_WEIGHTS {
        text += &format!("  and {} more that are no slower (all of them: --to graph)\n", sorted.len() - MOST_WEIGHTS);
    }
    text
}

/// Nodes of a fabric, for those who label a cluster.
pub(super) fn of_cluster(sources: &Sources, nodes: &[Node]) -> Result<Fabric> {
    Ok(sources.fabric(nodes)?.for_nodes(nodes))
}
