//! The store without a client: changes in, effects out.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use berth_engine::facts::{Event, GangFacts, PodFacts, ProblemCode};
use berth_engine::policy::Objective;
use serde_json::{Value, json};

use super::directory::SharedDirectory;
use super::store::{Store, base_kinds};
use super::{Change, Effect, Gvk, Unreadable};
use crate::grouping::ObjectId;

mod many;
mod pools;

fn store() -> Store {
    Store::new("kai-scheduler", SharedDirectory::default())
}

fn job_kind() -> Gvk {
    Gvk::new("batch", "v1", "Job")
}

fn pod_kind() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

fn pod(name: &str, node: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"),
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-1", "controller": true}],
        },
        "spec": {
            "schedulerName": "kai-scheduler", "nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}],
        },
    })
}

fn job(min: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "train", "namespace": "ns", "uid": "job-1",
            "annotations": {"kai.scheduler/batch-min-member": min},
        },
        "spec": {"parallelism": 2},
    })
}

fn apply(store: &mut Store, gvk: Gvk, object: Value) -> Vec<Effect> {
    store.apply(Change::Applied(gvk, Box::new(object)), 1_000)
}

fn end_lists(store: &mut Store) -> Vec<Effect> {
    base_kinds().into_iter().flat_map(|gvk| store.apply(Change::ListEnded(gvk), 1_000)).collect()
}

fn gangs(effects: &[Effect]) -> Vec<&GangFacts> {
    let mut found = Vec::new();
    for effect in effects {
        if let Effect::Engine(Event::GangUpsert(facts)) = effect {
            found.push(facts);
        }
    }
    found
}

fn pods(effects: &[Effect]) -> Vec<&PodFacts> {
    let mut found = Vec::new();
    for effect in effects {
        if let Effect::Engine(Event::PodUpsert(facts)) = effect {
            found.push(facts);
        }
    }
    found
}

fn creations(effects: &[Effect]) -> Vec<&Value> {
    let mut found = Vec::new();
    for effect in effects {
        if let Effect::CreatePodGroup(_, object) = effect {
            found.push(&**object);
        }
    }
    found
}

#[test]
fn a_pod_waits_for_its_owner_and_is_told_after_its_gang() {
    let mut store = store();
    end_lists(&mut store);
    let effects = apply(&mut store, pod_kind(), pod("a", None));
    assert_eq!(effects, [Effect::Watch(job_kind())]);
    assert!(apply(&mut store, pod_kind(), pod("b", None)).is_empty(), "the kind is asked for once");
    store.apply(Change::ListStarted(job_kind()), 1_000);
    let effects = store.apply(Change::Listed(job_kind(), Box::new(job("2"))), 1_000);
    assert_eq!(gangs(&effects).len(), 1);
    assert_eq!(gangs(&effects)[0].min_member, Some(2));
    assert_eq!(pods(&effects).len(), 2);
    assert_eq!(pods(&effects)[0].gang.as_deref(), Some("pg-train-job-1"));
    assert_eq!(creations(&effects).len(), 1, "one PodGroup for both");
    let gang = effects.iter().position(|effect| matches!(effect, Effect::Engine(Event::GangUpsert(_))));
    let first_pod = effects.iter().position(|effect| matches!(effect, Effect::Engine(Event::PodUpsert(_))));
    assert!(gang < first_pod);
}

#[test]
fn synced_is_said_once_and_only_when_owners_are_listed_too() {
    let synced = |effects: &[Effect]| effects.contains(&Effect::Engine(Event::Synced));
    let mut store = store();
    apply(&mut store, pod_kind(), pod("a", None));
    assert!(!synced(&end_lists(&mut store)));
    assert!(synced(&store.apply(Change::ListEnded(job_kind()), 1_000)));
    assert!(!synced(&store.apply(Change::ListEnded(job_kind()), 1_000)));
}

#[test]
fn owners_of_an_absent_kind_end_the_walk() {
    let mut store = store();
    end_lists(&mut store);
    apply(&mut store, pod_kind(), pod("a", None));
    let effects = store.apply(Change::Absent(job_kind()), 1_000);
    assert_eq!(pods(&effects).len(), 1);
    assert!(pods(&effects)[0].gang.is_some());
}

#[test]
fn an_owner_that_never_comes_is_given_up() {
    let mut store = store();
    end_lists(&mut store);
    apply(&mut store, pod_kind(), pod("a", None));
    store.apply(Change::ListEnded(job_kind()), 1_000);
    assert!(pods(&store.apply(Change::Tick, 2_000)).is_empty());
    assert_eq!(pods(&store.apply(Change::Tick, 60_000)).len(), 1);
}

#[test]
fn fields_of_people_are_kept_and_nothing_equal_is_written() {
    let mut store = store();
    end_lists(&mut store);
    store.apply(Change::ListStarted(job_kind()), 1_000);
    store.apply(Change::Listed(job_kind(), Box::new(job("2"))), 1_000);
    store.apply(Change::ListEnded(job_kind()), 1_000);
    let effects = apply(&mut store, pod_kind(), pod("a", None));
    let mut object = creations(&effects)[0].clone();
    object["metadata"]["uid"] = json!("pg-1");
    object["spec"]["queue"] = json!("team-b");
    object["spec"]["markUnschedulable"] = json!(false);
    let kind = Gvk::new("scheduling.run.ai", "v2alpha2", "PodGroup");
    let effects = apply(&mut store, kind, object);
    assert_eq!(gangs(&effects)[0].queue, "team-b");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::PatchPodGroup(..))), "{effects:?}");
    let effects = apply(&mut store, job_kind(), job("3"));
    let patch = effects.iter().find_map(|effect| match effect {
        Effect::PatchPodGroup(_, patch) => Some(patch),
        _ => None,
    });
    let patch = patch.unwrap();
    assert_eq!((&patch["spec"]["minMember"], &patch["metadata"]["uid"]), (&json!(3), &json!("pg-1")));
    assert!(patch["spec"]["queue"].is_null() && patch["spec"]["markUnschedulable"].is_null());
}

#[test]
fn what_a_new_list_lacks_is_gone() {
    let mut store = store();
    apply(&mut store, pod_kind(), pod("a", Some("n1")));
    store.apply(Change::ListStarted(pod_kind()), 1_000);
    let effects = store.apply(Change::ListEnded(pod_kind()), 1_000);
    assert!(effects.contains(&Effect::Engine(Event::PodDelete("uid-a".to_owned()))));
}

