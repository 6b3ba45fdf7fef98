//! The one module that knows sqlx: connections, transactions, values and rows of both databases.
//!
//! Repository functions are written against [`Transaction`], [`Value`], [`Row`] and [`Text`] alone.
//! Decided here: who may write at once, how waiting for a lock ends, and which failures make a whole
//! transaction start over (a bounded, counted and logged number of times). How connections are lent is
//! decided in `pool`, how each database is opened in [`sqlite`] and [`oceanbase`]; what a statement
//! means is left to the repository functions.

mod error;
mod link;
pub mod oceanbase;
mod pool;
#[cfg(test)]
pub(crate) mod ran;
pub mod sqlite;
mod transaction;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::Row as _;
use sqlx::mysql::MySqlRow;
use sqlx::sqlite::SqliteRow;

use crate::StoreError;
use oceanbase::OceanBaseServer;
use pool::{Opener, Pool, Role};
use sqlite::SqliteFile;

pub(crate) use error::kind_of;
pub use error::{DatabaseError, DatabaseErrorKind};
pub use transaction::Transaction;

/// How often a whole transaction starts over after a lock that was not free in time, a deadlock or
/// a lost connection.
const RETRIES: u32 = 3;
/// A migration holds its lock on one connection while it works on another.
const MIN_WRITERS: u32 = 2;

/// Which database, for statements and steps that must differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// A file of this machine.
    Sqlite,
    /// A server that many processes share.
    OceanBase,
}

impl Engine {
    /// Whether a stored identity can be this text. OceanBase compares as if there were no spaces at the
    /// ends of texts, so one that ends in a space would find the identity without it.
    pub fn tells_apart(self, identity: &str) -> bool {
        self == Self::Sqlite || !identity.ends_with(' ')
    }
}

/// Where the database is.
#[derive(Clone, Debug)]
pub enum Target {
    /// A file.
    Sqlite(SqliteFile),
    /// A server.
    OceanBase(OceanBaseServer),
}

/// One bound parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// SQL NULL.
    Null,
    /// A 64-bit integer.
    Integer(i64),
    /// A text.
    Text(String),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&String> for Value {
    fn from(value: &String) -> Self {
        Self::Text(value.clone())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Collects bound parameters in the order of their placeholders.
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$($crate::database::Value::from($value)),*] };
}
pub(crate) use values;

/// A list of `count` placeholders, for `IN (...)`; at least one.
pub fn placeholders(count: usize) -> String {
    vec!["?"; count.max(1)].join(", ")
}

/// A statement: fixed text is prepared once per connection, built text while it is in use.
#[derive(Clone, Debug)]
pub enum Text {
    /// Written in the program, the same for both databases.
    Fixed(&'static str),
    /// Written in the program twice; the reason stands beside it.
    Twin(Twin),
    /// Put together at run time, never from data.
    Built(String),
}

/// One statement in the two dialects; both take the same parameters.
#[derive(Clone, Copy, Debug)]
pub struct Twin {
    /// For SQLite.
    pub sqlite: &'static str,
    /// For OceanBase.
    pub oceanbase: &'static str,
}

impl Twin {
    /// The statement of one database.
    pub const fn of(&self, engine: Engine) -> &'static str {
        match engine {
            Engine::Sqlite => self.sqlite,
            Engine::OceanBase => self.oceanbase,
        }
    }
}

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Self {
        Self::Fixed(text)
    }
}

impl From<Twin> for Text {
    fn from(text: Twin) -> Self {
        Self::Twin(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Built(text)
    }
}

/// One result row; columns are read by their place.
pub enum Row {
    /// A row of SQLite.
    Sqlite(SqliteRow),
    /// A row of OceanBase. Its columns are read unchecked, because the server marks texts that
    /// compare by bytes as binary and the driver would refuse them.
    OceanBase(MySqlRow),
}

impl Row {
    /// A non-null integer.
    pub fn integer(&self, column: usize) -> Result<i64, DatabaseError> {
        Ok(match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::OceanBase(row) => row.try_get_unchecked(column)?,
        })
    }

