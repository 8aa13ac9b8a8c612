//! What makes an input unusable.

use thiserror::Error;

/// An input that can't be read as what it is said to be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{source_name}: {place}: {message}")]
pub struct DiscoveryError {
    /// The kind of source, as on the command line: `ibnetdiscover`, `aws`.
    pub source_name: String,
    /// Line or field; `input` for the whole of it.
    pub place: String,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl DiscoveryError {
    /// An error of a source at a place.
    #[must_use]
    pub fn new(source_name: &str, place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { source_name: source_name.to_owned(), place: place.into(), message: message.into() }
    }
}
