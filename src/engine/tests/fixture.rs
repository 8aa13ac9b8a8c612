//! The fixture language: `b1/r1: a b; b1/r2: c` is a cluster of three nodes of
//! eight GPUs under levels `block` and `rack`.

use std::collections::BTreeMap;

use crate::check;
use crate::facts::*;
use crate::outcome::{GangReport, Outcome};
use crate::policy::Policy;
use crate::schedule::schedule;
use crate::world::World;

pub(crate) struct Lab {
    pub world: World,
    pub policy: Policy,
    pub now: Millis,
}

pub(crate) const LEVELS: [&str; 3] = ["zone", "block", "rack"];

impl Lab {
    /// Levels are the last ones of zone, block, rack, as many as the paths are long.
    pub(crate) fn new(cluster: &str) -> Self {
        let mut lab = Self { world: World::new(), policy: Policy::standard(), now: 0 };
        let mut depth = 0;
        for group in cluster.split(';').map(str::trim).filter(|g| !g.is_empty()) {
            let (path, nodes) = group.split_once(':').unwrap();
            let values: Vec<&str> = path.trim().split('/').collect();
            depth = depth.max(values.len());
            for name in nodes.split_whitespace() {
                // `a=3` is a node with three GPUs.
                let (name, gpus) = name.split_once('=').unwrap_or((name, "8"));
                lab.node(name, &values, gpus.parse().unwrap());
            }
        }
        let levels = LEVELS[3 - depth..]
            .iter()
            .map(|label| LevelFacts { label: (*label).to_owned(), alias: None })
            .collect();
        lab.send(Event::TopologyUpsert(TopologyFacts {
            uid: "t".into(),
            name: "t".into(),
            levels,
            default: false,
        }));
        lab.send(Event::Synced);
        lab
    }

    pub(crate) fn node_facts(name: &str, values: &[&str], gpus: i64) -> NodeFacts {
        let labels = LEVELS[3 - values.len()..]
            .iter()
            .zip(values)
            .filter(|(_, value)| **value != "-")
            .map(|(label, value)| ((*label).to_owned(), (*value).to_owned()))
            .collect();
        NodeFacts {
            uid: format!("node-{name}"),
            name: name.to_owned(),
            labels,
            ready: true,
            allocatable: BTreeMap::from([
                ("nvidia.com/gpu".to_owned(), gpus),
                ("pods".to_owned(), 110),
            ]),
            ..NodeFacts::default()
        }
    }

    pub(crate) fn node(&mut self, name: &str, values: &[&str], gpus: i64) {
        self.send(Event::NodeUpsert(Self::node_facts(name, values, gpus)));
    }

    pub(crate) fn send(&mut self, event: Event) {
        self.world.apply(event, self.now).unwrap();
    }

    pub(crate) fn pod_facts(gang: &str, sub: Option<&str>, index: u32, gpus: i64) -> PodFacts {
        let infix = sub.map(|sub| format!("-{sub}")).unwrap_or_default();
        PodFacts {
            uid: format!("{gang}{infix}-{index}"),
            namespace: "ns".into(),
            name: format!("{gang}{infix}-{index}"),
            ours: true,
            gang: Some(gang.to_owned()),
            subgroup: sub.map(str::to_owned),
            index: Some(index),
            shape: ShapeFacts {
                requests: if gpus == 0 {
                    Amounts::new()
                } else {
                    BTreeMap::from([("nvidia.com/gpu".to_owned(), gpus)])
                },
                ..ShapeFacts::default()
            },
            ..PodFacts::default()
        }
    }

    /// A pod of another scheduler that holds GPUs on a node.
    pub(crate) fn busy(&mut self, node: &str, gpus: i64) {
        let mut pod = Self::pod_facts(&format!("busy-{node}"), None, 0, gpus);
        pod.ours = false;
        pod.gang = None;
        pod.node = Some(node.to_owned());
        pod.phase = PodPhase::Running;
        self.send(Event::PodUpsert(pod));
    }

    pub(crate) fn constraint(required: &str, preferred: &str) -> ConstraintFacts {
        let level = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ConstraintFacts {
            topology: Some("t".to_owned()),
            required: level(required),
            preferred: level(preferred),
        }
    }

    pub(crate) fn gang_facts(name: &str, min: u32, constraint: ConstraintFacts) -> GangFacts {
        GangFacts {
            uid: format!("gang-{name}"),
            key: ObjectKey::new("ns", name),
            queue: "default-queue".into(),
            min_member: Some(min),
            constraint,
            ..GangFacts::default()
        }
    }

    /// A gang of equal pods; the minimum is all of them.
    pub(crate) fn gang(&mut self, name: &str, pods: u32, gpus: i64, required: &str, preferred: &str) {
        self.send(Event::GangUpsert(Self::gang_facts(
            name,
            pods,
            Self::constraint(required, preferred),
        )));
        for index in 0..pods {
            self.send(Event::PodUpsert(Self::pod_facts(name, None, index, gpus)));
        }
    }

    /// A gang of subgroups: (name, pods, gpus, required, preferred).
    pub(crate) fn groups(
        &mut self,
        name: &str,
        root: (&str, &str),
        groups: &[(&str, u32, i64, &str, &str)],
    ) {
        let mut facts = Self::gang_facts(name, 1, Self::constraint(root.0, root.1));
        facts.min_member = None;
        facts.subgroups = groups
            .iter()
            .map(|(sub, pods, _, required, preferred)| SubgroupFacts {
                name: (*sub).to_owned(),
                min_member: Some(*pods),
                constraint: Self::constraint(required, preferred),
                ..SubgroupFacts::default()
            })
            .collect();
        self.send(Event::GangUpsert(facts));
        for (sub, pods, gpus, _, _) in groups {
            for index in 0..*pods {
                self.send(Event::PodUpsert(Self::pod_facts(name, Some(sub), index, *gpus)));
            }
        }
    }

    /// One pass, every answer of which is checked.
    pub(crate) fn pass(&mut self) -> Outcome {
        let mut before = self.world.fork();
        // What the pass does first: it remembers what gangs went through.
        before.review_lives(self.now);
        let outcome = schedule(&mut self.world, &self.policy, self.now);
        for findings in [check::decisions_from(&before, &self.policy, &outcome), check::pass(&self.world, &self.policy, &outcome)] {
            assert_eq!(findings, check::Findings::default());
        }
        outcome
    }

    pub(crate) fn report(&self, gang: &str) -> GangReport {
        self.world.gang_report(&format!("gang-{gang}")).unwrap()
    }

    /// Nodes of a gang's pods by name, `-` while pending.
    pub(crate) fn places(&self, gang: &str) -> String {
        let pods: BTreeMap<String, String> = self
            .world
            .gang_pods(&ObjectKey::new("ns", gang))
            .map(|(_, pod)| {
                let key = format!("{:>3} {}", pod.facts.index.unwrap_or(0), pod.facts.name);
                let key = pod.facts.subgroup.clone().unwrap_or_default() + &key;
                (key, pod.node.clone().unwrap_or_else(|| "-".to_owned()))
            })
            .collect();
        pods.into_values().collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn code(&self, gang: &str) -> String {
        let report = self.report(gang);
        report.reasons.first().map_or_else(String::new, |reason| {
            format!("{} {}/{}", reason.code_name(), reason.has, reason.needs)
        })
    }
}
