//! The runs under way: at most one per key (TM-196), from the launch command until the durable
//! facts after the ending have been read. Which runs start and what follows is decided elsewhere.

use std::collections::BTreeMap;

use powercontext_core::ambient::Monotonic;
use powercontext_core::ids::Position;
use powercontext_core::work::WorkKey;

use crate::launcher::{WorkerEnding, WorkerId};
use crate::wave::Wave;

/// One run of one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Flight {
    /// The Cursor it started at.
    pub source_after: Position,
    /// The wave it belongs to.
    pub wave: Wave,
    /// Failures in a row before it.
    pub failures: u32,
    /// How far it has come.
    pub phase: Phase,
}

/// How far a run has come.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// The launcher was asked; no answer yet.
    Launching,
    /// The worker runs.
    Running {
        /// Which worker.
        worker: WorkerId,
        /// When it has run too long.
        deadline: Monotonic,
    },
    /// The worker was told to stop.
    Stopping {
        /// Which worker.
        worker: WorkerId,
        /// When to tell it once more.
        again: Monotonic,
    },
    /// The worker is gone; what it left behind has not been read yet.
    Ended {
        /// Which worker.
        worker: WorkerId,
        /// How it ended.
        ending: WorkerEnding,
        /// Whether it was stopped for running too long.
        timed_out: bool,
    },
}

/// A run whose worker is gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Landed {
    /// The run.
    pub flight: Flight,
    /// Which worker.
    pub worker: WorkerId,
    /// How it ended.
    pub ending: WorkerEnding,
    /// Whether it was stopped for running too long.
    pub timed_out: bool,
}

/// All runs under way.
#[derive(Debug, Default)]
pub struct Flights {
    by_key: BTreeMap<WorkKey, Flight>,
    keys: BTreeMap<WorkerId, WorkKey>,
}

impl Flights {
    /// How many runs there are, ended ones included until their facts are read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// How many workers may be alive.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.by_key.values().filter(|flight| !matches!(flight.phase, Phase::Ended { .. })).count()
    }

    /// Whether the key has a run.
    #[must_use]
    pub fn contains(&self, key: &WorkKey) -> bool {
        self.by_key.contains_key(key)
    }

    /// A run begins with the launch command.
    pub fn begin(&mut self, key: WorkKey, flight: Flight) {
        self.by_key.insert(key, flight);
    }

    /// The launcher started the worker; `false` when no launch of the key is awaited.
    pub fn started(&mut self, key: &WorkKey, worker: WorkerId, deadline: Monotonic) -> bool {
        match self.by_key.get_mut(key) {
            Some(flight) if flight.phase == Phase::Launching => {
                self.keys.insert(worker.clone(), key.clone());
                flight.phase = Phase::Running { worker, deadline };
                true
            }
            _ => false,
        }
    }

    /// Takes the run of a key whose worker is gone; `None` when there is no such run.
    pub fn take_ended(&mut self, key: &WorkKey) -> Option<Landed> {
        let Phase::Ended { worker, ending, timed_out } = self.by_key.get(key)?.phase.clone() else {
            return None;
        };
        let flight = self.by_key.remove(key)?;
        Some(Landed { flight, worker, ending, timed_out })
    }

    /// Takes the run of a key whose launch is awaited.
    pub fn take_launching(&mut self, key: &WorkKey) -> Option<Flight> {
        let launching = self.by_key.get(key).is_some_and(|flight| flight.phase == Phase::Launching);
        if launching { self.by_key.remove(key) } else { None }
    }

    /// Forgets the runs whose launch is awaited; a worker that is started all the same is unknown.
    pub fn drop_launching(&mut self) {
        self.by_key.retain(|_, flight| flight.phase != Phase::Launching);
    }

    /// The worker is gone; returns its key, or `None` for a worker that is not known.
    pub fn ended(&mut self, worker: &WorkerId, ending: WorkerEnding) -> Option<WorkKey> {
        let key = self.keys.remove(worker)?;
        let flight = self.by_key.get_mut(&key)?;
        let timed_out = matches!(flight.phase, Phase::Stopping { .. });
        flight.phase = Phase::Ended { worker: worker.clone(), ending, timed_out };
        Some(key)
    }

    /// Moves every worker past its deadline to stopping; tells which to stop. The flag is set when
    /// it is the first time for this worker.
    pub fn overdue(&mut self, now: Monotonic, patience: Monotonic) -> Vec<(WorkKey, WorkerId, bool)> {
        let mut stops = Vec::new();
        for (key, flight) in &mut self.by_key {
            let (worker, first) = match &flight.phase {
                Phase::Running { worker, deadline } if *deadline <= now => (worker.clone(), true),
                Phase::Stopping { worker, again } if *again <= now => (worker.clone(), false),
                _ => continue,
            };
            flight.phase = Phase::Stopping { worker: worker.clone(), again: now.saturating_add(patience) };
            stops.push((key.clone(), worker, first));
        }
        stops
    }

    /// Every worker that may be alive.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerId> {
        self.keys.keys().cloned().collect()
    }

    /// Keys whose worker is gone and whose facts must be read.
    #[must_use]
    pub fn unread(&self) -> Vec<WorkKey> {
        let ended = |flight: &Flight| matches!(flight.phase, Phase::Ended { .. });
        self.by_key.iter().filter(|(_, flight)| ended(flight)).map(|(key, _)| key.clone()).collect()
    }
}
