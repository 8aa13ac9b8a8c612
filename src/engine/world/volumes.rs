//! Claims, volumes and classes: what a pod's claims ask of nodes, which volumes are free, and what decisions took.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::facts::{
    ClaimFacts, CsiNodeFacts, NodeFacts, NodeTerm, ObjectKey, PodFacts, Problem, ProblemCode, SelectorOperator,
    StorageCapacityFacts, StorageClassFacts, VolumeFacts,
};
use crate::fit;
use crate::fit::selectors::selects;
use crate::fit::volumes::{FreeVolume, MAX_WAITS, NO_LIMIT, VolumeNeeds, Wait, driver_of, zones};
use crate::ids::{NodeIdx, PodIdx, ShapeIdx};
use crate::world::World;
use crate::world::model::Node;

mod decide;

/// What the world knows of storage.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    claims: BTreeMap<ObjectKey, ClaimFacts>,
    claim_by_uid: BTreeMap<String, ObjectKey>,
    volumes: BTreeMap<String, VolumeFacts>,
    volume_by_uid: BTreeMap<String, String>,
    /// Volumes by the claim they are bound or reserved to.
    by_claim: BTreeMap<ObjectKey, BTreeSet<String>>,
    /// Claims by the volume they name.
    claims_of: BTreeMap<String, BTreeSet<ObjectKey>>,
    classes: BTreeMap<String, StorageClassFacts>,
    csi: BTreeMap<String, CsiNodeFacts>,
    capacities: BTreeMap<String, StorageCapacityFacts>,
    /// Pods that use a claim and are not over.
    users: BTreeMap<ObjectKey, BTreeSet<PodIdx>>,
    /// What decisions chose for claims that are not bound yet.
    decided: BTreeMap<ObjectKey, Decided>,
    /// Nodes on which a claim was not served in time.
    avoid: BTreeMap<ObjectKey, String>,
    /// Volumes that a claim may take, by name.
    free: BTreeMap<String, Arc<FreeVolume>>,
    /// The same by node, smallest first.
    by_node: BTreeMap<NodeIdx, Vec<Arc<FreeVolume>>>,
    /// Free volumes by class that more than one node reaches.
    wide: BTreeMap<String, usize>,
    /// Numbers of volumes that several pods use.
    shared: BTreeMap<(String, String), u32>,
}

#[derive(Clone, Debug)]
struct Decided {
    pod: PodIdx,
    node: String,
    volume: Option<String>,
}

impl Volumes {
    /// Claims that need no free volume on the node, a bit each.
    #[must_use]
    pub fn served(&self, node: &NodeFacts, waits: &[Wait]) -> u64 {
        let mut open = 0;
        for (at, wait) in waits.iter().take(MAX_WAITS).enumerate() {
            let reserved = wait.prebound.as_ref().and_then(|name| self.volumes.get(name));
            let reached = reserved.is_some_and(|volume| reaches(node, volume.node_terms.as_deref()));
            let elsewhere = wait.selected.as_ref().is_some_and(|name| *name != node.name);
            if reached || (!elsewhere && self.can_provision(node, wait)) {
                open |= 1 << at;
            }
        }
        open
    }

    fn can_provision(&self, node: &NodeFacts, wait: &Wait) -> bool {
        let Some(class) = self.classes.get(&wait.class).filter(|class| class.provisions) else { return false };
        let topology = class.topologies.as_ref().is_none_or(|terms| reaches(node, Some(terms)));
        topology && (!class.has_capacity || wait.bytes == 0 || self.has_capacity(node, wait))
    }

    fn has_capacity(&self, node: &NodeFacts, wait: &Wait) -> bool {
        self.capacities.values().filter(|capacity| capacity.class == wait.class).any(|capacity| {
            capacity.largest_bytes.or(capacity.bytes).is_some_and(|bytes| bytes >= wait.bytes)
                && capacity.nodes.as_ref().is_some_and(|selector| selects(selector, &node.labels))
        })
    }

    /// True when placing one pod of these needs changes what other nodes can serve.
    #[must_use]
    pub fn couples(&self, needs: &VolumeNeeds) -> bool {
        needs.waits.iter().any(|wait| wait.shared.is_some() || self.wide.contains_key(&wait.class))
    }

