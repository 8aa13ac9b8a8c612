//! The API of the running scheduler: why something waits, how the queues stand, and the page. Read-only, off unless an address
//! is given.
//!
//! A request never reaches the engine but for a copy of its model that is seconds old ([`sight`](crate::scheduler::sight));
//! everything else is computed here, one answer at a time. Who asks is asked of the API server, and an answer holds what
//! they may see there. Requests, connections, waiting and computing are bounded; above a bound the answer is 503.

mod access;
mod answer;
#[cfg(test)]
mod fixture;
mod limits;
mod mask;
mod refusal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path, Query, Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::HeaderMap;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use kube::Client;
use serde_json::Value;
use tokio::sync::Semaphore;
use tracing::warn;

use super::Health;
use crate::cli::render::page;
use crate::clock::now_millis;
use crate::scheduler::sight::{Asker, Sight, Unseen};
use crate::telemetry::Metrics;
use access::{Access, Caller, Right};
use limits::Limited;
use mask::Sees;
use refusal::Refusal;

/// Requests at a time; those above are told to come back.
const MAX_REQUESTS: usize = 64;

/// How long a request may take, waiting for others included.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The API group of PodGroups and Queues.
const RUN_AI: &str = "scheduling.run.ai";

/// What every request needs.
#[derive(Debug)]
struct Api {
    asker: Asker,
    access: Access,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    requests: Semaphore,
    /// Whoever holds it computes: the other processors belong to the engine.
    computing: Arc<Semaphore>,
    /// What was computed from the latest copy.
    known: Mutex<answer::Known>,
}

/// Binds the address, which should be this machine's own: tokens come over it in the clear.
///
/// # Errors
///
/// The address is in use, or not this machine's.
pub async fn bind(address: SocketAddr) -> std::io::Result<tokio::net::TcpListener> {
    let listener = super::bind(address).await?;
    if !address.ip().is_loopback() {
        warn!(%address, "the API is not on loopback: tokens are sent to it in the clear unless something in front speaks TLS");
    }
    Ok(listener)
}

/// Serves until the process ends.
pub async fn serve(listener: tokio::net::TcpListener, client: Client, asker: Asker, metrics: Arc<Metrics>, health: Arc<Health>) -> std::io::Result<()> {
    axum::serve(Limited::new(listener), router(api(client, asker, metrics, health))).await
}

fn api(client: Client, asker: Asker, metrics: Arc<Metrics>, health: Arc<Health>) -> Arc<Api> {
    Arc::new(Api {
        asker,
        access: Access::new(client),
        health,
        metrics,
        requests: Semaphore::new(MAX_REQUESTS),
        computing: Arc::new(Semaphore::new(1)),
        known: Mutex::default(),
    })
}

fn router(api: Arc<Api>) -> Router {
    Router::new()
        .route("/v1/explain/{namespace}/{kind}/{name}", get(explain))
        .route("/v1/queue", get(queue))
        .route("/v1/snapshot", get(snapshot))
        .route("/", get(page))
        .fallback(async || Refusal::not_found("paths: / (the page), /v1/explain/NAMESPACE/KIND/NAME, /v1/queue, /v1/snapshot"))
        .layer(middleware::from_fn_with_state(Arc::clone(&api), bounded))
        .with_state(api)
}

/// Bounds of every request: how many, how long; and the count of what came of it.
async fn bounded(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let mut response = match api.requests.try_acquire() {
        Err(_) => Refusal::busy().into_response(),
        Ok(_permit) => tokio::time::timeout(TIMEOUT, next.run(request)).await.unwrap_or_else(|_| Refusal::late().into_response()),
    };
    // What one may see is nothing for the next one at the same proxy.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // One request a connection: its end after a minute then never meets one that has just begun.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    api.metrics.answers.with_label_values(&[response.status().as_str()]).inc();
    response
}

