//! Why a Window was not published: one enum for the whole pipeline, each with its stable code.
//!
//! Messages and sources never contain Source text, prompts or model output (TM-228). What an
//! ending means for the process is decided in `core::work`; recording it is left to `run`.

use powercontext_core::stages::Stage;
use powercontext_core::work::{Ending, ErrorCode};
use powercontext_inference::GenerationError;
use powercontext_store::StoreError;
use powercontext_store::publish::PublishError;

use crate::drafts::Reason;

/// Why the pipeline stopped before a publish was committed.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    /// A rule of the product decided: not ours any more, over a budget, or terminal.
    #[error("the window was given up")]
    Refused(ErrorCode),
    /// Every allowed answer of the model broke the output contract.
    #[error("the model's answer for stage `{}` broke the output contract: {reason}", .stage.as_str())]
    InvalidOutput {
        /// The stage that asked.
        stage: Stage,
        /// What was wrong with the last answer.
        reason: Reason,
    },
    /// The model gave no answer; it is not asked again in this attempt (TM-079).
    #[error("generation for stage `{}` failed", .stage.as_str())]
    Generation {
        /// The stage that asked.
        stage: Stage,
        /// The provider's class of failure.
        #[source]
        source: GenerationError,
    },
    /// The database could not be used, or its data breaks an invariant.
    #[error("the database failed")]
    Store(#[from] StoreError),
    /// The publish transaction was rolled back.
    #[error("the window was not published")]
    Publish(#[from] PublishError),
}

impl WindowError {
    /// The stable code for logs, budgets and outcomes.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Refused(code) => *code,
            Self::InvalidOutput { .. } => ErrorCode::InvalidOutput,
            Self::Generation { source, .. } => source.code(),
            Self::Store(source) => source.code(),
            Self::Publish(source) => source.code(),
        }
    }

    /// Whether the attempt keeps this code in its budget row.
    ///
    /// A worker that lost its right to write records nothing (TM-225).
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.code().ending() != Ending::Superseded
    }
}

impl From<ErrorCode> for WindowError {
    fn from(code: ErrorCode) -> Self {
        Self::Refused(code)
    }
}
