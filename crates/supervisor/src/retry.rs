//! What is remembered of keys that neither run nor wait for a worker: open waves, failure counts
//! and the time before which a key must not run again (TM-222).
//!
//! All of it is convenience. Losing an entry means no more than a restart would mean for this one
//! key: it may run again at once, with a wave frozen anew, within its durable work budget (TM-174,
//! TM-193). So the memory has a fixed size, and what would be free soonest is dropped first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use powercontext_core::ambient::Monotonic;
use powercontext_core::work::{Outcome, WorkKey};

use crate::wave::Wave;

/// What outlives one run of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The wave that has Windows left.
    pub wave: Option<Wave>,
    /// Failures in a row; conflicts do not count (TM-225).
    pub failures: u32,
}

/// The longest a provider can make a key wait; what a worker reports is not trusted with more.
const LONGEST_ASKED: Duration = Duration::from_secs(3600);

/// How long the provider behind a worker asked to be left alone, bounded; zero when it did not.
#[must_use]
pub fn asked_wait(outcome: Option<&Outcome>) -> Duration {
    let seconds = outcome.and_then(|outcome| outcome.retry_after_seconds).unwrap_or(0);
    Duration::from_secs(u64::from(seconds)).min(LONGEST_ASKED)
}

/// Keys that rest until a time, with what is remembered of them.
#[derive(Debug)]
pub struct Parking {
    limit: usize,
    entries: BTreeMap<WorkKey, (Monotonic, Memory)>,
    by_time: BTreeSet<(Monotonic, WorkKey)>,
}

impl Parking {
    /// A memory for at most `limit` keys.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, entries: BTreeMap::new(), by_time: BTreeSet::new() }
    }

    /// How many keys are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Remembers a key until at least `until`, dropping the entry that is due first when full.
    pub fn park(&mut self, key: WorkKey, until: Monotonic, memory: Memory) {
        self.take(&key);
        while self.entries.len() >= self.limit {
            let Some((_, first)) = self.by_time.pop_first() else { break };
            self.entries.remove(&first);
        }
        self.by_time.insert((until, key.clone()));
        self.entries.insert(key, (until, memory));
    }

    /// Whether the key must not run yet.
    #[must_use]
    pub fn is_waiting(&self, key: &WorkKey, now: Monotonic) -> bool {
        self.entries.get(key).is_some_and(|(until, _)| *until > now)
    }

    /// Hands out what is remembered of a key and forgets it.
    pub fn take(&mut self, key: &WorkKey) -> Option<Memory> {
        let (until, memory) = self.entries.remove(key)?;
        self.by_time.remove(&(until, key.clone()));
        Some(memory)
    }

    /// Whether waiting times are being dropped: full, and nothing in it is due.
    #[must_use]
    pub fn is_shedding(&self, now: Monotonic) -> bool {
        self.entries.len() >= self.limit && self.by_time.first().is_some_and(|(until, _)| *until > now)
    }

    /// Forgets every key.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.by_time.clear();
    }
}
