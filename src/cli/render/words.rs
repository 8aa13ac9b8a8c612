//! What the table and the page have in common: words for states, names in short, the tree of a placement.

use std::collections::BTreeMap;
use std::fmt::Write;

use berth_engine::outcome::{Eviction, GangReport, GangState, QualityStatus};

use crate::explain;
use crate::simulate::objects::Skipped;
use crate::simulate::result::{PodResult, SimulationResult};

/// Widest line.
pub(super) const WIDTH: usize = 80;

/// Said when there is nothing to decide.
pub(super) fn nothing_to_place(result: &SimulationResult) -> Option<String> {
    if !result.pods.is_empty() || !result.gangs.is_empty() {
        return None;
    }
    Some(match result.foreign_pending {
        0 => "Nothing to place: no pod or workload in the input names this scheduler.".to_owned(),
        count => format!("Nothing to place: {count} pending pods name another scheduler; see --scheduler-name."),
    })
}

/// Pods by namespace and gang.
pub(super) fn members(result: &SimulationResult) -> BTreeMap<(&str, &str), Vec<&PodResult>> {
    let mut members: BTreeMap<(&str, &str), Vec<&PodResult>> = BTreeMap::new();
    for pod in &result.pods {
        members.entry((&pod.namespace, &pod.gang)).or_default().push(pod);
    }
    members
}

/// Gangs with something that waits.
pub(super) fn waiting(result: &SimulationResult) -> Vec<&GangReport> {
    result.gangs.iter().filter(|gang| !gang.reasons.is_empty() || gang.bound < gang.pods).collect()
}

/// True for several pods that do not wait for each other.
pub(super) fn has_no_gang(gang: &GangReport) -> bool {
    gang.min_member <= 1 && gang.pods > 1
}

/// A gang's state as people say it.
pub(super) fn state_word(state: GangState) -> &'static str {
    match state {
        GangState::Placed => "placed",
        GangState::Partial => "below its minimum",
        GangState::Pending => "pending",
        GangState::Done => "over",
    }
}

/// How good the placement is, as the end of a sentence.
pub(super) fn quality_word(gang: &GangReport) -> String {
    let Some(quality) = &gang.quality else { return String::new() };
    match quality.status {
        QualityStatus::Optimal if quality.whole_order => ", nothing better exists".to_owned(),
        QualityStatus::Optimal => ", no fewer domains will do".to_owned(),
        QualityStatus::Bounded => {
            let level = quality.levels.iter().find(|level| level.domains > level.lower_bound);
            level.map_or_else(String::new, |level| {
                format!(", {} domains of {}, {} at the least", level.domains, level.level, level.lower_bound)
            })
        }
        QualityStatus::Unknown => String::new(),
    }
}

/// An object that could not be used.
pub(super) fn skipped_line(skipped: &Skipped) -> String {
    let field = if skipped.field.is_empty() { String::new() } else { format!(" {}", skipped.field) };
    let place = format!("{} document {}", skipped.place.file, skipped.place.document);
    format!("skipped {} ({place}){field}: {}", skipped.object, skipped.message)
}

/// The topology that a gang was placed on; empty when none.
pub(super) fn topology(gang: &GangReport) -> &str {
    gang.quality.as_ref().map_or("", |quality| quality.topology.as_str())
}

/// The levels of a place above the node, as (label, value): those of the topology named, or else of any.
pub(super) fn levels<'a>(
    domains: &'a BTreeMap<String, Vec<(String, String)>>,
    topology: &str,
) -> impl Iterator<Item = &'a (String, String)> {
    let path = domains.get(topology).or_else(|| domains.values().next());
    path.into_iter().flatten().filter(|(level, _)| level != "kubernetes.io/hostname")
}

/// How people call a gang: the workload that they wrote.
pub fn title(gang: &GangReport) -> String {
    let name = if gang.owner.is_empty() {
        format!("PodGroup/{}", gang.key.name)
    } else {
        gang.owner.clone()
    };
    match gang.key.namespace.as_str() {
        "" | "default" => name,
        namespace => format!("{name} in {namespace}"),
    }
}

/// What a person may have forgotten.
pub(super) fn hint(gang: &GangReport) -> String {
    let how = if gang.owner.starts_with("Job/") {
        " (annotation kai.scheduler/batch-min-member)"
    } else {
        ""
    };
    format!(
        "hint: {} has {} pods and a minimum of 1: no gang protects it{how}.",
        title(gang),
        gang.pods
    )
}

/// Mistakes without which gangs run all the same, one line each.
pub(super) fn warnings(result: &SimulationResult) -> Vec<String> {
    let of_gang = |gang: &GangReport| {
        let line = |warning| format!("warning: {}: {}", title(gang), explain::problem(warning));
        gang.warnings.iter().map(line).collect::<Vec<_>>()
    };
    result.gangs.iter().flat_map(of_gang).collect()
}

