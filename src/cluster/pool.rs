//! Node pools: a label divides nodes, queues and PodGroups among schedulers, each of which sees its part only.

use berth_api::keys;
use serde_json::Value;

/// The part of the cluster that is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePool {
    key: String,
    value: Option<String>,
}

impl Default for NodePool {
    fn default() -> Self {
        Self::all()
    }
}

impl NodePool {
    /// Everything, whatever its labels.
    #[must_use]
    pub fn all() -> Self {
        Self { key: keys::NODE_POOL.to_owned(), value: None }
    }

    /// What has this value of the label; with an empty value, what does not have the label.
    #[must_use]
    pub fn new(key: &str, value: Option<&str>) -> Self {
        Self { key: key.to_owned(), value: value.map(str::to_owned) }
    }

    /// True unless everything is seen.
    #[must_use]
    pub fn is_part(&self) -> bool {
        self.value.is_some()
    }

    /// The label.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether something with this value of the label is seen.
    #[must_use]
    pub fn holds(&self, label: Option<&str>) -> bool {
        self.value.as_deref().is_none_or(|value| value == label.unwrap_or_default())
    }

    /// Whether an object is seen.
    #[must_use]
    pub fn holds_object(&self, object: &Value) -> bool {
        self.holds(object["metadata"]["labels"][&self.key].as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_a_value_and_the_empty_one_is_no_label() {
        let object = serde_json::json!({"metadata": {"labels": {"pool": "blue"}}});
        let of = |value: Option<&str>| NodePool::new("pool", value).holds_object(&object);
        assert_eq!([of(None), of(Some("blue")), of(Some("red")), of(Some(""))], [true, true, false, false]);
        assert!(NodePool::new("pool", Some("")).holds_object(&Value::Null));
    }
}
