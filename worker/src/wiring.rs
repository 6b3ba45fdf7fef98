//! Turns settings into what a worker needs; the server uses the same functions, so both accept and
//! refuse the same configuration (TM-080).

use std::time::Duration;

use powercontext_core::history::HistoryPolicy;
use powercontext_inference::{ConfigurationError, ConfigurationField, GenerationConfig, generator};
use powercontext_settings::{Settings, SettingsError};
use powercontext_store::{DatabaseUrl, InvalidUrl, StoreOptions};

use crate::WorkerSettings;

/// The generation settings, or `None` when no model is set: Topic processing is unavailable then.
#[must_use]
pub fn generation_config(settings: &Settings) -> Option<GenerationConfig> {
    let inference = &settings.inference;
    Some(GenerationConfig {
        model: inference.generation_model.clone()?,
        base_url: inference.generation_base_url.clone(),
        api_key: inference.generation_api_key.clone(),
        timeout: Duration::from_secs(inference.generation_timeout_seconds),
        structured_output: inference.generation_structured_output,
    })
}

/// Refuses the values that only a provider or the store can judge, before anything is started.
///
/// # Errors
/// [`SettingsError`] with the setting to change and the place its value came from.
pub fn check(settings: &Settings) -> Result<(), SettingsError> {
    if let Err(error) = store_options(settings) {
        return Err(settings.refuse("database", "url", format!("cannot be used: {error}")));
    }
    match generation_config(settings).map(|config| generator(&config)) {
        Some(Err(error)) => refusal(settings, &error).map_or(Ok(()), Err),
        Some(Ok(_)) | None => Ok(()),
    }
}

/// The setting an error is about; `None` for one that no setting causes.
fn refusal(settings: &Settings, error: &ConfigurationError) -> Option<SettingsError> {
    let key = match error.field()? {
        ConfigurationField::ApiKey if matches!(error, ConfigurationError::MissingKey { .. }) => {
            let names = "`inference.generation_api_key_file` or `inference.generation_api_key` \
                         (POWERCONTEXT_SERVER_INFERENCE_GENERATION_API_KEY_FILE or \
                         POWERCONTEXT_SERVER_INFERENCE_GENERATION_API_KEY)";
            return Some(SettingsError::Missing { names: names.to_owned(), problem: error.to_string() });
        }
        ConfigurationField::ApiKey if settings.inference.generation_api_key_file.is_some() => {
            "generation_api_key_file"
        }
        ConfigurationField::ApiKey => "generation_api_key",
        ConfigurationField::Model => "generation_model",
        ConfigurationField::BaseUrl => "generation_base_url",
        ConfigurationField::Timeout => "generation_timeout_seconds",
    };
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
