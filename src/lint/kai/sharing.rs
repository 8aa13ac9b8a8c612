//! Work that uses what Berth knows and does not support yet: such pods wait, with `UnsupportedFeature`.

use berth_api::keys::{GPU_FRACTION, GPU_FRACTION_CONTAINER, GPU_FRACTION_NUM_DEVICES, GPU_MEMORY, MPS};
use serde_json::Value;

use super::super::{Finding, Severity};
use super::work::{Work, annotation};
use crate::simulate::Options;

const SHARING: [&str; 5] = [GPU_FRACTION, GPU_MEMORY, GPU_FRACTION_NUM_DEVICES, GPU_FRACTION_CONTAINER, MPS];

pub(super) fn check(work: &Work<'_>, options: &Options, findings: &mut Vec<Finding>) {
    for (path, template) in &work.templates {
        if template["spec"]["schedulerName"] != *options.scheduler_name {
            continue;
        }
        let annotations = &template["metadata"]["annotations"];
        let shares = SHARING.iter().find(|key| annotations[**key].as_str().is_some_and(|value| value != "false"));
        let field = match shares {
            Some(key) => annotation(path, key),
            None if has_claims(template) => if path.is_empty() { "spec.resourceClaims".to_owned() } else { format!("{path}.spec.resourceClaims") },
            None => continue,
        };
        let what = if shares.is_some() { "shares GPUs" } else { "claims devices" };
        let then = if template["spec"]["nodeName"].is_string() { "it runs on, and waits if it has to be placed again" } else { "it waits" };
        let message = format!("{what}, which is not supported yet: {then}");
        findings.push(Finding::new(work.item, Severity::Error, "UnsupportedFeature", &field, message));
    }
}

fn has_claims(template: &Value) -> bool {
    template["spec"]["resourceClaims"].as_array().is_some_and(|claims| !claims.is_empty())
}
