//! The program itself: what it refuses, what it answers, who leads, and how it stops.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::path::Path;
use std::process::Command;

use powercontext_core::ambient::SystemIds;
use powercontext_store::{DatabaseUrl, Store, StoreOptions, leases, migrate};
use powercontext_tests::engine::SharedDatabase;
use powercontext_tests::proxy::{Line, Proxy};
use powercontext_tests::running::{Running, end_while_waiting};
use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_powercontext-controller");
const MODEL: (&str, &str) = ("INFERENCE_GENERATION_MODEL", "builtin:extractive");
/// Nobody listens there, so a program that opened it would end with status 1.
const NOWHERE: (&str, &str) = ("DATABASE_URL", "mysql://root@127.0.0.1:1/x");
/// Any program will do where no worker is started.
const WORKER: (&str, &str) = ("RUNTIME_WORKER_PROGRAM", PROGRAM);

fn program(home: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env_clear().env("HOME", home);
    command.envs(settings.iter().map(|(name, value)| (format!("POWERCONTEXT_SERVER_{name}"), value)));
    command
}

/// The exit status and the last line after the program's name.
fn refused(arguments: &[&str], settings: &[(&str, &str)]) -> (i32, String) {
    let home = tempfile::tempdir().unwrap();
    let output = program(home.path(), arguments, settings).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let last = text.trim_end().lines().last().unwrap_or_default();
    let line = last.strip_prefix("powercontext-controller: ").unwrap_or_else(|| panic!("{text}"));
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing was made");
    (output.status.code().unwrap(), line.to_owned())
}

#[test]
fn sqlite_is_refused_before_anything_is_opened() {
    // TM-179
    for settings in [&[MODEL][..], &[MODEL, ("DATABASE_URL", "sqlite:///nowhere/x")]] {
        let (status, line) = refused(&[], settings);
        assert_eq!(status, 2);
        assert!(
            line.starts_with("setting `database.url` from the ") && line.contains("names SQLite"),
            "{line}"
        );
        assert!(line.contains("role `background` needs OceanBase"), "{line}");
    }
}

#[test]
fn the_roles_of_the_other_program_are_refused_and_the_own_one_may_be_named() {
    // TM-178, TM-250
    for role in ["all", "api"] {
        let (status, line) = refused(&["--role", role], &[NOWHERE, MODEL]);
        assert_eq!(status, 2);
        assert!(line.contains("from the flag --runtime-artifact-processing-role asks for role"), "{line}");
        assert!(line.contains("powercontext-api-server"), "{line}");
    }
    // These get as far as the database, which is not there.
    for arguments in [&[][..], &["--role", "background"], &["--launcher", "process"]] {
        let (status, line) = refused(arguments, &[NOWHERE, MODEL, WORKER]);
        assert_eq!(status, 1);
        assert!(line.starts_with("the database x at 127.0.0.1:1 cannot be used"), "{line}");
    }
}

#[test]
fn what_leaves_nothing_to_do_is_refused() {
    // TM-254
    let (status, line) = refused(&["--launcher", "pigeon"], &[NOWHERE, MODEL]);
    assert_eq!((status, line.as_str()), (2, "--launcher must be process, not \"pigeon\""));
    let (status, line) = refused(&[], &[NOWHERE]);
    assert_eq!(status, 2);
    assert!(line.contains("POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL"), "{line}");
    let schedule = ("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", "60");
    let (status, line) = refused(&[], &[NOWHERE, schedule]);
    assert!(status == 2 && line.contains("`runtime.topic_memory_schedule_seconds`"), "TM-086: {line}");
    let (status, line) = refused(&[], &[NOWHERE, ("INFERENCE_GENERATION_MODEL", "gemini:m")]);
    assert_eq!(status, 2);
    assert!(line.contains("is not supported"), "TM-085: {line}");
    let late = ("RUNTIME_ARTIFACT_PROCESSING_LEASE_SECONDS", "12");
    let (status, line) = refused(&[], &[NOWHERE, MODEL, WORKER, late]);
    assert_eq!(status, 2);
    assert!(line.contains("artifact_processing_lease_renewal_seconds"), "{line}");
}

#[test]
fn the_help_names_the_launcher_and_every_setting() {
    let home = tempfile::tempdir().unwrap();
    let output = program(home.path(), &["--help"], &[]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("--launcher process") && text.contains("--runtime-worker-program"), "{text}");
}

/// Short times, so that a test need not wait for long ones.
const QUICK: [(&str, &str); 4] = [
    ("RUNTIME_ARTIFACT_PROCESSING_LEASE_RENEWAL_SECONDS", "0.5"),
    ("RUNTIME_ARTIFACT_PROCESSING_LEASE_MARGIN_SECONDS", "0.5"),
    ("RUNTIME_ARTIFACT_PROCESSING_CANDIDACY_SECONDS", "0.2"),
    ("RUNTIME_ARTIFACT_PROCESSING_TICK_SECONDS", "0.1"),
];

