//! Where the objects of a command come from: files, snapshots, or the cluster that kubectl would ask.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

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

/// A cluster made of files, or of the live one where no file is named, with what waits placed as `simulate` would.
pub(super) fn settled(paths: &[PathBuf], live: &Live, options: Options) -> Result<Cluster> {
    let items = if paths.is_empty() {
        let objects = live.collect()?.objects.into_iter().enumerate();
        let place = |document: usize| Place { file: "the cluster".to_owned(), document: document + 1 };
        objects.map(|(document, value)| Item { place: place(document), value }).collect()
    } else {
        read_paths(paths)?
    };
    if let Some(item) = items.iter().find(|item| scenario::is_scenario(&item.value)) {
        bail!("{} is a scenario: `berth simulate` runs those", item.place.file);
    }
    let mut cluster = Cluster::new(options);
    cluster.apply(items);
    cluster.settle();
    Ok(cluster)
}
