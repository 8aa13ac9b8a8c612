//! Fake nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{
    Node, NodeAddress, NodeCondition, NodeSpec as KubeNodeSpec, NodeStatus, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};

use crate::cluster::wait_for;
use crate::error::{Error, Result};
use crate::plane::ControlPlane;

/// Requests in flight while nodes are made.
const IN_FLIGHT: usize = 64;

/// A fake node to make.
#[derive(Debug, Clone)]
pub struct NodeSpec {
    /// Its name, unique in the control plane.
    pub name: String,
    /// Labels besides `kubernetes.io/hostname`.
    pub labels: BTreeMap<String, String>,
    /// Number of `nvidia.com/gpu`.
    pub gpus: u32,
    /// CPU quantity.
    pub cpu: String,
    /// Memory quantity.
    pub memory: String,
    /// How many pods it takes.
    pub pods: u32,
    /// Taints.
    pub taints: Vec<Taint>,
}

impl NodeSpec {
    /// A node with 8 GPUs, 96 CPUs, 1 TiB and room for 110 pods.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            labels: BTreeMap::new(),
            gpus: 8,
            cpu: "96".into(),
            memory: "1Ti".into(),
            pods: 110,
            taints: Vec::new(),
        }
    }

    /// Sets the number of GPUs.
    #[must_use]
    pub fn gpus(mut self, gpus: u32) -> Self {
        self.gpus = gpus;
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    fn node(&self) -> Node {
        let mut labels = self.labels.clone();
        labels
            .entry("kubernetes.io/hostname".into())
            .or_insert_with(|| self.name.clone());
        let mut capacity = BTreeMap::from([
            ("cpu".to_owned(), Quantity(self.cpu.clone())),
            ("memory".to_owned(), Quantity(self.memory.clone())),
            ("pods".to_owned(), Quantity(self.pods.to_string())),
            // Every kubelet tells its disk, and some operators' pods ask for it.
            ("ephemeral-storage".to_owned(), Quantity("1Ti".to_owned())),
        ]);
        if self.gpus > 0 {
            capacity.insert("nvidia.com/gpu".into(), Quantity(self.gpus.to_string()));
        }
        let ready = NodeCondition {
            type_: "Ready".into(),
            status: "True".into(),
            reason: Some("KubeletReady".into()),
            ..NodeCondition::default()
        };
        let hostname = NodeAddress {
            type_: "Hostname".into(),
            address: self.name.clone(),
        };
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels),
                annotations: Some(BTreeMap::from([(
                    "kwok.x-k8s.io/node".into(),
                    "fake".into(),
                )])),
                ..ObjectMeta::default()
            },
            spec: Some(KubeNodeSpec {
                taints: (!self.taints.is_empty()).then(|| self.taints.clone()),
                ..KubeNodeSpec::default()
            }),
            // A node that is Ready from the start saves one write each.
            status: Some(NodeStatus {
                allocatable: Some(capacity.clone()),
                capacity: Some(capacity),
                conditions: Some(vec![ready]),
                addresses: Some(vec![hostname]),
                ..NodeStatus::default()
            }),
        }
    }
}

impl ControlPlane {
    /// Makes fake nodes, many at a time, and waits until every one is Ready
    /// and free of the taints that new nodes carry.
    pub async fn create_nodes(&self, client: &Client, specs: Vec<NodeSpec>) -> Result<()> {
        let nodes: Api<Node> = Api::all(client.clone());
        stream::iter(&specs)
            .map(|spec| create(&nodes, spec))
            .buffer_unordered(IN_FLIGHT)
            .try_collect::<Vec<()>>()
            .await?;
        let timeout = Duration::from_secs(60)
            + Duration::from_millis(100) * u32::try_from(specs.len()).unwrap_or(1);
        wait_for("the nodes to be ready", timeout, || async {
            // Answered from the server's cache, which costs it little.
            let list = nodes
                .list(&ListParams::default().match_any())
                .await
                .map_err(|error| error.to_string())?;
            let ready: std::collections::BTreeSet<&str> = list
                .iter()
                .filter(|node| usable(node))
                .filter_map(|node| node.metadata.name.as_deref())
                .collect();
            let missing = specs
                .iter()
                .filter(|spec| !ready.contains(spec.name.as_str()))
                .count();
            if missing == 0 {
                Ok(Some(()))
            } else {
                Err(format!("{missing} of {} are not", specs.len()))
            }
        })
        .await
    }
}

async fn create(nodes: &Api<Node>, spec: &NodeSpec) -> Result<()> {
    let what = format!("creating node {}", spec.name);
    nodes
        .create(&PostParams::default(), &spec.node())
        .await
        .map(drop)
        .map_err(Error::api(what))
}

/// Whether a node is Ready and carries no taint of a node that is not.
fn usable(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions
        .into_iter()
        .any(|c| c.type_ == "Ready" && c.status == "True");
    let taints = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten());
    ready
        && !taints
            .into_iter()
            .any(|taint| taint.key == "node.kubernetes.io/not-ready")
}
