//! `berth check`: lint of manifests, dumps and clusters; and what changes for a user of another scheduler.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use berth_api::keys;
use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};

use super::render::findings::{self, Checked};
use super::render::from_kai::{self, Report};
use super::source::{Live, items_of};
use super::{Choices, Format, NO, PoolArguments, YES};
use crate::lint::kai::leftovers::{self, Known};
use crate::lint::kai::{self, settings};
use crate::lint::{self, Finding, Severity, Shown};
use crate::simulate::forecast::forecast;
use crate::simulate::input::{Item, Place, read_paths};
use crate::simulate::objects::{is_cluster_scoped, name_of, text};
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
    /// Say what would change for a user of this scheduler: what waits and would start, what behaves otherwise, what is not
    /// supported, which flags do what its settings do, and what it would leave behind.
    #[arg(long, value_name = "SCHEDULER", value_enum, env = "BERTH_FROM")]
    from: Option<From>,
    /// Tell what concerns this namespace only.
    #[arg(short, long, env = "BERTH_NAMESPACE")]
    namespace: Option<String>,
    /// How to print it.
    #[arg(short, long, value_enum, default_value = "table", env = "BERTH_OUTPUT")]
    output: Format,
    /// Exit with 1 for warnings, too.
    #[arg(long, env = "BERTH_STRICT", value_parser = FalseyValueParser::new())]
    strict: bool,
    #[command(flatten)]
    choices: Choices,
    #[command(flatten)]
    pool: PoolArguments,
    #[command(flatten)]
    cluster: Live,
}

/// From where somebody comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum From {
    /// KAI Scheduler.
    Kai,
}

/// What is looked at.
struct Input {
    items: Vec<Item>,
    shown: Shown,
    known: Known,
    missing: Vec<String>,
}

/// Runs the command: 0 without errors, 1 with one.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let input = if arguments.live { of_cluster(arguments)? } else { of_files(arguments)? };
    let mut options = Options { node_pool: arguments.pool.pool(), ..arguments.choices.options() };
    let settings = arguments.from.map(|From::Kai| settings::settings(&input.items)).unwrap_or_default();
    settings::adopt(&settings, &mut options, keys::SCHEDULER_NAME);
    let mut findings = lint::check(&input.items, input.shown, &options);
    if arguments.from.is_some() {
        findings = with_differences(findings, &input, &options);
    }
    let is_told = |namespace: &str| arguments.namespace.as_deref().is_none_or(|own| own == namespace);
    findings.retain(|finding| arguments.namespace.as_ref().is_none_or(|namespace| is_in(finding, namespace)));
    if arguments.live {
        // A cluster has no files; its objects go by their names.
        findings.iter_mut().for_each(|finding| finding.place = Place::default());
        findings.sort();
    }
    let checked = Checked { objects: input.items.len(), findings, missing: input.missing };
    if arguments.from.is_some() {
        let mut forecast = forecast(&input.items, &options);
        forecast.waiting.retain(|waiting| is_told(&waiting.gang.key.namespace));
        forecast.running.retain(|running| is_told(&running.gang.key.namespace));
        let requests = leftovers::open_requests(&input.items);
        let report = Report { checked: &checked, forecast, settings, requests, scheduler: options.scheduler_name };
        arguments.output.print(out, || from_kai::table(&report), || from_kai::document(&report))?;
    } else {
        arguments.output.print(out, || findings::table(&checked), || findings::document(&checked))?;
    }
    let is_bad = |finding: &Finding| finding.severity == Severity::Error || (arguments.strict && finding.severity == Severity::Warning);
    Ok(if checked.findings.iter().any(is_bad) { NO } else { YES })
}

/// With what differs from KAI Scheduler, and what that leaves behind.
fn with_differences(mut findings: Vec<Finding>, input: &Input, options: &Options) -> Vec<Finding> {
    let differences = kai::differences(&input.items, options);
    // What is not supported is told by object, whether it runs or waits; not again for the gang that waits.
    let last = |object: &str| object.rsplit([' ', '/']).next().unwrap_or_default().to_owned();
    let is_unsupported = |finding: &&Finding| finding.code == "UnsupportedFeature";
    let mut named: BTreeSet<(String, String)> = BTreeSet::new();
    let objects: BTreeSet<&str> = differences.iter().filter(is_unsupported).map(|finding| finding.object.as_str()).collect();
    for Item { value, .. } in input.items.iter().filter(|item| objects.contains(name_of(&item.value).as_str())) {
        // A gang goes by the name of its owner, which may not be among the objects.
        for name in ["/metadata/name", "/metadata/ownerReferences/0/name"] {
            named.insert((text(value, "/metadata/namespace").to_owned(), text(value, name).to_owned()));
        }
    }
    findings.retain(|finding| finding.code != "UnsupportedFeature" || !named.contains(&(finding.namespace.clone(), last(&finding.object))));
    findings.extend(differences);
    findings.extend(leftovers::webhooks(&input.items, input.known));
    findings.extend(leftovers::reservations(&input.items));
    findings.extend(leftovers::running(&input.items, &options.scheduler_name));
    findings.sort();
    findings
}

fn of_files(arguments: &Arguments) -> Result<Input> {
    let paths: Vec<PathBuf> = arguments.paths.iter().chain(&arguments.snapshot).cloned().collect();
    let items: Vec<Item> = read_paths(&paths)?.into_iter().filter(|item| !scenario::is_scenario(&item.value)).collect();
    Ok(Input { shown: Shown::by(&items), known: Known::by(&items), items, missing: Vec::new() })
}

/// Everything there is, as far as it may be read.
fn of_cluster(arguments: &Arguments) -> Result<Input> {
    let keep = |object| stripped_but(&object, lint::is_looked_at);
    let reading = if arguments.from.is_some() { arguments.cluster.reading_of_kai(keep)? } else { arguments.cluster.reading(keep)? };
    let may_list = |resource: &str| reading.missing.iter().all(|missing| missing.resource != resource);
    let shown = Shown { queues: may_list("queues"), topologies: may_list("topologies") };
    let known = Known { services: may_list("services"), endpoints: may_list("endpointslices") };
    let missing = reading.missing.iter().map(ToString::to_string).collect();
    Ok(Input { items: items_of("the cluster", reading.objects), shown, known, missing })
}

fn is_in(finding: &Finding, namespace: &str) -> bool {
    let kind = finding.object.split(' ').next().and_then(|kind| kind.rsplit('/').next()).unwrap_or_default();
    match finding.namespace.as_str() {
        "" => namespace == "default" && !is_cluster_scoped(kind),
        own => own == namespace,
    }
}
