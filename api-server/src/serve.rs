//! Role `all`: migrates, opens the store, starts the supervisor, serves, and stops in order.
//!
//! Order of a stop: readiness says no, a pause for load balancers, no new connections, requests in
//! progress finish within a bound, the supervisor stops its workers. A second signal ends at once.

use std::future::IntoFuture as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use axum::serve::ListenerExt as _;
use powercontext_api_server::{App, AppParts, Limits, Processing, router};
use powercontext_core::ambient::{IdSource, SystemClock, SystemIds};
use powercontext_inference::generator;
use powercontext_settings::Settings;
use powercontext_store::{Store, StoreOptions};
use powercontext_supervisor::{
    ProcessLauncher, Supervisor, SupervisorHandle, SupervisorParts, SupervisorSettings,
};
use powercontext_worker::wiring;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::Failure;

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
}

/// Brings the database to the schema of this program.
pub async fn migrate(options: &StoreOptions, ids: &dyn IdSource) -> Result<(), Failure> {
    let report = powercontext_store::migrate(options, ids).await.map_err(database)?;
    tracing::info!(event = "database.migrated", report = ?report);
    Ok(())
}

fn database(error: powercontext_store::OpenError) -> Failure {
    let mut text = format!("the database cannot be used: {error}");
    let mut next = std::error::Error::source(&error);
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    Failure::Environment(text)
}

/// Runs until a signal asks to stop.
pub async fn all(settings: &Settings) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let worker_program = processing_program(settings)?;
    let options = wiring::store_options(settings)
        .map_err(|error| Failure::Configuration(format!("setting `database.url`: {error}")))?;
    migrate(&options, &SystemIds).await?;
    let store = Store::open(&options).await.map_err(database)?;
    let listener = listen(settings).await?;
    let embedded = worker_program.map(|program| Arc::new(supervise(settings, &store, program)));
    let app = App::new(AppParts {
        store,
        ids: Arc::new(SystemIds),
        clock: Arc::new(SystemClock::start()),
        processing: embedded.clone().map(|embedded| embedded as Arc<dyn Processing>),
        limits: Limits {
            max_body_bytes: settings.http.max_body_bytes,
            max_concurrent_requests: settings.http.max_concurrent_requests,
        },
    });
    serve(settings, app, listener, &mut signals).await?;
    if let Some(handle) = embedded.and_then(|embedded| embedded.take()) {
        tokio::select! {
            () = handle.shutdown() => {}
            () = signals.next() => end_at_once(),
        }
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
    generator(&config)
        .map_err(|error| Failure::Configuration(format!("setting `inference.generation_model`: {error}")))?;
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

async fn serve(
    settings: &Settings,
    app: App,
    listener: TcpListener,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let address = listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
    // Answers are small and complete; waiting to fill a packet would only delay them.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = axum::serve(listener, router(app.clone())).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let mut serving = tokio::spawn(serving.into_future());
    tracing::info!(event = "server.listening", address, url = format!("http://{address}"));
    tokio::select! {
        ended = &mut serving => {
            return Err(Failure::Environment(format!("the HTTP server ended early: {ended:?}")));
        }
        () = signals.next() => {}
    }
    tracing::info!(event = "server.stopping");
    app.start_draining();
    let finish = async {
        tokio::time::sleep(settings.http.drain).await;
        let _ = stop.send(());
        if tokio::time::timeout(settings.http.shutdown_timeout, &mut serving).await.is_err() {
            tracing::warn!(event = "server.requests_abandoned");
            serving.abort();
        }
    };
    tokio::select! {
        () = finish => Ok(()),
        () = signals.next() => end_at_once(),
    }
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
