//! Grouping by data: a [`GroupingRule`](berth_api::grouping_rule::GroupingRule) says by field paths where a kind keeps its
//! minimum, its subgroups and its pods' index. The kinds that Berth knows without code are rules too, in a file beside this.
//!
//! Guarantees: a rule that can't be used is refused whole with the field that is wrong; a field that a rule points to and
//! that can't be used keeps the gang pending and is named, as everywhere.

use std::sync::LazyLock;

use berth_api::grouping_rule::{GroupingRuleSpec, RuleSubgroups};
use serde_json::Value;

use super::defaults::Defaults;
use super::kinds;
use super::object::{Notes, Object};
use super::segments::{cut, leaf};
use super::{Group, GroupProblem, Input, ProblemCode};

/// Why a rule can't be used.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
#[error("{field}: {message}")]
pub struct RuleProblem {
    /// The field of the rule.
    pub field: String,
    /// Why.
    pub message: String,
}

/// The rules that come with the program.
static BUILTIN: LazyLock<Vec<GroupingRuleSpec>> =
    LazyLock::new(|| serde_saphyr::from_multiple(include_str!("builtin-rules.yaml")).unwrap_or_default());

/// The built-in rule of a kind.
#[must_use]
pub fn builtin(group: &str, kind: &str) -> Option<&'static GroupingRuleSpec> {
    BUILTIN.iter().find(|rule| rule.group == group && rule.kind == kind)
}

/// All built-in rules.
#[must_use]
pub fn all_builtin() -> &'static [GroupingRuleSpec] {
    &BUILTIN
}

/// The rule that an object of the kind `GroupingRule` states.
pub fn parse(object: &Value) -> Result<GroupingRuleSpec, RuleProblem> {
    let spec = object.get("spec").cloned().unwrap_or_default();
    let rule: GroupingRuleSpec = serde_json::from_value(spec)
        .map_err(|error| RuleProblem { field: "spec".to_owned(), message: error.to_string() })?;
    validate(&rule)?;
    Ok(rule)
}

/// Whether a rule can be used.
pub fn validate(rule: &GroupingRuleSpec) -> Result<(), RuleProblem> {
    let problem = |field: &str, message: String| RuleProblem { field: format!("spec.{field}"), message };
    if rule.kind.is_empty() {
        return Err(problem("kind", "is empty; allowed is the kind of an owner".to_owned()));
    }
    if kinds::find(&rule.group, &rule.kind).is_some() {
        return Err(problem("kind", format!("{} is grouped by code; allowed is a kind that is not", rule.kind)));
    }
    let minimum = rule.minimum.as_ref();
    let subgroups = rule.subgroups.as_ref();
    let paths = [
        ("minimum.path", minimum.map(|minimum| &minimum.path)),
        ("subgroups.list", subgroups.map(|subgroups| &subgroups.list)),
        ("subgroups.name", subgroups.map(|subgroups| &subgroups.name)),
        ("subgroups.minimum", subgroups.map(|subgroups| &subgroups.minimum)),
        ("replicas", rule.replicas.as_ref()),
        ("template", rule.template.as_ref()),
    ];
    for (field, path) in paths {
        if path.is_some_and(|path| pointer(path).is_none()) {
            let path = path.map_or("", String::as_str);
            return Err(problem(field, format!("is \"{path}\"; allowed are field names with dots between, or a JSON pointer")));
        }
    }
    if minimum.and_then(|minimum| minimum.default).is_some_and(|default| default < 1) {
        return Err(problem("minimum.default", "is below 1; allowed is an integer from 1 on".to_owned()));
    }
    if subgroups.is_some_and(|subgroups| subgroups.label.is_empty()) {
        return Err(problem("subgroups.label", "is empty; allowed is the key of a pod label".to_owned()));
    }
    Ok(())
}

/// A path as a JSON pointer.
fn pointer(path: &str) -> Option<String> {
    if path.starts_with('/') {
        return Some(path.to_owned()).filter(|path| 1 < path.len());
    }
    let is_whole = !path.is_empty() && path.split('.').all(|part| !part.is_empty() && !part.contains('/'));
    is_whole.then(|| format!("/{}", path.replace('~', "~0").replace('.', "/")))
}

/// What is at a path; null is nothing.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    value.pointer(&pointer(path)?).filter(|value| !value.is_null())
}

