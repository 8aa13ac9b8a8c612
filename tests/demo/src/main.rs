//! `make demo-cluster`: fake GPU nodes in two regions, a gang that fits, one that does not and why, and what happens when
//! room appears, on a real API server.
//!
//! With KUBECONFIG set it asks, then uses that cluster: nodes, a namespace, a Topology and (where missing) CRDs of its own,
//! all removed at the end. Otherwise it starts a control plane on loopback. Berth runs under a scheduler name of its own,
//! so that no other pod of the cluster is touched.

mod cluster;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use berth_api::pod_group::PodGroup;
use berth_harness::{ControlPlane, NodeSpec, Options};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use cluster::Borrowed;

/// Scheduler name of the demo.
const SCHEDULER: &str = "berth-demo";
/// Patience with one step.
const STEP: Duration = Duration::from_secs(60);
/// How often pods are looked at.
const GLANCE: Duration = Duration::from_millis(150);
pub(crate) const REGION: &str = "demo.berth.scheduler/region";
pub(crate) const ZONE: &str = "demo.berth.scheduler/zone";
/// Name of the Topology, the namespace and the start of node names.
pub(crate) const NAME: &str = "berth-demo";

fn nodes() -> Vec<NodeSpec> {
    let places = [("us-central1", "a"), ("us-central1", "b"), ("asia-northeast3", "a"), ("asia-northeast3", "b")];
    let node = |(region, zone): (&str, &str)| {
        NodeSpec::new(format!("{NAME}-{region}-{zone}")).gpus(1).label(REGION, region).label(ZONE, format!("{region}-{zone}"))
    };
    places.into_iter().map(node).collect()
}

#[tokio::main]
async fn main() -> ExitCode {
    match demo().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("demo: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

async fn demo() -> anyhow::Result<()> {
    match std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()) {
        Some(path) => {
            let config = kube::Config::infer().await.context("reading KUBECONFIG")?;
            say(&format!(
                "KUBECONFIG names {}. The demo adds 4 fake nodes, the namespace {NAME}, a Topology and missing CRDs to it, \
                 and removes them again.\nGo on? [y/N] ",
                config.cluster_url
            ));
            let mut answer = String::new();
            std::io::stdin().read_line(&mut answer).context("reading the answer")?;
            ensure!(answer.trim().eq_ignore_ascii_case("y"), "not confirmed; nothing was done");
            let client = Client::try_from(config).context("making a client")?;
            let borrowed = Borrowed::prepare(client.clone(), nodes()).await;
            let result = match &borrowed {
                Ok(_) => story(client.clone(), Path::new(&path)).await,
                Err(error) => Err(anyhow::anyhow!("{error:#}")),
            };
            say("\nCleaning up ...\n");
            cluster::clean_up(&client, borrowed.map(|borrowed| borrowed.crds).unwrap_or_default(), nodes()).await;
            result
        }
        None => {
            say("Starting a control plane (built from source the first time: a quarter of an hour on two cores) ...\n");
            let plane = ControlPlane::start(Options::default()).await?;
            let client = plane.client().await?;
            plane.apply_crds(&client, &crds()).await?;
            plane.create_nodes(&client, nodes()).await?;
            cluster::namespace_and_topology(&client).await?;
            let result = story(client, plane.kubeconfig_path()).await;
            say("\nCleaning up ...\n");
            plane.stop().await;
            result
        }
    }
}

/// The CRDs of the repository.
pub(crate) fn crds() -> std::path::PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).join("crds")
}

fn say(text: &str) {
    let mut out = std::io::stdout();
    // Nobody listens: nothing is lost.
    let _deaf = out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err();
}

/// Berth as a process; ends with this value.
struct Berth(Child);

