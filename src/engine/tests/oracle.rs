//! The exact solver against brute force on small random trees.

use proptest::prelude::*;

use crate::facts::{LevelFacts, NodeFacts};
use crate::ids::NodeIdx;
use crate::place::exact::{Answer, Chosen, Demand, Instance, NO_ROOM, Spot};
use crate::policy::NodeStrategy;
use crate::topology::Tree;

fn tree(paths: &[(u8, u8)]) -> Tree {
    tree_with(&paths.iter().map(|(block, rack)| (*block, Some(*rack))).collect::<Vec<_>>())
}

/// Nodes by block and, where they have the label, rack.
pub(super) fn tree_with(paths: &[(u8, Option<u8>)]) -> Tree {
    let nodes: Vec<NodeFacts> = paths
        .iter()
        .enumerate()
        .map(|(at, (block, rack))| NodeFacts {
            name: format!("n{at}"),
            labels: std::iter::once(("block".to_owned(), format!("b{block}")))
                .chain(rack.map(|rack| ("rack".to_owned(), format!("r{rack}"))))
                .collect(),
            ..NodeFacts::default()
        })
        .collect();
    let levels = ["block", "rack"].map(|label| LevelFacts { label: label.into(), alias: None });
    let indexed: Vec<_> = nodes.iter().enumerate().map(|(at, n)| (NodeIdx(at as u32), n)).collect();
    Tree::build(&levels, &indexed)
}

/// Lines 3 to 6 for counts per position, written down independently of the solver.
pub(super) fn cost(tree: &Tree, spots: &[Spot], counts: &[u32], broken: u64) -> Vec<u64> {
    let mut vector = vec![broken];
    let mut line4 = Vec::new();
    for depth in 1..=2 {
        let (mut touched, mut partly, mut left) = (0, 0, 0);
        for domain in &tree.by_depth[depth] {
            let range = tree.positions(*domain);
            let pods: u64 = counts[range.clone()].iter().map(|n| u64::from(*n)).sum();
            let live: u64 = spots[range.clone()].iter().map(|s| u64::from(s.live)).sum();
            let slots: u64 = spots[range].iter().map(|s| u64::from(s.slots)).sum();
            if pods + live > 0 {
                touched += 1;
                partly += u64::from(slots > pods);
                left += slots - pods;
            }
        }
        vector.push(touched);
        line4.extend([partly, left]);
    }
    vector.extend(line4);
    vector.push(counts.iter().zip(spots).map(|(n, s)| u64::from(n * s.soft)).sum());
    let touched = |at: usize| counts[at] > 0 || spots[at].live > 0;
    let open: Vec<usize> = (0..spots.len()).filter(|at| touched(*at)).collect();
    vector.push(open.len() as u64);
    vector.push(open.iter().filter(|at| spots[**at].slots > counts[**at]).count() as u64);
    vector.push(open.iter().map(|at| u64::from(spots[*at].slots - counts[*at])).sum());
    vector
}

/// The same with pods of a second shape; what is left over in domains is counted without them.
fn cost_with_guests(tree: &Tree, spots: &[Spot], counts: &[u32], guests: &[u32], broken: u64) -> Vec<u64> {
    // Guests make a domain touched like live members do.
    let seen: Vec<Spot> =
        spots.iter().zip(guests).map(|(spot, n)| Spot { live: spot.live + n, ..*spot }).collect();
    let mut vector = cost(tree, &seen, counts, broken);
    vector.truncate(vector.len() - 4);
    let slots = |at: usize| match guests[at] {
        0 => spots[at].slots,
        n => spots[at].beside[n as usize - 1],
    };
    let open: Vec<usize> = (0..spots.len()).filter(|at| counts[*at] > 0 || seen[*at].live > 0).collect();
    let soft = |at: usize| counts[at] * spots[at].soft + guests[at] * spots[at].guest_soft;
    vector.push((0..spots.len()).map(|at| u64::from(soft(at))).sum());
    vector.push(open.len() as u64);
    vector.push(open.iter().filter(|at| slots(**at) > counts[**at]).count() as u64);
    vector.push(open.iter().map(|at| u64::from(slots(*at) - counts[*at])).sum());
    vector
}

/// Every way to place `n` pods.
pub(super) fn all_counts(spots: &[Spot], n: u32, at: usize, counts: &mut Vec<u32>, f: &mut impl FnMut(&[u32])) {
    if at == spots.len() {
        if n == 0 {
            f(counts);
        }
        return;
    }
    for take in (0..=spots[at].slots.min(n)).rev() {
        counts.push(take);
        all_counts(spots, n - take, at + 1, counts, f);
        counts.pop();
    }
}

