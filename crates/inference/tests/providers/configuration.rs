//! Settings that name no usable provider are refused before anything is sent (TM-080).

use std::time::Duration;

use powercontext_core::secret::Secret;
use powercontext_inference::{
    ConfigurationError, ConfigurationField, EmbeddingConfig, GenerationConfig, embedder, generator,
};

use crate::stub::{HEADER, KEY};

fn base(provider: &str) -> GenerationConfig {
    GenerationConfig {
        base_url: Some("https://models.test/v1".to_owned()),
        api_key: Some(Secret::new(KEY)),
        headers: Some(Secret::new(format!("{{\"x-gateway\":\"{HEADER}\"}}"))),
        ..GenerationConfig::new(format!("{provider}:some-model"))
    }
}

fn refused(provider: &str, change: &dyn Fn(&mut GenerationConfig)) -> Option<ConfigurationError> {
    let mut config = base(provider);
    change(&mut config);
    let error = generator(&config).err();
    let shown = format!("{config:?} {error:?}");
    assert!(!shown.contains(KEY) && !shown.contains(HEADER) && !shown.contains("hidden"), "{shown}");
    error
}

#[test]
fn each_mistake_names_its_field_and_no_secret() {
    // TM-080
    for provider in ["openai", "anthropic"] {
        let field = |change: &dyn Fn(&mut GenerationConfig)| refused(provider, change).map(|e| e.field());
        assert_eq!(field(&|_| {}), None);
        for url in [
            "",
            "models.test",
            "ftp://models.test",
            "https://me:hidden@m.test",
            "https://m.test/v1?key=hidden",
            "https://m.test/#hidden",
        ] {
            let mut config = base(provider);
            config.base_url = Some(url.to_owned());
            let error = generator(&config).err().unwrap();
            assert_eq!(error.field(), Some(ConfigurationField::BaseUrl), "{url}");
            assert!(!format!("{error:?}").contains("hidden"));
        }
        assert_eq!(
            field(&|config| (config.base_url, config.api_key) = (None, None)),
            Some(Some(ConfigurationField::ApiKey))
        );
        assert_eq!(
            field(&|config| config.api_key = Some(Secret::new("line\nbreak"))),
            Some(Some(ConfigurationField::ApiKey))
        );
        assert_eq!(field(&|config| config.timeout = Duration::ZERO), Some(Some(ConfigurationField::Timeout)));
        assert_eq!(
            field(&|config| config.headers = Some(Secret::new(r#"{"Authorization":"hidden"}"#))),
            Some(Some(ConfigurationField::Headers))
        );
        let wrong = refused(provider, &|config| config.settings = Some(Secret::new(r#"{"temperature":9}"#)));
        assert!(matches!(wrong, Some(ConfigurationError::InvalidSetting { .. })), "{wrong:?}");
        assert!(!wrong.unwrap().is_unsupported());
    }
}

#[test]
fn what_topic_processing_does_not_support_is_told_apart_from_a_mistake() {
    // TM-082, TM-085
    for model in ["", "openai:", "openai: x", "anthropic:", "bedrock:x", "gpt-4o", "builtin:other", "test:x"]
    {
        let error = refused("openai", &|config| config.model = model.to_owned()).unwrap();
        assert!(matches!(error, ConfigurationError::UnsupportedModel { .. }), "{model}: {error:?}");
        assert!(error.is_unsupported());
    }
    for (model, settings) in [
        ("openai:x", r#"{"extra_body":{"tools":[]}}"#),
        ("anthropic:x", r#"{"tools":[]}"#),
        ("openai:x", r#"{"background":true}"#),
        ("builtin:extractive", r#"{"temperature":0}"#),
    ] {
        let error = refused("openai", &|config| {
            config.model = model.to_owned();
            config.settings = Some(Secret::new(settings));
        });
        assert!(error.is_some_and(|error| error.is_unsupported()), "{model} {settings}");
    }
}

#[test]
fn embedding_settings_are_checked_alike() {
    // TM-080, TM-081
    let valid = || EmbeddingConfig {
        base_url: Some("https://models.test/v1".to_owned()),
        ..EmbeddingConfig::new("openai:some-model", 8)
    };
    let refused = |change: &dyn Fn(&mut EmbeddingConfig)| {
        let mut config = valid();
        change(&mut config);
        embedder(&config).err().map(|error| error.field())
    };
    assert_eq!(refused(&|_| {}), None);
    assert_eq!(
        refused(&|config| config.model = "anthropic:x".to_owned()),
        Some(Some(ConfigurationField::Model))
    );
    assert_eq!(refused(&|config| config.dimension = 0), Some(Some(ConfigurationField::Dimension)));
    assert_eq!(refused(&|config| config.batch_size = 0), Some(Some(ConfigurationField::BatchSize)));
    assert_eq!(refused(&|config| config.base_url = None), Some(Some(ConfigurationField::ApiKey)));
    assert_eq!(
        refused(&|config| config.settings = Some(Secret::new(r#"{"user":"x"}"#))),
        Some(Some(ConfigurationField::Settings))
    );
    let hashing = |dimension| embedder(&EmbeddingConfig::new("builtin:hashing", dimension));
    assert!(hashing(256).is_ok());
    assert!(matches!(hashing(255).err(), Some(ConfigurationError::InvalidDimension { dimension: 256, .. })));
}
