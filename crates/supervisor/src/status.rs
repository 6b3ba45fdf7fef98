//! A look at a supervisor from outside.

use std::time::Duration;

use powercontext_core::ambient::Monotonic;
use powercontext_core::ids::{BindingName, SupervisorGeneration, WaveId};

use crate::auto::OpenWave;
use crate::decide::Footprint;
use crate::rotation::Tally;

/// Where a supervisor stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// No term yet.
    #[default]
    Starting,
    /// Another supervisor leads; this one tries to follow it.
    Candidate,
    /// Dispatching.
    Running,
    /// The database fails; tried again at every tick.
    DatabaseUnavailable,
    /// Another supervisor began an embedded term; nothing is dispatched any more.
    TermLost,
    /// Shut down.
    Stopped,
}

/// An automatic wave that is open (B-28).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaveStatus {
    /// Whose wave.
    pub binding: BindingName,
    /// Which wave.
    pub id: WaveId,
    /// How long it has been open.
    pub open_for: Duration,
    /// Targets that the Cursor did not cover in the last whole round; 0 during the first.
    pub uncovered: u64,
    /// Those of them whose frontier is terminal.
    pub terminal: u64,
    /// Those of them that waited for a free worker.
    pub ready: u64,
}

impl WaveStatus {
    /// The wave as it is at `now`.
    #[must_use]
    pub fn of(open: OpenWave, now: Monotonic) -> Self {
        let round = open.last_round.unwrap_or_default();
        Self {
            binding: open.wave.binding,
            id: open.wave.id,
            open_for: now.saturating_sub(open.since),
            uncovered: round.uncovered,
            terminal: round.terminal,
            ready: round.ready,
        }
    }
}

/// A look at a supervisor from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SupervisorStatus {
    /// Where it stands.
    pub phase: Phase,
    /// The term it leads; absent while it leads none.
    pub term: Option<SupervisorGeneration>,
    /// What it holds in memory.
    pub footprint: Footprint,
    /// What the last round over all Pending rows met; terminal frontiers stay visible here.
    pub last_round: Tally,
    /// The automatic waves that are open.
    pub waves: Vec<WaveStatus>,
}

impl SupervisorStatus {
    /// Whether this supervisor leads.
    #[must_use]
    pub const fn is_leader(&self) -> bool {
        self.term.is_some()
    }
}
