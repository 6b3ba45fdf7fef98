//! What a failure of the driver means to its caller, whichever database it came from.

use sqlx::mysql::MySqlDatabaseError;

use super::Engine;

/// What kind of failure a statement met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseErrorKind {
    /// Another transaction held the lock for too long, or both waited for each other.
    Busy,
    /// A unique or primary key already has the value.
    UniqueViolation,
    /// The connection is gone and its transaction, not yet committed, with it.
    Lost,
    /// The server did not answer in time; the connection is given up.
    Silent,
    /// The connection was lost while committing: the transaction may have happened or not.
    CommitUnknown,
    /// The server has no such database.
    MissingDatabase,
    /// Anything else.
    Other,
}

/// A failure of the database driver.
#[derive(Debug, thiserror::Error)]
#[error("the database reported a failure")]
pub struct DatabaseError {
    /// What callers may decide on.
    pub kind: DatabaseErrorKind,
    #[source]
    source: sqlx::Error,
}

impl DatabaseError {
    /// The same failure, met while committing. Whatever a server says to that, it may have committed.
    pub(super) fn while_committing(mut self, engine: Engine) -> Self {
        if engine == Engine::OceanBase || self.is_end_of_connection() {
            self.kind = DatabaseErrorKind::CommitUnknown;
        }
        self
    }

    /// The connection cannot be used again.
    pub(super) const fn is_end_of_connection(&self) -> bool {
        matches!(self.kind, DatabaseErrorKind::Lost | DatabaseErrorKind::Silent)
    }

    /// The server did not answer in time.
    pub(super) fn silence() -> Self {
        let source = sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
        Self { kind: DatabaseErrorKind::Silent, source }
    }

    /// An earlier statement lost the connection.
    pub(super) fn gone() -> Self {
        Self::from(sqlx::Error::Io(std::io::ErrorKind::NotConnected.into()))
    }
}

impl From<sqlx::Error> for DatabaseError {
    fn from(source: sqlx::Error) -> Self {
        let kind = match &source {
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => DatabaseErrorKind::Lost,
            sqlx::Error::Database(error) => match error.try_downcast_ref::<MySqlDatabaseError>() {
                Some(error) => server_kind(error.number()),
                None if error.is_unique_violation() => DatabaseErrorKind::UniqueViolation,
                None if is_busy(error.code().as_deref()) => DatabaseErrorKind::Busy,
                None => DatabaseErrorKind::Other,
            },
            _ => DatabaseErrorKind::Other,
        };
        Self { kind, source }
    }
}

/// MySQL's numbers, which OceanBase answers with, and OceanBase's own.
const fn server_kind(number: u16) -> DatabaseErrorKind {
    match number {
        // Lock wait timeout; deadlock; the transaction must be rolled back; a row lock conflict; a
        // write conflict with a snapshot.
        1205 | 1213 | 6002 | 6005 | 6235 => DatabaseErrorKind::Busy,
        1062 => DatabaseErrorKind::UniqueViolation,
        // Shutdown; connection killed; gone away; lost; killed for idling in a transaction.
        1053 | 1927 | 2006 | 2013 | 5066 | 6224 => DatabaseErrorKind::Lost,
        1049 => DatabaseErrorKind::MissingDatabase,
        _ => DatabaseErrorKind::Other,
    }
}

/// The primary result codes SQLITE_BUSY (5) and SQLITE_LOCKED (6), with any extension.
fn is_busy(code: Option<&str>) -> bool {
    code.and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| matches!(code & 0xff, 5 | 6))
}

/// The kind of the database failure at the root of an error, if that is what it is.
pub(crate) fn kind_of(error: &(dyn std::error::Error + 'static)) -> Option<DatabaseErrorKind> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<DatabaseError>() {
            return Some(found.kind);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_and_its_cause_do_not_say_the_same_twice() {
        use std::error::Error;
        let error = DatabaseError::from(sqlx::Error::PoolClosed);
        assert!(!error.to_string().contains(&error.source().unwrap().to_string()));
    }
}
