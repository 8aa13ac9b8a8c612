//! Scenarios: a cluster, workloads, steps and what must come of them, in one short file.

use std::path::Path;

use berth_api::keys;
use berth_engine::policy::NodeStrategy;
use serde_json::Value;

use super::cluster::{Cluster, Rejection};
use super::input::{Item, Place, read_paths};
use super::objects::{ObjectId, fresh_copy, is_cluster_scoped, merge, text, typed};
use super::{InputError, Options};
use crate::cluster::pool::NodePool;

mod check;
mod format;
mod objects;

pub use format::{Expect, Scenario, Step};

/// How a scenario ended.
#[derive(Debug)]
pub struct Run {
    /// The cluster at the end, or where the first expectation was not met.
    pub cluster: Cluster,
    /// The first unmet expectation, with the decision that broke it.
    pub unmet: Option<String>,
}

/// True for a scenario document.
#[must_use]
pub fn is_scenario(value: &Value) -> bool {
    text(value, "/kind") == "Scenario" && text(value, "/apiVersion").starts_with("berth.scheduler/")
}

/// Runs a scenario to its end or to the first unmet expectation. Every answer on the way is checked, too.
pub fn run(item: &Item, options: &Options) -> Result<Run, InputError> {
    let mut run = expectations(item, options)?;
    if let (None, Some(fault)) = (&run.unmet, run.cluster.faults.first()) {
        run.unmet = Some(format!("the checker refuses an answer: {fault}"));
    }
    Ok(run)
}

fn expectations(item: &Item, options: &Options) -> Result<Run, InputError> {
    let place = &item.place;
    let scenario: Scenario =
        typed(&item.value, place).map_err(|skipped| refuse(place, &skipped.field, &skipped.message))?;
    let mut options = options.clone();
    if let Some(value) = &scenario.node_pool {
        options.node_pool = NodePool::new(keys::NODE_POOL, Some(value));
    }
    for (field, name, strategy) in [
        ("gpu", &scenario.strategy.gpu, &mut options.gpu_strategy),
        ("cpu", &scenario.strategy.cpu, &mut options.cpu_strategy),
    ] {
        if let Some(name) = name {
            let allowed = || refuse(place, &format!("strategy.{field}"), &format!("is {name}; allowed are binpack and spread"));
            *strategy = NodeStrategy::named(name).ok_or_else(allowed)?;
        }
    }
    let options = &options;
    if let Some(expect) = &scenario.expect_kai {
        let cluster = start(&scenario, place, &Options { compat_kai: true, ..options.clone() })?;
        let unmet = check::first_unmet(expect, &cluster).map(|unmet| format!("with --compat kai: {unmet}"));
        if unmet.is_some() || options.compat_kai {
            return Ok(Run { cluster, unmet });
        }
    }
    let mut cluster = start(&scenario, place, options)?;
    if let Some(unmet) = scenario
        .expect
        .as_ref()
        .and_then(|expect| check::first_unmet(expect, &cluster))
    {
        return Ok(Run {
            cluster,
            unmet: Some(format!("at the start: {unmet}")),
        });
    }
    for (i, step) in scenario.steps.iter().enumerate() {
        take(step, i, &mut cluster, place, options)?;
        if let Some(unmet) = step
            .expect
            .as_ref()
            .and_then(|expect| check::first_unmet(expect, &cluster))
        {
            return Ok(Run {
                cluster,
                unmet: Some(format!("after step {}: {unmet}", i + 1)),
            });
        }
    }
    Ok(Run { cluster, unmet: None })
}

/// The cluster before the first step.
fn start(scenario: &Scenario, place: &Place, options: &Options) -> Result<Cluster, InputError> {
    let mut cluster = Cluster::new(options.clone());
    let mut items = objects::of_cluster(&scenario.cluster, place)?;
    items.extend(read_beside(&scenario.files, place)?);
    items.extend(objects::of_list(&scenario.objects, "objects", place, options)?);
    cluster.apply(items);
    cluster.settle();
    Ok(cluster)
}

/// What manifests hold that are named from where the scenario is.
fn read_beside(files: &[String], place: &Place) -> Result<Vec<Item>, InputError> {
    let folder = Path::new(&place.file).parent().unwrap_or_else(|| Path::new("."));
    let paths: Vec<_> = files.iter().map(|file| folder.join(file)).collect();
    if paths.is_empty() { Ok(Vec::new()) } else { read_paths(&paths) }
}

