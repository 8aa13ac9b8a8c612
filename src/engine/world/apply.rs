//! Applying events: one small function per kind, each keeping every index true.

use crate::facts::{
    Amounts, BindResult, Event, GangFacts, Millis, NodeFacts, ObjectKey, PodFacts, PodPhase, ShapeFacts, TopologyFacts,
};
use crate::ids::{GangIdx, NodeIdx, PodIdx, ShapeIdx};
use crate::fit::volumes::VolumeNeeds;
use crate::rooms::Terms;
use crate::{fit, gang};
use crate::world::life::Life;
use crate::world::promises::SPARE_MILLIS;
use crate::world::usage::Usage;
use crate::world::model::{Gang, Node, PlaceState, Pod};
use crate::world::{Rejected, World};

/// Most levels a Topology may have (its schema's limit).
const MAX_LEVELS: usize = 16;

impl World {
    pub(super) fn apply_event(&mut self, event: Event, now: Millis) -> Result<(), Rejected> {
        match event {
            Event::NodeUpsert(facts) => self.upsert_node(facts),
            Event::NodeDelete(uid) => self.delete_node(&uid),
            Event::PodUpsert(facts) => self.upsert_pod(facts),
            Event::PodDelete(uid) => self.delete_pod(&uid),
            Event::GangUpsert(facts) => self.upsert_gang(facts),
            Event::GangDelete(uid) => self.delete_gang(&uid),
            Event::QueueUpsert(facts) => {
                self.changes.queues |= self.queues.get(&facts.name) != Some(&facts);
                self.queues.insert(facts.name.clone(), facts);
            }
            Event::QueueDelete(uid) => {
                self.changes.queues = true;
                self.queues.retain(|_, facts| facts.uid != uid);
            }
            Event::TopologyUpsert(facts) => return self.upsert_topology(facts),
            Event::TopologyDelete(uid) => {
                self.topologies.retain(|_, facts| facts.uid != uid);
                self.trees_dirty = true;
                self.changes.all = true;
            }
            Event::NamespaceUpsert(name, labels) => self.label_namespace(&name, Some(labels)),
            Event::NamespaceDelete(name) => self.label_namespace(&name, None),
            Event::ClaimUpsert(facts) => self.upsert_claim(facts),
            Event::ClaimDelete(uid) => self.delete_claim(&uid),
            Event::VolumeUpsert(facts) => self.upsert_volume(facts),
            Event::VolumeDelete(uid) => self.delete_volume(&uid),
            Event::StorageClassUpsert(facts) => self.upsert_class(facts),
            Event::StorageClassDelete(uid) => self.delete_class(&uid),
            Event::CsiNodeUpsert(facts) => self.upsert_csi_node(facts),
            Event::CsiNodeDelete(name) => self.delete_csi_node(&name),
            Event::StorageCapacityUpsert(facts) => self.upsert_capacity(facts),
            Event::StorageCapacityDelete(uid) => self.delete_capacity(&uid),
            // A prepared, sent or failed pod keeps the room of its decision until the end is known.
            Event::PreparationStarted(_)
            | Event::PreparationDone(_)
            | Event::BindSent(_)
            | Event::EvictSent(_)
            | Event::EvictAccepted(_) => {}
            Event::EvictRefused(uid, text) => self.eviction_refused(&uid, text, now),
            Event::EvictDropped(uid) => self.spare(&uid, now, now),
            Event::PreparationFailed(uid, _) => {
                self.avoid_node(&uid);
                self.note_unprepared(&uid);
                self.unassume(&uid);
            }
            Event::BindEnded(uid, result) => self.bind_ended(&uid, &result, now),
            Event::Held(gang, node, amounts) => self.hold(gang, node, amounts),
            Event::Released(gang) => self.release(&gang),
            Event::Backoff(uid, until, reason) => {
                if let Some(gang) = self.gang_mut(&uid) {
                    gang.backoff = (until > now).then_some((until, reason));
                    gang.parked = None;
                }
            }
            Event::BudgetUpsert(facts) => self.upsert_budget(facts),
            Event::BudgetDelete(uid) => self.delete_budget(&uid),
            Event::Synced => {
                self.synced = true;
                self.adopt_promises(now);
                self.changes.all = true;
            }
            Event::LeadershipChanged(leading) => {
                self.leading = leading;
                if leading {
                    self.adopt_promises(now);
                }
                self.changes.all = true;
            }
        }
        Ok(())
    }

