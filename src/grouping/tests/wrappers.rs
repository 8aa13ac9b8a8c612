//! Kinds that wrap others or serve: Argo, run.ai, Knative, Grove, Dynamo.

use super::*;

/// A pod under an owner, which may have owners of its own.
fn owned(name: &str, owner: &str, labels: &str) -> String {
    format!("---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, uid: {name}, labels: {{{labels}}}, ownerReferences: [{owner}]}}}}\n")
}

const FLOW: &str = "{apiVersion: argoproj.io/v1alpha1, kind: Workflow, metadata: {name: w, uid: u, labels: {kai.scheduler/queue: q},
  annotations: {kai.scheduler/topology: t, kai.scheduler/topology-required-placement: zone}}, spec: {entrypoint: main, templates: [
  {name: main, ENTRY}, {name: step, container: {image: x}}]}}";

#[test]
fn steps_of_workflows_are_gangs_of_their_own() {
    let one = FLOW.replace("ENTRY", "container: {image: x}");
    let group_of = group(&one);
    assert_eq!((group_of.owner.display().as_str(), sketch(&group_of).as_str()), ("Pod/w", "min 1 @t:zone:-"));
    assert_eq!((group_of.spec.queue.as_deref(), group_of.workload.display().as_str()), (Some("q"), "Workflow/w"));
    let two = groups(&FLOW.replace("ENTRY", "steps: [[{name: a, template: step}, {name: b, template: step}], [{name: c, template: step}]]"));
    assert_eq!(two.iter().map(|(pod, _)| pod.as_str()).collect::<Vec<_>>(), ["w-step-0", "w-step-1"]);
    assert_ne!(two[0].1.name, two[1].1.name);
    let dag = FLOW.replace("ENTRY", "dag: {tasks: [{name: a, template: step}, {name: b, template: step, dependencies: [a]}]}");
    assert_eq!(groups(&dag).len(), 1);
    let lost = expand(&objects(&FLOW.replace("ENTRY", "steps: [[{name: a, template: nope}]]")));
    assert_eq!(lost.problems[0].to_string(), "Workflow/w: spec.templates: there is no template nope");
}

#[test]
fn wrapped_workloads_keep_their_own_rule() {
    for (version, kind) in [("argoproj.io/v1alpha1", "Workflow"), ("run.ai/v2alpha1", "TrainingWorkload")] {
        let yaml = format!(
            "{{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {{name: t, uid: t, ownerReferences: [{{apiVersion: {version},
               kind: {kind}, name: w, uid: w}}]}}, spec: {{pytorchReplicaSpecs: {{Worker: {{replicas: 2, template: {{spec: SPEC}}}}}}}}}}
---
{{apiVersion: {version}, kind: {kind}, metadata: {{name: w, uid: w, labels: {{kai.scheduler/queue: q}}}}, spec: {{suspend: false,
  entrypoint: none, templates: [{{name: none, resource: {{}}}}]}}}}"
        );
        // The wrapper has no pods of its own: those of the job are in the input as its controller makes them.
        let pods: String = (0..2)
            .map(|i| {
                let owner = "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, name: t, uid: t, controller: true}";
                let labels = format!("training.kubeflow.org/replica-type: worker, training.kubeflow.org/replica-index: '{i}'");
                owned(&format!("t-worker-{i}"), owner, &labels)
            })
            .collect();
        check(&format!("{yaml}\n{pods}"), "min 2 | worker 2");
        let group = group(&format!("{yaml}\n{pods}"));
        assert_eq!((group.name.as_str(), group.spec.queue.as_deref()), ("pg-t-t", Some("q")), "{kind}");
        assert_eq!(group.workload.display(), format!("{kind}/w"));
    }
}

#[test]
fn runai_jobs_are_named_by_the_attempt() {
    let owner = "{apiVersion: run.ai/v1, kind: RunaiJob, name: r, uid: u}";
    let yaml = format!("{{apiVersion: run.ai/v1, kind: RunaiJob, metadata: {{name: r, uid: u}}}}\n{}", owned("r-0-0", owner, ""));
    assert_eq!((group(&yaml).name.as_str(), sketch(&group(&yaml)).as_str()), ("pg-r-0-u", "min 1"));
}

