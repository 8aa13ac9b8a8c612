//! `berth topology drift`: do the labels of nodes still say what was last discovered?

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use berth_discovery::drift::Outside;
use berth_discovery::{Drift, Node, drift, record};
use clap::Args;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::{Value, json};

use super::super::connect::Connection;
use super::super::{Format, NO, YES};
use super::report;
use crate::simulate::input::read_paths;

/// Lines of each part of the table.
const MOST_LINES: usize = 100;

/// Arguments of `berth topology drift`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Nodes and the ConfigMap berth-topology: manifests or dumps, - for standard input; without any, those of the cluster.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    connection: Connection,
    /// Namespace of the ConfigMap: the --status-namespace of `berth topology run`.
    #[arg(short, long, default_value = "berth", env = "BERTH_NAMESPACE")]
    namespace: String,
    /// How to print it.
    #[arg(short, long, value_enum, default_value = "table", env = "BERTH_OUTPUT")]
    output: Format,
}

/// Runs the command: 0 when labels and discovery agree, 1 when they do not.
pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let (map, nodes) = if arguments.paths.is_empty() {
        let map = arguments.connection.block_on(async |client| {
            let api: Api<ConfigMap> = Api::namespaced(client, &arguments.namespace);
            api.get_opt(report::NAME).await.context("reading the ConfigMap of the last discovery")
        })?;
        (map.map(serde_json::to_value).transpose()?, super::nodes(&[], &arguments.connection)?)
    } else {
        let items = read_paths(&arguments.paths)?;
        let map = items.iter().find(|item| item.value["kind"] == "ConfigMap" && item.value["metadata"]["name"] == report::NAME);
        (map.map(|item| item.value.clone()), super::nodes_of(&arguments.paths)?)
    };
    let Some(map) = map else {
        bail!("no ConfigMap {} in namespace {}: `berth topology run --status-namespace` writes it", report::NAME, arguments.namespace);
    };
    let Some(discovery) = record::of_config_map(&map) else {
        bail!("ConfigMap {}: data has no discovery.json: nothing was discovered yet, or it did not fit", report::NAME);
    };
    let (fabric, keys) = discovery.with_context(|| format!("ConfigMap {}", report::NAME))?;
    print(&drift(&fabric, keys, &nodes), &nodes, "the last discovery", arguments.output, out)
}

/// Prints a comparison: 0 when nothing differs and nobody is missed.
pub(super) fn print(drift: &Drift, nodes: &[Node], with: &str, output: Format, out: &mut dyn Write) -> Result<u8> {
    output.print(out, || table(drift, nodes.len(), with), || document(drift))?;
    Ok(if drift.differs.is_empty() && drift.missed().next().is_none() { YES } else { NO })
}

fn table(drift: &Drift, nodes: usize, with: &str) -> String {
    let mut text = match drift.differs.len() {
        0 => format!("The labels of {} of {nodes} nodes are those of {with}; none differs.\n", drift.same),
        n => format!("The labels of {n} of {nodes} nodes differ from {with}; those of {} agree.\n", drift.same),
    };
    let mut part = |head: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{head}");
        }
        lines.iter().take(MOST_LINES).for_each(|line| text += line);
        if lines.len() > MOST_LINES {
            let _ = writeln!(text, "  and {} more (all of them: -o json)", lines.len() - MOST_LINES);
        }
    };
    let keys = |node: &String| drift.line(node).split("; ").map(|part| format!("\n    {part}")).collect::<String>();
    part("DIFFERENT", drift.differs.keys().map(|node| format!("  {node}{}\n", keys(node))).collect());
    let outside = |(node, outside): (&String, &Outside)| {
        let what = if outside.accelerated { " (has accelerators)" } else { "" };
        let bears = if outside.bears.is_empty() { String::new() } else { format!("; bears {} labels all the same", outside.bears.len()) };
        format!("  {node}{what} {}{bears}\n", outside.why)
    };
    part("NOT IN THE FABRIC", drift.outside.iter().map(outside).collect());
    text
}

fn document(drift: &Drift) -> Value {
    let label = |label: &berth_discovery::drift::Difference| json!({ "has": label.has, "wanted": label.wanted });
    let differs: BTreeMap<&String, BTreeMap<&String, Value>> =
        drift.differs.iter().map(|(node, labels)| (node, labels.iter().map(|(key, value)| (key, label(value))).collect())).collect();
    let outside: BTreeMap<&String, Value> = drift.outside.iter().map(|(node, outside)| (node, self::outside(outside))).collect();
    json!({ "apiVersion": "berth.scheduler/v1alpha1", "kind": "TopologyDrift", "same": drift.same, "differs": differs, "outside": outside })
}

/// A node that the fabric does not know, for programs.
pub(super) fn outside(outside: &Outside) -> Value {
    json!({ "why": outside.why, "accelerated": outside.accelerated, "bears": outside.bears })
}
