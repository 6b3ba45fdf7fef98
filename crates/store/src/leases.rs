//! The leadership term: whose publishes count (TM-180 to TM-186).
//!
//! SQLite neither elects nor renews: each start of the embedded supervisor overwrites the holder
//! and begins a new term, and a worker is checked for holder and generation alone. Deciding who
//! may lead is left to the supervisor.

use powercontext_core::ids::{HolderId, SupervisorGeneration};
use powercontext_core::work::Fence;

use crate::database::{Transaction, values};
use crate::{DatabaseError, Store, StoreError};

/// The one supervisor group there is.
const GROUP: &str = "global";

/// Begins the next term for the supervisor of this process; every older term ends (TM-185).
///
/// # Errors
/// [`StoreError`] when the database cannot be written.
pub async fn begin_embedded_term(
    store: &Store,
    holder: &HolderId,
) -> Result<SupervisorGeneration, StoreError> {
    let at = StoreError::at("leases.begin_embedded_term");
    let mut tx = store.database.write().await.map_err(&at)?;
    let row = tx
        .query_one(
            "INSERT INTO pc_artifact_processing_leases \
             (supervisor_group, holder_id, supervisor_generation, lease_expires_at) VALUES (?, ?, 1, NULL) \
             ON CONFLICT (supervisor_group) DO UPDATE SET holder_id = excluded.holder_id, \
             supervisor_generation = supervisor_generation + 1, lease_expires_at = NULL \
             RETURNING supervisor_generation",
            values![GROUP, holder.as_str()],
        )
        .await
        .map_err(&at)?
        .ok_or(StoreError::invalid("the lease row vanished while it was written"))?;
    let generation = SupervisorGeneration::new(row.integer(0).map_err(&at)?);
    tx.commit().await.map_err(&at)?;
    Ok(generation)
}

/// Temporary.
///
/// # Errors
/// Always.
pub async fn acquire(
    _store: &Store,
    _holder: &HolderId,
    _ttl: std::time::Duration,
) -> Result<Option<SupervisorGeneration>, StoreError> {
    Err(StoreError::invalid("not yet"))
}

/// Temporary.
///
/// # Errors
/// Always.
pub async fn renew(_store: &Store, _fence: &Fence, _ttl: std::time::Duration) -> Result<bool, StoreError> {
    Err(StoreError::invalid("not yet"))
}

/// Temporary.
///
/// # Errors
/// Always.
pub async fn release(_store: &Store, _fence: &Fence) -> Result<bool, StoreError> {
    Err(StoreError::invalid("not yet"))
}

/// The current term, or `None` before the first.
///
/// # Errors
/// [`StoreError`] when the database cannot be read or holds an impossible identity.
pub async fn current(store: &Store) -> Result<Option<Fence>, StoreError> {
    let at = StoreError::at("leases.current");
    let mut reader = store.database.read().await.map_err(&at)?;
    let row = reader
        .query_one(
            "SELECT holder_id, supervisor_generation FROM pc_artifact_processing_leases \
             WHERE supervisor_group = ?",
            values![GROUP],
        )
        .await
        .map_err(&at)?;
    let Some(row) = row else { return Ok(None) };
    let holder = HolderId::parse(row.text(0).map_err(&at)?)
        .map_err(|_| StoreError::invalid("the lease holder is not an identity"))?;
    Ok(Some(Fence { holder, generation: SupervisorGeneration::new(row.integer(1).map_err(&at)?) }))
}

/// Whether the fence is current, without taking a lock: catches almost every stale worker early.
pub(crate) async fn is_current(tx: &mut Transaction, fence: &Fence) -> Result<bool, DatabaseError> {
    let parameters = values![GROUP, fence.holder.as_str(), fence.generation.get()];
    Ok(tx.query_one(IS_CURRENT, parameters).await?.is_some())
}

/// Whether the fence is current, and keeps it so until this transaction ends. Always the last
/// statement before the commit.
///
/// Writes the row as it is, so the row is locked on any database; no affected row means that
/// another term began.
pub(crate) async fn hold(tx: &mut Transaction, fence: &Fence) -> Result<bool, DatabaseError> {
    let parameters = values![GROUP, fence.holder.as_str(), fence.generation.get()];
    Ok(tx.execute(HOLD, parameters).await? == 1)
}

pub(crate) const IS_CURRENT: &str = "SELECT 1 FROM pc_artifact_processing_leases \
    WHERE supervisor_group = ? AND holder_id = ? AND supervisor_generation = ?";

pub(crate) const HOLD: &str = "UPDATE pc_artifact_processing_leases \
    SET supervisor_generation = supervisor_generation \
    WHERE supervisor_group = ? AND holder_id = ? AND supervisor_generation = ?";
