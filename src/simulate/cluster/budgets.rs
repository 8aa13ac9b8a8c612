//! Disruption budgets in virtual time: what their controller would write into their status.

use berth_engine::facts::{Event, LabelSelector};
use berth_engine::fit::selectors::selects;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Cluster;
use crate::cluster::convert::budget::budget_facts;
use crate::simulate::objects::{ObjectId, text};

/// The kind.
pub(super) const BUDGET: &str = "PodDisruptionBudget";

impl Cluster {
    /// Tells the engine what every budget allows now.
    pub(super) fn refresh_budgets(&mut self) {
        let first = ObjectId { kind: BUDGET.to_owned(), ..ObjectId::default() };
        let ids: Vec<ObjectId> = self.objects.range(first..).map(|(id, _)| id.clone()).take_while(|id| id.kind == BUDGET).collect();
        for id in ids {
            let Some(budget) = self.read::<PodDisruptionBudget>(&id) else { continue };
            let Some(place) = self.objects.get(&id).map(|stored| stored.place.clone()) else { continue };
            match budget_facts(&budget) {
                Ok(mut facts) => {
                    let counted = facts.selector.as_ref().and_then(|selector| self.allowed(&id.namespace, selector, &budget));
                    facts.allowed = counted.unwrap_or(facts.allowed);
                    if self.world.budget(&facts.uid) != Some(&facts) {
                        self.send(Event::BudgetUpsert(facts), &place);
                    }
                }
                Err(error) => self.refuse(&id, &error),
            }
        }
    }

    /// How many of the budget's pods may go; `None` when it sets no bound.
    fn allowed(&self, namespace: &str, selector: &LabelSelector, budget: &PodDisruptionBudget) -> Option<u32> {
        let (mut expected, mut healthy) = (0_i64, 0_i64);
        for (id, stored) in self.pods().filter(|(id, _)| id.namespace == namespace) {
            let labels = stored.value.pointer("/metadata/labels").and_then(|labels| labels.as_object());
            let labels = labels.into_iter().flatten().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
            let phase = text(&stored.value, "/status/phase");
            if id.name.is_empty() || !selects(selector, &labels) || matches!(phase, "Succeeded" | "Failed") {
                continue;
            }
            expected += 1;
            let leaves = stored.value.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
            let runs = phase == "Running" && !text(&stored.value, "/spec/nodeName").is_empty();
            healthy += i64::from(runs && !leaves);
        }
        let spec = budget.spec.as_ref()?;
        let wanted = match (&spec.min_available, &spec.max_unavailable) {
            (Some(least), _) => scaled(least, expected),
            (None, Some(most)) => expected - scaled(most, expected),
            (None, None) => return None,
        };
        u32::try_from((healthy - wanted).max(0)).ok()
    }
}

/// A count, or a share of all pods, rounded up.
fn scaled(value: &IntOrString, of: i64) -> i64 {
    match value {
        IntOrString::Int(count) => i64::from(*count),
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(100);
            (percent.clamp(0, 100) * of + 99) / 100
        }
    }
}
