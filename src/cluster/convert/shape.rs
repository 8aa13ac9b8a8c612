//! A pod's spec becomes the shape that decides where it fits.

use std::collections::{BTreeMap, BTreeSet};

use berth_engine::facts::{
    Amounts, HostPort, NodeTerm, Requirement, SelectorOperator, ShapeFacts, Toleration, TolerationOperator,
};
use k8s_openapi::api::core::v1::{
    Container, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, ResourceRequirements,
    Toleration as PodToleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{ConvertError, FieldError, Round, amounts, object_name, taint_effect};

mod pod_rules;

pub(super) use pod_rules::selector;

type Fields<T> = Result<T, FieldError>;

/// Annotations that ask for a part of a device, which is not supported yet.
const UNSUPPORTED_ANNOTATIONS: [&str; 3] = ["gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"];

/// The shape of a pod.
pub fn shape_facts(pod: &Pod) -> Result<ShapeFacts, ConvertError> {
    let spec = pod.spec.clone().unwrap_or_default();
    shape_fields(&spec, &pod.metadata).map_err(|error| error.of(object_name("v1", "Pod", &pod.metadata)))
}

pub(super) fn shape_fields(spec: &PodSpec, meta: &ObjectMeta) -> Fields<ShapeFacts> {
    let none = BTreeMap::new();
    let annotations = meta.annotations.as_ref().unwrap_or(&none);
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let required_field = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let preferred_field = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution";
    let required_affinity = required
        .map(|selector| {
            let terms = selector.node_selector_terms.iter().enumerate();
            terms
                .map(|(i, term)| node_term(&format!("{required_field}[{i}]"), term))
                .collect::<Fields<Vec<_>>>()
        })
        .transpose()?;
    let mut preferred_affinity = Vec::new();
    let preferred =
        affinity.and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref());
    for (i, term) in preferred.into_iter().flatten().enumerate() {
        preferred_affinity.push((
            term.weight,
            node_term(&format!("{preferred_field}[{i}].preference"), &term.preference)?,
        ));
    }
    let mut tolerations = Vec::new();
    for (i, written) in spec.tolerations.iter().flatten().enumerate() {
        tolerations.push(toleration(&format!("spec.tolerations[{i}]"), written)?);
    }
    let mut shape = ShapeFacts {
        requests: effective_requests(spec)?,
        node_selector: spec.node_selector.clone().unwrap_or_default(),
        required_affinity,
        preferred_affinity,
        tolerations,
        host_ports: host_ports(spec),
        unsupported: unsupported(spec, annotations),
        ..ShapeFacts::default()
    };
    pod_rules::add_pod_rules(&mut shape, spec, meta)?;
    Ok(shape)
}

/// The spec of a pod that is resized in place, with what its containers hold where that is more than what is asked for
/// now, or where the kubelet can't do what is asked for. `None` when nothing is resized.
pub(super) fn resized(pod: &Pod) -> Option<PodSpec> {
    let status = pod.status.as_ref()?;
    let spec = pod.spec.as_ref()?;
    let infeasible = status.conditions.iter().flatten().any(|condition| {
        condition.type_ == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible")
    });
    let statuses = || status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let mut resized = None;
    let ordinary = spec.containers.iter().enumerate().map(|(i, container)| (false, i, container));
    let sidecars = spec.init_containers.iter().flatten().enumerate().filter(|(_, container)| is_sidecar(container));
    for (init, i, container) in ordinary.chain(sidecars.map(|(i, container)| (true, i, container))) {
        let Some(seen) = statuses().find(|status| status.name == container.name) else { continue };
        let held = seen.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let asked = container.resources.as_ref().and_then(|resources| resources.requests.clone()).unwrap_or_default();
        let mut requests = if infeasible && held.is_some() { BTreeMap::new() } else { asked.clone() };
        for (name, quantity) in held.into_iter().chain(&seen.allocated_resources).flatten() {
            let kept = requests.get(name).is_some_and(|old| !exceeds(&quantity.0, &old.0));
            if !kept {
                requests.insert(name.clone(), quantity.clone());
            }
        }
        if requests == asked {
            continue;
        }
        let spec = resized.get_or_insert_with(|| spec.clone());
        let list = if init { spec.init_containers.as_mut()? } else { &mut spec.containers };
        list.get_mut(i)?.resources.get_or_insert_default().requests = Some(requests);
    }
    resized
}

