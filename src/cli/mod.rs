//! The command line: arguments, exit codes, output. One file per command; only this module prints.

use std::io::{self, Write};
use std::process::ExitCode;

use berth_api::keys;
use berth_engine::policy::Objective;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

pub mod check;
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
    /// Look for mistakes in manifests and dumps.
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

/// The command line as data, for completions and the manual.
pub(crate) fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
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
