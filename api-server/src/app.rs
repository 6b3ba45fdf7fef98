//! What every handler works with: the store, the ids, the limits, and whether flushes lead anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use powercontext_core::ambient::{Clock, IdSource};
use powercontext_program::{ProcessingState, Readiness};
use powercontext_store::Store;
use tokio::sync::Semaphore;

use crate::intake::Intake;

/// The least memory for all bodies together, in bytes.
const BODY_MEMORY: usize = 128 * 1024 * 1024;

/// The part of Topic processing that HTTP needs.
pub trait Processing: Send + Sync {
    /// Says that there is new work; never waits for it (TM-232).
    fn wake(&self);
    /// Where the processing stands.
    fn state(&self) -> ProcessingState;
}

/// Bounds on connections and requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest body in bytes.
    pub max_body_bytes: usize,
    /// Requests worked on at once.
    pub max_concurrent_requests: usize,
    /// Bodies at once that do not arrive at once.
    pub max_slow_bodies: usize,
    /// Bytes of all bodies together, from their arrival to their answer.
    pub max_body_memory_bytes: usize,
    /// How long a body may pause.
    pub body_stall: Duration,
    /// How long a body may take.
    pub body_time: Duration,
    /// Connections at once; further ones wait in the system's queue.
    pub max_connections: usize,
    /// How long a connection may rest, or take for the head of a request.
    pub header_time: Duration,
    /// How long a handler may wait for the database; `None` for a file, which never goes away.
    pub database_time: Option<Duration>,
}

impl Limits {
    /// Bounds that follow from what is set.
    #[must_use]
    pub const fn new(max_body_bytes: usize, max_concurrent_requests: usize) -> Self {
        let bodies = max_body_bytes.saturating_mul(4);
        Self {
            max_body_bytes,
            max_concurrent_requests,
            max_slow_bodies: max_concurrent_requests,
            max_body_memory_bytes: if bodies > BODY_MEMORY { bodies } else { BODY_MEMORY },
            body_stall: Duration::from_secs(5),
            body_time: Duration::from_secs(30),
            max_connections: max_concurrent_requests.saturating_mul(4),
            header_time: Duration::from_secs(10),
            database_time: None,
        }
    }
}

/// Why a server processes no Topics and answers a flush with 503 (TM-085).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// No generation model is set.
    NotConfigured,
    /// The model, or a setting of it, is not one that Topic processing supports.
    NotSupported,
}

impl Absence {
    /// The word of the contract for what is missing.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotConfigured => "disabled",
            Self::NotSupported => "unsupported",
        }
    }
}

/// What an [`App`] is made of.
pub struct AppParts {
    /// The open database.
    pub store: Store,
    /// Makes identities and request ids.
    pub ids: Arc<dyn IdSource>,
    /// Measures requests.
    pub clock: Arc<dyn Clock>,
    /// Topic processing, or why there is none.
    pub processing: Result<Arc<dyn Processing>, Absence>,
    /// Bounds on requests.
    pub limits: Limits,
}

/// The shared state of all handlers. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    parts: AppParts,
    readiness: Readiness,
    permits: Semaphore,
    intake: Intake,
    draining: AtomicBool,
}

impl App {
    /// Puts the parts together.
    #[must_use]
    pub fn new(parts: AppParts) -> Self {
        let permits = Semaphore::new(parts.limits.max_concurrent_requests);
        let intake = Intake::new(parts.limits);
        let readiness = Readiness::new(parts.store.clone(), Arc::clone(&parts.clock));
        Self(Arc::new(Inner { parts, readiness, permits, intake, draining: AtomicBool::new(false) }))
    }

    /// The database.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.0.parts.store
    }

    /// The source of identities.
    #[must_use]
    pub fn ids(&self) -> &dyn IdSource {
        self.0.parts.ids.as_ref()
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        self.0.parts.clock.as_ref()
    }

    /// Topic processing, when there is any.
    #[must_use]
    pub fn processing(&self) -> Option<&dyn Processing> {
        self.0.parts.processing.as_deref().ok()
    }

    /// Why there is no Topic processing; `None` when there is.
    #[must_use]
    pub fn absence(&self) -> Option<Absence> {
        self.0.parts.processing.as_ref().err().copied()
    }

    /// Whether this process is ready.
    #[must_use]
    pub fn readiness(&self) -> &Readiness {
        &self.0.readiness
    }

    /// Bounds on connections and requests.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.0.parts.limits
    }

    /// The places of requests worked on.
    #[must_use]
    pub fn permits(&self) -> &Semaphore {
        &self.0.permits
    }

    /// Where bodies come in.
    #[must_use]
    pub fn intake(&self) -> &Intake {
        &self.0.intake
    }

    /// From now on readiness says no, so that load balancers look elsewhere.
    pub fn start_draining(&self) {
        self.0.draining.store(true, Ordering::Release);
    }

    /// Whether the server is about to stop.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Acquire)
    }
}
