//! What `berth explain` says: a sentence, what would help, and what it rests on.

use std::collections::BTreeSet;
use std::fmt::Write;

use berth_engine::facts::ObjectKey;
use berth_engine::outcome::{GangReport, GangState, Rule};
use berth_engine::remedy::{self, DomainRoom, Effect, Remedies};
use serde_json::{Value, json};

use super::json as document;
use super::words::{hanging, quality_word, ranges, state_word, title};
use crate::explain;
use crate::moment::{Moment, waits};

/// Domains of one level that the table lists; the best come first.
const MAX_DOMAINS: usize = 5;

/// Gangs that were placed before and are named.
const MAX_BEFORE: usize = 5;

/// A gang with everything that is known about why it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The gang.
    pub gang: GangReport,
    /// What would help, tried.
    pub remedies: Remedies,
    /// Room per domain.
    pub rooms: Vec<DomainRoom>,
    /// The gangs that were placed in this run.
    pub before: Vec<Before>,
}

impl Explained {
    /// Everything that is known now; what would help is looked for in so many trials at the most.
    #[must_use]
    pub fn of(moment: &Moment<'_>, gang: &GangReport, trials: u32) -> Self {
        let Moment { world, policy, now, placed, .. } = moment;
        let remedies = remedy::remedies(world, policy, *now, &gang.uid, trials);
        let rooms = if waits(gang) { remedy::domain_rooms(world, policy, &gang.uid) } else { Vec::new() };
        let mut before: Vec<Before> = Vec::new();
        for other in placed.iter().filter(|other| other.gang_uid != gang.uid && waits(gang)) {
            if !before.iter().any(|known| known.gang == other.gang) {
                before.push(Before { uid: other.gang_uid.clone(), gang: other.gang.clone(), name: other.gang.name.clone() });
            }
        }
        Self { gang: gang.clone(), remedies, rooms, before }
    }
}

/// A gang that was placed earlier, so may stand in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    /// Its UID.
    pub uid: String,
    /// Namespace and name.
    pub gang: ObjectKey,
    /// How it is called.
    pub name: String,
}

/// All that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The gangs asked for.
    pub explained: Vec<Explained>,
    /// The changes asked about, and what they would do.
    pub what_if: Option<(Vec<String>, Vec<Effect>)>,
}

/// For scripts.
#[must_use]
pub fn json(explanation: &Explanation) -> Value {
    let mut value = json!({
        "apiVersion": "berth.scheduler/v1alpha1",
        "kind": "Explanation",
        "podGroups": explanation.explained.iter().map(explained).collect::<Vec<_>>(),
    });
    if let (Some((changes, effects)), Value::Object(map)) = (&explanation.what_if, &mut value) {
        let effects: Vec<Value> = effects
            .iter()
            .map(|effect| {
                let moved: Vec<Value> = effect.moved.iter().map(|(from, to)| json!({"from": from, "to": (!to.is_empty()).then_some(to)})).collect();
                json!({
                    "before": document::gang(&effect.before),
                    "after": effect.after.as_ref().map(document::gang),
                    "moved": moved,
                    "message": effect_line(effect),
                })
            })
            .collect();
        map.insert("whatIf".to_owned(), json!({"changes": changes, "effects": effects}));
    }
    value
}

