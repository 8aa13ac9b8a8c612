//! Dumps of `ibnetdiscover`: records of switches and adapters with their ports.
//!
//! The format is that of the infiniband-diags man page, read leniently where versions differ (router records, chassis
//! headings, missing blank lines) and strictly where a link could be misread.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::Filter;
use super::switches::Links;
use crate::error::DiscoveryError;
use crate::fabric::Fabric;
use crate::names::is_own_name;

const SOURCE: &str = "ibnetdiscover";

/// One end of a link: `S-<guid>` or `H-<guid>`, and the port.
type End = (String, u32);

#[derive(Debug, Default)]
struct Dump {
    /// Descriptions by id.
    devices: BTreeMap<String, String>,
    links: BTreeSet<(End, End)>,
}

/// Reads a dump; several, one after the other, are one site.
///
/// # Errors
///
/// Not a dump: a port line that can't be read, or no switch at all.
pub fn read(text: &str, filter: &Filter) -> Result<Fabric, DiscoveryError> {
    let dump = parse(text)?;
    if !dump.devices.keys().any(|id| id.starts_with("S-")) {
        let what = if text.trim().is_empty() { "empty: there is nothing in it" } else { "no Switch record in it: this is not a dump of a fabric, or its beginning was cut off" };
        return Err(DiscoveryError::new(SOURCE, "input", what));
    }
    let mut notes = Fabric::default();
    let links = links(&dump, filter, &mut notes);
    let mut fabric = links.fabric();
    fabric.findings.extend(notes.findings);
    fabric.findings.sort();
    Ok(fabric)
}

/// The same fabric in as few bytes as this reader needs: names of devices, and every link once, without what the dump repeats on
/// both ends. For those who keep a dump where there is little room.
///
/// # Errors
///
/// Those of [`read`]: what can't be read is not worth keeping.
pub fn compacted(text: &str) -> Result<String, DiscoveryError> {
    read(text, &Filter::default())?;
    let dump = parse(text)?;
    let mut links: BTreeMap<&str, Vec<(u32, &End)>> = BTreeMap::new();
    for (a, b) in &dump.links {
        // Under the switch, unless only the other end has a record.
        let (own, peer) = if dump.devices.contains_key(&b.0) { (b, a) } else { (a, b) };
        links.entry(&own.0).or_default().push((own.1, peer));
    }
    let mut short = String::new();
    for (id, description) in &dump.devices {
        let kind = if id.starts_with("S-") { "Switch" } else if id.starts_with("H-") { "Ca" } else { "Rt" };
        let _ = writeln!(short, "{kind} 0 \"{id}\" # \"{description}\"");
        for (port, (peer, far)) in links.get(id.as_str()).into_iter().flatten() {
            let _ = writeln!(short, "[{port}] \"{peer}\"[{far}]");
        }
    }
    Ok(short)
}

fn parse(text: &str) -> Result<Dump, DiscoveryError> {
    let mut dump = Dump::default();
    let mut current: Option<String> = None;
    for (at, line) in text.lines().enumerate() {
        let error = |message: &str| DiscoveryError::new(SOURCE, format!("line {}", at + 1), message);
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with("vendid=") {
            current = None;
        } else if let Some(kind) = trimmed.split_whitespace().next().filter(|word| ["Switch", "Ca", "Rt"].contains(word)) {
            let mut quoted = quoted(trimmed);
            let id = quoted.next().ok_or_else(|| error("a record without an id in quotes"))?;
            let prefix = if kind == "Switch" { "S-" } else if kind == "Ca" { "H-" } else { "R-" };
            if !id.starts_with(prefix) {
                return Err(error(&format!("a {kind} record has an id that begins with {prefix}, not {id}")));
            }
            dump.devices.insert(id.to_owned(), quoted.next().unwrap_or_default().to_owned());
            current = Some(id.to_owned());
        } else if trimmed.starts_with('[') {
            let Some(own) = current.clone() else { return Err(error("a port that belongs to no record")) };
            let (port, peer) = port(trimmed).ok_or_else(|| error("a port line reads [1] \"S-…\"[2], with numbers for the ports"))?;
            // The description of the far end, for devices whose own record is missing.
            if !peer.0.starts_with("R-") {
                let (a, b) = ((own, port), peer);
                dump.links.insert(if a <= b { (a, b) } else { (b, a) });
            }
        }
    }
    Ok(dump)
}

/// Texts in double quotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

