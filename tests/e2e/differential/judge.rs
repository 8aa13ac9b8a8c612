//! The extender that kube-scheduler asks: it remembers which nodes passed, and refuses all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

type Answers = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

pub(super) struct Judge {
    url: String,
    answers: Answers,
}

impl Judge {
    pub(super) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers = Answers::default();
        let router = Router::new().route("/filter", post(filter)).with_state(Arc::clone(&answers));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, answers }
    }

    pub(super) fn url(&self) -> String {
        self.url.clone()
    }

    /// Nodes that kube-scheduler accepts for a pod it has given its verdict on. It asks nobody when there are none.
    pub(super) fn accepted(&self, uid: &str) -> BTreeSet<String> {
        self.answers.lock().unwrap().get(uid).cloned().unwrap_or_default()
    }
}

async fn filter(State(answers): State<Answers>, Json(arguments): Json<Value>) -> Json<Value> {
    let field = |name: &str| arguments.get(name).or_else(|| arguments.get(name.to_lowercase())).cloned().unwrap_or_default();
    let uid = field("Pod")["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let names = field("NodeNames");
    let names = names.as_array().expect("an extender that is told names");
    let names: BTreeSet<String> = names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
    let failed: BTreeMap<&String, &str> = names.iter().map(|name| (name, "only asked")).collect();
    let answer = json!({"NodeNames": [], "FailedNodes": failed});
    answers.lock().unwrap().insert(uid, names);
    Json(answer)
}
