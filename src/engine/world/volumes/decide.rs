//! Volumes and nodes for the claims of pods that are given places: what decisions chose, and what is given up again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::Decided;
use crate::facts::{ClaimFacts, ObjectKey};
use crate::fit::volumes::{FreeVolume, Wait};
use crate::ids::{NodeIdx, PodIdx};
use crate::outcome::VolumeChoice;
use crate::world::World;

/// A claim that a decision must serve.
struct Asker {
    wait: Wait,
    /// Where the pods that use it go.
    nodes: Vec<NodeIdx>,
    /// It can do without a free volume.
    open: bool,
}

/// Volumes for all claims of a decision at once.
///
/// Served one after the other, a claim could take the one volume that reaches the node of another. Claims that can't do
/// without come first; each prefers the smallest volume, and one that has its volume keeps one.
#[derive(Default)]
struct Matching {
    /// Volumes that each claim may take, smallest first.
    candidates: Vec<Vec<usize>>,
    /// The claim that has the volume.
    owner: Vec<Option<usize>>,
    /// The volume that the claim has.
    holds: Vec<Option<usize>>,
}

impl Matching {
    /// Finds a volume for a claim, moving others to other volumes when that helps.
    fn serve(&mut self, claim: usize) {
        let mut came: BTreeMap<usize, usize> = BTreeMap::new();
        let mut queue = VecDeque::from([claim]);
        while let Some(asker) = queue.pop_front() {
            for volume in &self.candidates[asker] {
                if came.contains_key(volume) {
                    continue;
                }
                came.insert(*volume, asker);
                match self.owner[*volume] {
                    Some(other) => queue.push_back(other),
                    None => return self.shift(*volume, &came),
                }
            }
        }
    }

    /// Gives a volume to the claim that came to it, that one's to the claim before, and so on.
    fn shift(&mut self, mut volume: usize, came: &BTreeMap<usize, usize>) {
        while let Some(asker) = came.get(&volume) {
            self.owner[volume] = Some(*asker);
            let Some(before) = self.holds[*asker].replace(volume) else { return };
            volume = before;
        }
    }
}

