//! Operators of workloads, built from source like the control plane itself.

use std::path::Path;

use kube::Client;

use crate::error::Result;
use crate::plane::{ControlPlane, Options, blocking};
use crate::programs::Programs;

/// An operator that a test can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// Kubeflow's training operator: PyTorchJob, TFJob, MPIJob, XGBoostJob, JAXJob.
    Training,
    /// KubeRay: RayCluster, RayJob, RayService.
    Ray,
}

impl Operator {
    fn program(self) -> &'static str {
        match self {
            Self::Training => "training-operator",
            Self::Ray => "ray-operator",
        }
    }

    /// A resource that it watches once it works.
    fn watched(self) -> &'static str {
        match self {
            Self::Training => "pytorchjobs",
            Self::Ray => "rayclusters",
        }
    }

    fn args(self, kubeconfig: &Path) -> Vec<String> {
        let mut args = vec![format!("--kubeconfig={}", kubeconfig.display())];
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

impl ControlPlane {
    /// Installs the operator's CRDs as its own module brings them and starts
    /// it; it watches its kinds when this returns. It is built first if it is
    /// not there, which takes minutes the first time.
    pub async fn start_operator(&mut self, client: &Client, operator: Operator) -> Result<()> {
        let program = operator.program();
        let programs = blocking(move || Programs::ready(&[program])).await?;
        self.apply_crds(client, &programs.crds(program)).await?;
        let args = operator.args(self.kubeconfig_path());
        self.spawn(program, &programs.path(program)?, &args)?;
        let watch = format!("resource=\"{}\"", operator.watched());
        self.ready(program, &Options::default(), || watches(client, &watch))
            .await
    }
}
