//! A task: a gang's tree cut down to what one decision must place.

use crate::ids::{NodeIdx, PodIdx, ShapeIdx, TreeIdx};
use crate::place::exact::{Demand, MAX_GUESTS};
use crate::place::limits::Limit;

/// A constraint whose topology and levels are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// The tree.
    pub tree: TreeIdx,
    /// Depth of the hard level.
    pub required: Option<usize>,
    /// Depth of the soft level.
    pub preferred: Option<usize>,
}

/// A subgroup with the pods this decision must place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Index in the gang's tree.
    pub sub: usize,
    /// Name, for verdicts; empty for the root.
    pub name: String,
    /// Its constraint.
    pub bound: Option<Bound>,
    /// Limits on the domains it uses; the whole gang's alone has some.
    pub limits: Vec<Limit>,
    /// Nodes of its live members that have a place, itself and below.
    pub live: Vec<NodeIdx>,
    /// Pods to place, of a leaf: by shape, in rank order.
    pub pods: Vec<(ShapeIdx, Vec<PodIdx>)>,
    /// Subgroups to place.
    pub children: Vec<Item>,
    /// How many of the children must be placed; the first ones are tried first.
    pub choose: usize,
    /// All pods that wait below it, the ones beyond the minimum included, of its first shape.
    pub waiting: usize,
}

impl Item {
    /// Pods of this task at or below the item, by shape.
    pub(crate) fn demand(&self) -> Vec<(ShapeIdx, usize)> {
        let mut demand: Vec<(ShapeIdx, usize)> = Vec::new();
        self.add_demand(&mut demand);
        demand
    }

    fn add_demand(&self, demand: &mut Vec<(ShapeIdx, usize)>) {
        for (shape, pods) in &self.pods {
            match demand.iter_mut().find(|(other, _)| other == shape) {
                Some((_, n)) => *n += pods.len(),
                None => demand.push((*shape, pods.len())),
            }
        }
        for child in self.children.iter().take(self.choose) {
            child.add_demand(demand);
        }
    }

    /// The least of each shape that any choice among the children asks for: what must fit whichever are taken.
    pub(crate) fn least_demand(&self) -> Vec<(ShapeIdx, usize)> {
        let below: Vec<Vec<(ShapeIdx, usize)>> = self.children.iter().map(Self::least_demand).collect();
        let own = |shape: ShapeIdx| self.pods.iter().filter(move |(other, _)| *other == shape).map(|(_, pods)| pods.len());
        let least = |shape: ShapeIdx| {
            let asked = |child: &Vec<(ShapeIdx, usize)>| {
                child.iter().find(|(other, _)| *other == shape).map_or(0, |(_, n)| *n)
            };
            let mut asked: Vec<usize> = below.iter().map(asked).collect();
            asked.sort_unstable();
            own(shape).sum::<usize>() + asked.iter().take(self.choose).sum::<usize>()
        };
        let all = self.all_shapes().into_iter().map(|shape| (shape, least(shape)));
        all.filter(|(_, n)| *n > 0).collect()
    }

    /// Exchanging the two changes nothing but which pod is where.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let pods = |item: &Self| item.pods.iter().map(|(shape, pods)| (*shape, pods.len())).collect::<Vec<_>>();
        self.bound == other.bound
            && self.live.is_empty()
            && other.live.is_empty()
            && self.choose == other.choose
            && self.children.len() == other.children.len()
            && pods(self) == pods(other)
            && self.children.iter().zip(&other.children).all(|(a, b)| a.is_like(b))
    }

    /// Some subgroup may be left out somewhere.
    pub(crate) fn has_choice(&self) -> bool {
        self.choose < self.children.len() || self.children.iter().any(Self::has_choice)
    }

    /// Every shape at or below, children that need not be chosen included.
    pub(crate) fn all_shapes(&self) -> Vec<ShapeIdx> {
        let mut shapes: Vec<ShapeIdx> = self.pods.iter().map(|(shape, _)| *shape).collect();
        shapes.extend(self.children.iter().flat_map(Self::all_shapes));
        shapes.sort_unstable();
        shapes.dedup();
        shapes
    }

    /// Pods of this task at or below the item.
    pub(crate) fn n_pods(&self) -> usize {
        self.demand().iter().map(|(_, n)| n).sum()
    }

    /// Shapes and pods at or below, those to come included.
    pub(crate) fn groups(&self) -> Vec<(ShapeIdx, &[PodIdx])> {
        let mut groups: Vec<_> = self.pods.iter().map(|(shape, pods)| (*shape, pods.as_slice())).collect();
        groups.extend(self.children.iter().take(self.choose).flat_map(Self::groups));
        groups
    }

    /// Pods at or below that exist.
    pub(crate) fn existing_pods(&self) -> Vec<PodIdx> {
        self.all_pods().into_iter().filter(|pod| pod.exists()).collect()
    }

    /// All pods at or below, in order.
    pub(crate) fn all_pods(&self) -> Vec<PodIdx> {
        let mut pods: Vec<PodIdx> = self.pods.iter().flat_map(|(_, pods)| pods).copied().collect();
        for child in self.children.iter().take(self.choose) {
            pods.extend(child.all_pods());
        }
        pods
    }
}

