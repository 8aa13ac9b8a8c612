//! Each kind: name, owner, minimum, subgroups, members; and each bad value.

use super::*;

fn job(annotations: &str, spec: &str, template: &str) -> String {
    format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{name: j, uid: u, annotations: {{{annotations}}}}},
           spec: {{{spec}, template: {{metadata: {{annotations: {{{template}}}}}, spec: SPEC}}}}}}"
    )
}

#[test]
fn pods_of_their_own() {
    let group = group("{apiVersion: v1, kind: Pod, metadata: {name: p, uid: u, namespace: ns}}");
    assert_eq!(sketch(&group), "min 1");
    assert_eq!((group.name.as_str(), group.namespace.as_str()), ("pg-p-u", "ns"));
    assert_eq!(group.owner.display(), "Pod/p");
    assert_eq!(group.spec.priority_class_name.as_deref(), Some("train"));
    assert_eq!(group.spec.queue.as_deref(), Some("default-queue"));
    let top = "name: p\nuid: u\ngroup: \"\"\nversion: v1\nkind: Pod\n";
    assert_eq!(group.annotations["kai.scheduler/top-owner-metadata"], top);
    assert!(!group.is_gang());
}

#[test]
fn spark_is_one_group() {
    let yaml = "
{apiVersion: v1, kind: Pod, metadata: {name: driver, uid: d, labels: {spark-app-name: a, spark-app-selector: spark-1}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: exec-1, uid: e, labels: {spark-app-name: a, spark-app-selector: spark-1},
  ownerReferences: [{apiVersion: v1, kind: Pod, name: driver, uid: d, controller: true}]}}";
    for (pod, group) in groups(yaml) {
        assert_eq!((group.name.as_str(), group.owner.name.as_str()), ("spark-1", "driver"), "{pod}");
    }
}

#[test]
fn jobs() {
    check(&job("", "parallelism: 2", ""), "min 1");
    check(&job("kai.scheduler/batch-min-member: '2'", "parallelism: 2", ""), "min 2");
    // The owner counts first, the template where it says nothing.
    check(&job("", "parallelism: 3", "kai.scheduler/batch-min-member: '3'"), "min 3");
    let both = job("kai.scheduler/batch-min-member: '2'", "parallelism: 3", "kai.scheduler/batch-min-member: '3'");
    check(&both, "min 2");
    let group = group(&both);
    assert_eq!((group.name.as_str(), group.owner.display().as_str()), ("pg-j-u", "Job/j"));
    assert!(group.is_gang());
    let indexed = job("", "parallelism: 2, completions: 2, completionMode: Indexed", "");
    assert_eq!(members(&indexed), "j-0=-#0 j-1=-#1");
}

#[test]
fn last_pods_of_a_job_do_not_wait_for_more() {
    let job =
        "{apiVersion: batch/v1, kind: Job, metadata: {name: j, annotations: {kai.scheduler/batch-min-member: '4'}},
      spec: {completions: 5, parallelism: 4, template: {spec: SPEC}}, status: {succeeded: 4}}";
    check(job, "min 1");
}

#[test]
fn bad_minimum_of_a_job() {
    for value in ["two", "0", "-1", "", "2.5", "99999999999"] {
        let group = group(&job(&format!("kai.scheduler/batch-min-member: '{value}'"), "parallelism: 2", ""));
        let expected = format!(
            "InvalidMinMember Job/j: kai.scheduler/batch-min-member is \"{value}\"; allowed is an integer from 1 on"
        );
        assert_eq!(problems(&group), [expected]);
    }
    let group = group(&job("", "parallelism: 2", "kai.scheduler/batch-min-member: '3'"));
    assert_eq!(
        problems(&group),
        ["~InvalidMinMember Job/j, pod template: kai.scheduler/batch-min-member is \"3\"; allowed is at most 2, \
          as many as run at once by parallelism and completions"]
    );
    assert_eq!(sketch(&group), "min 3");
}

