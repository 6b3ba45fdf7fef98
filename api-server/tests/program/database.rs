//! A database of one test on the OceanBase server that `POWERCONTEXT_TEST_OCEANBASE_URL` names, as in
//! `mysql://root@127.0.0.1:2881`, and a way to it that can be interrupted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

static MADE: AtomicU64 = AtomicU64::new(0);

/// A database without tables; [`Self::remove`] takes it away.
pub struct TestDatabase {
    server: String,
    name: String,
}

impl TestDatabase {
    /// Makes one; `None` when no server is named.
    pub async fn new() -> Option<Self> {
        let database = Self::unmade()?;
        database.run("CREATE DATABASE").await;
        Some(database)
    }

    /// A name whose database does not exist.
    pub fn unmade() -> Option<Self> {
        let server = std::env::var("POWERCONTEXT_TEST_OCEANBASE_URL").ok()?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("pc_program_{}_{number}", std::process::id());
        Some(Self { server: server.trim_end_matches('/').to_owned(), name })
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("{}/{}", self.server, self.name)
    }

    /// Its address by way of a port of this machine.
    pub fn url_through(&self, port: u16) -> String {
        let (user, _) = self.server.rsplit_once('@').unwrap();
        format!("{user}@127.0.0.1:{port}/{}", self.name)
    }

    /// Where its server listens.
    pub fn address(&self) -> String {
        self.server.rsplit_once('@').unwrap().1.to_owned()
    }

    pub async fn remove(self) {
        self.run("DROP DATABASE IF EXISTS").await;
    }

    /// Runs a statement inside it.
    pub async fn execute(&self, statement: &str) {
        let mut connection = self.connect().await;
        connection.execute(AssertSqlSafe(format!("USE {}", self.name))).await.unwrap();
        connection.execute(AssertSqlSafe(statement.to_owned())).await.unwrap();
    }

    async fn run(&self, what: &str) {
        self.connect().await.execute(AssertSqlSafe(format!("{what} {}", self.name))).await.unwrap();
    }

    async fn connect(&self) -> MySqlConnection {
        let options: MySqlConnectOptions = self.server.parse().unwrap();
        // What the driver sets by itself is not understood by every server.
        let options = options.pipes_as_concat(false).no_engine_substitution(false).timezone(None);
        options.connect().await.unwrap()
    }
}

/// A port that leads to a server until it is told to fall silent.
pub struct Way {
    pub port: u16,
    silent: Arc<AtomicBool>,
}

impl Way {
    pub async fn to(address: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let silent = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&silent);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(&address).await.unwrap();
                let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
                tokio::spawn(pass(from_near, to_far, Arc::clone(&flag)));
                tokio::spawn(pass(from_far, to_near, Arc::clone(&flag)));
            }
        });
        Self { port, silent }
    }

    /// Keeps every byte back from now on, or lets them pass again.
    pub fn set_silent(&self, silent: bool) {
        self.silent.store(silent, Ordering::Release);
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, silent: Arc<AtomicBool>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        while silent.load(Ordering::Acquire) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
