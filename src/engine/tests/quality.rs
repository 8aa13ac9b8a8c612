//! What is said of a placement's quality, against brute force over every placement.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

use super::fixture::Lab;
use crate::facts::{Event, GangFacts};
use crate::outcome::{GangState, QualityStatus};
use crate::policy::Objective;

/// Pods, GPUs each, and the level that one domain of must hold them (0 none, 1 block, 2 rack).
pub(super) type Group = (u32, i64, usize);
/// Block, rack, GPUs.
pub(super) type Node = (u8, u8, i64);

const LEVEL: [&str; 3] = ["", "block", "rack"];

/// Every placement of the groups, as nodes by group; equal pods are not told apart.
pub(super) fn all(nodes: &[Node], free: &mut Vec<i64>, groups: &[Group], placed: &mut Vec<Vec<usize>>, f: &mut dyn FnMut(&[Vec<usize>])) {
    let Some(((pods, gpus, level), rest)) = groups.split_first() else { return f(placed) };
    if placed.last().is_some_and(|last| last.len() == *pods as usize) {
        if !rest.is_empty() {
            placed.push(Vec::new());
            all(nodes, free, rest, placed, f);
            placed.pop();
        } else {
            f(placed);
        }
        return;
    }
    let inside = |a: usize, b: usize| match level {
        0 => true,
        1 => nodes[a].0 == nodes[b].0,
        _ => (nodes[a].0, nodes[a].1) == (nodes[b].0, nodes[b].1),
    };
    let first = placed.last().and_then(|last| last.last()).copied();
    for node in first.unwrap_or(0)..nodes.len() {
        if free[node] < *gpus || first.is_some_and(|other| !inside(other, node)) {
            continue;
        }
        free[node] -= gpus;
        placed.last_mut().unwrap().push(node);
        all(nodes, free, groups, placed, f);
        placed.last_mut().unwrap().pop();
        free[node] += gpus;
    }
}

/// Lines 1 and 2 of a container of a placement, then line 3: smaller is better.
///
/// Depth (deepest first); tightness as a fraction (largest first); domains by level below.
pub(super) type Merit = (usize, std::cmp::Reverse<(i64, i64)>, Vec<usize>);

pub(super) struct Truth<'a> {
    pub(super) nodes: &'a [Node],
    pub(super) groups: &'a [Group],
    /// Required and preferred level of the gang.
    pub(super) root: (usize, usize),
    pub(super) objective: Objective,
}

impl Truth<'_> {
    /// The merits in order: `compact` swaps lines 2 and 3.
    pub(super) fn order(&self, a: &Merit, b: &Merit) -> Ordering {
        match self.objective {
            Objective::Kai => a.cmp(b),
            Objective::Compact => (a.0, &a.2, a.1).cmp(&(b.0, &b.2, b.1)),
        }
    }

    /// Domains by level: (block), (block, rack).
    pub(super) fn domain(&self, node: usize, depth: usize) -> (u8, u8) {
        let (block, rack, _) = self.nodes[node];
        [(0, 0), (block, 0), (block, rack)][depth]
    }

    /// Merits of every container that a placement can be said to be in.
    pub(super) fn merits(&self, placed: &[Vec<usize>]) -> Vec<Merit> {
        let used: Vec<usize> = placed.iter().flatten().copied().collect();
        let lowest = self.root.0.max(self.root.1);
        let mut merits = Vec::new();
        for depth in self.root.0..=lowest {
            let top = self.domain(used[0], depth);
            if used.iter().any(|node| self.domain(*node, depth) != top) {
                continue;
            }
            let free: i64 = (0..self.nodes.len()).filter(|node| self.domain(*node, depth) == top).map(|node| self.nodes[node].2).sum();
            let mut by_shape: BTreeMap<i64, i64> = BTreeMap::new();
            for (pods, gpus, _) in self.groups {
                *by_shape.entry(*gpus).or_default() += i64::from(*pods) * gpus;
            }
            // Free GPUs of nodes that take the shape's pods by their rules: all nodes do.
            let asked = by_shape.values().max().copied().unwrap_or(0);
            let counted = if self.root.1 > 0 { self.root.1 } else { 2 };
            let domains = (depth + 1..=counted).map(|level| {
                let mut domains: Vec<_> = used.iter().map(|node| self.domain(*node, level)).collect();
                domains.sort_unstable();
                domains.dedup();
                domains.len()
            });
            // One denominator for all, so that fractions compare: the product is small enough.
            let tightness = if depth == 0 { (0, 1) } else { (asked * 1_000_000_007 / free.max(1), 1) };
            merits.push((2 - depth, std::cmp::Reverse(tightness), domains.collect()));
        }
        merits
    }

    fn best(&self) -> Option<Merit> {
        let mut best: Option<Merit> = None;
        let mut free: Vec<i64> = self.nodes.iter().map(|node| node.2).collect();
        all(self.nodes, &mut free, self.groups, &mut vec![Vec::new()], &mut |placed| {
            for merit in self.merits(placed) {
                if best.as_ref().is_none_or(|other| self.order(&merit, other) == Ordering::Less) {
                    best = Some(merit);
                }
            }
        });
        best
    }
}

