//! What an operator should hear of the decisions made. Names and numbers only, never content.

use powercontext_core::ids::{Position, Window};
use powercontext_core::work::{ErrorCode, Outcome, WorkKey};

use crate::auto::WaveNews;
use crate::facts::AutoWave;
use crate::launcher::WorkerId;
use crate::wave::Wave;

/// Why a run counts as failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    /// The worker, its launcher or its timeout says so.
    Code(ErrorCode),
    /// The worker reported success, but the Cursor did not move.
    NoProgress,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A wave froze its aim.
    WaveStarted {
        /// Whose wave.
        key: WorkKey,
        /// Its aim.
        wave: Wave,
        /// The Cursor it starts at.
        source_after: Position,
    },
    /// The Cursor moved past a Window.
    WindowPublished {
        /// Whose Window.
        key: WorkKey,
        /// The range, as far as durable facts or the outcome tell.
        window: Window,
        /// The wave it belongs to.
        wave: Wave,
        /// Known Sources behind the Cursor.
        backlog: i64,
        /// Who did it.
        worker: WorkerId,
        /// What the worker reported.
        outcome: Option<Outcome>,
    },
    /// A wave reached its target.
    WaveCompleted {
        /// Whose wave.
        key: WorkKey,
        /// Its aim.
        wave: Wave,
    },
    /// A run failed, whatever follows: the key waits, or its frontier is closed.
    WindowFailed(Setback),
    /// A conflict or a lost fence; the key waits a short fixed time.
    WindowConflict(Setback),
    /// A worker ran too long and was told to stop.
    WorkerTimedOut {
        /// Whose worker.
        key: WorkKey,
        /// Which worker.
        worker: WorkerId,
    },
    /// A frontier is closed until an operator repairs it. Once per frontier.
    FrontierTerminal {
        /// Whose frontier.
        key: WorkKey,
        /// The Cursor that cannot move.
        source_after: Position,
        /// The last Source that is held up.
        source_through: Position,
        /// What closed it.
        code: ErrorCode,
    },
    /// More frontiers are closed than are told one by one; the counts of a round have them all.
    TerminalsUnlisted {
        /// How many are remembered as told.
        told: usize,
    },
    /// Something became of an automatic wave.
    AutoWave {
        /// Which wave.
        wave: AutoWave,
        /// What became of it.
        news: WaveNews,
    },
    /// An ending of a worker that this supervisor does not know.
    UnknownEnding {
        /// Which worker.
        worker: WorkerId,
    },
}

/// A run that did not move the Cursor.
#[derive(Clone, Debug, PartialEq)]
pub struct Setback {
    /// Whose run.
    pub key: WorkKey,
    /// The Cursor it started at.
    pub source_after: Position,
    /// The wave it belonged to.
    pub wave: Wave,
    /// Which worker; absent when none could be started.
    pub worker: Option<WorkerId>,
    /// What went wrong.
    pub reason: FailureReason,
    /// What the worker reported.
    pub outcome: Option<Outcome>,
    /// Failures in a row, this one included.
    pub failures: u32,
    /// Why no worker could be started; the launcher's words.
    pub cause: Option<String>,
    /// How long the key waits; absent when no retry follows.
    pub delay: Option<std::time::Duration>,
}
