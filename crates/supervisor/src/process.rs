//! Runs workers as child processes of this one (TM-198).
//!
//! A worker gets its assignment as an argument, holds a pipe on stdin whose end tells it that its
//! parent is gone, and leaves one outcome line on stdout. Each worker leads its own process group,
//! so a terminal's interrupt reaches the supervisor alone and a stop reaches everything the worker
//! started. Whether and when to start or stop is decided elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use powercontext_core::work::{Ending, Outcome, WorkAssignment};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::last_line::LastLine;
use crate::launcher::{LaunchError, Launcher, WorkerEnding, WorkerId};

/// How long a worker has between SIGTERM and SIGKILL.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// How long output is awaited after the process is gone; a stray descendant may hold the pipe.
const OUTPUT_GRACE: Duration = Duration::from_millis(250);
/// Inherited variables with this prefix are replaced by the launcher's own.
const PREFIX: &str = "POWERCONTEXT_SERVER_";

/// Starts `program --assignment JSON --exit-with-parent` once per worker. Dropping the launcher
/// kills its workers.
pub struct ProcessLauncher {
    program: PathBuf,
    environment: Vec<(String, String)>,
    stop_grace: Duration,
    workers: Mutex<Workers>,
    ended: mpsc::UnboundedSender<(WorkerId, WorkerEnding)>,
    endings: tokio::sync::Mutex<mpsc::UnboundedReceiver<(WorkerId, WorkerEnding)>>,
}

/// Shows the names of the environment alone: values may be keys or addresses with passwords.
impl fmt::Debug for ProcessLauncher {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.environment.iter().map(|(name, _)| name.as_str()).collect();
        out.debug_struct("ProcessLauncher")
            .field("program", &self.program)
            .field("environment", &names)
            .field("stop_grace", &self.stop_grace)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Workers {
    started: u64,
    stops: BTreeMap<WorkerId, oneshot::Sender<()>>,
    tasks: JoinSet<()>,
}

impl ProcessLauncher {
    /// A launcher of this program. Workers inherit the environment of this process, except that
    /// every `POWERCONTEXT_SERVER_` variable comes from `environment` alone.
    #[must_use]
    pub fn new(program: PathBuf, environment: Vec<(String, String)>) -> Self {
        let (ended, endings) = mpsc::unbounded_channel();
        Self {
            program,
            environment,
            stop_grace: STOP_GRACE,
            workers: Mutex::default(),
            ended,
            endings: tokio::sync::Mutex::new(endings),
        }
    }

    /// Gives workers another time to obey SIGTERM before they are killed.
    #[must_use]
    pub fn with_stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = grace;
        self
    }

    fn spawn(&self, assignment: &WorkAssignment) -> Result<Child, LaunchError> {
        let assignment = serde_json::to_string(assignment).map_err(LaunchError::Encode)?;
        let mut command = Command::new(&self.program);
        command
            .args(["--assignment", &assignment, "--exit-with-parent"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .process_group(0)
            .kill_on_drop(true);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with(PREFIX)) {
                command.env_remove(name);
            }
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.spawn().map_err(LaunchError::Start)
    }
}

#[async_trait]
impl Launcher for ProcessLauncher {
    async fn launch(&self, assignment: &WorkAssignment) -> Result<WorkerId, LaunchError> {
        let child = self.spawn(assignment)?;
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        while workers.tasks.try_join_next().is_some() {}
        workers.started += 1;
        let worker = WorkerId::new(format!("process-{}", workers.started));
        let (stop, stopped) = oneshot::channel();
        workers.stops.insert(worker.clone(), stop);
        let (ended, name, grace) = (self.ended.clone(), worker.clone(), self.stop_grace);
        workers.tasks.spawn(async move {
            let ending = attend(child, stopped, grace).await;
            // A closed channel means the launcher is gone, and with it everyone who could ask.
            let _ = ended.send((name, ending));
        });
        Ok(worker)
    }

    async fn stop(&self, worker: &WorkerId) {
        let stop = self.workers.lock().unwrap_or_else(PoisonError::into_inner).stops.remove(worker);
        if let Some(stop) = stop {
            // A closed channel means that the worker has just ended.
            let _ = stop.send(());
        }
    }

    async fn next_ending(&self) -> (WorkerId, WorkerEnding) {
        let received = self.endings.lock().await.recv().await;
        match received {
            Some((worker, ending)) => {
                self.workers.lock().unwrap_or_else(PoisonError::into_inner).stops.remove(&worker);
                (worker, ending)
            }
            // Cannot happen while `self.ended` lives.
            None => std::future::pending().await,
        }
    }
}

/// Stays with one worker until it is gone. Holds the pipe on its stdin all that time.
async fn attend(mut child: Child, stopped: oneshot::Receiver<()>, grace: Duration) -> WorkerEnding {
    let held = child.stdin.take();
    let lines = Arc::new(Mutex::new(LastLine::default()));
    let reader = child.stdout.take().map(|stdout| {
        let lines = Arc::clone(&lines);
        async move { read(stdout, &lines).await }
    });
    let mut reading = JoinSet::new();
    if let Some(reader) = reader {
        reading.spawn(reader);
    }
    let status = tokio::select! {
        status = child.wait() => status,
        // A dropped sender means that nobody can ask for a stop any more, so keep waiting.
        Ok(()) = stopped => stop(&mut child, grace).await,
    };
    drop(held);
    // Not an error when it passes: what was read so far is all there is.
    let _ = tokio::time::timeout(OUTPUT_GRACE, reading.join_next()).await;
    let line = std::mem::take(&mut *lines.lock().unwrap_or_else(PoisonError::into_inner)).finish();
    ending(status.ok(), serde_json::from_slice(&line).ok())
}

async fn read(mut stdout: ChildStdout, lines: &Mutex<LastLine>) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stdout.read(&mut buffer).await {
        lines.lock().unwrap_or_else(PoisonError::into_inner).feed(&buffer[..read]);
    }
}

/// SIGTERM, then SIGKILL. The child is not reaped before `wait` returns, so its number is its own.
async fn stop(child: &mut Child, grace: Duration) -> std::io::Result<ExitStatus> {
    signal(child, Signal::TERM);
    match tokio::time::timeout(grace, child.wait()).await {
        Ok(status) => status,
        Err(_) => {
            signal(child, Signal::KILL);
            child.wait().await
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // The only failure is that the group is gone already.
        let _ = kill_process_group(pid, signal);
    }
}

/// Judges an exit: a worker that leaves no outcome has crashed, unless a signal ended it.
fn ending(status: Option<ExitStatus>, outcome: Option<Outcome>) -> WorkerEnding {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.and_then(|status| status.signal());
    let terminated = signal == Some(Signal::TERM.as_raw());
    let code = status.and_then(|status| status.code()).map(Ending::from_exit_code);
    let ending = match code {
        Some(ending) if outcome.is_some() || ending == Ending::Terminated => ending,
        None if terminated => Ending::Terminated,
        Some(_) | None => Ending::Transient,
    };
    WorkerEnding { ending, outcome }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_text_of_a_launcher_shows_names_and_no_value() {
        let environment = vec![("POWERCONTEXT_SERVER_KEY".to_owned(), "sk-secret".to_owned())];
        let text = format!("{:?}", ProcessLauncher::new(PathBuf::from("/bin/true"), environment));
        assert!(text.contains("POWERCONTEXT_SERVER_KEY") && !text.contains("sk-secret"), "{text}");
    }
}
