//! A cluster that is only borrowed: what the demo adds to it, and how that is removed.

use anyhow::Context;
use berth_api::topology::Topology;
use berth_harness::NodeSpec;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Error};
use serde_json::json;

use crate::{NAME, REGION, ZONE, crds};

/// What was added and has to go again, besides what the demo always adds.
pub(crate) struct Borrowed {
    /// CRDs that were missing.
    pub(crate) crds: Vec<String>,
}

impl Borrowed {
    /// Adds CRDs where they are missing, fake nodes, the namespace and the Topology.
    pub(crate) async fn prepare(client: Client, nodes: Vec<NodeSpec>) -> anyhow::Result<Self> {
        let added = add_crds(&client).await?;
        let api: Api<Node> = Api::all(client.clone());
        for spec in nodes {
            add_node(&api, &spec).await.with_context(|| format!("adding the node {}", spec.name))?;
        }
        namespace_and_topology(&client).await?;
        Ok(Self { crds: added })
    }
}

/// The demo's namespace and Topology.
pub(crate) async fn namespace_and_topology(client: &Client) -> anyhow::Result<()> {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAME}}))?;
    let result = Api::all(client.clone()).create(&PostParams::default(), &namespace).await;
    existing_is_fine(result).context("creating the namespace")?;
    let topology: Topology = serde_json::from_value(json!({
        "apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": NAME},
        "spec": {"levels": [{"nodeLabel": REGION}, {"nodeLabel": ZONE}]},
    }))?;
    let result = Api::all(client.clone()).create(&PostParams::default(), &topology).await;
    existing_is_fine(result).context("creating the Topology")
}

fn existing_is_fine<K>(result: Result<K, Error>) -> Result<(), Error> {
    match result {
        Err(Error::Api(status)) if status.code == 409 => Ok(()),
        result => result.map(|_| ()),
    }
}

async fn add_crds(client: &Client) -> anyhow::Result<Vec<String>> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut added = Vec::new();
    for file in std::fs::read_dir(crds()).context("reading the CRDs")? {
        let text = std::fs::read_to_string(file?.path()).context("reading a CRD")?;
        let crd: CustomResourceDefinition = serde_saphyr::from_str(&text).context("parsing a CRD")?;
        let name = crd.metadata.name.clone().unwrap_or_default();
        match api.create(&PostParams::default(), &crd).await {
            Ok(_) => added.push(name),
            Err(Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).with_context(|| format!("creating the CRD {name}")),
        }
    }
    // New kinds are served a moment later.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    Ok(added)
}

/// A node without a kubelet: it is Ready until the node controller misses its heartbeat, which outlasts the demo.
async fn add_node(api: &Api<Node>, spec: &NodeSpec) -> anyhow::Result<()> {
    let node: Node = serde_json::from_value(json!({"metadata": {"name": spec.name, "labels": spec.labels}}))?;
    existing_is_fine(api.create(&PostParams::default(), &node).await)?;
    let room = json!({
        "cpu": spec.cpu, "memory": spec.memory, "pods": spec.pods.to_string(), "nvidia.com/gpu": spec.gpus.to_string(),
    });
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(k8s_openapi::jiff::Timestamp::now());
    let status = json!({"status": {"capacity": room, "allocatable": room, "conditions": [{
        "type": "Ready", "status": "True", "reason": "Demo", "message": "a fake node",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }]}});
    api.patch_status(&spec.name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

/// Removes everything; what is gone already is no failure, and one failure does not keep the rest.
pub(crate) async fn clean_up(client: &Client, crds: Vec<String>, nodes: Vec<NodeSpec>) {
    let now = DeleteParams::default().grace_period(0);
    let mut failures = Vec::new();
    let mut note = |what: &str, result: Result<(), Error>| {
        if let Err(error) = result
            && !matches!(&error, Error::Api(status) if status.code == 404)
        {
            failures.push(format!("{what}: {error}"));
        }
    };
    let namespaces: Api<Namespace> = Api::all(client.clone());
    note("namespace", namespaces.delete(NAME, &DeleteParams::default()).await.map(|_| ()));
    // Nobody answers for the fake nodes: their pods are removed without waiting.
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAME);
    note("pods", pods.delete_collection(&now, &ListParams::default()).await.map(|_| ()));
    let api: Api<Node> = Api::all(client.clone());
    for spec in nodes {
        note(&spec.name, api.delete(&spec.name, &now).await.map(|_| ()));
    }
    let topologies: Api<Topology> = Api::all(client.clone());
    note("Topology", topologies.delete(NAME, &now).await.map(|_| ()));
    // The namespace goes when everything in it is gone.
    for _ in 0..60 {
        match namespaces.get_opt(NAME).await {
            Ok(Some(_)) => tokio::time::sleep(std::time::Duration::from_millis(500)).await,
            _ => break,
        }
    }
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for name in crds {
        note(&name, api.delete(&name, &now).await.map(|_| ()));
    }
    for failure in failures {
        crate::say(&format!("  not removed: {failure}\n"));
    }
}
