//! Automatic waves end to end: nothing is flushed, and what was captured is processed on time, on a file
//! and on OceanBase, across crashes and changes of the leader.

use std::path::Path;
use std::time::Duration;

use powercontext_tests::client::Client;
use powercontext_tests::fleet::{Fleet, FleetSetup, thaw, until};
use powercontext_tests::process::is_running;
use powercontext_tests::server::{Server, Setup};
use powercontext_tests::tables::{self, Tables};

const NOTES: [&str; 3] = [
    "The nightly export of invoices failed because the export bucket policy had been tightened.",
    "Graph queries of the topology service are limited to depth six since the incident in May.",
    "Feature flags of the search page are reviewed every quarter and stale flags are deleted.",
];
const PENDING: &str = "SELECT count(*) FROM pc_artifact_processing_pending";
const TARGETS: &str = "SELECT count(*) FROM pc_artifact_processing_auto_wave_targets";
/// Far longer than a test.
const NEVER: &str = "86400";

async fn capture_notes(client: &Client, scope: &str, round: &str) {
    for (number, text) in NOTES.into_iter().enumerate() {
        client.capture(scope, &format!("{round}-{number}"), text).await;
    }
}

/// When the binding's last automatic wave was completed, by the database's clock, in milliseconds; `None`
/// before the first.
async fn last_completion(tables: &Tables) -> Option<i64> {
    let millis = match tables {
        Tables::File(_) => {
            "cast(round((julianday(last_auto_wave_completed_at) - 2440587.5) * 86400000.0) AS INTEGER)"
        }
        Tables::Server(_) => "timestampdiff(microsecond, '1970-01-01', last_auto_wave_completed_at) DIV 1000",
    };
    let sql = format!("SELECT coalesce(max({millis}), 0) FROM pc_artifact_processing_binding_states");
    Some(tables.number(&sql).await).filter(|millis| *millis > 0)
}

/// Waits until a wave was completed after `before`, and returns when.
async fn completion_after(tables: &Tables, before: Option<i64>) -> i64 {
    let completed = async || last_completion(tables).await.filter(|at| Some(*at) > before);
    until("an automatic wave is completed", completed).await
}

async fn assert_searchable(client: &Client, tables: &Tables, scope: &str) {
    assert_eq!(client.search(scope, "invoice export").await.len(), 1);
    assert_eq!(client.search(scope, "topology graph queries").await.len(), 1);
    tables::assert_caught_up(tables, scope).await;
    assert_eq!(tables.number(TARGETS).await, 0, "a completed wave leaves no targets");
}

/// Sources of two Scopes become searchable twice, without a flush.
async fn assert_processed_without_a_flush(client: &Client, tables: &Tables) {
    let scopes = [client.create_scope("wave-one").await, client.create_scope("wave-two").await];
    let mut before = last_completion(tables).await;
    for round in ["first", "second"] {
        for scope in &scopes {
            capture_notes(client, scope, round).await;
        }
        let nothing_left = async || (tables.number(PENDING).await == 0).then_some(());
        until("everything is processed", nothing_left).await;
        for scope in &scopes {
            assert_searchable(client, tables, scope).await;
        }
        before = Some(completion_after(tables, before).await);
    }
}

