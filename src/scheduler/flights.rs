//! What is under way: Bindings per gang, back-offs, and gangs that are only half bound.

use std::collections::{BTreeMap, BTreeSet};

use berth_engine::facts::Millis;

use crate::cluster::directory::Entry;

/// First wait of a gang whose Binding was refused; doubles with every refusal in a row.
pub(crate) const FIRST_BACK_OFF_MILLIS: Millis = 1_000;

/// Longest wait: a person who repaired the cause should not wait longer.
const MAX_BACK_OFF_MILLIS: Millis = 300_000;

/// How long a half-bound gang may take to become whole before its bound pods are evicted: controllers replace a pod within seconds.
const GRACE_MILLIS: Millis = 30_000;

/// The clocks of two processes may differ by this much when creation times and decision times are compared.
const CLOCK_SLACK_MILLIS: Millis = 2_000;

/// Decisions of one gang that may be stale in a row before it waits: the engine hears of what changed within its next turn.
const MAX_STALE_IN_A_ROW: u32 = 3;

/// How a Binding ended, as far as its gang is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Bound,
    Refused,
    /// It was not sent: something had changed since the decision.
    Stale,
}

#[derive(Debug, Default)]
struct Flight {
    left: usize,
    refused: bool,
    stale: bool,
}

/// Bindings in flight and what came of those that ended.
#[derive(Debug, Default)]
pub(super) struct Flights {
    gang_of: BTreeMap<String, String>,
    gangs: BTreeMap<String, Flight>,
    ended: Vec<(String, bool)>,
    dirty: BTreeSet<String>,
    /// Refusals in a row.
    refusals: BTreeMap<String, u32>,
    /// Stale decisions in a row.
    stale: BTreeMap<String, u32>,
    half: BTreeMap<String, Millis>,
}

impl Flights {
    pub(super) fn in_flight(&self) -> usize {
        self.gang_of.len()
    }

    pub(super) fn started(&mut self, gang: &str, pods: &[String]) {
        for pod in pods {
            if self.gang_of.insert(pod.clone(), gang.to_owned()).is_none() {
                self.gangs.entry(gang.to_owned()).or_default().left += 1;
            }
        }
        self.touch(gang.to_owned());
    }

    /// A Binding ended. Gives the gang when this is the first refusal among those in flight: it must wait from now on, or
    /// the next pass would try again what was just refused. A stale decision is made again at once, unless that happens
    /// again and again.
    pub(super) fn ended(&mut self, pod: &str, how: How) -> Option<String> {
        let gang = self.gang_of.remove(pod)?;
        let flight = self.gangs.get_mut(&gang)?;
        flight.left -= 1;
        let mut first = how == How::Refused && !flight.refused;
        flight.refused |= how == How::Refused;
        if how == How::Stale && !flight.stale {
            flight.stale = true;
            let times = self.stale.entry(gang.clone()).or_insert(0);
            *times = times.saturating_add(1);
            first = *times > MAX_STALE_IN_A_ROW;
        }
        if flight.left == 0 {
            let refused = self.gangs.remove(&gang).is_some_and(|flight| flight.refused);
            self.ended.push((gang.clone(), refused));
        }
        first.then_some(gang)
    }

    /// Gangs whose Bindings have all ended, and whether one was refused.
    pub(super) fn take_ended(&mut self) -> Vec<(String, bool)> {
        std::mem::take(&mut self.ended)
    }

    /// The gang's report may have changed.
    pub(super) fn touch(&mut self, gang: String) {
        self.dirty.insert(gang);
    }

    /// Gangs to report: those in flight wait for their end, so that a gang on its way is written once.
    pub(super) fn take_reportable(&mut self) -> Vec<String> {
        let gangs = &self.gangs;
        let (later, ready) = std::mem::take(&mut self.dirty).into_iter().partition(|gang| gangs.contains_key(gang));
        self.dirty = later;
        let ready: BTreeSet<String> = ready;
        ready.into_iter().collect()
    }

    /// Counts a refusal and says until when the gang waits.
    pub(super) fn back_off(&mut self, gang: &str, now: Millis) -> Millis {
        let refusals = self.refusals.entry(gang.to_owned()).or_insert(0);
        let wait = FIRST_BACK_OFF_MILLIS.saturating_mul(1 << (*refusals).min(20)).min(MAX_BACK_OFF_MILLIS);
        *refusals = refusals.saturating_add(1);
        now + wait
    }

