//! Bodies that are refused, and how the refusal names what is wrong.

use serde_json::{Value, json};

use crate::common::{self, server};

#[tokio::test]
async fn bodies_that_break_the_contract_are_refused_with_their_path() {
    // TM-236
    let server = server(None).await;
    let scope = server.scope("s").await;
    let sources = format!("/v1/scopes/{scope}/sources");
    let new = |changes: Value| {
        let mut body = json!({"title": "T", "summary": "S", "idempotency_key": "k"});
        for (name, value) in changes.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    };
    let search = |extra: Value| {
        let mut body = json!({"scope_id": "missing", "query": "x"});
        for (name, value) in extra.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    };
    let external = |value: Value| new(json!({"external_references": [value]}));
    let capture = |changes: Value| {
        let mut body = json!({"scope_id": scope, "source_id": "s", "content": "x"});
        for (name, value) in changes.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    };
    let artifact = json!({"family": "topic-memory", "artifact_id": "x y", "revision": 0});
    let (scopes, captures) = ("/v1/scopes", "/v1/sources/content");
    let (flushes, searches) = ("/v1/topic-memory/flush", "/v1/topic-memory/search");
    let long = |length: usize| "x".repeat(length);
    let cases: Vec<(&str, Value, Value)> = vec![
        (scopes, json!({"summary": "S", "idempotency_key": "k"}), json!([["missing", "title"]])),
        (scopes, new(json!({"title": null})), json!([["string_type", "title"]])),
        (scopes, new(json!({"title": ""})), json!([["string_too_short", "title"]])),
        (scopes, new(json!({"title": "\u{85}"})), json!([["string_pattern_mismatch", "title"]])),
        (scopes, new(json!({"title": " T"})), json!([["value_error", "title"]])),
        (scopes, new(json!({"title": "T\u{1c}"})), json!([["value_error", "title"]])),
        (scopes, new(json!({"title": long(257)})), json!([["string_too_long", "title"]])),
        (scopes, new(json!({"summary": long(2_001)})), json!([["string_too_long", "summary"]])),
        (scopes, new(json!({"colour": "red"})), json!([["extra_forbidden", "colour"]])),
        (scopes, new(json!({"parent_scope_id": ""})), json!([["string_too_short", "parent_scope_id"]])),
        (scopes, new(json!({"context_references": null})), json!([["list_type", "context_references"]])),
        (
            scopes,
            new(json!({"context_references": ["a", "a"]})),
            json!([["value_error", "context_references"]]),
        ),
        (
            scopes,
            new(json!({"context_references": [" ", "a", 1]})),
            json!([
                ["string_pattern_mismatch", "context_references", 0],
                ["string_type", "context_references", 2]
            ]),
        ),
        (scopes, external(json!({"kind": "g"})), json!([["missing", "external_references", 0, "value"]])),
        (
            scopes,
            external(json!({"kind": "g ", "value": "v", "x": 1})),
            json!([
                ["value_error", "external_references", 0, "kind"],
                ["extra_forbidden", "external_references", 0, "x"]
            ]),
        ),
        (
            scopes,
            json!({"title": 1, "idempotency_key": " ", "colour": "red"}),
            json!([
                ["string_type", "title"],
                ["missing", "summary"],
                ["string_pattern_mismatch", "idempotency_key"],
                ["extra_forbidden", "colour"]
            ]),
        ),
        (&sources, json!({}), json!([["missing", "content"]])),
        (&sources, json!({"content": 1, "source_type": null}), json!([["enum", "source_type"]])),
        (&sources, json!({"content": 1, "source_id": "x"}), json!([["extra_forbidden", "source_id"]])),
        (captures, capture(json!({"source_id": ""})), json!([["string_too_short", "source_id"]])),
        (captures, capture(json!({"source_id": long(257)})), json!([["string_too_long", "source_id"]])),
        (captures, capture(json!({"content": ""})), json!([["string_too_short", "content"]])),
        (captures, capture(json!({"content": long(200_001)})), json!([["string_too_long", "content"]])),
        (captures, capture(json!({"metadata": []})), json!([["dict_type", "metadata"]])),
        (flushes, json!({"scope_id": scope, "limit": 1}), json!([["extra_forbidden", "limit"]])),
        (searches, search(json!({"query": "x\u{1f}"})), json!([["string_pattern_mismatch", "query"]])),
        (searches, search(json!({"query": long(8_193)})), json!([["string_too_long", "query"]])),
        (searches, search(json!({"limit": 0})), json!([["greater_than_equal", "limit"]])),
        (searches, search(json!({"limit": 21})), json!([["less_than_equal", "limit"]])),
        (searches, search(json!({"limit": 2.0})), json!([["int_type", "limit"]])),
        (searches, search(json!({"limit": "2"})), json!([["int_type", "limit"]])),
        (searches, search(json!({"limit": true})), json!([["int_type", "limit"]])),
        (searches, search(json!({"limit": null})), json!([["int_type", "limit"]])),
        (
            "/v1/topic-memory/get",
            json!({"scope_id": scope, "artifact": artifact}),
            json!([
                ["string_pattern_mismatch", "artifact", "artifact_id"],
                ["greater_than_equal", "artifact", "revision"]
            ]),
        ),
    ];
    for (path, body, expected) in cases {
        let answer = server.post(path, body.clone()).await;
        let shown: String = body.to_string().chars().take(120).collect();
        assert_eq!((answer.status, answer.code()), (422, "invalid_request"), "{shown}");
        assert_eq!(answer.problems(), expected, "{shown}");
    }
    let used = server.post("/v1/scopes", new(json!({}))).await;
    assert_eq!(used.status, 201, "no refused request used up the key");
}