#[test]
fn cron_jobs_honour_the_minimum() {
    let cron = |own: &str, job: &str, template: &str| {
        format!(
            "{{apiVersion: batch/v1, kind: CronJob, metadata: {{name: c, uid: u, annotations: {{{own}}}}}, spec: {{jobTemplate:
               {{metadata: {{annotations: {{{job}}}}}, spec: {{parallelism: 4, template:
               {{metadata: {{annotations: {{{template}}}}}, spec: SPEC}}}}}}}}}}"
        )
    };
    let minimum = |n: i32| format!("kai.scheduler/batch-min-member: '{n}'");
    check(&cron("", "", ""), "min 1");
    check(&cron("", &minimum(2), ""), "min 2");
    check(&cron("", "", &minimum(3)), "min 3");
    check(&cron(&minimum(4), "", &minimum(3)), "min 4");
    check(&cron(&minimum(4), &minimum(2), &minimum(3)), "min 2");
    let group = group(&cron("", "", ""));
    assert_eq!((group.owner.display().as_str(), group.workload.display().as_str()), ("Job/c-0", "CronJob/c"));
    assert_eq!(group.name, format!("pg-c-0-{}", group.owner.uid));
}

#[test]
fn deployments_are_grouped_by_pod() {
    let yaml = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, uid: u, labels: {kai.scheduler/queue: q}},
      spec: {replicas: 2, template: {metadata: {annotations: {kai.scheduler/topology: t,
      kai.scheduler/topology-preferred-placement: rack}}, spec: SPEC}}}";
    let groups = groups(yaml);
    assert_eq!(groups.len(), 2);
    assert_ne!(groups[0].1.name, groups[1].1.name);
    for (pod, group) in groups {
        assert_eq!(sketch(&group), "min 1 @t:-:rack");
        assert_eq!((group.owner.kind.as_str(), &group.owner.name), ("Pod", &pod));
        assert_eq!(group.name, format!("pg-{pod}-{}", group.owner.uid));
        assert_eq!(group.workload.display(), "Deployment/d");
        assert_eq!(group.spec.queue.as_deref(), Some("q"));
        assert_eq!(group.spec.priority_class_name.as_deref(), Some("inference"));
    }
}

#[test]
fn sets_are_one_group() {
    for kind in ["ReplicaSet", "StatefulSet"] {
        let yaml = format!(
            "{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: s, uid: u}}, spec: {{replicas: 2, template: {{spec: SPEC}}}}}}"
        );
        check(&yaml, "min 1");
        assert_eq!(group(&yaml).name, "pg-s-u");
    }
    let yaml =
        "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {replicas: 2, template: {spec: SPEC}}}";
    assert_eq!(members(yaml), "s-0=-#0 s-1=-#1");
}

#[test]
fn unknown_kinds_are_grouped_by_the_top() {
    let pod = |name: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, uid: {name},
               ownerReferences: [{{apiVersion: x.io/v1, kind: Thing, name: t, uid: u}}]}}}}\n"
        )
    };
    let thing =
        "{apiVersion: x.io/v1, kind: Thing, metadata: {name: t, uid: u, annotations: {kai.scheduler/topology: t,
      kai.scheduler/topology-required-placement: zone}}}\n";
    check(&format!("{thing}{}{}", pod("a"), pod("b")), "min 1 @t:zone:-");
    assert_eq!(group(&format!("{thing}{}", pod("a"))).name, "pg-t-u");
    // Without the owner, its reference still says who belongs together.
    let group = group(&pod("a"));
    assert_eq!((group.name.as_str(), sketch(&group).as_str()), ("pg-t-u", "min 1"));
    assert!(group.unread_owner.unwrap().to_string().contains("Thing/t (x.io/v1)"));
}

/// A PyTorchJob: annotations of the job, its spec besides the replicas, masters, workers, annotations of the workers.
fn torch(job: &str, spec: &str, masters: &str, workers: &str, template: &str) -> String {
    format!(
        "{{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {{name: t, uid: u, annotations: {{{job}}}}}, spec: {{{spec}
           pytorchReplicaSpecs: {{Master: {{replicas: {masters}, template: {{spec: SPEC}}}},
           Worker: {{replicas: {workers}, template: {{metadata: {{annotations: {{{template}}}}}, spec: SPEC}}}}}}}}}}"
    )
}

