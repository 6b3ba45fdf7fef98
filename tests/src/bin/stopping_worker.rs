//! The real worker, killed by its own hand right after a chosen step, once.
//!
//! `STOPPING_WORKER_AFTER` names the step, `STOPPING_WORKER_MARK` a file that is made just before the
//! kill; where it exists already, the worker runs through.

use std::process::ExitCode;
use std::sync::Arc;

use powercontext_core::work::Step;
use powercontext_worker::StepObserver;

struct StopAfter;

impl StepObserver for StopAfter {
    fn finished(&self, step: Step) {
        let name = serde_json::to_value(step).ok().and_then(|name| name.as_str().map(str::to_owned));
        if name != std::env::var("STOPPING_WORKER_AFTER").ok() {
            return;
        }
        let Ok(mark) = std::env::var("STOPPING_WORKER_MARK") else { return };
        if std::fs::File::create_new(mark).is_ok() {
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        }
    }
}

fn main() -> ExitCode {
    powercontext_worker::program::run(Arc::new(StopAfter))
}
