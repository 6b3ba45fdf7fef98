//! What both protocols share of a reply: the usage, and the class of an error.
//!
//! The usage is read before and apart from everything else, so that it is counted even where the rest
//! cannot be understood. What a finished answer says is left to the protocols.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::error::GenerationError;
use crate::generator::Usage;

/// A reply as it arrived.
pub(crate) struct Reply {
    /// The HTTP status.
    pub(crate) status: u16,
    /// How long the endpoint asks to be left alone, at most one hour.
    pub(crate) retry_after: Option<Duration>,
    /// The whole body; empty when that of an error broke off.
    pub(crate) body: Vec<u8>,
}

#[derive(Deserialize)]
struct UsageOnly {
    usage: Option<Value>,
}

#[derive(Deserialize)]
struct ProblemOnly {
    error: Option<Value>,
}

impl Reply {
    /// The tokens as the provider counted them, under the names of either protocol; `None` when it
    /// did not say.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let usage = serde_json::from_slice::<UsageOnly>(&self.body).ok()?.usage?;
        let fields = usage.as_object()?;
        let count = |name: &str| fields.get(name).and_then(Value::as_u64);
        let input = count("prompt_tokens").or_else(|| {
            let parts = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
            parts.into_iter().filter_map(count).reduce(u64::saturating_add)
        });
        let output = count("completion_tokens").or_else(|| count("output_tokens"));
        Some(Usage { input_tokens: input.unwrap_or(0), output_tokens: output.unwrap_or(0) })
    }

    /// The error this reply is, by its status or because it carries one; `None` for an answer.
    pub(crate) fn failure(&self) -> Option<GenerationError> {
        let problem = serde_json::from_slice::<ProblemOnly>(&self.body).ok().and_then(|told| told.error);
        match (self.status, problem) {
            // Accepted means that the work goes on in the background.
            (202, _) => Some(GenerationError::Suspended { usage: self.usage() }),
            (200..=299, None) => None,
            (200..=299, Some(problem)) => {
                let words = Words::of(Some(&problem));
                let told = problem.get("code").and_then(Value::as_u64);
                let told = told.and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400);
                Some(match told.or_else(|| words.status()) {
                    Some(status) => self.classify(status, &words),
                    None => GenerationError::Unreadable { usage: self.usage() },
                })
            }
            (status, problem) => {
                let words = Words::of(problem.as_ref());
                // Gateways hide the provider's own class behind a status of theirs.
                let status = if words.is("overloaded_error") { 529 } else { status };
                Some(self.classify(status, &words))
            }
        }
    }

    fn classify(&self, status: u16, words: &Words) -> GenerationError {
        let (usage, retry_after) = (self.usage(), self.retry_after);
        let spent =
            ["insufficient_quota", "billing_error", "billing_hard_limit_reached", "billing_not_active"];
        let filtered = ["content_filter", "content_policy_violation", "content_filter_error"];
        match status {
            400.. if spent.iter().any(|word| words.is(word)) => {
                GenerationError::QuotaExhausted { status, usage }
            }
            400..=499 if filtered.iter().any(|word| words.is(word)) => GenerationError::Filtered { usage },
            400..=499 if words.is("model_not_found") => GenerationError::ModelNotFound { status, usage },
            400..=499 if words.is("invalid_api_key") => GenerationError::Unauthorized { status, usage },
            401 | 403 => GenerationError::Unauthorized { status, usage },
            402 => GenerationError::QuotaExhausted { status, usage },
            404 => GenerationError::ModelNotFound { status, usage },
            408 | 409 | 425 | 500.. => GenerationError::Overloaded { status, retry_after, usage },
            429 => GenerationError::RateLimited { status, retry_after, usage },
            _ => GenerationError::Rejected { status, usage },
        }
    }
}

/// The stable words of a provider's error: its code and its type, never its message.
struct Words(Vec<String>);

impl Words {
    fn of(problem: Option<&Value>) -> Self {
        let word = |name: &str| Some(problem?.get(name)?.as_str()?.to_owned());
        Self(["code", "type"].into_iter().filter_map(word).collect())
    }

    fn is(&self, word: &str) -> bool {
        self.0.iter().any(|known| known == word)
    }

    /// The status that Anthropic and OpenAI give to an error of this type.
    fn status(&self) -> Option<u16> {
        [
            ("invalid_request_error", 400),
            ("authentication_error", 401),
            ("billing_error", 402),
            ("insufficient_quota", 402),
            ("permission_error", 403),
            ("not_found_error", 404),
            ("model_not_found", 404),
            ("request_too_large", 413),
            ("rate_limit_error", 429),
            ("rate_limit_exceeded", 429),
            ("api_error", 500),
            ("server_error", 500),
            ("timeout_error", 504),
            ("overloaded_error", 529),
        ]
        .into_iter()
        .find_map(|(word, status)| self.is(word).then_some(status))
    }
}
