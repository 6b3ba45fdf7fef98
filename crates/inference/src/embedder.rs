//! The question an embedding model is asked, the vectors it gives, and why there may be none.
//!
//! Reserving budget for the texts (TM-062) and keeping the vectors are left to the caller.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use powercontext_core::endpoint::Normalization;
use powercontext_core::error_code::ErrorCode;
use powercontext_core::secret::Secret;

use crate::config::{ConfigurationError, provider};
use crate::error::GenerationError;
use crate::generator::Usage;
use crate::hashing::Hashing;
use crate::openai_embeddings::OpenAiEmbeddings;
use crate::settings::{EmbeddingSettings, Protocol};

/// Numbers of one vector at most.
pub(crate) const MAX_DIMENSION: usize = 16_384;

/// Maps texts to vectors of one fixed dimension.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// The configured model, as `provider:model`.
    fn model(&self) -> &str;

    /// How many numbers every vector has.
    fn dimension(&self) -> usize;

    /// One vector for each text, in their order. Sends at most one request for each text, fewer where
    /// they can be put together, each exactly once.
    ///
    /// # Errors
    /// [`EmbeddingError`] with the first failure; nothing is sent after it.
    async fn embed(&self, texts: &[String]) -> Result<Embeddings, EmbeddingError>;
}

/// The vectors of some texts, in the order of the texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Embeddings {
    /// Each has the model's dimension, only finite numbers, and is not zero.
    pub vectors: Vec<Vec<f32>>,
    /// What they cost.
    pub spent: Spent,
}

/// What embedding cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Requests that were sent, answered or not.
    pub requests: u32,
    /// Tokens as the provider counted them.
    pub usage: Usage,
}

/// Why there are no vectors, with what was spent all the same.
#[derive(Debug, thiserror::Error)]
#[error("the texts could not be embedded")]
pub struct EmbeddingError {
    /// What the requests up to the failure cost.
    pub spent: Spent,
    /// The failure.
    #[source]
    pub cause: EmbeddingFailure,
}

/// The failure of an embedding.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddingFailure {
    /// A text without a visible character; nothing was sent.
    #[error("text {place} is blank")]
    BlankText {
        /// Its place in the list, from 0.
        place: usize,
    },
    /// The endpoint did not answer with vectors.
    #[error("the embedding model gave no answer")]
    Endpoint(#[source] GenerationError),
    /// The vectors are not what was asked for.
    #[error("the embedding model gave vectors that cannot be used")]
    Vectors(#[source] InvalidVectors),
}

/// What is wrong with the vectors of an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidVectors {
    /// Not one vector for each text.
    #[error("{given} vectors for {texts} texts")]
    Count {
        /// Vectors in the answer.
        given: usize,
        /// Texts in the request.
        texts: usize,
    },
    /// An index is missing, repeated or outside the request.
    #[error("the indexes of the vectors do not name each text once")]
    Order,
    /// Another dimension.
    #[error("a vector of {given} numbers instead of {dimension}")]
    Dimension {
        /// Numbers in the vector.
        given: usize,
        /// The configured dimension.
        dimension: usize,
    },
    /// Something that is no number, or too large for one.
    #[error("a vector has an entry that is not a finite number")]
    NotFinite,
    /// All numbers are zero, so it has no direction.
    #[error("a vector is zero")]
    Zero,
}

impl EmbeddingError {
    /// The stable code for outcomes and budgets.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        let endpoint = match &self.cause {
            EmbeddingFailure::BlankText { .. } => return ErrorCode::DataInvalid,
            EmbeddingFailure::Vectors(_) => return ErrorCode::EmbeddingInvalid,
            EmbeddingFailure::Endpoint(endpoint) => endpoint,
        };
        match endpoint {
            GenerationError::Timeout { .. }
            | GenerationError::Unreachable { .. }
            | GenerationError::RateLimited { .. }
            | GenerationError::Overloaded { .. } => ErrorCode::EmbeddingUnavailable,
            GenerationError::Refused { .. }
            | GenerationError::Filtered { .. }
            | GenerationError::QuotaExhausted { .. }
            | GenerationError::Unauthorized { .. }
            | GenerationError::ModelNotFound { .. }
            | GenerationError::Rejected { .. } => ErrorCode::EmbeddingRejected,
            GenerationError::Suspended { .. }
            | GenerationError::Truncated { .. }
            | GenerationError::ResponseTooLarge { .. }
            | GenerationError::Unreadable { .. }
            | GenerationError::Input { .. }
            | GenerationError::Schema { .. } => ErrorCode::EmbeddingInvalid,
        }
    }

    /// How long the provider asks to be left alone, at most one hour; `None` when it did not say.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match &self.cause {
            EmbeddingFailure::Endpoint(endpoint) => endpoint.retry_after(),
            EmbeddingFailure::BlankText { .. } | EmbeddingFailure::Vectors(_) => None,
        }
    }
}

/// Everything that may be set about embedding.
#[derive(Clone, Debug)]
pub struct EmbeddingConfig {
    /// `builtin:hashing` or `openai:<model>`.
    pub model: String,
    /// How many numbers every vector has.
    pub dimension: usize,
    /// Base URL of a compatible endpoint; absent means OpenAI itself.
    pub base_url: Option<String>,
    /// The endpoint's key; required for OpenAI itself.
    pub api_key: Option<Secret>,
    /// Further headers: a JSON object of names and texts.
    pub headers: Option<Secret>,
    /// Model settings: a JSON object of `dimensions` and `truncate` (TM-081).
    pub settings: Option<Secret>,
    /// The limit of one request, from connecting to the last byte.
    pub timeout: Duration,
    /// Texts of one request at most.
    pub batch_size: usize,
    /// What is done with a vector before it is handed out.
    pub normalization: Normalization,
}

impl EmbeddingConfig {
    /// A model with nothing else set, 30 s for a request of at most 10 texts, and unit vectors.
    #[must_use]
    pub fn new(model: impl Into<String>, dimension: usize) -> Self {
        Self {
            model: model.into(),
            dimension,
            base_url: None,
            api_key: None,
            headers: None,
            settings: None,
            timeout: Duration::from_secs(30),
            batch_size: 10,
            normalization: Normalization::default(),
        }
    }
}

/// Makes the configured embedding provider.
///
/// # Errors
/// [`ConfigurationError`] names the setting that does not allow it.
pub fn embedder(config: &EmbeddingConfig) -> Result<Arc<dyn Embedder>, ConfigurationError> {
    let refused = |dimension| ConfigurationError::InvalidDimension { model: config.model.clone(), dimension };
    if config.model == Hashing::MODEL {
        EmbeddingSettings::parse(config.settings.as_ref(), Protocol::BuiltIn, config.dimension)?;
        let fits = config.dimension == Hashing::DIMENSION;
        return if fits { Ok(Arc::new(Hashing)) } else { Err(refused(Hashing::DIMENSION)) };
    }
    let Some(("openai", name)) = provider(&config.model) else {
        return Err(ConfigurationError::UnsupportedModel {
            model: config.model.clone(),
            supported: "`openai:<model>` or `builtin:hashing`",
        });
    };
    if config.dimension == 0 || config.dimension > MAX_DIMENSION {
        return Err(refused(MAX_DIMENSION));
    }
    if config.batch_size == 0 {
        return Err(ConfigurationError::InvalidBatch);
    }
    Ok(Arc::new(OpenAiEmbeddings::new(name, config)?))
}
