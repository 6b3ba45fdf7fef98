//! The HTTP interface of PowerContext Fleet.
//!
//! Requests are taken apart and checked here, answers are put together here; everything a request
//! means is decided by the store and `core`. Nothing here calls a model or waits for a worker.
//! `operations` lists what there is; the program in `main.rs` wires it to a database and a
//! supervisor.

mod app;
mod contract;
mod cursor;
mod envelope;
mod error;
mod extract;
mod health;
mod intake;
mod json;
mod openapi;
mod operations;
mod schema;
mod scopes;
mod sources;
mod topics;

use std::future::Future;

use powercontext_program::{Bounds, connections};
use tokio::net::TcpListener;

pub use app::{Absence, App, AppParts, Limits, Processing};
pub use operations::{OPERATIONS, Operation, router};

/// Serves the API until `stop` is done and the requests that have arrived by then are answered.
///
/// Dropping the future closes every connection at once.
pub async fn serve(listener: TcpListener, app: App, stop: impl Future<Output = ()> + Send) {
    let bounds = bounds(&app);
    connections::serve(listener, router(app), bounds, stop).await;
}

/// The bounds on connections that follow from the limits of an application.
#[must_use]
pub fn bounds(app: &App) -> Bounds {
    let limits = app.limits();
    Bounds { max_connections: limits.max_connections, header_time: limits.header_time }
}
