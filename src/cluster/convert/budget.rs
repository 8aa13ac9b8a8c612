//! Disruption budgets become facts.

use berth_engine::facts::{BudgetFacts, ObjectKey};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::shape::selector;
use super::{FieldError, Result, object_name, required_name, uid_of};

/// Facts of a disruption budget.
pub fn budget_facts(budget: &PodDisruptionBudget) -> Result<BudgetFacts> {
    budget_fields(budget).map_err(|error| error.of(object_name("policy/v1", "PodDisruptionBudget", &budget.metadata)))
}

fn budget_fields(budget: &PodDisruptionBudget) -> std::result::Result<BudgetFacts, FieldError> {
    let meta = &budget.metadata;
    let spec = budget.spec.as_ref();
    // Until its controller has looked at it, it allows nothing, as the API server has it.
    let allowed = budget.status.as_ref().map_or(0, |status| u32::try_from(status.disruptions_allowed).unwrap_or(0));
    Ok(BudgetFacts {
        uid: uid_of("PodDisruptionBudget", meta),
        key: ObjectKey::new(meta.namespace.clone().unwrap_or_default(), required_name(meta)?),
        selector: selector("spec.selector", spec.and_then(|spec| spec.selector.as_ref()))?,
        allowed,
    })
}