async fn explain(
    State(api): State<Arc<Api>>,
    Path((namespace, kind, name)): Path<(String, String, String)>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refusal> {
    let wanted = answer::Wanted::new(&namespace, &kind, &name, &query)?;
    let caller = api.caller(&headers).await?;
    api.may_read(&caller, &wanted).await?;
    let sees = api.sees(&caller, &namespace).await?;
    let sight = api.sight().await?;
    let api = Arc::clone(&api);
    api.computed(move |api| answer::explanation(&sight, &api.known, &wanted, &sees)).await.map(Json)
}

async fn queue(
    State(api): State<Arc<Api>>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refusal> {
    let wanted = answer::WantedQueue::new(&query, &["namespace", "output"])?;
    let caller = api.caller(&headers).await?;
    let (sight, sees) = api.lists(&caller, wanted.namespace.as_deref()).await?;
    api.computed(move |_| answer::queue(&sight, &wanted, &sees)).await.map(Json)
}

/// The page itself: it holds nothing of the cluster, so anybody may have it.
async fn page() -> Result<impl IntoResponse, Refusal> {
    // The file's own policy, and what only a header can say: nobody may frame it.
    let policy = HeaderValue::from_str(&format!("{}; frame-ancestors 'none'", page::LIVE_POLICY)).map_err(|_| Refusal::failed())?;
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    Ok((headers, page::live()))
}

/// What the page shows.
async fn snapshot(
    State(api): State<Arc<Api>>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Refusal> {
    let wanted = answer::WantedQueue::new(&query, &["namespace"])?;
    let caller = api.caller(&headers).await?;
    let (sight, sees) = api.lists(&caller, wanted.namespace.as_deref()).await?;
    let text = api.computed(move |api| Ok(answer::snapshot(&sight, &api.known, &sees))).await?;
    Ok(([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], text.as_bytes().to_vec()))
}

impl Api {
    async fn caller(&self, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| value.split_once(' '));
        let token = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim()).ok_or_else(Refusal::unknown)?;
        self.access.caller(token, now_millis()).await
    }

    async fn need(&self, caller: &Caller, right: &Right) -> Result<(), Refusal> {
        if self.access.may(caller, right, now_millis()).await? {
            return Ok(());
        }
        Err(Refusal::forbidden(&format!("this needs the right to {}", right.told())))
    }

    /// A gang may be asked for by who may read its pods, or the object itself.
    async fn may_read(&self, caller: &Caller, wanted: &answer::Wanted) -> Result<(), Refusal> {
        let answer::Wanted { namespace, kind, name, .. } = wanted;
        let pods = if kind == "pod" { Right::get("", "pods", namespace, name) } else { Right::get("", "pods", namespace, "") };
        if kind == "podgroup" && self.access.may(caller, &Right::get(RUN_AI, "podgroups", namespace, name), now_millis()).await? {
            return Ok(());
        }
        self.need(caller, &pods).await
    }

    /// What they may see besides.
    async fn sees(&self, caller: &Caller, namespace: &str) -> Result<Sees, Refusal> {
        let now = now_millis();
        let (nodes, pods, own) = (Right::list("", "nodes"), Right::list("", "pods"), Right::list_pods(namespace));
        let may = |right| self.access.may(caller, right, now);
        let (nodes, pods, own) = tokio::try_join!(may(&nodes), may(&pods), may(&own))?;
        Ok(Sees { nodes, pods, namespaces: own.then(|| namespace.to_owned()).into_iter().collect(), queues: true })
    }

    /// The model, and what of it they may see who ask for the work of a namespace, or of all: its pods must be theirs to list.
    async fn lists(&self, caller: &Caller, namespace: Option<&str>) -> Result<(Arc<Sight>, Sees), Refusal> {
        self.need(caller, &namespace.map_or_else(|| Right::list("", "pods"), Right::list_pods)).await?;
        let now = now_millis();
        let (nodes, queues) = (Right::list("", "nodes"), Right::list(RUN_AI, "queues"));
        let (nodes, queues) = tokio::try_join!(self.access.may(caller, &nodes, now), self.access.may(caller, &queues, now))?;
        let sight = self.sight().await?;
        let namespaces = namespace.map(str::to_owned).into_iter().collect();
        Ok((sight, Sees { nodes, pods: namespace.is_none(), namespaces, queues: queues || namespace.is_none() }))
    }

    async fn sight(&self) -> Result<Arc<Sight>, Refusal> {
        if self.health.stands_by() {
            return Err(Refusal::unavailable("this process stands by; another one leads and decides"));
        }
        if !self.health.ready() {
            return Err(Refusal::unavailable("the scheduler does not decide yet, or not any more"));
        }
        self.asker.sight(now_millis()).await.map_err(|unseen| match unseen {
            Unseen::Busy => Refusal::busy(),
            Unseen::NoEngine => Refusal::unavailable("the engine is not running"),
        })
    }

    /// Runs work off the threads that serve, one piece at a time.
    async fn computed<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let turn = Arc::clone(&self.computing).acquire_owned().await.map_err(|_| Refusal::failed())?;
        let work = move || {
            // Work that nobody waits for any more still counts until its end.
            let _turn = turn;
            work(&self)
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(Refusal::failed()))
    }
}
