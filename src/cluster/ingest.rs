//! Joins the watches to the store and passes its effects on: facts to the engine, writes to the writer.

use std::sync::Arc;
use std::time::Duration;

use berth_engine::facts::Event;
use kube::api::{Api, DynamicObject, GroupVersionKind};
use kube::{Client, discovery};
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};
use tracing::{debug, warn};

use super::raw;
use super::store::{Store, base_kinds, is_base_kind};
use super::watch::Watches;
use super::{Change, Effect, Gvk, Unreadable};
use crate::access::Access;
use crate::clock::now_millis;
use crate::grouping::ObjectId;
use crate::status::Writer;
use crate::telemetry::Metrics;

/// Changes between the watches and the store: a few pages of a list; a full queue slows the watches down, nothing is lost.
const CHANGE_QUEUE: usize = 2_048;

/// Single reads of owners at a time: they happen only without the permission to watch, and must not flood the server.
const READS_IN_FLIGHT: usize = 8;

/// Wait after an owner could not be read for a moment; doubles.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest such wait: what a person who repaired the API server should have to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How often what waits too long is looked for.
const TICK: Duration = Duration::from_secs(1);

/// Everything the ingest task needs.
pub struct Ingest {
    /// The client.
    pub client: Client,
    /// The memory.
    pub store: Store,
    /// To the engine.
    pub engine: mpsc::Sender<Event>,
    /// To the API.
    pub writer: Writer,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Whether the API server lets us.
    pub access: Access,
}

impl Ingest {
    /// Runs until the engine is gone.
    pub async fn run(mut self) {
        let (sender, mut changes) = mpsc::channel(CHANGE_QUEUE);
        let mut watches = Watches::new(self.client.clone(), sender.clone(), Arc::clone(&self.metrics), self.access.clone());
        if let Some((gvk, only)) = self.store.watched_map() {
            watches.start_one(gvk, only);
        }
        for gvk in base_kinds() {
            watches.start(gvk);
        }
        let reads = Arc::new(Semaphore::new(READS_IN_FLIGHT));
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let change = tokio::select! {
                change = changes.recv() => match change { Some(change) => change, None => return },
                _ = tick.tick() => Change::Tick,
            };
            let mut effects = self.store.apply(change, now_millis());
            self.metrics.pods.set(i64::try_from(self.store.pod_count()).unwrap_or(i64::MAX));
            while !effects.is_empty() {
                let mut more = Vec::new();
                for effect in effects {
                    match effect {
                        Effect::Engine(event) => {
                            if self.engine.send(event).await.is_err() {
                                return;
                            }
                        }
                        Effect::Watch(gvk) => {
                            if !watches.start(gvk.clone()) {
                                warn!(kind = %gvk.kind, "too many kinds of owners are watched; those of this one are read one by one");
                                more.extend(self.store.apply(Change::Forbidden(gvk), now_millis()));
                            }
                        }
                        Effect::Fetch(id) => self.fetch(id, sender.clone(), Arc::clone(&reads)),
                        Effect::CreatePodGroup(key, object) => self.writer.create_pod_group(key, *object),
                        Effect::PatchPodGroup(key, patch) => self.writer.patch_pod_group(key, *patch),
                        Effect::Skipped { kind, object, message } => {
                            self.metrics.objects_skipped.with_label_values(&[kind.as_str()]).inc();
                            warn!(kind, object, message, "object skipped");
                        }
                    }
                }
                effects = more;
            }
        }
    }

    /// Reads one owner whose kind may not be watched.
    fn fetch(&self, id: ObjectId, changes: mpsc::Sender<Change>, reads: Arc<Semaphore>) {
        let (client, metrics) = (self.client.clone(), Arc::clone(&self.metrics));
        tokio::spawn(async move {
            let mut wait = FIRST_WAIT;
            while !changes.is_closed() {
                let change = {
                    let Ok(_permit) = reads.acquire().await else { return };
                    metrics.api_requests.with_label_values(&["get"]).inc();
                    answer(&id, read(&client, &id).await)
                };
                if let Some(change) = change {
                    // A closed channel means that the process ends.
                    let _closed = changes.send(change).await.is_err();
                    return;
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        });
    }
}

/// What an answer says about an owner; `None` when it says nothing and the question is to be asked again.
fn answer(id: &ObjectId, result: Result<Value, kube::Error>) -> Option<Change> {
    let error = match result {
        // Another of the same name: the one that was asked for is gone.
        Ok(object) if raw::uid(&object) != id.uid => return Some(Change::Unreadable(id.clone(), Unreadable::Gone)),
        Ok(object) => {
            let gvk = Gvk::new(id.group(), id.version(), &id.kind);
            if is_base_kind(id.group(), &id.kind) {
                // Older than what the watch has shown by now: it counts as an owner only.
                return Some(Change::Owner(Box::new(object)));
            }
            return Some(Change::Applied(gvk, Box::new(object)));
        }
        Err(error) => error,
    };
    let why = match &error {
        kube::Error::Api(status) if status.code == 403 => Unreadable::Forbidden,
        kube::Error::Api(status) if status.code == 404 => Unreadable::Gone,
        kube::Error::Discovery(_) => Unreadable::Gone,
        _ => {
            debug!(kind = %id.kind, name = %id.name, namespace = %id.namespace, %error, "owner could not be read; trying again");
            return None;
        }
    };
    Some(Change::Unreadable(id.clone(), why))
}

async fn read(client: &Client, id: &ObjectId) -> Result<Value, kube::Error> {
    let gvk = GroupVersionKind::gvk(id.group(), id.version(), &id.kind);
    let (resource, capabilities) = discovery::pinned_kind(client, &gvk).await?;
    let api: Api<DynamicObject> = match capabilities.scope {
        discovery::Scope::Namespaced => Api::namespaced_with(client.clone(), &id.namespace, &resource),
        discovery::Scope::Cluster => Api::all_with(client.clone(), &resource),
    };
    let object = api.get(&id.name).await?;
    Ok(serde_json::to_value(object).unwrap_or_default())
}
