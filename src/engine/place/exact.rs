//! The exact class: equal pods, segments of one size and one short one, and a few loose
//! pods of a second shape (leaders), on one tree.
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
//! A *cap* limits how many domains of a level are used. The first placement without caps is the answer when it keeps
//! them; else states also count the domains used of those levels, and of two states that differ in that alone one that
//! uses more and costs no less is dropped.
//!
//! Plain cost: the sum over domains of (states so far) × (states of the child).
//! Domains with the same nodes, slot for slot, share one table. It knows
//! nothing of gangs, queues or resources: slots are given.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::cost::{Cost, Layout, Wide};
use super::finish::drop_dominated;
use super::state::{Dims, MAX_CAPS, State};
use crate::ids::DomainIdx;
use crate::policy::NodeStrategy;
use crate::topology::Tree;

/// Most states of a table above the segments' level; larger instances go to the search.
const MAX_STATES: usize = 20_000;
/// Most pods of the second shape: leaders, launchers, heads and routers are few.
pub(crate) const MAX_GUESTS: usize = 4;
/// So many guests do not fit on the node.
pub(crate) const NO_ROOM: u32 = u32::MAX;
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
    /// Pods of the second shape, outside segments; at most `MAX_GUESTS`.
    pub guests: usize,
}

impl Demand {
    /// Loose pods only.
    pub(crate) fn loose(n: usize) -> Self {
        Self { segments: 0, size: 1, short: 0, required: 0, preferred: 0, loose: n, guests: 0 }
    }

    /// True for one pod and nothing else.
    fn is_one(&self) -> bool {
        self.loose == 1 && self.segments == 0 && self.short == 0 && self.guests == 0
    }

    /// All pods of the first shape.
    pub(crate) fn pods(&self) -> usize {
        self.segments * self.size + self.short + self.loose
    }
}

/// A node as the solver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Spot {
    /// Copies of the first shape that fit.
    pub slots: u32,
    /// Copies that fit next to 1, 2, … guests; `NO_ROOM` when the guests do not.
    pub beside: [u32; MAX_GUESTS],
    /// Soft cost of one guest.
    pub guest_soft: u32,
    /// Soft cost of one copy.
    pub soft: u32,
    /// Live members of the gang there.
    pub live: u32,
    /// Copies' worth of room in use, for the spread strategy.
    pub load: u32,
}

impl Spot {
    /// Copies of the first shape that fit next to so many guests; `None` when the guests do not.
    fn room_beside(&self, guests: usize) -> Option<u32> {
        match guests.checked_sub(1) {
            None => Some(self.slots),
            Some(at) => self.beside.get(at).copied().filter(|slots| *slots != NO_ROOM),
        }
    }
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
    /// Pods of the second shape.
    pub guests: Vec<usize>,
}

/// How a solve ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The best placement inside the domain, with its cost: comparable between domains of one depth without live members.
    Best(Chosen, Vec<i64>),
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
    /// Levels of which only so many domains may be used.
    pub caps: &'a [Cap],
}

/// At most so many domains of a depth, those with live members included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cap {
    /// Depth of the level.
    pub depth: usize,
    /// Domains at the most.
    pub most: usize,
}