    /// An integer or null.
    pub fn optional_integer(&self, column: usize) -> Result<Option<i64>, DatabaseError> {
        Ok(match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::OceanBase(row) => row.try_get_unchecked(column)?,
        })
    }

    /// A non-null text.
    pub fn text(&self, column: usize) -> Result<String, DatabaseError> {
        Ok(match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::OceanBase(row) => row.try_get_unchecked(column)?,
        })
    }

    /// A text or null.
    pub fn optional_text(&self, column: usize) -> Result<Option<String>, DatabaseError> {
        Ok(match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::OceanBase(row) => row.try_get_unchecked(column)?,
        })
    }
}

/// How long the statements of a transaction may take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Span {
    Short,
    Long,
    /// Short, on the connection that is kept for the lease.
    Lease,
}

/// An open database: connections for writers and for readers, all opened when first needed. A server has
/// one more for the lease alone, so that a leader renews in time however many writers wait.
#[derive(Clone)]
pub struct Database {
    engine: Engine,
    writers: Arc<Pool>,
    readers: Arc<Pool>,
    lease: Arc<Pool>,
    retries: Arc<AtomicU64>,
}

impl fmt::Debug for Database {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Database")
            .field("engine", &self.engine)
            .field("retries", &self.retries())
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Prepares the pools and opens a writing connection, which proves that the database is usable.
    pub async fn open(target: &Target) -> Result<Self, DatabaseError> {
        let (engine, writers, readers) = match target {
            Target::Sqlite(file) => (Engine::Sqlite, 1, file.readers),
            Target::OceanBase(server) => {
                (Engine::OceanBase, server.connections.max(MIN_WRITERS), server.connections)
            }
        };
        let writers = Arc::new(Pool::new(Opener::new(target, Role::Writer), writers));
        let lease = match engine {
            Engine::Sqlite => Arc::clone(&writers),
            Engine::OceanBase => Arc::new(Pool::new(Opener::new(target, Role::Writer), 1)),
        };
        let database = Self {
            engine,
            writers,
            lease,
            readers: Arc::new(Pool::new(Opener::new(target, Role::Reader), readers)),
            retries: Arc::new(AtomicU64::new(0)),
        };
        drop(database.writers.take().await?);
        Ok(database)
    }

    /// Which database this is.
    pub const fn engine(&self) -> Engine {
        self.engine
    }

    /// Closes every connection, the writing ones last, and stays closed.
    pub async fn close(&self) {
        self.readers.close().await;
        if self.engine == Engine::OceanBase {
            self.lease.close().await;
        }
        self.writers.close().await;
    }

