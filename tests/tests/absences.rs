//! What the product does not have, seen from outside: no further table, route, setting or process.

use std::path::Path;
use std::time::Duration;

use powercontext_tests::server::{Server, Setup, program};
use powercontext_tests::tables::{dump, number};
use serde_json::{Value, json};

const NOTES: [&str; 3] = [
    "The checkout service exhausts its connection pool. The connection pool holds ten connections.",
    "Follow-up on the checkout connection pool: the connection pool now holds forty connections.",
    "The TLS certificate of the ingress gateway expired at night because its renewal had failed.",
];

/// Every table of the product, full-text engine's own pages apart.
const TABLES: [&str; 22] = [
    "pc_artifact_heads",
    "pc_artifact_lineage_artifacts",
    "pc_artifact_lineage_sources",
    "pc_artifact_processing_auto_wave_targets",
    "pc_artifact_processing_binding_states",
    "pc_artifact_processing_leases",
    "pc_artifact_processing_pending",
    "pc_artifacts",
    "pc_default_scope",
    "pc_schema_migrations",
    "pc_scope_context_references",
    "pc_scope_external_references",
    "pc_scopes",
    "pc_source_cursors",
    "pc_source_journals",
    "pc_sources",
    "pc_topic_memory_active_chunks",
    "pc_topic_memory_active_topics",
    "pc_topic_memory_retrieval_shape",
    "pc_topic_memory_revision_publications",
    "pc_topic_memory_scope_statistics",
    "pc_topic_memory_work_budgets",
];

/// A server on which three notes have become Topics.
async fn processed(folder: &Path) -> (Server, String) {
    let server = Server::start(Setup::new(folder)).await;
    let client = server.client();
    let scope = client.create_scope("absences").await;
    for (number, text) in NOTES.into_iter().enumerate() {
        client.capture(&scope, &format!("note-{number}"), text).await;
    }
    client.flush_until_idle(&scope, Duration::from_secs(20)).await;
    (server, scope)
}

#[tokio::test]
async fn processing_leaves_topics_and_its_own_state_and_nothing_else() {
    // TM-007, TM-008, TM-046, TM-078, TM-093, TM-177
    let folder = tempfile::tempdir().expect("a folder");
    let (server, _) = processed(folder.path()).await;
    let path = server.setup.database();
    let tables = dump(&path).await;
    let own = |name: &&String| {
        name.starts_with("pc_")
            && !name.starts_with("pc_topic_memory_topic_fts")
            && !name.starts_with("pc_topic_memory_chunk_fts")
    };
    let names: Vec<&String> = tables.keys().filter(own).collect();
    assert_eq!(names, TABLES, "no archive, no job, no fragment, no route, no other family's state");
    assert_eq!(number(&path, "SELECT count(*) FROM pc_sources").await, 3, "a Window is no Source");
    let topics = number(&path, "SELECT count(*) FROM pc_artifact_heads").await;
    assert_eq!(topics, 2);
    for (table, family) in [("pc_artifacts", "family"), ("pc_artifact_heads", "family")] {
        let other = format!("SELECT count(*) FROM {table} WHERE {family} <> 'topic-memory'");
        assert_eq!(number(&path, &other).await, 0, "{table}");
    }
    let revisions = number(&path, "SELECT count(*) FROM pc_artifacts").await;
    assert_eq!(revisions, number(&path, "SELECT sum(revision) FROM pc_artifact_heads").await);
    assert_eq!(number(&path, "SELECT count(*) FROM pc_topic_memory_active_topics").await, topics);
    let other = "SELECT count(*) FROM pc_source_cursors WHERE binding_name <> 'topic-memory-source-window'";
    assert_eq!(number(&path, other).await, 0);
    assert_eq!(number(&path, "SELECT count(*) FROM pc_source_cursors").await, 1);
}

