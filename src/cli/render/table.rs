//! A simulation's result as a person reads it: each gang drawn on the topology, what waits and why, one summary line.

use std::collections::BTreeMap;
use std::fmt::Write;

use berth_engine::outcome::{GangReport, GangState, QualityStatus};

use crate::explain;
use crate::simulate::result::{PodResult, SimulationResult};

/// Widest line.
const WIDTH: usize = 80;

/// The whole page.
#[must_use]
pub fn result(result: &SimulationResult, colour: bool) -> String {
    let paint = Paint { colour };
    let mut page = String::new();
    if result.pods.is_empty() && result.gangs.is_empty() {
        let text = match result.foreign_pending {
            0 => "Nothing to place: no pod or workload in the input names this scheduler.".to_owned(),
            count => format!("Nothing to place: {count} pending pods name another scheduler; see --scheduler-name."),
        };
        page.push_str(&wrapped(&text, ""));
    }
    let mut members: BTreeMap<(&str, &str), Vec<&PodResult>> = BTreeMap::new();
    for pod in &result.pods {
        members.entry((&pod.namespace, &pod.gang)).or_default().push(pod);
    }
    for gang in result.gangs.iter().filter(|gang| gang.bound > 0) {
        let pods = members.get(&(gang.key.namespace.as_str(), gang.key.name.as_str()));
        page.push_str(&placed(gang, pods.map_or(&[], Vec::as_slice), &paint));
    }
    let waiting: Vec<&GangReport> = result
        .gangs
        .iter()
        .filter(|gang| !gang.reasons.is_empty() || gang.bound < gang.pods)
        .collect();
    if !waiting.is_empty() {
        let _ = writeln!(page, "{}", paint.bold("Pending"));
        for gang in waiting {
            page.push_str(&pending(gang, &paint));
        }
        page.push('\n');
    }
    for gang in result.gangs.iter().filter(|gang| gang.min_member <= 1 && gang.pods > 1) {
        page.push_str(&wrapped(&hint(gang), ""));
    }
    for skipped in &result.skipped {
        let field = if skipped.field.is_empty() {
            String::new()
        } else {
            format!(" {}", skipped.field)
        };
        let place = format!("{} document {}", skipped.place.file, skipped.place.document);
        page.push_str(&wrapped(
            &format!("skipped {} ({place}){field}: {}", skipped.object, skipped.message),
            "",
        ));
    }
    if !result.ignored.is_empty() {
        page.push_str(&wrapped(&format!("ignored {}", result.ignored.join(", ")), ""));
    }
    let _ = writeln!(page, "{}", paint.bold(&summary(result)));
    page
}

struct Paint {
    colour: bool,
}

impl Paint {
    fn with(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }

    fn good(&self, text: &str) -> String {
        self.with("32", text)
    }

    fn bad(&self, text: &str) -> String {
        self.with("31", text)
    }
}

/// How people call a gang: the workload that they wrote.
fn title(gang: &GangReport) -> String {
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

fn hint(gang: &GangReport) -> String {
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

fn placed(gang: &GangReport, pods: &[&PodResult], paint: &Paint) -> String {
    let state = match gang.state {
        GangState::Placed => paint.good("placed"),
        GangState::Partial => paint.bad("below its minimum"),
        GangState::Pending => paint.bad("pending"),
    };
    let mut text = format!(
        "{}  {}/{} pods {state}",
        paint.bold(&title(gang)),
        gang.bound,
        gang.pods
    );
    if let Some(quality) = &gang.quality {
        let word = match quality.status {
            QualityStatus::Optimal => ", nothing better exists",
            QualityStatus::Bounded => ", near the best",
            QualityStatus::Unknown => "",
        };
        text.push_str(word);
    }
    text.push('\n');
    let topology = gang
        .quality
        .as_ref()
        .map(|quality| quality.topology.as_str())
        .unwrap_or_default();
    let mut tree = Domain::default();
    for pod in pods {
        let Some(node) = &pod.node else { continue };
        let path = pod.domains.get(topology).or_else(|| pod.domains.values().next());
        let levels = path
            .into_iter()
            .flatten()
            .filter(|(level, _)| level != "kubernetes.io/hostname");
        let path: Vec<String> = levels.map(|(_, value)| value).chain([node]).cloned().collect();
        tree.insert(&path, &pod.name);
    }
    tree.draw(&mut text, "  ");
    text.push('\n');
    text
}

/// A domain with the pods in it; the leaves are nodes.
#[derive(Default)]
struct Domain {
    below: BTreeMap<String, Domain>,
    pods: Vec<String>,
}

impl Domain {
    fn insert(&mut self, path: &[String], pod: &str) {
        match path.split_first() {
            None => self.pods.push(pod.to_owned()),
            Some((first, rest)) => self.below.entry(first.clone()).or_default().insert(rest, pod),
        }
    }

    fn all(&self) -> Vec<String> {
        let below = self.below.values().flat_map(Domain::all);
        self.pods.iter().cloned().chain(below).collect()
    }

    fn draw(&self, text: &mut String, indent: &str) {
        let last = self.below.len().saturating_sub(1);
        for (i, (name, domain)) in self.below.iter().enumerate() {
            let (branch, rest) = if i == last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            let nodes = !domain.below.is_empty() && domain.below.values().all(|below| below.below.is_empty());
            let mut line = format!("{name}  ");
            if nodes {
                let names: Vec<String> = domain.below.keys().cloned().collect();
                let _ = write!(line, "{}  on {}", ranges(&domain.all()), ranges(&names));
            } else if domain.below.is_empty() {
                line.push_str(&ranges(&domain.pods));
            }
            let hang = format!("{indent}{rest}  ");
            text.push_str(&hanging(line.trim_end(), &format!("{indent}{branch}"), &hang));
            if !nodes {
                domain.draw(text, &format!("{indent}{rest}"));
            }
        }
    }
}

fn pending(gang: &GangReport, paint: &Paint) -> String {
    let mut text = format!(
        "  {}  {}/{} pods have a node\n",
        paint.bad(&title(gang)),
        gang.bound,
        gang.pods
    );
    for reason in &gang.reasons {
        text.push_str(&wrapped(
            &format!("{}: {}", reason.code_name(), explain::sentence(reason)),
            "    ",
        ));
        for fix in reason.fixes.iter().skip(2) {
            text.push_str(&wrapped(&format!("or {}", explain::fix_text(fix)), "      "));
        }
    }
    text
}

fn summary(result: &SimulationResult) -> String {
    let waiting = result.gangs.len() - result.gangs_placed();
    let mut text = format!(
        "{} of {} pods have a node, {} pending; {} gangs placed, {waiting} pending",
        result.bound(),
        result.pods.len(),
        result.pending(),
        result.gangs_placed(),
    );
    if !result.skipped.is_empty() {
        let _ = write!(text, "; {} skipped", result.skipped.len());
    }
    text.push('.');
    text
}

/// Names with running numbers as ranges: `worker 0-3`, `r1-[0-2]`.
fn ranges(names: &[String]) -> String {
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

fn wrapped(text: &str, indent: &str) -> String {
    hanging(text, indent, &format!("{indent}  "))
}

/// Breaks text at spaces; a word longer than a line keeps its length.
fn hanging(text: &str, first: &str, rest: &str) -> String {
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

    #[test]
    fn lines_fit_eighty_columns() {
        let page = wrapped(&"word ".repeat(60), "    ");
        assert!(page.lines().all(|line| line.chars().count() <= WIDTH), "{page}");
    }
}