impl Instance<'_> {
    /// Solves; see the module text.
    pub(crate) fn solve(&self, demand: &Demand) -> Answer {
        let total: u64 = self.spots.iter().map(|spot| u64::from(spot.slots)).sum();
        if total < demand.pods() as u64 {
            return Answer::Impossible;
        }
        let free = if demand.is_one() {
            let place = self.best_for_one();
            place.map_or(Answer::Impossible, |(at, cost)| {
                Answer::Best(Chosen { loose: vec![at], ..Chosen::default() }, cost)
            })
        } else {
            self.solve_by_tables(demand, &[])
        };
        let Answer::Best(chosen, _) = &free else { return free };
        match self.caps.iter().find(|cap| self.used_by(cap.depth, chosen) > cap.most) {
            None => free,
            Some(cap) if self.is_first(demand, cap.depth) => Answer::Impossible,
            Some(_) => match self.caps_that_count() {
                Some(caps) if caps.len() <= MAX_CAPS => self.solve_by_tables(demand, &caps),
                Some(_) => Answer::TooLarge,
                None => Answer::Impossible,
            },
        }
    }

    /// The same for any demand, which fits by the number of pods at least, under these caps.
    pub(crate) fn solve_by_tables(&self, demand: &Demand, caps: &[Cap]) -> Answer {
        let demand = self.normalise(demand);
        let layout = self.layout(&demand);
        if layout.bits <= <u128 as Cost>::BITS {
            Run::<u128>::new(self, &demand, layout, caps).solve()
        } else {
            Run::<Wide>::new(self, &demand, layout, caps).solve()
        }
    }

    /// Domains of a depth that have live members, and those with one of these positions.
    fn used(&self, depth: usize, chosen: &[&[usize]]) -> usize {
        let first = self.tree.positions(self.top).start;
        let live = self.spots.iter().enumerate().filter(|(_, spot)| spot.live > 0).map(|(at, _)| first + at);
        let places = chosen.iter().copied().flatten().copied();
        let domains: BTreeSet<DomainIdx> =
            live.chain(places).filter_map(|at| self.tree.domain_of(self.tree.order[at], depth)).collect();
        domains.len()
    }

    fn used_by(&self, depth: usize, chosen: &Chosen) -> usize {
        let segments = chosen.segments.iter().map(Vec::as_slice);
        let others = [chosen.short.as_slice(), chosen.loose.as_slice(), chosen.guests.as_slice()];
        self.used(depth, &segments.chain(others).collect::<Vec<_>>())
    }

    /// The order counts domains of this depth before anything else: then the first placement uses the fewest there are.
    fn is_first(&self, demand: &Demand, depth: usize) -> bool {
        let demand = self.normalise(demand);
        depth == self.tree.domain(self.top).depth + 1 && depth <= self.counted && demand.required == demand.preferred
    }

    /// The caps below the top domain; `None` where live members use more already, or nothing may be here.
    fn caps_that_count(&self) -> Option<Vec<Cap>> {
        let top = self.tree.domain(self.top).depth;
        let is_kept = |cap: &Cap| cap.most > 0 && self.used(cap.depth, &[]) <= cap.most;
        self.caps.iter().all(is_kept).then(|| self.caps.iter().copied().filter(|cap| cap.depth > top).collect())
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
        let pods = (demand.pods() + demand.guests) as u64;
        let live: u64 = self.spots.iter().map(|spot| u64::from(spot.live)).sum();
        let slots: u64 = self.spots.iter().map(|spot| u64::from(spot.slots)).sum();
        let softest = self.spots.iter().map(|spot| u64::from(spot.soft.max(spot.guest_soft))).max().unwrap_or(0);
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

/// The table of one domain.
pub(super) struct Table<C> {
    pub(super) dims: Dims,
    pub(super) cost: Vec<C>,
    /// For each state, the state before breaking segments here; empty when none can break.
    pub(super) broken: Vec<u32>,
    /// Before lifting from pods to segments (at the preferred depth): the pods' table dims.
    pub(super) lifted: Option<Dims>,
    /// By child, by state of the suffix from that child on: what the child takes.
    pub(super) choices: Vec<Vec<u32>>,
    /// Dims of the children's merge.
    pub(super) merged: Dims,
    /// Children's tables, in order; nodes have none.
    pub(super) children: Vec<Rc<Table<C>>>,
    /// Live members are there already: being touched costs it nothing.
    pub(super) lived_in: bool,
    /// The cap that counts this very domain.
    pub(super) counts: Option<usize>,
}

impl<C> Table<C> {
    /// A table as it leaves a merge: nothing lifted or broken yet.
    fn merged(dims: Dims, cost: Vec<C>, choices: Vec<Vec<u32>>, children: Vec<Rc<Table<C>>>) -> Self {
        Self { dims, cost, broken: Vec::new(), lifted: None, choices, merged: dims, children, lived_in: false, counts: None }
    }

    /// A state as it was before the domain itself was counted, and the sizes of its table then.
    pub(super) fn uncounted(&self, mut state: State) -> (State, Dims) {
        let mut dims = self.dims;
        if let Some(cap) = self.counts {
            (state.used[cap], dims.used[cap]) = (0, 0);
        }
        (state, dims)
    }
}

pub(super) struct Run<'a, C> {
    pub(super) instance: &'a Instance<'a>,
    pub(super) demand: &'a Demand,
    pub(super) layout: Layout,
    pub(super) top_depth: usize,
    pub(super) levels: usize,
    pub(super) caps: &'a [Cap],
    /// By nodes, and whether the domain is one of nodes without the label.
    cache: BTreeMap<(bool, Vec<Spot>), Rc<Table<C>>>,
    n_choices: usize,
    first: usize,
}

