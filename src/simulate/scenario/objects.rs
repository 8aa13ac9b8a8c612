//! Shorthands of a scenario as Kubernetes objects.

use berth_api::keys;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::format::{BusySpec, ClusterSpec, Common, GangSpec, NodeSpec, SubgroupSpec};
use super::refuse;
use crate::simulate::objects::merge;
use crate::simulate::input::{Item, Place};
use crate::simulate::{InputError, Options};

/// Topology and nodes.
pub(super) fn of_cluster(cluster: &ClusterSpec, place: &Place) -> Result<Vec<Item>, InputError> {
    let mut items = Vec::new();
    let mut push = |value| {
        items.push(Item {
            place: place.clone(),
            value,
        })
    };
    if !cluster.levels.is_empty() {
        let levels: Vec<Value> = cluster.levels.iter().map(|label| json!({"nodeLabel": label})).collect();
        let name = cluster.topology.as_deref().unwrap_or("cluster-topology");
        push(
            json!({"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": name}, "spec": {"levels": levels}}),
        );
    }
    for (n, node) in cluster.nodes.iter().enumerate() {
        if node.at.len() > cluster.levels.len() {
            let message = format!(
                "has {} values; allowed are up to {}, one for each level",
                node.at.len(),
                cluster.levels.len()
            );
            return Err(refuse(place, &format!("cluster.nodes[{n}].at"), &message));
        }
        for i in 0..node.count.unwrap_or(1) {
            push(node_object(node, &cluster.levels, i));
        }
    }
    Ok(items)
}

fn node_object(node: &NodeSpec, levels: &[String], i: u32) -> Value {
    let numbered = |text: &str| text.replace("{i}", &i.to_string());
    let name = numbered(&node.name);
    let mut labels = Map::new();
    labels.insert("kubernetes.io/hostname".to_owned(), json!(name));
    for (level, value) in levels.iter().zip(&node.at) {
        labels.insert(level.clone(), json!(numbered(value)));
    }
    for (key, value) in &node.labels {
        labels.insert(key.clone(), json!(numbered(value)));
    }
    let mut allocatable = Map::new();
    allocatable.insert("cpu".to_owned(), node.cpu.clone().unwrap_or_else(|| json!("64")));
    allocatable.insert(
        "memory".to_owned(),
        node.memory.clone().unwrap_or_else(|| json!("512Gi")),
    );
    allocatable.insert("pods".to_owned(), json!("110"));
    allocatable.insert("nvidia.com/gpu".to_owned(), json!(node.gpus.unwrap_or(8).to_string()));
    allocatable.extend(node.capacity.iter().map(|(key, value)| (key.clone(), value.clone())));
    let ready = if node.ready == Some(false) { "False" } else { "True" };
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": node.taints, "unschedulable": node.cordoned},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]},
    })
}

/// Objects and shorthands of a list.
pub(super) fn of_list(list: &[Value], field: &str, place: &Place, options: &Options) -> Result<Vec<Item>, InputError> {
    let mut items = Vec::new();
    for (i, value) in list.iter().enumerate() {
        let field = format!("{field}[{i}]");
        let mut push = |value| {
            items.push(Item {
                place: place.clone(),
                value,
            })
        };
        if let Some(gang) = value.get("gang") {
            let gang: GangSpec = shorthand(gang, &format!("{field}.gang"), place)?;
            gang_objects(&gang, options).into_iter().for_each(&mut push);
        } else if let Some(busy) = value.get("busy") {
            let busy: BusySpec = shorthand(busy, &format!("{field}.busy"), place)?;
            let common = Common {
                gpus: busy.gpus,
                cpu: busy.cpu.clone(),
                memory: busy.memory.clone(),
                ..Common::default()
            };
            for node in &busy.nodes {
                let mut pod = pod_object(&format!("busy-{node}"), "default", &[&common], "default-scheduler");
                merge(
                    &mut pod,
                    &json!({"spec": {"nodeName": node}, "status": {"phase": "Running"}}),
                );
                push(pod);
            }
        } else if value.get("kind").is_some_and(Value::is_string) {
            push(value.clone());
        } else {
            return Err(refuse(
                place,
                &field,
                "allowed are Kubernetes objects and the shorthands gang and busy",
            ));
        }
    }
    Ok(items)
}

fn shorthand<T: DeserializeOwned>(value: &Value, field: &str, place: &Place) -> Result<T, InputError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." {
            field.to_owned()
        } else {
            format!("{field}.{path}")
        };
        refuse(place, &field, &error.into_inner().to_string())
    })
}