#[test]
fn a_bad_object_is_named_once_and_stops_nothing() {
    let mut store = store();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u"}});
    let kind = Gvk::new("", "v1", "Node");
    let effects = apply(&mut store, kind.clone(), node.clone());
    assert!(matches!(&effects[..], [Effect::Skipped { .. }]), "{effects:?}");
    assert!(apply(&mut store, kind.clone(), node).is_empty());
    let wrong = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u2"}, "spec": 7});
    assert!(matches!(&apply(&mut store, kind, wrong)[..], [Effect::Skipped { .. }]));
}

#[test]
fn pods_of_others_only_hold_room() {
    let mut store = store();
    let mut other = pod("a", None);
    other["spec"]["schedulerName"] = json!("default-scheduler");
    assert!(apply(&mut store, pod_kind(), other.clone()).is_empty());
    other["status"]["nominatedNodeName"] = json!("n1");
    assert_eq!(pods(&apply(&mut store, pod_kind(), other.clone()))[0].nominated.as_deref(), Some("n1"));
    other["status"]["nominatedNodeName"] = json!("");
    assert_eq!(apply(&mut store, pod_kind(), other.clone()), [Effect::Engine(Event::PodDelete("uid-a".to_owned()))]);
    assert!(apply(&mut store, pod_kind(), other.clone()).is_empty());
    other["spec"]["nodeName"] = json!("n1");
    let effects = apply(&mut store, pod_kind(), other);
    assert!(!pods(&effects)[0].ours && pods(&effects)[0].gang.is_none());
}

#[test]
fn a_deleted_pod_group_of_a_workload_is_made_again() {
    let mut store = store();
    end_lists(&mut store);
    store.apply(Change::ListStarted(job_kind()), 1_000);
    store.apply(Change::Listed(job_kind(), Box::new(job("2"))), 1_000);
    store.apply(Change::ListEnded(job_kind()), 1_000);
    let effects = apply(&mut store, pod_kind(), pod("a", None));
    let mut object = creations(&effects)[0].clone();
    object["metadata"]["uid"] = json!("pg-1");
    let kind = Gvk::new("scheduling.run.ai", "v2alpha2", "PodGroup");
    apply(&mut store, kind.clone(), object.clone());
    let effects = store.apply(Change::Deleted(kind, Box::new(object)), 2_000);
    assert_eq!(creations(&effects).len(), 1);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Engine(Event::GangDelete(_)))));
}

/// The store after a Job with these annotations, its pod and the PodGroup that was asked for, as changed.
fn with_pod_group(annotations: &Value, change: impl Fn(&mut Value)) -> (Store, Value) {
    let mut store = store();
    end_lists(&mut store);
    let mut job = job("2");
    for (key, value) in annotations.as_object().unwrap() {
        job["metadata"]["annotations"][key] = value.clone();
    }
    store.apply(Change::ListStarted(job_kind()), 1_000);
    store.apply(Change::Listed(job_kind(), Box::new(job)), 1_000);
    store.apply(Change::ListEnded(job_kind()), 1_000);
    let effects = apply(&mut store, pod_kind(), pod("a", None));
    let mut object = creations(&effects)[0].clone();
    object["metadata"]["uid"] = json!("pg-1");
    change(&mut object);
    apply(&mut store, Gvk::new("scheduling.run.ai", "v2alpha2", "PodGroup"), object.clone());
    (store, object)
}

fn patch(effects: &[Effect]) -> Option<&Value> {
    effects.iter().find_map(|effect| match effect {
        Effect::PatchPodGroup(_, patch) => Some(&**patch),
        _ => None,
    })
}

#[test]
fn a_constraint_goes_with_its_annotation_unless_a_person_wrote_it() {
    let rule = json!({"kai.scheduler/topology": "t", "kai.scheduler/topology-required-placement": "rack"});
    let (mut store, object) = with_pod_group(&rule, |_| {});
    assert_eq!(object["spec"]["topologyConstraint"]["requiredTopologyLevel"], "rack");
    let effects = apply(&mut store, job_kind(), job("2"));
    assert_eq!(gangs(&effects)[0].constraint, berth_engine::facts::ConstraintFacts::default());
    let patch_of_it = patch(&effects).unwrap();
    assert!(patch_of_it["spec"]["topologyConstraint"].is_null() && patch_of_it["spec"].get("topologyConstraint").is_some());
    assert!(patch_of_it["metadata"]["annotations"].get("kai.scheduler/topology").is_some_and(Value::is_null));
    // Hand-written: it stays, through any edit of the workload, as queue and backoff do.
    let (mut store, _) = with_pod_group(&json!({}), |object| {
        object["spec"]["topologyConstraint"] = json!({"topology": "t", "requiredTopologyLevel": "zone"});
        object["spec"]["queue"] = json!("team-b");
        object["spec"]["schedulingBackoff"] = json!(1);
    });
    let effects = apply(&mut store, job_kind(), job("3"));
    assert_eq!(gangs(&effects)[0].constraint.required.as_deref(), Some("zone"));
    let spec = &patch(&effects).unwrap()["spec"];
    assert_eq!(spec, &json!({"minMember": 3}));
}

#[test]
fn an_objective_goes_with_its_annotation_unless_a_person_wrote_it() {
    let key = "berth.scheduler/objective";
    let (mut store, object) = with_pod_group(&json!({key: "compact"}), |_| {});
    assert_eq!(object["metadata"]["annotations"][key], "compact");
    let kept = gangs(&apply(&mut store, job_kind(), {
        let mut job = job("3");
        job["spec"]["template"]["metadata"] = json!({"annotations": {key: "compact"}});
        job
    }))[0].clone();
    assert_eq!((kept.objective, kept.problems.len()), (Some(Objective::Compact), 0));
    let effects = apply(&mut store, job_kind(), job("2"));
    assert_eq!(gangs(&effects)[0].objective, None);
    assert!(patch(&effects).unwrap()["metadata"]["annotations"].get(key).is_some_and(Value::is_null));
    // Hand-written: it stays, and the workload's own goes before it.
    let (mut store, _) = with_pod_group(&json!({}), |object| object["metadata"]["annotations"][key] = json!("compact"));
    let effects = apply(&mut store, job_kind(), job("3"));
    assert_eq!(gangs(&effects)[0].objective, Some(Objective::Compact));
    assert!(patch(&effects).unwrap()["metadata"]["annotations"].get(key).is_none());
    let mut wrong = job("3");
    wrong["metadata"]["annotations"][key] = json!("tight");
    let effects = apply(&mut store, job_kind(), wrong);
    let problem = &gangs(&effects)[0].problems[0];
    assert_eq!((problem.object.as_str(), problem.key.as_str(), problem.value.as_str()), ("Job/train", key, "tight"));
    assert_eq!(problem.allowed, "kai or compact");
}

