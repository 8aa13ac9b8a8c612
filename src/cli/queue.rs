//! `berth queue`: what waits, in which order, why and since when; and what each queue has, deserves and may have.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::builder::FalseyValueParser;
use clap::Args;

use super::ask::{Remote, plain};
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
    #[command(flatten)]
    remote: Remote,
}

/// Runs the command.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    if arguments.remote.scheduler.is_some() {
        return ask(arguments, out);
    }
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

/// The same answer from a running scheduler, as far as the caller may see it.
fn ask(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    if !arguments.paths.is_empty() {
        bail!("--scheduler (BERTH_SCHEDULER) is asked; no files are read then");
    }
    let mut parameters: Vec<String> = Vec::new();
    if let Some(namespace) = &arguments.namespace {
        parameters.push(format!("namespace={}", plain(namespace)?));
    }
    if arguments.output == Format::Table {
        parameters.push("output=table".to_owned());
    }
    let answer = arguments.remote.get(&arguments.live.connection, &format!("/v1/queue?{}", parameters.join("&")))?;
    let table = || answer["table"].as_str().unwrap_or_default().to_owned();
    arguments.output.print(out, table, || answer.clone())?;
    Ok(YES)
}
