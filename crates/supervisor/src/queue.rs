//! The fair queue: keys that may run as soon as a worker is free, first come, first served.
//!
//! Bounded and free of duplicates. It holds the newest facts it was given of each key, so a wave
//! that starts after a long wait still freezes recent values. Who may enter is decided elsewhere.

use std::collections::{BTreeMap, VecDeque};

use powercontext_core::work::WorkKey;

use crate::facts::PendingFact;
use crate::retry::Memory;

/// A key that waits for a free worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The newest durable facts of the key.
    pub fact: PendingFact,
    /// What is remembered of the key's earlier runs.
    pub memory: Memory,
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

    /// Replaces the facts of a waiting key; `false` when the key does not wait here.
    pub fn refresh(&mut self, fact: &PendingFact) -> bool {
        match self.entries.get_mut(&fact.key) {
            Some(entry) => {
                entry.fact = fact.clone();
                true
            }
            None => false,
        }
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

    /// Forgets a key, wherever it stands. Costs the length of the queue.
    pub fn remove(&mut self, key: &WorkKey) {
        if self.entries.remove(key).is_some() {
            self.order.retain(|waiting| waiting != key);
        }
    }

    /// Forgets every key.
    pub fn clear(&mut self) {
        self.order.clear();
        self.entries.clear();
    }
}
