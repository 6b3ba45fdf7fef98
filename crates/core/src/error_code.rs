//! The stable names of everything that can keep a Window from being published, and how a worker ends
//! with each (TM-224).
//!
//! Codes are kept in budget rows and logs, so none is ever renamed. Where each comes from is decided
//! by the crates that fail.

use serde::{Deserialize, Serialize};

use crate::work::Ending;

/// Why a Window was not published; stable codes for logs, budgets and outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// Holder or generation is no longer current.
    Fenced,
    /// A newer attempt of the same frontier took over (TM-075).
    AttemptSuperseded,
    /// The Cursor moved under the worker.
    CursorConflict,
    /// A Head moved under the worker.
    HeadConflict,
    /// All attempts of the frontier are used up (TM-067). Terminal.
    WindowAttemptLimit,
    /// Reserved requests or tokens are used up (TM-067). Terminal.
    WindowProviderBudgetExceeded,
    /// The first Source breaks the complexity limits (TM-040). Terminal.
    SourceComplexityLimit,
    /// The first Source alone is larger than the direct path can take.
    SourceOverBudget,
    /// Sources and selected Topics do not fit one generation request.
    MaterialOverBudget,
    /// The model filled several slots, so targets are not bound uniquely.
    AmbiguousTargets,
    /// The model's answer broke the output contract, also on retry.
    InvalidOutput,
    /// The model declined to answer.
    GenerationRefused,
    /// The answer was cut off.
    GenerationTruncated,
    /// No answer within the generation timeout.
    GenerationTimeout,
    /// The provider could not be reached, or the connection broke.
    GenerationUnreachable,
    /// The provider is overloaded or failed.
    GenerationOverloaded,
    /// The provider does not accept the request.
    GenerationRejected,
    /// A content filter of the provider stopped the question or the answer.
    GenerationFiltered,
    /// The answer is not finished: the model wants a tool, a pause or another call (TM-083).
    GenerationSuspended,
    /// The provider limits how often it may be asked.
    GenerationRateLimited,
    /// The account has no quota or credit left.
    GenerationQuotaExhausted,
    /// The credentials are not accepted or not allowed to do this.
    GenerationUnauthorized,
    /// The provider knows no such model, or the base URL is not its own.
    GenerationModelNotFound,
    /// What came back is not the provider's protocol.
    GenerationUnreadable,
    /// The response was larger than any answer may be.
    GenerationResponseTooLarge,
    /// The embedding endpoint did not answer, or asks for patience.
    EmbeddingUnavailable,
    /// The embedding endpoint refuses the request, the model or the credentials.
    EmbeddingRejected,
    /// The vectors that came back are not what was asked for.
    EmbeddingInvalid,
    /// The database could not be used.
    DatabaseUnavailable,
    /// The stored data breaks an invariant.
    DataInvalid,
    /// The settings do not allow the work.
    ConfigurationInvalid,
    /// The process was told to stop.
    Terminated,
    /// The worker did not end in time and was killed.
    WorkerTimeout,
    /// The worker died without an outcome.
    WorkerCrashed,
    /// The worker could not be started.
    LaunchFailed,
}

impl ErrorCode {
    /// Every code, in the order of their declaration.
    pub const ALL: [Self; 35] = [
        Self::Fenced,
        Self::AttemptSuperseded,
        Self::CursorConflict,
        Self::HeadConflict,
        Self::WindowAttemptLimit,
        Self::WindowProviderBudgetExceeded,
        Self::SourceComplexityLimit,
        Self::SourceOverBudget,
        Self::MaterialOverBudget,
        Self::AmbiguousTargets,
        Self::InvalidOutput,
        Self::GenerationRefused,
        Self::GenerationTruncated,
        Self::GenerationTimeout,
        Self::GenerationUnreachable,
        Self::GenerationOverloaded,
        Self::GenerationRejected,
        Self::GenerationFiltered,
        Self::GenerationSuspended,
        Self::GenerationRateLimited,
        Self::GenerationQuotaExhausted,
        Self::GenerationUnauthorized,
        Self::GenerationModelNotFound,
        Self::GenerationUnreadable,
        Self::GenerationResponseTooLarge,
        Self::EmbeddingUnavailable,
        Self::EmbeddingRejected,
        Self::EmbeddingInvalid,
        Self::DatabaseUnavailable,
        Self::DataInvalid,
        Self::ConfigurationInvalid,
        Self::Terminated,
        Self::WorkerTimeout,
        Self::WorkerCrashed,
        Self::LaunchFailed,
    ];

