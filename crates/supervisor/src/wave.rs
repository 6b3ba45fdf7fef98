//! What a key needs, judged from durable facts alone, and which wave its next Window belongs to.
//!
//! A wave answers flushes: it freezes how far to go and which flush generation it answers when it
//! starts, and keeps both over all its Windows (TM-166). New Sources never start a wave (TM-169),
//! and any number of flushes during a wave make one successor (TM-168), because the next wave
//! freezes the newest generation. Without an unanswered flush a key may be offered the wave of an
//! automatic target or of a catch-up, which answers no flush and only moves the Cursor.

use powercontext_core::ids::{FlushGeneration, Position};
use powercontext_core::work::WorkMode;

use crate::facts::PendingFact;

/// The frozen aim of one run over a key's backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wave {
    /// The position the wave must reach; no Window of it goes further.
    pub target: Position,
    /// The flush generation that is handled once the target is covered; 0 unless explicit.
    pub claimed: FlushGeneration,
    /// Why the key is processed.
    pub mode: WorkMode,
}

impl Wave {
    /// Freezes a new explicit wave from the facts of this moment.
    #[must_use]
    pub fn freeze(fact: &PendingFact) -> Self {
        Self { target: fact.source_through, claimed: fact.flush_generation, mode: WorkMode::Explicit }
    }

    /// The part of one key in an automatic wave (TM-209).
    #[must_use]
    pub fn automatic(target: Position) -> Self {
        Self { target, claimed: FlushGeneration::new(0), mode: WorkMode::Automatic }
    }

    /// The catch-up of a key that came too late for an automatic wave (TM-212).
    #[must_use]
    pub fn catch_up(fact: &PendingFact) -> Self {
        Self { target: fact.source_through, claimed: FlushGeneration::new(0), mode: WorkMode::CatchUp }
    }

    /// The wave of the next Window. A flush comes first: its open wave while that has work left,
    /// else a new one. Without a flush it is the offered wave, if it has work left.
    #[must_use]
    pub fn next(open: Option<Self>, offer: Option<Self>, fact: &PendingFact) -> Option<Self> {
        match Need::of(fact, offer) {
            Need::Window if Need::of(fact, None) == Need::Window => {
                let open = open.filter(|wave| wave.mode == WorkMode::Explicit && wave.is_open(fact));
                Some(open.unwrap_or_else(|| Self::freeze(fact)))
            }
            Need::Window => offer,
            Need::Nothing | Need::Settle | Need::Operator => None,
        }
    }

    /// Whether the wave still has Windows to process. An explicit wave whose Pending row was deleted
    /// and made anew is over, since generations restart with the row (B-18).
    #[must_use]
    pub fn is_open(&self, fact: &PendingFact) -> bool {
        let flushed = self.claimed > fact.handled_flush_generation && self.claimed <= fact.flush_generation;
        fact.cursor < self.target && (flushed || self.mode != WorkMode::Explicit)
    }

    /// The wave itself when it answers no flush, so that it can be offered again.
    #[must_use]
    pub fn as_offer(self) -> Option<Self> {
        (self.mode != WorkMode::Explicit).then_some(self)
    }
}

/// What a key needs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// No flush is unanswered and no wave is offered; ordinary Sources wait for the next wave.
    Nothing,
    /// Every Source is covered; only the flush has to be marked as handled (TM-170).
    Settle,
    /// The frontier is closed until an operator repairs it (TM-068, TM-069).
    Operator,
    /// One more Window.
    Window,
}

impl Need {
    /// Judges the durable facts of one key that may be offered a wave without a flush.
    #[must_use]
    pub fn of(fact: &PendingFact, offer: Option<Wave>) -> Self {
        let flushed = is_flushed(fact);
        if flushed && fact.cursor >= fact.source_through {
            Self::Settle
        } else if !flushed && !offer.is_some_and(|wave| wave.is_open(fact)) {
            Self::Nothing
        } else if fact.terminal.is_some() {
            Self::Operator
        } else {
            Self::Window
        }
    }
}

/// Whether a flush is unanswered.
#[must_use]
pub fn is_flushed(fact: &PendingFact) -> bool {
    fact.handled_flush_generation < fact.flush_generation
}