    /// Driver and handle of a claim's volume, when it is one that counts.
    fn attachment(&self, claim: &ClaimFacts) -> Option<(String, String)> {
        if let Some(volume) = claim.volume.as_ref().and_then(|name| self.volumes.get(name)) {
            return (!volume.driver.is_empty()).then(|| (volume.driver.clone(), volume.handle.clone()));
        }
        let class = claim.class.as_ref().and_then(|class| self.classes.get(class))?;
        let handle = format!("{}/{}", claim.key.namespace, claim.key.name);
        class.provisions.then(|| (class.provisioner.clone(), handle))
    }

    fn n_users(&self, claim: &ObjectKey) -> usize {
        self.users.get(claim).map_or(0, BTreeSet::len)
    }

    /// The volume that is reserved for a claim, when it will do.
    fn reserved(&self, claim: &ClaimFacts) -> Option<&VolumeFacts> {
        if let Some(name) = self.decided.get(&claim.key).and_then(|decided| decided.volume.as_ref()) {
            return self.volumes.get(name);
        }
        self.by_claim.get(&claim.key).into_iter().flatten().filter_map(|name| self.volumes.get(name)).find(|volume| {
            (volume.claim_uid.is_empty() || volume.claim_uid == claim.uid)
                && claim.class.as_deref() == Some(&volume.class)
                && claim.bytes <= volume.bytes
                && claim.block == volume.block
        })
    }

    fn wait(&self, claim: &ClaimFacts, class: &str) -> Wait {
        let decided = self.decided.get(&claim.key).filter(|decided| decided.volume.is_none());
        let prebound = self.reserved(claim).map(|volume| volume.name.clone());
        let settled = prebound.is_some();
        Wait {
            bytes: claim.bytes,
            class: class.to_owned(),
            access_modes: claim.access_modes.clone(),
            block: claim.block,
            selector: claim.selector.clone(),
            selected: decided.map(|decided| decided.node.clone()).or_else(|| claim.selected_node.clone()),
            prebound,
            avoid: self.avoid.get(&claim.key).cloned(),
            shared: (self.n_users(&claim.key) > 1 && !settled).then(|| claim.key.clone()),
        }
    }
}

/// True when one of the terms matches, or there are none to match.
fn reaches(node: &NodeFacts, terms: Option<&[NodeTerm]>) -> bool {
    terms.is_none_or(|terms| terms.iter().any(|term| fit::term_matches(node, term)))
}

fn problem(code: ProblemCode, object: String, key: &str, value: &str, allowed: &str) -> Problem {
    Problem { code, object, key: key.to_owned(), value: value.to_owned(), allowed: allowed.to_owned() }
}

/// A problem of a claim.
fn claim_problem(code: ProblemCode, name: &str, key: &str, value: &str, allowed: &str) -> Problem {
    problem(code, format!("PersistentVolumeClaim {name}"), key, value, allowed)
}

impl World {
    /// What the claims of a pod ask of nodes.
    pub(super) fn volume_needs(&self, facts: &PodFacts, placed: bool) -> VolumeNeeds {
        let mut needs = VolumeNeeds::default();
        for name in &facts.claims {
            let key = ObjectKey::new(facts.namespace.clone(), name.clone());
            let Some(claim) = self.volumes.claims.get(&key) else {
                let allowed = "a claim that exists in the pod's namespace";
                needs.blocked.insert(claim_problem(ProblemCode::ClaimNotFound, name, "spec.volumes[].persistentVolumeClaim", name, allowed));
                continue;
            };
            if let Some(attachment) = self.volumes.attachment(claim) {
                if self.volumes.n_users(&key) > 1 {
                    needs.shared.insert(attachment);
                } else {
                    *needs.private.entry(attachment.0).or_default() += 1;
                }
            }
            if !placed
                && let Err(blocked) = self.claim_needs(facts, claim, &mut needs) {
                    needs.blocked.insert(blocked);
                }
        }
        needs.waits.sort_unstable();
        if needs.waits.len() > MAX_WAITS {
            let value = needs.waits.len().to_string();
            let allowed = format!("up to {MAX_WAITS} claims that wait for a node");
            needs.blocked.insert(problem(ProblemCode::TooManyClaims, String::new(), "spec.volumes", &value, &allowed));
        }
        if placed {
            needs.blocked.clear();
        }
        needs
    }

