//! A real `powercontext-api-server` process on a free port over a database file of its own.
//!
//! Binaries are taken from the folder the tests were built into, so `cargo build --workspace --bins`
//! must have run before; `make test` does that.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::client::Client;
use crate::engine::SharedDatabase;

/// The model that needs none.
pub const BUILTIN: &str = "builtin:extractive";

/// Where a built program of the workspace lies.
///
/// # Panics
/// When it was not built.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("the test program has a path");
    own.ancestors()
        .map(|folder| folder.join(name))
        .find(|found| found.is_file())
        .unwrap_or_else(|| panic!("{name} is missing: cargo build --workspace --bins"))
}

/// A port nobody listens on right now.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// Settings of one server under test.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The folder that holds the database and the log.
    pub folder: PathBuf,
    /// Environment beyond the defaults; later entries win.
    pub environment: Vec<(String, String)>,
    /// A database on OceanBase; without one it is a file in the folder.
    server_url: Option<String>,
}

impl Setup {
    /// A server over `folder/fleet.sqlite3` with the built-in generator.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), environment: Vec::new(), server_url: None }
            .with("INFERENCE_GENERATION_MODEL", BUILTIN)
    }

    /// A server over a database on OceanBase instead; `folder` holds the log alone.
    #[must_use]
    pub fn on(folder: &Path, database: &SharedDatabase) -> Self {
        Self { server_url: Some(database.url()), ..Self::new(folder) }
    }

    /// Sets `POWERCONTEXT_SERVER_<name>`.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((format!("POWERCONTEXT_SERVER_{name}"), value.into()));
        self
    }

    /// Sets a variable under its own name.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Removes a setting made before.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        let name = format!("POWERCONTEXT_SERVER_{name}");
        self.environment.retain(|(key, _)| *key != name);
        self
    }

    /// The database file.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.folder.join("fleet.sqlite3")
    }

    /// The database as the settings name it.
    #[must_use]
    pub fn database_url(&self) -> String {
        self.server_url.clone().unwrap_or_else(|| format!("sqlite://{}", self.database().display()))
    }
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// `http://127.0.0.1:PORT`.
    pub base_url: String,
    /// How it was started.
    pub setup: Setup,
}

impl Server {
    /// Starts the server and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready within 30 seconds.
    pub async fn start(setup: Setup) -> Self {
        let port = free_port();
        let log = File::options()
            .create(true)
            .append(true)
            .open(setup.folder.join("server.log"))
            .expect("a log file");
        let mut command = Command::new(program("powercontext-api-server"));
        command
            .args(["--role", "all"])
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .env("HOME", &setup.folder)
            .env("POWERCONTEXT_SERVER_HTTP_PORT", port.to_string())
            .env("POWERCONTEXT_SERVER_DATABASE_URL", setup.database_url())
            .envs(setup.environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = command.spawn().expect("the server starts");
        let mut server = Self { child, base_url: format!("http://127.0.0.1:{port}"), setup };
        server.wait_ready().await;
        server
    }

    async fn wait_ready(&mut self) {
        let client = self.client();
        for _ in 0..600 {
            if let Some(status) = self.child.try_wait().expect("the server's state") {
                panic!("the server ended with {status}: {}", self.log());
            }
            if client.try_get("/health/ready").await.is_some_and(|answer| answer.status == 200) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the server did not become ready: {}", self.log());
    }

    /// A client of this server.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(&self.base_url)
    }

    /// The server's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything the server has logged so far, all its lives on this folder included.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.setup.folder.join("server.log")).unwrap_or_default()
    }

    /// Kills the server with SIGKILL and returns how to start it again.
    pub fn kill(mut self) -> Setup {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("the server's end");
        self.setup.clone()
    }

    /// Waits for the end of a server that was asked to stop before.
    pub fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("the server's end")
    }

    /// Asks the server to stop with SIGTERM and waits for its end.
    pub fn stop(mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("SIGTERM");
        self.child.wait().expect("the server's end")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
