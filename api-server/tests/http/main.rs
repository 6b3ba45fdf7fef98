//! The HTTP interface over real connections and a real database file.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail by panicking")]

mod bodies;
mod bounds;
mod common;
mod operations;
mod readiness;
