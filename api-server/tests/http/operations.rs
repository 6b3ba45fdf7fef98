//! What each operation answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use powercontext_api_server::{Absence, Limits, OPERATIONS};
use serde_json::{Value, json};

use crate::common::{CountedWakes, server, server_of, server_with};

#[tokio::test]
async fn every_operation_is_routed_described_and_refuses_other_methods() {
    // TM-230
    let server = server(None).await;
    let described = server.get("/openapi.json").await.body;
    let contract = [
        "get_liveness",
        "get_readiness",
        "get_capabilities",
        "list_scopes",
        "create_scope",
        "get_scope",
        "update_scope",
        "get_default_scope",
        "set_default_scope",
        "list_sources",
        "create_source",
        "get_source",
        "capture_content_source",
        "flush_topic_memory",
        "search_topic_memory",
        "get_topic_memory",
    ];
    let ids: Vec<&str> = OPERATIONS.iter().map(|operation| operation.id).collect();
    assert!(contract.iter().all(|id| ids.contains(id)));
    assert_eq!(ids.len(), contract.len() + 1, "the description itself and nothing else");
    for operation in OPERATIONS {
        let path = operation.path.replace(['{', '}'], "");
        let entry = &described["paths"][operation.path][operation.method.to_ascii_lowercase()];
        assert_eq!(entry["operationId"], operation.id);
        assert_eq!(entry["requestBody"].is_object(), operation.body.is_some());
        let reached = server.send(operation.method, &path, Some(json!({}))).await;
        assert!(reached.status != 405 && reached.code() != "not_found", "{} {path}", operation.method);
        for method in ["HEAD", "DELETE", "PATCH", "OPTIONS"] {
            let refused = server.send(method, &path, None).await;
            assert_eq!(refused.status, 405, "{method} {path}");
            assert!(refused.header("allow").split(", ").any(|allowed| allowed == operation.method));
            assert!(!refused.header("allow").contains("HEAD"));
            if method != "HEAD" {
                assert_eq!(refused.code(), "method_not_allowed");
            }
        }
    }
    for path in ["/", "/v1", "/v2/scopes", "/V1/scopes", "/v1/nothing", "/health/live/"] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, answer.code()), (404, "not_found"), "{path}");
    }
}

#[tokio::test]
async fn a_page_of_large_sources_ends_early_and_the_walk_finds_all() {
    let server = server_with(None, Limits::new(8_000_000, 32)).await;
    let scope = server.scope("s").await;
    let sources = format!("/v1/scopes/{scope}/sources");
    for length in [3_000_000, 3_000_000, 3_000_000, 10] {
        let made = server.post(&sources, json!({"content": "x".repeat(length)})).await;
        assert_eq!(made.status, 201);
    }
    let (mut path, mut pages) = (sources.clone(), Vec::new());
    loop {
        let page = server.get(&path).await.body;
        pages.push(page["items"].as_array().unwrap().len());
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("{sources}?cursor={cursor}");
    }
    assert_eq!(pages, [2, 2]);
}

#[tokio::test]
async fn every_operation_with_a_body_describes_how_a_body_fails() {
    let described = server(None).await.get("/openapi.json").await.body;
    for operation in OPERATIONS.iter().filter(|operation| operation.body.is_some()) {
        let responses =
            &described["paths"][operation.path][operation.method.to_ascii_lowercase()]["responses"];
        for status in ["400", "408", "413", "422"] {
            assert!(responses[status].is_object(), "{} {status}", operation.id);
        }
    }
    for (pointer, expected) in [
        ("/paths/~1v1~1scopes/get/parameters/6/schema/default", json!(50)),
        ("/paths/~1v1~1scopes~1{scope_id}~1sources/get/parameters/1/schema/default", json!(50)),
        ("/components/schemas/SearchTopicMemoryRequest/properties/limit/default", json!(10)),
        ("/components/schemas/CreateSourceRequest/properties/source_type/default", json!("content")),
        ("/components/schemas/CreateScopeRequest/properties/context_references/default", json!([])),
        ("/components/schemas/UpdateScopeRequest/properties/external_references/default", json!([])),
        ("/components/schemas/SearchTopicMemoryHit/properties/matched_by/minItems", json!(1)),
    ] {
        assert_eq!(described.pointer(pointer), Some(&expected), "{pointer}");
    }
}

