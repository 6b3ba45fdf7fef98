//! Turns settings into a provider, or says why they do not name one.
//!
//! Server start and worker start both come through [`generator`], so they accept the same settings
//! (TM-080). Only these few settings exist: no extra body, no tools, no stored history (TM-082).

use std::sync::Arc;
use std::time::Duration;

use powercontext_core::secret::Secret;
use powercontext_core::stages::StructuredOutput;

use crate::builtin::Extractive;
use crate::generator::Generator;
use crate::openai::OpenAi;

/// Everything that may be set about generation.
#[derive(Clone, Debug)]
pub struct GenerationConfig {
    /// `builtin:extractive` or `openai:<model>`.
    pub model: String,
    /// Base URL of an OpenAI-compatible endpoint; absent means OpenAI itself.
    pub base_url: Option<String>,
    /// The endpoint's key; required for OpenAI itself.
    pub api_key: Option<Secret>,
    /// The limit of one whole call, from connecting to the last byte.
    pub timeout: Duration,
    /// How JSON is asked for.
    pub structured_output: StructuredOutput,
}

/// Why settings name no usable provider. Never contains a key or a URL.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// Neither `builtin:extractive` nor `openai:<model>`.
    #[error("generation model `{model}` is not supported; use `openai:<model>` or `builtin:extractive`")]
    UnsupportedModel {
        /// The configured text.
        model: String,
    },
    /// Not an absolute http or https URL, or one with credentials, a query or a fragment.
    #[error("generation base URL must be an http(s) URL without credentials, query or fragment")]
    InvalidBaseUrl,
    /// OpenAI itself cannot be used without a key.
    #[error("generation with `{model}` needs an API key")]
    MissingKey {
        /// The configured model.
        model: String,
    },
    /// The key cannot be sent in a header.
    #[error("the generation API key has characters that cannot be sent")]
    InvalidKey,
    /// A call would end before it began.
    #[error("the generation timeout must be longer than zero")]
    InvalidTimeout,
    /// The HTTP client could not be set up, for example without root certificates.
    #[error("the HTTP client of the generation endpoint could not be set up")]
    Client {
        /// The client's reason.
        #[source]
        source: reqwest::Error,
    },
}

/// The part of [`GenerationConfig`] that an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigurationField {
    /// `model`.
    Model,
    /// `base_url`.
    BaseUrl,
    /// `api_key`.
    ApiKey,
    /// `timeout`.
    Timeout,
}

impl ConfigurationError {
    /// What to change; `None` when the cause is the machine and not a setting.
    #[must_use]
    pub const fn field(&self) -> Option<ConfigurationField> {
        match self {
            Self::UnsupportedModel { .. } => Some(ConfigurationField::Model),
            Self::InvalidBaseUrl => Some(ConfigurationField::BaseUrl),
            Self::MissingKey { .. } | Self::InvalidKey => Some(ConfigurationField::ApiKey),
            Self::InvalidTimeout => Some(ConfigurationField::Timeout),
            Self::Client { .. } => None,
        }
    }
}

/// Makes the configured provider.
///
/// # Errors
/// [`ConfigurationError`] names the setting that does not allow it.
pub fn generator(config: &GenerationConfig) -> Result<Arc<dyn Generator>, ConfigurationError> {
    if config.model == Extractive::MODEL {
        return Ok(Arc::new(Extractive));
    }
    match config.model.strip_prefix("openai:") {
        Some(name) if !name.trim().is_empty() && name.trim() == name => {
            Ok(Arc::new(OpenAi::new(name, config)?))
        }
        _ => Err(ConfigurationError::UnsupportedModel { model: config.model.clone() }),
    }
}