#[test]
fn limits_on_domains_go_with_their_annotation_unless_a_person_wrote_them() {
    let key = "berth.scheduler/max-domains";
    let limits = |effects: &[Effect]| {
        let all = gangs(effects)[0].limits.iter().map(|limit| format!("{}={}", limit.level, limit.most));
        all.collect::<Vec<_>>().join(" ")
    };
    let (mut store, object) = with_pod_group(&json!({key: "zone=1, rack=4"}), |_| {});
    assert_eq!(object["metadata"]["annotations"]["berth.scheduler/derived-max-domains"], "true");
    let mut job_with = job("3");
    job_with["metadata"]["annotations"][key] = json!("zone=1, rack=4");
    assert_eq!(limits(&apply(&mut store, job_kind(), job_with)), "zone=1 rack=4");
    let effects = apply(&mut store, job_kind(), job("2"));
    assert_eq!(limits(&effects), "");
    assert!(patch(&effects).unwrap()["metadata"]["annotations"].get(key).is_some_and(Value::is_null));
    // Hand-written: they stay, and the workload's own go before them.
    let (mut store, _) = with_pod_group(&json!({}), |object| object["metadata"]["annotations"][key] = json!("rack=2"));
    let effects = apply(&mut store, job_kind(), job("3"));
    assert_eq!(limits(&effects), "rack=2");
    assert!(patch(&effects).unwrap()["metadata"]["annotations"].get(key).is_none());
    let mut wrong = job("3");
    wrong["metadata"]["annotations"][key] = json!("rack=0");
    let effects = apply(&mut store, job_kind(), wrong);
    let problem = &gangs(&effects)[0].problems[0];
    assert_eq!((problem.code.as_str(), problem.object.as_str(), problem.value.as_str()), ("InvalidMaxDomains", "Job/train", "rack=0"));
    assert!(problem.allowed.contains("block=1,rack=4"), "{}", problem.allowed);
}

#[test]
fn a_grouping_rule_counts_at_once() {
    let mut store = store();
    end_lists(&mut store);
    let thing = Gvk::new("x.io", "v1", "Thing");
    let mut pod = pod("a", None);
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "x.io/v1", "kind": "Thing", "name": "t", "uid": "t-1", "controller": true}]);
    apply(&mut store, pod_kind(), pod);
    let object = json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "ns", "uid": "t-1"},
        "spec": {"size": 4}});
    let effects = apply(&mut store, thing, object);
    assert_eq!(gangs(&effects)[0].min_member, Some(1));
    let rules = Gvk::new("berth.scheduler", "v1alpha1", "GroupingRule");
    let mut rule = json!({"apiVersion": "berth.scheduler/v1alpha1", "kind": "GroupingRule", "metadata": {"name": "r", "uid": "r-1"},
        "spec": {"group": "x.io", "kind": "Thing", "minimum": {"path": "spec.size"}}});
    let effects = apply(&mut store, rules.clone(), rule.clone());
    assert_eq!(gangs(&effects)[0].min_member, Some(4));
    rule["spec"]["minimum"]["path"] = json!("spec..size");
    let effects = apply(&mut store, rules, rule);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Skipped { .. })), "{effects:?}");
    assert_eq!(gangs(&effects)[0].min_member, Some(1));
}

#[test]
fn a_bound_pod_that_can_not_be_read_holds_room_all_the_same() {
    let mut store = store();
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "u1"},
        "status": {"allocatable": {"cpu": "8", "example.com/fpga": "2"}, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    apply(&mut store, Gvk::new("", "v1", "Node"), node);
    let mut said = |pod: &Value| {
        let effects = apply(&mut store, pod_kind(), pod.clone());
        let held = pods(&effects).first().map(|facts| (facts.node.clone(), facts.shape.requests.clone(), facts.phase));
        let named = effects.iter().filter(|effect| matches!(effect, Effect::Skipped { .. })).count();
        (held.unwrap(), named)
    };
    for scheduler in ["kai-scheduler", "default-scheduler"] {
        // A rule of a later API: what is requested is exact all the same.
        let mut pod = pod(&format!("rule-{scheduler}"), Some("n1"));
        pod["spec"]["schedulerName"] = json!(scheduler);
        pod["spec"]["tolerations"] = json!([{"key": "k", "operator": "NewInSomeVersion"}]);
        let ((node, requests, _), named) = said(&pod);
        assert_eq!((node.as_deref(), requests.get("nvidia.com/gpu"), named), (Some("n1"), Some(&1), 1));
        assert_eq!(said(&pod).1, 0, "named once");
        // An amount that nobody can read, and a pod that is none: the node counts as full.
        for broken in [json!({"requests": {"nvidia.com/gpu": "1e999"}}), json!("none")] {
            let mut pod = pod.clone();
            pod["metadata"]["uid"] = json!(format!("{scheduler}-{broken}"));
            pod["spec"]["containers"][0]["resources"] = broken;
            let ((node, requests, _), named) = said(&pod);
            assert_eq!((node.as_deref(), named), (Some("n1"), 1));
            assert!(["cpu", "memory", "example.com/fpga"].iter().all(|name| requests[*name] > 1 << 40), "{requests:?}");
            pod["status"]["phase"] = json!("Failed");
            assert_eq!(said(&pod).0.2, berth_engine::facts::PodPhase::Failed, "its end gives the room back");
        }
    }
}

#[test]
fn a_node_that_can_not_be_read_any_more_takes_no_pods() {
    let mut store = store();
    let kind = Gvk::new("", "v1", "Node");
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "u1"},
        "status": {"allocatable": {"cpu": "8"}},
    });
    apply(&mut store, kind.clone(), node.clone());
    node["status"]["allocatable"]["cpu"] = json!("many");
    let effects = apply(&mut store, kind, node);
    assert!(effects.contains(&Effect::Engine(Event::NodeDelete("u1".to_owned()))), "{effects:?}");
}

#[test]
fn the_value_of_a_priority_class_ends_with_it() {
    let mut store = store();
    end_lists(&mut store);
    let kind = Gvk::new("scheduling.k8s.io", "v1", "PriorityClass");
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent", "uid": "c"}, "value": 9000,
    });
    apply(&mut store, kind.clone(), class.clone());
    let group = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "ns", "uid": "g"}, "spec": {"minMember": 1, "priorityClassName": "urgent"},
    });
    let effects = apply(&mut store, Gvk::new("scheduling.run.ai", "v2alpha2", "PodGroup"), group);
    assert_eq!(gangs(&effects)[0].priority, 9000);
    let effects = store.apply(Change::Deleted(kind, Box::new(class)), 2_000);
    assert!(gangs(&effects)[0].priority < 9000);
}

