//! Slurm's short form of lists of hosts: `n[01-03,7],login`.

use std::collections::{BTreeMap, BTreeSet};

/// Most hosts that one list may name; a slip such as `n[0-9999999999]` must not fill the memory.
pub const MOST: usize = 500_000;

/// Reads a list.
///
/// # Errors
///
/// Brackets or ranges that can't be read, or more than [`MOST`] hosts; in words.
pub fn expand(text: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for part in split(text)? {
        expand_part(&part, &mut hosts)?;
    }
    Ok(hosts)
}

/// Parts between the commas that stand outside of brackets.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut parts = vec![String::new()];
    let mut inside = false;
    for c in text.chars() {
        match c {
            '[' if inside => return Err(format!("{text:?}: a bracket inside brackets")),
            ']' if !inside => return Err(format!("{text:?}: a bracket is closed that was not opened")),
            '[' => inside = true,
            ']' => inside = false,
            ',' if !inside => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    if inside {
        return Err(format!("{text:?}: a bracket is not closed"));
    }
    Ok(parts.into_iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect())
}

fn expand_part(part: &str, hosts: &mut Vec<String>) -> Result<(), String> {
    let Some((prefix, rest)) = part.split_once('[') else {
        hosts.push(part.to_owned());
        return if hosts.len() > MOST { Err(too_many()) } else { Ok(()) };
    };
    let (ranges, suffix) = rest.split_once(']').ok_or_else(|| format!("{part:?}: a bracket is not closed"))?;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| format!("{part:?}: {text:?} is no number"));
        let (from, to) = (number(first)?, number(last)?);
        if to < from {
            return Err(format!("{part:?}: the range {range} runs backwards"));
        }
        if to - from >= MOST as u64 {
            return Err(too_many());
        }
        for n in from..=to {
            expand_part(&format!("{prefix}{n:0width$}{suffix}", width = first.trim().len()), hosts)?;
        }
    }
    Ok(())
}

fn too_many() -> String {
    format!("more than {MOST} hosts in one list")
}

/// The short form; names that differ only in their last number share brackets. Numbers padded to different widths are kept
/// apart, so that expanding gives the same names.
#[must_use]
pub fn compact<'a>(hosts: impl IntoIterator<Item = &'a str>) -> String {
    let mut groups: BTreeMap<(&str, usize), BTreeSet<u64>> = BTreeMap::new();
    let mut plain = BTreeSet::new();
    for host in hosts {
        let digits = host.len() - host.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (prefix, number) = host.split_at(host.len() - digits);
        // A number without leading zeros is of no width; with them, of its own.
        let width = if number.starts_with('0') && digits > 1 { digits } else { 0 };
        match number.parse() {
            Ok(n) if digits <= 18 => _ = groups.entry((prefix, width)).or_default().insert(n),
            _ => _ = plain.insert(host.to_owned()),
        }
    }
    merge_widths(&mut groups);
    let mut parts: Vec<String> = groups.into_iter().map(|((prefix, width), numbers)| bracket(prefix, width, &numbers)).collect();
    parts.extend(plain);
    parts.sort();
    parts.join(",")
}

/// Numbers that fill their width belong to those that are padded to it: 08, 09, 10.
fn merge_widths(groups: &mut BTreeMap<(&str, usize), BTreeSet<u64>>) {
    let padded: Vec<(&str, usize)> = groups.keys().filter(|(_, width)| *width > 0).copied().collect();
    for (prefix, width) in padded {
        let fills = |n: &u64| n.to_string().len() == width;
        let Some(free) = groups.get_mut(&(prefix, 0)) else { continue };
        let full: Vec<u64> = free.iter().filter(|n| fills(n)).copied().collect();
        full.iter().for_each(|n| _ = free.remove(n));
        if free.is_empty() {
            groups.remove(&(prefix, 0));
        }
        if let Some(numbers) = groups.get_mut(&(prefix, width)) {
            numbers.extend(full);
        }
    }
}

fn bracket(prefix: &str, width: usize, numbers: &BTreeSet<u64>) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for n in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *n => *last = *n,
            _ => ranges.push((*n, *n)),
        }
    }
    let show = |(a, b): &(u64, u64)| if a == b { format!("{a:0width$}") } else { format!("{a:0width$}-{b:0width$}") };
    match ranges.as_slice() {
        [(a, b)] if a == b => format!("{prefix}{a:0width$}"),
        _ => format!("{prefix}[{}]", ranges.iter().map(show).collect::<Vec<_>>().join(",")),
    }
}
