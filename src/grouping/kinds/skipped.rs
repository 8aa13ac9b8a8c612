//! Kinds that only wrap others: a pod belongs to the owner below, or is a gang of its own when there is none.
//!
//! The owner below gives the kind's rule, name and defaults; the wrapper's labels and annotations fill what it lacks.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::grouping::{Group, Input, ObjectId};

/// The group of a pod under a wrapper.
pub fn group(input: &Input<'_>) -> Group {
    let Some((wrapper, below)) = input.owners.split_last() else {
        return super::pod::group(input);
    };
    let Some((top, rest)) = below.split_last() else {
        return of_pod(input, wrapper);
    };
    let mut owners = rest.to_vec();
    owners.push(Arc::new(filled(top, wrapper)));
    let mut group = Input { owners: &owners, ..*input }.group_by(top);
    group.workload = ObjectId::of(wrapper);
    group
}

/// A pod right below its wrapper: a gang of one, which the wrapper's notes describe where the pod's don't.
fn of_pod(input: &Input<'_>, wrapper: &Value) -> Group {
    let mut pod = input.pod.clone();
    let fill = |notes: &mut Option<std::collections::BTreeMap<String, String>>, field: &str| {
        let from = wrapper.pointer(&format!("/metadata/{field}")).and_then(Value::as_object);
        for (key, value) in from.into_iter().flatten() {
            if let Some(value) = value.as_str() {
                notes.get_or_insert_default().entry(key.clone()).or_insert_with(|| value.to_owned());
            }
        }
    };
    fill(&mut pod.metadata.labels, "labels");
    fill(&mut pod.metadata.annotations, "annotations");
    let mut group = super::pod::group(&Input { pod: &pod, owners: &[], ..*input });
    group.workload = ObjectId::of(wrapper);
    group
}

/// The lower owner with the notes of the wrapper where it has none.
fn filled(lower: &Value, wrapper: &Value) -> Value {
    let mut lower = lower.clone();
    for field in ["labels", "annotations"] {
        let Some(from) = wrapper.pointer(&format!("/metadata/{field}")).and_then(Value::as_object) else {
            continue;
        };
        let Some(metadata) = lower.get_mut("metadata").and_then(Value::as_object_mut) else {
            continue;
        };
        let own = metadata.entry(field.to_owned()).or_insert_with(|| json!({}));
        for (key, value) in from {
            if own.get(key).is_none() {
                own[key] = value.clone();
            }
        }
    }
    lower
}
