//! The binder against an API server that answers as the test says.
#![allow(clippy::panic, reason = "a test fails by panicking")]

use berth_engine::facts::{NodeFacts, ObjectKey};
use berth_engine::outcome::Quality;
use serde_json::json;

use super::*;
use crate::cluster::directory::Member;
use crate::leader::Fence;
use crate::fake_api::{Asked, FakeApi, failure};

/// A decision of two pods, and a directory in which it holds.
fn decided() -> (Decision, SharedDirectory) {
    let directory = SharedDirectory::default();
    let mut placements = Vec::new();
    for pod in ["a", "b"] {
        let node = format!("n-{pod}");
        let facts = NodeFacts { uid: format!("u-{node}"), name: node.clone(), ready: true, ..NodeFacts::default() };
        let mut locked = directory.lock();
        let member = Member { shape: Some(Arc::default()), ..Member::default() };
        locked.gang_mut("g").members.insert(pod.to_owned(), member);
        placements.push(Placement {
            pod_uid: pod.to_owned(),
            pod: ObjectKey::new("ns", pod),
            subgroup: "worker-0".to_owned(),
            node_uid: facts.uid.clone(),
            volumes: Vec::new(),
            node,
        });
        locked.put_node(facts);
    }
    let quality = Quality::default();
    (Decision { id: 1, gang_uid: "g".to_owned(), gang: ObjectKey::new("ns", "g"), placements, quality }, directory)
}

fn sender_to(api: &FakeApi) -> Sender {
    let metrics = Arc::new(Metrics::new().expect("metrics"));
    Sender { client: api.client.clone(), metrics, fence: Fence::open(), labels_first: false }
}

/// Runs a decision to its end.
async fn run(api: &FakeApi, decision: Decision, directory: SharedDirectory) -> Vec<Ended> {
    let (result_sender, mut results) = mpsc::unbounded_channel();
    let (sender, commands) = mpsc::unbounded_channel();
    let binder = Binder::new(sender_to(api), result_sender, directory, 8);
    let running = tokio::spawn(binder.run(commands));
    let pods = decision.placements.len();
    sender.send(Command::Bind { decision: Box::new(decision), mark: "1-1".to_owned(), handwritten: false }).expect("it listens");
    let mut ended = Vec::new();
    for _ in 0..pods {
        match results.recv().await {
            Some(Told::Binding(one)) => ended.push(one),
            other => panic!("{other:?}"),
        }
    }
    drop(sender);
    running.await.expect("it ends");
    ended
}

fn victim() -> Victim {
    Victim { pod_uid: "a".to_owned(), pod: ObjectKey::new("ns", "a") }
}

fn is_binding(asked: &&Asked) -> bool {
    asked.path.ends_with("/binding")
}

#[tokio::test]
async fn a_decision_that_still_holds_is_sent() {
    let api = FakeApi::start(|_| (201, json!({"kind": "Status", "status": "Success"}))).await;
    let (decision, directory) = decided();
    let ended = run(&api, decision, directory).await;
    assert!(ended.iter().all(|ended| ended.result == BindResult::Bound && !ended.stale), "{ended:?}");
    assert_eq!(api.asked().iter().filter(is_binding).count(), 2);
}

#[tokio::test]
async fn of_a_stale_decision_nothing_is_sent() {
    let api = FakeApi::start(|_| failure(500, "nobody should ask")).await;
    let (decision, directory) = decided();
    directory.lock().remove_node("u-n-b");
    let ended = run(&api, decision, directory).await;
    assert!(ended.len() == 2 && ended.iter().all(|ended| ended.stale), "{ended:?}");
    assert!(api.asked().is_empty());
}

#[tokio::test]
async fn the_server_is_told_how_long_a_binding_may_take() {
    let api = FakeApi::start(|_| (201, json!({}))).await;
    let (decision, _) = decided();
    let result = sender_to(&api).bind(&decision.placements[0], "g", "1-1/2", false).await;
    assert_eq!(result, BindResult::Bound);
    let asked = &api.asked()[0];
    assert!(asked.query.contains("timeout=5s"), "{}", asked.query);
    assert_eq!(asked.body["metadata"]["uid"], "a");
}

