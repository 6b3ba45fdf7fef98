//! The real worker, killed or frozen by its own hand right after a chosen step, once.
//!
//! `STOPPING_WORKER_AFTER` names the step, `STOPPING_WORKER_MARK` a file that is made just before the
//! signal; where it exists already, the worker runs through. `STOPPING_WORKER_SIGNAL` is `KILL`, the
//! default, or `STOP`, after which somebody has to continue it.

use std::process::ExitCode;
use std::sync::Arc;

use powercontext_core::work::Step;
use powercontext_worker::StepObserver;
use rustix::process::{Signal, getpid, kill_process};

struct StopAfter;

impl StepObserver for StopAfter {
    fn finished(&self, step: Step) {
        let name = serde_json::to_value(step).ok().and_then(|name| name.as_str().map(str::to_owned));
        if name != std::env::var("STOPPING_WORKER_AFTER").ok() {
            return;
        }
        let Ok(mark) = std::env::var("STOPPING_WORKER_MARK") else { return };
        let signal = match std::env::var("STOPPING_WORKER_SIGNAL").as_deref() {
            Ok("STOP") => Signal::STOP,
            _ => Signal::KILL,
        };
        if std::fs::File::create_new(mark).is_ok() {
            let _ = kill_process(getpid(), signal);
        }
    }
}

fn main() -> ExitCode {
    powercontext_worker::program::run(Arc::new(StopAfter))
}
