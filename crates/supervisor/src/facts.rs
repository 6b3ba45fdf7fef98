//! The durable facts a supervisor lives by, and the few durable things it does.
//!
//! The trait is the seam for tests that break the database; the one implementation forwards to the
//! store and adds nothing.

use async_trait::async_trait;
use powercontext_core::ids::{HolderId, SupervisorGeneration};
use powercontext_core::work::{Fence, WorkKey};
pub use powercontext_store::pending::PendingFact;
use powercontext_store::pending::{self, SettleError};
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
    /// Begins a new term for this process (TM-185).
    ///
    /// # Errors
    /// [`FactsError::Database`].
    async fn begin_term(&self, holder: &HolderId) -> Result<SupervisorGeneration, FactsError>;

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
}

#[async_trait]
impl DurableFacts for Store {
    async fn begin_term(&self, holder: &HolderId) -> Result<SupervisorGeneration, FactsError> {
        leases::begin_embedded_term(self, holder).await.map_err(database)
    }

    async fn current_term(&self) -> Result<Option<Fence>, FactsError> {
        leases::current(self).await.map_err(database)
    }

    async fn page(&self, after: Option<&WorkKey>, limit: usize) -> Result<Vec<PendingFact>, FactsError> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        pending::page(self, after, limit).await.map_err(database)
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
}

fn database(error: StoreError) -> FactsError {
    FactsError::Database(Box::new(error))
}
