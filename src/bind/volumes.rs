//! Before the Bindings of a gang: its claims that wait for a node are told which, and get their volumes.
//!
//! A claim is told its node by an annotation, from which a provisioner starts, or a free volume is reserved for it, from
//! which the volume controller does the rest. Then each claim is watched until it is bound. When one is not bound in time,
//! or the provisioner gives up, what was written and not used is taken back and nothing of the gang is bound.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_engine::outcome::{Decision, Placement, VolumeChoice};
use futures::StreamExt;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::Sender;
use crate::cluster::convert::storage::{BIND_COMPLETED, SELECTED_NODE};

/// How long the claims of a gang may take to be bound unless `--volume-timeout-seconds` says otherwise: cloud disks take
/// seconds, slow arrays minutes; kube-scheduler waits as long.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// Claims of one gang that are worked on at a time.
const IN_FLIGHT: usize = 16;

/// Tries of one write that meets a newer version of the object.
const MAX_TRIES: u32 = 5;

/// Wait after the server was too busy for a write.
const BUSY_WAIT: Duration = Duration::from_millis(500);

/// Says of a volume that a controller, not a person, chose its claim.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// A claim that could not be prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    /// UID of the pod that it was prepared for.
    pub(super) pod_uid: String,
    /// Why, in a phrase.
    pub(super) text: String,
}

/// True when something must be prepared before the first Binding.
pub(super) fn needed(decision: &Decision) -> bool {
    decision.placements.iter().any(|placement| !placement.volumes.is_empty())
}

/// Prepares every claim of a decision. An error means that nothing of it may be bound.
pub(super) async fn prepare(sender: &Sender, decision: &Decision, timeout: Duration) -> Result<(), Vec<Failed>> {
    let client = &sender.client;
    let mut seen = BTreeSet::new();
    let claims: Vec<Claim<'_>> = decision
        .placements
        .iter()
        .flat_map(|placement| placement.volumes.iter().map(move |choice| (placement, choice)))
        .filter(|(_, choice)| seen.insert(choice.claim_uid.clone()))
        .map(|(placement, choice)| Claim::new(sender, placement, choice))
        .collect();
    let work = async {
        nominate(sender, decision, true).await;
        let mut failed = Vec::new();
        for chunk in claims.chunks(IN_FLIGHT) {
            let results = join_all(chunk.iter().map(Claim::prepare)).await;
            failed.extend(results.into_iter().zip(chunk).filter_map(|(result, claim)| Some(claim.failed(result.err()?))));
        }
        if failed.is_empty() { wait(client, &decision.gang.namespace, &claims).await } else { failed }
    };
    let failed = match tokio::time::timeout(timeout, work).await {
        Ok(failed) => failed,
        Err(_) => late(&claims, timeout).await,
    };
    if failed.is_empty() {
        return Ok(());
    }
    for claim in &claims {
        claim.undo().await;
    }
    nominate(sender, decision, false).await;
    Err(failed)
}

/// Writes the chosen nodes on the pods (`status.nominatedNodeName`), or takes them back: volumes take long, and who looks on
/// (an autoscaler, the next process after a crash) should know where the gang goes.
async fn nominate(sender: &Sender, decision: &Decision, on: bool) {
    for chunk in decision.placements.chunks(IN_FLIGHT) {
        join_all(chunk.iter().map(|placement| sender.nominate(placement, on.then_some(placement.node.as_str())))).await;
    }
}

