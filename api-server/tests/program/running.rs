//! A program that goes on running, with its HTTP and its log.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running program; killed when dropped.
pub struct Running {
    child: Child,
    log: PathBuf,
    url: String,
    client: reqwest::Client,
}

impl Running {
    /// Starts `command`, whose port must be 0, and waits until it listens.
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

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// The status and the body of an answer.
    pub async fn get(&self, path: &str) -> (u16, Value) {
        read(self.client.get(format!("{}{path}", self.url))).await
    }

    pub async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let request = self.client.post(format!("{}{path}", self.url));
        read(request.header("content-type", "application/json").body(body.to_string())).await
    }

    /// One check of readiness.
    pub async fn check(&self, name: &str) -> String {
        self.get("/health/ready").await.1["checks"][name].as_str().unwrap_or_default().to_owned()
    }

    /// Asks again and again until there is an answer.
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
    pub fn terminate(&mut self) -> i32 {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code().expect("it ends by itself")
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
