//! How a session of OceanBase is opened, over the MySQL protocol.
//!
//! The driver's own settings on connect are off, because servers and proxies differ in what they
//! take; everything the store relies on is set here in one statement. Writers work under READ
//! COMMITTED and take row locks; readers see one snapshot per transaction. The server does not
//! detect deadlocks, so waits for locks are short, and neither a stopped process nor a lost one
//! keeps its locks for long.

use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};

use powercontext_core::secret::Secret;

use super::DatabaseError;
use super::pool::Role;

/// The longest a statement waits for a row lock, whatever is configured.
const LONGEST_LOCK_WAIT: Duration = Duration::from_secs(2);
/// The longest the server works on one statement.
const STATEMENT_LIMIT: Duration = Duration::from_secs(10);
/// The longest a transaction lasts before the server undoes it, and so the longest that a process which
/// fell silent inside of one keeps its locks: the server does not enforce its limit on idling there.
const TRANSACTION_LIMIT: Duration = Duration::from_secs(15);
/// The longest a transaction waits for its process, on servers that enforce it.
const IDLE_TRANSACTION_LIMIT: Duration = Duration::from_secs(10);
/// The longest the process waits for an answer; longer than the server works on any, so it only ends
/// waiting for a server that cannot be reached.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(15);
/// The longest the process waits for a connection, and for the first answer on one that was idle.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// The longest one statement of a migration may take.
pub(super) const MIGRATION_LIMIT: Duration = Duration::from_secs(600);
/// The longest a transaction over a whole wave takes, and how long its answers are waited for.
const WAVE_LIMIT: Duration = Duration::from_secs(300);
pub(super) const WAVE_ANSWER_LIMIT: Duration = Duration::from_secs(305);

/// How many statements a connection keeps prepared; the server refuses more than 50 open ones.
const PREPARED_STATEMENTS: usize = 32;
/// How many steps a recursive statement may take; more than any statement of the store asks for.
const RECURSION_LIMIT: u32 = 20_000;

/// Which server, as whom and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OceanBaseServer {
    /// The user, with tenant and cluster where the server needs them (`user@tenant#cluster`).
    pub user: String,
    /// The password; empty for none.
    pub password: Secret,
    /// Name or address.
    pub host: String,
    /// The port of the MySQL protocol.
    pub port: u16,
    /// The database.
    pub database: String,
    /// How many connections writers may have at once, and as many for readers.
    pub connections: u32,
    /// How long one statement waits for another transaction's lock, cut to 2 seconds.
    pub busy_timeout: Duration,
}

/// Opens a session; `role` decides its isolation.
pub(super) async fn connect(server: &OceanBaseServer, role: Role) -> Result<MySqlConnection, DatabaseError> {
    let opened = async {
        let mut connection = options(server).database(&server.database).connect().await?;
        connection.execute(AssertSqlSafe(session(server, role))).await?;
        Ok(connection)
    };
    tokio::time::timeout(CONNECT_LIMIT, opened).await.unwrap_or_else(|_| Err(DatabaseError::silence()))
}

/// Makes the server's database if it has none of that name.
pub async fn create_database(server: &OceanBaseServer) -> Result<(), DatabaseError> {
    let made = async {
        let mut connection = options(server).connect().await?;
        let name = server.database.replace('`', "``");
        let text = format!(
            "CREATE DATABASE IF NOT EXISTS `{name}` DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        );
        connection.execute(AssertSqlSafe(text)).await?;
        connection.close().await?;
        Ok(())
    };
    tokio::time::timeout(ANSWER_LIMIT, made).await.unwrap_or_else(|_| Err(DatabaseError::silence()))
}

/// Widens the limits of a session for statements that change the schema.
pub(super) fn migration_session() -> String {
    format!(
        "SET SESSION ob_query_timeout = {0}, ob_trx_timeout = {0}, ob_trx_idle_timeout = {0}, \
         ob_trx_lock_timeout = {0}",
        MIGRATION_LIMIT.as_micros()
    )
}

/// Widens the limits of a session for statements over a whole wave. Waiting for locks stays short.
pub(super) fn wave_session() -> String {
    format!("SET SESSION ob_query_timeout = {0}, ob_trx_timeout = {0}", WAVE_LIMIT.as_micros())
}

fn options(server: &OceanBaseServer) -> MySqlConnectOptions {
    let options = MySqlConnectOptions::new()
        .host(&server.host)
        .port(server.port)
        .username(&server.user)
        .charset("utf8mb4")
        .statement_cache_capacity(PREPARED_STATEMENTS)
        .pipes_as_concat(false)
        .no_engine_substitution(false)
        .timezone(None)
        .set_names(false)
        .disable_statement_logging();
    match server.password.reveal() {
        "" => options,
        password => options.password(password),
    }
}

/// Everything the store relies on. `NO_BACKSLASH_ESCAPES` makes texts read as in SQLite.
fn session(server: &OceanBaseServer, role: Role) -> String {
    let isolation = match role {
        Role::Writer => "READ-COMMITTED",
        Role::Reader => "REPEATABLE-READ",
    };
    format!(
        "SET SESSION autocommit = 1, character_set_client = utf8mb4, character_set_connection = utf8mb4, \
         character_set_results = utf8mb4, collation_connection = utf8mb4_bin, \
         time_zone = '+00:00', tx_isolation = '{isolation}', \
         sql_mode = 'STRICT_ALL_TABLES,ONLY_FULL_GROUP_BY,NO_ZERO_IN_DATE,NO_ZERO_DATE,NO_BACKSLASH_ESCAPES', \
         cte_max_recursion_depth = {RECURSION_LIMIT}, \
         ob_trx_lock_timeout = {}, ob_query_timeout = {}, ob_trx_timeout = {}, ob_trx_idle_timeout = {}",
        server.busy_timeout.min(LONGEST_LOCK_WAIT).as_micros(),
        STATEMENT_LIMIT.as_micros(),
        TRANSACTION_LIMIT.as_micros(),
        IDLE_TRANSACTION_LIMIT.as_micros(),
    )
}
