//! The settings of the models.

use super::*;

#[test]
fn a_file_of_headers_may_have_any_number_of_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("headers");
    fs::write(&path, "{\n\t\"x-gateway\": \"hv-1\"\n}\n").unwrap();
    let inputs = environment(&[("INFERENCE_GENERATION_HEADERS_FILE", path.to_str().unwrap())]);
    let headers = Settings::load(&inputs).unwrap().inference.generation_headers.unwrap();
    assert_eq!(headers.reveal(), "{\n\t\"x-gateway\": \"hv-1\"\n}");
}

#[test]
fn headers_and_model_settings_reach_a_worker_and_are_never_shown() {
    // TM-081, TM-228, TM-229, TM-254
    let headers = r#"{"x-gateway":"hv-1"}"#;
    let settings = Settings::load(&environment(&[
        ("INFERENCE_GENERATION_MODEL", "anthropic:m"),
        ("INFERENCE_GENERATION_HEADERS", headers),
        ("INFERENCE_GENERATION_MODEL_SETTINGS", r#"{"temperature":0.2,"extra_body":{"a":"hv-2"}}"#),
        ("INFERENCE_GENERATION_OUTPUT_LIMIT_FIELD", "max_tokens"),
    ]))
    .unwrap();
    assert_eq!(settings.inference.generation_headers, Some(Secret::new(headers)));
    let shown = format!("{settings:?}");
    assert!(!shown.contains("hv-") && shown.contains("0.2"), "{shown}");
    let worker = Inputs { environment: settings.worker_environment(), ..Inputs::default() };
    assert_eq!(Settings::load(&worker).unwrap().inference, settings.inference);
    for name in ["INFERENCE_GENERATION_HEADERS", "INFERENCE_GENERATION_MODEL_SETTINGS"] {
        let line = refusal(&environment(&[(name, "hv-3")]));
        assert!(line.contains("must be a JSON object") && !line.contains("hv-3"), "{line}");
    }
}

#[test]
fn model_settings_may_be_a_table_of_the_file() {
    let (_folder, path) = file("[inference.generation_model_settings]\ntemperature = 0.5\nseed = 7\n");
    let settings = Settings::load(&Inputs { file: Some(path), ..environment(&[]) }).unwrap();
    let text = settings.inference.generation_model_settings.unwrap();
    assert_eq!(text.reveal(), r#"{"seed":7,"temperature":0.5}"#);
}

#[test]
fn an_embedding_model_needs_its_profile_and_its_dimension() {
    // B-22
    let model = ("INFERENCE_EMBEDDING_MODEL", "builtin:hashing");
    let profile = ("INFERENCE_EMBEDDING_PROFILE_ID", "hashing-1");
    let dimension = ("INFERENCE_EMBEDDING_DIMENSION", "256");
    assert!(refusal(&environment(&[model])).contains("`inference.embedding_profile_id`"));
    assert!(refusal(&environment(&[model, profile])).contains("`inference.embedding_dimension`"));
    let settings = Settings::load(&environment(&[model, profile, dimension])).unwrap();
    let embedding = settings.inference.embedding.clone().unwrap();
    assert_eq!((embedding.profile_id.as_str(), embedding.dimension), ("hashing-1", 256));
    assert_eq!((embedding.timeout_seconds, embedding.batch_size), (30, 10));
    assert_eq!(embedding.normalization, powercontext_core::endpoint::Normalization::Unit);
    let worker = Inputs { environment: settings.worker_environment(), ..Inputs::default() };
    assert_eq!(Settings::load(&worker).unwrap().inference, settings.inference);
    assert_eq!(Settings::load(&environment(&[profile])).unwrap().inference.embedding, None);
}
