//! `berth generate`: files that are made from the code.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use super::YES;

/// Arguments of `berth generate`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The custom resource definitions: PodGroup, Queue and Topology.
    Crds {
        /// Write one file per definition into this folder; without it all go to standard output.
        #[arg(long, value_name = "DIR", env = "BERTH_OUT")]
        out: Option<PathBuf>,
    },
}

/// Runs the command.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let What::Crds { out: folder } = &arguments.what;
    let files = berth_api::crds_yaml().context("the definitions can't be written as YAML")?;
    match folder {
        None => {
            for (_, text) in &files {
                writeln!(out, "---")?;
                out.write_all(text.trim_start_matches("---\n").as_bytes())?;
            }
        }
        Some(folder) => {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            for (name, text) in &files {
                let path = folder.join(name);
                fs::write(&path, text).with_context(|| path.display().to_string())?;
            }
        }
    }
    Ok(YES)
}
