//! The chart with the real helm, and what stands in for a kubelet of Berth's own pods: a process for each, with the pod's
//! arguments, environment, configuration and account.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_harness::wait_for;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::rig::{SOON, free_address, http, terminate};
use crate::rights::write_kubeconfig;

/// The namespace of the releases.
pub(crate) const NAMESPACE: &str = "berth-system";

/// helm with the rights of the administrator.
pub(crate) struct Helm {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Helm {
    pub(crate) async fn ready(kubeconfig: &Path) -> Self {
        Self { program: berth_harness::program("helm").await.unwrap(), kubeconfig: kubeconfig.to_owned() }
    }

    /// Runs it to its end; standard output, or standard error when it failed.
    pub(crate) async fn try_run(&self, arguments: &[&str]) -> Result<String, String> {
        let home = self.kubeconfig.parent().unwrap();
        let mut command = tokio::process::Command::new(&self.program);
        command.args(arguments).args(["-n", NAMESPACE, "--kubeconfig"]).arg(&self.kubeconfig);
        // Nothing of whoever runs the tests is read or written.
        for (variable, folder) in [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")] {
            command.env(variable, home.join("helm").join(folder));
        }
        let output = command.stdin(Stdio::null()).output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> String {
        match self.try_run(arguments).await {
            Ok(text) => text,
            Err(message) => panic!("helm {arguments:?}: {message}"),
        }
    }
}

/// The chart of this repository.
pub(crate) fn chart() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/berth").display().to_string()
}

/// One process that stands for a pod.
struct Container {
    child: Child,
    address: String,
}

type Containers = Arc<Mutex<BTreeMap<String, Container>>>;

/// Runs the pods of Berth's releases.
pub(crate) struct Kubelet {
    folder: PathBuf,
    containers: Containers,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
        for container in self.containers.lock().unwrap().values_mut() {
            let _gone_already = container.child.kill().is_err();
            let _reaped = container.child.wait().is_err();
        }
    }
}

impl Kubelet {
    /// Starts to look after pods with the label of the chart; logs go into the control plane's folder.
    pub(crate) fn start(client: Client, admin: &Path) -> Self {
        let containers = Containers::default();
        let worker = Worker { client, admin: admin.to_owned(), containers: Arc::clone(&containers) };
        Self { folder: admin.parent().unwrap().to_owned(), containers, task: tokio::spawn(worker.run()) }
    }

    /// What each process answers at a path of its port.
    pub(crate) async fn ask(&self, path: &str) -> Vec<String> {
        let mut answers = Vec::new();
        for address in self.addresses() {
            answers.push(http(&address, path).await);
        }
        answers
    }

    /// Waits until one process decides and `standing_by` others wait for their turn.
    pub(crate) async fn leads(&self, standing_by: usize) {
        wait_for("one process to lead and the others to stand by", SOON, || async {
            let answers = self.ask("/readyz").await;
            let of = |end: &str| answers.iter().filter(|answer| answer.ends_with(end)).count();
            let found = (of("\r\n\r\nok\n"), of("standing by\n"), answers.len());
            if found == (1, standing_by, standing_by + 1) { Ok(Some(())) } else { Err(format!("{answers:?}")) }
        })
        .await
        .unwrap();
    }

    /// Where the processes listen.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.containers.lock().unwrap().values().map(|one| one.address.clone()).collect()
    }

    /// What all processes have logged, those that ended included.
    pub(crate) fn logs(&self) -> String {
        let logs = std::fs::read_dir(self.folder.as_path()).unwrap().map(|entry| entry.unwrap().path());
        logs.filter(|path| path.extension().is_some_and(|end| end == "log")).map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }

    /// How many processes there are.
    pub(crate) fn count(&self) -> usize {
        self.containers.lock().unwrap().len()
    }
}

struct Worker {
    client: Client,
    admin: PathBuf,
    containers: Containers,
}

