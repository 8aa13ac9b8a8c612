//! Sets of victims and what they cost.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::prey::Field;
use crate::facts::Millis;
use crate::ids::PodIdx;
use crate::world::shares::Amounts3;

/// Pods to be evicted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    pub pods: BTreeSet<PodIdx>,
    /// Gangs, by their number in the field, that go as a whole.
    pub whole: BTreeSet<usize>,
}

/// Cheaper is less: pods above a minimum before whole gangs, fewest gangs, lowest priority, least lost work, youngest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    /// Gangs that go as a whole.
    pub gangs: usize,
    /// Gangs that lose pods although their own queue has no more than it deserves.
    within_quota: usize,
    /// Priorities of the whole gangs, the highest first.
    priorities: Vec<i32>,
    /// Priorities of the gangs of the other pods, the highest first.
    spare_priorities: Vec<i32>,
    lost: i128,
    created: Reverse<i128>,
    /// Last tie: the same input gives the same answer.
    pods: Vec<PodIdx>,
}

impl Field {
    pub(super) fn cost(&self, choice: &Choice, now: Millis) -> Cost {
        let mut priorities: Vec<i32> = choice.whole.iter().map(|prey| self.preys[*prey].priority).collect();
        let spare = choice.pods.iter().map(|pod| self.quarries[pod].prey).filter(|prey| !choice.whole.contains(prey));
        let mut spare_priorities: Vec<i32> = spare.map(|prey| self.preys[prey].priority).collect();
        priorities.sort_unstable_by(|a, b| b.cmp(a));
        spare_priorities.sort_unstable_by(|a, b| b.cmp(a));
        let quarries = || choice.pods.iter().map(|pod| &self.quarries[pod]);
        let preys: BTreeSet<usize> = quarries().map(|quarry| quarry.prey).collect();
        Cost {
            gangs: choice.whole.len(),
            within_quota: preys.into_iter().filter(|prey| self.preys[*prey].within_quota).count(),
            priorities,
            spare_priorities,
            lost: quarries().map(|quarry| quarry.lost(now)).sum(),
            created: Reverse(quarries().map(|quarry| i128::from(quarry.created)).sum()),
            pods: choice.pods.iter().copied().collect(),
        }
    }

    /// The choice with one more pod, and with all others of its gang when that is at its minimum. `None` when that may
    /// not be: the gang may not go, or a disruption budget does not allow it.
    pub(super) fn with(&self, choice: &Choice, pod: PodIdx) -> Option<Choice> {
        if choice.pods.contains(&pod) {
            return Some(choice.clone());
        }
        let quarry = &self.quarries[&pod];
        let prey = &self.preys[quarry.prey];
        let mut more = choice.clone();
        let taken = prey.pods.iter().filter(|other| choice.pods.contains(other) && self.quarries[other].leaf == quarry.leaf).count();
        let spare = prey.spare.get(quarry.leaf).copied().unwrap_or(0) as usize;
        if taken < spare {
            more.pods.insert(pod);
        } else if prey.whole {
            more.pods.extend(&prey.pods);
            more.whole.insert(quarry.prey);
        } else {
            return None;
        }
        self.may_go(&more).then_some(more)
    }

    /// Disruption budgets and queues let all of it go together.
    pub(super) fn may_go(&self, choice: &Choice) -> bool {
        self.is_allowed(choice) && self.is_fair(choice)
    }

    /// Some queue owes something, where that decides.
    pub(super) fn somebody_owes(&self) -> bool {
        let Some(fair) = &self.fair else { return !self.preys.is_empty() };
        self.queues.iter().any(|queue| fair.allows(&[(*queue, [1; 3])]))
    }

    /// These pods are on their way out: nobody else can have them evicted.
    pub(crate) fn forget(&mut self, pods: &BTreeSet<PodIdx>) {
        for pod in pods {
            let Some(quarry) = self.quarries.remove(pod) else { continue };
            if let Some(on_node) = self.by_node.get_mut(&quarry.node) {
                on_node.retain(|other| other != pod);
            }
            let prey = &mut self.preys[quarry.prey];
            prey.pods.remove(pod);
            if let Some(spare) = prey.spare.get_mut(quarry.leaf) {
                *spare = spare.saturating_sub(1);
            }
            if let Some(allowed) = quarry.budget.and_then(|budget| self.allowed.get_mut(&budget)) {
                *allowed = allowed.saturating_sub(1);
            }
        }
    }

