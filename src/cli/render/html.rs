//! A simulation's result as one self-contained page: nothing is loaded from anywhere.
//!
//! Each gang is drawn on the topology: domains that it touches are opened, the others are counted in one line, so that
//! a page about a large cluster stays readable.

use std::collections::BTreeMap;
use std::fmt::Write;

use berth_engine::outcome::{GangReport, GangState};
use berth_engine::world::NodeRoom;

use super::words::{
    Domain, evictions, has_no_gang, hint, levels, members, nothing_to_place, quality_word, ranges, skipped_line, state_word,
    summary, title, topology, waiting, warnings,
};
use crate::explain;
use crate::simulate::cluster::Cluster;
use crate::simulate::result::SimulationResult;

/// Nodes of one domain that are drawn one by one; more are named as ranges.
const MAX_TILES: usize = 32;

/// Gangs that are unfolded when the page opens.
const MAX_OPEN: usize = 20;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--dim:#57606a;--page:#fff;--card:#f6f8fa;--line:#d0d7de;--used:#1f6feb;--free:#dfe5eb;--bad:#b42318;--good:#1a7f37}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--dim:#9aa4af;--page:#0d1117;--card:#161b22;--line:#30363d;--used:#58a6ff;--free:#262c34;--bad:#ff7b72;--good:#56d364}}
*{box-sizing:border-box}body{margin:0 auto;max-width:72rem;padding:1.5rem;font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page)}
h1{font-size:1.3rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .5rem}.dim{color:var(--dim)}.bad{color:var(--bad)}.good{color:var(--good)}
details,.why{border:1px solid var(--line);border-radius:8px;background:var(--card);padding:.7rem 1rem;margin:.6rem 0}summary{cursor:pointer}
.in{border-left:2px solid var(--line);margin:.35rem 0 .35rem .4rem;padding-left:.8rem}.row{display:flex;gap:.6rem;align-items:center;flex-wrap:wrap}
.tiles{display:flex;flex-wrap:wrap;gap:.4rem;margin:.3rem 0 .3rem 1.2rem}.tile{border:1px solid var(--line);border-radius:6px;padding:.2rem .5rem;background:var(--page);overflow-wrap:anywhere}
svg.bar{width:7rem;height:.6rem;flex:none;border-radius:3px}.used{fill:var(--used)}.free{fill:var(--free)}
code{font:.92em ui-monospace,monospace}li{margin:.15rem 0}.key svg{width:.9rem}";

/// One result and the cluster that it ended with.
#[derive(Debug)]
pub struct Section<'a> {
    /// Where it comes from; empty when there is one only.
    pub heading: String,
    /// The result.
    pub result: SimulationResult,
    /// The cluster.
    pub cluster: &'a Cluster,
}

/// The page.
#[must_use]
pub fn page(sections: &[Section<'_>]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>berth simulate</title>\n\
         <style>{STYLE}</style></head><body>\n<h1>Where the gangs go</h1>\n"
    );
    let key = [("used", "in use"), ("free", "free")]
        .map(|(class, word)| format!("<svg class=\"bar\"><rect class=\"{class}\" width=\"100%\" height=\"100%\"/></svg>{word}"));
    let _ = writeln!(page, "<p class=\"row dim key\">{}</p>", key.join(" "));
    for section in sections {
        if !section.heading.is_empty() {
            let _ = writeln!(page, "<h2>{}</h2>", escaped(&section.heading));
        }
        self::section(&mut page, &section.result, section.cluster);
    }
    page.push_str("</body></html>\n");
    page
}

