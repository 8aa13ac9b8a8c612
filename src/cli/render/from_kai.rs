//! `berth check --from kai`: what a user of KAI Scheduler wants to know before the switch.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::findings::{self, Checked};
use super::json::gang as gang_json;
use super::words::{hanging, title};
use crate::explain;
use crate::lint::kai::EVERYWHERE;
use crate::lint::kai::leftovers::OpenRequest;
use crate::lint::kai::settings::{Becomes, Setting, command};
use crate::lint::{Finding, Severity};
use crate::simulate::forecast::{Forecast, Running};

/// Objects that a line names; the rest is counted.
const MAX_NAMED: usize = 3;

/// Gangs and requests that are listed for people; scripts get all.
const MAX_LISTED: usize = 20;

/// Letters of a name in a table.
const NAME: usize = 40;

/// Everything there is to say.
#[derive(Debug)]
pub struct Report<'a> {
    /// What the lint found, differences included.
    pub checked: &'a Checked,
    /// What would become of the work.
    pub forecast: Forecast,
    /// How KAI Scheduler is set up.
    pub settings: Vec<Setting>,
    /// What it is about to bind.
    pub requests: Vec<OpenRequest>,
    /// Pods of this scheduler were looked at.
    pub scheduler: String,
}

/// Where a finding belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Difference,
    Unsupported,
    Leftover,
    Mistake,
}

fn part(finding: &Finding) -> Part {
    match finding.code {
        "UnsupportedFeature" => Part::Unsupported,
        "WebhookLeftBehind" | "WebhookOfKai" | "GpuReservation" | "KaiRuns" => Part::Leftover,
        _ if finding.severity == Severity::Note => Part::Difference,
        _ => Part::Mistake,
    }
}