/// A controller over this database with a lease of so many seconds.
async fn start(url: &str, lease: &str, folder: &Path) -> Running {
    let lease = ("RUNTIME_ARTIFACT_PROCESSING_LEASE_SECONDS", lease);
    let own = [("DATABASE_URL", url), ("HTTP_PORT", "0"), MODEL, WORKER, lease];
    Running::start(program(folder, &[], &[&QUICK[..], &own].concat()), folder).await
}

#[tokio::test]
async fn a_start_that_waits_for_a_silent_database_ends_with_its_first_signal() {
    let home = tempfile::tempdir().unwrap();
    end_while_waiting(|url| program(home.path(), &[], &[("DATABASE_URL", url), MODEL, WORKER])).await;
}

async fn supervisor(running: &Running) -> String {
    running.check("artifact_processing_supervisor").await
}

async fn leads(running: &mut Running) -> Option<()> {
    (supervisor(running).await == "leader").then_some(())
}

#[tokio::test]
async fn a_database_that_was_never_migrated_is_refused_and_not_migrated() {
    let Some(database) = SharedDatabase::created().await else { return };
    for _ in 0..2 {
        let (status, line) = refused(&[], &[("DATABASE_URL", &database.url()), MODEL, WORKER]);
        assert_eq!(status, 1);
        assert!(line.ends_with("no schema; run `powercontext-api-server migrate`"), "{line}");
    }
    database.remove().await;
}

#[tokio::test]
async fn one_of_two_leads_both_are_ready_and_a_stop_hands_over() {
    // TM-178, TM-183, TM-188
    let Some(database) = SharedDatabase::created().await else { return };
    let options = StoreOptions::new(DatabaseUrl::parse(&database.url()).unwrap());
    migrate(&options, &SystemIds).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    // No test waits for such a lease to expire: only one that was given back can be taken.
    let mut first = start(&database.url(), "600", folder.path()).await;
    first.until("the first leads", leads).await;
    let mut second = start(&database.url(), "600", folder.path()).await;
    second.until("the second waits", async |one| (supervisor(one).await == "candidate").then_some(())).await;
    assert_eq!(first.check("supervisor_generation").await, "1");
    let log = first.log();
    assert!(log.contains(r#""setting":"runtime.artifact_processing_role","value":"background""#), "{log}");
    // Whoever is asked tells who leads.
    let holder = first.check("supervisor_holder").await;
    assert!(!holder.is_empty() && log.contains(&holder), "the log of the leader has it: {log}");
    assert_eq!(second.check("supervisor_holder").await, holder);
    assert_eq!(second.check("supervisor_generation").await, "1");
    assert_eq!(second.check("topic_memory_terminal_frontiers").await, "", "a candidate does not look");
    assert_eq!(first.get("/health/live").await, (200, json!({"status": "ok"})));
    for one in [&first, &second] {
        let (status, ready) = one.get("/health/ready").await;
        assert_eq!((status, &ready["status"]), (200, &json!("ready")));
        assert_eq!(ready["checks"]["database"], "ready");
        assert_eq!(one.get("/v1/scopes").await.0, 404, "there is no API here");
    }
    assert_eq!(first.terminate(), 0);
    assert!(first.log().contains("\"server.stopped\""), "{}", first.log());
    second.until("the second leads", leads).await;
    assert_eq!(second.check("supervisor_generation").await, "2");
    assert_eq!(second.terminate(), 0);
    let store = Store::open(&options).await.unwrap();
    let term = leases::current(&store).await.unwrap().unwrap();
    assert_eq!(term.generation.get(), 2);
    store.close().await;
    database.remove().await;
}

#[tokio::test]
async fn a_leader_whose_database_falls_silent_stays_up_and_leads_again_in_a_later_term() {
    // TM-187, TM-188
    let Some(database) = SharedDatabase::created().await else { return };
    migrate(&StoreOptions::new(DatabaseUrl::parse(&database.url()).unwrap()), &SystemIds).await.unwrap();
    let way = Proxy::to(database.address()).await;
    let folder = tempfile::tempdir().unwrap();
    let mut controller = start(&database.url_through(way.port()), "3", folder.path()).await;
    controller.until("it leads", leads).await;
    way.set(Line::Silent);
    controller
        .until("it stops leading", async |one| (supervisor(one).await == "candidate").then_some(()))
        .await;
    let (status, ready) = controller.get("/health/ready").await;
    assert_eq!((status, &ready["checks"]["database"]), (503, &json!("unavailable")));
    assert_eq!(controller.get("/health/live").await.0, 200);
    way.set(Line::Open);
    controller.until("it leads again", leads).await;
    let generation: i64 = controller.check("supervisor_generation").await.parse().unwrap();
    assert!(generation >= 2, "{generation}");
    assert_eq!(controller.get("/health/ready").await.0, 200);
    assert_eq!(controller.terminate(), 0);
    database.remove().await;
}
