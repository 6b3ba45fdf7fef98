//! Role `all`: claims and migrates the database, starts the supervisor, serves, and stops in order.
//!
//! Order of a stop: readiness says no and nothing new is dispatched; workers are stopped while HTTP
//! pauses for load balancers, takes no new connections and finishes requests in progress within a
//! bound; then the database is closed. A second signal ends at once.

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use powercontext_api_server::{App, AppParts, Backlog, Limits, Processing, serve};
use powercontext_core::ambient::{IdSource, SystemClock, SystemIds};
use powercontext_core::failure::chain;
use powercontext_inference::generator;
use powercontext_settings::Settings;
use powercontext_store::{Claim, ClaimError, OpenError, Store, StoreOptions};
use powercontext_supervisor::{
    ProcessLauncher, Supervisor, SupervisorHandle, SupervisorParts, SupervisorSettings,
};
use powercontext_worker::wiring;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::Failure;

/// How long a stop waits for the database to be closed.
const CLOSE_TIME: Duration = Duration::from_secs(10);
const WORKER_PROGRAM: &str = "powercontext-worker";

/// The supervisor as HTTP sees it; taken out when it is shut down.
struct Embedded(Mutex<Option<SupervisorHandle>>);

impl Embedded {
    fn take(&self) -> Option<SupervisorHandle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Processing for Embedded {
    fn wake(&self) {
        if let Some(handle) = self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            handle.wake();
        }
    }

    fn is_running(&self) -> bool {
        let handle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        handle.as_ref().is_some_and(SupervisorHandle::is_running)
    }

    fn backlog(&self) -> Backlog {
        let handle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = handle.as_ref().map(|handle| handle.status().last_round);
        last.map_or_else(Backlog::default, |round| Backlog {
            unanswered: round.pending,
            terminal: round.terminal,
        })
    }
}

/// Keeps every other server off the database until the claim is dropped.
pub fn claim(options: &StoreOptions) -> Result<Claim, Failure> {
    Store::claim(options).map_err(|error| {
        let hint = if matches!(error, ClaimError::Taken { .. }) { "; stop that one first" } else { "" };
        Failure::Environment(format!("{}{hint}", chain(&error)))
    })
}

/// Brings the database to the schema of this program.
pub async fn migrate(options: &StoreOptions, ids: &dyn IdSource) -> Result<(), Failure> {
    let report =
        powercontext_store::migrate(options, ids).await.map_err(|error| database(options, &error))?;
    if !report.applied.is_empty() {
        let (schema, applied) = (report.current, report.applied.len());
        tracing::info!(event = "database.migrated", schema, applied);
    }
    Ok(())
}

fn database(options: &StoreOptions, error: &OpenError) -> Failure {
    Failure::Environment(format!("the database {} cannot be used: {}", options.url, chain(error)))
}

/// Runs until a signal asks to stop.
pub async fn all(settings: &Settings) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let worker_program = processing_program(settings)?;
    let options = wiring::store_options(settings)
        .map_err(|error| Failure::Configuration(format!("setting `database.url`: {error}")))?;
    let _claim = claim(&options)?;
    migrate(&options, &SystemIds).await?;
    let store = Store::open(&options).await.map_err(|error| database(&options, &error))?;
    let listener = listen(settings).await?;
    let embedded = worker_program.map(|program| Arc::new(supervise(settings, &store, program)));
    let app = App::new(AppParts {
        store: store.clone(),
        ids: Arc::new(SystemIds),
        clock: Arc::new(SystemClock::start()),
        processing: embedded.clone().map(|embedded| embedded as Arc<dyn Processing>),
        limits: Limits::new(settings.http.max_body_bytes, settings.http.max_concurrent_requests),
    });
    let http = serve_until_signal(settings, app, listener, &mut signals).await?;
    let processing = async {
        if let Some(handle) = embedded.and_then(|embedded| embedded.take()) {
            handle.shutdown().await;
        }
    };
    let finish = async {
        tokio::join!(processing, http);
        if tokio::time::timeout(CLOSE_TIME, store.close()).await.is_err() {
            tracing::warn!(event = "database.left_open");
        }
    };
    tokio::select! {
        () = finish => {}
        () = signals.next() => end_at_once(),
    }
    tracing::info!(event = "server.stopped");
    Ok(())
}