impl World {
    /// Claims of a pod that are not bound yet, with what they wait for.
    fn open_claims(&self, idx: PodIdx) -> Vec<(Wait, &ClaimFacts)> {
        let Some(pod) = self.pods[idx.at()].as_ref() else { return Vec::new() };
        let keys = pod.facts.claims.iter().map(|name| ObjectKey::new(pod.facts.namespace.clone(), name.clone()));
        let claims = keys.filter_map(|key| self.volumes.claims.get(&key)).filter(|claim| !claim.bound);
        let waits = claims.filter_map(|claim| Some((self.volumes.wait(claim, claim.class.as_deref()?), claim)));
        let mut waits: Vec<(Wait, &ClaimFacts)> = waits.collect();
        waits.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.key.cmp(&b.1.key)));
        waits
    }

    /// Free volumes for the claims of pods that are given nodes together, by claim.
    pub(crate) fn match_volumes(&self, places: &[(PodIdx, NodeIdx)]) -> BTreeMap<ObjectKey, String> {
        let mut askers: BTreeMap<ObjectKey, Asker> = BTreeMap::new();
        for (idx, node) in places {
            let Some(facts) = self.nodes[node.at()].as_ref().map(|node| &node.facts) else { continue };
            for (wait, claim) in self.open_claims(*idx) {
                if wait.prebound.is_some() || self.volumes.decided.contains_key(&claim.key) {
                    continue;
                }
                let open = self.volumes.served(facts, std::slice::from_ref(&wait)) != 0;
                let asker = askers.entry(claim.key.clone()).or_insert(Asker { wait, nodes: Vec::new(), open: true });
                asker.open &= open && asker.nodes.iter().all(|other| other == node);
                asker.nodes.push(*node);
            }
        }
        let mut volumes: BTreeMap<Arc<FreeVolume>, usize> = BTreeMap::new();
        let mut matching = Matching::default();
        for asker in askers.values() {
            let near = asker.nodes.first().and_then(|node| self.volumes.by_node.get(node)).into_iter().flatten();
            let reached = |volume: &&Arc<FreeVolume>| asker.nodes.iter().all(|node| volume.reach.contains(node));
            let fitting = near.filter(|volume| asker.wait.takes(volume)).filter(reached);
            let numbers = fitting.map(|volume| {
                let next = volumes.len();
                *volumes.entry(Arc::clone(volume)).or_insert(next)
            });
            matching.candidates.push(numbers.collect());
        }
        matching.owner = vec![None; volumes.len()];
        matching.holds = vec![None; matching.candidates.len()];
        // Smallest claims first, as in the search.
        let mut order: Vec<(bool, &Wait, usize)> =
            askers.values().enumerate().map(|(at, asker)| (asker.open, &asker.wait, at)).collect();
        order.sort_unstable();
        for (_, _, claim) in order {
            matching.serve(claim);
        }
        let names: BTreeMap<usize, &Arc<FreeVolume>> = volumes.iter().map(|(volume, at)| (*at, volume)).collect();
        let held = askers.into_keys().zip(matching.holds);
        held.filter_map(|(key, volume)| Some((key, names.get(&volume?)?.name.clone()))).collect()
    }

    /// Reserves what was found for the claims of a pod that is given a node.
    pub(crate) fn decide_volumes(
        &mut self,
        idx: PodIdx,
        node: NodeIdx,
        found: &BTreeMap<ObjectKey, String>,
    ) -> Vec<VolumeChoice> {
        let Some(node_name) = self.nodes[node.at()].as_ref().map(|node| node.facts.name.clone()) else { return Vec::new() };
        let mut choices = Vec::new();
        let mut reserve = Vec::new();
        for (wait, claim) in self.open_claims(idx) {
            let decided = self.volumes.decided.get(&claim.key);
            let volume = match (decided, &wait.prebound) {
                (Some(decided), _) => decided.volume.clone(),
                (None, Some(name)) => Some(name.clone()),
                (None, None) => found.get(&claim.key).cloned(),
            };
            if decided.is_none() {
                reserve.push((claim.key.clone(), Decided { pod: idx, node: node_name.clone(), volume: volume.clone() }));
            }
            choices.push(VolumeChoice { claim: claim.key.name.clone(), claim_uid: claim.uid.clone(), volume });
        }
        for (key, decided) in reserve {
            let volume = decided.volume.clone();
            self.volumes.decided.insert(key.clone(), decided);
            if let Some(name) = volume {
                self.refresh_volume(&name);
            }
            self.review_claim(&key, Some(idx));
        }
        choices
    }

    /// Gives up what was chosen for the claims of a pod whose place is lost.
    pub(in crate::world) fn undecide_volumes(&mut self, idx: PodIdx) {
        let keys = self.volumes.decided.iter().filter(|(_, decided)| decided.pod == idx).map(|(key, _)| key.clone());
        for key in keys.collect::<Vec<_>>() {
            self.forget_decision(&key);
        }
    }

    /// The claims of a pod were not served on its node: another one is to be tried first.
    pub(in crate::world) fn avoid_node(&mut self, uid: &str) {
        let Some(idx) = self.pod_by_uid.get(uid).copied() else { return };
        let decided = self.volumes.decided.iter().filter(|(_, decided)| decided.pod == idx);
        let failed: Vec<(ObjectKey, String)> = decided.map(|(key, decided)| (key.clone(), decided.node.clone())).collect();
        self.volumes.avoid.extend(failed);
    }

    /// Drops the wish for another node where there is none. True when that changed something for these pods.
    pub(crate) fn allow_avoided(&mut self, pods: &[PodIdx]) -> bool {
        if self.volumes.avoid.is_empty() {
            return false;
        }
        let mut keys = BTreeSet::new();
        for facts in pods.iter().filter_map(|idx| Some(&self.pods[idx.at()].as_ref()?.facts)) {
            keys.extend(facts.claims.iter().map(|name| ObjectKey::new(facts.namespace.clone(), name.clone())));
        }
        keys.retain(|key| self.volumes.avoid.remove(key).is_some());
        for key in &keys {
            self.review_claim(key, None);
        }
        !keys.is_empty()
    }

    pub(super) fn forget_decision(&mut self, key: &ObjectKey) {
        if let Some(decided) = self.volumes.decided.remove(key) {
            if let Some(name) = decided.volume {
                self.refresh_volume(&name);
            }
            self.review_claim(key, None);
        }
    }
}
