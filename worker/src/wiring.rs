//! Turns settings into what a worker needs; the server uses the same functions, so both accept and
//! refuse the same configuration (TM-080).

use std::time::Duration;

use powercontext_core::history::HistoryPolicy;
use powercontext_inference::{
    ConfigurationError, ConfigurationField, EmbeddingConfig, GenerationConfig, embedder, generator,
};
use powercontext_settings::{Settings, SettingsError};
use powercontext_store::{DatabaseUrl, InvalidUrl, StoreOptions};

use crate::WorkerSettings;

/// What the settings say about the model of Topic processing.
#[derive(Debug)]
pub enum TopicModel {
    /// It can be used.
    Supported(GenerationConfig),
    /// None is set.
    Unset,
    /// Well-formed settings that ask for what Topic processing does not support (TM-085).
    Unsupported(SettingsError),
}

/// The model of Topic processing. Server, controller and worker start all ask here (TM-080).
///
/// # Errors
/// [`SettingsError`] for a mistake, with the setting to change and the place its value came from.
pub fn topic_model(settings: &Settings) -> Result<TopicModel, SettingsError> {
    let Some(config) = generation_config(settings) else { return Ok(TopicModel::Unset) };
    let checked = generator(&config).map(|_| ()).map_err(|error| (GENERATION, error));
    let vectors = embedding_config(settings)
        .map_or(Ok(()), |config| embedder(&config).map(|_| ()).map_err(|error| (EMBEDDING, error)));
    match checked.and(vectors) {
        // Never quietly a deployment without vectors (TM-257).
        Ok(()) if settings.inference.embedding.is_some() => {
            let problem = "cannot be used: no vectors are stored, leave it unset for full-text search";
            Ok(TopicModel::Unsupported(settings.refuse("inference", "embedding_model", problem.to_owned())))
        }
        Ok(()) => Ok(TopicModel::Supported(config)),
        Err((names, error)) => match refusal(settings, names, &error) {
            Some(refused) if error.is_unsupported() => Ok(TopicModel::Unsupported(refused)),
            Some(refused) => Err(refused),
            // The machine is looked at again, and told, by those who use the model.
            None => Ok(TopicModel::Supported(config)),
        },
    }
}

/// The generation settings; `None` when no model is set.
#[must_use]
pub fn generation_config(settings: &Settings) -> Option<GenerationConfig> {
    let inference = &settings.inference;
    Some(GenerationConfig {
        base_url: inference.generation_base_url.clone(),
        api_key: inference.generation_api_key.clone(),
        headers: inference.generation_headers.clone(),
        settings: inference.generation_model_settings.clone(),
        timeout: Duration::from_secs(inference.generation_timeout_seconds),
        structured_output: inference.generation_structured_output,
        output_limit: inference.generation_output_limit,
        ..GenerationConfig::new(inference.generation_model.clone()?)
    })
}

/// The embedding settings; `None` when no embedding model is set.
#[must_use]
pub fn embedding_config(settings: &Settings) -> Option<EmbeddingConfig> {
    let embedding = settings.inference.embedding.as_ref()?;
    Some(EmbeddingConfig {
        base_url: embedding.base_url.clone(),
        api_key: embedding.api_key.clone(),
        headers: embedding.headers.clone(),
        settings: embedding.model_settings.clone(),
        timeout: Duration::from_secs(embedding.timeout_seconds),
        batch_size: embedding.batch_size,
        normalization: embedding.normalization,
        ..EmbeddingConfig::new(embedding.model.clone(), embedding.dimension)
    })
}

/// Refuses the values that only a provider or the store can judge, before anything is started.
///
/// A model that Topic processing does not support is refused here only with an explicit schedule
/// (TM-086); without one the rest of the product starts (TM-085).
///
/// # Errors
/// [`SettingsError`] with the setting to change and the place its value came from.
pub fn check(settings: &Settings) -> Result<(), SettingsError> {
    if let Err(error) = store_options(settings) {
        return Err(settings.refuse("database", "url", format!("cannot be used: {error}")));
    }
    match topic_model(settings)? {
        TopicModel::Unsupported(refused) if settings.runtime.topic_memory_schedule.is_some() => Err(refused),
        TopicModel::Supported(_) | TopicModel::Unset | TopicModel::Unsupported(_) => Ok(()),
    }
}

/// The names that a model's settings have, by the part of the configuration.
type Names = fn(ConfigurationField) -> &'static str;

const GENERATION: Names = |field| match field {
    ConfigurationField::Model => "generation_model",
    ConfigurationField::Settings => "generation_model_settings",
    ConfigurationField::Headers => "generation_headers",
    ConfigurationField::BaseUrl => "generation_base_url",
    ConfigurationField::ApiKey => "generation_api_key",
    // A generation model has neither dimension nor batches.
    ConfigurationField::Timeout | ConfigurationField::Dimension | ConfigurationField::BatchSize => {
        "generation_timeout_seconds"
    }
};

const EMBEDDING: Names = |field| match field {
    ConfigurationField::Model => "embedding_model",
    ConfigurationField::Settings => "embedding_model_settings",
    ConfigurationField::Headers => "embedding_headers",
    ConfigurationField::BaseUrl => "embedding_base_url",
    ConfigurationField::ApiKey => "embedding_api_key",
    ConfigurationField::Timeout => "embedding_timeout_seconds",
    ConfigurationField::Dimension => "embedding_dimension",
    ConfigurationField::BatchSize => "embedding_batch_size",
};