impl<'a, C: Cost> Run<'a, C> {
    fn new(instance: &'a Instance<'a>, demand: &'a Demand, layout: Layout, caps: &'a [Cap]) -> Self {
        let top_depth = instance.tree.domain(instance.top).depth;
        Self {
            instance,
            demand,
            layout,
            top_depth,
            levels: instance.counted.saturating_sub(top_depth),
            caps,
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
        let wanted = if self.segmented() {
            self.wanted()
        } else {
            State { m: demand.pods(), g: demand.guests, ..State::NOTHING }
        };
        if !table.dims.holds(wanted) {
            return Answer::Impossible;
        }
        // Whichever domains it uses: the states that differ in that alone stand at equal distances.
        let ends = (table.dims.at(wanted)..table.dims.states()).step_by(table.dims.things());
        let Some(end) = ends.min_by_key(|end| table.cost[*end]).filter(|end| table.cost[*end] != C::NONE) else {
            return Answer::Impossible;
        };
        let cost = self.layout.unpack(table.cost[end]);
        let mut chosen = Chosen::default();
        if self.segmented() {
            self.collect(self.instance.top, &table, end, &mut chosen);
        } else {
            let mut pods = Vec::new();
            self.collect_pods(self.instance.top, &table, table.dims.of(end), &mut pods, &mut chosen.guests);
            self.cut(&mut pods.into_iter(), demand.segments, demand.short > 0, &mut chosen);
        }
        Answer::Best(chosen, cost)
    }

    /// The whole demand as a state above the preferred depth.
    fn wanted(&self) -> State {
        let demand = self.demand;
        State { j: demand.segments, b: usize::from(demand.short > 0), m: demand.loose, g: demand.guests, ..State::NOTHING }
    }

    /// True when states count segments above some depth.
    pub(super) fn segmented(&self) -> bool {
        self.demand.preferred > self.top_depth
    }

    pub(super) fn breakable(&self) -> bool {
        self.demand.required < self.demand.preferred
    }

    /// Dims above the preferred depth.
    pub(super) fn high_dims(&self) -> Dims {
        let demand = self.demand;
        let m = if self.breakable() { demand.pods() } else { demand.loose };
        Dims { m, used: self.most_used(), ..self.wanted() }
    }

    fn most_used(&self) -> [usize; MAX_CAPS] {
        let mut used = [0; MAX_CAPS];
        used.iter_mut().zip(self.caps).for_each(|(most, cap)| *most = cap.most);
        used
    }

    pub(super) fn unit(&self, component: usize, value: u64) -> C {
        C::component(value, self.layout.offsets[component])
    }

    /// The cost of pods and guests on a node where `slots` pods fit next to the guests.
    fn node_cost(&self, spot: &Spot, slots: u32, pods: u32, guests: usize) -> C {
        let base = 1 + 3 * self.levels;
        let soft = u64::from(spot.soft) * u64::from(pods) + u64::from(spot.guest_soft) * guests as u64;
        let mut cost = self.unit(base, soft);
        match self.instance.strategy {
            NodeStrategy::Pack => {
                if pods > 0 || guests > 0 || spot.live > 0 {
                    let left = u64::from(slots - pods);
                    cost = cost
                        .plus(self.unit(base + 1, 1))
                        .plus(self.unit(base + 2, u64::from(left > 0)))
                        .plus(self.unit(base + 3, left));
                }
            }
            NodeStrategy::Spread => {
                // The sum of used·(used+1)/2 grows by (load+1) + … + (load+pods).
                let (load, pods) = (u64::from(spot.load), u64::from(pods) + guests as u64);
                cost = cost.plus(self.unit(base + 1, load * pods + pods * (pods + 1) / 2));
            }
        }
        cost
    }

    pub(super) fn spots(&self, domain: DomainIdx) -> &'a [Spot] {
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
            let merged = self.merge(depth, &tables)?;
            Rc::new(self.finish(domain, depth, merged))
        };
        self.n_choices += table.choices.iter().map(Vec::len).sum::<usize>();
        (self.n_choices <= MAX_CHOICES).then_some(table)
    }

    /// What a node can take, dearest ties first: (pods, guests, cost). Larger takes come
    /// first, so that a tie gives more to the earlier node.
    fn options(&self, spot: &Spot, most: usize) -> Vec<(usize, usize, C)> {
        let mut options = Vec::new();
        for guests in 0..=self.demand.guests {
            let Some(slots) = spot.room_beside(guests) else { continue };
            for pods in 0..=(slots as usize).min(most) {
                options.push((pods, guests, self.node_cost(spot, slots, pods as u32, guests)));
            }
        }
        options.sort_by_key(|(pods, guests, _)| std::cmp::Reverse((pods + guests, *guests)));
        options
    }

    /// Pods over the nodes of a deepest domain.
    fn leaf_merge(&self, spots: &[Spot]) -> Option<Table<C>> {
        let slots: u64 = spots.iter().map(|spot| u64::from(spot.slots)).sum();
        let most = (self.demand.pods() as u64).min(slots) as usize;
        let dims = Dims { m: most, g: self.demand.guests, ..State::NOTHING };
        if spots.len().saturating_mul(dims.states()) > MAX_CHOICES {
            return None;
        }
        let width = dims.g + 1;
        let mut cost = vec![C::NONE; dims.states()];
        cost[0] = C::ZERO;
        let mut choices = vec![Vec::new(); spots.len()];
        let mut reach = 0;
        for (at, spot) in spots.iter().enumerate().rev() {
            let mut next = vec![C::NONE; dims.states()];
            let mut choice = vec![0_u32; dims.states()];
            for (pods, guests, own) in self.options(spot, most) {
                let taken = pods * width + guests;
                for before in 0..=reach.min(most - pods) {
                    for held in 0..=dims.g - guests {
                        let from = before * width + held;
                        if cost[from] == C::NONE {
                            continue;
                        }
                        let sum = cost[from].plus(own);
                        if sum < next[from + taken] {
                            next[from + taken] = sum;
                            choice[from + taken] = taken as u32;
                        }
                    }
                }
            }
            cost = next;
            choices[at] = choice;
            reach = (reach + spot.slots as usize).min(most);
        }
        Some(Table::merged(dims, cost, choices, Vec::new()))
    }

    /// Children merged from the last to the first, so that a tie gives more to the earlier one.
    fn merge(&self, depth: usize, tables: &[Rc<Table<C>>]) -> Option<Table<C>> {
        let full = tables.iter().fold(State::NOTHING, |sum, table| Dims {
            j: sum.j + table.dims.j,
            b: sum.b + table.dims.b,
            m: sum.m + table.dims.m,
            g: sum.g + table.dims.g,
            used: std::array::from_fn(|cap| sum.used[cap] + table.dims.used[cap]),
        });
        let high = self.high_dims();
        let lifted = tables.iter().any(|table| table.lifted.is_some() || table.dims.j > 0 || table.dims.b > 0);
        let bound = if lifted { high } else { Dims { m: self.demand.pods(), j: 0, b: 0, ..high } };
        let dims = Dims {
            j: full.j.min(bound.j),
            b: full.b.min(bound.b),
            m: full.m.min(bound.m),
            g: full.g.min(bound.g),
            used: std::array::from_fn(|cap| full.used[cap].min(bound.used[cap])),
        };
        if tables.len().saturating_mul(dims.states()) > MAX_CHOICES {
            return None;
        }
        let mut cost = vec![C::NONE; dims.states()];
        cost[0] = C::ZERO;
        let mut reached: Vec<(usize, State)> = vec![(0, State::NOTHING)];
        let mut choices = vec![Vec::new(); tables.len()];
        let spare = self.spare_copies(depth + 1, dims, tables);
        for (at, table) in tables.iter().enumerate().rev().filter(|(at, _)| !spare[*at]) {
            let mut next = vec![C::NONE; dims.states()];
            let mut choice = vec![0_u32; dims.states()];
            for index in (0..table.cost.len()).rev() {
                let own = table.cost[index];
                let taken = table.dims.of(index);
                if own == C::NONE || !dims.holds(taken) {
                    continue;
                }
                let (offset, room) = (dims.at(taken), dims.less(taken));
                for (from, state) in &reached {
                    if !room.holds(*state) {
                        continue;
                    }
                    // Indices add up like the states they stand for.
                    let (sum, target) = (cost[*from].plus(own), from + offset);
                    if sum < next[target] {
                        next[target] = sum;
                        choice[target] = index as u32;
                    }
                }
            }
            cost = next;
            choices[at] = choice;
            drop_dominated(dims, &mut cost);
            reached = (0..cost.len())
                .filter(|index| cost[*index] != C::NONE)
                .map(|index| (index, dims.of(index)))
                .collect();
        }
        Some(Table::merged(dims, cost, choices, tables.to_vec()))
    }

    /// Children that no best placement needs: copies of one table beyond the number of
    /// domains that the largest state needs at the most, the later ones.
    ///
    /// Sound where the number of children touched comes first for every state: one thing is
    /// counted, nothing can be broken, and these domains are counted. Then a best placement
    /// touches no more than most-free-first does, and of equal children any will do. A cap on a level below the children
    /// may ask for more of them than that.
    fn spare_copies(&self, depth: usize, dims: Dims, tables: &[Rc<Table<C>>]) -> Vec<bool> {
        let mut spare = vec![false; tables.len()];
        let one_thing = dims.g == 0 && dims.b == 0 && (dims.j == 0 || (dims.m == 0 && !self.breakable()));
        if !one_thing || depth > self.instance.counted || self.caps.iter().any(|cap| cap.depth > depth) {
            return spare;
        }
        let capacity = |table: &Table<C>| if dims.j > 0 { table.dims.j } else { table.dims.m };
        let mut capacities: Vec<usize> =
            tables.iter().filter(|table| !table.lived_in).map(|table| capacity(table)).collect();
        capacities.sort_unstable_by(|a, b| b.cmp(a));
        let (mut missing, mut needed) = (dims.j.max(dims.m), 0);
        for capacity in capacities {
            if missing == 0 {
                break;
            }
            missing = missing.saturating_sub(capacity);
            needed += 1;
        }
        if missing > 0 {
            return spare;
        }
        let mut copies: BTreeMap<*const Table<C>, usize> = BTreeMap::new();
        for (at, table) in tables.iter().enumerate() {
            let seen = copies.entry(Rc::as_ptr(table)).or_default();
            *seen += 1;
            spare[at] = !table.lived_in && *seen > needed;
        }
        spare
    }
}