#[test]
fn an_owner_whose_kind_may_not_be_watched_is_read_once() {
    let mut store = store();
    end_lists(&mut store);
    apply(&mut store, pod_kind(), pod("a", None));
    let fetches = |effects: &[Effect]| effects.iter().filter(|effect| matches!(effect, Effect::Fetch(_))).count();
    assert_eq!(fetches(&store.apply(Change::Forbidden(job_kind()), 1_000)), 1);
    assert_eq!(fetches(&apply(&mut store, pod_kind(), pod("b", None))), 0, "the second pod waits for the same read");
    let effects = apply(&mut store, job_kind(), job("2"));
    assert_eq!((gangs(&effects)[0].min_member, pods(&effects).len()), (Some(2), 2));
    let effects = apply(&mut store, pod_kind(), pod("c", None));
    assert_eq!((fetches(&effects), pods(&effects).len()), (0, 1), "the answer is kept");
}

fn job_id() -> ObjectId {
    ObjectId { kind: "Job".to_owned(), namespace: "ns".to_owned(), name: "train".to_owned(), ..ObjectId::of(&job("2")) }
}

/// The problem codes of the last gang that is told.
fn problems(effects: &[Effect]) -> Vec<&str> {
    gangs(effects).last().map(|gang| gang.problems.iter().map(|problem| problem.code.as_str()).collect()).unwrap_or_default()
}

#[test]
fn pods_of_an_owner_that_may_not_be_read_either_wait_and_say_so() {
    let mut store = store();
    end_lists(&mut store);
    apply(&mut store, pod_kind(), pod("a", None));
    store.apply(Change::Forbidden(job_kind()), 1_000);
    let effects = store.apply(Change::Unreadable(job_id(), Unreadable::Forbidden), 1_000);
    assert_eq!((pods(&effects).len(), problems(&effects)), (1, vec!["OwnerForbidden"]));
    let problem = &gangs(&effects)[0].problems[0];
    assert!(problem.key.contains("Job (batch)") && problem.object == "Job/train", "{problem:?}");
    assert!(creations(&effects).is_empty(), "too little is known to write it down: {effects:?}");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Skipped { .. })), "{effects:?}");
    // The PodGroup that somebody wrote who knew more is left alone.
    let object = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": "pg-train-job-1", "namespace": "ns", "uid": "pg"}, "spec": {"minMember": 2},
    });
    let effects = apply(&mut store, Gvk::new("scheduling.run.ai", "v2alpha2", "PodGroup"), object);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::PatchPodGroup(..))), "{effects:?}");
    // Asked again now and then; the answer frees the pods.
    let fetches = |effects: &[Effect]| effects.iter().filter(|effect| matches!(effect, Effect::Fetch(_))).count();
    assert_eq!(fetches(&store.apply(Change::Tick, 20_000)), 0);
    assert_eq!([fetches(&store.apply(Change::Tick, 40_000)), fetches(&store.apply(Change::Tick, 80_000))], [1, 0]);
    assert!(store.apply(Change::Unreadable(job_id(), Unreadable::Forbidden), 81_000).is_empty(), "nothing new");
    let effects = apply(&mut store, job_kind(), job("2"));
    assert_eq!((gangs(&effects)[0].min_member, problems(&effects)), (Some(2), Vec::new()));
}

#[test]
fn a_granted_permission_frees_the_pods() {
    let mut store = store();
    end_lists(&mut store);
    apply(&mut store, pod_kind(), pod("a", None));
    store.apply(Change::Forbidden(job_kind()), 1_000);
    store.apply(Change::Unreadable(job_id(), Unreadable::Forbidden), 1_000);
    store.apply(Change::ListStarted(job_kind()), 2_000);
    let effects = store.apply(Change::Listed(job_kind(), Box::new(job("2"))), 2_000);
    assert_eq!((gangs(&effects)[0].min_member, problems(&effects)), (Some(2), Vec::new()));
}

#[test]
fn an_owner_that_is_gone_ends_the_walk() {
    let mut store = store();
    end_lists(&mut store);
    apply(&mut store, pod_kind(), pod("a", None));
    store.apply(Change::Forbidden(job_kind()), 1_000);
    let effects = store.apply(Change::Unreadable(job_id(), Unreadable::Gone), 1_000);
    assert!(pods(&effects)[0].gang.is_some() && problems(&effects).is_empty(), "{effects:?}");
}

#[test]
fn pods_whose_pod_group_is_not_there_say_so() {
    let mut store = store();
    let kind = Gvk::new("scheduling.run.ai", "v2alpha2", "PodGroup");
    let mut alone = pod("a", None);
    alone["metadata"]["ownerReferences"] = Value::Null;
    alone["metadata"]["annotations"] = json!({"pod-group-name": "mine"});
    assert!(gangs(&apply(&mut store, pod_kind(), alone)).is_empty(), "the list of PodGroups is not complete");
    assert_eq!(problems(&store.apply(Change::ListEnded(kind.clone()), 1_000)), ["PodGroupNotFound"]);
    let object = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": "mine", "namespace": "ns", "uid": "pg"}, "spec": {"minMember": 2},
    });
    let effects = apply(&mut store, kind.clone(), object.clone());
    assert_eq!((gangs(&effects)[0].min_member, problems(&effects)), (Some(2), Vec::new()));
    let effects = store.apply(Change::Deleted(kind, Box::new(object)), 2_000);
    assert_eq!(problems(&effects), ["PodGroupNotFound"]);
    assert!(effects.contains(&Effect::Engine(Event::GangDelete("pg".to_owned()))));
    let gone = store.apply(Change::Deleted(pod_kind(), Box::new(pod("a", None))), 3_000);
    assert!(gone.contains(&Effect::Engine(Event::GangDelete("missing/ns/mine".to_owned()))), "{gone:?}");
}