    fn claim_needs(&self, pod: &PodFacts, claim: &ClaimFacts, needs: &mut VolumeNeeds) -> Result<(), Problem> {
        let name = &claim.key.name;
        let volume = claim.volume.as_deref().unwrap_or("");
        let fail = |code, key, value: &str, allowed| Err(claim_problem(code, name, key, value, allowed));
        if claim.lost {
            return fail(ProblemCode::ClaimLost, "status.phase", "Lost", "a claim whose volume exists");
        }
        if claim.terminating {
            return fail(ProblemCode::ClaimTerminating, "metadata.deletionTimestamp", "set", "a claim that is not being deleted");
        }
        if pod.owned_claims.contains(name) && claim.owner_uid.as_ref() != Some(&pod.uid) {
            return fail(ProblemCode::ClaimNotOwned, "metadata.ownerReferences", "", "the claim made for this pod's ephemeral volume");
        }
        if claim.one_pod && self.used_elsewhere(pod, &claim.key) {
            return fail(ProblemCode::ClaimInUse, "spec.accessModes", "ReadWriteOncePod", "one pod at a time: another one uses it");
        }
        if claim.bound {
            let Some(facts) = self.volumes.volumes.get(volume) else {
                return fail(ProblemCode::VolumeNotFound, "spec.volumeName", volume, "a PersistentVolume that exists");
            };
            needs.node_terms.extend(facts.node_terms.clone());
            needs.zones.extend(zones(&facts.labels));
            return Ok(());
        }
        let class_name = claim.class.as_deref().unwrap_or("");
        if class_name.is_empty() {
            return fail(ProblemCode::ClaimNotBound, "spec.volumeName", volume, "a bound claim: without a storage class nothing else can serve it");
        }
        let Some(class) = self.volumes.classes.get(class_name) else {
            return fail(ProblemCode::StorageClassNotFound, "spec.storageClassName", class_name, "a StorageClass that exists");
        };
        if !class.waits || !volume.is_empty() {
            return fail(ProblemCode::ClaimNotBound, "spec.volumeName", volume, "a bound claim: its class binds without waiting for a pod");
        }
        needs.waits.push(self.volumes.wait(claim, class_name));
        Ok(())
    }

    fn used_elsewhere(&self, pod: &PodFacts, claim: &ObjectKey) -> bool {
        let mut users = self.volumes.users.get(claim).into_iter().flatten().filter_map(|idx| self.pods[idx.at()].as_ref());
        users.any(|other| other.facts.uid != pod.uid && other.holds())
    }

    /// Claims of the pod that one pod at a time may use.
    pub(crate) fn exclusive_claims(&self, facts: &PodFacts) -> Vec<ObjectKey> {
        let keys = facts.claims.iter().map(|name| ObjectKey::new(facts.namespace.clone(), name.clone()));
        keys.filter(|key| self.volumes.claims.get(key).is_some_and(|claim| claim.one_pod)).collect()
    }

    /// The number of a shared volume.
    pub(super) fn shared_volume(&mut self, volume: &(String, String)) -> u32 {
        if let Some(number) = self.volumes.shared.get(volume) {
            return *number;
        }
        let number = self.volumes.shared.len() as u32;
        self.volumes.shared.insert(volume.clone(), number);
        number
    }

    /// What a node has of a column, volumes of drivers included.
    pub(crate) fn allocatable_of(&self, node: &Node, column: usize) -> i64 {
        match driver_of(&self.columns[column]) {
            None => node.allocatable.get(column).copied().unwrap_or(0),
            Some(driver) => {
                let limit = self.volumes.csi.get(&node.facts.name).and_then(|csi| csi.limits.get(driver));
                limit.map_or(NO_LIMIT, |limit| i64::from(*limit))
            }
        }
    }

    /// Free volumes that the node reaches.
    pub(super) fn free_volumes(&self, node: &NodeFacts) -> Vec<Arc<FreeVolume>> {
        let idx = self.node_by_name.get(&node.name);
        idx.and_then(|idx| self.volumes.by_node.get(idx)).cloned().unwrap_or_default()
    }

    /// Counts the pod among the users of its claims, or no longer; gives the claims whose other users see a difference.
    pub(super) fn note_user(&mut self, facts: &PodFacts, idx: PodIdx, uses: bool) {
        for name in &facts.claims {
            let key = ObjectKey::new(facts.namespace.clone(), name.clone());
            let users = self.volumes.users.entry(key.clone()).or_default();
            if uses {
                users.insert(idx);
            } else {
                users.remove(&idx);
            }
            if users.is_empty() {
                self.volumes.users.remove(&key);
            }
        }
    }

