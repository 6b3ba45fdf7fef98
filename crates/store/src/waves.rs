//! Automatic waves: frozen targets, how far they are covered, and the one completion (TM-202 to TM-220).
//!
//! Targets are scratch of one term: Pending, Cursors and the completion time stay the truth, and a new
//! term clears them. Whether a binding is due, what belongs to a wave and when it is complete is decided
//! here, by the database's clock and in one fenced transaction each; when to ask is the supervisor's.
//! Rows are frozen, checked and removed by one statement each, whatever their number. Captures wait for
//! the removal of Pending rows alone: what a completed wave leaves behind is removed after it.

use std::time::Duration;

use powercontext_core::ids::{BindingName, Position, ScopeId, WaveId};
use powercontext_core::work::Fence;

use crate::database::{Transaction, Twin, placeholders, values};
use crate::pending::{self, PendingFact};
use crate::{DatabaseError, Store, StoreError, leases};

/// One automatic wave of one binding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AutoWave {
    /// Whose wave.
    pub binding: BindingName,
    /// Which wave.
    pub id: WaveId,
}

/// What the wish to start a wave led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freeze {
    /// The wave is open and has this many targets.
    Frozen {
        /// How many.
        members: u64,
    },
    /// The last wave was completed less than one interval ago.
    NotDue {
        /// What is left of the interval, by the database's clock.
        remaining: Duration,
    },
    /// The binding has no Pending row.
    NothingPending,
}

/// What the wish to complete a wave led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The completion time is set, and settled Pending rows of the wave are gone.
    Completed {
        /// How many rows.
        removed: u64,
    },
    /// A Cursor does not cover its target yet; nothing was written.
    Uncovered,
    /// The wave has no targets: it was completed before, replaced, or cleared by another term.
    Gone,
}

/// One target that is not completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetFact {
    /// How far the wave must come.
    pub target: Position,
    /// What is known of the key. Without a Pending row, `source_through` is the target and no flush is
    /// unanswered.
    pub fact: PendingFact,
}

/// One Pending row while a wave is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateFact {
    /// What is known of the key.
    pub fact: PendingFact,
    /// The key has a target in the wave that is not completed.
    pub held: bool,
}

