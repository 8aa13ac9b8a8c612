//! Where the objects of a command come from: files, snapshots, or the cluster that kubectl would ask.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::Value;

use super::complain;
use super::connect::Connection;
use crate::cluster::Gvk;
use crate::cluster::list::{self, Reading};
use crate::lint::kai::leftovers;
use crate::simulate::cluster::Cluster;
use crate::simulate::input::{Item, Place, read_paths};
use crate::simulate::{Options, scenario};
use crate::snapshot::stripped;

/// Kinds of KAI Scheduler that no decision reads, and those in which it may be left over.
const KAI_KINDS: [(&str, &str, &str); 6] = [
    ("scheduling.run.ai", "v1alpha2", "BindRequest"),
    ("kai.scheduler", "v1", "SchedulingShard"),
    ("kai.scheduler", "v1", "Config"),
    ("run.ai", "v1alpha1", "Karta"),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"),
];

/// Who answers for a webhook.
const SERVICE_KINDS: [(&str, &str, &str); 2] = [("", "v1", "Service"), ("discovery.k8s.io", "v1", "EndpointSlice")];

/// Which cluster is asked.
#[derive(Clone, Debug, Args)]
pub struct Live {
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Live {
    /// Reads the cluster, each object as `keep` leaves it; what may not be read is said on standard error.
    pub fn read(&self, keep: fn(Value) -> Value) -> Result<Vec<Value>> {
        Ok(self.reading(keep)?.objects)
    }

    /// The same, with what could not be read.
    pub(super) fn reading(&self, keep: fn(Value) -> Value) -> Result<Reading> {
        let reading = self.connection.block_on(async |client| list::cluster(&client, keep).await)?;
        for missing in &reading.missing {
            complain(&format!("berth: left out: {missing}"));
        }
        Ok(reading)
    }

    /// The same, with what KAI Scheduler has there: its settings, requests under way, webhooks and the services that these ask.
    pub(super) fn reading_of_kai(&self, keep: fn(Value) -> Value) -> Result<Reading> {
        let mut reading = self.connection.block_on(async |client| {
            let mut reading = list::cluster(&client, keep).await?;
            let kinds = KAI_KINDS.map(|(group, version, kind)| Gvk::new(group, version, kind));
            reading.more(&client, &kinds, None, plain).await;
            let webhooks = reading.objects.iter().filter(|object| leftovers::is_webhook(object));
            let namespaces = webhooks.flat_map(leftovers::services).map(|(namespace, _)| namespace).collect();
            let kinds = SERVICE_KINDS.map(|(group, version, kind)| Gvk::new(group, version, kind));
            reading.more(&client, &kinds, Some(&namespaces), plain).await;
            Ok(reading)
        })?;
        reading.missing.dedup();
        for missing in &reading.missing {
            complain(&format!("berth: left out: {missing}"));
        }
        Ok(reading)
    }

    /// The objects of the paths, or those of the cluster when there are none, without what no decision reads.
    pub fn items(&self, paths: &[PathBuf]) -> Result<Vec<Item>> {
        if paths.is_empty() { Ok(items_of("the cluster", self.read(|object| stripped(&object))?)) } else { Ok(read_paths(paths)?) }
    }
}

/// An object without what the API server notes of its writers.
fn plain(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// Objects of one origin, numbered as the documents of a file.
pub(super) fn items_of(origin: &str, objects: Vec<Value>) -> Vec<Item> {
    let place = |at: usize| Place { file: origin.to_owned(), document: at + 1 };
    objects.into_iter().enumerate().map(|(at, value)| Item { place: place(at), value }).collect()
}

/// A cluster made of files, or of the live one where no file is named, with what waits placed as `simulate` would.
pub(super) fn settled(paths: &[PathBuf], live: &Live, options: Options) -> Result<Cluster> {
    settle(live.items(paths)?, options)
}

/// A cluster made of these objects, with what waits placed.
pub(super) fn settle(items: Vec<Item>, options: Options) -> Result<Cluster> {
    if let Some(item) = items.iter().find(|item| scenario::is_scenario(&item.value)) {
        bail!("{} is a scenario: `berth simulate` runs those", item.place.file);
    }
    let mut cluster = Cluster::new(options);
    cluster.apply(items);
    cluster.settle();
    Ok(cluster)
}