fn explained(explained: &Explained) -> Value {
    let mut value = document::gang(&explained.gang);
    let remedies: Vec<Value> = explained
        .remedies
        .found
        .iter()
        .map(|remedy| {
            let fixes: Vec<Value> = remedy.fixes.iter().map(document::fix).collect();
            json!({"message": explain::remedy(&remedy.fixes), "verified": true, "fixes": fixes})
        })
        .collect();
    let rooms: Vec<Value> = explained
        .rooms
        .iter()
        .map(|room| {
            let refusals: Vec<Value> = room.refusals.iter().map(|(rule, nodes)| json!({"code": rule.name(), "subject": rule.subject(), "nodes": nodes})).collect();
            json!({
                "level": room.level,
                "domain": explain::domain(&room.path),
                "nodes": room.nodes,
                "has": room.has,
                "needs": room.needs,
                "refusals": refusals,
            })
        })
        .collect();
    if let Value::Object(map) = &mut value {
        map.insert("message".to_owned(), Value::String(sentence(&explained.gang)));
        map.insert("remedies".to_owned(), Value::Array(remedies));
        map.insert("tried".to_owned(), json!(explained.remedies.tried));
        map.insert("cutShort".to_owned(), json!(explained.remedies.cut_short));
        map.insert("domains".to_owned(), Value::Array(rooms));
        map.insert("placedBefore".to_owned(), json!(names(&explained.before)));
    }
    value
}

fn names(before: &[Before]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for gang in before {
        if !names.contains(&gang.name.as_str()) {
            names.push(&gang.name);
        }
    }
    names
}

/// The one sentence: the first reason, or that nothing waits.
fn sentence(gang: &GangReport) -> String {
    match gang.reasons.first() {
        Some(reason) => explain::sentence(reason),
        None if gang.state == GangState::Done => "all its pods are over".to_owned(),
        None if gang.bound < gang.pods => "its other pods have a reason of their own".to_owned(),
        None => format!("nothing waits: {} of {} pods have a node{}", gang.bound, gang.pods, quality_word(gang)),
    }
}

/// For people.
#[must_use]
pub fn table(explanation: &Explanation) -> String {
    let mut text = String::new();
    if explanation.explained.is_empty() && explanation.what_if.is_none() {
        text.push_str("Nothing waits.\n");
    }
    for explained in &explanation.explained {
        if !text.is_empty() {
            text.push('\n');
        }
        gang(explained, &mut text);
    }
    if let Some((changes, effects)) = &explanation.what_if {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&hanging(&format!("With {}:", changes.join(" and ")), "", "  "));
        if effects.is_empty() {
            text.push_str("  nothing changes for anybody\n");
        }
        for effect in effects {
            text.push_str(&hanging(&effect_line(effect), "  ", "    "));
        }
    }
    text
}

fn gang(explained: &Explained, text: &mut String) {
    let gang = &explained.gang;
    let _ = writeln!(text, "{}  {}/{} pods have a node, {}", title(gang), gang.bound, gang.pods, state_word(gang.state));
    text.push_str(&hanging(&sentence(gang), "  ", "  "));
    for reason in gang.reasons.iter().skip(1) {
        text.push_str(&hanging(&format!("also: {}", explain::sentence(reason)), "  ", "    "));
    }
    if let Some(phrase) = gang.reasons.first().and_then(explain::proof) {
        text.push_str(&hanging(&phrase, "  ", "    "));
    }
    if !explained.remedies.found.is_empty() {
        text.push_str("\n  What would help; each was tried on a copy of the cluster:\n");
        for remedy in &explained.remedies.found {
            text.push_str(&hanging(&explain::remedy(&remedy.fixes), "  - ", "    "));
        }
    } else if explained.remedies.tried > 0 {
        let _ = writeln!(text, "\n  No single change was found that helps ({} tried).", explained.remedies.tried);
    }
    if explained.remedies.cut_short {
        let line = format!("More may help: the search ended after {} trials (--trials).", explained.remedies.tried);
        text.push_str(&hanging(&line, "  ", "  "));
    }
    rooms(&explained.rooms, text);
    if !explained.before.is_empty() {
        let shown: Vec<&str> = names(&explained.before).into_iter().take(MAX_BEFORE).collect();
        let more = names(&explained.before).len().saturating_sub(MAX_BEFORE);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        text.push('\n');
        text.push_str(&hanging(&format!("Placed in this run, before or beside it: {}{more}", shown.join(", ")), "  ", "    "));
    }
}

