//! What the supervisor asks of the thing that runs workers, and what it hears back.
//!
//! A launcher starts one worker per assignment, stops it on request and reports how it ended. It
//! decides nothing about work: no retries, no limits, no timeouts. An ending is only news that a
//! worker is gone; whether anything was published is read from the database by the supervisor.

use std::fmt;

use async_trait::async_trait;
use powercontext_core::work::{Ending, ErrorCode, Outcome, WorkAssignment};

/// Names one started worker; unique within one launcher for its whole life.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(String);

impl WorkerId {
    /// Wraps the name a launcher gave to a worker it started.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// How a worker ended, as far as its launcher can tell.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerEnding {
    /// The ending behind the exit status.
    pub ending: Ending,
    /// The outcome line; absent when the worker died without one.
    pub outcome: Option<Outcome>,
}

impl WorkerEnding {
    /// What went wrong; `None` when the worker reports success.
    ///
    /// A worker without an outcome has crashed, whatever its exit status says.
    #[must_use]
    pub fn error_code(&self) -> Option<ErrorCode> {
        match &self.outcome {
            Some(outcome) => outcome.error_code,
            None if self.ending == Ending::Terminated => Some(ErrorCode::Terminated),
            None => Some(ErrorCode::WorkerCrashed),
        }
    }
}

/// Why a worker was not started. Nothing runs after this error.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The assignment could not be written down for the worker.
    #[error("failed to encode the assignment")]
    Encode(#[source] serde_json::Error),
    /// The operating system or the platform refused to start the worker.
    #[error("failed to start the worker program")]
    Start(#[source] std::io::Error),
}

/// Starts, stops and reports workers.
#[async_trait]
pub trait Launcher: Send + Sync {
    /// Starts one worker.
    ///
    /// # Errors
    /// [`LaunchError`] when no worker was started.
    async fn launch(&self, assignment: &WorkAssignment) -> Result<WorkerId, LaunchError>;

    /// Asks a worker to end, by force if it does not obey. Returns at once; the ending is reported
    /// by [`Launcher::next_ending`]. Unknown or ended workers are ignored.
    async fn stop(&self, worker: &WorkerId);

    /// Waits for the next worker to end; each worker is reported once. Dropping the future before
    /// it is ready loses no ending.
    async fn next_ending(&self) -> (WorkerId, WorkerEnding);
}