    /// How often a transaction, or the wait for its start, had to begin again.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Runs `body` in a writing transaction, again from the start when a lock was not free in time
    /// or the connection was lost before the commit. `body` commits; what it leaves open is undone.
    ///
    /// A commit whose answer was lost is not repeated: it may have happened.
    pub async fn transact<T, E, F, Fut>(&self, operation: &'static str, body: F) -> Result<T, E>
    where
        F: Fn(Transaction) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: std::error::Error + From<StoreError> + 'static,
    {
        self.repeat(operation, Span::Short, body).await
    }

    /// The same for the few transactions whose statements go over a whole wave: on OceanBase they get
    /// minutes instead of seconds, on a connection of its own. Locks are waited for no longer.
    pub async fn transact_long<T, E, F, Fut>(&self, operation: &'static str, body: F) -> Result<T, E>
    where
        F: Fn(Transaction) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: std::error::Error + From<StoreError> + 'static,
    {
        self.repeat(operation, Span::Long, body).await
    }

    /// The same for the lease, which waits for no other transaction of this process.
    pub async fn transact_lease<T, E, F, Fut>(&self, operation: &'static str, body: F) -> Result<T, E>
    where
        F: Fn(Transaction) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: std::error::Error + From<StoreError> + 'static,
    {
        self.repeat(operation, Span::Lease, body).await
    }

    async fn repeat<T, E, F, Fut>(&self, operation: &'static str, span: Span, body: F) -> Result<T, E>
    where
        F: Fn(Transaction) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: std::error::Error + From<StoreError> + 'static,
    {
        let mut retries = 0;
        loop {
            let transaction = match (self.engine, span) {
                (Engine::OceanBase, Span::Long) => Transaction::long(&self.writers).await,
                (_, Span::Lease) => self.write_on(&self.lease).await,
                _ => self.write().await,
            };
            match body(transaction.map_err(StoreError::at(operation))?).await {
                Err(error) if retries < RETRIES && kind_of(&error).is_some_and(may_repeat) => {
                    retries += 1;
                    self.count_retry(operation, retries);
                }
                outcome => return outcome,
            }
        }
    }

    /// Starts a writing transaction. On SQLite it returns once this process and every other one let
    /// it write; on OceanBase each statement takes its row locks.
    pub async fn write(&self) -> Result<Transaction, DatabaseError> {
        self.write_on(&self.writers).await
    }

    async fn write_on(&self, pool: &Arc<Pool>) -> Result<Transaction, DatabaseError> {
        let text = match self.engine {
            Engine::Sqlite => "BEGIN IMMEDIATE",
            Engine::OceanBase => "START TRANSACTION",
        };
        let mut retries = 0;
        loop {
            match Transaction::begin(pool, text).await {
                Err(error) if error.kind == DatabaseErrorKind::Busy && retries < RETRIES => {
                    retries += 1;
                    self.count_retry("begin", retries);
                }
                outcome => return outcome,
            }
        }
    }

    /// Runs a fixed text of several statements as one writing transaction, in a single trip to the
    /// connection, and returns the rows of all of them in order. Any failure undoes everything.
    ///
    /// For SQLite alone: OceanBase prepares one statement at a time. `text` must start with
    /// `BEGIN IMMEDIATE;` and end with `COMMIT`; parameters are numbered through all statements.
    pub async fn write_batch(
        &self,
        text: &'static str,
        parameters: Vec<Value>,
    ) -> Result<Vec<Row>, DatabaseError> {
        let mut retries = 0;
        loop {
            match Transaction::batch(&self.writers, text, parameters.clone()).await {
                Err(error) if error.kind == DatabaseErrorKind::Busy && retries < RETRIES => {
                    retries += 1;
                    self.count_retry("batch", retries);
                }
                outcome => return outcome,
            }
        }
    }

    /// A reading connection on which every statement sees the latest commit.
    pub async fn read(&self) -> Result<Transaction, DatabaseError> {
        Transaction::reading(&self.readers).await
    }

    /// A reading connection on which all statements see one state of the database.
    pub async fn snapshot(&self) -> Result<Transaction, DatabaseError> {
        let text = match self.engine {
            Engine::Sqlite => "BEGIN DEFERRED",
            Engine::OceanBase => "START TRANSACTION READ ONLY",
        };
        Transaction::begin(&self.readers, text).await
    }

    /// A writing connection of its own without a transaction, closed after use: for migrations.
    pub async fn session(&self) -> Result<Transaction, DatabaseError> {
        Transaction::session(&self.writers).await
    }

    fn count_retry(&self, operation: &'static str, retries: u32) {
        self.retries.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            event = "database_busy",
            operation,
            retries,
            limit = RETRIES,
            "the database stayed busy or its connection was lost; asking again"
        );
    }
}

fn may_repeat(kind: DatabaseErrorKind) -> bool {
    matches!(kind, DatabaseErrorKind::Busy | DatabaseErrorKind::Lost)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn writer_mark(database: &Database) -> Option<i64> {
        let mut tx = database.write().await.unwrap();
        let row = tx.query_one("SELECT 1 FROM temp.sqlite_master WHERE name = 'mark'", vec![]).await.unwrap();
        tx.roll_back().await;
        row.map(|row| row.integer(0).unwrap())
    }

    /// A transaction whose connection is marked and can no longer roll back.
    async fn spoilt(database: &Database) -> Transaction {
        let mut tx = database.write().await.unwrap();
        tx.execute("CREATE TEMP TABLE mark (x)", vec![]).await.unwrap();
        tx.execute("COMMIT", vec![]).await.unwrap();
        tx
    }

    #[tokio::test]
    async fn a_connection_that_cannot_roll_back_is_never_used_again_on_sqlite() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let busy_timeout = Duration::from_secs(5);
        let file = SqliteFile { path, create: true, readers: 1, busy_timeout };
        let database = Database::open(&Target::Sqlite(file)).await.unwrap();
        spoilt(&database).await.roll_back().await;
        assert_eq!(writer_mark(&database).await, None, "rolled back by name");
        drop(spoilt(&database).await);
        assert_eq!(writer_mark(&database).await, None, "rolled back by a drop");
        let mut good = database.write().await.unwrap();
        good.execute("CREATE TEMP TABLE mark (x)", vec![]).await.unwrap();
        good.commit().await.unwrap();
        assert_eq!(writer_mark(&database).await, Some(1), "a sound connection is kept");
    }
}
