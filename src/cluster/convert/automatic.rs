//! The annotation by which a PodGroup keeps which of its subgroups prefer the lowest level on their own.
//!
//! A PodGroup's spec can't say it (the lowest level depends on the Topology), and the workload that said it may be gone or
//! unreadable when the PodGroup is read again. `<parent>/*` stands for all subgroups below a parent: ten thousand segments
//! are one word.

use std::collections::{BTreeMap, BTreeSet};

use berth_engine::facts::SubgroupFacts;
use serde::{Deserialize, Serialize};

use crate::grouping::Group;

/// What the annotation holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    /// Names of subgroups, or `<parent>/*`.
    sub_groups: Vec<String>,
    /// Topology of subgroups that name none themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    topology: Option<String>,
}

/// The annotation's value; `None` when no subgroup prefers anything on its own.
#[must_use]
pub fn written(group: &Group) -> Option<String> {
    let mut below: BTreeMap<&str, BTreeSet<&String>> = BTreeMap::new();
    for subgroup in &group.spec.sub_groups {
        below.entry(subgroup.parent.as_deref().unwrap_or_default()).or_default().insert(&subgroup.name);
    }
    let mut sub_groups = Vec::new();
    for (parent, names) in &below {
        if !parent.is_empty() && names.iter().all(|name| group.auto_preferred.contains(*name)) {
            sub_groups.push(format!("{parent}/*"));
        } else {
            sub_groups.extend(names.iter().filter(|name| group.auto_preferred.contains(**name)).map(|name| (*name).clone()));
        }
    }
    if sub_groups.is_empty() {
        return None;
    }
    serde_json::to_string(&Written { sub_groups, topology: group.auto_preferred_topology.clone() }).ok()
}

/// Marks the subgroups that a value names.
///
/// # Errors
/// What is wrong with the value.
pub(super) fn read(value: &str, subgroups: &mut [SubgroupFacts]) -> Result<(), String> {
    let written: Written = serde_json::from_str(value).map_err(|error| error.to_string())?;
    let parents: BTreeSet<&str> = written.sub_groups.iter().filter_map(|word| word.strip_suffix("/*")).collect();
    let names: BTreeSet<&str> = written.sub_groups.iter().map(String::as_str).collect();
    mark(subgroups, written.topology.as_ref(), |subgroup| {
        names.contains(subgroup.name.as_str()) || subgroup.parent.as_deref().is_some_and(|parent| parents.contains(parent))
    });
    Ok(())
}

/// Marks subgroups; one that names a level of its own keeps to that.
pub(super) fn mark(subgroups: &mut [SubgroupFacts], topology: Option<&String>, is_meant: impl Fn(&SubgroupFacts) -> bool) {
    for subgroup in subgroups {
        if subgroup.constraint.is_empty() && is_meant(subgroup) {
            subgroup.auto_preferred = true;
            if subgroup.constraint.topology.is_none() {
                subgroup.constraint.topology = topology.cloned();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_api::pod_group::SubGroup;

    use super::*;

    fn group(segments: u32, marked: u32) -> Group {
        let mut group = Group { auto_preferred_topology: Some("t".to_owned()), ..Group::default() };
        for n in 0..segments {
            let (name, parent) = (format!("worker-{n}"), Some("worker".to_owned()));
            group.spec.sub_groups.push(SubGroup { name, parent, ..SubGroup::default() });
        }
        group.auto_preferred.extend((0..marked).map(|n| format!("worker-{n}")));
        group
    }

    #[test]
    fn what_is_written_is_read_back() {
        for (marked, words) in [(3, "\"worker/*\""), (1, "\"worker-0\"")] {
            let group = group(3, marked);
            let value = written(&group).expect("some prefer it");
            assert_eq!(value, format!("{{\"subGroups\":[{words}],\"topology\":\"t\"}}"));
            let fact = |subgroup: &SubGroup| SubgroupFacts {
                name: subgroup.name.clone(),
                parent: subgroup.parent.clone(),
                ..SubgroupFacts::default()
            };
            let mut facts: Vec<SubgroupFacts> = group.spec.sub_groups.iter().map(fact).collect();
            // A level that somebody wrote since then counts.
            facts[0].constraint.required = Some("rack".to_owned());
            read(&value, &mut facts).expect("it is well formed");
            let found: Vec<bool> = facts.iter().map(|facts| facts.auto_preferred).collect();
            assert_eq!(found, [false, 1 < marked, 2 < marked]);
            assert!(facts.iter().all(|facts| facts.auto_preferred == (facts.constraint.topology.as_deref() == Some("t"))));
        }
        assert_eq!(written(&group(3, 0)), None);
        assert!(read("worker", &mut []).is_err() && read("{\"subGroups\": 1}", &mut []).is_err());
    }
}
