//! Which keys may be behind, and which explicit flushes are not answered yet (TM-161 to TM-171).
//!
//! Pending is no job queue: a row says how far Sources reach and counts flushes, nothing else. What
//! is running and when to run is the supervisor's.

use powercontext_core::ids::{BindingName, FlushGeneration, Position, ScopeId, Window};
use powercontext_core::work::{ErrorCode, Fence, WorkKey};

use crate::database::{Row, Transaction, Twin, values};
use crate::{DatabaseError, Store, StoreError, budgets, cursors, leases, sources};

/// What a flush led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// The intent is durable.
    Accepted,
    /// The Cursor already covers every Source; nothing was written.
    Idle,
}

/// Why a flush was not taken.
#[derive(Debug, thiserror::Error)]
pub enum FlushError {
    /// There is no such Scope.
    #[error("the scope does not exist")]
    ScopeNotFound,
    /// The store failed.
    #[error("failed to record a flush")]
    Store(#[from] StoreError),
}

/// Why a Pending row was not settled.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// The term is over.
    #[error("the leadership term is over")]
    Fenced,
    /// The store failed.
    #[error("failed to settle a pending row")]
    Store(#[from] StoreError),
}

/// What is known of a key that has a Pending row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingFact {
    /// Binding and Scope.
    pub key: WorkKey,
    /// The newest Source the binding may be behind of.
    pub source_through: Position,
    /// How often a flush was asked for.
    pub flush_generation: FlushGeneration,
    /// The newest flush that was answered.
    pub handled_flush_generation: FlushGeneration,
    /// How far the binding has published.
    pub cursor: Position,
    /// Why the frontier at the Cursor takes no further attempt, if it does not (TM-068, TM-069).
    pub terminal: Option<ErrorCode>,
}

/// Asks for a wave over the Sources there are now (TM-165, TM-231 to TM-235, B-17).
///
/// A terminal frontier still accepts the flush; it authorizes no further attempt.
///
/// # Errors
/// [`FlushError`]; nothing is written then.
pub async fn flush(store: &Store, key: &WorkKey) -> Result<Flush, FlushError> {
    store.database.transact("pending.flush", |tx| flush_in(tx, key)).await
}

async fn flush_in(mut tx: Transaction, key: &WorkKey) -> Result<Flush, FlushError> {
    let at = StoreError::at("pending.flush");
    let Some(head) = sources::lock_journal(&mut tx, &key.scope).await.map_err(&at)? else {
        return Err(FlushError::ScopeNotFound);
    };
    if cursors::lock(&mut tx, key).await.map_err(&at)? >= head {
        return Ok(Flush::Idle);
    }
    tx.execute(FLUSH, values![key.binding.as_str(), key.scope.as_str(), head.get()]).await.map_err(&at)?;
    tx.commit().await.map_err(&at)?;
    Ok(Flush::Accepted)
}

/// The upsert and the scalar maximum have other names on OceanBase.
pub(crate) const FLUSH: Twin = Twin {
    sqlite: "INSERT INTO pc_artifact_processing_pending \
        (binding_name, scope_id, source_through, flush_generation) VALUES (?, ?, ?, 1) \
        ON CONFLICT (binding_name, scope_id) DO UPDATE SET \
        source_through = max(source_through, excluded.source_through), \
        flush_generation = flush_generation + 1",
    oceanbase: "INSERT INTO pc_artifact_processing_pending \
        (binding_name, scope_id, source_through, flush_generation) VALUES (?, ?, ?, 1) \
        ON DUPLICATE KEY UPDATE source_through = greatest(source_through, values(source_through)), \
        flush_generation = flush_generation + 1",
};

/// The row of one key, answered or not; `None` only when there is none, which means that the
/// Cursor covers every Source.
///
/// # Errors
/// [`StoreError`] when the database cannot be read.
pub async fn get(store: &Store, key: &WorkKey) -> Result<Option<PendingFact>, StoreError> {
    let at = StoreError::at("pending.get");
    let mut reader = store.database.read().await.map_err(&at)?;
    let parameters = values![key.binding.as_str(), key.scope.as_str()];
    let row = reader.query_one(GET, parameters).await.map_err(&at)?;
    row.as_ref().map(fact).transpose()
}

/// At most `limit` keys behind `after` with an unanswered flush, ascending by binding and Scope.
///
/// Walks an index of such rows alone, so its cost does not depend on how many keys merely wait.
///
/// # Errors
/// [`StoreError`] when the database cannot be read.
pub async fn page(
    store: &Store,
    after: Option<&WorkKey>,
    limit: u32,
) -> Result<Vec<PendingFact>, StoreError> {
    let at = StoreError::at("pending.page");
    let (binding, scope) = after.map_or(("", ""), |key| (key.binding.as_str(), key.scope.as_str()));
    let mut reader = store.database.read().await.map_err(&at)?;
    let parameters = values![binding, scope, i64::from(limit)];
    let rows = reader.query(PAGE, parameters).await.map_err(&at)?;
    rows.iter().map(fact).collect()
}

/// What is known of the keys in `$pending`, a table or a page of one. The page is cut before anything is
/// joined to it; the hint keeps OceanBase from reading whole tables for the joins, and SQLite takes it
/// for a comment.
macro_rules! facts {
    ($pending:literal) => {
        concat!(
            "SELECT /*+ LEADING(pending place budget) USE_NL(place budget) */ pending.binding_name, \
             pending.scope_id, pending.source_through, pending.flush_generation, \
             pending.handled_flush_generation, coalesce(place.position, 0), budget.attempts, \
             budget.failure_code FROM ",
            $pending,
            " AS pending LEFT JOIN pc_source_cursors AS place \
               ON place.scope_id = pending.scope_id AND place.binding_name = pending.binding_name \
             LEFT JOIN pc_topic_memory_work_budgets AS budget \
               ON budget.scope_id = pending.scope_id AND budget.binding_name = pending.binding_name \
               AND budget.source_after = coalesce(place.position, 0) "
        )
    };
}

