//! Role `api`: serves over a database that others migrate and process.

use powercontext_tests::engine::SharedDatabase;
use powercontext_tests::proxy::{Line, Proxy};
use powercontext_tests::running::Running;
use serde_json::{Value, json};

use crate::{program, run};

const MODEL: (&str, &str) = ("INFERENCE_GENERATION_MODEL", "builtin:extractive");

async fn migrated() -> Option<SharedDatabase> {
    let database = SharedDatabase::created().await?;
    assert_eq!(run(std::path::Path::new("/"), &["migrate"], &[("DATABASE_URL", &database.url())]).status, 0);
    Some(database)
}

async fn start(url: &str, settings: &[(&str, &str)], folder: &std::path::Path) -> Running {
    let settings = [settings, &[("DATABASE_URL", url), ("HTTP_PORT", "0")]].concat();
    Running::start(program(folder, &["--role", "api"], &settings), folder).await
}

/// A Scope with one Source.
async fn captured(server: &Running) -> Value {
    let scope = json!({"title": "T", "summary": "S", "idempotency_key": "k"});
    let (status, scope) = server.post("/v1/scopes", scope).await;
    assert_eq!(status, 201);
    let id = scope["scope_id"].clone();
    let capture = json!({"scope_id": id, "source_id": "s", "content": "text"});
    assert_eq!(server.post("/v1/sources/content", capture).await.0, 202);
    id
}

#[tokio::test]
async fn a_flush_is_kept_for_the_processes_that_answer_it() {
    // TM-178, TM-250
    let Some(database) = migrated().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut server = start(&database.url(), &[MODEL], folder.path()).await;
    let scope = captured(&server).await;
    let flush = json!({"scope_id": scope});
    let (status, answer) = server.post("/v1/topic-memory/flush", flush.clone()).await;
    assert_eq!((status, &answer["status"]), (200, &json!("accepted")));
    let (status, ready) = server.get("/health/ready").await;
    assert_eq!((status, &ready["status"]), (200, &json!("ready")));
    assert_eq!(ready["checks"]["artifact_processing_supervisor"], "remote");
    assert_eq!(ready["checks"].get("topic_memory_unanswered_scopes"), None);
    let prompts = server.get("/v1/capabilities").await.1["prompts"].clone();
    assert_eq!(prompts["topic_memory.probe"]["status"], "supported");
    assert!(!server.log().contains("term_started"), "it never leads");
    // Another server over the same database needs no claim, and without a model it refuses a flush.
    let other = start(&database.url(), &[], folder.path()).await;
    let (status, answer) = other.post("/v1/topic-memory/flush", flush).await;
    assert_eq!((status, &answer["error"]["code"]), (503, &json!("topic_memory_processing_unavailable")));
    assert_eq!(server.terminate(), 0);
    drop(other);
    database.remove().await;
}

#[tokio::test]
async fn a_database_that_falls_silent_is_told_within_a_time_and_used_again_when_it_answers() {
    let Some(database) = migrated().await else { return };
    let way = Proxy::to(database.address()).await;
    let folder = tempfile::tempdir().unwrap();
    let settings = [MODEL, ("DATABASE_REQUEST_TIMEOUT_SECONDS", "0.5")];
    let mut server = start(&database.url_through(way.port()), &settings, folder.path()).await;
    let scope = captured(&server).await;
    way.set(Line::Silent);
    let flush = json!({"scope_id": scope});
    let sources = format!("/v1/scopes/{}/sources", scope.as_str().unwrap());
    let told = async {
        for (status, answer) in [
            server.get("/v1/scopes").await,
            server.get(&sources).await,
            server.post("/v1/topic-memory/flush", flush.clone()).await,
        ] {
            assert_eq!((status, &answer["error"]["code"]), (503, &json!("database_unavailable")));
        }
    };
    // The store itself gives a connection up after 5 seconds at the earliest.
    tokio::time::timeout(std::time::Duration::from_secs(4), told).await.expect("answers within the setting");
    let (status, ready) = server.get("/health/ready").await;
    assert_eq!((status, &ready["checks"]["database"]), (503, &json!("unavailable")));
    assert_eq!(server.get("/health/live").await.0, 200);
    way.set(Line::Open);
    server
        .until("the server is ready again", async |server| {
            (server.get("/health/ready").await.0 == 200).then_some(())
        })
        .await;
    assert_eq!(server.post("/v1/topic-memory/flush", flush).await.1["status"], "accepted");
    assert_eq!(server.terminate(), 0);
    database.remove().await;
}