/// `[3](guid) "S-…"[4](guid) # …`: the own port, and the far end.
fn port(line: &str) -> Option<(u32, End)> {
    let (own, rest) = line.strip_prefix('[')?.split_once(']')?;
    let (_, rest) = rest.split_once('"')?;
    let (peer, rest) = rest.split_once('"')?;
    let (far, _) = rest.strip_prefix('[')?.split_once(']')?;
    let known = ["S-", "H-", "R-"].iter().any(|prefix| peer.starts_with(prefix));
    known.then_some((own.trim().parse().ok()?, (peer.to_owned(), far.trim().parse().ok()?)))
}

/// `MF0;leaf-1:MQM9701/U1` is leaf-1.
fn switch_name(description: &str) -> String {
    let name = description.split_once(';').map_or(description, |(_, name)| name);
    name.split(':').next().unwrap_or(name).trim().to_owned()
}

/// Who an adapter belongs to, by its description.
enum Owner<'a> {
    /// A host, and the adapter's name there.
    Host(&'a str, &'a str),
    /// The part of a switch that adds up numbers.
    Aggregation,
    /// The text of the factory, or anything else that names no host.
    Nobody,
}

fn owner(description: &str) -> Owner<'_> {
    if description.ends_with("Aggregation Node") {
        return Owner::Aggregation;
    }
    let words: Vec<&str> = description.split_whitespace().collect();
    let is_model = |word: &str| word.starts_with("MT") && word[2..].chars().next().is_some_and(|c| c.is_ascii_digit()) || word.starts_with("Mellanox");
    match words.as_slice() {
        [host, adapter] if !is_model(host) => Owner::Host(host, adapter),
        _ => Owner::Nobody,
    }
}

fn links(dump: &Dump, filter: &Filter, notes: &mut Fabric) -> Links {
    let mut links = Links::default();
    for (id, description) in dump.devices.iter().filter(|(id, _)| id.starts_with("S-")) {
        links.switches.insert(id.clone(), switch_name(description));
    }
    let mut unlisted = BTreeSet::new();
    let mut strangers: BTreeMap<&str, usize> = BTreeMap::new();
    let left_out = |links: &Links, id: &str| Filter::any(&filter.switches, links.switches.get(id).map_or(id, |name| name)) || Filter::any(&filter.switches, id);
    for ((a, _), (b, _)) in &dump.links {
        if let Some(id) = [a, b].into_iter().find(|id| !dump.devices.contains_key(*id)) {
            unlisted.insert(id.as_str());
        }
        match (a.starts_with("S-"), b.starts_with("S-")) {
            (true, true) if !left_out(&links, a) && !left_out(&links, b) => {
                *links.between.entry(a.clone()).or_default().entry(b.clone()).or_default() += 1;
                *links.between.entry(b.clone()).or_default().entry(a.clone()).or_default() += 1;
            }
            (false, true) if !left_out(&links, b) => adapter(dump, filter, a, b, &mut links, &mut strangers, notes),
            (true, false) if !left_out(&links, a) => adapter(dump, filter, b, a, &mut links, &mut strangers, notes),
            _ => {}
        }
    }
    for (host, n) in strangers {
        let what = if is_own_name(host) { "is a fabric manager by its name" } else { "is no name of its own" };
        notes.find("NotAHost", host, format!("{what}: {n} adapters left out"));
    }
    if let Some(first) = unlisted.first() {
        notes.find("Unlisted", first, format!("{} devices are linked and have no record of their own: the dump is not whole", unlisted.len()));
    }
    links
}

fn adapter<'a>(dump: &'a Dump, filter: &Filter, id: &str, switch: &str, links: &mut Links, strangers: &mut BTreeMap<&'a str, usize>, notes: &mut Fabric) {
    let Some(description) = dump.devices.get(id) else {
        links.leaves.insert(switch.to_owned());
        return;
    };
    match owner(description) {
        Owner::Aggregation => {}
        Owner::Host(_, adapter) if Filter::any(&filter.adapters, adapter) => {}
        Owner::Host(host, _) if Filter::any(&filter.hosts, host) => {
            links.leaves.insert(switch.to_owned());
        }
        Owner::Host(host, _) => {
            links.leaves.insert(switch.to_owned());
            if is_own_name(host) && !host.to_lowercase().contains("ufm") {
                *links.hosts.entry(host.to_owned()).or_default().entry(switch.to_owned()).or_default() += 1;
            } else {
                *strangers.entry(host).or_default() += 1;
            }
        }
        Owner::Nobody => {
            links.leaves.insert(switch.to_owned());
            let leaf = links.switches.get(switch).map_or(switch, String::as_str);
            notes.find("UnnamedAdapter", id, format!("on {leaf} names no host: \"{description}\""));
        }
    }
}
