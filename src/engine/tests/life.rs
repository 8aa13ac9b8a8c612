//! The life of a gang after its start: holes that are filled, and gangs that are given up.

use super::fixture::Lab;
use crate::facts::*;
use crate::outcome::*;

impl Lab {
    /// A pass whose Bindings all succeed.
    fn bound_pass(&mut self) -> Outcome {
        let outcome = self.pass();
        for placement in outcome.decisions.iter().flat_map(|decision| &decision.placements) {
            self.send(Event::BindEnded(placement.pod_uid.clone(), BindResult::Bound));
        }
        self.pass();
        outcome
    }

    /// The pods of a gang of one leaf fail or are deleted.
    fn lose(&mut self, pods: &[&str]) {
        for pod in pods {
            self.send(Event::PodDelete((*pod).to_owned()));
        }
    }

    fn renew(&mut self, gang: &str, sub: Option<&str>, index: u32) {
        let facts = Lab::pod_facts(gang, sub, index, 8);
        self.send(Event::PodUpsert(PodFacts { uid: format!("{}-again", facts.uid), ..facts }));
    }

    fn evicted(&mut self) -> Vec<String> {
        let evictions = self.pass().evictions;
        evictions.into_iter().flat_map(|eviction| eviction.pods).map(|victim| victim.pod_uid).collect()
    }
}

#[test]
fn a_gang_below_its_minimum_is_given_up_whole_after_its_grace_period() {
    let mut lab = Lab::new("r1: a b c");
    lab.gang("g", 3, 8, "rack", "");
    lab.bound_pass();
    lab.now = 1_000;
    lab.lose(&["g-1"]);
    let outcome = lab.pass();
    assert_eq!((outcome.evictions.len(), outcome.next_wakeup), (0, Some(61_000)));
    let stale = lab.report("g").stale.unwrap();
    assert_eq!((stale.since, stale.has, stale.needs, stale.evicting), (1_000, 2, 3, false));
    lab.now = 60_999;
    assert!(lab.evicted().is_empty());
    lab.now = 61_000;
    assert_eq!(lab.evicted(), ["g-0", "g-2"]);
    assert!(lab.evicted().is_empty(), "once, until it is known what became of it");
    // What is refused is asked for again later.
    lab.lose(&["g-0"]);
    lab.send(Event::EvictRefused("g-2".into(), "a disruption budget".into()));
    lab.now = 90_999;
    assert!(lab.evicted().is_empty());
    lab.now = 91_000;
    assert_eq!(lab.evicted(), ["g-2"]);
    lab.lose(&["g-2"]);
    assert_eq!((lab.pass().next_wakeup, lab.report("g").stale), (None, None));
}

#[test]
fn its_own_grace_period_counts_and_a_negative_one_is_for_ever() {
    for (grace, policy, at) in [(Some(5_000), 60_000, Some(5_000)), (Some(-1), 60_000, None), (None, -1, None), (None, 0, Some(0))] {
        let mut lab = Lab::new("r1: a b c");
        lab.policy.staleness_grace_millis = policy;
        let facts = GangFacts { staleness_grace_millis: grace, ..Lab::gang_facts("g", 2, Lab::constraint("rack", "")) };
        lab.gang("g", 2, 8, "rack", "");
        lab.send(Event::GangUpsert(facts));
        lab.bound_pass();
        lab.lose(&["g-1"]);
        assert_eq!(lab.pass().evictions.is_empty(), at != Some(0));
        lab.now = at.unwrap_or(1_000_000);
        assert_eq!(lab.pass().evictions.is_empty(), at.is_none() || at == Some(0), "{grace:?} {policy}");
    }
}

#[test]
fn a_gang_that_recovers_in_time_starts_its_grace_period_anew() {
    let mut lab = Lab::new("r1: a b");
    lab.gang("g", 2, 8, "rack", "");
    lab.bound_pass();
    lab.lose(&["g-1"]);
    lab.pass();
    lab.now = 59_000;
    lab.renew("g", None, 1);
    lab.bound_pass();
    assert_eq!(lab.places("g"), "a b");
    lab.now = 70_000;
    lab.lose(&["g-0"]);
    assert_eq!(lab.pass().next_wakeup, Some(130_000));
}

#[test]
fn completed_in_the_pass_in_which_its_time_is_over_it_stays() {
    let mut lab = Lab::new("r1: a b");
    lab.gang("g", 2, 8, "rack", "");
    lab.bound_pass();
    lab.lose(&["g-1"]);
    lab.pass();
    lab.now = 60_000;
    lab.renew("g", None, 1);
    assert!(lab.evicted().is_empty());
    assert_eq!(lab.places("g"), "a b");
}

