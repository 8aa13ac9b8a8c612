//! Watches of the API server, one per kind, that never give up.
//!
//! Objects are read as loose JSON: one that does not parse as its kind is the store's to skip, it never breaks the list.
//! A kind that the server lacks (a CRD not installed) is reported absent and looked for again; one that may not be
//! watched is reported forbidden. What the objects mean is not known here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher;
use kube::{Client, discovery};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tracing::{info, warn};

use super::{Change, Gvk};
use crate::grouping::core_group;
use crate::telemetry::Metrics;

/// How often an absent or forbidden kind is looked for again: soon enough for a person who just installed a CRD.
const PROBE_PERIOD: Duration = Duration::from_secs(5);

/// Objects per page of the first list: 500 is the customary size, and bounds the memory of one answer.
const PAGE_SIZE: u32 = 500;

/// Kinds of owners watched at most: each costs a connection and a cache. Real clusters have a dozen.
pub const MAX_WATCHED_KINDS: usize = 64;

/// Starts watches and remembers which.
pub struct Watches {
    client: Client,
    changes: mpsc::Sender<Change>,
    metrics: Arc<Metrics>,
    started: BTreeMap<(String, String), AbortHandle>,
    tasks: JoinSet<()>,
}

impl Watches {
    /// No watch yet; what they see goes to `changes`.
    #[must_use]
    pub fn new(client: Client, changes: mpsc::Sender<Change>, metrics: Arc<Metrics>) -> Self {
        Self { client, changes, metrics, started: BTreeMap::new(), tasks: JoinSet::new() }
    }

    /// Starts the watch of a kind, once. False when there are too many already.
    pub fn start(&mut self, gvk: Gvk) -> bool {
        if self.started.contains_key(&gvk.group_kind()) {
            return true;
        }
        if self.started.len() >= MAX_WATCHED_KINDS {
            return false;
        }
        self.spawn(gvk, Duration::ZERO);
        true
    }

    /// Ends the watch of a kind and starts it anew after a while: its list is a consistent read of that moment.
    pub fn list_again(&mut self, gvk: Gvk, after: Duration) {
        if let Some(running) = self.started.remove(&gvk.group_kind()) {
            running.abort();
        }
        self.spawn(gvk, after);
    }

    fn spawn(&mut self, gvk: Gvk, after: Duration) {
        let kind = gvk.group_kind();
        let watch = Watch { client: self.client.clone(), changes: self.changes.clone(), metrics: Arc::clone(&self.metrics), gvk };
        let running = self.tasks.spawn(async move {
            tokio::time::sleep(after).await;
            watch.run().await;
        });
        self.started.insert(kind, running);
    }
}

/// Why a watch stopped for a while.
enum Ended {
    Absent,
    Forbidden,
    /// The receiver is gone: the process ends.
    Closed,
}

struct Watch {
    client: Client,
    changes: mpsc::Sender<Change>,
    metrics: Arc<Metrics>,
    gvk: Gvk,
}