    /// Looks again at the other pods that use these claims, where one user more or less makes a difference.
    pub(super) fn review_users(&mut self, facts: &PodFacts, idx: PodIdx) {
        for name in &facts.claims {
            let key = ObjectKey::new(facts.namespace.clone(), name.clone());
            let exclusive = self.volumes.claims.get(&key).is_some_and(|claim| claim.one_pod);
            if self.volumes.n_users(&key) <= 2 || exclusive {
                self.review_claim(&key, Some(idx));
            }
        }
    }

    fn review_claim(&mut self, key: &ObjectKey, except: Option<PodIdx>) {
        let users: Vec<PodIdx> = self.volumes.users.get(key).into_iter().flatten().copied().collect();
        for user in users.into_iter().filter(|user| Some(*user) != except) {
            self.review_pod(user);
        }
    }

    fn review_all(&mut self) {
        let users: BTreeSet<PodIdx> = self.volumes.users.values().flatten().copied().collect();
        for user in users {
            self.review_pod(user);
        }
    }

    /// Gives a pod its shape again after something that its claims depend on changed.
    pub(super) fn review_pod(&mut self, idx: PodIdx) {
        let Some(pod) = self.pods[idx.at()].as_ref() else { return };
        let needs = self.volume_needs(&pod.facts, pod.node.is_some());
        let (facts, before) = (pod.facts.shape.clone(), pod.shape);
        let terms = self.shapes[before.at()].terms.clone();
        let shape = self.intern_shape(&facts, terms, &needs);
        if shape == before {
            return;
        }
        self.detach(idx);
        let requests = self.shapes[shape.at()].requests.clone();
        if let Some(pod) = self.pods[idx.at()].as_mut() {
            pod.shape = shape;
            pod.requests = requests;
        }
        self.attach(idx);
    }

    // ---- free volumes ----

    /// Puts a volume among the free ones, or takes it out, as its facts and the decisions have it.
    fn refresh_volume(&mut self, name: &str) {
        let mut touched: BTreeSet<NodeIdx> = BTreeSet::new();
        if let Some(old) = self.volumes.free.remove(name) {
            touched.extend(&old.reach);
            self.drop_free(&old);
        }
        let nodes = self.nodes.iter().enumerate().filter_map(|(at, node)| Some((NodeIdx(at as u32), &node.as_ref()?.facts)));
        let candidates: Vec<(NodeIdx, &NodeFacts)> = nodes.collect();
        if let Some(volume) = self.volumes.as_free(name, candidates.into_iter()) {
            touched.extend(&volume.reach);
            self.volumes.add_free(volume);
        }
        for node in touched {
            self.push_room(node);
        }
    }

    fn drop_free(&mut self, old: &Arc<FreeVolume>) {
        for node in &old.reach {
            if let Some(list) = self.volumes.by_node.get_mut(node) {
                list.retain(|other| other.name != old.name);
            }
        }
        if old.reach.len() > 1
            && let Some(n) = self.volumes.wide.get_mut(&old.class) {
                *n -= 1;
                if *n == 0 {
                    self.volumes.wide.remove(&old.class);
                }
            }
    }

    /// Finds the nodes of every free volume again, after nodes changed.
    pub(super) fn refresh_reach(&mut self) {
        if self.volumes.volumes.is_empty() && self.volumes.by_node.is_empty() {
            return;
        }
        let before: BTreeSet<NodeIdx> = self.volumes.by_node.keys().copied().collect();
        self.volumes.free.clear();
        self.volumes.by_node.clear();
        self.volumes.wide.clear();
        let names: Vec<String> = self.volumes.volumes.keys().cloned().collect();
        let mut index = LabelIndex::default();
        for name in names {
            let candidates = index.candidates(&self.nodes, self.volumes.volumes.get(&name));
            let nodes = candidates.into_iter().filter_map(|idx| Some((idx, &self.nodes[idx.at()].as_ref()?.facts)));
            if let Some(volume) = self.volumes.as_free(&name, nodes) {
                self.volumes.add_free(volume);
            }
        }
        let after: BTreeSet<NodeIdx> = self.volumes.by_node.keys().copied().collect();
        for node in before.union(&after) {
            if self.nodes.get(node.at()).is_some_and(Option::is_some) {
                self.push_room(*node);
            }
        }
    }

    // ---- events ----

