//! `berth run`: the scheduler. Builds the parts, joins them, and sees them to their end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use berth_api::keys;
use berth_engine::policy::Policy;
use clap::Args;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use tokio::sync::{mpsc, watch};
use tracing::{error, info};

use super::YES;
use crate::bind::{self, Binder};
use crate::cluster::directory::SharedDirectory;
use crate::cluster::ingest::Ingest;
use crate::cluster::store::Store;
use crate::http::{self, Health};
use crate::scheduler::{EVENT_QUEUE, Scheduler, Wiring};
use crate::status::Writer;
use crate::telemetry::{self, Metrics};

/// Arguments of `berth run`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Schedule the pods whose schedulerName is this.
    #[arg(long, env = "BERTH_SCHEDULER_NAME", default_value = keys::SCHEDULER_NAME)]
    scheduler_name: String,
    /// Topology for constraints that name a level and no topology.
    #[arg(long, env = "BERTH_DEFAULT_TOPOLOGY")]
    default_topology: Option<String>,
    /// Kubeconfig; without it KUBECONFIG, the usual file, or the service account inside a cluster.
    #[arg(long, env = "BERTH_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, env = "BERTH_CONTEXT")]
    context: Option<String>,
    /// Where metrics and health are served.
    #[arg(long, env = "BERTH_LISTEN_ADDRESS", default_value = "0.0.0.0:8080")]
    listen_address: SocketAddr,
    /// Bindings sent at a time.
    #[arg(long, env = "BERTH_BIND_CONCURRENCY", default_value_t = bind::DEFAULT_CONCURRENCY)]
    bind_concurrency: usize,
    /// Seconds that the claims of a gang may take to get their volumes before it is tried elsewhere.
    #[arg(long, env = "BERTH_VOLUME_TIMEOUT_SECONDS", default_value_t = bind::DEFAULT_VOLUME_TIMEOUT.as_secs())]
    volume_timeout_seconds: u64,
    /// Log as JSON.
    #[arg(long, env = "BERTH_LOG_JSON")]
    log_json: bool,
}

/// Runs the scheduler until it is told to stop.
pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    telemetry::start_logging(arguments.log_json);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    let result = runtime.block_on(serve(arguments));
    // Watches end with the process; nothing of theirs needs a farewell.
    runtime.shutdown_background();
    result.map(|()| YES)
}

async fn client(arguments: &Arguments) -> anyhow::Result<Client> {
    let options = KubeConfigOptions { context: arguments.context.clone(), ..KubeConfigOptions::default() };
    let config = match (&arguments.kubeconfig, &arguments.context) {
        (Some(path), _) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &options).await.with_context(|| format!("using {}", path.display()))?
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await.context("reading the kubeconfig")?,
        (None, None) => Config::infer().await.context("finding a cluster: neither a kubeconfig nor a service account")?,
    };
    Client::try_from(config).context("making a client")
}

async fn serve(arguments: &Arguments) -> anyhow::Result<()> {
    let metrics = Arc::new(Metrics::new().context("making the metrics")?);
    let health = Arc::new(Health::default());
    let listener = http::bind(arguments.listen_address).await.with_context(|| format!("listening on {}", arguments.listen_address))?;
    info!(address = %listener.local_addr()?, scheduler = %arguments.scheduler_name, version = env!("CARGO_PKG_VERSION"), "berth starts");
    tokio::spawn(http::serve(listener, Arc::clone(&metrics), Arc::clone(&health)));

    let client = client(arguments).await?;
    let directory = SharedDirectory::default();
    let writer = Writer::new(Arc::clone(&metrics), directory.clone());
    let (stop_sender, stop) = watch::channel(false);
    let (engine, events) = mpsc::channel(EVENT_QUEUE);
    let (result_sender, results) = mpsc::unbounded_channel();
    let (command_sender, commands) = mpsc::unbounded_channel();

    let binder = Binder::new(client.clone(), result_sender, Arc::clone(&metrics), arguments.bind_concurrency)
        .volume_timeout(std::time::Duration::from_secs(arguments.volume_timeout_seconds));
    let binder = tokio::spawn(binder.run(commands));
    let status = tokio::spawn(writer.clone().run(client.clone(), stop.clone()));
    let ingest = Ingest {
        client,
        store: Store::new(&arguments.scheduler_name, directory.clone()),
        engine,
        writer: writer.clone(),
        metrics: Arc::clone(&metrics),
    };
    let ingest = tokio::spawn(ingest.run());
    let policy = Policy { default_topology: arguments.default_topology.clone(), ..Policy::standard() };
    let wiring = Wiring { events, results, binder: command_sender, writer, directory, metrics, health: Arc::clone(&health) };
    let handle = tokio::runtime::Handle::current();
    let scheduler = Scheduler::new(policy, wiring);
    let (ended_sender, mut ended) = tokio::sync::oneshot::channel::<()>();
    let engine_thread = std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || {
            scheduler.run(&handle, stop);
            drop(ended_sender);
        })
        .context("starting the engine thread")?;

    let asked = tokio::select! {
        signal = signalled() => {
            info!(signal = signal?, "stopping");
            true
        }
        _ = &mut ended => {
            error!("the engine ended by itself");
            false
        }
    };
    health.set_stopping();
    // Nobody listens when the engine and the writer have ended already.
    let _unheard = stop_sender.send(true).is_err();
    let joined = tokio::task::spawn_blocking(move || engine_thread.join()).await;
    binder.await.context("waiting for Bindings under way")?;
    status.await.context("waiting for the status writer")?;
    ingest.abort();
    anyhow::ensure!(matches!(joined, Ok(Ok(()))), "the engine thread panicked");
    anyhow::ensure!(asked, "the watches ended by themselves");
    info!("stopped");
    Ok(())
}

async fn signalled() -> anyhow::Result<&'static str> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("watching for SIGTERM")?;
    tokio::select! {
        _ = terminate.recv() => Ok("SIGTERM"),
        result = tokio::signal::ctrl_c() => { result.context("watching for SIGINT")?; Ok("SIGINT") }
    }
}