    /// The queues of the victims may be asked for all of it.
    fn is_fair(&self, choice: &Choice) -> bool {
        let Some(fair) = &self.fair else { return true };
        let mut whole: BTreeMap<usize, Amounts3> = BTreeMap::new();
        let mut units: Vec<(usize, Amounts3)> = Vec::new();
        for quarry in choice.pods.iter().map(|pod| &self.quarries[pod]) {
            if choice.whole.contains(&quarry.prey) {
                let sum = whole.entry(quarry.prey).or_default();
                sum.iter_mut().zip(quarry.charge).for_each(|(sum, more)| *sum = sum.saturating_add(more));
            } else {
                units.push((self.preys[quarry.prey].queue, quarry.charge));
            }
        }
        units.extend(whole.into_iter().map(|(prey, sum)| (self.preys[prey].queue, sum)));
        fair.allows(&units)
    }

    /// Disruption budgets allow all of it together.
    fn is_allowed(&self, choice: &Choice) -> bool {
        if self.allowed.is_empty() {
            return true;
        }
        let mut asked: BTreeMap<&str, u32> = BTreeMap::new();
        for budget in choice.pods.iter().filter_map(|pod| self.quarries[pod].budget.as_deref()) {
            *asked.entry(budget).or_default() += 1;
        }
        asked.iter().all(|(budget, asked)| *asked <= self.allowed.get(*budget).copied().unwrap_or(0))
    }

    /// Which pods of a node are taken first: those that cost no gang; lowest priority; least lost work; youngest.
    pub(super) fn rank(&self, pod: PodIdx, choice: &Choice, now: Millis) -> (bool, bool, i32, i128, Reverse<Millis>, PodIdx) {
        let quarry = &self.quarries[&pod];
        let prey = &self.preys[quarry.prey];
        let costs_gang = !choice.whole.contains(&quarry.prey) && prey.spare.get(quarry.leaf).copied().unwrap_or(0) == 0;
        (costs_gang, prey.within_quota, prey.priority, quarry.lost(now), Reverse(quarry.created), pod)
    }

    /// What can be put back by itself, the dearest first: whole gangs, then single pods above a minimum.
    pub(super) fn units(&self, choice: &Choice, now: Millis) -> Vec<BTreeSet<PodIdx>> {
        let of = |prey: usize| choice.pods.iter().copied().filter(|pod| self.quarries[pod].prey == prey).collect::<BTreeSet<PodIdx>>();
        let mut units: Vec<BTreeSet<PodIdx>> = choice.whole.iter().map(|prey| of(*prey)).collect();
        let single = choice.pods.iter().filter(|pod| !choice.whole.contains(&self.quarries[pod].prey));
        units.extend(single.map(|pod| BTreeSet::from([*pod])));
        let cost = |unit: &BTreeSet<PodIdx>| {
            let mut alone = Choice { pods: unit.clone(), whole: BTreeSet::new() };
            alone.whole.extend(unit.first().map(|pod| self.quarries[pod].prey).filter(|prey| choice.whole.contains(prey)));
            Reverse(self.cost(&alone, now))
        };
        units.sort_by_cached_key(cost);
        units
    }

    /// The victims give back what their queue owes.
    pub(super) fn pays(&self, choice: &Choice) -> bool {
        let mut sum = Amounts3::default();
        for quarry in choice.pods.iter().map(|pod| &self.quarries[pod]) {
            sum.iter_mut().zip(quarry.charge).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        }
        sum.iter().zip(&self.owed).all(|(sum, owed)| sum >= owed)
    }

    /// More victims, the cheapest first, until the queue owes nothing; `None` when all of them are not enough.
    pub(super) fn paid(&self, choice: &Choice, now: Millis) -> Option<Choice> {
        let mut all = choice.clone();
        while !self.pays(&all) {
            let gives = |quarry: &super::prey::Quarry| quarry.charge.iter().zip(&self.owed).any(|(gives, owed)| *gives > 0 && *owed > 0);
            let open = self.quarries.iter().filter(|(pod, quarry)| !all.pods.contains(pod) && gives(quarry));
            let more = open.filter_map(|(pod, _)| self.with(&all, *pod));
            all = more.min_by_key(|choice| self.cost(choice, now))?;
        }
        Some(all)
    }

    /// Forgets gangs of which nothing is taken any more.
    pub(super) fn recount(&self, choice: &mut Choice) {
        let left: BTreeSet<usize> = choice.pods.iter().map(|pod| self.quarries[pod].prey).collect();
        choice.whole.retain(|prey| left.contains(prey));
    }
}
