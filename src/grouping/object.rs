//! One view of typed pods and of owners of any kind, so that rules do not care which they read.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value};

use super::owners::ObjectId;
use super::problem::{GroupProblem, ProblemCode};

/// Labels or annotations, typed or not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notes<'a> {
    /// Of a typed object.
    Typed(Option<&'a BTreeMap<String, String>>),
    /// Of an object of any kind.
    Untyped(Option<&'a Map<String, Value>>),
}

impl<'a> Notes<'a> {
    /// The labels or annotations at a JSON pointer.
    pub(crate) fn at(value: &'a Value, pointer: &str) -> Self {
        Self::Untyped(value.pointer(pointer).and_then(Value::as_object))
    }

    /// The value of a key. Values that are no text don't exist: the API server refuses them.
    pub(crate) fn get(self, key: &str) -> Option<&'a str> {
        match self {
            Self::Typed(map) => map?.get(key).map(String::as_str),
            Self::Untyped(map) => map?.get(key)?.as_str(),
        }
    }

    /// All of them, as texts.
    pub(crate) fn to_map(self) -> BTreeMap<String, String> {
        match self {
            Self::Typed(map) => map.cloned().unwrap_or_default(),
            Self::Untyped(map) => map
                .into_iter()
                .flatten()
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
        }
    }
}

/// A pod or one of its owners.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Object<'a> {
    /// The pod itself.
    Pod(&'a Pod),
    /// An owner.
    Owner(&'a Value),
}

impl<'a> Object<'a> {
    pub(crate) fn labels(self) -> Notes<'a> {
        match self {
            Self::Pod(pod) => Notes::Typed(pod.metadata.labels.as_ref()),
            Self::Owner(value) => Notes::at(value, "/metadata/labels"),
        }
    }

    pub(crate) fn annotations(self) -> Notes<'a> {
        match self {
            Self::Pod(pod) => Notes::Typed(pod.metadata.annotations.as_ref()),
            Self::Owner(value) => Notes::at(value, "/metadata/annotations"),
        }
    }

    pub(crate) fn id(self) -> ObjectId {
        match self {
            Self::Pod(pod) => ObjectId {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                namespace: pod.metadata.namespace.clone().unwrap_or_default(),
                name: pod.metadata.name.clone().unwrap_or_default(),
                uid: pod.metadata.uid.clone().unwrap_or_default(),
            },
            Self::Owner(value) => ObjectId::of(value),
        }
    }

    /// `Kind/name`, as people write it.
    pub(crate) fn display(self) -> String {
        self.id().display()
    }

    /// The object as JSON; a typed pod has none.
    pub(crate) fn value(self) -> &'a Value {
        match self {
            Self::Pod(_) => &Value::Null,
            Self::Owner(value) => value,
        }
    }
}

/// The integer at a JSON pointer; absent when there is nothing or null, a problem when it is anything else than an integer
/// from `least` to `most`.
pub(crate) fn integer(
    object: &Value,
    pointer: &str,
    (least, most): (i32, i32),
    code: ProblemCode,
) -> Result<Option<i32>, GroupProblem> {
    let Some(value) = object.pointer(pointer).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
    match number.filter(|number| (least..=most).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => Err(GroupProblem {
            code,
            object: ObjectId::of(object).display(),
            key: field(pointer),
            value: value.to_string().chars().take(64).collect(),
            allowed: between(least, most),
        }),
    }
}

/// A JSON pointer as people write a field.
pub(crate) fn field(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".")
}

/// The sentence for a range of integers.
pub(crate) fn between(least: i32, most: i32) -> String {
    match most {
        i32::MAX => format!("an integer from {least} on"),
        _ if least < most => format!("an integer from {least} to {most}"),
        _ if least == most => format!("{least}"),
        _ => "none, because there are no replicas".to_owned(),
    }
}
