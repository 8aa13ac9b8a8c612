//! Claims and volumes: which nodes they leave, and what decisions reserve.

use std::collections::{BTreeMap, BTreeSet};

use super::fixture::Lab;
use crate::facts::*;
use crate::outcome::{Code, GangState, VolumeChoice};

fn host(name: &str) -> Vec<NodeTerm> {
    let requirement = Requirement {
        key: "rack".into(),
        operator: SelectorOperator::In,
        values: vec![name.into()],
        on_name: false,
    };
    vec![NodeTerm { requirements: vec![requirement] }]
}

fn class(waits: bool, provisions: bool) -> Event {
    Event::StorageClassUpsert(StorageClassFacts {
        uid: "sc".into(),
        name: "sc".into(),
        provisioner: "driver".into(),
        waits,
        provisions,
        ..StorageClassFacts::default()
    })
}

fn claim(name: &str) -> ClaimFacts {
    ClaimFacts {
        uid: format!("claim-{name}"),
        key: ObjectKey::new("ns", name),
        class: Some("sc".into()),
        bytes: 10,
        access_modes: vec!["ReadWriteOnce".into()],
        ..ClaimFacts::default()
    }
}

fn bound(name: &str, volume: &str) -> ClaimFacts {
    ClaimFacts { volume: Some(volume.into()), bound: true, ..claim(name) }
}

fn volume(name: &str, terms: Option<Vec<NodeTerm>>) -> VolumeFacts {
    VolumeFacts {
        uid: format!("volume-{name}"),
        name: name.into(),
        node_terms: terms,
        class: "sc".into(),
        bytes: 10,
        access_modes: vec!["ReadWriteOnce".into()],
        available: true,
        ..VolumeFacts::default()
    }
}

/// A gang whose pods use one claim each, `claims[i]` for pod i.
fn gang(lab: &mut Lab, name: &str, required: &str, claims: &[&str]) {
    lab.send(Event::GangUpsert(Lab::gang_facts(name, claims.len() as u32, Lab::constraint(required, ""))));
    for (at, claim) in claims.iter().enumerate() {
        let mut pod = Lab::pod_facts(name, None, at as u32, 1);
        pod.claims = vec![(*claim).to_owned()];
        lab.send(Event::PodUpsert(pod));
    }
}

fn state(lab: &Lab, name: &str) -> GangState {
    lab.world.gang_report(&format!("gang-{name}")).unwrap().state
}

fn code(lab: &Lab, name: &str) -> &'static str {
    lab.world.gang_report(&format!("gang-{name}")).unwrap().reasons[0].code_name()
}

fn lab() -> Lab {
    Lab::new("b1/r1: a b; b1/r2: c d; b2/r3: e f")
}

#[test]
fn a_bound_volume_restricts_the_domains() {
    let mut lab = lab();
    lab.send(class(true, false));
    lab.send(Event::VolumeUpsert(volume("v0", Some(host("r3")))));
    lab.send(Event::ClaimUpsert(bound("c0", "v0")));
    gang(&mut lab, "g", "rack", &["c0", "c0"]);
    let decisions = lab.pass().decisions;
    let nodes: BTreeSet<&str> = decisions[0].placements.iter().map(|p| p.node.as_str()).collect();
    assert!(nodes.is_subset(&BTreeSet::from(["e", "f"])), "{nodes:?}");
}

#[test]
fn a_full_rack_of_the_volume_is_not_left_for_another() {
    let mut lab = lab();
    lab.busy("e", 8);
    lab.busy("f", 8);
    lab.send(class(true, false));
    lab.send(Event::VolumeUpsert(volume("v0", Some(host("r3")))));
    lab.send(Event::ClaimUpsert(bound("c0", "v0")));
    gang(&mut lab, "g", "rack", &["c0"]);
    assert!(lab.pass().decisions.is_empty());
    assert_eq!(code(&lab, "g"), Code::RequiredDomainTooSmall.name());
}

