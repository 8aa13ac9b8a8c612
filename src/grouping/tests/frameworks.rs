//! Kinds of the training operators and segments: minimum, leaves, members, expansion, bad values.

use super::*;

/// A job of the training operator: kind, field, spec besides the replicas, and `Type: replicas` with their annotations.
fn training(kind: &str, field: &str, spec: &str, types: &[(&str, &str, &str)]) -> String {
    let version = if spec.contains("launcherCreationPolicy") { "v2beta1" } else { "v1" };
    let types: Vec<_> = types
        .iter()
        .map(|(name, replicas, notes)| {
            format!("{name}: {{replicas: {replicas}, template: {{metadata: {{annotations: {{{notes}}}}}, spec: SPEC}}}}")
        })
        .collect();
    format!(
        "{{apiVersion: kubeflow.org/{version}, kind: {kind}, metadata: {{name: t, uid: u}}, spec: {{{spec}
           {field}: {{{}}}}}}}",
        types.join(", ")
    )
}

fn names(yaml: &str) -> String {
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    expanded(yaml).pods.iter().map(name).collect::<Vec<_>>().join(" ")
}

#[test]
fn all_replicas_of_flat_jobs_start_together() {
    let tf = |spec: &str| training("TFJob", "tfReplicaSpecs", spec, &[("PS", "2", ""), ("Worker", "3", ""), ("chief", "1", "")]);
    check(&tf(""), "min 6");
    check(&tf("runPolicy: {schedulingPolicy: {minAvailable: 4}},"), "min 4");
    assert_eq!(members(&tf("")), "t-chief-0=-#0 t-ps-0=-#1 t-ps-1=-#2 t-worker-0=-#3 t-worker-1=-#4 t-worker-2=-#5");
    assert_eq!(group(&tf("")).name, "pg-t-u");
    let xgb = training("XGBoostJob", "xgbReplicaSpecs", "", &[("Master", "1", ""), ("Worker", "2", "")]);
    check(&xgb, "min 3");
    assert_eq!(names(&xgb), "t-master-0 t-worker-0 t-worker-1");
    let jax = training("JAXJob", "jaxReplicaSpecs", "", &[("Worker", "4", "")]);
    check(&jax, "min 4");
    assert_eq!(names(&jax), "t-worker-0 t-worker-1 t-worker-2 t-worker-3");
    assert_eq!(group(&jax).spec.priority_class_name.as_deref(), Some("train"));
}

#[test]
fn bad_minimum_and_replicas() {
    let of = |spec: &str, replicas: &str| {
        let job = training("TFJob", "tfReplicaSpecs", spec, &[("Worker", replicas, "")]);
        problems(&group(&format!("{job}\n---\n{}", stray("worker")))).join(";")
    };
    let expected = "InvalidMinMember TFJob/t: spec.runPolicy.schedulingPolicy.minAvailable is 3; allowed is an integer from 1 to 2";
    assert_eq!(of("runPolicy: {schedulingPolicy: {minAvailable: 3}},", "2"), expected);
    let expansion = expand(&objects(&training("TFJob", "tfReplicaSpecs", "", &[("Worker", "-1", "")])));
    assert_eq!(
        expansion.problems[0].to_string(),
        "TFJob/t: spec.tfReplicaSpecs.Worker.replicas: is -1; allowed is an integer from 0 on"
    );
    let empty = expand(&objects(&training("XGBoostJob", "xgbReplicaSpecs", "", &[])));
    assert_eq!(empty.problems[0].to_string(), "XGBoostJob/t: spec.xgbReplicaSpecs: neither Master nor Worker is there");
}

/// A pod under the training job `t` that its expansion does not have.
fn stray(word: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: old, labels: {{training.kubeflow.org/replica-type: {word},
           training.kubeflow.org/replica-index: '0'}}, ownerReferences: [{{apiVersion: kubeflow.org/v1, kind: TFJob, name: t, uid: u}}]}}}}"
    )
}

