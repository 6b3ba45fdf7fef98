//! The leadership term: whose publishes count (TM-180 to TM-186).
//!
//! SQLite neither elects nor renews: each start of the embedded supervisor overwrites the holder
//! and begins a new term, and a worker is checked for holder and generation alone. On OceanBase
//! candidates acquire a lease that expires by the database's clock, the only clock compared here.
//! Deciding when to try, to renew or to step down is left to the supervisor.

use std::time::Duration;

use powercontext_core::ids::{HolderId, SupervisorGeneration};
use powercontext_core::work::Fence;

use crate::database::{Engine, Transaction, Twin, values};
use crate::{DatabaseError, Store, StoreError};

/// The one supervisor group there is.
const GROUP: &str = "global";

/// Begins the next term for the supervisor of this process; every older term ends (TM-185).
///
/// # Errors
/// [`StoreError`] when the database cannot be written, or is a shared one, where a term is won by
/// [`acquire`].
pub async fn begin_embedded_term(
    store: &Store,
    holder: &HolderId,
) -> Result<SupervisorGeneration, StoreError> {
    if store.database.engine() != Engine::Sqlite {
        return Err(StoreError::invalid("an embedded term begins on SQLite only"));
    }
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

/// Takes the lease for `ttl` if nobody's is valid, and begins the next term; `None` means that a
/// term is valid, also when it is the holder's own (TM-183, TM-188).
///
/// # Errors
/// [`StoreError`] when the database cannot be written, or is SQLite, which has no leases. After a
/// failed commit the lease may be taken all the same, by a term that nobody leads until it expires.
pub async fn acquire(
    store: &Store,
    holder: &HolderId,
    ttl: Duration,
) -> Result<Option<SupervisorGeneration>, StoreError> {
    elected(store)?;
    store.database.transact_lease("leases.acquire", |tx| acquire_in(tx, holder, ttl)).await
}

async fn acquire_in(
    mut tx: Transaction,
    holder: &HolderId,
    ttl: Duration,
) -> Result<Option<SupervisorGeneration>, StoreError> {
    let at = StoreError::at("leases.acquire");
    // Read without a lock first, so that candidates do not hold up publishes.
    let valid = "SELECT 1 FROM pc_artifact_processing_leases \
                 WHERE supervisor_group = ? AND lease_expires_at > utc_timestamp(6)";
    if tx.query_one(valid, values![GROUP]).await.map_err(&at)?.is_some() {
        return Ok(None);
    }
    let taken = tx
        .execute(
            "UPDATE pc_artifact_processing_leases \
             SET holder_id = ?, supervisor_generation = supervisor_generation + 1, \
             lease_expires_at = timestampadd(microsecond, ?, utc_timestamp(6)) \
             WHERE supervisor_group = ? AND lease_expires_at <= utc_timestamp(6)",
            values![holder.as_str(), micros(ttl), GROUP],
        )
        .await
        .map_err(&at)?;
    let made = if taken == 1 {
        0
    } else {
        tx.execute(
            "INSERT IGNORE INTO pc_artifact_processing_leases \
             (supervisor_group, holder_id, supervisor_generation, lease_expires_at) \
             VALUES (?, ?, 1, timestampadd(microsecond, ?, utc_timestamp(6)))",
            values![GROUP, holder.as_str(), micros(ttl)],
        )
        .await
        .map_err(&at)?
    };
    if taken + made != 1 {
        return Ok(None);
    }
    let row = tx
        .query_one(
            "SELECT supervisor_generation FROM pc_artifact_processing_leases WHERE supervisor_group = ?",
            values![GROUP],
        )
        .await
        .map_err(&at)?
        .ok_or(StoreError::invalid("the lease row vanished while it was written"))?;
    let generation = SupervisorGeneration::new(row.integer(0).map_err(&at)?);
    tx.commit().await.map_err(&at)?;
    Ok(Some(generation))
}

/// Lets a valid lease last `ttl` from now, in the same term; `false` means that it expired or that
/// another term began, and the holder leads no more (TM-183).
///
/// # Errors
/// [`StoreError`] when the database cannot be written, or is SQLite.
pub async fn renew(store: &Store, fence: &Fence, ttl: Duration) -> Result<bool, StoreError> {
    elected(store)?;
    let until = "UPDATE pc_artifact_processing_leases \
                 SET lease_expires_at = timestampadd(microsecond, ?, utc_timestamp(6)) \
                 WHERE supervisor_group = ? AND holder_id = ? AND supervisor_generation = ? \
                 AND lease_expires_at > utc_timestamp(6)";
    change_own(store, "leases.renew", until, (fence, ttl)).await
}

/// Ends the holder's own term now, so that a follower need not wait for it to expire; `false` means
/// that it was over already.
///
/// # Errors
/// [`StoreError`] when the database cannot be written, or is SQLite.
pub async fn release(store: &Store, fence: &Fence) -> Result<bool, StoreError> {
    elected(store)?;
    // The clock of a statement is the moment it arrived, which the server rounds down to its last look
    // at the clock, some milliseconds ago. A second back, the next statement sees the term as over.
    let now = "UPDATE pc_artifact_processing_leases \
               SET lease_expires_at = timestampadd(microsecond, ?, timestampadd(second, -1, utc_timestamp(6))) \
               WHERE supervisor_group = ? AND holder_id = ? AND supervisor_generation = ? \
               AND lease_expires_at > utc_timestamp(6)";
    change_own(store, "leases.release", now, (fence, Duration::ZERO)).await
}

async fn change_own(
    store: &Store,
    operation: &'static str,
    text: &'static str,
    (fence, ttl): (&Fence, Duration),
) -> Result<bool, StoreError> {
    let change = |mut tx: Transaction| async move {
        let at = StoreError::at(operation);
        let parameters = values![micros(ttl), GROUP, fence.holder.as_str(), fence.generation.get()];
        let affected = tx.execute(text, parameters).await.map_err(&at)?;
        tx.commit().await.map_err(&at)?;
        Ok(affected == 1)
    };
    store.database.transact_lease(operation, change).await
}

/// The newest term, whether or not its lease is still valid; `None` before the first.
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
/// another term began or, on OceanBase, that this one expired.
pub(crate) async fn hold(tx: &mut Transaction, fence: &Fence) -> Result<bool, DatabaseError> {
    let parameters = values![GROUP, fence.holder.as_str(), fence.generation.get()];
    Ok(tx.execute(HOLD, parameters).await? == 1)
}

macro_rules! own_term {
    () => {
        " WHERE supervisor_group = ? AND holder_id = ? AND supervisor_generation = ?"
    };
}

/// Only OceanBase's leases expire (TM-184, TM-186).
macro_rules! valid_term {
    () => {
        concat!(own_term!(), " AND lease_expires_at > utc_timestamp(6)")
    };
}

pub(crate) const IS_CURRENT: Twin = Twin {
    sqlite: concat!("SELECT 1 FROM pc_artifact_processing_leases", own_term!()),
    oceanbase: concat!("SELECT 1 FROM pc_artifact_processing_leases", valid_term!()),
};

pub(crate) const HOLD: Twin = Twin {
    sqlite: concat!(
        "UPDATE pc_artifact_processing_leases SET supervisor_generation = supervisor_generation",
        own_term!()
    ),
    oceanbase: concat!(
        "UPDATE pc_artifact_processing_leases SET supervisor_generation = supervisor_generation",
        valid_term!()
    ),
};

fn elected(store: &Store) -> Result<(), StoreError> {
    match store.database.engine() {
        Engine::OceanBase => Ok(()),
        Engine::Sqlite => Err(StoreError::invalid("a leader is elected on OceanBase only")),
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
