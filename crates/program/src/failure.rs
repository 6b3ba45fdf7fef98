//! How a program ends: its exit status, and one line that says why.

use std::io::Write as _;
use std::process::ExitCode;

/// Why a program ends early; each prints as one line.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Something in the configuration must be changed: exit status 2.
    #[error("{0}")]
    Configuration(String),
    /// Something outside does not work: exit status 1.
    #[error("{0}")]
    Environment(String),
}

impl Failure {
    /// Something in the configuration must be changed.
    #[must_use]
    pub fn configuration(error: impl std::fmt::Display) -> Self {
        Self::Configuration(error.to_string())
    }
}

/// Tells a failure on standard error, in one line after the program's name, and gives the status.
#[must_use]
pub fn exit(program: &str, ended: Result<ExitCode, Failure>) -> ExitCode {
    ended.unwrap_or_else(|failure| {
        let line = failure.to_string().replace('\n', " ");
        let _ = writeln!(std::io::stderr(), "{program}: {line}");
        ExitCode::from(match failure {
            Failure::Configuration(_) => 2,
            Failure::Environment(_) => 1,
        })
    })
}