    pub(super) fn upsert_claim(&mut self, facts: ClaimFacts) {
        let key = facts.key.clone();
        if self.volumes.claims.get(&key) == Some(&facts) {
            return;
        }
        self.unlink_claim(&key);
        self.volumes.claim_by_uid.insert(facts.uid.clone(), key.clone());
        if let Some(volume) = &facts.volume {
            self.volumes.claims_of.entry(volume.clone()).or_default().insert(key.clone());
        }
        let bound = facts.bound;
        self.volumes.claims.insert(key.clone(), facts);
        if bound {
            self.volumes.avoid.remove(&key);
            self.forget_decision(&key);
        }
        self.review_claim(&key, None);
    }

    fn unlink_claim(&mut self, key: &ObjectKey) {
        let Some(old) = self.volumes.claims.remove(key) else { return };
        self.volumes.claim_by_uid.remove(&old.uid);
        if let Some(claims) = old.volume.as_ref().and_then(|volume| self.volumes.claims_of.get_mut(volume)) {
            claims.remove(key);
        }
    }

    pub(super) fn delete_claim(&mut self, uid: &str) {
        let Some(key) = self.volumes.claim_by_uid.get(uid).cloned() else { return };
        self.unlink_claim(&key);
        self.volumes.avoid.remove(&key);
        self.forget_decision(&key);
        self.review_claim(&key, None);
    }

    pub(super) fn upsert_volume(&mut self, facts: VolumeFacts) {
        let name = facts.name.clone();
        if self.volumes.volumes.get(&name) == Some(&facts) {
            return;
        }
        let mut claims = self.unlink_volume(&name);
        self.volumes.volume_by_uid.insert(facts.uid.clone(), name.clone());
        if let Some(claim) = &facts.claim {
            self.volumes.by_claim.entry(claim.clone()).or_default().insert(name.clone());
            claims.insert(claim.clone());
        }
        self.volumes.volumes.insert(name.clone(), facts);
        self.after_volume(&name, claims);
    }

    fn unlink_volume(&mut self, name: &str) -> BTreeSet<ObjectKey> {
        let mut claims = self.volumes.claims_of.get(name).cloned().unwrap_or_default();
        if let Some(old) = self.volumes.volumes.remove(name) {
            self.volumes.volume_by_uid.remove(&old.uid);
            if let Some(claim) = old.claim {
                if let Some(names) = self.volumes.by_claim.get_mut(&claim) {
                    names.remove(name);
                }
                claims.insert(claim);
            }
        }
        claims
    }

    fn after_volume(&mut self, name: &str, claims: BTreeSet<ObjectKey>) {
        // With nodes still to be sorted into trees, all volumes are looked at together then.
        if !self.trees_dirty {
            self.refresh_volume(name);
        }
        for claim in claims {
            self.review_claim(&claim, None);
        }
    }

    pub(super) fn delete_volume(&mut self, uid: &str) {
        let Some(name) = self.volumes.volume_by_uid.get(uid).cloned() else { return };
        let claims = self.unlink_volume(&name);
        self.after_volume(&name, claims);
    }

    pub(super) fn upsert_class(&mut self, facts: StorageClassFacts) {
        if self.volumes.classes.get(&facts.name) != Some(&facts) {
            let name = facts.name.clone();
            self.volumes.classes.insert(name.clone(), facts);
            self.class_changed(&name);
            self.review_all();
        }
    }

    pub(super) fn delete_class(&mut self, uid: &str) {
        self.volumes.classes.retain(|_, facts| facts.uid != uid);
        self.rooms.forget(|_| true);
        self.review_all();
    }

    /// Answers about nodes that depend on a class are no longer true.
    fn class_changed(&mut self, class: &str) {
        let waiting = |ShapeIdx(at): ShapeIdx| {
            self.shapes.get(at as usize).is_some_and(|shape| shape.volumes.waits.iter().any(|wait| wait.class == class))
        };
        self.rooms.forget(waiting);
    }

    pub(super) fn upsert_csi_node(&mut self, facts: CsiNodeFacts) {
        let name = facts.name.clone();
        if self.volumes.csi.get(&name) != Some(&facts) {
            self.volumes.csi.insert(name.clone(), facts);
            self.push_room_by_name(&name);
        }
    }

    pub(super) fn delete_csi_node(&mut self, name: &str) {
        if self.volumes.csi.remove(name).is_some() {
            self.push_room_by_name(name);
        }
    }

