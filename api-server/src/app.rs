//! What every handler works with: the store, the ids, the limits, and whether flushes lead anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use powercontext_core::ambient::{Clock, IdSource};
use powercontext_store::Store;
use tokio::sync::Semaphore;

/// The part of the supervisor that HTTP needs.
pub trait Processing: Send + Sync {
    /// Says that there is new work; never waits for it (TM-232).
    fn wake(&self);
    /// Whether work is being dispatched.
    fn is_running(&self) -> bool;
}

/// Bounds on requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest body in bytes.
    pub max_body_bytes: usize,
    /// Requests worked on at once.
    pub max_concurrent_requests: usize,
}

/// What an [`App`] is made of.
pub struct AppParts {
    /// The open database.
    pub store: Store,
    /// Makes identities and request ids.
    pub ids: Arc<dyn IdSource>,
    /// Measures requests.
    pub clock: Arc<dyn Clock>,
    /// Topic processing; `None` when no generation model is configured.
    pub processing: Option<Arc<dyn Processing>>,
    /// Bounds on requests.
    pub limits: Limits,
}

/// The shared state of all handlers. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    parts: AppParts,
    permits: Arc<Semaphore>,
    draining: AtomicBool,
}

impl App {
    /// Puts the parts together.
    #[must_use]
    pub fn new(parts: AppParts) -> Self {
        let permits = Arc::new(Semaphore::new(parts.limits.max_concurrent_requests));
        Self(Arc::new(Inner { parts, permits, draining: AtomicBool::new(false) }))
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
        self.0.parts.processing.as_deref()
    }

    /// Bounds on requests.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.0.parts.limits
    }

    /// The permits of requests in progress.
    #[must_use]
    pub fn permits(&self) -> &Arc<Semaphore> {
        &self.0.permits
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
