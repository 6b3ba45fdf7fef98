//! The chat completions protocol: what is sent.

use powercontext_core::error_code::ErrorCode;
use powercontext_core::secret::Secret;
use powercontext_inference::{Correction, Generation, OutputLimit, StructuredOutput, Usage};
use serde_json::{Value, json};

use crate::stub::{HEADER, KEY, Reply, SOURCE, Stub, ask, config, input, schema};

fn done() -> Reply {
    Reply::json(
        200,
        &json!({
            "choices": [{ "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": "{\"probes\":[]}" } }],
            "usage": { "prompt_tokens": 12, "completion_tokens": 34, "total_tokens": 46 },
        }),
    )
}

#[tokio::test]
async fn one_request_carries_the_instructions_the_input_and_the_strict_schema() {
    // TM-079 TM-082
    let stub = Stub::start(vec![done()]).await;
    let answer = ask(&config("openai", &stub), None).await.unwrap();
    let usage = Usage { input_tokens: 12, output_tokens: 34 };
    assert_eq!(answer, Generation { text: "{\"probes\":[]}".to_owned(), usage });
    let seen = stub.only();
    assert_eq!(seen.line, "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(seen.header("x-gateway"), Some(HEADER));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    let mut names: Vec<&str> = seen.headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let expected =
        ["accept", "authorization", "content-length", "content-type", "host", "user-agent", "x-gateway"];
    assert_eq!(names, expected, "no header beside these, so no Source text in one");
    assert_eq!(
        seen.body,
        json!({
            "model": "some-model",
            "messages": [
                { "role": "system", "content": "Name what to look for." },
                { "role": "user", "content": input().to_string() },
            ],
            "response_format": { "type": "json_schema", "json_schema": {
                "name": "probe", "strict": true, "schema": schema(),
            } },
            "max_completion_tokens": 777,
        })
    );
    assert!(seen.body["messages"][1]["content"].as_str().unwrap().contains(SOURCE));
}

#[tokio::test]
async fn the_allowed_settings_are_sent_under_their_names_and_raise_no_limit() {
    // TM-081
    let stub = Stub::start(vec![done()]).await;
    let mut config = config("openai", &stub);
    config.output_limit = OutputLimit::MaxTokens;
    let settings = json!({ "max_tokens": 1_000_000, "temperature": 0.2, "seed": 7, "service_tier": "flex" });
    config.settings = Some(Secret::new(settings.to_string()));
    ask(&config, None).await.unwrap();
    let mut body = stub.only().body.as_object().unwrap().clone();
    for field in ["model", "messages", "response_format"] {
        body.remove(field).unwrap();
    }
    let rest = json!({ "max_tokens": 777, "temperature": 0.2, "seed": 7, "service_tier": "flex" });
    assert_eq!(Value::Object(body), rest);
    config.settings = Some(Secret::new(json!({ "max_tokens": 5 }).to_string()));
    let stub = Stub::start(vec![done()]).await;
    config.base_url = Some(stub.base_url.clone());
    ask(&config, None).await.unwrap();
    assert_eq!(stub.only().body["max_tokens"], 5);
}

#[tokio::test]
async fn an_endpoint_that_only_promises_json_reads_the_schema_in_the_instructions() {
    let stub = Stub::start(vec![done()]).await;
    let mut config = config("openai", &stub);
    config.base_url = Some(format!("{}/", stub.base_url));
    config.structured_output = StructuredOutput::JsonObject;
    config.api_key = None;
    ask(&config, None).await.unwrap();
    let seen = stub.only();
    assert_eq!(seen.line, "POST /v1/chat/completions HTTP/1.1", "a trailing slash does not matter");
    assert_eq!(seen.header("authorization"), None);
    assert_eq!(seen.body["response_format"], json!({ "type": "json_object" }));
    let system = seen.body["messages"][0]["content"].as_str().unwrap();
    assert!(system.starts_with("Name what to look for.") && system.contains(&schema().to_string()));
}

#[tokio::test]
async fn a_correction_shows_the_model_its_answer_and_what_was_wrong_with_it() {
    for (answer, shown) in [("{\"oops\":1}", "{\"oops\":1}"), (" ", "(no text)")] {
        let stub = Stub::start(vec![done()]).await;
        let correction = Correction { answer: answer.to_owned(), problem: "unknown field".to_owned() };
        ask(&config("openai", &stub), Some(&correction)).await.unwrap();
        let messages = stub.only().body["messages"].as_array().unwrap().clone();
        let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "user"]);
        assert_eq!(messages[2]["content"], shown);
        assert!(messages[3]["content"].as_str().unwrap().contains("unknown field"));
    }
}

#[tokio::test]
async fn a_schema_that_no_provider_enforces_is_not_sent() {
    let stub = Stub::start(vec![done()]).await;
    for provider in ["openai", "anthropic"] {
        let loose = json!({ "type": "object", "properties": {} });
        let request = powercontext_inference::GenerationRequest {
            stage: powercontext_core::stages::Stage::Probe,
            instructions: "x",
            input: &input(),
            schema: &loose,
            correction: None,
            max_output_tokens: 1,
        };
        let model = powercontext_inference::generator(&config(provider, &stub)).unwrap();
        let error = model.generate(&request).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::GenerationRejected);
    }
    assert!(stub.seen().is_empty());
}
