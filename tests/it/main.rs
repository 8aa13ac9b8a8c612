//! Everything that runs the library or the binary from outside: one test binary.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod chart;
mod check;
mod examples;
mod explain;
mod from_kai;
mod garbage;
mod queues;
mod ranks;
mod scenarios;
mod snapshot;
mod topology;
mod tree;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A path inside the repository.
fn path(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(below)
}

/// Runs the binary.
fn berth(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("NO_COLOR", "1")
        .output()
        .expect("the binary starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}
