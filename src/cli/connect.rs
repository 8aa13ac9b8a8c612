//! Which cluster, and a client for it.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

/// Arguments of every command that talks to a cluster.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// Kubeconfig; without it KUBECONFIG, the usual file, or the service account inside a cluster.
    #[arg(long, env = "BERTH_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, env = "BERTH_CONTEXT")]
    context: Option<String>,
}

impl Connection {
    /// True when nothing names a cluster but the surroundings.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.kubeconfig.is_none() && self.context.is_none()
    }

    /// The cluster and who asks it.
    ///
    /// # Errors
    ///
    /// No cluster is named anywhere, or its kubeconfig can't be read.
    pub async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        Ok(match (&self.kubeconfig, &self.context) {
            (Some(path), _) => {
                let file = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
                Config::from_custom_kubeconfig(file, &options).await.with_context(|| format!("using {}", path.display()))?
            }
            (None, Some(_)) => Config::from_kubeconfig(&options).await.context("reading the kubeconfig")?,
            (None, None) => Config::infer().await.context("finding a cluster: neither a kubeconfig nor a service account")?,
        })
    }

    /// A client; requests are not tried again by themselves.
    ///
    /// # Errors
    ///
    /// No cluster is named anywhere, or its kubeconfig can't be read.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let mut config = self.config().await?;
        // Every request is tried again by who made it, who knows how long that may go on and whether this process still leads.
        config.default_retry = false;
        Client::try_from(config).context("making a client")
    }

    /// Runs work that talks to the cluster to its end.
    ///
    /// # Errors
    ///
    /// Those of the work, and of starting the runtime.
    pub fn block_on<T>(&self, work: impl AsyncFnOnce(Client) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
        runtime.block_on(async {
            let client = self.client().await?;
            work(client).await
        })
    }
}
