//! `berth snapshot`: the live cluster as one file that every other command reads.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use clap::builder::FalseyValueParser;
use serde_json::Value;

use super::source::Live;
use super::{YES, complain};
use crate::simulate::input::read_paths;
use crate::snapshot::{Redactor, document, stripped};

/// Arguments of `berth snapshot`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Dumps to take in place of the live cluster, for instance to redact one: files, folders, or - for standard input.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Hash every name, the same name always to the same word within the file.
    #[arg(long, env = "BERTH_REDACT", value_parser = FalseyValueParser::new())]
    redact: bool,
    /// Where to write it; without it, or with -, standard output.
    #[arg(short, long, value_name = "FILE", env = "BERTH_OUT")]
    output: Option<PathBuf>,
    #[command(flatten)]
    live: Live,
}

/// Runs the command.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let objects: Vec<Value> = if arguments.paths.is_empty() {
        arguments.live.read(|object| stripped(&object))?
    } else {
        read_paths(&arguments.paths)?.iter().map(|item| stripped(&item.value)).collect()
    };
    let count = objects.len();
    let objects = if arguments.redact {
        let redactor = Redactor::new();
        objects.iter().map(|object| redactor.redacted(object)).collect()
    } else {
        objects
    };
    let mut text = serde_json::to_string_pretty(&document(objects, arguments.redact)).map_err(io::Error::from)?;
    text.push('\n');
    match arguments.output.as_ref().filter(|path| path.as_os_str() != "-") {
        Some(path) => {
            std::fs::write(path, text).with_context(|| path.display().to_string())?;
            complain(&format!("berth: {count} objects in {}", path.display()));
        }
        None => out.write_all(text.as_bytes())?,
    }
    Ok(YES)
}
