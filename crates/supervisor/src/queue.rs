//! The fair queue: keys that may run as soon as a worker is free, first come, first served.
//!
//! Bounded and free of duplicates. It holds the newest facts it was given of each key, so a wave
//! that starts after a long wait still freezes recent values. Who may enter is decided elsewhere.

use std::collections::{BTreeMap, VecDeque};

use powercontext_core::work::WorkKey;

use crate::facts::PendingFact;
use crate::retry::Memory;
use crate::wave::Wave;

/// A key that waits for a free worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The newest durable facts of the key.
    pub fact: PendingFact,
    /// What is remembered of the key's earlier runs.
    pub memory: Memory,
    /// The wave it may run in without an unanswered flush.
    pub offer: Option<Wave>,
}

/// Keys in the order in which they get a worker.
#[derive(Debug, Default)]
pub struct ReadyQueue {
    order: VecDeque<WorkKey>,
    entries: BTreeMap<WorkKey, Ready>,
}

impl ReadyQueue {
    /// How many keys wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Replaces the facts of a waiting key, and its offer by a newer one; `false` when the key does
    /// not wait here.
    pub fn refresh(&mut self, fact: &PendingFact, offer: Option<Wave>) -> bool {
        match self.entries.get_mut(&fact.key) {
            Some(entry) => {
                entry.fact = fact.clone();
                entry.offer = offer.or(entry.offer);
                true
            }
            None => false,
        }
    }

    /// Whether the key waits here.
    #[must_use]
    pub fn contains(&self, key: &WorkKey) -> bool {
        self.entries.contains_key(key)
    }

    /// Puts a key at the back; a key that already waits keeps its place.
    pub fn push(&mut self, ready: Ready) {
        let key = ready.fact.key.clone();
        if self.entries.insert(key.clone(), ready).is_none() {
            self.order.push_back(key);
        }
    }

    /// Takes the key at the front.
    pub fn pop(&mut self) -> Option<Ready> {
        let key = self.order.pop_front()?;
        self.entries.remove(&key)
    }

    /// Takes a key out, wherever it stands. Costs the length of the queue.
    pub fn remove(&mut self, key: &WorkKey) -> Option<Ready> {
        let entry = self.entries.remove(key)?;
        self.order.retain(|waiting| waiting != key);
        Some(entry)
    }

    /// Forgets every key.
    pub fn clear(&mut self) {
        self.order.clear();
        self.entries.clear();
    }
}

/// Two queues side by side: keys with an unanswered flush, and keys that are offered a wave without
/// one. Each has its own room, and the two take turns, so neither can hold up the other (TM-202).
#[derive(Debug, Default)]
pub struct ReadyLanes {
    /// Keys with an unanswered flush.
    pub explicit: ReadyQueue,
    /// Keys of automatic waves and of their catch-up.
    pub automatic: ReadyQueue,
    automatic_next: bool,
}

impl ReadyLanes {
    /// Takes the next key of the lane whose turn it is, or of the other one.
    pub fn pop(&mut self) -> Option<Ready> {
        let automatic_first = self.automatic_next;
        self.automatic_next = !automatic_first;
        if automatic_first {
            self.automatic.pop().or_else(|| self.explicit.pop())
        } else {
            self.explicit.pop().or_else(|| self.automatic.pop())
        }
    }

    /// Takes a key out of whichever lane it waits in.
    pub fn remove(&mut self, key: &WorkKey) -> Option<Ready> {
        self.explicit.remove(key).or_else(|| self.automatic.remove(key))
    }

    /// Forgets every key.
    pub fn clear(&mut self) {
        self.explicit.clear();
        self.automatic.clear();
    }
}