#[tokio::test]
async fn sources_become_searchable_without_a_flush_on_a_file() {
    // TM-204, TM-207, TM-208, TM-213, TM-214, TM-218, TM-245
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup::new(folder.path()).with("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", "1");
    let server = Server::start(setup).await;
    let tables = Tables::at(&server.setup.database_url());
    assert_processed_without_a_flush(&server.client(), &tables).await;
    let log = server.log();
    assert!(log.contains("auto_wave_completed") && !log.contains("\"explicit\""), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sources_become_searchable_without_a_flush_on_a_fleet() {
    // TM-204, TM-207, TM-208, TM-213, TM-214, TM-218, TM-245
    let setup = FleetSetup::new(1, 2).with("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", "1");
    let mut fleet = Fleet::start(setup).await;
    assert_processed_without_a_flush(&fleet.apis[0].client(), &fleet.tables).await;
    fleet.assert_alive();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wave_whose_leader_dies_in_the_middle_is_finished_at_once_by_the_next() {
    // TM-189, TM-191, TM-206, TM-215, TM-216, TM-276
    let mark = tempfile::tempdir().expect("a folder");
    let mark = mark.path().join("frozen");
    let setup = FleetSetup::new(1, 2)
        .with("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", NEVER)
        .with("RUNTIME_TOPIC_MEMORY_SOURCE_WINDOW_LIMIT", "1")
        .with_a_worker_frozen_after("project", &mark);
    let mut fleet = Fleet::start(setup).await;
    let client = fleet.apis[0].client();
    let scope = client.create_scope("middle").await;
    capture_notes(&client, &scope, "only").await;
    // The first wave is due at once; its first worker freezes itself right before it publishes.
    until("a worker froze itself", async || mark.exists().then_some(())).await;
    let (leader, lease) = fleet.leader().await;
    assert_eq!(last_completion(&fleet.tables).await, None, "the wave is not over");
    assert!(fleet.tables.number(TARGETS).await > 0, "the wave is open");
    let workers = fleet.controllers[leader].process().children();
    fleet.controllers[leader].kill();
    fleet.leader_after(lease.generation).await;
    completion_after(&fleet.tables, None).await;
    assert_searchable(&client, &fleet.tables, &scope).await;
    assert_eq!(fleet.tables.number(PENDING).await, 0);
    // What the worker of the dead leader does when it wakes changes nothing.
    thaw(&workers);
    let ended = async || workers.iter().all(|worker| !is_running(*worker)).then_some(());
    until("the worker of the dead leader ends", ended).await;
    tables::assert_caught_up(&fleet.tables, &scope).await;
}

/// The interval of waves that have to wait, in milliseconds.
const INTERVAL: i64 = 6_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_completed_wave_the_next_leader_waits_for_the_rest_of_the_interval() {
    // TM-192, TM-217, TM-220, TM-276
    let setup =
        FleetSetup::new(1, 2).with("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", (INTERVAL / 1_000).to_string());
    let mut fleet = Fleet::start(setup).await;
    let client = fleet.apis[0].client();
    let scope = client.create_scope("remaining").await;
    capture_notes(&client, &scope, "first").await;
    let first = completion_after(&fleet.tables, None).await;
    let (leader, lease) = fleet.leader().await;
    fleet.controllers[leader].kill();
    capture_notes(&client, &scope, "second").await;
    fleet.leader_after(lease.generation).await;
    let second = completion_after(&fleet.tables, Some(first)).await;
    assert!(second - first >= INTERVAL, "{} ms after the wave before", second - first);
    assert_searchable(&client, &fleet.tables, &scope).await;
}

#[tokio::test]
async fn a_restart_on_a_file_keeps_the_deadline() {
    // TM-195, TM-217, TM-220
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup::new(folder.path())
        .with("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", (INTERVAL / 1_000).to_string());
    let server = Server::start(setup).await;
    let tables = Tables::at(&server.setup.database_url());
    let scope = server.client().create_scope("restart").await;
    capture_notes(&server.client(), &scope, "first").await;
    let first = completion_after(&tables, None).await;
    let server = Server::start(server.kill()).await;
    capture_notes(&server.client(), &scope, "second").await;
    let second = completion_after(&tables, Some(first)).await;
    assert!(second - first >= INTERVAL, "{} ms after the wave before", second - first);
    assert_searchable(&server.client(), &tables, &scope).await;
}

/// Without a flush a Scope waits although others are processed; with one it is answered at once.
async fn assert_only_flushes_start_work(client: &Client, tables: &Tables) {
    let waiting = client.create_scope("waiting").await;
    let asking = client.create_scope("asking").await;
    capture_notes(client, &waiting, "only").await;
    for round in ["one", "two", "three"] {
        capture_notes(client, &asking, round).await;
        client.flush_until_idle(&asking, Duration::from_secs(60)).await;
    }
    assert!(client.search(&waiting, "invoice export").await.is_empty(), "nobody asked for it");
    assert_eq!(tables.number(PENDING).await, 1);
    client.flush_until_idle(&waiting, Duration::from_secs(60)).await;
    assert_searchable(client, tables, &waiting).await;
    assert_eq!(last_completion(tables).await, None, "a flush completes no automatic wave");
}

#[tokio::test]
async fn without_a_schedule_only_flushes_start_work_on_a_file() {
    // TM-215, TM-219
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(Setup::new(folder.path())).await;
    let tables = Tables::at(&server.setup.database_url());
    assert_only_flushes_start_work(&server.client(), &tables).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_schedule_only_flushes_start_work_on_a_fleet() {
    // TM-215, TM-219
    let fleet = Fleet::start(FleetSetup::new(1, 2)).await;
    assert_only_flushes_start_work(&fleet.apis[0].client(), &fleet.tables).await;
}

#[tokio::test]
async fn a_flush_beside_a_schedule_is_answered_at_once_and_moves_no_deadline() {
    // TM-202, TM-210, TM-215, B-31
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(scheduled(folder.path())).await;
    let client = server.client();
    let tables = Tables::at(&server.setup.database_url());
    let scope = client.create_scope("flush").await;
    capture_notes(&client, &scope, "first").await;
    let first = completion_after(&tables, None).await;
    capture_notes(&client, &scope, "second").await;
    client.flush_until_idle(&scope, Duration::from_secs(60)).await;
    assert_searchable(&client, &tables, &scope).await;
    assert_eq!(last_completion(&tables).await, Some(first), "the flush completes no automatic wave");
}

fn scheduled(folder: &Path) -> Setup {
    Setup::new(folder).with("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", NEVER)
}