    fn push_room_by_name(&mut self, name: &str) {
        if let Some(idx) = self.node_by_name.get(name).copied() {
            self.push_room(idx);
        }
    }

    pub(super) fn upsert_capacity(&mut self, facts: StorageCapacityFacts) {
        let class = facts.class.clone();
        if self.volumes.capacities.get(&facts.uid) != Some(&facts) {
            let old = self.volumes.capacities.insert(facts.uid.clone(), facts);
            if let Some(old) = old.filter(|old| old.class != class) {
                self.class_changed(&old.class);
            }
            self.class_changed(&class);
        }
    }

    pub(super) fn delete_capacity(&mut self, uid: &str) {
        if let Some(old) = self.volumes.capacities.remove(uid) {
            self.class_changed(&old.class);
        }
    }

    /// The events that rebuild what is known of storage.
    pub(super) fn storage_events(&self) -> Vec<crate::facts::Event> {
        use crate::facts::Event;
        let known = &self.volumes;
        let mut events: Vec<Event> = known.classes.values().cloned().map(Event::StorageClassUpsert).collect();
        events.extend(known.csi.values().cloned().map(Event::CsiNodeUpsert));
        events.extend(known.capacities.values().cloned().map(Event::StorageCapacityUpsert));
        events.extend(known.volumes.values().cloned().map(Event::VolumeUpsert));
        events.extend(known.claims.values().cloned().map(Event::ClaimUpsert));
        events
    }
}

impl Volumes {
    /// The volume as a free one, with the nodes that reach it; `None` when it is not free.
    fn as_free<'a>(&self, name: &str, nodes: impl Iterator<Item = (NodeIdx, &'a NodeFacts)>) -> Option<Arc<FreeVolume>> {
        let facts = self.volumes.get(name)?;
        let taken = self.decided.values().any(|decided| decided.volume.as_deref() == Some(name));
        if !facts.available || facts.claim.is_some() || taken {
            return None;
        }
        let reach = nodes.filter(|(_, node)| reaches(node, facts.node_terms.as_deref())).map(|(idx, _)| idx).collect();
        Some(Arc::new(FreeVolume {
            bytes: facts.bytes,
            name: facts.name.clone(),
            class: facts.class.clone(),
            access_modes: facts.access_modes.clone(),
            block: facts.block,
            labels: facts.labels.clone(),
            reach,
        }))
    }

    fn add_free(&mut self, volume: Arc<FreeVolume>) {
        for node in &volume.reach {
            let list = self.by_node.entry(*node).or_default();
            if let Err(at) = list.binary_search(&volume) {
                list.insert(at, Arc::clone(&volume));
            }
        }
        if volume.reach.len() > 1 {
            *self.wide.entry(volume.class.clone()).or_default() += 1;
        }
        self.free.insert(volume.name.clone(), volume);
    }
}

/// Nodes by the value of a label, for the labels that volumes ask for: a local volume names one host, and looking at
/// every node for every volume would cost their product.
#[derive(Default)]
struct LabelIndex {
    by_label: BTreeMap<String, BTreeMap<String, Vec<NodeIdx>>>,
}

impl LabelIndex {
    /// Nodes that could match the volume's terms.
    fn candidates(&mut self, nodes: &[Option<Node>], volume: Option<&VolumeFacts>) -> Vec<NodeIdx> {
        let all = || (0..nodes.len() as u32).map(NodeIdx).collect();
        let Some(terms) = volume.and_then(|volume| volume.node_terms.as_ref()) else { return all() };
        let mut found = BTreeSet::new();
        for term in terms {
            let listed = |requirement: &&crate::facts::Requirement| !requirement.on_name && requirement.operator == SelectorOperator::In;
            let Some(requirement) = term.requirements.iter().find(listed) else { return all() };
            let by_value = self.by_label.entry(requirement.key.clone()).or_insert_with(|| {
                let mut by_value: BTreeMap<String, Vec<NodeIdx>> = BTreeMap::new();
                for (at, node) in nodes.iter().enumerate() {
                    if let Some(value) = node.as_ref().and_then(|node| node.facts.labels.get(&requirement.key)) {
                        by_value.entry(value.clone()).or_default().push(NodeIdx(at as u32));
                    }
                }
                by_value
            });
            for value in &requirement.values {
                found.extend(by_value.get(value).into_iter().flatten().copied());
            }
        }
        found.into_iter().collect()
    }
}
