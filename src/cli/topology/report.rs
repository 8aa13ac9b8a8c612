//! What `berth topology run` says of itself: a ConfigMap with how things stand, Events on the Topology, metrics.
//!
//! Each is written when there is something new to say: the ConfigMap when its text changes, an Event for what was done, and
//! for what is wrong once, then once an hour (as long as Events are kept) while it lasts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use berth_discovery::names::listed;
use berth_discovery::{Fabric, record};
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{info, warn};

use super::apply::{Done, Standing};
use super::drift;
use crate::grouping::expand::short_hash;
use crate::telemetry::Look;

/// The ConfigMap, and who writes it.
pub(super) const NAME: &str = "berth-topology";

/// What is wrong and lasts is told again after this time: the API server keeps Events for an hour.
const TELL_AGAIN: Duration = Duration::from_secs(3_600);

/// Nodes listed one by one in the ConfigMap.
const MOST_NODES: usize = 200;

/// Bytes of the record of the discovery that the ConfigMap, which holds 1 MiB, has room for.
const MOST_RECORD: usize = 600_000;

/// Who made the last change, and what it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Written {
    at: String,
    nodes: u64,
}

/// Something to tell about the Topology.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    is_warning: bool,
    reason: &'static str,
    text: String,
}

/// Says how things stand.
pub(super) struct Reporter {
    client: kube::Client,
    /// Namespace of the ConfigMap, if there is to be one.
    namespace: Option<String>,
    /// Name of the Topology, and its UID as far as it is known.
    topology: (String, String),
    /// The data of the ConfigMap as last written.
    map: BTreeMap<String, String>,
    last: Option<Written>,
    /// Warnings that stand: when they were told.
    standing: BTreeMap<(&'static str, String), Instant>,
    /// How often an Event was told.
    events: BTreeMap<String, u32>,
}

impl Reporter {
    /// One for the Topology of this name.
    pub(super) fn new(client: kube::Client, namespace: Option<&str>, topology: &str) -> Self {
        Self {
            client,
            namespace: namespace.map(ToOwned::to_owned),
            topology: (topology.to_owned(), String::new()),
            map: BTreeMap::new(),
            last: None,
            standing: BTreeMap::new(),
            events: BTreeMap::new(),
        }
    }

    fn maps(&self) -> Option<Api<ConfigMap>> {
        self.namespace.as_ref().map(|namespace| Api::namespaced(self.client.clone(), namespace))
    }

    /// Takes over what an earlier process wrote, so that nothing is told twice and the last change is not forgotten.
    pub(super) async fn begin(&mut self) {
        let Some(api) = self.maps() else { return };
        match api.get_opt(NAME).await {
            Ok(map) => self.map = map.and_then(|map| map.data).unwrap_or_default(),
            Err(error) => warn!(%error, "the status of an earlier process can't be read"),
        }
        let status: Value = self.map.get("status.json").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let at = status["lastWritten"]["at"].as_str();
        self.last = at.map(|at| Written { at: at.to_owned(), nodes: status["lastWritten"]["nodes"].as_u64().unwrap_or_default() });
    }

    /// A look ended well, or as well as it could.
    pub(super) async fn looked(&mut self, done: &Done) {
        info!(nodes = done.nodes, labelled = done.labelled().count(), failed = done.failed.len(), whole = done.is_whole(), "topology looked at");
        if !done.is_whole() {
            warn!(text = done.text(), "not all is as it should be");
        }
        if done.dry_run {
            info!(text = done.text(), "nothing is written");
            return;
        }
        let made = matches!(done.topology, Standing::AsItShouldBe { made: true, .. });
        let labelled = done.labelled().count();
        if made || labelled > 0 {
            self.last = Some(Written { at: now(), nodes: labelled as u64 });
        }
        if let Standing::AsItShouldBe { uid, .. } | Standing::OtherLevels { uid, .. } = &done.topology {
            self.topology.1.clone_from(uid);
        }
        self.write(status_of(done, self.last.as_ref())).await;
        self.tell(notes(done)).await;
    }

    /// A source can't be read. What was last discovered stays known.
    pub(super) async fn failed(&mut self, error: &str) {
        warn!(error, "topology can't be made");
        let mut map = self.map.clone();
        map.insert("status".into(), format!("The fabric can't be read: {error}\nLabels are as they were left.\n{}", last_line(self.last.as_ref())));
        map.insert("status.json".into(), pretty(&json!({ "error": error, "lastWritten": last_json(self.last.as_ref()) })));
        self.write(map).await;
        self.tell(vec![Note { is_warning: true, reason: "DiscoveryFailed", text: error.to_owned() }]).await;
    }

