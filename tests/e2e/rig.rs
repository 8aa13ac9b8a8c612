//! A control plane, a Berth process, and the questions that tests ask.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use berth_api::pod_group::PodGroup;
use berth_api::queue::Queue;
use berth_harness::{ControlPlane, NodeSpec, Options, wait_for};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client, discovery};
use serde_json::{Value, json};

/// Patience with anything that is not measured.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// The region label.
pub(crate) const REGION: &str = "topology.kubernetes.io/region";
/// The zone label.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
/// A rack label.
pub(crate) const RACK: &str = "example.com/rack";

pub(crate) struct Rig {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    berth: Option<Child>,
    address: String,
    /// With whose rights Berth runs.
    pub(crate) kubeconfig: PathBuf,
    /// Where Berth's log goes; without it to the output of the test.
    pub(crate) log: Option<PathBuf>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Rig {
    /// A control plane with the CRDs and these nodes; Berth is not started.
    pub(crate) async fn new(nodes: Vec<NodeSpec>) -> Self {
        Self::with(Options::default(), nodes).await
    }

    /// The same with other options.
    pub(crate) async fn with(options: Options, nodes: Vec<NodeSpec>) -> Self {
        let rig = Self::bare(options, nodes).await;
        rig.apply_crds().await;
        rig
    }

    /// The same without the CRDs.
    pub(crate) async fn bare(options: Options, nodes: Vec<NodeSpec>) -> Self {
        let plane = ControlPlane::start(options).await.unwrap();
        let client = plane.client().await.unwrap();
        plane.create_nodes(&client, nodes).await.unwrap();
        let namespace = plane.namespace(&client, "e2e").await.unwrap();
        let kubeconfig = plane.kubeconfig_path().to_path_buf();
        Self { plane, client, namespace, berth: None, address: free_address(), kubeconfig, log: None }
    }

    pub(crate) async fn apply_crds(&self) {
        let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
        self.plane.apply_crds(&self.client, &crds).await.unwrap();
    }

    pub(crate) fn start_berth(&mut self) {
        self.start_berth_with(&[]);
    }

    /// Starts Berth with more arguments.
    pub(crate) fn start_berth_with(&mut self, arguments: &[&str]) {
        self.berth = Some(self.spawn(&self.address, arguments));
    }

    /// What Berth has logged into `log` so far.
    pub(crate) fn logged(&self) -> String {
        self.log.as_ref().map(|path| std::fs::read_to_string(path).unwrap()).unwrap_or_default()
    }

    /// One of several processes that lead by a Lease; it is this rig's from now on, and the one before is given back.
    pub(crate) fn start_candidate(&mut self) -> Option<Child> {
        self.address = free_address();
        let namespace = format!("--lease-namespace={}", self.namespace);
        let child = self.spawn(&self.address, &["--leader-elect", &namespace]);
        self.berth.replace(child)
    }

    fn spawn(&self, address: &str, more: &[&str]) -> Child {
        let stderr = self.log.as_ref().map_or_else(Stdio::inherit, |path| File::create(path).unwrap().into());
        Command::new(env!("CARGO_BIN_EXE_berth"))
            .args(["run", "--listen-address", address, "--kubeconfig"])
            .arg(&self.kubeconfig)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap()
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.berth.take() {
            let _gone_already = child.kill().is_err();
            child.wait().unwrap();
        }
    }

    /// Waits until Berth ends by itself; gives the exit code.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        let berth = std::sync::Mutex::new(self.berth.take().unwrap());
        let ended = wait_for("Berth to end by itself", SOON, || async {
            let status = berth.lock().unwrap().try_wait();
            status.map(|status| status.map(|status| status.code())).map_err(|error| error.to_string())
        })
        .await;
        // Whatever comes of it, it does not outlive the test.
        self.berth = Some(berth.into_inner().unwrap());
        let code = ended.unwrap_or_else(|error| panic!("{error}:\n{}", self.logged()));
        self.kill();
        code
    }