#[test]
fn the_grace_period_goes_on_where_an_earlier_process_left_it() {
    // Of three pods two run, and no mark says that they were decided together: another scheduler wrote the moment down.
    let begin = |since: Option<Millis>, now: Millis| {
        let mut lab = Lab::new("r1: a b c");
        lab.now = now;
        lab.send(Event::GangUpsert(GangFacts { stale_since: since, ..Lab::gang_facts("g", 3, ConstraintFacts::default()) }));
        for (index, node) in [(0, "a"), (1, "b")] {
            let facts = Lab::pod_facts("g", None, index, 8);
            lab.send(Event::PodUpsert(PodFacts { node: Some(node.to_owned()), phase: PodPhase::Running, ..facts }));
        }
        lab.pass();
        lab
    };
    let mut lab = begin(Some(1_000), 60_000);
    assert_eq!(lab.report("g").stale.map(|stale| stale.since), Some(1_000));
    lab.now = 60_999;
    assert!(lab.evicted().is_empty());
    // Looking at it again changes nothing.
    lab.send(Event::GangUpsert(GangFacts { priority: 1, ..Lab::gang_facts("g", 3, ConstraintFacts::default()) }));
    lab.now = 61_000;
    assert_eq!(lab.evicted(), ["g-0", "g-1"]);
    // Nothing written down, or a moment to come, says nothing.
    assert_eq!(begin(None, 60_000).report("g").stale, None);
    assert_eq!(begin(Some(70_000), 60_000).report("g").stale, None);
    // Once it is whole, what was written down is over.
    let mut lab = begin(Some(1_000), 2_000);
    lab.send(Event::PodUpsert(Lab::pod_facts("g", None, 2, 8)));
    lab.bound_pass();
    lab.now = 5_000;
    lab.lose(&["g-2"]);
    lab.pass();
    assert_eq!(lab.report("g").stale.map(|stale| stale.since), Some(5_000));
}

#[test]
fn finishing_gangs_are_not_stale() {
    let mut lab = Lab::new("r1: a b c");
    lab.gang("g", 3, 8, "rack", "");
    lab.bound_pass();
    let done = PodFacts { phase: PodPhase::Succeeded, node: Some("a".into()), ..Lab::pod_facts("g", None, 0, 8) };
    lab.send(Event::PodUpsert(done));
    lab.pass();
    // Its controller may tidy up what has ended.
    lab.lose(&["g-0"]);
    lab.now = 600_000;
    assert!(lab.evicted().is_empty());
    assert_eq!(lab.report("g").stale, None);
}

#[test]
fn an_allowed_subset_of_subgroups_is_not_stale() {
    let mut lab = Lab::new("r1: a b; r2: c d; r3: e f");
    lab.groups("g", ("", ""), &[("one", 2, 8, "rack", ""), ("two", 2, 8, "rack", ""), ("three", 2, 8, "rack", "")]);
    let mut facts = Lab::gang_facts("g", 1, Lab::constraint("", ""));
    facts.min_member = None;
    facts.min_subgroup = Some(2);
    facts.subgroups = ["one", "two", "three"]
        .iter()
        .map(|name| SubgroupFacts {
            name: (*name).to_owned(),
            min_member: Some(2),
            constraint: Lab::constraint("rack", ""),
            ..SubgroupFacts::default()
        })
        .collect();
    lab.send(Event::GangUpsert(facts));
    lab.bound_pass();
    lab.lose(&["g-two-0", "g-two-1"]);
    lab.pass();
    lab.now = 600_000;
    assert!(lab.evicted().is_empty(), "two of three are enough");
    lab.lose(&["g-three-0"]);
    lab.pass();
    lab.now = 660_000;
    assert_eq!(lab.evicted(), ["g-one-0", "g-one-1", "g-three-1"]);
}

#[test]
fn what_never_ran_whole_is_not_stale() {
    let mut lab = Lab::new("r1: a b c");
    lab.send(Event::GangUpsert(Lab::gang_facts("g", 3, Lab::constraint("rack", ""))));
    lab.send(Event::PodUpsert(PodFacts { node: Some("a".into()), ..Lab::pod_facts("g", None, 0, 8) }));
    lab.pass();
    lab.now = 600_000;
    assert!(lab.evicted().is_empty(), "a leader whose followers are to come");
    // One that was decided together with others had them.
    let marked = PodFacts { node: Some("a".into()), decision: Some("1-1/3".into()), ..Lab::pod_facts("g", None, 0, 8) };
    lab.send(Event::PodUpsert(marked));
    lab.pass();
    lab.now = 660_000;
    assert_eq!(lab.evicted(), ["g-0"]);
}