    /// What the API said, for the gang that waits until its pods are evicted. It is asked again later.
    fn eviction_refused(&mut self, uid: &str, text: String, now: Millis) {
        self.spare(uid, now, now.saturating_add(SPARE_MILLIS));
        let Some(gang) = self.gang_of_pod(uid) else { return };
        if let Some(gang) = self.gang_mut(&gang)
            && gang.life.evicted_at.is_some()
            && let Some((_, told)) = &mut gang.backoff
        {
            *told = text;
            gang.parked = None;
        }
    }

    fn gang_mut(&mut self, uid: &str) -> Option<&mut Gang> {
        let idx = *self.gang_by_uid.get(uid)?;
        self.gangs[idx.at()].as_mut()
    }

    fn amounts_by_column(&mut self, amounts: &Amounts) -> Vec<i64> {
        let mut row = vec![0; self.columns.len()];
        for (name, amount) in amounts {
            let column = self.column(name);
            if row.len() <= column {
                row.resize(column + 1, 0);
            }
            row[column] = *amount;
        }
        row
    }

    fn upsert_node(&mut self, facts: NodeFacts) {
        if let Some(idx) = self.node_by_name.get(&facts.name).copied()
            && let Some(old) = self.nodes[idx.at()].as_ref() {
                if old.facts == facts {
                    return;
                }
                if old.facts.uid == facts.uid && same_but_allocatable(&old.facts, &facts) {
                    let allocatable = self.amounts_by_column(&facts.allocatable);
                    if let Some(node) = self.nodes[idx.at()].as_mut() {
                        node.allocatable = allocatable;
                        node.facts = facts;
                    }
                    self.push_room(idx);
                    return;
                }
                let uid = old.facts.uid.clone();
                self.delete_node(&uid);
            }
        let idx = match self.nodes.iter().position(Option::is_none) {
            Some(at) => NodeIdx(at as u32),
            None => {
                self.nodes.push(None);
                NodeIdx(self.nodes.len() as u32 - 1)
            }
        };
        self.changes.note_new(idx);
        self.wake_members_on(&facts.name);
        let allocatable = self.amounts_by_column(&facts.allocatable);
        self.rooms.tallies_mut().label(idx, &facts.labels);
        self.node_by_name.insert(facts.name.clone(), idx);
        self.node_name_by_uid.insert(facts.uid.clone(), facts.name.clone());
        let pods = self.pods_by_node.get(&facts.name).cloned().unwrap_or_default();
        self.nodes[idx.at()] = Some(Node {
            facts,
            allocatable,
            used: Vec::new(),
            releasing: Vec::new(),
            held: Vec::new(),
            pods: std::collections::BTreeSet::new(),
        });
        for pod in pods {
            self.add_to_node(idx, pod);
        }
        self.reapply_holds();
        self.push_room(idx);
        self.trees_dirty = true;
    }

    fn delete_node(&mut self, uid: &str) {
        let Some(name) = self.node_name_by_uid.remove(uid) else { return };
        let Some(idx) = self.node_by_name.remove(&name) else { return };
        self.nodes[idx.at()] = None;
        self.wake_members_on(&name);
        // Whoever takes this index next is a new node: all its room is a gain.
        self.changes.note_new(idx);
        self.rooms.set(idx, None, false);
        self.rooms.tallies_mut().label(idx, &std::collections::BTreeMap::new());
        self.trees_dirty = true;
    }

    fn upsert_topology(&mut self, facts: TopologyFacts) -> Result<(), Rejected> {
        let reject = |message: String| {
            Err(Rejected {
                object: format!("Topology/{}", facts.name),
                field: "spec.levels".to_owned(),
                message,
            })
        };
        if facts.levels.is_empty() || facts.levels.len() > MAX_LEVELS {
            return reject(format!("{} levels; allowed are 1 to {MAX_LEVELS}", facts.levels.len()));
        }
        for (at, level) in facts.levels.iter().enumerate() {
            if facts.levels[..at].iter().any(|other| other.label == level.label) {
                return reject(format!("level {} is named twice; labels are unique", level.label));
            }
        }
        if self.topologies.get(&facts.name) != Some(&facts) {
            self.topologies.insert(facts.name.clone(), facts);
            self.trees_dirty = true;
            self.changes.all = true;
        }
        Ok(())
    }