    pub(super) fn half_bound(&mut self, gang: &str, now: Millis) {
        self.half.entry(gang.to_owned()).or_insert(now);
    }

    pub(super) fn half_bound_gangs(&self) -> Vec<String> {
        self.half.keys().filter(|gang| !self.gangs.contains_key(*gang)).cloned().collect()
    }

    pub(super) fn patience_is_over(&self, gang: &str, now: Millis) -> bool {
        self.half.get(gang).is_some_and(|since| now - since >= GRACE_MILLIS)
    }

    pub(super) fn not_half_bound(&mut self, gang: &str) {
        self.half.remove(gang);
    }

    /// All is well: refusals are forgotten.
    pub(super) fn whole(&mut self, gang: &str) {
        self.half.remove(gang);
        self.refusals.remove(gang);
        self.stale.remove(gang);
    }
}

/// Whether an earlier process was interrupted while it bound this gang: the mark of the latest decision speaks of more
/// pods than carry it, and a pod that waits is older than that decision. (A pod that died and was made anew is younger.)
pub(super) fn was_left_half_bound(entry: &Entry) -> bool {
    let mut marked: BTreeMap<&str, (usize, usize, Millis)> = BTreeMap::new();
    for member in entry.members.values().filter(|member| member.node.is_some()) {
        let Some((mark, count)) = member.decision.as_deref().and_then(|mark| mark.split_once('/')) else { continue };
        let Ok(count) = count.parse() else { continue };
        let slot = marked.entry(mark).or_insert((0, count, 0));
        slot.0 += 1;
        slot.2 = slot.2.max(member.created);
    }
    let waiting: Vec<Millis> = entry.members.values().filter(|m| m.node.is_none() && !m.leaving).map(|m| m.created).collect();
    marked.values().any(|(seen, count, youngest)| {
        seen < count && waiting.iter().any(|created| *created <= youngest + CLOCK_SLACK_MILLIS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::directory::Member;

    #[test]
    fn a_gang_is_reported_once_all_its_bindings_ended() {
        let mut flights = Flights::default();
        flights.started("g", &["a".to_owned(), "b".to_owned()]);
        assert_eq!(flights.ended("a", How::Bound), None);
        assert!(flights.take_reportable().is_empty() && flights.take_ended().is_empty());
        assert_eq!(flights.ended("b", How::Refused), Some("g".to_owned()));
        assert_eq!(flights.take_ended(), [("g".to_owned(), true)]);
        assert_eq!(flights.take_reportable(), ["g".to_owned()]);
        assert_eq!(flights.in_flight(), 0);
    }

    #[test]
    fn a_stale_decision_is_made_again_at_once_but_not_for_ever() {
        let mut flights = Flights::default();
        let mut again = || {
            flights.started("g", &["a".to_owned(), "b".to_owned()]);
            let waits = [flights.ended("a", How::Stale), flights.ended("b", How::Stale)];
            assert_eq!(flights.take_ended(), [("g".to_owned(), false)]);
            waits.into_iter().flatten().count()
        };
        assert_eq!([again(), again(), again(), again()], [0, 0, 0, 1]);
    }

    #[test]
    fn back_off_doubles_to_its_limit() {
        let mut flights = Flights::default();
        assert_eq!([flights.back_off("g", 0), flights.back_off("g", 0), flights.back_off("g", 0)], [1_000, 2_000, 4_000]);
        for _ in 0..40 {
            assert!(flights.back_off("g", 0) <= MAX_BACK_OFF_MILLIS);
        }
        flights.whole("g");
        assert_eq!(flights.back_off("g", 0), 1_000);
    }

    #[test]
    fn half_bound_gangs_are_told_from_gangs_that_lost_a_pod() {
        let member = |node: Option<&str>, created| Member {
            node: node.map(str::to_owned),
            decision: node.map(|_| "1a-7/2".to_owned()),
            created,
            ..Member::default()
        };
        let entry = |waiting_since| Entry {
            members: [("a".to_owned(), member(Some("n"), 10_000)), ("b".to_owned(), member(None, waiting_since))].into(),
            ..Entry::default()
        };
        assert!(was_left_half_bound(&entry(10_500)));
        assert!(!was_left_half_bound(&entry(500_000)));
    }
}
