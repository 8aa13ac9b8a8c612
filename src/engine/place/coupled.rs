//! Pod by pod: leaves of several shapes, and rules by which pods depend on each other.
//!
//! Every leaf has its region by now; what is left is which node each pod gets.
//! Legality of one more pod depends only on what is placed, not on the order it
//! was placed in, so the search runs over *states* (how many pods of each group
//! are on each node) and never enters a failed one twice. Nodes that no rule of
//! the task can tell apart are one class: of untouched ones only the first is
//! tried, and states that differ by exchanging them are one state. So it is with
//! whole zones (`zones`) that hold the same. Pods of one shape and region are one group. It is complete: false means that no order of
//! placing leads to the end.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::HostPort;
use crate::fit::spread::Spread;
use crate::fit::tallies::Mark;
use crate::fit::{self, pod_affinity};
use crate::ids::{NodeIdx, PodIdx, ShapeIdx, TermIdx};
use crate::place::limits::{Limit, Used};
use crate::place::task::Item;
use crate::place::{Region, Solver};

/// Equal pods that may use the same nodes.
struct Group {
    shape: ShapeIdx,
    region: Region,
    pods: Vec<PodIdx>,
    placed: usize,
}

/// What the search walks on.
struct Board {
    groups: Vec<Group>,
    /// Nodes by class, in order.
    classes: Vec<Vec<NodeIdx>>,
    class_of: BTreeMap<NodeIdx, usize>,
    zones: Zones,
    /// By class and group: rules that do not depend on other pods or room hold.
    open_to: Vec<Vec<bool>>,
    /// Hard spread constraints by group.
    spreads: Vec<Vec<Spread>>,
    /// Limits on the domains used, each with those that live members use.
    limits: Vec<(Limit, BTreeSet<Used>)>,
    /// Pods placed by node and group.
    counts: BTreeMap<NodeIdx, Vec<u32>>,
    /// Only room and repulsion: the order of groups does not matter.
    any_order: bool,
}

/// Nodes by the domains that they are in.
#[derive(Default)]
struct Zones {
    /// Zone by class.
    of_class: Vec<usize>,
    /// By class: equal for classes of different zones whose nodes differ by the zone alone.
    twin_of_class: Vec<u32>,
    /// By zone: equal for zones that can be exchanged.
    kind: Vec<u32>,
}

/// A state with the moves that are left to try from it.
struct Frame {
    key: Vec<u32>,
    moves: Vec<(usize, NodeIdx)>,
    next: usize,
}

/// Equal for nodes that no rule of the task can tell apart, the domains they are in aside.
type Likeness = (Vec<i64>, Vec<HostPort>, Vec<(Mark, i64)>);

impl Board {
    fn done(&self) -> bool {
        self.groups.iter().all(|group| group.placed == group.pods.len())
    }

    /// The state, the same for states that differ by exchanging like nodes or zones.
    fn key(&self) -> Vec<u32> {
        let mut zones = self.filled();
        zones.sort_unstable();
        zones.concat()
    }

    /// What was placed in each zone: its kind, how many nodes, and those in an order of their own.
    fn filled(&self) -> Vec<Vec<u32>> {
        let mut rows: Vec<Vec<Vec<u32>>> = vec![Vec::new(); self.zones.kind.len()];
        for (node, counts) in &self.counts {
            let class = self.class_of[node];
            let mut row = vec![self.zones.twin_of_class[class]];
            row.extend(counts);
            rows[self.zones.of_class[class]].push(row);
        }
        let zones = rows.into_iter().zip(&self.zones.kind);
        zones
            .map(|(mut rows, kind)| {
                rows.sort_unstable();
                let mut all = vec![*kind, rows.len() as u32];
                all.extend(rows.concat());
                all
            })
            .collect()
    }

    /// Classes to look at: of zones that hold the same and can be exchanged only the first one's.
    fn classes_in_play(&self) -> Vec<usize> {
        let mut seen = BTreeSet::new();
        let first: Vec<bool> = self.filled().into_iter().map(|zone| seen.insert(zone)).collect();
        (0..self.classes.len()).filter(|class| first[self.zones.of_class[*class]]).collect()
    }

    fn count(&mut self, group: usize, node: NodeIdx, by: i64) {
        let n = self.groups.len();
        let counts = self.counts.entry(node).or_insert_with(|| vec![0; n]);
        counts[group] = counts[group].saturating_add_signed(by as i32);
        if counts.iter().all(|count| *count == 0) {
            self.counts.remove(&node);
        }
        self.groups[group].placed = self.groups[group].placed.saturating_add_signed(by as isize);
    }