fn section(page: &mut String, result: &SimulationResult, cluster: &Cluster) {
    if let Some(text) = nothing_to_place(result) {
        let _ = writeln!(page, "<p>{}</p>", escaped(&text));
    }
    let map = Map::of(cluster);
    let members = members(result);
    for (i, gang) in result.gangs.iter().filter(|gang| gang.bound > 0).enumerate() {
        let pods = members.get(&(gang.key.namespace.as_str(), gang.key.name.as_str()));
        let placed = Domain::of(gang, pods.map_or(&[], Vec::as_slice));
        let open = if i < MAX_OPEN { " open" } else { "" };
        let class = if gang.state == GangState::Placed { "good" } else { "bad" };
        let _ = writeln!(
            page,
            "<details{open}><summary><b>{}</b> {}/{} pods <span class=\"{class}\">{}</span>{}</summary>",
            escaped(&title(gang)),
            gang.bound,
            gang.pods,
            state_word(gang.state),
            quality_word(gang),
        );
        if let Some(root) = map.trees.get(topology(gang)).or_else(|| map.trees.values().next()) {
            map.draw(page, root, &placed);
        }
        page.push_str("</details>\n");
    }
    pending(page, &waiting(result));
    let evictions = evictions(result);
    if !evictions.is_empty() {
        page.push_str("<h2>Evicted</h2>\n");
    }
    for line in evictions {
        let _ = writeln!(page, "<p>{}</p>", escaped(&line));
    }
    let notes = result.gangs.iter().filter(|gang| has_no_gang(gang)).map(hint);
    for note in warnings(result).into_iter().chain(notes).chain(result.skipped.iter().map(skipped_line)) {
        let _ = writeln!(page, "<p class=\"dim\">{}</p>", escaped(&note));
    }
    if !result.ignored.is_empty() {
        let _ = writeln!(page, "<p class=\"dim\">ignored {}</p>", escaped(&result.ignored.join(", ")));
    }
    let _ = writeln!(page, "<p><b>{}</b></p>", summary(result));
}

fn pending(page: &mut String, gangs: &[&GangReport]) {
    if !gangs.is_empty() {
        page.push_str("<h2>Pending</h2>\n");
    }
    for gang in gangs {
        let name = escaped(&title(gang));
        let _ = writeln!(page, "<div class=\"why\"><b class=\"bad\">{name}</b> {}/{} pods have a node", gang.bound, gang.pods);
        for reason in &gang.reasons {
            let sentence = escaped(&explain::sentence(reason));
            let _ = writeln!(page, "<p><code>{}</code>: {sentence}</p>", reason.code_name());
            let fixes = reason.fixes.iter().map(|fix| {
                let proof = if fix.verified { " <span class=\"good\">(tried: it would fit)</span>" } else { "" };
                format!("<li>{}{proof}</li>", escaped(&explain::fix_text(fix)))
            });
            let fixes: String = fixes.collect();
            if !fixes.is_empty() {
                let _ = writeln!(page, "<ul>{fixes}</ul>");
            }
        }
        page.push_str("</div>\n");
    }
}

/// Capacity of a domain or node in one resource.
#[derive(Clone, Copy, Default)]
struct Amount {
    total: i64,
    used: i64,
}

/// A domain of the whole cluster; the leaves are nodes.
#[derive(Default)]
struct Place {
    level: String,
    amount: Amount,
    below: BTreeMap<String, Place>,
}

/// Every topology with the room of each domain.
struct Map {
    trees: BTreeMap<String, Place>,
    unit: &'static str,
    /// A cluster without GPUs is drawn in milli-cores.
    in_cores: bool,
}

impl Map {
    fn of(cluster: &Cluster) -> Self {
        let rooms = cluster.world().node_rooms();
        let in_cores = rooms.iter().all(|room| room.gpus == 0);
        let mut map = Self {
            trees: BTreeMap::new(),
            unit: if in_cores { "cores" } else { "GPUs" },
            in_cores,
        };
        for room in &rooms {
            let domains: BTreeMap<_, _> = cluster.world().domains_of_node(&room.name).into_iter().collect();
            let amount = map.amount(room);
            // Without any topology the nodes stand side by side.
            let names = if domains.is_empty() { vec![String::new()] } else { domains.keys().cloned().collect() };
            for name in names {
                let path = levels(&domains, &name).cloned();
                let path: Vec<_> = path.chain([("node".to_owned(), room.name.clone())]).collect();
                map.trees.entry(name).or_default().add(&path, amount);
            }
        }
        map
    }

