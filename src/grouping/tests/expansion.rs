//! The pods that controllers would create, and those they would not.

use super::*;

fn names(yaml: &str) -> Vec<String> {
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    expanded(yaml).pods.iter().map(name).collect()
}

fn job(metadata: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{name: j{metadata}}}, spec: {{{spec} template: {{spec: SPEC}}}}}}\n"
    )
}

fn pod(name: &str, labels: &str, status: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, uid: {name}, labels: {{{labels}}},
           ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: j, uid: u, controller: true}}]}}, status: {{{status}}}}}\n"
    )
}

#[test]
fn counts_of_a_job() {
    assert_eq!(names(&job("", "")), ["j-0"]);
    assert_eq!(names(&job("", "parallelism: 3, completions: 2,")), ["j-0", "j-1"]);
    assert_eq!(names(&job("", "parallelism: 2,")), ["j-0", "j-1"]);
    assert_eq!(names(&job("", "parallelism: 0,")), [] as [&str; 0]);
}

#[test]
fn pods_that_are_there_are_not_made_twice() {
    let owned = ", uid: u";
    let two = format!("{}{}", job(owned, "parallelism: 3,"), pod("j-x7d", "", "phase: Running"));
    assert_eq!(names(&two), ["j-0", "j-1"]);
    let failed = format!("{}{}", job(owned, "parallelism: 1,"), pod("j-x7d", "", "phase: Failed"));
    assert_eq!(names(&failed), ["j-0"]);
    let index = |index: i32| format!("batch.kubernetes.io/job-completion-index: '{index}'");
    let indexed = job(owned, "parallelism: 3, completions: 3, completionMode: Indexed,");
    assert_eq!(names(&format!("{indexed}{}", pod("j-1-abc", &index(1), "phase: Running"))), ["j-0", "j-2"]);
}

#[test]
fn managed_workloads_are_not_expanded() {
    let dump = "
{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, uid: d}, spec: {replicas: 2, template: {spec: SPEC}}}
---
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: d-abc, uid: r, ownerReferences: [{apiVersion: apps/v1,
  kind: Deployment, name: d, uid: d, controller: true}]}, spec: {replicas: 2, template: {spec: SPEC}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: d-abc-zzz, uid: p, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet,
  name: d-abc, uid: r, controller: true}]}, status: {phase: Running}}";
    assert_eq!(names(dump), ["d-abc-0"]);
    let run = "
{apiVersion: batch/v1, kind: CronJob, metadata: {name: c, uid: c}, spec: {jobTemplate: {spec: {template: {spec: SPEC}}}}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: c-1, uid: j, ownerReferences: [{apiVersion: batch/v1, kind: CronJob,
  name: c, uid: c, controller: true}]}, spec: {template: {spec: SPEC}}}";
    assert_eq!(names(run), ["c-1-0"]);
}

#[test]
fn labels_of_the_controllers() {
    let torch = "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: t, namespace: ns, uid: u,
      creationTimestamp: '2026-01-01T00:00:00Z'}, spec: {pytorchReplicaSpecs: {Master: {template: {metadata: {labels: {a: b}},
      spec: SPEC}}}}}";
    let pod = expanded(torch).pods.remove(0);
    let expected = serde_json::json!({
        "a": "b",
        "training.kubeflow.org/job-name": "t",
        "training.kubeflow.org/job-role": "master",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-index": "0",
        "training.kubeflow.org/replica-type": "master",
    });
    assert_eq!(pod["metadata"]["labels"], expected);
    assert_eq!(pod["metadata"]["namespace"], "ns");
    assert_eq!(pod["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "u");
    let lws = "{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: l}, spec:
      {leaderWorkerTemplate: {size: 2, workerTemplate: {spec: SPEC}}}}";
    let pods = expanded(lws).pods;
    assert_eq!(pods[1]["metadata"]["annotations"]["leaderworkerset.sigs.k8s.io/size"], "2");
    assert_eq!(pods[1]["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"], "1");
    assert_eq!(pods[1]["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/name"], "l");
    assert_eq!(pods, expanded(lws).pods);
}

#[test]
fn bad_templates_name_the_field() {
    let problem = |yaml: &str| {
        let expansion = expand(&objects(yaml));
        assert_eq!(expansion.pods.len(), 0);
        let problem = &expansion.problems[0];
        (problem.position, problem.to_string())
    };
    let cases = [
        ("{apiVersion: batch/v1, kind: Job, metadata: {name: j}}", "Job/j: spec.template: the pod template is missing"),
        (
            "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {}}}",
            "Job/j: spec.template.spec: the pod's spec is missing",
        ),
        (
            "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {template: {spec: {containers: []}}}}",
            "StatefulSet/s: spec.template.spec.containers: there is no container",
        ),
        (
            "{apiVersion: batch/v1, kind: CronJob, metadata: {name: c}, spec: {jobTemplate: {spec: {template: {spec: 1}}}}}",
            "CronJob/c: spec.jobTemplate.spec.template.spec: the pod's spec is missing",
        ),
        (
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: two}}",
            "Deployment/d: spec.replicas: is \"two\"; allowed is an integer from 0 on",
        ),
        (
            "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: r}, spec: {replicas: 2000000000}}",
            "ReplicaSet/r: spec.replicas: 2000000000 pods are more than the 200000 that are created",
        ),
        (
            "{apiVersion: batch/v1, kind: Job, metadata: {name: j, annotations: {kai.scheduler/batch-min-member: 2}}}",
            "Job/j: metadata.annotations: kai.scheduler/batch-min-member is 2; allowed is text: put it in quotes",
        ),
        (
            "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {suspend: true}}",
            "Job/j: spec.suspend: the Job is suspended, so its controller creates no pods",
        ),
        (
            "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: t}}",
            "PyTorchJob/t: spec.pytorchReplicaSpecs: neither Master nor Worker is there",
        ),
    ];
    for (yaml, expected) in cases {
        assert_eq!(problem(&format!("{{apiVersion: v1, kind: Node}}\n---\n{yaml}")), (1, expected.to_owned()));
    }
}
