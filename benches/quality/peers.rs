//! Simple ways to place a gang, written from public descriptions: greedy, in declared order, without backtracking over
//! siblings. They obey every required level; they differ in which domain and node come first.

use std::cmp::Reverse;
use std::ops::Range;

use crate::model::{Gang, Instance, Kind, Places};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The first domain and node by name that do; levels that are only preferred say nothing.
    FirstFit,
    /// The smallest level that holds the gang; the emptiest domain and node first.
    MostFree,
    /// The smallest level that holds the gang; the fullest domain and node that still do first.
    Tightest,
}

pub(crate) const WAYS: [(Way, &str); 3] =
    [(Way::FirstFit, "first fit"), (Way::MostFree, "most free first"), (Way::Tightest, "tightest first")];

impl Way {
    pub(crate) fn place(self, instance: &Instance) -> Option<Places> {
        let (kind, gang) = (instance.kind, &instance.gang);
        let all = 0..kind.n_nodes();
        let deepest = if self == Self::FirstFit { gang.required } else { kind.depth() };
        for depth in (gang.required..=deepest).rev() {
            let mut tops = kind.domains(depth, &all);
            tops.retain(|top| gang.live.iter().all(|node| top.contains(node)));
            self.sort(&mut tops, |top| total(&instance.free, top));
            for top in tops {
                let mut free = instance.free.clone();
                let mut places = vec![Vec::new(); gang.groups.len()];
                if gang.children(None).all(|at| self.group(kind, gang, at, &top, &mut free, &mut places)) {
                    return Some(places);
                }
            }
        }
        None
    }

    fn sort(self, domains: &mut [Range<usize>], room: impl Fn(&Range<usize>) -> u32) {
        match self {
            Self::FirstFit => {}
            Self::MostFree => domains.sort_by_key(|domain| Reverse(room(domain))),
            Self::Tightest => domains.sort_by_key(room),
        }
    }

    fn group(self, kind: Kind, gang: &Gang, at: usize, region: &Range<usize>, free: &mut Vec<u32>, places: &mut Places) -> bool {
        let group = &gang.groups[at];
        let mut regions = group.required.map_or_else(|| vec![region.clone()], |depth| kind.domains(depth, region));
        self.sort(&mut regions, |region| total(free, region));
        for region in regions {
            let (kept, before) = (free.clone(), places.clone());
            if let Some(nodes) = self.pods(kind, (group.pods, group.gpus), &region, free) {
                places[at] = nodes;
                if gang.children(Some(at)).all(|child| self.group(kind, gang, child, &region, free, places)) {
                    return true;
                }
            }
            *free = kept;
            *places = before;
        }
        false
    }

    /// Pods over racks, then nodes.
    fn pods(self, kind: Kind, (n, gpus): (usize, u32), region: &Range<usize>, free: &mut [u32]) -> Option<Vec<usize>> {
        let slots = |free: &[u32], nodes: &Range<usize>| nodes.clone().map(|node| (free[node] / gpus.max(1)) as usize).sum::<usize>();
        let mut racks = kind.domains(kind.depth(), region);
        for rack in &mut racks {
            *rack = rack.start.max(region.start)..rack.end.min(region.end);
        }
        self.sort(&mut racks, |rack| slots(free, rack) as u32);
        let mut chosen = Vec::with_capacity(n);
        while chosen.len() < n {
            let missing = n - chosen.len();
            // The fullest rack that takes all that is left, else the emptiest.
            let at = match self {
                Self::FirstFit | Self::MostFree => racks.iter().position(|rack| slots(free, rack) > 0)?,
                Self::Tightest => racks
                    .iter()
                    .position(|rack| slots(free, rack) >= missing)
                    .or_else(|| racks.iter().rposition(|rack| slots(free, rack) > 0))?,
            };
            let rack = racks.remove(at);
            let mut nodes: Vec<usize> = rack.collect();
            match self {
                Self::FirstFit => {}
                Self::MostFree => nodes.sort_by_key(|node| Reverse(free[*node])),
                Self::Tightest => nodes.sort_by_key(|node| free[*node]),
            }
            for node in nodes {
                while chosen.len() < n && free[node] >= gpus {
                    free[node] -= gpus;
                    chosen.push(node);
                }
            }
        }
        Some(chosen)
    }
}

fn total(free: &[u32], nodes: &Range<usize>) -> u32 {
    free[nodes.clone()].iter().sum()
}
