//! The main job over real HTTP, a real SQLite file and real worker processes.

use std::time::Duration;

use powercontext_tests::server::{Server, Setup};
use powercontext_tests::tables;
use serde_json::json;

const POOL: [&str; 3] = [
    "The checkout service exhausts its database connection pool under load. The connection pool holds ten \
     connections and every checkout request borrows two of them, so five requests block the pool.",
    "Follow-up on the checkout connection pool: we raised the database connection pool from ten to forty \
     connections and checkout requests no longer wait for a pool connection at peak load.",
    "Correction for the checkout connection pool: forty pool connections overload the database, so the \
     connection pool is now capped at twenty five connections per checkout instance.",
];
const CERTIFICATE: &str = "The TLS certificate of the ingress gateway expired at night. Renewal failed because the \
     ACME challenge was answered by the old gateway. Certificate renewal is now monitored thirty days before expiry.";
const LEASE: &str = "租约续期失败会导致主节点停止派发任务。租约的有效期是十五秒,续期间隔是五秒。\
     数据库时钟是判断租约是否过期的唯一依据。";

#[tokio::test]
async fn captured_sources_become_topics_that_are_found_and_read_exactly() {
    // TM-005, TM-006, TM-009, TM-010, TM-014, TM-019, TM-024, TM-231, TM-232, TM-237, TM-238
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(Setup::new(folder.path())).await;
    let client = server.client();
    let scope = client.create_scope("main-job").await;
    assert_eq!(client.flush(&scope).await, "idle", "a Scope without Sources has nothing to do");
    for (number, text) in [POOL[0], CERTIFICATE, LEASE].into_iter().enumerate() {
        let position = client.capture(&scope, &format!("note-{number}"), text).await;
        assert_eq!(position, i64::try_from(number).expect("small") + 1);
    }
    assert!(client.search(&scope, "connection pool").await.is_empty(), "capture alone generates nothing");
    assert_eq!(client.flush(&scope).await, "accepted");
    client.flush_until_idle(&scope, Duration::from_secs(20)).await;

    let hits = client.search(&scope, "checkout connection pool").await;
    assert_eq!(hits.len(), 1, "{hits:?}");
    let exact = &hits[0]["artifact"];
    assert_eq!(exact["revision"], 1);
    let read = client.post("/v1/topic-memory/get", &json!({"scope_id": scope, "artifact": exact})).await;
    assert_eq!(read.status, 200, "{}", read.body);
    assert_eq!(read.body["source_refs"], json!([{"name": "content", "source_id": "note-0"}]));
    assert!(read.header("x-powercontext-published-at").is_some_and(|time| time.ends_with('Z')));

    let chinese = client.search(&scope, "租约").await;
    assert_eq!(chinese.len(), 1, "a two-character Chinese query finds its Topic: {chinese:?}");
    for silent in ["😀🎉", "!!! ???"] {
        assert!(client.search(&scope, silent).await.is_empty(), "{silent} has no term");
    }
    assert_eq!(tables::assert_caught_up(&server.setup.database(), &scope).await, 3);
}

#[tokio::test]
async fn a_topic_grows_by_revisions_and_its_old_revision_stays_readable() {
    // TM-012, TM-014, TM-045, TM-121, TM-123, TM-124, TM-150
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(Setup::new(folder.path())).await;
    let client = server.client();
    let scope = client.create_scope("growth").await;
    let mut references = Vec::new();
    for (number, text) in POOL.into_iter().enumerate() {
        client.capture(&scope, &format!("pool-{number}"), text).await;
        client.flush_until_idle(&scope, Duration::from_secs(20)).await;
        let hits = client.search(&scope, "checkout connection pool").await;
        assert_eq!(hits.len(), 1, "the same subject stays one Topic: {hits:?}");
        references.push(hits[0]["artifact"].clone());
    }
    assert_eq!(references[2]["artifact_id"], references[0]["artifact_id"]);
    assert_eq!(references[2]["revision"], 3);
    for (number, reference) in references.iter().enumerate() {
        let read =
            client.post("/v1/topic-memory/get", &json!({"scope_id": scope, "artifact": reference})).await;
        assert_eq!(read.status, 200, "{}", read.body);
        assert_eq!(
            read.body["source_refs"],
            json!([{"name": "content", "source_id": format!("pool-{number}")}]),
            "a Revision names the Sources of its own evidence alone"
        );
    }
    tables::assert_caught_up(&server.setup.database(), &scope).await;
}

#[tokio::test]
async fn scopes_do_not_see_each_other() {
    // TM-016, TM-021, TM-196
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(Setup::new(folder.path())).await;
    let client = server.client();
    let pool = client.create_scope("pool").await;
    let certificate = client.create_scope("certificate").await;
    client.capture(&pool, "same-id", POOL[0]).await;
    client.capture(&certificate, "same-id", CERTIFICATE).await;
    client.flush_until_idle(&pool, Duration::from_secs(20)).await;
    client.flush_until_idle(&certificate, Duration::from_secs(20)).await;
    assert_eq!(client.search(&pool, "connection pool").await.len(), 1);
    assert!(client.search(&certificate, "connection pool").await.is_empty());
    let hit = &client.search(&certificate, "certificate renewal").await[0]["artifact"];
    let foreign = client.post("/v1/topic-memory/get", &json!({"scope_id": pool, "artifact": hit})).await;
    assert_eq!((foreign.status, foreign.code()), (404, "artifact_not_found"));
}

#[tokio::test]
async fn many_windows_of_many_scopes_are_all_processed() {
    // TM-026, TM-167, TM-176, TM-196, TM-197
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup::new(folder.path())
        .with("RUNTIME_ARTIFACT_PROCESSING_MAX_WORKERS", "3")
        .with("RUNTIME_TOPIC_MEMORY_SOURCE_WINDOW_LIMIT", "2");
    let server = Server::start(setup).await;
    let client = server.client();
    let mut scopes = Vec::new();
    for scope_number in 0..4 {
        let scope = client.create_scope(&format!("many-{scope_number}")).await;
        for number in 0..7 {
            let text = [POOL[0], CERTIFICATE, LEASE][number % 3];
            client.capture(&scope, &format!("s{number}"), &format!("{text} ({number})")).await;
        }
        assert_eq!(client.flush(&scope).await, "accepted");
        scopes.push(scope);
    }
    for scope in &scopes {
        client.flush_until_idle(scope, Duration::from_secs(60)).await;
        assert_eq!(tables::assert_caught_up(&server.setup.database(), scope).await, 7);
    }
}

#[tokio::test]
async fn flush_without_a_model_is_unavailable_and_keeps_the_pending_row() {
    // TM-085, TM-236, B-17, B-29
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup::new(folder.path()).without("INFERENCE_GENERATION_MODEL");
    let server = Server::start(setup).await;
    let client = server.client();
    let scope = client.create_scope("no-model").await;
    client.capture(&scope, "s", POOL[0]).await;
    let answer = client.post("/v1/topic-memory/flush", &json!({"scope_id": scope})).await;
    assert_eq!((answer.status, answer.code()), (503, "topic_memory_processing_unavailable"));

    let setup = server.kill().with("INFERENCE_GENERATION_MODEL", powercontext_tests::server::BUILTIN);
    let server = Server::start(setup).await;
    let client = server.client();
    client.flush_until_idle(&scope, Duration::from_secs(20)).await;
    assert_eq!(client.search(&scope, "connection pool").await.len(), 1);
}
