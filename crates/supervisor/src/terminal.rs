//! Which terminal frontiers were already reported, so that each is told once and not at every look.
//!
//! Bounded: when full, further frontiers found in pages are only counted, not told one by one, and
//! that this is so is told once. A frontier that has just closed is always told.

use std::collections::BTreeMap;

use powercontext_core::ids::Position;
use powercontext_core::work::WorkKey;

/// Whether a terminal frontier should be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Yes; it is remembered now.
    Tell,
    /// No: it was told before.
    Known,
    /// No: there is no room to remember it.
    NoRoom {
        /// It is the first one since there was room.
        first: bool,
    },
}

/// Reported terminal frontiers.
#[derive(Debug)]
pub struct TerminalLog {
    limit: usize,
    refused: bool,
    reported: BTreeMap<WorkKey, Position>,
}

impl TerminalLog {
    /// Remembers at most `limit` frontiers.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, refused: false, reported: BTreeMap::new() }
    }

    /// How many frontiers are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.reported.len()
    }

    /// Whether this frontier should be told now; remembers it when there is room.
    pub fn judge(&mut self, key: &WorkKey, source_after: Position) -> News {
        if let Some(known) = self.reported.get_mut(key) {
            let other = std::mem::replace(known, source_after) != source_after;
            return if other { News::Tell } else { News::Known };
        }
        if self.reported.len() >= self.limit {
            return News::NoRoom { first: !std::mem::replace(&mut self.refused, true) };
        }
        self.reported.insert(key.clone(), source_after);
        News::Tell
    }

    /// Forgets one frontier when full, so that one that has just closed is told.
    pub fn make_room(&mut self) {
        if self.reported.len() >= self.limit {
            self.reported.pop_first();
        }
    }

    /// The key is open again.
    pub fn reopen(&mut self, key: &WorkKey) {
        if self.reported.remove(key).is_some() {
            self.refused = false;
        }
    }
}