/// True when the first quantity is the larger one; those that can't be read are looked at where they are used.
fn exceeds(a: &str, b: &str) -> bool {
    let parsed = (berth_api::quantity::parse_millis(a), berth_api::quantity::parse_millis(b));
    match parsed {
        (Ok(a), Ok(b)) => a > b,
        // Too large for thousandths: whole units will do.
        _ => berth_api::quantity::parse_units(a).ok() > berth_api::quantity::parse_units(b).ok(),
    }
}

/// max(main + sidecars, each init container + the sidecars declared before it) + overhead.
fn effective_requests(spec: &PodSpec) -> Fields<Amounts> {
    let mut steady = Amounts::new();
    for (i, container) in spec.containers.iter().enumerate() {
        add(
            &mut steady,
            &container_requests(&format!("spec.containers[{i}]"), container)?,
        )?;
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for (i, container) in spec.init_containers.iter().flatten().enumerate() {
        let mut phase = container_requests(&format!("spec.initContainers[{i}]"), container)?;
        if is_sidecar(container) {
            add(&mut sidecars, &phase)?;
        } else {
            add(&mut phase, &sidecars)?;
            raise(&mut peak, &phase);
        }
    }
    add(&mut steady, &sidecars)?;
    raise(&mut steady, &peak);
    if let Some(resources) = &spec.resources {
        // Requests of the pod as a whole take the place of the containers' sum.
        for (name, amount) in requests_of("spec.resources", resources, Some(&steady))? {
            steady.insert(name, amount);
        }
    }
    if let Some(overhead) = &spec.overhead {
        add(&mut steady, &amounts("spec.overhead", overhead, Round::Up)?)?;
    }
    steady.remove("pods");
    Ok(steady)
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn container_requests(field: &str, container: &Container) -> Fields<Amounts> {
    container.resources.as_ref().map_or_else(
        || Ok(Amounts::new()),
        |resources| requests_of(&format!("{field}.resources"), resources, None),
    )
}

/// Requests; a limit without a request is one, as the API server has it. `known` holds what needs no such default.
fn requests_of(field: &str, resources: &ResourceRequirements, known: Option<&Amounts>) -> Fields<Amounts> {
    let requests = resources.requests.clone().unwrap_or_default();
    let mut all = amounts(&format!("{field}.requests"), &requests, Round::Up)?;
    let limits = resources.limits.clone().unwrap_or_default();
    for (name, amount) in amounts(&format!("{field}.limits"), &limits, Round::Up)? {
        if !requests.contains_key(&name) && !known.is_some_and(|known| known.contains_key(&name)) {
            all.insert(name, amount);
        }
    }
    Ok(all)
}

fn add(total: &mut Amounts, more: &Amounts) -> Fields<()> {
    for (name, amount) in more {
        let sum = total.entry(name.clone()).or_default();
        *sum = sum.checked_add(*amount).ok_or_else(|| {
            FieldError::new(
                format!("spec: requests of {name}"),
                "",
                format!("their sum is out of range; allowed is up to {}", i64::MAX),
            )
        })?;
    }
    Ok(())
}

fn raise(total: &mut Amounts, floor: &Amounts) {
    for (name, amount) in floor {
        let value = total.entry(name.clone()).or_default();
        *value = (*value).max(*amount);
    }
}

pub(super) fn node_term(field: &str, term: &NodeSelectorTerm) -> Fields<NodeTerm> {
    let mut requirements = Vec::new();
    for (i, written) in term.match_expressions.iter().flatten().enumerate() {
        requirements.push(requirement(&format!("{field}.matchExpressions[{i}]"), written, false)?);
    }
    for (i, written) in term.match_fields.iter().flatten().enumerate() {
        let field = format!("{field}.matchFields[{i}]");
        if written.key != "metadata.name" {
            return Err(FieldError::new(
                format!("{field}.key"),
                &written.key,
                "allowed is metadata.name",
            ));
        }
        requirements.push(requirement(&field, written, true)?);
    }
    Ok(NodeTerm { requirements })
}

fn requirement(field: &str, written: &NodeSelectorRequirement, on_name: bool) -> Fields<Requirement> {
    let values = written.values.clone().unwrap_or_default();
    let operator = match written.operator.as_str() {
        "In" => SelectorOperator::In,
        "NotIn" => SelectorOperator::NotIn,
        "Exists" => SelectorOperator::Exists,
        "DoesNotExist" => SelectorOperator::DoesNotExist,
        "Gt" => SelectorOperator::Gt,
        "Lt" => SelectorOperator::Lt,
        other => {
            return Err(FieldError::new(
                format!("{field}.operator"),
                other,
                "allowed are In, NotIn, Exists, DoesNotExist, Gt and Lt",
            ));
        }
    };
    let integer = || values.len() == 1 && values.iter().all(|value| value.parse::<i64>().is_ok());
    if matches!(operator, SelectorOperator::Gt | SelectorOperator::Lt) && !integer() {
        return Err(FieldError::new(
            format!("{field}.values"),
            values.join(", "),
            "allowed is one integer",
        ));
    }
    if matches!(operator, SelectorOperator::In | SelectorOperator::NotIn) && values.is_empty() {
        return Err(FieldError::new(
            format!("{field}.values"),
            "",
            "empty; allowed are one value or more",
        ));
    }
    Ok(Requirement {
        key: written.key.clone(),
        operator,
        values,
        on_name,
    })
}

fn toleration(field: &str, written: &PodToleration) -> Fields<Toleration> {
    let operator = match written.operator.as_deref() {
        Some("Exists") => TolerationOperator::Exists,
        None | Some("" | "Equal") => TolerationOperator::Equal,
        Some("Lt") => TolerationOperator::Lt,
        Some("Gt") => TolerationOperator::Gt,
        Some(other) => {
            return Err(FieldError::new(
                format!("{field}.operator"),
                other,
                "allowed are Exists, Equal, Lt and Gt",
            ));
        }
    };
    let key = written.key.clone().unwrap_or_default();
    if key.is_empty() && operator != TolerationOperator::Exists {
        return Err(FieldError::new(
            format!("{field}.operator"),
            "",
            "an empty key needs the operator Exists",
        ));
    }
    let effect = match written.effect.as_deref() {
        None | Some("") => None,
        Some(text) => Some(taint_effect(&format!("{field}.effect"), text)?),
    };
    Ok(Toleration {
        key,
        operator,
        value: written.value.clone().unwrap_or_default(),
        effect,
    })
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let on_host = spec.host_network == Some(true);
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| is_sidecar(container));
    let ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten());
    let taken = ports.filter_map(|port| {
        let number = port
            .host_port
            .filter(|number| *number > 0)
            .or_else(|| on_host.then_some(port.container_port))?;
        Some(HostPort {
            ip: port.host_ip.clone().unwrap_or_default(),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            port: number,
        })
    });
    taken.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Rules that are recognised and not built yet: such a pod waits.
fn unsupported(spec: &PodSpec, annotations: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut keys: BTreeSet<String> = UNSUPPORTED_ANNOTATIONS
        .iter()
        .filter(|key| annotations.contains_key(**key))
        .map(|key| (*key).to_owned())
        .collect();
    let mut mark = |present: bool, key: &str| {
        if present {
            keys.insert(key.to_owned());
        }
    };
    mark(
        spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()),
        "spec.resourceClaims",
    );
    keys
}
