//! Instances of the board: a cluster, a gang, and a load that leaves a hidden place for it.

use std::ops::Range;

/// SplitMix64: the same instances on every machine.
#[derive(Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub(crate) fn within(&mut self, range: std::ops::RangeInclusive<usize>) -> usize {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

/// What a cluster is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) says: &'static str,
    /// Labels of the levels, the widest first.
    pub(crate) levels: &'static [&'static str],
    /// Domains inside one of the level above, then nodes of a rack.
    pub(crate) widths: &'static [usize],
    pub(crate) gpus: u32,
}

pub(crate) const KINDS: [Kind; 3] = [
    Kind { name: "nvl72", says: "3 blocks of 4 racks of 18 nodes of 4 GPUs", levels: &["block", "rack"], widths: &[3, 4, 18], gpus: 4 },
    Kind { name: "racks", says: "24 racks of 8 nodes of 8 GPUs, in 4 blocks", levels: &["block", "rack"], widths: &[4, 6, 8], gpus: 8 },
    Kind {
        name: "fat-tree",
        says: "three tiers: 3 zones of 3 blocks of 4 racks of 4 nodes of 8 GPUs",
        levels: &["zone", "block", "rack"],
        widths: &[3, 3, 4, 4],
        gpus: 8,
    },
];

/// How the rest of the cluster is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// Single GPUs anywhere.
    Uniform,
    /// Nodes nearly full, with up to two GPUs left, and the rest empty.
    Busy,
    /// Nodes full or empty.
    Bimodal,
}

pub(crate) const FAMILIES: [(Family, &str); 3] =
    [(Family::Uniform, "uniform"), (Family::Busy, "busy"), (Family::Bimodal, "bimodal")];

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Flat,
    Segments(usize),
    Nested,
    Mixed,
    Repair,
}

pub(crate) const ASKS: [(Ask, &str); 7] = [
    (Ask::Flat, "flat"),
    (Ask::Segments(4), "segments of 4"),
    (Ask::Segments(8), "segments of 8"),
    (Ask::Segments(16), "segments of 16"),
    (Ask::Nested, "nested"),
    (Ask::Mixed, "mixed roles"),
    (Ask::Repair, "repair"),
];

/// GPUs in use once the gang has its place, in per cent.
pub(crate) const LOADS: [usize; 6] = [50, 60, 70, 80, 90, 100];

/// A subgroup; inner ones hold no pods.
#[derive(Clone)]
pub(crate) struct Group {
    pub(crate) parent: Option<usize>,
    /// Depth of the domain that must hold it.
    pub(crate) required: Option<usize>,
    pub(crate) pods: usize,
    pub(crate) gpus: u32,
}

#[derive(Clone, Default)]
pub(crate) struct Gang {
    pub(crate) required: usize,
    pub(crate) groups: Vec<Group>,
    /// Nodes of the members that run, of the only group.
    pub(crate) live: Vec<usize>,
}

impl Gang {
    pub(crate) fn children(&self, parent: Option<usize>) -> impl Iterator<Item = usize> + '_ {
        (0..self.groups.len()).filter(move |at| self.groups[*at].parent == parent)
    }
}

/// Nodes by group and rank.
pub(crate) type Places = Vec<Vec<usize>>;

pub(crate) struct Instance {
    pub(crate) kind: Kind,
    pub(crate) free: Vec<u32>,
    pub(crate) gang: Gang,
}

impl Kind {
    pub(crate) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Nodes of one domain of a depth.
    pub(crate) fn span(&self, depth: usize) -> usize {
        self.widths[depth..].iter().product()
    }

    pub(crate) fn n_nodes(&self) -> usize {
        self.span(0)
    }

    /// Nodes of the domains of a depth inside a range of nodes.
    pub(crate) fn domains(&self, depth: usize, inside: &Range<usize>) -> Vec<Range<usize>> {
        let span = self.span(depth);
        (inside.start / span..inside.end.div_ceil(span)).map(|at| at * span..(at + 1) * span).collect()
    }

    /// Depth of the smallest domain that holds two nodes; one more when they are the same.
    pub(crate) fn common(&self, a: usize, b: usize) -> usize {
        (0..=self.depth() + 1).rev().find(|depth| {
            let span = if *depth > self.depth() { 1 } else { self.span(*depth) };
            a / span == b / span
        }).unwrap_or(0)
    }
}

