//! Who may work on what and when, on one machine or many.
//!
//! [`decide`] holds every decision about work and [`lease`] every decision about leadership; neither
//! does I/O. [`run`] and what it starts read, ask, act and report; [`process`] runs workers as child processes. What a worker does with its Window is the
//! worker's business, and whether a result may be published is decided by the database alone, so
//! nothing here has to be right for data to stay right.
//!
//! Deliberately absent: a job table, job states and checkpoints. A restarted supervisor finds all
//! it needs in Pending, Cursor and budget rows.

pub mod auto;
pub mod decide;
pub mod facts;
mod flight;
mod keeper;
mod last_line;
pub mod launcher;
pub mod lease;
mod log;
pub mod notice;
mod outage;
pub mod process;
mod queue;
mod retry;
pub mod rotation;
pub mod run;
pub mod settings;
pub mod status;
mod term;
mod terminal;
pub mod wave;

pub use auto::OpenWave;
pub use launcher::{LaunchError, Launcher, WorkerEnding, WorkerId};
pub use lease::{InvalidLease, LeaseSettings, LeaseTimes};
pub use process::ProcessLauncher;
pub use run::{Supervisor, SupervisorHandle, SupervisorParts};
pub use settings::{Backoff, BindingSchedule, SupervisorSettings};
pub use status::{Phase, SupervisorStatus, WaveStatus};
