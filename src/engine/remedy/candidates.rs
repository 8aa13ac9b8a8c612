//! The changes that are tried, by kind: one `impl` of the search, the cheapest and least invasive kinds first.

use std::collections::{BTreeMap, BTreeSet};

use super::Search;
use crate::facts::{ConstraintFacts, Event, GangFacts, NodeFacts, QueueFacts};
use crate::fit;
use crate::ids::{NodeIdx, ShapeIdx, TreeIdx};
use crate::outcome::{Code, DomainPath, Fix, FixKind, Reason, Rule, Unit};
use crate::topology::Tree;
use crate::world::model::Pod;

/// Nodes that are added at the most.
const MOST_NEW_NODES: usize = 256;

/// Queues that are tried, and limits that are raised together.
const MOST_QUEUES: usize = 8;

/// Pieces of work that are tried alone.
const MOST_SINGLE: usize = 8;

/// Work that holds room: a gang's pods, or one pod.
#[derive(Clone)]
struct Occupant {
    title: String,
    uids: Vec<String>,
}

impl Search<'_> {
    pub(super) fn run(&mut self) {
        match self.reason.code {
            Code::Problem | Code::UnsupportedFeature | Code::BindRefused | Code::StaleGang | Code::VolumesNotReady | Code::PodsGated => {}
            Code::QueueOverLimit | Code::QueueOverQuota => {
                self.raise();
                self.other_queue();
                self.fewer_pods();
                self.end_work_in_queue();
            }
            Code::QueueNotFound | Code::QueueNotLeaf => self.other_queue(),
            Code::NotEnoughPods => self.fewer_pods(),
            _ => {
                self.repair_nodes();
                self.label_nodes();
                self.relax();
                self.allow_domains();
                self.fewer_pods();
                self.end_work();
                self.add_nodes();
            }
        }
    }

    fn fix(&self, kind: FixKind, domain: DomainPath, count: usize, target: Vec<String>) -> Fix {
        Fix { kind, verified: true, domain, count: count as i64, target }
    }

    fn gang(&self) -> Option<&GangFacts> {
        self.world.gang_by_uid(&self.before.uid).map(|gang| &gang.facts)
    }

    /// Shapes of the gang's pods that wait.
    fn shapes(&self) -> BTreeSet<ShapeIdx> {
        let pods = self.world.gang_pods(&self.before.key);
        pods.filter(|(_, pod)| pod.waits()).map(|(_, pod)| pod.shape).collect()
    }

    /// The nodes of the domain that the reason names, or all, in the order of the tree.
    fn nodes_here(&self) -> (DomainPath, Vec<NodeIdx>) {
        let named = self.reason.best_domain.as_ref().zip(self.reason.topology.as_ref());
        let tree = named.and_then(|(_, topology)| self.world.tree_by_topology.get(topology)).copied().unwrap_or(TreeIdx(0));
        let tree = &self.world.trees[tree.at()];
        let found = named.and_then(|(path, _)| {
            let mut domains = (0..tree.domains.len() as u32).map(crate::ids::DomainIdx);
            domains.find(|domain| !tree.domain(*domain).absent && tree.path(*domain) == *path)
        });
        let domain = found.unwrap_or(Tree::ROOT);
        (tree.path(domain), tree.positions(domain).map(|at| tree.order[at]).collect())
    }

    fn node(&self, idx: NodeIdx) -> Option<&NodeFacts> {
        self.world.nodes[idx.at()].as_ref().map(|node| &node.facts)
    }

    /// Cordons lifted, nodes brought back, taints removed: of the best domain first, then of all.
    fn repair_nodes(&mut self) {
        let shapes = self.shapes();
        let (path, here) = self.nodes_here();
        let everywhere: Vec<NodeIdx> = self.world.node_by_name.values().copied().collect();
        let mut done: BTreeSet<FixKind> = BTreeSet::new();
        for (path, nodes) in [(path, here), (Vec::new(), everywhere)] {
            let mut by_rule: BTreeMap<Rule, Vec<NodeFacts>> = BTreeMap::new();
            for facts in nodes.iter().filter_map(|node| self.node(*node)) {
                let refused = shapes.iter().find_map(|shape| fit::refusal(facts, &self.world.shapes[shape.at()].facts));
                if let Some(rule @ (Rule::Cordoned | Rule::NotReady | Rule::Taint(_))) = refused {
                    by_rule.entry(rule).or_default().push(facts.clone());
                }
            }
            for (rule, nodes) in by_rule {
                let (kind, key) = match &rule {
                    Rule::Cordoned => (FixKind::Uncordon, None),
                    Rule::NotReady => (FixKind::RestoreNodes, None),
                    Rule::Taint(key) => (FixKind::RemoveTaint, Some(key.clone())),
                    _ => continue,
                };
                if done.contains(&kind) {
                    continue;
                }
                let upserts = |nodes: &[NodeFacts]| nodes.iter().map(|facts| Event::NodeUpsert(repaired(facts, &rule))).collect();
                if let Some(chosen) = self.fewest(&nodes, upserts) {
                    done.insert(kind);
                    let target = key.into_iter().chain(chosen.iter().map(|facts| facts.name.clone())).collect();
                    let fix = self.fix(kind, path.clone(), chosen.len(), target);
                    self.found(vec![fix], upserts(&chosen));
                }
            }
        }
    }

    /// Nodes without the level's label take those of the best domain.
    fn label_nodes(&mut self) {
        let (Some(level), Some(path)) = (&self.reason.level, &self.reason.best_domain) else { return };
        let lacking = |facts: &&NodeFacts| facts.labels.get(level).is_none_or(|value| crate::topology::is_placeholder(value));
        let nodes: Vec<NodeFacts> =
            self.world.node_by_name.values().filter_map(|idx| self.node(*idx)).filter(lacking).cloned().collect();
        if nodes.is_empty() {
            return;
        }
        let labelled = |nodes: &[NodeFacts]| {
            let with = |facts: &NodeFacts| {
                let mut facts = facts.clone();
                facts.labels.extend(path.iter().cloned());
                Event::NodeUpsert(facts)
            };
            nodes.iter().map(with).collect()
        };
        if let Some(chosen) = self.fewest(&nodes, labelled) {
            let names = chosen.iter().map(|facts| facts.name.clone()).collect();
            let fix = self.fix(FixKind::LabelNodes, path.clone(), chosen.len(), names);
            self.found(vec![fix], labelled(&chosen));
        }
    }

    /// The nearest wider level, or none, in place of the one that blocks.
    fn relax(&mut self) {
        let (Some(level), Some(gang)) = (self.reason.level.clone(), self.gang().cloned()) else { return };
        let tree = self.reason.topology.as_ref().and_then(|name| self.world.tree_by_topology.get(name)).copied();
        let Some(tree) = tree.map(|tree| &self.world.trees[tree.at()]) else { return };
        let Some(depth) = tree.depth_of_level(&level) else { return };
        for wider in (0..depth).rev() {
            let mut facts = gang.clone();
            let label = (wider > 0).then(|| tree.label(wider).to_owned());
            let of_subgroups = facts.subgroups.iter_mut().map(|sub| &mut sub.constraint);
            let mut changed = false;
            for constraint in of_subgroups.chain([&mut facts.constraint]) {
                let named = constraint.required.as_deref().and_then(|name| tree.depth_of_level(name));
                if named.is_some_and(|named| wider < named && named <= depth) {
                    widen(constraint, label.clone());
                    changed = true;
                }
            }
            if !changed {
                return;
            }
            let changes = vec![Event::GangUpsert(facts)];
            if self.helps(&changes) {
                let target = vec![self.reason.subgroup.clone(), level, label.unwrap_or_default()];
                let fix = self.fix(FixKind::RelaxLevel, Vec::new(), 0, target);
                self.found(vec![fix], changes);
                return;
            }
        }
    }

    /// As many domains of the level as the reason says would do.
    fn allow_domains(&mut self) {
        let (Code::DomainLimit, Some(level), Some(gang)) = (self.reason.code, &self.reason.level, self.gang()) else { return };
        let tree = self.reason.topology.as_ref().and_then(|name| self.world.tree_by_topology.get(name)).copied();
        let Some(tree) = tree.map(|tree| &self.world.trees[tree.at()]) else { return };
        let mut facts = gang.clone();
        let of_level = facts.limits.iter_mut().filter(|limit| tree.depth_of_level(&limit.level) == tree.depth_of_level(level));
        for limit in of_level {
            limit.most = self.reason.needs;
        }
        let fix = self.fix(FixKind::AllowDomains, Vec::new(), self.reason.needs as usize, vec![level.clone()]);
        let changes = vec![Event::GangUpsert(facts)];
        if self.reason.needs > 0 && self.helps(&changes) {
            self.found(vec![fix], changes);
        }
    }

    /// A minimum of as many pods as there is room for.
    fn fewer_pods(&mut self) {
        let Some(gang) = self.gang().cloned() else { return };
        let name = self.reason.subgroup.clone();
        let minimum = match gang.subgroups.iter().find(|sub| sub.name == name) {
            Some(sub) => sub.min_member,
            None if gang.subgroups.is_empty() => Some(gang.min_member.unwrap_or(1)),
            None => None,
        };
        let Some(minimum) = minimum.filter(|minimum| *minimum > 1 && self.reason.unit == Unit::Pods) else { return };
        let with = |n: u32| {
            let mut facts = gang.clone();
            match facts.subgroups.iter_mut().find(|sub| sub.name == name) {
                Some(sub) => sub.min_member = Some(n),
                None => facts.min_member = Some(n),
            }
            vec![Event::GangUpsert(facts)]
        };
        // The largest minimum that starts, between none and all.
        let (mut low, mut high) = (0, minimum);
        let mut guess = if self.reason.has > 0 { self.reason.has.min(minimum - 1) } else { minimum / 2 };
        while low + 1 < high {
            if self.helps(&with(guess)) {
                low = guess;
            } else {
                high = guess;
            }
            guess = if low == self.reason.has { low + 1 } else { low + (high - low) / 2 };
            guess = guess.clamp(low + 1, (high - 1).max(low + 1));
        }
        if low > 0 {
            let fix = self.fix(FixKind::LowerMinimum, Vec::new(), low as usize, vec![name.clone()]);
            self.found(vec![fix], with(low));
        }
    }

    /// Work that holds what the gang's pods ask for on these nodes: what can be preempted and the smallest first.
    fn occupants(&self, nodes: &[NodeIdx]) -> Vec<Occupant> {
        let asked: BTreeSet<usize> = self.shapes().iter().flat_map(|shape| &self.world.shapes[shape.at()].requests).map(|(column, _)| *column).collect();
        let gpus: BTreeSet<usize> = asked.iter().copied().filter(|column| fit::is_gpu(&self.world.columns[*column])).collect();
        let scarce = if gpus.is_empty() { asked } else { gpus };
        let mut seen = BTreeMap::new();
        for node in nodes.iter().filter_map(|node| self.world.nodes[node.at()].as_ref()) {
            let pods = node.pods.iter().filter_map(|idx| self.world.pods[idx.at()].as_ref());
            for pod in pods.filter(|pod| pod.requests.iter().any(|(column, amount)| scarce.contains(column) && *amount > 0)) {
                let (key, occupant) = self.occupant(pod);
                seen.entry(key).or_insert(occupant);
            }
        }
        seen.into_iter().filter(|((.., uid), _)| *uid != self.before.uid).map(|(_, occupant)| occupant).collect()
    }

    /// The gang of a pod, or the pod alone, with what it is ordered by.
    fn occupant(&self, pod: &Pod) -> ((bool, usize, String, String), Occupant) {
        let name = |kind: &str, namespace: &str, name: &str| match namespace {
            "" | "default" => format!("{kind}{name}"),
            namespace => format!("{kind}{name} in {namespace}"),
        };
        let gang = self.world.gang_of_pod(&pod.facts.uid).and_then(|uid| self.world.gang_by_uid(&uid));
        let Some(gang) = gang else {
            let title = name("Pod/", &pod.facts.namespace, &pod.facts.name);
            let key = (!pod.facts.ours, 1, title.clone(), pod.facts.uid.clone());
            return (key, Occupant { title, uids: vec![pod.facts.uid.clone()] });
        };
        let facts = &gang.facts;
        let title = if facts.owner.is_empty() {
            name("PodGroup/", &facts.key.namespace, &facts.key.name)
        } else {
            name("", &facts.key.namespace, &facts.owner)
        };
        let uids: Vec<String> = self.world.gang_pods(&facts.key).map(|(_, pod)| pod.facts.uid.clone()).collect();
        ((!facts.preemptible, uids.len(), title.clone(), facts.uid.clone()), Occupant { title, uids })
    }

    /// Running work that is ended: one piece if that is enough, else as few as were found.
    fn end_work(&mut self) {
        let (path, nodes) = self.nodes_here();
        let occupants = self.occupants(&nodes);
        self.end(path, &occupants);
    }

    fn end(&mut self, path: DomainPath, occupants: &[Occupant]) {
        let gone = |occupants: &[Occupant]| {
            occupants.iter().flat_map(|occupant| &occupant.uids).cloned().map(Event::PodDelete).collect::<Vec<_>>()
        };
        let single = occupants.iter().take(MOST_SINGLE).find(|occupant| self.helps(&gone(std::slice::from_ref(occupant))));
        let chosen = match single {
            Some(occupant) => Some(vec![occupant.clone()]),
            None if occupants.len() > 1 => self.fewest(occupants, gone),
            None => None,
        };
        if let Some(chosen) = chosen {
            let pods: usize = chosen.iter().map(|occupant| occupant.uids.len()).sum();
            let titles = chosen.iter().map(|occupant| occupant.title.clone()).collect();
            let fix = self.fix(FixKind::EndWork, path, pods, titles);
            self.found(vec![fix], gone(&chosen));
        }
    }

    /// Work that is charged to the queue that blocks.
    fn end_work_in_queue(&mut self) {
        let Some(queue) = self.reason.queue.as_ref().map(|block| block.queue.clone()) else { return };
        let mut seen = BTreeMap::new();
        for pod in self.world.pods.iter().flatten() {
            let charged = pod.charged.as_ref().is_some_and(|(leaf, _)| self.is_below(leaf, &queue));
            if charged && pod.holds() {
                let (key, occupant) = self.occupant(pod);
                seen.entry(key).or_insert(occupant);
            }
        }
        let occupants: Vec<Occupant> =
            seen.into_iter().filter(|((.., uid), _)| *uid != self.before.uid).map(|(_, occupant)| occupant).collect();
        self.end(Vec::new(), &occupants);
    }

    fn is_below(&self, leaf: &str, queue: &str) -> bool {
        let mut at = Some(leaf);
        for _ in 0..MOST_QUEUES * 4 {
            match at {
                None => return false,
                Some(name) if name == queue => return true,
                Some(name) => at = self.world.queues.get(name).and_then(|facts| facts.parent.as_deref()),
            }
        }
        false
    }

    /// Nodes like one that would take the gang's pods, in the best domain.
    fn add_nodes(&mut self) {
        let shapes = self.shapes();
        let (path, here) = self.nodes_here();
        let everywhere: Vec<NodeIdx> = self.world.node_by_name.values().copied().collect();
        let takes = |facts: &NodeFacts| {
            shapes.iter().all(|shape| {
                let shape = &self.world.shapes[shape.at()];
                let enough = |(column, amount): &(usize, i64)| facts.allocatable.get(&self.world.columns[*column]).is_some_and(|has| has >= amount);
                fit::refusal(facts, &shape.facts).is_none() && shape.requests.iter().all(enough)
            })
        };
        let wanted = self.reason.level.is_some();
        let places = if wanted && !path.is_empty() { vec![here] } else { vec![here, everywhere] };
        let model = places.iter().flatten().filter_map(|node| self.node(*node)).find(|facts| takes(facts)).cloned();
        let Some(model) = model else { return };
        let most = self.reason.needs.saturating_sub(self.reason.has).max(1) as usize;
        let most = if self.reason.unit == Unit::Pods { most } else { MOST_NEW_NODES }.min(MOST_NEW_NODES);
        let copies: Vec<NodeFacts> = (0..most).map(|number| self.copy(&model, number)).collect();
        let added = |nodes: &[NodeFacts]| nodes.iter().cloned().map(Event::NodeUpsert).collect();
        if let Some(chosen) = self.fewest(&copies, added) {
            let fix = self.fix(FixKind::AddNodes, path, chosen.len(), vec![model.name]);
            self.found(vec![fix], added(&chosen));
        }
    }

    /// A new node like this one.
    fn copy(&self, model: &NodeFacts, number: usize) -> NodeFacts {
        let mut name = format!("{}-new-{number}", model.name);
        while self.world.node_by_name.contains_key(&name) {
            name.push('x');
        }
        super::what_if::like(model, &name)
    }

    /// Limits and quotas raised, one after the other, until none blocks.
    fn raise(&mut self) {
        let mut raised: BTreeMap<String, QueueFacts> = BTreeMap::new();
        let mut fixes: Vec<Fix> = Vec::new();
        let mut reason: Reason = self.reason.clone();
        for _ in 0..MOST_QUEUES {
            let (Code::QueueOverLimit | Code::QueueOverQuota, Some(block)) = (reason.code, reason.queue.clone()) else { return };
            let known = raised.get(&block.queue).or_else(|| self.world.queues.get(&block.queue));
            let Some(mut facts) = known.cloned() else { return };
            let amount = match block.resource {
                "gpu" => &mut facts.gpu,
                "cpu" => &mut facts.cpu,
                _ => &mut facts.memory,
            };
            let wanted = block.used_millis.saturating_add(block.asked_millis);
            let kind = if reason.code == Code::QueueOverLimit {
                amount.limit_millis = Some(wanted);
                FixKind::RaiseLimit
            } else {
                amount.quota_millis = Some(wanted);
                FixKind::RaiseQuota
            };
            let target = vec![block.queue.clone(), block.resource.to_owned()];
            fixes.push(Fix { kind, verified: true, domain: Vec::new(), count: wanted, target });
            raised.insert(block.queue, facts);
            let changes: Vec<Event> = raised.values().cloned().map(Event::QueueUpsert).collect();
            let Some(after) = self.after(&changes).and_then(|world| world.gang_report(&self.before.uid)) else { return };
            if super::is_better(self.before, &after) {
                self.found(fixes, changes);
                return;
            }
            match after.reasons.first() {
                Some(next) => reason = next.clone(),
                None => return,
            }
        }
    }

    /// The first other queue, by name, that would take it.
    fn other_queue(&mut self) {
        let Some(gang) = self.gang().cloned() else { return };
        let parents: BTreeSet<&str> = self.world.queues.values().filter_map(|queue| queue.parent.as_deref()).collect();
        let leaves: Vec<String> =
            self.world.queues.keys().filter(|name| **name != gang.queue && !parents.contains(name.as_str())).take(MOST_QUEUES).cloned().collect();
        for queue in leaves {
            let changes = vec![Event::GangUpsert(GangFacts { queue: queue.clone(), ..gang.clone() })];
            if self.helps(&changes) {
                let fix = self.fix(FixKind::ChangeQueue, Vec::new(), 0, vec![queue]);
                self.found(vec![fix], changes);
                return;
            }
        }
    }
}

fn widen(constraint: &mut ConstraintFacts, label: Option<String>) {
    if constraint.preferred.is_none() {
        constraint.preferred.clone_from(&constraint.required);
    }
    constraint.required = label;
}

/// A node without what a rule refuses it for.
fn repaired(facts: &NodeFacts, rule: &Rule) -> NodeFacts {
    let mut facts = facts.clone();
    match rule {
        Rule::Cordoned => facts.unschedulable = false,
        Rule::NotReady => facts.ready = true,
        Rule::Taint(key) => facts.taints.retain(|taint| taint.key != *key),
        _ => {}
    }
    if matches!(rule, Rule::Cordoned) {
        facts.taints.retain(|taint| taint.key != "node.kubernetes.io/unschedulable");
    }
    facts
}