/// A task of the exact class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uniform {
    /// The one shape.
    pub shape: ShapeIdx,
    /// What to place.
    pub demand: Demand,
    /// Pods of each whole segment in order.
    pub segments: Vec<Vec<PodIdx>>,
    /// Pods of the short one.
    pub short: Vec<PodIdx>,
    /// Where the short one stands among the segments in declared order.
    pub short_at: usize,
    /// Pods outside segments that come before the first segment in declared order.
    pub loose: Vec<PodIdx>,
    /// A second shape, with its few pods outside segments: leaders, launchers, heads.
    pub guests: Option<(ShapeIdx, Vec<PodIdx>)>,
    /// The segments' constraint.
    pub bound: Option<Bound>,
}

/// Recognises the exact class: one shape, and a few loose pods of another; below the root, subgroups without a
/// constraint are transparent; the constrained ones share constraint, hold no
/// constraint below, have no live member, and one size, the smallest one excepted.
pub(crate) fn uniform(root: &Item) -> Option<Uniform> {
    let (shape, guest) = shapes(root)?;
    let mut found = Found { guest, ..Found::default() };
    gather(root, &mut found)?;
    let size = found.segments.iter().map(|(_, pods)| pods.len()).max().unwrap_or(1);
    let smaller: Vec<usize> =
        (0..found.segments.len()).filter(|at| found.segments[*at].1.len() < size).collect();
    let short_at = match smaller.as_slice() {
        [] => None,
        [at] => Some(*at),
        _ => return None,
    };
    let bound = found.segments.first().and_then(|(bound, _)| *bound);
    if found.segments.iter().any(|(other, _)| *other != bound) {
        return None;
    }
    if let (Some(segments), Some(outer)) = (bound, root.bound)
        && segments.tree != outer.tree {
            return None;
        }
    let mut segments: Vec<Vec<PodIdx>> =
        found.segments.into_iter().map(|(_, pods)| pods).collect();
    let short = short_at.map(|at| segments.remove(at)).unwrap_or_default();
    let (required, preferred) = bound.map_or((0, 0), |bound| {
        let required = bound.required.unwrap_or(0);
        (required, bound.preferred.unwrap_or(required))
    });
    Some(Uniform {
        shape,
        demand: Demand {
            segments: segments.len(),
            size,
            short: short.len(),
            required,
            preferred,
            loose: found.loose.len(),
            guests: found.guests.len(),
        },
        short_at: short_at.unwrap_or(segments.len()),
        segments,
        short,
        loose: found.loose,
        guests: guest.map(|shape| (shape, found.guests)),
        bound,
    })
}

/// The shape of most pods, and the one of the few others.
fn shapes(root: &Item) -> Option<(ShapeIdx, Option<ShapeIdx>)> {
    match root.demand().as_slice() {
        [(shape, _)] => Some((*shape, None)),
        [(a, few), (b, many)] if few <= many && *few <= MAX_GUESTS => Some((*b, Some(*a))),
        [(a, many), (b, few)] if few < many && *few <= MAX_GUESTS => Some((*a, Some(*b))),
        _ => None,
    }
}

#[derive(Default)]
struct Found {
    segments: Vec<(Option<Bound>, Vec<PodIdx>)>,
    loose: Vec<PodIdx>,
    guest: Option<ShapeIdx>,
    guests: Vec<PodIdx>,
}

fn gather(item: &Item, found: &mut Found) -> Option<()> {
    if item.choose < item.children.len() && !interchangeable(item) {
        return None;
    }
    for (shape, pods) in &item.pods {
        let place = if Some(*shape) == found.guest { &mut found.guests } else { &mut found.loose };
        place.extend(pods);
    }
    for child in item.children.iter().take(item.choose) {
        match child.bound {
            None => gather(child, found)?,
            Some(_) if child.live.is_empty() && plain_below(child) && !has_guests(child, found.guest) => {
                let pods = child.all_pods();
                if !pods.is_empty() {
                    found.segments.push((child.bound, pods));
                }
            }
            Some(_) => return None,
        }
    }
    Some(())
}

fn has_guests(item: &Item, guest: Option<ShapeIdx>) -> bool {
    guest.is_some_and(|guest| item.demand().iter().any(|(shape, _)| *shape == guest))
}

fn plain_below(item: &Item) -> bool {
    item.choose == item.children.len()
        && item.children.iter().all(|child| child.bound.is_none() && plain_below(child))
}

/// Any choice among the children is as good as any other.
fn interchangeable(item: &Item) -> bool {
    let Some(first) = item.children.first() else { return true };
    item.children.iter().all(|child| {
        child.bound == first.bound
            && child.live.is_empty()
            && child.children.is_empty()
            && child.demand() == first.demand()
    })
}
