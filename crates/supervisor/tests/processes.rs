//! The process launcher with real child processes: small shell scripts instead of the worker.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code: it may panic, and the seed is printed"
)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use powercontext_core::ids::{
    BindingName, FlushGeneration, HolderId, Position, ScopeId, SupervisorGeneration,
};
use powercontext_core::work::{Ending, ErrorCode, Fence, WorkAssignment, WorkKey, WorkMode};
use powercontext_supervisor::{LaunchError, Launcher, ProcessLauncher, WorkerEnding};

const PUBLISHED: &str = r#"{"ending":"done","step":"publish","counts":{"sources":3,"created":1,"updated":0,"requests":2,"input_tokens":0,"output_tokens":0}}"#;

fn assignment() -> WorkAssignment {
    WorkAssignment {
        key: WorkKey {
            binding: BindingName::parse("topic-memory").unwrap(),
            scope: ScopeId::parse("scp_one").unwrap(),
        },
        fence: Fence { holder: HolderId::parse("holder").unwrap(), generation: SupervisorGeneration::new(1) },
        source_after: Position::new(0),
        wave_target: Position::new(3),
        claimed_flush_generation: FlushGeneration::new(1),
        mode: WorkMode::Explicit,
    }
}

fn script(folder: &Path, body: &str) -> PathBuf {
    let path = folder.join("worker.sh");
    // Written aside and moved, so that no other test's child holds it open for writing.
    let draft = folder.join("draft");
    std::fs::write(&draft, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&draft, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::rename(&draft, &path).unwrap();
    path
}

async fn launch(launcher: &ProcessLauncher) -> powercontext_supervisor::WorkerId {
    loop {
        match launcher.launch(&assignment()).await {
            Ok(worker) => return worker,
            // Another test forked while this script was open for writing.
            Err(LaunchError::Start(error)) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                tokio::task::yield_now().await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

async fn run(body: &str) -> WorkerEnding {
    let folder = tempfile::tempdir().unwrap();
    let environment = vec![("POWERCONTEXT_SERVER_PUBLISHED".to_owned(), PUBLISHED.to_owned())];
    let launcher = ProcessLauncher::new(script(folder.path(), body), environment);
    let worker = launch(&launcher).await;
    let (ended, ending) = launcher.next_ending().await;
    assert_eq!(ended, worker);
    ending
}

async fn appears(path: &Path) -> String {
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

#[tokio::test]
async fn a_worker_with_an_outcome_ends_as_its_exit_code_says() {
    for (code, ending) in [
        (0, Ending::Done),
        (10, Ending::Superseded),
        (20, Ending::Permanent),
        (30, Ending::Configuration),
        (40, Ending::Transient),
        (143, Ending::Terminated),
        (7, Ending::Transient),
    ] {
        let seen = run(&format!("echo progress\necho \"$POWERCONTEXT_SERVER_PUBLISHED\"\nexit {code}")).await;
        assert_eq!(seen.ending, ending, "exit code {code}");
        assert_eq!(seen.outcome.unwrap().counts.sources, 3);
    }
}

#[tokio::test]
async fn a_worker_gets_its_assignment_as_an_argument() {
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen");
    let body = format!("printf '%s\\n' \"$1 $3 $2\" > {}", seen.display());
    let launcher = ProcessLauncher::new(script(folder.path(), &body), vec![]);
    launch(&launcher).await;
    launcher.next_ending().await;
    let text = appears(&seen).await;
    let json = text.strip_prefix("--assignment --exit-with-parent ").unwrap();
    assert_eq!(serde_json::from_str::<WorkAssignment>(json).unwrap(), assignment());
    assert!(!json.contains("deadline"), "TM-201");
}

#[tokio::test]
async fn a_worker_without_an_outcome_has_crashed() {
    for body in ["exit 0", "echo nonsense", "kill -9 $$"] {
        let seen = run(body).await;
        assert_eq!(seen.ending, Ending::Transient, "{body}");
        assert_eq!(seen.error_code(), Some(ErrorCode::WorkerCrashed), "{body}");
    }
}

#[tokio::test]
async fn endless_output_is_read_to_its_last_line_in_bounded_memory() {
    let flood = "head -c 8000000 /dev/zero | tr '\\0' x";
    let seen = run(&format!("{flood}\necho\necho \"$POWERCONTEXT_SERVER_PUBLISHED\"")).await;
    assert_eq!(seen.ending, Ending::Done);
    let seen = run(&format!("echo \"$POWERCONTEXT_SERVER_PUBLISHED\"\n{flood}")).await;
    assert_eq!(seen.error_code(), Some(ErrorCode::WorkerCrashed));
}

#[tokio::test]
async fn a_hanging_worker_obeys_a_stop() {
    // TM-199
    let folder = tempfile::tempdir().unwrap();
    let launcher = ProcessLauncher::new(script(folder.path(), "sleep 600"), vec![]);
    let worker = launch(&launcher).await;
    launcher.stop(&worker).await;
    launcher.stop(&worker).await;
    let (ended, ending) = launcher.next_ending().await;
    assert_eq!((ended, ending.ending), (worker, Ending::Terminated));
}

#[tokio::test]
async fn a_worker_that_ignores_the_stop_is_killed_with_everything_it_started() {
    // TM-199
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let body = format!("trap '' TERM\necho up > {}\nwhile :; do sleep 600; done", ready.display());
    let launcher =
        ProcessLauncher::new(script(folder.path(), &body), vec![]).with_stop_grace(Duration::from_millis(50));
    let worker = launch(&launcher).await;
    appears(&ready).await;
    launcher.stop(&worker).await;
    let (_, ending) = launcher.next_ending().await;
    assert_eq!(ending.error_code(), Some(ErrorCode::WorkerCrashed));
}

#[tokio::test]
async fn a_descendant_that_keeps_stdout_open_does_not_hold_back_the_ending() {
    let seen = run("sleep 5 &\necho \"$POWERCONTEXT_SERVER_PUBLISHED\"").await;
    assert_eq!(seen.ending, Ending::Done);
}

#[tokio::test]
async fn a_dropped_launcher_closes_stdin_and_kills_its_workers() {
    let folder = tempfile::tempdir().unwrap();
    let (ready, gone) = (folder.path().join("ready"), folder.path().join("gone"));
    // The reader outlives the worker, as a second witness: it sees the end of the pipe.
    let body = format!(
        "exec 3<&0\n(cat <&3 > /dev/null; echo eof > {}) &\necho $$ > {}\nwait\nsleep 600",
        gone.display(),
        ready.display()
    );
    let launcher = ProcessLauncher::new(script(folder.path(), &body), vec![]);
    launch(&launcher).await;
    let pid = appears(&ready).await;
    assert!(!gone.exists());
    drop(launcher);
    assert_eq!(appears(&gone).await, "eof\n");
    let process = PathBuf::from(format!("/proc/{}/stat", pid.trim()));
    loop {
        match std::fs::read_to_string(&process) {
            Ok(stat) if !stat.contains(") Z ") => tokio::time::sleep(Duration::from_millis(5)).await,
            _ => break,
        }
    }
}

#[tokio::test]
async fn a_missing_program_is_a_launch_error() {
    let launcher = ProcessLauncher::new(PathBuf::from("/nonexistent/worker"), vec![]);
    assert!(matches!(launcher.launch(&assignment()).await, Err(LaunchError::Start(_))));
}