pub(super) fn lab(nodes: &[Node], groups: &[Group], root: (usize, usize)) -> Lab {
    let cluster: Vec<String> =
        nodes.iter().enumerate().map(|(at, (block, rack, gpus))| format!("b{block}/r{rack}: n{at}={gpus}")).collect();
    let mut lab = Lab::new(&cluster.join(";"));
    let names: Vec<String> = (0..groups.len()).map(|at| format!("s{at}")).collect();
    let declared: Vec<(&str, u32, i64, &str, &str)> = names
        .iter()
        .zip(groups)
        .map(|(name, (pods, gpus, level))| (name.as_str(), *pods, *gpus, LEVEL[*level], ""))
        .collect();
    lab.groups("g", (LEVEL[root.0], LEVEL[root.1]), &declared);
    lab
}

/// Nodes by group of the gang that was placed.
pub(super) fn placed_in(lab: &Lab, n_groups: usize) -> Vec<Vec<usize>> {
    let key = lab.report("g").key;
    let place = |name: &str| -> Vec<usize> {
        let pods = lab.world.gang_pods(&key).filter(|(_, pod)| pod.facts.subgroup.as_deref() == Some(name));
        pods.map(|(_, pod)| pod.node.as_ref().unwrap()[1..].parse().unwrap()).collect()
    };
    (0..n_groups).map(|at| place(&format!("s{at}"))).collect()
}

/// The merit of what `objective` places, and the nodes it takes; `None` where nothing is placed.
fn merit_by(objective: Objective, nodes: &[Node], groups: &[Group], root: (usize, usize)) -> Option<(Merit, usize)> {
    let mut lab = lab(nodes, groups, root);
    lab.policy.objective = objective;
    lab.pass();
    if lab.report("g").state != GangState::Placed {
        return None;
    }
    let placed = placed_in(&lab, groups.len());
    let truth = Truth { nodes, groups, root, objective };
    let merit = truth.merits(&placed).into_iter().min_by(|a, b| truth.order(a, b)).unwrap();
    let mut used: Vec<usize> = placed.into_iter().flatten().collect();
    used.sort_unstable();
    used.dedup();
    Some((merit, used.len()))
}

/// What the engine says, and whether the placement is the best.
fn judge(nodes: &[Node], groups: &[Group], root: (usize, usize)) -> Option<(QualityStatus, bool)> {
    judge_by(Objective::Kai, nodes, groups, root).map(|(_, status, is_best)| (status, is_best))
}

/// The same for a gang placed by an objective; the one it was placed by is what it is judged by.
fn judge_by(asked: Objective, nodes: &[Node], groups: &[Group], root: (usize, usize)) -> Option<(Objective, QualityStatus, bool)> {
    let mut lab = lab(nodes, groups, root);
    lab.policy.objective = asked;
    lab.pass();
    let said = lab.report("g").quality.map(|quality| quality.objective);
    let truth = Truth { nodes, groups, root, objective: said.unwrap_or(asked) };
    let best = truth.best();
    let report = lab.report("g");
    assert_eq!(report.state == GangState::Placed, best.is_some(), "{:?}", report.reasons);
    let (best, quality) = (best?, report.quality.unwrap());
    let placed = placed_in(&lab, groups.len());
    let merit = truth.merits(&placed).into_iter().min_by(|a, b| truth.order(a, b)).unwrap();
    assert!(truth.order(&merit, &best) != Ordering::Less, "brute force missed {merit:?}");
    let is_best = merit == best;
    if quality.status == QualityStatus::Optimal {
        assert!(is_best, "said to be optimal: {merit:?}, the best is {best:?}");
    }
    // No bound is above what some placement of the best container needs.
    let skipped = quality.levels.len() - best.2.len().min(quality.levels.len());
    for (level, truth) in quality.levels.iter().skip(skipped).zip(&best.2) {
        if best.0 == merit.0 && best.1 == merit.1 && skipped == 2 - best.0 {
            let first = best.2.first() == Some(truth);
            assert!(!first || level.lower_bound as usize <= *truth, "{level:?} against {best:?}");
        }
    }
    Some((quality.objective, quality.status, is_best))
}