    fn upsert_pod(&mut self, facts: PodFacts) {
        let idx = match self.pod_by_uid.get(&facts.uid) {
            Some(idx) => {
                if self.pods[idx.at()].as_ref().is_some_and(|pod| pod.facts == facts) {
                    return;
                }
                *idx
            }
            None => self.free_pods.pop().unwrap_or_else(|| {
                self.pods.push(None);
                PodIdx(self.pods.len() as u32 - 1)
            }),
        };
        // First, while every index is true: a new term gives other pods, and the old state of this one, new shapes.
        let shape = self.shape_with_claims(&facts, idx);
        let (evicting, spared_until) = self.pods[idx.at()].as_ref().map_or((false, 0), |pod| (pod.evicting, pod.spared_until));
        let old = self.pods[idx.at()].as_ref().map(|pod| (pod.node.clone(), pod.place));
        self.detach(idx);
        let (node, place) = match (&facts.node, old) {
            // The API confirms our decision, or knows better.
            (Some(node), Some((Some(ours), PlaceState::Assumed | PlaceState::Bound)))
                if *node == ours =>
            {
                (Some(ours), PlaceState::Bound)
            }
            (Some(node), Some((_, PlaceState::None | PlaceState::Assumed | PlaceState::Bound))) => {
                (Some(node.clone()), PlaceState::Bound)
            }
            (Some(node), _) => (Some(node.clone()), PlaceState::Running),
            // A Binding is under way: the watch is behind our decision.
            (None, Some((Some(ours), place @ (PlaceState::Assumed | PlaceState::Bound)))) => {
                (Some(ours), place)
            }
            // Another scheduler has made room there, or is about to: kube-scheduler and cluster autoscalers nominate.
            (None, _) if !facts.ours && facts.nominated.is_some() => (facts.nominated.clone(), PlaceState::Running),
            (None, _) => (None, PlaceState::None),
        };
        let requests = self.shapes[shape.at()].requests.clone();
        self.pod_by_uid.insert(facts.uid.clone(), idx);
        let claims = (!facts.claims.is_empty()).then(|| facts.clone());
        self.pods[idx.at()] = Some(Pod { facts, shape, requests, node, place, evicting, spared_until, charged: None });
        self.attach(idx);
        if let Some(facts) = claims {
            self.review_users(&facts, idx);
        }
    }

    /// The shape of a pod as told, with what its claims ask now that it uses them.
    fn shape_with_claims(&mut self, facts: &PodFacts, idx: PodIdx) -> ShapeIdx {
        let old = self.pods[idx.at()].as_ref().map(|pod| (pod.facts.clone(), pod.place));
        if let Some((old, _)) = &old {
            self.note_user(old, idx, false);
        }
        let over = matches!(facts.phase, PodPhase::Succeeded | PodPhase::Failed);
        self.note_user(facts, idx, !over);
        let ours = old.is_some_and(|(_, place)| matches!(place, PlaceState::Assumed | PlaceState::Bound));
        let needs = self.volume_needs(facts, facts.node.is_some() || ours);
        self.intern(facts, &needs)
    }

    fn delete_pod(&mut self, uid: &str) {
        let Some(idx) = self.pod_by_uid.remove(uid) else { return };
        self.detach(idx);
        let facts = self.pods[idx.at()].take().map(|pod| pod.facts);
        self.undecide_volumes(idx);
        if let Some(facts) = &facts {
            self.note_user(facts, idx, false);
            self.review_users(facts, idx);
        }
        let key = facts.as_ref().and_then(gang_key);
        self.free_pods.push(idx);
        if let Some(key) = key {
            self.note_waiting(&key);
        }
    }

    fn count_waiting(&mut self, idx: PodIdx, key: &ObjectKey, add: bool) {
        let Some(pod) = self.pods[idx.at()].as_ref() else { return };
        if !(pod.facts.ours && pod.live() && pod.node.is_none()) {
            return;
        }
        if add {
            *self.waiting_pods.entry(key.clone()).or_default() += 1;
        } else if let Some(n) = self.waiting_pods.get_mut(key) {
            *n -= 1;
            if *n == 0 {
                self.waiting_pods.remove(key);
            }
        }
    }