#[test]
fn knative_revisions_are_gangs() {
    let service = |notes: &str| {
        format!(
            "{{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {{name: k, uid: u, annotations: {{kai.scheduler/topology: t,
               kai.scheduler/topology-preferred-placement: rack}}}}, spec: {{template: {{metadata: {{annotations: {{{notes}}}}}, spec: SPEC}}}}}}"
        )
    };
    check(&service(""), "min 1 @t:-:rack");
    check(&service("autoscaling.knative.dev/min-scale: '3'"), "min 3 @t:-:rack");
    check(&service("autoscaling.knative.dev/min-scale: '0'"), "min 0 @t:-:rack");
    check(&service("autoscaling.knative.dev/min-scale: many"), "min 1 @t:-:rack");
    let all = groups(&service("autoscaling.knative.dev/min-scale: '3'"));
    let first = &all[0].1;
    assert_eq!((all.len(), first.owner.display().as_str()), (3, "Revision/k-00001"));
    assert_eq!(first.name, format!("pg-k-00001-{}", first.owner.uid));
    assert_eq!(first.spec.priority_class_name.as_deref(), Some("inference"));
}

const SET: &str = "{apiVersion: grove.io/v1alpha1, kind: PodCliqueSet, metadata: {name: s, uid: u, annotations: {grove.io/topology-name: t}
  OWNER}, spec: {replicas: 1, template: {TOP cliques: [
  {name: router, spec: {replicas: 2, minAvailable: 1, podSpec: SPEC}},
  {name: pleader, spec: {replicas: 1, podSpec: SPEC}},
  {name: pworker, topologyConstraint: {packDomain: host}, spec: {replicas: 2, podSpec: SPEC}}],
  podCliqueScalingGroups: [{name: prefill, replicas: 2, minAvailable: 1, cliqueNames: [pleader, pworker] SCALING}]}}}";

fn set(owner: &str, top: &str, scaling: &str) -> String {
    SET.replace("OWNER", owner).replace("TOP", top).replace("SCALING", scaling)
}

#[test]
fn grove_gangs() {
    let all = groups(&set("", "", ""));
    let base = "min 4 | s-0-router 1 | s-0-prefill-0-pleader 1 | s-0-prefill-0-pworker 2 @t:host:-";
    let scaled = "min 3 | s-0-prefill-1-pleader 1 | s-0-prefill-1-pworker 2 @t:host:-";
    let sketches: Vec<_> = all.iter().map(|(_, group)| (group.name.as_str(), sketch(group))).collect();
    assert_eq!(sketches[0], ("pg-s-0-u", base.to_owned()));
    assert_eq!(sketches[7], ("pg-s-0-prefill-0-u", scaled.to_owned()));
    assert_eq!(
        members(&set("", "", "")).replace("#-", ""),
        "s-0-router-0=s-0-router s-0-router-1=s-0-router s-0-prefill-0-pleader-0=s-0-prefill-0-pleader \
         s-0-prefill-0-pworker-0=s-0-prefill-0-pworker s-0-prefill-0-pworker-1=s-0-prefill-0-pworker \
         s-0-prefill-1-pleader-0=s-0-prefill-1-pleader s-0-prefill-1-pworker-0=s-0-prefill-1-pworker \
         s-0-prefill-1-pworker-1=s-0-prefill-1-pworker"
    );
    let levels = group(&set("", "topologyConstraint: {packDomain: zone},", ", topologyConstraint: {packDomain: rack}"));
    assert_eq!(
        sketch(&levels),
        "min 4 @t:zone:- | s-0-router 1 | s-0-prefill-0*2 @t:rack:- | s-0-prefill-0/s-0-prefill-0-pleader 1 \
         | s-0-prefill-0/s-0-prefill-0-pworker 2 @t:host:-"
    );
}

/// A PodGang beside the set.
fn beside(gang: &str) -> String {
    format!("{}\n---\n{{apiVersion: scheduler.grove.io/v1alpha1, kind: PodGang, {gang}}}", set("", "", ""))
}

#[test]
fn what_only_the_pod_gang_says_counts() {
    let said = "metadata: {name: s-0, annotations: {grove.io/topology-name: fabric}}, spec: {priorityClassName: build,
      reuseReservationRef: {namespace: default, name: old}, topologyConstraint: {packConstraint: {required: zone, preferred: rack}},
      topologyConstraintGroupConfigs: [{name: both, podGroupNames: [s-0-prefill-0-pleader, s-0-prefill-0-pworker],
        topologyConstraint: {packConstraint: {preferred: rack}}}],
      podgroups: [{name: s-0-router, minReplicas: 2}, {name: s-0-prefill-0-pleader, minReplicas: 1},
        {name: s-0-prefill-0-pworker, minReplicas: 2, topologyConstraint: {packConstraint: {preferred: nvlink}}}]}";
    let all = groups(&beside(said));
    assert_eq!(
        sketch(&all[0].1),
        "min 5 @fabric:zone:rack | s-0-router 2 | both*2 @fabric:-:rack | both/s-0-prefill-0-pleader 1 \
         | both/s-0-prefill-0-pworker 2 @fabric:host:nvlink"
    );
    assert_eq!((problems(&all[0].1), all[0].1.spec.priority_class_name.as_deref()), (Vec::new(), Some("build")));
    assert_eq!((all[0].1.name.as_str(), all[4].1.subgroup.as_deref()), ("pg-s-0-u", Some("s-0-prefill-0-pworker")));
    // The other gangs of the set stay as the set has them.
    assert_eq!(all[7].1.spec.priority_class_name.as_deref(), Some("train"));
    // One of another namespace is not meant; one that says nothing changes nothing.
    let plain = sketch(&group(&set("", "", "")));
    assert_eq!(sketch(&group(&beside(&said.replace("name: s-0,", "name: s-0, namespace: other,")))), plain);
    assert_eq!(sketch(&group(&beside("metadata: {name: s-0}, spec: {podgroups: []}"))), plain);
}