    async fn write(&mut self, map: BTreeMap<String, String>) {
        let Some(api) = self.maps().filter(|_| map != self.map) else { return };
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": NAME }, "data": map });
        match api.patch(NAME, &PatchParams::apply(NAME).force(), &Patch::Apply(&object)).await {
            Ok(_) => self.map = map,
            Err(error) => warn!(%error, "the status can't be written"),
        }
    }

    async fn tell(&mut self, notes: Vec<Note>) {
        if self.topology.1.is_empty() {
            return;
        }
        let stands: BTreeMap<(&str, &str), ()> = notes.iter().filter(|note| note.is_warning).map(|note| ((note.reason, note.text.as_str()), ())).collect();
        self.standing.retain(|(reason, text), _| stands.contains_key(&(*reason, text.as_str())));
        for note in notes {
            let key = (note.reason, note.text.clone());
            let is_told = |at: &Instant| at.elapsed() < TELL_AGAIN;
            if note.is_warning && self.standing.get(&key).is_some_and(is_told) {
                continue;
            }
            match self.event(&note).await {
                Ok(()) if note.is_warning => _ = self.standing.insert(key, Instant::now()),
                Ok(()) => {}
                Err(error) => warn!(%error, reason = note.reason, "an event can't be written"),
            }
        }
    }

    /// One Event per text, counted: also after a restart, since the text is in its name.
    async fn event(&mut self, note: &Note) -> Result<(), kube::Error> {
        let (topology, uid) = &self.topology;
        let name = format!("{}.{}", topology.chars().take(200).collect::<String>(), short_hash(&format!("{uid}/{}/{}", note.reason, note.text)));
        if self.events.len() >= 10_000 {
            self.events.clear();
        }
        let count = self.events.entry(name.clone()).or_default();
        *count = count.saturating_add(1);
        let at = Time(Timestamp::now());
        // Events of objects without a namespace are kept in this one.
        let api: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let event = json!({
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "name": topology, "uid": uid},
            "reason": note.reason, "message": note.text, "type": if note.is_warning { "Warning" } else { "Normal" },
            "count": *count, "firstTimestamp": at, "lastTimestamp": at,
            "source": {"component": NAME}, "reportingComponent": NAME, "reportingInstance": "",
        });
        let event: Event = serde_json::from_value(event).map_err(kube::Error::SerdeError)?;
        match api.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let again = json!({"count": (*count).max(2), "lastTimestamp": at});
                api.patch(&name, &PatchParams::default(), &Patch::Merge(&again)).await.map(|_| ())
            }
            result => result.map(|_| ()),
        }
    }
}

fn now() -> String {
    // Seconds are enough for people.
    let seconds = Timestamp::now().as_second();
    Timestamp::from_second(seconds).map_or_else(|_| String::new(), |at| at.to_string())
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn last_line(last: Option<&Written>) -> String {
    last.map_or_else(String::new, |last| format!("Last written at {}: labels of {} nodes.\n", last.at, last.nodes))
}

fn last_json(last: Option<&Written>) -> Value {
    last.map_or(Value::Null, |last| json!({ "at": last.at, "nodes": last.nodes }))
}

fn kinds(fabric: &Fabric) -> BTreeMap<&'static str, usize> {
    let mut kinds = BTreeMap::new();
    fabric.findings.iter().for_each(|finding| *kinds.entry(finding.kind).or_default() += 1);
    kinds
}

/// Domains with nodes, by tier and of accelerators.
fn domains(fabric: &Fabric) -> Vec<(String, usize)> {
    let mut domains: Vec<(String, usize)> = (0..fabric.depth).map(|tier| (tier.to_string(), fabric.domains(tier).len())).collect();
    let accelerators = fabric.accelerators().len();
    if accelerators > 0 {
        domains.push(("accelerator".to_owned(), accelerators));
    }
    domains
}

/// What the metrics say of a look.
pub(super) fn look(done: &Done) -> Look {
    Look {
        same: done.nodes.saturating_sub(done.failed.len() + done.drift.outside.len()),
        failed: done.failed.len(),
        outside: done.drift.outside.len(),
        missed: done.drift.missed().count(),
        labelled: done.labelled().count(),
        topology: matches!(done.topology, Standing::AsItShouldBe { .. } | Standing::NotAsked),
        domains: domains(&done.fabric),
        findings: kinds(&done.fabric).into_iter().collect(),
    }
}