    /// Gives a waiting pod its place, before the API knows of it.
    pub(crate) fn assume(&mut self, idx: PodIdx, node: &str) {
        let Some(key) = self.pods[idx.at()].as_ref().and_then(|pod| gang_key(&pod.facts)) else {
            return;
        };
        self.count_waiting(idx, &key, false);
        if let Some(pod) = self.pods[idx.at()].as_mut() {
            pod.node = Some(node.to_owned());
            pod.place = PlaceState::Assumed;
        }
        self.pods_by_node.entry(node.to_owned()).or_default().insert(idx);
        if let Some(at) = self.node_by_name.get(node).copied() {
            self.add_to_node(at, idx);
            self.push_room(at);
        }
        self.charge(idx);
        self.touch_gang(&key);
        if !self.waiting_pods.contains_key(&key) {
            self.note_waiting(&key);
        }
        let facts = self.pods[idx.at()].as_ref().map(|pod| &pod.facts).filter(|facts| !facts.claims.is_empty());
        if let Some(facts) = facts.cloned() {
            self.review_pod(idx);
            self.review_users(&facts, idx);
        }
    }

    /// The gang of a pod is given up for now because of a claim, not of a Binding.
    fn note_unprepared(&mut self, uid: &str) {
        let pod = self.pod_by_uid.get(uid).and_then(|idx| self.pods[idx.at()].as_ref());
        let gang = pod.and_then(|pod| gang_key(&pod.facts)).and_then(|key| self.gang_by_key.get(&key).copied());
        if let Some(gang) = gang.and_then(|idx| self.gangs[idx.at()].as_mut()) {
            gang.unprepared = true;
        }
    }

    fn unassume(&mut self, uid: &str) {
        let Some(idx) = self.pod_by_uid.get(uid).copied() else { return };
        let assumed =
            self.pods[idx.at()].as_ref().is_some_and(|pod| pod.place == PlaceState::Assumed);
        if assumed {
            self.detach(idx);
            if let Some(pod) = self.pods[idx.at()].as_mut() {
                pod.node = None;
                pod.place = PlaceState::None;
            }
            self.attach(idx);
            self.undecide_volumes(idx);
            self.review_pod(idx);
        }
    }

    fn bind_ended(&mut self, uid: &str, result: &BindResult, _now: Millis) {
        let Some(idx) = self.pod_by_uid.get(uid).copied() else { return };
        match result {
            BindResult::Bound => {
                if let Some(pod) = self.pods[idx.at()].as_mut()
                    && pod.place == PlaceState::Assumed {
                        pod.place = PlaceState::Bound;
                        if let Some(key) = gang_key(&pod.facts) {
                            self.touch_gang(&key);
                            self.note_prey(&key);
                        }
                    }
            }
            // Unknown keeps the room: the edge reads the pod and tells again.
            BindResult::Unknown(_) => {}
            BindResult::Transient(_) | BindResult::Permanent(_) => self.unassume(uid),
        }
    }

    /// Takes a pod out of every index.
    pub(super) fn detach(&mut self, idx: PodIdx) {
        let Some(pod) = self.pods[idx.at()].as_ref() else { return };
        let (node, key) = (pod.node.clone(), gang_key(&pod.facts));
        if let Some(name) = node {
            if let Some(at) = self.node_by_name.get(&name).copied() {
                self.remove_from_node(at, idx);
                self.push_room(at);
            }
            if let Some(pods) = self.pods_by_node.get_mut(&name) {
                pods.remove(&idx);
                if pods.is_empty() {
                    self.pods_by_node.remove(&name);
                }
            }
        }
        self.uncharge(idx);
        if let Some(key) = key {
            self.touch_gang(&key);
            if let Some(pods) = self.pods_by_gang.get_mut(&key) {
                pods.remove(&idx);
                if pods.is_empty() {
                    self.pods_by_gang.remove(&key);
                }
            }
            self.count_waiting(idx, &key, false);
        }
    }

