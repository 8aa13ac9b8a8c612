//! Rule by rule what kube-scheduler's plugins do, each on a cluster of a few nodes.

use std::collections::BTreeSet;

use super::coupled::{app, near, spread};
use super::fixture::Lab;
use crate::facts::*;
use crate::fit::ports_conflict;
use crate::outcome::Rule;

/// One pod in a gang of its own; `app: a` unless `edit` says otherwise.
fn lone(lab: &mut Lab, name: &str, edit: impl Fn(&mut PodFacts)) {
    lab.send(Event::GangUpsert(Lab::gang_facts(name, 1, Lab::constraint("", ""))));
    let mut pod = Lab::pod_facts(name, None, 0, 1);
    pod.labels.insert("app".into(), "a".into());
    edit(&mut pod);
    lab.send(Event::PodUpsert(pod));
    lab.pass();
}

/// A pod of another scheduler that runs on a node.
fn runs(lab: &mut Lab, name: &str, node: &str, edit: impl Fn(&mut PodFacts)) {
    let mut pod = Lab::pod_facts(name, None, 0, 0);
    (pod.ours, pod.gang, pod.node, pod.phase) = (false, None, Some(node.to_owned()), PodPhase::Running);
    pod.labels.insert("app".into(), "a".into());
    edit(&mut pod);
    lab.send(Event::PodUpsert(pod));
}

fn change(lab: &mut Lab, node: &str, rack: &str, edit: impl Fn(&mut NodeFacts)) {
    let mut facts = Lab::node_facts(node, &["b", rack], 8);
    edit(&mut facts);
    lab.send(Event::NodeUpsert(facts));
}

fn taint(key: &str, effect: TaintEffect) -> Taint {
    Taint { key: key.into(), value: String::new(), effect }
}

fn tolerate(key: &str, effect: Option<TaintEffect>) -> Toleration {
    Toleration { key: key.into(), operator: TolerationOperator::Exists, value: String::new(), effect }
}

fn refusals(lab: &Lab, gang: &str) -> Vec<(Rule, u32)> {
    lab.report(gang).reasons[0].refusals.clone()
}

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const CORDON: &str = "node.kubernetes.io/unschedulable";

#[test]
fn an_unready_node_without_a_taint_takes_only_pods_that_tolerate_it() {
    let mut lab = Lab::new("b/r1: a");
    change(&mut lab, "a", "r1", |node| node.ready = false);
    lone(&mut lab, "plain", |_| {});
    assert_eq!(lab.code("plain"), "NoNodeMatches 0/1");
    assert_eq!(refusals(&lab, "plain"), [(Rule::NotReady, 1)]);
    lone(&mut lab, "daemon", |pod| pod.shape.tolerations.push(tolerate(NOT_READY, None)));
    assert_eq!(lab.places("daemon"), "a");
}

#[test]
fn where_a_taint_says_that_a_node_is_down_the_taint_decides() {
    let mut lab = Lab::new("b/r1: a");
    change(&mut lab, "a", "r1", |node| {
        node.ready = false;
        node.taints = vec![taint(UNREACHABLE, TaintEffect::NoSchedule), taint(UNREACHABLE, TaintEffect::NoExecute)];
    });
    lone(&mut lab, "half", |pod| {
        pod.shape.tolerations.push(tolerate(UNREACHABLE, Some(TaintEffect::NoSchedule)));
    });
    assert_eq!(refusals(&lab, "half"), [(Rule::Taint(UNREACHABLE.into()), 1)]);
    lone(&mut lab, "other", |pod| pod.shape.tolerations.push(tolerate(NOT_READY, None)));
    assert_eq!(refusals(&lab, "other"), [(Rule::Taint(UNREACHABLE.into()), 1)]);
    lone(&mut lab, "whole", |pod| pod.shape.tolerations.push(tolerate(UNREACHABLE, None)));
    assert_eq!(lab.places("whole"), "a");
    // A ready node that still carries the taint is refused by the taint alone.
    change(&mut lab, "a", "r1", |node| node.taints = vec![taint(NOT_READY, TaintEffect::NoExecute)]);
    lone(&mut lab, "plain", |_| {});
    assert_eq!(refusals(&lab, "plain"), [(Rule::Taint(NOT_READY.into()), 1)]);
}

