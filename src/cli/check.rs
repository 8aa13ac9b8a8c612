//! `berth check`: lint of manifests and dumps.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::builder::FalseyValueParser;
use clap::Args;
use serde_json::{Value, json};

use super::render::hanging;
use super::{Format, NO, YES};
use crate::lint::{self, Finding, Severity};
use crate::simulate::input::{Item, read_paths};
use crate::simulate::{Options, scenario};

/// Arguments of `berth check`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Manifests or dumps: files, folders, or - for standard input. What they do not show of a cluster is not judged.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How to print it.
    #[arg(short, long, value_enum, default_value = "table", env = "BERTH_OUTPUT")]
    output: Format,
    /// Exit with 1 for warnings, too.
    #[arg(long, env = "BERTH_STRICT", value_parser = FalseyValueParser::new())]
    strict: bool,
    /// The schedulerName that pods should have.
    #[arg(long, value_name = "NAME", default_value = "kai-scheduler", env = "BERTH_SCHEDULER_NAME")]
    scheduler_name: String,
    /// Topology of gangs that name none.
    #[arg(long, value_name = "NAME", env = "BERTH_DEFAULT_TOPOLOGY")]
    default_topology: Option<String>,
}

/// Runs the command: 0 without errors, 1 with one.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let options = Options {
        scheduler_name: arguments.scheduler_name.clone(),
        default_topology: arguments.default_topology.clone(),
        ..Options::standard()
    };
    let items: Vec<Item> = read_paths(&arguments.paths)?.into_iter().filter(|item| !scenario::is_scenario(&item.value)).collect();
    let findings = lint::check(&items, &options);
    arguments.output.print(out, || table(items.len(), &findings), || document(items.len(), &findings))?;
    let is_bad = |finding: &Finding| finding.severity == Severity::Error || arguments.strict;
    Ok(if findings.iter().any(is_bad) { NO } else { YES })
}

fn count(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.severity == severity).count()
}

fn number(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn table(objects: usize, findings: &[Finding]) -> String {
    let errors = number(count(findings, Severity::Error), "error");
    let warnings = number(count(findings, Severity::Warning), "warning");
    let mut page = match findings {
        [] => format!("Nothing to object to in {}.\n", number(objects, "object")),
        _ => format!("{errors} and {warnings} in {}.\n", number(objects, "object")),
    };
    let mut before = None;
    for finding in findings {
        let head = match finding.place.document {
            0 => finding.object.clone(),
            document => format!("{}, document {document}: {}", finding.place.file, finding.object),
        };
        if before.as_ref() != Some(&head) {
            page.push('\n');
            page.push_str(&hanging(&head, "", "  "));
            before = Some(head);
        }
        let field = if finding.field.is_empty() { String::new() } else { format!(" {}", finding.field) };
        page.push_str(&hanging(&format!("{} {}:{field} {}", finding.severity.name(), finding.code, finding.message), "  ", "    "));
    }
    page
}

fn document(objects: usize, findings: &[Finding]) -> Value {
    let entry = |finding: &Finding| {
        json!({
            "severity": finding.severity.name(), "code": finding.code, "object": finding.object, "file": finding.place.file,
            "document": finding.place.document, "field": finding.field, "message": finding.message,
        })
    };
    json!({
        "apiVersion": "berth.scheduler/v1alpha1", "kind": "CheckResult",
        "findings": findings.iter().map(entry).collect::<Vec<_>>(),
        "summary": {"objects": objects, "errors": count(findings, Severity::Error), "warnings": count(findings, Severity::Warning)},
    })
}
