//! In the place of the binder when nothing may be written (`berth run --dry-run`): what would be bound or evicted is told, and
//! compared with what another scheduler makes of the same pods.
//!
//! A decision stands until its pods have nodes, or are gone: meanwhile the model counts them where Berth would have them, as if it
//! had bound them. Then they are where they are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_engine::facts::BindResult;
use berth_engine::outcome::{Decision, Victim};
use tokio::sync::mpsc;
use tracing::info;

use super::{Command, Ended, Told};
use crate::cluster::directory::{Directory, SharedDirectory};
use crate::telemetry::Metrics;

/// How often what became of the pods is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Domains used per level, widest first, nodes last: fewer at the first level that differs is better.
type Spread = Vec<(String, usize)>;

/// What became of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Berth would have used fewer domains.
    Better,
    /// As many at every level.
    Same,
    /// More.
    Worse,
    /// The pods went before anybody placed all of them.
    Gone,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Same => "same",
            Self::Worse => "worse",
            Self::Gone => "gone",
        }
    }
}

struct Waiting {
    decision: Decision,
    since: Instant,
}

/// See the module.
pub struct Shadow {
    results: mpsc::UnboundedSender<Told>,
    directory: SharedDirectory,
    metrics: Arc<Metrics>,
    waiting: Vec<Waiting>,
    counts: [u64; 4],
}

impl Shadow {
    /// Tells the engine through `results` what became of its decisions.
    #[must_use]
    pub fn new(results: mpsc::UnboundedSender<Told>, directory: SharedDirectory, metrics: Arc<Metrics>) -> Self {
        Self { results, directory, metrics, waiting: Vec::new(), counts: [0; 4] }
    }

    /// Works until `commands` closes; then says how it went, in one line. Always true: nothing was sent.
    pub async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) -> bool {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.take(command),
                    None => break,
                },
                _ = look.tick() => self.look(),
            }
        }
        self.look();
        let [better, same, worse, gone] = self.counts;
        info!(better, same, worse, gone, not_placed = self.waiting.len(), "dry run: gangs that Berth would have placed, against what became of them");
        true
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Bind { decision, .. } => {
                let (decision, since) = (*decision, Instant::now());
                let ours = planned(&decision, &self.directory.lock());
                info!(
                    gang = %decision.gang.name, namespace = %decision.gang.namespace, pods = decision.placements.len(), on = %shown(&ours),
                    "dry run: would be placed",
                );
                self.waiting.push(Waiting { decision, since });
            }
            Command::Evict(victims) | Command::MakeRoom(victims) => self.refuse(&victims),
        }
    }

    /// Nothing is evicted; the engine hears of a refusal, and tries again later as it would after one.
    fn refuse(&self, victims: &[Victim]) {
        for victim in victims {
            info!(pod = %victim.pod.name, namespace = %victim.pod.namespace, "dry run: would be evicted");
            let told = Told::Eviction { pod: victim.pod_uid.clone(), refused: Some("this is a dry run: nothing is evicted".to_owned()) };
            // A closed channel means that the process ends.
            let _closed = self.results.send(told).is_err();
        }
    }

    /// Compares the decisions whose pods all have a node by now, or are gone.
    fn look(&mut self) {
        let directory = self.directory.clone();
        let directory = directory.lock();
        let ended: Vec<Waiting> = self.waiting.extract_if(.., |one| has_ended(&one.decision, &directory)).collect();
        for one in ended {
            self.compare(&one, &directory);
        }
    }

    fn compare(&mut self, one: &Waiting, directory: &Directory) {
        let decision = &one.decision;
        let real: Vec<&str> = decision.placements.iter().filter_map(|placement| node_of(decision, &placement.pod_uid, directory)).collect();
        let ours = planned(decision, directory);
        let theirs = spread(decision, directory, real.iter().copied());
        let verdict = if real.len() < decision.placements.len() { Verdict::Gone } else { judge(&ours, &theirs) };
        self.counts[verdict as usize] += 1;
        self.metrics.shadow_gangs.with_label_values(&[verdict.name()]).inc();
        info!(
            gang = %decision.gang.name, namespace = %decision.gang.namespace, ours = %shown(&ours), theirs = %shown(&theirs),
            verdict = verdict.name(), seconds = one.since.elapsed().as_secs(), "dry run: what became of it",
        );
        for placement in &decision.placements {
            let ended = Ended { pod: placement.pod_uid.clone(), result: BindResult::Bound, stale: false, unprepared: false };
            // A closed channel means that the process ends.
            let _closed = self.results.send(Told::Binding(ended)).is_err();
        }
    }
}

/// The node that a pod of the decision has by now.
fn node_of<'a>(decision: &Decision, pod: &str, directory: &'a Directory) -> Option<&'a str> {
    directory.gang(&decision.gang_uid)?.members.get(pod)?.node.as_deref()
}

/// Whether each of its pods has a node, or is leaving or gone.
fn has_ended(decision: &Decision, directory: &Directory) -> bool {
    let Some(gang) = directory.gang(&decision.gang_uid) else { return true };
    let waits = |pod: &str| gang.members.get(pod).is_some_and(|member| member.node.is_none() && !member.leaving);
    !decision.placements.iter().any(|placement| waits(&placement.pod_uid))
}

/// Where Berth would have the decision's pods.
fn planned(decision: &Decision, directory: &Directory) -> Spread {
    spread(decision, directory, decision.placements.iter().map(|placement| placement.node.as_str()))
}

