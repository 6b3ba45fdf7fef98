//! Turns settings into a provider, or says why they do not name one.
//!
//! Server start, controller start and worker start all come through [`generator`] and
//! [`crate::embedder`], so they accept the same settings (TM-080). Only these few settings exist: no
//! extra body, no tools, no stored history (TM-082).

use std::sync::Arc;
use std::time::Duration;

use powercontext_core::endpoint::OutputLimit;
use powercontext_core::secret::Secret;
use powercontext_core::stages::StructuredOutput;

use crate::anthropic::Anthropic;
use crate::builtin::Extractive;
use crate::generator::Generator;
use crate::openai::OpenAi;
use crate::remote::Remote;
use crate::settings::{ModelSettings, Protocol};

/// Everything that may be set about generation.
#[derive(Clone, Debug)]
pub struct GenerationConfig {
    /// `builtin:extractive`, `openai:<model>` or `anthropic:<model>`.
    pub model: String,
    /// Base URL of a compatible endpoint; absent means the provider itself.
    pub base_url: Option<String>,
    /// The endpoint's key; required for the provider itself.
    pub api_key: Option<Secret>,
    /// Further headers: a JSON object of names and texts.
    pub headers: Option<Secret>,
    /// Model settings: a JSON object of the allowed names (TM-081). Not shown, because what is not
    /// allowed may be a secret.
    pub settings: Option<Secret>,
    /// The limit of one whole call, from connecting to the last byte.
    pub timeout: Duration,
    /// How JSON is asked for.
    pub structured_output: StructuredOutput,
    /// How a chat-completions endpoint is told the limit of an answer.
    pub output_limit: OutputLimit,
}

impl GenerationConfig {
    /// A model with nothing else set and 30 s for a call.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            base_url: None,
            api_key: None,
            headers: None,
            settings: None,
            timeout: Duration::from_secs(30),
            structured_output: StructuredOutput::default(),
            output_limit: OutputLimit::default(),
        }
    }
}

/// Why settings name no usable provider. Never contains a key, a header's value or a URL.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// No provider has this name.
    #[error("model `{model}` is not supported; use {supported}")]
    UnsupportedModel {
        /// The configured text.
        model: String,
        /// What is.
        supported: &'static str,
    },
    /// A model setting that may not be sent (TM-081, TM-082).
    #[error("model setting `{name}` is not supported: {reason}")]
    UnsupportedSetting {
        /// The setting.
        name: String,
        /// Why.
        reason: &'static str,
    },
    /// The model settings cannot be read.
    #[error("model settings must be one JSON object, each name once")]
    InvalidSettings,
    /// A model setting outside its bounds.
    #[error("model setting `{name}` {problem}")]
    InvalidSetting {
        /// The setting.
        name: String,
        /// The rule it breaks.
        problem: String,
    },
    /// Further headers that cannot be sent.
    #[error("headers: {problem}")]
    InvalidHeaders {
        /// What is wrong, with the header's name at most.
        problem: String,
    },
    /// Not an absolute http or https URL, or one with credentials, a query or a fragment.
    #[error("the base URL must be an http(s) URL without credentials, query or fragment")]
    InvalidBaseUrl,
    /// The provider itself cannot be used without a key.
    #[error("`{model}` needs an API key")]
    MissingKey {
        /// The configured model.
        model: String,
    },
    /// The key cannot be sent in a header.
    #[error("the API key has characters that cannot be sent")]
    InvalidKey,
    /// A call would end before it began.
    #[error("the timeout must be longer than zero")]
    InvalidTimeout,
    /// The vectors of the built-in embedding model have another dimension.
    #[error("the dimension of `{model}` is {dimension}")]
    InvalidDimension {
        /// The configured model.
        model: String,
        /// The only dimension it has, or the largest.
        dimension: usize,
    },
    /// No request could hold a text.
    #[error("the batch size must be at least 1")]
    InvalidBatch,
    /// The HTTP client could not be set up, for example without root certificates.
    #[error("the HTTP client of the model endpoint could not be set up")]
    Client {
        /// The client's reason.
        #[source]
        source: reqwest::Error,
    },
}

/// The part of a configuration that an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigurationField {
    /// `model`.
    Model,
    /// `settings`.
    Settings,
    /// `headers`.
    Headers,
    /// `base_url`.
    BaseUrl,
    /// `api_key`.
    ApiKey,
    /// `timeout`.
    Timeout,
    /// `dimension`.
    Dimension,
    /// `batch_size`.
    BatchSize,
}

impl ConfigurationError {
    /// What to change; `None` when the cause is the machine and not a setting.
    #[must_use]
    pub const fn field(&self) -> Option<ConfigurationField> {
        match self {
            Self::UnsupportedModel { .. } => Some(ConfigurationField::Model),
            Self::UnsupportedSetting { .. } | Self::InvalidSettings | Self::InvalidSetting { .. } => {
                Some(ConfigurationField::Settings)
            }
            Self::InvalidHeaders { .. } => Some(ConfigurationField::Headers),
            Self::InvalidBaseUrl => Some(ConfigurationField::BaseUrl),
            Self::MissingKey { .. } | Self::InvalidKey => Some(ConfigurationField::ApiKey),
            Self::InvalidTimeout => Some(ConfigurationField::Timeout),
            Self::InvalidDimension { .. } => Some(ConfigurationField::Dimension),
            Self::InvalidBatch => Some(ConfigurationField::BatchSize),
            Self::Client { .. } => None,
        }
    }

    /// Whether the settings are well-formed but ask for what Topic processing does not support; the
    /// rest of the product can be used without it (TM-085).
    #[must_use]
    pub const fn is_unsupported(&self) -> bool {
        matches!(self, Self::UnsupportedModel { .. } | Self::UnsupportedSetting { .. })
    }
}

/// Makes the configured provider.
///
/// # Errors
/// [`ConfigurationError`] names the setting that does not allow it.
pub fn generator(config: &GenerationConfig) -> Result<Arc<dyn Generator>, ConfigurationError> {
    if config.model == Extractive::MODEL {
        ModelSettings::parse(config.settings.as_ref(), Protocol::BuiltIn)?;
        return Ok(Arc::new(Extractive));
    }
    match provider(&config.model) {
        Some(("openai", name)) => Ok(Arc::new(Remote::<OpenAi>::new(name, config)?)),
        Some(("anthropic", name)) => Ok(Arc::new(Remote::<Anthropic>::new(name, config)?)),
        _ => Err(ConfigurationError::UnsupportedModel {
            model: config.model.clone(),
            supported: "`openai:<model>`, `anthropic:<model>` or `builtin:extractive`",
        }),
    }
}

/// The provider and the model's own name; `None` when there is no such pair.
pub(crate) fn provider(model: &str) -> Option<(&str, &str)> {
    model.split_once(':').filter(|(_, name)| !name.is_empty() && name.trim() == *name)
}