impl Instance {
    /// One instance; `None` where the gang can't be hidden in the cluster.
    pub(crate) fn new(kind: Kind, family: Family, ask: Ask, load: usize, seed: u64) -> Option<Self> {
        let mut rng = Rng::new(seed);
        for _ in 0..50 {
            let mut gang = gang(kind, ask, &mut rng)?;
            let mut free = vec![kind.gpus; kind.n_nodes()];
            let Some(hidden) = hide(kind, &gang, &mut free, &mut rng) else { continue };
            let all = kind.n_nodes() as u32 * kind.gpus;
            let left = (all * (100 - load as u32) / 100).min(free.iter().sum());
            fill(kind, family, &mut free, left, &mut rng);
            let mut hidden_nodes: Vec<usize> = hidden[0].clone();
            if ask == Ask::Repair {
                rng.shuffle(&mut hidden_nodes);
                let lost = rng.within(1..=4).min(hidden_nodes.len() - 1);
                gang.live = hidden_nodes.split_off(lost);
                gang.groups[0].pods = lost;
                for node in hidden_nodes {
                    free[node] += gang.groups[0].gpus;
                }
            } else {
                for (group, nodes) in gang.groups.iter().zip(&hidden) {
                    nodes.iter().for_each(|node| free[*node] += group.gpus);
                }
            }
            return Some(Self { kind, free, gang });
        }
        None
    }

    /// Whether places obey capacity and required levels.
    pub(crate) fn is_legal(&self, places: &Places) -> bool {
        let (gang, kind) = (&self.gang, self.kind);
        let mut free = self.free.clone();
        for (group, nodes) in gang.groups.iter().zip(places) {
            if nodes.len() != group.pods {
                return false;
            }
            for node in nodes {
                let Some(left) = free[*node].checked_sub(group.gpus) else { return false };
                free[*node] = left;
            }
        }
        let one = |depth: usize, nodes: &[usize]| nodes.iter().all(|node| kind.common(nodes[0], *node) >= depth);
        let all: Vec<usize> = places.iter().flatten().chain(&gang.live).copied().collect();
        one(gang.required, &all)
            && (0..gang.groups.len()).all(|at| {
                let nodes = self.nodes_below(places, at);
                gang.groups[at].required.is_none_or(|depth| one(depth, &nodes))
            })
    }

    fn nodes_below(&self, places: &Places, at: usize) -> Vec<usize> {
        let mut nodes = places[at].clone();
        for child in self.gang.children(Some(at)) {
            nodes.extend(self.nodes_below(places, child));
        }
        nodes
    }
}

fn gang(kind: Kind, ask: Ask, rng: &mut Rng) -> Option<Gang> {
    let (rack, all) = (kind.span(kind.depth()) as u32 * kind.gpus, kind.n_nodes() as u32 * kind.gpus);
    let target = all * rng.within(8..=18) as u32 / 100;
    let block = kind.depth() - 1;
    let sizes: Vec<u32> = [1, 2, 4, 8].into_iter().filter(|gpus| *gpus <= kind.gpus).collect();
    let group = |required, pods: usize, gpus| Group { parent: None, required, pods, gpus };
    let mut gang = Gang::default();
    match ask {
        Ask::Flat => {
            let gpus = sizes[rng.below(sizes.len())];
            gang.groups.push(group(None, (target / gpus) as usize, gpus));
        }
        Ask::Repair => {
            let gpus = sizes[rng.below(sizes.len())];
            let most = kind.span(block) as u32 * kind.gpus / 2;
            gang.required = block;
            gang.groups.push(group(None, (target.min(most) / gpus) as usize, gpus));
        }
        Ask::Segments(size) => {
            let fit: Vec<u32> = sizes.into_iter().filter(|gpus| size as u32 * gpus <= rack).collect();
            let gpus = fit[rng.below(fit.len())];
            let n = (target / (size as u32 * gpus)).max(2) as usize;
            gang.groups = vec![group(Some(kind.depth()), size, gpus); n];
            if rng.below(3) == 0 {
                gang.groups.push(group(Some(kind.depth()), rng.within(1..=size - 1), gpus));
            }
        }
        Ask::Nested => {
            // Replicas in a block each, of equal segments in a rack each.
            let size = rng.within(2..=4);
            let gpus = sizes[rng.below(sizes.len())];
            let (replicas, parts) = (rng.within(2..=3), rng.within(2..=3));
            for _ in 0..replicas {
                let parent = gang.groups.len();
                gang.groups.push(group(Some(block), 0, 0));
                let part = Group { parent: Some(parent), ..group(Some(kind.depth()), size, gpus) };
                gang.groups.extend(std::iter::repeat_n(part, parts));
            }
        }
        Ask::Mixed => {
            gang.groups.push(group(None, rng.within(1..=2), 1));
            for _ in 0..rng.within(1..=3) {
                gang.groups.push(group(Some(kind.depth()), rng.within(2..=6), 2));
                gang.groups.push(group(Some(kind.depth()), rng.within(1..=4), kind.gpus));
            }
        }
    }
    Some(gang)
}

