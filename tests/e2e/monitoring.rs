//! A real Prometheus scrapes Berth: every rule of the chart is accepted, and every query of its rules and its dashboard has data.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use berth_harness::wait_for;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::install::rig;
use crate::release::chart;
use crate::rig::{REGION, SOON, ZONE, free_address};
use crate::stories::required_region;

/// Rates need two samples, one second apart; the rest is patience with a loaded machine.
const RANGE: &str = "30s";

fn file(name: &str) -> PathBuf {
    Path::new(&chart()).join("files").join(name)
}

struct Prometheus {
    child: Child,
    address: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _gone_already = self.child.kill().is_err();
        let _reaped = self.child.wait().is_err();
    }
}

impl Prometheus {
    async fn start(folder: &Path, targets: &[String]) -> Self {
        let program = berth_harness::program("prometheus").await.unwrap();
        let labels = json!({"namespace": "berth-system", "service": "berth"});
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [file("alerts.yaml")],
            "scrape_configs": [{"job_name": "berth", "static_configs": [{"targets": targets, "labels": labels}]}],
        });
        let path = folder.join("prometheus.yaml");
        std::fs::write(&path, config.to_string()).unwrap();
        let address = free_address();
        let log = std::fs::File::create(folder.join("prometheus.log")).unwrap();
        let child = Command::new(program)
            .arg(format!("--config.file={}", path.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, address }
    }

    /// A document of its API.
    async fn api(&self, path: &str) -> Result<Value, String> {
        let ask = async {
            let mut stream = tokio::net::TcpStream::connect(&self.address).await?;
            // HTTP/1.0, so that the body comes in one piece.
            stream.write_all(format!("GET /api/v1/{path} HTTP/1.0\r\nHost: prometheus\r\n\r\n").as_bytes()).await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            std::io::Result::Ok(text)
        };
        let text = ask.await.map_err(|error| error.to_string())?;
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body).ok_or_else(|| text.clone())?;
        let answer: Value = serde_json::from_str(body).map_err(|error| format!("{error}: {text}"))?;
        if answer["status"] == "success" { Ok(answer["data"].clone()) } else { Err(answer.to_string()) }
    }

    /// Waits until a query has data.
    async fn has_data(&self, query: &str) {
        let encoded: String = query.bytes().map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect();
        wait_for(&format!("data for {query}"), SOON, || async {
            let data = self.api(&format!("query?query={encoded}")).await?;
            match data["result"].as_array() {
                Some(rows) if !rows.is_empty() => Ok(Some(())),
                _ => Err(data.to_string()),
            }
        })
        .await
        .unwrap();
    }
}

/// What a rule compares: the rule without its last comparison.
fn compared(rule: &str) -> &str {
    let at = rule.rfind([' ']).and_then(|end| rule[..end].rfind(' ')).unwrap();
    assert!(["<", ">"].contains(&rule[at..].split_whitespace().next().unwrap()), "{rule}");
    &rule[..at]
}

#[test]
fn every_alert_has_its_page_and_every_metric_that_is_asked_for_exists() {
    let alerts = std::fs::read_to_string(file("alerts.yaml")).unwrap();
    let pages = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/alerts.md")).unwrap();
    let rules: Value = serde_saphyr::from_str(&alerts).unwrap();
    for rule in rules["groups"][0]["rules"].as_array().unwrap() {
        let name = rule["alert"].as_str().unwrap();
        assert!(pages.contains(&format!("\n## {name}\n")), "docs/alerts.md says nothing of {name}");
        assert_eq!(rule["annotations"]["runbook"], json!(format!("docs/alerts.md#{}", name.to_lowercase())));
    }
    let known = berth::telemetry::Metrics::new().unwrap().markdown();
    let dashboard = std::fs::read_to_string(file("dashboard.json")).unwrap();
    for word in format!("{alerts}{dashboard}").split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
        if word.starts_with("berth_") || word.starts_with("kai_") {
            let base = ["_bucket", "_count"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
            assert!(known.contains(&format!("`{base}`")), "{word} is no metric of Berth");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_has_data_for_every_rule_and_every_panel() {
    let (rig, helm, kubelet) = rig().await;
    for (kind, plural) in [("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules")] {
        rig.loose_kind("monitoring.coreos.com", "v1", kind, plural).await;
    }
    let on = ["serviceMonitor", "prometheusRule", "dashboard"].map(|what| format!("metrics.{what}.enabled=true")).join(",");
    helm.run(&["install", "berth", &chart(), "--create-namespace", "--wait", "--timeout", "2m", "--set", &on]).await;
    kubelet.leads(1).await;
    rig.topology("cluster-topology", &[REGION, ZONE]).await;
    let folder = rig.plane.kubeconfig_path().parent().unwrap().to_owned();
    let prometheus = Prometheus::start(&folder, &kubelet.addresses()).await;
    wait_for("Prometheus to scrape both processes", SOON, || async {
        let targets = prometheus.api("targets").await?;
        let up = targets["activeTargets"].as_array().into_iter().flatten().filter(|target| target["health"] == "up").count();
        if up == 2 { Ok(Some(())) } else { Err(targets.to_string()) }
    })
    .await
    .unwrap();

    // One gang is placed, one waits.
    rig.job("first", 2, required_region()).await;
    rig.bound("first-", 2, SOON).await;
    rig.job("waits", 3, required_region()).await;
    rig.waits_because("waits-", "Unschedulable").await;

    let rules = prometheus.api("rules").await.unwrap();
    let rules = rules["groups"][0]["rules"].as_array().unwrap().clone();
    assert!(rules.len() >= 10, "{rules:?}");
    for rule in &rules {
        assert_eq!(rule["lastError"], Value::Null, "{rule}");
        let query = rule["query"].as_str().unwrap();
        prometheus.has_data(&range(compared(query))).await;
    }
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file("dashboard.json")).unwrap()).unwrap();
    let mut panels = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            prometheus.has_data(&target["expr"].as_str().unwrap().replace("$__rate_interval", RANGE)).await;
            panels += 1;
        }
    }
    assert!(panels >= 20, "{panels}");
    // Nothing is wrong here, so nothing rings but what is about the work that waits.
    wait_for("the rules to be evaluated", Duration::from_secs(30), || async {
        let rules = prometheus.api("rules").await?;
        let evaluated = rules["groups"][0]["rules"].as_array().into_iter().flatten().all(|rule| rule["health"] == "ok");
        if evaluated { Ok(Some(())) } else { Err(rules.to_string()) }
    })
    .await
    .unwrap();
    let firing: Vec<Value> = prometheus.api("alerts").await.unwrap()["alerts"].as_array().unwrap().clone();
    let firing: Vec<&Value> = firing.iter().filter(|alert| alert["state"] == "firing").collect();
    assert!(firing.is_empty(), "{firing:?}");
}

/// The same over a range that a test has.
fn range(query: &str) -> String {
    ["10m", "15m", "30m", "1h"].iter().fold(query.to_owned(), |query, long| query.replace(&format!("[{long}]"), &format!("[{RANGE}]")))
}