/// What else there is to say of a run, one line each.
pub(super) fn notes(result: &SimulationResult) -> Vec<String> {
    let hints = result.gangs.iter().filter(|gang| has_no_gang(gang)).map(hint);
    let ignored = (!result.ignored.is_empty()).then(|| format!("ignored {}", result.ignored.join(", ")));
    let first = nothing_to_place(result).into_iter().chain(warnings(result));
    first.chain(hints).chain(result.skipped.iter().map(skipped_line)).chain(ignored).collect()
}

/// A domain with the pods in it; the leaves are nodes.
#[derive(Default)]
pub(super) struct Domain {
    pub(super) below: BTreeMap<String, Domain>,
    pub(super) pods: Vec<String>,
}

impl Domain {
    /// The placement of a gang.
    pub(super) fn of(gang: &GangReport, pods: &[&PodResult]) -> Self {
        let mut tree = Self::default();
        for pod in pods {
            let Some(node) = &pod.node else { continue };
            let path = levels(&pod.domains, topology(gang)).map(|(_, value)| value);
            let path: Vec<String> = path.chain([node]).cloned().collect();
            tree.insert(&path, &pod.name);
        }
        tree
    }

    fn insert(&mut self, path: &[String], pod: &str) {
        match path.split_first() {
            None => self.pods.push(pod.to_owned()),
            Some((first, rest)) => self.below.entry(first.clone()).or_default().insert(rest, pod),
        }
    }

    /// Every pod at or below.
    pub(super) fn all(&self) -> Vec<String> {
        let below = self.below.values().flat_map(Domain::all);
        self.pods.iter().cloned().chain(below).collect()
    }
}

/// One line for each gang that lost pods.
pub(super) fn evictions(result: &SimulationResult) -> Vec<String> {
    let line = |eviction: &Eviction| {
        let names: Vec<String> = eviction.pods.iter().map(|victim| victim.pod.name.clone()).collect();
        let gang = format!("{}/{}", eviction.gang.namespace, eviction.gang.name);
        format!("{gang}: {} [{}]", explain::eviction(eviction), ranges(&names))
    };
    result.evictions.iter().map(line).collect()
}

/// The last line.
pub(super) fn summary(result: &SimulationResult) -> String {
    let waiting = result.gangs_pending();
    let mut text = format!(
        "{} of {} pods have a node, {} pending; {} gang{} placed, {waiting} pending",
        result.bound(),
        result.pods.len(),
        result.pending(),
        result.gangs_placed(),
        if result.gangs_placed() == 1 { "" } else { "s" },
    );
    if result.evicted() > 0 {
        let _ = write!(text, "; {} evicted", result.evicted());
    }
    if result.gangs_done() > 0 {
        let _ = write!(text, ", {} over", result.gangs_done());
    }
    if !result.skipped.is_empty() {
        let _ = write!(text, "; {} skipped", result.skipped.len());
    }
    text.push('.');
    text
}

/// Names with running numbers as ranges: `worker 0-3`, `r1-[0-2]`.
pub(super) fn ranges(names: &[String]) -> String {
    let mut groups: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut parts = Vec::new();
    for name in names {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &name[stem.len()..];
        match digits.parse::<u64>() {
            Ok(number) if !stem.is_empty() && (digits == "0" || !digits.starts_with('0')) => {
                groups.entry(stem).or_default().push(number)
            }
            _ => parts.push(name.clone()),
        }
    }
    for (stem, mut numbers) in groups {
        numbers.sort_unstable();
        let runs = runs(&numbers);
        let single = numbers.len() == 1;
        let word = stem.strip_suffix('-').filter(|word| !word.is_empty() && !single);
        parts.push(word.map_or_else(|| format!("{stem}{runs}"), |word| format!("{word} {runs}")));
    }
    parts.join(", ")
}

fn runs(numbers: &[u64]) -> String {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, end)) if *number == end.saturating_add(1) => *end = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let part = |(start, end): &(u64, u64)| {
        if start == end {
            start.to_string()
        } else {
            format!("{start}-{end}")
        }
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

/// Breaks text at spaces; a word longer than a line keeps its length.
pub(super) fn hanging(text: &str, first: &str, rest: &str) -> String {
    let mut page = String::new();
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(page, "{}", line.trim_end());
            line = rest.to_owned();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(page, "{}", line.trim_end());
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_numbers_become_ranges() {
        let names = ["w-0", "w-1", "w-3", "master-0", "solo"].map(str::to_owned);
        assert_eq!(ranges(&names), "solo, master-0, w 0-1,3");
    }
}