    fn amount(&self, room: &NodeRoom) -> Amount {
        if self.in_cores {
            return Amount { total: room.cpu_millis, used: room.cpu_millis_used };
        }
        Amount { total: room.gpus, used: room.gpus_used }
    }

    /// Free and total, as a bar and in words.
    fn room(&self, amount: Amount) -> String {
        let percent = if amount.total > 0 { (amount.used.clamp(0, amount.total)) * 100 / amount.total } else { 0 };
        let shown = |amount: i64| if self.in_cores { amount / 1000 } else { amount };
        format!(
            "<svg class=\"bar\" aria-hidden=\"true\"><rect class=\"free\" width=\"100%\" height=\"100%\"/>\
             <rect class=\"used\" width=\"{percent}%\" height=\"100%\"/></svg>\
             <span class=\"dim\">{} of {} {} free</span>",
            shown(amount.total - amount.used),
            shown(amount.total),
            self.unit
        )
    }

    /// What is below a place: the parts that the gang touches, and one line for the rest.
    fn draw(&self, page: &mut String, place: &Place, placed: &Domain) {
        let touched = |name: &String| placed.below.contains_key(name);
        let are_nodes = place.below.values().all(|below| below.below.is_empty());
        page.push_str(if are_nodes { "<div class=\"tiles\">" } else { "<div class=\"in\">" });
        if are_nodes && placed.below.len() > MAX_TILES {
            let nodes: Vec<String> = placed.below.keys().cloned().collect();
            let _ = write!(page, "<div class=\"tile\">{} on {}</div>", escaped(&ranges(&placed.all())), escaped(&ranges(&nodes)));
        } else {
            for (name, inside) in &placed.below {
                let Some(below) = place.below.get(name) else { continue };
                let level = escaped(below.level.rsplit('/').next().unwrap_or_default());
                let (name, room) = (escaped(name), self.room(below.amount));
                if below.below.is_empty() {
                    let pods = escaped(&ranges(&inside.all()));
                    let _ = write!(page, "<div class=\"tile\"><b>{name}</b> {pods}<div class=\"row\">{room}</div></div>");
                } else {
                    let _ = write!(page, "<div class=\"row\"><span class=\"dim\">{level}</span> <b>{name}</b> {room}</div>");
                    self.draw(page, below, inside);
                }
            }
        }
        let others: Vec<&Place> = place.below.iter().filter(|(name, _)| !touched(name)).map(|(_, below)| below).collect();
        if let Some(first) = others.first() {
            let sum = others.iter().fold(Amount::default(), |sum, other| sum.plus(other.amount));
            let level = escaped(first.level.rsplit('/').next().unwrap_or_default());
            let more = if placed.below.is_empty() { "" } else { " more" };
            let tag = if are_nodes { "tile" } else { "row" };
            let _ = write!(page, "<div class=\"{tag} dim\">{}{more} of level {level} {}</div>", others.len(), self.room(sum));
        }
        page.push_str("</div>\n");
    }
}

impl Amount {
    fn plus(self, other: Self) -> Self {
        Self { total: self.total.saturating_add(other.total), used: self.used.saturating_add(other.used) }
    }
}

impl Place {
    fn add(&mut self, path: &[(String, String)], amount: Amount) {
        self.amount = self.amount.plus(amount);
        if let Some(((level, name), rest)) = path.split_first() {
            let below = self.below.entry(name.clone()).or_default();
            below.level.clone_from(level);
            below.add(rest, amount);
        }
    }
}

/// Text that a browser shows as it is.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_names_is_text() {
        assert_eq!(escaped("<b>\"&"), "&lt;b&gt;&quot;&amp;");
    }
}
