//! Disruption budgets: which pods may be evicted, and how many together.

use std::collections::BTreeMap;

use crate::facts::{BudgetFacts, PodPhase};
use crate::fit::selectors::selects;
use crate::world::World;
use crate::world::model::Pod;

impl World {
    pub(super) fn upsert_budget(&mut self, facts: BudgetFacts) {
        let before = self.budgets.get(&facts.uid);
        self.changes.budgets |= before.is_none_or(|old| old.selector != facts.selector || old.allowed < facts.allowed);
        self.budgets.insert(facts.uid.clone(), facts);
    }

    pub(super) fn delete_budget(&mut self, uid: &str) {
        self.changes.budgets |= self.budgets.remove(uid).is_some();
    }

    /// A budget by UID.
    #[must_use]
    pub fn budget(&self, uid: &str) -> Option<&BudgetFacts> {
        self.budgets.get(uid)
    }

    /// UIDs of the budgets that protect a pod. One that has not started is evicted without asking them, as the API does.
    pub(crate) fn budgets_of(&self, pod: &Pod) -> Vec<&str> {
        if pod.facts.phase != PodPhase::Running {
            return Vec::new();
        }
        let protects = |budget: &&BudgetFacts| {
            budget.key.namespace == pod.facts.namespace
                && budget.selector.as_ref().is_some_and(|selector| selects(selector, &pod.facts.labels))
        };
        self.budgets.values().filter(protects).map(|budget| budget.uid.as_str()).collect()
    }

    /// What every budget still allows. Evictions that were asked for and are not seen yet are taken off.
    pub(crate) fn allowances(&self) -> BTreeMap<String, u32> {
        let mut left: BTreeMap<String, u32> = self.budgets.values().map(|budget| (budget.uid.clone(), budget.allowed)).collect();
        if left.is_empty() {
            return left;
        }
        for pod in self.pods.iter().flatten().filter(|pod| pod.evicting && pod.live()) {
            for budget in self.budgets_of(pod) {
                if let Some(left) = left.get_mut(budget) {
                    *left = left.saturating_sub(1);
                }
            }
        }
        left
    }
}
