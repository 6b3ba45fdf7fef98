//! A model that answers nonsense, over real HTTP.

use std::time::Duration;

use powercontext_tests::model::{Model, Reply};
use powercontext_tests::server::{Server, Setup};
use powercontext_tests::tables::number;

async fn wait_for(path: &std::path::Path, sql: &str, wanted: i64) {
    for _ in 0..200 {
        if number(path, sql).await == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("`{sql}` never became {wanted}");
}

#[tokio::test]
async fn a_failing_model_moves_nothing_and_the_fourth_attempt_never_starts() {
    // TM-060, TM-064, TM-066, TM-068, TM-069, TM-071, TM-072, TM-097, TM-173, TM-221, TM-274, TM-074
    let model = Model::start(|_| Reply::Text("I would rather talk about the weather.".to_owned())).await;
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup::new(folder.path())
        .with("INFERENCE_GENERATION_MODEL", "openai:stub")
        .with("INFERENCE_GENERATION_BASE_URL", model.base_url.clone())
        .with("INFERENCE_GENERATION_API_KEY", "sk-test-secret-7");
    let database = setup.database();
    let mut server = Server::start(setup).await;
    let scope = server.client().create_scope("failing").await;
    let other = server.client().create_scope("other").await;
    server.client().capture(&scope, "s1", "The unrepeatable word zephyrine stands in this Source.").await;
    assert_eq!(server.client().flush(&scope).await, "accepted");

    for attempt in 1..=3 {
        let attempts = "SELECT coalesce(max(attempts), 0) FROM pc_topic_memory_work_budgets";
        wait_for(&database, attempts, attempt).await;
        let recorded = format!(
            "SELECT count(*) FROM pc_topic_memory_work_budgets WHERE attempts = {attempt} AND failure_code IS NOT NULL"
        );
        wait_for(&database, &recorded, 1).await;
        assert_eq!(model.count(), usize::try_from(attempt).expect("small") * 2, "two structured tries each");
        // A restart forgets the waiting time in memory, never the attempts.
        server = Server::start(server.kill()).await;
    }
    assert_eq!(server.client().flush(&scope).await, "accepted", "a terminal frontier is not idle");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(model.count(), 6, "a fourth attempt never starts");
    let zero = [
        "SELECT count(*) FROM pc_source_cursors WHERE position > 0",
        "SELECT count(*) FROM pc_artifact_heads",
        "SELECT count(*) FROM pc_artifacts",
        "SELECT count(*) FROM pc_artifact_processing_pending WHERE handled_flush_generation > 0",
    ];
    for sql in zero {
        assert_eq!(number(&database, sql).await, 0, "{sql}");
    }
    assert_eq!(number(&database, "SELECT count(*) FROM pc_artifact_processing_pending").await, 1);
    assert_eq!(number(&database, "SELECT attempts FROM pc_topic_memory_work_budgets").await, 3);
    assert!(number(&database, "SELECT reserved_requests FROM pc_topic_memory_work_budgets").await >= 6);
    let log = server.log();
    assert!(log.contains("invalid_output"), "the failure is logged with its code");
    for secret in ["sk-test-secret-7", "zephyrine", "weather"] {
        assert!(!log.contains(secret), "`{secret}` is in the log"); // TM-228
    }
    assert_eq!(server.client().flush(&other).await, "idle", "other Scopes go on");
}
