//! The program as the supervisor sees it: arguments, outcome line, exit code, ways to stop it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

use common::World;
use powercontext_core::ids::Position;
use powercontext_core::work::{Ending, ErrorCode, Outcome, Step};
use powercontext_store::leases;

fn program(world: &World, assignment: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_powercontext-worker"));
    command
        .env_clear()
        .env("POWERCONTEXT_SERVER_DATABASE_URL", world.url())
        .env("POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL", "builtin:extractive")
        .args(["--assignment", assignment])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn outcome(output: &Output) -> Outcome {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

async fn assignment(world: &World) -> String {
    serde_json::to_string(&world.assignment().await).unwrap()
}

#[tokio::test]
async fn a_worker_process_publishes_one_window_and_says_so_without_content() {
    // TM-002, TM-080, TM-228
    let world = World::new().await;
    world
        .capture(&["The zanzibar lease of the scheduler lasts fifteen seconds and is renewed every five."])
        .await;
    let output = program(&world, &assignment(&world).await).output().unwrap();
    let ended = outcome(&output);
    assert_eq!((ended.ending, output.status.code()), (Ending::Done, Some(0)), "{ended:?}");
    assert_eq!((ended.counts.sources, ended.counts.created), (1, 1));
    assert!(ended.first_read_millis.is_some());
    assert_eq!(world.cursor().await, Position::new(1));
    for stream in [&output.stdout, &output.stderr] {
        assert!(!String::from_utf8_lossy(stream).to_lowercase().contains("zanzibar"));
    }
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.lines().all(|line| line.starts_with('{')), "{log}");
}

#[tokio::test]
async fn a_worker_of_an_old_term_exits_with_its_own_code_and_logs_why() {
    // TM-186, TM-227
    let world = World::new().await;
    world.capture(&["zanzibar"]).await;
    let assignment = assignment(&world).await;
    common::begin_term(&world.store, "second").await;
    let output = program(&world, &assignment).output().unwrap();
    assert_eq!(output.status.code(), Some(10));
    assert_eq!(outcome(&output).error_code, Some(ErrorCode::Fenced));
    let log = String::from_utf8(output.stderr).unwrap();
    for word in ["binding", "scope", "supervisor_generation", "source_after", "topic-memory-source-window"] {
        assert!(log.contains(word), "{word}: {log}");
    }
    for field in [r#""stage":"start""#, r#""error_code":"fenced""#, r#""ending":"superseded""#] {
        assert!(log.contains(field), "{field}: {log}");
    }
    assert!(!log.contains("zanzibar"));
    assert!(leases::current(&world.store).await.unwrap().is_some());
}

#[tokio::test]
async fn a_bad_configuration_is_refused_before_anything_is_touched() {
    // TM-080
    let world = World::new().await;
    world.capture(&["alpha"]).await;
    let good = assignment(&world).await;
    let model = "POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL";
    let mut cases =
        vec![program(&world, "{}"), program(&world, &good), program(&world, &good), program(&world, &good)];
    cases[1].env(model, "telepathy:large");
    cases[2].env_remove(model);
    cases[3].env("POWERCONTEXT_SERVER_DATABASE_URL", "sqlite:///nowhere/at/all.db");
    for command in &mut cases {
        let output = command.output().unwrap();
        let ended = outcome(&output);
        let expected = if ended.error_code == Some(ErrorCode::DatabaseUnavailable) { 40 } else { 30 };
        assert_eq!(output.status.code(), Some(expected), "{command:?} {ended:?}");
        assert_eq!(ended.step, Step::Start);
        assert!(!output.stderr.is_empty());
    }
    for command in &mut cases[..3] {
        assert_eq!(command.output().unwrap().status.code(), Some(30));
    }
    assert_eq!(world.budget(0).await, None);
}

/// A worker that waits for a model that never answers.
async fn hanging(world: &World, stdin: Stdio) -> (Child, std::net::TcpListener) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let child = program(world, &assignment(world).await)
        .arg("--exit-with-parent")
        .env("POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL", "openai:silent")
        .env("POWERCONTEXT_SERVER_INFERENCE_GENERATION_BASE_URL", url)
        .env("POWERCONTEXT_SERVER_INFERENCE_GENERATION_API_KEY", "key")
        .stdin(stdin)
        .spawn()
        .unwrap();
    let (connection, _) = listener.accept().unwrap();
    std::mem::forget(connection);
    (child, listener)
}

fn assert_terminated(output: &Output) {
    let ended = outcome(output);
    assert_eq!((ended.ending, ended.step), (Ending::Terminated, Step::Probe), "{ended:?}");
    assert_eq!(output.status.code(), Some(143));
}

#[tokio::test]
async fn a_worker_whose_parent_is_gone_stops() {
    // TM-199
    let world = World::new().await;
    world.capture(&["alpha"]).await;
    let (mut child, _listener) = hanging(&world, Stdio::piped()).await;
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"still here").unwrap();
    assert!(child.try_wait().unwrap().is_none());
    drop(stdin);
    assert_terminated(&child.wait_with_output().unwrap());
    assert_eq!(world.cursor().await, Position::new(0));
    assert_eq!(world.budget(0).await.unwrap().attempts, 1);
}

#[tokio::test]
async fn a_worker_that_gets_sigterm_stops() {
    // TM-199
    let world = World::new().await;
    world.capture(&["alpha"]).await;
    let (mut child, _listener) = hanging(&world, Stdio::piped()).await;
    let stdin = child.stdin.take();
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_terminated(&child.wait_with_output().unwrap());
    drop(stdin);
}

#[tokio::test]
async fn a_failed_start_is_told_once_with_its_cause() {
    // TM-080, TM-227
    let world = World::new().await;
    let good = assignment(&world).await;
    let broken = world.folder.path().join("broken.db");
    std::fs::write(&broken, "this is no database ".repeat(1_000)).unwrap();
    let database = "POWERCONTEXT_SERVER_DATABASE_URL";
    let level = "POWERCONTEXT_SERVER_LOG_LEVEL";
    let model = "POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL";
    let mut cases = [
        (program(&world, "{}"), ErrorCode::ConfigurationInvalid, "missing field", true),
        (program(&world, &good), ErrorCode::ConfigurationInvalid, "telepathy", true),
        (program(&world, &good), ErrorCode::DatabaseUnavailable, "database operation", true),
        (program(&world, &good), ErrorCode::ConfigurationInvalid, "log.level", false),
    ];
    cases[1].0.env(model, "telepathy:large");
    cases[2].0.env(database, format!("sqlite://{}", broken.display()));
    cases[3].0.env(level, "=loud=");
    for (command, code, cause, logged) in &mut cases {
        let output = command.output().unwrap();
        assert_eq!(outcome(&output).error_code, Some(*code));
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(log.trim_end().lines().count(), 1, "{log}");
        assert!(log.contains(*cause), "{cause}: {log}");
        assert_eq!(log.starts_with('{'), *logged, "{log}");
    }
}
