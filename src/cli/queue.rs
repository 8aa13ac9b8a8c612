//! `berth queue`: what waits, in which order, why and since when; and what each queue has, deserves and may have.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Result, bail};
use berth_engine::policy::Objective;
use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};

use super::connect::Connection;
use super::render::queues::{self, View};
use super::{Compat, PoolArguments, YES, complain};
use crate::clock::now_millis;
use crate::cluster::list;
use crate::simulate::cluster::Cluster;
use crate::simulate::input::{Item, Place, read_paths};
use crate::simulate::{Options, scenario};

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
    output: Output,
    /// Topology of gangs that name none.
    #[arg(long, value_name = "NAME", env = "BERTH_DEFAULT_TOPOLOGY")]
    default_topology: Option<String>,
    /// Follow KAI Scheduler also where Berth differs on purpose; docs/compat.md lists what.
    #[arg(long, value_enum, env = "BERTH_COMPAT", conflicts_with = "default_topology")]
    compat: Option<Compat>,
    /// Pods with this schedulerName are placed; others only hold room.
    #[arg(long, value_name = "NAME", default_value = "kai-scheduler", env = "BERTH_SCHEDULER_NAME")]
    scheduler_name: String,
    /// What the best placement of gangs that name none is; docs/objectives.md says what each means.
    #[arg(long, value_parser = super::objective(), default_value = "kai", env = "BERTH_OBJECTIVE")]
    objective: Objective,
    #[command(flatten)]
    pool: PoolArguments,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For scripts.
    Json,
    /// The same document as YAML.
    Yaml,
}

/// Runs the command.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let items = if arguments.paths.is_empty() { read_cluster(arguments)? } else { read_paths(&arguments.paths)? };
    if let Some(item) = items.iter().find(|item| scenario::is_scenario(&item.value)) {
        bail!("{} is a scenario: `berth simulate` runs those", item.place.file);
    }
    let mut cluster = Cluster::new(Options {
        defaults_map: None,
        scheduler_name: arguments.scheduler_name.clone(),
        default_topology: arguments.default_topology.clone(),
        compat_kai: arguments.compat == Some(Compat::Kai),
        objective: arguments.objective,
        node_pool: arguments.pool.pool(),
    });
    cluster.apply(items);
    cluster.settle();
    for skipped in &cluster.skipped {
        complain(&format!("skipped {} ({} document {}): {}", skipped.object, skipped.place.file, skipped.place.document, skipped.message));
    }
    // In files time stands still; the ages of a cluster are those of now.
    let now = arguments.paths.is_empty().then(now_millis);
    let view = View::of(&mut cluster, arguments.namespace.as_deref(), now);
    match arguments.output {
        Output::Table => out.write_all(view.table().as_bytes())?,
        Output::Json => {
            serde_json::to_writer_pretty(&mut *out, &queues::json(&view)).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        Output::Yaml => write!(out, "{}", serde_saphyr::to_string(&queues::json(&view))?)?,
    }
    Ok(YES)
}

/// The objects of the cluster, as they are now.
fn read_cluster(arguments: &Arguments) -> Result<Vec<Item>> {
    let (objects, unread) = arguments.connection.block_on(async |client| list::objects(&client).await)?;
    for kind in unread {
        complain(&format!("berth: objects of kind {kind} may not be read; what follows is without them"));
    }
    let place = |at: usize| Place { file: "cluster".to_owned(), document: at + 1 };
    Ok(objects.into_iter().enumerate().map(|(at, value)| Item { place: place(at), value }).collect())
}
