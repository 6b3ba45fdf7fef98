//! How the server ends, and that only one serves a database.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use powercontext_tests::model::{Model, Reply};
use powercontext_tests::server::{Server, Setup, program};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Runs the server program to its end.
fn run(arguments: &[&str], database: &Path) -> Output {
    Command::new(program("powercontext-api-server"))
        .args(arguments)
        .env_clear()
        .env("POWERCONTEXT_SERVER_HTTP_PORT", "0")
        .env("POWERCONTEXT_SERVER_DATABASE_URL", format!("sqlite://{}", database.display()))
        .stdin(Stdio::null())
        .output()
        .expect("the program runs")
}

/// The one line that a failed start prints, without the log before it.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> =
        text.lines().filter(|line| line.starts_with("powercontext-api-server: ")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    lines.concat()
}

fn terminate(server: &Server) {
    let pid = Pid::from_raw(i32::try_from(server.pid()).expect("a pid")).expect("not 0");
    kill_process(pid, Signal::TERM).expect("SIGTERM");
}

/// Begins to capture a Source, without the last byte of the body.
async fn begin_capture(server: &Server, scope: &str) -> (TcpStream, &'static [u8]) {
    let body = json!({"scope_id": scope, "source_id": "late", "content": "x"}).to_string();
    let mut stream =
        TcpStream::connect(server.base_url.trim_start_matches("http://")).await.expect("a connection");
    let head = format!(
        "POST /v1/sources/content HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let text = format!("{head}{}", &body[..body.len() - 1]);
    stream.write_all(text.as_bytes()).await.expect("a sent request");
    tokio::time::sleep(Duration::from_millis(200)).await;
    (stream, b"}")
}

async fn until_log_has(server: &Server, event: &str) {
    for _ in 0..1_000 {
        if server.log().contains(event) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no {event} in {}", server.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_finishes_requests_stops_workers_at_once_and_leaves_one_complete_file() {
    let folder = tempfile::tempdir().expect("a folder");
    // A model that is asked and never answers keeps the worker busy.
    let model = Model::start(|_| {
        std::thread::sleep(Duration::from_secs(3));
        Reply::Status(500)
    })
    .await;
    let setup = Setup::new(folder.path())
        .with("INFERENCE_GENERATION_MODEL", "openai:test")
        .with("INFERENCE_GENERATION_API_KEY", "k")
        .with("INFERENCE_GENERATION_BASE_URL", model.base_url.clone());
    let server = Server::start(setup).await;
    let client = server.client();
    let scope = client.create_scope("stop").await;
    client.capture(&scope, "s1", "The release waits for the migration.").await;
    assert_eq!(client.flush(&scope).await, "accepted");
    until_log_has(&server, "term_started").await;
    for _ in 0..1_000 {
        if model.count() > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (mut late, rest) = begin_capture(&server, &scope).await;
    let _idle =
        TcpStream::connect(server.base_url.trim_start_matches("http://")).await.expect("a connection");
    terminate(&server);
    // The supervisor has stopped its worker while the request is still in progress.
    until_log_has(&server, "supervisor_stopped").await;
    late.write_all(rest).await.expect("the last byte");
    let mut answer = String::new();
    late.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    let database = server.setup.database();
    assert!(server.wait().success());
    for suffix in ["-wal", "-shm"] {
        let file = format!("{}{suffix}", database.display());
        assert!(!Path::new(&file).exists(), "{file} is left");
    }
    let alone = folder.path().join("copy");
    fs::create_dir(&alone).expect("a folder");
    fs::copy(&database, alone.join("fleet.sqlite3")).expect("a copy");
    let copy = Server::start(Setup::new(&alone)).await;
    let read = copy.client().get(&format!("/v1/scopes/{scope}/sources/content/late")).await;
    assert_eq!(read.status, 200, "{}", read.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_the_server_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(Setup::new(folder.path()).with("HTTP_DRAIN_SECONDS", "300")).await;
    terminate(&server);
    until_log_has(&server, "server.stopping").await;
    let ready = server.client().get("/health/ready").await;
    assert_eq!(
        (ready.status, &ready.body["status"]),
        (503, &json!("not_ready")),
        "still serving while it drains"
    );
    assert_eq!(server.stop().code(), Some(130));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_server_and_a_migration_keep_off_a_database_in_use() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(Setup::new(folder.path())).await;
    let database = server.setup.database();
    for command in ["serve", "migrate"] {
        let output = run(&[command], &database);
        assert_eq!(output.status.code(), Some(1));
        let complaint = complaint(&output);
        assert!(complaint.contains(&database.display().to_string()), "{complaint}");
        assert!(complaint.contains("in use by another server"), "{complaint}");
    }
    assert_eq!(server.log().matches("term_started").count(), 1, "no other term began");
    assert!(!server.log().contains("term_lost"));
    let setup = server.kill();
    assert!(run(&["migrate"], &database).status.success(), "a killed server holds nothing");
    let again = Server::start(setup).await;
    assert!(again.stop().success());
}

#[test]
fn a_database_that_cannot_be_used_is_named_in_one_line_without_repetition() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing");
    let output = run(&["serve"], &missing.join("fleet.sqlite3"));
    assert_eq!(output.status.code(), Some(1));
    let expected =
        format!("powercontext-api-server: the folder {} of the database does not exist", missing.display());
    assert_eq!(complaint(&output), expected);
    let no_database = folder.path().join("notes.txt");
    fs::File::create(&no_database).and_then(|mut file| file.write_all(&[b'x'; 8_192])).expect("a file");
    for command in ["serve", "migrate"] {
        let complaint = complaint(&run(&[command], &no_database));
        assert!(complaint.contains(&no_database.display().to_string()), "{complaint}");
        assert_eq!(complaint.matches("file is not a database").count(), 1, "{complaint}");
    }
}

#[test]
fn help_is_a_command_too_and_must_reach_its_reader() {
    let folder = tempfile::tempdir().expect("a folder");
    let texts = ["help", "--help", "-h"].map(|argument| {
        let output = run(&[argument], &folder.path().join("unused.sqlite3"));
        assert!(output.status.success());
        output.stdout
    });
    assert!(String::from_utf8_lossy(&texts[0]).contains("migrate"));
    assert!(texts.iter().all(|text| *text == texts[0]));
    let full = fs::File::options().write(true).open("/dev/full").expect("a device that takes nothing");
    let status = Command::new(program("powercontext-api-server"))
        .arg("--help")
        .stdout(full)
        .stderr(Stdio::null())
        .status()
        .expect("the program runs");
    assert_eq!(status.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_start_log_has_settings_as_fields_and_a_migration_only_when_there_was_one() {
    // TM-229
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(Setup::new(folder.path())).await;
    let setup = server.setup.clone();
    assert!(server.stop().success());
    let server = Server::start(setup).await;
    let log = server.log();
    let events: Vec<serde_json::Value> =
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let named = |name: &str| events.iter().filter(|event| event["event"] == name).collect::<Vec<_>>();
    let migrated = named("database.migrated");
    assert_eq!(migrated.len(), 1, "the second start had nothing to apply");
    assert!(migrated[0]["schema"].is_u64() || migrated[0]["schema"].is_i64());
    let model: Vec<_> = named("settings.effective")
        .into_iter()
        .filter(|e| e["setting"] == "inference.generation_model")
        .collect();
    assert_eq!(model.len(), 2);
    assert_eq!(
        (&model[0]["value"], &model[0]["origin"]),
        (&json!("builtin:extractive"), &json!("environment"))
    );
}
