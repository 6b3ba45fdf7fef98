//! The choices that a deployment makes about a model endpoint, as settings and providers both name them.
//!
//! What each means on the wire is decided by the providers.

/// Under which name a chat-completions endpoint is told how long an answer may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputLimit {
    /// `max_completion_tokens`, as OpenAI has it.
    #[default]
    MaxCompletionTokens,
    /// `max_tokens`, as older compatible servers have it.
    MaxTokens,
}

/// What is done with a vector before it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Normalization {
    /// It is scaled to length 1.
    #[default]
    Unit,
    /// It stays as the model made it.
    None,
}
