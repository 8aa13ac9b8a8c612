//! What can go wrong while a control plane starts or is used.

use std::path::PathBuf;
use std::time::Duration;

/// Result of this package.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the control plane, told so that the reader can act on it.
#[derive(thiserror::Error)]
pub enum Error {
    /// A file or a process could not be handled.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The programs could not be built; the script has printed why.
    #[error(
        "building the control plane failed ({script} ended with {status}); its messages are above"
    )]
    Build {
        /// The script that was run.
        script: PathBuf,
        /// How it ended.
        status: String,
    },
    /// A program of the control plane is not where it should be.
    #[error("{program} is not in {dir}")]
    MissingProgram {
        /// The program.
        program: &'static str,
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// Certificates could not be made.
    #[error("making certificates: {0}")]
    Certificates(#[from] rcgen::Error),
    /// A component ended although it should run.
    #[error("{component} ended ({status}) while the control plane started; its last lines:\n{log}")]
    Ended {
        /// The component.
        component: &'static str,
        /// How it ended.
        status: String,
        /// The end of its log.
        log: String,
    },
    /// A component did not become ready in time.
    #[error("{component} was not ready after {timeout:?} ({reason}); its last lines:\n{log}")]
    NotReady {
        /// The component.
        component: &'static str,
        /// How long it was given.
        timeout: Duration,
        /// What it last answered.
        reason: String,
        /// The end of its log.
        log: String,
    },
    /// Something that was waited for did not happen.
    #[error("waited {timeout:?} for {what}, but {last}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        timeout: Duration,
        /// What was seen last.
        last: String,
    },
    /// The API server refused a request or could not be reached.
    #[error("{what}: {source}")]
    Api {
        /// What was asked.
        what: String,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// A file does not hold what it should.
    #[error("{path}: {reason}")]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The shared control plane failed to start; every test gets the same words.
    #[error("the shared control plane did not start: {0}")]
    Shared(String),
}

impl std::fmt::Debug for Error {
    /// As displayed: a failed `unwrap` in a test then shows the log line by line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(crate) fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Api {
            what,
            source: Box::new(source),
        }
    }
}