    /// SIGTERM; gives the exit code.
    pub(crate) fn stop_berth(&mut self) -> Option<i32> {
        let mut child = self.berth.take().unwrap();
        terminate(&child);
        child.wait().unwrap().code()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn pod_groups(&self) -> Api<PodGroup> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn topology(&self, name: &str, levels: &[&str]) {
        let levels: Vec<Value> = levels.iter().map(|level| json!({"nodeLabel": level})).collect();
        self.create(&json!({
            "apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology",
            "metadata": {"name": name}, "spec": {"levels": levels},
        }))
        .await;
    }

    /// Creates an object of any kind, in its own namespace or the rig's, and gives it as it was stored.
    pub(crate) async fn create(&self, object: &Value) -> DynamicObject {
        let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap_or(("", "v1"));
        let gvk = kube::core::GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
        let (resource, capabilities): (ApiResource, _) = discovery::pinned_kind(&self.client, &gvk).await.unwrap();
        let api: Api<DynamicObject> = match capabilities.scope {
            discovery::Scope::Cluster => Api::all_with(self.client.clone(), &resource),
            discovery::Scope::Namespaced => {
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or(&self.namespace);
                Api::namespaced_with(self.client.clone(), namespace, &resource)
            }
        };
        api.create(&PostParams::default(), &serde_json::from_value(object.clone()).unwrap()).await.unwrap()
    }

    /// Deletes an object of any kind in the namespace and, in the background, what it owns.
    pub(crate) async fn delete(&self, object: &DynamicObject) {
        let types = object.types.as_ref().unwrap();
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", "v1"));
        let gvk = kube::core::GroupVersionKind::gvk(group, version, &types.kind);
        let (resource, _) = discovery::pinned_kind(&self.client, &gvk).await.unwrap();
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        api.delete(object.metadata.name.as_deref().unwrap(), &DeleteParams::background()).await.unwrap();
    }

    /// Serves a kind whose objects may hold anything, without its controller.
    pub(crate) async fn loose_kind(&self, group: &str, version: &str, kind: &str, plural: &str) {
        self.create(&loose_crd(group, version, kind, plural)).await;
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        wait_for("the CRD to be served", SOON, || async {
            let crd = crds.get(&format!("{plural}.{group}")).await.map_err(|error| error.to_string())?;
            let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
            let served = conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True");
            Ok::<_, String>(served.then_some(()))
        })
        .await
        .unwrap();
    }

    /// A Job of `pods` pods with one GPU each.
    pub(crate) async fn job(&self, name: &str, pods: u32, annotations: Value) {
        let job: Job = serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"parallelism": pods, "completions": pods, "template": {"spec": gpu_pod_spec()}},
        }))
        .unwrap();
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &self.namespace);
        jobs.create(&PostParams::default(), &job).await.unwrap();
    }

    /// Like `job`, with indexes, so that names tell the pods apart.
    pub(crate) async fn indexed_job(&self, name: &str, pods: u32, annotations: Value) {
        self.create(&json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": 100,
                "template": {"spec": gpu_pod_spec()},
            },
        }))
        .await;
    }

    /// Deletes a Job and, in the background, its pods.
    pub(crate) async fn delete_job(&self, name: &str) {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &self.namespace);
        jobs.delete(name, &DeleteParams::background()).await.unwrap();
    }

    /// Removes a policy of the API server and the binding of the same name.
    pub(crate) async fn delete_policy(&self, name: &str) {
        for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
            let gvk = kube::core::GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::from_gvk_with_plural(&gvk, &plural(kind)));
            api.delete(name, &DeleteParams::default()).await.unwrap();
        }
    }

    /// Node by pod, once `count` pods whose name starts with `prefix` are bound.
    pub(crate) async fn bound(&self, prefix: &str, count: usize, within: Duration) -> BTreeMap<String, String> {
        wait_for(&format!("{count} pods {prefix}* to be bound"), within, || async {
            let places = self.places(prefix).await;
            if places.len() == count {
                return Ok(Some(places));
            }
            Err(format!("{} are: {places:?}; the others say {:?}", places.len(), self.waiting(prefix).await))
        })
        .await
        .unwrap()
    }

    /// What the pods without a node say.
    async fn waiting(&self, prefix: &str) -> BTreeMap<String, String> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        let is_waiting = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
        let said = |pod: Pod| {
            let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
            let said = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled").and_then(|c| c.message);
            (pod.metadata.name.unwrap_or_default(), said.unwrap_or_default())
        };
        pods.items.into_iter().filter(is_waiting).map(said).filter(|(name, _)| name.starts_with(prefix)).collect()
    }

    pub(crate) async fn places(&self, prefix: &str) -> BTreeMap<String, String> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        pods.items
            .into_iter()
            .filter_map(|pod| Some((pod.metadata.name?, pod.spec?.node_name?)))
            .filter(|(name, _)| name.starts_with(prefix))
            .collect()
    }

    /// Reason and message of `PodScheduled=False` of a pod whose name starts with `prefix`.
    pub(crate) async fn waits(&self, prefix: &str) -> (String, String) {
        wait_for(&format!("a pod {prefix}* to say why it waits"), SOON, || async {
            let pods = self.pods().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let conditions = pods
                .items
                .into_iter()
                .filter(|pod| pod.metadata.name.as_deref().is_some_and(|name| name.starts_with(prefix)))
                .filter_map(|pod| pod.status?.conditions)
                .flatten();
            let mut scheduled = conditions.filter(|c| c.type_ == "PodScheduled" && c.status == "False");
            let found = scheduled.next().map(|c| (c.reason.unwrap_or_default(), c.message.unwrap_or_default()));
            Ok::<_, String>(found)
        })
        .await
        .unwrap()
    }

    /// The same message, once the reason is this one.
    pub(crate) async fn waits_because(&self, prefix: &str, reason: &str) -> String {
        wait_for(&format!("a pod {prefix}* to wait because of {reason}"), SOON, || async {
            match self.waits(prefix).await {
                (found, message) if found == reason => Ok(Some(message)),
                other => Err(format!("it says {other:?}")),
            }
        })
        .await
        .unwrap()
    }

    /// The status of the PodGroup whose name starts with `prefix` and of which `holds` is true: other pods of a workload (the
    /// submitter of a RayJob) may have a group of their own.
    pub(crate) async fn group_status(&self, prefix: &str, holds: impl Fn(&Value) -> bool) -> Value {
        wait_for(&format!("the status of PodGroup {prefix}*"), SOON, || async {
            let groups = self.pod_groups().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let named = |group: &PodGroup| group.metadata.name.as_deref().is_some_and(|name| name.starts_with(prefix));
            let statuses = groups.items.iter().filter(|group| named(group)).map(|group| serde_json::to_value(&group.status).unwrap_or_default());
            let statuses: Vec<Value> = statuses.collect();
            match statuses.iter().find(|status| holds(status)) {
                Some(status) => Ok(Some(status.clone())),
                None => Err(format!("they are {statuses:?}")),
            }
        })
        .await
        .unwrap()
    }

    /// The status of a Queue, once `holds` says so.
    pub(crate) async fn queue_status(&self, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let queues: Api<Queue> = Api::all(self.client.clone());
        wait_for(&format!("the status of queue {name}"), SOON, || async {
            let queue = queues.get(name).await.map_err(|error| error.to_string())?;
            let status = serde_json::to_value(&queue.status).unwrap_or_default();
            if holds(&status) { Ok(Some(status)) } else { Err(format!("it is {status}")) }
        })
        .await
        .unwrap()
    }

    /// A page of Berth's HTTP port.
    pub(crate) async fn http(&self, path: &str) -> String {
        http(&self.address, path).await
    }

    /// Berth has nothing in flight and nothing to write.
    pub(crate) async fn idle(&self) {
        wait_for("Berth to be idle", SOON, || async {
            let metrics = self.http("/metrics").await;
            let busy: Vec<String> = metrics
                .lines()
                .filter(|line| line.starts_with("berth_bindings_in_flight ") || line.starts_with("berth_status_waiting "))
                .filter(|line| !line.ends_with(" 0"))
                .map(str::to_owned)
                .collect();
            if busy.is_empty() && metrics.contains("berth_status_waiting ") { Ok(Some(())) } else { Err(busy.join(", ")) }
        })
        .await
        .unwrap();
    }

    pub(crate) async fn ready(&self) {
        wait_for("Berth to be ready", SOON, || async {
            let answer = self.http("/readyz").await;
            if answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n") { Ok(Some(())) } else { Err(answer) }
        })
        .await
        .unwrap();
    }
}

