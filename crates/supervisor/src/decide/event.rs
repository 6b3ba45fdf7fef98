//! What goes into a decision and what comes out of it.

use std::time::Duration;

use powercontext_core::ambient::Monotonic;
use powercontext_core::ids::{FlushGeneration, Position, ScopeId};
use powercontext_core::work::{WorkKey, WorkMode};

use crate::facts::{AutoWave, Completion, Freeze, LateFact, PendingFact, TargetFact};
use crate::launcher::{WorkerEnding, WorkerId};
use crate::notice::Notice;

/// The moment of a decision, here or in [`lease`](crate::lease).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The monotonic time.
    pub at: Monotonic,
    /// A random number, for jitter alone.
    pub random: u64,
}

/// Something the supervisor learned.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A period has passed.
    Tick,
    /// Somebody flushed; no word of which key.
    Wake,
    /// The page asked for by [`Decider::wanted_page`](super::Decider::wanted_page).
    Page(Vec<PendingFact>),
    /// The launcher started the worker of a [`Command::Launch`].
    Launched {
        /// Whose worker.
        key: WorkKey,
        /// Which worker.
        worker: WorkerId,
    },
    /// The launcher could not start a worker.
    LaunchFailed {
        /// Whose worker.
        key: WorkKey,
        /// Why, in the launcher's words.
        cause: String,
    },
    /// A worker is gone.
    Ended {
        /// Which worker.
        worker: WorkerId,
        /// How it ended.
        ending: WorkerEnding,
    },
    /// The durable facts of a key in [`Decider::unread`](super::Decider::unread); absent when it has no Pending row.
    Observed {
        /// Whose facts.
        key: WorkKey,
        /// The facts.
        fact: Option<PendingFact>,
    },
    /// What became of the call given by [`Decider::wave_call`](super::Decider::wave_call).
    Wave(WaveAnswer),
    /// The term is lost or the process is to end: dispatch nothing more, stop everything.
    Close,
}

/// Something the loop must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Start one worker for one Window, then report `Launched` or `LaunchFailed`.
    Launch {
        /// Whose Window.
        key: WorkKey,
        /// The Cursor to start at.
        source_after: Position,
        /// The frozen end of the wave.
        wave_target: Position,
        /// The frozen flush generation of the wave; 0 unless the mode is explicit.
        claimed_flush_generation: FlushGeneration,
        /// Why the Window is processed.
        mode: WorkMode,
    },
    /// Stop a worker.
    Stop {
        /// Which worker.
        worker: WorkerId,
    },
    /// Mark the flushes of a covered key as answered.
    Settle {
        /// Whose flushes.
        key: WorkKey,
    },
}

/// What follows from one event.
#[derive(Debug, Default)]
pub struct Decision {
    /// To be done, in order.
    pub commands: Vec<Command>,
    /// To be told.
    pub notices: Vec<Notice>,
}

/// How much the supervisor holds in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Keys with a flush that wait for a free worker.
    pub ready: usize,
    /// Keys of automatic waves that wait for a free worker.
    pub automatic: usize,
    /// Runs under way.
    pub in_flight: usize,
    /// Keys remembered while they rest.
    pub parked: usize,
    /// Terminal frontiers that were told.
    pub terminal: usize,
    /// Covered targets of automatic waves that are being marked; at most a page per binding.
    pub covered: usize,
}

/// A call of the database for the automatic waves. Each is safe to repeat, and is asked for again
/// until its [`WaveAnswer`] arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaveCall {
    /// Remove the targets that older terms left behind.
    Clear,
    /// Freeze a wave if its binding is due.
    Freeze {
        /// Which wave.
        wave: AutoWave,
        /// The binding's interval.
        interval: Duration,
    },
    /// Read a page of uncompleted targets.
    Targets {
        /// Of which wave.
        wave: AutoWave,
        /// Behind this Scope; from the start when absent.
        after: Option<ScopeId>,
        /// At most this many.
        limit: usize,
    },
    /// Mark targets that their Cursor covers.
    MarkCovered {
        /// Of which wave.
        wave: AutoWave,
        /// At most a page of them.
        scopes: Vec<ScopeId>,
    },
    /// Complete a wave if all of it is covered.
    Complete {
        /// Which wave.
        wave: AutoWave,
    },
    /// Read a page of live Pending rows of the wave's binding.
    Late {
        /// Of which wave.
        wave: AutoWave,
        /// Behind this Scope; from the start when absent.
        after: Option<ScopeId>,
        /// At most this many.
        limit: usize,
    },
}

impl WaveCall {
    /// Whether it only reads. The answer to a read is to be handled before anything else is, since
    /// what it says of a key is taken for the newest there is.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        matches!(self, Self::Targets { .. } | Self::Late { .. })
    }
}

/// The answer to one [`WaveCall`]. An answer that nobody waits for any more changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaveAnswer {
    /// Old targets are gone.
    Cleared,
    /// What a freeze found.
    Frozen {
        /// Which wave.
        wave: AutoWave,
        /// The finding.
        freeze: Freeze,
    },
    /// A page of uncompleted targets.
    Targets {
        /// Of which wave.
        wave: AutoWave,
        /// Behind which Scope it was read.
        after: Option<ScopeId>,
        /// The page.
        facts: Vec<TargetFact>,
    },
    /// Covered targets were marked.
    Marked {
        /// Of which wave.
        wave: AutoWave,
    },
    /// What a completion found.
    Completed {
        /// Which wave.
        wave: AutoWave,
        /// The finding.
        completion: Completion,
    },
    /// A page of live Pending rows.
    Late {
        /// Of which wave.
        wave: AutoWave,
        /// Behind which Scope it was read.
        after: Option<ScopeId>,
        /// The page.
        facts: Vec<LateFact>,
    },
}