    /// The stable name in logs, outcomes and budgets.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fenced => "fenced",
            Self::AttemptSuperseded => "attempt_superseded",
            Self::CursorConflict => "cursor_conflict",
            Self::HeadConflict => "head_conflict",
            Self::WindowAttemptLimit => "window_attempt_limit",
            Self::WindowProviderBudgetExceeded => "window_provider_budget_exceeded",
            Self::SourceComplexityLimit => "source_complexity_limit",
            Self::SourceOverBudget => "source_over_budget",
            Self::MaterialOverBudget => "material_over_budget",
            Self::AmbiguousTargets => "ambiguous_targets",
            Self::InvalidOutput => "invalid_output",
            Self::GenerationRefused => "generation_refused",
            Self::GenerationTruncated => "generation_truncated",
            Self::GenerationTimeout => "generation_timeout",
            Self::GenerationUnreachable => "generation_unreachable",
            Self::GenerationOverloaded => "generation_overloaded",
            Self::GenerationRejected => "generation_rejected",
            Self::GenerationFiltered => "generation_filtered",
            Self::GenerationSuspended => "generation_suspended",
            Self::GenerationRateLimited => "generation_rate_limited",
            Self::GenerationQuotaExhausted => "generation_quota_exhausted",
            Self::GenerationUnauthorized => "generation_unauthorized",
            Self::GenerationModelNotFound => "generation_model_not_found",
            Self::GenerationUnreadable => "generation_unreadable",
            Self::GenerationResponseTooLarge => "generation_response_too_large",
            Self::EmbeddingUnavailable => "embedding_unavailable",
            Self::EmbeddingRejected => "embedding_rejected",
            Self::EmbeddingInvalid => "embedding_invalid",
            Self::DatabaseUnavailable => "database_unavailable",
            Self::DataInvalid => "data_invalid",
            Self::ConfigurationInvalid => "configuration_invalid",
            Self::Terminated => "terminated",
            Self::WorkerTimeout => "worker_timeout",
            Self::WorkerCrashed => "worker_crashed",
            Self::LaunchFailed => "launch_failed",
        }
    }

    /// The ending a worker reports for this code.
    #[must_use]
    pub const fn ending(self) -> Ending {
        match self {
            Self::Fenced | Self::AttemptSuperseded | Self::CursorConflict | Self::HeadConflict => {
                Ending::Superseded
            }
            Self::WindowAttemptLimit | Self::WindowProviderBudgetExceeded | Self::SourceComplexityLimit => {
                Ending::Permanent
            }
            Self::ConfigurationInvalid
            | Self::GenerationQuotaExhausted
            | Self::GenerationUnauthorized
            | Self::GenerationModelNotFound
            | Self::EmbeddingRejected => Ending::Configuration,
            Self::Terminated => Ending::Terminated,
            Self::SourceOverBudget
            | Self::MaterialOverBudget
            | Self::AmbiguousTargets
            | Self::InvalidOutput
            | Self::GenerationRefused
            | Self::GenerationTruncated
            | Self::GenerationTimeout
            | Self::GenerationUnreachable
            | Self::GenerationOverloaded
            | Self::GenerationRejected
            | Self::GenerationFiltered
            | Self::GenerationSuspended
            | Self::GenerationRateLimited
            | Self::GenerationUnreadable
            | Self::GenerationResponseTooLarge
            | Self::EmbeddingUnavailable
            | Self::EmbeddingInvalid
            | Self::DatabaseUnavailable
            | Self::DataInvalid
            | Self::WorkerTimeout
            | Self::WorkerCrashed
            | Self::LaunchFailed => Ending::Transient,
        }
    }

    /// Whether the frontier stays closed until an operator repairs it (TM-069).
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self.ending(), Ending::Permanent)
    }

    /// The codes that close a frontier.
    pub fn terminal() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|code| code.is_terminal())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_in_a_log_is_the_code_on_the_wire() {
        // TM-224, TM-227
        for code in ErrorCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }

    #[test]
    fn the_list_of_codes_leaves_none_out() {
        // The refusal of an unknown name tells all known ones.
        let refusal = serde_json::from_str::<ErrorCode>("\"nonsense\"").unwrap_err().to_string();
        let known: Vec<&str> = refusal.split('`').skip(3).step_by(2).collect();
        assert_eq!(known, ErrorCode::ALL.map(ErrorCode::as_str));
    }

    #[test]
    fn exactly_the_three_documented_codes_close_a_frontier() {
        // TM-067 TM-069
        let names: Vec<&str> = ErrorCode::terminal().map(ErrorCode::as_str).collect();
        assert_eq!(
            names,
            ["window_attempt_limit", "window_provider_budget_exceeded", "source_complexity_limit"]
        );
    }
}
