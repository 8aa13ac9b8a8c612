//! Where the objects of a command come from: files, snapshots, or the cluster that kubectl would ask.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::Value;

use super::complain;
use super::connect::Connection;
use crate::simulate::cluster::Cluster;
use crate::simulate::input::{Item, Place, read_paths};
use crate::simulate::{Options, scenario};
use crate::snapshot::{self, Collected};

/// Which cluster is asked.
#[derive(Clone, Debug, Args)]
pub struct Live {
    #[command(flatten)]
    connection: Connection,
}

impl Live {
    /// Reads the cluster; what may not be read is said on standard error.
    pub fn collect(&self) -> Result<Collected> {
        let collected = self.connection.block_on(async |client| snapshot::collect(&client).await)?;
        for missing in &collected.missing {
            complain(&format!("berth: left out: {missing}"));
        }
        Ok(collected)
    }
}

/// Objects of one origin, numbered as the documents of a file.
pub(super) fn items_of(origin: &str, objects: Vec<Value>) -> Vec<Item> {
    let place = |at: usize| Place { file: origin.to_owned(), document: at + 1 };
    objects.into_iter().enumerate().map(|(at, value)| Item { place: place(at), value }).collect()
}

/// A cluster made of files, or of the live one where no file is named, with what waits placed as `simulate` would.
pub(super) fn settled(paths: &[PathBuf], live: &Live, options: Options) -> Result<Cluster> {
    let items = if paths.is_empty() { items_of("the cluster", live.collect()?.objects) } else { read_paths(paths)? };
    settle(items, options)
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
