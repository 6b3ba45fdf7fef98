//! The question a provider is asked and the answer it gives.
//!
//! The types carry everything a provider may see; what the text of an answer means is decided by
//! the worker, which knows the stage's output type.

use async_trait::async_trait;
use powercontext_core::stages::Stage;
use serde_json::Value;

use crate::error::GenerationError;

/// The largest response read, in bytes; far above any allowed answer.
pub(crate) const MAX_RESPONSE_BYTES: usize = 8 * 1024 * 1024;

/// Answers one typed stage request. One call is at most one provider request (TM-079).
#[async_trait]
pub trait Generator: Send + Sync {
    /// The configured model, as `provider:model`.
    fn model(&self) -> &str;

    /// Asks once. Neither retries nor follows redirects.
    ///
    /// # Errors
    /// [`GenerationError`] says which class of failure it was.
    async fn generate(&self, request: &GenerationRequest<'_>) -> Result<Generation, GenerationError>;
}

/// One question to a model.
#[derive(Clone, Copy, Debug)]
pub struct GenerationRequest<'a> {
    /// Which stage asks; names the schema on the wire.
    pub stage: Stage,
    /// The stage's own text, fixed by the product.
    pub instructions: &'a str,
    /// The stage's input; the only place where Source text may be.
    pub input: &'a Value,
    /// The JSON schema of the stage's output.
    pub schema: &'a Value,
    /// An earlier answer to this question that broke the contract.
    pub correction: Option<&'a Correction>,
    /// The most tokens the answer may have.
    pub max_output_tokens: u64,
}

/// An answer that was refused, given back so that the model can do better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    /// The refused answer, as it was.
    pub answer: String,
    /// What was wrong with it; a text of ours.
    pub problem: String,
}

/// An answer that arrived whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The JSON answer, unparsed and not to be trusted.
    pub text: String,
    /// What the request cost.
    pub usage: Usage,
}

/// Tokens as the provider counted them; zero where it did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the whole prompt.
    pub input_tokens: u64,
    /// Tokens of the answer, hidden reasoning included.
    pub output_tokens: u64,
}
