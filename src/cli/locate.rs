//! `berth where`: which rank is on which node, in which domain of every level.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use berth_engine::outcome::GangReport;
use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};

use super::render::ranks;
use super::source::{Live, settled};
use super::{Choices, NO, PoolArguments, YES, write_json};
use crate::moment::is_meant;
use crate::simulate::Options;

/// Arguments of `berth where`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What is looked for: Job/trainer, PodGroup/pg-1, Pod/trainer-0, any kind that has pods.
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Manifests or dumps: files, folders, or - for standard input; without any the cluster is asked. Pods that wait are
    /// placed as `simulate` would.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Its namespace.
    #[arg(short, long, default_value = "default", env = "BERTH_NAMESPACE")]
    namespace: String,
    /// How to print it.
    #[arg(short, long, value_enum, default_value = "table", env = "BERTH_OUTPUT")]
    output: Output,
    /// The same as -o hostfile.
    #[arg(long, conflicts_with = "output", env = "BERTH_HOSTFILE", value_parser = FalseyValueParser::new())]
    hostfile: bool,
    #[command(flatten)]
    choices: Choices,
    #[command(flatten)]
    pool: PoolArguments,
    #[command(flatten)]
    live: Live,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For scripts.
    Json,
    /// The same document as YAML.
    Yaml,
    /// One line for each run of ranks on a node: `<node> slots=<ranks>`.
    Hostfile,
}

/// Runs the command: 0 when every rank has a node, 1 when one waits.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let (kind, name) = arguments.object.split_once('/').context("what to look for is written KIND/NAME, such as Job/trainer")?;
    let options = Options { node_pool: arguments.pool.pool(), ..arguments.choices.options() };
    let cluster = settled(&arguments.paths, &arguments.live, options)?;
    let gangs = cluster.world().gang_reports();
    let found: Vec<&GangReport> = gangs.iter().filter(|gang| is_meant(cluster.world(), gang, &arguments.namespace, kind, name)).collect();
    if found.is_empty() {
        let known: Vec<String> = gangs.iter().map(ranks::title).collect();
        let known = if known.is_empty() { "there is no gang at all".to_owned() } else { format!("gangs: {}", known.join(", ")) };
        bail!("no gang of {kind}/{name} in namespace {}; {known}", arguments.namespace);
    }
    let maps: Vec<ranks::Map<'_>> =
        found.into_iter().map(|gang| ranks::Map::new(&cluster, gang, arguments.choices.default_topology.as_deref())).collect();
    match if arguments.hostfile { Output::Hostfile } else { arguments.output } {
        Output::Table => maps.iter().try_for_each(|map| out.write_all(map.table().as_bytes()))?,
        Output::Hostfile => maps.iter().try_for_each(|map| out.write_all(map.hostfile().as_bytes()))?,
        Output::Json => write_json(out, &ranks::json(&maps))?,
        Output::Yaml => write!(out, "{}", serde_saphyr::to_string(&ranks::json(&maps))?)?,
    }
    Ok(if maps.iter().all(ranks::Map::is_whole) { YES } else { NO })
}
