//! An API server for unit tests: it notes what is asked and answers as the test says.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{Method, StatusCode, Uri};
use kube::{Client, Config};
use serde_json::{Value, json};

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) body: Value,
}

type Answer = Arc<dyn Fn(&Asked) -> (u16, Value) + Send + Sync>;

/// The server; it ends with the test's runtime.
pub(crate) struct FakeApi {
    pub(crate) client: Client,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl FakeApi {
    pub(crate) async fn start(answer: impl Fn(&Asked) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let (answer, asked): (Answer, Arc<Mutex<Vec<Asked>>>) = (Arc::new(answer), Arc::default());
        let notes = Arc::clone(&asked);
        let handler = move |method: Method, uri: Uri, body: Bytes| {
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let query = uri.query().unwrap_or_default().to_owned();
            let request = Asked { method: method.to_string(), path: uri.path().to_owned(), query, body };
            let (code, answer) = answer(&request);
            notes.lock().expect("no test panics while it holds this").push(request);
            async move { (StatusCode::from_u16(code).expect("a status code"), axum::Json(answer)) }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new().fallback(handler);
        tokio::spawn(async move { axum::serve(listener, router).await });
        let mut config = Config::new(format!("http://{address}").parse().expect("an address is a URL"));
        // As in `berth run`.
        config.default_retry = false;
        Self { client: Client::try_from(config).expect("a client"), asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no test panics while it holds this").clone()
    }
}

/// The body of a failure.
pub(crate) fn failure(code: u16, message: &str) -> (u16, Value) {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        _ => "",
    };
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": reason});
    (code, body)
}
