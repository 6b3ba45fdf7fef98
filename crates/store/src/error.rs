//! What can go wrong below every repository function, whatever the database.
//!
//! Each boundary has its own error enum that wraps [`StoreError`] beside its domain outcomes.
//! Nothing here carries Source text, model output or connection secrets.

use powercontext_core::work::ErrorCode;

use crate::database::DatabaseError;

/// The database could not be used, or what it holds is not what this crate writes.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A statement failed; the source has the cause. Retrying later may help. Nothing was written, but a
    /// commit whose answer was lost ([`CommitUnknown`](crate::DatabaseErrorKind::CommitUnknown)) may have
    /// happened all the same.
    #[error("database operation `{operation}` failed")]
    Unavailable {
        /// Which repository function was running.
        operation: &'static str,
        /// What the database said.
        #[source]
        source: DatabaseError,
    },
    /// Stored data breaks an invariant. Retrying does not help.
    #[error("stored data is invalid: {what}")]
    Invalid {
        /// Which invariant.
        what: &'static str,
    },
}

impl StoreError {
    /// The stable code for outcomes and logs.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Unavailable { .. } => ErrorCode::DatabaseUnavailable,
            Self::Invalid { .. } => ErrorCode::DataInvalid,
        }
    }

    pub(crate) fn at(operation: &'static str) -> impl Fn(DatabaseError) -> Self {
        move |source| Self::Unavailable { operation, source }
    }

    pub(crate) const fn invalid(what: &'static str) -> Self {
        Self::Invalid { what }
    }
}
