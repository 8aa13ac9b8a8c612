//! What is answered, made from one copy of the model.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use berth_engine::outcome::GangReport;
use berth_engine::remedy::{self, Remedies};
use berth_engine::schedule::line;
use serde_json::{Value, json};

use super::mask::{Mask, Sees};
use super::refusal::Refusal;
use crate::cli::ask::is_plain;
use crate::cli::render::explanation::{self, Explained, Explanation};
use crate::cli::render::queues::{self, View};
use crate::cli::render::view;
use crate::clock::now_millis;
use crate::moment::is_meant;
use crate::scheduler::sight::Sight;

/// Gangs of one workload that are looked into; the others are reported with their reasons alone.
const MAX_DETAILED: usize = 8;

/// Explanations that are kept for one copy.
const MAX_KNOWN: usize = 256;

/// Documents of the page that are kept for one copy: a few megabytes each in a large cluster.
const MAX_PAGES: usize = 8;

/// Longest name of Kubernetes.
const MAX_NAME: usize = 253;

/// Explanations by gang and trials, of the copy of this number.
#[derive(Debug, Default)]
pub(super) struct Known {
    number: u64,
    explained: BTreeMap<(String, u32), Arc<Explained>>,
    /// Documents of the page, by what may be seen.
    pages: BTreeMap<Sees, Arc<str>>,
}

/// What is to be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) namespace: String,
    /// In small letters.
    pub(super) kind: String,
    pub(super) name: String,
    trials: u32,
    with_table: bool,
}

/// Which part of the line is to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WantedQueue {
    pub(super) namespace: Option<String>,
    with_table: bool,
}

fn is_name(text: &str) -> bool {
    is_plain(text) && text.len() <= MAX_NAME
}

/// Refuses parameters that mean nothing here.
fn known_only(query: &BTreeMap<String, String>, known: &[&str]) -> Result<(), Refusal> {
    let unknown = query.keys().find(|key| !known.contains(&key.as_str()));
    // What was sent is not repeated.
    unknown.map_or(Ok(()), |_| Err(Refusal::bad(&format!("a parameter is unknown; parameters: {}", known.join(", ")))))
}

fn with_table(query: &BTreeMap<String, String>) -> Result<bool, Refusal> {
    match query.get("output").map(String::as_str) {
        None | Some("json") => Ok(false),
        Some("table") => Ok(true),
        Some(_) => Err(Refusal::bad("output: allowed are json, and table, which adds the text for people")),
    }
}

impl Wanted {
    pub(super) fn new(namespace: &str, kind: &str, name: &str, query: &BTreeMap<String, String>) -> Result<Self, Refusal> {
        known_only(query, &["trials", "output"])?;
        if ![namespace, kind, name].into_iter().all(is_name) {
            return Err(Refusal::bad("what to explain is written /v1/explain/NAMESPACE/KIND/NAME, in names of Kubernetes"));
        }
        let wrong = || Refusal::bad(&format!("trials: allowed are 0 to {}", remedy::DEFAULT_TRIALS));
        let trials = query.get("trials").map_or(Ok(remedy::DEFAULT_TRIALS), |text| text.parse().map_err(|_| wrong()))?;
        if trials > remedy::DEFAULT_TRIALS {
            return Err(wrong());
        }
        Ok(Self { namespace: namespace.to_owned(), kind: kind.to_lowercase(), name: name.to_owned(), trials, with_table: with_table(query)? })
    }
}

impl WantedQueue {
    /// For the line, and for the page, which has no table.
    pub(super) fn new(query: &BTreeMap<String, String>, known: &[&str]) -> Result<Self, Refusal> {
        known_only(query, known)?;
        let namespace = query.get("namespace").cloned();
        if namespace.as_ref().is_some_and(|name| !is_name(name)) {
            return Err(Refusal::bad("namespace: allowed is the name of one; left out, all are shown"));
        }
        Ok(Self { namespace, with_table: with_table(query)? })
    }
}

/// Why something waits and what would help: the document of `berth explain -o json`, without what they may not see.
pub(super) fn explanation(sight: &Sight, known: &Mutex<Known>, wanted: &Wanted, sees: &Sees) -> Result<Value, Refusal> {
    let moment = sight.moment();
    let world = moment.world;
    let meant: Vec<GangReport> =
        world.gang_reports().into_iter().filter(|gang| is_meant(world, gang, &wanted.namespace, &wanted.kind, &wanted.name)).collect();
    if meant.is_empty() {
        let Wanted { namespace, kind, name, .. } = wanted;
        return Err(Refusal::not_found(&format!("no gang of {kind}/{name} in namespace {namespace}; pods of another schedulerName have none")));
    }
    let mut mask = Mask::new(world, sees);
    let explained = meant.iter().enumerate().map(|(at, gang)| {
        if at >= MAX_DETAILED {
            let remedies = Remedies { cut_short: true, ..Remedies::default() };
            return mask.explained(&Explained { gang: gang.clone(), remedies, rooms: Vec::new(), before: Vec::new() });
        }
        let key = (gang.uid.clone(), wanted.trials);
        let found = lookup(known, sight.number, &key).unwrap_or_else(|| {
            let found = Arc::new(Explained::of(&moment, gang, wanted.trials));
            remember(known, sight.number, key, &found);
            found
        });
        mask.explained(&found)
    });
    let explanation = Explanation { explained: explained.collect(), what_if: None };
    let mut value = explanation::json(&explanation);
    if wanted.with_table {
        value["table"] = json!(explanation::table(&explanation));
    }
    Ok(value)
}

fn lookup(known: &Mutex<Known>, number: u64, key: &(String, u32)) -> Option<Arc<Explained>> {
    let known = known.lock().unwrap_or_else(PoisonError::into_inner);
    known.explained.get(key).filter(|_| known.number == number).cloned()
}

fn remember(known: &Mutex<Known>, number: u64, key: (String, u32), explained: &Arc<Explained>) {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if known.number != number || known.explained.len() >= MAX_KNOWN {
        *known = Known { number, ..Known::default() };
    }
    known.explained.insert(key, Arc::clone(explained));
}

/// What the page shows, without what would help: it asks for that gang by gang.
pub(super) fn snapshot(sight: &Sight, known: &Mutex<Known>, sees: &Sees) -> Arc<str> {
    let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(page) = Some(lock()).filter(|known| known.number == sight.number).and_then(|known| known.pages.get(sees).cloned()) {
        return page;
    }
    let moment = sight.moment();
    let page: Arc<str> = view::document(&moment, "", &[], 0, &mut Mask::new(moment.world, sees)).to_string().into();
    let mut known = lock();
    if known.number != sight.number || known.pages.len() >= MAX_PAGES {
        *known = Known { number: sight.number, ..Known::default() };
    }
    known.pages.insert(sees.clone(), Arc::clone(&page));
    page
}

/// What waits in which order: the document of `berth queue -o json`.
pub(super) fn queue(sight: &Sight, wanted: &WantedQueue, sees: &Sees) -> Result<Value, Refusal> {
    let moment = sight.moment();
    let mut world = moment.world.fork();
    let line = line(&mut world, &moment.policy, moment.now);
    let mut view = View::of(&world, line, wanted.namespace.as_deref(), now_millis());
    let mut mask = Mask::new(moment.world, sees);
    view.change_gangs(|gang| mask.gang(gang));
    if let Some(queues) = mask.queues() {
        view.keep_queues(queues);
    }
    let mut value = queues::json(&view);
    if wanted.with_table {
        value["table"] = json!(view.table());
    }
    Ok(value)
}
