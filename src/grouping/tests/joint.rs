//! Gangs of several owners.

use super::*;
use crate::grouping::merge;

fn notes(role: &str, roles: &str) -> String {
    format!("berth.scheduler/gang: serve, berth.scheduler/gang-role: {role}, berth.scheduler/gang-roles: '{roles}'")
}

/// A LeaderWorkerSet of groups of three in one rack, for a role.
fn lws(name: &str, replicas: i32, role: &str, roles: &str) -> String {
    format!(
        "---\n{{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {{name: {name}, uid: {name}, annotations:
           {{kai.scheduler/topology: t, kai.scheduler/topology-required-placement: rack, {}}}}}, spec: {{replicas: {replicas},
           leaderWorkerTemplate: {{size: 3, workerTemplate: {{spec: SPEC}}}}}}}}\n",
        notes(role, roles)
    )
}

fn router(roles: &str) -> String {
    format!(
        "---\n{{apiVersion: apps/v1, kind: StatefulSet, metadata: {{name: r, uid: r, annotations: {{{}}}}}, spec: {{replicas: 1,
           template: {{spec: SPEC}}}}}}\n",
        notes("router", roles)
    )
}

fn joint(yaml: &str) -> Group {
    let parts = groups(yaml).into_iter().map(|(_, group)| (group.part.clone().unwrap().node, Box::new(group)));
    merge(&parts.collect()).unwrap()
}

#[test]
fn roles_are_nodes_with_their_own_rules() {
    let roles = "prefill,decode,router";
    let yaml = format!("{}{}{}", lws("p", 1, "prefill", roles), lws("d", 1, "decode", roles), router(roles));
    let role = |name: &str| format!("{name}*2 @t:rack:- | {name}/{name}-leader 1 | {name}/{name}-workers 2");
    assert_eq!(sketch(&joint(&yaml)), format!("min*3 | {} | {} | router 1", role("prefill"), role("decode")));
    for (pod, group) in groups(&yaml) {
        assert_eq!(group.name, "pg-gang-serve", "{pod}");
    }
    assert_eq!(
        members(&yaml),
        "p-0=prefill-leader#0 p-0-1=prefill-workers#1 p-0-2=prefill-workers#2 d-0=decode-leader#0 d-0-1=decode-workers#1 \
         d-0-2=decode-workers#2 r-0=router#0"
    );
}

#[test]
fn what_is_missing_is_waited_for() {
    let roles = "prefill=2,router";
    let one = joint(&lws("p", 1, "prefill", roles));
    let node = "prefill-p-0*2 @t:rack:- | prefill-p-0/prefill-p-0-leader 1 | prefill-p-0/prefill-p-0-workers 2";
    assert_eq!(
        sketch(&one),
        format!("min*2 | prefill*2 | prefill/{node} | prefill/prefill-to-come-0 1 | router 1")
    );
    let two = joint(&format!("{}{}", lws("p", 2, "prefill", roles), router(roles)));
    let second = node.replace("p-0", "p-1");
    assert_eq!(sketch(&two), format!("min*2 | prefill*2 | prefill/{node} | prefill/{second} | router 1"));
}

#[test]
fn bad_roles_are_named() {
    for (role, roles, expected) in [
        ("a", "", "gang-roles is \"\"; allowed is the roles of the gang with commas between"),
        ("a", "a,a", "gang-roles is \"a,a\"; allowed is the roles of the gang with commas between"),
        ("a", "a=0", "gang-roles is \"a=0\"; allowed is the roles of the gang with commas between"),
        ("a", "A", "gang-roles is \"A\"; allowed is the roles of the gang with commas between"),
        ("c", "a,b", "gang-role is \"c\"; allowed is a role of a,b"),
    ] {
        let group = group(&lws("p", 1, role, roles));
        let problems = problems(&group);
        assert!(problems.len() == 1 && problems[0].contains(expected), "{problems:?}");
        assert!(problems[0].starts_with("InvalidGang LeaderWorkerSet/p: berth.scheduler/gang-role"), "{problems:?}");
        assert_eq!(group.name, "pg-p-p-group-0");
    }
}