/// Fewest levels climbed when the pods per rack and block are given; `None` when impossible.
pub(super) fn fewest_breaks(tree: &Tree, counts: &[u32], sizes: &[u32], required: usize) -> Option<u64> {
    // Assign segments one by one to a rack (0), a block (1) or the whole tree (2).
    fn go(tree: &Tree, counts: &mut Vec<u32>, sizes: &[u32], required: usize) -> Option<u64> {
        let Some((size, rest)) = sizes.split_first() else { return Some(0) };
        let mut best: Option<u64> = None;
        for (climbed, depth) in [(0, 2), (1, 1), (2, 0)] {
            if depth < required {
                continue;
            }
            for domain in &tree.by_depth[depth] {
                let range = tree.positions(*domain);
                take(counts, range.clone().collect(), *size, 0, &mut |counts| {
                    if let Some(more) = go(tree, counts, rest, required) {
                        let sum = climbed + more;
                        best = Some(best.map_or(sum, |b| b.min(sum)));
                    }
                });
            }
        }
        best
    }
    fn take(counts: &mut Vec<u32>, from: Vec<usize>, n: u32, at: usize, f: &mut dyn FnMut(&mut Vec<u32>)) {
        if n == 0 {
            f(counts);
            return;
        }
        if at == from.len() {
            return;
        }
        let most = counts[from[at]].min(n);
        for k in 0..=most {
            counts[from[at]] -= k;
            take(counts, from.clone(), n - k, at + 1, f);
            counts[from[at]] += k;
        }
    }
    go(tree, &mut counts.to_vec(), sizes, required)
}

