//! `berth run`: the scheduler. Builds the parts, joins them, and sees them to their end.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use berth_api::keys;
use berth_engine::facts::ObjectKey;
use berth_engine::policy::{Objective, Policy};
use clap::Args;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::connect::Connection;
use super::{Compat, PoolArguments, Strategies, YES};
use crate::access::Access;
use crate::bind::{self, Binder, Shadow};
use crate::cluster::directory::SharedDirectory;
use crate::cluster::ingest::Ingest;
use crate::cluster::store::Store;
use crate::http::{self, Health};
use crate::leader::{self, Fence, Leadership};
use crate::scheduler::sight::{self, Window};
use crate::scheduler::{EVENT_QUEUE, Scheduler, Wiring};
use crate::{rbac, rights};
use crate::status::Writer;
use crate::telemetry::{self, Metrics};

/// Arguments of `berth run`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// A file with these flags as a YAML map, such as `bind-concurrency: 32`; environment and command line come before it.
    #[arg(long, value_name = "FILE", env = "BERTH_CONFIG")]
    config: Option<std::path::PathBuf>,
    /// Schedule the pods whose schedulerName is this.
    #[arg(long, env = "BERTH_SCHEDULER_NAME", default_value = keys::SCHEDULER_NAME)]
    scheduler_name: String,
    #[command(flatten)]
    pool: PoolArguments,
    /// Topology for constraints that name a level and no topology.
    #[arg(long, env = "BERTH_DEFAULT_TOPOLOGY")]
    default_topology: Option<String>,
    /// What the best placement of gangs that name none is; docs/objectives.md says what each means.
    #[arg(long, value_parser = super::objective(), default_value = "kai", env = "BERTH_OBJECTIVE")]
    objective: Objective,
    #[command(flatten)]
    strategies: Strategies,
    /// Follow KAI Scheduler also where Berth differs on purpose; docs/compat.md lists what.
    #[arg(long, value_enum, env = "BERTH_COMPAT", conflicts_with = "default_topology")]
    compat: Option<Compat>,
    #[command(flatten)]
    connection: Connection,
    /// Where metrics and health are served.
    #[arg(long, env = "BERTH_LISTEN_ADDRESS", default_value = "0.0.0.0:8080")]
    listen_address: SocketAddr,
    /// Where the read-only API is served; without it there is none. 127.0.0.1 is recommended: it speaks no TLS.
    #[arg(long, env = "BERTH_API_ADDRESS", value_name = "ADDRESS")]
    api_address: Option<SocketAddr>,
    /// Bindings sent at a time.
    #[arg(long, env = "BERTH_BIND_CONCURRENCY", default_value_t = bind::DEFAULT_CONCURRENCY)]
    bind_concurrency: usize,
    /// Seconds that the claims of a gang may take to get their volumes before it is tried elsewhere.
    #[arg(long, env = "BERTH_VOLUME_TIMEOUT_SECONDS", default_value_t = bind::DEFAULT_VOLUME_TIMEOUT.as_secs())]
    volume_timeout_seconds: u64,
    /// How long a gang may run below its minimum before it is evicted, unless its PodGroup says; negative is for ever.
    #[arg(
        long, env = "BERTH_DEFAULT_STALENESS_GRACE_PERIOD", default_value = "60s", allow_hyphen_values = true,
        value_parser = berth_api::parse_duration_millis
    )]
    default_staleness_grace_period: i64,
    /// Lead by a Lease before writing anything; by default inside a cluster only. Without it, run one process at a time.
    #[arg(long, env = "BERTH_LEADER_ELECT", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    leader_elect: Option<bool>,
    /// Namespace of the Lease; by default that of the service account or of the kubeconfig's context.
    #[arg(long, env = "BERTH_LEASE_NAMESPACE")]
    lease_namespace: Option<String>,
    /// Decide everything and write nothing: what would be done is logged, and compared with what another scheduler does to
    /// the same pods. No Lease is taken.
    #[arg(long, env = "BERTH_DRY_RUN", value_parser = clap::builder::FalseyValueParser::new(), conflicts_with = "leader_elect")]
    dry_run: bool,
    /// Check every so many-th answer of the engine from the facts, with the others of its pass; 0: none.
    #[arg(long, env = "BERTH_CHECK_EVERY", default_value_t = 256)]
    check_every: u64,
    /// Name of a ConfigMap with priority classes and preemptibility by kind, as KAI Scheduler reads it.
    #[arg(long, env = "BERTH_DEFAULT_PRIORITIES_CONFIGMAP_NAME", requires = "default_priorities_configmap_namespace")]
    default_priorities_configmap_name: Option<String>,
    /// Namespace of that ConfigMap.
    #[arg(long, env = "BERTH_DEFAULT_PRIORITIES_CONFIGMAP_NAMESPACE", requires = "default_priorities_configmap_name")]
    default_priorities_configmap_namespace: Option<String>,
    /// Seconds that the API server may refuse this process before it ends: credentials that are not accepted, or no right to
    /// read pods, nodes or the Lease.
    #[arg(long, env = "BERTH_REFUSED_SECONDS", default_value_t = 60)]
    refused_seconds: u64,
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

