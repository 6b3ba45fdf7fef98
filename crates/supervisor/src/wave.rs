//! What a key needs, judged from durable facts alone, and which wave its next Window belongs to.
//!
//! A wave answers flushes: it freezes how far to go and which flush generation it answers when it
//! starts, and keeps both over all its Windows (TM-166). New Sources never start a wave (TM-169),
//! and any number of flushes during a wave make one successor (TM-168), because the next wave
//! freezes the newest generation.

use powercontext_core::ids::{FlushGeneration, Position};

use crate::facts::PendingFact;

/// The frozen aim of one run over a key's backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wave {
    /// The position the wave must reach; no Window of it goes further.
    pub target: Position,
    /// The flush generation that is handled once the target is covered.
    pub claimed: FlushGeneration,
}

impl Wave {
    /// Freezes a new wave from the facts of this moment.
    #[must_use]
    pub fn freeze(fact: &PendingFact) -> Self {
        Self { target: fact.source_through, claimed: fact.flush_generation }
    }

    /// The wave of the next Window: the open one while it has work left, else a new one.
    #[must_use]
    pub fn continued(open: Option<Self>, fact: &PendingFact) -> Self {
        open.filter(|wave| wave.is_open(fact)).unwrap_or_else(|| Self::freeze(fact))
    }

    /// Whether the wave still has Windows to process. A wave whose Pending row was deleted and
    /// made anew is over, since generations restart with the row (B-18).
    #[must_use]
    pub fn is_open(&self, fact: &PendingFact) -> bool {
        fact.cursor < self.target
            && self.claimed > fact.handled_flush_generation
            && self.claimed <= fact.flush_generation
    }
}

/// What a key needs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// No flush is unanswered; ordinary Sources wait for the next wave.
    Nothing,
    /// Every Source is covered; only the flush has to be marked as handled (TM-170).
    Settle,
    /// The frontier is closed until an operator repairs it (TM-068, TM-069).
    Operator,
    /// One more Window.
    Window,
}

impl Need {
    /// Judges the durable facts of one key.
    #[must_use]
    pub fn of(fact: &PendingFact) -> Self {
        if fact.handled_flush_generation >= fact.flush_generation {
            Self::Nothing
        } else if fact.cursor >= fact.source_through {
            Self::Settle
        } else if fact.terminal.is_some() {
            Self::Operator
        } else {
            Self::Window
        }
    }
}
