//! What the long-running programs have in common: how they start, serve and stop.
//!
//! Decided here: exit status and the one line of a failure, the reading of arguments, the signals,
//! HTTP connections within bounds, how settings become a supervisor, and the order of a stop. Which
//! routes there are and what a program opens is left to the programs.

pub mod arguments;
pub mod connections;
pub mod failure;
pub mod health;
pub mod processing;
pub mod serving;
pub mod signals;
pub mod start;

pub use arguments::{Arguments, print};
pub use connections::Bounds;
pub use failure::Failure;
pub use health::Readiness;
pub use processing::{Processing, ProcessingState, Work};
pub use signals::Signals;
