//! First figures of the main job, printed as one table: `make bench`.
//!
//! Everything is measured in this run on this machine, over real HTTP, durable commits and real
//! worker processes: here the main job on SQLite, in `oceanbase` the fleet on OceanBase's engine. The
//! floor printed beside source add is a bare SQLite transaction of the same shape, so the ratio says
//! what the server adds. Nothing here passes or fails on a time.

mod backlog;
mod figures;
mod oceanbase;
mod publish;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use figures::{median, median_number, millis, now, per_second, rate, resident_megabytes, row};
use powercontext_core::ids::{
    BindingName, FlushGeneration, HolderId, Position, ScopeId, SupervisorGeneration,
};
use powercontext_core::topic::BINDING;
use powercontext_core::work::{Fence, Outcome, WorkAssignment, WorkKey, WorkMode};
use powercontext_tests::client::Client;
use powercontext_tests::server::{BUILTIN, Server, Setup, program};
use powercontext_tests::tables;
use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

const ADDS: usize = 3_000;
const ROUNDS: usize = 5;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    println!("{:<58} {:>14}", "work", "figure");
    let server = Server::start(Setup::new(folder.path())).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    row("idle memory of role all, resident", &format!("{:.1} MB", resident_megabytes(server.pid())));

    let floor = bare_commits(folder.path()).await;
    row("floor: bare durable SQLite transaction", &rate(floor));
    let sequential = adds(&server, 1).await;
    row("source add, sequential", &rate(sequential));
    row("  ratio to the floor", &format!("{:.2}", floor / sequential));
    let concurrent = adds(&server, 8).await;
    row("source add, 8 connections", &rate(concurrent));
    row("  ratio to the floor", &format!("{:.2}", floor / concurrent));
    row("memory after load, resident", &format!("{:.1} MB", resident_megabytes(server.pid())));

    let one = median(windows(&server, 1).await);
    row("flush to searchable, 1 Window of 10 Sources, p50", &millis(one));
    let twenty = median(windows(&server, 20).await);
    row("flush to searchable, 20 Windows of one Scope, p50", &millis(twenty));
    row("  per Window", &millis(twenty / 20));

    let reads = first_reads(&server.setup, 20);
    row("worker start to first database read, p50", &format!("{} ms", median_number(reads.clone())));
    row(
        "worker start to first database read, worst of 20",
        &format!("{} ms", reads.iter().max().copied().unwrap_or(0)),
    );
    server.stop();
    oceanbase::print().await;
}

/// Three statements and a durable commit each, as a capture needs, without a server around them.
async fn bare_commits(folder: &Path) -> f64 {
    let options = SqliteConnectOptions::new()
        .filename(folder.join("floor.sqlite3"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.expect("a database");
    for table in [
        "CREATE TABLE journal (scope TEXT PRIMARY KEY, head INTEGER NOT NULL) WITHOUT ROWID",
        "CREATE TABLE source (scope TEXT, position INTEGER, body TEXT NOT NULL, \
         PRIMARY KEY (scope, position)) WITHOUT ROWID",
        "CREATE TABLE pending (scope TEXT PRIMARY KEY, through INTEGER NOT NULL) WITHOUT ROWID",
    ] {
        sqlx::query(table).execute(&pool).await.expect("a table");
    }
    let body = "x".repeat(200);
    let start = now();
    for _ in 0..ADDS {
        let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.expect("a transaction");
        let head: i64 = sqlx::query_scalar(
            "INSERT INTO journal VALUES ('s', 1) ON CONFLICT (scope) DO UPDATE SET head = head + 1 RETURNING head",
        )
        .fetch_one(&mut *transaction)
        .await
        .expect("a position");
        sqlx::query("INSERT INTO source VALUES ('s', ?, ?)")
            .bind(head)
            .bind(&body)
            .execute(&mut *transaction)
            .await
            .expect("a source");
        sqlx::query(
            "INSERT INTO pending VALUES ('s', ?) ON CONFLICT (scope) DO UPDATE SET through = excluded.through",
        )
        .bind(head)
        .execute(&mut *transaction)
        .await
        .expect("a pending row");
        transaction.commit().await.expect("a commit");
    }
    let took = start.elapsed();
    pool.close().await;
    per_second(ADDS, took)
}

async fn adds(server: &Server, connections: usize) -> f64 {
    let scope = server.client().create_scope(&format!("adds-{connections}")).await;
    let start = now();
    let mut writers = Vec::new();
    for writer in 0..connections {
        let (client, scope) = (server.client(), scope.clone());
        writers.push(tokio::spawn(async move {
            let path = format!("/v1/scopes/{scope}/sources");
            for number in 0..ADDS / connections {
                let content =
                    format!("Source {number} of writer {writer}: {}", "engineering text ".repeat(10));
                let answer = client.post(&path, &json!({"content": content})).await;
                assert_eq!(answer.status, 201, "{}", answer.body);
            }
        }));
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
    per_second(ADDS, start.elapsed())
}

async fn windows(server: &Server, count: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let client = server.client();
        let scope = client.create_scope(&format!("windows-{count}-{round}")).await;
        for number in 0..count * 10 {
            client.capture(&scope, &format!("s{number}"), &note(number)).await;
        }
        let start = now();
        assert_eq!(client.flush(&scope).await, "accepted");
        wait_searchable(&client, server, &scope, count * 10).await;
        times.push(start.elapsed());
    }
    times
}

async fn wait_searchable(client: &Client, server: &Server, scope: &str, head: usize) {
    let sql = format!("SELECT coalesce(max(position), 0) FROM pc_source_cursors WHERE scope_id = '{scope}'");
    let database = server.setup.database();
    while tables::number(&database, &sql).await < i64::try_from(head).expect("small") {
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    let hits: Vec<Value> = client.search(scope, "deployment rollout").await;
    assert!(!hits.is_empty(), "published Topics are searchable");
}

/// One short note on one of five subjects.
pub fn note(number: usize) -> String {
    let subjects = [
        "deployment rollout of the gateway waits for the canary",
        "index rebuild of the search cluster took longer than planned",
        "password rotation of the billing database is automated now",
        "cache stampede on the product page was fixed with request coalescing",
        "log retention of the audit service is ninety days",
    ];
    format!(
        "Note {number}. The {}. Observation {number} confirms the earlier measurement and adds a detail about step {}.",
        subjects[number % subjects.len()],
        number / subjects.len()
    )
}

fn first_reads(setup: &Setup, runs: usize) -> Vec<u64> {
    let assignment = WorkAssignment {
        key: WorkKey {
            binding: BindingName::parse(BINDING).expect("a binding"),
            scope: ScopeId::parse("scp_none").expect("a scope"),
        },
        fence: Fence {
            holder: HolderId::parse("nobody").expect("a holder"),
            generation: SupervisorGeneration::new(0),
        },
        source_after: Position::new(0),
        wave_target: Position::new(1),
        claimed_flush_generation: FlushGeneration::new(1),
        mode: WorkMode::Explicit,
    };
    let argument = serde_json::to_string(&assignment).expect("an assignment");
    (0..runs)
        .map(|_| {
            let run = Command::new(program("powercontext-worker"))
                .args(["--assignment", &argument])
                .env("POWERCONTEXT_SERVER_DATABASE_URL", setup.database_url())
                .env("POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL", BUILTIN)
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .output()
                .expect("the worker runs");
            let said = String::from_utf8_lossy(&run.stdout);
            let outcome: Outcome =
                serde_json::from_str(said.lines().last().unwrap_or_default()).expect("an outcome");
            outcome.first_read_millis.expect("the worker has read the database")
        })
        .collect()
}
