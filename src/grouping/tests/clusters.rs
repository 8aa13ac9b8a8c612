//! Kinds with several templates: Ray, JobSet, TrainJob; and Notebooks.

use super::*;

fn ray(kind: &str, field: &str, metadata: &str, groups: &str) -> String {
    format!(
        "{{apiVersion: ray.io/v1, kind: {kind}, metadata: {{name: r, uid: u{metadata}}}, spec: {{{field}
           headGroupSpec: {{template: {{spec: SPEC}}}}, workerGroupSpecs: [{groups}]}}}}"
    )
}

fn worker(name: &str, counts: &str, notes: &str) -> String {
    format!("{{groupName: {name}, {counts}, template: {{metadata: {{annotations: {{{notes}}}}}, spec: SPEC}}}}")
}

#[test]
fn ray_clusters_start_with_the_minimum_of_each_group() {
    let cluster = |groups: &str| ray("RayCluster", "", "", groups);
    let gpu = worker("gpu", "replicas: 3, minReplicas: 1", "");
    let cpu = worker("cpu", "replicas: 2", "");
    check(&cluster(&format!("{gpu}, {cpu}")), "min 4 | headgroup 1 | gpu 1 | cpu 2");
    assert_eq!(
        members(&cluster(&format!("{gpu}, {cpu}"))),
        "r-head=headgroup#0 r-gpu-worker-0=gpu#1 r-gpu-worker-1=gpu#2 r-gpu-worker-2=gpu#3 r-cpu-worker-0=cpu#4 \
         r-cpu-worker-1=cpu#5"
    );
    let suspended = worker("off", "suspend: true, replicas: 2", "");
    let none = worker("none", "replicas: 0, minReplicas: 0", "");
    let hosts = worker("tpu", "replicas: 2, minReplicas: 1, numOfHosts: 4", "");
    check(&cluster(&format!("{suspended}, {none}, {hosts}")), "min 5 | headgroup 1 | tpu 4");
    let nameless = "{replicas: 1, template: {spec: SPEC}}";
    check(&cluster(nameless), "min 2 | headgroup 1 | worker-group-0 1");
    let rule = "kai.scheduler/topology: t, kai.scheduler/topology-required-placement: rack";
    check(&cluster(&worker("gpu", "replicas: 2", rule)), "min 3 | headgroup 1 | gpu 2 @t:rack:-");
    let cut = "kai.scheduler/segment-size: '2'";
    check(
        &cluster(&worker("tpu", "replicas: 2, numOfHosts: 2", cut)),
        "min 5 | headgroup 1 | tpu*2 | tpu/tpu-0 2 auto | tpu/tpu-1 2 auto",
    );
    let expansion = expand(&objects(&cluster(&worker("gpu", "replicas: 1, minReplicas: 2", ""))));
    assert_eq!(
        expansion.problems[0].to_string(),
        "RayCluster/r: spec.workerGroupSpecs.0.minReplicas: is 2; allowed is an integer from 0 to 1"
    );
}

#[test]
fn ray_jobs_and_services_are_grouped_by_their_cluster() {
    for (kind, field) in [("RayJob", "rayClusterSpec"), ("RayService", "rayClusterConfig")] {
        let yaml = format!(
            "{{apiVersion: ray.io/v1, kind: {kind}, metadata: {{name: r, uid: u, labels: {{ray.io/priority-class-name: build}}}},
               spec: {{{field}: {{headGroupSpec: {{template: {{spec: SPEC}}}}, workerGroupSpecs: [{}]}}}}}}",
            worker("gpu", "replicas: 2", "")
        );
        check(&yaml, "min 3 | headgroup 1 | gpu 2");
        let group = group(&yaml);
        assert_eq!((group.name.as_str(), group.spec.priority_class_name.as_deref()), ("pg-r-u", Some("build")));
        assert_eq!(group.workload.display(), format!("{kind}/r"));
    }
    let submitter = "{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: r, uid: u}, spec: {clusterSelector: {a: b}}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: r-x, uid: j, ownerReferences: [{apiVersion: ray.io/v1, kind: RayJob, name: r,
  uid: u, controller: true}]}, spec: {parallelism: 0, template: {spec: SPEC}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: r-x, uid: j}]}}";
    let group = group(submitter);
    assert_eq!((group.name.as_str(), sketch(&group).as_str()), ("pg-r-x-j", "min 1"));
    let template = "submitterPodTemplate: {spec: SPEC}, rayClusterSpec: {headGroupSpec: {template: {spec: SPEC}}}";
    let job = |spec: &str| format!("{{apiVersion: ray.io/v1, kind: RayJob, metadata: {{name: r, uid: u}}, spec: {{{spec}{template}}}}}");
    let all = groups(&job(""));
    let names: Vec<_> = all.iter().map(|(pod, group)| format!("{pod} {}", group.name.split('-').nth(1).unwrap())).collect();
    assert_eq!(names, ["r-raycluster-head r", "r-0 r"]);
    assert_ne!(all[0].1.name, all[1].1.name);
    assert_eq!(groups(&job("submissionMode: HTTPMode, ")).len(), 1);
}

