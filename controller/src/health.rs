//! `/health/live` and `/health/ready`, the only paths of this program.
//!
//! Ready means that the database answers, whoever leads: a candidate that waits is as healthy as a
//! leader. The shapes are those of the API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use powercontext_core::ambient::Clock;
use powercontext_program::{Processing, Readiness, health};
use powercontext_store::Store;
use serde_json::Value;

/// What the checks look at. Cheap to clone.
#[derive(Clone)]
pub struct Health(Arc<Inner>);

struct Inner {
    readiness: Readiness,
    processing: Arc<Processing>,
    draining: AtomicBool,
}

impl Health {
    /// Looks at a database and a supervisor.
    pub fn new(store: Store, clock: Arc<dyn Clock>, processing: Arc<Processing>) -> Self {
        let readiness = Readiness::new(store, clock);
        Self(Arc::new(Inner { readiness, processing, draining: AtomicBool::new(false) }))
    }

    /// From now on readiness says no.
    pub fn start_draining(&self) {
        self.0.draining.store(true, Ordering::Release);
    }
}

/// The two paths.
pub fn router(health: Health) -> Router {
    Router::new().route("/health/live", get(live)).route("/health/ready", get(ready)).with_state(health)
}

async fn live() -> Json<Value> {
    health::live()
}

async fn ready(State(Health(inner)): State<Health>) -> (StatusCode, Json<Value>) {
    let stopping = inner.draining.load(Ordering::Acquire);
    inner.readiness.answer(stopping, Some(inner.processing.state()), &[]).await
}