#[test]
fn a_larger_minimum_makes_no_running_gang_stale() {
    let mut lab = Lab::new("r1: a b c");
    lab.gang("g", 2, 8, "rack", "");
    lab.bound_pass();
    lab.send(Event::GangUpsert(Lab::gang_facts("g", 3, Lab::constraint("rack", ""))));
    lab.pass();
    lab.now = 600_000;
    assert!(lab.evicted().is_empty());
}

#[test]
fn replacements_do_not_join_pods_that_are_being_evicted() {
    let mut lab = Lab::new("r1: a b c");
    lab.gang("g", 2, 8, "rack", "");
    lab.bound_pass();
    lab.lose(&["g-1"]);
    lab.pass();
    lab.now = 60_000;
    assert_eq!(lab.evicted(), ["g-0"]);
    lab.renew("g", None, 1);
    lab.pass();
    assert_eq!((lab.places("g").as_str(), lab.code("g").as_str()), ("a -", "StaleGang 0/0"));
    // Terminating pods are no members any more: the gang starts anew, whole.
    let leaving = PodFacts { terminating: true, node: Some("a".into()), ..Lab::pod_facts("g", None, 0, 8) };
    lab.send(Event::PodUpsert(leaving));
    lab.pass();
    assert_eq!(lab.code("g"), "NotEnoughPods 1/2");
    lab.renew("g", None, 0);
    lab.bound_pass();
    assert_eq!(lab.report("g").state, GangState::Placed);
}

#[test]
fn a_gang_that_is_given_up_is_completed_whole_or_not_at_all() {
    let mut lab = Lab::new("r1: a b c d");
    lab.gang("g", 3, 8, "rack", "");
    lab.busy("d", 8);
    lab.bound_pass();
    lab.lose(&["g-1", "g-2"]);
    lab.busy("b", 8);
    lab.busy("c", 8);
    lab.pass();
    lab.now = 60_000;
    assert_eq!(lab.evicted(), ["g-0"]);
    lab.send(Event::EvictRefused("g-0".into(), "a disruption budget".into()));
    lab.renew("g", None, 1);
    lab.renew("g", None, 2);
    lab.lose(&["busy-b-0"]);
    lab.now = 90_000;
    assert_eq!(lab.evicted(), ["g-0"]);
    assert_eq!(lab.places("g"), "a - -", "room for one is not enough");
    lab.lose(&["busy-c-0"]);
    lab.now = 120_000;
    assert!(lab.evicted().is_empty(), "there is room for all: nothing needs to go");
    assert_eq!(lab.places("g"), "a b c");
}

#[test]
fn holes_are_filled_one_by_one_only_where_a_gang_ran() {
    let mut lab = Lab::new("r1: a b c d");
    lab.gang("g", 4, 8, "rack", "");
    lab.bound_pass();
    lab.lose(&["g-1", "g-3"]);
    lab.busy("d", 8);
    lab.renew("g", None, 1);
    lab.bound_pass();
    assert_eq!(lab.places("g"), "a b c", "one of the two is not there yet, the other is not kept waiting");
    lab.renew("g", None, 3);
    lab.pass();
    assert_eq!(lab.code("g"), "PinnedDomainFull 3/4");

    let mut lab = Lab::new("r1: a b c");
    lab.gang("g", 4, 8, "rack", "");
    for (index, node) in [(0, "a"), (1, "b")] {
        lab.send(Event::PodUpsert(PodFacts { node: Some(node.into()), ..Lab::pod_facts("g", None, index, 8) }));
    }
    lab.pass();
    assert_eq!(lab.places("g"), "a b - -");
}

#[test]
fn a_gang_that_grows_without_room_still_gets_its_lost_pod_back() {
    let mut lab = Lab::new("r1: a b c");
    lab.gang("g", 2, 8, "rack", "");
    lab.bound_pass();
    lab.send(Event::GangUpsert(Lab::gang_facts("g", 4, Lab::constraint("rack", ""))));
    for index in [2, 3] {
        lab.send(Event::PodUpsert(Lab::pod_facts("g", None, index, 8)));
    }
    lab.bound_pass();
    assert_eq!(lab.places("g"), "a b - -", "what is new starts whole");
    lab.lose(&["g-0"]);
    lab.renew("g", None, 0);
    lab.bound_pass();
    assert_eq!(lab.places("g"), "a b - -");
}

