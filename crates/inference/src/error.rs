//! Why a generation gave no usable answer.
//!
//! Each class has its own stable code and keeps the usage of a provider that answered. No message
//! here contains anything that was sent or received.

use std::time::Duration;

use powercontext_core::error_code::ErrorCode;

use crate::generator::Usage;
use crate::schema::NotStrict;

/// Why there is no answer. The caller chooses by variant; none of them was retried.
#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    /// The model declined to answer.
    #[error("the model refused to answer")]
    Refused {
        /// What the refusal cost.
        usage: Option<Usage>,
    },
    /// A content filter of the provider stopped the question or the answer.
    #[error("a content filter of the provider stopped the answer")]
    Filtered {
        /// What the provider counted.
        usage: Option<Usage>,
    },
    /// The answer is not finished: it waits for a tool, a pause or a further call (TM-083).
    #[error("the model suspended its answer")]
    Suspended {
        /// What the unfinished answer cost.
        usage: Option<Usage>,
    },
    /// The answer was cut off at its token limit.
    #[error("the answer of the model was cut off")]
    Truncated {
        /// What the partial answer cost.
        usage: Option<Usage>,
    },
    /// The response was larger than any answer may be, and was not read to its end.
    #[error("the response of the model endpoint is larger than {limit} bytes")]
    ResponseTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The whole call did not end within the configured time.
    #[error("the model did not answer within {} s", .after.as_secs_f64())]
    Timeout {
        /// The configured time.
        after: Duration,
    },
    /// No connection, or it broke.
    #[error("the model endpoint could not be reached")]
    Unreachable {
        /// What a provider that answered counted.
        usage: Option<Usage>,
        /// The transport's reason, without the URL.
        #[source]
        source: Option<reqwest::Error>,
    },
    /// What came back is not this protocol.
    #[error("the model endpoint answered outside its protocol")]
    Unreadable {
        /// What the provider counted.
        usage: Option<Usage>,
    },
    /// The provider limits how often it may be asked (429).
    #[error("the model endpoint limits its requests (status {status})")]
    RateLimited {
        /// The HTTP status, or the one told inside the answer.
        status: u16,
        /// How long the provider asks to wait, at most one hour; absent when it did not say.
        retry_after: Option<Duration>,
        /// What the provider counted.
        usage: Option<Usage>,
    },
    /// The provider is overloaded or failed: any 5xx, or a conflict that may pass.
    #[error("the model endpoint is overloaded (status {status})")]
    Overloaded {
        /// The HTTP status, or the one told inside the answer.
        status: u16,
        /// How long the provider asks to wait, at most one hour; absent when it did not say.
        retry_after: Option<Duration>,
        /// What the provider counted.
        usage: Option<Usage>,
    },
    /// The account has no quota or credit left; a person must act.
    #[error("the quota of the model account is used up (status {status})")]
    QuotaExhausted {
        /// The HTTP status, or the one told inside the answer.
        status: u16,
        /// What the provider counted.
        usage: Option<Usage>,
    },
    /// The credentials are not accepted (401) or not allowed to do this (403).
    #[error("the model endpoint does not accept the credentials (status {status})")]
    Unauthorized {
        /// The HTTP status, or the one told inside the answer.
        status: u16,
        /// What the provider counted.
        usage: Option<Usage>,
    },
    /// There is no such model, or the base URL is not an endpoint of this protocol (404).
    #[error("the model endpoint knows no such model or path (status {status})")]
    ModelNotFound {
        /// The HTTP status, or the one told inside the answer.
        status: u16,
        /// What the provider counted.
        usage: Option<Usage>,
    },
    /// The request is not accepted: too long, a setting the model does not take, a redirect.
    #[error("the model endpoint rejected the request (status {status})")]
    Rejected {
        /// The HTTP status, or the one told inside the answer.
        status: u16,
        /// What the provider counted.
        usage: Option<Usage>,
    },
    /// The built-in model was given an input that is not the stage's.
    #[error("the input of stage `{stage}` is not valid")]
    Input {
        /// The stage's name.
        stage: &'static str,
        /// What is wrong with its shape.
        #[source]
        source: serde_json::Error,
    },
    /// The schema of the question is not one that every provider enforces; nothing was sent.
    #[error("the output schema of stage `{stage}` is not strict")]
    Schema {
        /// The stage's name.
        stage: &'static str,
        /// Where and why.
        #[source]
        source: NotStrict,
    },
}

impl GenerationError {
    /// The stable code for outcomes and budgets.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Refused { .. } => ErrorCode::GenerationRefused,
            Self::Filtered { .. } => ErrorCode::GenerationFiltered,
            Self::Suspended { .. } => ErrorCode::GenerationSuspended,
            Self::Truncated { .. } => ErrorCode::GenerationTruncated,
            Self::ResponseTooLarge { .. } => ErrorCode::GenerationResponseTooLarge,
            Self::Timeout { .. } => ErrorCode::GenerationTimeout,
            Self::Unreachable { .. } => ErrorCode::GenerationUnreachable,
            Self::Unreadable { .. } => ErrorCode::GenerationUnreadable,
            Self::RateLimited { .. } => ErrorCode::GenerationRateLimited,
            Self::Overloaded { .. } => ErrorCode::GenerationOverloaded,
            Self::QuotaExhausted { .. } => ErrorCode::GenerationQuotaExhausted,
            Self::Unauthorized { .. } => ErrorCode::GenerationUnauthorized,
            Self::ModelNotFound { .. } => ErrorCode::GenerationModelNotFound,
            Self::Rejected { .. } | Self::Input { .. } | Self::Schema { .. } => ErrorCode::GenerationRejected,
        }
    }

    /// What the provider counted, where it answered at all.
    #[must_use]
    pub const fn usage(&self) -> Option<Usage> {
        match self {
            Self::Refused { usage }
            | Self::Filtered { usage }
            | Self::Suspended { usage }
            | Self::Truncated { usage }
            | Self::Unreachable { usage, .. }
            | Self::Unreadable { usage }
            | Self::RateLimited { usage, .. }
            | Self::Overloaded { usage, .. }
            | Self::QuotaExhausted { usage, .. }
            | Self::Unauthorized { usage, .. }
            | Self::ModelNotFound { usage, .. }
            | Self::Rejected { usage, .. } => *usage,
            Self::ResponseTooLarge { .. }
            | Self::Timeout { .. }
            | Self::Input { .. }
            | Self::Schema { .. } => None,
        }
    }

    /// How long the provider asks to be left alone, at most one hour; `None` when it did not say.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after, .. } | Self::Overloaded { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
