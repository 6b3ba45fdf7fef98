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

/// Tokens kept free in every request for being asked again: the problem's words, what a provider
/// puts around them and [`OMITTED_ANSWER`].
const CORRECTION_TOKENS: u64 = 1_024;

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

    /// Tokens of the request, its answer and a correction without the refused answer (TM-033).
    fn tokens(&self, settings: &WorkerSettings) -> u64 {
        self.input_tokens().saturating_add(CORRECTION_TOKENS).saturating_add(settings.output_reserve())
    }

    /// Whether the request, its answer and a correction fit the model's context (TM-033).
    #[must_use]
    pub fn fits(&self, settings: &WorkerSettings) -> bool {
        self.tokens(settings) <= settings.context_window_tokens
    }

    /// Hands a refused answer back. The retry transcript counts too: an answer that does not fit is
    /// left out, and without it a question that fitted still does (TM-061).
    fn correction(&self, answer: String, problem: &Problem, settings: &WorkerSettings) -> Correction {
        let total = self.tokens(settings).saturating_add(tokens::estimate(&answer));
        let fits = total <= settings.context_window_tokens;
        Correction {
            answer: if fits { answer } else { OMITTED_ANSWER.to_owned() },
            problem: problem.text().to_owned(),
        }
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
                        event = "worker_answer_refused",
                        stage = question.stage.as_str(),
                        reason = problem.reason.as_str()
                    );
                    refused = problem.reason;
                    correction = Some(question.correction(answer, &problem, self.settings));
                }
            }
        }
        Err(WindowError::InvalidOutput { stage: question.stage, reason: refused })
    }

    async fn reserve(&self) -> Result<(), WindowError> {
        let requests = self.settings.generation_max_requests;
        let tokens = u64::from(requests).saturating_mul(self.settings.context_window_tokens);
        let through = self.progress.aim().unwrap_or(self.attempt.frontier.source_after);
        let reservation = Reservation { requests, tokens, through };
        match budgets::reserve(self.store, self.attempt, reservation).await? {
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
        // Counted before the answer: one that never comes may have to be paid for all the same.
        self.progress.asked();
        match self.generator.generate(&request).await {
            Ok(generation) => {
                self.progress.spent(generation.usage);
                Ok(generation.text)
            }
            Err(source) => {
                self.progress.spent(source.usage().unwrap_or_default());
                if let Some(wait) = source.retry_after() {
                    self.progress.asked_to_wait(wait);
                }
                Err(WindowError::Generation { stage: question.stage, source })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use powercontext_core::history::HistoryPolicy;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::drafts::MAX_PROBLEM_CHARS;

    fn settings(context_window_tokens: u64) -> WorkerSettings {
        WorkerSettings {
            source_window_limit: 10,
            history: HistoryPolicy::default(),
            generation_max_requests: 2,
            context_window_tokens,
        }
    }

    fn question(words: usize) -> Question {
        let input = json!({"sources": "漢 word ".repeat(words)});
        Question { stage: Stage::Probe, instructions: "Read.", schema: json!({}), input }
    }

    #[test]
    fn the_allowance_holds_the_longest_problem_and_what_stands_around_it() {
        // TM-033
        let around = "That answer was not accepted: . Give the complete corrected JSON object.";
        let longest = "a`9Z".repeat(MAX_PROBLEM_CHARS / 4);
        let total = [around, &longest, OMITTED_ANSWER].map(tokens::estimate).iter().sum::<u64>();
        assert!(total <= CORRECTION_TOKENS, "{total}");
    }

    proptest! {
        #[test]
        fn a_corrected_request_of_a_question_that_fits_never_exceeds_the_context(
            words in 0_usize..3_000, room in 0_u64..4_000, answer in "[a-z漢{}\": ]{0,3000}",
        ) {
            // TM-033, TM-061
            let question = question(words);
            // Around the very edge of what fits.
            let context = (question.input_tokens() + room) * 10 / 9;
            let settings = settings(context);
            prop_assume!(question.fits(&settings));
            let problem = Problem::new(Reason::InvalidJson, "`".repeat(2 * MAX_PROBLEM_CHARS));
            let correction = question.correction(answer, &problem, &settings);
            let sent = question.input_tokens()
                + tokens::estimate(&correction.answer)
                + tokens::estimate(&correction.problem)
                + settings.output_reserve();
            prop_assert!(sent <= context, "{sent} of {context}");
        }
    }
}
