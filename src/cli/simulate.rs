//! `berth simulate`: decide for files, print what happened.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Result;
use berth_engine::facts::ObjectKey;
use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};

use super::progress::Progress;
use super::render::{json, page, table, view};
use super::{Choices, NO, PoolArguments, YES, complain, write_json};
use crate::simulate::cluster::Cluster;
use crate::simulate::input::{Item, read_paths};
use crate::simulate::result::SimulationResult;
use crate::simulate::{Options, scenario};

/// Arguments of `berth simulate`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Manifests, dumps or scenarios: files, folders, or - for standard input. A node without conditions counts as Ready.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How to print the result.
    #[arg(short, long, value_enum, default_value = "table", env = "BERTH_OUTPUT")]
    output: Output,
    /// Exit with 1 when something stays pending, is skipped, or an expectation is unmet.
    #[arg(long, env = "BERTH_STRICT", value_parser = FalseyValueParser::new())]
    strict: bool,
    /// Add time, steps and events to the JSON.
    #[arg(long, env = "BERTH_STATS", value_parser = FalseyValueParser::new())]
    stats: bool,
    #[command(flatten)]
    choices: Choices,
    /// Name of a ConfigMap with priority classes and preemptibility by kind, as KAI Scheduler reads it.
    #[arg(long, env = "BERTH_DEFAULT_PRIORITIES_CONFIGMAP_NAME", requires = "default_priorities_configmap_namespace")]
    default_priorities_configmap_name: Option<String>,
    /// Namespace of that ConfigMap.
    #[arg(long, env = "BERTH_DEFAULT_PRIORITIES_CONFIGMAP_NAMESPACE", requires = "default_priorities_configmap_name")]
    default_priorities_configmap_namespace: Option<String>,
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
    /// One self-contained page for a browser.
    Html,
}

/// Runs the command.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let options = Options {
        defaults_map: (arguments.default_priorities_configmap_namespace.as_ref())
            .zip(arguments.default_priorities_configmap_name.as_ref())
            .map(|(namespace, name)| ObjectKey::new(namespace, name)),
        node_pool: arguments.pool.pool(),
        ..arguments.choices.options()
    };
    let reading = Progress::start("reading".to_owned());
    let items = read_paths(&arguments.paths)?;
    drop(reading);
    let placing = Progress::start(format!("placing {} objects", items.len()));
    let (scenarios, objects): (Vec<Item>, Vec<Item>) =
        items.into_iter().partition(|item| scenario::is_scenario(&item.value));
    let mut code = YES;
    let mut runs: Vec<(String, Cluster)> = Vec::new();
    let alone = !scenarios.is_empty() && objects.is_empty();
    for item in &scenarios {
        let run = scenario::run(item, &options)?;
        if let Some(unmet) = run.unmet {
            complain(&format!("{}: {unmet}", item.place.file));
            code = code.max(if arguments.strict { NO } else { YES });
        }
        runs.push((item.place.file.clone(), run.cluster));
    }
    if !alone {
        let mut cluster = Cluster::new(options);
        cluster.apply(objects);
        cluster.settle();
        runs.push((String::new(), cluster));
    }
    drop(placing);
    for fault in runs.iter().flat_map(|(_, cluster)| &cluster.faults) {
        complain(&format!("berth: a bug: the checker refuses an answer: {fault}"));
        code = NO;
    }
    let results: Vec<SimulationResult> = runs.iter().map(|(_, cluster)| SimulationResult::of(cluster)).collect();
    let clean = alone || results.last().is_none_or(|result| result.all_placed() && result.skipped.is_empty());
    print(arguments, &runs, &results, out)?;
    Ok(if arguments.strict && !clean { NO } else { code })
}

fn print(
    arguments: &Arguments,
    runs: &[(String, Cluster)],
    results: &[SimulationResult],
    out: &mut dyn Write,
) -> Result<()> {
    if arguments.output == Output::Html {
        let documents: Vec<serde_json::Value> = runs.iter().map(|(heading, cluster)| view::document_of(cluster, heading)).collect();
        out.write_all(page::html(&documents).as_bytes())?;
        return Ok(());
    }
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colour = io::stdout().is_terminal() && !plain;
    for result in results {
        match arguments.output {
            Output::Json => write_json(out, &json::result(result, arguments.stats))?,
            Output::Yaml => {
                let text = serde_saphyr::to_string(&json::result(result, arguments.stats))?;
                write!(out, "{}{}", if results.len() > 1 { "---\n" } else { "" }, text)?;
            }
            Output::Table | Output::Html => out.write_all(table::result(result, colour).as_bytes())?,
        }
    }
    Ok(())
}
