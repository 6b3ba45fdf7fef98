//! What is actually sent to an OpenAI-compatible endpoint, and which class each of its answers becomes.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a failed step fails the test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use axum::{Router, http};
use powercontext_core::secret::Secret;
use powercontext_core::stages::Stage;
use powercontext_core::work::ErrorCode;
use powercontext_inference::{
    ConfigurationError, Correction, Generation, GenerationConfig, GenerationError, GenerationRequest,
    StructuredOutput, Usage, generator,
};
use serde_json::{Value, json};

const KEY: &str = "sk-never-shown-1";
const SOURCE: &str = "the captured text 租约";

/// One request as it arrived.
#[derive(Clone, Debug)]
struct Seen {
    method: String,
    target: String,
    headers: String,
    body: Value,
}

#[derive(Clone)]
struct Stub {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    body: Bytes,
    delay: Duration,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Stub {
    fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), delay: Duration::ZERO, seen: Arc::default() }
    }

    fn json(status: u16, body: &Value) -> Self {
        Self::new(status, body.to_string())
    }

    async fn serve(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(reply).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{address}/v1")
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn reply(State(stub): State<Stub>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    stub.seen.lock().unwrap().push(Seen {
        method: parts.method.to_string(),
        target: parts.uri.to_string(),
        headers: format!("{:?}", parts.headers),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    });
    tokio::time::sleep(stub.delay).await;
    let mut response = http::Response::builder().status(stub.status);
    for (name, value) in &stub.headers {
        response = response.header(*name, *value);
    }
    response.body(Body::from(stub.body)).unwrap()
}

fn config(base_url: String) -> GenerationConfig {
    GenerationConfig {
        model: "openai:some-model".to_owned(),
        base_url: Some(base_url),
        api_key: Some(Secret::new(KEY)),
        timeout: Duration::from_secs(20),
        structured_output: StructuredOutput::JsonSchema,
    }
}

async fn ask(
    config: &GenerationConfig,
    correction: Option<&Correction>,
) -> Result<Generation, GenerationError> {
    let input = json!({ "sources": [{ "evidence_id": "s1", "content": SOURCE }] });
    let schema = json!({ "type": "object", "properties": { "probes": { "type": "array" } } });
    let request = GenerationRequest {
        stage: Stage::Probe,
        instructions: "Name what to look for.",
        input: &input,
        schema: &schema,
        correction,
        max_output_tokens: 777,
    };
    generator(config).unwrap().generate(&request).await
}

async fn ask_stub(stub: &Stub) -> Result<Generation, GenerationError> {
    let result = ask(&config(stub.serve().await), None).await;
    assert_eq!(stub.seen().len(), 1, "exactly one request is sent");
    if let Err(error) = &result {
        let shown = format!("{error} {error:?}");
        for hidden in [KEY, SOURCE, "model said"] {
            assert!(!shown.contains(hidden), "{shown}");
        }
    }
    result
}

fn completion(finish_reason: &str, message: &Value) -> Value {
    json!({
        "choices": [{ "index": 0, "finish_reason": finish_reason, "message": message }],
        "usage": { "prompt_tokens": 12, "completion_tokens": 34, "total_tokens": 46 },
    })
}

const USAGE: Usage = Usage { input_tokens: 12, output_tokens: 34 };

#[tokio::test]
async fn one_request_carries_the_instructions_the_input_and_the_strict_schema() {
    // TM-079 TM-082
    let stub =
        Stub::json(200, &completion("stop", &json!({ "role": "assistant", "content": "{\"probes\":[]}" })));
    let answer = ask_stub(&stub).await.unwrap();
    assert_eq!(answer, Generation { text: "{\"probes\":[]}".to_owned(), usage: USAGE });
    let seen = stub.seen().remove(0);
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/v1/chat/completions"));
    assert!(seen.headers.contains(&format!("Bearer {KEY}")));
    assert!(!seen.headers.contains("captured"), "no Source text in headers");
    let input = json!({ "sources": [{ "evidence_id": "s1", "content": SOURCE }] }).to_string();
    assert_eq!(
        seen.body,
        json!({
            "model": "some-model",
            "messages": [
                { "role": "system", "content": "Name what to look for." },
                { "role": "user", "content": input },
            ],
            "response_format": { "type": "json_schema", "json_schema": {
                "name": "probe", "strict": true,
                "schema": { "type": "object", "properties": { "probes": { "type": "array" } } },
            } },
            "max_completion_tokens": 777,
        })
    );
}

#[tokio::test]
async fn an_endpoint_that_only_promises_json_reads_the_schema_in_the_instructions() {
    let stub = Stub::json(200, &completion("stop", &json!({ "content": "{}" })));
    let mut config = config(stub.serve().await + "/");
    config.structured_output = StructuredOutput::JsonObject;
    config.api_key = None;
    ask(&config, None).await.unwrap();
    let seen = stub.seen().remove(0);
    assert_eq!(seen.target, "/v1/chat/completions", "a trailing slash of the base URL does not matter");
    assert!(!seen.headers.contains("authorization"));
    assert_eq!(seen.body["response_format"], json!({ "type": "json_object" }));
    let system = seen.body["messages"][0]["content"].as_str().unwrap();
    assert!(system.starts_with("Name what to look for.") && system.contains("{\"type\":\"object\""));
}

#[tokio::test]
async fn a_correction_shows_the_model_its_answer_and_what_was_wrong_with_it() {
    let stub = Stub::json(200, &completion("stop", &json!({ "content": "{}" })));
    let correction = Correction { answer: "{\"oops\":1}".to_owned(), problem: "unknown field".to_owned() };
    ask(&config(stub.serve().await), Some(&correction)).await.unwrap();
    let messages = stub.seen().remove(0).body["messages"].as_array().unwrap().clone();
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    assert_eq!(messages[2]["content"], "{\"oops\":1}");
    assert!(messages[3]["content"].as_str().unwrap().contains("unknown field"));
}

#[tokio::test]
async fn an_answer_that_is_not_a_finished_text_is_refused_or_truncated_and_its_usage_is_kept() {
    // TM-083
    let refused = [
        completion("stop", &json!({ "content": null, "refusal": "model said no" })),
        completion("content_filter", &json!({ "content": "model said" })),
        completion("tool_calls", &json!({ "content": null, "tool_calls": [{ "id": "call" }] })),
        completion("stop", &json!({ "content": "{}", "tool_calls": [{ "id": "call" }] })),
        completion("pause_turn", &json!({ "content": "model said" })),
    ];
    for body in refused {
        let error = ask_stub(&Stub::json(200, &body)).await.unwrap_err();
        assert!(matches!(error, GenerationError::Refused { usage: Some(USAGE) }), "{body}: {error:?}");
        assert_eq!(error.code(), ErrorCode::GenerationRefused);
    }
    let cut = completion("length", &json!({ "content": "{\"model said" }));
    let error = ask_stub(&Stub::json(200, &cut)).await.unwrap_err();
    assert!(matches!(error, GenerationError::Truncated { usage: Some(USAGE) }), "{error:?}");
}

#[tokio::test]
async fn an_answer_outside_the_protocol_is_unreachable_and_keeps_readable_usage() {
    for body in ["model said", "[]", "{}", "{\"choices\":[]}"] {
        let error = ask_stub(&Stub::new(200, body)).await.unwrap_err();
        assert!(matches!(error, GenerationError::Unreachable { usage: None, .. }), "{body}: {error:?}");
    }
    let body = completion("stop", &json!({ "content": null }));
    let error = ask_stub(&Stub::json(200, &body)).await.unwrap_err();
    assert_eq!((error.code(), error.usage()), (ErrorCode::GenerationUnreachable, Some(USAGE)));
}

#[tokio::test]
async fn requests_that_can_never_succeed_are_rejected() {
    for status in [400, 401, 403, 404, 413, 422] {
        let error = ask_stub(&Stub::json(status, &json!({ "error": { "message": "model said" } })))
            .await
            .unwrap_err();
        assert!(matches!(error, GenerationError::Rejected { status: s, .. } if s == status), "{error:?}");
        assert_eq!(error.code(), ErrorCode::GenerationRejected);
    }
    let spent = json!({ "error": { "message": "model said", "code": "insufficient_quota" } });
    let error = ask_stub(&Stub::json(429, &spent)).await.unwrap_err();
    assert!(matches!(error, GenerationError::Rejected { status: 429, .. }), "{error:?}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let mut stub = Stub::new(307, "");
    stub.headers.push(("location", "/v1/elsewhere"));
    let error = ask_stub(&stub).await.unwrap_err();
    assert!(matches!(error, GenerationError::Rejected { status: 307, .. }), "{error:?}");
}

#[tokio::test]
async fn an_overloaded_endpoint_is_asked_once_and_its_wish_to_wait_is_kept() {
    // TM-079
    for status in [429, 500, 502, 503, 529] {
        let mut stub = Stub::json(status, &json!({ "error": { "code": "busy" } }));
        stub.headers.push(("retry-after", "7"));
        let error = ask_stub(&stub).await.unwrap_err();
        let wait = Some(Duration::from_secs(7));
        assert!(
            matches!(error, GenerationError::Overloaded { status: s, retry_after, .. } if s == status && retry_after == wait),
            "{error:?}"
        );
        assert_eq!(error.code(), ErrorCode::GenerationOverloaded);
    }
    let mut stub = Stub::new(503, "not json");
    stub.headers.push(("retry-after", "99999999"));
    let error = ask_stub(&stub).await.unwrap_err();
    let hour = Some(Duration::from_secs(3600));
    assert!(
        matches!(error, GenerationError::Overloaded { retry_after, .. } if retry_after == hour),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_call_that_takes_too_long_times_out_as_a_whole() {
    // TM-097
    let mut stub = Stub::json(200, &completion("stop", &json!({ "content": "{}" })));
    stub.delay = Duration::from_secs(60);
    let mut config = config(stub.serve().await);
    config.timeout = Duration::from_millis(100);
    let error = ask(&config, None).await.unwrap_err();
    assert!(matches!(error, GenerationError::Timeout { .. }), "{error:?}");
    assert_eq!(error.code(), ErrorCode::GenerationTimeout);
}

#[tokio::test]
async fn an_endpoint_nobody_listens_at_is_unreachable_and_its_url_is_not_told() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = ask(&config(format!("http://{address}/v1")), None).await.unwrap_err();
    assert!(matches!(error, GenerationError::Unreachable { .. }), "{error:?}");
    assert_eq!(error.code(), ErrorCode::GenerationUnreachable);
    assert!(!format!("{error:?}").contains("/v1/chat"), "{error:?}");
}

#[tokio::test]
async fn a_response_larger_than_any_answer_is_not_read_to_its_end() {
    let error = ask_stub(&Stub::new(200, vec![b' '; 17 * 1024 * 1024])).await.unwrap_err();
    assert!(matches!(error, GenerationError::Truncated { usage: None }), "{error:?}");
}

#[test]
fn settings_that_name_no_usable_provider_are_refused_before_anything_is_sent() {
    // TM-080
    let refused = |change: &dyn Fn(&mut GenerationConfig)| {
        let mut config = config("https://models.test/v1".to_owned());
        change(&mut config);
        let shown = format!("{config:?}");
        assert!(!shown.contains(KEY), "{shown}");
        generator(&config).err()
    };
    for model in ["", "openai:", "openai: x", "bedrock:x", "gpt-4o", "builtin:other"] {
        let error = refused(&|config| config.model = model.to_owned());
        assert!(matches!(error, Some(ConfigurationError::UnsupportedModel { .. })), "{model}: {error:?}");
    }
    for url in
        ["", "models.test", "ftp://models.test", "https://me:pw@models.test", "https://m.test/v1?key=1"]
    {
        let error = refused(&|config| config.base_url = Some(url.to_owned()));
        assert!(matches!(error, Some(ConfigurationError::InvalidBaseUrl)), "{url}: {error:?}");
    }
    let no_key = refused(&|config| (config.base_url, config.api_key) = (None, None));
    assert!(matches!(no_key, Some(ConfigurationError::MissingKey { .. })), "{no_key:?}");
    let bad_key = refused(&|config| config.api_key = Some(Secret::new("line\nbreak")));
    assert!(matches!(bad_key, Some(ConfigurationError::InvalidKey)), "{bad_key:?}");
    let no_time = refused(&|config| config.timeout = Duration::ZERO);
    assert!(matches!(no_time, Some(ConfigurationError::InvalidTimeout)), "{no_time:?}");
    assert!(refused(&|_| {}).is_none());
}
