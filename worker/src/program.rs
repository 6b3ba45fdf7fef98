//! The program around one run: arguments, settings, log, signals, outcome line and exit code.
//!
//! The last line on standard output is the outcome; logs go to standard error. A configuration that
//! does not allow the work is refused before the database is opened. Decides nothing about Windows.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Arg, ArgAction, Command};
use powercontext_core::ambient::{Clock, SystemClock, SystemIds};
use powercontext_core::failure::chain;
use powercontext_core::work::{Ending, ErrorCode, Outcome, OutcomeCounts, Step, WorkAssignment};
use powercontext_inference::ConfigurationError;
use powercontext_settings::{Inputs, Settings, SettingsError};
use powercontext_store::{InvalidUrl, OpenError, Store};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::wiring::{self, TopicModel};
use crate::{StepObserver, WorkerParts, logging, run_until};

/// Why a worker could not even begin; the source has the cause.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("the assignment cannot be read")]
    Assignment(#[source] serde_json::Error),
    #[error("the settings cannot be used")]
    Settings(#[from] SettingsError),
    #[error("`inference.generation_model` is not set")]
    NoModel,
    #[error("the generation model cannot be used")]
    Model(#[from] ConfigurationError),
    #[error("the database URL cannot be used")]
    Url(#[from] InvalidUrl),
    #[error("the database cannot be opened")]
    Database(#[from] OpenError),
    #[error("the process cannot be set up")]
    Process(#[from] std::io::Error),
}

impl StartError {
    /// A schema of another version needs a person; a database that does not answer may come back,
    /// and so may what the process lacks.
    fn code(&self) -> ErrorCode {
        match self {
            Self::Assignment(_) | Self::Settings(_) | Self::NoModel | Self::Model(_) | Self::Url(_) => {
                ErrorCode::ConfigurationInvalid
            }
            Self::Database(OpenError::Store(error)) => error.code(),
            Self::Database(OpenError::Unreachable { .. } | OpenError::AccessDenied) => {
                ErrorCode::DatabaseUnavailable
            }
            Self::Database(
                OpenError::SchemaMissing
                | OpenError::DatabaseMissing
                | OpenError::SchemaBehind { .. }
                | OpenError::SchemaNewer { .. }
                | OpenError::MigrationChanged { .. }
                | OpenError::MigrationMissing { .. }
                | OpenError::Unfinished
                | OpenError::ForeignTable { .. }
                | OpenError::RetrievalShape { .. }
                | OpenError::SearchRecords { .. }
                | OpenError::Collation { .. },
            ) => ErrorCode::ConfigurationInvalid,
            Self::Process(_) => ErrorCode::LaunchFailed,
        }
    }
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
    let settings = match settings() {
        Ok(settings) => settings,
        // There is no log yet to tell it.
        Err(error) => {
            let _ = writeln!(std::io::stderr().lock(), "{}", chain(&error));
            return finish(&not_started(error.code()));
        }
    };
    let outcome = work(&assignment, &settings, surroundings).unwrap_or_else(|error| {
        tracing::error!(
            event = "worker_not_started",
            stage = Step::Start.as_str(),
            error_code = error.code().as_str(),
            error = %chain(&error)
        );
        not_started(error.code())
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

/// Loads the settings and starts the log they describe.
fn settings() -> Result<Settings, StartError> {
    let settings = Settings::load(&Inputs::from_process()?)?;
    logging::start(&settings.log);
    Ok(settings)
}

fn work(assignment: &str, settings: &Settings, surroundings: Surroundings) -> Result<Outcome, StartError> {
    let assignment: WorkAssignment = serde_json::from_str(assignment).map_err(StartError::Assignment)?;
    let config = match wiring::topic_model(settings)? {
        TopicModel::Supported(config) => config,
        TopicModel::Unset => return Err(StartError::NoModel),
        TopicModel::Unsupported(refused) => return Err(refused.into()),
    };
    let generator = powercontext_inference::generator(&config)?;
    let options = wiring::store_options(settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = stop_signal(surroundings.exit_with_parent)?;
        let store = Store::open(&options).await?;
        let parts = WorkerParts {
            store,
            generator,
            clock: surroundings.clock,
            ids: Arc::new(SystemIds),
            settings: wiring::worker_settings(settings),
            observer: surroundings.observer,
        };
        Ok(run_until(assignment, parts, stop).await)
    })
}

/// Resolves on SIGTERM, and when standard input ends if the parent holds it.
fn stop_signal(exit_with_parent: bool) -> std::io::Result<impl Future<Output = ()>> {
    let mut terminated = signal(SignalKind::terminate())?;
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

fn not_started(code: ErrorCode) -> Outcome {
    Outcome {
        ending: code.ending(),
        step: Step::Start,
        error_code: Some(code),
        window: None,
        counts: OutcomeCounts::default(),
        step_millis: std::collections::BTreeMap::new(),
        retry_after_seconds: None,
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
