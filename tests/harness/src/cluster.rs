//! Helpers on a running control plane: namespaces, CRDs, waiting.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};

use crate::error::{Error, Result};
use crate::plane::{ControlPlane, default_account};

/// How long the API server and its controllers have for small things.
const SOON: Duration = Duration::from_secs(60);

/// Calls `probe` until it says `Ok(Some(value))`. `Ok(None)` and errors are
/// tried again; the last one is told when the time is over.
pub async fn wait_for<T, E, F>(
    what: &str,
    timeout: Duration,
    mut probe: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<Option<T>, E>>,
    E: std::fmt::Display,
{
    let start = Instant::now();
    let mut pause = Duration::from_millis(20);
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        let last = match tokio::time::timeout(left, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => "it did not happen".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the last look at it took too long".to_owned(),
        };
        if start.elapsed() + pause >= timeout {
            return Err(Error::Timeout {
                what: what.to_owned(),
                timeout,
                last,
            });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}

impl ControlPlane {
    /// Makes a namespace whose name starts with `prefix` and that no other
    /// call gets; it takes pods when this returns.
    pub async fn namespace(&self, client: &Client, prefix: &str) -> Result<String> {
        let name = format!("{prefix}-{}", self.next_number());
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.clone());
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let what = format!("creating namespace {name}");
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .map_err(Error::api(what))?;
        let what = format!("the service account of namespace {name}");
        wait_for(&what, SOON, || async {
            default_account(client, &name).await.map(Some)
        })
        .await?;
        Ok(name)
    }

    /// Applies every CRD in the YAML files of `dir` and waits until they are
    /// served. Gives their names.
    pub async fn apply_crds(&self, client: &Client, dir: &Path) -> Result<Vec<String>> {
        let crds = read_crds(dir)?;
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        stream::iter(&crds)
            .map(|crd| apply_crd(&api, crd))
            .buffer_unordered(8)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(crds.iter().map(ResourceExt::name_any).collect())
    }
}

async fn apply_crd(
    api: &Api<CustomResourceDefinition>,
    crd: &CustomResourceDefinition,
) -> Result<()> {
    let name = crd.name_any();
    let params = PatchParams::apply("berth-harness").force();
    let what = format!("applying CRD {name}");
    api.patch(&name, &params, &Patch::Apply(crd))
        .await
        .map_err(Error::api(what))?;
    wait_for(&format!("CRD {name} to be established"), SOON, || async {
        let crd = api.get(&name).await?;
        let conditions = crd
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        let established = conditions
            .iter()
            .any(|c| c.type_ == "Established" && c.status == "True");
        Ok::<_, kube::Error>(established.then_some(()))
    })
    .await
}

fn read_crds(dir: &Path) -> Result<Vec<CustomResourceDefinition>> {
    let reading = || Error::io(format!("reading {}", dir.display()));
    let mut paths = Vec::<PathBuf>::new();
    for entry in std::fs::read_dir(dir).map_err(reading())? {
        let path = entry.map_err(reading())?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml")
        {
            paths.push(path);
        }
    }
    paths.sort();
    let mut crds = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path)
            .map_err(Error::io(format!("reading {}", path.display())))?;
        let documents: Vec<CustomResourceDefinition> =
            serde_saphyr::from_multiple(&text).map_err(|error| Error::BadFile {
                path: path.clone(),
                reason: error.to_string(),
            })?;
        crds.extend(documents);
    }
    Ok(crds)
}