#[tokio::test]
async fn the_search_projections_hold_the_current_topics_as_records_and_full_text_indexes() {
    // TM-151, TM-152, TM-153
    let folder = tempfile::tempdir().expect("a folder");
    let (server, _) = processed(folder.path()).await;
    let path = server.setup.database();
    for sql in [
        "SELECT (SELECT count(*) FROM pc_topic_memory_active_topics) - count(*) \
         FROM pc_topic_memory_active_topics t JOIN pc_artifact_heads h \
         USING (scope_id, artifact_id, revision) JOIN pc_artifacts a USING (scope_id, artifact_id, revision) \
         WHERE t.title = a.content ->> 'title' AND t.summary = a.content ->> 'summary' AND t.terms <> '' \
         AND t.source_count = (SELECT count(*) FROM pc_artifact_lineage_sources l \
         WHERE l.artifact_id = t.artifact_id AND l.revision = t.revision)",
        "SELECT (SELECT count(*) FROM pc_topic_memory_active_chunks) - count(*) \
         FROM pc_topic_memory_active_chunks c JOIN pc_artifact_heads h \
         USING (scope_id, artifact_id, revision) JOIN pc_artifacts a USING (scope_id, artifact_id, revision) \
         WHERE substr(a.content ->> 'detail', c.body_position + 1, length(c.body)) = c.body \
         AND c.terms <> '' AND c.ordinal >= 0",
        "SELECT count(*) - 2 FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE%USING fts5%'",
        "SELECT (SELECT count(*) FROM pc_topic_memory_active_topics) - count(*) FROM pc_topic_memory_topic_fts",
        "SELECT (SELECT count(*) FROM pc_topic_memory_active_chunks) - count(*) FROM pc_topic_memory_chunk_fts",
    ] {
        assert_eq!(number(&path, sql).await, 0, "{sql}");
    }
    assert!(number(&path, "SELECT count(*) FROM pc_topic_memory_active_chunks").await >= 2);
}

#[tokio::test]
async fn without_embeddings_there_is_no_vector_anywhere() {
    // TM-137
    let folder = tempfile::tempdir().expect("a folder");
    let (server, scope) = processed(folder.path()).await;
    let path = server.setup.database();
    let vectors = "SELECT count(*) FROM sqlite_schema s JOIN pragma_table_info(s.name) c \
                   WHERE s.name LIKE 'pc_topic_memory_active%' AND (c.name LIKE '%vector%' OR c.name LIKE '%embed%')";
    assert_eq!(number(&path, vectors).await, 0);
    let shape = "SELECT count(*) FROM pc_topic_memory_retrieval_shape WHERE shape = 'fts' AND embedding_fingerprint IS NULL";
    assert_eq!(number(&path, shape).await, 1);
    let client = server.client();
    let capabilities = client.get("/v1/capabilities").await.body;
    assert_eq!(capabilities["search_modes"], json!([]));
    let said = capabilities.to_string();
    assert!(!said.contains("vector") && !said.contains("hybrid"), "{said}");
    for hit in client.search(&scope, "checkout connection pool").await {
        let channels = hit["matched_by"].as_array().expect("channels");
        assert!(channels.iter().all(|channel| channel == "topic_fts" || channel == "detail_fts"), "{hit}");
    }
}

#[tokio::test]
async fn topics_are_published_without_a_review_and_nobody_edits_them_by_hand() {
    // TM-017, TM-018
    let folder = tempfile::tempdir().expect("a folder");
    let (server, scope) = processed(folder.path()).await;
    let client = server.client();
    let hits = client.search(&scope, "checkout connection pool").await;
    assert_eq!(hits.len(), 1, "a flush alone publishes");
    let paths = client.get("/openapi.json").await.body["paths"].clone();
    let paths = paths.as_object().expect("paths");
    let of_topics: Vec<(&String, Vec<&String>)> = paths
        .iter()
        .filter(|(path, _)| path.contains("topic") || path.contains("artifact") || path.contains("review"))
        .map(|(path, methods)| (path, methods.as_object().expect("methods").keys().collect()))
        .collect();
    let mut names: Vec<&str> = of_topics.iter().map(|(path, _)| path.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["/v1/topic-memory/flush", "/v1/topic-memory/get", "/v1/topic-memory/search"]);
    assert!(of_topics.iter().all(|(_, methods)| methods == &["post"]), "{of_topics:?}");
    let exact = json!({"scope_id": scope, "artifact": hits[0]["artifact"]});
    let id = hits[0]["artifact"]["artifact_id"].as_str().expect("an id");
    let before = dump(&server.setup.database()).await;
    for path in ["/v1/topic-memory", "/v1/topic-memory/get", &format!("/v1/topic-memory/{id}")] {
        for method in [reqwest::Method::PUT, reqwest::Method::PATCH, reqwest::Method::DELETE] {
            let answer = client.try_send(method.clone(), path, Some(&exact)).await.expect("an answer");
            assert!(matches!(answer.status, 404 | 405), "{method} {path}: {}", answer.status);
        }
    }
    for verb in ["create", "update", "delete", "retire", "approve"] {
        let answer = client.post(&format!("/v1/topic-memory/{verb}"), &exact).await;
        assert!(matches!(answer.status, 404 | 405), "{verb}: {}", answer.status);
    }
    assert_eq!(dump(&server.setup.database()).await, before);
}

