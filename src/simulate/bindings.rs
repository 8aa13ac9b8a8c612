//! Pods that KAI Scheduler is about to bind: a BindRequest that is not over names the node, and the pod counts as being there.

use std::collections::BTreeMap;

use serde_json::Value;

use super::input::Item;
use super::objects::text;

/// The API group and kind of such a request.
const GROUP: &str = "scheduling.run.ai/";
const KIND: &str = "BindRequest";

/// True for a BindRequest.
#[must_use]
pub fn is_request(object: &Value) -> bool {
    text(object, "/kind") == KIND && text(object, "/apiVersion").starts_with(GROUP)
}

/// True for one that is neither done nor given up.
#[must_use]
pub fn is_open(request: &Value) -> bool {
    !["Succeeded", "Failed"].contains(&text(request, "/status/phase"))
}

/// Puts the pods of requests on their nodes, those that have no node yet.
pub(super) fn apply(items: &mut [Item]) {
    let requests: BTreeMap<(String, String), (String, String)> = items
        .iter()
        .filter(|item| is_request(&item.value) && text(&item.value, "/status/phase") != "Failed")
        .map(|Item { value, .. }| {
            let pod = (text(value, "/metadata/namespace").to_owned(), text(value, "/spec/podName").to_owned());
            (pod, (text(value, "/spec/selectedNode").to_owned(), text(value, "/metadata/ownerReferences/0/uid").to_owned()))
        })
        .filter(|(_, (node, _))| !node.is_empty())
        .collect();
    if requests.is_empty() {
        return;
    }
    for Item { value, .. } in items.iter_mut().filter(|item| text(&item.value, "/kind") == "Pod" && item.value["spec"].is_object()) {
        let key = (text(value, "/metadata/namespace").to_owned(), text(value, "/metadata/name").to_owned());
        let Some((node, uid)) = requests.get(&key).filter(|_| text(value, "/spec/nodeName").is_empty()) else { continue };
        // A pod that was made anew under its name has nothing to do with what was asked for the old one.
        if uid.is_empty() || uid == text(value, "/metadata/uid") {
            value["spec"]["nodeName"] = Value::String(node.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::simulate::input::Place;

    fn node_of(phase: &str, owner: &str) -> String {
        let request = json!({
            "apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest", "spec": {"podName": "p", "selectedNode": "n"}, "status": {"phase": phase},
            "metadata": {"name": "p", "namespace": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner}]},
        });
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a", "uid": "u"}, "spec": {}});
        let mut items: Vec<Item> = [request, pod].map(|value| Item { place: Place::default(), value }).into();
        apply(&mut items);
        text(&items[1].value, "/spec/nodeName").to_owned()
    }

    #[test]
    fn a_pod_is_where_its_request_says_unless_that_failed_or_was_for_another() {
        assert_eq!([node_of("", "u"), node_of("Pending", "u"), node_of("Succeeded", "u")], ["n", "n", "n"]);
        assert_eq!([node_of("Failed", "u"), node_of("", "old")], ["", ""]);
    }
}
