//! The exact class: equal pods, segments of one size and one short one, on one tree.
//!
//! A dynamic programme over (domain, what is placed below it) computes the
//! first placement by the order of placement.md section 3, lines 3 to 7,
//! inside a given domain. Above the segments' level a state counts whole
//! segments, the short one, and loose pods; from that level down it counts
//! pods. A segment may be *broken* between its required and its preferred
//! level: its pods become loose there, at a cost per level climbed, which is
//! compared before line 3 (a segment split for the sake of fewer racks would
//! turn the user's preference round).
//!
//! Plain cost: the sum over domains of (states so far) × (states of the child).
//! Domains with the same nodes, slot for slot, share one table. It knows
//! nothing of gangs, queues or resources: slots are given.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::cost::{Cost, Layout, Wide};
use crate::ids::DomainIdx;
use crate::policy::NodeStrategy;
use crate::topology::Tree;

/// Most states of a table above the segments' level; larger instances go to the search.
const MAX_STATES: usize = 20_000;
/// Most stored choices (4 bytes each) of one solve: 256 MiB.
const MAX_CHOICES: usize = 1 << 26;

/// What is to be placed: all pods are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Whole segments.
    pub segments: usize,
    /// Pods of a whole segment.
    pub size: usize,
    /// Pods of the short segment; 0 when there is none.
    pub short: usize,
    /// Depth of the domain in which a segment must stay.
    pub required: usize,
    /// Depth of the domain in which a segment should stay; at or below `required`.
    pub preferred: usize,
    /// Pods outside segments.
    pub loose: usize,
}

impl Demand {
    /// Loose pods only.
    pub(crate) fn loose(n: usize) -> Self {
        Self { segments: 0, size: 1, short: 0, required: 0, preferred: 0, loose: n }
    }

    /// All pods.
    pub(crate) fn pods(&self) -> usize {
        self.segments * self.size + self.short + self.loose
    }
}

/// A node as the solver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Spot {
    /// Copies that fit.
    pub slots: u32,
    /// Soft cost of one copy.
    pub soft: u32,
    /// Live members of the gang there.
    pub live: u32,
    /// Copies' worth of room in use, for the spread strategy.
    pub load: u32,
}

/// Positions chosen, one entry per pod, in depth-first order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// One list per whole segment.
    pub segments: Vec<Vec<usize>>,
    /// The short segment.
    pub short: Vec<usize>,
    /// Loose pods.
    pub loose: Vec<usize>,
}

/// How a solve ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The best placement inside the domain.
    Best(Chosen),
    /// There is none.
    Impossible,
    /// Too large for the tables.
    TooLarge,
}

/// One instance: a domain of a tree, its nodes, and how far down domains are counted.
pub(crate) struct Instance<'a> {
    /// The tree.
    pub tree: &'a Tree,
    /// The domain that must hold everything.
    pub top: DomainIdx,
    /// Nodes by position minus the domain's first position.
    pub spots: &'a [Spot],
    /// The deepest level whose domains are counted (lines 3 and 4).
    pub counted: usize,
    /// Line 6.
    pub strategy: NodeStrategy,
}

impl Instance<'_> {
    /// Solves; see the module text.
    pub(crate) fn solve(&self, demand: &Demand) -> Answer {
        let total: u64 = self.spots.iter().map(|spot| u64::from(spot.slots)).sum();
        if total < demand.pods() as u64 {
            return Answer::Impossible;
        }
        let demand = self.normalise(demand);
        let layout = self.layout(&demand);
        if layout.bits <= <u128 as Cost>::BITS {
            Run::<u128>::new(self, &demand, layout).solve()
        } else {
            Run::<Wide>::new(self, &demand, layout).solve()
        }
    }

    /// Segments whose level is not below the top domain are loose.
    fn normalise(&self, demand: &Demand) -> Demand {
        let top = self.tree.domain(self.top).depth;
        if demand.segments + demand.short > 0 && demand.preferred > top {
            Demand { required: demand.required.max(top), ..demand.clone() }
        } else {
            Demand { required: top, preferred: top, ..demand.clone() }
        }
    }

    /// Components: breaks; domains per level; (partly free, left over) per level; soft;
    /// then the node strategy.
    fn layout(&self, demand: &Demand) -> Layout {
        let top = self.tree.domain(self.top).depth;
        let pods = demand.pods() as u64;
        let live: u64 = self.spots.iter().map(|spot| u64::from(spot.live)).sum();
        let slots: u64 = self.spots.iter().map(|spot| u64::from(spot.slots)).sum();
        let softest = self.spots.iter().map(|spot| u64::from(spot.soft)).max().unwrap_or(0);
        let load = self.spots.iter().map(|spot| u64::from(spot.load)).max().unwrap_or(0);
        let levels = self.counted.saturating_sub(top);
        let mut largest = vec![(demand.segments as u64 + 1) * self.tree.n_levels().max(1) as u64];
        largest.extend(std::iter::repeat_n(pods + live, levels));
        for _ in 0..levels {
            largest.extend([pods + live, slots]);
        }
        largest.push(softest * pods);
        match self.strategy {
            NodeStrategy::Pack => largest.extend([pods + live, pods + live, slots]),
            NodeStrategy::Spread => largest.push((load + pods + 1) * pods),
        }
        Layout::new(&largest)
    }
}