#[test]
fn segments_keep_their_automatic_level_when_only_the_pod_group_is_left() {
    let kind = Gvk::new("kubeflow.org", "v1", "PyTorchJob");
    let group_kind = Gvk::new("scheduling.run.ai", "v2alpha2", "PodGroup");
    let workload = |annotations: Value| {
        let template = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c"}]}});
        json!({
            "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "metadata": {"name": "llm", "namespace": "ns", "uid": "llm"},
            "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 4, "template": template}}},
        })
    };
    let automatic = |facts: &GangFacts| facts.subgroups.iter().filter(|subgroup| subgroup.auto_preferred).count();
    let key = berth_api::keys::AUTOMATIC_PREFERRED;
    let mut worker = pod("w", None);
    worker["metadata"]["labels"] =
        json!({"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"});
    worker["metadata"]["ownerReferences"][0] =
        json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "llm", "uid": "llm", "controller": true});

    let mut first = store();
    end_lists(&mut first);
    first.apply(Change::ListStarted(kind.clone()), 1_000);
    let sized = workload(json!({"kai.scheduler/segment-size": "2", "kai.scheduler/topology": "t"}));
    first.apply(Change::Listed(kind.clone(), Box::new(sized)), 1_000);
    first.apply(Change::ListEnded(kind.clone()), 1_000);
    let effects = apply(&mut first, pod_kind(), worker);
    assert_eq!(automatic(gangs(&effects)[0]), 2);
    let mut object = creations(&effects)[0].clone();
    assert_eq!(object["metadata"]["annotations"][key], json!("{\"subGroups\":[\"worker/*\"],\"topology\":\"t\"}"));

    // Another process finds the PodGroup and no workload.
    object["metadata"]["uid"] = json!("pg-1");
    let effects = apply(&mut store(), group_kind.clone(), object.clone());
    assert_eq!(automatic(gangs(&effects)[0]), 2);
    let topologies: Vec<_> = gangs(&effects)[0].subgroups.iter().map(|subgroup| subgroup.constraint.topology.as_deref()).collect();
    assert_eq!(topologies, [None, Some("t"), Some("t")]);

    // The workload names a level now: the annotation goes.
    apply(&mut first, group_kind, object);
    let levels = json!({"kai.scheduler/segment-size": "2", "kai.scheduler/segment-topology-required-placement": "rack"});
    let effects = apply(&mut first, kind, workload(levels));
    let patch = effects.iter().find_map(|effect| match effect {
        Effect::PatchPodGroup(_, patch) => Some(patch),
        _ => None,
    });
    let annotations = patch.unwrap()["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(annotations.get(key), Some(&Value::Null));
}

#[test]
fn workloads_are_read_as_kai_does_when_asked() {
    let minimum = |compat_kai: bool| {
        let mut store = store().compat_kai(compat_kai);
        end_lists(&mut store);
        apply(&mut store, pod_kind(), pod("a", None));
        let mut job = job("2");
        let annotations = job["metadata"]["annotations"].take();
        job["spec"]["template"] = json!({"metadata": {"annotations": annotations}});
        gangs(&apply(&mut store, job_kind(), job))[0].min_member
    };
    assert_eq!((minimum(false), minimum(true)), (Some(2), Some(1)));
}

#[test]
fn a_launcher_that_is_gone_is_not_waited_for() {
    let mut store = store();
    end_lists(&mut store);
    let kind = Gvk::new("kubeflow.org", "v2beta1", "MPIJob");
    let member = |name: &str, role: &str, index: &str| {
        let mut pod = pod(name, None);
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "m", "uid": "m-1", "controller": true}]);
        pod["metadata"]["labels"] =
            json!({"training.kubeflow.org/job-role": role, "training.kubeflow.org/replica-index": index});
        pod
    };
    let spec = json!({"launcherCreationPolicy": "WaitForWorkersReady",
        "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}});
    let object = json!({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob",
        "metadata": {"name": "m", "namespace": "ns", "uid": "m-1"}, "spec": spec});
    apply(&mut store, pod_kind(), member("w0", "worker", "0"));
    assert_eq!(gangs(&apply(&mut store, kind, object))[0].min_member, Some(2));
    let launcher = member("l", "launcher", "0");
    assert_eq!(gangs(&apply(&mut store, pod_kind(), launcher.clone()))[0].min_member, Some(3));
    // Another worker does not take it back while the launcher is there, and does once it is gone.
    assert!(gangs(&apply(&mut store, pod_kind(), member("w1", "worker", "1"))).is_empty());
    let effects = store.apply(Change::Deleted(pod_kind(), Box::new(launcher)), 1_000);
    assert_eq!(gangs(&effects)[0].min_member, Some(2));
}

#[test]
fn a_job_set_that_starts_again_asks_for_its_first_jobs_again() {
    let mut store = store();
    end_lists(&mut store);
    let set = |pod: &mut Value| {
        let owner = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "set-1", "controller": true});
        pod["metadata"]["ownerReferences"][0] = owner;
    };
    let member = |name: &str, job: &str| {
        let mut pod = pod(name, None);
        set(&mut pod);
        pod["metadata"]["labels"] = json!({"jobset.sigs.k8s.io/replicatedjob-name": job, "jobset.sigs.k8s.io/job-index": "0"});
        pod
    };
    let jobs = ["a", "b"].map(|name| json!({"name": name, "template": {"spec": {"parallelism": 1}}}));
    let object = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s", "namespace": "ns", "uid": "set-1"},
        "spec": {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": jobs},
    });
    let leaves = |effects: &[Effect]| {
        let last = gangs(effects).pop().cloned().unwrap();
        last.subgroups.iter().filter_map(|leaf| leaf.min_member).collect::<Vec<_>>()
    };
    apply(&mut store, pod_kind(), member("a-0", "a"));
    assert_eq!(leaves(&list(&mut store, &Gvk::new("jobset.x-k8s.io", "v1alpha2", "JobSet"), object)), [1, 0]);
    assert_eq!(leaves(&apply(&mut store, pod_kind(), member("b-0", "b"))), [0, 1]);
    // It starts again: the first Job's pod is made while the second one's is on its way out.
    assert!(gangs(&apply(&mut store, pod_kind(), member("a-1", "a"))).is_empty());
    let effects = store.apply(Change::Deleted(pod_kind(), Box::new(member("b-0", "b"))), 1_000);
    assert_eq!(leaves(&effects), [1, 0]);
}

