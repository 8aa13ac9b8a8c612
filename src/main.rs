//! The `berth` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth::cli::main()
}
