//! Who may work on what and when, on one machine or many.
//!
//! [`decide`] holds every decision and does no I/O; [`run`] is the loop that reads, asks, acts and
//! reports; [`process`] runs workers as child processes. What a worker does with its Window is the
//! worker's business, and whether a result may be published is decided by the database alone, so
//! nothing here has to be right for data to stay right.
//!
//! Deliberately absent: a job table, job states and checkpoints. A restarted supervisor finds all
//! it needs in Pending, Cursor and budget rows.

pub mod decide;
pub mod facts;
mod flight;
mod last_line;
pub mod launcher;
mod log;
pub mod notice;
pub mod process;
mod queue;
mod retry;
pub mod rotation;
pub mod run;
pub mod settings;
mod terminal;
pub mod wave;

pub use launcher::{LaunchError, Launcher, WorkerEnding, WorkerId};
pub use process::ProcessLauncher;
pub use run::{Phase, Supervisor, SupervisorHandle, SupervisorParts, SupervisorStatus};
pub use settings::{Backoff, SupervisorSettings};
