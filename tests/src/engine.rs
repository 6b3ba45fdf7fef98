//! OceanBase's engine for tests: a private one that may be killed, or the one `make test` started.
//!
//! Both are run by `scripts/seekdb.sh`. A private engine dies with the test that started it, because
//! the script holds on to the test's end of a pipe.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use powercontext_core::ambient::{IdSource as _, SystemIds};
use rustix::process::{Pid, Signal};
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Executor as _};
use tempfile::TempDir;

use crate::process::send;
use crate::server::free_port;

/// Names the engine that the whole run shares, without a database.
const SHARED: &str = "POWERCONTEXT_TEST_OCEANBASE_URL";

/// Long enough for a whole-table read beside a busy fleet.
const SESSION: &str = "SET SESSION time_zone = '+00:00', ob_query_timeout = 60000000";

/// An engine of one test, on a folder and a port of its own.
#[derive(Debug)]
pub struct Engine {
    folder: TempDir,
    port: u16,
    guard: Option<Child>,
}

impl Engine {
    /// Starts a new engine and waits until it takes connections.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start() -> Self {
        // The usual prefix of such folders is one that the engine does not start in twice.
        let folder = tempfile::Builder::new().prefix("powercontext-engine-").tempdir().expect("a folder");
        let mut engine = Self { folder, port: free_port(), guard: None };
        engine.restart().await;
        engine
    }

    /// Starts it again on its folder after [`Engine::crash`] and waits until it takes connections.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn restart(&mut self) {
        self.release();
        let mut guard = Command::new("bash")
            .arg(script())
            .arg("run")
            .arg(self.folder.path())
            .arg(self.port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash runs");
        let said = guard.stdout.take().expect("its output");
        self.guard = Some(guard);
        let ready = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            let _ = BufReader::new(said).read_line(&mut line);
            line
        });
        assert_eq!(ready.await.expect("a line").trim(), "ready", "the engine starts: {}", self.log());
    }

    /// Kills the engine with SIGKILL, as a crash of its machine would.
    ///
    /// # Panics
    /// When there is no such process.
    pub fn crash(&self) {
        let noted = std::fs::read_to_string(self.folder.path().join("seekdb.pid")).expect("a process id");
        let pid = Pid::from_raw(noted.trim().parse().expect("a number")).expect("not 0");
        send(pid, Signal::KILL);
    }

    /// The port it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The engine's own last words, for messages of failed tests.
    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("seekdb.log")).unwrap_or_default()
    }

    /// Ends the script and with it the engine, if it still runs.
    fn release(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.release();
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("scripts/seekdb.sh")
}

/// The address of a database on an engine of this machine.
#[must_use]
pub fn url(port: u16, database: &str) -> String {
    format!("mysql://root@127.0.0.1:{port}/{database}")
}

/// Connections to a database from outside the product, opened when first needed and again when lost.
/// Times are UTC, as in the product's sessions.
///
/// # Panics
/// When the address is not one.
#[must_use]
pub fn connect(url: &str) -> MySqlPool {
    let options: MySqlConnectOptions = url.parse().expect("an address");
    // What the driver sets by itself is not understood by every server.
    let options = options.pipes_as_concat(false).no_engine_substitution(false).timezone(None);
    MySqlPoolOptions::new()
        .max_connections(4)
        // A database that is away is waited for this long.
        .acquire_timeout(Duration::from_secs(3))
        .after_connect(|connection, _| {
            Box::pin(async move {
                connection.execute(SESSION).await?;
                Ok(())
            })
        })
        .connect_lazy_with(options)
}

/// A database of one test on the engine that the whole run shares.
#[derive(Debug)]
pub struct SharedDatabase {
    server: String,
    name: String,
}

impl SharedDatabase {
    /// A new name; `None` when the run has no shared engine, as under a bare `cargo test`. The database
    /// itself is made by the migration.
    #[must_use]
    pub fn new() -> Option<Self> {
        let server = std::env::var(SHARED).ok().filter(|server| !server.is_empty())?;
        let name = format!("pc_test_{}", SystemIds.random().simple());
        Some(Self { server: server.trim_end_matches('/').to_owned(), name })
    }

    /// The same, with the database made, without a schema.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn created() -> Option<Self> {
        let database = Self::new()?;
        database.create().await;
        Some(database)
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}/{}", self.server, self.name)
    }

    /// Its address by way of a port of this machine.
    ///
    /// # Panics
    /// When the server's address has no user.
    #[must_use]
    pub fn url_through(&self, port: u16) -> String {
        let (user, _) = self.server.rsplit_once('@').expect("a user");
        format!("{user}@127.0.0.1:{port}/{}", self.name)
    }

    /// Where its server listens: a host and a port.
    ///
    /// # Panics
    /// When the server's address has no user.
    #[must_use]
    pub fn address(&self) -> String {
        self.server.rsplit_once('@').expect("a user").1.to_owned()
    }

    /// Runs a statement inside it.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn execute(&self, statement: &str) {
        let pool = connect(&self.url());
        pool.execute(AssertSqlSafe(statement.to_owned())).await.expect("an executed statement");
        pool.close().await;
    }

    /// Makes the database, without a schema.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn create(&self) {
        let text = format!("CREATE DATABASE {} DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", self.name);
        connect(&format!("{}/test", self.server)).execute(AssertSqlSafe(text)).await.expect("a database");
    }

    /// Removes the database.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn remove(self) {
        let pool = connect(&format!("{}/test", self.server));
        let text = format!("DROP DATABASE IF EXISTS {}", self.name);
        pool.execute(AssertSqlSafe(text)).await.expect("a removed database");
        pool.close().await;
    }
}