#[test]
fn leaves_are_known_by_their_names_when_the_tree_changes() {
    let mut lab = Lab::new("r1: a b c; r2: d e f");
    let two = ("two", 2, 8, "rack", "");
    lab.groups("g", ("", ""), &[("one", 2, 8, "rack", ""), two]);
    lab.bound_pass();
    assert_eq!(lab.places("g"), "a b d e");
    // Another leaf comes before them. Nobody has its pods yet; a pod of the others is lost, and comes back.
    lab.lose(&["g-two-1"]);
    let mut facts = Lab::gang_facts("g", 1, Lab::constraint("", ""));
    facts.min_member = None;
    facts.subgroups = ["zero", "one", "two"]
        .iter()
        .map(|name| SubgroupFacts {
            name: (*name).to_owned(),
            min_member: Some(2),
            constraint: Lab::constraint("rack", ""),
            ..SubgroupFacts::default()
        })
        .collect();
    lab.send(Event::GangUpsert(facts));
    lab.renew("g", Some("two"), 1);
    lab.bound_pass();
    assert_eq!(lab.places("g"), "a b d e");
    assert_eq!(lab.report("g").stale, None, "with its new leaf it never was whole");
}

#[test]
fn a_refused_binding_makes_no_hole() {
    let mut lab = Lab::new("r1: a b");
    lab.gang("g", 2, 8, "rack", "");
    let outcome = lab.pass();
    let ended = |lab: &mut Lab, at: usize, result| {
        lab.send(Event::BindEnded(outcome.decisions[0].placements[at].pod_uid.clone(), result));
    };
    ended(&mut lab, 0, BindResult::Bound);
    ended(&mut lab, 1, BindResult::Permanent("no".into()));
    lab.busy("b", 8);
    lab.pass();
    assert_eq!(lab.report("g").stale, None, "its release is the loop's business");
}

fn gpus(amounts: &Amounts) -> i64 {
    amounts.get("nvidia.com/gpu").copied().unwrap_or(0)
}

#[test]
fn queues_sum_up_their_gangs_and_the_queues_below() {
    let mut lab = Lab::new("r1: a b c");
    for (name, parent) in [("top", None), ("left", Some("top")), ("right", Some("top"))] {
        let parent = parent.map(str::to_owned);
        // Without a limit.
        lab.send(Event::QueueUpsert(QueueFacts { uid: name.into(), name: name.into(), parent, ..QueueFacts::default() }));
    }
    for (gang, queue, preemptible, pods) in [("one", "left", true, 1), ("two", "right", false, 2), ("three", "right", true, 1)] {
        let facts = Lab::gang_facts(gang, pods, ConstraintFacts::default());
        lab.send(Event::GangUpsert(GangFacts { queue: queue.into(), preemptible, priority: i32::from(gang != "three"), ..facts }));
        (0..pods).for_each(|index| lab.send(Event::PodUpsert(Lab::pod_facts(gang, None, index, 8))));
    }
    lab.bound_pass();
    let reports = |lab: &Lab| -> Vec<(String, usize, i64, i64, i64)> {
        let reports = lab.world.queue_reports().into_iter();
        reports
            .map(|r| (r.name, r.children.len(), gpus(&r.allocated), gpus(&r.allocated_non_preemptible), gpus(&r.requested)))
            .collect()
    };
    let queue = |name: &str, children, allocated, held, requested| (name.to_owned(), children, allocated, held, requested);
    assert_eq!(reports(&lab), [queue("left", 0, 8, 0, 8), queue("right", 0, 16, 16, 24), queue("top", 2, 24, 16, 32)]);
    let report = lab.report("three");
    assert_eq!((gpus(&report.allocated), gpus(&report.requested)), (0, 8));
    assert!(!report.requested.contains_key("pods"));
    // What has ended counts no more; what is leaving does until it is gone.
    let node = lab.places("two").split(' ').next().map(str::to_owned);
    let done = |phase, terminating| PodFacts { phase, terminating, node: node.clone(), ..Lab::pod_facts("two", None, 0, 8) };
    lab.send(Event::PodUpsert(done(PodPhase::Running, true)));
    lab.pass();
    assert_eq!(reports(&lab)[1], queue("right", 0, 16, 16, 24));
    lab.send(Event::PodUpsert(done(PodPhase::Succeeded, false)));
    lab.pass();
    assert_eq!(reports(&lab)[1], queue("right", 0, 16, 8, 16), "three takes the room");
}
