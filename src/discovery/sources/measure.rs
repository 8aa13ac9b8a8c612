//! Measurements of links: output of nccl-tests, of iperf3, or a plain list. They say nothing of where hosts are; joined with a
//! fabric they say which of its parts are slow.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::error::DiscoveryError;
use crate::fabric::Fabric;
use crate::weights::Measurement;

/// Reads what nccl-tests print, runs one after the other. The bus bandwidth of the largest size counts; where there are no
/// rows, the average.
///
/// # Errors
///
/// No run in it that ended.
pub fn nccl(text: &str) -> Result<Fabric, DiscoveryError> {
    let mut fabric = Fabric::default();
    let (mut hosts, mut ranks, mut twice) = (BTreeSet::new(), BTreeSet::new(), false);
    let mut largest: Option<(u64, u64)> = None;
    let mut runs = 0;
    for (at, line) in text.lines().enumerate() {
        if let Some((rank, host)) = rank_of(line) {
            twice |= !ranks.insert(rank);
            hosts.insert(host.to_owned());
        } else if let Some((size, bandwidth)) = row(line) {
            if largest.is_none_or(|(before, _)| size >= before) {
                largest = Some((size, bandwidth));
            }
        } else if let Some((_, average)) = line.split_once("Avg bus bandwidth").and_then(|(_, rest)| rest.split_once(':')) {
            runs += 1;
            let place = format!("line {}", at + 1);
            let average = average.split_whitespace().next().and_then(thousandths);
            let figure = largest.take().map(|(_, bandwidth)| bandwidth).or(average);
            let is_one = !std::mem::take(&mut twice);
            let hosts = std::mem::take(&mut hosts);
            ranks.clear();
            match figure.filter(|figure| *figure > 0) {
                _ if hosts.is_empty() => fabric.find("NoHosts", &place, "a run whose devices are not listed: the lines with Rank are missing"),
                Some(value) if is_one => fabric.measured.push(Measurement { source: "nccl-tests", place, ends: hosts.into_iter().collect(), value }),
                Some(_) => fabric.find("NotOneRun", &place, "a rank is listed twice: these are several runs at once, each on its own (built without MPI?)"),
                None => fabric.find("NoFigure", &place, "a run without a bandwidth above 0"),
            }
        }
    }
    if runs == 0 {
        return Err(DiscoveryError::new("nccl-tests", "input", "no run that ended in it: the line with \"Avg bus bandwidth\" is missing"));
    }
    Ok(fabric)
}

/// `#  Rank  0 Group  0 Pid 12345 on node1 device 0 [0x07] NVIDIA ...`, in front of which launchers write what they like.
fn rank_of(line: &str) -> Option<(u64, &str)> {
    let (_, rest) = line.split_once("Rank ")?;
    let rank = rest.split_whitespace().next()?.parse().ok()?;
    let (_, rest) = rest.split_once(" Pid ")?;
    let (_, rest) = rest.split_once(" on ")?;
    let mut words = rest.split_whitespace();
    let host = words.next()?;
    (words.next()? == "device").then_some((rank, host))
}

/// A row: size, and the bus bandwidth out of place. From the right, since older versions have one column less.
fn row(line: &str) -> Option<(u64, u64)> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    if words.first().is_some_and(|word| word.ends_with(':')) {
        words.remove(0);
    }
    if !(12..=13).contains(&words.len()) || words[1].parse::<u64>().is_err() {
        return None;
    }
    Some((words[0].parse().ok()?, thousandths(words[words.len() - 6])?))
}

/// Reads what `iperf3 --json` prints, documents one after the other or in a list. The client is called by its own name, the
/// server as it was asked for.
///
/// # Errors
///
/// Not JSON, or no result of iperf3 in it.
pub fn iperf(text: &str) -> Result<Fabric, DiscoveryError> {
    let mut fabric = Fabric::default();
    let mut any = false;
    for (at, document) in serde_json::Deserializer::from_str(text).into_iter::<Value>().enumerate() {
        let document = document.map_err(|error| DiscoveryError::new("iperf3", format!("document {}", at + 1), format!("not JSON: {error}")))?;
        let results = document.as_array().map_or_else(|| vec![&document], |list| list.iter().collect());
        for (n, result) in results.into_iter().enumerate() {
            any = true;
            one_iperf(result, format!("result {}", at + n + 1), &mut fabric);
        }
    }
    if any { Ok(fabric) } else { Err(DiscoveryError::new("iperf3", "input", "empty: there is no result in it")) }
}

fn one_iperf(result: &Value, place: String, fabric: &mut Fabric) {
    let text = |at: &str| result.pointer(at).and_then(Value::as_str);
    let client = text("/start/system_info").and_then(|info| info.split_whitespace().nth(1)).or_else(|| text("/start/connected/0/local_host"));
    let server = text("/start/connecting_to/host").or_else(|| text("/start/connected/0/remote_host"));
    let rate = ["/end/sum_received/bits_per_second", "/end/sum/bits_per_second"].iter().find_map(|at| result.pointer(at));
    // Thousandths of Mbit/s: the units do not matter, as long as one source uses one.
    let rate = rate.filter(|rate| rate.is_number()).and_then(|rate| thousandths(&rate.to_string())).map(|rate| rate / 1_000_000);
    match (client, server, rate.filter(|rate| *rate > 0)) {
        (Some(client), Some(server), Some(value)) => {
            fabric.measured.push(Measurement { source: "iperf3", place, ends: vec![client.to_owned(), server.to_owned()], value });
        }
        _ => fabric.find("NoFigure", &place, text("/error").unwrap_or("no client, server or rate in it").to_owned()),
    }
}

/// Reads a list: `host host figure` for a pair, `name figure` for a host or a domain; parted by commas or spaces, all in one
/// unit. `#` begins a comment.
///
/// # Errors
///
/// A line that is neither.
pub fn list(text: &str) -> Result<Fabric, DiscoveryError> {
    let mut fabric = Fabric::default();
    let mut is_first = true;
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty()).collect();
        let Some((figure, ends)) = words.split_last() else { continue };
        let is_head = std::mem::take(&mut is_first) && thousandths(figure).is_none();
        if is_head {
            continue;
        }
        let place = format!("line {}", at + 1);
        match thousandths(figure) {
            Some(value) if (1..=2).contains(&ends.len()) => {
                fabric.measured.push(Measurement { source: "links", place, ends: ends.iter().map(|end| (*end).to_owned()).collect(), value });
            }
            _ => return Err(DiscoveryError::new("links", place, "reads `host host figure` or `name figure`, with a number for the figure")),
        }
    }
    if fabric.measured.is_empty() {
        return Err(DiscoveryError::new("links", "input", "empty: there is no measurement in it"));
    }
    Ok(fabric)
}

/// A decimal number in thousandths, rounded down: `38.2`, `9.41e9`. `None` for anything else, negative or out of reach.
pub(crate) fn thousandths(text: &str) -> Option<u64> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok().filter(|exponent| (-30..=30).contains(exponent))?),
        None => (text, 0),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && part.is_empty()) || !is_digits(whole) || !is_digits(part) || text.len() > 64 {
        return None;
    }
    // The point moves three places and as many as the exponent says.
    let digits = format!("{whole}{part}");
    let places = i64::try_from(whole.len()).ok()? + i64::from(exponent) + 3;
    let places = usize::try_from(places.max(0)).ok()?;
    let kept: String = digits.chars().chain(std::iter::repeat('0')).take(places).collect();
    let kept = kept.trim_start_matches('0');
    if kept.is_empty() { Some(0) } else { kept.parse().ok() }
}
