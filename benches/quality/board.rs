//! The board: every instance, every way to place it, and what came of it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use berth_engine::policy::Objective;

use crate::engine::{self, Answer};
use crate::model::{ASKS, FAMILIES, Instance, KINDS, LOADS};
use crate::oracle::{self, Figures};
use crate::peers::WAYS;
use crate::plot::{Chart, Series};

/// Names of the ways, Berth's first.
const NAMES: [&str; 5] = ["Berth, kai", "Berth, compact", WAYS[0].1, WAYS[1].1, WAYS[2].1];

/// One instance and its answers.
struct Row {
    kind: usize,
    family: usize,
    ask: usize,
    load: usize,
    /// Racks of the best placement in the smallest level, or a bound on them.
    bound: u64,
    /// By way.
    figures: [Option<Figures>; 5],
    proven: bool,
    whole_order: bool,
    code: String,
    steps: u64,
    time: Duration,
    passes: f64,
    /// Domains beyond the optimum that was computed apart: kai inside its domain, compact anywhere.
    gap: Option<u32>,
}

pub(crate) fn run(seeds: u64, folder: &Path) {
    let mut rows = Vec::new();
    for (kind_at, kind) in KINDS.into_iter().enumerate() {
        let pass = engine::streaming_pass(kind.n_nodes()).as_secs_f64().max(1e-9);
        for (family_at, (family, _)) in FAMILIES.into_iter().enumerate() {
            for (ask_at, (ask, _)) in ASKS.into_iter().enumerate() {
                for load in LOADS {
                    for seed in 0..seeds {
                        let number = (((kind_at * 10 + family_at) * 10 + ask_at) * 1000 + load) as u64 * 1000 + seed;
                        let Some(instance) = Instance::new(kind, family, ask, load, number) else { continue };
                        let mut row = judge(&instance, pass);
                        (row.kind, row.family, row.ask, row.load) = (kind_at, family_at, ask_at, load);
                        complain(&row, number);
                        rows.push(row);
                    }
                }
            }
        }
    }
    write(&rows, seeds, folder);
}

/// Says on the terminal what should not be.
fn complain(row: &Row, number: u64) {
    let place = format!("{} {} {} {} % ({number})", KINDS[row.kind].name, FAMILIES[row.family].1, ASKS[row.ask].1, row.load);
    if row.figures[0].is_none() {
        println!("not found: {place}: {}", row.code);
    }
    if row.gap.is_some_and(|gap| gap > 0) {
        println!("not the best: {place}: {:?} domains too many", row.gap);
    }
    if row.figures[0].is_some() && !row.proven {
        println!("not proven: {place}: {} racks, bound {}", row.figures[0].map_or(0, |found| found.racks), row.bound);
    }
}

fn judge(instance: &Instance, pass: f64) -> Row {
    let kai = engine::solve(instance, Objective::Kai);
    let compact = engine::solve(instance, Objective::Compact);
    let fewest = oracle::fewest(instance);
    let gap = fewest.as_ref().map(|fewest| gap(instance, fewest, &kai, &compact));
    let racks_of = |top: &std::ops::Range<usize>, cost: &[u32]| u64::from(cost.last().copied().unwrap_or(1)).max(u64::from(top.is_empty()));
    let bound = fewest.as_ref().and_then(|fewest| fewest.iter().map(|(top, cost)| racks_of(top, cost)).min());
    let figures = |places: &Option<crate::model::Places>| {
        places.as_ref().map(|places| {
            assert!(instance.is_legal(places), "a placement against the rules");
            oracle::figures(instance, places)
        })
    };
    let peers = WAYS.map(|(way, _)| figures(&way.place(instance)));
    Row {
        kind: 0,
        family: 0,
        ask: 0,
        load: 0,
        bound: bound.unwrap_or(u64::from(kai.bound.min(compact.bound))),
        figures: [figures(&kai.places), figures(&compact.places), peers[0], peers[1], peers[2]],
        proven: kai.proven,
        whole_order: kai.whole_order,
        code: kai.code,
        steps: kai.steps,
        time: kai.time,
        passes: kai.time.as_secs_f64() / pass,
        gap,
    }
}

