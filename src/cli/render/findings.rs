//! What a lint found: text for people, a document for scripts.

use serde_json::{Value, json};

use super::words::hanging;
use crate::lint::{Finding, Severity};

/// What was looked at, and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// How many objects.
    pub objects: usize,
    /// What there is to say of them.
    pub findings: Vec<Finding>,
    /// What could not be read.
    pub missing: Vec<String>,
}

impl Checked {
    /// Findings of this severity.
    pub(super) fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    fn sentence(&self) -> String {
        let objects = number(self.objects, "object");
        if self.findings.is_empty() {
            return format!("Nothing to object to in {objects}.");
        }
        let (errors, warnings) = (number(self.count(Severity::Error), "error"), number(self.count(Severity::Warning), "warning"));
        format!("{errors} and {warnings} in {objects}.")
    }
}

fn number(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// For people: one sentence, then what was found, by object.
#[must_use]
pub fn table(checked: &Checked) -> String {
    let mut page = format!("{}\n", checked.sentence());
    if !checked.missing.is_empty() {
        page.push_str(&hanging(&format!("Not judged, because it could not be read: {}.", checked.missing.join("; ")), "", "  "));
    }
    page.push_str(&list(&checked.findings));
    page
}

/// The findings by object, each object after an empty line.
pub(super) fn list(findings: &[Finding]) -> String {
    let mut page = String::new();
    let mut before = None;
    for finding in findings {
        let head = head(finding);
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

/// The object, and where it stands.
fn head(finding: &Finding) -> String {
    let has_namespace = ["", "default"].contains(&finding.namespace.as_str()) || finding.object.contains(&format!(" {}/", finding.namespace));
    let object = if has_namespace { finding.object.clone() } else { format!("{} in {}", finding.object, finding.namespace) };
    match finding.place.document {
        0 => object,
        document => format!("{}, document {document}: {object}", finding.place.file),
    }
}

/// One finding.
pub(super) fn entry(finding: &Finding) -> Value {
    json!({
        "severity": finding.severity.name(), "code": finding.code, "object": finding.object, "namespace": finding.namespace,
        "file": finding.place.file, "document": finding.place.document, "field": finding.field, "message": finding.message,
    })
}

/// For scripts.
#[must_use]
pub fn document(checked: &Checked) -> Value {
    json!({
        "apiVersion": "berth.scheduler/v1alpha1", "kind": "CheckResult",
        "findings": checked.findings.iter().map(entry).collect::<Vec<_>>(),
        "missing": checked.missing,
        "summary": {
            "objects": checked.objects, "errors": checked.count(Severity::Error), "warnings": checked.count(Severity::Warning),
        },
    })
}
