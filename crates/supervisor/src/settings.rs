//! The limits and periods of one supervisor.
//!
//! Every bound on memory follows from `page_size` here, so a larger backlog never means a larger
//! supervisor. Where the values come from is the programs' business.

use std::time::Duration;

use powercontext_core::ids::BindingName;

use crate::lease::LeaseSettings;

/// The limits and periods of one supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupervisorSettings {
    /// How many workers may run at once, over all keys (TM-196, TM-248).
    pub max_workers: usize,
    /// How long one worker may run before it is stopped (TM-199).
    pub worker_timeout: Duration,
    /// How often the loop looks at the database without being woken.
    pub tick: Duration,
    /// How many Pending rows one read takes; every memory bound is a multiple of it.
    pub page_size: usize,
    /// How long a key waits after a Cursor or Head conflict (TM-226).
    pub conflict_delay: Duration,
    /// How long a key waits after a failure (TM-223).
    pub backoff: Backoff,
    /// How leadership is won and kept on a shared database.
    pub lease: LeaseSettings,
    /// The bindings there are, each with its automatic interval.
    pub bindings: Vec<BindingSchedule>,
}

/// When a binding forms automatic waves (TM-202, TM-245).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingSchedule {
    /// Which binding.
    pub binding: BindingName,
    /// The time between two automatic waves; absent when there are none (TM-219).
    pub interval: Option<Duration>,
}

impl SupervisorSettings {
    /// The most keys that may wait for a free worker in memory: so many with a flush, and so many
    /// of automatic waves.
    #[must_use]
    pub fn ready_limit(&self) -> usize {
        self.page_size.saturating_mul(2)
    }

    /// The most keys whose wave, failure count or waiting time is remembered while they neither
    /// run nor wait for a worker. The same bound holds for reported terminal frontiers.
    #[must_use]
    pub fn memory_limit(&self) -> usize {
        self.page_size.saturating_mul(16)
    }
}

impl Default for SupervisorSettings {
    fn default() -> Self {
        Self {
            max_workers: 10,
            worker_timeout: Duration::from_secs(600),
            tick: Duration::from_secs(1),
            page_size: 256,
            conflict_delay: Duration::from_secs(2),
            backoff: Backoff::default(),
            lease: LeaseSettings::default(),
            bindings: Vec::new(),
        }
    }
}

/// Exponential waiting times with jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure, before jitter.
    pub first: Duration,
    /// The longest wait, before jitter.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(30), longest: Duration::from_secs(30 * 60) }
    }
}

impl Backoff {
    /// The wait after this many failures in a row (1 is the first), moved by up to a fifth in
    /// either direction by `random`.
    #[must_use]
    pub fn delay(&self, failures: u32, random: u64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let plain = self.first.saturating_mul(1 << doublings).min(self.longest);
        let thousandths = 800 + u32::try_from(random % 401).unwrap_or(0);
        plain.saturating_mul(thousandths) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_from_thirty_seconds_to_thirty_minutes() {
        // TM-223
        let backoff = Backoff::default();
        let middle = 200; // no jitter
        let waits: Vec<u64> = (1..=9).map(|n| backoff.delay(n, middle).as_secs()).collect();
        assert_eq!(waits, [30, 60, 120, 240, 480, 960, 1800, 1800, 1800]);
        assert_eq!(backoff.delay(u32::MAX, middle).as_secs(), 1800);
    }

    #[test]
    fn the_jitter_spreads_the_wait_by_a_fifth_in_both_directions() {
        // TM-223
        let backoff = Backoff::default();
        let waits: Vec<u128> = (0..401).map(|random| backoff.delay(1, random).as_millis()).collect();
        assert_eq!(waits.iter().min(), Some(&24_000));
        assert_eq!(waits.iter().max(), Some(&36_000));
    }
}
