//! The HTTP interface of PowerContext Fleet.
//!
//! Requests are taken apart and checked here, answers are put together here; everything a request
//! means is decided by the store and `core`. Nothing here calls a model or waits for a worker.
//! `operations` lists what there is; the program in `main.rs` wires it to a database and a
//! supervisor.

mod app;
mod connections;
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

pub use app::{App, AppParts, Backlog, Limits, Processing};
pub use connections::serve;
pub use operations::{OPERATIONS, Operation};