/// Why a wave was not changed. Nothing was written, unless the store lost the answer to the commit.
#[derive(Debug, thiserror::Error)]
pub enum WaveError {
    /// The term is over.
    #[error("the leadership term is over")]
    Fenced,
    /// The store failed.
    #[error("failed to change an automatic wave")]
    Store(#[from] StoreError),
}

/// Removes the targets of every wave: a new term freezes anew from Pending (TM-206).
///
/// # Errors
/// [`WaveError`].
pub async fn clear(store: &Store, fence: &Fence) -> Result<u64, WaveError> {
    store.database.transact_long("waves.clear", |tx| clear_in(tx, fence)).await
}

async fn clear_in(mut tx: Transaction, fence: &Fence) -> Result<u64, WaveError> {
    let at = StoreError::at("waves.clear");
    begin(&mut tx, fence).await?;
    let removed = tx.execute(CLEAR, values![]).await.map_err(&at)?;
    finish(tx, fence).await?;
    Ok(removed)
}

/// Starts a wave when the binding is due and has Pending rows: all of them become its targets, each with
/// its `source_through` of this moment, answered or not (TM-204, TM-207, B-31).
///
/// Repeating it with the same wave after a lost reply is safe; it replaces any other wave of the binding.
///
/// # Errors
/// [`WaveError`].
pub async fn freeze(
    store: &Store,
    fence: &Fence,
    wave: &AutoWave,
    interval: Duration,
) -> Result<Freeze, WaveError> {
    // Asked again and again while nothing is due, so first without a transaction.
    let mut reader = store.database.read().await.map_err(StoreError::at("waves.due"))?;
    let refused = refusal(&mut reader, wave, interval).await.map_err(StoreError::at("waves.due"))?;
    drop(reader);
    match refused {
        Some(refused) => Ok(refused),
        None => store.database.transact_long("waves.freeze", |tx| freeze_in(tx, fence, wave, interval)).await,
    }
}

async fn freeze_in(
    mut tx: Transaction,
    fence: &Fence,
    wave: &AutoWave,
    interval: Duration,
) -> Result<Freeze, WaveError> {
    let at = StoreError::at("waves.freeze");
    begin(&mut tx, fence).await?;
    if let Some(refused) = refusal(&mut tx, wave, interval).await.map_err(&at)? {
        return Ok(refused);
    }
    tx.execute(REMOVE_TARGETS, values![wave.binding.as_str()]).await.map_err(&at)?;
    let parameters = values![wave.id.as_str(), wave.binding.as_str()];
    let members = tx.execute(FREEZE, parameters).await.map_err(&at)?;
    if members == 0 {
        return Ok(Freeze::NothingPending);
    }
    if !leases::hold(&mut tx, fence).await.map_err(&at)? {
        return Err(WaveError::Fenced);
    }
    // A completion of this term whose answer was lost may have committed meanwhile; it held the lease too,
    // so none can from here on.
    if let Some(refused) = refusal(&mut tx, wave, interval).await.map_err(&at)? {
        return Ok(refused);
    }
    tx.commit().await.map_err(&at)?;
    Ok(Freeze::Frozen { members })
}

/// Why no wave may start now; `None` when one may.
async fn refusal(
    tx: &mut Transaction,
    wave: &AutoWave,
    interval: Duration,
) -> Result<Option<Freeze>, DatabaseError> {
    let binding = wave.binding.as_str();
    if tx.query_one(ANY_PENDING, values![binding]).await?.is_none() {
        return Ok(Some(Freeze::NothingPending));
    }
    let row = tx.query_one(SINCE_COMPLETION, values![binding]).await?;
    let elapsed = row.map_or(Ok(None), |row| row.optional_integer(0))?;
    Ok(remaining(elapsed, interval).map(|remaining| Freeze::NotDue { remaining }))
}

/// What is left of the interval; `None` once the binding is due, also before its first completion.
///
/// A completion in the database's future, after its clock was set back, waits one interval at most.
fn remaining(elapsed_micros: Option<i64>, interval: Duration) -> Option<Duration> {
    let elapsed = Duration::from_micros(u64::try_from(elapsed_micros?.max(0)).unwrap_or(0));
    (elapsed < interval).then(|| interval.saturating_sub(elapsed))
}

/// At most `limit` targets of the wave that are not completed, behind `after`, ascending by Scope
/// (TM-207).
///
/// # Errors
/// [`StoreError`] when the database cannot be read.
pub async fn targets(
    store: &Store,
    wave: &AutoWave,
    after: Option<&ScopeId>,
    limit: u32,
) -> Result<Vec<TargetFact>, StoreError> {
    let at = StoreError::at("waves.targets");
    let mut reader = store.database.read().await.map_err(&at)?;
    let after = after.map_or("", ScopeId::as_str);
    let parameters = values![wave.id.as_str(), wave.binding.as_str(), after, i64::from(limit)];
    let rows = reader.query(TARGETS, parameters).await.map_err(&at)?;
    rows.iter()
        .map(|row| {
            Ok(TargetFact { fact: pending::fact(row)?, target: Position::new(row.integer(8).map_err(&at)?) })
        })
        .collect()
}

/// Completes those of the given targets that their Cursor covers, and tells how many. Meant for a page
/// of Scopes at a time.
///
/// # Errors
/// [`WaveError`].
pub async fn mark_covered(
    store: &Store,
    fence: &Fence,
    wave: &AutoWave,
    scopes: &[ScopeId],
) -> Result<u64, WaveError> {
    if scopes.is_empty() {
        return Ok(0);
    }
    store.database.transact("waves.mark_covered", |tx| mark_in(tx, fence, wave, scopes)).await
}

async fn mark_in(
    mut tx: Transaction,
    fence: &Fence,
    wave: &AutoWave,
    scopes: &[ScopeId],
) -> Result<u64, WaveError> {
    let at = StoreError::at("waves.mark_covered");
    begin(&mut tx, fence).await?;
    // Some Scopes are named twice, so that the text comes in few lengths.
    let listed = scopes.len().next_power_of_two();
    let mut parameters = values![wave.id.as_str(), wave.binding.as_str()];
    parameters.extend(scopes.iter().cycle().take(listed).map(|scope| scope.as_str().into()));
    let text = format!("{MARK_COVERED} AND scope_id IN ({})", placeholders(listed));
    let marked = tx.execute(text, parameters).await.map_err(&at)?;
    finish(tx, fence).await?;
    Ok(marked)
}

/// Completes the wave when every Cursor covers its target: sets the completion time by the database's
/// clock and removes the wave's settled Pending rows, both or neither (TM-208, TM-211, TM-214).
///
/// A row that a newer Source raised, or whose flush is not answered, stays, and so do rows that came after
/// the freeze. Completing again after a lost reply is safe: at most it sets the time again.
///
/// # Errors
/// [`WaveError`].
pub async fn complete(store: &Store, fence: &Fence, wave: &AutoWave) -> Result<Completion, WaveError> {
    let completion =
        store.database.transact_long("waves.complete", |tx| complete_in(tx, fence, wave)).await?;
    if matches!(completion, Completion::Completed { .. }) {
        // Not in the same transaction, because captures wait for the removed Pending rows until it ends.
        let forgotten = store.database.transact_long("waves.forget", |tx| forget_in(tx, fence, wave)).await;
        if let Err(error) = forgotten {
            // The binding's next freeze removes them, or the next term.
            tracing::debug!(?error, wave = %wave.id, "targets of a completed wave stay");
        }
    }
    Ok(completion)
}

async fn complete_in(mut tx: Transaction, fence: &Fence, wave: &AutoWave) -> Result<Completion, WaveError> {
    let at = StoreError::at("waves.complete");
    begin(&mut tx, fence).await?;
    let (id, binding) = (wave.id.as_str(), wave.binding.as_str());
    if tx.query_one(ANY_TARGET, values![id, binding]).await.map_err(&at)?.is_none() {
        return Ok(Completion::Gone);
    }
    if tx.query_one(UNCOVERED, values![id, binding]).await.map_err(&at)?.is_some() {
        return Ok(Completion::Uncovered);
    }
    let removed = tx.execute(REMOVE_SETTLED, values![binding, id]).await.map_err(&at)?;
    tx.execute(COMPLETED_NOW, values![binding]).await.map_err(&at)?;
    finish(tx, fence).await?;
    Ok(Completion::Completed { removed })
}

async fn forget_in(mut tx: Transaction, fence: &Fence, wave: &AutoWave) -> Result<(), WaveError> {
    let at = StoreError::at("waves.forget");
    begin(&mut tx, fence).await?;
    tx.execute(FORGET, values![wave.id.as_str(), wave.binding.as_str()]).await.map_err(&at)?;
    finish(tx, fence).await
}

/// At most `limit` Pending rows of the wave's binding behind `after`, ascending by Scope, whether they
/// belong to the wave or not (TM-212).
///
/// # Errors
/// [`StoreError`] when the database cannot be read.
pub async fn late(
    store: &Store,
    wave: &AutoWave,
    after: Option<&ScopeId>,
    limit: u32,
) -> Result<Vec<LateFact>, StoreError> {
    let at = StoreError::at("waves.late");
    let mut reader = store.database.read().await.map_err(&at)?;
    let after = after.map_or("", ScopeId::as_str);
    let parameters = values![wave.binding.as_str(), after, i64::from(limit), wave.id.as_str()];
    let rows = reader.query(LATE, parameters).await.map_err(&at)?;
    rows.iter()
        .map(|row| Ok(LateFact { fact: pending::fact(row)?, held: row.integer(8).map_err(&at)? == 1 }))
        .collect()
}

/// Refuses a stale term before anything is written.
async fn begin(tx: &mut Transaction, fence: &Fence) -> Result<(), WaveError> {
    let current = leases::is_current(tx, fence).await.map_err(StoreError::at("waves.fence"))?;
    if current { Ok(()) } else { Err(WaveError::Fenced) }
}

/// Commits while the term is still current.
async fn finish(mut tx: Transaction, fence: &Fence) -> Result<(), WaveError> {
    let at = StoreError::at("waves.commit");
    if !leases::hold(&mut tx, fence).await.map_err(&at)? {
        return Err(WaveError::Fenced);
    }
    tx.commit().await.map_err(&at)?;
    Ok(())
}

const CLEAR: &str = "DELETE FROM pc_artifact_processing_auto_wave_targets";

const ANY_PENDING: &str = "SELECT 1 FROM pc_artifact_processing_pending WHERE binding_name = ? LIMIT 1";

/// Microseconds since the last completion; each database reads its own clock.
const SINCE_COMPLETION: Twin = Twin {
    sqlite: "SELECT CAST(round((unixepoch('now', 'subsec') \
        - unixepoch(last_auto_wave_completed_at, 'subsec')) * 1000000) AS INTEGER) \
        FROM pc_artifact_processing_binding_states WHERE binding_name = ?",
    oceanbase: "SELECT timestampdiff(microsecond, last_auto_wave_completed_at, utc_timestamp(6)) \
        FROM pc_artifact_processing_binding_states WHERE binding_name = ?",
};

const REMOVE_TARGETS: &str = "DELETE FROM pc_artifact_processing_auto_wave_targets WHERE binding_name = ?";

pub(crate) const FORGET: &str =
    "DELETE FROM pc_artifact_processing_auto_wave_targets WHERE wave_id = ? AND binding_name = ?";

macro_rules! freeze {
    ($repeated:literal) => {
        concat!(
            "INSERT INTO pc_artifact_processing_auto_wave_targets \
             (wave_id, binding_name, scope_id, source_through, completed) \
             SELECT ?, binding_name, scope_id, source_through, FALSE \
             FROM pc_artifact_processing_pending WHERE binding_name = ?",
            $repeated
        )
    };
}

/// A freeze whose answer was lost may still be under way on a server; what it freezes stands, and counts.
pub(crate) const FREEZE: Twin =
    Twin { sqlite: freeze!(""), oceanbase: freeze!(" ON DUPLICATE KEY UPDATE completed = completed") };

/// The page is cut before anything is joined to it. The hint keeps OceanBase from reading whole tables for
/// the joins; SQLite takes it for a comment.
pub(crate) const TARGETS: &str = "SELECT /*+ LEADING(target pending place budget) USE_NL(pending place budget) */ \
    target.binding_name, target.scope_id, coalesce(pending.source_through, target.source_through), \
    coalesce(pending.flush_generation, 0), coalesce(pending.handled_flush_generation, 0), \
    coalesce(place.position, 0), budget.attempts, budget.failure_code, target.source_through \
    FROM (SELECT binding_name, scope_id, source_through FROM pc_artifact_processing_auto_wave_targets \
      WHERE wave_id = ? AND binding_name = ? AND completed = FALSE AND scope_id > ? \
      ORDER BY scope_id LIMIT ?) AS target \
    LEFT JOIN pc_artifact_processing_pending AS pending \
      ON pending.binding_name = target.binding_name AND pending.scope_id = target.scope_id \
    LEFT JOIN pc_source_cursors AS place \
      ON place.scope_id = target.scope_id AND place.binding_name = target.binding_name \
    LEFT JOIN pc_topic_memory_work_budgets AS budget \
      ON budget.scope_id = target.scope_id AND budget.binding_name = target.binding_name \
      AND budget.source_after = coalesce(place.position, 0) \
    ORDER BY target.scope_id";

/// Cut and hinted like the page of targets.
pub(crate) const LATE: &str = "SELECT /*+ LEADING(pending place budget target) USE_NL(place budget target) */ \
    pending.binding_name, pending.scope_id, pending.source_through, pending.flush_generation, \
    pending.handled_flush_generation, coalesce(place.position, 0), budget.attempts, budget.failure_code, \
    target.scope_id IS NOT NULL \
    FROM (SELECT binding_name, scope_id, source_through, flush_generation, handled_flush_generation \
      FROM pc_artifact_processing_pending WHERE binding_name = ? AND scope_id > ? \
      ORDER BY scope_id LIMIT ?) AS pending \
    LEFT JOIN pc_source_cursors AS place \
      ON place.scope_id = pending.scope_id AND place.binding_name = pending.binding_name \
    LEFT JOIN pc_topic_memory_work_budgets AS budget \
      ON budget.scope_id = pending.scope_id AND budget.binding_name = pending.binding_name \
      AND budget.source_after = coalesce(place.position, 0) \
    LEFT JOIN pc_artifact_processing_auto_wave_targets AS target \
      ON target.wave_id = ? AND target.binding_name = pending.binding_name \
      AND target.scope_id = pending.scope_id AND target.completed = FALSE \
    ORDER BY pending.scope_id";

pub(crate) const MARK_COVERED: &str = "UPDATE pc_artifact_processing_auto_wave_targets SET completed = TRUE \
    WHERE wave_id = ? AND binding_name = ? AND completed = FALSE \
    AND source_through <= (SELECT position FROM pc_source_cursors AS place \
      WHERE place.scope_id = pc_artifact_processing_auto_wave_targets.scope_id \
      AND place.binding_name = pc_artifact_processing_auto_wave_targets.binding_name)";

const ANY_TARGET: &str = "SELECT 1 FROM pc_artifact_processing_auto_wave_targets \
    WHERE wave_id = ? AND binding_name = ? LIMIT 1";

/// Marks are not trusted: every target is compared with its Cursor (TM-214). The hint keeps OceanBase from
/// reading the Cursors of all Scopes there are.
pub(crate) const UNCOVERED: &str = "SELECT /*+ LEADING(target place) USE_NL(place) */ 1 \
    FROM pc_artifact_processing_auto_wave_targets AS target \
    LEFT JOIN pc_source_cursors AS place \
      ON place.scope_id = target.scope_id AND place.binding_name = target.binding_name \
    WHERE target.wave_id = ? AND target.binding_name = ? \
    AND coalesce(place.position, 0) < target.source_through LIMIT 1";

/// Every Cursor covers its target, and so does a row that no newer Source raised above the target.
pub(crate) const REMOVE_SETTLED: &str = "DELETE FROM pc_artifact_processing_pending \
    WHERE binding_name = ? AND handled_flush_generation = flush_generation \
    AND EXISTS (SELECT 1 FROM pc_artifact_processing_auto_wave_targets AS target \
      WHERE target.wave_id = ? AND target.binding_name = pc_artifact_processing_pending.binding_name \
      AND target.scope_id = pc_artifact_processing_pending.scope_id \
      AND target.source_through >= pc_artifact_processing_pending.source_through)";

/// The upsert has another name, and the clock another form.
const COMPLETED_NOW: Twin = Twin {
    sqlite: "INSERT INTO pc_artifact_processing_binding_states (binding_name, last_auto_wave_completed_at) \
        VALUES (?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) \
        ON CONFLICT (binding_name) DO UPDATE \
        SET last_auto_wave_completed_at = excluded.last_auto_wave_completed_at",
    oceanbase: "INSERT INTO pc_artifact_processing_binding_states (binding_name, last_auto_wave_completed_at) \
        VALUES (?, utc_timestamp(6)) ON DUPLICATE KEY UPDATE \
        last_auto_wave_completed_at = values(last_auto_wave_completed_at)",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_is_due_from_the_end_of_its_interval_on_and_before_its_first_completion() {
        // TM-204 TM-192
        let interval = Duration::from_secs(60);
        let left = |micros: i64| remaining(Some(micros), interval);
        assert_eq!(remaining(None, interval), None);
        assert_eq!(left(0), Some(interval));
        assert_eq!(left(59_999_999), Some(Duration::from_micros(1)));
        assert_eq!(left(60_000_000), None);
        assert_eq!(left(i64::MAX), None);
        assert_eq!(left(-5_000_000), Some(interval), "a clock set back costs one interval at most");
    }
}