    /// Puts a pod into every index.
    pub(super) fn attach(&mut self, idx: PodIdx) {
        let Some(pod) = self.pods[idx.at()].as_ref() else { return };
        let (holds, node, key) = (pod.holds(), pod.node.clone(), gang_key(&pod.facts));
        if let Some(name) = node.filter(|_| holds) {
            self.pods_by_node.entry(name.clone()).or_default().insert(idx);
            if let Some(at) = self.node_by_name.get(&name).copied() {
                self.add_to_node(at, idx);
                self.push_room(at);
            }
        }
        if let Some(key) = key {
            self.pods_by_gang.entry(key.clone()).or_default().insert(idx);
            self.count_waiting(idx, &key, true);
            self.note_waiting(&key);
            self.touch_gang(&key);
        }
        self.charge(idx);
    }

    fn add_to_node(&mut self, at: NodeIdx, idx: PodIdx) {
        let Some(pod) = self.pods[idx.at()].as_ref() else { return };
        let (requests, leaves) = (pod.requests.clone(), pod.facts.terminating || pod.evicting);
        if let Some(node) = self.nodes[at.at()].as_mut()
            && node.pods.insert(idx) {
                shift(&mut node.used, &requests, 1);
                shift(&mut node.releasing, &requests, i64::from(leaves));
                if leaves {
                    self.changes.note_leaver(at, &requests);
                }
            }
    }

    fn remove_from_node(&mut self, at: NodeIdx, idx: PodIdx) {
        let Some(pod) = self.pods[idx.at()].as_ref() else { return };
        let (requests, leaves) = (pod.requests.clone(), pod.facts.terminating || pod.evicting);
        if let Some(node) = self.nodes[at.at()].as_mut()
            && node.pods.remove(&idx) {
                shift(&mut node.used, &requests, -1);
                shift(&mut node.releasing, &requests, -i64::from(leaves));
            }
    }

    /// A pod is to be evicted, or is not after all.
    pub(super) fn set_evicting(&mut self, idx: PodIdx, evicting: bool) {
        let Some(pod) = self.pods[idx.at()].as_ref().filter(|pod| pod.evicting != evicting) else { return };
        let at = pod.node.as_ref().and_then(|node| self.node_by_name.get(node)).copied();
        let at = at.filter(|at| self.nodes[at.at()].as_ref().is_some_and(|node| node.pods.contains(&idx)));
        if let Some(at) = at {
            self.remove_from_node(at, idx);
        }
        if let Some(pod) = self.pods[idx.at()].as_mut() {
            pod.evicting = evicting;
        }
        if let Some(at) = at {
            self.add_to_node(at, idx);
            self.push_room(at);
        }
    }

    fn upsert_gang(&mut self, facts: GangFacts) {
        let key = facts.key.clone();
        let old = self.gang_by_key.get(&key).copied();
        if let Some(idx) = old
            && self.gangs[idx.at()].as_ref().is_some_and(|gang| is_same(&gang.facts, &facts)) {
                return;
            }
        let (subs, problems) = gang::build_tree(&facts);
        let awaited = facts.awaited.iter().map(|awaited| Some(self.shape_to_come(awaited.shape.as_ref()?))).collect();
        let (life, usage) = (Life::default(), Usage::default());
        let mut gang = Gang {
            facts,
            subs,
            awaited,
            problems,
            quality: None,
            reasons: Vec::new(),
            backoff: None,
            unprepared: false,
            life,
            usage,
            promise: None,
            hunt_from: None,
            parked: None,
        };
        let idx = match old {
            Some(idx) => {
                if let Some(old) = self.gangs[idx.at()].take() {
                    self.gang_by_uid.remove(&old.facts.uid);
                    gang.quality = old.quality;
                    // With other warnings the report is another one: the next pass tells it.
                    if old.facts.warnings == gang.facts.warnings {
                        gang.reasons = old.reasons;
                    }
                    gang.backoff = old.backoff;
                    gang.life = old.life.in_tree(&old.subs, &gang.subs);
                    gang.usage = old.usage;
                    gang.unprepared = old.unprepared;
                    gang.promise = old.promise;
                    // What an earlier process wrote was read once.
                    gang.facts.promised = old.facts.promised;
                }
                idx
            }
            None => {
                self.gangs.push(None);
                GangIdx(self.gangs.len() as u32 - 1)
            }
        };
        self.gang_by_uid.insert(gang.facts.uid.clone(), idx);
        self.gang_by_key.insert(key.clone(), idx);
        self.gangs[idx.at()] = Some(gang);
        self.recharge_gang(&key);
        self.note_waiting(&key);
        self.touch_gang(&key);
    }

