//! The built-in model: deterministic, offline, no model at all. It chooses sentences, it writes none.
use async_trait::async_trait;

use crate::error::GenerationError;
use crate::generator::{Generation, GenerationRequest, Generator};

/// `builtin:extractive`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extractive;

impl Extractive {
    /// The name it is configured by.
    pub const MODEL: &'static str = "builtin:extractive";
}

#[async_trait]
impl Generator for Extractive {
    fn model(&self) -> &str {
        Self::MODEL
    }

    async fn generate(&self, _request: &GenerationRequest<'_>) -> Result<Generation, GenerationError> {
        Err(GenerationError::Refused { usage: None })
    }
}