#[tokio::test]
async fn sources_keep_any_json_value_and_pages_hide_later_additions() {
    // TM-019, TM-020
    let server = server(None).await;
    let scope = server.scope("s").await;
    let sources = format!("/v1/scopes/{scope}/sources");
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let values = [json!("a\0b\u{7}"), json!(null), json!({"b": 1, "a": [2.5, "漢"]}), json!(""), deep];
    for (index, value) in values.iter().enumerate() {
        let made = server.post(&sources, json!({"content": value})).await;
        assert_eq!(made.status, 201);
        assert_eq!((&made.body["content"], &made.body["position"]), (value, &json!(index + 1)));
        assert_eq!(server.get(made.header("location")).await.body, made.body);
    }
    for content in [&b"9007199254740993"[..], b"[99999999999999999999999]", b"1e999"] {
        let body = [&b"{\"content\":"[..], content, b"}"].concat();
        assert_eq!(server.raw("POST", &sources, Some(("application/json", body))).await.status, 422);
    }
    let first = server.get(&format!("{sources}?limit=2")).await.body;
    server.post(&sources, json!({"content": "later"})).await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = server.get(&format!("{sources}?limit=2&cursor={cursor}")).await.body;
    let third = second["next_cursor"].as_str().unwrap();
    let third = server.get(&format!("{sources}?limit=2&cursor={third}")).await.body;
    assert_eq!((third["items"].as_array().unwrap().len(), &third["next_cursor"]), (1, &Value::Null));
    let other = server.scope("other").await;
    for path in [
        format!("{sources}?limit=3&cursor={cursor}"),
        format!("{sources}?cursor={cursor}"),
        format!("/v1/scopes/{other}/sources?limit=2&cursor={cursor}"),
        format!("{sources}?cursor=%FF"),
    ] {
        let answer = server.get(&path).await;
        assert_eq!((answer.status, answer.code()), (400, "invalid_cursor"), "{path}");
    }
}

#[tokio::test]
async fn bad_queries_answer_422_on_scopes_and_400_below_a_scope() {
    let server = server(None).await;
    let scope = server.scope("s").await;
    for (query, scopes, sources) in [
        ("limit=0", 422, 400),
        ("limit=101", 422, 400),
        ("limit=x", 422, 400),
        ("cursor=", 422, 400),
        ("cursor=abc", 400, 400),
        ("colour=red", 422, 422),
        ("limit=1&limit=2", 422, 422),
    ] {
        assert_eq!(server.get(&format!("/v1/scopes?{query}")).await.status, scopes, "{query}");
        assert_eq!(
            server.get(&format!("/v1/scopes/{scope}/sources?{query}")).await.status,
            sources,
            "{query}"
        );
    }
    for (query, status) in [
        ("query=x", 422),
        ("query=%20", 200),
        ("query=%1C&query_field=title", 422),
        ("query=%20x&query_field=title", 200),
        ("external_reference_kind=%20x", 422),
        ("external_reference_kind=x%1C", 422),
        ("binding_kind=x%20", 422),
        ("binding_integration=%20x", 422),
        ("binding_integration=%1C", 422),
        ("parent_scope_id=%20x", 200),
        ("parent_scope_id=%1C", 422),
    ] {
        assert_eq!(server.get(&format!("/v1/scopes?{query}")).await.status, status, "{query}");
    }
    assert_eq!(server.get("/v1/scopes?binding_kind=x").await.body["items"], json!([]));
    assert_eq!(server.get("/v1/scopes/missing/sources?cursor=x").await.code(), "scope_not_found");
    assert_eq!(server.get("/v1/scopes/%20").await.status, 422);
}