/// What an address answers to a GET; nothing when nobody listens.
pub(crate) async fn http(address: &str, path: &str) -> String {
    use std::io::{Read, Write};
    let (address, path) = (address.to_owned(), path.to_owned());
    let ask = move || -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect(address)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: berth\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    tokio::task::spawn_blocking(ask).await.unwrap().unwrap_or_default()
}

/// SIGTERM.
pub(crate) fn terminate(child: &Child) {
    assert!(Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap().success());
}

pub(crate) fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A pod spec with one GPU for Berth.
pub(crate) fn gpu_pod_spec() -> Value {
    json!({
        "schedulerName": "kai-scheduler",
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
    })
}

/// Two regions with `each` GPUs, one node per zone with one GPU.
pub(crate) fn two_regions(each: u32) -> Vec<NodeSpec> {
    let mut nodes = Vec::new();
    for region in ["iowa", "seoul"] {
        for zone in 0..each {
            let name = format!("{region}-{zone}");
            nodes.push(NodeSpec::new(&name).gpus(1).label(REGION, region).label(ZONE, &name));
        }
    }
    nodes
}

fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    lower.strip_suffix('y').map_or_else(|| format!("{lower}s"), |stem| format!("{stem}ies"))
}

/// A CRD as small as the API server accepts.
fn loose_crd(group: &str, version: &str, kind: &str, plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}
