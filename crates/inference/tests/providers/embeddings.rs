//! The embeddings protocol: what is sent, what is accepted, and what each failure becomes.

use std::time::Duration;

use powercontext_core::error_code::ErrorCode;
use powercontext_core::secret::Secret;
use powercontext_inference::{
    EmbeddingConfig, EmbeddingError, EmbeddingFailure, Embeddings, InvalidVectors, Normalization, Spent,
    Usage, embedder,
};
use serde_json::{Value, json};

use crate::stub::{HEADER, KEY, Reply, SAID, SOURCE, Stub};

fn config(stub: &Stub) -> EmbeddingConfig {
    EmbeddingConfig {
        base_url: Some(stub.base_url.clone()),
        api_key: Some(Secret::new(KEY)),
        headers: Some(Secret::new(json!({ "x-gateway": HEADER }).to_string())),
        normalization: Normalization::None,
        ..EmbeddingConfig::new("openai:some-model", 2)
    }
}

fn vectors(data: &Value) -> Reply {
    Reply::json(200, &json!({ "data": data, "usage": { "prompt_tokens": 5, "total_tokens": 5 } }))
}

async fn embed(config: &EmbeddingConfig, texts: &[&str]) -> Result<Embeddings, EmbeddingError> {
    let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    let result = embedder(config).unwrap().embed(&texts).await;
    if let Err(error) = &result {
        let shown = format!("{error:?} {}", powercontext_core::failure::chain(error));
        for hidden in [KEY, HEADER, SOURCE, SAID, "/v1"] {
            assert!(!shown.contains(hidden), "{shown}");
        }
    }
    result
}

#[tokio::test]
async fn texts_go_out_in_batches_and_vectors_come_back_in_the_order_of_the_texts() {
    // TM-062, TM-081
    let first = json!([{ "index": 1, "embedding": [0, 2] }, { "index": 0, "embedding": [1, 0] }]);
    let second = json!([{ "index": 0, "embedding": [3.5, 0] }]);
    let stub = Stub::start(vec![vectors(&first), vectors(&second)]).await;
    let mut config = config(&stub);
    config.batch_size = 2;
    config.settings = Some(Secret::new(json!({ "dimensions": 2, "truncate": false }).to_string()));
    let result = embed(&config, &[SOURCE, "b", "c"]).await.unwrap();
    assert_eq!(result.vectors, [[1.0, 0.0], [0.0, 2.0], [3.5, 0.0]]);
    let usage = Usage { input_tokens: 10, output_tokens: 0 };
    assert_eq!(result.spent, Spent { requests: 2, usage });
    let seen = stub.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].line, "POST /v1/embeddings HTTP/1.1");
    assert_eq!(seen[0].header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(seen[0].header("x-gateway"), Some(HEADER));
    let body = |input: Value| json!({ "model": "some-model", "input": input, "encoding_format": "float", "dimensions": 2, "truncate": false });
    assert_eq!([&seen[0].body, &seen[1].body], [&body(json!([SOURCE, "b"])), &body(json!(["c"]))]);
}

#[tokio::test]
async fn unit_vectors_are_scaled_and_no_text_means_no_request() {
    let stub = Stub::start(vec![vectors(&json!([{ "index": 0, "embedding": [3, 4] }]))]).await;
    let mut config = config(&stub);
    config.normalization = Normalization::Unit;
    assert_eq!(embed(&config, &[]).await.unwrap().vectors, Vec::<Vec<f32>>::new());
    let error = embed(&config, &["a", " \n"]).await.unwrap_err();
    assert!(matches!(error.cause, EmbeddingFailure::BlankText { place: 1 }));
    assert!(stub.seen().is_empty());
    assert_eq!(embed(&config, &["a"]).await.unwrap().vectors, [[0.6, 0.8]]);
}

