//! Rules about other pods: affinity, anti-affinity and spread constraints.

use std::collections::BTreeMap;

use berth_engine::facts::{LabelRequirement, LabelSelector, PodTerm, SelectorOperator, ShapeFacts, SpreadFacts};
use k8s_openapi::api::core::v1::{PodAffinityTerm, PodSpec, TopologySpreadConstraint, WeightedPodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector as WrittenSelector, ObjectMeta};

use super::{FieldError, Fields};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Fills in the rules of a pod about other pods.
pub(super) fn add_pod_rules(shape: &mut ShapeFacts, spec: &PodSpec, meta: &ObjectMeta) -> Fields<()> {
    let affinity = spec.affinity.clone().unwrap_or_default();
    let together = affinity.pod_affinity.unwrap_or_default();
    let apart = affinity.pod_anti_affinity.unwrap_or_default();
    let (near, away) = ("spec.affinity.podAffinity", "spec.affinity.podAntiAffinity");
    shape.pod_affinity =
        terms(near, together.required_during_scheduling_ignored_during_execution.as_deref(), meta)?;
    shape.pod_anti_affinity =
        terms(away, apart.required_during_scheduling_ignored_during_execution.as_deref(), meta)?;
    let liked = together.preferred_during_scheduling_ignored_during_execution;
    let disliked = apart.preferred_during_scheduling_ignored_during_execution;
    shape.preferred_pod_affinity = weighted(near, liked.as_deref(), 1, meta)?;
    shape.preferred_pod_affinity.extend(weighted(away, disliked.as_deref(), -1, meta)?);
    for (i, written) in spec.topology_spread_constraints.iter().flatten().enumerate() {
        shape.spread.push(spread(&format!("spec.topologySpreadConstraints[{i}]"), written, meta)?);
    }
    Ok(())
}

fn terms(field: &str, written: Option<&[PodAffinityTerm]>, meta: &ObjectMeta) -> Fields<Vec<PodTerm>> {
    let written = written.into_iter().flatten().enumerate();
    written.map(|(i, written)| term(&format!("{field}.{REQUIRED}[{i}]"), written, meta)).collect()
}

fn weighted(
    field: &str,
    written: Option<&[WeightedPodAffinityTerm]>,
    sign: i32,
    meta: &ObjectMeta,
) -> Fields<Vec<(i32, PodTerm)>> {
    let mut all = Vec::new();
    for (i, written) in written.into_iter().flatten().enumerate() {
        let field = format!("{field}.{PREFERRED}[{i}]");
        if !(1..=100).contains(&written.weight) {
            let value = written.weight.to_string();
            return Err(FieldError::new(format!("{field}.weight"), value, "allowed are 1 to 100"));
        }
        let term = term(&format!("{field}.podAffinityTerm"), &written.pod_affinity_term, meta)?;
        all.push((sign * written.weight, term));
    }
    Ok(all)
}

fn term(field: &str, written: &PodAffinityTerm, meta: &ObjectMeta) -> Fields<PodTerm> {
    topology_key(field, &written.topology_key)?;
    let mut selector = selector(&format!("{field}.labelSelector"), written.label_selector.as_ref())?;
    if let Some(selector) = selector.as_mut() {
        merge(selector, written.match_label_keys.as_deref(), SelectorOperator::In, meta);
        merge(selector, written.mismatch_label_keys.as_deref(), SelectorOperator::NotIn, meta);
    }
    let namespace_selector = self::selector(&format!("{field}.namespaceSelector"), written.namespace_selector.as_ref())?;
    let mut namespaces: std::collections::BTreeSet<String> = written.namespaces.iter().flatten().cloned().collect();
    if namespaces.is_empty() && namespace_selector.is_none() {
        namespaces.insert(meta.namespace.clone().unwrap_or_default());
    }
    Ok(PodTerm { selector, namespaces, namespace_selector, topology_key: written.topology_key.clone() })
}

