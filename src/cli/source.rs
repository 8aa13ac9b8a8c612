//! Where the objects of a command come from: files, snapshots, or the cluster that kubectl would ask.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::Value;

use super::complain;
use super::connect::Connection;
use crate::cluster::list;
use crate::simulate::cluster::Cluster;
use crate::simulate::input::{Item, Place, read_paths};
use crate::simulate::{Options, scenario};
use crate::snapshot::stripped;

/// Which cluster is asked.
#[derive(Clone, Debug, Args)]
pub struct Live {
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Live {
    /// Reads the cluster, each object as `keep` leaves it; what may not be read is said on standard error.
    pub fn read(&self, keep: fn(Value) -> Value) -> Result<Vec<Value>> {
        let reading = self.connection.block_on(async |client| list::cluster(&client, keep).await)?;
        for missing in &reading.missing {
            complain(&format!("berth: left out: {missing}"));
        }
        Ok(reading.objects)
    }

    /// The objects of the paths, or those of the cluster when there are none, without what no decision reads.
    pub fn items(&self, paths: &[PathBuf]) -> Result<Vec<Item>> {
        if paths.is_empty() { Ok(items_of("the cluster", self.read(|object| stripped(&object))?)) } else { Ok(read_paths(paths)?) }
    }
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