/// Domains too many: `kai` in the domain it took, `compact` against all.
fn gap(instance: &Instance, fewest: &[(std::ops::Range<usize>, Vec<u32>)], kai: &Answer, compact: &Answer) -> u32 {
    let mut gap = 0;
    for answer in [kai, compact] {
        let Some(places) = &answer.places else { continue };
        let first = places.iter().flatten().next().copied().unwrap_or(0);
        let Some((top, inside)) = fewest.iter().find(|(top, _)| top.contains(&first)) else { return 1 };
        let depth = (0..=instance.kind.depth()).find(|depth| instance.kind.span(*depth) == top.len()).unwrap_or(0);
        let best = if answer.objective == Objective::Compact { fewest.iter().map(|(_, cost)| cost).min().unwrap_or(inside) } else { inside };
        let used = oracle::touched(instance, places, depth);
        if used > *best {
            gap += used.iter().sum::<u32>().abs_diff(best.iter().sum()).max(1);
        }
    }
    gap
}

fn per_cent(part: usize, all: usize) -> String {
    if all == 0 { "-".to_owned() } else { format!("{:.1}", part as f64 * 100.0 / all as f64) }
}

/// Sum of a figure over the instances that all ways of a list found, for each of them.
fn sums(rows: &[&Row], figure: impl Fn(&Figures) -> u64) -> ([u64; 5], u64, usize) {
    let all: Vec<&&Row> = rows.iter().filter(|row| row.figures.iter().all(Option::is_some)).collect();
    let mut sums = [0; 5];
    for row in &all {
        for (sum, found) in sums.iter_mut().zip(&row.figures) {
            *sum += found.as_ref().map_or(0, &figure);
        }
    }
    (sums, all.iter().map(|row| row.bound).sum(), all.len())
}

fn percentile<T: PartialOrd + Copy + Default>(mut values: Vec<T>, share: usize) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    values.get((values.len() * share / 100).min(values.len().saturating_sub(1))).copied().unwrap_or_default()
}

fn write(rows: &[Row], seeds: u64, folder: &Path) {
    std::fs::create_dir_all(folder.join("quality")).unwrap();
    let plot = |name: &str, chart: &Chart<'_>| std::fs::write(folder.join("quality").join(name), chart.svg()).unwrap();
    let by = |key: fn(&Row) -> usize, n: usize| (0..n).map(|at| rows.iter().filter(|row| key(row) == at).collect::<Vec<_>>()).collect::<Vec<_>>();
    let asks = by(|row| row.ask, ASKS.len());
    let ask_names: Vec<String> = ASKS.iter().map(|ask| ask.1.to_owned()).collect();
    let loads: Vec<String> = LOADS.iter().map(|load| format!("{load} %")).collect();
    let found_at = |load: usize, way: usize| {
        let there: Vec<&Row> = rows.iter().filter(|row| row.load == load).collect();
        Some(there.iter().filter(|row| row.figures[way].is_some()).count() as f64 * 100.0 / there.len().max(1) as f64)
    };
    let series: Vec<Series<'_>> = NAMES.iter().enumerate().map(|(way, name)| (*name, LOADS.iter().map(|load| found_at(*load, way)).collect())).collect();
    plot("found.svg", &Chart { title: "Gangs found, per cent, by GPUs in use once the gang runs", labels: &loads, series: &series, from: 80.0, bars: false });
    let ratio = |rows: &[&Row], way: usize| {
        let (sums, bound, n) = sums(rows, |found| found.racks);
        (n > 0 && bound > 0).then(|| sums[way] as f64 / bound as f64)
    };
    let series: Vec<Series<'_>> = NAMES.iter().enumerate().map(|(way, name)| (*name, asks.iter().map(|rows| ratio(rows, way)).collect())).collect();
    plot("racks.svg", &Chart { title: "Racks used, as a multiple of the best or of a lower bound", labels: &ask_names, series: &series, from: 0.8, bars: true });
    let steps = |share: usize| asks.iter().map(|rows| Some(percentile(rows.iter().map(|row| row.steps).collect(), share) as f64)).collect::<Vec<_>>();
    plot("steps.svg", &Chart { title: "Steps of the engine", labels: &ask_names, series: &[("median", steps(50)), ("99 of 100", steps(99))], from: 0.0, bars: true });
    let text = page(rows, &asks, seeds);
    let file = folder.join("quality.md");
    let rest = std::fs::read_to_string(&file).unwrap_or_default();
    std::fs::write(&file, crate::replay::keep(&text, &rest)).unwrap();
    println!("{} instances; see {}", rows.len(), file.display());
}