#[tokio::test]
async fn a_body_that_is_no_json_is_told_apart_from_one_that_is_wrong() {
    let server = server(None).await;
    let cases: Vec<(Option<&str>, &str, Value, &str)> = vec![
        (Some("application/json"), "{\"a\":\"é\",x", json!([["json_invalid", 9]]), "character 9"),
        (Some("application/json"), "{\"a\":\n 1,}", json!([["json_invalid", 9]]), "character 9"),
        (Some("application/json"), "{\"a\":", json!([["json_invalid", 5]]), "ends too early"),
        (
            Some("text/plain"),
            "{}",
            json!([["model_attributes_type"]]),
            "Content-Type must be application/json",
        ),
        (None, "{}", json!([["model_attributes_type"]]), "Content-Type is missing"),
        (Some("application/json"), "[]", json!([["model_attributes_type"]]), "must be an object"),
        (Some("application/json"), "", json!([["missing"]]), "a JSON body is required"),
    ];
    for (content_type, body, problems, words) in cases {
        let mut request = server.client.post(format!("{}/v1/scopes", server.url)).body(body);
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        let answer = common::answer(request).await;
        assert_eq!((answer.status, answer.code()), (422, "invalid_request"), "{body}");
        assert_eq!(answer.problems(), problems, "{body}");
        assert!(answer.body.to_string().contains(words), "{}", answer.body);
    }
}

#[tokio::test]
async fn a_body_full_of_mistakes_gets_a_small_answer() {
    let server = server(None).await;
    let wrong = vec![json!({"kind": 1, "x": 2}); 50_000];
    let unknown: serde_json::Map<String, Value> =
        (0..200).map(|number| (format!("{number}{}", "x".repeat(5_000)), Value::Null)).collect();
    for body in [json!({"external_references": wrong}), json!(unknown)] {
        let answer = server.post("/v1/scopes", body).await;
        assert_eq!(answer.status, 422);
        assert_eq!(answer.problems().as_array().unwrap().len(), 32);
        assert!(answer.body.to_string().len() < 16_384);
    }
}

#[tokio::test]
async fn what_a_capture_says_is_judged_in_a_scope_that_exists() {
    let server = server(None).await;
    let scope = server.scope("s").await;
    for (source_id, content) in [
        (" s", "x"),
        ("s\u{1c}", "x"),
        ("\u{85}", "x"),
        ("s", " \n"),
        ("s", "\u{1c}"),
        ("s", "{\"schema\":\"powercontext.handoff-receipt.v1\"}"),
    ] {
        for (scope, status) in [("missing", 404), (scope.as_str(), 422)] {
            let body = json!({"scope_id": scope, "source_id": source_id, "content": content});
            let answer = server.post("/v1/sources/content", body).await;
            assert_eq!(answer.status, status, "{scope} {source_id:?} {content:?}");
        }
    }
    assert_eq!(server.get(&format!("/v1/scopes/{scope}/sources")).await.body["items"], json!([]));
}

#[tokio::test]
async fn a_version_of_any_size_is_stale_and_not_malformed() {
    let server = server(None).await;
    let scope = server.scope("s").await;
    for version in [
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "1000000000000000000000000000000",
    ] {
        let body = format!("{{\"title\":\"T\",\"summary\":\"S\",\"expected_version\":{version}}}");
        let body = Some(("application/json", body.into_bytes()));
        let answer = server.raw("PUT", &format!("/v1/scopes/{scope}"), body).await;
        assert_eq!((answer.status, answer.code()), (409, "scope_version_conflict"), "{version}");
    }
}

#[tokio::test]
async fn equal_external_references_are_refused_whatever_the_order_of_their_keys() {
    let server = server(None).await;
    let body = br#"{"title":"T","summary":"S","idempotency_key":"k",
        "external_references":[{"kind":"a","value":"b"},{"value":"b","kind":"a"}]}"#;
    let answer = server.raw("POST", "/v1/scopes", Some(("application/json", body.to_vec()))).await;
    assert_eq!(answer.status, 422);
    assert_eq!(answer.problems(), json!([["value_error", "external_references"]]));
}

#[tokio::test]
async fn unreadable_bodies_and_foreign_content_types_are_refused() {
    let server = server(None).await;
    let body = br#"{"title":"T","summary":"S","idempotency_key":"k"}"#.to_vec();
    let mut with_mark = b"\xef\xbb\xbf".to_vec();
    with_mark.extend_from_slice(&body);
    let cases: Vec<(&str, Vec<u8>, u16)> = vec![
        ("application/json; charset=utf-8", body.clone(), 201),
        ("Application/JSON", body.clone(), 201),
        ("application/merge-patch+json", body.clone(), 201),
        ("application/json", with_mark, 201),
        ("text/plain", body.clone(), 422),
        ("application/octet-stream", body, 422),
        ("application/json", Vec::new(), 422),
        ("application/json", b"[]".to_vec(), 422),
        ("application/json", b"{\"title\":\"\xff\"}".to_vec(), 400),
        ("application/json", br#"{"title":"\ud800"}"#.to_vec(), 422),
        ("application/json", "[".repeat(300).into_bytes(), 400),
        ("application/json", vec![b' '; 2_000_001], 413),
    ];
    for (content_type, bytes, status) in cases {
        let length = bytes.len();
        let answer = server.raw("POST", "/v1/scopes", Some((content_type, bytes))).await;
        assert_eq!(answer.status, status, "{content_type}, {length} bytes: {}", answer.body);
        if status == 413 {
            assert_eq!(answer.code(), "request_too_large");
        }
    }
}
