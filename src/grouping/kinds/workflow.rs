//! `argoproj.io` Workflow: it only wraps its steps. A step that is a pod is a gang of its own; a step that makes a Job, a
//! PyTorchJob or anything else is that object's gang. The workflow's labels and annotations fill what they lack.
//!
//! `simulate` makes the pods that start first (argoproj/argo-workflows, `workflow/controller`): the entry point's, or those
//! of its first steps, or of its tasks that depend on none. A workflow of one template has a pod of its own name; the others
//! are `<workflow>-<template>-<number>`.

use serde_json::{Value, json};

use crate::grouping::expand::{Draft, ExpandProblem, Identity, Plan, Workload};

/// The pods that a Workflow starts with.
pub fn expand(workflow: &Workload<'_>, plan: &mut Plan) -> Result<(), ExpandProblem> {
    if workflow.is_true("/spec/suspend") {
        return Err(workflow.problem("/spec/suspend", "the Workflow is suspended, so its controller creates no pods"));
    }
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let entry = workflow.object.pointer("/spec").map(|spec| text(spec, "entrypoint")).unwrap_or_default();
    let Some(template) = find(workflow, &entry) else {
        return Err(workflow.problem("/spec/entrypoint", "there is no template of this name among spec.templates"));
    };
    let tasks = match (template.get("steps"), template.pointer("/dag/tasks")) {
        (Some(steps), _) => steps.get(0).and_then(Value::as_array).cloned().unwrap_or_default(),
        (_, Some(tasks)) => {
            let is_first = |task: &&Value| {
                let depends = task.get("dependencies").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
                !depends && text(task, "depends").is_empty()
            };
            tasks.as_array().map(|tasks| tasks.iter().filter(is_first).cloned().collect()).unwrap_or_default()
        }
        (None, None) => return add(workflow, plan, template, workflow.name().to_owned()),
    };
    for (number, task) in tasks.iter().enumerate() {
        let name = text(task, "template");
        let field = "/spec/templates";
        let step = find(workflow, &name).ok_or_else(|| workflow.problem(field, format!("there is no template {name}")))?;
        add(workflow, plan, step, format!("{}-{name}-{number}", workflow.name()))?;
    }
    Ok(())
}

fn find<'a>(workflow: &'a Workload<'_>, name: &str) -> Option<&'a Value> {
    let templates = workflow.object.pointer("/spec/templates")?.as_array()?;
    templates.iter().find(|template| template.get("name").and_then(Value::as_str) == Some(name))
}

/// The pod of a template that runs a container; others make no pod of their own at first.
fn add(workflow: &Workload<'_>, plan: &mut Plan, template: &Value, name: String) -> Result<(), ExpandProblem> {
    let Some(mut container) = template.get("container").or_else(|| template.get("script")).cloned() else {
        return Ok(());
    };
    if !container.is_object() {
        return Err(workflow.problem("/spec/templates", format!("the container of {name} is no map")));
    }
    container["name"] = json!("main");
    let spec = workflow.object.pointer("/spec").cloned().unwrap_or_default();
    let mut pod_spec = json!({"containers": [container], "restartPolicy": "Never"});
    for field in ["schedulerName", "nodeSelector", "tolerations", "affinity", "priorityClassName"] {
        if let Some(field_value) = template.get(field).filter(|_| field != "priorityClassName").or_else(|| spec.get(field)) {
            pod_spec[field] = field_value.clone();
        }
    }
    if let Some(class) = spec.get("podPriorityClassName") {
        pod_spec["priorityClassName"] = class.clone();
    }
    let metadata = template.get("metadata").cloned().unwrap_or_else(|| json!({}));
    let holder = Workload { object: workflow.object.clone(), children: Vec::new(), others: workflow.others };
    let mut with_template = holder;
    with_template.object["spec"]["podOfStep"] = json!({"metadata": metadata, "spec": pod_spec});
    let labels = json!({"workflows.argoproj.io/workflow": workflow.name(), "workflows.argoproj.io/completed": "false"});
    let pod = with_template.pod("/spec/podOfStep", &name, &workflow.object)?.labels(&labels).finish();
    plan.pods.push(Draft { pod, identity: Identity::Name });
    Ok(())
}
