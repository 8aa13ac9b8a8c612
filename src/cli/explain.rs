//! `berth explain`: why something waits, what would help, and what a change would do.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use berth_engine::outcome::GangReport;
use berth_engine::remedy::{self, Change};
use clap::builder::FalseyValueParser;
use clap::Args;
use serde_json::Value;

use super::ask::{Remote, plain};
use super::render::explanation::{self, Explained, Explanation};
use super::render::ranks;
use super::source::{Live, settled};
use super::{Choices, Format, NO, YES};
use crate::moment::{is_meant, waits};
use crate::simulate::cluster::Cluster;

/// Arguments of `berth explain`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What is explained: Job/trainer, PodGroup/pg-1, Pod/trainer-0, any kind that has pods; left out with --all.
    /// Then the files, as `simulate` reads them: manifests, dumps or snapshots, folders, or - for standard input; without any the
    /// cluster is asked, where nodes, pods and what owns pods must be listable.
    #[arg(required_unless_present = "all", value_name = "KIND/NAME PATH")]
    words: Vec<String>,
    /// A file to read, besides those named after KIND/NAME.
    #[arg(long, value_name = "FILE", env = "BERTH_SNAPSHOT")]
    snapshot: Vec<PathBuf>,
    /// Explain everything that waits, in every namespace; every word is a file.
    #[arg(short = 'A', long, env = "BERTH_ALL", value_parser = FalseyValueParser::new())]
    all: bool,
    /// Its namespace.
    #[arg(short, long, default_value = "default", env = "BERTH_NAMESPACE")]
    namespace: String,
    /// Say what a change would do, to this and to everybody: add=2:NODE (nodes like NODE), end=Job/x, relax=Job/x (drop its
    /// required levels), drain=r7 (a node, a domain, or label=value), uncordon=NODE, min=Job/x:3, queue=Job/x:NAME. May be
    /// given again: all changes are made together.
    #[arg(long, value_name = "CHANGE", env = "BERTH_WHAT_IF", value_delimiter = ',')]
    what_if: Vec<String>,
    /// Changes that are tried for each gang, at the most.
    #[arg(long, value_name = "COUNT", env = "BERTH_TRIALS", default_value_t = remedy::DEFAULT_TRIALS)]
    trials: u32,
    /// How to print it.
    #[arg(short, long, value_enum, default_value = "table", env = "BERTH_OUTPUT")]
    output: Format,
    #[command(flatten)]
    choices: Choices,
    #[command(flatten)]
    live: Live,
    #[command(flatten)]
    remote: Remote,
}

/// How an object is named.
const FORM: &str = "what to explain is written KIND/NAME, such as Job/trainer; -A explains everything";

/// Runs the command: 0 when nothing of what is explained waits, 1 when something does.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    if arguments.remote.scheduler.is_some() {
        return ask(arguments, out);
    }
    let (object, paths) = if arguments.all { (None, &arguments.words[..]) } else { (arguments.words.first(), arguments.words.get(1..).unwrap_or_default()) };
    let cluster = cluster(arguments, paths)?;
    let gangs = cluster.world().gang_reports();
    let meant: Vec<&GangReport> = match object {
        None => gangs.iter().filter(|gang| waits(gang)).collect(),
        Some(object) => found(&cluster, &gangs, &arguments.namespace, object)?,
    };
    let moment = cluster.moment();
    let explained: Vec<Explained> = meant.iter().map(|gang| Explained::of(&moment, gang, arguments.trials)).collect();
    let changes: Vec<Change> = arguments
        .what_if
        .iter()
        .map(|text| change(&cluster, &gangs, &arguments.namespace, text))
        .collect::<Result<_>>()?;
    let effects = remedy::effects(cluster.world(), &cluster.policy(), cluster.now(), &changes).context("--what-if")?;
    let what_if = (!changes.is_empty()).then(|| (arguments.what_if.clone(), effects));
    let explanation = Explanation { explained, what_if };
    arguments.output.print(out, || explanation::table(&explanation), || explanation::json(&explanation))?;
    Ok(if meant.iter().any(|gang| waits(gang)) { NO } else { YES })
}

