//! The command line: arguments, exit codes, output. One file per command; only this module prints.

use std::io::{self, Write};
use std::process::ExitCode;

use berth_api::keys;
use berth_engine::policy::{NodeStrategy, Objective};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use serde_json::Value;

pub mod ask;
pub mod check;
mod config;
pub mod connect;
pub mod explain;
pub mod generate;
pub mod locate;
mod progress;
pub mod queue;
pub mod render;
pub mod run;
pub mod simulate;
pub mod snapshot;
pub mod source;
pub mod topology;
pub mod tree;

use crate::cluster::pool::NodePool;
use crate::simulate::Options;

/// Everything asked for holds.
pub const YES: u8 = 0;
/// A well-formed no: something is pending under `--strict`, or an expectation is unmet.
pub const NO: u8 = 1;
/// Usage, or input that can't be read.
pub const UNREADABLE: u8 = 2;

/// A Kubernetes scheduler that places gangs of pods where the network is fast.
#[derive(Debug, Parser)]
#[command(name = "berth", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Decide for manifests and dumps, without a cluster.
    Simulate(simulate::Arguments),
    /// Say which rank is on which node, and in which domains.
    Where(locate::Arguments),
    /// Find out how the network is built: labels, Topology, Slurm files.
    Topology(topology::Arguments),
    /// Say why something waits, and what would help; or what a change would do.
    Explain(explain::Arguments),
    /// Write a cluster as one file that every command reads.
    Snapshot(snapshot::Arguments),
    /// Show the topology with what is free, used, reserved and stranded in every domain.
    Tree(tree::Arguments),
    /// Say what waits, in which order and why, and how the queues stand.
    Queue(queue::Arguments),
    /// Look for mistakes in manifests, dumps and clusters.
    Check(check::Arguments),
    /// Write files that Berth knows how to make.
    Generate(generate::Arguments),
    /// Schedule the pods of a cluster.
    Run(run::Arguments),
}

/// Whose ways are followed where Berth differs on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compat {
    /// Those of KAI Scheduler: docs/compat.md lists every difference.
    Kai,
}

/// How nodes are filled, as KAI Scheduler's `placementStrategy` says it.
#[derive(Clone, Copy, Debug, Args)]
pub struct Strategies {
    /// How pods that ask for GPUs fill nodes: the fewest nodes, or all of them evenly.
    #[arg(long, value_parser = strategy(), value_name = "STRATEGY", default_value = "binpack", env = "BERTH_GPU_STRATEGY")]
    gpu_strategy: NodeStrategy,
    /// How other pods do.
    #[arg(long, value_parser = strategy(), value_name = "STRATEGY", default_value = "binpack", env = "BERTH_CPU_STRATEGY")]
    cpu_strategy: NodeStrategy,
}

/// The choices of a scheduler, for the commands that decide offline as it would.
#[derive(Debug, Args)]
pub struct Choices {
    /// Topology of gangs that name none.
    #[arg(long, value_name = "NAME", env = "BERTH_DEFAULT_TOPOLOGY")]
    default_topology: Option<String>,
    /// What the best placement of gangs that name none is; docs/objectives.md says what each means.
    #[arg(long, value_parser = objective(), default_value = "kai", env = "BERTH_OBJECTIVE")]
    objective: Objective,
    #[command(flatten)]
    strategies: Strategies,
    /// Follow KAI Scheduler also where Berth differs on purpose; docs/compat.md lists what.
    #[arg(long, value_enum, env = "BERTH_COMPAT", conflicts_with = "default_topology")]
    compat: Option<Compat>,
    /// Pods with this schedulerName are placed; others only hold room.
    #[arg(long, value_name = "NAME", default_value = "kai-scheduler", env = "BERTH_SCHEDULER_NAME")]
    scheduler_name: String,
}

impl Choices {
    /// As options of a run; the rest is as documented.
    fn options(&self) -> Options {
        Options {
            scheduler_name: self.scheduler_name.clone(),
            default_topology: self.default_topology.clone(),
            objective: self.objective,
            gpu_strategy: self.strategies.gpu_strategy,
            cpu_strategy: self.strategies.cpu_strategy,
            compat_kai: self.compat == Some(Compat::Kai),
            ..Options::standard()
        }
    }
}

/// How a document is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// For scripts.
    Json,
    /// The same document as YAML.
    Yaml,
}

impl Format {
    /// Prints what is asked for, and makes nothing else.
    fn print(self, out: &mut dyn Write, table: impl FnOnce() -> String, document: impl FnOnce() -> Value) -> anyhow::Result<()> {
        match self {
            Self::Table => out.write_all(table().as_bytes())?,
            Self::Json => write_json(out, &document())?,
            Self::Yaml => write!(out, "{}", serde_saphyr::to_string(&document())?)?,
        }
        Ok(())
    }
}

/// Writes a document as JSON for scripts and eyes.
fn write_json(out: &mut dyn Write, document: &Value) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)
}

/// Which part of the cluster is seen.
#[derive(Debug, Args)]
pub struct PoolArguments {
    /// Label that divides nodes, queues and PodGroups into node pools.
    #[arg(long, value_name = "KEY", default_value = keys::NODE_POOL, env = "BERTH_NODEPOOL_LABEL_KEY")]
    nodepool_label_key: String,
    /// See only the nodes, queues and PodGroups with this value of the label; empty: those without it. Absent: all.
    #[arg(long, value_name = "VALUE", env = "BERTH_PARTITION_LABEL_VALUE")]
    partition_label_value: Option<String>,
}

impl PoolArguments {
    fn pool(&self) -> NodePool {
        NodePool::new(&self.nodepool_label_key, self.partition_label_value.as_deref())
    }
}

/// Reads the name of an objective.
pub fn objective() -> impl TypedValueParser<Value = Objective> {
    PossibleValuesParser::new(Objective::ALL.map(Objective::name))
        .try_map(|name| Objective::named(&name).ok_or_else(Objective::allowed))
}

/// Reads the name of a node strategy.
fn strategy() -> impl TypedValueParser<Value = NodeStrategy> {
    PossibleValuesParser::new(NodeStrategy::ALL.map(NodeStrategy::name))
        .try_map(|name| NodeStrategy::named(&name).ok_or("binpack or spread"))
}

/// The command line as data, for completions and the manual.
pub(crate) fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    let line: Vec<_> = std::env::args_os().collect();
    let arguments = match config::matches(&command(), &line) {
        Ok(matches) => Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()),
        Err(error) => {
            complain(&format!("berth: {error:#}"));
            return ExitCode::from(UNREADABLE);
        }
    };
    let mut out = io::stdout().lock();
    let result = match arguments.command {
        Command::Simulate(arguments) => simulate::run(&arguments, &mut out),
        Command::Where(arguments) => locate::run(&arguments, &mut out),
        Command::Topology(arguments) => topology::run(&arguments, &mut out),
        Command::Explain(arguments) => explain::run(&arguments, &mut out),
        Command::Snapshot(arguments) => snapshot::run(&arguments, &mut out),
        Command::Tree(arguments) => tree::run(&arguments, &mut out),
        Command::Check(arguments) => check::run(&arguments, &mut out),
        Command::Queue(arguments) => queue::run(&arguments, &mut out),
        Command::Generate(arguments) => generate::run(&arguments, &mut out),
        Command::Run(arguments) => run::run(&arguments),
    };
    let result = result.and_then(|code| out.flush().map(|()| code).map_err(anyhow::Error::from));
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::from(YES),
        Err(error) => {
            complain(&format!("berth: {error:#}"));
            ExitCode::from(UNREADABLE)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Says something on standard error; that it can't be said is no failure.
fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
