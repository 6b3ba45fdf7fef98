//! How a SQLite file is opened: one writing connection and a few reading ones.
//!
//! Durability is `synchronous=FULL` in WAL mode. Writers begin with `BEGIN IMMEDIATE`, so waiting
//! happens before the first write and a transaction never deadlocks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use super::pool::Role;

/// Page cache of the writing connection, in KiB.
const WRITER_CACHE_KIB: u32 = 4096;
/// Page cache of each reading connection, in KiB.
const READER_CACHE_KIB: u32 = 2048;
/// Pages in the write-ahead log that start a checkpoint; fewer checkpoints, a longer log.
const CHECKPOINT_PAGES: u32 = 4000;

/// How a database file is opened.
#[derive(Clone, Debug)]
pub struct SqliteFile {
    /// The file.
    pub path: PathBuf,
    /// Make the file when it is missing.
    pub create: bool,
    /// How many reading connections may exist at once.
    pub readers: u32,
    /// How long one statement waits for another process's lock.
    pub busy_timeout: Duration,
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
