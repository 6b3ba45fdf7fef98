//! Why a generation gave no usable answer.
//!
//! Each class has its own stable code and keeps the usage of a provider that answered. No message
//! here contains anything that was sent or received.

use std::time::Duration;

use powercontext_core::work::ErrorCode;

use crate::generator::Usage;

/// Why there is no answer. The caller chooses by variant; none of them was retried.
#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    /// The model or its content filter declined, or it suspended the answer to call a tool (TM-083).
    #[error("the model refused to answer")]
    Refused {
        /// What the refusal cost.
        usage: Option<Usage>,
    },
    /// The answer was cut off at its token limit, or was larger than a response may be.
    #[error("the answer of the model was cut off")]
    Truncated {
        /// What the partial answer cost.
        usage: Option<Usage>,
    },
    /// The whole call did not end within the configured time.
    #[error("the model did not answer within {} s", .after.as_secs_f64())]
    Timeout {
        /// The configured time.
        after: Duration,
    },
    /// No connection, or it broke, or what came back is not this protocol.
    #[error("the model endpoint could not be reached")]
    Unreachable {
        /// What a provider that answered counted.
        usage: Option<Usage>,
        /// The transport's reason, without the URL; absent when the answer was not understood.
        #[source]
        source: Option<reqwest::Error>,
    },
    /// The provider asks for patience: 429 for rate, or any 5xx.
    #[error("the model endpoint is overloaded (status {status})")]
    Overloaded {
        /// The HTTP status.
        status: u16,
        /// How long the provider asks to wait, at most one hour; absent when it did not say.
        retry_after: Option<Duration>,
        /// What the provider counted.
        usage: Option<Usage>,
    },
    /// The request, the credentials or the quota are not accepted; asking again cannot help.
    #[error("the model endpoint rejected the request (status {status})")]
    Rejected {
        /// The HTTP status.
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
}

impl GenerationError {
    /// The stable code for outcomes and budgets.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Refused { .. } => ErrorCode::GenerationRefused,
            Self::Truncated { .. } => ErrorCode::GenerationTruncated,
            Self::Timeout { .. } => ErrorCode::GenerationTimeout,
            Self::Unreachable { .. } => ErrorCode::GenerationUnreachable,
            Self::Overloaded { .. } => ErrorCode::GenerationOverloaded,
            Self::Rejected { .. } | Self::Input { .. } => ErrorCode::GenerationRejected,
        }
    }

    /// What the provider counted, where it answered at all.
    #[must_use]
    pub const fn usage(&self) -> Option<Usage> {
        match self {
            Self::Refused { usage }
            | Self::Truncated { usage }
            | Self::Unreachable { usage, .. }
            | Self::Overloaded { usage, .. }
            | Self::Rejected { usage, .. } => *usage,
            Self::Timeout { .. } | Self::Input { .. } => None,
        }
    }
}