#[test]
fn since_when_a_gang_is_stale_is_read_at_the_start_only() {
    let noted = json!({"kai.scheduler/stale-podgroup-timestamp": "1970-01-01T00:00:02Z"});
    let group = |annotations: &Value| {
        json!({
            "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": "pg-train-job-1", "namespace": "ns", "uid": "group-1", "annotations": annotations},
            "spec": {"queue": "q", "minMember": 2},
        })
    };
    let kind = Gvk::new("scheduling.run.ai", "v2alpha2", "PodGroup");
    let since = |effects: &[Effect]| gangs(effects).pop().and_then(|facts| facts.stale_since);
    let mut store = store();
    // The pod and its owner come first, the PodGroup after them.
    for gvk in base_kinds().into_iter().filter(|gvk| !["Pod", "PodGroup"].contains(&gvk.kind.as_str())) {
        store.apply(Change::ListEnded(gvk), 1_000);
    }
    list(&mut store, &pod_kind(), pod("a", Some("n")));
    list(&mut store, &job_kind(), job("2"));
    let effects = list(&mut store, &kind, group(&noted));
    assert_eq!((since(&effects), effects.contains(&Effect::Engine(Event::Synced))), (Some(2_000), true));
    // What is written from now on is the engine's own word.
    let effects = apply(&mut store, kind.clone(), group(&json!({"kai.scheduler/stale-podgroup-timestamp": "1970-01-01T00:00:09Z"})));
    assert!(gangs(&effects).is_empty(), "{effects:?}");
    assert!(gangs(&apply(&mut store, kind, group(&json!({})))).is_empty());
}

#[test]
fn defaults_of_a_kind_come_from_the_named_map() {
    let kind = Gvk::new("", "v1", "ConfigMap");
    let map = |name: &str, types: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "kai", "uid": format!("uid-{name}")},
            "data": {"types": types},
        })
    };
    let types = |class: &str| {
        format!(r#"[{{"typeName": "Job", "priorityName": "inference"}},
            {{"typeName": "Job", "group": "batch", "priorityName": "{class}", "preemptibility": "preemptible"}}]"#)
    };
    let mut store = store().defaults_map(Some(berth_engine::facts::ObjectKey::new("kai", "defaults")));
    assert!(store.watched_map().is_some());
    let said = |effects: &[Effect]| gangs(effects).pop().map(|facts| (facts.priority, facts.preemptible));
    assert!(!end_lists(&mut store).contains(&Effect::Engine(Event::Synced)), "the map is listed first");
    list(&mut store, &kind, map("defaults", &types("build")));
    apply(&mut store, pod_kind(), pod("a", None));
    // The entry with the group counts, and a class of the workload's own counts before.
    assert_eq!(said(&list(&mut store, &job_kind(), job("2"))), Some((100, true)));
    let mut named = job("2");
    named["metadata"]["labels"] = json!({"priorityClassName": "train", "kai.scheduler/preemptibility": "non-preemptible"});
    assert_eq!(said(&apply(&mut store, job_kind(), named)), Some((50, false)));
    apply(&mut store, job_kind(), job("2"));
    // Other maps say nothing, edits count at once, a class that does not exist is none.
    assert!(apply(&mut store, kind.clone(), map("other", &types("train"))).is_empty());
    assert_eq!(said(&apply(&mut store, kind.clone(), map("defaults", &types("nobody's")))), Some((50, true)));
    let effects = apply(&mut store, kind.clone(), map("defaults", r#"[{"typeName": "Job", "preemptibility": "perhaps"}]"#));
    let named = |effect: &Effect| matches!(effect, Effect::Skipped { message, .. } if message.contains("data.types[0].preemptibility"));
    assert!(effects.iter().any(named), "{effects:?}");
    assert_eq!(said(&apply(&mut store, kind.clone(), map("defaults", &types("build")))), Some((100, true)));
    assert_eq!(said(&store.apply(Change::Deleted(kind, Box::new(map("defaults", ""))), 1_000)), Some((50, true)));
}

/// An object below an owner of the given kind, name and UID.
fn below(mut object: Value, owner: [&str; 4]) -> Value {
    let [api_version, kind, name, uid] = owner;
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}]);
    object
}

fn set(name: &str, owner: [&str; 4]) -> Value {
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "namespace": "ns", "uid": format!("set-{name}")}});
    below(set, owner)
}

const LWS: [&str; 4] = ["leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", "lws"];

/// A LeaderWorkerSet of one leader and its worker as its controller makes them: the workers' owner is the leader.
fn leader_worker_set(store: &mut Store) -> (Value, Value) {
    end_lists(store);
    let sets = Gvk::new("apps", "v1", "StatefulSet");
    let kind = Gvk::new("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet");
    let object = json!({
        "apiVersion": LWS[0], "kind": LWS[1], "metadata": {"name": "l", "namespace": "ns", "uid": "lws"},
        "spec": {"leaderWorkerTemplate": {"size": 2}},
    });
    for (gvk, objects) in [
        (sets, vec![set("l", LWS), set("l-0", ["v1", "Pod", "l-0", "uid-l-0"])]),
        (kind, vec![object]),
    ] {
        store.apply(Change::ListStarted(gvk.clone()), 1_000);
        for object in objects {
            store.apply(Change::Listed(gvk.clone(), Box::new(object)), 1_000);
        }
        store.apply(Change::ListEnded(gvk), 1_000);
    }
    let labelled = |name: &str, index: &str, set: &str| {
        let mut pod = below(pod(name, None), ["apps/v1", "StatefulSet", set, &format!("set-{set}")]);
        pod["metadata"]["labels"] = json!({
            "leaderworkerset.sigs.k8s.io/group-index": "0", "leaderworkerset.sigs.k8s.io/worker-index": index,
        });
        pod
    };
    (labelled("l-0", "0", "l"), labelled("l-0-1", "1", "l-0"))
}

#[test]
fn the_walk_goes_through_a_pod_that_owns_others() {
    let mut store = store();
    let (leader, worker) = leader_worker_set(&mut store);
    let mut effects = apply(&mut store, pod_kind(), leader.clone());
    effects.extend(apply(&mut store, pod_kind(), worker));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Fetch(_) | Effect::Watch(_))), "{effects:?}");
    let told = pods(&effects).iter().filter_map(|pod| pod.gang.as_deref()).collect::<Vec<_>>();
    assert_eq!(told, ["pg-l-lws-group-0", "pg-l-lws-group-0"]);
    // What changes while the leader runs is nothing to its workers.
    let mut running = leader.clone();
    running["status"] = json!({"phase": "Running"});
    assert_eq!(pods(&apply(&mut store, pod_kind(), running)).len(), 1);
    let effects = store.apply(Change::Deleted(pod_kind(), Box::new(leader)), 2_000);
    assert!(pods(&effects).is_empty(), "{effects:?}");
}

#[test]
fn a_leader_that_is_not_ours_is_read_once() {
    let mut store = store();
    let (mut leader, worker) = leader_worker_set(&mut store);
    leader["spec"]["schedulerName"] = json!("default-scheduler");
    apply(&mut store, pod_kind(), leader.clone());
    let effects = apply(&mut store, pod_kind(), worker.clone());
    assert_eq!(effects.iter().filter(|effect| matches!(effect, Effect::Fetch(_))).count(), 1, "{effects:?}");
    let effects = store.apply(Change::Owner(Box::new(leader)), 1_000);
    assert_eq!(pods(&effects)[0].gang.as_deref(), Some("pg-l-lws-group-0"));
    assert!(apply(&mut store, pod_kind(), worker).iter().all(|effect| !matches!(effect, Effect::Fetch(_))));
}