fn refuse(place: &Place, field: &str, message: &str) -> InputError {
    InputError {
        file: place.file.clone(),
        document: place.document.to_string(),
        field: field.to_owned(),
        message: message.to_owned(),
    }
}

fn take(step: &Step, index: usize, cluster: &mut Cluster, place: &Place, options: &Options) -> Result<(), InputError> {
    let field = |name: &str| format!("steps[{index}].{name}");
    if let Some(reject) = &step.reject_bind {
        let result = reject
            .result()
            .map_err(|message| refuse(place, &field("rejectBind.with"), &message))?;
        cluster.rejections.insert(
            reject.pod.clone(),
            Rejection {
                result,
                times: reject.times,
            },
        );
    }
    if !step.files.is_empty() {
        cluster.apply(read_beside(&step.files, place)?);
    }
    if let Some(list) = &step.apply {
        cluster.apply(objects::of_list(list, &field("apply"), place, options)?);
    }
    if let Some(patch) = &step.patch {
        let id = find(cluster, &patch.object).ok_or_else(|| refuse(place, &field("patch.object"), "no such object"))?;
        let mut value = cluster
            .objects
            .get(&id)
            .map(|stored| stored.value.clone())
            .unwrap_or_default();
        merge(&mut value, &patch.merge);
        cluster.apply(vec![Item {
            place: place.clone(),
            value,
        }]);
    }
    if let Some(name) = &step.fail_node {
        let merge = serde_json::json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        change(cluster, place, &field("failNode"), "Node", name, &merge)?;
    }
    if let Some(name) = &step.finish_pod {
        let merge = serde_json::json!({"status": {"phase": "Succeeded"}});
        change(cluster, place, &field("finishPod"), "Pod", name, &merge)?;
    }
    for name in step.delete.iter().flatten() {
        let id = find(cluster, name).ok_or_else(|| refuse(place, &field("delete"), &format!("no object {name}")))?;
        cluster.delete(&id);
    }
    for (key, name, again) in [
        ("deletePod", &step.delete_pod, false),
        ("recreatePod", &step.recreate_pod, true),
    ] {
        let Some(name) = name else { continue };
        let id = find(cluster, &format!("Pod/{name}")).ok_or_else(|| refuse(place, &field(key), "no such pod"))?;
        let old = cluster
            .objects
            .get(&id)
            .map(|stored| stored.value.clone())
            .unwrap_or_default();
        cluster.delete(&id);
        if again {
            cluster.apply(vec![Item {
                place: place.clone(),
                value: fresh_copy(old),
            }]);
        }
    }
    match &step.advance {
        None => cluster.settle(),
        Some(time) => {
            let millis = berth_api::parse_duration_millis(time)
                .map_err(|error| refuse(place, &field("advance"), &error.to_string()))?;
            cluster.advance(millis);
        }
    }
    Ok(())
}

fn change(
    cluster: &mut Cluster,
    place: &Place,
    field: &str,
    kind: &str,
    name: &str,
    change: &Value,
) -> Result<(), InputError> {
    let id =
        find(cluster, &format!("{kind}/{name}")).ok_or_else(|| refuse(place, field, &format!("no {kind} {name}")))?;
    let mut value = cluster
        .objects
        .get(&id)
        .map(|stored| stored.value.clone())
        .unwrap_or_default();
    merge(&mut value, change);
    cluster.apply(vec![Item {
        place: place.clone(),
        value,
    }]);
    Ok(())
}

/// An object by `Kind/name` or `Kind/namespace/name`.
fn find(cluster: &Cluster, name: &str) -> Option<ObjectId> {
    let parts: Vec<&str> = name.split('/').collect();
    let (kind, namespace, name) = match parts.as_slice() {
        [kind, name] if is_cluster_scoped(kind) => (*kind, "", *name),
        [kind, name] => (*kind, "default", *name),
        [kind, namespace, name] => (*kind, *namespace, *name),
        _ => return None,
    };
    let id = ObjectId {
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    cluster.objects.contains_key(&id).then_some(id)
}