#[tokio::test]
async fn scopes_are_paged_by_id_with_a_cursor_of_their_own_request() {
    let server = server(None).await;
    let parent = server.scope("p").await;
    for key in ["a", "b", "c"] {
        let body = json!({"title": key, "summary": "S", "idempotency_key": key, "parent_scope_id": parent});
        assert_eq!(server.post("/v1/scopes", body).await.status, 201);
    }
    let list = format!("/v1/scopes?parent_scope_id={parent}&limit=2");
    let first = server.get(&list).await.body;
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = server.get(&format!("{list}&cursor={cursor}")).await.body;
    assert_eq!((second["items"].as_array().unwrap().len(), &second["next_cursor"]), (1, &Value::Null));
    assert_eq!(server.get(&format!("/v1/scopes?limit=2&cursor={cursor}")).await.code(), "invalid_cursor");
    let stale = json!({"title": "T", "summary": "S", "expected_version": 7});
    let answer = server.send("PUT", &format!("/v1/scopes/{parent}"), Some(stale)).await;
    assert_eq!((answer.status, answer.code()), (409, "scope_version_conflict"));
    assert_eq!(answer.body["error"]["details"], json!({"expected_version": 7, "current_version": 1}));
}

#[tokio::test]
async fn capture_replays_conflicts_and_refuses_the_reserved_schema() {
    let server = server(None).await;
    let scope = server.scope("s").await;
    let capture = |content: &str, metadata: Value| json!({"scope_id": scope, "source_id": "turn 1/é", "content": content, "metadata": metadata});
    for metadata in [json!(null), json!({})] {
        let answer = server.post("/v1/sources/content", capture("x", metadata)).await;
        assert_eq!((answer.status, &answer.body["position"]), (202, &json!(1)));
    }
    let conflict = server.post("/v1/sources/content", capture("x", json!({"k": 1}))).await;
    assert_eq!((conflict.status, conflict.code()), (409, "source_conflict"));
    for content in [" \n", "{\"schema\":\"powercontext.handoff-receipt.v1\"}"] {
        assert_eq!(server.post("/v1/sources/content", capture(content, json!(null))).await.status, 422);
    }
    let object = json!({"content": {"schema": "powercontext.handoff-receipt.v1"}});
    assert_eq!(server.post(&format!("/v1/scopes/{scope}/sources"), object).await.status, 422);
}

#[tokio::test]
async fn a_flush_is_accepted_once_there_is_something_and_wakes_the_supervisor() {
    // TM-231, TM-232, TM-233, TM-234, B-17
    let wakes = Arc::new(CountedWakes::default());
    let server = server(Some(wakes.clone())).await;
    let ready = server.get("/health/ready").await.body;
    assert_eq!(ready["status"], "ready", "a Scope that fails does not take the server out of service");
    assert_eq!(ready["checks"]["topic_memory_terminal_frontiers"], "0");
    assert_eq!(ready["checks"]["topic_memory_unanswered_scopes"], "5");
    let scope = server.scope("s").await;
    let flush = json!({"scope_id": scope});
    assert_eq!(server.post("/v1/topic-memory/flush", flush.clone()).await.body, json!({"status": "idle"}));
    assert_eq!(wakes.0.load(Ordering::SeqCst), 0);
    server.post(&format!("/v1/scopes/{scope}/sources"), json!({"content": "x"})).await;
    for _ in 0..2 {
        let answer = server.post("/v1/topic-memory/flush", flush.clone()).await;
        assert_eq!((answer.status, answer.body), (200, json!({"status": "accepted"})));
    }
    assert_eq!(wakes.0.load(Ordering::SeqCst), 2);
    let unknown = server.post("/v1/topic-memory/flush", json!({"scope_id": "missing"})).await;
    assert_eq!((unknown.status, unknown.code()), (404, "scope_not_found"));
    assert_eq!(
        server.get("/v1/capabilities").await.body["prompts"]["topic_memory.probe"]["status"],
        "supported"
    );
}