fn spread(field: &str, written: &TopologySpreadConstraint, meta: &ObjectMeta) -> Fields<SpreadFacts> {
    topology_key(field, &written.topology_key)?;
    let positive = |name: &str, value: i32| {
        u32::try_from(value).ok().filter(|value| *value > 0).ok_or_else(|| {
            FieldError::new(format!("{field}.{name}"), value.to_string(), "allowed are integers from 1 on")
        })
    };
    let hard = match written.when_unsatisfiable.as_str() {
        "DoNotSchedule" => true,
        "ScheduleAnyway" => false,
        other => {
            let field = format!("{field}.whenUnsatisfiable");
            return Err(FieldError::new(field, other, "allowed are DoNotSchedule and ScheduleAnyway"));
        }
    };
    let honor = |name: &str, value: Option<&str>, default: bool| match value {
        None | Some("") => Ok(default),
        Some("Honor") => Ok(true),
        Some("Ignore") => Ok(false),
        Some(other) => Err(FieldError::new(format!("{field}.{name}"), other, "allowed are Honor and Ignore")),
    };
    let mut selector = selector(&format!("{field}.labelSelector"), written.label_selector.as_ref())?;
    if let Some(selector) = selector.as_mut() {
        merge(selector, written.match_label_keys.as_deref(), SelectorOperator::In, meta);
    }
    Ok(SpreadFacts {
        max_skew: positive("maxSkew", written.max_skew)?,
        topology_key: written.topology_key.clone(),
        hard,
        selector,
        min_domains: written.min_domains.map_or(Ok(1), |value| positive("minDomains", value))?,
        honor_affinity: honor("nodeAffinityPolicy", written.node_affinity_policy.as_deref(), true)?,
        honor_taints: honor("nodeTaintsPolicy", written.node_taints_policy.as_deref(), false)?,
    })
}

fn topology_key(field: &str, key: &str) -> Fields<()> {
    if key.is_empty() {
        return Err(FieldError::new(format!("{field}.topologyKey"), "", "empty; allowed is the key of a node label"));
    }
    Ok(())
}

/// A label selector; `None` stays `None` and matches nothing.
pub(in crate::cluster::convert) fn selector(field: &str, written: Option<&WrittenSelector>) -> Fields<Option<LabelSelector>> {
    let Some(written) = written else { return Ok(None) };
    let mut requirements: Vec<LabelRequirement> = written
        .match_labels
        .iter()
        .flatten()
        .map(|(key, value)| LabelRequirement {
            key: key.clone(),
            operator: SelectorOperator::In,
            values: vec![value.clone()],
        })
        .collect();
    for (i, written) in written.match_expressions.iter().flatten().enumerate() {
        let field = format!("{field}.matchExpressions[{i}]");
        let operator = match written.operator.as_str() {
            "In" => SelectorOperator::In,
            "NotIn" => SelectorOperator::NotIn,
            "Exists" => SelectorOperator::Exists,
            "DoesNotExist" => SelectorOperator::DoesNotExist,
            other => {
                let field = format!("{field}.operator");
                return Err(FieldError::new(field, other, "allowed are In, NotIn, Exists and DoesNotExist"));
            }
        };
        let mut values = written.values.clone().unwrap_or_default();
        let listed = matches!(operator, SelectorOperator::In | SelectorOperator::NotIn);
        if listed == values.is_empty() {
            let allowed = if listed { "empty; allowed are one value or more" } else { "allowed is no value" };
            return Err(FieldError::new(format!("{field}.values"), values.join(", "), allowed));
        }
        values.sort_unstable();
        values.dedup();
        requirements.push(LabelRequirement { key: written.key.clone(), operator, values });
    }
    requirements.sort_unstable();
    requirements.dedup();
    Ok(Some(LabelSelector { requirements }))
}

/// `matchLabelKeys` and `mismatchLabelKeys`: the pod's own values become requirements.
fn merge(selector: &mut LabelSelector, keys: Option<&[String]>, operator: SelectorOperator, meta: &ObjectMeta) {
    let none = BTreeMap::new();
    let labels = meta.labels.as_ref().unwrap_or(&none);
    for key in keys.into_iter().flatten() {
        if let Some(value) = labels.get(key) {
            let values = vec![value.clone()];
            selector.requirements.push(LabelRequirement { key: key.clone(), operator, values });
        }
    }
    selector.requirements.sort_unstable();
    selector.requirements.dedup();
}
