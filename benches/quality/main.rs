//! The quality board: how good placements are, against optima, bounds and simple ways (docs/quality.md); and a replay.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints, and stops on a bug")]

mod board;
mod engine;
mod model;
mod oracle;
mod peers;
mod plot;
mod replay;

use std::path::Path;

/// Instances of each combination.
const SEEDS: u64 = 10;

/// The board, with `seeds=<n>` instances of each combination; or with `replay=<folder>` the replay of a trace.
fn main() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let value = |key: &str| std::env::args().find_map(|arg| arg.strip_prefix(key).map(str::to_owned));
    match value("replay=") {
        Some(folder) => replay::run(Path::new(&folder), &docs),
        None => board::run(value("seeds=").and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS), &docs),
    }
}
