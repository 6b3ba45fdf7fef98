//! From settings to a running process: the checks, the log, the runtime, the open database.

use std::future::Future;

use powercontext_core::failure::chain;
use powercontext_settings::{Inputs, Role, Settings};
use powercontext_store::{OpenError, Store, StoreOptions};
use powercontext_worker::{logging, wiring};

use crate::{Failure, Signals};

/// The threads of a long-running program: two carry thousands of requests a second and keep an idle
/// process small.
const THREADS: usize = 2;

/// Loads and checks the settings for a program in one role, and starts its log.
///
/// `role` chooses the role the settings are checked for, or refuses what they ask for.
///
/// # Errors
/// [`Failure::Configuration`] for anything that must be changed; nothing was opened by then.
pub fn settings(
    inputs: &Inputs,
    role: impl FnOnce(&Settings) -> Result<Role, Failure>,
) -> Result<Settings, Failure> {
    let settings = Settings::load(inputs).map_err(Failure::configuration)?;
    let role = role(&settings)?;
    let settings = settings.in_role(role).map_err(Failure::configuration)?;
    wiring::check(&settings).map_err(Failure::configuration)?;
    logging::start(&settings.log);
    Ok(settings)
}

/// Logs the settings that took effect (TM-229).
pub fn tell(settings: &Settings) {
    for one in settings.effective() {
        // Unset is a missing value, not an empty one.
        let (setting, value, origin) = (one.name.as_str(), one.value.as_deref(), one.origin);
        tracing::info!(event = "settings.effective", setting, value, origin);
    }
}

/// Runs a program's future to its end.
///
/// # Errors
/// Its own, and [`Failure::Environment`] when there can be no runtime.
pub fn run<T>(program: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .map_err(|error| Failure::Environment(format!("the runtime cannot be started: {error}")))?;
    let ended = runtime.block_on(program);
    // A call that still blocks a thread, such as the look-up of a host name, holds up no program that
    // has ended.
    runtime.shutdown_background();
    ended
}

/// Does the part of a start that may wait for others; `None` when a signal asks to stop meanwhile. Then
/// the part is dropped where it is: nothing was promised to anyone yet, and a migration is continued by
/// the next.
///
/// # Errors
/// Those of the part.
pub async fn unless_stopped<T>(
    signals: &mut Signals,
    part: impl Future<Output = Result<T, Failure>>,
) -> Result<Option<T>, Failure> {
    tokio::select! {
        biased;
        () = signals.next() => {
            tracing::info!(event = "server.start_abandoned");
            Ok(None)
        }
        done = part => done.map(Some),
    }
}

/// How the database is opened.
///
/// # Errors
/// [`Failure::Configuration`] when the URL names no database.
pub fn store_options(settings: &Settings) -> Result<StoreOptions, Failure> {
    wiring::store_options(settings)
        .map_err(|error| Failure::Configuration(format!("setting `database.url`: {error}")))
}

/// Opens the database as it is; never migrates.
///
/// # Errors
/// [`Failure::Environment`] says what is wrong with the database.
pub async fn open(options: &StoreOptions) -> Result<Store, Failure> {
    Store::open(options).await.map_err(|error| unusable(options, &error))
}

/// The failure of a database that cannot be opened or migrated.
#[must_use]
pub fn unusable(options: &StoreOptions, error: &OpenError) -> Failure {
    Failure::Environment(format!("the database {} cannot be used: {}", options.url, chain(error)))
}
