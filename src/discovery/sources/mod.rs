//! Readers of fabrics: each turns a text into a [`Fabric`](crate::Fabric) and knows one format.

pub mod cloud;
pub mod ibnet;
pub mod measure;
pub mod netq;
pub mod slurm;
pub mod smi;
pub mod switches;
pub mod topograph;

/// What to leave out of a fabric of switches. Patterns may have `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Hosts.
    pub hosts: Vec<String>,
    /// Switches, such as those of the storage rails.
    pub switches: Vec<String>,
    /// Adapters (`mlx5_7`), such as those of the storage rails.
    pub adapters: Vec<String>,
}

impl Filter {
    fn any(patterns: &[String], name: &str) -> bool {
        patterns.iter().any(|pattern| crate::names::fits(pattern, name))
    }
}

/// Reads JSON, with an error that says where it ends.
pub(crate) fn json(source: &str, text: &str) -> Result<serde_json::Value, crate::DiscoveryError> {
    let is_empty = text.trim().is_empty();
    if is_empty {
        return Err(crate::DiscoveryError::new(source, "input", "empty: there is nothing in it"));
    }
    serde_json::from_str(text).map_err(|error| crate::DiscoveryError::new(source, format!("line {} column {}", error.line(), error.column()), format!("not JSON: {error}")))
}