#[test]
fn launcher_waits_for_its_workers() {
    let mpi = |spec: &str| training("MPIJob", "mpiReplicaSpecs", spec, &[("Launcher", "1", ""), ("Worker", "2", "")]);
    check(&mpi(""), "min 3");
    assert_eq!(members(&mpi("")), "t-launcher=-#0 t-worker-0=-#1 t-worker-1=-#2");
    let waiting = mpi("launcherCreationPolicy: WaitForWorkersReady,");
    check(&waiting, "min 2");
    assert_eq!(names(&waiting), "t-worker-0 t-worker-1");
    assert_eq!(to_come(&group(&waiting)), " 3!");
    // Once the launcher is there, it counts.
    let launcher = "{apiVersion: v1, kind: Pod, metadata: {name: l, labels: {training.kubeflow.org/job-role: launcher},
      ownerReferences: [{apiVersion: batch/v1, kind: Job, name: t-launcher, uid: j, controller: true}]}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: t-launcher, uid: j, ownerReferences: [{apiVersion: kubeflow.org/v2beta1,
  kind: MPIJob, name: t, uid: u, controller: true}]}, spec: {template: {spec: SPEC}}}";
    let all = groups(&format!("{waiting}\n---\n{launcher}"));
    let launcher = all.iter().find(|(pod, _)| pod == "l").unwrap();
    assert_eq!((sketch(&launcher.1).as_str(), launcher.1.index), ("min 3", Some(0)));
    assert!(launcher.1.outranks(&all.iter().find(|(pod, _)| pod == "t-worker-0").unwrap().1));
    // A launcher that works too shifts the workers' index.
    let both = training(
        "MPIJob",
        "mpiReplicaSpecs",
        "launcherCreationPolicy: AtStartup, runLauncherAsWorker: true,",
        &[("Launcher", "1", ""), ("Worker", "2", "")],
    );
    assert_eq!(members(&both), "t-worker-0=-#1 t-worker-1=-#2 t-launcher-0=-#0");
    let pods = expanded(&both).pods;
    assert_eq!(pods[0]["metadata"]["labels"]["training.kubeflow.org/replica-index"], "1");
    assert_eq!(pods[2]["metadata"]["ownerReferences"][0]["kind"], "Job");
}

#[test]
fn segments_of_training_jobs() {
    let size = "kai.scheduler/segment-size: '2', kai.scheduler/segment-topology-required-placement: rack";
    let tf = training("TFJob", "tfReplicaSpecs", "", &[("Chief", "1", ""), ("Worker", "3", size)]);
    check(
        &tf,
        "min 4 | chief 1 | worker*2 | worker/worker-0 2 @-:rack:- | worker/worker-1 1 @-:rack:-",
    );
    assert_eq!(members(&tf), "t-chief-0=chief#0 t-worker-0=worker-0#1 t-worker-1=worker-0#2 t-worker-2=worker-1#3");
    let waiting = training(
        "MPIJob",
        "mpiReplicaSpecs",
        "launcherCreationPolicy: WaitForWorkersReady,",
        &[("Launcher", "1", ""), ("Worker", "4", size)],
    );
    assert_eq!(to_come(&group(&waiting)), "launcher 1!");
    check(&waiting, "min 4 | launcher 0 | worker*2 | worker/worker-0 2 @-:rack:- | worker/worker-1 2 @-:rack:-");
    let jax = training("JAXJob", "jaxReplicaSpecs", "", &[("Worker", "4", "kai.scheduler/segment-size: '2'")]);
    check(&jax, "min 4 | worker*2 | worker/worker-0 2 auto | worker/worker-1 2 auto");
    // A level on one template is about its own pods: then the types are leaves.
    let rule = "kai.scheduler/topology-required-placement: rack";
    check(
        &training("XGBoostJob", "xgbReplicaSpecs", "", &[("Master", "1", ""), ("Worker", "2", rule)]),
        "min 3 | master 1 | worker 2 @-:rack:-",
    );
}

#[test]
fn elastic_segments_begin_where_all_of_them_fit() {
    let size = "kai.scheduler/segment-size: '2', kai.scheduler/segment-topology-required-placement: rack";
    let torch = |notes: &str| {
        let policy = "runPolicy: {schedulingPolicy: {minAvailable: 3}},";
        group(&training("PyTorchJob", "pytorchReplicaSpecs", policy, &[("Worker", "5", notes)]))
    };
    assert_eq!(to_come(&torch(size)), "worker-1 2 | worker-2 1");
    assert_eq!(to_come(&torch("kai.scheduler/segment-size: '2'")), "", "they may go elsewhere");
}