/// Sizes of a table: states are (j, b, m) with j ≤ `j`, b ≤ `b`, m ≤ `m`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Dims {
    j: usize,
    b: usize,
    m: usize,
}

impl Dims {
    fn states(self) -> usize {
        (self.j + 1) * (self.b + 1) * (self.m + 1)
    }
    fn at(self, j: usize, b: usize, m: usize) -> usize {
        (j * (self.b + 1) + b) * (self.m + 1) + m
    }
    fn of(self, state: usize) -> (usize, usize, usize) {
        let (rest, m) = (state / (self.m + 1), state % (self.m + 1));
        (rest / (self.b + 1), rest % (self.b + 1), m)
    }
}

/// The table of one domain.
struct Table<C> {
    dims: Dims,
    cost: Vec<C>,
    /// For each state, the state before breaking segments here; empty when none can break.
    broken: Vec<u32>,
    /// Before lifting from pods to segments (at the preferred depth): the pods' table dims.
    lifted: Option<Dims>,
    /// By child, by state of the suffix from that child on: what the child takes.
    choices: Vec<Vec<u32>>,
    /// Dims of the children's merge.
    merged: Dims,
    /// Children's tables, in order; nodes have none.
    children: Vec<Rc<Table<C>>>,
}

impl<C> Table<C> {
    /// A table as it leaves a merge: nothing lifted or broken yet.
    fn merged(dims: Dims, cost: Vec<C>, choices: Vec<Vec<u32>>, children: Vec<Rc<Table<C>>>) -> Self {
        Self { dims, cost, broken: Vec::new(), lifted: None, choices, merged: dims, children }
    }
}

struct Run<'a, C> {
    instance: &'a Instance<'a>,
    demand: &'a Demand,
    layout: Layout,
    top_depth: usize,
    levels: usize,
    /// By nodes, and whether the domain is one of nodes without the label.
    cache: BTreeMap<(bool, Vec<Spot>), Rc<Table<C>>>,
    n_choices: usize,
    first: usize,
}

impl<'a, C: Cost> Run<'a, C> {
    fn new(instance: &'a Instance<'a>, demand: &'a Demand, layout: Layout) -> Self {
        let top_depth = instance.tree.domain(instance.top).depth;
        Self {
            instance,
            demand,
            layout,
            top_depth,
            levels: instance.counted.saturating_sub(top_depth),
            cache: BTreeMap::new(),
            n_choices: 0,
            first: instance.tree.positions(instance.top).start,
        }
    }

    fn solve(mut self) -> Answer {
        let demand = self.demand;
        if self.high_dims().states() > MAX_STATES && self.segmented() {
            return Answer::TooLarge;
        }
        let Some(table) = self.table(self.instance.top) else { return Answer::TooLarge };
        let state = if self.segmented() {
            let short = usize::from(demand.short > 0);
            let dims = table.dims;
            if dims.j < demand.segments || dims.b < short || dims.m < demand.loose {
                return Answer::Impossible;
            }
            table.dims.at(demand.segments, usize::from(demand.short > 0), demand.loose)
        } else {
            if table.dims.m < demand.pods() {
                return Answer::Impossible;
            }
            table.dims.at(0, 0, demand.pods())
        };
        if table.cost[state] == C::NONE {
            return Answer::Impossible;
        }
        let mut chosen = Chosen::default();
        if self.segmented() {
            self.collect(self.instance.top, &table, state, &mut chosen);
        } else {
            let mut pods = Vec::new();
            self.collect_pods(self.instance.top, &table, demand.pods(), &mut pods);
            self.cut(&mut pods.into_iter(), demand.segments, demand.short > 0, &mut chosen);
        }
        Answer::Best(chosen)
    }

