//! The built-in model: deterministic, offline, no model at all. It chooses sentences, it writes none.
//!
//! It exists so that the product works on a fresh machine and in tests. `text` and
//! `inline` read Sources, `remark` knows what nobody needs to keep, `words`, `names` and `cluster` decide what is about the same subject, `compose` and
//! `title` put a Topic together and `stages` answers the questions. It keeps nothing between two calls.

mod cluster;
mod compose;
mod inline;
mod names;
mod remark;
mod stages;
mod text;
mod title;
mod words;

use async_trait::async_trait;
use powercontext_core::stages::Stage;
use powercontext_core::tokens::estimate;
use serde::Deserialize;
use serde_json::Value;

use crate::error::GenerationError;
use crate::generator::{Generation, GenerationRequest, Generator, Usage};

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

    async fn generate(&self, request: &GenerationRequest<'_>) -> Result<Generation, GenerationError> {
        let text = answer(request.stage, request.input)
            .map_err(|source| GenerationError::Input { stage: request.stage.as_str(), source })?;
        let input_tokens = estimate(request.instructions) + estimate(&request.input.to_string());
        let usage = Usage { input_tokens, output_tokens: estimate(&text) };
        Ok(Generation { text, usage })
    }
}

fn answer(stage: Stage, input: &Value) -> Result<String, serde_json::Error> {
    match stage {
        Stage::Probe => serde_json::to_string(&stages::probe(&Deserialize::deserialize(input)?)),
        Stage::Global => serde_json::to_string(&stages::global(&Deserialize::deserialize(input)?)),
        Stage::Reconcile => serde_json::to_string(&stages::reconcile(&Deserialize::deserialize(input)?)),
    }
}