#[tokio::test]
async fn without_a_model_a_flush_is_unavailable_and_an_unknown_scope_still_unknown() {
    // TM-236, B-17
    let server = server(None).await;
    let scope = server.scope("s").await;
    let answer = server.post("/v1/topic-memory/flush", json!({"scope_id": scope})).await;
    assert_eq!((answer.status, answer.code()), (503, "topic_memory_processing_unavailable"));
    assert_eq!(server.post("/v1/topic-memory/flush", json!({"scope_id": "missing"})).await.status, 404);
    let capabilities = server.get("/v1/capabilities").await.body;
    assert_eq!(capabilities["prompts"]["topic_memory.probe"]["reason"], "provider_not_configured");
    assert_eq!(capabilities["artifact_families"], json!(["topic-memory"]));
}

#[tokio::test]
async fn a_model_that_topic_processing_does_not_support_makes_a_flush_unavailable_and_nothing_else() {
    // TM-085, B-17
    let server = server_of(Err(Absence::NotSupported), Limits::new(2_000_000, 32)).await;
    let scope = server.scope("s").await;
    let answer = server.post("/v1/topic-memory/flush", json!({"scope_id": scope})).await;
    assert_eq!((answer.status, answer.code()), (503, "topic_memory_processing_unavailable"));
    let capabilities = server.get("/v1/capabilities").await.body;
    assert_eq!(capabilities["prompts"]["topic_memory.probe"]["status"], "unsupported");
    assert_eq!(server.get("/health/ready").await.status, 200);
    let source = server.post(&format!("/v1/scopes/{scope}/sources"), json!({"content": "x"})).await;
    assert!(source.status < 300);
}

#[tokio::test]
async fn searches_and_reads_of_what_is_not_there_answer_as_the_contract_says() {
    // TM-237, TM-238, B-3, B-19
    let server = server(None).await;
    let scope = server.scope("s").await;
    for query in ["hello", "…!?", "🙂", "漢字"] {
        let answer = server.post("/v1/topic-memory/search", json!({"scope_id": scope, "query": query})).await;
        assert_eq!((answer.status, answer.body), (200, json!({"mode": "fts", "hits": []})), "{query}");
    }
    let get = |scope: &str, family: &str, revision: u64| json!({"scope_id": scope, "artifact": {"family": family, "artifact_id": "missing", "revision": revision}});
    for (body, status, code) in [
        (get(&scope, "topic-memory", 1), 404, "artifact_not_found"),
        (get(&scope, "topic-memory", u64::MAX), 404, "artifact_not_found"),
        (get(&scope, "memory", 1), 422, "invalid_request"),
        (get("missing", "memory", 1), 404, "scope_not_found"),
    ] {
        let answer = server.post("/v1/topic-memory/get", body).await;
        assert_eq!((answer.status, answer.code()), (status, code));
    }
}

#[tokio::test]
async fn readiness_is_withdrawn_while_the_server_drains() {
    let server = server(None).await;
    let ready = server.get("/health/ready").await.body;
    assert_eq!(ready["status"], "ready");
    assert!(ready["checks"].get("topic_memory_terminal_frontiers").is_none(), "nothing is processed here");
    server.app.start_draining();
    let answer = server.get("/health/ready").await;
    assert_eq!((answer.status, &answer.body["status"]), (503, &json!("not_ready")));
    assert_eq!(server.get("/health/live?verbose=1").await.status, 200);
}

#[tokio::test]
async fn a_forbidden_relationship_is_named() {
    let server = server(None).await;
    let own = server.scope("a").await;
    let update = |parent: Value, references: Value| {
        json!({"title": "T", "summary": "S", "expected_version": 1, "parent_scope_id": parent,
            "context_references": references})
    };
    for (body, relationship) in
        [(update(json!(own), json!([])), "Parent"), (update(json!(null), json!([own])), "Context Reference")]
    {
        let answer = server.send("PUT", &format!("/v1/scopes/{own}"), Some(body)).await;
        assert_eq!((answer.status, answer.code()), (422, "invalid_scope_relationship"));
        assert_eq!(answer.body["error"]["details"]["relationship"], relationship);
    }
}
