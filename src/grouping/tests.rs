//! Table tests: a workload as YAML, expanded and grouped, against a sketch of what must come out.

mod expansion;
mod frameworks;
mod clusters;
mod core_groups;
mod joint;
mod kinds;
mod rules;
mod rule_objects;
mod wrappers;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::expand::{Expansion, expand};
use super::{Group, Grouping, GroupingContext, INSTALLED_PRIORITY_CLASSES, ObjectIndex, group_pod};

/// The only pod template that tests need, indented as a value of `template:`.
const SPEC: &str = "{containers: [{name: main, image: x}]}";

fn objects(yaml: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&yaml.replace("SPEC", SPEC)).unwrap()
}

fn expanded(yaml: &str) -> Expansion {
    let expansion = expand(&objects(yaml));
    assert_eq!(expansion.problems, [], "{yaml}");
    expansion
}

/// The groups of all pods that the input has or that its workloads get, pod by pod.
fn groupings(yaml: &str, global_default: Option<&str>) -> Vec<(String, Grouping)> {
    let given = objects(yaml);
    let expansion = expanded(yaml);
    let pods = given.iter().filter(|object| object["kind"] == "Pod").chain(&expansion.pods).cloned();
    let pods: Vec<Pod> = pods.map(|pod| serde_json::from_value(pod).unwrap()).collect();
    let mut index: ObjectIndex = given.iter().cloned().chain(expansion.owners).collect();
    for rule in given.iter().filter(|object| object["kind"] == "GroupingRule") {
        index.insert_rule(super::rules::parse(rule).unwrap());
    }
    let priority_classes: BTreeMap<_, _> =
        INSTALLED_PRIORITY_CLASSES.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let context = GroupingContext { priority_classes: &priority_classes, global_default, compat_kai: false, kind_defaults: &super::kind_defaults::KindDefaults::default() };
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap_or_default();
    pods.iter().map(|pod| (name(pod), group_pod(pod, &index, &context))).collect()
}

fn groups(yaml: &str) -> Vec<(String, Group)> {
    let of_ours = |(pod, grouping)| match grouping {
        Grouping::Group(group) => (pod, *group),
        Grouping::External(external) => panic!("{pod} is external: {external:?}"),
    };
    groupings(yaml, None).into_iter().map(of_ours).collect()
}

/// The group of the first pod.
fn group(yaml: &str) -> Group {
    groups(yaml).into_iter().next().expect("a pod").1
}

/// `topology:required:preferred`, with `-` for what is not said.
fn constraint(constraint: Option<&berth_api::pod_group::TopologyConstraint>) -> String {
    let Some(constraint) = constraint else {
        return String::new();
    };
    let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let levels = (word(&constraint.required_topology_level), word(&constraint.preferred_topology_level));
    format!(" @{}:{}:{}", word(&constraint.topology), levels.0, levels.1)
}

/// The gang in a few words: `min 3 @topology | master 1 | worker*2 | worker/worker-0 4 auto`; `*n` is a minimum of
/// subgroups.
fn sketch(group: &Group) -> String {
    let mut text = match (group.spec.min_member, group.spec.min_sub_group) {
        (Some(pods), None) => format!("min {pods}"),
        (None, Some(subgroups)) => format!("min*{subgroups}"),
        other => panic!("{other:?}"),
    };
    text += &constraint(group.spec.topology_constraint.as_ref());
    for subgroup in &group.spec.sub_groups {
        let parent = subgroup.parent.as_ref().map(|parent| format!("{parent}/")).unwrap_or_default();
        let least = match (subgroup.min_member, subgroup.min_sub_group) {
            (Some(pods), None) => format!(" {pods}"),
            (None, Some(subgroups)) => format!("*{subgroups}"),
            other => panic!("{other:?}"),
        };
        let auto = if group.auto_preferred.contains(&subgroup.name) { " auto" } else { "" };
        let rule = constraint(subgroup.topology_constraint.as_ref());
        write!(text, " | {parent}{}{least}{rule}{auto}", subgroup.name).unwrap();
    }
    text
}

/// The pods to come by leaf, `!` behind those that are needed.
fn to_come(group: &Group) -> String {
    let one = |awaited: &super::Awaited| format!("{} {}{}", awaited.leaf, awaited.n_pods, if awaited.needed { "!" } else { "" });
    group.awaited.iter().map(one).collect::<Vec<_>>().join(" | ")
}

/// Where each pod is: `a-0=master#0`.
fn members(yaml: &str) -> String {
    let member = |(pod, group): (String, Group)| {
        assert_eq!(group.pod_problem, None, "{pod}");
        let index = group.index.map_or("-".to_owned(), |index| index.to_string());
        format!("{pod}={}#{index}", group.subgroup.as_deref().unwrap_or("-"))
    };
    groups(yaml).into_iter().map(member).collect::<Vec<_>>().join(" ")
}

/// All problems as texts, warnings behind a `~`.
fn problems(group: &Group) -> Vec<String> {
    let problems = group.problems.iter().map(|problem| format!("{} {problem}", problem.code));
    problems.chain(group.warnings.iter().map(|warning| format!("~{} {warning}", warning.code))).collect()
}

#[track_caller]
fn check(yaml: &str, expected: &str) {
    let groups = groups(yaml);
    for (pod, group) in &groups {
        assert_eq!(problems(group), [] as [&str; 0], "{pod}");
        assert_eq!(sketch(group), expected, "{pod}");
        assert_eq!(group.name, groups[0].1.name, "{pod}");
    }
}