pub(super) fn counts_of(n: usize, chosen: &Chosen) -> Vec<u32> {
    let mut counts = vec![0; n];
    for position in chosen.segments.iter().flatten().chain(&chosen.short).chain(&chosen.loose) {
        counts[*position] += 1;
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn loose_pods_equal_brute_force(
        rows in prop::collection::vec((0..3u8, 0..3u8, 0..4u32, 0..3u32, 0..2u32), 1..7),
        n in 1..9u32,
    ) {
        let tree = tree(&rows.iter().map(|r| (r.0, r.1)).collect::<Vec<_>>());
        let spots: Vec<Spot> = tree.order.iter().map(|node| {
            let row = rows[node.at()];
            Spot { slots: row.2, soft: row.3, live: row.4, ..Spot::default() }
        }).collect();
        let mut best: Option<(Vec<u64>, Vec<u32>)> = None;
        all_counts(&spots, n, 0, &mut Vec::new(), &mut |counts| {
            let cost = cost(&tree, &spots, counts, 0);
            if best.as_ref().is_none_or(|(other, _)| cost < *other) {
                best = Some((cost, counts.to_vec()));
            }
        });
        let instance = Instance { tree: &tree, top: Tree::ROOT, spots: &spots, counted: 2, strategy: NodeStrategy::Pack, caps: &[] };
        let found = match instance.solve(&Demand::loose(n as usize)) {
            Answer::Best(chosen, _) => Some(counts_of(spots.len(), &chosen)),
            _ => None,
        };
        let found_cost = found.as_ref().map(|counts| cost(&tree, &spots, counts, 0));
        prop_assert_eq!(found_cost, best.as_ref().map(|(cost, _)| cost.clone()));
        // Line 7: at the first difference more pods in the earlier domain; `all_counts` goes in that order.
        let domains = |counts: &Vec<u32>| -> Vec<u32> {
            tree.domains.iter().map(|d| counts[d.start as usize..d.end as usize].iter().sum()).collect()
        };
        if let (Some(found), Some((cost_best, _))) = (&found, &best) {
            let mut first: Option<Vec<u32>> = None;
            all_counts(&spots, n, 0, &mut Vec::new(), &mut |counts| {
                if cost(&tree, &spots, counts, 0) == *cost_best {
                    let key = domains(&counts.to_vec());
                    if first.as_ref().is_none_or(|other| key > *other) {
                        first = Some(key);
                    }
                }
            });
            prop_assert_eq!(Some(domains(found)), first);
        }
    }

    #[test]
    fn one_pod_in_closed_form_equals_the_tables(
        rows in prop::collection::vec((0..3u8, 0..4u8, 0..4u32, 0..3u32, 0..2u32, 0..3u32), 1..12),
        counted in 0..3usize, spread in any::<bool>(), top in 0..20usize,
    ) {
        // The last rack is no label.
        let tree = tree_with(&rows.iter().map(|r| (r.0, (r.1 < 3).then_some(r.1))).collect::<Vec<_>>());
        let top = crate::ids::DomainIdx((top % tree.domains.len()) as u32);
        let spots: Vec<Spot> = tree.order[tree.positions(top)].iter().map(|node| {
            let row = rows[node.at()];
            Spot { slots: row.2, soft: row.3, live: row.4, load: row.5, ..Spot::default() }
        }).collect();
        let strategy = if spread { NodeStrategy::Spread } else { NodeStrategy::Pack };
        let instance = Instance { tree: &tree, top, spots: &spots, counted, strategy, caps: &[] };
        let demand = Demand::loose(1);
        let chosen = |answer| match answer {
            Answer::Best(chosen, _) => Some(chosen),
            _ => None,
        };
        prop_assert_eq!(chosen(instance.solve(&demand)), chosen(instance.solve_by_tables(&demand, &[])));
    }

    #[test]
    fn segments_equal_brute_force(
        rows in prop::collection::vec((0..2u8, 0..3u8, 0..4u32), 1..6),
        segments in 1..4usize, size in 1..3usize, short in 0..2usize, loose in 0..2usize, required in 0..3usize,
    ) {
        let short = if size > 1 { short } else { 0 };
        let tree = tree(&rows.iter().map(|r| (r.0, r.1)).collect::<Vec<_>>());
        let spots: Vec<Spot> = tree.order.iter().map(|node| Spot { slots: rows[node.at()].2, ..Spot::default() }).collect();
        let demand = Demand { segments, size, short, required, preferred: 2, loose, guests: 0 };
        let mut sizes = vec![size as u32; segments];
        if short > 0 { sizes.push(short as u32); }
        let mut best: Option<Vec<u64>> = None;
        all_counts(&spots, demand.pods() as u32, 0, &mut Vec::new(), &mut |counts| {
            if let Some(broken) = fewest_breaks(&tree, counts, &sizes, required) {
                let cost = cost(&tree, &spots, counts, broken);
                if best.as_ref().is_none_or(|other| cost < *other) {
                    best = Some(cost);
                }
            }
        });
        let instance = Instance { tree: &tree, top: Tree::ROOT, spots: &spots, counted: 2, strategy: NodeStrategy::Pack, caps: &[] };
        let found = match instance.solve(&demand) {
            Answer::Best(chosen, _) => {
                prop_assert_eq!(chosen.segments.len(), segments);
                prop_assert!(chosen.segments.iter().all(|s| s.len() == size));
                prop_assert_eq!((chosen.short.len(), chosen.loose.len()), (short, loose));
                for segment in chosen.segments.iter().chain(std::iter::once(&chosen.short)) {
                    let mut domains: Vec<_> = segment.iter().map(|p| tree.domain_of(tree.order[*p], required)).collect();
                    domains.dedup();
                    prop_assert!(domains.len() <= 1, "required level held");
                }
                let counts = counts_of(spots.len(), &chosen);
                let broken = fewest_breaks(&tree, &counts, &sizes, required).unwrap();
                Some(cost(&tree, &spots, &counts, broken))
            }
            Answer::Impossible => None,
            Answer::TooLarge => { prop_assert!(false, "too large"); None }
        };
        prop_assert_eq!(found, best);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn leaders_of_another_shape_equal_brute_force(
        rows in prop::collection::vec((0..2u8, 0..3u8, 0..9u32, 0..2u32, 0..2u32), 1..5),
        segments in 0..3usize, size in 1..3usize, loose in 0..3usize, guests in 1..3usize,
        guest_asks in 1..4u32, required in 1..3usize,
    ) {
        prop_assume!(segments * size + loose > 0);
        let tree = tree(&rows.iter().map(|r| (r.0, r.1)).collect::<Vec<_>>());
        // A pod asks for two of a node's units, a guest for `guest_asks`.
        let spots: Vec<Spot> = tree.order.iter().map(|node| {
            let (_, _, units, live, guest_soft) = rows[node.at()];
            let mut spot = Spot { slots: units / 2, live, guest_soft, ..Spot::default() };
            for (at, beside) in spot.beside.iter_mut().enumerate() {
                let taken = (at as u32 + 1) * guest_asks;
                *beside = units.checked_sub(taken).map_or(NO_ROOM, |left| left / 2);
            }
            spot
        }).collect();
        let demand = Demand { segments, size, short: 0, required, preferred: required, loose, guests };
        let sizes = vec![size as u32; segments];
        let mut best: Option<Vec<u64>> = None;
        let everywhere: Vec<Spot> = spots.iter().map(|_| Spot { slots: guests as u32, ..Spot::default() }).collect();
        all_counts(&everywhere, guests as u32, 0, &mut Vec::new(), &mut |held| {
            let room = |at: usize| match held[at] { 0 => spots[at].slots, n => spots[at].beside[n as usize - 1] };
            if (0..spots.len()).any(|at| room(at) == NO_ROOM) {
                return;
            }
            let left: Vec<Spot> = (0..spots.len()).map(|at| Spot { slots: room(at), ..Spot::default() }).collect();
            all_counts(&left, demand.pods() as u32, 0, &mut Vec::new(), &mut |counts| {
                // Nothing may be broken: the hard level is the soft one.
                let whole = fits_whole(&tree, counts, &sizes, required);
                let cost = cost_with_guests(&tree, &spots, counts, held, 0);
                if whole && best.as_ref().is_none_or(|other| cost < *other) {
                    best = Some(cost);
                }
            });
        });
        let instance = Instance { tree: &tree, top: Tree::ROOT, spots: &spots, counted: 2, strategy: NodeStrategy::Pack, caps: &[] };
        let found = match instance.solve(&demand) {
            Answer::Best(chosen, _) => {
                prop_assert_eq!((chosen.segments.len(), chosen.loose.len(), chosen.guests.len()), (segments, loose, guests));
                let counts = counts_of(spots.len(), &chosen);
                let mut held = vec![0; spots.len()];
                chosen.guests.iter().for_each(|at| held[*at] += 1);
                prop_assert!(fits_whole(&tree, &counts, &sizes, required));
                Some(cost_with_guests(&tree, &spots, &counts, &held, 0))
            }
            Answer::Impossible => None,
            Answer::TooLarge => { prop_assert!(false, "too large"); None }
        };
        prop_assert_eq!(found, best);
    }
}

/// True when the pods per domain of a level leave room for whole segments.
fn fits_whole(tree: &Tree, counts: &[u32], sizes: &[u32], depth: usize) -> bool {
    let held: Vec<u32> = tree.by_depth[depth].iter().map(|d| counts[tree.positions(*d)].iter().sum()).collect();
    let size = sizes.first().copied().unwrap_or(1);
    held.iter().map(|pods| (pods / size) as usize).sum::<usize>() >= sizes.len()
}

/// True when each size can be given a bin of its own room, by trying everything.
fn packs(bins: &mut [u32], sizes: &[u32]) -> bool {
    let Some((size, rest)) = sizes.split_first() else { return true };
    (0..bins.len()).any(|at| {
        if bins[at] < *size {
            return false;
        }
        bins[at] -= size;
        let fits = packs(bins, rest);
        bins[at] += size;
        fits
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Where only some subgroups are needed, any choice of them counts, in whichever order they are declared.
    #[test]
    fn some_of_unlike_subgroups_fit_exactly_when_some_choice_does(
        racks in prop::collection::vec((0..3u32, 0..3u32), 1..4),
        groups in prop::collection::vec((1..4u32, 2..9i64, any::<bool>()), 2..5),
        needed in 1..4u32,
        outer in 0..3usize,
    ) {
        let needed = needed.min(groups.len() as u32);
        // Whole nodes of eight and halves of four, by rack.
        let cluster: Vec<String> = racks.iter().enumerate().map(|(rack, (whole, half))| {
            let whole = (0..*whole).map(|n| format!("w{rack}-{n}"));
            let nodes: Vec<String> = whole.chain((0..*half).map(|n| format!("h{rack}-{n}=4"))).collect();
            format!("b/r{rack}: {}", nodes.join(" "))
        }).collect();
        let mut lab = super::fixture::Lab::new(&cluster.join(";"));
        let names: Vec<String> = (0..groups.len()).map(|at| format!("s{at}")).collect();
        let level = |inside: bool| if inside { "rack" } else { "" };
        let declared: Vec<(&str, u32, i64, &str, &str)> = names.iter().zip(&groups)
            .map(|(name, (pods, gpus, inside))| (name.as_str(), *pods, *gpus, level(*inside), "")).collect();
        let outer = ["", "block", "rack"][outer];
        lab.groups("g", (outer, ""), &declared);
        let mut facts = super::fixture::Lab::gang_facts("g", 1, super::fixture::Lab::constraint(outer, ""));
        let gang = lab.world.gang_by_key[&facts.key];
        facts.subgroups = lab.world.gangs[gang.at()].as_ref().unwrap().facts.subgroups.clone();
        (facts.min_member, facts.min_subgroup) = (None, Some(needed));
        lab.send(crate::facts::Event::GangUpsert(facts));
        lab.pass();

        let rooms: Vec<Vec<i64>> = racks.iter()
            .map(|(whole, half)| [vec![8; *whole as usize], vec![4; *half as usize]].concat()).collect();
        let tops: Vec<Vec<Vec<i64>>> =
            if outer == "rack" { rooms.iter().map(|rack| vec![rack.clone()]).collect() } else { vec![rooms] };
        let fits = (0..1_u32 << groups.len()).filter(|set| set.count_ones() == needed).any(|set| {
            let chosen: Vec<_> = groups.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).map(|(_, g)| *g).collect();
            tops.iter().any(|top| fills(&mut top.clone(), &chosen))
        });
        let report = lab.report("g");
        prop_assert_eq!(report.state != crate::outcome::GangState::Pending, fits, "{:?}", report.reasons);
        if !fits && !racks.iter().all(|rack| *rack == (0, 0)) {
            prop_assert!(report.reasons[0].code != crate::outcome::Code::NotFoundWithinBudget, "small enough to prove");
        }
    }
}

/// True when the groups (pods, GPUs each, inside one rack) fit on these nodes by rack, by trying everything.
fn fills(racks: &mut Vec<Vec<i64>>, groups: &[(u32, i64, bool)]) -> bool {
    let Some(((pods, gpus, inside), rest)) = groups.split_first() else { return true };
    (0..racks.len()).any(|rack| {
        let only = if *inside { Some(rack) } else { None };
        fills_one(racks, *pods, *gpus, only, rest)
    })
}

fn fills_one(racks: &mut Vec<Vec<i64>>, pods: u32, gpus: i64, only: Option<usize>, rest: &[(u32, i64, bool)]) -> bool {
    if pods == 0 {
        return fills(racks, rest);
    }
    (0..racks.len()).filter(|rack| only.is_none_or(|only| only == *rack)).collect::<Vec<_>>().into_iter().any(|rack| {
        (0..racks[rack].len()).any(|node| {
            if racks[rack][node] < gpus {
                return false;
            }
            racks[rack][node] -= gpus;
            let done = fills_one(racks, pods - 1, gpus, only, rest);
            racks[rack][node] += gpus;
            done
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// The general search misses no feasible gang, and never reports one that is not.
    #[test]
    fn unlike_subgroups_fit_exactly_when_brute_force_says_so(
        mut racks in prop::collection::vec(0..6u32, 1..5),
        sizes in prop::collection::vec(1..5u32, 2..6),
        leader in any::<bool>(),
    ) {
        let cluster: Vec<String> = racks
            .iter()
            .enumerate()
            .map(|(rack, n)| {
                let nodes: Vec<String> = (0..*n).map(|node| format!("n{rack}-{node}")).collect();
                format!("b/r{rack}: {}", nodes.join(" "))
            })
            .collect();
        let mut lab = super::fixture::Lab::new(&cluster.join(";"));
        let names: Vec<String> = (0..sizes.len()).map(|at| format!("s{at}")).collect();
        let mut groups: Vec<(&str, u32, i64, &str, &str)> =
            names.iter().zip(&sizes).map(|(name, size)| (name.as_str(), *size, 8, "rack", "")).collect();
        // A loose pod of half a node may take one that no subgroup needs.
        if leader {
            groups.push(("leader", 1, 4, "", ""));
        }
        lab.groups("g", ("block", ""), &groups);
        lab.pass();
        let total: u32 = racks.iter().sum();
        let spare = u32::from(leader);
        let fits = sizes.iter().sum::<u32>() + spare <= total && packs(&mut racks, &sizes);
        let report = lab.report("g");
        prop_assert_eq!(report.state == crate::outcome::GangState::Placed, fits, "{:?}", report.reasons);
        if !fits && total > 0 {
            let code = report.reasons[0].code;
            prop_assert!(code != crate::outcome::Code::NotFoundWithinBudget, "small enough to prove");
        }
    }
}
