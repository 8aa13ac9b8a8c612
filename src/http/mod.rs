//! The HTTP ports: metrics and health, which read shared state only; and the API in [`api`], which asks the engine.

pub mod api;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;

use crate::clock::now_millis;
use crate::telemetry::Metrics;

/// The engine loop wakes at least every second; silence this long means that it hangs.
const HEARTBEAT_LIMIT_MILLIS: i64 = 30_000;

/// What the health endpoints answer from.
#[derive(Debug, Default)]
pub struct Health {
    synced: AtomicBool,
    standby: AtomicBool,
    stopping: AtomicBool,
    heartbeat: AtomicI64,
}

impl Health {
    /// The engine loop is alive now.
    pub fn beat(&self, now: i64) {
        self.heartbeat.store(now, Ordering::Relaxed);
    }
    /// The process waits for its turn to lead, or does not any more.
    pub fn set_standby(&self, standby: bool) {
        self.standby.store(standby, Ordering::Relaxed);
    }
    /// The initial lists are complete.
    pub fn set_synced(&self) {
        self.synced.store(true, Ordering::Relaxed);
    }
    /// The process is about to end.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
    /// The loop turned lately.
    pub fn live(&self, now: i64) -> bool {
        let last = self.heartbeat.load(Ordering::Relaxed);
        last == 0 || now - last < HEARTBEAT_LIMIT_MILLIS
    }
    /// Another process leads.
    pub fn stands_by(&self) -> bool {
        self.standby.load(Ordering::Relaxed)
    }
    /// Decisions are being made.
    pub fn ready(&self) -> bool {
        self.synced.load(Ordering::Relaxed) && !self.stopping.load(Ordering::Relaxed)
    }
}

#[derive(Clone)]
struct App {
    metrics: Arc<Metrics>,
    health: Arc<Health>,
}

async fn metrics(State(app): State<App>) -> impl IntoResponse {
    page(app.metrics.render())
}

/// Metrics as a page.
fn page(rendered: Result<String, prometheus::Error>) -> impl IntoResponse {
    match rendered {
        Ok(text) => (StatusCode::OK, [("content-type", "text/plain; version=0.0.4")], text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, [("content-type", "text/plain")], error.to_string()),
    }
}

async fn livez(State(app): State<App>) -> (StatusCode, &'static str) {
    if app.health.live(now_millis()) { (StatusCode::OK, "ok\n") } else { (StatusCode::INTERNAL_SERVER_ERROR, "the engine loop hangs\n") }
}

async fn readyz(State(app): State<App>) -> (StatusCode, &'static str) {
    if app.health.stands_by() {
        return (StatusCode::OK, "standing by\n");
    }
    if app.health.ready() { (StatusCode::OK, "ok\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not synced\n") }
}

/// Binds the address; an address in use is an error at start, not a silent lack of metrics.
pub async fn bind(address: SocketAddr) -> std::io::Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::bind(address).await
}

/// Serves until the process ends.
pub async fn serve(listener: tokio::net::TcpListener, metrics_: Arc<Metrics>, health: Arc<Health>) -> std::io::Result<()> {
    let app = App { metrics: metrics_, health };
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/healthz", get(livez))
        .route("/readyz", get(readyz))
        .with_state(app);
    axum::serve(listener, router).await
}

/// Serves metrics alone until the process ends, for processes without an engine: `/healthz` answers as long as they turn.
pub async fn serve_metrics<R>(listener: tokio::net::TcpListener, render: R) -> std::io::Result<()>
where
    R: Fn() -> Result<String, prometheus::Error> + Clone + Send + Sync + 'static,
{
    let metrics = move || std::future::ready(page(render()));
    let well = || async { "ok\n" };
    let router = Router::new().route("/metrics", get(metrics)).route("/livez", get(well)).route("/healthz", get(well));
    axum::serve(listener, router).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_follows_heartbeat_and_sync() {
        let health = Health::default();
        assert!(health.live(1) && !health.ready());
        health.beat(1_000);
        health.set_synced();
        assert!(health.live(2_000) && health.ready());
        assert!(!health.live(1_000 + HEARTBEAT_LIMIT_MILLIS));
        health.set_stopping();
        assert!(!health.ready());
    }
}
