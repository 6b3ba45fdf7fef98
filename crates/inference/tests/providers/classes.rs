//! Every kind of reply becomes exactly one class, alike for both protocols, after one request.

use std::time::Duration;

use powercontext_core::error_code::ErrorCode;
use powercontext_core::secret::Secret;
use powercontext_core::work::Ending;
use powercontext_inference::{GenerationError, Usage};
use serde_json::{Value, json};

use crate::stub::{Reply, SAID, Stub, ask, config};

const USAGE: Usage = Usage { input_tokens: 12, output_tokens: 34 };

/// Asks a provider that gives this reply; the request must be the only one.
async fn class(provider: &str, reply: &Reply) -> GenerationError {
    let stub = Stub::start(vec![reply.clone()]).await;
    let error = ask(&config(provider, &stub), None).await.unwrap_err();
    stub.only();
    error
}

fn chat(finish_reason: Option<&str>, message: &Value) -> Value {
    json!({
        "choices": [{ "index": 0, "finish_reason": finish_reason, "message": message }],
        "usage": { "prompt_tokens": 12, "completion_tokens": 34, "total_tokens": 46 },
    })
}

fn message(stop_reason: &str, content: &Value) -> Value {
    json!({
        "type": "message", "stop_reason": stop_reason, "content": content,
        "usage": { "input_tokens": 12, "output_tokens": 34 },
    })
}

