//! One program of the product as a process that a test may kill, freeze, thaw or stop.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::server::program;

/// How long a process that was asked to stop may take before the test fails.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Sends a signal; that the process is gone already is no failure.
pub fn send(pid: Pid, signal: Signal) {
    let _ = kill_process(pid, signal);
}

/// A running program; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program with these arguments and this environment alone; its standard error is
    /// appended to `log`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(name: &str, arguments: &[&str], environment: &[(String, String)], log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).expect("a log file");
        let child = Command::new(program(name))
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .envs(environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("the program starts");
        Self { child, log: log.to_owned() }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// How it ended, or `None` while it runs.
    ///
    /// # Panics
    /// When the operating system does not say.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the process's state")
    }

    /// The processes it has started that still run, such as workers.
    #[must_use]
    pub fn children(&self) -> Vec<Pid> {
        children_of(self.pid())
    }

    /// Stops its execution without telling it, together with its workers', and returns the workers.
    #[must_use]
    pub fn freeze(&self) -> Vec<Pid> {
        // First the process, so that it starts no further worker.
        send(self.pid(), Signal::STOP);
        let workers = self.children();
        for worker in &workers {
            send(*worker, Signal::STOP);
        }
        workers
    }

    /// Lets it continue; its workers are continued by the caller.
    pub fn thaw(&self) {
        send(self.pid(), Signal::CONT);
    }

    /// Kills it at once.
    ///
    /// # Panics
    /// When the operating system refuses.
    pub fn kill(mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("the process's end");
    }

    /// Asks it to stop; does not wait.
    pub fn terminate(&self) {
        send(self.pid(), Signal::TERM);
    }

    /// Asks it to stop and waits for its end.
    ///
    /// # Panics
    /// When it does not end in time.
    pub async fn stop(mut self) -> ExitStatus {
        self.terminate();
        let pause = Duration::from_millis(20);
        let mut waited = Duration::ZERO;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(waited < STOP_LIMIT, "still running {STOP_LIMIT:?} after SIGTERM: {}", self.log_tail());
            tokio::time::sleep(pause).await;
            waited += pause;
        }
    }

    /// The end of its log, for messages of failed tests.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(15)..];
        format!("\n--- end of {} ---\n{}", self.log.display(), tail.join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether there is such a process that has not ended.
#[must_use]
pub fn is_running(pid: Pid) -> bool {
    parent_of(pid.as_raw_nonzero().get()).is_some()
}

/// Running processes whose parent is `parent`.
fn children_of(parent: Pid) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| parent_of(*pid) == Some(parent.as_raw_nonzero().get()))
        .filter_map(Pid::from_raw)
        .collect()
}

/// The parent of a process that has not ended; its name may hold anything, so fields are counted from
/// the last bracket.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z").then_some(parent)
}
