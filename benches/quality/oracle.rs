//! Fewest domains, level by level, for equal pods and equal segments in a rack each: a plain dynamic programme that shares
//! nothing with the engine.

use std::ops::Range;

use crate::model::{Gang, Instance, Places};

/// Domains by level below the top one, the widest first, by number of units.
type Table = Vec<Option<Vec<u32>>>;

/// Units to place and pods of a unit; `None` for gangs that are not of equal units.
fn units(gang: &Gang) -> Option<(usize, usize)> {
    let first = gang.groups.first()?;
    if gang.groups.len() == 1 && first.required.is_none() {
        return Some((first.pods, 1));
    }
    let alike = gang.groups.iter().all(|group| {
        group.parent.is_none() && group.required.is_some() && (group.required, group.pods, group.gpus) == (first.required, first.pods, first.gpus)
    });
    alike.then_some((gang.groups.len(), first.pods))
}

/// Domains used per level, the widest first, inside each of the smallest domains that hold the gang.
pub(crate) fn fewest(instance: &Instance) -> Option<Vec<(Range<usize>, Vec<u32>)>> {
    let (kind, gang) = (instance.kind, &instance.gang);
    let (n, size) = units(gang)?;
    for depth in (gang.required..=kind.depth()).rev() {
        let mut tops = kind.domains(depth, &(0..kind.n_nodes()));
        tops.retain(|top| gang.live.iter().all(|node| top.contains(node)));
        let found: Vec<_> = tops
            .into_iter()
            .filter_map(|top| Some((top.clone(), table(instance, depth, &top, n, size).get(n)?.clone()?)))
            .collect();
        if !found.is_empty() {
            return Some(found);
        }
    }
    None
}

/// By units below a domain: the domains touched at each level below it.
fn table(instance: &Instance, depth: usize, domain: &Range<usize>, n: usize, size: usize) -> Table {
    let (kind, gpus) = (instance.kind, instance.gang.groups[0].gpus);
    let below = kind.depth() - depth;
    if below == 0 {
        let slots: usize = instance.free[domain.clone()].iter().map(|free| (free / gpus) as usize).sum();
        return vec![Some(Vec::new()); (slots / size).min(n) + 1];
    }
    let mut sum: Table = vec![Some(vec![0; below])];
    for child in kind.domains(depth + 1, domain) {
        let own = table(instance, depth + 1, &child, n, size);
        let lived_in = instance.gang.live.iter().any(|node| child.contains(node));
        let mut next: Table = vec![None; (sum.len() + own.len() - 1).min(n + 1)];
        for (before, cost) in sum.iter().enumerate() {
            for (taken, inside) in own.iter().enumerate().take_while(|(taken, _)| before + taken <= n) {
                let (Some(cost), Some(inside)) = (cost, inside) else { continue };
                let mut cost = cost.clone();
                cost[0] += u32::from(taken > 0 || lived_in);
                cost[1..].iter_mut().zip(inside).for_each(|(all, here)| *all += here);
                let best = &mut next[before + taken];
                if best.as_ref().is_none_or(|other| cost < *other) {
                    *best = Some(cost);
                }
            }
        }
        sum = next;
    }
    sum
}

/// Figures of one placement.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) blocks: u64,
    pub(crate) racks: u64,
    /// Links between two pods, over all pairs.
    pub(crate) hops: u64,
    /// Links of a ring in rank order.
    pub(crate) ring: u64,
    /// Free GPUs in the racks used.
    pub(crate) left: u64,
}

pub(crate) fn figures(instance: &Instance, places: &Places) -> Figures {
    let (kind, gang) = (instance.kind, &instance.gang);
    let nodes: Vec<usize> = places.iter().flatten().chain(&gang.live).copied().collect();
    let links = |a: usize, b: usize| 2 * (kind.depth() + 1 - kind.common(a, b)) as u64;
    let mut free = instance.free.clone();
    for (group, nodes) in gang.groups.iter().zip(places) {
        nodes.iter().for_each(|node| free[*node] -= group.gpus);
    }
    let used = |depth: usize| {
        let mut domains = kind.domains(depth, &(0..kind.n_nodes()));
        domains.retain(|domain| nodes.iter().any(|node| domain.contains(node)));
        domains
    };
    let racks = used(kind.depth());
    Figures {
        blocks: used(kind.depth() - 1).len() as u64,
        racks: racks.len() as u64,
        hops: nodes.iter().enumerate().flat_map(|(at, a)| nodes[at + 1..].iter().map(move |b| (a, b))).map(|(a, b)| links(*a, *b)).sum(),
        ring: (0..nodes.len()).map(|at| links(nodes[at], nodes[(at + 1) % nodes.len()])).sum(),
        left: racks.iter().flat_map(|rack| &free[rack.clone()]).map(|free| u64::from(*free)).sum(),
    }
}

/// Domains touched by level below a depth, the widest first.
pub(crate) fn touched(instance: &Instance, places: &Places, depth: usize) -> Vec<u32> {
    let kind = instance.kind;
    let nodes: Vec<usize> = places.iter().flatten().chain(&instance.gang.live).copied().collect();
    let count = |depth: usize| {
        let mut domains: Vec<usize> = nodes.iter().map(|node| node / kind.span(depth)).collect();
        domains.sort_unstable();
        domains.dedup();
        domains.len() as u32
    };
    (depth + 1..=kind.depth()).map(count).collect()
}
