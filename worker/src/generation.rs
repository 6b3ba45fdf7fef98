//! Asks the model one question: budget first, then a bounded number of answers, then strict checks.
//!
//! Before each question the requests and tokens of every allowed answer are reserved in one short
//! fenced transaction (TM-061), so a crash or a quick answer can never make a call free. An answer
//! that breaks the contract is handed back with a correction until the configured number of
//! requests is reached; a provider that fails is not asked again (TM-079). What an answer must
//! satisfy is left to the stage.

use powercontext_core::stages::Stage;
use powercontext_core::tokens;
use powercontext_core::work::ErrorCode;
use powercontext_inference::{Correction, GenerationRequest, Generator};
use powercontext_store::Store;
use powercontext_store::budgets::{self, AttemptFence, Reservation, Reserve};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::WorkerSettings;
use crate::drafts::{self, Problem, Reason};
use crate::failure::WindowError;
use crate::progress::Progress;

/// Stands for a refused answer that leaves no room for itself in the next request.
const OMITTED_ANSWER: &str = "(left out: too long)";

/// One typed question, complete but for the budget.
#[derive(Clone, Debug)]
pub struct Question {
    /// Which stage asks.
    pub stage: Stage,
    /// The stage's prompt text.
    pub instructions: &'static str,
    /// The JSON schema of the answer.
    pub schema: Value,
    /// The stage's input.
    pub input: Value,
}

impl Question {
    /// Puts a stage's input into a question.
    ///
    /// # Errors
    /// [`ErrorCode::DataInvalid`] when the input has no JSON form.
    pub fn new(
        stage: Stage,
        instructions: &'static str,
        schema: Value,
        input: &impl Serialize,
    ) -> Result<Self, WindowError> {
        let input = serde_json::to_value(input).map_err(|_| ErrorCode::DataInvalid)?;
        Ok(Self { stage, instructions, schema, input })
    }

    /// Estimated tokens of the request without its answer (TM-033).
    #[must_use]
    pub fn input_tokens(&self) -> u64 {
        tokens::estimate(self.instructions)
            .saturating_add(tokens::estimate(&self.schema.to_string()))
            .saturating_add(tokens::estimate(&self.input.to_string()))
    }

    /// Whether the request and its answer fit the model's context (TM-033).
    #[must_use]
    pub fn fits(&self, settings: &WorkerSettings) -> bool {
        self.input_tokens().saturating_add(settings.output_reserve()) <= settings.context_window_tokens
    }
}

/// Asks questions for one attempt.
pub(crate) struct Asker<'a> {
    pub(crate) generator: &'a dyn Generator,
    pub(crate) store: &'a Store,
    pub(crate) attempt: &'a AttemptFence,
    pub(crate) settings: &'a WorkerSettings,
    pub(crate) progress: &'a Progress,
}

impl Asker<'_> {
    /// Asks until an answer passes `check`, at most `generation_max_requests` times.
    ///
    /// # Errors
    /// [`WindowError`] with `material_over_budget` before anything is reserved,
    /// `window_provider_budget_exceeded` or a superseded code before anything is sent, the
    /// provider's own class, or `invalid_output` after the last answer.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        question: &Question,
        check: impl Fn(&T) -> Result<(), Problem>,
    ) -> Result<T, WindowError> {
        if !question.fits(self.settings) {
            return Err(ErrorCode::MaterialOverBudget.into());
        }
        self.reserve().await?;
        let mut correction: Option<Correction> = None;
        let mut refused = Reason::InvalidJson;
        for _ in 0..self.settings.generation_max_requests {
            let answer = self.send(question, correction.as_ref()).await?;
            match drafts::parse::<T>(&answer).and_then(|parsed| check(&parsed).map(|()| parsed)) {
                Ok(parsed) => return Ok(parsed),
                Err(problem) => {
                    tracing::warn!(
                        stage = question.stage.as_str(),
                        reason = problem.reason.as_str(),
                        "the model's answer broke the output contract"
                    );
                    refused = problem.reason;
                    correction = Some(self.correction(question, answer, problem));
                }
            }
        }
        Err(WindowError::InvalidOutput { stage: question.stage, reason: refused })
    }

    async fn reserve(&self) -> Result<(), WindowError> {
        let requests = self.settings.generation_max_requests;
        let tokens = u64::from(requests).saturating_mul(self.settings.context_window_tokens);
        match budgets::reserve(self.store, self.attempt, Reservation { requests, tokens }).await? {
            Reserve::Reserved => Ok(()),
            Reserve::Exhausted => Err(ErrorCode::WindowProviderBudgetExceeded.into()),
            Reserve::Superseded(code) => Err(code.into()),
        }
    }

    async fn send(
        &self,
        question: &Question,
        correction: Option<&Correction>,
    ) -> Result<String, WindowError> {
        let request = GenerationRequest {
            stage: question.stage,
            instructions: question.instructions,
            input: &question.input,
            schema: &question.schema,
            correction,
            max_output_tokens: self.settings.output_reserve(),
        };
        match self.generator.generate(&request).await {
            Ok(generation) => {
                self.progress.answered(Some(generation.usage));
                Ok(generation.text)
            }
            Err(source) => {
                if provider_answered(source.code()) {
                    self.progress.answered(source.usage());
                }
                Err(WindowError::Generation { stage: question.stage, source })
            }
        }
    }

    /// The retry transcript counts too: an answer that no longer fits is left out (TM-061).
    fn correction(&self, question: &Question, answer: String, problem: Problem) -> Correction {
        let total = question
            .input_tokens()
            .saturating_add(tokens::estimate(&answer))
            .saturating_add(tokens::estimate(&problem.text))
            .saturating_add(self.settings.output_reserve());
        let fits = total <= self.settings.context_window_tokens;
        Correction { answer: if fits { answer } else { OMITTED_ANSWER.to_owned() }, problem: problem.text }
    }
}

/// Whether a failed request reached a provider that answered it.
fn provider_answered(code: ErrorCode) -> bool {
    !matches!(code, ErrorCode::GenerationTimeout | ErrorCode::GenerationUnreachable)
}
