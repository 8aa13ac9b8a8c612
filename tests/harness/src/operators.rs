//! Operators of workloads, built from source like the control plane itself.

use std::path::Path;

use k8s_openapi::ByteString;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::components::free_port;
use crate::error::{Error, Result};
use crate::plane::{ControlPlane, Options, blocking};
use crate::programs::Programs;

/// An operator that a test can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// Kubeflow's training operator: PyTorchJob, TFJob, MPIJob, XGBoostJob, JAXJob.
    Training,
    /// KubeRay: RayCluster, RayJob, RayService.
    Ray,
    /// JobSet, with its admission webhooks.
    JobSet,
    /// LeaderWorkerSet, with its admission webhooks.
    LeaderWorkerSet,
}

impl Operator {
    fn program(self) -> &'static str {
        match self {
            Self::Training => "training-operator",
            Self::Ray => "ray-operator",
            Self::JobSet => "jobset-operator",
            Self::LeaderWorkerSet => "lws-operator",
        }
    }

    /// A resource that it watches once it works.
    fn watched(self) -> &'static str {
        match self {
            Self::Training => "pytorchjobs",
            Self::Ray => "rayclusters",
            Self::JobSet => "jobsets",
            Self::LeaderWorkerSet => "leaderworkersets",
        }
    }

    fn has_webhooks(self) -> bool {
        matches!(self, Self::JobSet | Self::LeaderWorkerSet)
    }

    /// `port` is that of its webhooks, if it has some.
    fn args(self, kubeconfig: &Path, port: u16) -> Vec<String> {
        let mut args = vec![format!("--kubeconfig={}", kubeconfig.display())];
        if self.has_webhooks() {
            let dir = kubeconfig.parent().unwrap_or(kubeconfig);
            args.push(format!("--port={port}"));
            args.push(format!("--cert-dir={}", dir.display()));
            // The certificate of the API server is one for loopback.
            args.push("--cert=apiserver.crt".into());
            args.push("--key=apiserver.key".into());
        }
        if self == Self::Ray {
            // The pods' indexes, by which groups are cut into segments.
            args.push("--feature-gates=RayMultiHostIndexing=true".into());
            // There is one, outside of any cluster.
            args.push("--enable-leader-election=false".into());
            // Nobody reads them, and parallel control planes would share the ports.
            args.push("--metrics-addr=0".into());
            args.push("--health-probe-bind-address=0".into());
        }
        args
    }
}

/// Whether somebody watches a resource, by the server's own count.
async fn watches(client: &Client, resource: &str) -> Result<(), String> {
    let metrics = crate::metrics::get(client, "/metrics").await;
    let metrics = metrics.map_err(|error| error.to_string())?;
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with("apiserver_longrunning_requests{"));
    if lines
        .filter(|line| line.contains(resource))
        .any(|line| !line.ends_with(" 0"))
    {
        Ok(())
    } else {
        Err(format!("nobody watches {resource}"))
    }
}

/// The configuration of an operator's webhooks as its module brings it, with
/// its patches, but served on loopback.
async fn configure_webhooks(client: &Client, program: &str, dir: &Path, ca: &Path, port: u16) -> Result<()> {
    let manifests = read(&dir.join("manifests.yaml"))?;
    let bundle = std::fs::read(ca).map_err(Error::io(format!("reading {}", ca.display())))?;
    let bundle = serde_json::to_value(ByteString(bundle)).unwrap_or_default();
    for mut configuration in manifests {
        let kind = configuration["kind"].as_str().unwrap_or_default().to_owned();
        let patch = match kind.as_str() {
            "MutatingWebhookConfiguration" => "mutating-patch.yaml",
            _ => "validating-patch.yaml",
        };
        // A list of one replacement: the webhook of pods is asked about its own only.
        let replacement = read(&dir.join(patch))?.swap_remove(0);
        configuration["webhooks"][1] = replacement[0]["value"].clone();
        configuration["metadata"] = json!({"name": program});
        for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
            let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap_or_default();
            let url = format!("https://127.0.0.1:{port}{path}");
            webhook["clientConfig"] = json!({"url": url, "caBundle": bundle});
        }
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", &kind);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
        let params = PatchParams::apply("berth-harness").force();
        api.patch(program, &params, &Patch::Apply(&configuration))
            .await
            .map_err(Error::api(format!("applying {kind} {program}")))?;
    }
    Ok(())
}

/// The documents of a YAML file.
fn read(path: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).map_err(Error::io(format!("reading {}", path.display())))?;
    let documents: std::result::Result<Vec<Value>, _> = serde_saphyr::from_multiple(&text);
    let documents = documents.map_err(|error| error.to_string()).and_then(|documents| match documents.is_empty() {
        true => Err("it is empty".to_owned()),
        false => Ok(documents),
    });
    documents.map_err(|reason| Error::BadFile { path: path.into(), reason })
}

impl ControlPlane {
    /// Installs the operator's CRDs as its own module brings them and starts
    /// it; it watches its kinds when this returns, and admits them if it does that. It is built first if it is
    /// not there, which takes minutes the first time.
    pub async fn start_operator(&mut self, client: &Client, operator: Operator) -> Result<()> {
        let program = operator.program();
        let programs = blocking(move || Programs::ready(&[program])).await?;
        self.apply_crds(client, &programs.crds(program)).await?;
        let port = free_port()?;
        let args = operator.args(self.kubeconfig_path(), port);
        self.spawn(program, &programs.path(program)?, &args)?;
        let watch = format!("resource=\"{}\"", operator.watched());
        self.ready(program, &Options::default(), || watches(client, &watch))
            .await?;
        if operator.has_webhooks() {
            // They are served before anything is watched.
            let ca = self.kubeconfig_path().with_file_name("ca.crt");
            configure_webhooks(client, program, &programs.webhooks(program), &ca, port).await?;
        }
        Ok(())
    }
}
