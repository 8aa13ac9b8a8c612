//! `berth check`: lint of manifests, dumps and clusters.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::builder::FalseyValueParser;
use clap::Args;

use super::render::findings::{self, Checked};
use super::source::{Live, items_of};
use super::{Format, NO, YES};
use crate::lint::{self, Finding, Severity, Shown};
use crate::simulate::input::{Item, Place, read_paths};
use crate::simulate::objects::is_cluster_scoped;
use crate::simulate::{Options, scenario};
use crate::snapshot::stripped_but;

/// Arguments of `berth check`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Manifests or dumps: files, folders, or - for standard input. What they do not show of a cluster is not judged.
    #[arg(required_unless_present_any = ["live", "snapshot"], value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// A file to read, besides the others.
    #[arg(long, value_name = "FILE", env = "BERTH_SNAPSHOT")]
    snapshot: Vec<PathBuf>,
    /// Look at a cluster in place of files: its nodes, queues and topologies, and what owns pods.
    #[arg(long, conflicts_with_all = ["paths", "snapshot"], env = "BERTH_LIVE", value_parser = FalseyValueParser::new())]
    live: bool,
    /// Tell what concerns this namespace only.
    #[arg(short, long, env = "BERTH_NAMESPACE")]
    namespace: Option<String>,
    /// How to print it.
    #[arg(short, long, value_enum, default_value = "table", env = "BERTH_OUTPUT")]
    output: Format,
    /// Exit with 1 for warnings, too.
    #[arg(long, env = "BERTH_STRICT", value_parser = FalseyValueParser::new())]
    strict: bool,
    /// The schedulerName that pods should have.
    #[arg(long, value_name = "NAME", default_value = "kai-scheduler", env = "BERTH_SCHEDULER_NAME")]
    scheduler_name: String,
    /// Topology of gangs that name none.
    #[arg(long, value_name = "NAME", env = "BERTH_DEFAULT_TOPOLOGY")]
    default_topology: Option<String>,
    #[command(flatten)]
    cluster: Live,
}

/// What is looked at.
struct Input {
    items: Vec<Item>,
    shown: Shown,
    missing: Vec<String>,
}

/// Runs the command: 0 without errors, 1 with one.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let options = Options {
        scheduler_name: arguments.scheduler_name.clone(),
        default_topology: arguments.default_topology.clone(),
        ..Options::standard()
    };
    let input = if arguments.live { of_cluster(&arguments.cluster)? } else { of_files(arguments)? };
    let mut findings = lint::check(&input.items, input.shown, &options);
    findings.retain(|finding| arguments.namespace.as_ref().is_none_or(|namespace| is_in(finding, namespace)));
    if arguments.live {
        // A cluster has no files; its objects go by their names.
        findings.iter_mut().for_each(|finding| finding.place = Place::default());
        findings.sort();
    }
    let checked = Checked { objects: input.items.len(), findings, missing: input.missing };
    arguments.output.print(out, || findings::table(&checked), || findings::document(&checked))?;
    let is_bad = |finding: &Finding| finding.severity == Severity::Error || arguments.strict;
    Ok(if checked.findings.iter().any(is_bad) { NO } else { YES })
}

fn of_files(arguments: &Arguments) -> Result<Input> {
    let paths: Vec<PathBuf> = arguments.paths.iter().chain(&arguments.snapshot).cloned().collect();
    let items: Vec<Item> = read_paths(&paths)?.into_iter().filter(|item| !scenario::is_scenario(&item.value)).collect();
    Ok(Input { shown: Shown::by(&items), items, missing: Vec::new() })
}

/// Everything there is, as far as it may be read.
fn of_cluster(live: &Live) -> Result<Input> {
    let reading = live.reading(|object| stripped_but(&object, lint::is_looked_at))?;
    let may_list = |resource: &str| reading.missing.iter().all(|missing| missing.resource != resource);
    let shown = Shown { queues: may_list("queues"), topologies: may_list("topologies") };
    let missing = reading.missing.iter().map(ToString::to_string).collect();
    Ok(Input { items: items_of("the cluster", reading.objects), shown, missing })
}

fn is_in(finding: &Finding, namespace: &str) -> bool {
    let kind = finding.object.split(' ').next().and_then(|kind| kind.rsplit('/').next()).unwrap_or_default();
    match finding.namespace.as_str() {
        "" => namespace == "default" && !is_cluster_scoped(kind),
        own => own == namespace,
    }
}
