//! The quality board: how good placements are, against optima, bounds and simple ways (docs/quality.md).

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
const SEEDS: u64 = 3;

fn main() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let seeds = std::env::args().find_map(|arg| arg.strip_prefix("seeds=")?.parse().ok()).unwrap_or(SEEDS);
    board::run(seeds, &docs);
}
