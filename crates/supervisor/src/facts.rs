//! The durable facts a supervisor lives by, and the few durable things it does.
//!
//! The trait is the seam for tests that break the database; the one implementation forwards to the
//! store and adds nothing.

use std::time::Duration;

use async_trait::async_trait;
use powercontext_core::ids::{HolderId, ScopeId, SupervisorGeneration};
use powercontext_core::work::{Fence, WorkKey};
pub use powercontext_store::pending::PendingFact;
use powercontext_store::pending::{self, SettleError};
use powercontext_store::waves::{self, WaveError};
pub use powercontext_store::waves::{AutoWave, Completion, Freeze, LateFact, TargetFact};
use powercontext_store::{Store, StoreError, leases};

/// Why a durable read or write did not happen.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// Another term is current; this supervisor may do nothing any more.
    #[error("the leadership term is no longer current")]
    TermLost,
    /// The database failed; the source says how.
    #[error("the database cannot be used by the supervisor")]
    Database(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Reads and writes of the supervisor.
#[async_trait]
pub trait DurableFacts: Send + Sync {
    /// Whether other supervisors may use this database too, so that leadership is elected.
    fn is_shared(&self) -> bool;

    /// Begins a new term for this process, on a database that is not shared (TM-185).
    ///
    /// # Errors
    /// [`FactsError::Database`].
    async fn begin_term(&self, holder: &HolderId) -> Result<SupervisorGeneration, FactsError>;

    /// Takes the lease for `ttl` and begins a term; `None` while a term is valid (TM-183, TM-188).
    ///
    /// # Errors
    /// [`FactsError::Database`]; the lease may be taken all the same, by a term that nobody leads.
    async fn acquire(
        &self,
        holder: &HolderId,
        ttl: Duration,
    ) -> Result<Option<SupervisorGeneration>, FactsError>;

    /// Lets the lease last `ttl` from now; `false` when the term is over (TM-183).
    ///
    /// # Errors
    /// [`FactsError::Database`]; the lease may be renewed all the same.
    async fn renew(&self, fence: &Fence, ttl: Duration) -> Result<bool, FactsError>;

    /// Ends the term now; `false` when it was over already.
    ///
    /// # Errors
    /// [`FactsError::Database`]; the term may be over all the same.
    async fn release(&self, fence: &Fence) -> Result<bool, FactsError>;

    /// The term that is current now.
    ///
    /// # Errors
    /// [`FactsError::Database`].
    async fn current_term(&self) -> Result<Option<Fence>, FactsError>;

    /// At most `limit` rows with an unanswered flush behind `after`, in key order.
    ///
    /// # Errors
    /// [`FactsError::Database`].
    async fn page(&self, after: Option<&WorkKey>, limit: usize) -> Result<Vec<PendingFact>, FactsError>;

    /// What is known of one key, its flushes answered or not; absent only when it has no Pending row,
    /// which means that its Cursor covers every Source.
    ///
    /// # Errors
    /// [`FactsError::Database`].
    async fn observe(&self, key: &WorkKey) -> Result<Option<PendingFact>, FactsError>;

    /// Marks the flushes of a covered key as answered (TM-170).
    ///
    /// # Errors
    /// [`FactsError`].
    async fn settle(&self, fence: &Fence, key: &WorkKey) -> Result<(), FactsError>;

    /// Removes the targets of every wave, and tells how many there were (TM-206).
    ///
    /// # Errors
    /// [`FactsError`].
    async fn clear_waves(&self, fence: &Fence) -> Result<u64, FactsError>;

    /// Freezes every Pending row of the binding as the wave's targets, when the binding is due
    /// (TM-204, TM-207). Repeating it with the same identity is safe.
    ///
    /// # Errors
    /// [`FactsError`].
    async fn freeze_wave(
        &self,
        fence: &Fence,
        wave: &AutoWave,
        interval: Duration,
    ) -> Result<Freeze, FactsError>;

    /// At most `limit` uncompleted targets behind `after`, in Scope order (TM-207).
    ///
    /// # Errors
    /// [`FactsError::Database`].
    async fn wave_targets(
        &self,
        wave: &AutoWave,
        after: Option<&ScopeId>,
        limit: usize,
    ) -> Result<Vec<TargetFact>, FactsError>;

    /// Marks targets that their Cursor covers; others stay as they are.
    ///
    /// # Errors
    /// [`FactsError`].
    async fn mark_covered(
        &self,
        fence: &Fence,
        wave: &AutoWave,
        scopes: &[ScopeId],
    ) -> Result<u64, FactsError>;

    /// Completes the wave when every target is covered (TM-208, TM-214).
    ///
    /// # Errors
    /// [`FactsError`].
    async fn complete_wave(&self, fence: &Fence, wave: &AutoWave) -> Result<Completion, FactsError>;

    /// At most `limit` live Pending rows of the wave's binding behind `after`, in Scope order
    /// (TM-212).
    ///
    /// # Errors
    /// [`FactsError::Database`].
    async fn late_page(
        &self,
        wave: &AutoWave,
        after: Option<&ScopeId>,
        limit: usize,
    ) -> Result<Vec<LateFact>, FactsError>;
}

#[async_trait]
impl DurableFacts for Store {
    fn is_shared(&self) -> bool {
        Store::is_shared(self)
    }

    async fn begin_term(&self, holder: &HolderId) -> Result<SupervisorGeneration, FactsError> {
        leases::begin_embedded_term(self, holder).await.map_err(database)
    }

    async fn acquire(
        &self,
        holder: &HolderId,
        ttl: Duration,
    ) -> Result<Option<SupervisorGeneration>, FactsError> {
        leases::acquire(self, holder, ttl).await.map_err(database)
    }

    async fn renew(&self, fence: &Fence, ttl: Duration) -> Result<bool, FactsError> {
        leases::renew(self, fence, ttl).await.map_err(database)
    }

    async fn release(&self, fence: &Fence) -> Result<bool, FactsError> {
        leases::release(self, fence).await.map_err(database)
    }

    async fn current_term(&self) -> Result<Option<Fence>, FactsError> {
        leases::current(self).await.map_err(database)
    }

    async fn page(&self, after: Option<&WorkKey>, limit: usize) -> Result<Vec<PendingFact>, FactsError> {
        pending::page(self, after, rows(limit)).await.map_err(database)
    }

    async fn observe(&self, key: &WorkKey) -> Result<Option<PendingFact>, FactsError> {
        pending::get(self, key).await.map_err(database)
    }

    async fn settle(&self, fence: &Fence, key: &WorkKey) -> Result<(), FactsError> {
        pending::settle(self, fence, key).await.map_err(|error| match error {
            SettleError::Fenced => FactsError::TermLost,
            SettleError::Store(error) => database(error),
        })
    }

    async fn clear_waves(&self, fence: &Fence) -> Result<u64, FactsError> {
        waves::clear(self, fence).await.map_err(unless_fenced)
    }

    async fn freeze_wave(
        &self,
        fence: &Fence,
        wave: &AutoWave,
        interval: Duration,
    ) -> Result<Freeze, FactsError> {
        waves::freeze(self, fence, wave, interval).await.map_err(unless_fenced)
    }

    async fn wave_targets(
        &self,
        wave: &AutoWave,
        after: Option<&ScopeId>,
        limit: usize,
    ) -> Result<Vec<TargetFact>, FactsError> {
        waves::targets(self, wave, after, rows(limit)).await.map_err(database)
    }

    async fn mark_covered(
        &self,
        fence: &Fence,
        wave: &AutoWave,
        scopes: &[ScopeId],
    ) -> Result<u64, FactsError> {
        waves::mark_covered(self, fence, wave, scopes).await.map_err(unless_fenced)
    }

    async fn complete_wave(&self, fence: &Fence, wave: &AutoWave) -> Result<Completion, FactsError> {
        waves::complete(self, fence, wave).await.map_err(unless_fenced)
    }

    async fn late_page(
        &self,
        wave: &AutoWave,
        after: Option<&ScopeId>,
        limit: usize,
    ) -> Result<Vec<LateFact>, FactsError> {
        waves::late(self, wave, after, rows(limit)).await.map_err(database)
    }
}

fn rows(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

fn unless_fenced(error: WaveError) -> FactsError {
    match error {
        WaveError::Fenced => FactsError::TermLost,
        WaveError::Store(error) => database(error),
    }
}

fn database(error: StoreError) -> FactsError {
    FactsError::Database(Box::new(error))
}
