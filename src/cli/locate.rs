//! `berth where`: which rank is on which node, in which domain of every level.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use berth_engine::outcome::GangReport;
use berth_engine::policy::Objective;
use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};

use super::render::ranks;
use super::{Compat, NO, PoolArguments, YES};
use crate::simulate::cluster::Cluster;
use crate::simulate::input::read_paths;
use crate::simulate::{Options, scenario};

/// Arguments of `berth where`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What is looked for: Job/trainer, PodGroup/pg-1, Pod/trainer-0, any kind that has pods.
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Manifests or dumps: files, folders, or - for standard input. Pods that wait are placed as `simulate` would.
    #[arg(required = true, value_name = "PATH")]
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
    /// Topology of gangs that name none.
    #[arg(long, value_name = "NAME", env = "BERTH_DEFAULT_TOPOLOGY")]
    default_topology: Option<String>,
    /// What the best placement of gangs that name none is; docs/objectives.md says what each means.
    #[arg(long, value_parser = super::objective(), default_value = "kai", env = "BERTH_OBJECTIVE")]
    objective: Objective,
    /// Follow KAI Scheduler also where Berth differs on purpose; docs/compat.md lists what.
    #[arg(long, value_enum, env = "BERTH_COMPAT", conflicts_with = "default_topology")]
    compat: Option<Compat>,
    /// Pods with this schedulerName are placed; others only hold room.
    #[arg(long, value_name = "NAME", default_value = "kai-scheduler", env = "BERTH_SCHEDULER_NAME")]
    scheduler_name: String,
    #[command(flatten)]
    pool: PoolArguments,
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
    let mut cluster = Cluster::new(Options {
        defaults_map: None,
        scheduler_name: arguments.scheduler_name.clone(),
        default_topology: arguments.default_topology.clone(),
        objective: arguments.objective,
        compat_kai: arguments.compat == Some(Compat::Kai),
        node_pool: arguments.pool.pool(),
    });
    let items = read_paths(&arguments.paths)?;
    if let Some(item) = items.iter().find(|item| scenario::is_scenario(&item.value)) {
        bail!("{} is a scenario: `berth simulate` runs those", item.place.file);
    }
    cluster.apply(items);
    cluster.settle();
    let gangs = cluster.world().gang_reports();
    let found: Vec<&GangReport> = gangs.iter().filter(|gang| is_meant(&cluster, gang, &arguments.namespace, kind, name)).collect();
    if found.is_empty() {
        let known: Vec<String> = gangs.iter().map(ranks::title).collect();
        let known = if known.is_empty() { "there is no gang at all".to_owned() } else { format!("gangs: {}", known.join(", ")) };
        bail!("no gang of {kind}/{name} in namespace {}; {known}", arguments.namespace);
    }
    let maps: Vec<ranks::Map<'_>> =
        found.into_iter().map(|gang| ranks::Map::new(&cluster, gang, arguments.default_topology.as_deref())).collect();
    match if arguments.hostfile { Output::Hostfile } else { arguments.output } {
        Output::Table => maps.iter().try_for_each(|map| out.write_all(map.table().as_bytes()))?,
        Output::Hostfile => maps.iter().try_for_each(|map| out.write_all(map.hostfile().as_bytes()))?,
        Output::Json => {
            serde_json::to_writer_pretty(&mut *out, &ranks::json(&maps)).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        Output::Yaml => write!(out, "{}", serde_saphyr::to_string(&ranks::json(&maps))?)?,
    }
    Ok(if maps.iter().all(ranks::Map::is_whole) { YES } else { NO })
}

/// True for the gang of an object: its PodGroup, the workload that the user wrote, or one of its pods.
pub(super) fn is_meant(cluster: &Cluster, gang: &GangReport, namespace: &str, kind: &str, name: &str) -> bool {
    if gang.key.namespace != namespace {
        return false;
    }
    match kind.to_lowercase().as_str() {
        "podgroup" => gang.key.name == name,
        "pod" => cluster.world().ranks(&gang.uid).iter().any(|rank| rank.pod.name == name),
        kind => gang.owner.split_once('/').is_some_and(|(own, other)| own.to_lowercase() == kind && other == name),
    }
}