#[test]
fn a_joint_gang_waits_again_for_a_role_whose_owner_is_gone() {
    let mut store = store();
    end_lists(&mut store);
    let role = |name: &str| {
        let mut object = job("2");
        object["metadata"] = json!({"name": name, "namespace": "ns", "uid": format!("job-{name}"), "annotations": {
            "berth.scheduler/gang": "serve", "berth.scheduler/gang-role": name, "berth.scheduler/gang-roles": "prefill,decode",
            "kai.scheduler/batch-min-member": "2",
        }});
        object
    };
    let member = |name: &str| below(pod(name, None), ["batch/v1", "Job", name, &format!("job-{name}")]);
    apply(&mut store, pod_kind(), member("prefill"));
    store.apply(Change::ListStarted(job_kind()), 1_000);
    let effects = store.apply(Change::Listed(job_kind(), Box::new(role("prefill"))), 1_000);
    store.apply(Change::Listed(job_kind(), Box::new(role("decode"))), 1_000);
    store.apply(Change::ListEnded(job_kind()), 1_000);
    let mut group = creations(&effects)[0].clone();
    group["metadata"]["uid"] = json!("pg");
    let groups = Gvk::new("scheduling.run.ai", "v2alpha2", "PodGroup");
    apply(&mut store, groups, group.clone());
    // The second owner is written down too: else the PodGroup would go with the first.
    let effects = apply(&mut store, pod_kind(), member("decode"));
    let patched: Vec<&Value> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::PatchPodGroup(_, patch) => Some(&**patch),
            _ => None,
        })
        .collect();
    let owners = patched.last().unwrap()["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.iter().map(|owner| owner["name"].as_str().unwrap()).collect::<Vec<_>>(), ["prefill", "decode"]);
    let leaves = |effects: &[Effect]| {
        let told = gangs(effects).last().map(|gang| gang.subgroups.clone()).unwrap_or_default();
        told.iter().map(|leaf| format!("{} {}", leaf.name, leaf.min_member.unwrap_or(0))).collect::<Vec<_>>()
    };
    assert_eq!(leaves(&effects), ["prefill 2", "decode 2"]);
    // Its pods are gone with it: what it asked for is not known any more, but that it is awaited.
    let effects = store.apply(Change::Deleted(pod_kind(), Box::new(member("prefill"))), 2_000);
    assert_eq!(leaves(&effects), ["prefill 1", "decode 2"]);
}

#[test]
fn our_own_status_of_a_queue_is_nothing_new_to_the_engine() {
    let mut store = store();
    end_lists(&mut store);
    let kind = || Gvk::new("scheduling.run.ai", "v2", "Queue");
    let queue = |limit: i64, used: &str| {
        json!({
            "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "team", "uid": "q"},
            "spec": {"resources": {"gpu": {"limit": limit}}}, "status": {"allocated": {"nvidia.com/gpu": used}},
        })
    };
    let told = |effects: Vec<Effect>| effects.iter().filter(|e| matches!(e, Effect::Engine(Event::QueueUpsert(_)))).count();
    assert_eq!(told(apply(&mut store, kind(), queue(8, "0"))), 1);
    assert_eq!(told(apply(&mut store, kind(), queue(8, "4"))), 0);
    assert_eq!(store.directory.lock().queue("team").unwrap().status["allocated"]["nvidia.com/gpu"], "4");
    assert_eq!(told(apply(&mut store, kind(), queue(16, "4"))), 1);
    store.apply(Change::Deleted(kind(), Box::new(queue(16, "4"))), 1_000);
    assert!(store.directory.lock().queue("team").is_none());
}

#[test]
fn owners_that_may_not_be_watched_are_read_again_with_news_and_with_time() {
    let mut store = store();
    end_lists(&mut store);
    let fetches = |effects: &[Effect]| effects.iter().filter(|effect| matches!(effect, Effect::Fetch(_))).count();
    apply(&mut store, pod_kind(), pod("a", None));
    assert_eq!(fetches(&store.apply(Change::Forbidden(job_kind()), 1_000)), 1);
    assert_eq!(gangs(&apply(&mut store, job_kind(), job("2")))[0].min_member, Some(2));
    // Pods that come with it ask nothing; one that comes later does, once.
    let at = |store: &mut Store, name: &str, now| fetches(&store.apply(Change::Applied(pod_kind(), Box::new(pod(name, None))), now));
    assert_eq!(at(&mut store, "b", 2_000), 0);
    assert_eq!((at(&mut store, "c", 7_000), at(&mut store, "d", 7_000)), (1, 0));
    let effects = store.apply(Change::Applied(job_kind(), Box::new(job("4"))), 7_500);
    assert_eq!((gangs(&effects)[0].min_member, fetches(&effects)), (Some(4), 0));
    // An edit that touches no pod is seen in the end.
    assert_eq!(fetches(&store.apply(Change::Tick, 8_000)), 0);
    assert_eq!(fetches(&store.apply(Change::Tick, 307_500)), 1);
    assert_eq!(fetches(&store.apply(Change::Tick, 308_000)), 0, "one answer at a time");
    // It is gone, or may not be read now: what is known stays.
    let id = ObjectId { api_version: "batch/v1".into(), kind: "Job".into(), namespace: "ns".into(), name: "train".into(), uid: "job-1".into() };
    assert!(store.apply(Change::Unreadable(id, Unreadable::Gone), 308_500).is_empty());
    assert_eq!(fetches(&store.apply(Change::Tick, 310_000)), 0);
}