/// How many domains of each level these nodes are in, by the labels of the levels of the decision's topology.
fn spread<'a>(decision: &Decision, directory: &Directory, nodes: impl Iterator<Item = &'a str>) -> Spread {
    let nodes: BTreeSet<&str> = nodes.collect();
    let labels: Vec<&str> = decision.quality.levels.iter().map(|level| level.level.as_str()).collect();
    let mut spread = Vec::new();
    for (at, label) in labels.iter().enumerate() {
        // A domain is its whole path: racks of two blocks may bear one name.
        let path = |node: &&str| -> Vec<Option<&String>> {
            let found = directory.node(node);
            labels[..=at].iter().map(|label| found.and_then(|node| node.labels.get(*label))).collect()
        };
        let domains: BTreeSet<_> = nodes.iter().map(path).collect();
        spread.push(((*label).to_owned(), domains.len()));
    }
    spread.push(("node".to_owned(), nodes.len()));
    spread
}

fn judge(ours: &Spread, theirs: &Spread) -> Verdict {
    let counts = |spread: &Spread| spread.iter().map(|(_, count)| *count).collect::<Vec<usize>>();
    match counts(ours).cmp(&counts(theirs)) {
        std::cmp::Ordering::Less => Verdict::Better,
        std::cmp::Ordering::Equal => Verdict::Same,
        std::cmp::Ordering::Greater => Verdict::Worse,
    }
}

/// `rack 1, node 4`.
fn shown(spread: &Spread) -> String {
    let short = |label: &str| label.rsplit('/').next().unwrap_or(label).to_owned();
    spread.iter().map(|(label, count)| format!("{} {count}", short(label))).collect::<Vec<String>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    use berth_engine::facts::{NodeFacts, ObjectKey};
    use berth_engine::outcome::{LevelQuality, Placement, Quality};
    use crate::cluster::directory::Member;

    const RACK: &str = "example.com/rack";

    /// Two racks of two nodes, and a gang of two pods that Berth would put into the first rack.
    fn decided() -> (Decision, SharedDirectory) {
        let directory = SharedDirectory::default();
        let mut locked = directory.lock();
        for (node, rack) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")] {
            let labels = [(RACK.to_owned(), rack.to_owned())].into();
            locked.put_node(NodeFacts { uid: node.to_owned(), name: node.to_owned(), labels, ..NodeFacts::default() });
        }
        let placement = |pod: &str, node: &str| Placement {
            pod_uid: pod.to_owned(),
            pod: ObjectKey::new("ns", pod),
            subgroup: String::new(),
            node: node.to_owned(),
            node_uid: node.to_owned(),
            domain: Vec::new(),
            volumes: Vec::new(),
        };
        for pod in ["p", "q"] {
            locked.gang_mut("g").members.insert(pod.to_owned(), Member::default());
        }
        drop(locked);
        let quality = Quality { levels: vec![LevelQuality { level: RACK.to_owned(), domains: 1, lower_bound: 1 }], ..Quality::default() };
        let placements = vec![placement("p", "a1"), placement("q", "a2")];
        (Decision { id: 1, gang_uid: "g".to_owned(), gang: ObjectKey::new("ns", "g"), placements, quality }, directory)
    }

    /// What is counted when the other scheduler puts the pods on these nodes; nothing is a pod that is deleted.
    fn outcome(nodes: [Option<&str>; 2]) -> [u64; 4] {
        let (decision, directory) = decided();
        let (sender, mut results) = mpsc::unbounded_channel();
        let mut shadow = Shadow::new(sender, directory.clone(), Arc::new(Metrics::new().expect("metrics")));
        shadow.take(Command::Bind { decision: Box::new(decision), mark: String::new(), handwritten: false });
        shadow.look();
        assert!(shadow.counts == [0; 4] && results.try_recv().is_err(), "nothing has become of it yet");
        for (pod, node) in ["p", "q"].into_iter().zip(nodes) {
            let mut locked = directory.lock();
            let member = locked.gang_mut("g").members.get_mut(pod).expect("a member");
            (member.node, member.leaving) = (node.map(str::to_owned), node.is_none());
        }
        shadow.look();
        assert!(std::iter::from_fn(|| results.try_recv().ok()).count() == 2, "the engine is told, for each pod");
        shadow.counts
    }

    #[test]
    fn what_became_of_a_decision_is_compared_level_by_level() {
        assert_eq!(outcome([Some("a1"), Some("b1")]), [1, 0, 0, 0], "two racks are worse than one");
        assert_eq!(outcome([Some("b1"), Some("b2")]), [0, 1, 0, 0], "another rack is as good");
        assert_eq!(outcome([Some("a1"), Some("a1")]), [0, 0, 1, 0], "one node is better than two");
        assert_eq!(outcome([Some("a1"), None]), [0, 0, 0, 1]);
    }

    #[test]
    fn evictions_are_told_and_not_made() {
        let (_, directory) = decided();
        let (sender, mut results) = mpsc::unbounded_channel();
        let mut shadow = Shadow::new(sender, directory, Arc::new(Metrics::new().expect("metrics")));
        shadow.take(Command::MakeRoom(vec![Victim { pod: ObjectKey::new("ns", "v"), pod_uid: "v".to_owned() }]));
        let told = results.try_recv().expect("an answer");
        assert!(matches!(told, Told::Eviction { pod, refused: Some(text) } if pod == "v" && text.contains("dry run")));
    }
}
