//! Grouping by data: the built-in kinds and rules of a cluster.

use super::*;
use crate::grouping::rules::{all_builtin, parse};

/// An object of a kind with this spec, and pods below it with these labels.
fn with_pods(version: &str, kind: &str, spec: &str, labels: &[&str]) -> String {
    let mut yaml = format!("{{apiVersion: {version}, kind: {kind}, metadata: {{name: o, uid: u}}, spec: {{{spec}}}}}\n");
    for (i, labels) in labels.iter().enumerate() {
        yaml += &format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: p-{i}, labels: {{{labels}}}, ownerReferences: [{{apiVersion: {version},
               kind: {kind}, name: o, uid: u}}]}}}}\n"
        );
    }
    yaml
}

#[test]
fn built_in_kinds() {
    assert_eq!(all_builtin().len(), 8);
    for (version, kind, class) in [
        ("tekton.dev/v1", "PipelineRun", "train"),
        ("tekton.dev/v1", "TaskRun", "train"),
        ("machinelearning.seldon.io/v1", "SeldonDeployment", "train"),
        ("kubevirt.io/v1", "VirtualMachineInstance", "train"),
        ("workspace.devfile.io/v1alpha2", "DevWorkspace", "train"),
        ("kubeflow.org/v1alpha1", "ScheduledWorkflow", "train"),
        ("egx.nvidia.io/v1", "SPOTRequest", "inference"),
    ] {
        let yaml = with_pods(version, kind, "", &["", ""]);
        check(&yaml, "min 1");
        let group = group(&yaml);
        assert_eq!((group.name.as_str(), group.spec.priority_class_name.as_deref()), ("pg-o-u", Some(class)), "{kind}");
    }
    let aml = |envs: &str| with_pods("amlarc.azureml.com/v1alpha1", "AmlJob", &format!("job: {{options: {{envs: {{{envs}}}}}}}"), &["", ""]);
    check(&aml("AZUREML_NODE_COUNT: '2'"), "min 2");
    check(&aml("AZUREML_NODE_COUNT: 3"), "min 3");
    for (envs, value) in [("", "missing"), ("AZUREML_NODE_COUNT: none", "\"none\""), ("AZUREML_NODE_COUNT: 0", "0")] {
        let expected =
            format!("InvalidField AmlJob/o: spec.job.options.envs.AZUREML_NODE_COUNT is {value}; allowed is an integer from 1 on");
        assert_eq!(problems(&group(&aml(envs))), [expected]);
    }
}

fn rule(spec: &str) -> String {
    format!(
        "---\n{{apiVersion: berth.scheduler/v1alpha1, kind: GroupingRule, metadata: {{name: r}}, spec: {{group: x.io, kind: Thing,
           {spec}}}}}\n"
    )
}

#[test]
fn rules_of_the_cluster() {
    let thing = |spec: &str, labels: &[&str], own: &str| format!("{}{}", with_pods("x.io/v2", "Thing", spec, labels), rule(own));
    check(&thing("need: 3", &["", ""], "minimum: {path: spec.need}"), "min 3");
    check(&thing("", &["", ""], "minimum: {path: spec.need, default: 2}"), "min 2");
    check(&thing("a/b: 4", &["", ""], "minimum: {path: /spec/a~1b}"), "min 4");
    let pools = "pools: [{id: a, least: 2}, {id: b}]";
    let by_pool = "subgroups: {list: spec.pools, name: id, minimum: least, label: x.io/pool}, priorityClassName: build";
    let yaml = thing(pools, &["x.io/pool: a", "x.io/pool: b"], by_pool);
    check(&yaml, "min 3 | a 2 | b 1");
    assert_eq!(members(&yaml), "p-0=a#- p-1=b#-");
    assert_eq!(group(&yaml).spec.priority_class_name.as_deref(), Some("build"));
    let lost = group(&thing(pools, &["x.io/pool: c"], by_pool));
    assert_eq!(lost.pod_problem.unwrap().to_string(), "Pod/p-0: x.io/pool is \"c\"; allowed is a or b");
    assert_eq!(
        problems(&group(&thing("", &[""], by_pool))),
        ["InvalidField Thing/o: spec.pools is missing; allowed is a list"]
    );
    let cut = "replicas: 4, template: {metadata: {annotations: {kai.scheduler/segment-size: '2'}}}";
    let yaml = thing(cut, &["x.io/i: '0'", "x.io/i: '3'"], "minimum: {path: spec.replicas}, indexLabel: x.io/i, replicas: spec.replicas");
    check(&yaml, "min 4 | segment-0 2 auto | segment-1 2 auto");
    assert_eq!(members(&yaml), "p-0=segment-0#0 p-1=segment-1#3");
}

#[test]
fn bad_rules_name_the_field() {
    for (spec, expected) in [
        ("group: x, kind: ''", "spec.kind: is empty; allowed is the kind of an owner"),
        ("group: batch, kind: Job", "spec.kind: Job is grouped by code; allowed is a kind that is not"),
        (
            "group: x, kind: T, minimum: {path: spec..n}",
            "spec.minimum.path: is \"spec..n\"; allowed are field names with dots between, or a JSON pointer",
        ),
        ("group: x, kind: T, minimum: {path: count, default: 0}", "spec.minimum.default: is below 1; allowed is an integer from 1 on"),
        (
            "group: x, kind: T, subgroups: {list: l, name: id, minimum: m, label: ''}",
            "spec.subgroups.label: is empty; allowed is the key of a pod label",
        ),
    ] {
        let object = serde_saphyr::from_str(&format!("{{spec: {{{spec}}}}}")).unwrap();
        assert_eq!(parse(&object).unwrap_err().to_string(), expected);
    }
    let typo = parse(&serde_json::json!({"spec": {"group": "x", "kind": "T", "minimums": 1}})).unwrap_err();
    assert!(typo.message.contains("unknown field `minimums`"), "{typo}");
}

#[test]
fn rules_reach_a_kind_inside_a_wrapper() {
    let wrapper = "{apiVersion: argoproj.io/v1alpha1, kind: Workflow, name: w, uid: w, controller: true}";
    let inside = with_pods("x.io/v2", "Thing", "need: 2", &["", ""]).replace("uid: u}, spec", &format!("uid: u, ownerReferences: [{wrapper}]}}, spec"));
    let flow = "---\n{apiVersion: argoproj.io/v1alpha1, kind: Workflow, metadata: {name: w, uid: w, labels: {kai.scheduler/queue: q}}, spec:
      {entrypoint: none, templates: [{name: none, resource: {}}]}}\n";
    let yaml = format!("{inside}{flow}{}", rule("minimum: {path: spec.need}"));
    check(&yaml, "min 2");
    assert_eq!((group(&yaml).workload.display().as_str(), group(&yaml).spec.queue.as_deref()), ("Workflow/w", Some("q")));
}