#[tokio::test]
async fn vectors_that_cannot_be_used_are_refused_and_still_paid_for() {
    // TM-064
    let item = |index: Value, embedding: Value| json!({ "index": index, "embedding": embedding });
    let good = || json!([1, 0]);
    let table = [
        (json!([item(json!(0), good())]), InvalidVectors::Count { given: 1, texts: 2 }),
        (json!([item(json!(0), good()), item(json!(0), good())]), InvalidVectors::Order),
        (json!([item(json!(0), good()), item(json!(2), good())]), InvalidVectors::Order),
        (json!([item(json!(0), good()), { "embedding": good() }]), InvalidVectors::Order),
        (
            json!([item(json!(0), good()), item(json!(1), json!([1, 0, 0]))]),
            InvalidVectors::Dimension { given: 3, dimension: 2 },
        ),
        (json!([item(json!(0), good()), item(json!(1), json!([null, 0]))]), InvalidVectors::NotFinite),
        (json!([item(json!(0), good()), item(json!(1), json!(["1", "0"]))]), InvalidVectors::NotFinite),
        (json!([item(json!(0), good()), item(json!(1), json!([1e300, 0]))]), InvalidVectors::NotFinite),
        (json!([item(json!(0), good()), item(json!(1), json!("AACAPw=="))]), InvalidVectors::NotFinite),
        (json!([item(json!(0), good()), { "index": 1 }]), InvalidVectors::NotFinite),
        (json!([item(json!(0), good()), item(json!(1), json!([0, 0.0]))]), InvalidVectors::Zero),
    ];
    for (data, wrong) in table {
        let stub = Stub::start(vec![vectors(&data)]).await;
        let error = embed(&config(&stub), &["a", "b"]).await.unwrap_err();
        assert!(
            matches!(&error.cause, EmbeddingFailure::Vectors(told) if *told == wrong),
            "{data}: {error:?}"
        );
        assert_eq!(error.code(), ErrorCode::EmbeddingInvalid);
        let usage = Usage { input_tokens: 5, output_tokens: 0 };
        assert_eq!(error.spent, Spent { requests: 1, usage });
        stub.only();
    }
}

#[tokio::test]
async fn a_failure_ends_the_call_and_keeps_what_was_spent_before() {
    // TM-079
    let good = || vectors(&json!([{ "index": 0, "embedding": [1, 0] }]));
    let infinite = r#"{"data":[{"index":0,"embedding":[1e999,0]}]}"#;
    let table = [
        (Reply::text(200, infinite), ErrorCode::EmbeddingInvalid),
        (Reply::text(200, SAID), ErrorCode::EmbeddingInvalid),
        (Reply::text(200, r#"{"data":[],"data":[]}"#), ErrorCode::EmbeddingInvalid),
        (
            Reply::Whole { status: 200, headers: vec![], body: vec![b' '; 2 * 1024 * 1024] },
            ErrorCode::EmbeddingInvalid,
        ),
        (Reply::Closed, ErrorCode::EmbeddingUnavailable),
        (Reply::CutOff { status: 200, body: vec![b'{'] }, ErrorCode::EmbeddingUnavailable),
        (Reply::text(503, SAID), ErrorCode::EmbeddingUnavailable),
        (Reply::text(429, SAID).with("retry-after", "9"), ErrorCode::EmbeddingUnavailable),
        (Reply::text(401, SAID), ErrorCode::EmbeddingRejected),
        (Reply::text(404, SAID), ErrorCode::EmbeddingRejected),
        (Reply::text(400, SAID), ErrorCode::EmbeddingRejected),
    ];
    for (reply, code) in table {
        let stub = Stub::start(vec![good(), reply.clone()]).await;
        let mut config = config(&stub);
        config.batch_size = 1;
        let error = embed(&config, &["a", "b", "c"]).await.unwrap_err();
        assert_eq!(error.code(), code, "{reply:?}: {error:?}");
        assert_eq!((error.spent.requests, error.spent.usage.input_tokens), (2, 5));
        assert_eq!(stub.seen().len(), 2, "nothing is sent after a failure or again");
        let limited = matches!(&reply, Reply::Whole { status: 429, .. });
        assert_eq!(error.retry_after(), limited.then_some(Duration::from_secs(9)));
    }
    let stub = Stub::start(vec![Reply::Silent]).await;
    let mut config = config(&stub);
    config.timeout = Duration::from_millis(100);
    assert_eq!(embed(&config, &["a"]).await.unwrap_err().code(), ErrorCode::EmbeddingUnavailable);
}

#[tokio::test]
async fn the_built_in_model_needs_no_endpoint_and_refuses_a_blank_text_alike() {
    let config = EmbeddingConfig::new("builtin:hashing", 256);
    let result = embed(&config, &["the leader renews its lease", "租约续期", "!!!"]).await.unwrap();
    assert!(result.vectors.iter().all(|vector| vector.len() == 256));
    assert_eq!(result.spent.requests, 3);
    let error = embed(&config, &["a", ""]).await.unwrap_err();
    assert_eq!((error.code(), error.spent), (ErrorCode::DataInvalid, Spent::default()));
}
