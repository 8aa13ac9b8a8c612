//! `nvidia.com` DynamoGraphDeployment: what its operator makes of it. Grouping follows the owner below ([`super::skipped`]).
//!
//! Over Grove, the operator's choice unless `nvidia.com/enable-grove` is `false`, the graph is one PodCliqueSet of its name:
//! a service is a PodClique with a minimum of one, and one over several nodes (`multinode.nodeCount`) a scaling group of
//! `<service>-ldr` and `<service>-wkr`. Without Grove a service is a Deployment. A pod is `extraPodSpec` with the
//! `mainContainer`, over which `resources` counts; pods go to `kai-scheduler` unless they say otherwise, to the queue of
//! `nvidia.com/kai-scheduler-queue`. The operator's own defaults (images, probes, environment) place nothing and are left
//! out. Read: `spec.services` of `v1alpha1`. Sources: ai-dynamo/dynamo, API reference, guide to multinode deployments, and
//! `internal/dynamo/graph.go` of its operator.

use std::collections::BTreeMap;

use berth_api::keys;
use serde_json::{Map, Value, json};

use super::{deployment, pod_clique_set};
use crate::grouping::ProblemCode;
use crate::grouping::expand::{ExpandProblem, Plan, Workload};
use crate::grouping::object::{Object, integer};

const SERVICES: &str = "/spec/services";
const ENABLE_GROVE: &str = "nvidia.com/enable-grove";
const QUEUE: &str = "nvidia.com/kai-scheduler-queue";

/// One service of the graph.
struct Service<'a> {
    value: &'a Value,
    /// Its name as names of objects have it.
    name: String,
    /// Where it is written.
    field: String,
    replicas: i32,
    n_nodes: i32,
}

/// The pods of a DynamoGraphDeployment.
pub fn expand(graph: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    // The operator has been here: what it made is in the input, and gives the pods.
    if graph.children.iter().any(|child| child.get("kind").and_then(Value::as_str) == Some("DynamoComponentDeployment")) {
        return Ok(());
    }
    let services = services(graph)?;
    match Object::Owner(&graph.object).annotations().get(ENABLE_GROVE) {
        Some("false") => services.iter().try_for_each(|service| expand_deployment(graph, service, plan)),
        _ => expand_set(graph, &services, plan),
    }
}

/// The services by name: the operator reads them in any order.
fn services<'a>(graph: &'a Workload<'_>) -> Result<Vec<Service<'a>>, ExpandProblem> {
    let Some(listed) = graph.object.pointer(SERVICES).and_then(Value::as_object) else {
        return Err(graph.problem(SERVICES, "there are no services; components of v1beta1 are not read"));
    };
    let sorted: BTreeMap<&String, &Value> = listed.iter().collect();
    let mut services = Vec::new();
    for (name, value) in sorted {
        let field = format!("{SERVICES}/{name}");
        if value.pointer("/gpuMemoryService/enabled") == Some(&Value::Bool(true)) {
            let message = "devices shared through a claim are not made";
            return Err(graph.problem(&format!("{field}/gpuMemoryService"), message));
        }
        let replicas = graph.replicas(&format!("{field}/replicas"))?;
        let nodes = format!("{field}/multinode/nodeCount");
        let n_nodes = integer(&graph.object, &nodes, (1, i32::MAX), ProblemCode::InvalidReplicas)?.unwrap_or(1);
        graph.limit(&nodes, replicas.saturating_mul(n_nodes))?;
        services.push(Service { value, name: name.to_lowercase(), field, replicas, n_nodes });
    }
    Ok(services)
}

/// The graph as one PodCliqueSet.
fn expand_set(graph: &Workload<'_>, services: &[Service<'_>], plan: &mut Plan) -> Result<(), ExpandProblem> {
    let (mut cliques, mut scalings) = (Vec::new(), Vec::new());
    for service in services {
        let pod_spec = pod_spec(graph, service)?;
        let clique = |name: &str, replicas: i32, least: i32| {
            json!({
                "name": name, "labels": notes(graph, service, "labels"), "annotations": notes(graph, service, "annotations"),
                "spec": {"replicas": replicas, "minAvailable": least, "podSpec": pod_spec},
            })
        };
        if service.n_nodes == 1 {
            let mut single = clique(&service.name, service.replicas, 1);
            constrain(&mut single, service.value);
            cliques.push(single);
            continue;
        }
        let (leader, workers) = (format!("{}-ldr", service.name), format!("{}-wkr", service.name));
        let n_workers = service.n_nodes - 1;
        cliques.extend([clique(&leader, 1, 1), clique(&workers, n_workers, n_workers)]);
        let mut scaling = json!({
            "name": service.name, "replicas": service.replicas, "minAvailable": 1, "cliqueNames": [leader, workers],
        });
        constrain(&mut scaling, service.value);
        scalings.push(scaling);
    }
    let mut set = graph.child("grove.io/v1alpha1", "PodCliqueSet", graph.name());
    for field in ["labels", "annotations"] {
        if let Some(notes) = graph.object.pointer(&format!("/spec/{field}")) {
            set["metadata"][field] = notes.clone();
        }
    }
    let mut template = json!({"cliques": cliques, "podCliqueScalingGroupConfigs": scalings});
    constrain(&mut template, &graph.object["spec"]);
    set["spec"] = json!({"replicas": 1, "template": template});
    plan.objects.push(set.clone());
    pod_clique_set::expand(&Workload { object: set, children: Vec::new(), others: graph.others }, plan)
}

