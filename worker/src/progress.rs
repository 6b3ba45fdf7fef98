//! What is known about a run so far: the step, the figures and the times of its outcome.
//!
//! Shared between the pipeline and whoever may stop it, so that a run that is stopped half-way
//! still leaves a true outcome. Holds counts and codes, never content (TM-228).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use powercontext_core::ambient::{Clock, Monotonic};
use powercontext_core::ids::{Position, Window};
use powercontext_core::work::{Ending, ErrorCode, Outcome, OutcomeCounts, Step};
use powercontext_inference::Usage;

use crate::StepObserver;

/// The growing outcome of one run.
pub(crate) struct Progress {
    clock: Arc<dyn Clock>,
    observer: Arc<dyn StepObserver>,
    state: Mutex<State>,
}

struct State {
    outcome: Outcome,
    step_started: Monotonic,
}

impl Progress {
    /// Begins with [`Step::Start`] running.
    pub(crate) fn begin(clock: Arc<dyn Clock>, observer: Arc<dyn StepObserver>) -> Self {
        let state = State {
            step_started: clock.monotonic(),
            outcome: Outcome {
                ending: Ending::Done,
                step: Step::Start,
                error_code: None,
                window: None,
                counts: OutcomeCounts::default(),
                step_millis: std::collections::BTreeMap::new(),
                retry_after_seconds: None,
                first_read_millis: None,
            },
        };
        Self { clock, observer, state: Mutex::new(state) }
    }

    /// Notes that a step begins.
    pub(crate) fn enter(&self, step: Step) {
        let now = self.clock.monotonic();
        let mut state = self.state();
        state.outcome.step = step;
        state.step_started = now;
    }

    /// Notes that the running step is done, then tells the observer.
    pub(crate) fn finish(&self) {
        let now = self.clock.monotonic();
        let step = {
            let mut state = self.state();
            let spent = millis(now.saturating_sub(state.step_started));
            let step = state.outcome.step;
            state.outcome.step_millis.insert(step, spent);
            step
        };
        self.observer.finished(step);
    }

    /// Notes the end of the first database read, once.
    pub(crate) fn first_read(&self) {
        let now = millis(self.clock.monotonic());
        self.state().outcome.first_read_millis.get_or_insert(now);
    }

    /// Notes the Window and how many Sources it has.
    pub(crate) fn window(&self, window: Window, sources: usize) {
        let mut state = self.state();
        state.outcome.window = Some(window);
        state.outcome.counts.sources = count(sources);
    }

    /// The end of the Window, once it is chosen.
    pub(crate) fn aim(&self) -> Option<Position> {
        self.state().outcome.window.map(|window| window.through)
    }

    /// Notes one provider request that is about to be sent.
    pub(crate) fn asked(&self) {
        let counts = &mut self.state().outcome.counts;
        counts.requests = counts.requests.saturating_add(1);
    }

    /// Notes the tokens that a provider counted for a request.
    pub(crate) fn spent(&self, usage: Usage) {
        let counts = &mut self.state().outcome.counts;
        counts.input_tokens = counts.input_tokens.saturating_add(usage.input_tokens);
        counts.output_tokens = counts.output_tokens.saturating_add(usage.output_tokens);
    }

    /// Notes how long the model's provider asks to be left alone; part of a second counts as one.
    pub(crate) fn asked_to_wait(&self, wait: Duration) {
        let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
        self.state().outcome.retry_after_seconds = Some(u32::try_from(seconds).unwrap_or(u32::MAX));
    }

    /// Notes what the committed publish wrote.
    pub(crate) fn published(&self, created: usize, updated: usize) {
        let counts = &mut self.state().outcome.counts;
        counts.created = count(created);
        counts.updated = count(updated);
    }

    /// The step that runs now, or ran last.
    pub(crate) fn step(&self) -> Step {
        self.state().outcome.step
    }

    /// The Window, once it was chosen.
    pub(crate) fn chosen_window(&self) -> Option<Window> {
        self.state().outcome.window
    }

    /// The outcome as it stands, with its ending.
    pub(crate) fn outcome(&self, error_code: Option<ErrorCode>) -> Outcome {
        let mut outcome = self.state().outcome.clone();
        outcome.ending = error_code.map_or(Ending::Done, ErrorCode::ending);
        outcome.error_code = error_code;
        outcome
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A count that fits the outcome.
pub(crate) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
