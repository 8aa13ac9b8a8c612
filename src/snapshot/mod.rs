//! A cluster as one file: cut down to what decisions need, names hashed on demand.
//!
//! What is kept is listed, not what is left out: environment, commands, images, config maps and secrets have no way in.
//! Nothing here writes to the API.

mod redact;
mod strip;

use serde_json::{Value, json};

pub use redact::Redactor;
pub use strip::{stripped, stripped_but};

/// The file of a snapshot: a list as `kubectl get` writes it, so that every command reads it.
#[must_use]
pub fn document(objects: Vec<Value>, redacted: bool) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"annotations": {"berth.scheduler/snapshot": if redacted { "redacted" } else { "plain" }}},
        "items": objects,
    })
}

#[cfg(test)]
mod tests;