#[test]
fn mistakes_of_a_pod_gang_are_named() {
    let named = |spec: &str| problems(&group(&beside(&format!("metadata: {{name: s-0}}, spec: {{{spec}}}"))));
    assert_eq!(
        named("podgroups: [{name: s-0-router, minReplicas: 0}]"),
        ["InvalidMinMember PodGang/s-0: spec.podgroups.0.minReplicas is 0; allowed is an integer from 1 on"]
    );
    assert_eq!(
        named("priorityClassName: nope"),
        ["~UnknownPriorityClass PodGang/s-0: spec.priorityClassName is \"nope\"; allowed is the name of a PriorityClass that exists"]
    );
    let set = set("", "priorityClassName: build,", "");
    assert_eq!(group(&set).spec.priority_class_name.as_deref(), Some("build"));
}

#[test]
fn a_gang_that_the_set_does_not_have_follows_from_its_pod_gang() {
    let owner = "{apiVersion: grove.io/v1alpha1, kind: PodCliqueSet, name: s, uid: u, controller: true}";
    let pod = owned("late", owner, "grove.io/podgang: s-0-prefill-7, grove.io/podclique: s-0-prefill-8-pworker");
    let gang = "metadata: {name: s-0-prefill-7}, spec: {podgroups: [{name: s-0-prefill-8-pworker, minReplicas: 2}]}";
    let late = |yaml: String| groups(&yaml).swap_remove(0).1;
    let alone = late(format!("{}\n{pod}", set("", "", "")));
    assert_eq!(alone.pod_problem.map(|problem| problem.key), Some("grove.io/podgang".to_owned()));
    let found = late(format!("{}\n{pod}", beside(gang)));
    assert_eq!((sketch(&found).as_str(), found.pod_problem), ("min 2 | s-0-prefill-8-pworker 2", None));
    // A pod whose label names no PodClique of it is where the PodGang lists it.
    let listing = gang.replace("minReplicas: 2", "minReplicas: 2, podReferences: [{namespace: default, name: late}]");
    let listed = late(format!("{}\n{}", beside(&listing), pod.replace("grove.io/podclique", "other")));
    assert_eq!(listed.subgroup.as_deref(), Some("s-0-prefill-8-pworker"));
}

#[test]
fn a_set_of_too_many_cliques_is_refused() {
    let huge = expand(&objects(&set("", "", "").replace("replicas: 1, template", "replicas: 2000000000, template")));
    let expected = "PodCliqueSet/s: spec.replicas: is 2147483647 PodCliques; allowed is at most 10000 of them";
    assert_eq!(huge.problems[0].to_string(), expected);
}

#[test]
fn dynamo_over_grove() {
    let owner = ", ownerReferences: [{apiVersion: nvidia.com/v1alpha1, kind: DynamoGraphDeployment, name: d, uid: d, controller: true}]";
    let graph = "{apiVersion: nvidia.com/v1alpha1, kind: DynamoGraphDeployment, metadata: {name: d, uid: d, labels: {kai.scheduler/queue: q}}}";
    let group = group(&format!("{}\n---\n{graph}", set(owner, "", "")));
    assert_eq!((group.name.as_str(), group.spec.queue.as_deref()), ("pg-s-0-u", Some("q")));
    assert_eq!(group.workload.display(), "DynamoGraphDeployment/d");
}

