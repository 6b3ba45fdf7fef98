//! The one module that knows sqlx, with its `pool`: transactions, values and rows.
//!
//! Repository functions are written against [`Transaction`], [`Value`] and [`Row`] alone; their
//! statements are SQLite's. Decided here: one writing connection, `BEGIN IMMEDIATE` for writers so
//! that waiting happens before the first write, and a bounded, logged retry of that wait. How a
//! connection is set up and lent is decided in `pool`; what a statement means is left to the
//! repository functions.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Arguments, AssertSqlSafe, Executor, Row as _};

use pool::{Lent, Pool, Role, connect_options};

mod pool;
#[cfg(test)]
pub(crate) mod ran;

/// How often a writer asks again for the write lock after a whole busy timeout.
const BUSY_RETRIES: u32 = 3;

/// What kind of failure a statement met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseErrorKind {
    /// Another process held the lock for longer than the busy timeout.
    Busy,
    /// A unique or primary key already has the value.
    UniqueViolation,
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

impl From<sqlx::Error> for DatabaseError {
    fn from(source: sqlx::Error) -> Self {
        let kind = match source.as_database_error() {
            Some(error) if error.is_unique_violation() => DatabaseErrorKind::UniqueViolation,
            Some(error) if is_busy(error.code().as_deref()) => DatabaseErrorKind::Busy,
            _ => DatabaseErrorKind::Other,
        };
        Self { kind, source }
    }
}

/// The primary result codes SQLITE_BUSY (5) and SQLITE_LOCKED (6), with any extension.
fn is_busy(code: Option<&str>) -> bool {
    code.and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| matches!(code & 0xff, 5 | 6))
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

/// One result row; columns are read by their place.
pub struct Row(SqliteRow);

impl Row {
    /// A non-null integer.
    pub fn integer(&self, column: usize) -> Result<i64, DatabaseError> {
        Ok(self.0.try_get(column)?)
    }

    /// An integer or null.
    pub fn optional_integer(&self, column: usize) -> Result<Option<i64>, DatabaseError> {
        Ok(self.0.try_get(column)?)
    }

    /// A non-null text.
    pub fn text(&self, column: usize) -> Result<String, DatabaseError> {
        Ok(self.0.try_get(column)?)
    }

    /// A text or null.
    pub fn optional_text(&self, column: usize) -> Result<Option<String>, DatabaseError> {
        Ok(self.0.try_get(column)?)
    }
}

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

/// An open database: one writing connection and a few reading ones, all opened when first needed.
#[derive(Clone)]
pub struct Database {
    writer: Arc<Pool>,
    readers: Arc<Pool>,
}

impl fmt::Debug for Database {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Database").finish_non_exhaustive()
    }
}

impl Database {
    /// Prepares the pools and opens the writing connection, which proves that the file is usable.
    pub async fn open(file: &SqliteFile) -> Result<Self, DatabaseError> {
        let database = Self {
            writer: Arc::new(Pool::new(connect_options(file, Role::Writer), 1)),
            readers: Arc::new(Pool::new(connect_options(file, Role::Reader), file.readers.max(1))),
        };
        drop(database.writer.take().await?);
        Ok(database)
    }