pub(crate) const GET: &str = concat!(
    facts!("pc_artifact_processing_pending"),
    "WHERE pending.binding_name = ? AND pending.scope_id = ?"
);

/// OceanBase has no partial index; an indexed column says the same.
pub(crate) const PAGE: Twin = Twin {
    sqlite: concat!(
        facts!(
            "(SELECT binding_name, scope_id, source_through, flush_generation, handled_flush_generation \
              FROM pc_artifact_processing_pending WHERE handled_flush_generation < flush_generation \
              AND (binding_name, scope_id) > (?, ?) ORDER BY binding_name, scope_id LIMIT ?)"
        ),
        "ORDER BY pending.binding_name, pending.scope_id"
    ),
    oceanbase: concat!(
        facts!(
            "(SELECT binding_name, scope_id, source_through, flush_generation, handled_flush_generation \
              FROM pc_artifact_processing_pending WHERE asked = 1 \
              AND (binding_name, scope_id) > (?, ?) ORDER BY binding_name, scope_id LIMIT ?)"
        ),
        "ORDER BY pending.binding_name, pending.scope_id"
    ),
};

/// Answers the flushes of a key whose Cursor covers everything, and removes its row (TM-170). Does
/// nothing while Sources remain, or when the row is gone.
///
/// # Errors
/// [`SettleError`]; nothing is written then.
pub async fn settle(store: &Store, fence: &Fence, key: &WorkKey) -> Result<(), SettleError> {
    store.database.transact("pending.settle", |tx| settle_in(tx, fence, key)).await
}

async fn settle_in(mut tx: Transaction, fence: &Fence, key: &WorkKey) -> Result<(), SettleError> {
    let at = StoreError::at("pending.settle");
    if !leases::is_current(&mut tx, fence).await.map_err(&at)? {
        return Err(SettleError::Fenced);
    }
    let cursor = cursors::lock(&mut tx, key).await.map_err(&at)?;
    let parameters = values![key.binding.as_str(), key.scope.as_str(), cursor.get()];
    let removed = tx.execute(SETTLE, parameters).await.map_err(&at)?;
    if !leases::hold(&mut tx, fence).await.map_err(&at)? {
        return Err(SettleError::Fenced);
    }
    tracing::debug!(binding = %key.binding, scope = %key.scope, removed, "settled pending row");
    tx.commit().await.map_err(&at)?;
    Ok(())
}

pub(crate) const SETTLE: &str = "DELETE FROM pc_artifact_processing_pending \
    WHERE binding_name = ? AND scope_id = ? AND source_through <= ?";

/// What a published Window of an explicit wave does to its Pending row, in the publish transaction.
///
/// Before the wave target nothing changes. The last Window answers the claimed flushes, never more
/// than were asked for (TM-167, B-18), and removes the row when nothing is left to do (TM-170,
/// TM-171). An absent row is done.
pub(crate) async fn answer(
    tx: &mut Transaction,
    key: &WorkKey,
    window: Window,
    wave: (Position, FlushGeneration),
) -> Result<(), DatabaseError> {
    let (wave_target, claimed) = wave;
    if window.through < wave_target {
        return Ok(());
    }
    tx.execute(ANSWER, values![claimed.get(), key.binding.as_str(), key.scope.as_str()]).await?;
    let parameters = values![key.binding.as_str(), key.scope.as_str(), window.through.get()];
    tx.execute(REMOVE_ANSWERED, parameters).await?;
    Ok(())
}

/// The scalar minimum and maximum have other names on OceanBase.
pub(crate) const ANSWER: Twin = Twin {
    sqlite: "UPDATE pc_artifact_processing_pending SET handled_flush_generation = \
        min(flush_generation, max(handled_flush_generation, ?)) WHERE binding_name = ? AND scope_id = ?",
    oceanbase: "UPDATE pc_artifact_processing_pending SET handled_flush_generation = \
        least(flush_generation, greatest(handled_flush_generation, ?)) WHERE binding_name = ? AND scope_id = ?",
};

pub(crate) const REMOVE_ANSWERED: &str = "DELETE FROM pc_artifact_processing_pending \
    WHERE binding_name = ? AND scope_id = ? \
    AND source_through <= ? AND handled_flush_generation = flush_generation";

/// The facts in the first eight columns of a row.
pub(crate) fn fact(row: &Row) -> Result<PendingFact, StoreError> {
    let at = StoreError::at("pending.row");
    let invalid = |_| StoreError::invalid("a pending row's key is not an identity");
    let attempts = row.optional_integer(6).map_err(&at)?.unwrap_or(0);
    // One damaged budget row must not hide the other keys of a page; its own attempt reports it.
    let failure = row.optional_text(7).map_err(&at)?.and_then(|name| budgets::known_code(&name));
    Ok(PendingFact {
        key: WorkKey {
            binding: BindingName::parse(row.text(0).map_err(&at)?).map_err(invalid)?,
            scope: ScopeId::parse(row.text(1).map_err(&at)?).map_err(invalid)?,
        },
        source_through: Position::new(row.integer(2).map_err(&at)?),
        flush_generation: FlushGeneration::new(row.integer(3).map_err(&at)?),
        handled_flush_generation: FlushGeneration::new(row.integer(4).map_err(&at)?),
        cursor: Position::new(row.integer(5).map_err(&at)?),
        terminal: budgets::closed_by(attempts, failure),
    })
}