#[test]
fn every_copy_takes_a_free_volume_of_its_own() {
    let mut lab = lab();
    lab.send(class(true, false));
    for (name, rack) in [("v0", "r1"), ("v1", "r2"), ("v2", "r2")] {
        lab.send(Event::VolumeUpsert(volume(name, Some(host(rack)))));
    }
    for name in ["c0", "c1"] {
        lab.send(Event::ClaimUpsert(claim(name)));
    }
    gang(&mut lab, "g", "rack", &["c0", "c1"]);
    let decisions = lab.pass().decisions;
    let chosen: Vec<(&str, &[VolumeChoice])> =
        decisions[0].placements.iter().map(|p| (p.node.as_str(), &p.volumes[..])).collect();
    assert!(chosen.iter().all(|(node, _)| ["c", "d"].contains(node)), "{chosen:?}");
    let volumes: BTreeSet<_> = chosen.iter().map(|(_, choices)| choices[0].volume.clone().unwrap()).collect();
    assert_eq!(volumes, BTreeSet::from(["v1".to_owned(), "v2".to_owned()]));
    // What is reserved is not free: one more claim finds only r1.
    lab.send(Event::ClaimUpsert(claim("c2")));
    gang(&mut lab, "h", "", &["c2"]);
    let decisions = lab.pass().decisions;
    assert_eq!(decisions[0].placements[0].volumes[0].volume.as_deref(), Some("v0"));
    // And what failed to be prepared is free again.
    lab.send(Event::PreparationFailed("h-0".into(), "too slow".into()));
    assert_eq!(lab.pass().decisions[0].placements[0].volumes[0].volume.as_deref(), Some("v0"));
}

#[test]
fn a_gang_finds_too_few_free_volumes() {
    let mut lab = lab();
    lab.send(class(true, false));
    // Any node reaches it, but only one claim gets it.
    lab.send(Event::VolumeUpsert(volume("v0", None)));
    for name in ["c0", "c1"] {
        lab.send(Event::ClaimUpsert(claim(name)));
    }
    gang(&mut lab, "g", "", &["c0", "c1"]);
    assert!(lab.pass().decisions.is_empty());
    lab.send(Event::VolumeUpsert(volume("v1", None)));
    assert_eq!(lab.pass().decisions[0].placements.len(), 2);
}

#[test]
fn a_shared_claim_has_one_place() {
    let mut lab = lab();
    lab.send(class(true, true));
    lab.send(Event::ClaimUpsert(claim("data")));
    gang(&mut lab, "g", "", &["data"; 8]);
    let decisions = lab.pass().decisions;
    let nodes: BTreeSet<&str> = decisions[0].placements.iter().map(|p| p.node.as_str()).collect();
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    // Nine do not fit on one node, and where the claim will be is not known before.
    lab.send(Event::ClaimUpsert(claim("more")));
    gang(&mut lab, "h", "", &["more"; 9]);
    assert!(lab.pass().decisions.is_empty());
}

#[test]
fn capacity_decides_where_provisioning_can_be() {
    let mut lab = lab();
    let Event::StorageClassUpsert(facts) = class(true, true) else { return };
    lab.send(Event::StorageClassUpsert(StorageClassFacts { has_capacity: true, ..facts }));
    lab.send(Event::ClaimUpsert(claim("c0")));
    gang(&mut lab, "g", "", &["c0"]);
    assert!(lab.pass().decisions.is_empty());
    let requirement = LabelRequirement { key: "rack".into(), operator: SelectorOperator::In, values: vec!["r2".into()] };
    let capacity = |bytes| {
        Event::StorageCapacityUpsert(StorageCapacityFacts {
            uid: "cap".into(),
            class: "sc".into(),
            nodes: Some(LabelSelector { requirements: vec![requirement.clone()] }),
            bytes,
            largest_bytes: None,
        })
    };
    for too_little in [None, Some(9)] {
        lab.send(capacity(too_little));
        assert!(lab.pass().decisions.is_empty());
    }
    lab.send(capacity(Some(10)));
    let decisions = lab.pass().decisions;
    assert!(["c", "d"].contains(&decisions[0].placements[0].node.as_str()));
}