#[test]
fn torch_without_segments() {
    check(&torch("", "", "1", "2", ""), "min 3 | master 1 | worker 2");
    check(&torch("", "elasticPolicy: {minReplicas: 1},", "1", "2", ""), "min 1 | master 1 | worker 0");
    let policy = "elasticPolicy: {minReplicas: 1}, runPolicy: {schedulingPolicy: {minAvailable: 2}},";
    check(&torch("", policy, "1", "2", ""), "min 2 | master 1 | worker 1");
    // A master alone is a gang of one.
    let alone =
        "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: t}, spec: {pytorchReplicaSpecs: {Master:
      {template: {spec: SPEC}}}}}";
    check(alone, "min 1 | master 1");
    assert_eq!(members(&torch("", "", "1", "2", "")), "t-master-0=master#0 t-worker-0=worker#1 t-worker-1=worker#2");
}

#[test]
fn torch_segments() {
    let size = |size: i32| format!("kai.scheduler/segment-size: '{size}'");
    let required = "kai.scheduler/segment-topology-required-placement: rack";
    let root = "kai.scheduler/topology: t, kai.scheduler/topology-required-placement: zone";
    check(
        &torch(root, "", "1", "4", &format!("{}, {required}", size(2))),
        "min 5 @t:zone:- | master 1 | worker*2 | worker/worker-0 2 @t:rack:- | worker/worker-1 2 @t:rack:-",
    );
    // The template's topology counts before the workload's, and the size may be on the workload.
    let own = format!("kai.scheduler/topology: s, {required}");
    check(
        &torch(&format!("{root}, {}", size(3)), "", "0", "4", &own),
        "min 4 @t:zone:- | worker*2 | worker/worker-0 3 @s:rack:- | worker/worker-1 1 @s:rack:-",
    );
    // A level without a topology is kept: a default one may be meant.
    check(
        &torch("", "", "0", "2", &format!("{}, {required}", size(2))),
        "min 2 | worker*1 | worker/worker-0 2 @-:rack:-",
    );
    let members = members(&torch("", "", "1", "5", &size(2)));
    let expected = "t-master-0=master#0 t-worker-0=worker-0#1 t-worker-1=worker-0#2 t-worker-2=worker-1#3 \
                    t-worker-3=worker-1#4 t-worker-4=worker-2#5";
    assert_eq!(members, expected);
}

#[test]
fn torch_elastic_segments_do_not_round_up() {
    let elastic = |least: i32, workers: &str, size: i32| {
        let spec = format!("elasticPolicy: {{minReplicas: {least}}},");
        torch("", &spec, "1", workers, &format!("kai.scheduler/segment-size: '{size}'"))
    };
    check(&elastic(6, "8", 4), "min 6 | master 1 | worker*2 | worker/worker-0 4 auto | worker/worker-1 1 auto");
    check(
        &elastic(5, "8", 2),
        "min 5 | master 1 | worker*4 | worker/worker-0 2 auto | worker/worker-1 2 auto | worker/worker-2 0 auto \
         | worker/worker-3 0 auto",
    );
}

#[test]
fn torch_prefers_the_lowest_level_on_its_own() {
    let yaml = torch("kai.scheduler/topology: t", "", "1", "2", "kai.scheduler/segment-size: '2'");
    assert_eq!(group(&yaml).auto_preferred_topology.as_deref(), Some("t"));
    check(&yaml, "min 3 @t:-:- | master 1 | worker*1 | worker/worker-0 2 auto");
}

#[test]
fn torch_templates_constrain_their_pods() {
    check(
        &torch("kai.scheduler/topology: t", "", "1", "2", "kai.scheduler/topology-required-placement: rack"),
        "min 3 @t:-:- | master 1 | worker 2 @t:rack:-",
    );
}