/// The best domains of every level.
fn rooms(rooms: &[DomainRoom], text: &mut String) {
    if rooms.is_empty() {
        return;
    }
    text.push_str("\n  Room for what it needs:\n");
    // Nodes one by one say little beside the domains that hold them.
    let several = rooms.iter().any(|room| !room.level.is_empty() && room.nodes > 1);
    let rooms: Vec<&DomainRoom> =
        rooms.iter().filter(|room| !several || room.level.is_empty() || rooms.iter().any(|other| other.level == room.level && other.nodes > 1)).collect();
    let levels: Vec<&str> = rooms.iter().map(|room| room.level.as_str()).fold(Vec::new(), |mut seen, level| {
        if !seen.contains(&level) {
            seen.push(level);
        }
        seen
    });
    for level in levels {
        let mut here: Vec<&DomainRoom> = rooms.iter().copied().filter(|room| room.level == level).collect();
        here.sort_by_key(|room| std::cmp::Reverse(room.has));
        let short = level.rsplit('/').next().unwrap_or_default();
        for room in here.iter().take(MAX_DOMAINS) {
            let name = if room.path.is_empty() { "the cluster".to_owned() } else { format!("{short} {}", explain::domain(&room.path)) };
            let why = room.refusals.iter().take(2).map(|(rule, nodes)| refusal(rule, *nodes)).collect::<Vec<_>>().join("; ");
            let why = if why.is_empty() { String::new() } else { format!("; {why}") };
            let line = format!("{name}: {} of {} pods on {} node{}{why}", room.has, room.needs, room.nodes, if room.nodes == 1 { "" } else { "s" });
            text.push_str(&hanging(&line, "    ", "        "));
        }
        if here.len() > MAX_DOMAINS {
            let _ = writeln!(text, "    and {} more of level {short}", here.len() - MAX_DOMAINS);
        }
    }
}

fn refusal(rule: &Rule, nodes: u32) -> String {
    format!("{nodes} of them: {}", explain::rule(rule))
}

/// What becomes of a gang, in one sentence.
fn effect_line(effect: &Effect) -> String {
    let name = title(&effect.before);
    let Some(after) = &effect.after else { return format!("{name} is gone") };
    let (from, to): (BTreeSet<&String>, BTreeSet<&String>) =
        (effect.moved.iter().map(|(from, _)| from).collect(), effect.moved.iter().map(|(_, to)| to).filter(|to| !to.is_empty()).collect());
    let names = |nodes: BTreeSet<&String>| ranges(&nodes.into_iter().cloned().collect::<Vec<_>>());
    let lost = effect.moved.iter().filter(|(_, to)| to.is_empty()).count();
    let moved = match (effect.moved.len(), lost) {
        (0, _) => String::new(),
        (moved, 0) => format!(": {moved} of its pods leave {} and go to {}", names(from), names(to)),
        (moved, lost) if moved == lost => format!(": {lost} of its pods leave {} and find no place", names(from)),
        (moved, lost) => format!(": {moved} of its pods leave {}; {lost} of them find no place, the others go to {}", names(from), names(to)),
    };
    let state = match (effect.before.state, after.state) {
        (before, GangState::Placed) if before != GangState::Placed => "would be placed".to_owned(),
        (_, GangState::Placed) if effect.moved.is_empty() => format!("would have {} pods with a node instead of {}", after.bound, effect.before.bound),
        (_, GangState::Placed) => "stays placed".to_owned(),
        (_, state) => format!("would be {} with {} of {} pods", state_word(state), after.bound, after.pods),
    };
    let why = after.reasons.first().map_or_else(String::new, |reason| format!("; it {}", explain::sentence(reason)));
    format!("{name} {state}{moved}{why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_waits_is_said_in_words() {
        assert_eq!(table(&Explanation { explained: Vec::new(), what_if: None }), "Nothing waits.\n");
    }
}