/// The worker program, when Topics are processed here at all.
fn processing_program(settings: &Settings) -> Result<Option<PathBuf>, Failure> {
    let Some(config) = wiring::generation_config(settings) else {
        tracing::warn!(
            event = "topic_processing.unavailable",
            "no generation model is set, so Topics are not processed and a flush answers 503; set \
             POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL, for example to builtin:extractive"
        );
        return Ok(None);
    };
    // Its settings were checked before; what is left is the machine.
    generator(&config).map_err(|error| Failure::Environment(chain(&error)))?;
    let beside = || std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join(WORKER_PROGRAM)));
    let program = settings.runtime.worker_program.clone().or_else(beside);
    match program {
        Some(program) if program.is_file() => Ok(Some(program)),
        program => Err(Failure::Configuration(format!(
            "the worker program {} does not exist; build it or set `runtime.worker_program`",
            program.unwrap_or_else(|| PathBuf::from(WORKER_PROGRAM)).display()
        ))),
    }
}

fn supervise(settings: &Settings, store: &Store, program: PathBuf) -> Embedded {
    let runtime = &settings.runtime;
    let handle = Supervisor::start(SupervisorParts {
        store: store.clone(),
        launcher: Arc::new(ProcessLauncher::new(program, settings.worker_environment())),
        clock: Arc::new(SystemClock::start()),
        ids: Arc::new(SystemIds),
        settings: SupervisorSettings {
            max_workers: runtime.artifact_processing_max_workers,
            worker_timeout: Duration::from_secs(runtime.artifact_processing_worker_timeout_seconds),
            ..SupervisorSettings::default()
        },
    });
    Embedded(Mutex::new(Some(handle)))
}

async fn listen(settings: &Settings) -> Result<TcpListener, Failure> {
    let (host, port) = (settings.http.host.as_str(), settings.http.port);
    TcpListener::bind((host, port))
        .await
        .map_err(|error| Failure::Environment(format!("cannot listen on {host} port {port}: {error}")))
}

/// Serves until the first signal, and returns what is left to do then.
async fn serve_until_signal(
    settings: &Settings,
    app: App,
    listener: TcpListener,
    signals: &mut Signals,
) -> Result<impl Future<Output = ()> + use<>, Failure> {
    let address = listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
    let (stop, stopped) = oneshot::channel::<()>();
    let mut serving = tokio::spawn(serve(listener, app.clone(), async {
        let _ = stopped.await;
    }));
    tracing::info!(event = "server.listening", address, url = format!("http://{address}"));
    tokio::select! {
        ended = &mut serving => {
            return Err(Failure::Environment(format!("the HTTP server ended early: {ended:?}")));
        }
        () = signals.next() => {}
    }
    tracing::info!(event = "server.stopping");
    app.start_draining();
    let (drain, patience) = (settings.http.drain, settings.http.shutdown_timeout);
    Ok(async move {
        tokio::time::sleep(drain).await;
        let _ = stop.send(());
        if tokio::time::timeout(patience, &mut serving).await.is_err() {
            tracing::warn!(event = "server.requests_abandoned");
            serving.abort();
            let _ = serving.await;
        }
    })
}

/// The signals that ask to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let refused = |error| Failure::Environment(format!("signals cannot be received: {error}"));
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(refused)?,
            interrupt: signal(SignalKind::interrupt()).map_err(refused)?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Ends the process on a second signal. The database needs no goodbye; a worker ends with its stdin.
fn end_at_once() -> ! {
    std::process::exit(130)
}
