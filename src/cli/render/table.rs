//! A simulation's result as a person reads it: each gang drawn on the topology, what waits and why, one summary line.

use std::fmt::Write;

use berth_engine::outcome::{GangReport, GangState};

use super::words::{
    Domain, WIDTH, evictions, hanging, hint, members, nothing_to_place, quality_word, ranges, skipped_line, state_word, summary, title, waiting, warnings,
};
use crate::explain;
use crate::simulate::result::{PodResult, SimulationResult};

/// The whole page.
#[must_use]
pub fn result(result: &SimulationResult, colour: bool) -> String {
    let paint = Paint { colour };
    let mut page = String::new();
    if let Some(text) = nothing_to_place(result) {
        page.push_str(&wrapped(&text, ""));
    }
    let members = members(result);
    for gang in result.gangs.iter().filter(|gang| gang.bound > 0) {
        let pods = members.get(&(gang.key.namespace.as_str(), gang.key.name.as_str()));
        page.push_str(&placed(gang, pods.map_or(&[], Vec::as_slice), &paint));
    }
    let waiting = waiting(result);
    if !waiting.is_empty() {
        let _ = writeln!(page, "{}", paint.bold("Pending"));
        for gang in waiting {
            page.push_str(&pending(gang, &paint));
        }
        page.push('\n');
    }
    let evictions = evictions(result);
    if !evictions.is_empty() {
        let _ = writeln!(page, "{}", paint.bold("Evicted"));
        for line in evictions {
            page.push_str(&hanging(&line, "  ", "    "));
        }
        page.push('\n');
    }
    for warning in warnings(result) {
        page.push_str(&wrapped(&warning, ""));
    }
    for gang in result.gangs.iter().filter(|gang| super::words::has_no_gang(gang)) {
        page.push_str(&wrapped(&hint(gang), ""));
    }
    for skipped in &result.skipped {
        page.push_str(&wrapped(&skipped_line(skipped), ""));
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

fn placed(gang: &GangReport, pods: &[&PodResult], paint: &Paint) -> String {
    let state = match gang.state {
        GangState::Placed => paint.good(state_word(gang.state)),
        GangState::Partial | GangState::Pending | GangState::Done => paint.bad(state_word(gang.state)),
    };
    let counts = format!("{}/{} pods", gang.bound, gang.pods);
    let mut text = format!("{}  {counts} {state}", paint.bold(&title(gang)));
    let quality = quality_word(gang);
    // Colours take no room.
    let head = format!("{}  {counts} {}", title(gang), state_word(gang.state));
    if head.chars().count() + quality.chars().count() <= WIDTH {
        text.push_str(&quality);
        text.push('\n');
    } else {
        text.push('\n');
        text.push_str(&hanging(quality.trim_start_matches(", "), "  ", "  "));
    }
    draw(&Domain::of(gang, pods), &mut text, "  ");
    text.push('\n');
    text
}

/// Draws what is below a domain.
fn draw(tree: &Domain, text: &mut String, indent: &str) {
        let last = tree.below.len().saturating_sub(1);
        for (i, (name, domain)) in tree.below.iter().enumerate() {
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
                draw(domain, text, &format!("{indent}{rest}"));
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
        if let Some(phrase) = explain::proof(reason) {
            text.push_str(&wrapped(&phrase, "      "));
        }
        for fix in reason.fixes.iter().skip(2) {
            text.push_str(&wrapped(&format!("or {}", explain::fix_text(fix)), "      "));
        }
    }
    text
}

fn wrapped(text: &str, indent: &str) -> String {
    hanging(text, indent, &format!("{indent}  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_eighty_columns() {
        let page = wrapped(&"word ".repeat(60), "    ");
        assert!(page.lines().all(|line| line.chars().count() <= WIDTH), "{page}");
    }
}
