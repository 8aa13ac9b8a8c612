//! One pod of its own: the exact class in closed form.
//!
//! Most pods of a cluster come alone, and a table per domain is a high price for one of them. With one pod every
//! component of the order (placement.md section 3, lines 3 to 7) is a sum along the path of the node that takes it, so
//! a single walk over the nodes finds the first: what the domains of the path become is compared with what they are.

use super::exact::{Instance, Spot};
use crate::ids::DomainIdx;
use crate::policy::NodeStrategy;

/// What taking the pod changes in one domain of the path: domains touched, partly free, left over.
type Change = [i64; 3];

/// The pod's node, and how it compares.
#[derive(Default)]
struct Best {
    /// By level, the widest first; levels below a node without the label are not there.
    path: Vec<Change>,
    node: [i64; 4],
    position: usize,
}

struct Walk<'a> {
    instance: &'a Instance<'a>,
    top_depth: usize,
    first: usize,
    /// Slots and live members before each position of the top domain.
    before: Vec<(u64, u64)>,
    path: Vec<Change>,
    best: Option<Best>,
}

impl Instance<'_> {
    /// Position of the best node for one pod; `None` when no node takes it.
    pub(super) fn best_for_one(&self) -> Option<usize> {
        let mut before = Vec::with_capacity(self.spots.len() + 1);
        before.push((0, 0));
        let mut sum = (0, 0);
        for spot in self.spots {
            sum = (sum.0 + u64::from(spot.slots), sum.1 + u64::from(spot.live));
            before.push(sum);
        }
        let mut walk = Walk {
            instance: self,
            top_depth: self.tree.domain(self.top).depth,
            first: self.tree.positions(self.top).start,
            before,
            path: Vec::new(),
            best: None,
        };
        walk.visit(self.top);
        walk.best.map(|best| best.position)
    }

    /// What one pod costs on a node, beyond what its live members cost already.
    fn node_change(&self, spot: &Spot) -> [i64; 4] {
        let soft = i64::from(spot.soft);
        match self.strategy {
            NodeStrategy::Pack => {
                let [touched, partly, left] = change(u64::from(spot.slots), u64::from(spot.live));
                [soft, touched, partly, left]
            }
            NodeStrategy::Spread => [soft, i64::from(spot.load) + 1, 0, 0],
        }
    }
}

/// What one pod changes where `slots` fit and `live` members are.
fn change(slots: u64, live: u64) -> Change {
    let left = slots as i64 - 1;
    if live == 0 { [1, i64::from(left > 0), left] } else { [0, i64::from(left > 0) - 1, -1] }
}

impl Walk<'_> {
    fn visit(&mut self, domain: DomainIdx) {
        let tree = self.instance.tree;
        let range = tree.positions(domain);
        let (from, to) = (self.before[range.start - self.first], self.before[range.end - self.first]);
        let (slots, live) = (to.0 - from.0, to.1 - from.1);
        if slots == 0 {
            return;
        }
        let depth = tree.domain(domain).depth;
        let counted = self.top_depth < depth && depth <= self.instance.counted;
        if counted {
            self.path.push(change(slots, live));
        }
        let children = tree.children(domain);
        if children.is_empty() {
            self.take_best_of(range);
        }
        for child in children {
            self.visit(*child);
        }
        if counted {
            self.path.pop();
        }
    }

    /// The nodes of a deepest domain share a path.
    fn take_best_of(&mut self, range: std::ops::Range<usize>) {
        let instance = self.instance;
        let spots = &instance.spots[range.start - self.first..range.end - self.first];
        let open = spots.iter().enumerate().filter(|(_, spot)| spot.slots > 0);
        let Some((node, at)) = open.map(|(at, spot)| (instance.node_change(spot), at)).min() else { return };
        if self.best.as_ref().is_none_or(|best| self.is_before(node, best)) {
            self.best = Some(Best { path: self.path.clone(), node, position: range.start + at });
        }
    }

    /// Whether the node at the end of the path comes before the best so far: domains touched at every level first, then
    /// what is left in them, then the node.
    fn is_before(&self, node: [i64; 4], best: &Best) -> bool {
        let n_levels = self.path.len().max(best.path.len());
        let level = |path: &[Change], at: usize| path.get(at).copied().unwrap_or_default();
        let pairs = || (0..n_levels).map(|at| (level(&self.path, at), level(&best.path, at)));
        let touched = pairs().map(|(mine, best)| mine[0].cmp(&best[0]));
        let left = pairs().map(|(mine, best)| mine[1..].cmp(&best[1..]));
        touched.chain(left).find(|order| order.is_ne()).unwrap_or_else(|| node.cmp(&best.node)).is_lt()
    }
}