const GRAPH: &str = "{apiVersion: nvidia.com/v1alpha1, kind: DynamoGraphDeployment, metadata: {name: d, uid: d,
  annotations: {nvidia.com/kai-scheduler-queue: serving NOTES}}, spec: {topologyConstraint: {packDomain: zone}, services: {
  VllmWorker: {replicas: 2, multinode: {nodeCount: 3}, topologyConstraint: {packDomain: rack}, labels: {team: a},
    resources: {requests: {cpu: '4'}, limits: {gpu: '8', custom: {rdma/ib: '1'}}},
    extraPodSpec: {tolerations: [], mainContainer: {image: x, resources: {requests: {cpu: '1', memory: 1Gi}}}}},
  Frontend: {replicas: 2, resources: {limits: {gpu: '1', gpuType: amd.com/gpu}}, extraPodSpec: {schedulerName: other}}}}}";

#[test]
fn the_pods_of_a_graph_over_grove() {
    let graph = GRAPH.replace("NOTES", "");
    let all = groups(&graph);
    assert_eq!(
        sketch(&all[0].1),
        "min 4 @-:zone:- | d-0-frontend 1 | d-0-vllmworker-0*2 @-:rack:- | d-0-vllmworker-0/d-0-vllmworker-0-vllmworker-ldr 1 \
         | d-0-vllmworker-0/d-0-vllmworker-0-vllmworker-wkr 2"
    );
    let names: Vec<_> = all.iter().map(|(pod, _)| pod.as_str()).collect();
    assert_eq!(names[..3], ["d-0-frontend-0", "d-0-frontend-1", "d-0-vllmworker-0-vllmworker-ldr-0"]);
    assert_eq!(names[5..], ["d-0-vllmworker-1-vllmworker-ldr-0", "d-0-vllmworker-1-vllmworker-wkr-0", "d-0-vllmworker-1-vllmworker-wkr-1"]);
    assert_eq!((all[0].1.spec.queue.as_deref(), all[0].1.workload.display().as_str()), (Some("serving"), "DynamoGraphDeployment/d"));
    let pods = expanded(&graph).pods;
    let main = &pods[2]["spec"]["containers"][0];
    assert_eq!(main["resources"]["requests"], serde_json::json!({"cpu": "4", "memory": "1Gi"}));
    assert_eq!(main["resources"]["limits"], serde_json::json!({"nvidia.com/gpu": "8", "rdma/ib": "1"}));
    assert_eq!((&pods[2]["spec"]["schedulerName"], &pods[2]["metadata"]["labels"]["team"]), (&"kai-scheduler".into(), &"a".into()));
    assert_eq!(pods[0]["spec"]["containers"][0]["resources"]["limits"], serde_json::json!({"amd.com/gpu": "1"}));
    assert_eq!(pods[0]["spec"]["schedulerName"], "other");
    // A PodCliqueSet of the graph in the input gives the pods instead.
    let owner = ", ownerReferences: [{apiVersion: nvidia.com/v1alpha1, kind: DynamoGraphDeployment, name: d, uid: d, controller: true}]";
    assert_eq!(groups(&format!("{graph}\n---\n{}", set(owner, "", ""))).len(), groups(&set("", "", "")).len());
}

#[test]
fn the_pods_of_a_graph_without_grove() {
    let graph = GRAPH.replace("NOTES", ", nvidia.com/enable-grove: 'false'");
    let all = groups(&graph.replace("multinode: {nodeCount: 3}, ", ""));
    assert_eq!(all.len(), 4);
    assert!(all[0].0.starts_with("d-frontend-") && all[2].0.starts_with("d-vllmworker-"), "{} {}", all[0].0, all[2].0);
    assert_eq!((sketch(&all[0].1).as_str(), all[0].1.spec.queue.as_deref()), ("min 1", Some("serving")));
    assert_eq!(all[0].1.workload.display(), "DynamoGraphDeployment/d");
    let component = "{apiVersion: nvidia.com/v1alpha1, kind: DynamoComponentDeployment, metadata: {name: d-frontend, uid: c, ownerReferences: [
      {apiVersion: nvidia.com/v1alpha1, kind: DynamoGraphDeployment, name: d, uid: d, controller: true}]}}";
    assert_eq!(groups(&format!("{graph}\n---\n{component}")).len(), 0);
    let refused = |yaml: &str| expand(&objects(yaml)).problems[0].to_string();
    let several = "DynamoGraphDeployment/d: spec.services.VllmWorker.multinode: pods of several nodes are made over Grove only";
    assert_eq!(refused(&graph), several);
    assert_eq!(
        refused(&GRAPH.replace("NOTES", "").replace("nodeCount: 3", "nodeCount: 0")),
        "DynamoGraphDeployment/d: spec.services.VllmWorker.multinode.nodeCount: is 0; allowed is an integer from 1 on"
    );
    assert_eq!(
        refused(&GRAPH.replace("NOTES", "").replace("services:", "components:")),
        "DynamoGraphDeployment/d: spec.services: there are no services; components of v1beta1 are not read"
    );
}
