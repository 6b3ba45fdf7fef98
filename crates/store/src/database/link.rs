//! One connection of either database, and how a statement with its values is sent over it.

use std::time::Duration;

use sqlx::mysql::{MySqlArguments, MySqlConnection};
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{Arguments, AssertSqlSafe, Connection as _, Executor as _};

use super::{DatabaseError, Engine, Row, Text, Value};

/// Built texts up to this many bytes stay prepared on the connection, the most recently used ones:
/// lists of placeholders come in few lengths.
const LONGEST_KEPT_TEXT: usize = 4096;
/// The longest a server is waited for while a connection is closed politely.
const GOODBYE_LIMIT: Duration = Duration::from_secs(1);

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
        #[cfg(test)]
        super::ran::note(&text, self.engine());
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

    /// Closes the connection; the last one of a file moves the write-ahead log into it.
    pub(super) async fn close(self) {
        let closed = match self {
            Self::Sqlite(connection) => connection.close().await.is_ok(),
            Self::OceanBase(connection, _) => {
                tokio::time::timeout(GOODBYE_LIMIT, connection.close()).await.is_ok_and(|done| done.is_ok())
            }
        };
        tracing::trace!(closed, "closed");
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
        Text::Twin(twin) => sqlx::query_with(twin.of(Engine::Sqlite), arguments),
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
        Text::Twin(twin) => sqlx::query_with(twin.of(Engine::OceanBase), arguments),
        Text::Built(text) => {
            let kept = text.len() <= LONGEST_KEPT_TEXT;
            sqlx::query_with(AssertSqlSafe(text), arguments).persistent(kept)
        }
    })
}