fn gang_objects(gang: &GangSpec, options: &Options) -> Vec<Value> {
    let namespace = gang.namespace.as_deref().unwrap_or("default");
    let mut spec = json!({"queue": gang.queue.as_deref().unwrap_or("default-queue")});
    let mut put = |key: &str, value: Option<Value>| {
        if let (Value::Object(spec), Some(value)) = (&mut spec, value) {
            spec.insert(key.to_owned(), value);
        }
    };
    let pods = gang.pods.unwrap_or(1);
    put("priorityClassName", gang.priority.as_ref().map(|class| json!(class)));
    put("stalenessGracePeriod", gang.staleness_grace_period.as_ref().map(|period| json!(period)));
    put("topologyConstraint", constraint(&gang.common));
    put("minSubGroup", gang.min_sub_group.map(|count| json!(count)));
    if gang.subgroups.is_empty() {
        put("minMember", Some(json!(gang.min_member.unwrap_or(pods))));
    } else {
        put("subGroups", Some(gang.subgroups.iter().map(subgroup_object).collect()));
    }
    let mut meta = json!({"name": gang.name, "namespace": namespace});
    if let Some(objective) = &gang.objective {
        merge(&mut meta, &json!({"annotations": {keys::OBJECTIVE: objective}}));
    }
    if let Some(limits) = &gang.max_domains {
        merge(&mut meta, &json!({"annotations": {keys::MAX_DOMAINS: limits}}));
    }
    let mut objects =
        vec![json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": meta, "spec": spec})];
    let mut index = 0;
    let mut add = |name: String, parts: &[&Common], subgroup: Option<&str>| {
        let mut pod = pod_object(&name, namespace, parts, &options.scheduler_name);
        let labels = json!({"batch.kubernetes.io/job-completion-index": index.to_string(), "kai.scheduler/subgroup-name": subgroup});
        merge(
            &mut pod,
            &json!({"metadata": {"annotations": {"pod-group-name": gang.name}, "labels": labels}}),
        );
        if let Some(node) = gang.on.get(index) {
            merge(
                &mut pod,
                &json!({"spec": {"nodeName": node}, "status": {"phase": "Running"}}),
            );
        }
        objects.push(pod);
        index += 1;
    };
    if gang.subgroups.is_empty() {
        for i in 0..pods {
            add(format!("{}-{i}", gang.name), &[&gang.common], None);
        }
    }
    for subgroup in &gang.subgroups {
        for i in 0..subgroup.pods.unwrap_or(0) {
            add(
                format!("{}-{}-{i}", gang.name, subgroup.name),
                &[&gang.common, &subgroup.common],
                Some(&subgroup.name),
            );
        }
    }
    objects
}

fn subgroup_object(subgroup: &SubgroupSpec) -> Value {
    let mut value = json!({"name": subgroup.name});
    let leaf = subgroup.pods.is_some();
    let min_member = subgroup.min_member.or(if leaf { subgroup.pods } else { None });
    let fields = [
        ("parent", subgroup.parent.as_ref().map(|parent| json!(parent))),
        ("minMember", min_member.map(|count| json!(count))),
        ("minSubGroup", subgroup.min_sub_group.map(|count| json!(count))),
        ("topologyConstraint", constraint(&subgroup.common)),
    ];
    if let Value::Object(map) = &mut value {
        map.extend(
            fields
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?))),
        );
    }
    value
}

fn constraint(common: &Common) -> Option<Value> {
    let named = common.required.is_some() || common.preferred.is_some() || common.topology.is_some();
    named.then(|| {
        json!({"topology": common.topology, "requiredTopologyLevel": common.required, "preferredTopologyLevel": common.preferred})
    })
}

/// A pod whose shape is that of the parts, later ones over earlier ones.
fn pod_object(name: &str, namespace: &str, parts: &[&Common], scheduler: &str) -> Value {
    let mut requests = Map::new();
    let gpus = parts.iter().rev().find_map(|part| part.gpus).unwrap_or(8);
    if gpus > 0 {
        requests.insert("nvidia.com/gpu".to_owned(), json!(gpus.to_string()));
    }
    for part in parts {
        for (key, amount) in [("cpu", &part.cpu), ("memory", &part.memory)] {
            if let Some(amount) = amount {
                requests.insert(key.to_owned(), amount.clone());
            }
        }
    }
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "image": "none", "resources": {"requests": requests}}]},
    });
    for spec in parts.iter().filter_map(|part| part.spec.as_ref()) {
        merge(&mut pod, &json!({"spec": spec}));
    }
    pod
}