#[test]
fn tolerating_a_cordon_does_not_tolerate_other_effects_of_its_taint() {
    let mut lab = Lab::new("b/r1: a");
    change(&mut lab, "a", "r1", |node| {
        node.unschedulable = true;
        node.taints = vec![taint(CORDON, TaintEffect::NoSchedule), taint(CORDON, TaintEffect::NoExecute)];
    });
    lone(&mut lab, "plain", |_| {});
    assert_eq!(refusals(&lab, "plain"), [(Rule::Cordoned, 1)]);
    let no_schedule = tolerate(CORDON, Some(TaintEffect::NoSchedule));
    lone(&mut lab, "half", |pod| pod.shape.tolerations.push(no_schedule.clone()));
    assert_eq!(refusals(&lab, "half"), [(Rule::Taint(CORDON.into()), 1)]);
    lone(&mut lab, "whole", |pod| pod.shape.tolerations.push(tolerate(CORDON, None)));
    assert_eq!(lab.places("whole"), "a");
}

#[test]
fn an_empty_spread_selector_counts_every_pod_and_none_at_all_counts_none() {
    let mut lab = Lab::new("b/r1: a; b/r2: c");
    for n in 0..3 {
        runs(&mut lab, &format!("run{n}"), "a", |_| {});
    }
    change(&mut lab, "c", "r2", |node| node.unschedulable = true);
    let rule = |selector| SpreadFacts { selector, ..spread("a", "rack", 1, 1) };
    lone(&mut lab, "counts", |pod| pod.shape.spread.push(rule(app("a"))));
    assert_eq!(lab.places("counts"), "-");
    lone(&mut lab, "all", |pod| pod.shape.spread.push(rule(Some(LabelSelector::default()))));
    lone(&mut lab, "none", |pod| pod.shape.spread.push(rule(None)));
    assert_eq!((lab.places("all"), lab.places("none")), ("-".to_owned(), "a".to_owned()));
}

#[test]
fn spread_counts_live_pods_of_its_namespace_on_nodes_with_every_label() {
    let mut lab = Lab::new("b/r1: a; b/r2: c; b/-: e");
    runs(&mut lab, "leaving", "a", |pod| pod.terminating = true);
    runs(&mut lab, "elsewhere", "a", |pod| pod.namespace = "other".into());
    runs(&mut lab, "over", "a", |pod| pod.phase = PodPhase::Succeeded);
    runs(&mut lab, "unlabelled", "e", |_| {});
    runs(&mut lab, "there", "c", |_| {});
    lone(&mut lab, "g", |pod| pod.shape.spread.push(spread("a", "rack", 1, 1)));
    assert_eq!(lab.places("g"), "a");
}

#[test]
fn fewer_domains_than_wanted_count_the_emptiest_as_empty() {
    let mut lab = Lab::new("b/r1: a; b/r2: c");
    for node in ["a", "c"] {
        runs(&mut lab, &format!("on-{node}"), node, |_| {});
    }
    lone(&mut lab, "three", |pod| pod.shape.spread.push(spread("a", "rack", 1, 3)));
    assert_eq!(refusals(&lab, "three"), [(Rule::TopologySpread("rack".into()), 2)]);
    lone(&mut lab, "two", |pod| pod.shape.spread.push(spread("a", "rack", 1, 2)));
    assert_ne!(lab.places("two"), "-");
}

