//! Schema pieces that the derive can't state.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Kubernetes' own pattern of a quantity.
const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// A map from resource name to quantity. A quantity is text here, as every client writes it.
pub(crate) fn resource_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {"type": "string", "pattern": QUANTITY_PATTERN}
    })
}
