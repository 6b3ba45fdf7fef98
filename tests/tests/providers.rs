//! A server with a model of each protocol behind real HTTP: what becomes of a Source, what is sent,
//! and what is logged.

use std::time::Duration;

use powercontext_tests::model::{Model, Reply};
use powercontext_tests::server::{Server, Setup};
use serde_json::{Value, json};

const KEY: &str = "sk-test-secret-7";
const HEADER: &str = "header-secret-8";

/// Answers the two questions of a Window with one Source; the schema tells which one is asked.
fn answers(body: &Value) -> Reply {
    let answer = if body.to_string().contains("\"probes\"") {
        json!({"probes": [{"query": "zephyrine", "evidence_ids": ["s1"]}]})
    } else {
        let draft = json!({
            "title": "Zephyrine", "summary": "A word.", "detail": "The word zephyrine.", "evidence_ids": ["s1"]
        });
        json!({"updates": [], "new_topics": [draft]})
    };
    Reply::Text(answer.to_string())
}

fn setup(folder: &std::path::Path, provider: &str, model: &Model) -> Setup {
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    Setup::new(folder)
        .with("INFERENCE_GENERATION_MODEL", format!("{provider}:stub"))
        .with("INFERENCE_GENERATION_BASE_URL", model.base_url.clone())
        .with("INFERENCE_GENERATION_API_KEY_FILE", file("key", KEY))
        .with(
            "INFERENCE_GENERATION_HEADERS_FILE",
            file("headers", &format!("{{\"x-gateway\":\"{HEADER}\"}}")),
        )
        .with("INFERENCE_GENERATION_MODEL_SETTINGS", r#"{"max_tokens":4321,"service_tier":"auto"}"#)
}

#[tokio::test]
async fn a_source_becomes_a_topic_through_a_model_of_either_protocol() {
    // TM-079, TM-081, TM-228
    for (provider, key, limit) in
        [("openai", "authorization", "max_completion_tokens"), ("anthropic", "x-api-key", "max_tokens")]
    {
        let model = Model::start(answers).await;
        let folder = tempfile::tempdir().expect("a folder");
        let server = Server::start(setup(folder.path(), provider, &model)).await;
        let scope = server.client().create_scope("words").await;
        server.client().capture(&scope, "s1", "The unrepeatable word zephyrine.").await;
        server.client().flush_until_idle(&scope, Duration::from_secs(30)).await;
        assert_eq!(server.client().search(&scope, "zephyrine").await.len(), 1, "{provider}");
        let asked = model.requests();
        assert_eq!(asked.len(), 2, "{provider}");
        for request in &asked {
            assert!(request.headers[key].to_str().expect("a text").ends_with(KEY));
            assert_eq!(request.headers["x-gateway"], HEADER);
            assert_eq!((&request.body["model"], &request.body[limit]), (&json!("stub"), &json!(4321)));
            assert_eq!(request.body["service_tier"], "auto");
        }
        let log = server.log();
        for secret in [KEY, HEADER, "zephyrine"] {
            assert!(!log.contains(secret), "`{secret}` is in the log of {provider}");
        }
    }
}

#[tokio::test]
async fn a_provider_that_asks_to_be_left_alone_is_not_asked_again_before() {
    // TM-222, TM-223
    let model = Model::start(|_| Reply::Wait(429, 900)).await;
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(setup(folder.path(), "anthropic", &model)).await;
    let scope = server.client().create_scope("limited").await;
    server.client().capture(&scope, "s1", "Some text.").await;
    assert_eq!(server.client().flush(&scope).await, "accepted");
    let failed = loop {
        let log = server.log();
        if let Some(line) = log
            .lines()
            .find(|line| line.contains("generation_rate_limited") && line.contains("retry_delay_ms"))
        {
            break serde_json::from_str::<Value>(line).expect("a line of JSON");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(failed["retry_delay_ms"], 900_000);
    assert_eq!(model.count(), 1);
}

#[tokio::test]
async fn a_model_that_is_not_supported_leaves_everything_else_and_says_so() {
    // TM-082, TM-085
    let model = Model::start(answers).await;
    let folder = tempfile::tempdir().expect("a folder");
    let settings = r#"{"extra_body":{"tools":["sk-test-secret-7"]}}"#;
    let setup = setup(folder.path(), "openai", &model).with("INFERENCE_GENERATION_MODEL_SETTINGS", settings);
    let server = Server::start(setup).await;
    let scope = server.client().create_scope("other").await;
    assert_eq!(server.client().capture(&scope, "s1", "Some text.").await, 1);
    let flush = server.client().post("/v1/topic-memory/flush", &json!({"scope_id": scope})).await;
    assert_eq!(
        (flush.status, &flush.body["error"]["code"]),
        (503, &json!("topic_memory_processing_unavailable"))
    );
    let capabilities = server.client().get("/v1/capabilities").await.body;
    assert_eq!(capabilities["prompts"]["topic_memory.probe"]["status"], "unsupported");
    let ready = server.client().get("/health/ready").await.body;
    assert_eq!(ready["checks"]["artifact_processing_supervisor"], "disabled");
    let log = server.log();
    assert!(log.contains("`extra_body` is not supported"), "{log}");
    assert!(!log.contains(KEY));
    assert_eq!(model.count(), 0);
}
