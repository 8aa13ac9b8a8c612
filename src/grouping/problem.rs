//! Mistakes in what a user wrote, as data: where, which key, which value, and what is allowed.

pub use berth_engine::problem::ProblemCode;

/// One mistake. The message names everything that is needed to correct it.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[error("{object}: {key} is {value}; allowed is {allowed}")]
pub struct GroupProblem {
    /// What kind of mistake it is.
    pub code: ProblemCode,
    /// The object that carries it, as `Kind/name`.
    pub object: String,
    /// The annotation, label or field.
    pub key: String,
    /// The value as written (quoted when it is text), or `missing`.
    pub value: String,
    /// What would be right.
    pub allowed: String,
}

impl GroupProblem {
    /// A mistake in a text value, which is quoted, and shortened when somebody pasted a book.
    pub(crate) fn text(code: ProblemCode, object: String, key: &str, value: &str, allowed: impl Into<String>) -> Self {
        const MOST: usize = 64;
        let short: String = value.chars().take(MOST).collect();
        let tail = if short.len() < value.len() { "…" } else { "" };
        Self { code, object, key: key.to_owned(), value: format!("\"{short}{tail}\""), allowed: allowed.into() }
    }
}
