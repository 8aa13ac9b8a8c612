//! The API over HTTP: an engine that lends a fixed model, and an API server that reviews as the test says.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::fixture::{SECRETS, cluster};
use super::*;
use crate::cli::render::explanation::{Explained, Explanation, json as document};
use crate::fake_api::{Asked, FakeApi, failure};
use crate::scheduler::sight;

struct Rig {
    address: SocketAddr,
    api: Arc<Api>,
    reviews: FakeApi,
}

/// Tokens are names: `root` may everything, `ada` may read pods in `mine`, `pod` one pod there, and `nobody` nothing.
fn review(asked: &Asked) -> (u16, Value) {
    let spec = &asked.body["spec"];
    if asked.path.ends_with("/tokenreviews") {
        let name = spec["token"].as_str().unwrap_or_default();
        let is_known = ["root", "ada", "pod", "nobody"].contains(&name) || name.starts_with("root-");
        return (201, json!({"spec": {}, "status": {"authenticated": is_known, "user": {"username": name}}}));
    }
    if !asked.path.ends_with("/subjectaccessreviews") {
        return failure(404, "not found");
    }
    let what = &spec["resourceAttributes"];
    let allowed = match spec["user"].as_str() {
        Some(name) if name.starts_with("root") => true,
        Some("ada") => what["namespace"] == "mine" && what["resource"] == "pods",
        Some("pod") => *what == json!({"verb": "get", "resource": "pods", "namespace": "mine", "name": "ours-0"}),
        _ => false,
    };
    (201, json!({"spec": {}, "status": {"allowed": allowed}}))
}

/// The API with an engine that answers, or one that hangs.
async fn rig(answers: bool) -> Rig {
    let reviews = FakeApi::start(review).await;
    let (asker, mut window) = sight::window();
    let health = Arc::new(Health::default());
    health.set_synced();
    let metrics = Arc::new(Metrics::new().expect("the table is consistent"));
    let api = api(reviews.client.clone(), asker, metrics, health);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let serving = router(Arc::clone(&api));
    tokio::spawn(async move { axum::serve(Limited::new(listener), serving).await });
    tokio::spawn(async move {
        let cluster = cluster();
        loop {
            let ask = window.asked().await;
            if !answers {
                // Hanging is not gone.
                std::future::pending::<()>().await;
            }
            window.answer(ask, cluster.world(), &cluster.policy(), now_millis());
        }
    });
    Rig { address, api, reviews }
}

async fn raw(address: SocketAddr, method: &str, path: &str, token: Option<&str>) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("connected");
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: berth\r\n{token}\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("an answer");
    text
}

impl Rig {
    /// Status code and document.
    async fn get(&self, path: &str, token: &str) -> (u16, Value) {
        let text = raw(self.address, "GET", path, Some(token)).await;
        let code = text.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
        let (_, body) = text.split_once("\r\n\r\n").expect("a body");
        (code, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text}")))
    }
}

const OURS: &str = "/v1/explain/mine/Job/ours";

#[tokio::test]
async fn nobody_is_answered_without_a_token_that_is_known() {
    let rig = rig(true).await;
    for token in [None, Some("forged"), Some("")] {
        let text = raw(rig.address, "GET", OURS, token).await;
        assert!(text.starts_with("HTTP/1.1 401 ") && text.to_lowercase().contains("www-authenticate: bearer"), "{text}");
        assert!(text.to_lowercase().contains("cache-control: no-store") && text.contains("\"kind\":\"Status\""), "{text}");
        assert!(!text.contains("forged"), "a token is not repeated");
    }
    assert!(raw(rig.address, "POST", OURS, Some("root")).await.starts_with("HTTP/1.1 405 "));
    assert!(rig.api.metrics.render().expect("renders").contains("berth_answers_total{code=\"401\"} 3"));
}