#[test]
fn nested_segments_by_a_list() {
    let notes = "kai.scheduler/segment-size: '4,2', kai.scheduler/segment-topology-required-placement: 'block,rack'";
    let torch = |notes: &str| training("PyTorchJob", "pytorchReplicaSpecs", "", &[("Worker", "7", notes)]);
    check(
        &torch(notes),
        "min 7 | worker*2 | worker/worker-0*2 @-:block:- | worker-0/worker-0-0 2 @-:rack:- | worker-0/worker-0-1 2 @-:rack:- \
         | worker/worker-1*2 @-:block:- | worker-1/worker-1-0 2 @-:rack:- | worker-1/worker-1-1 1 @-:rack:-",
    );
    let all = members(&torch(notes));
    assert!(all.starts_with("t-worker-0=worker-0-0#0 t-worker-1=worker-0-0#1 t-worker-2=worker-0-1#2"), "{all}");
    assert!(all.ends_with("t-worker-4=worker-1-0#4 t-worker-5=worker-1-0#5 t-worker-6=worker-1-1#6"), "{all}");
    // Sizes that do not divide each other leave a short one in every wider segment.
    check(
        &torch("kai.scheduler/segment-size: '5, 3'"),
        "min 7 | worker*2 | worker/worker-0*2 | worker-0/worker-0-0 3 auto | worker-0/worker-0-1 2 auto | worker/worker-1*1 \
         | worker-1/worker-1-0 2 auto",
    );
    for (notes, problem) in [
        ("kai.scheduler/segment-size: '2,4'", "a list of sizes from 7 down to 2, each smaller than the last"),
        ("kai.scheduler/segment-size: '4,1'", "a list of sizes from 7 down to 2, each smaller than the last"),
        ("kai.scheduler/segment-size: '4,'", "a list of sizes from 7 down to 2, each smaller than the last"),
        ("kai.scheduler/segment-size: ',2'", "an integer from 2 to 7 (its replicas)"),
        (
            "kai.scheduler/segment-size: '4,2', kai.scheduler/segment-topology-required-placement: rack",
            "2 levels with commas between, one for each segment size",
        ),
    ] {
        let problems = problems(&group(&torch(notes)));
        assert!(problems.len() == 1 && problems[0].ends_with(problem), "{notes}: {problems:?}");
    }
}

fn job(annotations: &str, spec: &str, template: &str, labels: &str) -> String {
    format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{name: j, uid: u, annotations: {{{annotations}}}}}, spec: {{{spec},
           template: {{metadata: {{annotations: {{{template}}}, labels: {{{labels}}}}}, spec: SPEC}}}}}}"
    )
}

#[test]
fn segments_of_indexed_jobs() {
    let size = "kai.scheduler/segment-size: '2', kai.scheduler/segment-topology-required-placement: rack";
    let indexed = "completionMode: Indexed, parallelism: 5, completions: 5";
    let least = "kai.scheduler/batch-min-member: '3'";
    check(
        &job(least, indexed, size, ""),
        "min 3 | segment-0 2 @-:rack:- | segment-1 1 @-:rack:- | segment-2 0 @-:rack:-",
    );
    assert_eq!(
        members(&job("", indexed, size, "")),
        "j-0=segment-0#0 j-1=segment-0#1 j-2=segment-1#2 j-3=segment-1#3 j-4=segment-2#4"
    );
    // Without an index there is nothing to cut by, unless a label holds one.
    let plain = group(&job("", "parallelism: 4", size, ""));
    assert!(problems(&plain)[0].starts_with("SegmentsWithoutIndex Job/j: kai.scheduler/segment-size is \"2\""), "{plain:?}");
    let named = format!("{size}, kai.scheduler/pod-index-label: example.com/rank");
    let one = group(&job("", "parallelism: 4", &named, "example.com/rank: '3'"));
    assert_eq!((one.subgroup.as_deref(), one.index, problems(&one)), (Some("segment-1"), Some(3), Vec::new()));
    let missing = group(&job("", indexed, &named, ""));
    let expected = "Pod/j-0: example.com/rank is missing; allowed is an integer from 0 on";
    assert_eq!(missing.pod_problem.unwrap().to_string(), expected);
    let beyond = group(&job("", "parallelism: 4", &named, "example.com/rank: '4'"));
    assert!(beyond.pod_problem.unwrap().to_string().ends_with("allowed is an integer from 0 to 3, by the number of pods"));
}

#[test]
fn segments_of_sets() {
    let notes = "kai.scheduler/segment-size: '2'";
    let set = |kind: &str, spec: &str, notes: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: s}}, spec: {{{spec} replicas: 3, template:
               {{metadata: {{annotations: {{{notes}}}}}, spec: SPEC}}}}}}"
        )
    };
    check(&set("StatefulSet", "", notes), "min 1 | segment-0 1 auto | segment-1 0 auto");
    assert_eq!(members(&set("StatefulSet", "", notes)), "s-0=segment-0#0 s-1=segment-0#1 s-2=segment-1#2");
    assert_eq!(
        members(&set("StatefulSet", "ordinals: {start: 5},", notes)),
        "s-5=segment-0#0 s-6=segment-0#1 s-7=segment-1#2"
    );
    assert!(problems(&group(&set("ReplicaSet", "", notes)))[0].starts_with("SegmentsWithoutIndex ReplicaSet/s"));
}