    /// Closes every connection, the writing one last, and stays closed.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    /// Starts a writing transaction; returns once this process and every other one let it write.
    pub async fn write(&self) -> Result<Transaction, DatabaseError> {
        let mut retries = 0;
        loop {
            let mut transaction = Transaction { lent: Some(self.writer.take().await?), open: true };
            match transaction.execute("BEGIN IMMEDIATE", Vec::new()).await {
                Ok(_) => return Ok(transaction),
                Err(error) if error.kind == DatabaseErrorKind::Busy && retries < BUSY_RETRIES => {
                    retries += 1;
                    log_busy(retries);
                    transaction.open = false;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs a fixed text of several statements as one writing transaction, in a single trip to the
    /// connection, and returns the rows of all of them in order. Any failure undoes everything.
    ///
    /// `text` must start with `BEGIN IMMEDIATE;` and end with `COMMIT`; parameters are numbered
    /// through all of its statements.
    pub async fn write_batch(
        &self,
        text: &'static str,
        parameters: Vec<Value>,
    ) -> Result<Vec<Row>, DatabaseError> {
        let mut retries = 0;
        loop {
            let mut transaction = Transaction { lent: Some(self.writer.take().await?), open: true };
            match transaction.query(text, parameters.clone()).await {
                Ok(rows) => {
                    transaction.open = false;
                    return Ok(rows);
                }
                Err(error) if error.kind == DatabaseErrorKind::Busy && retries < BUSY_RETRIES => {
                    retries += 1;
                    log_busy(retries);
                    transaction.roll_back().await;
                }
                Err(error) => {
                    transaction.roll_back().await;
                    return Err(error);
                }
            }
        }
    }

    /// A reading connection on which every statement sees the latest commit.
    pub async fn read(&self) -> Result<Transaction, DatabaseError> {
        Ok(Transaction { lent: Some(self.readers.take().await?), open: false })
    }

    /// A reading connection on which all statements see one state of the database.
    pub async fn snapshot(&self) -> Result<Transaction, DatabaseError> {
        let mut transaction = Transaction { lent: Some(self.readers.take().await?), open: true };
        transaction.execute("BEGIN DEFERRED", Vec::new()).await?;
        Ok(transaction)
    }
}

fn log_busy(retries: u32) {
    tracing::warn!(
        retries,
        limit = BUSY_RETRIES,
        "the database stayed busy for a whole timeout; asking again"
    );
}

/// A connection lent out, usually with a transaction open on it. Dropping it undoes the
/// transaction before anyone else gets the connection.
pub struct Transaction {
    lent: Option<Lent>,
    open: bool,
}

impl Transaction {
    /// Runs one writing statement and returns how many rows it affected.
    pub async fn execute(
        &mut self,
        text: impl Into<Text>,
        parameters: Vec<Value>,
    ) -> Result<u64, DatabaseError> {
        let query = Self::prepared(text.into(), parameters)?;
        Ok(self.connection()?.execute(query).await?.rows_affected())
    }

    /// Runs a statement and returns all of its rows.
    pub async fn query(
        &mut self,
        text: impl Into<Text>,
        parameters: Vec<Value>,
    ) -> Result<Vec<Row>, DatabaseError> {
        let query = Self::prepared(text.into(), parameters)?;
        Ok(self.connection()?.fetch_all(query).await?.into_iter().map(Row).collect())
    }

    /// Runs a statement that yields at most one row.
    pub async fn query_one(
        &mut self,
        text: impl Into<Text>,
        parameters: Vec<Value>,
    ) -> Result<Option<Row>, DatabaseError> {
        Ok(self.query(text, parameters).await?.into_iter().next())
    }

    /// Makes everything since the start durable and visible.
    pub async fn commit(mut self) -> Result<(), DatabaseError> {
        self.execute("COMMIT", Vec::new()).await?;
        self.open = false;
        Ok(())
    }

    /// Undoes everything since the start. Cannot fail: closing the connection undoes it as well.
    pub async fn roll_back(mut self) {
        if let Some(lent) = self.lent.as_mut() {
            lent.roll_back().await;
        }
        self.open = false;
    }

    fn connection(&mut self) -> Result<&mut SqliteConnection, DatabaseError> {
        self.lent
            .as_mut()
            .and_then(|lent| lent.connection.as_mut())
            .ok_or_else(|| DatabaseError::from(sqlx::Error::WorkerCrashed))
    }

    fn prepared(
        text: Text,
        parameters: Vec<Value>,
    ) -> Result<sqlx::query::Query<'static, sqlx::Sqlite, SqliteArguments>, DatabaseError> {
        #[cfg(test)]
        ran::note(&text);
        let mut arguments = SqliteArguments::default();
        for value in parameters {
            match value {
                Value::Null => arguments.add(None::<i64>),
                Value::Integer(value) => arguments.add(value),
                Value::Text(value) => arguments.add(value),
            }
            .map_err(sqlx::Error::Encode)?;
        }
        Ok(match text {
            Text::Fixed(text) => sqlx::query_with(text, arguments),
            Text::Built(text) => sqlx::query_with(AssertSqlSafe(text), arguments).persistent(false),
        })
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let Some(mut lent) = self.lent.take() else { return };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move { lent.roll_back().await });
            }
            // Without a runtime the connection is closed instead, which undoes its transaction.
            Err(_) => lent.connection = None,
        }
    }
}

/// A statement: fixed text is prepared once per connection, built text every time.
pub enum Text {
    /// Written in the program.
    Fixed(&'static str),
    /// Put together at run time, never from data.
    Built(String),
}

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Self {
        Self::Fixed(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Built(text)
    }
}

#[cfg(test)]
mod tests {
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
    async fn a_connection_that_cannot_roll_back_is_never_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let busy_timeout = Duration::from_secs(5);
        let file = SqliteFile { path, create: true, readers: 1, busy_timeout };
        let database = Database::open(&file).await.unwrap();
        spoilt(&database).await.roll_back().await;
        assert_eq!(writer_mark(&database).await, None, "rolled back by name");
        drop(spoilt(&database).await);
        assert_eq!(writer_mark(&database).await, None, "rolled back by a drop");
        let mut good = database.write().await.unwrap();
        good.execute("CREATE TEMP TABLE mark (x)", vec![]).await.unwrap();
        good.commit().await.unwrap();
        assert_eq!(writer_mark(&database).await, Some(1), "a sound connection is kept");
    }

    #[test]
    fn an_error_and_its_cause_do_not_say_the_same_twice() {
        use std::error::Error;
        let error = DatabaseError::from(sqlx::Error::PoolClosed);
        assert!(!error.to_string().contains(&error.source().unwrap().to_string()));
    }
}