#[test]
fn bad_segment_sizes() {
    for value in ["0", "-1", "1", "four", "5", "", "2.0", "99999999999"] {
        let group = group(&torch("", "", "1", "4", &format!("kai.scheduler/segment-size: '{value}'")));
        let expected = format!(
            "InvalidSegmentSize PyTorchJob/t, Worker template: kai.scheduler/segment-size is \"{value}\"; allowed is an \
             integer from 2 to 4 (its replicas)"
        );
        assert_eq!(problems(&group), [expected]);
        assert_eq!(sketch(&group), "min 5");
    }
}

#[test]
fn bad_torch_minimum_and_leftovers() {
    for value in ["0", "-2", "9", "two"] {
        let group = group(&torch("", &format!("elasticPolicy: {{minReplicas: {value}}},"), "1", "2", ""));
        let [problem] = &problems(&group)[..] else { panic!("{group:?}") };
        assert!(problem.starts_with("InvalidMinMember PyTorchJob/t: spec.elasticPolicy.minReplicas is "), "{problem}");
        assert!(problem.ends_with("; allowed is an integer from 1 to 3"), "{problem}");
    }
    let labels = "training.kubeflow.org/replica-type: worker, training.kubeflow.org/replica-index: '7'";
    let yaml = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: old, labels: {{{labels}}},
           ownerReferences: [{{apiVersion: kubeflow.org/v1, kind: PyTorchJob, name: t, uid: u}}]}}}}\n---\n{}",
        torch("", "", "1", "2", "")
    );
    let group = group(&yaml);
    assert_eq!((group.subgroup, group.problems.len()), (None, 0));
    let expected = "Pod/old: training.kubeflow.org/replica-index is \"7\"; allowed is an integer from 0 to 1, by the \
                    replicas of the job";
    assert_eq!(group.pod_problem.unwrap().to_string(), expected);
}

/// A LeaderWorkerSet: annotations of the set, its spec besides the template, size and policy, annotations of the workers.
fn lws(set: &str, spec: &str, size: &str, template: &str) -> String {
    format!(
        "{{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {{name: l, uid: u, annotations: {{{set}}}}},
           spec: {{{spec} leaderWorkerTemplate: {{size: {size},
           workerTemplate: {{metadata: {{annotations: {{{template}}}}}, spec: SPEC}}}}}}}}"
    )
}

fn native(size: i32, policy: &str) -> String {
    format!("5, subGroupPolicy: {{subGroupSize: {size}, subGroupPolicyType: {policy}}}")
}

#[test]
fn leader_worker_sets() {
    check(&lws("", "", "3", ""), "min 3 | leader 1 | workers 2");
    check(&lws("", "", "1", ""), "min 1 | leader 1");
    let two = groups(&lws("", "replicas: 2,", "2", ""));
    let names: Vec<_> = two.iter().map(|(pod, group)| format!("{pod}:{}", group.name)).collect();
    assert_eq!(names, ["l-0:pg-l-u-group-0", "l-0-1:pg-l-u-group-0", "l-1:pg-l-u-group-1", "l-1-1:pg-l-u-group-1"]);
    assert_eq!(two[1].1.owner.display(), "LeaderWorkerSet/l");
    assert_eq!(members(&lws("", "", "3", "")), "l-0=leader#0 l-0-1=workers#1 l-0-2=workers#2");
    // One template: its rule is the gang's.
    let rule = "kai.scheduler/topology: t, kai.scheduler/topology-required-placement: zone";
    check(&lws("", "", "2", rule), "min 2 @t:zone:- | leader 1 | workers 1");
}