/// The setting an error is about; `None` for one that no setting causes.
fn refusal(settings: &Settings, names: Names, error: &ConfigurationError) -> Option<SettingsError> {
    let key = names(error.field()?);
    if matches!(error, ConfigurationError::MissingKey { .. }) {
        let variable = key.to_ascii_uppercase();
        let names = format!(
            "`inference.{key}_file` or `inference.{key}` (POWERCONTEXT_SERVER_INFERENCE_{variable}_FILE or \
             POWERCONTEXT_SERVER_INFERENCE_{variable})"
        );
        return Some(SettingsError::Missing { names, problem: error.to_string() });
    }
    // A secret that came from a file is refused where it came from.
    let of_file = format!("{key}_file");
    let key = if settings.is_set("inference", &of_file) { of_file.as_str() } else { key };
    Some(settings.refuse("inference", key, format!("cannot be used: {error}")))
}

/// How the database is opened.
///
/// # Errors
/// [`InvalidUrl`] when the URL names no supported database.
pub fn store_options(settings: &Settings) -> Result<StoreOptions, InvalidUrl> {
    Ok(StoreOptions {
        url: DatabaseUrl::parse(settings.database.url.reveal())?,
        readers: settings.database.readers,
        busy_timeout: settings.database.busy_timeout,
    })
}

/// The limits a worker keeps.
#[must_use]
pub fn worker_settings(settings: &Settings) -> WorkerSettings {
    let runtime = &settings.runtime;
    WorkerSettings {
        source_window_limit: runtime.topic_memory_source_window_limit,
        history: HistoryPolicy {
            max_candidates: runtime.topic_memory_history_max_candidates,
            threshold: runtime.topic_memory_history_rrf_threshold,
            min_candidates: runtime.topic_memory_history_min_candidates,
        },
        generation_max_requests: settings.inference.generation_max_requests,
        context_window_tokens: settings.inference.generation_model_context_window_tokens,
    }
}

#[cfg(test)]
mod tests {
    use powercontext_settings::Inputs;

    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let named =
            |(name, value): &(&str, &str)| (format!("POWERCONTEXT_SERVER_{name}"), (*value).to_owned());
        let mut environment: Vec<_> = pairs.iter().map(named).collect();
        environment.push(("HOME".to_owned(), "/home/someone".to_owned()));
        Settings::load(&Inputs { environment, ..Inputs::default() }).unwrap()
    }

    const MODEL: &str = "INFERENCE_GENERATION_MODEL";
    const SETTINGS: &str = "INFERENCE_GENERATION_MODEL_SETTINGS";
    const KEY: (&str, &str) = ("INFERENCE_GENERATION_API_KEY", "sk-1");
    const VECTORS: [(&str, &str); 2] =
        [("INFERENCE_EMBEDDING_PROFILE_ID", "p"), ("INFERENCE_EMBEDDING_DIMENSION", "256")];

    #[test]
    fn a_model_is_supported_unset_unsupported_or_a_mistake() {
        // TM-080, TM-082, TM-085, TM-257
        let word = |pairs: &[(&str, &str)]| match topic_model(&settings(pairs)) {
            Ok(TopicModel::Supported(_)) => "supported".to_owned(),
            Ok(TopicModel::Unset) => "unset".to_owned(),
            Ok(TopicModel::Unsupported(refused)) => format!("unsupported: {refused}"),
            Err(refused) => format!("mistake: {refused}"),
        };
        assert_eq!(word(&[]), "unset");
        for model in ["builtin:extractive", "openai:m", "anthropic:m"] {
            assert_eq!(word(&[(MODEL, model), KEY]), "supported", "{model}");
        }
        let hashing = ("INFERENCE_EMBEDDING_MODEL", "builtin:hashing");
        let extractive = (MODEL, "builtin:extractive");
        for (pairs, verdict, setting) in [
            (vec![(MODEL, "gemini:m")], "unsupported", "generation_model`"),
            (
                vec![(MODEL, "openai:m"), KEY, (SETTINGS, r#"{"extra_body":{"key":"sk-2"}}"#)],
                "unsupported",
                "generation_model_settings`",
            ),
            (vec![(MODEL, "openai:m")], "mistake", "generation_api_key_file`"),
            (
                vec![(MODEL, "openai:m"), KEY, (SETTINGS, r#"{"seed":"sk-2"}"#)],
                "mistake",
                "generation_model_settings`",
            ),
            (
                vec![(MODEL, "openai:m"), KEY, ("INFERENCE_GENERATION_HEADERS", r#"{"host":"sk-2"}"#)],
                "mistake",
                "generation_headers`",
            ),
            (
                vec![extractive, ("INFERENCE_EMBEDDING_MODEL", "cohere:m"), VECTORS[0], VECTORS[1]],
                "unsupported",
                "embedding_model`",
            ),
            (vec![extractive, hashing, VECTORS[0], VECTORS[1]], "unsupported", "embedding_model`"),
            (
                vec![extractive, hashing, VECTORS[0], ("INFERENCE_EMBEDDING_DIMENSION", "8")],
                "mistake",
                "embedding_dimension`",
            ),
        ] {
            let told = word(&pairs);
            assert!(told.starts_with(verdict) && told.contains(setting), "{pairs:?}: {told}");
            assert!(!told.contains("sk-"), "{told}");
        }
    }

    #[test]
    fn an_unsupported_model_stops_the_start_only_with_an_explicit_schedule() {
        // TM-085, TM-086
        let model = (MODEL, "gemini:m");
        assert_eq!(check(&settings(&[model])), Ok(()));
        let refused =
            check(&settings(&[model, ("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", "60")])).unwrap_err();
        assert!(refused.to_string().contains("`inference.generation_model`"), "{refused}");
    }
}
