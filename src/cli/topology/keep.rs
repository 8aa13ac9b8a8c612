//! `berth topology run`: keeps labels and the Topology as the fabric says, while nodes come, go and change.
//!
//! A burst of changes is one look: it begins when nothing has changed for a while, and at the latest after a fixed time, so
//! that nodes that never rest do not put it off for ever. What it writes comes back as a change, and finds nothing to do.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use berth_discovery::Node;
use clap::Args;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node as ApiNode;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::time::Instant;
use tracing::{info, warn};

use super::super::YES;
use super::apply::{Target, apply};
use super::discover::Sources;
use super::report::{self, Reporter};
use crate::clock::now_millis;
use crate::telemetry::TopologyMetrics;

/// The longest wait before a failed look is done again.
const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// Arguments of `berth topology run`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    sources: Sources,
    /// Seconds without a change before nodes are looked at.
    #[arg(long, default_value_t = 5, env = "BERTH_AGGREGATION_SECONDS", value_parser = clap::value_parser!(u64).range(0..=3600))]
    aggregation_seconds: u64,
    /// Seconds after the first change when they are looked at in any case.
    #[arg(long, default_value_t = 60, env = "BERTH_LONGEST_SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    longest_seconds: u64,
    /// Seconds after which the sources are read again, changes or none.
    #[arg(long, default_value_t = 300, env = "BERTH_REFRESH_SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    refresh_seconds: u64,
    /// Namespace of the ConfigMap berth-topology, which says how things stand; without it there is none.
    #[arg(long, env = "BERTH_STATUS_NAMESPACE")]
    status_namespace: Option<String>,
    /// Where metrics are served, such as 0.0.0.0:8080; without it they are not.
    #[arg(long, value_name = "ADDRESS", env = "BERTH_METRICS_ADDRESS")]
    metrics_address: Option<SocketAddr>,
    /// Log as JSON.
    #[arg(long, env = "BERTH_LOG_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    log_json: bool,
}

/// Runs until it is told to stop.
pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    crate::telemetry::start_logging(arguments.log_json);
    arguments.target.connection.block_on(async |client| {
        tokio::select! {
            result = serve(arguments, client) => result?,
            signal = super::super::run::signalled() => info!(signal = signal?, "topology stops"),
        }
        Ok(YES)
    })
}

/// When to look again.
#[derive(Debug)]
struct Turn {
    first: Option<Instant>,
    last: Instant,
    retry: Option<Instant>,
    refresh: Instant,
}

impl Turn {
    fn at(&self, arguments: &Arguments) -> Instant {
        let quiet = self.last + Duration::from_secs(arguments.aggregation_seconds);
        let changed = self.first.map(|first| quiet.min(first + Duration::from_secs(arguments.longest_seconds)));
        [changed, self.retry].into_iter().flatten().min().unwrap_or(self.refresh).min(self.refresh)
    }

    fn note(&mut self, now: Instant) {
        self.first.get_or_insert(now);
        self.last = now;
    }
}

async fn serve(arguments: &Arguments, client: kube::Client) -> Result<()> {
    let mut changes = pin!(watcher(Api::<ApiNode>::all(client.clone()), watcher::Config::default()).default_backoff());
    let (mut nodes, mut listed, mut is_listed) = (BTreeMap::<String, Node>::new(), BTreeMap::new(), false);
    let now = Instant::now();
    let mut turn = Turn { first: Some(now), last: now, retry: None, refresh: now + Duration::from_secs(arguments.refresh_seconds) };
    let mut failures = 0_u32;
    let metrics = Arc::new(TopologyMetrics::new().context("making the metrics")?);
    if let Some(address) = arguments.metrics_address {
        let listener = crate::http::bind(address).await.with_context(|| format!("listening on {address}"))?;
        info!(address = %listener.local_addr()?, "metrics are served");
        let metrics = Arc::clone(&metrics);
        tokio::spawn(crate::http::serve_metrics(listener, move || metrics.render()));
    }
    let mut reporter = Reporter::new(client.clone(), arguments.status_namespace.as_deref(), &arguments.target.name);
    reporter.begin().await;
    info!("topology starts");
    loop {
        tokio::select! {
            change = changes.next() => match change.context("the watch of nodes ended")? {
                Ok(watcher::Event::Init) => listed = BTreeMap::new(),
                Ok(watcher::Event::InitApply(node)) => {
                    keep(&mut listed, &node);
                }
                Ok(watcher::Event::InitDone) => {
                    is_listed = true;
                    if nodes != listed {
                        nodes = std::mem::take(&mut listed);
                        turn.note(Instant::now());
                    }
                }
                Ok(watcher::Event::Apply(node)) => if keep(&mut nodes, &node).is_some() { turn.note(Instant::now()) },
                Ok(watcher::Event::Delete(node)) => {
                    nodes.remove(node.metadata.name.as_deref().unwrap_or_default());
                    turn.note(Instant::now());
                }
                Err(error) => {
                    metrics.watch_errors.inc();
                    warn!(%error, "nodes can't be watched");
                }
            },
            () = tokio::time::sleep_until(turn.at(arguments)), if is_listed => {
                let all: Vec<Node> = nodes.values().cloned().collect();
                let is_whole = look(arguments, &client, &all, &mut reporter, &metrics).await;
                failures = if is_whole { 0 } else { failures.saturating_add(1) };
                let now = Instant::now();
                let wait = Duration::from_secs(5).saturating_mul(1 << failures.min(8)).min(LONGEST_RETRY);
                turn = Turn { first: None, last: now, retry: (failures > 0).then(|| now + wait), refresh: now + Duration::from_secs(arguments.refresh_seconds) };
            }
        }
    }
}

/// Takes a node over; nothing when it is as it was, as far as labels go.
fn keep(nodes: &mut BTreeMap<String, Node>, node: &ApiNode) -> Option<()> {
    let node = serde_json::to_value(node).ok().as_ref().and_then(Node::from_json)?;
    let is_new = nodes.get(&node.name) != Some(&node);
    nodes.insert(node.name.clone(), node);
    is_new.then_some(())
}

/// Looks, and says how things stand.
async fn look(arguments: &Arguments, client: &kube::Client, nodes: &[Node], reporter: &mut Reporter, metrics: &TopologyMetrics) -> bool {
    let begun = Instant::now();
    match apply(&arguments.target, &arguments.sources, client.clone(), nodes).await {
        Ok(done) => {
            metrics.looked(&report::look(&done), begun.elapsed(), now_millis() as f64 / 1000.0);
            reporter.looked(&done).await;
            done.is_whole()
        }
        Err(error) => {
            metrics.failed(begun.elapsed());
            reporter.failed(&format!("{error:#}")).await;
            false
        }
    }
}