    /// The shape of pods to come. Rules about other pods are left to the pods themselves.
    fn shape_to_come(&mut self, written: &ShapeFacts) -> ShapeIdx {
        let facts = ShapeFacts {
            pod_affinity: Vec::new(),
            pod_anti_affinity: Vec::new(),
            preferred_pod_affinity: Vec::new(),
            spread: Vec::new(),
            ..written.clone()
        };
        self.intern_shape(&facts, Terms::default(), &VolumeNeeds::default())
    }

    fn delete_gang(&mut self, uid: &str) {
        let Some(idx) = self.gang_by_uid.remove(uid) else { return };
        let Some(gang) = self.gangs[idx.at()].take() else { return };
        self.gang_by_key.remove(&gang.facts.key);
        self.waiting.remove(&idx);
        self.touched.remove(&idx);
        self.stale.remove(&idx);
        self.recharge_gang(&gang.facts.key);
        self.release(uid);
    }

    fn note_waiting(&mut self, key: &ObjectKey) {
        let Some(idx) = self.gang_by_key.get(key).copied() else { return };
        let waits = self.waiting_pods.contains_key(key);
        if waits {
            self.waiting.insert(idx);
        } else {
            self.waiting.remove(&idx);
        }
        if let Some(gang) = self.gangs[idx.at()].as_mut() {
            // Its own pods changed: what it waited for may be another thing now.
            gang.parked = None;
            if !waits {
                gang.reasons.clear();
            }
        }
    }

    pub(super) fn hold(&mut self, gang: String, node: String, amounts: Amounts) {
        self.shift_hold(&node, &amounts, 1);
        self.holds.entry(gang).or_default().push((node, amounts));
    }

    pub(super) fn release(&mut self, gang: &str) {
        for (node, amounts) in self.holds.remove(gang).into_iter().flatten() {
            self.shift_hold(&node, &amounts, -1);
        }
    }

    fn shift_hold(&mut self, name: &str, amounts: &Amounts, times: i64) {
        let row: Vec<(usize, i64)> = self.amounts_by_column(amounts).into_iter().enumerate().collect();
        let Some(idx) = self.node_by_name.get(name).copied() else { return };
        if let Some(node) = self.nodes[idx.at()].as_mut() {
            shift(&mut node.held, &row, times);
        }
        self.push_room(idx);
    }

    fn reapply_holds(&mut self) {
        if self.holds.is_empty() && self.nodes.iter().flatten().all(|node| node.held.is_empty()) {
            return;
        }
        let all: Vec<(String, Amounts)> = self.holds.values().flatten().cloned().collect();
        for node in self.nodes.iter_mut().flatten() {
            node.held.clear();
        }
        for (name, amounts) in all {
            let row = self.amounts_by_column(&amounts);
            let Some(idx) = self.node_by_name.get(&name).copied() else { continue };
            if let Some(node) = self.nodes[idx.at()].as_mut() {
                let row: Vec<(usize, i64)> = row.into_iter().enumerate().collect();
                shift(&mut node.held, &row, 1);
            }
        }
        for at in 0..self.nodes.len() {
            self.push_room(NodeIdx(at as u32));
        }
    }
}

/// The same gang, apart from what an earlier process wrote of its places.
fn is_same(known: &GangFacts, told: &GangFacts) -> bool {
    *known == GangFacts { promised: known.promised.clone(), stale_since: known.stale_since, ..told.clone() }
}

fn same_but_allocatable(a: &NodeFacts, b: &NodeFacts) -> bool {
    a.labels == b.labels
        && a.taints == b.taints
        && a.unschedulable == b.unschedulable
        && a.ready == b.ready
        // A soft rule keeps pods without GPUs off nodes that offer some.
        && fit::offers_gpus(a) == fit::offers_gpus(b)
}

/// The key of the gang a pod names.
pub(crate) fn gang_key(facts: &PodFacts) -> Option<ObjectKey> {
    facts.gang.as_ref().map(|name| ObjectKey::new(facts.namespace.clone(), name.clone()))
}

fn shift(row: &mut Vec<i64>, amounts: &[(usize, i64)], times: i64) {
    for (column, amount) in amounts {
        if row.len() <= *column {
            row.resize(column + 1, 0);
        }
        row[*column] = row[*column].saturating_add(amount.saturating_mul(times));
    }
}
