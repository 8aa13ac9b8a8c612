//! `berth topology propose`: a Topology from node labels, with the evidence as comments above it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use berth_discovery::names::listed;
use berth_discovery::out::topology;
use berth_discovery::propose::{Options, Outside, Proposal, chosen, propose};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::super::connect::Connection;
use super::super::{NO, YES, write_json};

/// Arguments of `berth topology propose`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Nodes: manifests or dumps, - for standard input; without any, those of the cluster.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    connection: Connection,
    /// Name of the Topology.
    #[arg(long, default_value = "cluster-topology", env = "BERTH_TOPOLOGY_NAME")]
    name: String,
    /// Look at nodes with this label only; may be given again.
    #[arg(short = 'l', long, value_name = "KEY=VALUE", env = "BERTH_SELECTOR", value_delimiter = ',', value_parser = pair)]
    selector: Vec<(String, String)>,
    /// Look at nodes without accelerators too.
    #[arg(long, env = "BERTH_ALL_NODES", value_parser = clap::builder::FalseyValueParser::new())]
    all_nodes: bool,
    /// Which proposal to print, when nodes differ in their labels; the first covers most.
    #[arg(long, value_name = "N", default_value_t = 1, env = "BERTH_POOL")]
    pool: usize,
    /// Whose Topology.
    #[arg(long = "for", value_enum, default_value = "kai", env = "BERTH_TOPOLOGY_FOR")]
    whose: Whose,
    /// How to print it.
    #[arg(short, long, value_enum, default_value = "yaml", env = "BERTH_OUTPUT")]
    output: Output,
}

/// Whose Topology object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Whose {
    /// KAI Scheduler's and Berth's.
    Kai,
    /// Kueue's.
    Kueue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// The Topology, with the evidence in comments.
    Yaml,
    /// Every proposal with its evidence.
    Json,
}

/// `KEY=VALUE`.
pub(in super::super) fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("allowed is KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Runs the command: 0 with a proposal, 1 when the labels support none.
pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let nodes = super::nodes(&arguments.paths, &arguments.connection)?;
    let selector: BTreeMap<String, String> = arguments.selector.iter().cloned().collect();
    let options = Options { selector, all_nodes: arguments.all_nodes };
    let looked_at = chosen(&nodes, &options).len();
    if looked_at == 0 {
        bail!("none of the {} nodes has the labels of --selector", nodes.len());
    }
    let proposals = propose(&nodes, &options);
    if arguments.output == Output::Json {
        let list: Vec<Value> = proposals.iter().map(|proposal| as_json(arguments, proposal)).collect();
        write_json(out, &json!({ "nodes": looked_at, "proposals": list }))?;
        return Ok(if proposals.is_empty() { NO } else { YES });
    }
    if proposals.is_empty() {
        writeln!(out, "# No topology: none of the {looked_at} nodes bears a network label that tells nodes apart.")?;
        writeln!(out, "# `berth topology discover` reads the fabric itself, and can label the nodes.")?;
        return Ok(NO);
    }
    let Some(proposal) = arguments.pool.checked_sub(1).and_then(|at| proposals.get(at)) else {
        bail!("--pool {}: there are {} proposals, numbered from 1", arguments.pool, proposals.len());
    };
    out.write_all(evidence(proposal).as_bytes())?;
    for (at, other) in proposals.iter().enumerate().filter(|(at, _)| at + 1 != arguments.pool) {
        let keys: Vec<&str> = other.levels.iter().map(|level| level.key.as_str()).collect();
        writeln!(out, "# --pool {}: {} nodes, levels {}", at + 1, other.nodes, keys.join(" > "))?;
    }
    super::write_yaml(out, &[object(arguments, proposal)])?;
    Ok(YES)
}

fn object(arguments: &Arguments, proposal: &Proposal) -> Value {
    let levels: Vec<&str> = proposal.levels.iter().map(|level| level.key.as_str()).collect();
    match arguments.whose {
        Whose::Kai => topology::kai(&arguments.name, &levels),
        Whose::Kueue => topology::kueue(&arguments.name, &levels),
    }
}

fn as_json(arguments: &Arguments, proposal: &Proposal) -> Value {
    let levels = proposal.levels.iter();
    let levels: Vec<Value> =
        levels.map(|level| json!({ "nodeLabel": level.key, "domains": level.domains, "smallest": level.smallest, "largest": level.largest })).collect();
    let dropped: Vec<Value> = proposal.dropped.iter().map(|dropped| json!({ "nodeLabel": dropped.key, "why": dropped.why })).collect();
    let outside = proposal.outside.iter().map(|outside| {
        let empty: BTreeMap<&String, &String> = outside.empty.iter().map(|(node, value)| (node, value)).collect();
        json!({ "nodeLabel": outside.key, "without": outside.without, "saysNothing": empty })
    });
    json!({
        "profile": proposal.profile, "nodes": proposal.nodes, "levels": levels, "dropped": dropped,
        "outside": outside.collect::<Vec<_>>(), "warnings": proposal.warnings, "topology": object(arguments, proposal),
    })
}

/// The evidence as comments: one sentence first.
pub(super) fn evidence(proposal: &Proposal) -> String {
    let n = proposal.levels.len();
    let mut lines = vec![format!("{n} levels from the labels of {}: {} of {} nodes are in it.", proposal.profile, proposal.nodes, proposal.of), String::new()];
    let width = proposal.levels.iter().map(|level| level.key.len()).max().unwrap_or(0);
    lines.push(format!("{:width$}  DOMAINS  NODES IN ONE", "LEVEL"));
    for level in &proposal.levels {
        let size = if level.smallest == level.largest { level.largest.to_string() } else { format!("{} to {}", level.smallest, level.largest) };
        lines.push(format!("{:width$}  {:>7}  {:>12}", level.key, level.domains, size));
    }
    if !proposal.outside.is_empty() {
        lines.extend([String::new(), "Outside, since a node that lacks a level is in no domain:".into()]);
        lines.extend(proposal.outside.iter().map(left_out));
    }
    if !proposal.dropped.is_empty() {
        lines.extend([String::new(), "Left out:".into()]);
        lines.extend(proposal.dropped.iter().map(|dropped| format!("  {}: {}", dropped.key, dropped.why)));
    }
    if !proposal.warnings.is_empty() {
        lines.extend([String::new(), "Look at this first:".into()]);
        lines.extend(proposal.warnings.iter().map(|warning| format!("  {warning}")));
    }
    lines.iter().map(|line| if line.is_empty() { "#\n".to_owned() } else { format!("# {line}\n") }).collect()
}

fn left_out(outside: &Outside) -> String {
    let mut parts = Vec::new();
    if !outside.without.is_empty() {
        parts.push(format!("{} without it ({})", outside.without.len(), listed(outside.without.iter().map(String::as_str), 3)));
    }
    if let Some((_, value)) = outside.empty.first() {
        let names = listed(outside.empty.iter().map(|(node, _)| node.as_str()), 3);
        parts.push(format!("{} where it says nothing, such as {value:?} ({names})", outside.empty.len()));
    }
    format!("  {}: {}", outside.key, parts.join("; "))
}