    /// True when states count segments above some depth.
    fn segmented(&self) -> bool {
        self.demand.preferred > self.top_depth
    }

    fn breakable(&self) -> bool {
        self.demand.required < self.demand.preferred
    }

    /// Dims above the preferred depth.
    fn high_dims(&self) -> Dims {
        let demand = self.demand;
        let m = if self.breakable() { demand.pods() } else { demand.loose };
        Dims { j: demand.segments, b: usize::from(demand.short > 0), m }
    }

    fn unit(&self, component: usize, value: u64) -> C {
        C::component(value, self.layout.offsets[component])
    }

    /// The cost of a domain itself, when it holds `pods` new and `live` old ones of `slots`.
    fn own_cost(&self, depth: usize, pods: usize, live: u64, slots: u64) -> C {
        if depth <= self.top_depth || depth > self.instance.counted || (pods == 0 && live == 0) {
            return C::ZERO;
        }
        let level = depth - self.top_depth - 1;
        let left = slots - pods as u64;
        self.unit(1 + level, 1)
            .plus(self.unit(1 + self.levels + 2 * level, u64::from(left > 0)))
            .plus(self.unit(1 + self.levels + 2 * level + 1, left))
    }

    fn node_cost(&self, spot: Spot, pods: u32) -> C {
        let base = 1 + 3 * self.levels;
        let mut cost = self.unit(base, u64::from(spot.soft) * u64::from(pods));
        match self.instance.strategy {
            NodeStrategy::Pack => {
                if pods > 0 || spot.live > 0 {
                    let left = u64::from(spot.slots - pods);
                    cost = cost
                        .plus(self.unit(base + 1, 1))
                        .plus(self.unit(base + 2, u64::from(left > 0)))
                        .plus(self.unit(base + 3, left));
                }
            }
            NodeStrategy::Spread => {
                // The sum of used·(used+1)/2 grows by (load+1) + … + (load+pods).
                let (load, pods) = (u64::from(spot.load), u64::from(pods));
                cost = cost.plus(self.unit(base + 1, load * pods + pods * (pods + 1) / 2));
            }
        }
        cost
    }