#[test]
fn a_driver_takes_so_many_volumes_per_node() {
    let mut lab = Lab::new("r1: a b");
    lab.send(class(true, true));
    for node in ["a", "b"] {
        lab.send(Event::CsiNodeUpsert(CsiNodeFacts {
            name: node.into(),
            limits: BTreeMap::from([("driver".to_owned(), 2)]),
            ..CsiNodeFacts::default()
        }));
    }
    let names: Vec<String> = (0..5).map(|i| format!("c{i}")).collect();
    for name in &names {
        lab.send(Event::ClaimUpsert(claim(name)));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    gang(&mut lab, "five", "", &names);
    assert!(lab.pass().decisions.is_empty());
    assert_eq!(code(&lab, "five"), Code::NotEnoughRoom.name());
    gang(&mut lab, "four", "", &names[..4]);
    // A volume that pods share is attached once.
    lab.send(Event::GangDelete("gang-five".into()));
    for at in 0..5 {
        lab.send(Event::PodDelete(format!("five-{at}")));
    }
    assert_eq!(lab.pass().decisions[0].placements.len(), 4);
}

#[test]
fn what_is_not_ready_is_named_and_stops_nobody_else() {
    let mut lab = lab();
    lab.send(class(false, true));
    lab.send(Event::ClaimUpsert(claim("immediate")));
    lab.send(Event::ClaimUpsert(ClaimFacts { class: Some("none".into()), ..claim("no-class") }));
    lab.send(Event::ClaimUpsert(ClaimFacts { class: None, ..claim("classless") }));
    lab.send(Event::ClaimUpsert(ClaimFacts { lost: true, ..claim("lost") }));
    lab.send(Event::ClaimUpsert(ClaimFacts { terminating: true, ..claim("leaving") }));
    lab.send(Event::ClaimUpsert(ClaimFacts { owner_uid: Some("other".into()), ..claim("foreign") }));
    lab.send(Event::ClaimUpsert(bound("no-volume", "gone")));
    let wanted = [
        ("missing", "ClaimNotFound"),
        ("immediate", "ClaimNotBound"),
        ("classless", "ClaimNotBound"),
        ("no-class", "StorageClassNotFound"),
        ("lost", "ClaimLost"),
        ("leaving", "ClaimTerminating"),
        ("foreign", "ClaimNotOwned"),
        ("no-volume", "VolumeNotFound"),
    ];
    for (name, _) in wanted {
        gang(&mut lab, name, "", &[name]);
    }
    let mut pod = Lab::pod_facts("foreign", None, 0, 1);
    (pod.claims, pod.owned_claims) = (vec!["foreign".into()], vec!["foreign".into()]);
    lab.send(Event::PodUpsert(pod));
    lab.gang("plain", 4, 1, "", "");
    assert_eq!(lab.pass().decisions.len(), 1);
    for (name, expected) in wanted {
        assert_eq!((state(&lab, name), code(&lab, name)), (GangState::Pending, expected), "{name}");
    }
    // Once it is there, the pod is placed.
    lab.send(class(true, true));
    assert_eq!(lab.pass().decisions.len(), 1, "the immediate one");
}

#[test]
fn one_pod_at_a_time() {
    let mut lab = lab();
    lab.send(class(true, true));
    lab.send(Event::ClaimUpsert(ClaimFacts { one_pod: true, ..claim("c0") }));
    gang(&mut lab, "pair", "", &["c0", "c0"]);
    assert!(lab.pass().decisions.is_empty());
    assert_eq!(code(&lab, "pair"), "ClaimInUse");
    lab.send(Event::PodDelete("pair-1".into()));
    lab.send(Event::GangUpsert(Lab::gang_facts("pair", 1, Lab::constraint("", ""))));
    assert_eq!(lab.pass().decisions.len(), 1);
    gang(&mut lab, "late", "", &["c0"]);
    assert!(lab.pass().decisions.is_empty());
    assert_eq!(code(&lab, "late"), "ClaimInUse");
    lab.send(Event::PodDelete("pair-0".into()));
    assert_eq!(lab.pass().decisions.len(), 1);
}

#[test]
fn equal_needs_share_a_shape_and_unlike_ones_never_do() {
    let mut lab = lab();
    lab.send(class(true, true));
    for name in ["c0", "c1", "big"] {
        lab.send(Event::ClaimUpsert(ClaimFacts { bytes: if name == "big" { 20 } else { 10 }, ..claim(name) }));
    }
    gang(&mut lab, "g", "", &["c0", "c1", "big"]);
    let shape = |uid: &str| lab.world.pods[lab.world.pod_by_uid[uid].at()].as_ref().unwrap().shape;
    assert_eq!(shape("g-0"), shape("g-1"));
    assert_ne!(shape("g-0"), shape("g-2"));
}

#[test]
fn a_claim_that_was_not_served_is_tried_elsewhere_first() {
    let mut lab = Lab::new("r1: a b");
    lab.send(class(true, true));
    lab.send(Event::ClaimUpsert(claim("c0")));
    gang(&mut lab, "g", "", &["c0"]);
    let first = lab.pass().decisions[0].placements[0].node.clone();
    lab.send(Event::PreparationFailed("g-0".into(), "too slow".into()));
    lab.send(Event::Backoff("gang-g".into(), lab.now + 5_000, "too slow".into()));
    assert!(lab.pass().decisions.is_empty());
    assert_eq!(code(&lab, "g"), Code::VolumesNotReady.name());
    lab.now += 5_000;
    let second = lab.pass().decisions[0].placements[0].node.clone();
    assert_ne!(first, second);
    // With no other node left, the one that failed is used again, in the pass after the one that found out.
    lab.send(Event::PreparationFailed("g-0".into(), "too slow".into()));
    lab.send(Event::NodeDelete(format!("node-{first}")));
    let outcome = lab.pass();
    assert!(outcome.decisions.is_empty());
    assert_eq!(outcome.next_wakeup, Some(lab.now));
    assert_eq!(lab.pass().decisions[0].placements[0].node, second);
}

/// Served pod by pod, whichever came first could take the only volume that the other one's node reaches.
#[test]
fn claims_of_one_decision_leave_each_other_the_volumes_they_need() {
    let mut lab = lab();
    lab.send(class(true, false));
    let mut both = host("r1");
    both.extend(host("r2"));
    lab.send(Event::VolumeUpsert(volume("v0", Some(both))));
    lab.send(Event::VolumeUpsert(VolumeFacts { bytes: 12, ..volume("v1", Some(host("r1"))) }));
    for name in ["c0", "c1"] {
        lab.send(Event::ClaimUpsert(claim(name)));
    }
    // Finds out which nodes reach which volumes.
    assert!(lab.pass().decisions.is_empty());
    lab.send(Event::GangUpsert(Lab::gang_facts("g", 2, Lab::constraint("", ""))));
    for (at, (claim, rack)) in [("c0", "r2"), ("c1", "r1")].into_iter().enumerate() {
        let mut pod = Lab::pod_facts("g", None, at as u32, 1);
        pod.claims = vec![claim.into()];
        pod.shape.node_selector = BTreeMap::from([("rack".to_owned(), rack.to_owned())]);
        lab.send(Event::PodUpsert(pod));
    }
    let places = [("g-0", "c"), ("g-1", "a")].map(|(pod, node)| (lab.world.pod_by_uid[pod], lab.world.node_by_name[node]));
    let found = |places: &[_]| -> Vec<(String, String)> {
        lab.world.match_volumes(places).into_iter().map(|(key, volume)| (key.name, volume)).collect()
    };
    let wanted = [("c0".to_owned(), "v0".to_owned()), ("c1".to_owned(), "v1".to_owned())];
    assert_eq!(found(&places), wanted);
    assert_eq!(found(&[places[1], places[0]]), wanted);
    let decisions = lab.pass().decisions;
    let chosen: BTreeMap<&str, Option<&str>> =
        decisions[0].placements.iter().map(|p| (p.pod.name.as_str(), p.volumes[0].volume.as_deref())).collect();
    assert_eq!(chosen, BTreeMap::from([("g-0", Some("v0")), ("g-1", Some("v1"))]));
}
