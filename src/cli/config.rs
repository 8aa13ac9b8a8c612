//! The configuration file of `berth run`: its flags as a YAML map, below the environment and the command line.
//!
//! What the file says becomes the default of a flag, so that each of the three is read and judged by the same code.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use clap::{ArgMatches, Command};
use serde_json::{Map, Value};

use crate::lint::nearest;

/// The command that has a configuration file.
const COMMAND: &str = "run";

/// The flag that names the file.
const FLAG: &str = "config";

/// Parses a command line; if it names a configuration file, once more with what the file says.
///
/// # Errors
///
/// The file can't be read, is no map, or has a key or value that the command would not take. Mistakes of the command line
/// itself end the process with a message, as clap does.
pub(super) fn matches(command: &Command, line: &[OsString]) -> Result<ArgMatches> {
    let found = command.clone().try_get_matches_from(line).unwrap_or_else(|error| error.exit());
    let file = found.subcommand_matches(COMMAND).and_then(|run| run.get_one::<std::path::PathBuf>(FLAG));
    let Some(file) = file else {
        return Ok(found);
    };
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let settings = settings(command, file, &text)?;
    let command = settings.into_iter().fold(command.clone(), |command, (flag, value)| {
        command.mut_subcommand(COMMAND, |run| run.mut_arg(flag, |flag| flag.default_value(value)))
    });
    Ok(command.try_get_matches_from(line).unwrap_or_else(|error| error.exit()))
}

/// The ids of flags and what the file says of them.
fn settings(command: &Command, file: &Path, text: &str) -> Result<Vec<(String, String)>> {
    let name = file.display();
    let document: Value = if text.trim().is_empty() {
        Value::Null
    } else {
        serde_saphyr::from_str(text).with_context(|| format!("{name} is not YAML"))?
    };
    let map = match document {
        Value::Null => Map::new(),
        Value::Object(map) => map,
        _ => bail!("{name} is no map; allowed are the flags of `berth run` without their dashes, each with its value"),
    };
    let run = command.find_subcommand(COMMAND).context("the command run")?;
    let flags = || run.get_arguments().filter(|flag| flag.get_long().is_some_and(|long| long != FLAG));
    let mut settings = Vec::new();
    let mut line = vec!["berth".to_owned(), COMMAND.to_owned()];
    for (key, value) in &map {
        let Some(flag) = flags().find(|flag| flag.get_long() == Some(key)) else {
            let known = flags().filter_map(|flag| flag.get_long());
            let hint = nearest(key, known).map_or_else(String::new, |known| format!("; did you mean {known}?"));
            bail!("{name}: {key} is no flag of `berth run`{hint}");
        };
        let value = scalar(value).ok_or_else(|| anyhow!("{name}: {key} is {value}; allowed is one word, number, or true or false"))?;
        let switch = !flag.get_action().takes_values();
        match value.as_str() {
            "true" if switch => line.push(format!("--{key}")),
            "false" if switch => {}
            _ if switch => bail!("{name}: {key} is {value}; allowed is true or false"),
            _ => line.push(format!("--{key}={value}")),
        }
        settings.push((flag.get_id().to_string(), value));
    }
    // Judged by itself first, so that a mistake is told of the file and not of the command line.
    match command.clone().try_get_matches_from(line) {
        Err(error) => {
            let text = error.to_string();
            let sentence = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            bail!("{name}: {sentence}")
        }
        Ok(_) => Ok(settings),
    }
}

/// One value as it would stand on a command line.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>> {
        settings(&crate::cli::command(), Path::new("berth.yaml"), text)
    }

    #[test]
    fn flags_are_read_by_their_names() {
        let settings = read("scheduler-name: mine\nbind-concurrency: 32\nlog-json: true\nleader-elect: false\n").expect("read");
        let settings: Vec<_> = settings.iter().map(|(id, value)| (id.as_str(), value.as_str())).collect();
        assert!(settings.contains(&("scheduler_name", "mine")) && settings.contains(&("bind_concurrency", "32")));
        assert!(settings.contains(&("log_json", "true")) && settings.contains(&("leader_elect", "false")));
        assert!(read("").expect("an empty file").is_empty() && read("{}").expect("an empty map").is_empty());
    }

    #[test]
    fn mistakes_name_file_key_and_what_is_allowed() {
        for (text, words) in [
            ("bind-concurency: 3", "berth.yaml: bind-concurency is no flag of `berth run`; did you mean bind-concurrency?"),
            ("- a", "berth.yaml is no map"),
            ("objective: best", "berth.yaml: invalid value 'best' for '--objective <OBJECTIVE>'"),
            ("bind-concurrency: many", "berth.yaml: invalid value 'many'"),
            ("bind-concurrency: [1]", "bind-concurrency is [1]; allowed is one word"),
            ("log-json: maybe", "log-json is maybe; allowed is true or false"),
            ("config: other.yaml", "config is no flag"),
            ("help: true", "help is no flag"),
            ("compat: kai\ndefault-topology: t", "cannot be used with"),
            ("a: b: c", "berth.yaml is not YAML"),
        ] {
            let message = format!("{:#}", read(text).expect_err(text));
            assert!(message.contains(words), "{text}: {message}");
        }
    }

    #[test]
    fn the_command_line_comes_before_the_file() {
        let folder = std::env::temp_dir().join(format!("berth-config-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("berth.yaml");
        std::fs::write(&file, "bind-concurrency: 3\nscheduler-name: of-the-file\nlog-json: true\n").expect("a file");
        let line = ["berth", "run", "--bind-concurrency=7", "--config"].map(OsString::from);
        let line: Vec<OsString> = line.into_iter().chain([file.into_os_string()]).collect();
        let found = matches(&crate::cli::command(), &line).expect("read");
        let run = found.subcommand_matches(COMMAND).expect("run");
        assert_eq!(run.get_one::<usize>("bind_concurrency"), Some(&7));
        assert_eq!(run.get_one::<String>("scheduler_name").map(String::as_str), Some("of-the-file"));
        assert!(run.get_flag("log_json"));
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