/// The data of the ConfigMap: for people, for programs, and the discovery itself, with which labels can be compared later.
fn status_of(done: &Done, last: Option<&Written>) -> BTreeMap<String, String> {
    let mut text = done.text() + &last_line(last);
    let tiers = domains(&done.fabric);
    for (tier, n) in &tiers {
        let _ = if tier == "accelerator" { writeln!(text, "{n} accelerator domains.") } else { writeln!(text, "Tier {tier}: {n} domains.") };
    }
    let outside = &done.drift.outside;
    if !outside.is_empty() {
        text += "\nNodes that get no label:\n";
    }
    for (node, outside) in outside.iter().take(MOST_NODES) {
        let bears = if outside.bears.is_empty() { "" } else { "; it keeps the labels that it has" };
        let _ = writeln!(text, "  {node} {}{bears}", outside.why);
    }
    if outside.len() > MOST_NODES {
        let _ = writeln!(text, "  and {} more", outside.len() - MOST_NODES);
    }
    let kinds = kinds(&done.fabric);
    if !kinds.is_empty() {
        text += "\nFindings (`berth topology discover --to findings` lists them):\n";
    }
    for (kind, n) in &kinds {
        let _ = writeln!(text, "  {kind}: {n}");
    }
    let differs: BTreeMap<&String, String> = done.failed.keys().take(MOST_NODES).map(|node| (node, done.drift.line(node))).collect();
    let errors: BTreeMap<&String, &String> = done.failed.iter().take(MOST_NODES).collect();
    let unlabelled: BTreeMap<&String, Value> = outside.iter().take(MOST_NODES).map(|(node, outside)| (node, drift::outside(outside))).collect();
    let (state, wanted) = match &done.topology {
        Standing::NotAsked => ("NotAsked", None),
        Standing::AsItShouldBe { .. } => ("AsItShouldBe", None),
        Standing::WouldBeMade => ("WouldBeMade", None),
        Standing::OtherLevels { wanted, .. } => ("OtherLevels", Some(wanted)),
        Standing::NoTier => ("NoTier", None),
        Standing::Failed(_) => ("Failed", None),
    };
    let status = json!({
        "nodes": { "seen": done.nodes, "inFabric": done.fabric.hosts.len(), "outside": outside.len(), "outsideWithAccelerators": done.drift.missed().count() },
        "domains": tiers.into_iter().collect::<BTreeMap<_, _>>(),
        "differs": differs, "errors": errors, "unlabelled": unlabelled, "findings": kinds,
        "topology": { "name": done.name, "state": state, "wantedLevels": wanted },
        "lastWritten": last_json(last),
    });
    let mut map = BTreeMap::from([("status.json".to_owned(), pretty(&status))]);
    let discovery = record::write(&done.fabric, done.keys).to_string();
    if discovery.len() <= MOST_RECORD {
        map.insert("discovery.json".to_owned(), discovery);
    } else {
        let _ = writeln!(text, "\nThe discovery is not kept here: {} bytes, and there is room for {MOST_RECORD}.", discovery.len());
    }
    map.insert("status".to_owned(), text);
    map
}