/// A service as a Deployment of its DynamoComponentDeployment.
fn expand_deployment(graph: &Workload<'_>, service: &Service<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    if 1 < service.n_nodes {
        let message = "pods of several nodes are made over Grove only";
        return Err(graph.problem(&format!("{}/multinode", service.field), message));
    }
    let name = format!("{}-{}", graph.name(), service.name);
    let api_version = graph.object["apiVersion"].as_str().unwrap_or_default();
    let component = graph.child(api_version, "DynamoComponentDeployment", &name);
    let mut deployment = graph.child_of("apps/v1", "Deployment", &name, &component);
    let metadata = json!({"labels": notes(graph, service, "labels"), "annotations": notes(graph, service, "annotations")});
    let template = json!({"metadata": metadata, "spec": pod_spec(graph, service)?});
    deployment["spec"] = json!({"replicas": service.replicas, "template": template});
    plan.objects.extend([component, deployment.clone()]);
    deployment::expand(&Workload { object: deployment, children: Vec::new(), others: graph.others }, plan)
}

/// Copies the level that must hold something.
fn constrain(target: &mut Value, from: &Value) {
    if let Some(level) = from.pointer("/topologyConstraint/packDomain") {
        target["topologyConstraint"] = json!({"packDomain": level});
    }
}

/// Labels or annotations of a service's pods: of the graph, over them those of the service.
fn notes(graph: &Workload<'_>, service: &Service<'_>, kind: &str) -> Value {
    let mut notes = Map::new();
    if kind == "labels"
        && let Some(queue) = Object::Owner(&graph.object).annotations().get(QUEUE)
    {
        notes.insert(keys::QUEUE.to_owned(), json!(queue));
    }
    let of_graph = graph.object.pointer(&format!("/spec/{kind}"));
    let of_pod = service.value.pointer(&format!("/extraPodMetadata/{kind}"));
    for source in [of_graph, service.value.get(kind), of_pod] {
        notes.extend(source.and_then(Value::as_object).cloned().unwrap_or_default());
    }
    Value::Object(notes)
}

/// The pods of a service.
fn pod_spec(graph: &Workload<'_>, service: &Service<'_>) -> Result<Value, ExpandProblem> {
    let mut spec = service.value.get("extraPodSpec").and_then(Value::as_object).cloned().unwrap_or_default();
    let main = spec.remove("mainContainer").unwrap_or_else(|| json!({}));
    let Value::Object(mut main) = main else {
        return Err(graph.problem(&format!("{}/extraPodSpec/mainContainer", service.field), "is no container"));
    };
    main.insert("name".to_owned(), json!("main"));
    let resources = main.entry("resources").or_insert_with(|| json!({}));
    for kind in ["requests", "limits"] {
        let own = amounts(service.value.pointer(&format!("/resources/{kind}")));
        if !own.is_empty() && resources.is_object() {
            let mut all = resources.get(kind).and_then(Value::as_object).cloned().unwrap_or_default();
            all.extend(own);
            resources[kind] = Value::Object(all);
        }
    }
    let mut containers = spec.get("containers").and_then(Value::as_array).cloned().unwrap_or_default();
    containers.push(Value::Object(main));
    spec.insert("containers".to_owned(), Value::Array(containers));
    spec.entry("schedulerName").or_insert_with(|| json!("kai-scheduler"));
    Ok(Value::Object(spec))
}

/// Amounts as a service writes them: `cpu`, `memory`, `gpu` of a `gpuType`, and others under `custom`.
fn amounts(written: Option<&Value>) -> Map<String, Value> {
    let of = |field: &str| written.and_then(|written| written.get(field)).filter(|value| !value.is_null() && *value != "");
    let mut amounts = Map::new();
    let device = of("gpuType").and_then(Value::as_str).unwrap_or("nvidia.com/gpu");
    for (field, resource) in [("cpu", "cpu"), ("memory", "memory"), ("gpu", device)] {
        if let Some(amount) = of(field) {
            amounts.insert(resource.to_owned(), amount.clone());
        }
    }
    amounts.extend(of("custom").and_then(Value::as_object).cloned().unwrap_or_default());
    amounts
}
