//! A program that a test of its own crate starts on a free port, with its HTTP and its log.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::process::send;

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running program; killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    log: PathBuf,
    url: String,
    client: reqwest::Client,
}

impl Running {
    /// Starts `command`, whose port must be 0, and waits until it listens. Its log is JSON.
    ///
    /// # Panics
    /// When it ends instead.
    pub async fn start(mut command: Command, folder: &Path) -> Self {
        static STARTED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = STARTED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let log = folder.join(format!("{number}.log"));
        let output = File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let child = command.spawn().unwrap();
        let mut running = Self { child, log, url: String::new(), client: reqwest::Client::new() };
        running.url = running
            .until("the program listens", async |running| {
                assert!(running.child.try_wait().unwrap().is_none(), "{}", running.log());
                let log = running.log();
                let line = log.lines().find(|line| line.contains("\"server.listening\""))?;
                let line: Value = serde_json::from_str(line).ok()?;
                Some(line["url"].as_str()?.to_owned())
            })
            .await;
        running
    }

    /// Its log so far.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// The status and the body of an answer.
    ///
    /// # Panics
    /// When there is none.
    pub async fn get(&self, path: &str) -> (u16, Value) {
        read(self.client.get(format!("{}{path}", self.url))).await
    }

    /// The same for a JSON body that is sent.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let request = self.client.post(format!("{}{path}", self.url));
        read(request.header("content-type", "application/json").body(body.to_string())).await
    }

    /// One check of readiness; empty when it is not told.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn check(&self, name: &str) -> String {
        self.get("/health/ready").await.1["checks"][name].as_str().unwrap_or_default().to_owned()
    }

    /// Asks again and again until there is an answer.
    ///
    /// # Panics
    /// When there is none for a long time.
    pub async fn until<T>(&mut self, what: &str, mut ask: impl AsyncFnMut(&mut Self) -> Option<T>) -> T {
        let asking = async {
            loop {
                if let Some(answer) = ask(self).await {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let answer = tokio::time::timeout(PATIENCE, asking).await;
        answer.unwrap_or_else(|_| panic!("it never came to this: {what}\n{}", self.log()))
    }

    /// Sends SIGTERM and gives the exit status.
    ///
    /// # Panics
    /// When another signal ended it.
    pub fn terminate(&mut self) -> i32 {
        send(Pid::from_child(&self.child), Signal::TERM);
        self.child.wait().unwrap().code().expect("it ends by itself")
    }
}

/// Starts a program over a database that takes connections and never answers, sends each of the signals
/// that ask to stop, and sees it end with status 0. `command` makes the program for the database's address.
///
/// # Panics
/// When it does not end so.
pub async fn end_while_waiting(command: impl Fn(&str) -> Command) {
    for signal in [Signal::TERM, Signal::INT] {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = silent.local_addr().expect("its address").port();
        let mut command = command(&format!("mysql://root@127.0.0.1:{port}/x"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let child = child.expect("the program starts");
        let connected = tokio::time::timeout(PATIENCE, silent.accept()).await.expect("it connects");
        send(Pid::from_child(&child), signal);
        let ended = tokio::task::spawn_blocking(move || child.wait_with_output());
        let output = ended.await.expect("a thread").expect("its end");
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{signal:?}: {log}");
        assert!(log.contains("\"server.start_abandoned\""), "{log}");
        drop(connected);
    }
}

async fn read(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.timeout(PATIENCE).send().await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_str(&response.text().await.unwrap()).unwrap_or(Value::Null))
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