    fn spots(&self, domain: DomainIdx) -> &'a [Spot] {
        let range = self.instance.tree.positions(domain);
        &self.instance.spots[range.start - self.first..range.end - self.first]
    }

    fn table(&mut self, domain: DomainIdx) -> Option<Rc<Table<C>>> {
        let depth = self.instance.tree.domain(domain).depth;
        let children = self.instance.tree.children(domain);
        let table = if children.is_empty() {
            let spots = self.spots(domain);
            let key = (self.instance.tree.domain(domain).absent, spots.to_vec());
            if let Some(table) = self.cache.get(&key) {
                return Some(Rc::clone(table));
            }
            let table = self.finish(domain, depth, self.leaf_merge(spots)?);
            let table = Rc::new(table);
            self.cache.insert(key, Rc::clone(&table));
            table
        } else {
            let mut tables = Vec::with_capacity(children.len());
            for child in children {
                tables.push(self.table(*child)?);
            }
            let merged = self.merge(&tables)?;
            Rc::new(self.finish(domain, depth, merged))
        };
        self.n_choices += table.choices.iter().map(Vec::len).sum::<usize>();
        (self.n_choices <= MAX_CHOICES).then_some(table)
    }

    /// Pods over the nodes of a deepest domain.
    fn leaf_merge(&self, spots: &[Spot]) -> Option<Table<C>> {
        let slots: u64 = spots.iter().map(|spot| u64::from(spot.slots)).sum();
        let most = (self.demand.pods() as u64).min(slots) as usize;
        if spots.len().saturating_mul(most + 1) > MAX_CHOICES {
            return None;
        }
        let dims = Dims { j: 0, b: 0, m: most };
        let mut cost = vec![C::NONE; most + 1];
        cost[0] = C::ZERO;
        let mut choices = vec![Vec::new(); spots.len()];
        let mut reach = 0;
        for (at, spot) in spots.iter().enumerate().rev() {
            let here = (spot.slots as usize).min(most);
            let costs: Vec<C> = (0..=here).map(|k| self.node_cost(*spot, k as u32)).collect();
            let next_reach = (reach + here).min(most);
            let mut next = vec![C::NONE; most + 1];
            let mut choice = vec![0_u32; most + 1];
            for k in 0..=next_reach {
                // Larger takes first, so that a tie gives more to the earlier node.
                for take in (k.saturating_sub(reach)..=here.min(k)).rev() {
                    if cost[k - take] == C::NONE {
                        continue;
                    }
                    let sum = cost[k - take].plus(costs[take]);
                    if sum < next[k] {
                        next[k] = sum;
                        choice[k] = take as u32;
                    }
                }
            }
            cost = next;
            choices[at] = choice;
            reach = next_reach;
        }
        Some(Table::merged(dims, cost, choices, Vec::new()))
    }

    /// Children merged from the last to the first, so that a tie gives more to the earlier one.
    fn merge(&self, tables: &[Rc<Table<C>>]) -> Option<Table<C>> {
        let full = tables.iter().fold(Dims { j: 0, b: 0, m: 0 }, |sum, table| Dims {
            j: sum.j + table.dims.j,
            b: sum.b + table.dims.b,
            m: sum.m + table.dims.m,
        });
        let high = self.high_dims();
        let lifted = tables.iter().any(|table| table.lifted.is_some() || table.dims.j > 0 || table.dims.b > 0);
        let bound = if lifted { high } else { Dims { j: 0, b: 0, m: self.demand.pods() } };
        let dims = Dims { j: full.j.min(bound.j), b: full.b.min(bound.b), m: full.m.min(bound.m) };
        if tables.len().saturating_mul(dims.states()) > MAX_CHOICES {
            return None;
        }
        let mut cost = vec![C::NONE; dims.states()];
        cost[0] = C::ZERO;
        let mut reached: Vec<(usize, usize, usize)> = vec![(0, 0, 0)];
        let mut choices = vec![Vec::new(); tables.len()];
        for (at, table) in tables.iter().enumerate().rev() {
            let feasible: Vec<(usize, (usize, usize, usize))> = (0..table.cost.len())
                .rev()
                .filter(|state| table.cost[*state] != C::NONE)
                .map(|state| (state, table.dims.of(state)))
                .collect();
            let mut next = vec![C::NONE; dims.states()];
            let mut choice = vec![0_u32; dims.states()];
            for (state, (j, b, m)) in feasible {
                for (rj, rb, rm) in &reached {
                    if rj + j > dims.j || rb + b > dims.b || rm + m > dims.m {
                        continue;
                    }
                    let sum = cost[dims.at(*rj, *rb, *rm)].plus(table.cost[state]);
                    let target = dims.at(rj + j, rb + b, rm + m);
                    if sum < next[target] {
                        next[target] = sum;
                        choice[target] = state as u32;
                    }
                }
            }
            cost = next;
            choices[at] = choice;
            reached = (0..cost.len())
                .filter(|state| cost[*state] != C::NONE)
                .map(|state| dims.of(state))
                .collect();
        }
        Some(Table::merged(dims, cost, choices, tables.to_vec()))
    }

    /// Adds the domain's own cost, and turns pods into segments at the preferred depth.
    fn finish(&self, domain: DomainIdx, depth: usize, mut table: Table<C>) -> Table<C> {
        let spots = self.spots(domain);
        // Nodes without the label are in no domain of the level: no segment is whole there.
        let absent = self.instance.tree.domain(domain).absent;
        let live: u64 = spots.iter().map(|spot| u64::from(spot.live)).sum();
        let slots: u64 = spots.iter().map(|spot| u64::from(spot.slots)).sum();
        for state in 0..table.cost.len() {
            if table.cost[state] != C::NONE {
                let (j, b, m) = table.dims.of(state);
                let pods = j * self.demand.size + b * self.demand.short + m;
                table.cost[state] =
                    table.cost[state].plus(self.own_cost(depth, pods, live, slots));
            }
        }
        if self.segmented() && depth == self.demand.preferred {
            self.lift(&mut table, absent);
        }
        if self.breakable() && !absent && depth >= self.demand.required.max(self.top_depth) && depth < self.demand.preferred {
            self.break_here(&mut table, self.demand.preferred - depth);
        }
        table
    }

    fn lift(&self, table: &mut Table<C>, absent: bool) {
        let pods = table.dims;
        let high = self.high_dims();
        let demand = self.demand;
        let dims = Dims {
            j: if absent { 0 } else { (pods.m / demand.size).min(high.j) },
            b: if absent { 0 } else { high.b.min(usize::from(pods.m >= demand.short)) },
            m: pods.m.min(high.m),
        };
        let mut cost = vec![C::NONE; dims.states()];
        for (state, entry) in cost.iter_mut().enumerate() {
            let (j, b, m) = dims.of(state);
            let k = j * demand.size + b * demand.short + m;
            if k <= pods.m {
                *entry = table.cost[k];
            }
        }
        table.cost = cost;
        table.dims = dims;
        table.lifted = Some(pods);
    }

    /// Lets segments be broken in this domain, `climbed` levels above the preferred one.
    fn break_here(&self, table: &mut Table<C>, climbed: usize) {
        let (old, demand, high) = (table.dims, self.demand, self.high_dims());
        // Pods below may become segments here, so j and b can exceed what stays whole below.
        let dims = Dims {
            j: high.j.min(old.j + old.m / demand.size),
            b: high.b.min(old.b + usize::from(demand.short > 0 && old.m >= demand.short)),
            m: old.m,
        };
        let mut cost = vec![C::NONE; dims.states()];
        let mut broken = vec![0_u32; dims.states()];
        for state in 0..dims.states() {
            let (j, b, m) = dims.of(state);
            for t in 0..=j {
                for u in 0..=b {
                    let inner = m + t * demand.size + u * demand.short;
                    if inner > old.m || j - t > old.j || b - u > old.b {
                        continue;
                    }
                    let from = old.at(j - t, b - u, inner);
                    if table.cost[from] == C::NONE {
                        continue;
                    }
                    let sum =
                        table.cost[from].plus(self.unit(0, ((t + u) * climbed) as u64));
                    if sum < cost[state] {
                        cost[state] = sum;
                        broken[state] = from as u32;
                    }
                }
            }
        }
        table.cost = cost;
        table.dims = dims;
        table.broken = broken;
    }

    /// Walks the choices of a segmented table down to positions.
    fn collect(&self, domain: DomainIdx, table: &Table<C>, state: usize, chosen: &mut Chosen) {
        let (j, b, m) = table.dims.of(state);
        if table.lifted.is_some() {
            let k = j * self.demand.size + b * self.demand.short + m;
            let mut pods = Vec::new();
            self.collect_pods(domain, table, k, &mut pods);
            self.cut(&mut pods.into_iter(), j, b > 0, chosen);
            return;
        }
        let merged_state = if table.broken.is_empty() {
            table.merged.at(j, b, m)
        } else {
            table.broken[state] as usize
        };
        let (whole_j, whole_b, _) = table.merged.of(merged_state);
        let mut below = Chosen::default();
        let mut rest = table.merged.of(merged_state);
        for (at, child) in self.instance.tree.children(domain).iter().enumerate() {
            let take = table.choices[at][table.merged.at(rest.0, rest.1, rest.2)] as usize;
            let taken = table.children[at].dims.of(take);
            self.collect(*child, &table.children[at], take, &mut below);
            rest = (rest.0 - taken.0, rest.1 - taken.1, rest.2 - taken.2);
        }
        chosen.segments.append(&mut below.segments);
        chosen.short.append(&mut below.short);
        let mut loose = below.loose.into_iter();
        self.cut(&mut loose, j - whole_j, b > whole_b, chosen);
    }

    /// Cuts positions into segments, the short one, and loose pods.
    fn cut(
        &self,
        pods: &mut impl Iterator<Item = usize>,
        segments: usize,
        short: bool,
        chosen: &mut Chosen,
    ) {
        for _ in 0..segments {
            chosen.segments.push(pods.by_ref().take(self.demand.size).collect());
        }
        if short {
            chosen.short.extend(pods.by_ref().take(self.demand.short));
        }
        chosen.loose.extend(pods);
    }

    /// Walks the choices of a table that counts pods.
    fn collect_pods(&self, domain: DomainIdx, table: &Table<C>, k: usize, pods: &mut Vec<usize>) {
        let mut rest = k;
        if table.children.is_empty() {
            let range = self.instance.tree.positions(domain);
            for (at, choice) in table.choices.iter().enumerate() {
                let take = choice[rest] as usize;
                pods.extend(std::iter::repeat_n(range.start + at, take));
                rest -= take;
            }
            return;
        }
        for (at, child) in self.instance.tree.children(domain).iter().enumerate() {
            let take = table.choices[at][rest] as usize;
            self.collect_pods(*child, &table.children[at], take, pods);
            rest -= take;
        }
    }
}