#[test]
fn taints_and_affinity_take_nodes_out_of_the_domains_only_where_honoured() {
    let mut lab = Lab::new("b/r1: a; b/r2: c");
    runs(&mut lab, "there", "a", |_| {});
    change(&mut lab, "c", "r2", |node| node.taints = vec![taint("dedicated", TaintEffect::NoSchedule)]);
    let rule = |honor_taints| SpreadFacts { honor_taints, ..spread("a", "rack", 1, 1) };
    lone(&mut lab, "ignore", |pod| pod.shape.spread.push(rule(false)));
    assert_eq!(lab.places("ignore"), "-");
    lone(&mut lab, "honor", |pod| pod.shape.spread.push(rule(true)));
    assert_eq!(lab.places("honor"), "a");
    let only_a = |honor_affinity| move |pod: &mut PodFacts| {
        pod.shape.node_selector.insert("rack".into(), "r1".into());
        pod.shape.spread.push(SpreadFacts { honor_affinity, honor_taints: false, ..spread("a", "rack", 1, 1) });
    };
    lone(&mut lab, "away", only_a(false));
    assert_eq!(lab.places("away"), "-");
    lone(&mut lab, "home", only_a(true));
    assert_eq!(lab.places("home"), "a");
}

#[test]
fn the_first_of_its_kind_goes_anywhere_that_has_every_label() {
    let mut lab = Lab::new("b/-: a; b/r2: c");
    let to_itself = |pod: &mut PodFacts| {
        pod.shape.pod_affinity.extend([near("a", "rack"), near("a", "block")]);
    };
    lone(&mut lab, "first", to_itself);
    assert_eq!(lab.places("first"), "c");
    // Not itself: the pod matches one of its two terms only.
    lone(&mut lab, "half", |pod| pod.shape.pod_affinity.extend([near("a", "rack"), near("z", "rack")]));
    assert_eq!(lab.places("half"), "-");
}

#[test]
fn a_match_anywhere_ends_the_exception_even_a_terminating_one() {
    let mut lab = Lab::new("b/r1: a; b/r2: c");
    runs(&mut lab, "leaving", "a", |pod| pod.terminating = true);
    change(&mut lab, "a", "r1", |node| node.unschedulable = true);
    lone(&mut lab, "g", |pod| pod.shape.pod_affinity.push(near("a", "rack")));
    assert_eq!(lab.places("g"), "-");
    // On a node without the label nobody is in any domain: the exception holds.
    let mut lab = Lab::new("b/-: a; b/r2: c");
    runs(&mut lab, "outside", "a", |_| {});
    lone(&mut lab, "g", |pod| pod.shape.pod_affinity.push(near("a", "rack")));
    assert_eq!(lab.places("g"), "c");
}

#[test]
fn no_namespace_selector_is_home_and_an_empty_one_is_everywhere() {
    let mut lab = Lab::new("b/r1: a; b/r2: c");
    runs(&mut lab, "other", "a", |pod| pod.namespace = "other".into());
    change(&mut lab, "c", "r2", |node| node.unschedulable = true);
    let everywhere = PodTerm {
        namespaces: BTreeSet::new(),
        namespace_selector: Some(LabelSelector::default()),
        ..near("a", "rack")
    };
    lone(&mut lab, "everywhere", |pod| {
        pod.namespace = "ns".into();
        pod.shape.pod_anti_affinity.push(everywhere.clone());
    });
    assert_eq!(lab.places("everywhere"), "-");
    lone(&mut lab, "home", |pod| pod.shape.pod_anti_affinity.push(near("a", "rack")));
    assert_eq!(lab.places("home"), "a");
    // No selector at all matches nobody.
    lone(&mut lab, "nobody", |pod| pod.shape.pod_affinity.push(PodTerm { selector: None, ..near("a", "rack") }));
    assert_eq!(lab.places("nobody"), "-");
}