impl Watch {
    async fn run(self) {
        let mut reported = "";
        loop {
            let (ended, wait) = match self.probe().await {
                Probe::Present(resource) => {
                    reported = "";
                    (self.follow(&resource).await, Duration::from_millis(100))
                }
                Probe::Absent => (Ended::Absent, PROBE_PERIOD),
                Probe::Forbidden => (Ended::Forbidden, PROBE_PERIOD),
                Probe::Failed(error) => {
                    self.count_error(&error);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            let (name, change) = match &ended {
                Ended::Closed => return,
                Ended::Absent => ("absent", Change::Absent(self.gvk.clone())),
                Ended::Forbidden => ("forbidden", Change::Forbidden(self.gvk.clone())),
            };
            if reported != name {
                reported = name;
                match ended {
                    Ended::Forbidden => warn!(kind = %self.gvk.kind, group = %self.gvk.group, "kind may not be watched"),
                    _ => info!(kind = %self.gvk.kind, group = %self.gvk.group, "kind is not served; looking for it again and again"),
                }
                if self.changes.send(change).await.is_err() {
                    return;
                }
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Asks the server whether it has the kind, in which of the versions that are read.
    async fn probe(&self) -> Probe {
        let versions = if self.gvk.group == core_group::API_GROUP && self.gvk.kind == "PodGroup" {
            &core_group::VERSIONS[..]
        } else {
            &[self.gvk.version.as_str()]
        };
        let mut answer = Probe::Absent;
        for version in versions {
            answer = self.probe_version(version).await;
            if !matches!(answer, Probe::Absent) {
                break;
            }
        }
        answer
    }

    async fn probe_version(&self, version: &str) -> Probe {
        let gvk = GroupVersionKind::gvk(&self.gvk.group, version, &self.gvk.kind);
        match discovery::pinned_kind(&self.client, &gvk).await {
            Ok((resource, _)) => Probe::Present(resource),
            Err(kube::Error::Api(status)) if status.code == 404 => Probe::Absent,
            Err(kube::Error::Api(status)) if status.code == 403 => Probe::Forbidden,
            Err(kube::Error::Discovery(_)) => Probe::Absent,
            Err(error) => Probe::Failed(error.to_string()),
        }
    }

    async fn follow(&self, resource: &ApiResource) -> Ended {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), resource);
        let config = watcher::Config::default().page_size(PAGE_SIZE);
        let stream = watcher(api, config).default_backoff();
        let mut stream = std::pin::pin!(stream);
        while let Some(item) = stream.next().await {
            let change = match item {
                Ok(watcher::Event::Init) => Change::ListStarted(self.gvk.clone()),
                Ok(watcher::Event::InitApply(object)) => Change::Listed(self.gvk.clone(), self.raw(object, resource)),
                Ok(watcher::Event::InitDone) => Change::ListEnded(self.gvk.clone()),
                Ok(watcher::Event::Apply(object)) => Change::Applied(self.gvk.clone(), self.raw(object, resource)),
                Ok(watcher::Event::Delete(object)) => Change::Deleted(self.gvk.clone(), self.raw(object, resource)),
                Err(error) => match self.judge(&error) {
                    Some(ended) => return ended,
                    None => continue,
                },
            };
            if self.changes.send(change).await.is_err() {
                return Ended::Closed;
            }
        }
        Ended::Absent
    }

    /// The object as JSON, with its kind and without what nobody reads.
    fn raw(&self, mut object: DynamicObject, resource: &ApiResource) -> Box<Value> {
        object.metadata.managed_fields = None;
        let mut value = object.data;
        if !value.is_object() {
            value = Value::Object(serde_json::Map::new());
        }
        if let Value::Object(map) = &mut value {
            map.insert("apiVersion".to_owned(), Value::String(resource.api_version.clone()));
            map.insert("kind".to_owned(), Value::String(self.gvk.kind.clone()));
            // Metadata came from JSON: it becomes JSON again.
            map.insert("metadata".to_owned(), serde_json::to_value(&object.metadata).unwrap_or_default());
        }
        Box::new(value)
    }

    fn judge(&self, error: &watcher::Error) -> Option<Ended> {
        let status = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => Some(status),
            watcher::Error::WatchError(status) => Some(status),
            _ => None,
        };
        match status.map(|status| status.code) {
            Some(404) => Some(Ended::Absent),
            Some(403) => Some(Ended::Forbidden),
            // The watch's history is gone; the watcher lists again by itself.
            Some(410) => None,
            _ => {
                self.count_error(&error.to_string());
                None
            }
        }
    }

    fn count_error(&self, error: &str) {
        self.metrics.watch_errors.with_label_values(&[self.gvk.kind.as_str()]).inc();
        warn!(kind = %self.gvk.kind, error, "watch failed; trying again");
    }
}

enum Probe {
    Present(ApiResource),
    Absent,
    Forbidden,
    Failed(String),
}
