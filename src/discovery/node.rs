//! Nodes as far as discovery needs them.

use std::collections::BTreeMap;

use serde_json::Value;

/// A node of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// `spec.providerID`, empty without one.
    pub provider_id: String,
    /// It offers an accelerator.
    pub accelerated: bool,
}

impl Node {
    /// Reads a Node as the API prints it; `None` for an object without a name.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Self> {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("/metadata/name");
        let labels = value.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        let offers = value.pointer("/status/allocatable").or_else(|| value.pointer("/status/capacity"));
        let offers = offers.and_then(Value::as_object).into_iter().flatten();
        let mut accelerators = offers.filter(|(key, _)| is_accelerator(key));
        (!name.is_empty()).then(|| Self {
            name,
            labels: labels.collect(),
            provider_id: text("/spec/providerID"),
            accelerated: accelerators.any(|(_, amount)| amount.as_str() != Some("0") && amount.as_u64() != Some(0)),
        })
    }

    /// The machine's id at its provider: the last part of the provider id.
    #[must_use]
    pub fn instance(&self) -> &str {
        self.provider_id.rsplit('/').next().unwrap_or_default()
    }
}

/// GPUs, TPUs and their kin, by the names that their device plugins use.
fn is_accelerator(resource: &str) -> bool {
    let name = resource.rsplit('/').next().unwrap_or(resource);
    resource.contains('/') && (["gpu", "tpu", "neuron", "neuroncore", "gaudi"].contains(&name) || name.starts_with("mig-"))
}
