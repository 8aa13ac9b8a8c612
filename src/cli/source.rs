//! Where the objects of a command come from: files, snapshots, or the cluster that kubectl would ask.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

use super::complain;
use crate::simulate::cluster::Cluster;
use crate::simulate::input::{Item, Place, read_paths};
use crate::simulate::{Options, scenario};
use crate::snapshot::{self, Collected};

/// Which cluster is asked.
#[derive(Clone, Debug, Args)]
pub struct Live {
    /// Kubeconfig; without it KUBECONFIG, the usual file, or the service account inside a cluster.
    #[arg(long, env = "BERTH_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, env = "BERTH_CONTEXT")]
    context: Option<String>,
}

impl Live {
    /// Reads the cluster; what may not be read is said on standard error.
    pub fn collect(&self) -> Result<Collected> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
        let collected = runtime.block_on(async { snapshot::collect(&client(self.kubeconfig.as_ref(), self.context.as_ref()).await?).await })?;
        for missing in &collected.missing {
            complain(&format!("berth: left out: {missing}"));
        }
        Ok(collected)
    }
}

/// A client for a kubeconfig and context, as kubectl would choose them.
pub(super) async fn client(kubeconfig: Option<&PathBuf>, context: Option<&String>) -> Result<Client> {
    let options = KubeConfigOptions { context: context.cloned(), ..KubeConfigOptions::default() };
    let mut config = match (kubeconfig, context) {
        (Some(path), _) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &options).await.with_context(|| format!("using {}", path.display()))?
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await.context("reading the kubeconfig")?,
        (None, None) => Config::infer().await.context("finding a cluster: neither a kubeconfig nor a service account")?,
    };
    // Every request is tried again by who made it, who knows how long that may go on and whether this process still leads.
    config.default_retry = false;
    Client::try_from(config).context("making a client")
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