#[test]
fn every_code_of_a_provider_is_documented() {
    let page = include_str!("../../../../docs/providers.md");
    let codes = ErrorCode::ALL.map(ErrorCode::as_str).into_iter();
    for code in codes.filter(|code| code.starts_with("generation_") || code.starts_with("embedding_")) {
        assert!(page.contains(&format!("| `{code}` |")), "{code}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_a_finished_text_has_its_class_and_keeps_its_usage() {
    // TM-083
    use ErrorCode::{
        GenerationFiltered, GenerationRefused, GenerationSuspended, GenerationTruncated, GenerationUnreadable,
    };
    let text = json!([{ "type": "text", "text": SAID }]);
    let call = json!([{ "id": "call", "type": "function", "function": { "name": "x", "arguments": "{}" } }]);
    let mut waiting = chat(Some("stop"), &json!({ "content": SAID }));
    waiting["status"] = json!("requires_action");
    let mut queued = waiting.clone();
    queued["status"] = json!("queued");
    let mut two = chat(Some("stop"), &json!({ "content": SAID }));
    two["choices"] = json!([two["choices"][0], two["choices"][0]]);
    let mut none = two.clone();
    none["choices"] = json!([]);
    let mut shapeless = two.clone();
    shapeless["choices"] = json!("model said");
    let table = [
        ("openai", chat(Some("stop"), &json!({ "content": null, "refusal": SAID })), GenerationRefused),
        ("openai", chat(Some("content_filter"), &json!({ "content": SAID })), GenerationFiltered),
        ("openai", chat(Some("length"), &json!({ "content": SAID })), GenerationTruncated),
        (
            "openai",
            chat(Some("tool_calls"), &json!({ "content": null, "tool_calls": call })),
            GenerationSuspended,
        ),
        ("openai", chat(Some("stop"), &json!({ "content": "{}", "tool_calls": call })), GenerationSuspended),
        ("openai", chat(Some("function_call"), &json!({ "content": "{}" })), GenerationSuspended),
        ("openai", chat(None, &json!({ "content": "{}", "function_call": {} })), GenerationSuspended),
        ("openai", chat(Some("pause_turn"), &json!({ "content": SAID })), GenerationSuspended),
        ("openai", chat(Some("requires_action"), &json!({ "content": SAID })), GenerationSuspended),
        ("openai", waiting, GenerationSuspended),
        ("openai", queued, GenerationSuspended),
        ("openai", chat(Some("stop"), &json!({ "content": null })), GenerationUnreadable),
        ("openai", chat(Some("stop"), &json!({ "content": [{ "text": SAID }] })), GenerationUnreadable),
        ("openai", two, GenerationUnreadable),
        ("openai", none, GenerationUnreadable),
        ("openai", shapeless, GenerationUnreadable),
        ("anthropic", message("refusal", &text), GenerationRefused),
        ("anthropic", message("refusal", &json!([])), GenerationRefused),
        ("anthropic", message("max_tokens", &text), GenerationTruncated),
        ("anthropic", message("model_context_window_exceeded", &text), GenerationTruncated),
        ("anthropic", message("stop_sequence", &text), GenerationTruncated),
        ("anthropic", message("pause_turn", &text), GenerationSuspended),
        (
            "anthropic",
            message("tool_use", &json!([{ "type": "tool_use", "input": {} }])),
            GenerationSuspended,
        ),
        (
            "anthropic",
            message("end_turn", &json!([{ "type": "server_tool_use", "input": {} }])),
            GenerationSuspended,
        ),
        ("anthropic", message("something_new", &text), GenerationSuspended),
        ("anthropic", message("end_turn", &json!([])), GenerationUnreadable),
        ("anthropic", message("end_turn", &json!([{ "type": "text" }])), GenerationUnreadable),
        ("anthropic", message("end_turn", &json!("model said")), GenerationUnreadable),
    ];
    for (provider, body, code) in table {
        let error = class(provider, &Reply::json(200, &body)).await;
        assert_eq!((error.code(), error.usage()), (code, Some(USAGE)), "{provider} {body}");
        assert_eq!(code.ending(), Ending::Transient);
    }
}

#[tokio::test]
async fn a_status_has_its_class_whatever_the_protocol() {
    // TM-079, TM-224
    use ErrorCode::{
        GenerationFiltered, GenerationModelNotFound, GenerationOverloaded, GenerationQuotaExhausted,
        GenerationRateLimited, GenerationRejected, GenerationSuspended, GenerationUnauthorized,
    };
    let table = [
        (202, json!({ "id": "job" }), GenerationSuspended),
        (307, json!({}), GenerationRejected),
        (400, json!({ "error": { "message": SAID } }), GenerationRejected),
        (400, json!({ "error": { "code": "content_filter", "message": SAID } }), GenerationFiltered),
        (400, json!({ "error": { "code": "model_not_found" } }), GenerationModelNotFound),
        (400, json!({ "error": { "type": "billing_error" } }), GenerationQuotaExhausted),
        (401, json!({ "error": { "code": "invalid_api_key", "message": SAID } }), GenerationUnauthorized),
        (402, json!({ "error": { "type": "billing_error" } }), GenerationQuotaExhausted),
        (403, json!({ "error": { "type": "permission_error" } }), GenerationUnauthorized),
        (404, json!({ "error": { "code": "model_not_found" } }), GenerationModelNotFound),
        (408, json!({}), GenerationOverloaded),
        (409, json!({}), GenerationOverloaded),
        (413, json!({ "error": { "type": "request_too_large" } }), GenerationRejected),
        (422, json!("model said"), GenerationRejected),
        (429, json!({ "error": { "type": "rate_limit_error" } }), GenerationRateLimited),
        (
            429,
            json!({ "error": { "code": "insufficient_quota", "message": SAID } }),
            GenerationQuotaExhausted,
        ),
        (429, json!({ "error": { "type": "insufficient_quota" } }), GenerationQuotaExhausted),
        (429, json!({ "error": { "type": "overloaded_error" } }), GenerationOverloaded),
        (500, json!({ "error": { "type": "api_error" } }), GenerationOverloaded),
        (502, json!("<html>model said</html>"), GenerationOverloaded),
        (503, json!({}), GenerationOverloaded),
        (504, json!({}), GenerationOverloaded),
        (529, json!({ "error": { "type": "overloaded_error" } }), GenerationOverloaded),
        // An error that a gateway hides behind a success.
        (200, json!({ "error": { "code": 429, "message": SAID } }), GenerationRateLimited),
        (200, json!({ "error": { "code": 402 } }), GenerationQuotaExhausted),
        (200, json!({ "type": "error", "error": { "type": "overloaded_error" } }), GenerationOverloaded),
        (200, json!({ "error": { "type": "authentication_error" } }), GenerationUnauthorized),
        (200, json!({ "error": { "message": SAID } }), ErrorCode::GenerationUnreadable),
    ];
    for (status, body, code) in table {
        for provider in ["openai", "anthropic"] {
            let error = class(provider, &Reply::json(status, &body)).await;
            assert_eq!(error.code(), code, "{provider} {status} {body}: {error:?}");
            assert_eq!(error.usage(), None);
            let needs_a_person =
                [GenerationModelNotFound, GenerationQuotaExhausted, GenerationUnauthorized].contains(&code);
            assert_eq!(code.ending() == Ending::Configuration, needs_a_person, "{code:?}");
        }
    }
}

#[tokio::test]
async fn a_reply_that_is_no_answer_at_all_has_its_class() {
    use ErrorCode::{
        GenerationOverloaded, GenerationResponseTooLarge, GenerationTimeout, GenerationUnreachable,
        GenerationUnreadable,
    };
    let huge = Reply::Whole { status: 200, headers: vec![], body: vec![b' '; 9 * 1024 * 1024] };
    let table = [
        (Reply::text(200, SAID), GenerationUnreadable),
        (Reply::text(200, ""), GenerationUnreadable),
        (Reply::text(200, "[]"), GenerationUnreadable),
        (Reply::text(200, "{}"), GenerationUnreadable),
        (Reply::text(200, "```json\n{}\n```"), GenerationUnreadable),
        (Reply::text(200, "data: {\"choices\":[]}\n\ndata: [DONE]\n\n"), GenerationUnreadable),
        (Reply::text(200, r#"{"choices":[],"choices":[],"content":[],"content":[]}"#), GenerationUnreadable),
        (Reply::Whole { status: 200, headers: vec![], body: vec![0xff, 0xfe] }, GenerationUnreadable),
        (Reply::CutOff { status: 200, body: br#"{"choices":[{"#.to_vec() }, GenerationUnreachable),
        (Reply::CutOff { status: 503, body: b"model said".to_vec() }, GenerationOverloaded),
        (Reply::Closed, GenerationUnreachable),
        (Reply::Silent, GenerationTimeout),
        (Reply::Stalled, GenerationTimeout),
        (huge, GenerationResponseTooLarge),
    ];
    for (reply, code) in table {
        for provider in ["openai", "anthropic"] {
            let stub = Stub::start(vec![reply.clone()]).await;
            let mut config = config(provider, &stub);
            if code == GenerationTimeout {
                config.settings = Some(Secret::new(r#"{"timeout":0.1}"#));
            }
            let error = ask(&config, None).await.unwrap_err();
            assert_eq!(error.code(), code, "{provider}: {error:?}");
            stub.only();
        }
    }
}

#[tokio::test]
async fn a_text_that_breaks_the_stage_is_handed_on_as_it_is() {
    // Whether a text is the stage's JSON is the worker's business: prose, fences, repeated keys.
    for text in [SAID, "", "```json\n{}\n```", r#"{"probes":[],"probes":[]}"#, "{\"extra\":1}"] {
        let replies = [
            ("openai", chat(Some("stop"), &json!({ "content": text }))),
            ("anthropic", message("end_turn", &json!([{ "type": "text", "text": text }]))),
        ];
        for (provider, body) in replies {
            let stub = Stub::start(vec![Reply::json(200, &body)]).await;
            let answer = ask(&config(provider, &stub), None).await.unwrap();
            assert_eq!((answer.text.as_str(), answer.usage), (text, USAGE), "{provider}");
        }
    }
}

#[tokio::test]
async fn usage_that_is_missing_or_odd_counts_as_nothing_and_spoils_no_answer() {
    // TM-064
    for (usage, counted) in [
        (json!(null), Usage::default()),
        (json!("many"), Usage::default()),
        (json!({ "prompt_tokens": -1, "completion_tokens": 1.5 }), Usage::default()),
        (json!({ "prompt_tokens": 3 }), Usage { input_tokens: 3, output_tokens: 0 }),
    ] {
        let mut body = chat(Some("stop"), &json!({ "content": "{}" }));
        body["usage"] = usage;
        let stub = Stub::start(vec![Reply::json(200, &body)]).await;
        assert_eq!(ask(&config("openai", &stub), None).await.unwrap().usage, counted);
    }
}

#[tokio::test]
async fn an_error_that_carries_usage_keeps_it() {
    // TM-064
    let body = json!({
        "error": { "type": "api_error", "message": SAID }, "usage": { "input_tokens": 12, "output_tokens": 34 },
    });
    for (provider, status) in [("openai", 400), ("openai", 500), ("anthropic", 429), ("anthropic", 200)] {
        let error = class(provider, &Reply::json(status, &body)).await;
        assert_eq!(error.usage(), Some(USAGE), "{provider} {status}");
    }
}

#[tokio::test]
async fn a_wish_to_be_left_alone_is_kept_for_limits_and_overload_alone() {
    const NOON: &str = "Tue, 01 Dec 2026 12:00:00 GMT";
    const LATER: &str = "Tue, 01 Dec 2026 12:02:00 GMT";
    for (status, wait, seconds) in [
        (429, "7", Some(7)),
        (503, LATER, Some(120)),
        (529, "99999999", Some(3600)),
        (529, "soon", None),
        (400, "7", None),
        (401, "7", None),
    ] {
        let reply = Reply::text(status, SAID).with("retry-after", wait).with("date", NOON);
        let error = class("anthropic", &reply).await;
        assert_eq!(error.retry_after(), seconds.map(Duration::from_secs), "{status} {wait}: {error:?}");
    }
}

#[tokio::test]
async fn neither_key_nor_text_follows_a_redirect() {
    let elsewhere = Stub::start(vec![Reply::text(200, "{}")]).await;
    let target: &'static str = format!("{}/chat/completions", elsewhere.base_url).leak();
    for status in [301, 302, 307, 308] {
        let error = class("openai", &Reply::text(status, "").with("location", target)).await;
        assert!(
            matches!(error, GenerationError::Rejected { status: told, .. } if told == status),
            "{error:?}"
        );
    }
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn an_endpoint_nobody_listens_at_is_unreachable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stub = Stub::start(vec![]).await;
    let mut config = config("openai", &stub);
    config.base_url = Some(format!("http://{}/v1", listener.local_addr().unwrap()));
    drop(listener);
    let error = ask(&config, None).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::GenerationUnreachable);
}
