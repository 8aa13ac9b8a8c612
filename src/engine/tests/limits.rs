//! Limits on domains: against brute force, and what is said where they keep a gang waiting.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::fixture::Lab;
use super::oracle::{all_counts, cost, counts_of, fewest_breaks, tree_with};
use super::quality::{Group, Merit, Node, Truth, all, lab, placed_in, root};
use crate::check;
use crate::facts::*;
use crate::outcome::{Code, FixKind, GangState, Proof, QualityStatus, Unit};
use crate::place::exact::{Answer, Cap, Demand, Instance, Spot};
use crate::policy::{NodeStrategy, Objective};
use crate::topology::Tree;

const LEVEL: [&str; 3] = ["", "block", "rack"];

/// Limits by level name; 0 is none.
fn limits(levels: &[(&str, u32)]) -> Vec<DomainLimit> {
    let limits = levels.iter().filter(|(_, most)| *most > 0);
    limits.map(|(level, most)| DomainLimit { level: (*level).to_owned(), most: *most }).collect()
}

/// A gang of equal pods that may use so many domains.
fn limited(lab: &mut Lab, name: &str, (pods, gpus): (u32, i64), (required, preferred): (&str, &str), levels: &[(&str, u32)]) {
    lab.gang(name, pods, gpus, required, preferred);
    limit(lab, Lab::gang_facts(name, pods, Lab::constraint(required, preferred)), levels);
}

