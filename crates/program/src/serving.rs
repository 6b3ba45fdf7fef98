//! Serves HTTP until a signal asks to stop, and stops everything in order.
//!
//! Order of a stop: readiness says no and nothing new is dispatched; workers are stopped while HTTP
//! pauses for load balancers, takes no new connections and finishes requests in progress within a
//! bound; then the database is closed. A second signal ends at once.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use powercontext_settings::Http;
use powercontext_store::Store;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::connections::{Bounds, serve};
use crate::signals::end_at_once;
use crate::{Failure, Processing, Signals};

/// How long a stop waits for the database to be closed.
const CLOSE_TIME: Duration = Duration::from_secs(10);

/// What a long-running program serves and holds.
pub struct Serving<'a> {
    /// The settings of HTTP.
    pub http: &'a Http,
    /// Where requests come in.
    pub listener: TcpListener,
    /// What answers them.
    pub router: Router,
    /// Bounds on connections.
    pub bounds: Bounds,
    /// The database, closed at the end.
    pub store: Store,
    /// The processing of Topics in this process, if there is any.
    pub processing: Option<Arc<Processing>>,
}

/// Takes the address of the settings.
///
/// # Errors
/// [`Failure::Environment`] when it cannot be had.
pub async fn listen(http: &Http) -> Result<TcpListener, Failure> {
    let (host, port) = (http.host.as_str(), http.port);
    TcpListener::bind((host, port))
        .await
        .map_err(|error| Failure::Environment(format!("cannot listen on {host} port {port}: {error}")))
}

/// Serves until the first signal, then calls `start_draining` and stops.
///
/// # Errors
/// [`Failure::Environment`] when serving ends by itself.
pub async fn until_signal(
    serving: Serving<'_>,
    start_draining: impl FnOnce(),
    signals: &mut Signals,
) -> Result<(), Failure> {
    let Serving { http, listener, router, bounds, store, processing } = serving;
    let address = listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
    let (stop, stopped) = oneshot::channel::<()>();
    let mut answering = tokio::spawn(serve(listener, router, bounds, async {
        let _ = stopped.await;
    }));
    tracing::info!(event = "server.listening", address, url = format!("http://{address}"));
    tokio::select! {
        ended = &mut answering => {
            return Err(Failure::Environment(format!("the HTTP server ended early: {ended:?}")));
        }
        () = signals.next() => {}
    }
    tracing::info!(event = "server.stopping");
    start_draining();
    let answers = async {
        tokio::time::sleep(http.drain).await;
        let _ = stop.send(());
        if tokio::time::timeout(http.shutdown_timeout, &mut answering).await.is_err() {
            tracing::warn!(event = "server.requests_abandoned");
            answering.abort();
            let _ = answering.await;
        }
    };
    let workers = async {
        if let Some(processing) = processing {
            processing.shutdown().await;
        }
    };
    let finish = async {
        tokio::join!(workers, answers);
        close(&store).await;
    };
    tokio::select! {
        () = finish => {}
        () = signals.next() => end_at_once(),
    }
    tracing::info!(event = "server.stopped");
    Ok(())
}

async fn close(store: &Store) {
    if tokio::time::timeout(CLOSE_TIME, store.close()).await.is_err() {
        tracing::warn!(event = "database.left_open");
    }
}