#[tokio::test]
async fn who_may_see_everything_gets_what_the_command_says() {
    let rig = rig(true).await;
    let (code, answer) = rig.get(OURS, "root").await;
    let cluster = cluster();
    let gangs = cluster.world().gang_reports();
    let gang = gangs.iter().find(|gang| gang.owner == "Job/ours").expect("it is there");
    let explained = vec![Explained::of(&cluster.moment(), gang, berth_engine::remedy::DEFAULT_TRIALS)];
    let mut expected = document(&Explanation { explained, what_if: None });
    // What was placed before is remembered by the scheduler, which has placed nothing here.
    expected["podGroups"][0]["placedBefore"] = json!([]);
    assert_eq!((code, &answer), (200, &expected));
    assert!(SECRETS.iter().all(|name| answer.to_string().contains(name)), "{answer}");
    // Again: from the same copy, and nothing is reviewed anew.
    let asked = rig.reviews.asked().len();
    let (_, again) = rig.get(&format!("{OURS}?output=table"), "root").await;
    assert_eq!(rig.reviews.asked().len(), asked);
    assert_eq!(again["podGroups"], answer["podGroups"]);
    assert!(again["table"].as_str().is_some_and(|table| table.starts_with("Job/ours in mine")), "{again}");
}

#[tokio::test]
async fn who_may_read_a_namespace_gets_its_work_masked_and_no_other() {
    let rig = rig(true).await;
    for path in [OURS, "/v1/explain/mine/pod/ours-0", "/v1/explain/mine/Job/ours?output=table", "/v1/queue?namespace=mine&output=table"] {
        let (code, answer) = rig.get(path, "ada").await;
        let text = answer.to_string();
        assert_eq!(code, 200, "{path}: {text}");
        assert!(SECRETS.iter().all(|secret| !text.contains(secret)), "{path}: {text}");
        assert!(text.contains("region-1/zone-1/block#1/rack#"), "{path}: {text}");
    }
    let (_, queue) = rig.get("/v1/queue?namespace=mine", "ada").await;
    assert_eq!(queue["queues"].as_array().map(Vec::len), Some(1), "queues are not hers to list: {queue}");
    let refused = ["/v1/explain/other/Job/their-job", "/v1/explain/other/PodGroup/x", "/v1/queue", "/v1/queue?namespace=other"];
    for path in refused {
        let (code, answer) = rig.get(path, "ada").await;
        assert_eq!((code, &answer["reason"]), (403, &json!("Forbidden")), "{path}: {answer}");
        assert!(SECRETS.iter().all(|secret| !answer.to_string().contains(secret)), "{path}: {answer}");
    }
    let (_, all) = rig.get("/v1/queue", "root").await;
    assert_eq!((all["queues"].as_array().map(Vec::len), &all["waiting"][0]["owner"]), (Some(2), &json!("Job/ours")), "{all}");
}

#[tokio::test]
async fn the_page_has_no_data_and_its_data_are_what_they_may_see() {
    let rig = rig(true).await;
    let page = raw(rig.address, "GET", "/", None).await;
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("frame-ancestors 'none'") && page.contains("/v1/snapshot"), "{page}");
    assert!(SECRETS.iter().all(|secret| !page.contains(secret)));
    for (token, code) in [("ada", 403), ("nobody", 403), ("forged", 401)] {
        assert_eq!(rig.get("/v1/snapshot", token).await.0, code, "{token}");
    }
    assert_eq!(rig.get("/v1/snapshot?namespace=other", "ada").await.0, 403);
    let (code, masked) = rig.get("/v1/snapshot?namespace=mine", "ada").await;
    assert!(code == 200 && SECRETS.iter().all(|secret| !masked.to_string().contains(secret)), "{masked}");
    let gangs = masked["gangs"].as_array().expect("gangs");
    let shown: Vec<(&Value, &Value)> = gangs.iter().map(|gang| (&gang["title"], &gang["id"][0])).collect();
    let theirs = (&json!("work of queue theirs"), &Value::Null);
    assert_eq!(shown, [(&json!("Job/ours in mine"), &json!("mine")), theirs, theirs]);
    assert_eq!((&masked["nodes"][0]["n"], &masked["nodes"][0]["p"]["network"][2]), (&json!("node#1"), &json!("block#1")), "{masked}");
    assert_eq!(masked["queues"].as_array().map(Vec::len), Some(1), "{masked}");
    let (code, snapshot) = rig.get("/v1/snapshot", "root").await;
    let sums = |page: &Value| page["nodes"].as_array().expect("nodes").iter().map(|node| node["a"].clone()).collect::<Vec<_>>();
    assert_eq!(sums(&snapshot), sums(&masked), "counts stay");
    let waits = snapshot["gangs"].as_array().expect("gangs").iter().find(|gang| gang["id"][0] == "mine").expect("ours");
    assert_eq!((code, snapshot["nodes"].as_array().map(Vec::len), &waits["fixes"]), (200, Some(5), &json!([])));
    // What the page asks when somebody wants to know what would help.
    let path = format!("/v1/explain/mine/PodGroup/{}", waits["id"][1].as_str().expect("a name"));
    let (_, answer) = rig.get(&path, "root").await;
    assert!(answer["podGroups"][0]["remedies"][0]["message"].is_string(), "{answer}");
}