#[test]
fn ray_class_must_exist_and_groups_must_match() {
    let yaml = ray("RayCluster", "", ", labels: {ray.io/priority-class-name: nope}", &worker("gpu", "replicas: 1", ""));
    let all = groups(&yaml);
    let warning = "~UnknownPriorityClass RayCluster/r: ray.io/priority-class-name is \"nope\"; allowed is the name of a \
                   PriorityClass that exists";
    assert_eq!(problems(&all[0].1), [warning]);
    let pod = format!(
        "{yaml}\n---\n{{apiVersion: v1, kind: Pod, metadata: {{name: p, labels: {{ray.io/group: old}},
           ownerReferences: [{{apiVersion: ray.io/v1, kind: RayCluster, name: r, uid: u}}]}}}}"
    );
    let all = groups(&pod);
    let problem = all[0].1.pod_problem.as_ref().unwrap().to_string();
    assert_eq!(problem, "Pod/p: ray.io/group is \"old\"; allowed is headgroup or gpu");
}

#[test]
fn notebooks() {
    let yaml = "{apiVersion: kubeflow.org/v1beta1, kind: Notebook, metadata: {name: nb, uid: u}, spec: {template: {spec: SPEC}}}";
    check(yaml, "min 1");
    let group = group(yaml);
    assert_eq!((group.name.as_str(), group.spec.priority_class_name.as_deref()), ("pg-nb-u", Some("build")));
    assert_eq!(members(yaml), "nb-0=-#0");
    let stopped = "{apiVersion: kubeflow.org/v1, kind: Notebook, metadata: {name: nb, annotations: {kubeflow-resource-stopped: x}},
      spec: {template: {spec: SPEC}}}";
    assert_eq!(members(stopped), "");
}

/// A JobSet: its annotations, its spec besides the jobs, and the jobs.
fn job_set(annotations: &str, spec: &str, jobs: &[(&str, &str, &str, &str)]) -> String {
    let jobs: Vec<_> = jobs
        .iter()
        .map(|(name, replicas, job, notes)| {
            format!(
                "{{name: {name}, replicas: {replicas}, template: {{metadata: {{annotations: {{{notes}}}}},
                   spec: {{{job}, template: {{spec: SPEC}}}}}}}}"
            )
        })
        .collect();
    format!(
        "{{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {{name: s, uid: u, annotations: {{{annotations}}}}},
           spec: {{{spec} replicatedJobs: [{}]}}}}",
        jobs.join(", ")
    )
}

const TWO: [(&str, &str, &str, &str); 2] =
    [("driver", "1", "parallelism: 1, completions: 1", ""), ("workers", "2", "parallelism: 2, completions: 2", "")];