/// The group of a pod under an owner of the rule's kind.
pub(super) fn group(input: &Input<'_>, rule: &GroupingRuleSpec) -> Group {
    let top = input.top();
    let chain: Vec<_> = input.owners.iter().map(|owner| Object::Owner(owner)).collect();
    let template = rule.template.as_deref().and_then(pointer).unwrap_or_else(|| "/spec/template".to_owned());
    let template = Notes::at(top.value(), &format!("{template}/metadata/annotations"));
    let mut defaults = Defaults::new(input).label_sources(chain).template(template);
    if rule.index_label.is_some() && rule.subgroups.is_none() {
        defaults = defaults.with_segments();
    }
    let class = rule.priority_class_name.as_deref();
    let mut group = defaults.priority(class.unwrap_or("train")).build();
    if let Err(problem) = fill(&mut group, input, rule, template) {
        group.problems.push(problem);
    }
    group
}

fn fill(group: &mut Group, input: &Input<'_>, rule: &GroupingRuleSpec, template: Notes<'_>) -> Result<(), GroupProblem> {
    let top = input.top();
    if let Some(minimum) = &rule.minimum {
        let found = number(top, at(top.value(), &minimum.path), &minimum.path)?.or(minimum.default);
        group.spec.min_member = Some(found.ok_or_else(|| bad(top, &minimum.path, "missing", FROM_ONE))?);
    }
    if let Some(subgroups) = &rule.subgroups {
        add_subgroups(group, input, rule, subgroups)?;
    }
    let index = rule.index_label.as_deref().and_then(|label| input.pod_index(label).ok());
    group.index = index;
    if rule.index_label.is_none() || rule.subgroups.is_some() {
        return Ok(());
    }
    let path = rule.replicas.as_deref();
    let n_pods = match path.map(|path| number(top, at(top.value(), path), path)).transpose()?.flatten() {
        Some(n_pods) => n_pods,
        None => group.spec.min_member.unwrap_or(1),
    };
    cut(group, input, template, Ok(n_pods), index);
    Ok(())
}

const FROM_ONE: &str = "an integer from 1 on";

fn add_subgroups(group: &mut Group, input: &Input<'_>, rule: &GroupingRuleSpec, places: &RuleSubgroups) -> Result<(), GroupProblem> {
    let top = input.top();
    let list = at(top.value(), &places.list).and_then(Value::as_array);
    let list = list.ok_or_else(|| bad(top, &places.list, "missing", "a list"))?;
    let mut total = 0_i32;
    for (position, element) in list.iter().enumerate() {
        let path = |part: &str| format!("{}.{position}.{part}", places.list);
        let name = at(element, &places.name).and_then(Value::as_str);
        let name = name.ok_or_else(|| bad(top, &path(&places.name), "missing", "the name of a subgroup"))?;
        let least = number(top, at(element, &places.minimum), &path(&places.minimum))?.unwrap_or(1);
        total = total.saturating_add(least);
        group.spec.sub_groups.push(leaf(name, None, least, None));
    }
    if rule.minimum.is_none() {
        group.spec.min_member = Some(total.max(1));
    }
    let word = input.pod_label(&places.label);
    match group.spec.sub_groups.iter().find(|leaf| word == Some(&leaf.name)) {
        Some(leaf) => group.subgroup = Some(leaf.name.clone()),
        None => {
            let names: Vec<_> = group.spec.sub_groups.iter().map(|leaf| leaf.name.as_str()).collect();
            group.pod_problem = Some(input.bad_label(&places.label, word, &names.join(" or ")));
        }
    }
    Ok(())
}

/// A number from 1 on, or a text that is one.
fn number(top: Object<'_>, value: Option<&Value>, path: &str) -> Result<Option<i32>, GroupProblem> {
    let Some(value) = value else {
        return Ok(None);
    };
    let number = value.as_i64().or_else(|| value.as_str()?.trim().parse().ok());
    let number = number.and_then(|number| i32::try_from(number).ok()).filter(|number| 1 <= *number);
    let text: String = value.to_string().chars().take(64).collect();
    number.map(Some).ok_or_else(|| bad(top, path, &text, FROM_ONE))
}

fn bad(top: Object<'_>, path: &str, value: &str, allowed: &str) -> GroupProblem {
    GroupProblem {
        code: ProblemCode::InvalidField,
        object: top.display(),
        key: path.to_owned(),
        value: value.to_owned(),
        allowed: allowed.to_owned(),
    }
}