/// What is worth an Event.
fn notes(done: &Done) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut note = |is_warning, reason, text| notes.push(Note { is_warning, reason, text });
    if matches!(done.topology, Standing::AsItShouldBe { made: true, .. }) {
        note(false, "TopologyMade", "made with the levels that the fabric supports".to_owned());
    }
    let labelled = done.labelled();
    if labelled.clone().next().is_some() {
        note(false, "NodesLabelled", format!("labelled as in the fabric: {}", listed(labelled, 5)));
    }
    if let Some((key, topology)) = done.in_use.first_key_value() {
        note(true, "OldKeysInUse", format!("{} keys of older generations are kept, since Topologies have them as levels: {key} of {topology}", done.in_use.len()));
    }
    if let Some(error) = &done.unclean {
        note(true, "OldKeysKept", format!("keys of older generations are kept: {error}"));
    }
    if let Some((node, error)) = done.failed.first_key_value() {
        note(true, "NodesNotLabelled", format!("{} nodes could not be labelled: {}; {node}: {error}", done.failed.len(), listed(done.failed.keys().map(String::as_str), 5)));
    }
    if done.drift.missed().next().is_some() {
        let n = done.drift.missed().count();
        note(true, "NodesOutside", format!("{n} nodes with accelerators are not in the fabric and get no label: {}", listed(done.drift.missed(), 5)));
    }
    if let Standing::OtherLevels { has, wanted, .. } = &done.topology {
        let text = format!(
            "has the levels {}, and the fabric says {}: levels can't be changed. Make a new one with --name, move the workloads to it, then delete this one",
            has.join(" > "),
            wanted.join(" > ")
        );
        note(true, "LevelsDiffer", text);
    }
    // The API takes 1 KiB.
    notes.iter_mut().filter(|note| note.text.len() > 1_000).for_each(|note| note.text = note.text.chars().take(250).collect::<String>() + " ...");
    notes
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use berth_discovery::out::labels::Keys;
    use berth_discovery::sources::slurm;
    use berth_discovery::{Node, drift};

    use super::*;
    use crate::fake_api::{FakeApi, failure};

    fn nodes() -> Vec<Node> {
        ["n1", "n2", "n3", "n9"].map(|name| Node { name: name.into(), accelerated: true, ..Node::default() }).to_vec()
    }

    fn done(labelled: bool, topology: Standing) -> Done {
        let nodes = nodes();
        let fabric = slurm::read("SwitchName=s Switches=l[1-2]\nSwitchName=l1 Nodes=n[1-2]\nSwitchName=l2 Nodes=n3\n").expect("a tree").for_nodes(&nodes);
        let mut drift = drift(&fabric, Keys::Current, &nodes);
        if !labelled {
            drift.differs.clear();
            drift.same = 3;
        }
        let changes = drift.patches();
        Done { fabric, keys: Keys::Current, nodes: 4, drift, changes, in_use: BTreeMap::new(), unclean: None, failed: BTreeMap::new(), dry_run: false, name: "net".into(), topology }
    }

    fn as_it_should_be(made: bool) -> Standing {
        Standing::AsItShouldBe { uid: "u".into(), made }
    }

    /// A server that keeps the ConfigMap, and refuses Events that it has.
    async fn server() -> FakeApi {
        let kept: Mutex<(Option<Value>, Vec<Value>)> = Mutex::default();
        FakeApi::start(move |asked| {
            let mut kept = kept.lock().expect("no test panics while it holds this");
            match (asked.method.as_str(), asked.path.as_str()) {
                ("GET", "/api/v1/namespaces/ns/configmaps/berth-topology") => kept.0.clone().map_or_else(|| failure(404, "none"), |map| (200, map)),
                ("PATCH", "/api/v1/namespaces/ns/configmaps/berth-topology") => {
                    kept.0 = Some(asked.body.clone());
                    (200, asked.body.clone())
                }
                ("POST", "/api/v1/namespaces/default/events") if kept.1.contains(&asked.body["metadata"]["name"]) => failure(409, "exists"),
                ("POST", "/api/v1/namespaces/default/events") => {
                    kept.1.push(asked.body["metadata"]["name"].clone());
                    (201, asked.body.clone())
                }
                ("PATCH", path) if path.starts_with("/api/v1/namespaces/default/events/") => (200, asked.body.clone()),
                _ => failure(400, "not asked for by a reporter"),
            }
        })
        .await
    }

    /// Reasons of Events made so far, and how often the ConfigMap was written.
    fn told(api: &FakeApi) -> (Vec<String>, usize) {
        let asked = api.asked();
        let events = asked.iter().filter(|asked| asked.method == "POST").map(|asked| asked.body["reason"].as_str().unwrap_or_default().to_owned());
        (events.collect(), asked.iter().filter(|asked| asked.method == "PATCH" && asked.path.contains("/configmaps/")).count())
    }

    #[tokio::test]
    async fn what_is_done_is_told_each_time_and_what_stands_once() {
        let api = server().await;
        let mut reporter = Reporter::new(api.client.clone(), Some("ns"), "net");
        reporter.begin().await;
        reporter.looked(&done(true, as_it_should_be(true))).await;
        assert_eq!(told(&api), (vec!["TopologyMade".to_owned(), "NodesLabelled".to_owned(), "NodesOutside".to_owned()], 1));
        for _ in 0..3 {
            reporter.looked(&done(false, as_it_should_be(false))).await;
        }
        assert_eq!((told(&api).0.len(), told(&api).1), (3, 1), "nothing new, nothing told");
        // The same nodes are labelled again: the Event that is there is counted up.
        reporter.looked(&done(true, as_it_should_be(false))).await;
        let asked = api.asked();
        let again = asked.iter().find(|asked| asked.method == "PATCH" && asked.path.contains("/events/")).expect("counted");
        assert_eq!(again.body["count"], 2);
        // A warning that went away and comes back is told again.
        let mut well = done(false, as_it_should_be(false));
        well.drift.outside.clear();
        reporter.looked(&well).await;
        reporter.looked(&done(false, as_it_should_be(false))).await;
        assert_eq!(told(&api).0.iter().filter(|reason| *reason == "NodesOutside").count(), 2);
        let event = &api.asked().iter().find(|asked| asked.body["reason"] == "NodesOutside").expect("told").body.clone();
        assert_eq!((&event["involvedObject"]["name"], &event["type"]), (&json!("net"), &json!("Warning")));
        assert_eq!(event["message"], "1 nodes with accelerators are not in the fabric and get no label: n9");
    }

    #[tokio::test]
    async fn the_status_says_how_things_stand_and_a_restart_writes_nothing() {
        let api = server().await;
        let mut reporter = Reporter::new(api.client.clone(), Some("ns"), "net");
        reporter.looked(&done(true, as_it_should_be(true))).await;
        let map = reporter.map.clone();
        for wanted in ["3 of 4 nodes are in the fabric; 1 with accelerators", "Topology net is as it should be.", "Tier 0: 2 domains.", "Last written at 2", "  n9 was not found in the fabric\n"] {
            assert!(map["status"].contains(wanted), "no {wanted:?} in {}", map["status"]);
        }
        let status: Value = serde_json::from_str(&map["status.json"]).expect("JSON");
        assert_eq!((&status["lastWritten"]["nodes"], &status["domains"]["1"], &status["unlabelled"]["n9"]["accelerated"]), (&json!(3), &json!(1), &json!(true)));
        let (kept, keys) = record::read(&map["discovery.json"]).expect("a record");
        assert_eq!((kept.hosts, keys), (done(true, as_it_should_be(true)).fabric.hosts, Keys::Current));

        let mut next = Reporter::new(api.client.clone(), Some("ns"), "net");
        next.begin().await;
        next.looked(&done(false, as_it_should_be(false))).await;
        assert_eq!(told(&api).1, 1, "the new process finds its own words there");
        // A source that can't be read leaves the discovery and the last change where they are.
        next.failed("dump.txt: ibnetdiscover: input: empty").await;
        assert_eq!(next.map["discovery.json"], map["discovery.json"]);
        assert!(next.map["status"].starts_with("The fabric can't be read: dump.txt") && next.map["status"].contains("Last written at 2"));
        assert_eq!(told(&api).0.last().map(String::as_str), Some("DiscoveryFailed"));
    }

    #[tokio::test]
    async fn a_dry_run_and_a_topology_that_is_not_there_write_nothing() {
        let api = server().await;
        let mut reporter = Reporter::new(api.client.clone(), Some("ns"), "net");
        reporter.looked(&Done { dry_run: true, ..done(true, Standing::WouldBeMade) }).await;
        assert!(api.asked().is_empty());
        reporter.looked(&done(false, Standing::NotAsked)).await;
        assert_eq!(told(&api), (Vec::new(), 1));
    }

    #[tokio::test]
    async fn what_is_wrong_is_named_with_what_to_do() {
        let other = Standing::OtherLevels { uid: "u".into(), has: vec!["rack".into()], wanted: vec!["a".into(), "b".into()] };
        let mut wrong = done(true, other);
        wrong.failed.insert("n2".into(), "x".repeat(3_000));
        let notes = notes(&wrong);
        let reasons: Vec<&str> = notes.iter().map(|note| note.reason).collect();
        assert_eq!(reasons, ["NodesLabelled", "NodesNotLabelled", "NodesOutside", "LevelsDiffer"]);
        assert_eq!(notes[0].text, "labelled as in the fabric: n1, n3");
        assert!(notes.iter().all(|note| note.text.len() <= 1_000));
        assert!(notes[3].text.contains("rack") && notes[3].text.contains("a > b") && notes[3].text.contains("--name"));
        let look = look(&wrong);
        assert_eq!((look.same, look.failed, look.outside, look.missed, look.labelled, look.topology), (2, 1, 1, 1, 2, false));
        assert_eq!(look.domains, [("0".to_owned(), 2), ("1".to_owned(), 1)]);
    }

    #[tokio::test]
    async fn a_server_that_refuses_everything_stops_nobody_and_is_asked_again() {
        let is_shut = Arc::new(Mutex::new(true));
        let shut = Arc::clone(&is_shut);
        let api = FakeApi::start(move |asked| if *shut.lock().expect("held shortly") { failure(403, "no") } else { (201, asked.body.clone()) }).await;
        let mut reporter = Reporter::new(api.client.clone(), Some("ns"), "net");
        reporter.begin().await;
        reporter.looked(&done(false, as_it_should_be(false))).await;
        *is_shut.lock().expect("held shortly") = false;
        reporter.looked(&done(false, as_it_should_be(false))).await;
        let (events, maps) = told(&api);
        assert_eq!((events.len(), maps), (2, 2), "refused once, then taken");
        reporter.looked(&done(false, as_it_should_be(false))).await;
        assert_eq!(told(&api).1, 2);
    }
}
