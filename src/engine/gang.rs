//! The subgroup tree of a gang: building it from the flat list, and readiness.

use std::collections::BTreeMap;

use crate::facts::{GangFacts, Problem, ProblemCode};
use crate::world::model::Sub;

/// Builds the tree; every mistake is named, and the tree is then only a root.
#[must_use]
pub(crate) fn build_tree(facts: &GangFacts) -> (Vec<Sub>, Vec<Problem>) {
    let root = Sub {
        name: String::new(),
        parent: 0,
        children: Vec::new(),
        min: 0,
        constraint: facts.constraint.clone(),
        auto_preferred: false,
    };
    if facts.subgroups.is_empty() {
        let leaf = Sub {
            name: "default".to_owned(),
            parent: 0,
            children: Vec::new(),
            min: facts.min_member.unwrap_or(1),
            constraint: crate::facts::ConstraintFacts::default(),
            auto_preferred: false,
        };
        return (vec![Sub { children: vec![1], min: 1, ..root }, leaf], Vec::new());
    }
    let mut problems = Vec::new();
    let mut index: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, subgroup) in facts.subgroups.iter().enumerate() {
        if index.insert(&subgroup.name, at + 1).is_some() {
            problems.push(problem(ProblemCode::DuplicateSubgroup, "name", &subgroup.name, "unique names"));
        }
    }
    let mut subs = vec![root];
    for subgroup in &facts.subgroups {
        let parent = match subgroup.parent.as_deref().filter(|parent| !parent.is_empty()) {
            None => 0,
            Some(parent) => index.get(parent.to_lowercase().as_str()).copied().unwrap_or_else(|| {
                problems.push(problem(ProblemCode::UnknownParent,
                    "parent",
                    parent,
                    "the name of another subgroup",
                ));
                0
            }),
        };
        subs.push(Sub {
            name: subgroup.name.clone(),
            parent,
            children: Vec::new(),
            min: 0,
            constraint: subgroup.constraint.clone(),
            auto_preferred: subgroup.auto_preferred,
        });
    }
    if let Some(cycle) = find_cycle(&subs) {
        problems.push(problem(ProblemCode::SubgroupCycle, "parent", &subs[cycle].name, "a tree of subgroups"));
        subs.truncate(1);
        return (subs, problems);
    }
    for at in 1..subs.len() {
        let parent = subs[at].parent;
        subs[parent].children.push(at);
    }
    set_minimums(facts, &mut subs, &mut problems);
    (subs, problems)
}

fn set_minimums(facts: &GangFacts, subs: &mut [Sub], problems: &mut Vec<Problem>) {
    for at in 0..subs.len() {
        let n_children = subs[at].children.len() as u32;
        let (min_member, min_subgroup) = match at.checked_sub(1) {
            None => (None, facts.min_subgroup),
            Some(at) => (facts.subgroups[at].min_member, facts.subgroups[at].min_subgroup),
        };
        subs[at].min = if n_children == 0 { min_member.unwrap_or(1) } else {
            let wanted = min_subgroup.unwrap_or(n_children);
            if wanted > n_children {
                problems.push(problem(ProblemCode::InvalidMinSubGroup,
                    "minSubGroup",
                    &wanted.to_string(),
                    &format!("0 to {n_children}, the number of children"),
                ));
            }
            wanted.min(n_children)
        };
    }
}

fn find_cycle(subs: &[Sub]) -> Option<usize> {
    (1..subs.len()).find(|start| {
        let mut at = *start;
        for _ in 0..subs.len() {
            if at == 0 {
                return false;
            }
            at = subs[at].parent;
        }
        at != 0
    })
}

fn problem(code: ProblemCode, key: &str, value: &str, allowed: &str) -> Problem {
    Problem {
        code,
        object: String::new(),
        key: key.to_owned(),
        value: value.to_owned(),
        allowed: allowed.to_owned(),
    }
}