#[test]
fn job_sets() {
    let expected = "| driver*1 | driver/driver-replica-0 1 | workers*2 | workers/workers-replica-0 2 \
                    | workers/workers-replica-1 2";
    check(&job_set("", "", &TWO), &format!("min*2 {expected}"));
    check(&job_set("kai.scheduler/batch-min-member: '1'", "", &TWO), &format!("min*1 {expected}"));
    check(&job_set("kai.scheduler/batch-min-member: '9'", "", &TWO), &format!("min*2 {expected}"));
    let group = group(&job_set("", "", &TWO));
    assert_eq!((group.name.as_str(), group.owner.display().as_str()), ("pg-s-u", "JobSet/s"));
    assert!(group.is_gang());
    assert_eq!(
        members(&job_set("", "", &TWO)),
        "s-driver-0-0=driver-replica-0#0 s-workers-0-0=workers-replica-0#1 s-workers-0-1=workers-replica-0#2 \
         s-workers-1-0=workers-replica-1#3 s-workers-1-1=workers-replica-1#4"
    );
    // Only the first replicated job is there at first.
    assert_eq!(members(&job_set("", "startupPolicy: {startupPolicyOrder: InOrder},", &TWO)), "s-driver-0-0=driver-replica-0#0");
    let notes = "kai.scheduler/batch-min-member: '2', kai.scheduler/topology: t, kai.scheduler/topology-required-placement: rack";
    check(
        &job_set("", "", &[("w", "1", "parallelism: 4, completions: 4", notes)]),
        "min*1 | w*1 | w/w-replica-0 2 @t:rack:-",
    );
    let cut = "kai.scheduler/segment-size: '2'";
    let segments = job_set("", "", &[("w", "1", "parallelism: 3, completions: 3", cut)]);
    check(
        &segments,
        "min*1 | w*1 | w/w-replica-0*2 | w-replica-0/w-replica-0-0 2 auto | w-replica-0/w-replica-0-1 1 auto",
    );
    assert_eq!(members(&segments), "s-w-0-0=w-replica-0-0#0 s-w-0-1=w-replica-0-0#1 s-w-0-2=w-replica-0-1#2");
    let labels = &expanded(&job_set("", "", &TWO)).pods[3]["metadata"]["labels"];
    assert_eq!(
        (&labels["jobset.sigs.k8s.io/job-index"], &labels["jobset.sigs.k8s.io/job-global-index"]),
        (&Value::from("1"), &Value::from("2"))
    );
}

/// What one pod of each replicated job says: the leaves' minimums, and what is to come.
fn steps(spec: &str) -> Vec<(Group, String)> {
    let mut yaml = format!("{{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {{name: s, uid: u}}, spec: {spec}}}");
    for job in ["a", "b", "c"] {
        yaml += &format!(
            "\n---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {job}, labels: {{jobset.sigs.k8s.io/replicatedjob-name: {job},
               jobset.sigs.k8s.io/job-index: '0'}}, ownerReferences: [{{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, name: s,
               uid: u, controller: true}}]}}, spec: SPEC}}"
        );
    }
    let said = |(_, group): (String, Group)| {
        assert_eq!((problems(&group), group.spec.min_sub_group), (Vec::new(), Some(3)));
        let leaves = group.spec.sub_groups.iter().filter_map(|leaf| leaf.min_member);
        let leaves: Vec<String> = leaves.map(|least| least.to_string()).collect();
        let text = format!("{} {}", leaves.join(","), to_come(&group));
        (group, text.trim_end().to_owned())
    };
    // The given ones come before those that are made up.
    groups(&yaml).into_iter().take(3).map(said).collect()
}

fn job_of(name: &str, n_pods: u32, after: &str) -> String {
    let spec = format!("{{parallelism: {n_pods}, completions: {n_pods}, template: {{spec: SPEC}}}}");
    format!("{{name: {name}, template: {{spec: {spec}}}{after}}}")
}

#[test]
fn job_sets_in_order_ask_for_what_is_there() {
    let jobs = |a: &str, b: &str, c: &str| format!("replicatedJobs: [{}, {}, {}]", job_of("a", 4, a), job_of("b", 2, b), job_of("c", 3, c));
    let check = |spec: String, expected: [&str; 3]| {
        let steps = steps(&format!("{{{spec}}}"));
        assert_eq!(steps.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), expected, "{spec}");
        steps
    };
    let in_order = format!("startupPolicy: {{startupPolicyOrder: InOrder}}, {}", jobs("", "", ""));
    let next = ["4,0,0 b-replica-0 2! | c-replica-0 3!", "0,2,0 c-replica-0 3!", "0,0,3"];
    let steps = check(in_order, next);
    // Whoever comes later knows more, although it asks for less.
    assert!(steps[1].0.outranks(&steps[0].0) && steps[2].0.outranks(&steps[1].0) && !steps[0].0.outranks(&steps[2].0));
    let ready = |name: &str| format!(", dependsOn: [{{name: {name}, status: Ready}}]");
    let complete = |name: &str| format!(", dependsOn: [{{name: {name}, status: Complete}}]");
    check(jobs("", &ready("a"), &ready("b")), next);
    // What comes after an end needs no room beside it; c comes beside b, which needs none before a has ended.
    check(jobs("", &complete("a"), &ready("b")), ["4,0,0", "0,2,0 c-replica-0 3!", "0,0,3"]);
    check(jobs("", &ready("a"), &complete("a")), ["4,0,0 b-replica-0 2!", "0,2,0", "0,2,3"]);
    check(jobs("", "", &complete("a")), ["4,2,0", "4,2,0", "0,2,3"]);
    // Names that do not come before are not waited for.
    check(jobs("", &ready("c"), &ready("nobody")), ["4,2,3", "4,2,3", "4,2,3"]);
}

