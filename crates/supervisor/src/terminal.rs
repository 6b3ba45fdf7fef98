//! Which terminal frontiers were already reported, so that each is told once and not at every look.
//!
//! Bounded: when full, further frontiers found in pages are only counted, not told one by one.

use std::collections::BTreeMap;

use powercontext_core::ids::Position;
use powercontext_core::work::WorkKey;

/// Reported terminal frontiers.
#[derive(Debug)]
pub struct TerminalLog {
    limit: usize,
    reported: BTreeMap<WorkKey, Position>,
}

impl TerminalLog {
    /// Remembers at most `limit` frontiers.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, reported: BTreeMap::new() }
    }

    /// How many frontiers are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.reported.len()
    }

    /// Whether this frontier should be told now; remembers it.
    pub fn is_news(&mut self, key: &WorkKey, source_after: Position) -> bool {
        if let Some(known) = self.reported.get_mut(key) {
            return std::mem::replace(known, source_after) != source_after;
        }
        if self.reported.len() >= self.limit {
            return false;
        }
        self.reported.insert(key.clone(), source_after);
        true
    }

    /// The key is open again.
    pub fn reopen(&mut self, key: &WorkKey) {
        self.reported.remove(key);
    }
}
