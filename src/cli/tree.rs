//! `berth tree`: the topology with what is free, used, reserved and stranded in every domain.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};
use serde_json::json;

use super::render::{page, tree, view};
use super::source::{Live, settled};
use super::{Compat, YES, write_json};
use crate::simulate::Options;

/// Arguments of `berth tree`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Manifests, dumps or snapshots, folders, or - for standard input; without any the cluster is asked. Pods that wait are
    /// placed as `simulate` would.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// A file to read, besides the others.
    #[arg(long, value_name = "FILE", env = "BERTH_SNAPSHOT")]
    snapshot: Vec<PathBuf>,
    /// The topology; without it the default one, or the first.
    #[arg(long, value_name = "NAME", env = "BERTH_DEFAULT_TOPOLOGY")]
    topology: Option<String>,
    /// Levels that are shown, from the widest.
    #[arg(long, value_name = "COUNT", env = "BERTH_DEPTH", default_value_t = 16)]
    depth: usize,
    /// Show every node as well.
    #[arg(long, env = "BERTH_NODES", value_parser = FalseyValueParser::new())]
    nodes: bool,
    /// How to print it.
    #[arg(short, long, value_enum, default_value = "table", env = "BERTH_OUTPUT")]
    output: Output,
    /// Follow KAI Scheduler also where Berth differs on purpose; docs/compat.md lists what.
    #[arg(long, value_enum, env = "BERTH_COMPAT")]
    compat: Option<Compat>,
    /// Pods with this schedulerName are placed; others only hold room.
    #[arg(long, value_name = "NAME", default_value = "kai-scheduler", env = "BERTH_SCHEDULER_NAME")]
    scheduler_name: String,
    #[command(flatten)]
    live: Live,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For scripts.
    Json,
    /// A page for a browser: map, gangs with what would help, queues, decisions. It loads nothing.
    Html,
    /// A drawing.
    Svg,
}

/// Runs the command.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let options = Options {
        scheduler_name: arguments.scheduler_name.clone(),
        compat_kai: arguments.compat == Some(Compat::Kai),
        ..Options::standard()
    };
    let paths: Vec<PathBuf> = arguments.paths.iter().chain(&arguments.snapshot).cloned().collect();
    let cluster = settled(&paths, &arguments.live, options)?;
    let known: Vec<String> = cluster.world().levels().into_iter().map(|(name, _)| name).collect();
    let name = match &arguments.topology {
        Some(name) if !known.contains(name) => bail!("there is no topology {name}; topologies: {}", known.join(", ")),
        Some(name) => name.clone(),
        None => cluster.world().default_topology_name().or_else(|| known.first().cloned()).unwrap_or_default(),
    };
    let shown = view::tree(&cluster, &name);
    match arguments.output {
        Output::Table => out.write_all(tree::text(&shown, arguments.depth, arguments.nodes).as_bytes())?,
        Output::Svg => out.write_all(tree::svg(&shown).as_bytes())?,
        Output::Html => out.write_all(page::html(&[view::document_of(&cluster, "")]).as_bytes())?,
        Output::Json => {
            let value = json!({
                "apiVersion": "berth.scheduler/v1alpha1", "kind": "TopologyTree", "topology": shown.topology, "unit": shown.unit,
                "root": shown.root.json(""),
            });
            write_json(out, &value)?;
        }
    }
    Ok(YES)
}