impl Worker {
    async fn run(self) {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let ours = ListParams::default().labels("app.kubernetes.io/part-of=berth");
        let mut rounds = tokio::time::interval(Duration::from_millis(100));
        loop {
            rounds.tick().await;
            let Ok(found) = pods.list(&ours).await else { continue };
            let runs = |pod: &&Pod| pod.metadata.deletion_timestamp.is_none() && phase(pod) == "Running";
            let running: Vec<&Pod> = found.items.iter().filter(runs).collect();
            self.stop_others(&running).await;
            for pod in running {
                let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
                match label("app.kubernetes.io/component").as_deref() {
                    Some("scheduler") => self.start(pod).await,
                    Some("test") => self.run_to_end(pod).await,
                    _ => {}
                }
            }
        }
    }

    /// SIGTERM for the processes of pods that are gone.
    async fn stop_others(&self, running: &[&Pod]) {
        let names: Vec<&str> = running.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        let gone: Vec<Container> = {
            let mut containers = self.containers.lock().unwrap();
            let gone: Vec<String> = containers.keys().filter(|name| !names.contains(&name.as_str())).cloned().collect();
            gone.iter().filter_map(|name| containers.remove(name)).collect()
        };
        for mut container in gone {
            terminate(&container.child);
            tokio::task::spawn_blocking(move || container.child.wait()).await.unwrap().unwrap();
        }
    }

    /// The process of a pod, unless it runs; one that ended is started again, as a kubelet would.
    async fn start(&self, pod: &Pod) {
        let name = pod.metadata.name.clone().unwrap();
        if let Some(container) = self.containers.lock().unwrap().get_mut(&name) {
            if container.child.try_wait().unwrap().is_none() {
                return;
            }
        }
        let address = free_address();
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        let spec = serde_json::to_value(pod.spec.as_ref().unwrap()).unwrap();
        let container = &spec["containers"][0];
        for argument in container["args"].as_array().unwrap() {
            match argument.as_str().unwrap().split_once('=') {
                Some(("--listen-address", _)) => command.args(["--listen-address", &address]),
                Some(("--config", _)) => command.arg("--config").arg(self.config(pod, &spec).await),
                _ => command.arg(argument.as_str().unwrap()),
            };
        }
        for variable in container["env"].as_array().unwrap() {
            command.env(variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap());
        }
        let log = std::fs::File::create(self.file(&name, "log")).unwrap();
        command.arg("--kubeconfig").arg(self.account(pod, &spec).await);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.containers.lock().unwrap().insert(name, Container { child, address });
    }

    /// The test of the chart: the program runs with the pod's arguments, and the pod's end is that of the program.
    async fn run_to_end(&self, pod: &Pod) {
        let spec = serde_json::to_value(pod.spec.as_ref().unwrap()).unwrap();
        let arguments = spec["containers"][0]["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap());
        let status = Command::new(env!("CARGO_BIN_EXE_berth")).args(arguments).stdout(Stdio::null()).status().unwrap();
        let end = if status.success() { "berth.test/complete" } else { "berth.test/fail" };
        let patch = json!({"metadata": {"annotations": {end: "true"}}});
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap());
        // It may be gone meanwhile.
        let _told = pods.patch(pod.metadata.name.as_deref().unwrap(), &PatchParams::default(), &Patch::Merge(patch)).await.is_ok();
    }

    fn file(&self, pod: &str, kind: &str) -> PathBuf {
        self.admin.with_file_name(format!("{pod}.{kind}"))
    }

    /// The mounted configuration.
    async fn config(&self, pod: &Pod, spec: &Value) -> PathBuf {
        let volumes = spec["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == "config").unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap());
        let map = maps.get(volume["configMap"]["name"].as_str().unwrap()).await.unwrap();
        let path = self.file(pod.metadata.name.as_deref().unwrap(), "yaml");
        std::fs::write(&path, &map.data.unwrap()["config.yaml"]).unwrap();
        path
    }

    /// A kubeconfig with a token of the pod's account.
    async fn account(&self, pod: &Pod, spec: &Value) -> PathBuf {
        let path = self.file(pod.metadata.name.as_deref().unwrap(), "kubeconfig");
        let account = (pod.metadata.namespace.as_deref().unwrap(), spec["serviceAccountName"].as_str().unwrap());
        write_kubeconfig(&self.client, &self.admin, account, &path).await;
        path
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}
