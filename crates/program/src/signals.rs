//! The signals that ask a program to stop: SIGTERM and SIGINT.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Failure;

/// The signals that ask to stop.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on both signals are received instead of ending the process.
    ///
    /// # Errors
    /// [`Failure::Environment`] when the system refuses.
    pub fn listen() -> Result<Self, Failure> {
        let refused = |error| Failure::Environment(format!("signals cannot be received: {error}"));
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(refused)?,
            interrupt: signal(SignalKind::interrupt()).map_err(refused)?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Ends the process on a second signal. The database needs no goodbye; a worker ends with its stdin.
pub(crate) fn end_at_once() -> ! {
    std::process::exit(130)
}
