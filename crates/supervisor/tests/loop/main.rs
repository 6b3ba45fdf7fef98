//! The loop around the decisions, over a database that can fail and workers that never really run.
//!
//! The clock moves only when a test moves it, also the clock of the database.

#![allow(clippy::unwrap_used, reason = "test code may panic")]

mod double;
mod leadership;
mod terms;
mod waves;