/// Puts the gang somewhere at random and takes its room.
fn hide(kind: Kind, gang: &Gang, free: &mut [u32], rng: &mut Rng) -> Option<Places> {
    let tops = kind.domains(gang.required, &(0..kind.n_nodes()));
    let top = tops[rng.below(tops.len())].clone();
    let mut places = vec![Vec::new(); gang.groups.len()];
    for at in gang.children(None) {
        hide_group(kind, gang, at, &top, free, rng, &mut places)?;
    }
    Some(places)
}

fn hide_group(
    kind: Kind,
    gang: &Gang,
    at: usize,
    region: &Range<usize>,
    free: &mut [u32],
    rng: &mut Rng,
    places: &mut Places,
) -> Option<()> {
    let group = &gang.groups[at];
    let mut regions = group.required.map_or_else(|| vec![region.clone()], |depth| kind.domains(depth, region));
    rng.shuffle(&mut regions);
    for region in regions {
        let (kept, before) = (free.to_vec(), places.clone());
        let done = hide_pods(kind, group, &region, free, rng).is_some_and(|nodes| {
            places[at] = nodes;
            gang.children(Some(at)).all(|child| hide_group(kind, gang, child, &region, free, rng, places).is_some())
        });
        if done {
            return Some(());
        }
        free.copy_from_slice(&kept);
        *places = before;
    }
    None
}

/// Over racks in random order, nodes in random order, most of a rack before the next.
fn hide_pods(kind: Kind, group: &Group, region: &Range<usize>, free: &mut [u32], rng: &mut Rng) -> Option<Vec<usize>> {
    let mut racks = kind.domains(kind.depth(), region);
    rng.shuffle(&mut racks);
    let mut nodes = Vec::with_capacity(group.pods);
    for rack in racks {
        let mut order: Vec<usize> = rack.collect();
        rng.shuffle(&mut order);
        for node in order {
            while nodes.len() < group.pods && free[node] >= group.gpus {
                free[node] -= group.gpus;
                nodes.push(node);
                if rng.below(4) == 0 {
                    break;
                }
            }
        }
    }
    (nodes.len() == group.pods).then_some(nodes)
}

/// Other work, until so many GPUs are left.
fn fill(kind: Kind, family: Family, free: &mut [u32], left: u32, rng: &mut Rng) {
    let mut taken = free.iter().sum::<u32>() - left;
    let mut order: Vec<usize> = (0..kind.n_nodes()).collect();
    rng.shuffle(&mut order);
    let mut sweep = |free: &mut [u32], most: &mut dyn FnMut(&mut Rng) -> u32, rng: &mut Rng| {
        for node in &order {
            let take = free[*node].saturating_sub(most(rng)).min(taken);
            free[*node] -= take;
            taken -= take;
        }
    };
    match family {
        Family::Uniform => {
            while taken > 0 {
                let node = rng.below(kind.n_nodes());
                if free[node] > 0 {
                    free[node] -= 1;
                    taken -= 1;
                }
            }
        }
        Family::Busy => {
            sweep(free, &mut |rng| rng.below(3) as u32, rng);
            sweep(free, &mut |_| 0, rng);
        }
        Family::Bimodal => sweep(free, &mut |_| 0, rng),
    }
}
