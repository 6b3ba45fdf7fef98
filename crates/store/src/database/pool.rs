//! Connections to the database file: how each is set up, and who has which one when.
//!
//! Decided here: durability, cache sizes and checkpoints of a connection, waiting while other
//! processes prepare a new file, and that a connection whose transaction cannot be undone is never
//! used again. Transactions and their retries are the parent's.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Executor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{DatabaseError, DatabaseErrorKind, SqliteFile};

/// How often opening a connection is tried again while others prepare the file, and how long between.
const CONNECT_RETRIES: u32 = 100;
const CONNECT_PAUSE: Duration = Duration::from_millis(20);
/// Page cache of the writing connection, in KiB.
const WRITER_CACHE_KIB: u32 = 4096;
/// Page cache of each reading connection, in KiB.
const READER_CACHE_KIB: u32 = 2048;
/// Pages in the write-ahead log that start a checkpoint; fewer checkpoints, a longer log.
const CHECKPOINT_PAGES: u32 = 4000;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Writer,
    Reader,
}

pub(super) fn connect_options(file: &SqliteFile, role: Role) -> SqliteConnectOptions {
    let cache = if role == Role::Writer { WRITER_CACHE_KIB } else { READER_CACHE_KIB };
    let options = SqliteConnectOptions::new()
        .filename(Path::new(&file.path))
        .create_if_missing(file.create && role == Role::Writer)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(file.busy_timeout)
        .pragma("cache_size", format!("-{cache}"))
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES.to_string())
        .disable_statement_logging();
    if role == Role::Reader { options.pragma("query_only", "ON") } else { options }
}

/// A fair queue for at most `size` connections, opened when first needed and then kept.
pub(super) struct Pool {
    options: SqliteConnectOptions,
    idle: Mutex<Vec<SqliteConnection>>,
    permits: Arc<Semaphore>,
    size: u32,
}

impl Pool {
    pub(super) fn new(options: SqliteConnectOptions, size: u32) -> Self {
        let permits = Arc::new(Semaphore::new(usize::try_from(size).unwrap_or(1)));
        Self { options, idle: Mutex::new(Vec::new()), permits, size }
    }

    pub(super) async fn close(&self) {
        // Holding every permit means that no connection is on loan.
        let all = self.permits.acquire_many(self.size).await;
        let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        for connection in idle {
            let closed = connection.close().await;
            tracing::trace!(ok = closed.is_ok(), "closed");
        }
        self.permits.close();
        drop(all);
    }

    /// Opens a connection. Where several processes open a new file at once, SQLite refuses the change
    /// to write-ahead mode without waiting, so this waits instead, a little and only so often.
    async fn connect(&self) -> Result<SqliteConnection, DatabaseError> {
        let mut retries = 0;
        loop {
            match SqliteConnection::connect_with(&self.options).await.map_err(DatabaseError::from) {
                Err(error) if error.kind == DatabaseErrorKind::Busy && retries < CONNECT_RETRIES => {
                    retries += 1;
                    tokio::time::sleep(CONNECT_PAUSE).await;
                }
                connected => return connected,
            }
        }
    }

    pub(super) async fn take(self: &Arc<Self>) -> Result<Lent, DatabaseError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| sqlx::Error::PoolClosed)?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(Lent { connection: Some(connection), pool: Arc::clone(self), _permit: permit })
    }
}

/// A connection on loan; dropping it gives it back before the permit is free again.
pub(super) struct Lent {
    pub(super) connection: Option<SqliteConnection>,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl Lent {
    /// Undoes the open transaction. A connection that answers with an error may still be inside
    /// it, so it is closed instead of being given back; the next user opens another one.
    pub(super) async fn roll_back(&mut self) {
        let Some(connection) = self.connection.as_mut() else { return };
        if let Err(error) = connection.execute("ROLLBACK").await {
            tracing::debug!(%error, "a connection that could not roll back is closed");
            self.connection = None;
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}