#[tokio::test]
async fn without_leadership_nothing_is_sent() {
    let api = FakeApi::start(|_| (201, json!({}))).await;
    let (decision, _) = decided();
    let sender = Sender { fence: Fence::shut(), ..sender_to(&api) };
    assert!(matches!(sender.bind(&decision.placements[0], "g", "1-1/2", false).await, BindResult::Transient(_)));
    assert!(sender.evict(&victim()).await.is_some());
    assert!(api.asked().is_empty());
}

#[tokio::test]
async fn labels_go_first_where_the_server_does_not_copy_them() {
    let api = FakeApi::start(|_| (201, json!({}))).await;
    let (decision, _) = decided();
    let sender = Sender { labels_first: true, ..sender_to(&api) };
    assert_eq!(sender.bind(&decision.placements[0], "g", "1-1/2", false).await, BindResult::Bound);
    assert_eq!(sender.bind(&decision.placements[1], "g", "1-1/2", true).await, BindResult::Bound);
    let asked = api.asked();
    let methods: Vec<&str> = asked.iter().map(|asked| asked.method.as_str()).collect();
    assert_eq!(methods, ["PATCH", "POST", "POST"], "pods of hand-written groups are not relabelled");
    assert_eq!(asked[0].body["metadata"]["uid"], "a");
    assert_eq!(asked[0].body["metadata"]["labels"]["kai.scheduler/subgroup-name"], "worker-0");
}

#[tokio::test]
async fn a_refused_label_is_a_refused_binding() {
    let api = FakeApi::start(|asked| if asked.method == "PATCH" { failure(422, "no") } else { (201, json!({})) }).await;
    let (decision, _) = decided();
    let sender = Sender { labels_first: true, ..sender_to(&api) };
    let result = sender.bind(&decision.placements[0], "g", "1-1/2", false).await;
    assert!(matches!(&result, BindResult::Permanent(text) if text.contains("no")), "{result:?}");
}

#[tokio::test]
async fn an_eviction_bears_the_uid_and_a_budget_may_refuse_it() {
    let refuse = |asked: &Asked| match asked.path.contains("/pods/b/") {
        true => failure(429, "Cannot evict pod as it would violate the pod's disruption budget."),
        false => (201, json!({"kind": "Status", "status": "Success"})),
    };
    let api = FakeApi::start(refuse).await;
    let (result_sender, mut results) = mpsc::unbounded_channel();
    let (sender, commands) = mpsc::unbounded_channel();
    let running = tokio::spawn(Binder::new(sender_to(&api), result_sender, SharedDirectory::default(), 8).run(commands));
    let other = Victim { pod_uid: "u-b".to_owned(), pod: ObjectKey::new("ns", "b") };
    sender.send(Command::Evict(vec![victim(), other])).expect("it listens");
    let mut told = Vec::new();
    for _ in 0..2 {
        match results.recv().await {
            Some(Told::Eviction { pod, refused }) => told.push((pod, refused.is_some_and(|why| why.contains("budget")))),
            other => panic!("{other:?}"),
        }
    }
    drop(sender);
    running.await.expect("it ends");
    told.sort();
    assert_eq!(told, [("a".to_owned(), false), ("u-b".to_owned(), true)]);
    let asked = api.asked();
    let guarded = |asked: &Asked| asked.body["deleteOptions"]["preconditions"]["uid"].is_string();
    assert!(asked.len() == 2 && asked.iter().all(guarded), "{asked:?}");
}

#[tokio::test]
async fn a_pod_that_is_gone_needs_no_eviction() {
    for code in [404, 409] {
        let api = FakeApi::start(move |_| failure(code, "not this one")).await;
        assert_eq!(sender_to(&api).evict(&victim()).await, None);
    }
}
