//! One Window, start to end: read, ask the model, prepare, publish once, leave an outcome.
//!
//! One module per step, each with its prompt text beside it where a model is asked. Everything
//! before the publish is in memory or in the budget row, so a worker may die anywhere and the next
//! one starts from the same Cursor. Who may work on what is left to the supervisor; what a
//! transaction guarantees is left to the store.

mod attempt;
pub mod drafts;
pub mod evidence;
mod failure;
pub mod generation;
pub mod global;
pub mod grouping;
pub mod history;
pub mod logging;
pub mod probe;
pub mod program;
mod progress;
mod project;
mod publish;
pub mod reconcile;
mod run;
pub mod select;
mod start;
pub mod wiring;

use std::sync::Arc;

use powercontext_core::ambient::{Clock, IdSource};
use powercontext_core::history::HistoryPolicy;
use powercontext_core::work::Step;
use powercontext_inference::Generator;
use powercontext_store::Store;

pub use failure::WindowError;
pub use run::{run, run_until};

/// The most output tokens one answer may have, however large the model's context is.
const MAX_OUTPUT_TOKENS: u64 = 16_384;

/// What a worker works with; everything is injected.
#[derive(Clone)]
pub struct WorkerParts {
    /// The database.
    pub store: Store,
    /// The model.
    pub generator: Arc<dyn Generator>,
    /// The clock; in the program it starts with the process, so that the time to the first read is
    /// counted from there.
    pub clock: Arc<dyn Clock>,
    /// New identities.
    pub ids: Arc<dyn IdSource>,
    /// The limits.
    pub settings: WorkerSettings,
    /// Told after every finished step.
    pub observer: Arc<dyn StepObserver>,
}

/// The limits one worker keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerSettings {
    /// Sources in one Window at most (TM-026).
    pub source_window_limit: u32,
    /// How existing Topics are chosen (TM-090).
    pub history: HistoryPolicy,
    /// Answers to one question at most, the first included (TM-061).
    pub generation_max_requests: u32,
    /// The model's context, input and output together, in tokens (TM-028).
    pub context_window_tokens: u64,
}

impl WorkerSettings {
    /// Tokens kept free for the answer of every request (TM-033): a tenth of the context, at most
    /// 16,384.
    #[must_use]
    pub const fn output_reserve(&self) -> u64 {
        let tenth = self.context_window_tokens / 10;
        if tenth < MAX_OUTPUT_TOKENS { tenth } else { MAX_OUTPUT_TOKENS }
    }
}

/// Hears of finished steps. Tests stop a worker here; the program's own does nothing.
pub trait StepObserver: Send + Sync {
    /// The step is done; nothing of the next one has happened yet.
    fn finished(&self, step: Step);
}

/// Ignores every step.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl StepObserver for NoObserver {
    fn finished(&self, _step: Step) {}
}
