//! Accepts connections and answers the requests on them, within bounds.
//!
//! Decided here: how many connections there are, how long one may take to send the head of a request
//! (which is also how long it may rest between two), and what a stop waits for: requests that have
//! arrived, until their answer is sent. Everything about a request itself is the router's.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

/// How long a stop looks again whether a connection has a request after all, and how long accepting
/// pauses after a failure (usually: no more file descriptors).
const PAUSE: Duration = Duration::from_millis(200);

/// Bounds on connections.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at once; further ones wait in the system's queue.
    pub max_connections: usize,
    /// How long a connection may rest, or take for the head of a request.
    pub header_time: Duration,
}

/// Serves until `stop` is done and the requests that have arrived by then are answered.
///
/// Dropping the future closes every connection at once.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    stop: impl Future<Output = ()> + Send,
) {
    let places = Arc::new(Semaphore::new(bounds.max_connections));
    let service = TowerToHyperService::new(router);
    let (stopping, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            (stream, place) = accept(&listener, &places) => {
                // Answers are small and complete; waiting to fill a packet would only delay them.
                let _ = stream.set_nodelay(true);
                let connection = Connection { stream, service: service.clone(), header_time: bounds.header_time };
                connections.spawn(connection.run(stopped.clone(), place));
            }
        }
    }
    drop(listener);
    drop(stopping);
    while connections.join_next().await.is_some() {}
}

async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    loop {
        // A full house leaves further connections in the system's queue.
        if let Ok(place) = Arc::clone(places).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, _)) => return (stream, place),
                Err(error) => tracing::warn!(event = "server.accept_failed", %error),
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

struct Connection {
    stream: TcpStream,
    service: TowerToHyperService<Router>,
    header_time: Duration,
}

impl Connection {
    async fn run(self, mut stopped: watch::Receiver<()>, _place: OwnedSemaphorePermit) {
        let Self { stream, service, header_time } = self;
        let under_way = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&under_way);
        let service = service_fn(move |request: Request<Incoming>| {
            let counted = Counted::new(&counter);
            let answer = service.call(request);
            async move { answer.await.map(|response: Response| response.map(|body| counted.around(body))) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(header_time)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        // A connection that fails has lost its client; there is nobody to tell.
        tokio::select! {
            _ = connection.as_mut() => return,
            _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
        }
        // Hyper ends a resting connection now, but would wait for the rest of a head that began.
        loop {
            tokio::select! {
                _ = connection.as_mut() => return,
                () = tokio::time::sleep(PAUSE) => {
                    if under_way.load(Ordering::Acquire) == 0 {
                        return;
                    }
                }
            }
        }
    }
}

/// Counts a request from its arrival until its answer is handed over.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(counter))
    }

    fn around(self, body: Body) -> CountedBody {
        CountedBody { body, _counted: self }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The body of an answer; its request counts until the last byte is taken.
struct CountedBody {
    body: Body,
    _counted: Counted,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
