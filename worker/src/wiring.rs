//! Turns settings into what a worker needs; the server uses the same functions, so both accept and
//! refuse the same configuration (TM-080).

use std::time::Duration;

use powercontext_core::history::HistoryPolicy;
use powercontext_inference::{GenerationConfig, StructuredOutput};
use powercontext_settings::{Settings, StructuredOutput as StructuredOutputSetting};
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
        structured_output: match inference.generation_structured_output {
            StructuredOutputSetting::JsonSchema => StructuredOutput::JsonSchema,
            StructuredOutputSetting::JsonObject => StructuredOutput::JsonObject,
        },
    })
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
