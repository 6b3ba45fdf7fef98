//! Temporary.

use std::time::Duration;

use powercontext_core::ids::{BindingName, Position, ScopeId, WaveId};
use powercontext_core::work::Fence;

use crate::pending::PendingFact;
use crate::{Store, StoreError};

/// One automatic wave of one binding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AutoWave {
    /// Whose wave.
    pub binding: BindingName,
    /// Which wave.
    pub id: WaveId,
}

/// What a freeze found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freeze {
    /// The wave is open.
    Frozen {
        /// Its targets.
        members: u64,
    },
    /// Too early.
    NotDue {
        /// How long.
        remaining: Duration,
    },
    /// Nothing to do.
    NothingPending,
}

/// What a completion found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Done.
    Completed {
        /// Pending rows removed.
        removed: u64,
    },
    /// A target is not covered.
    Uncovered,
    /// No targets of this wave exist.
    Gone,
}

/// A frozen target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetFact {
    /// How far the wave must go.
    pub target: Position,
    /// The facts of the key.
    pub fact: PendingFact,
}

/// A live Pending row of the binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateFact {
    /// The facts of the key.
    pub fact: PendingFact,
    /// The key has an uncompleted target in the wave.
    pub held: bool,
}

/// Why a wave was not changed.
#[derive(Debug, thiserror::Error)]
pub enum WaveError {
    /// Another term is current.
    #[error("fenced")]
    Fenced,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn not_yet<T, E: From<StoreError>>() -> Result<T, E> {
    Err(E::from(StoreError::invalid("not yet")))
}

/// Temporary.
///
/// # Errors
/// Always.
pub async fn clear(_store: &Store, _fence: &Fence) -> Result<u64, WaveError> {
    not_yet()
}

/// Temporary.
///
/// # Errors
/// Always.
pub async fn freeze(
    _store: &Store,
    _fence: &Fence,
    _wave: &AutoWave,
    _interval: Duration,
) -> Result<Freeze, WaveError> {
    not_yet()
}

/// Temporary.
///
/// # Errors
/// Always.
pub async fn targets(
    _store: &Store,
    _wave: &AutoWave,
    _after: Option<&ScopeId>,
    _limit: u32,
) -> Result<Vec<TargetFact>, StoreError> {
    not_yet()
}

/// Temporary.
///
/// # Errors
/// Always.
pub async fn mark_covered(
    _store: &Store,
    _fence: &Fence,
    _wave: &AutoWave,
    _scopes: &[ScopeId],
) -> Result<u64, WaveError> {
    not_yet()
}

/// Temporary.
///
/// # Errors
/// Always.
pub async fn complete(_store: &Store, _fence: &Fence, _wave: &AutoWave) -> Result<Completion, WaveError> {
    not_yet()
}

/// Temporary.
///
/// # Errors
/// Always.
pub async fn late(
    _store: &Store,
    _wave: &AutoWave,
    _after: Option<&ScopeId>,
    _limit: u32,
) -> Result<Vec<LateFact>, StoreError> {
    not_yet()
}
