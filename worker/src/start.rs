//! Checks that the assignment is still worth starting: term, Cursor, terminal frontier.
//!
//! Plain reads that end a stale worker cheaply; nothing here is relied on for safety, which is the
//! publish transaction's job (design: fence, Cursor, Head).

use powercontext_core::work::{ErrorCode, Frontier, WorkAssignment};
use powercontext_store::{Store, budgets, cursors, leases};

use crate::failure::WindowError;
use crate::progress::Progress;

/// Returns the frontier to work on.
///
/// # Errors
/// [`WindowError`] when the term or the Cursor is another one, or the frontier is terminal
/// (TM-068).
pub(crate) async fn check(
    store: &Store,
    assignment: &WorkAssignment,
    progress: &Progress,
) -> Result<Frontier, WindowError> {
    let current = leases::current(store).await?;
    progress.first_read();
    if current.as_ref() != Some(&assignment.fence) {
        return Err(ErrorCode::Fenced.into());
    }
    if cursors::get(store, &assignment.key).await? != assignment.source_after {
        return Err(ErrorCode::CursorConflict.into());
    }
    let frontier = Frontier { key: assignment.key.clone(), source_after: assignment.source_after };
    match budgets::get(store, &frontier).await?.and_then(|budget| budget.terminal()) {
        Some(code) => Err(code.into()),
        None => Ok(frontier),
    }
}
