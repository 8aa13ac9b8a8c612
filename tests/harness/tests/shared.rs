//! Tests of one binary share a control plane, and it ends with the process.

#![allow(clippy::unwrap_used, reason = "unwrapping is a statement in tests")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use berth_harness::{ControlPlane, Error, NodeSpec, Options, shared, wait_for};

/// Set in the process that is to be killed.
const HOLDER: &str = "BERTH_HARNESS_HOLDER";

async fn use_shared(prefix: &str) -> String {
    let plane = shared().await.unwrap();
    let client = plane.client().await.unwrap();
    let nodes = (0..20)
        .map(|n| NodeSpec::new(format!("{prefix}-{n}")))
        .collect();
    plane.create_nodes(&client, nodes).await.unwrap();
    plane.namespace(&client, prefix).await.unwrap();
    plane.url().to_owned()
}

#[tokio::test]
async fn two_tests_at_once() {
    let (one, other) = tokio::join!(use_shared("one"), use_shared("other"));
    assert_eq!(one, other);
}

#[tokio::test]
async fn another_test_in_its_own_runtime() {
    use_shared("another").await;
}

/// Prints where the shared control plane is and waits to be killed.
#[tokio::test]
async fn holder() {
    if std::env::var_os(HOLDER).is_none() {
        return;
    }
    let plane = shared().await.unwrap();
    println!(
        "\nheld {}",
        plane.kubeconfig_path().parent().unwrap().display()
    );
    tokio::time::sleep(Duration::from_secs(600)).await;
}

/// Processes whose command line names `dir`.
fn processes_of(dir: &Path) -> Vec<String> {
    let dir = dir.to_str().unwrap();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines =
        entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(dir)).collect()
}

#[tokio::test]
async fn a_killed_process_leaves_nothing() {
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holder", "--nocapture"])
        .env(HOLDER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let line = lines.find(|line| line.starts_with("held ")).unwrap();
    let dir = Path::new(line.trim_start_matches("held "));
    assert_eq!(
        processes_of(dir).len(),
        5,
        "four components and the watcher"
    );
    holder.kill().unwrap();
    holder.wait().unwrap();
    wait_for("the components to end", Duration::from_secs(15), || async {
        let left = processes_of(dir);
        if left.is_empty() && !dir.exists() {
            Ok(Some(()))
        } else {
            Err(format!("still there: {left:?}"))
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_failed_start_says_why() {
    let options = Options {
        apiserver_args: vec!["--no-such-flag".into()],
        ..Options::default()
    };
    match ControlPlane::start(options).await {
        Err(Error::Ended {
            component: "kube-apiserver",
            log,
            ..
        }) => assert!(log.contains("no-such-flag"), "{log}"),
        other => panic!("{other:?}"),
    }
}