/// Watches the claims until all are bound; gives those that can't be any more. One watch for the whole gang.
async fn wait(client: &Client, namespace: &str, claims: &[Claim<'_>]) -> Vec<Failed> {
    let mut left: BTreeMap<&str, &Claim<'_>> = claims.iter().map(|claim| (claim.choice.claim_uid.as_str(), claim)).collect();
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    while !left.is_empty() {
        let (object, gone) = match events.next().await {
            Some(Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) => (object, false),
            Some(Ok(watcher::Event::Delete(object))) => (object, true),
            Some(Ok(watcher::Event::Init | watcher::Event::InitDone)) => continue,
            Some(Err(error)) => {
                warn!(namespace, %error, "watching claims failed; trying again");
                continue;
            }
            None => return left.values().map(|claim| claim.failed("claims can no longer be watched".to_owned())).collect(),
        };
        let uid = object.uid().unwrap_or_default();
        let Some(claim) = left.get(uid.as_str()) else { continue };
        let name = &claim.choice.claim;
        if gone {
            return vec![claim.failed(format!("claim {name} is gone"))];
        }
        if is_bound(&object) {
            left.remove(uid.as_str());
        } else if claim.choice.volume.is_none() && object.annotations().get(SELECTED_NODE) != Some(&claim.placement.node) {
            // A provisioner that can't serve the node takes the annotation away.
            return vec![claim.failed(format!("the provisioner gave up claim {name} on node {}", claim.placement.node))];
        }
    }
    Vec::new()
}

/// The claims that are not bound when the time is over.
async fn late(claims: &[Claim<'_>], timeout: Duration) -> Vec<Failed> {
    let mut failed = Vec::new();
    for claim in claims {
        if !claim.read().await.is_ok_and(|read| is_bound(&read)) {
            failed.push(claim.failed(format!("claim {} was not bound within {} s", claim.choice.claim, timeout.as_secs())));
        }
    }
    failed
}

struct Claim<'a> {
    claims: Api<PersistentVolumeClaim>,
    volumes: Api<PersistentVolume>,
    sender: &'a Sender,
    placement: &'a Placement,
    choice: &'a VolumeChoice,
}

impl<'a> Claim<'a> {
    fn new(sender: &'a Sender, placement: &'a Placement, choice: &'a VolumeChoice) -> Self {
        Self {
            claims: Api::namespaced(sender.client.clone(), &placement.pod.namespace),
            volumes: Api::all(sender.client.clone()),
            sender,
            placement,
            choice,
        }
    }

    fn failed(&self, text: String) -> Failed {
        Failed { pod_uid: self.placement.pod_uid.clone(), text }
    }

    async fn prepare(&self) -> Result<(), String> {
        match &self.choice.volume {
            Some(volume) => self.reserve(volume).await,
            None => self.select().await,
        }
    }

    /// Reserves a free volume for the claim.
    async fn reserve(&self, name: &str) -> Result<(), String> {
        let (namespace, claim) = (&self.placement.pod.namespace, &self.choice.claim);
        for _ in 0..MAX_TRIES {
            self.count("get");
            let volume = self.volumes.get(name).await.map_err(|error| format!("volume {name} can't be read: {error}"))?;
            let holder = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            if let Some(holder) = holder {
                let ours = holder.name.as_ref() == Some(claim) && holder.namespace.as_ref() == Some(namespace);
                let same = holder.uid.as_ref().is_none_or(|uid| *uid == self.choice.claim_uid);
                if !ours || !same {
                    return Err(format!("volume {name} was taken by another claim"));
                }
                if holder.uid.is_some() {
                    return Ok(());
                }
            }
            let mut patch = json!({
                "metadata": {"resourceVersion": volume.resource_version()},
                "spec": {"claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim,
                    "uid": self.choice.claim_uid,
                }},
            });
            if holder.is_none() {
                patch["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
            }
            if self.patch(&self.volumes, name, &patch).await? {
                return Ok(());
            }
        }
        Err(format!("volume {name} changes all the time"))
    }

    /// Tells the claim its node.
    async fn select(&self) -> Result<(), String> {
        let name = &self.choice.claim;
        for _ in 0..MAX_TRIES {
            let claim = self.read().await?;
            if is_bound(&claim) || claim.annotations().get(SELECTED_NODE) == Some(&self.placement.node) {
                return Ok(());
            }
            let patch = json!({
                "metadata": {
                    "resourceVersion": claim.resource_version(),
                    "annotations": {SELECTED_NODE: self.placement.node},
                },
            });
            if self.patch(&self.claims, name, &patch).await? {
                return Ok(());
            }
        }
        Err(format!("claim {name} changes all the time"))
    }

    async fn read(&self) -> Result<PersistentVolumeClaim, String> {
        self.count("get");
        let name = &self.choice.claim;
        let claim = self.claims.get(name).await.map_err(|error| format!("claim {name} can't be read: {error}"))?;
        if claim.uid().as_ref() != Some(&self.choice.claim_uid) {
            return Err(format!("claim {name} was replaced by another of the same name"));
        }
        Ok(claim)
    }

    /// A write guarded by the version that was read; false when there is a newer one.
    async fn patch<K>(&self, api: &Api<K>, name: &str, patch: &Value) -> Result<bool, String>
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        if !self.sender.fence.lets_pass() {
            return Err("this process does not lead any more".to_owned());
        }
        self.count("patch");
        match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(kube::Error::Api(status)) if matches!(status.code, 429 | 503 | 504) => {
                tokio::time::sleep(BUSY_WAIT).await;
                Ok(false)
            }
            Err(error) => Err(format!("{name} can't be written: {error}")),
        }
    }

    /// Takes back what was written and did not lead to a bound claim, so that another node can be tried.
    async fn undo(&self) {
        match self.try_undo().await {
            Ok(()) => info!(claim = %self.choice.claim, namespace = %self.placement.pod.namespace, "claim released"),
            Err(text) => warn!(claim = %self.choice.claim, text, "what was written for a claim could not be taken back"),
        }
    }

    async fn try_undo(&self) -> Result<(), String> {
        let claim = self.read().await?;
        if is_bound(&claim) {
            return Ok(());
        }
        if claim.annotations().get(SELECTED_NODE) == Some(&self.placement.node) {
            let version = claim.resource_version();
            let patch = json!({"metadata": {"resourceVersion": version, "annotations": {SELECTED_NODE: null}}});
            self.patch(&self.claims, &self.choice.claim, &patch).await?;
        }
        let Some(name) = &self.choice.volume else { return Ok(()) };
        self.count("get");
        let volume = self.volumes.get(name).await.map_err(|error| error.to_string())?;
        let holder = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()).and_then(|holder| holder.uid.as_ref());
        // What a person reserved stays so.
        if holder == Some(&self.choice.claim_uid) && volume.annotations().contains_key(BOUND_BY_CONTROLLER) {
            let version = volume.resource_version();
            let patch = json!({
                "metadata": {"resourceVersion": version, "annotations": {BOUND_BY_CONTROLLER: null}},
                "spec": {"claimRef": null},
            });
            self.patch(&self.volumes, name, &patch).await?;
        }
        Ok(())
    }

    fn count(&self, verb: &str) {
        self.sender.metrics.api_requests.with_label_values(&[verb]).inc();
    }
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.spec.as_ref().is_some_and(|spec| spec.volume_name.as_ref().is_some_and(|name| !name.is_empty()))
        && claim.annotations().contains_key(BIND_COMPLETED)
}