#[test]
fn a_pod_of_a_scheduling_group_is_in_the_gang_that_this_object_describes() {
    let mut store = store();
    end_lists(&mut store);
    let kind = Gvk::new("scheduling.k8s.io", "v1beta1", "PodGroup");
    let mut named = pod("a", None);
    named["metadata"]["ownerReferences"] = json!([]);
    named["spec"]["schedulingGroup"] = json!({"podGroupName": "train"});
    // The kind is watched from here on, and nothing is said of the pod before its list is there.
    assert_eq!(apply(&mut store, pod_kind(), named.clone()), [Effect::Watch(kind.clone())]);
    let effects = store.apply(Change::ListEnded(kind.clone()), 1_000);
    assert_eq!(gangs(&effects)[0].problems[0].code, ProblemCode::SchedulingGroupNotFound);
    assert_eq!(pods(&effects)[0].gang.as_deref(), Some("pg-group-train"));
    let object = |minimum: u32| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
            "metadata": {"name": "train", "namespace": "ns", "uid": "group-1"},
            "spec": {
                "schedulingPolicy": {"gang": {"minCount": minimum}},
                "schedulingConstraints": {"topology": [{"key": "example.com/rack"}]},
            },
        })
    };
    let effects = apply(&mut store, kind.clone(), object(3));
    let made = effects.iter().find_map(|effect| match effect {
        Effect::Engine(Event::TopologyUpsert(facts)) => Some(facts.name.clone()),
        _ => None,
    });
    let gang = gangs(&effects)[0].clone();
    assert_eq!((gang.problems.len(), gang.min_member), (0, Some(3)));
    assert_eq!((gang.constraint.topology, gang.constraint.required.as_deref()), (made, Some("example.com/rack")));
    // The minimum may be lowered, and a topology with that level may come.
    assert_eq!(gangs(&apply(&mut store, kind.clone(), object(2)))[0].min_member, Some(2));
    let topology = json!({
        "apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "t", "uid": "t"},
        "spec": {"levels": [{"nodeLabel": "example.com/rack"}]},
    });
    let effects = apply(&mut store, Gvk::new("kai.scheduler", "v1alpha1", "Topology"), topology);
    assert_eq!(gangs(&effects)[0].constraint.topology.as_deref(), Some("t"));
    let effects = store.apply(Change::Deleted(kind, Box::new(object(2))), 1_000);
    assert_eq!(gangs(&effects)[0].problems[0].code, ProblemCode::SchedulingGroupNotFound);
}

/// A complete list of one object.
fn list(store: &mut Store, gvk: &Gvk, object: Value) -> Vec<Effect> {
    let whole = [Change::ListStarted(gvk.clone()), Change::Listed(gvk.clone(), Box::new(object)), Change::ListEnded(gvk.clone())];
    whole.into_iter().flat_map(|change| store.apply(change, 1_000)).collect()
}

fn pod_gang_kind() -> Gvk {
    Gvk::new("scheduler.grove.io", "v1alpha1", "PodGang")
}

/// A pod of a PodCliqueSet whose set is known; it still waits for the list of PodGangs.
fn pod_of_grove(store: &mut Store) -> Value {
    let set_kind = Gvk::new("grove.io", "v1alpha1", "PodCliqueSet");
    let mut member = pod("s-0-a-0", None);
    member["metadata"]["labels"] = json!({"grove.io/podgang": "s-0", "grove.io/podclique": "s-0-a"});
    member["metadata"]["ownerReferences"][0] =
        json!({"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "name": "s", "uid": "set-1", "controller": true});
    let set = json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": "s", "namespace": "ns", "uid": "set-1"},
        "spec": {"template": {"cliques": [{"name": "a", "spec": {"replicas": 2}}]}},
    });
    end_lists(store);
    let effects = apply(store, pod_kind(), member.clone());
    assert!(effects.contains(&Effect::Watch(pod_gang_kind())), "{effects:?}");
    list(store, &set_kind, set);
    member
}

fn pod_gang(class: &str) -> Value {
    json!({
        "apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang",
        "metadata": {"name": "s-0", "namespace": "ns", "uid": "gang-1"},
        "spec": {"priorityClassName": class, "podgroups": [{"name": "s-0-a", "minReplicas": 2}]},
    })
}

#[test]
fn a_pod_of_grove_waits_for_the_list_of_pod_gangs_and_follows_its_own() {
    let priorities = |effects: &[Effect]| gangs(effects).iter().map(|facts| facts.priority).collect::<Vec<_>>();
    let mut store = store();
    let mut member = pod_of_grove(&mut store);
    // A change of the pod that says nothing new of its gang does not let it through.
    member["spec"]["priority"] = json!(0);
    let effects = apply(&mut store, pod_kind(), member);
    assert!(pods(&effects).is_empty() && gangs(&effects).is_empty(), "{effects:?}");
    let effects = list(&mut store, &pod_gang_kind(), pod_gang("build"));
    assert_eq!((priorities(&effects), pods(&effects).len()), (vec![100], 1));
    // Edits count at once, its status does not, and without it the set's word stands.
    assert_eq!(priorities(&apply(&mut store, pod_gang_kind(), pod_gang("inference"))), [125]);
    let mut noted = pod_gang("inference");
    noted["status"] = json!({"phase": "Starting", "placementScore": 0.5});
    assert!(apply(&mut store, pod_gang_kind(), noted).is_empty());
    let effects = store.apply(Change::Deleted(pod_gang_kind(), Box::new(pod_gang("inference"))), 1_000);
    assert_eq!(priorities(&effects), [50]);
}

#[test]
fn a_pod_gang_that_comes_late_is_told_what_is_known() {
    let mut store = store();
    pod_of_grove(&mut store);
    let told = store.apply(Change::ListEnded(pod_gang_kind()), 1_000);
    let known = gangs(&told)[0].clone();
    // It says what its set says: nothing new to the engine, but an object to write the score on.
    let mut late = pod_gang("train");
    let effects = apply(&mut store, pod_gang_kind(), late.clone());
    assert_eq!(gangs(&effects), [&known]);
    assert!(apply(&mut store, pod_gang_kind(), late.clone()).is_empty());
    // The same when it is made again.
    late["metadata"]["uid"] = json!("gang-2");
    assert_eq!(gangs(&apply(&mut store, pod_gang_kind(), late)), [&known]);
}

#[test]
fn pod_gangs_that_may_not_be_read_hold_nobody_up_and_that_is_said() {
    for (answer, words) in [(Change::Forbidden(pod_gang_kind()), "permission"), (Change::Absent(pod_gang_kind()), "does not serve")] {
        let mut store = store();
        pod_of_grove(&mut store);
        let effects = store.apply(answer, 1_000);
        let [warning] = &gangs(&effects)[0].warnings[..] else { panic!("one warning: {effects:?}") };
        assert_eq!((warning.code, warning.value.as_str(), pods(&effects).len()), (ProblemCode::UnreadPodGang, "s-0", 1));
        assert!(warning.allowed.contains(words), "{warning:?}");
        // The right is granted, or Grove is installed.
        let effects = list(&mut store, &pod_gang_kind(), pod_gang("build"));
        let last = gangs(&effects).pop().unwrap();
        assert_eq!((last.warnings.len(), last.priority), (0, 100));
    }
}
