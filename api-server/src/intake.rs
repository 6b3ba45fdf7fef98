//! Brings in the body of a request before the request gets a place among those worked on.
//!
//! A slow sender must not keep others out: it holds no such place, only its connection, a bounded
//! share of memory and, when its body does not come at once, one of a bounded number of waits. What
//! the bytes say is left to `extract`.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::app::Limits;
use crate::error::ApiError;

/// A body that is complete within this time has not waited for its sender.
const AT_ONCE: Duration = Duration::from_millis(100);
/// The unit in which memory is shared out, in bytes.
const BLOCK: usize = 16 * 1024;

/// The bounds that all bodies share.
pub struct Intake {
    slow: Semaphore,
    blocks: Arc<Semaphore>,
    limits: Limits,
}

/// The memory of one body; free again when dropped.
pub struct Share(#[expect(dead_code, reason = "held, never looked at")] Option<OwnedSemaphorePermit>);

impl Intake {
    /// Starts with everything free.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let blocks = (limits.max_body_memory_bytes / BLOCK).clamp(1, Semaphore::MAX_PERMITS);
        Self {
            slow: Semaphore::new(limits.max_slow_bodies),
            blocks: Arc::new(Semaphore::new(blocks)),
            limits,
        }
    }

    /// Reads the whole body of a request and puts it back in memory.
    ///
    /// # Errors
    /// 413 over the limit, 408 when it comes too slowly, 503 when too many or too large bodies are
    /// under way already, 400 when the connection breaks off.
    pub async fn take(&self, request: Request) -> Result<(Request, Share), ApiError> {
        let (parts, body) = request.into_parts();
        let hint = announced(&parts.headers).min(self.limits.max_body_bytes);
        let mut arriving = pin!(self.collect(body, hint));
        let (bytes, share) = match timeout(AT_ONCE, &mut arriving).await {
            Ok(arrived) => arrived?,
            Err(_) => {
                let _wait = self.slow.try_acquire().map_err(|_| ApiError::overloaded())?;
                timeout(self.limits.body_time, arriving).await.map_err(|_| ApiError::too_slow())??
            }
        };
        Ok((Request::from_parts(parts, Body::from(bytes)), share))
    }

    /// Reads a body of at most the limit.
    ///
    /// A body that is somewhat larger is read to its end and thrown away, so that a client that sends
    /// everything before it listens gets the answer and not a broken connection.
    async fn collect(&self, mut body: Body, hint: usize) -> Result<(Vec<u8>, Share), ApiError> {
        let limit = self.limits.max_body_bytes;
        let mut bytes = Vec::with_capacity(hint.min(BLOCK));
        let mut share = None;
        let mut seen = 0_usize;
        loop {
            let next = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
            let frame = timeout(self.limits.body_stall, next).await.map_err(|_| ApiError::too_slow())?;
            let Some(frame) = frame else { break };
            let Ok(data) = frame.map_err(|_| ApiError::unreadable())?.into_data() else { continue };
            seen = seen.saturating_add(data.len());
            if seen <= limit {
                self.grow(&mut share, seen)?;
                bytes.extend_from_slice(&data);
            } else if seen > limit.saturating_mul(4) {
                break;
            }
        }
        if seen > limit { Err(ApiError::too_large(limit)) } else { Ok((bytes, Share(share))) }
    }

    /// Makes a share large enough for so many bytes.
    fn grow(&self, share: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> Result<(), ApiError> {
        let held = share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = bytes.div_ceil(BLOCK).saturating_sub(held);
        if missing == 0 {
            return Ok(());
        }
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        let more =
            Arc::clone(&self.blocks).try_acquire_many_owned(missing).map_err(|_| ApiError::overloaded())?;
        match share {
            Some(share) => share.merge(more),
            None => *share = Some(more),
        }
        Ok(())
    }
}

fn announced(headers: &HeaderMap) -> usize {
    headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse().ok())
        .unwrap_or(0)
}