#[tokio::test]
async fn one_pod_may_be_asked_for_by_who_may_read_that_one() {
    let rig = rig(true).await;
    assert_eq!(rig.get("/v1/explain/mine/Pod/ours-0", "pod").await.0, 200);
    assert_eq!(rig.get("/v1/explain/mine/Pod/ours-1", "pod").await.0, 403);
    assert_eq!(rig.get(OURS, "pod").await.0, 403);
    assert_eq!(rig.get(OURS, "nobody").await.0, 403);
    assert_eq!(rig.get("/v1/explain/mine/Job/none", "nobody").await.0, 403, "not even whether it is there");
}

#[tokio::test]
async fn wrong_requests_are_told_what_is_allowed() {
    let rig = rig(true).await;
    for (path, code, words) in [
        ("/v1/explain/mine/Job/none", 404, "no gang of job/none in namespace mine"),
        ("/v1/explain/mine/Job/a%2Fb", 400, "NAMESPACE/KIND/NAME"),
        ("/v1/explain/mine/Job/ours?trials=97", 400, "0 to 96"),
        ("/v1/explain/mine/Job/ours?output=xml", 400, "table"),
        ("/v1/explain/mine/Job/ours?what=1", 400, "parameters: trials, output"),
        ("/v1/queue?namespace=%20", 400, "namespace"),
        ("/v2", 404, "/v1/queue"),
    ] {
        let (found, answer) = rig.get(path, "root").await;
        assert!(found == code && answer["message"].as_str().is_some_and(|message| message.contains(words)), "{path}: {found} {answer}");
    }
    let (_, answer) = rig.get(&format!("{OURS}?trials=0"), "root").await;
    assert_eq!((&answer["podGroups"][0]["tried"], &answer["podGroups"][0]["cutShort"]), (&json!(0), &json!(true)));
}

#[tokio::test]
async fn before_and_after_it_leads_nothing_is_answered() {
    let rig = rig(true).await;
    rig.api.health.set_standby(true);
    let (code, answer) = rig.get(OURS, "root").await;
    assert!(code == 503 && answer["message"].as_str().is_some_and(|message| message.contains("stands by")), "{answer}");
    rig.api.health.set_standby(false);
    rig.api.health.set_stopping();
    assert_eq!(rig.get(OURS, "root").await.0, 503);
}

#[tokio::test]
async fn above_the_bound_requests_are_told_to_come_back() {
    let rig = rig(false).await;
    let waiting = (0..MAX_REQUESTS).map(|at| {
        let address = rig.address;
        tokio::spawn(async move { raw(address, "GET", OURS, Some(&format!("root-{at}"))).await })
    });
    let waiting: Vec<_> = waiting.collect();
    while rig.api.requests.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    let text = raw(rig.address, "GET", OURS, Some("root")).await;
    assert!(text.starts_with("HTTP/1.1 503 ") && text.to_lowercase().contains("retry-after: 1"), "{text}");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}