impl Report<'_> {
    fn of(&self, wanted: Part) -> Vec<&Finding> {
        self.checked.findings.iter().filter(|finding| part(finding) == wanted).collect()
    }

    fn starting(&self) -> usize {
        self.forecast.waiting.iter().filter(|waiting| waiting.starts).count()
    }

    fn sentence(&self) -> String {
        let waiting = self.forecast.waiting.len();
        let mut text = match (waiting, self.starting()) {
            (0, _) => format!("No gang of {} waits", self.scheduler),
            (1, 0) => "The gang that waits would not start under Berth either".to_owned(),
            (1, _) => "The gang that waits would start under Berth".to_owned(),
            (_, 0) => format!("None of the {waiting} gangs that wait would start under Berth"),
            (_, starting) if starting == waiting => format!("All {waiting} gangs that wait would start under Berth"),
            (_, starting) => format!("Of {waiting} gangs that wait {starting} would start under Berth"),
        };
        let differences = self.of(Part::Difference);
        let codes: std::collections::BTreeSet<&str> = differences.iter().map(|finding| finding.code).collect();
        let _ = match codes.len() {
            0 => write!(text, "; no object behaves differently"),
            1 => write!(text, "; 1 difference concerns {}", objects(&differences)),
            codes => write!(text, "; {codes} differences concern {}", objects(&differences)),
        };
        let unsupported = self.of(Part::Unsupported);
        if !unsupported.is_empty() {
            let uses = if unsupported.len() == 1 { "uses" } else { "use" };
            let _ = write!(text, "; {} {uses} what is not supported yet", objects(&unsupported));
        }
        let dead = self.checked.findings.iter().filter(|finding| finding.code == "WebhookLeftBehind").count();
        if dead > 0 {
            let _ = write!(text, "; {dead} webhook{} of a removed KAI must go", plural(dead));
        }
        text.push('.');
        text
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// How many objects are spoken of.
fn objects(findings: &[&Finding]) -> String {
    let names: std::collections::BTreeSet<(&str, &str)> = findings.iter().map(|finding| (finding.namespace.as_str(), finding.object.as_str())).collect();
    format!("{} object{}", names.len(), plural(names.len()))
}

/// For people.
#[must_use]
pub fn table(report: &Report<'_>) -> String {
    let mut page = hanging(&report.sentence(), "", "  ");
    if !report.checked.missing.is_empty() {
        page.push_str(&hanging(&format!("Not looked at, because it could not be read: {}.", report.checked.missing.join("; ")), "", "  "));
    }
    waiting(report, &mut page);
    domains(report, &mut page);
    running(report, &mut page);
    grouped(&report.of(Part::Difference), "What behaves differently (docs/compat.md)", &mut page);
    grouped(&report.of(Part::Unsupported), "Not supported yet", &mut page);
    settings(report, &mut page);
    requests(report, &mut page);
    grouped(&report.of(Part::Leftover), "What there is of KAI besides", &mut page);
    everywhere(&mut page);
    let mistakes: Vec<Finding> = report.of(Part::Mistake).into_iter().cloned().collect();
    if !mistakes.is_empty() {
        page.push_str("\nMistakes, whoever schedules\n");
        page.push_str(&findings::list(&mistakes).replacen('\n', "", 1));
    }
    page
}

fn heading(text: &str, page: &mut String) {
    let _ = writeln!(page, "\n{text}");
}

fn waiting(report: &Report<'_>, page: &mut String) {
    let waiting = &report.forecast.waiting;
    if waiting.is_empty() {
        return;
    }
    heading("Gangs that wait", page);
    for (starts, word) in [(true, "starts"), (false, "waits ")] {
        let listed: Vec<_> = waiting.iter().filter(|waiting| waiting.starts == starts).collect();
        for waiting in listed.iter().take(MAX_LISTED) {
            let gang = &waiting.gang;
            let head = format!("{word}  {}  queue {}, {} of {} pods", title(gang), gang.queue, gang.bound, gang.pods);
            page.push_str(&hanging(&head, "  ", "          "));
            if let Some(reason) = gang.reasons.first() {
                page.push_str(&hanging(&format!("{}: {}", reason.code_name(), explain::sentence(reason)), "          ", "          "));
            }
        }
        more(listed.len(), page);
    }
    if !report.forecast.evicted.is_empty() {
        let pods: usize = report.forecast.evicted.values().sum();
        let gangs: Vec<&str> = report.forecast.evicted.keys().map(String::as_str).collect();
        let named = berth_discovery::names::listed(gangs.iter().copied(), MAX_NAMED);
        page.push_str(&hanging(&format!("For them {pods} pod{} would be evicted, of {named}.", plural(pods)), "  ", "    "));
    }
}

fn more(count: usize, page: &mut String) {
    if count > MAX_LISTED {
        let _ = writeln!(page, "  and {} more; -o json lists all", count - MAX_LISTED);
    }
}

/// A name that fits its column.
fn cut(name: &str, width: usize) -> String {
    if name.chars().count() <= width { name.to_owned() } else { name.chars().take(width - 1).chain(['…']).collect() }
}

fn domains(report: &Report<'_>, page: &mut String) {
    if report.forecast.levels.is_empty() {
        return;
    }
    heading("Domains that are whole (nothing of ours in use in them)", page);
    let _ = writeln!(page, "  {:<NAME$} {:>7} {:>7} {:>8} {:>8}", "LEVEL", "DOMAINS", "NOW", "THEN", "ANEW");
    let mut before = "";
    for level in &report.forecast.levels {
        if level.topology != before {
            let _ = writeln!(page, "  {}", cut(&level.topology, NAME));
            before = &level.topology;
        }
        let _ = writeln!(page, "  {:<NAME$} {:>7} {:>7} {:>8} {:>8}", cut(&format!("  {}", level.label), NAME), level.domains, level.now, level.then, level.anew);
    }
    page.push_str(&hanging("THEN: when Berth has placed what waits. ANEW: if it had placed what runs.", "  ", "  "));
}

fn running(report: &Report<'_>, page: &mut String) {
    // The narrowest level is the node itself in most topologies; what differs anywhere is worth a line.
    let differs = |running: &&Running| running.levels.iter().any(|(_, now, anew)| anew.is_none_or(|anew| anew != *now));
    let all = &report.forecast.running;
    let listed: Vec<&Running> = all.iter().filter(differs).collect();
    if all.is_empty() {
        return;
    }
    heading("Gangs that run, and the domains they use", page);
    let same = all.len() - listed.len();
    if same > 0 {
        page.push_str(&hanging(&format!("{same} would use as many if Berth had placed them."), "  ", "  "));
    }
    for running in listed.iter().take(MAX_LISTED) {
        let counts: Vec<String> = running
            .levels
            .iter()
            .map(|(label, now, anew)| {
                let anew = anew.map_or_else(|| "no place".to_owned(), |anew| anew.to_string());
                let level = label.rsplit('/').next().unwrap_or_default();
                if anew == now.to_string() { format!("{level} {now}") } else { format!("{level} {now}, anew {anew}") }
            })
            .collect();
        page.push_str(&hanging(&format!("{}: {}", title(&running.gang), counts.join("; ")), "  ", "    "));
    }
    more(listed.len(), page);
}

/// Findings by what they say, with the objects that they concern.
fn grouped(found: &[&Finding], name: &str, page: &mut String) {
    if found.is_empty() {
        return;
    }
    heading(name, page);
    let mut by_message: BTreeMap<(&str, &str), Vec<&Finding>> = BTreeMap::new();
    for finding in found {
        by_message.entry((finding.code, &finding.message)).or_default().push(finding);
    }
    for ((code, message), of) in by_message {
        let names = of.iter().take(MAX_NAMED).map(|finding| short(&finding.object));
        let names: Vec<String> = names.collect();
        let rest = of.len().saturating_sub(MAX_NAMED);
        let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        page.push_str(&hanging(&format!("{code}: {}{rest}", names.join(", ")), "  ", "    "));
        let field = of.first().map_or("", |finding| finding.field.as_str());
        page.push_str(&hanging(&if field.is_empty() { message.to_owned() } else { format!("{field}: {message}") }, "    ", "    "));
    }
}

/// An object without its API version: `Job a/train`.
fn short(object: &str) -> String {
    match object.split_once(' ') {
        Some((version, name)) => format!("{} {name}", version.rsplit('/').next().unwrap_or_default()),
        None => object.to_owned(),
    }
}

fn settings(report: &Report<'_>, page: &mut String) {
    if report.settings.is_empty() {
        return;
    }
    heading("Settings of KAI, and what does the same", page);
    let mut before = "";
    for setting in &report.settings {
        if setting.object != before {
            page.push_str(&hanging(&setting.object, "  ", "    "));
            before = &setting.object;
        }
        let becomes = match &setting.becomes {
            Becomes::Flags(flags) => flags.join(" "),
            Becomes::Default => "so it is without a flag".to_owned(),
            Becomes::Nothing(why) => format!("not used: {why}"),
        };
        page.push_str(&hanging(&format!("{}: {}  →  {becomes}", setting.field, cut(&setting.value, NAME)), "    ", "      "));
    }
    for (object, arguments) in commands(report) {
        let line = format!("berth run {}", arguments.join(" "));
        page.push_str(&hanging(&format!("{object}: {}", line.trim_end()), "  ", "    "));
    }
}

/// The command for each scheduler that is set up.
fn commands(report: &Report<'_>) -> Vec<(String, Vec<String>)> {
    let mut objects: Vec<&str> = report.settings.iter().map(|setting| setting.object.as_str()).collect();
    objects.dedup();
    let is_shard = |object: &&str| object.starts_with("SchedulingShard ");
    let shards: Vec<&str> = objects.iter().copied().filter(is_shard).collect();
    if shards.is_empty() {
        let mut arguments: Vec<String> = Vec::new();
        for argument in objects.iter().flat_map(|object| command(&report.settings, object)) {
            if !arguments.contains(&argument) {
                arguments.push(argument);
            }
        }
        return vec![("the same".to_owned(), arguments)];
    }
    shards.into_iter().map(|object| (object.to_owned(), command(&report.settings, object))).collect()
}

fn requests(report: &Report<'_>, page: &mut String) {
    let open = &report.requests;
    if open.is_empty() {
        return;
    }
    heading("Bindings that KAI has under way", page);
    let sentence = format!("{} BindRequest{} open: let KAI's binder end them before Berth takes over the name.", open.len(), if open.len() == 1 { " is" } else { "s are" });
    page.push_str(&hanging(&sentence, "  ", "  "));
    for request in open.iter().take(MAX_LISTED) {
        page.push_str(&hanging(&format!("{}/{}: pod {} to {}", request.namespace, request.name, request.pod, request.node), "  ", "    "));
    }
    more(open.len(), page);
}

fn everywhere(page: &mut String) {
    heading("What differs for everything", page);
    for (code, sentence) in EVERYWHERE {
        page.push_str(&hanging(&format!("{code}: {sentence}"), "  ", "    "));
    }
}

fn finding_json(finding: &&Finding) -> Value {
    findings::entry(finding)
}

/// For scripts.
#[must_use]
pub fn document(report: &Report<'_>) -> Value {
    let forecast = &report.forecast;
    let of = |wanted: Part| report.of(wanted).iter().map(finding_json).collect::<Vec<_>>();
    let waiting = |waiting: &crate::simulate::forecast::Waiting| {
        let mut value = gang_json(&waiting.gang);
        value["starts"] = json!(waiting.starts);
        value
    };
    let running = |running: &Running| {
        let levels = running.levels.iter().map(|(label, now, anew)| json!({"level": label, "now": now, "anew": anew}));
        json!({
            "namespace": running.gang.key.namespace, "name": running.gang.key.name, "owner": running.gang.owner, "topology": running.topology,
            "levels": levels.collect::<Vec<_>>(),
        })
    };
    let setting = |setting: &Setting| {
        let (becomes, flags, why) = match &setting.becomes {
            Becomes::Flags(flags) => ("Flags", json!(flags), Value::Null),
            Becomes::Default => ("Default", json!([]), Value::Null),
            Becomes::Nothing(why) => ("NotUsed", json!([]), json!(why)),
        };
        json!({"object": setting.object, "field": setting.field, "value": setting.value, "becomes": becomes, "flags": flags, "why": why})
    };
    let level = |level: &crate::simulate::forecast::Level| {
        json!({"topology": level.topology, "level": level.label, "domains": level.domains, "now": level.now, "then": level.then, "anew": level.anew})
    };
    let (differences, unsupported) = (of(Part::Difference), of(Part::Unsupported));
    json!({
        "apiVersion": "berth.scheduler/v1alpha1", "kind": "MigrationReport", "from": "kai", "scheduler": report.scheduler,
        "waiting": forecast.waiting.iter().map(waiting).collect::<Vec<_>>(),
        "evicted": forecast.evicted,
        "running": forecast.running.iter().map(running).collect::<Vec<_>>(),
        "wholeDomains": forecast.levels.iter().map(level).collect::<Vec<_>>(),
        "everywhere": EVERYWHERE.iter().map(|(code, message)| json!({"code": code, "message": message})).collect::<Vec<_>>(),
        "settings": report.settings.iter().map(setting).collect::<Vec<_>>(),
        "commands": commands(report).into_iter().filter(|_| !report.settings.is_empty()).map(|(object, arguments)| json!({"for": object, "arguments": arguments})).collect::<Vec<_>>(),
        "bindRequests": report.requests.iter().map(|request| json!({"namespace": request.namespace, "name": request.name, "pod": request.pod, "node": request.node})).collect::<Vec<_>>(),
        "leftovers": of(Part::Leftover),
        "findings": of(Part::Mistake),
        "missing": report.checked.missing,
        "summary": {
            "objects": report.checked.objects, "waiting": forecast.waiting.len(), "starting": report.starting(),
            "differences": differences.len(), "unsupported": unsupported.len(), "bindRequests": report.requests.len(),
            "errors": report.checked.count(Severity::Error), "warnings": report.checked.count(Severity::Warning), "homeless": forecast.homeless,
        },
        "differences": differences,
        "unsupported": unsupported,
    })
}
