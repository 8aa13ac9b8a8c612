//! Watches of the API server, one per kind, that never give up.
//!
//! Objects are read as loose JSON: one that does not parse as its kind is the store's to skip, it never breaks the list.
//! A kind that the server lacks (a CRD not installed) is reported absent and looked for again; one that may not be
//! watched is reported forbidden. What the objects mean is not known here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_engine::facts::ObjectKey;
use futures::StreamExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher;
use kube::{Client, discovery};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::{Change, Gvk};
use crate::grouping::core_group;
use crate::access::Access;
use crate::telemetry::{Complaint, Metrics};

/// How often an absent or forbidden kind is looked for again: soon enough for a person who just installed a CRD.
const PROBE_PERIOD: Duration = Duration::from_secs(5);

/// A kind that disappears under a watch is looked for after this time: a CRD that is replaced comes back at once.
const REPLACED_WAIT: Duration = Duration::from_secs(1);

/// Objects per page of the first list: 500 is the customary size, and bounds the memory of one answer.
const PAGE_SIZE: u32 = 500;

/// Kinds of owners watched at most: each costs a connection and a cache. Real clusters have a dozen.
pub const MAX_WATCHED_KINDS: usize = 64;

/// Starts watches and remembers which.
pub struct Watches {
    client: Client,
    changes: mpsc::Sender<Change>,
    metrics: Arc<Metrics>,
    access: Access,
    started: BTreeSet<(String, String)>,
    tasks: JoinSet<()>,
}

impl Watches {
    /// No watch yet; what they see goes to `changes`.
    #[must_use]
    pub fn new(client: Client, changes: mpsc::Sender<Change>, metrics: Arc<Metrics>, access: Access) -> Self {
        Self { client, changes, metrics, access, started: BTreeSet::new(), tasks: JoinSet::new() }
    }

    /// Starts the watch of a kind, once. False when there are too many already.
    pub fn start(&mut self, gvk: Gvk) -> bool {
        self.start_of(gvk, None)
    }

    /// Starts the watch of one object.
    pub fn start_one(&mut self, gvk: Gvk, only: ObjectKey) {
        // The first of all watches is never too many.
        let _started = self.start_of(gvk, Some(only));
    }

    fn start_of(&mut self, gvk: Gvk, only: Option<ObjectKey>) -> bool {
        if self.started.contains(&gvk.group_kind()) {
            return true;
        }
        if self.started.len() >= MAX_WATCHED_KINDS {
            return false;
        }
        let kind = gvk.group_kind();
        let watch = Watch {
            client: self.client.clone(),
            changes: self.changes.clone(),
            metrics: Arc::clone(&self.metrics),
            access: self.access.clone(),
            refused: false,
            gvk,
            only,
            listed: false,
            complaint: Complaint::default(),
        };
        self.tasks.spawn(watch.run());
        self.started.insert(kind);
        true
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
    access: Access,
    /// The last answer was a refusal that counts.
    refused: bool,
    gvk: Gvk,
    /// Of the kind only this object.
    only: Option<ObjectKey>,
    /// The last round came as far as a complete list.
    listed: bool,
    complaint: Complaint,
}

impl Watch {
    async fn run(mut self) {
        // Counters start at zero, so that a rate sees the first one.
        let kind = self.gvk.kind.as_str();
        self.metrics.watch_errors.with_label_values(&[kind]);
        self.metrics.objects_skipped.with_label_values(&[kind]);
        let mut reported = "";
        loop {
            let (ended, wait) = match self.probe().await {
                Probe::Present(resource) => {
                    let ended = self.follow(&resource).await;
                    let wait = if matches!(ended, Ended::Forbidden) { PROBE_PERIOD } else { REPLACED_WAIT };
                    (ended, wait)
                }
                Probe::Absent => (Ended::Absent, PROBE_PERIOD),
                Probe::Forbidden => (Ended::Forbidden, PROBE_PERIOD),
                Probe::Failed(error) => {
                    self.count_error(&error);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            if std::mem::take(&mut self.listed) {
                // What was listed stands until the next round: a list without the permission to watch is asked for again
                // and again, and a kind that was there a moment ago may only have been replaced.
                reported = "";
                tokio::time::sleep(wait).await;
                continue;
            }
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
    async fn probe(&mut self) -> Probe {
        let own = self.gvk.version.clone();
        let versions = if self.gvk.group == core_group::API_GROUP && self.gvk.kind == "PodGroup" {
            &core_group::VERSIONS[..]
        } else {
            &[own.as_str()]
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

    async fn probe_version(&mut self, version: &str) -> Probe {
        let gvk = GroupVersionKind::gvk(&self.gvk.group, version, &self.gvk.kind);
        let found = discovery::pinned_kind(&self.client, &gvk).await;
        if let Err(kube::Error::Api(status)) = &found {
            self.note(status);
        }
        match found {
            Ok((resource, _)) => Probe::Present(resource),
            Err(kube::Error::Api(status)) if status.code == 404 => Probe::Absent,
            Err(kube::Error::Api(status)) if status.code == 403 => Probe::Forbidden,
            Err(kube::Error::Discovery(_)) => Probe::Absent,
            Err(error) => Probe::Failed(error.to_string()),
        }
    }

    async fn follow(&mut self, resource: &ApiResource) -> Ended {
        let mut config = watcher::Config::default().page_size(PAGE_SIZE);
        let api: Api<DynamicObject> = match &self.only {
            None => Api::all_with(self.client.clone(), resource),
            Some(only) => {
                config = config.fields(&format!("metadata.name={}", only.name));
                Api::namespaced_with(self.client.clone(), &only.namespace, resource)
            }
        };
        let stream = watcher(api, config).default_backoff();
        let mut stream = std::pin::pin!(stream);
        while let Some(item) = stream.next().await {
            if item.is_ok()
                && let Some(errors) = self.complaint.over()
            {
                info!(kind = %self.gvk.kind, errors, "watch works again");
            }
            self.listed |= matches!(item, Ok(watcher::Event::InitDone));
            // The first of them only says that a list is asked for.
            let answered = matches!(&item, Ok(event) if !matches!(event, watcher::Event::Init));
            if answered && std::mem::take(&mut self.refused) {
                self.access.answered(&self.gvk.kind);
            }
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

    fn judge(&mut self, error: &watcher::Error) -> Option<Ended> {
        let status = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => Some(status),
            watcher::Error::WatchError(status) => Some(status),
            _ => None,
        };
        if let Some(status) = status {
            self.note(status);
        }
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

    /// A no of the server may be one that ends the process when it lasts.
    fn note(&mut self, status: &kube::core::Status) {
        self.refused |= self.access.refused(&self.gvk.kind, status.code, &status.message);
    }

    fn count_error(&mut self, error: &str) {
        self.metrics.watch_errors.with_label_values(&[self.gvk.kind.as_str()]).inc();
        if let Some(errors) = self.complaint.error(Instant::now()) {
            warn!(kind = %self.gvk.kind, errors, error, "watch failed; trying again");
        }
    }
}

enum Probe {
    Present(ApiResource),
    Absent,
    Forbidden,
    Failed(String),
}
