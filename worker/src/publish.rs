//! Runs the one publish transaction of a worker (TM-158, TM-200).
//!
//! Its order and its checks are decided in the store; this module only says what belongs together.

use powercontext_core::ids::Window;
use powercontext_core::work::WorkAssignment;
use powercontext_store::Store;
use powercontext_store::budgets::AttemptFence;
use powercontext_store::publish::{PublishRequest, Published, TopicOperation, publish};

use crate::failure::WindowError;

/// Publishes the operations of a Window with its Cursor step; no operation still moves the Cursor
/// (TM-122).
pub(crate) async fn commit(
    store: &Store,
    assignment: &WorkAssignment,
    attempt: AttemptFence,
    window: Window,
    operations: Vec<TopicOperation>,
) -> Result<Published, WindowError> {
    let request = PublishRequest {
        attempt,
        window,
        wave_target: assignment.wave_target,
        claimed_flush_generation: assignment.claimed_flush_generation,
        mode: assignment.mode,
        operations,
    };
    Ok(publish(store, &request).await?)
}