fn limit(lab: &mut Lab, facts: GangFacts, levels: &[(&str, u32)]) {
    lab.send(Event::GangUpsert(GangFacts { limits: limits(levels), ..facts }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The exact solver under caps of one or both levels, live members included.
    #[test]
    fn capped_domains_equal_brute_force(
        rows in prop::collection::vec((0..3u8, 0..4u8, 0..4u32, 0..2u32, prop_oneof![5 => Just(0u32), 1 => Just(1)]), 1..7),
        (segments, size, short, loose) in (0..3usize, 1..3usize, 0..2usize, 1..4usize),
        required in 1..3usize,
        (blocks, racks) in (0..3usize, 0..4usize),
    ) {
        let short = if size > 1 && segments > 0 { short } else { 0 };
        let loose = if segments > 0 { loose - 1 } else { loose };
        // Without segments the last rack is no label.
        let tree = tree_with(&rows.iter().map(|r| (r.0, (segments > 0 || r.1 < 3).then_some(r.1))).collect::<Vec<_>>());
        let spots: Vec<Spot> = tree.order.iter().map(|node| {
            let row = rows[node.at()];
            Spot { slots: row.2, soft: row.3, live: row.4, ..Spot::default() }
        }).collect();
        let demand = Demand { segments, size, short, required, preferred: 2, loose, guests: 0 };
        let caps: Vec<Cap> = [(1, blocks), (2, racks)].into_iter().filter(|(_, most)| *most > 0)
            .map(|(depth, most)| Cap { depth, most }).collect();
        let mut sizes = vec![size as u32; segments];
        if short > 0 { sizes.push(short as u32); }
        let kept = |counts: &[u32]| caps.iter().all(|cap| {
            let used = tree.by_depth[cap.depth].iter().filter(|domain| {
                tree.positions(**domain).any(|at| counts[at] > 0 || spots[at].live > 0)
            });
            used.count() <= cap.most
        });
        let mut best: Option<Vec<u64>> = None;
        all_counts(&spots, demand.pods() as u32, 0, &mut Vec::new(), &mut |counts| {
            if !kept(counts) {
                return;
            }
            if let Some(broken) = fewest_breaks(&tree, counts, &sizes, required) {
                let cost = cost(&tree, &spots, counts, broken);
                if best.as_ref().is_none_or(|other| cost < *other) {
                    best = Some(cost);
                }
            }
        });
        let instance = Instance { tree: &tree, top: Tree::ROOT, spots: &spots, counted: 2, strategy: NodeStrategy::Pack, caps: &caps };
        let found = match instance.solve(&demand) {
            Answer::Best(chosen, _) => {
                let counts = counts_of(spots.len(), &chosen);
                prop_assert!(kept(&counts));
                Some(cost(&tree, &spots, &counts, fewest_breaks(&tree, &counts, &sizes, required).unwrap()))
            }
            Answer::Impossible => None,
            Answer::TooLarge => { prop_assert!(false, "too large"); None }
        };
        prop_assert_eq!(found, best);
    }

    /// Subgroups of any kind: placed whenever some placement keeps the limits, and said to be the best only where it is.
    #[test]
    fn limited_gangs_equal_brute_force(
        nodes in prop::collection::vec((0..3u8, 0..3u8, prop_oneof![Just(2i64), Just(4), Just(8)]), 2..7),
        groups in prop::collection::vec((1..4u32, prop_oneof![Just(1i64), Just(2), Just(3), Just(4)], 0..3usize), 1..4),
        root in root(),
        most in (0..3u32, 0..4u32),
        compact: bool,
    ) {
        let mut nodes = nodes;
        nodes.sort_unstable();
        judge(&nodes, &groups, root, most, compact);
    }

    /// Equal pods are placed best under any limits.
    #[test]
    fn equal_pods_are_placed_best_within_their_limits(
        nodes in prop::collection::vec((0..3u8, 0..3u8, prop_oneof![Just(2i64), Just(4), Just(8)]), 2..8),
        pods in 1..6u32, gpus in prop_oneof![Just(1i64), Just(2), Just(4)],
        root in root(),
        most in (0..3u32, 1..4u32),
    ) {
        let mut nodes = nodes;
        nodes.sort_unstable();
        if let Some((status, is_best)) = judge(&nodes, &[(pods, gpus, 0)], root, most, false) {
            prop_assert_eq!((status, is_best), (QualityStatus::Optimal, true));
        }
    }
}

/// What the engine says, and whether no legal placement within the limits (blocks, racks) is better.
fn judge(nodes: &[Node], groups: &[Group], root: (usize, usize), (blocks, racks): (u32, u32), compact: bool) -> Option<(QualityStatus, bool)> {
    let mut lab = lab(nodes, groups, root);
    lab.policy.objective = if compact { Objective::Compact } else { Objective::Kai };
    let names: Vec<String> = (0..groups.len()).map(|at| format!("s{at}")).collect();
    let declared: Vec<_> = names.iter().zip(groups).map(|(name, (pods, gpus, level))| (name.as_str(), *pods, *gpus, LEVEL[*level], "")).collect();
    let mut facts = Lab::gang_facts("g", 1, Lab::constraint(LEVEL[root.0], LEVEL[root.1]));
    facts.min_member = None;
    facts.subgroups = declared
        .iter()
        .map(|(sub, pods, _, required, _)| SubgroupFacts {
            name: (*sub).to_owned(),
            min_member: Some(*pods),
            constraint: Lab::constraint(required, ""),
            ..SubgroupFacts::default()
        })
        .collect();
    limit(&mut lab, facts, &[("block", blocks), ("rack", racks)]);
    lab.pass();
    let report = lab.report("g");
    let said = report.quality.as_ref().map_or(Objective::Kai, |quality| quality.objective);
    let truth = Truth { nodes, groups, root, objective: said };
    let kept = |placed: &[Vec<usize>]| {
        [(1, blocks), (2, racks)].into_iter().all(|(depth, most)| {
            let used: BTreeSet<_> = placed.iter().flatten().map(|node| truth.domain(*node, depth)).collect();
            most == 0 || used.len() <= most as usize
        })
    };
    let mut best: Option<Merit> = None;
    let mut free: Vec<i64> = nodes.iter().map(|node| node.2).collect();
    let mut anyhow = false;
    all(nodes, &mut free, groups, &mut vec![Vec::new()], &mut |placed| {
        anyhow |= !truth.merits(placed).is_empty();
        if !kept(placed) {
            return;
        }
        for merit in truth.merits(placed) {
            if best.as_ref().is_none_or(|other| truth.order(&merit, other) == Ordering::Less) {
                best = Some(merit);
            }
        }
    });
    assert_eq!(report.state == GangState::Placed, best.is_some(), "{:?}", report.reasons);
    let Some(best) = best else {
        let reason = &report.reasons[0];
        assert_eq!(reason.code == Code::DomainLimit, anyhow, "{reason:?}");
        assert!(reason.proof.is_some(), "{reason:?}");
        return None;
    };
    let quality = report.quality.unwrap();
    let placed = placed_in(&lab, groups.len());
    assert!(kept(&placed), "{placed:?}");
    let merit = truth.merits(&placed).into_iter().min_by(|a, b| truth.order(a, b)).unwrap();
    assert!(truth.order(&merit, &best) != Ordering::Less, "brute force missed {merit:?}");
    let is_best = merit == best;
    assert!(quality.status != QualityStatus::Optimal || is_best, "said to be optimal: {merit:?}, the best is {best:?}");
    Some((quality.status, is_best))
}

#[test]
fn a_limit_on_a_lower_level_may_cost_a_wider_domain() {
    // One block holds it in four racks; two racks are two blocks.
    let cluster = "a/1: a1=2; a/2: a2=2; a/3: a3=2; a/4: a4=2; b/1: b1=4; c/1: c1=4";
    let places = |levels: &[(&str, u32)]| {
        let mut lab = Lab::new(cluster);
        limited(&mut lab, "g", (8, 1), ("", "rack"), levels);
        lab.pass();
        (lab.places("g"), lab.code("g"))
    };
    assert_eq!(places(&[]).0, "a1 a1 a2 a2 a3 a3 a4 a4");
    assert_eq!(places(&[("rack", 2)]).0, "b1 b1 b1 b1 c1 c1 c1 c1");
    assert_eq!(places(&[("rack", 4), ("block", 1)]).0, "a1 a1 a2 a2 a3 a3 a4 a4");
    assert_eq!(places(&[("rack", 1)]).1, "DomainLimit 1/2");
    // Each alone leaves a place, both do not.
    assert_eq!(places(&[("rack", 2), ("block", 1)]).1, "DomainLimit 1/2");
}

#[test]
fn the_fewest_domains_that_would_do_are_named_and_do() {
    let mut lab = Lab::new("b/1: a=2; b/2: c=2; b/3: d=2; b/4: e=2");
    limited(&mut lab, "g", (5, 1), ("block", ""), &[("rack", 1)]);
    lab.pass();
    let reason = lab.report("g").reasons[0].clone();
    assert_eq!((reason.code, reason.unit, reason.has, reason.needs), (Code::DomainLimit, Unit::Domains, 1, 3));
    assert_eq!((reason.topology.as_deref(), reason.level.as_deref()), (Some("t"), Some("rack")));
    let fix = &reason.fixes[0];
    assert_eq!((fix.kind, fix.verified, fix.count, fix.target.as_slice()), (FixKind::AllowDomains, true, 3, &["rack".to_owned()][..]));
    let Some(Proof::Counted(counted)) = &reason.proof else { panic!("{reason:?}") };
    assert_eq!((counted.together, counted.needs, counted.domains.as_slice()), (Some(1), 5, &[(2, 4)][..]));
    limit(&mut lab, Lab::gang_facts("g", 5, Lab::constraint("block", "")), &[("rack", 3)]);
    lab.pass();
    assert_eq!(lab.places("g"), "a a c c d");
}

#[test]
fn a_false_proof_of_a_limit_is_found() {
    let mut lab = Lab::new("b/1: a=2; b/2: c=2; b/3: d=2");
    limited(&mut lab, "g", (5, 1), ("", ""), &[("rack", 2)]);
    let outcome = lab.pass();
    let told = |change: &dyn Fn(&mut crate::outcome::Counted)| {
        let mut world = lab.world.fork();
        let idx = world.gang_by_key[&ObjectKey::new("ns", "g")];
        let reason = &mut world.gangs[idx.at()].as_mut().unwrap().reasons[0];
        let Some(Proof::Counted(counted)) = &mut reason.proof else { panic!("{reason:?}") };
        change(counted);
        check::pass(&world, &lab.policy, &outcome).faults.len()
    };
    assert_eq!(told(&|_| {}), 0);
    assert_eq!(told(&|counted| counted.together = Some(1)), 1, "another limit");
    assert_eq!(told(&|counted| counted.together = None), 1, "a level that nothing requires");
    assert_eq!(told(&|counted| counted.domains = vec![(1, 3)]), 1, "less room than there is");
    assert_eq!(told(&|counted| counted.needs = 6), 1);
}

#[test]
fn what_joins_later_stays_in_the_domains_in_use() {
    let mut lab = Lab::new("b/1: a=2; b/2: c=2; b/3: d=8");
    limited(&mut lab, "g", (3, 1), ("", ""), &[("rack", 2)]);
    lab.busy("d", 8);
    lab.pass();
    assert_eq!(lab.places("g"), "a a c");
    lab.send(Event::PodDelete("busy-d-0".into()));
    // One more fits beside the third; the next would need a third rack.
    for index in 3..5 {
        lab.send(Event::PodUpsert(Lab::pod_facts("g", None, index, 1)));
    }
    lab.pass();
    assert_eq!((lab.places("g").as_str(), lab.code("g").as_str()), ("a a c c -", "DomainLimit 2/3"));
    // A lower limit moves nobody, and nobody joins.
    limit(&mut lab, Lab::gang_facts("g", 3, Lab::constraint("", "")), &[("rack", 1)]);
    lab.pass();
    assert_eq!((lab.places("g").as_str(), lab.code("g").as_str()), ("a a c c -", "DomainLimit 1/3"));
}

#[test]
fn a_node_without_the_label_is_a_domain_of_its_own() {
    let mut lab = Lab::new("b/1: a=1");
    lab.node("c", &["b", "-"], 1);
    lab.node("d", &["b", "-"], 1);
    limited(&mut lab, "g", (3, 1), ("", ""), &[("rack", 2)]);
    lab.pass();
    assert_eq!(lab.code("g"), "DomainLimit 2/3");
    limit(&mut lab, Lab::gang_facts("g", 3, Lab::constraint("", "")), &[("rack", 3)]);
    lab.pass();
    assert_eq!(lab.report("g").state, GangState::Placed);
}

#[test]
fn a_level_that_is_not_there_is_a_mistake() {
    let mut lab = Lab::new("b/1: a");
    limited(&mut lab, "g", (1, 1), ("", ""), &[("row", 1)]);
    lab.pass();
    let problem = lab.report("g").reasons[0].problem.clone().unwrap();
    assert_eq!((problem.code, problem.key.as_str(), problem.value.as_str()), (ProblemCode::UnknownLevel, "berth.scheduler/max-domains", "row"));
    assert!(problem.allowed.contains("block, rack"), "{}", problem.allowed);
}

#[test]
fn gangs_with_unlike_limits_do_not_share_a_verdict() {
    let mut lab = Lab::new("b/1: a=2; b/2: c=2; b/3: d=2; b/4: e=2");
    limited(&mut lab, "f", (3, 1), ("", ""), &[("rack", 1)]);
    limited(&mut lab, "g", (3, 1), ("", ""), &[("rack", 2)]);
    lab.pass();
    assert_eq!((lab.code("f").as_str(), lab.places("g").as_str()), ("DomainLimit 1/2", "a a c"));
}

#[test]
fn a_large_gang_is_limited_in_the_exact_class() {
    let racks: Vec<String> = (0..60).map(|rack| format!("b{}/{rack}: {}", rack / 20, (0..18).map(|n| format!("n{rack}-{n}")).collect::<Vec<_>>().join(" "))).collect();
    let mut lab = Lab::new(&racks.join(";"));
    // 144 a rack: the blocks are filled one after the other, and half a rack is left over in none.
    limited(&mut lab, "g", (4096, 1), ("", ""), &[("rack", 29)]);
    let outcome = lab.pass();
    let quality = lab.report("g").quality.unwrap();
    assert_eq!(quality.levels.iter().map(|level| level.domains).collect::<Vec<_>>(), [2, 29]);
    assert_eq!((quality.status, outcome.steps), (QualityStatus::Optimal, 1));
    limit(&mut lab, Lab::gang_facts("h", 4096, Lab::constraint("", "")), &[("rack", 28)]);
    for index in 0..4096 {
        lab.send(Event::PodUpsert(Lab::pod_facts("h", None, index, 1)));
    }
    lab.pass();
    assert_eq!(lab.code("h"), "DomainLimit 28/29");
}