#[test]
fn leader_worker_segments() {
    let with_leader = lws("", "", &native(2, "LeaderWorker"), "");
    let in_segment = "segment-0*2 | segment-0/leader 1 | segment-0/workers";
    check(&with_leader, &format!("min 5 | {in_segment} 2 | segment-1 2"));
    assert_eq!(
        members(&with_leader),
        "l-0=leader#0 l-0-1=workers#1 l-0-2=workers#2 l-0-3=segment-1#3 l-0-4=segment-1#4"
    );
    let excluded = lws("", "", &native(2, "LeaderExcluded"), "");
    check(&excluded, "min 5 | leader 1 | segment-0 2 | segment-1 2");
    assert_eq!(
        members(&excluded),
        "l-0=leader#0 l-0-1=segment-0#1 l-0-2=segment-0#2 l-0-3=segment-1#3 l-0-4=segment-1#4"
    );
    // The annotation beats the native field; the template beats the set.
    let three = "kai.scheduler/segment-size: '3'";
    let rule = "kai.scheduler/segment-topology-required-placement: rack";
    check(
        &lws(
            "kai.scheduler/segment-size: '4', kai.scheduler/topology: t",
            "",
            &native(2, "LeaderWorker"),
            &format!("{three}, {rule}"),
        ),
        "min 5 @t:-:- | segment-0*2 @t:rack:- | segment-0/leader 1 | segment-0/workers 2 | segment-1 2 @t:rack:-",
    );
    assert_eq!(
        members(&lws(three, "", &native(2, "LeaderWorker"), "")),
        "l-0=leader#0 l-0-1=workers#1 l-0-2=workers#2 l-0-3=segment-1#3 l-0-4=segment-1#4"
    );
    check(&lws(three, "", "4", ""), &format!("min 4 | {in_segment} 3"));
}

#[test]
fn leader_ready_starts_with_the_leader() {
    let groups = groups(&lws("kai.scheduler/segment-size: '2'", "startupPolicy: LeaderReady,", "5", ""));
    let leader = "min 1 | segment-0*2 | segment-0/leader 1 | segment-0/workers 0 | segment-1 0";
    let all = "min 5 | segment-0*2 | segment-0/leader 1 | segment-0/workers 2 | segment-1 2";
    assert_eq!((sketch(&groups[0].1).as_str(), sketch(&groups[1].1).as_str()), (leader, all));
    assert!(groups[1].1.outranks(&groups[0].1));
    assert!(!groups[0].1.outranks(&groups[1].1));
    // The others need room where the leader goes; the template says which.
    assert_eq!((to_come(&groups[0].1), to_come(&groups[1].1)), ("segment-1 2! | workers 2!".to_owned(), String::new()));
    assert!(groups[0].1.awaited[0].template.as_ref().unwrap()["spec"]["containers"].is_array());
}

#[test]
fn exclusive_leader_worker_sets_start_with_the_leader() {
    let exclusive = "leaderworkerset.sigs.k8s.io/exclusive-topology: rack";
    let all = groups(&lws(exclusive, "", "3", ""));
    assert_eq!((sketch(&all[0].1).as_str(), to_come(&all[0].1)), ("min 1 | leader 1 | workers 0", "workers 2!".to_owned()));
    assert_eq!(sketch(&all[1].1), "min 3 | leader 1 | workers 2");
    // A named topology makes the domain a required level.
    let named = groups(&lws(&format!("{exclusive}, kai.scheduler/topology: t"), "", "3", ""));
    assert_eq!(sketch(&named[0].1), "min 1 @t:rack:- | leader 1 | workers 0");
}

#[test]
fn bad_leader_worker_sets() {
    let of = |yaml: &str| problems(&group(yaml)).join("; ");
    for value in ["0", "-1", "1", "two", "6"] {
        let problem = of(&lws(&format!("kai.scheduler/segment-size: '{value}'"), "", "5", ""));
        let expected = format!(
            "InvalidSegmentSize LeaderWorkerSet/l: kai.scheduler/segment-size is \"{value}\"; allowed is an integer from 2 to \
             5 (its replicas)"
        );
        assert_eq!(problem, expected);
    }
    for size in [0, -1, 1, 6] {
        let problem = of(&lws("", "", &native(size, "LeaderWorker"), ""));
        assert!(
            problem.contains(&format!("subGroupPolicy.subGroupSize is {size}; allowed is an integer from 2")),
            "{problem}"
        );
    }
    let problem = of(&lws("", "", &native(3, "LeaderExcluded"), ""));
    assert!(
        problem.ends_with("subGroupSize is 3; allowed is a divisor of 4, the workers without their leader"),
        "{problem}"
    );
    let problem = of(&lws("", "", &native(2, "LeaderFirst"), ""));
    assert!(problem.starts_with("InvalidPolicy"), "{problem}");
}