#[test]
fn exclusive_job_sets_start_with_their_leaders() {
    let set = job_set(
        "alpha.jobset.sigs.k8s.io/exclusive-topology: rack",
        "",
        &[("w", "2", "parallelism: 2, completions: 2", "")],
    );
    let all = groups(&set);
    let leader = "min*1 | w*2 | w/w-replica-0 1 @-:rack:- | w/w-replica-1 1 @-:rack:-";
    let follower = leader.replace(" 1 @", " 2 @");
    assert_eq!((sketch(&all[0].1).as_str(), sketch(&all[1].1)), (leader, follower));
    assert!(all[1].1.outranks(&all[0].1));
    assert_eq!((to_come(&all[0].1), to_come(&all[1].1)), ("w-replica-0 2! | w-replica-1 2!".to_owned(), String::new()));
    let selectors = job_set(
        "alpha.jobset.sigs.k8s.io/exclusive-topology: rack, alpha.jobset.sigs.k8s.io/node-selector: 'true'",
        "",
        &[("w", "1", "parallelism: 2, completions: 2", "")],
    );
    check(&selectors, "min*1 | w*1 | w/w-replica-0 2 @-:rack:-");
}

#[test]
fn bad_job_sets() {
    let of = |set: &str, job: &str| {
        let expansion = expand(&objects(&job_set(set, "", &[("w", "1", "parallelism: 2", job)])));
        expansion.problems.first().map(ToString::to_string)
    };
    let word = "kai.scheduler/batch-min-member: none";
    let expected = "JobSet/s, replicated job w: kai.scheduler/batch-min-member: is \"none\"; allowed is an integer from 1 on";
    assert_eq!(of("", word).as_deref(), Some(expected));
    let group = group(&job_set(word, "", &TWO));
    let expected = "InvalidMinMember JobSet/s: kai.scheduler/batch-min-member is \"none\"; allowed is an integer from 1 on";
    assert_eq!(problems(&group), [expected]);
    let huge = expand(&objects(&job_set("", "", &[("w", "2000000000", "parallelism: 2", "")])));
    let expected = "JobSet/s: spec.replicatedJobs: is 2000000000 Jobs and segments; allowed is at most 10000 of them";
    assert_eq!(huge.problems[0].to_string(), expected);
    let none = expand(&objects(&job_set("", "", &[])));
    assert_eq!(none.problems[0].to_string(), "JobSet/s: spec.replicatedJobs: there is no replicated job");
}

#[test]
fn train_jobs_are_their_job_set() {
    let train = "
{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: t, uid: u, labels: {kai.scheduler/queue: q},
  annotations: {kai.scheduler/topology: top, kai.scheduler/topology-required-placement: zone}},
  spec: {runtimeRef: {name: torch}, trainer: {numNodes: 4, resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}}}
---
{apiVersion: trainer.kubeflow.org/v1alpha1, kind: ClusterTrainingRuntime, metadata: {name: torch}, spec: {mlPolicy: {numNodes: 1},
  template: {spec: {replicatedJobs: [{name: node, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step:
  trainer}, annotations: {kai.scheduler/segment-size: '2'}}, spec: {template: {spec: {containers: [{name: node, image: x}]}}}}}]}}}}";
    check(
        train,
        "min*1 @top:zone:- | node*1 | node/node-replica-0*2 | node-replica-0/node-replica-0-0 2 auto \
         | node-replica-0/node-replica-0-1 2 auto",
    );
    let (pod, group) = groups(train).remove(2);
    assert_eq!((pod.as_str(), group.subgroup.as_deref()), ("t-node-0-2", Some("node-replica-0-1")));
    assert_eq!((group.owner.display().as_str(), group.workload.display().as_str()), ("JobSet/t", "TrainJob/t"));
    assert_eq!(group.spec.queue.as_deref(), Some("q"));
    let gpus = &expanded(train).pods[0]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"];
    assert_eq!(gpus, 8);
    let alone = expand(&objects(train.split("---").next().unwrap()));
    assert_eq!(
        alone.problems[0].to_string(),
        "TrainJob/t: spec.runtimeRef.name: ClusterTrainingRuntime/torch is not among the objects, so its pods are not known"
    );
}
