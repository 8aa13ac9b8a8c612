//! What decisions ask of queues, and whether the queues take it.

use std::collections::BTreeSet;

use super::Pass;
use crate::ids::{PodIdx, ShapeIdx};
use crate::outcome::{Code, Fix, FixKind, QueueBlock, Reason};
use crate::place::Plan;
use crate::place::task::Item;
use crate::world::QueueError;
use crate::world::model::{Gang, OrderKey};

/// Queues that a reason lists by name; the rest is counted.
const MAX_QUEUES_NAMED: usize = 3;

impl Pass<'_> {
    /// What the next decision of a gang would place: its minimum, or one pod above it.
    pub(super) fn asked(&self, key: &OrderKey) -> [i64; 3] {
        let Some(gang) = self.world.gangs[key.gang.at()].as_ref() else { return [0; 3] };
        if key.surplus {
            let first = self.world.gang_pods(&gang.facts.key).find(|(_, pod)| pod.waits());
            return first.map_or([0; 3], |(_, pod)| self.world.charge_of(&pod.requests));
        }
        let prepared = self.prepare(gang).ok().filter(|prepared| prepared.ready(0));
        prepared.map_or([0; 3], |prepared| self.charge_of(&prepared.minimum(self.world, 0)))
    }

    /// What a decision asks for, pods to come included.
    pub(super) fn charge_of(&self, item: &Item) -> [i64; 3] {
        self.charge(item.groups())
    }

    /// What any choice among the children asks of the queue.
    pub(super) fn least_charge(&self, item: &Item) -> [i64; 3] {
        let mut least = self.charge(item.pods.iter().map(|(shape, pods)| (*shape, pods.as_slice())));
        let below: Vec<[i64; 3]> = item.children.iter().map(|child| self.least_charge(child)).collect();
        for (slot, total) in least.iter_mut().enumerate() {
            let mut asked: Vec<i64> = below.iter().map(|child| child[slot]).collect();
            asked.sort_unstable();
            *total = asked.iter().take(item.choose).fold(*total, |sum, amount| sum.saturating_add(*amount));
        }
        least
    }

    /// What these pods ask of the queue, those to come included.
    fn charge<'p>(&self, groups: impl IntoIterator<Item = (ShapeIdx, &'p [PodIdx])>) -> [i64; 3] {
        let mut asked = [0_i64; 3];
        for (shape, pods) in groups {
            for pod in pods {
                let pod = self.world.pods.get(pod.at()).and_then(Option::as_ref);
                let requests = pod.map_or(&self.world.shapes[shape.at()].requests, |pod| &pod.requests);
                for (slot, amount) in self.world.charge_of(requests).into_iter().enumerate() {
                    asked[slot] = asked[slot].saturating_add(amount);
                }
            }
        }
        asked
    }

    /// What the pods of a plan ask, whichever subgroups it chose.
    pub(super) fn charge_of_plan(&self, item: &Item, plan: &Plan) -> [i64; 3] {
        let placed: BTreeSet<PodIdx> = plan.places.iter().map(|(pod, _)| *pod).collect();
        let mut asked = [0_i64; 3];
        let mut open = vec![item];
        while let Some(item) = open.pop() {
            open.extend(&item.children);
            for (shape, pods) in &item.pods {
                let taken: Vec<PodIdx> = pods.iter().copied().filter(|pod| placed.contains(pod)).collect();
                let more = self.charge([(*shape, taken.as_slice())]);
                asked = [0, 1, 2].map(|slot: usize| asked[slot].saturating_add(more[slot]));
            }
        }
        asked
    }

    /// Whether the queue takes so much more.
    pub(super) fn admit(&self, gang: &Gang, asked: [i64; 3]) -> Result<(), Reason> {
        let block = |queue: &str| QueueBlock {
            queue: queue.to_owned(),
            resource: "",
            limit_millis: 0,
            used_millis: 0,
            asked_millis: 0,
        };
        self.world.admit(&gang.facts.queue, asked, gang.facts.preemptible).map_err(|error| {
            let mut missing = None;
            let (code, queue) = match error {
                QueueError::NotFound(queue) => (Code::QueueNotFound, block(&queue)),
                QueueError::NotLeaf(queue) => (Code::QueueNotLeaf, block(&queue)),
                QueueError::Orphaned(queue, parent) => {
                    missing = parent;
                    (Code::QueueOrphaned, block(&queue))
                }
                QueueError::OverLimit(block) => (Code::QueueOverLimit, block),
                QueueError::OverQuota(block) => (Code::QueueOverQuota, block),
            };
            let mut reason = Reason::new(code);
            reason.detail = missing.unwrap_or_default();
            reason.fixes = self.queue_fixes(code, &queue, &reason.detail);
            reason.queue = Some(queue);
            reason
        })
    }

    /// What would make a queue take the work. None is solved again here.
    fn queue_fixes(&self, code: Code, block: &QueueBlock, missing: &str) -> Vec<Fix> {
        let fix = |kind, count, target| Fix { kind, verified: false, domain: Vec::new(), count, target };
        let enough = block.used_millis.saturating_add(block.asked_millis);
        let limited = || vec![block.queue.clone(), block.resource.to_owned()];
        let create = |name: &str| (!name.is_empty()).then(|| fix(FixKind::CreateObject, 1, vec![format!("Queue {name}")]));
        let other = || {
            let mut names = self.world.leaves_below(&block.queue);
            let count = i64::try_from(names.len()).unwrap_or(i64::MAX);
            names.truncate(MAX_QUEUES_NAMED);
            (count > 0).then(|| fix(FixKind::NameQueue, count, names))
        };
        match code {
            Code::QueueOverLimit => vec![fix(FixKind::RaiseLimit, enough, limited())],
            Code::QueueOverQuota => vec![fix(FixKind::RaiseQuota, enough, limited())],
            Code::QueueNotFound => create(&block.queue).into_iter().chain(other()).collect(),
            Code::QueueNotLeaf => other().into_iter().collect(),
            Code::QueueOrphaned => create(missing).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}
