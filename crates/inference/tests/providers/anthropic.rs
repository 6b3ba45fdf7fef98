//! The messages protocol: what is sent.

use powercontext_core::secret::Secret;
use powercontext_inference::{Correction, Generation, StructuredOutput, Usage};
use serde_json::json;

use crate::stub::{HEADER, KEY, Reply, Stub, ask, config, input, schema};

fn done() -> Reply {
    Reply::json(
        200,
        &json!({
            "type": "message", "role": "assistant", "stop_reason": "end_turn",
            "content": [{ "type": "thinking", "thinking": "...", "signature": "x" }, { "type": "text", "text": "{\"probes\":[]}" }],
            "usage": {
                "input_tokens": 2, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 7,
                "output_tokens": 34, "service_tier": "standard",
            },
        }),
    )
}

#[tokio::test]
async fn one_request_carries_the_instructions_the_input_and_the_schema() {
    // TM-079 TM-082
    let stub = Stub::start(vec![done()]).await;
    let answer = ask(&config("anthropic", &stub), None).await.unwrap();
    let usage = Usage { input_tokens: 12, output_tokens: 34 };
    assert_eq!(answer, Generation { text: "{\"probes\":[]}".to_owned(), usage }, "the whole prompt counts");
    let seen = stub.only();
    assert_eq!(seen.line, "POST /v1/messages HTTP/1.1");
    assert_eq!(seen.header("x-api-key"), Some(KEY));
    assert_eq!(seen.header("anthropic-version"), Some("2023-06-01"));
    let mut names: Vec<&str> = seen.headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let expected = [
        "accept",
        "anthropic-version",
        "content-length",
        "content-type",
        "host",
        "user-agent",
        "x-api-key",
        "x-gateway",
    ];
    assert_eq!(names, expected, "no header beside these, so no Source text in one");
    assert_eq!(seen.header("x-gateway"), Some(HEADER));
    assert_eq!(
        seen.body,
        json!({
            "model": "some-model",
            "max_tokens": 777,
            "system": "Name what to look for.",
            "messages": [{ "role": "user", "content": input().to_string() }],
            "output_config": { "format": { "type": "json_schema", "schema": schema() } },
        })
    );
}

#[tokio::test]
async fn settings_and_a_correction_travel_beside_the_format() {
    // TM-081
    let stub = Stub::start(vec![done()]).await;
    let mut config = config("anthropic", &stub);
    config.settings = Some(Secret::new(
        json!({ "anthropic_effort": "low", "service_tier": "standard_only", "max_tokens": 9 }).to_string(),
    ));
    let correction = Correction { answer: String::new(), problem: "unknown field".to_owned() };
    ask(&config, Some(&correction)).await.unwrap();
    let body = stub.only().body;
    assert_eq!(body["output_config"]["effort"], "low");
    assert_eq!(body["output_config"]["format"]["type"], "json_schema");
    assert_eq!((&body["service_tier"], &body["max_tokens"]), (&json!("standard_only"), &json!(9)));
    assert_eq!(body["messages"][1], json!({ "role": "assistant", "content": "(no text)" }));
    assert_eq!(body["messages"][2]["role"], "user", "the last message is never the model's own");
}

#[tokio::test]
async fn an_endpoint_that_enforces_no_schema_reads_it_in_the_instructions() {
    let stub = Stub::start(vec![done()]).await;
    let mut config = config("anthropic", &stub);
    config.structured_output = StructuredOutput::JsonObject;
    config.api_key = None;
    ask(&config, None).await.unwrap();
    let seen = stub.only();
    assert_eq!(seen.header("x-api-key"), None);
    assert_eq!(seen.body.get("output_config"), None);
    assert!(seen.body["system"].as_str().unwrap().contains(&schema().to_string()));
}
