//! `berth queue`: what waits, in which order, why and since when; and what each queue has, deserves and may have.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::builder::FalseyValueParser;
use clap::Args;

use super::render::queues::{self, View};
use super::source::{Live, settled};
use super::{Choices, Format, PoolArguments, YES, complain};
use crate::clock::now_millis;
use crate::simulate::Options;

/// Arguments of `berth queue`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Manifests or dumps: files, folders, or - for standard input; what fits is placed first. Without any, the cluster is read.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Show the gangs of this namespace only; their place in the line stays.
    #[arg(short, long, env = "BERTH_NAMESPACE", conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// Show the gangs of all namespaces; so it is without --namespace.
    #[arg(short = 'A', long, env = "BERTH_ALL_NAMESPACES", value_parser = FalseyValueParser::new())]
    all_namespaces: bool,
    /// How to print it.
    #[arg(short, long, value_enum, default_value = "table", env = "BERTH_OUTPUT")]
    output: Format,
    #[command(flatten)]
    choices: Choices,
    #[command(flatten)]
    pool: PoolArguments,
    #[command(flatten)]
    live: Live,
}

/// Runs the command.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let options = Options { node_pool: arguments.pool.pool(), ..arguments.choices.options() };
    let mut cluster = settled(&arguments.paths, &arguments.live, options)?;
    for skipped in &cluster.skipped {
        complain(&format!("skipped {} ({} document {}): {}", skipped.object, skipped.place.file, skipped.place.document, skipped.message));
    }
    // In files time stands still; the ages of a cluster are those of now.
    let now = if arguments.paths.is_empty() { now_millis() } else { cluster.now() };
    let line = cluster.line();
    let view = View::of(cluster.world(), line, arguments.namespace.as_deref(), now);
    arguments.output.print(out, || view.table(), || queues::json(&view))?;
    Ok(YES)
}
