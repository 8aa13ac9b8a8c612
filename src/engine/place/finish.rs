//! What a domain makes of its table once its children are merged: its own cost, pods turned into segments, segments
//! broken, and itself counted against a limit.

use super::cost::Cost;
use super::exact::{Run, Table};
use super::state::{Dims, State};
use crate::ids::DomainIdx;

impl<C: Cost> Run<'_, C> {
    /// The cost of a domain itself, when it holds `pods` new pods of `slots`, and others: guests and live members.
    /// What is left over is counted in pods of the first shape, guests aside.
    fn own_cost(&self, depth: usize, pods: usize, others: u64, slots: u64) -> C {
        if depth <= self.top_depth || depth > self.instance.counted || (pods == 0 && others == 0) {
            return C::ZERO;
        }
        let level = depth - self.top_depth - 1;
        let left = slots - pods as u64;
        self.unit(1 + level, 1)
            .plus(self.unit(1 + self.levels + 2 * level, u64::from(left > 0)))
            .plus(self.unit(1 + self.levels + 2 * level + 1, left))
    }

    /// Adds the domain's own cost, and turns pods into segments at the preferred depth.
    pub(super) fn finish(&self, domain: DomainIdx, depth: usize, mut table: Table<C>) -> Table<C> {
        let spots = self.spots(domain);
        // Nodes without the label are in no domain of the level: no segment is whole there.
        let absent = self.instance.tree.domain(domain).absent;
        let live: u64 = spots.iter().map(|spot| u64::from(spot.live)).sum();
        let slots: u64 = spots.iter().map(|spot| u64::from(spot.slots)).sum();
        table.lived_in = live > 0;
        for state in 0..table.cost.len() {
            if table.cost[state] != C::NONE {
                let held = table.dims.of(state);
                let others = live + held.g as u64;
                table.cost[state] =
                    table.cost[state].plus(self.own_cost(depth, self.pods_of(held), others, slots));
            }
        }
        if self.segmented() && depth == self.demand.preferred {
            self.lift(&mut table, absent);
        }
        if self.breakable() && !absent && depth >= self.demand.required.max(self.top_depth) && depth < self.demand.preferred {
            self.break_here(&mut table, self.demand.preferred - depth);
        }
        if let Some(cap) = self.caps.iter().position(|cap| cap.depth == depth) {
            count_itself(&mut table, cap);
        }
        table
    }

    /// Pods of the first shape in a state.
    pub(super) fn pods_of(&self, state: State) -> usize {
        state.j * self.demand.size + state.b * self.demand.short + state.m
    }

    fn lift(&self, table: &mut Table<C>, absent: bool) {
        let pods = table.dims;
        let high = self.high_dims();
        let demand = self.demand;
        let dims = Dims {
            j: if absent { 0 } else { (pods.m / demand.size).min(high.j) },
            b: if absent { 0 } else { high.b.min(usize::from(pods.m >= demand.short)) },
            m: pods.m.min(high.m),
            g: pods.g,
            used: pods.used,
        };
        let mut cost = vec![C::NONE; dims.states()];
        for (index, entry) in cost.iter_mut().enumerate() {
            let state = dims.of(index);
            let counted = State { j: 0, b: 0, m: self.pods_of(state), ..state };
            if pods.holds(counted) {
                *entry = table.cost[pods.at(counted)];
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
            ..old
        };
        let mut cost = vec![C::NONE; dims.states()];
        let mut broken = vec![0_u32; dims.states()];
        for index in 0..dims.states() {
            let state = dims.of(index);
            for t in 0..=state.j {
                for u in 0..=state.b {
                    let inner = state.m + t * demand.size + u * demand.short;
                    let whole = State { j: state.j - t, b: state.b - u, m: inner, ..state };
                    if !old.holds(whole) || table.cost[old.at(whole)] == C::NONE {
                        continue;
                    }
                    let from = old.at(whole);
                    let sum =
                        table.cost[from].plus(self.unit(0, ((t + u) * climbed) as u64));
                    if sum < cost[index] {
                        cost[index] = sum;
                        broken[index] = from as u32;
                    }
                }
            }
        }
        table.cost = cost;
        table.dims = dims;
        table.broken = broken;
    }
}

/// Counts the domain once in every state in which something is in it, live members included.
fn count_itself<C: Cost>(table: &mut Table<C>, cap: usize) {
    let before = table.dims;
    table.counts = Some(cap);
    table.dims.used[cap] = 1;
    let mut cost = vec![C::NONE; table.dims.states()];
    for index in 0..before.states() {
        let mut state = before.of(index);
        let is_used = table.lived_in || state.j + state.b + state.m + state.g > 0;
        state.used[cap] = usize::from(is_used);
        cost[table.dims.at(state)] = table.cost[index];
    }
    table.cost = cost;
}

/// Drops states that use more domains than another one of the same content, and cost no less.
pub(super) fn drop_dominated<C: Cost>(dims: Dims, cost: &mut [C]) {
    let [_, inner] = dims.used;
    let rows = dims.states() / dims.things();
    if rows == 1 {
        return;
    }
    let mut least = vec![C::NONE; rows];
    for thing in 0..dims.things() {
        for row in 0..rows {
            // One domain less of either level.
            let outer = row.checked_sub(inner + 1).map(|row| least[row]);
            let below = (row % (inner + 1)).checked_sub(1).map(|_| least[row - 1]);
            let before = outer.into_iter().chain(below).min().unwrap_or(C::NONE);
            let own = &mut cost[row * dims.things() + thing];
            if before <= *own {
                *own = C::NONE;
            }
            least[row] = before.min(*own);
        }
    }
}
