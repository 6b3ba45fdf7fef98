//! The program around one run: arguments, settings, log, signals, outcome line and exit code.
//!
//! The last line on standard output is the outcome; logs go to standard error. A configuration that
//! does not allow the work is refused before the database is opened. Decides nothing about Windows.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Arg, ArgAction, Command};
use powercontext_core::ambient::{Clock, SystemClock, SystemIds};
use powercontext_core::work::{Ending, ErrorCode, Outcome, OutcomeCounts, Step, WorkAssignment};
use powercontext_settings::{Inputs, LogFormat, Settings};
use powercontext_store::Store;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::{StepObserver, WorkerParts, run_until, wiring};

/// Why a worker could not even begin.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("the worker is not configured: {0}")]
    Configuration(String),
    #[error("the worker could not start: {0}")]
    Transient(String),
}

/// Runs the program with the process's own arguments and environment.
///
/// `observer` hears of every finished step; the released program ignores them.
pub fn run(observer: Arc<dyn StepObserver>) -> ExitCode {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(message) if !message.use_stderr() => {
            let _ = message.print();
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            let _ = message.print();
            return finish(&not_started(ErrorCode::ConfigurationInvalid));
        }
    };
    let assignment = matches.get_one::<String>("assignment").cloned().unwrap_or_default();
    let surroundings =
        Surroundings { exit_with_parent: matches.get_flag("exit-with-parent"), clock, observer };
    let outcome = work(&assignment, surroundings).unwrap_or_else(|error| {
        let code = match error {
            StartError::Configuration(_) => ErrorCode::ConfigurationInvalid,
            StartError::Transient(_) => ErrorCode::DatabaseUnavailable,
        };
        tracing::error!(step = "start", error_code = ?code, error = %error, "worker not started");
        let _ = writeln!(std::io::stderr().lock(), "{error}");
        not_started(code)
    });
    finish(&outcome)
}

struct Surroundings {
    exit_with_parent: bool,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn StepObserver>,
}

fn command() -> Command {
    Command::new("powercontext-worker")
        .about("Works on one Window and publishes it once. Settings come from the environment.")
        .version(env!("CARGO_PKG_VERSION"))
        .arg(
            Arg::new("assignment")
                .long("assignment")
                .value_name("JSON")
                .required(true)
                .help("What to work on, as the supervisor wrote it"),
        )
        .arg(
            Arg::new("exit-with-parent")
                .long("exit-with-parent")
                .action(ArgAction::SetTrue)
                .help("Stop when standard input ends"),
        )
}

fn work(assignment: &str, surroundings: Surroundings) -> Result<Outcome, StartError> {
    let assignment: WorkAssignment =
        serde_json::from_str(assignment).map_err(|error| refused(&format!("--assignment: {error}")))?;
    let inputs = Inputs::from_process().map_err(|error| refused(&error))?;
    let settings = Settings::load(&inputs).map_err(|error| refused(&error))?;
    start_log(&settings)?;
    let config = wiring::generation_config(&settings)
        .ok_or_else(|| refused(&"inference.generation_model is not set"))?;
    let generator = powercontext_inference::generator(&config).map_err(|error| refused(&error))?;
    let options = wiring::store_options(&settings).map_err(|error| refused(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| StartError::Transient(error.to_string()))?;
    runtime.block_on(async {
        let stop = stop_signal(surroundings.exit_with_parent)?;
        let store = Store::open(&options).await.map_err(|error| open_failed(&error))?;
        let parts = WorkerParts {
            store,
            generator,
            clock: surroundings.clock,
            ids: Arc::new(SystemIds),
            settings: wiring::worker_settings(&settings),
            observer: surroundings.observer,
        };
        Ok(run_until(assignment, parts, stop).await)
    })
}

fn refused(error: &dyn std::fmt::Display) -> StartError {
    StartError::Configuration(error.to_string())
}

/// A schema of another version needs a person; a database that does not answer may come back.
fn open_failed(error: &powercontext_store::OpenError) -> StartError {
    match error {
        powercontext_store::OpenError::Store(source) => StartError::Transient(source.to_string()),
        other => StartError::Configuration(other.to_string()),
    }
}

/// Resolves on SIGTERM, and when standard input ends if the parent holds it.
fn stop_signal(exit_with_parent: bool) -> Result<impl Future<Output = ()>, StartError> {
    let mut terminated =
        signal(SignalKind::terminate()).map_err(|error| StartError::Transient(error.to_string()))?;
    let (parent, orphaned) = oneshot::channel::<()>();
    let unheld = if exit_with_parent {
        // A plain thread: it ends with the process and needs no runtime of its own.
        std::thread::spawn(move || {
            let mut buffer = [0_u8; 256];
            let mut input = std::io::stdin().lock();
            while matches!(input.read(&mut buffer), Ok(read) if read > 0) {}
            let _ = parent.send(());
        });
        None
    } else {
        Some(parent)
    };
    Ok(async move {
        let _unheld = unheld;
        tokio::select! {
            _ = terminated.recv() => {}
            _ = orphaned => {}
        }
    })
}

fn start_log(settings: &Settings) -> Result<(), StartError> {
    let filter =
        tracing_subscriber::EnvFilter::try_new(&settings.log.level).map_err(|error| refused(&error))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match settings.log.format {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Text => log.with_ansi(false).init(),
    }
    Ok(())
}

fn not_started(code: ErrorCode) -> Outcome {
    Outcome {
        ending: code.ending(),
        step: Step::Start,
        error_code: Some(code),
        window: None,
        counts: OutcomeCounts::default(),
        step_millis: std::collections::BTreeMap::new(),
        first_read_millis: None,
    }
}

/// Prints the outcome line and gives its exit code; an outcome nobody can read is transient.
fn finish(outcome: &Outcome) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let printed = serde_json::to_string(outcome)
        .map_err(std::io::Error::from)
        .and_then(|line| writeln!(out, "{line}"))
        .and_then(|()| out.flush());
    let ending = if printed.is_ok() { outcome.ending } else { Ending::Transient };
    ExitCode::from(ending.exit_code())
}
