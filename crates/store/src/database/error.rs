//! What a failure of the driver means to its caller, whichever database it came from.

use sqlx::mysql::MySqlDatabaseError;

use super::Engine;

/// What kind of failure a statement met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseErrorKind {
    /// Another transaction held the lock for too long, or both waited for each other.
    Busy,
    /// A unique or primary key already has the value. Decided on for SQLite alone: OceanBase's text for it
    /// may be cut inside a character, which the driver takes for a lost connection.
    UniqueViolation,
    /// The connection is gone and its transaction, not yet committed, with it.
    Lost,
    /// The server did not answer in time; the connection is given up.
    Silent,
    /// The connection was lost while committing: the transaction may have happened or not.
    CommitUnknown,
    /// The server has no such database.
    MissingDatabase,
    /// The server refuses the user, the password or what the user may do.
    AccessDenied,
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
    source: Cause,
}

/// What is told of a failure.
#[derive(Debug, thiserror::Error)]
enum Cause {
    /// What the driver or the database says.
    #[error(transparent)]
    Said(sqlx::Error),
    /// A server's text about a value repeats the value, an identity perhaps, so its number stands alone.
    #[error("the database refused a value with error {number} ({state})")]
    RefusedValue { number: u16, state: String },
}

impl From<sqlx::Error> for Cause {
    fn from(error: sqlx::Error) -> Self {
        let refused = error.as_database_error().and_then(|error| error.try_downcast_ref());
        match refused.and_then(refused_value) {
            Some((number, state)) => Self::RefusedValue { number, state },
            None => Self::Said(error),
        }
    }
}

/// Number and SQLSTATE of a server's error that is about a value: data exceptions (22), broken constraints
/// (23), and those that MySQL gave no class.
fn refused_value(error: &MySqlDatabaseError) -> Option<(u16, String)> {
    let (number, state) = (error.number(), error.code().unwrap_or_default());
    let about_a_value = matches!(state.get(..2), Some("22" | "23")) || matches!(number, 1366 | 1411 | 1525);
    about_a_value.then(|| (number, state.to_owned()))
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
        Self { kind: DatabaseErrorKind::Silent, source: source.into() }
    }

    /// The failure that led to this one.
    pub(crate) fn root(&self) -> &dyn std::error::Error {
        let mut root: &dyn std::error::Error = self;
        while let Some(cause) = root.source() {
            root = cause;
        }
        root
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
                Some(error) => server_kind(error.number(), error.code().unwrap_or_default()),
                None if error.is_unique_violation() => DatabaseErrorKind::UniqueViolation,
                None if is_busy(error.code().as_deref()) => DatabaseErrorKind::Busy,
                None => DatabaseErrorKind::Other,
            },
            _ => DatabaseErrorKind::Other,
        };
        Self { kind, source: source.into() }
    }
}

/// MySQL's numbers, which OceanBase answers with, and OceanBase's own.
fn server_kind(number: u16, state: &str) -> DatabaseErrorKind {
    match number {
        // The transaction lasted too long and was undone; in other states one statement did.
        4012 if state == "25000" => DatabaseErrorKind::Busy,
        // Lock wait timeout; deadlock; the transaction must be rolled back; a row lock conflict; a
        // write conflict with a snapshot.
        1205 | 1213 | 6002 | 6005 | 6235 => DatabaseErrorKind::Busy,
        1062 => DatabaseErrorKind::UniqueViolation,
        // Shutdown; connection killed; gone away; lost; killed for idling in a transaction.
        1053 | 1927 | 2006 | 2013 | 5066 | 6224 => DatabaseErrorKind::Lost,
        1049 => DatabaseErrorKind::MissingDatabase,
        // To the database; at all; from this host; by this way of proving who it is.
        1044 | 1045 | 1130 | 1698 => DatabaseErrorKind::AccessDenied,
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
