//! Reads a cluster once: every object of the kinds that decide, for the commands that answer and go.

use anyhow::{Context, Result, bail};
use kube::api::{Api, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, discovery};
use serde_json::Value;

use super::store::base_kinds;

/// Objects asked for at a time.
const PAGE: u32 = 500;

/// Every object of the base kinds. Kinds that the server lacks are none; kinds that may not be read are named.
pub async fn objects(client: &Client) -> Result<(Vec<Value>, Vec<String>)> {
    let (mut objects, mut unread) = (Vec::new(), Vec::new());
    for gvk in base_kinds() {
        let kind = GroupVersionKind::gvk(&gvk.group, &gvk.version, &gvk.kind);
        let resource = match discovery::pinned_kind(client, &kind).await {
            Ok((resource, _)) => resource,
            Err(kube::Error::Discovery(_)) => continue,
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            Err(error) => return Err(error).with_context(|| format!("asking for {}", gvk.kind)),
        };
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = match api.list(&params).await {
                Ok(page) => page,
                Err(kube::Error::Api(status)) if status.code == 404 => break,
                Err(kube::Error::Api(status)) if status.code == 403 && !["Node", "Pod"].contains(&gvk.kind.as_str()) => {
                    unread.push(gvk.kind.clone());
                    break;
                }
                Err(kube::Error::Api(status)) if status.code == 403 => bail!("{} can't be read: {}", resource.plural, status.message),
                Err(error) => return Err(error).with_context(|| format!("reading {}", resource.plural)),
            };
            for object in page.items {
                let mut value = serde_json::to_value(object).context("an object can't be written as JSON")?;
                // Items of a list leave these out.
                value["apiVersion"] = Value::String(resource.api_version.clone());
                value["kind"] = Value::String(gvk.kind.clone());
                objects.push(value);
            }
            match page.metadata.continue_ {
                Some(token) if !token.is_empty() => params = ListParams::default().limit(PAGE).continue_token(&token),
                _ => break,
            }
        }
    }
    Ok((objects, unread))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake_api::{FakeApi, failure};

    #[tokio::test]
    async fn a_cluster_is_read_page_by_page_without_what_it_lacks() {
        let api = FakeApi::start(|asked| match (asked.path.as_str(), asked.query.contains("continue=next")) {
            ("/api/v1", _) => (200, json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
                {"name": "nodes", "kind": "Node", "namespaced": false, "singularName": "", "verbs": ["list"]},
                {"name": "pods", "kind": "Pod", "namespaced": true, "singularName": "", "verbs": ["list"]},
                {"name": "persistentvolumes", "kind": "PersistentVolume", "namespaced": false, "singularName": "", "verbs": ["list"]},
            ]})),
            ("/api/v1/nodes", false) => (200, json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"continue": "next"}, "items": [{"metadata": {"name": "a"}}]})),
            ("/api/v1/nodes", true) => (200, json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [{"metadata": {"name": "b"}}]})),
            ("/api/v1/pods", _) => (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []})),
            ("/api/v1/persistentvolumes", _) => failure(403, "no"),
            _ => failure(404, "not found"),
        })
        .await;
        let (objects, unread) = objects(&api.client).await.expect("it is read");
        let names: Vec<String> = objects.iter().map(|object| format!("{}/{}", object["kind"].as_str().unwrap_or(""), object["metadata"]["name"].as_str().unwrap_or(""))).collect();
        assert_eq!(names, ["Node/a", "Node/b"]);
        assert_eq!(unread, ["PersistentVolume"]);
    }
}