fn page(rows: &[Row], asks: &[Vec<&Row>], seeds: u64) -> String {
    let mut out = String::from(INTRO);
    let count = |test: fn(&Row) -> bool| rows.iter().filter(|row| test(row)).count();
    let (found, exact) = (count(|row| row.figures[0].is_some()), count(|row| row.gap.is_some()));
    let _ = writeln!(
        out,
        "{} instances ({seeds} of each combination, less those whose gang can't be hidden): Berth found {found} and called none of the others \
         impossible but {}. Of {exact} gangs of equal pods or segments {} use more domains than the optimum computed apart. \
         Of the {} others {} % are proven best in the domains they use.\n",
        rows.len(),
        rows.iter().filter(|row| row.figures[0].is_none() && row.code != "NotFoundWithinBudget").count(),
        rows.iter().filter(|row| row.gap.is_some_and(|gap| gap > 0)).count(),
        rows.len() - exact,
        per_cent(rows.iter().filter(|row| row.gap.is_none() && row.proven).count(), rows.len() - exact),
    );
    out.push_str("## Found\n\nPer cent of the gangs, each of which fits; and of those that Berth placed, proven.\n\n");
    let _ = writeln!(out, "| gangs | n | {} | proven | in every line |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|", NAMES.join(" | "));
    for (at, rows) in asks.iter().enumerate() {
        let found: Vec<String> = (0..5).map(|way| per_cent(rows.iter().filter(|row| row.figures[way].is_some()).count(), rows.len())).collect();
        let placed = rows.iter().filter(|row| row.figures[0].is_some()).count();
        let proven = per_cent(rows.iter().filter(|row| row.proven).count(), placed);
        let whole = per_cent(rows.iter().filter(|row| row.proven && row.whole_order).count(), placed);
        let _ = writeln!(out, "| {} | {} | {} | {proven} | {whole} |", ASKS[at].1, rows.len(), found.join(" | "));
    }
    out.push_str("\n![Gangs found by load](quality/found.svg)\n\n## Domains, distance, what is left\n\n");
    out.push_str(FIGURES);
    let _ = writeln!(out, "| gangs | figure | n | {} |\n|---|---|--:|--:|--:|--:|--:|--:|", NAMES.join(" | "));
    let figures: [(&str, fn(&Figures) -> u64); 5] =
        [("blocks", |found| found.blocks), ("racks", |found| found.racks), ("hops", |found| found.hops), ("ring", |found| found.ring), ("left over", |found| found.left)];
    for (at, rows) in asks.iter().enumerate() {
        for (name, figure) in figures {
            let (sums, bound, n) = sums(rows, figure);
            let base = if name == "racks" { bound } else { sums[1] };
            let shares: Vec<String> = sums.iter().map(|sum| if base == 0 { "-".to_owned() } else { format!("{:.2}", *sum as f64 / base as f64) }).collect();
            let _ = writeln!(out, "| {} | {name} | {n} | {} |", ASKS[at].1, shares.join(" | "));
        }
    }
    out.push_str("\n![Racks used against the bound](quality/racks.svg)\n\n## By cluster and family\n\n");
    out.push_str("Per cent found, and racks against the bound, of Berth by `kai` and of the best of the simple ways.\n\n");
    out.push_str("| cluster | rest of it | n | Berth found | best simple | Berth racks | best simple |\n|---|---|--:|--:|--:|--:|--:|\n");
    for (kind, family) in (0..KINDS.len()).flat_map(|kind| (0..FAMILIES.len()).map(move |family| (kind, family))) {
        let here: Vec<&Row> = rows.iter().filter(|row| (row.kind, row.family) == (kind, family)).collect();
        let found = |way: usize| here.iter().filter(|row| row.figures[way].is_some()).count();
        let (sums, bound, _) = sums(&here, |found| found.racks);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {:.2} | {:.2} |",
            KINDS[kind].name, FAMILIES[family].1, here.len(),
            per_cent(found(0), here.len()), per_cent((2..5).map(found).max().unwrap_or(0), here.len()),
            sums[0] as f64 / bound.max(1) as f64, sums[2..].iter().copied().min().unwrap_or(0) as f64 / bound.max(1) as f64,
        );
    }
    out.push_str("\n## Steps and time\n\n");
    out.push_str("One pass by `kai`, with nothing cached. A streaming pass reads the capacity arrays of the cluster once. Times were taken beside\nother work and differ from run to run; steps do not.\n\n");
    out.push_str("| gangs | steps p50 | p99 | ms p50 | p99 | streaming passes p50 | p99 |\n|---|--:|--:|--:|--:|--:|--:|\n");
    for (at, rows) in asks.iter().enumerate() {
        let (mut steps, mut times, mut passes) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            steps.push(row.steps);
            times.push(row.time.as_secs_f64() * 1e3);
            passes.push(row.passes);
        }
        let (steps, times, passes) = (|share| percentile(steps.clone(), share), |share| percentile(times.clone(), share), |share| percentile(passes.clone(), share));
        let _ = writeln!(out, "| {} | {} | {} | {:.2} | {:.2} | {:.0} | {:.0} |", ASKS[at].1, steps(50), steps(99), times(50), times(99), passes(50), passes(99));
    }
    out.push_str("\n![Steps](quality/steps.svg)\n");
    codes(rows, &mut out);
    out
}

