//! The clock and the source of ids that programs inject, and their only real implementations.
//!
//! Domain rules take times and ids as arguments. Nothing else in the workspace may ask the
//! operating system for either; the lint configuration enforces it. Database comparisons never use
//! these clocks: they use the database's own (`design: one clock for leases`).

use std::time::{Duration, Instant};

use uuid::Uuid;

/// A reading of a monotonic clock, as the time since that clock's own start.
pub type Monotonic = Duration;

/// Tells the time. Injected so that tests can move it.
pub trait Clock: Send + Sync {
    /// Time since an arbitrary fixed start; never goes back.
    fn monotonic(&self) -> Monotonic;
}

/// Makes new identities. Injected so that tests can predict them.
pub trait IdSource: Send + Sync {
    /// A random UUID (version 4).
    fn random(&self) -> Uuid;

    /// A time-ordered UUID (version 7), for keys that should be inserted in order.
    fn ordered(&self) -> Uuid;
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Starts a clock whose monotonic time begins now.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "the injection point of the monotonic clock")]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Monotonic {
        self.start.elapsed()
    }
}

/// Ids from the operating system's random numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemIds;

impl IdSource for SystemIds {
    #[allow(clippy::disallowed_methods, reason = "the injection point of random ids")]
    fn random(&self) -> Uuid {
        Uuid::new_v4()
    }

    #[allow(clippy::disallowed_methods, reason = "the injection point of time-ordered ids")]
    fn ordered(&self) -> Uuid {
        Uuid::now_v7()
    }
}