async fn serve(arguments: &Arguments) -> anyhow::Result<()> {
    let metrics = Arc::new(Metrics::new().context("making the metrics")?);
    let health = Arc::new(Health::default());
    let listener = http::bind(arguments.listen_address).await.with_context(|| format!("listening on {}", arguments.listen_address))?;
    info!(address = %listener.local_addr()?, scheduler = %arguments.scheduler_name, version = env!("CARGO_PKG_VERSION"), "berth starts");
    tokio::spawn(http::serve(listener, Arc::clone(&metrics), Arc::clone(&health)));

    let client = arguments.connection.client().await?;
    let (asker, window) = sight::window();
    if let Some(address) = arguments.api_address {
        let listener = http::api::bind(address).await.with_context(|| format!("listening on {address}"))?;
        info!(address = %listener.local_addr()?, "API");
        tokio::spawn(http::api::serve(listener, client.clone(), asker, Arc::clone(&metrics), Arc::clone(&health)));
    }
    let elects = stands_for_election(arguments);
    let fence = if elects { Fence::shut() } else { Fence::open() };
    let access = Access::new(std::time::Duration::from_secs(arguments.refused_seconds));
    let mut leadership = lease(arguments, &client, fence.clone(), access.clone());
    health.set_standby(elects);
    let may_start = async {
        if elects {
            leadership.acquire().await;
            anyhow::Ok(())
        } else if arguments.dry_run {
            info!("dry run: nothing is written");
            Ok(())
        } else {
            leadership.mark(bind::REQUEST_TIMEOUT).await.context("another process")
        }
    };
    tokio::select! {
        result = may_start => result?,
        refusal = access.given_up() => anyhow::bail!(refusal),
        signal = signalled() => {
            info!(signal = signal?, "stopped before the start");
            return Ok(());
        }
    }
    health.set_standby(false);
    metrics.leading.set(1);
    // Watches start now and not before: what they list is newer than everything that an earlier leader wrote.
    let parts = start(arguments, client, fence, metrics, Arc::clone(&health), access.clone(), window).await?;
    let kept = async {
        if elects {
            leadership.keep().await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    let mut kept = Box::pin(kept);
    let asked = tokio::select! {
        signal = signalled() => {
            info!(signal = signal?, "stopping");
            Ok(())
        }
        refusal = access.given_up() => Err(anyhow::anyhow!(refusal)),
        () = parts.engine_ended => Err(anyhow::anyhow!("the watches ended by themselves")),
        () = &mut kept => Err(anyhow::anyhow!("leadership is lost; another process decides now")),
    };
    health.set_stopping();
    // Nobody listens when the engine and the writer have ended already.
    let _unheard = parts.stop.send(true).is_err();
    let ended = async {
        let joined = tokio::task::spawn_blocking(move || parts.engine.join()).await;
        let all_ended = parts.binder.await.context("waiting for Bindings under way")?;
        parts.status.await.context("waiting for the status writer")?;
        anyhow::ensure!(matches!(joined, Ok(Ok(()))), "the engine thread panicked");
        anyhow::Ok(all_ended)
    };
    // What is under way may end under our Lease, which is renewed meanwhile.
    let mut ended = std::pin::pin!(ended);
    let all_ended = tokio::select! {
        result = &mut ended => result?,
        () = &mut kept, if asked.is_ok() => ended.await?,
    };
    drop(kept);
    parts.ingest.abort();
    // With something still on its way the Lease keeps our name: the next process waits that out.
    if asked.is_ok() && all_ended && !arguments.dry_run {
        leadership.release().await;
    }
    asked?;
    info!("stopped");
    Ok(())
}

/// Whether this process writes only while it leads: as asked for, else inside a cluster.
fn stands_for_election(arguments: &Arguments) -> bool {
    let in_cluster = || arguments.connection.is_default() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    !arguments.dry_run && arguments.leader_elect.unwrap_or_else(in_cluster)
}

/// Our part in the Lease; `fence` opens when we lead.
fn lease(arguments: &Arguments, client: &Client, fence: Fence, access: Access) -> Leadership {
    let namespace = lease_namespace(arguments, client);
    let name = leader::lease_name(&leader_of(arguments));
    Leadership::new(client.clone(), namespace, &name, &leader::identity(), fence).access(access)
}

/// Where the Lease is.
fn lease_namespace<'a>(arguments: &'a Arguments, client: &'a Client) -> &'a str {
    arguments.lease_namespace.as_deref().unwrap_or(client.default_namespace())
}

/// What the Lease is named after: as in KAI Scheduler, each pool has its own leader.
fn leader_of(arguments: &Arguments) -> String {
    match arguments.pool.partition_label_value.as_deref() {
        Some(value) if !value.is_empty() => format!("{}-{value}", arguments.scheduler_name),
        _ => arguments.scheduler_name.clone(),
    }
}

/// The running parts.
struct Parts {
    stop: watch::Sender<bool>,
    engine: std::thread::JoinHandle<()>,
    engine_ended: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
    binder: tokio::task::JoinHandle<bool>,
    status: tokio::task::JoinHandle<()>,
    ingest: tokio::task::JoinHandle<()>,
}

/// Whether labels must be patched before a Binding, because the server does not copy them.
async fn labels_first(client: &Client) -> bool {
    match client.apiserver_version().await {
        Ok(version) => !bind::copies_labels(&version.major, &version.minor),
        Err(error) => {
            warn!(%error, "the version of the API server is not known; labels are written before Bindings");
            true
        }
    }
}

/// Names the rights that are missing, while everything else starts: nothing waits for the answer.
fn look_at_rights(arguments: &Arguments, client: Client, metrics: Arc<Metrics>, labels_first: bool) {
    let namespace = lease_namespace(arguments, &client).to_owned();
    let (scheduler_name, api) = (leader_of(arguments), arguments.api_address.is_some());
    tokio::spawn(async move {
        let options = rbac::Options {
            namespace: &namespace,
            account: "",
            scheduler_name: &scheduler_name,
            owners: &[],
            defaults_map: None,
            api,
            labels_first,
            read_only: false,
        };
        rights::check(&client, &options, &metrics).await;
    });
}

async fn start(
    arguments: &Arguments,
    client: Client,
    fence: Fence,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    access: Access,
    window: Window,
) -> anyhow::Result<Parts> {
    let directory = SharedDirectory::default();
    let make_writer = if arguments.dry_run { Writer::silent } else { Writer::new };
    let writer = make_writer(Arc::clone(&metrics), directory.clone());
    let (stop_sender, stop) = watch::channel(false);
    let (engine, events) = mpsc::channel(EVENT_QUEUE);
    let (result_sender, results) = mpsc::unbounded_channel();
    let (command_sender, commands) = mpsc::unbounded_channel();

    let compat_kai = arguments.compat == Some(Compat::Kai);
    let map = (&arguments.default_priorities_configmap_namespace, &arguments.default_priorities_configmap_name);
    let map = map.0.as_ref().zip(map.1.as_ref()).map(|(namespace, name)| ObjectKey::new(namespace, name));
    let store = Store::new(&arguments.scheduler_name, directory.clone()).compat_kai(compat_kai).defaults_map(map).node_pool(arguments.pool.pool());
    let labels_first = labels_first(&client).await;
    if !arguments.dry_run {
        look_at_rights(arguments, client.clone(), Arc::clone(&metrics), labels_first);
    }
    let binder = if arguments.dry_run {
        tokio::spawn(Shadow::new(result_sender, directory.clone(), Arc::clone(&metrics)).run(commands))
    } else {
        let sender = bind::Sender { client: client.clone(), metrics: Arc::clone(&metrics), fence: fence.clone(), labels_first };
        let binder = Binder::new(sender, result_sender, directory.clone(), arguments.bind_concurrency)
            .volume_timeout(std::time::Duration::from_secs(arguments.volume_timeout_seconds));
        tokio::spawn(binder.run(commands))
    };
    let status = tokio::spawn(writer.clone().run(client.clone(), fence, stop.clone()));
    let ingest = Ingest {
        client,
        store,
        engine,
        writer: writer.clone(),
        metrics: Arc::clone(&metrics),
        access,
    };
    let ingest = tokio::spawn(ingest.run());
    let policy = Policy {
        default_topology: arguments.default_topology.clone(),
        objective: arguments.objective,
        gpu_strategy: arguments.strategies.gpu_strategy,
        cpu_strategy: arguments.strategies.cpu_strategy,
        compat_kai,
        staleness_grace_millis: arguments.default_staleness_grace_period,
        verdict_age_millis: Policy::VERDICT_AGE_MILLIS,
        verdicts_per_pass: Policy::VERDICTS_PER_PASS,
        ..Policy::standard()
    };
    let wiring = Wiring { events, results, binder: command_sender, writer, directory, metrics, health, window };
    let handle = tokio::runtime::Handle::current();
    let scheduler = Scheduler::new(policy, wiring).check_every(arguments.check_every);
    let (ended_sender, ended) = tokio::sync::oneshot::channel::<()>();
    let engine = std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || {
            scheduler.run(&handle, stop);
            drop(ended_sender);
        })
        .context("starting the engine thread")?;
    let engine_ended = Box::pin(async move {
        // The sender is dropped, never used.
        let _dropped = ended.await.is_err();
    });
    Ok(Parts { stop: stop_sender, engine, engine_ended, binder, status, ingest })
}

pub(super) async fn signalled() -> anyhow::Result<&'static str> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("watching for SIGTERM")?;
    tokio::select! {
        _ = terminate.recv() => Ok("SIGTERM"),
        result = tokio::signal::ctrl_c() => { result.context("watching for SIGINT")?; Ok("SIGINT") }
    }
}