/// What Berth said of gangs that it did not find.
fn codes(rows: &[Row], out: &mut String) {
    let mut missed: BTreeMap<(&str, usize, &str), usize> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.figures[0].is_none()) {
        *missed.entry((ASKS[row.ask].1, row.load, &row.code)).or_default() += 1;
    }
    if missed.is_empty() {
        return;
    }
    out.push_str("\nNot found by Berth:\n\n| gangs | load | said | n |\n|---|--:|---|--:|\n");
    for ((ask, load, code), n) in missed {
        let _ = writeln!(out, "| {ask} | {load} % | `{code}` | {n} |");
    }
}

/// Kept in step with `model`.
const INTRO: &str = "# How good placements are

Made by `make quality` (benches/quality); the same on every machine but for the times.

Every instance is a cluster in part used and one gang. The gang was hidden in it first, somewhere legal, then the rest was filled
up to the load; so every gang fits, at 100 % in nothing but the places that were kept for it. Clusters: `nvl72` (3 blocks of 4 racks of 18
nodes of 4 GPUs), `racks` (4 blocks of 6 racks of 8 nodes of 8), `fat-tree` (3 zones of 3 blocks of 4 racks of 4 nodes of 8). The rest is
`uniform` (single GPUs anywhere), `busy` (nodes nearly full, others empty) or `bimodal` (nodes full or empty). Loads: 50, 60, 70, 80, 90 and
100 %. Gangs ask for 8 to 18 % of the GPUs, by pods of 1, 2, 4 or 8; the rack is preferred. Segments must each be in a rack, one in three
gangs has a short one; nested: replicas in a block each, of parts in a rack each; mixed: a router, and prefill and decode in a rack each;
repair: one to four pods of a gang that runs, in its block.

Beside Berth three simple ways, written here from public descriptions, greedy in declared order, without backtracking: first fit (by name;
does not look at preferred levels), most free first, and tightest first (the fullest domain and node that do). They obey what is required.

";

const FIGURES: &str = "Over the gangs that all five ways found (n). Racks: against those of the best placement by the order, the widest level first, which for
equal pods and segments is computed apart by a plain dynamic programme; for others against a lower bound. Who uses fewer racks than that uses
more blocks. The other figures are against Berth by `compact`: blocks; hops, the links between two pods over all pairs; the links of a ring in
rank order; and the free GPUs left in the racks used. `kai` takes the tightest domain first, so it may use more racks than `compact`.

";
