//! Reads a cluster once, for the commands that answer and go: a kind page by page, or every object of the kinds that decide.

use anyhow::{Context, bail};
use kube::api::{Api, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, discovery};
use serde_json::{Value, json};

use super::Gvk;
use super::store::base_kinds;

/// Objects asked for at a time.
const PAGE: u32 = 500;

/// Why a kind could not be read.
#[derive(Debug)]
pub struct Unread {
    /// The kind's plural; `None` when even that could not be found out.
    pub plural: Option<String>,
    /// What the API said.
    pub error: kube::Error,
}

/// Gives every object of a kind to `take`, whole, page by page; none where the server does not have the kind.
///
/// # Errors
///
/// The kind can't be looked up, or not listed; what was taken until then is not all there is.
pub async fn of_kind(client: &Client, gvk: &Gvk, mut take: impl FnMut(Value)) -> Result<(), Unread> {
    let kind = GroupVersionKind::gvk(&gvk.group, &gvk.version, &gvk.kind);
    let resource = match discovery::pinned_kind(client, &kind).await {
        Ok((resource, _)) => resource,
        Err(kube::Error::Discovery(_)) => return Ok(()),
        Err(error) if is_absent(&error) => return Ok(()),
        Err(error) => return Err(Unread { plural: None, error }),
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = match api.list(&params).await {
            Ok(page) => page,
            Err(error) if is_absent(&error) => return Ok(()),
            Err(error) => return Err(Unread { plural: Some(resource.plural), error }),
        };
        for object in page.items {
            let mut value = if object.data.is_object() { object.data } else { json!({}) };
            // Items of a list leave these out.
            value["apiVersion"] = Value::String(resource.api_version.clone());
            value["kind"] = Value::String(resource.kind.clone());
            value["metadata"] = serde_json::to_value(&object.metadata).unwrap_or_default();
            take(value);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Every object of the base kinds. Kinds that the server lacks are none; kinds that may not be read are named.
///
/// # Errors
///
/// A kind can't be looked up; or it can't be listed for another reason than that it may not be; or nodes or pods may not be.
pub async fn objects(client: &Client) -> anyhow::Result<(Vec<Value>, Vec<String>)> {
    let (mut objects, mut unread) = (Vec::new(), Vec::new());
    for gvk in base_kinds() {
        let Err(Unread { plural, error }) = of_kind(client, &gvk, |object| objects.push(object)).await else { continue };
        match (plural, error) {
            (None, error) => return Err(error).with_context(|| format!("asking for {}", gvk.kind)),
            (Some(_), kube::Error::Api(status)) if status.code == 403 && !["Node", "Pod"].contains(&gvk.kind.as_str()) => unread.push(gvk.kind.clone()),
            (Some(plural), kube::Error::Api(status)) if status.code == 403 => bail!("{plural} can't be read: {}", status.message),
            (Some(plural), error) => return Err(error).with_context(|| format!("reading {plural}")),
        }
    }
    Ok((objects, unread))
}

#[cfg(test)]
mod tests {
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