/// The same answer from a running scheduler, as far as the caller may see it.
fn ask(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let [object] = arguments.words.as_slice() else {
        bail!("--scheduler (BERTH_SCHEDULER) is asked about one KIND/NAME; no files are read, and --all has no place")
    };
    if arguments.all || !arguments.snapshot.is_empty() || !arguments.what_if.is_empty() {
        bail!("--scheduler (BERTH_SCHEDULER) goes with neither --all nor --snapshot nor --what-if");
    }
    let (kind, name) = object.split_once('/').context(FORM)?;
    let (namespace, kind, name) = (plain(&arguments.namespace)?, plain(kind)?, plain(name)?);
    let with_table = if arguments.output == Format::Table { "&output=table" } else { "" };
    let path = format!("/v1/explain/{namespace}/{kind}/{name}?trials={}{with_table}", arguments.trials);
    let answer = arguments.remote.get(&arguments.live.connection, &path)?;
    let table = || answer["table"].as_str().unwrap_or_default().to_owned();
    arguments.output.print(out, table, || answer.clone())?;
    let waits = |gang: &Value| {
        let count = |field: &str| gang[field].as_u64().unwrap_or(0);
        gang["state"] != "Done" && (gang["reasons"].as_array().is_none_or(|reasons| !reasons.is_empty()) || count("bound") < count("pods"))
    };
    Ok(if answer["podGroups"].as_array().context("the scheduler's answer has no podGroups")?.iter().any(waits) { NO } else { YES })
}

fn cluster(arguments: &Arguments, paths: &[String]) -> Result<Cluster> {
    let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).chain(arguments.snapshot.iter().cloned()).collect();
    settled(&paths, &arguments.live, arguments.choices.options())
}

/// The gangs of an object, or why there are none.
fn found<'a>(cluster: &Cluster, gangs: &'a [GangReport], namespace: &str, object: &str) -> Result<Vec<&'a GangReport>> {
    let (kind, name) = object.split_once('/').context(FORM)?;
    let found: Vec<&GangReport> = gangs.iter().filter(|gang| is_meant(cluster.world(), gang, namespace, kind, name)).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    if let Some(skipped) = cluster.skipped.iter().find(|skipped| skipped.object.ends_with(&format!(" {name}"))) {
        bail!("{} could not be used: {} {}", skipped.object, skipped.field, skipped.message);
    }
    let known: Vec<String> = gangs.iter().map(ranks::title).collect();
    let known = if known.is_empty() { "there is no gang at all".to_owned() } else { format!("gangs: {}", known.join(", ")) };
    bail!("no gang of {kind}/{name} in namespace {namespace}; pods of another schedulerName have none; {known}")
}

/// Reads one change.
fn change(cluster: &Cluster, gangs: &[GangReport], namespace: &str, text: &str) -> Result<Change> {
    const FORMS: &str = "add=COUNT:NODE, end=KIND/NAME, relax=KIND/NAME, drain=DOMAIN, uncordon=DOMAIN, min=KIND/NAME:COUNT or queue=KIND/NAME:QUEUE";
    let wrong = || format!("--what-if {text}: allowed is {FORMS}");
    let (what, rest) = text.split_once('=').with_context(wrong)?;
    let gang = |object: &str| -> Result<String> {
        let found = found(cluster, gangs, namespace, object).with_context(wrong)?;
        found.first().map(|gang| gang.uid.clone()).with_context(wrong)
    };
    let nodes = || -> Result<Vec<String>> {
        let meant = cluster.world().nodes_meant(rest);
        if meant.is_empty() {
            bail!("--what-if {text}: no node is called {rest}, and no node has it as the value of a topology level");
        }
        Ok(meant)
    };
    Ok(match what {
        "add" => {
            let (count, node) = rest.split_once(':').unwrap_or(("1", rest));
            let count: u32 = count.parse().ok().filter(|count| (1..=10_000).contains(count)).with_context(wrong)?;
            Change::AddNodes(count, node.to_owned())
        }
        "end" => Change::End(gang(rest)?),
        "relax" => Change::DropConstraint(gang(rest)?),
        "drain" => Change::Drain(nodes()?),
        "uncordon" => Change::Uncordon(nodes()?),
        "min" => {
            let (object, count) = rest.rsplit_once(':').with_context(wrong)?;
            let count = count.parse().ok().filter(|count| *count > 0).with_context(wrong)?;
            Change::Minimum(gang(object)?, count)
        }
        "queue" => {
            let (object, queue) = rest.rsplit_once(':').with_context(wrong)?;
            Change::Queue(gang(object)?, queue.to_owned())
        }
        _ => bail!(wrong()),
    })
}
