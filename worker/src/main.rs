//! The program `powercontext-worker`; everything it does is in the library.

use std::process::ExitCode;
use std::sync::Arc;

use powercontext_worker::{NoObserver, program};

fn main() -> ExitCode {
    program::run(Arc::new(NoObserver))
}