    /// One node of each kind of a class: the first untouched one, and touched ones that differ.
    fn representatives(&self, class: usize) -> Vec<NodeIdx> {
        let mut seen: BTreeSet<Option<&Vec<u32>>> = BTreeSet::new();
        let nodes = self.classes[class].iter();
        nodes.filter(|node| seen.insert(self.counts.get(node))).copied().collect()
    }
}

impl Solver<'_> {
    /// Places the pods of leaves whose regions are fixed, within the limits of a gang with live members on these nodes.
    /// `None` when the budget ended the search.
    pub(super) fn place_pods(&mut self, leaves: &[(&Item, Region)], limits: (&[Limit], &[NodeIdx])) -> Option<Option<Vec<(PodIdx, NodeIdx)>>> {
        let mut board = self.board(leaves, limits);
        if board.done() {
            return Some(Some(Vec::new()));
        }
        let mut failed: BTreeSet<Vec<u32>> = BTreeSet::new();
        let mut taken: Vec<(usize, NodeIdx, usize)> = Vec::new();
        let mut stack = vec![Frame { key: board.key(), moves: self.moves(&board), next: 0 }];
        while let Some(frame) = stack.last_mut() {
            let Some((group, node)) = frame.moves.get(frame.next).copied() else {
                failed.insert(std::mem::take(&mut frame.key));
                stack.pop();
                if let Some(last) = taken.pop() {
                    self.take_back(&mut board, last);
                }
                continue;
            };
            frame.next += 1;
            self.steps += 1;
            if self.steps > self.limit {
                while let Some(last) = taken.pop() {
                    self.take_back(&mut board, last);
                }
                return None;
            }
            taken.push(self.put(&mut board, group, node));
            if board.done() {
                return Some(Some(self.assigned(&board)));
            }
            let key = board.key();
            if failed.contains(&key) {
                if let Some(last) = taken.pop() {
                    self.take_back(&mut board, last);
                }
                continue;
            }
            let moves = self.moves(&board);
            stack.push(Frame { key, moves, next: 0 });
        }
        Some(None)
    }

    fn put(&mut self, board: &mut Board, group: usize, node: NodeIdx) -> (usize, NodeIdx, usize) {
        let mark = self.rooms.checkpoint();
        let shape = board.groups[group].shape;
        self.rooms.take(node, shape, &self.shapes[shape.at()], 1);
        board.count(group, node, 1);
        self.shift_spreads(board, shape, node, 1);
        (group, node, mark)
    }

    fn take_back(&mut self, board: &mut Board, (group, node, mark): (usize, NodeIdx, usize)) {
        self.rooms.rollback(mark, self.shapes);
        board.count(group, node, -1);
        let shape = board.groups[group].shape;
        self.shift_spreads(board, shape, node, -1);
    }

    fn shift_spreads(&self, board: &mut Board, shape: ShapeIdx, node: NodeIdx, by: i64) {
        let member_of = &self.shapes[shape.at()].terms.member_of;
        for spread in board.spreads.iter_mut().flatten() {
            if member_of.contains(&spread.term) {
                spread.shift(self.rooms.tallies(), node, by);
            }
        }
    }

    /// Legal next pods, the most promising first: where the gang is already, cheap, tight, in order.
    fn moves(&self, board: &Board) -> Vec<(usize, NodeIdx)> {
        let tree = &self.trees[self.default_tree.at()];
        let mut near = vec![BTreeSet::new(); tree.n_levels() + 1];
        for node in board.counts.keys() {
            for (depth, domains) in near.iter_mut().enumerate() {
                domains.extend(tree.domain_of(*node, depth));
            }
        }
        let full = self.full_limits(board);
        let is_open = |node: NodeIdx| full.iter().all(|(limit, used)| used.contains(&limit.used_at(self.trees, node)));
        let classes = board.classes_in_play();
        let mut found = Vec::new();
        for (at, group) in board.groups.iter().enumerate() {
            if group.placed == group.pods.len() {
                continue;
            }
            for class in classes.iter().copied().filter(|class| board.open_to[*class][at]) {
                for node in board.representatives(class).into_iter().filter(|node| is_open(*node)) {
                    if let Some(slots) = self.admits(board, at, node) {
                        let shared = near.iter().enumerate().filter(|(depth, domains)| {
                            tree.domain_of(node, *depth).is_some_and(|domain| domains.contains(&domain))
                        });
                        let far = usize::MAX - shared.count();
                        let fresh = !board.counts.contains_key(&node);
                        let soft = self.rooms.soft_cost(group.shape, node);
                        found.push(((soft, far, fresh, slots, tree.position(node)), at, node));
                    }
                }
            }
            if board.any_order {
                break;
            }
        }
        found.sort_unstable();
        found.into_iter().map(|(_, group, node)| (group, node)).collect()
    }

    /// Limits that leave no domain but those used already, with these.
    fn full_limits<'b>(&self, board: &'b Board) -> Vec<(&'b Limit, BTreeSet<Used>)> {
        let all = board.limits.iter().map(|(limit, live)| {
            let mut used = limit.used(self.trees, board.counts.keys());
            used.extend(live);
            (limit, used)
        });
        all.filter(|(limit, used)| used.len() >= limit.most).collect()
    }

    /// Copies that the node has room for, when one more pod of the group passes every rule there.
    fn admits(&self, board: &Board, group: usize, node: NodeIdx) -> Option<u32> {
        let shape = &self.shapes[board.groups[group].shape.at()];
        let room = fit::slots(self.rooms.room(node)?, shape);
        let slots = self.rooms.served_copies(board.groups[group].shape, shape, node, room);
        let tallies = self.rooms.tallies();
        let refused = slots == 0
            || pod_affinity::repelled(tallies, node, shape).is_some()
            || self.rooms.undrawn(node, shape, &board.spreads[group]).is_some();
        (!refused).then_some(slots)
    }

    fn board(&mut self, leaves: &[(&Item, Region)], (limits, live): (&[Limit], &[NodeIdx])) -> Board {
        let mut groups: Vec<Group> = Vec::new();
        for (item, region) in leaves {
            for (shape, pods) in &item.pods {
                match groups.iter_mut().find(|group| group.shape == *shape && group.region == *region) {
                    Some(group) => group.pods.extend(pods),
                    None => groups.push(Group {
                        shape: *shape,
                        region: region.clone(),
                        pods: pods.clone(),
                        placed: 0,
                    }),
                }
            }
        }
        for group in &groups {
            self.ready(group.shape, self.default_tree);
        }
        let shape = |group: &Group| &self.shapes[group.shape.at()];
        let spreads: Vec<Vec<Spread>> =
            groups.iter().map(|group| Spread::all(self.rooms, &self.nodes, shape(group))).collect();
        let any_order = groups.iter().all(|group| shape(group).drawn_terms().next().is_none());
        let mut board = Board {
            groups,
            classes: Vec::new(),
            class_of: BTreeMap::new(),
            zones: Zones::default(),
            open_to: Vec::new(),
            spreads,
            limits: limits.iter().map(|limit| (*limit, limit.used(self.trees, live.iter()))).collect(),
            counts: BTreeMap::new(),
            any_order,
        };
        self.classify(&mut board);
        board
    }

    fn classify(&self, board: &mut Board) {
        let terms = self.terms_in_play(board);
        let mut by_likeness: BTreeMap<(Vec<i64>, Likeness), Vec<NodeIdx>> = BTreeMap::new();
        let mut open: Vec<Vec<bool>> = Vec::new();
        for node in &self.trees[self.default_tree.at()].order {
            let usable: Vec<bool> = board
                .groups
                .iter()
                .map(|group| self.rooms.eligible(group.shape, *node) && self.inside(&group.region, *node))
                .collect();
            if usable.iter().any(|usable| *usable) {
                let key = (self.domains(board, &terms, *node), self.likeness(board, &terms, &usable, *node));
                by_likeness.entry(key).or_default().push(*node);
            }
        }
        for (class, nodes) in by_likeness.values().enumerate() {
            board.class_of.extend(nodes.iter().map(|node| (*node, class)));
            let first = nodes.first();
            open.push(
                board
                    .groups
                    .iter()
                    .map(|group| {
                        first.is_some_and(|node| {
                            self.rooms.eligible(group.shape, *node) && self.inside(&group.region, *node)
                        })
                    })
                    .collect(),
            );
        }
        board.zones = self.zones(board, &terms, &by_likeness);
        board.classes = by_likeness.into_values().collect();
        board.open_to = open;
    }

    /// The node's domains for terms whose domains have several nodes, and for limits; -1 for none.
    fn domains(&self, board: &Board, terms: &[TermIdx], node: NodeIdx) -> Vec<i64> {
        let tallies = self.rooms.tallies();
        let wide = terms.iter().filter(|term| !tallies.one_node_each(**term));
        let by_term = wide.map(|term| tallies.value(*term, node).map_or(-1, i64::from));
        let by_limit = board.limits.iter().map(|(limit, _)| match limit.used_at(self.trees, node) {
            Used::Domain(domain) => i64::from(domain.0),
            Used::Node(node) => -2 - i64::from(node.0),
        });
        by_term.chain(by_limit).collect()
    }

    /// Zones: nodes with the same domains. Two can be exchanged when they hold the same nodes and
    /// counts, and share no domain with another zone.
    fn zones(&self, board: &Board, terms: &[TermIdx], classes: &BTreeMap<(Vec<i64>, Likeness), Vec<NodeIdx>>) -> Zones {
        let tallies = self.rooms.tallies();
        let mut twins: BTreeMap<&Likeness, u32> = BTreeMap::new();
        let mut zones: BTreeMap<&Vec<i64>, (usize, NodeIdx, Vec<(u32, usize)>)> = BTreeMap::new();
        let mut found = Zones::default();
        for ((domains, likeness), nodes) in classes {
            let Some(first) = nodes.first() else { continue };
            let next = twins.len() as u32;
            let twin = *twins.entry(likeness).or_insert(next);
            let next = zones.len();
            let zone = zones.entry(domains).or_insert((next, *first, Vec::new()));
            zone.2.push((twin, nodes.len()));
            found.of_class.push(zone.0);
            found.twin_of_class.push(twin);
        }
        let mut shared: BTreeMap<(usize, i64), usize> = BTreeMap::new();
        for domain in zones.keys().flat_map(|domains| domains.iter().copied().enumerate()).filter(|(_, value)| *value != -1) {
            *shared.entry(domain).or_default() += 1;
        }
        let mut kinds: BTreeMap<(Option<usize>, Vec<Option<i64>>, Vec<(u32, usize)>), u32> = BTreeMap::new();
        found.kind = vec![0; zones.len()];
        for (domains, (at, node, mut held)) in zones {
            let entangled = domains.iter().copied().enumerate().any(|domain| shared.get(&domain).is_some_and(|n| *n > 1));
            let mut counts: Vec<Option<i64>> = Vec::new();
            for term in terms.iter().filter(|term| !tallies.one_node_each(**term)) {
                counts.push(tallies.value(*term, node).map(|_| tallies.near(Mark::Member(*term), node)));
                counts.push(Some(tallies.near(Mark::Avoids(*term), node)));
            }
            let spreads = board.spreads.iter().flatten().filter(|spread| !tallies.one_node_each(spread.term));
            counts.extend(spreads.map(|spread| spread.count_at(tallies, node)));
            counts.extend(board.limits.iter().map(|(limit, used)| Some(i64::from(used.contains(&limit.used_at(self.trees, node))))));
            held.sort_unstable();
            let next = kinds.len() as u32;
            found.kind[at] = *kinds.entry((entangled.then_some(at), counts, held)).or_insert(next);
        }
        found
    }

    /// Terms that a rule of the task reads, or of which its pods are.
    fn terms_in_play(&self, board: &Board) -> Vec<TermIdx> {
        let mut terms: Vec<TermIdx> = board
            .groups
            .iter()
            .flat_map(|group| {
                let shape = &self.shapes[group.shape.at()];
                shape.drawn_terms().chain(shape.terms.anti.iter().chain(&shape.terms.member_of).copied())
            })
            .collect();
        terms.sort_unstable();
        terms.dedup();
        terms
    }

    fn likeness(&self, board: &Board, terms: &[TermIdx], usable: &[bool], node: NodeIdx) -> Likeness {
        let tallies = self.rooms.tallies();
        let mut row: Vec<i64> = usable.iter().map(|usable| i64::from(*usable)).collect();
        row.extend(board.groups.iter().map(|group| i64::from(self.rooms.soft_cost(group.shape, node))));
        row.extend(board.spreads.iter().flatten().map(|spread| i64::from(spread.counted[node.at()])));
        for term in terms {
            // Where every node is a domain of its own, only what it holds tells it apart.
            row.push(i64::from(tallies.value(*term, node).is_some()));
        }
        let room = self.rooms.room(node);
        row.extend(room.iter().flat_map(|room| &room.free));
        row.extend(room.iter().flat_map(|room| room.attached.keys()).map(|volume| i64::from(*volume)));
        if board.groups.iter().any(|group| !self.shapes[group.shape.at()].volumes.waits.is_empty()) {
            // Which free volumes a node reaches tells it apart.
            row.push(i64::from(node.0));
        }
        let ports = room.map(|room| room.ports.clone()).unwrap_or_default();
        let marks = room.iter().flat_map(|room| &room.marks);
        let marks = marks.filter(|(_, count)| **count != 0).map(|(mark, count)| (*mark, *count));
        (row, ports, marks.collect())
    }

    /// Pods of each group in rank order over its nodes in depth-first order.
    fn assigned(&self, board: &Board) -> Vec<(PodIdx, NodeIdx)> {
        let tree = &self.trees[self.default_tree.at()];
        let mut nodes: Vec<(&NodeIdx, &Vec<u32>)> = board.counts.iter().collect();
        nodes.sort_by_key(|(node, _)| tree.position(**node));
        let mut places = Vec::new();
        for (at, group) in board.groups.iter().enumerate() {
            let spots = nodes.iter().flat_map(|(node, counts)| std::iter::repeat_n(**node, counts[at] as usize));
            places.extend(group.pods.iter().copied().zip(spots));
        }
        places
    }
}