impl Berth {
    fn start(kubeconfig: &Path) -> anyhow::Result<Self> {
        let here = std::env::current_exe().context("finding the demo's own program")?;
        let program = here.with_file_name("berth");
        ensure!(program.is_file(), "{} is missing: build it with `cargo build --bin berth`", program.display());
        let child = Command::new(&program)
            .args(["run", "--scheduler-name", SCHEDULER, "--listen-address", "127.0.0.1:0", "--kubeconfig"])
            .arg(kubeconfig)
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Self(child))
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.0.kill().is_err();
        let _reaped = self.0.wait().is_ok();
    }
}

async fn story(client: Client, kubeconfig: &Path) -> anyhow::Result<()> {
    let _berth = Berth::start(kubeconfig)?;
    let mut stage = Stage { client, shown: BTreeMap::new() };
    say("\n4 nodes with one GPU each:\n  us-central1      zone a, zone b\n  asia-northeast3  zone a, zone b\n");

    say("\n1. A Job of 2 pods that must be in one region (batch-min-member 2):\n");
    stage.job("trainer", 2).await?;
    stage.until_bound("trainer-", 2).await?;

    say("\n2. A single pod takes one of the two GPUs that are left:\n");
    stage.job("single", 1).await?;
    stage.until_bound("single-", 1).await?;

    say("\n3. Another Job of 2 pods for one region: no region has two free GPUs, so nothing is bound:\n");
    stage.job("second", 2).await?;
    let sentence = stage.sentence("pg-second-").await?;
    say(&format!("  second: {sentence}\n"));

    say("\n4. The single pod goes; the waiting gang is placed at once:\n");
    let jobs: Api<Job> = Api::namespaced(stage.client.clone(), NAME);
    jobs.delete("single", &DeleteParams::background()).await.context("deleting the Job single")?;
    stage.until_bound("second-", 2).await
}

struct Stage {
    client: Client,
    shown: BTreeMap<String, String>,
}

impl Stage {
    async fn job(&self, name: &str, pods: u32) -> anyhow::Result<()> {
        let annotations = json!({
            "kai.scheduler/batch-min-member": pods.to_string(),
            "kai.scheduler/topology": NAME,
            "kai.scheduler/topology-required-placement": REGION,
            "kai.scheduler/topology-preferred-placement": ZONE,
        });
        let job: Job = serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"parallelism": pods, "completions": pods, "template": {"spec": {
                "schedulerName": SCHEDULER, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
            }}},
        }))?;
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), NAME);
        jobs.create(&PostParams::default(), &job).await.with_context(|| format!("creating the Job {name}"))?;
        Ok(())
    }

    /// Shows pods as they are bound.
    async fn until_bound(&mut self, prefix: &str, count: usize) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAME);
            for pod in pods.list(&ListParams::default()).await.context("listing pods")? {
                let (Some(name), Some(node)) = (pod.metadata.name, pod.spec.and_then(|spec| spec.node_name)) else { continue };
                if self.shown.insert(name.clone(), node.clone()).is_none() {
                    say(&format!("  {:>5} ms  {name:<16} -> {}\n", started.elapsed().as_millis(), &node[NAME.len() + 1..]));
                }
            }
            if self.shown.keys().filter(|name| name.starts_with(prefix)).count() >= count {
                return Ok(());
            }
            ensure!(started.elapsed() < STEP, "pods {prefix}* are still not bound after {STEP:?}");
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// The sentence in the status of a pending gang.
    async fn sentence(&self, prefix: &str) -> anyhow::Result<String> {
        let started = Instant::now();
        loop {
            let groups: Api<PodGroup> = Api::namespaced(self.client.clone(), NAME);
            for group in groups.list(&ListParams::default()).await.context("listing PodGroups")? {
                let named = group.metadata.name.as_deref().is_some_and(|name| name.starts_with(prefix));
                let status: Value = serde_json::to_value(&group.status)?;
                if let (true, Some(message)) = (named, status["message"].as_str()) {
                    return Ok(message.to_owned());
                }
            }
            ensure!(started.elapsed() < STEP, "the gang {prefix}* still says nothing after {STEP:?}");
            tokio::time::sleep(GLANCE).await;
        }
    }
}
