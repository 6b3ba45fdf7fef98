//! What every request gets, whatever its path: an id, its body read, a place among those worked on,
//! one log line, and an answer even when a handler panics or a shared database does not answer.
//!
//! The log has the route template and never a raw path, a query or a body: those hold what users
//! wrote.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::error::{ApiError, Cause};
use crate::operations::{not_allowed, takes_body};

/// Carries the id of a request in its answer; never taken from the client.
pub static REQUEST_ID: HeaderName = HeaderName::from_static("x-powercontext-request-id");

/// The layer around all routes.
pub async fn around(State(app): State<App>, request: Request, next: Next) -> Response {
    let started = app.clock().monotonic();
    let id = app.ids().random().simple().to_string();
    let method = request.method().clone();
    let route =
        request.extensions().get::<MatchedPath>().map_or("unmatched", |path| path.as_str()).to_owned();
    let mut response = answer(&app, request, next, &route).await;
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID.clone(), value);
    }
    let status = response.status().as_u16();
    if let Some(Cause(cause)) = response.extensions_mut().remove::<Cause>() {
        tracing::error!(event = "http.request_failed", request_id = %id, %method, route, status, cause);
    }
    let duration_micros =
        u64::try_from(app.clock().monotonic().saturating_sub(started).as_micros()).unwrap_or(u64::MAX);
    if route.starts_with("/health/") {
        tracing::debug!(event = "http.request", request_id = %id, %method, route, status, duration_micros);
    } else {
        tracing::info!(event = "http.request", request_id = %id, %method, route, status, duration_micros);
    }
    response
}

async fn answer(app: &App, request: Request, next: Next, route: &str) -> Response {
    if request.method() == Method::HEAD && route != "unmatched" {
        // Routers answer HEAD like GET by themselves; the contract does not offer it.
        return not_allowed(route);
    }
    let (request, _share) = if takes_body(request.method(), route) {
        match app.intake().take(request).await {
            Ok((request, share)) => (request, Some(share)),
            Err(error) => return error.into_response(),
        }
    } else {
        (request, None)
    };
    // Health checks take no place and have a time of their own: they must answer when nothing else does.
    let health_check = route.starts_with("/health/");
    let place = (!health_check).then(|| app.permits().try_acquire());
    if matches!(place, Some(Err(_))) {
        return ApiError::overloaded().into_response();
    }
    let answer = caught(next.run(request));
    let answered = match app.limits().database_time.filter(|_| !health_check) {
        // Whatever a handler waits for is the database. What it leaves undone is undone there.
        Some(time) => tokio::time::timeout(time, answer).await.unwrap_or_else(|_| {
            let cause = format!("the database did not let a request end within {time:?}");
            Ok(ApiError::database_unavailable(cause).into_response())
        }),
        None => answer.await,
    };
    answered.unwrap_or_else(|()| ApiError::internal("a handler panicked").into_response())
}

/// Runs a future to its end; `Err` when it panicked. The panic hook has logged the place.
async fn caught<T>(future: impl Future<Output = T>) -> Result<T, ()> {
    let mut future = Box::pin(future);
    poll_fn(move |context| {
        // A future that panicked is never polled again, so no broken state can be seen.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(_) => Poll::Ready(Err(())),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn a_panic_inside_a_future_becomes_an_error() {
        let result: Result<(), ()> = super::caught(async {
            tokio::task::yield_now().await;
            panic!("a defect")
        })
        .await;
        assert_eq!(result, Err(()));
        assert_eq!(super::caught(async { 5 }).await, Ok(5));
    }
}