#[test]
fn only_no_address_and_all_zeros_mean_every_address() {
    let port = |ip: &str, protocol: &str| HostPort { ip: ip.into(), protocol: protocol.into(), port: 80 };
    let conflict = |a: &str, b: &str| ports_conflict(&port(a, "TCP"), &port(b, "TCP"));
    assert!(conflict("", "10.0.0.1") && conflict("0.0.0.0", "::") && conflict("::", "") && conflict("::", "::"));
    assert!(!conflict("::", "10.0.0.1") && !conflict("10.0.0.1", "10.0.0.2"));
    assert!(!ports_conflict(&port("", "TCP"), &port("", "UDP")));
}

#[test]
fn resources_that_are_not_asked_for_may_be_overcommitted() {
    let mut lab = Lab::new("b/r1: a=0");
    runs(&mut lab, "too-much", "a", |pod| {
        pod.shape.requests.insert("nvidia.com/gpu".into(), 3);
    });
    lone(&mut lab, "free", |pod| pod.shape.requests = [("nvidia.com/gpu".to_owned(), 0)].into());
    assert_eq!(lab.places("free"), "a");
}

#[test]
fn node_affinity_without_terms_matches_no_node() {
    let mut lab = Lab::new("b/r1: a");
    lone(&mut lab, "none", |pod| pod.shape.required_affinity = Some(Vec::new()));
    assert_eq!(refusals(&lab, "none"), [(Rule::NodeAffinity, 1)]);
    lone(&mut lab, "empty", |pod| pod.shape.required_affinity = Some(vec![NodeTerm { requirements: Vec::new() }]));
    assert_eq!(refusals(&lab, "empty"), [(Rule::NodeAffinity, 1)]);
}

#[test]
fn preferred_node_affinity_decides_between_equals() {
    let mut lab = Lab::new("b/r1: a; b/r2: c; b/r3: e");
    let prefers = |rack: &str, weight: i32| {
        let requirement = Requirement {
            key: "rack".into(),
            on_name: false,
            operator: SelectorOperator::In,
            values: vec![rack.into()],
        };
        (weight, NodeTerm { requirements: vec![requirement] })
    };
    lone(&mut lab, "g", |pod| {
        pod.shape.preferred_affinity = vec![prefers("r2", 10), prefers("r3", 30)];
    });
    assert_eq!(lab.places("g"), "e");
    // Only a wish: where the preferred node is full the next best one does.
    lab.busy("e", 7);
    lone(&mut lab, "h", |pod| {
        pod.shape.preferred_affinity = vec![prefers("r2", 10), prefers("r3", 30)];
    });
    assert_eq!(lab.places("h"), "c");
}

fn nominated(lab: &mut Lab, name: &str, nodes: &[&str], required: &str) {
    lab.send(Event::GangUpsert(Lab::gang_facts(name, nodes.len() as u32, Lab::constraint(required, ""))));
    for (index, node) in nodes.iter().enumerate() {
        let mut pod = Lab::pod_facts(name, None, index as u32, 5);
        pod.nominated = Some((*node).to_owned()).filter(|node| !node.is_empty());
        lab.send(Event::PodUpsert(pod));
    }
    lab.pass();
}

#[test]
fn pods_go_where_they_are_nominated_when_all_of_that_is_legal() {
    let cluster = "b/r1: a a2; b/r2: c d";
    for (nodes, required, places) in [
        (&["d"][..], "", "d"),
        (&["nowhere"], "", "a"),
        (&["d", "c"], "rack", "d c"),
        // In two racks, both on one node that takes one, or only one of them named: as if nothing was said.
        (&["d", "a"], "rack", "a a2"),
        (&["d", "d"], "", "a a2"),
        (&["d", ""], "", "a a2"),
    ] {
        let mut lab = Lab::new(cluster);
        nominated(&mut lab, "g", nodes, required);
        assert_eq!(lab.places("g"), places, "{nodes:?}");
    }
    let mut lab = Lab::new(cluster);
    lab.busy("d", 4);
    nominated(&mut lab, "g", &["d"], "");
    assert_eq!(lab.places("g"), "c");
}
