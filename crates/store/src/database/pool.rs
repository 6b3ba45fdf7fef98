//! Connections of one kind: opened when first needed, kept, handed out one by one in turn.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::mysql::{MySqlArguments, MySqlConnection};
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection};
use sqlx::{Arguments, AssertSqlSafe, Connection as _, Executor as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::oceanbase::{self, ANSWER_LIMIT, OceanBaseServer};
use super::{DatabaseError, Engine, Row, Target, Text, Value, sqlite};

/// Built texts up to this many bytes stay prepared on the connection, the most recently used ones:
/// lists of placeholders come in few lengths.
const LONGEST_KEPT_TEXT: usize = 4096;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Writer,
    Reader,
}

/// How a new connection is made.
pub(super) enum Opener {
    Sqlite(Box<SqliteConnectOptions>),
    OceanBase(Box<OceanBaseServer>, Role),
}

impl Opener {
    pub(super) fn new(target: &Target, role: Role) -> Self {
        match target {
            Target::Sqlite(file) => Self::Sqlite(Box::new(sqlite::connect_options(file, role))),
            Target::OceanBase(server) => Self::OceanBase(Box::new(server.clone()), role),
        }
    }

    async fn open(&self) -> Result<Link, DatabaseError> {
        Ok(match self {
            Self::Sqlite(options) => Link::Sqlite(SqliteConnection::connect_with(options).await?),
            Self::OceanBase(server, role) => {
                Link::OceanBase(oceanbase::connect(server, *role).await?, ANSWER_LIMIT)
            }
        })
    }
}

/// One connection; for a server with how long it is waited for.
pub(super) enum Link {
    Sqlite(SqliteConnection),
    OceanBase(MySqlConnection, Duration),
}

/// What one statement did.
pub(super) struct Done {
    pub(super) affected: u64,
    pub(super) rows: Vec<Row>,
}

/// What is wanted of a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Affected,
    Rows,
}

impl Link {
    pub(super) const fn engine(&self) -> Engine {
        match self {
            Self::Sqlite(_) => Engine::Sqlite,
            Self::OceanBase(..) => Engine::OceanBase,
        }
    }

    /// Runs one statement with its parameters.
    pub(super) async fn run(
        &mut self,
        text: Text,
        parameters: Vec<Value>,
        wanted: Wanted,
    ) -> Result<Done, DatabaseError> {
        match self {
            Self::Sqlite(connection) => {
                let query = sqlite_query(text, parameters)?;
                Ok(match wanted {
                    Wanted::Affected => {
                        Done { affected: connection.execute(query).await?.rows_affected(), rows: Vec::new() }
                    }
                    Wanted::Rows => Done {
                        affected: 0,
                        rows: connection.fetch_all(query).await?.into_iter().map(Row::Sqlite).collect(),
                    },
                })
            }
            Self::OceanBase(connection, limit) => {
                let query = mysql_query(text, parameters)?;
                let answer = async {
                    Ok(match wanted {
                        Wanted::Affected => Done {
                            affected: connection.execute(query).await?.rows_affected(),
                            rows: Vec::new(),
                        },
                        Wanted::Rows => Done {
                            affected: 0,
                            rows: connection
                                .fetch_all(query)
                                .await?
                                .into_iter()
                                .map(Row::OceanBase)
                                .collect(),
                        },
                    })
                };
                tokio::time::timeout(*limit, answer).await.unwrap_or_else(|_| Err(DatabaseError::silence()))
            }
        }
    }

    /// Runs a text without parameters that cannot be prepared: transactions, session settings, DDL.
    pub(super) async fn command(&mut self, text: String) -> Result<(), DatabaseError> {
        match self {
            Self::Sqlite(connection) => {
                connection.execute(AssertSqlSafe(text)).await?;
                Ok(())
            }
            Self::OceanBase(connection, limit) => {
                match tokio::time::timeout(*limit, connection.execute(AssertSqlSafe(text))).await {
                    Ok(done) => done.map(|_| ()).map_err(DatabaseError::from),
                    Err(_) => Err(DatabaseError::silence()),
                }
            }
        }
    }
}

fn sqlite_query(
    text: Text,
    parameters: Vec<Value>,
) -> Result<sqlx::query::Query<'static, sqlx::Sqlite, SqliteArguments>, DatabaseError> {
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
        Text::Twin(twin) => sqlx::query_with(twin.sqlite, arguments),
        Text::Built(text) => {
            let kept = text.len() <= LONGEST_KEPT_TEXT;
            sqlx::query_with(AssertSqlSafe(text), arguments).persistent(kept)
        }
    })
}

fn mysql_query(
    text: Text,
    parameters: Vec<Value>,
) -> Result<sqlx::query::Query<'static, sqlx::MySql, MySqlArguments>, DatabaseError> {
    let mut arguments = MySqlArguments::default();
    for value in parameters {
        match value {
            Value::Null => arguments.add(None::<String>),
            Value::Integer(value) => arguments.add(value),
            Value::Text(value) => arguments.add(value),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(match text {
        Text::Fixed(text) => sqlx::query_with(text, arguments),
        Text::Twin(twin) => sqlx::query_with(twin.oceanbase, arguments),
        Text::Built(text) => {
            let kept = text.len() <= LONGEST_KEPT_TEXT;
            sqlx::query_with(AssertSqlSafe(text), arguments).persistent(kept)
        }
    })
}

/// A fair queue for at most `size` connections.
pub(super) struct Pool {
    opener: Opener,
    idle: Mutex<Vec<Link>>,
    permits: Arc<Semaphore>,
}

impl Pool {
    pub(super) fn new(opener: Opener, size: u32) -> Self {
        let size = usize::try_from(size.max(1)).unwrap_or(1);
        Self { opener, idle: Mutex::new(Vec::new()), permits: Arc::new(Semaphore::new(size)) }
    }

    pub(super) async fn take(self: &Arc<Self>) -> Result<Lent, DatabaseError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| sqlx::Error::PoolClosed)?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let link = match idle {
            Some(link) => link,
            None => self.opener.open().await?,
        };
        Ok(Lent { link: Some(link), pool: Arc::clone(self), _permit: permit })
    }
}

/// A connection on loan; dropping it gives it back before the permit is free again.
pub(super) struct Lent {
    /// `None` once the connection was thrown away.
    pub(super) link: Option<Link>,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl Lent {
    /// Ends the loan of a connection that was taken out.
    pub(super) fn give_back(mut self, link: Link) {
        self.link = Some(link);
    }

    /// Replaces a lost connection. The idle ones are closed too: what broke this one broke them.
    pub(super) async fn renew(&mut self) -> Result<(), DatabaseError> {
        self.link = None;
        drop(std::mem::take(&mut *self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner)));
        self.link = Some(self.pool.opener.open().await?);
        Ok(())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(link);
        }
    }
}