#[tokio::test]
async fn one_process_serves_and_supervises_without_an_election() {
    // TM-003, TM-175
    let folder = tempfile::tempdir().expect("a folder");
    let (server, scope) = processed(folder.path()).await;
    assert!(!server.client().search(&scope, "certificate").await.is_empty());
    let path = server.setup.database();
    assert_eq!(number(&path, "SELECT count(*) FROM pc_artifact_processing_leases").await, 1);
    let held = "SELECT count(*) FROM pc_artifact_processing_leases \
                WHERE supervisor_group = 'global' AND lease_expires_at IS NULL";
    assert_eq!(number(&path, held).await, 1, "the embedded term has nothing that could expire");
    let again = Server::start(server.kill()).await;
    let term = "SELECT supervisor_generation FROM pc_artifact_processing_leases";
    let mut generation = 0;
    for _ in 0..100 {
        generation = number(&again.setup.database(), term).await;
        if generation == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(generation, 2, "the next start takes the term from a holder that never gave it up");
}

/// The worker's name as the kernel keeps it: fifteen characters.
const WORKER: [&str; 1] = ["powercontext-wo"];

/// The programs that run as children of a process.
fn children(parent: u32) -> Vec<String> {
    let folders = std::fs::read_dir("/proc").expect("a process list").filter_map(Result::ok);
    let stats = folders.filter_map(|folder| std::fs::read_to_string(folder.path().join("stat")).ok());
    stats
        .filter_map(|stat| {
            let (head, rest) = stat.rsplit_once(") ")?;
            let own = rest.split(' ').nth(1)? == parent.to_string();
            own.then(|| head.split_once('(').map_or(String::new(), |(_, name)| name.to_owned()))
        })
        .collect()
}

#[tokio::test]
async fn a_worker_is_a_child_process_of_the_server() {
    // TM-198
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port where nobody answers");
    let address = silent.local_addr().expect("its address");
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup::new(folder.path())
        .with("INFERENCE_GENERATION_MODEL", "openai:silent")
        .with("INFERENCE_GENERATION_BASE_URL", format!("http://{address}/v1"))
        .with("INFERENCE_GENERATION_API_KEY", "sk-test");
    let server = Server::start(setup).await;
    let scope = server.client().create_scope("child").await;
    assert!(children(server.pid()).is_empty(), "nothing runs without work");
    server.client().capture(&scope, "s", NOTES[0]).await;
    server.client().flush(&scope).await;
    let mut seen = Vec::new();
    for _ in 0..200 {
        seen = children(server.pid());
        // Until it runs its program, a new process still has its parent's name.
        if seen == WORKER {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(seen, WORKER);
    assert!(server.stop().success());
}

#[tokio::test]
async fn a_period_of_zero_is_refused_and_without_a_period_nothing_is_processed_unasked() {
    // TM-219 TM-245
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup::new(folder.path());
    let output = std::process::Command::new(program("powercontext-api-server"))
        .args(["--role", "all"])
        .env_clear()
        .env("HOME", folder.path())
        .env("POWERCONTEXT_SERVER_HTTP_PORT", "0")
        .env("POWERCONTEXT_SERVER_DATABASE_URL", setup.database_url())
        .env("POWERCONTEXT_SERVER_RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", "0")
        .output()
        .expect("the server ends");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("POWERCONTEXT_SERVER_RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS"), "{said}");
    assert!(!setup.database().exists(), "refused before anything is made");

    let server = Server::start(setup).await;
    let scope = server.client().create_scope("unasked").await;
    server.client().capture(&scope, "s", NOTES[0]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let path = server.setup.database();
    assert_eq!(number(&path, "SELECT count(*) FROM pc_artifacts").await, 0);
    assert_eq!(number(&path, "SELECT count(*) FROM pc_artifact_processing_pending").await, 1);
}

#[tokio::test]
async fn a_reference_to_a_topic_is_family_identity_and_revision() {
    // TM-013
    let folder = tempfile::tempdir().expect("a folder");
    let (server, scope) = processed(folder.path()).await;
    let client = server.client();
    let artifact = client.search(&scope, "checkout connection pool").await[0]["artifact"].clone();
    let mut keys: Vec<&String> = artifact.as_object().expect("a reference").keys().collect();
    keys.sort();
    assert_eq!(keys, ["artifact_id", "family", "revision"]);
    assert_eq!(artifact["family"], "topic-memory");
    let get = async |scope: &str, artifact: Value| {
        client.post("/v1/topic-memory/get", &json!({"scope_id": scope, "artifact": artifact})).await.status
    };
    assert_eq!(get(&scope, artifact.clone()).await, 200);
    let other = client.create_scope("other").await;
    assert_eq!(get(&other, artifact.clone()).await, 404, "the Scope is part of the location");
    for key in ["artifact_id", "family", "revision"] {
        let mut part = artifact.clone();
        part.as_object_mut().expect("a reference").remove(key);
        assert_eq!(get(&scope, part).await, 422, "{key} is needed");
    }
    assert_eq!(client.post("/v1/topic-memory/get", &json!({"artifact": artifact})).await.status, 422);
}
