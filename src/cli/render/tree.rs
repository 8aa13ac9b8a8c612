//! The topology as text and as a drawing.

use std::fmt::Write;

use super::view::{Place, Tree};
use super::words::{hanging, ranges};

/// Signs of a bar.
const BAR: usize = 12;

/// Gangs named at a domain.
const MAX_GANGS: usize = 3;

/// For people: one line for each domain above the nodes, 80 columns.
#[must_use]
pub fn text(tree: &Tree, depth: usize, with_nodes: bool) -> String {
    let root = &tree.root;
    let name = if tree.topology.is_empty() { "The cluster" } else { &tree.topology };
    let mut text = hanging(&format!("{name}: {} node{}, {}.", root.nodes, if root.nodes == 1 { "" } else { "s" }, amounts(root, tree.unit)), "", "  ");
    below(root, tree.unit, &mut text, "", depth, with_nodes);
    text
}

fn amounts(place: &Place, unit: &str) -> String {
    let [all, used, held, stranded] = place.amounts;
    let mut text = format!("{} of {all} {unit} free, {used} used", place.free());
    for (amount, word) in [(held, "reserved"), (stranded, "stranded")] {
        if amount > 0 {
            let _ = write!(text, ", {amount} {word}");
        }
    }
    text
}

fn below(place: &Place, unit: &str, text: &mut String, indent: &str, depth: usize, with_nodes: bool) {
    let shown: Vec<(&String, &Place)> = place.below.iter().filter(|(_, below)| with_nodes || below.level != "node").collect();
    if depth == 0 {
        return;
    }
    for (i, (name, below)) in shown.iter().enumerate() {
        let (branch, rest) = if i + 1 == shown.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let level = below.level.rsplit('/').next().unwrap_or_default();
        let gangs: Vec<String> = below.gangs.iter().take(MAX_GANGS).cloned().collect();
        let more = below.gangs.len().saturating_sub(MAX_GANGS);
        let gangs = match (gangs.is_empty(), more) {
            (true, _) => String::new(),
            (false, 0) => format!("; {}", ranges(&gangs)),
            (false, more) => format!("; {} and {more} more", ranges(&gangs)),
        };
        let line = format!("{level} {name} {} {}{gangs}", bar(below), amounts(below, unit));
        text.push_str(&hanging(&line, &format!("{indent}{branch}"), &format!("{indent}{rest}    ")));
        self::below(below, unit, text, &format!("{indent}{rest}"), depth - 1, with_nodes);
    }
}

/// Used, reserved and stranded, and free, as a bar.
fn bar(place: &Place) -> String {
    let [all, used, held, stranded] = place.amounts;
    let width = |amount: i64| if all > 0 { (amount.clamp(0, all) * BAR as i64 / all) as usize } else { 0 };
    let (used, other) = (width(used), width(held.saturating_add(stranded)));
    format!("[{}{}{}]", "█".repeat(used), "▒".repeat(other.min(BAR - used)), "·".repeat(BAR.saturating_sub(used + other)))
}

/// Width of the drawing.
const WIDTH: i64 = 960;

/// Height of a line of it.
const LINE: i64 = 22;

/// A drawing: one line for each domain, its nodes as cells, filled as far as they are used.
#[must_use]
pub fn svg(tree: &Tree) -> String {
    let mut rows = Vec::new();
    collect(&tree.root, "", 0, &mut rows);
    let height = (rows.len() as i64 + 2) * LINE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"12\"><title>{}: {}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"16\" font-weight=\"bold\">{}: {}</text>\n",
        escaped(&tree.topology),
        amounts(&tree.root, tree.unit),
        escaped(&tree.topology),
        amounts(&tree.root, tree.unit),
    );
    for (i, (indent, name, place)) in rows.iter().enumerate() {
        let y = (i as i64 + 1) * LINE;
        let x = 8 + indent * 16;
        let level = place.level.rsplit('/').next().unwrap_or_default();
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{}\">{} <tspan font-weight=\"bold\">{}</tspan></text>", y + 15, escaped(level), escaped(name));
        let nodes: Vec<(&String, &Place)> = place.below.iter().filter(|(_, below)| below.level == "node").collect();
        let from = 260;
        let step = ((WIDTH - from - 8) / (nodes.len().max(1) as i64)).clamp(1, 40);
        for (at, (name, node)) in nodes.iter().enumerate() {
            let [all, used, held, stranded] = node.amounts;
            let inner = (step - 2).max(1);
            let part = |amount: i64| if all > 0 { amount.clamp(0, all) * inner / all } else { 0 };
            let x = from + at as i64 * step;
            let _ = writeln!(
                svg,
                "<g><title>{}: {} of {all} free</title><rect x=\"{x}\" y=\"{}\" width=\"{inner}\" height=\"16\" fill=\"#dfe5eb\"/>\
                 <rect x=\"{x}\" y=\"{}\" width=\"{}\" height=\"16\" fill=\"#1f6feb\"/><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"16\" fill=\"#b08800\"/></g>",
                escaped(name),
                node.free(),
                y + 3,
                y + 3,
                part(used),
                x + part(used),
                y + 3,
                part(held.saturating_add(stranded)),
            );
        }
        if nodes.is_empty() {
            let _ = writeln!(svg, "<text x=\"{from}\" y=\"{}\" fill=\"#57606a\">{}</text>", y + 15, amounts(place, tree.unit));
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn collect<'a>(place: &'a Place, name: &'a str, indent: i64, rows: &mut Vec<(i64, &'a str, &'a Place)>) {
    let holds_nodes = place.below.values().any(|below| below.level == "node");
    if !place.level.is_empty() || holds_nodes {
        rows.push((indent, name, place));
    }
    for (name, below) in place.below.iter().filter(|(_, below)| below.level != "node") {
        collect(below, name, indent + 1, rows);
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