pub(super) fn root() -> impl Strategy<Value = (usize, usize)> {
    prop_oneof![Just((0, 0)), Just((1, 0)), Just((1, 2)), Just((0, 1)), Just((0, 2))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn optimal_is_optimal_and_bounds_are_bounds(
        nodes in prop::collection::vec((0..2u8, 0..3u8, prop_oneof![Just(2i64), Just(4), Just(8)]), 2..7),
        groups in prop::collection::vec((1..4u32, prop_oneof![Just(1i64), Just(2), Just(3), Just(4)], 0..3usize), 1..4),
        root in root(),
    ) {
        let mut nodes = nodes;
        nodes.sort_unstable();
        judge(&nodes, &groups, root);
    }

    /// Equal domains by rank are told apart by what is inside.
    #[test]
    fn equal_pods_are_placed_best_in_the_best_of_equal_domains(
        nodes in prop::collection::vec((0..3u8, 0..3u8, prop_oneof![Just(4i64), Just(8)]), 2..8),
        pods in 1..6u32, gpus in prop_oneof![Just(2i64), Just(4)],
        root in root(),
    ) {
        let mut nodes = nodes;
        nodes.sort_unstable();
        if let Some((status, is_best)) = judge(&nodes, &[(pods, gpus, 0)], root) {
            prop_assert_eq!((status, is_best), (QualityStatus::Optimal, true));
        }
    }

    /// The fewest domains in any of the smallest domains that hold the gang, then the tightest of those.
    #[test]
    fn compact_is_the_fewest_domains_anywhere(
        nodes in prop::collection::vec((0..3u8, 0..3u8, prop_oneof![Just(2i64), Just(4), Just(8)]), 2..8),
        pods in 1..6u32, gpus in prop_oneof![Just(1i64), Just(2), Just(4)],
        root in root(),
    ) {
        let mut nodes = nodes;
        nodes.sort_unstable();
        if let Some(answer) = judge_by(Objective::Compact, &nodes, &[(pods, gpus, 0)], root) {
            prop_assert_eq!(answer, (Objective::Compact, QualityStatus::Optimal, true));
        }
    }

    /// Other names for nodes, racks and blocks, and another order of what is told: as good a place.
    #[test]
    fn names_and_order_do_not_change_how_good_a_place_is(
        nodes in prop::collection::vec((0..3u8, 0..3u8, prop_oneof![Just(1i64), Just(2), Just(4), Just(8)]), 2..9),
        (pods, gpus, level) in (1..5u32, prop_oneof![Just(1i64), Just(2), Just(4)], 0..3usize),
        segments in 1..3usize,
        compact: bool,
        root in root(),
        (block, rack) in (0..3u8, 0..3u8),
        seed: u64,
    ) {
        let objective = if compact { Objective::Compact } else { Objective::Kai };
        let groups = vec![(pods, gpus, if segments > 1 { 2 } else { level }); segments];
        let mut other: Vec<Node> = nodes.iter().map(|node| ((node.0 + block) % 3, (node.1 + rack) % 3, node.2)).collect();
        let key = |at: usize| (at as u64 + 1).wrapping_mul(seed | 1).rotate_left(17);
        let mut order: Vec<usize> = (0..other.len()).collect();
        order.sort_by_key(|at| key(*at));
        other = order.iter().map(|at| other[*at]).collect();
        prop_assert_eq!(merit_by(objective, &nodes, &groups, root), merit_by(objective, &other, &groups, root));
    }

    /// One more free node: what fitted fits, in a domain as small.
    #[test]
    fn one_more_node_makes_nothing_worse(
        nodes in prop::collection::vec((0..2u8, 0..3u8, prop_oneof![Just(2i64), Just(4), Just(8)]), 2..7),
        groups in prop::collection::vec((1..4u32, prop_oneof![Just(1i64), Just(2), Just(4)], 0..3usize), 1..4),
        more in (0..3u8, 0..4u8, prop_oneof![Just(1i64), Just(4), Just(8)]),
        root in root(),
    ) {
        let (mut nodes, groups) = (nodes, groups);
        let before = merit_by(Objective::Kai, &nodes, &groups, root);
        nodes.push(more);
        let after = merit_by(Objective::Kai, &nodes, &groups, root);
        if let Some((before, _)) = before {
            prop_assert!(after.is_some(), "it fitted without the node");
            prop_assert!(after.is_some_and(|(after, _)| after.0 <= before.0), "it was in a smaller domain without the node");
        }
    }

    /// Segments are of the exact class; what the search places says that it went by `kai`.
    #[test]
    fn subgroups_say_what_they_were_placed_by(
        nodes in prop::collection::vec((0..2u8, 0..3u8, prop_oneof![Just(2i64), Just(4), Just(8)]), 2..7),
        groups in prop::collection::vec((1..4u32, prop_oneof![Just(1i64), Just(2), Just(4)], 0..3usize), 1..4),
        same: bool,
        root in root(),
    ) {
        let (mut nodes, mut groups) = (nodes, groups);
        nodes.sort_unstable();
        if same {
            let first = groups[0];
            groups.fill((first.0, first.1, 2));
        }
        if let Some((objective, _, is_best)) = judge_by(Objective::Compact, &nodes, &groups, root) {
            let unlike = groups.iter().any(|group| group.1 != groups[0].1);
            prop_assert!(objective == Objective::Compact || unlike || groups.len() > 1);
            prop_assert!(objective == Objective::Kai || is_best);
            prop_assert!(!same || objective == Objective::Compact);
        }
    }
}

#[test]
fn the_objectives_differ_and_the_gangs_own_counts() {
    // Block a is tighter, and three of its racks are needed; in block b two do.
    let own = |objective: Option<Objective>, policy: Objective| {
        let mut lab = Lab::new("a/1: a1=2; a/2: a2=2; a/3: a3=2; b/1: b1=4; b/2: b2=4");
        lab.policy.objective = policy;
        lab.gang("g", 5, 1, "block", "rack");
        lab.send(Event::GangUpsert(GangFacts { objective, ..Lab::gang_facts("g", 5, Lab::constraint("block", "rack")) }));
        lab.pass();
        let said = lab.report("g").quality.unwrap().objective;
        (lab.places("g").split(' ').next().unwrap()[..1].to_owned(), said)
    };
    let (kai, compact) = (Objective::Kai, Objective::Compact);
    assert_eq!(own(None, kai), ("a".to_owned(), kai));
    assert_eq!(own(None, compact), ("b".to_owned(), compact));
    assert_eq!(own(Some(compact), kai), ("b".to_owned(), compact));
    assert_eq!(own(Some(kai), compact), ("a".to_owned(), kai));
}

#[test]
fn most_placements_of_unlike_subgroups_are_best_and_proven() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let nodes = prop::collection::vec((0..2u8, 0..3u8, prop_oneof![Just(4i64), Just(8)]), 4..8);
    let groups = prop::collection::vec((1..4u32, prop_oneof![Just(1i64), Just(2), Just(4)], 0..3usize), 2..4);
    let (mut placed, mut best, mut proven) = (0, 0, 0);
    for _ in 0..1_000 {
        let mut nodes: Vec<Node> = nodes.new_tree(&mut runner).unwrap().current();
        let groups: Vec<Group> = groups.new_tree(&mut runner).unwrap().current();
        nodes.sort_unstable();
        for root in [(0, 0), (1, 0), (0, 2)] {
            if let Some((status, is_best)) = judge(&nodes, &groups, root) {
                placed += 1;
                best += u32::from(is_best);
                proven += u32::from(status == QualityStatus::Optimal);
            }
        }
    }
    assert!(placed > 1_000 && best * 100 >= placed * 99 && proven * 100 >= placed * 98, "{placed} placed, {best} best, {proven} proven");
}
