//! Turns notices into log events with stable names and fields (TM-227, TM-228).
//!
//! Names, numbers and codes only. An event's name is its message and its `event` field.

use powercontext_core::ids::SupervisorGeneration;
use powercontext_core::work::OutcomeCounts;

use crate::notice::{FailureReason, Notice, Setback};

/// Writes one notice.
pub fn tell(notice: &Notice, term: SupervisorGeneration) {
    let term = term.get();
    match notice {
        Notice::WaveStarted { key, wave, source_after } => tracing::info!(
            event = "wave_started", binding = %key.binding, scope = %key.scope,
            source_after = source_after.get(), wave_target = wave.target.get(),
            flush_generation = wave.claimed.get(), supervisor_generation = term,
            "wave started"
        ),
        Notice::WindowPublished { key, window, wave, backlog, worker, outcome } => {
            let counts = outcome.as_ref().map_or_else(OutcomeCounts::default, |outcome| outcome.counts);
            tracing::info!(
                event = "window_published", binding = %key.binding, scope = %key.scope,
                source_after = window.after.get(), source_through = window.through.get(),
                wave_target = wave.target.get(), backlog, sources = counts.sources,
                created = counts.created, updated = counts.updated, requests = counts.requests,
                supervisor_generation = term, worker_id = %worker,
                "window published"
            );
        }
        Notice::WaveCompleted { key, wave } => tracing::info!(
            event = "wave_completed", binding = %key.binding, scope = %key.scope,
            wave_target = wave.target.get(), flush_generation = wave.claimed.get(),
            supervisor_generation = term, "wave completed"
        ),
        Notice::WindowFailed(setback) => {
            let fields = Fields::of(setback);
            tracing::warn!(
                event = "window_failed", binding = %setback.key.binding, scope = %setback.key.scope,
                source_after = setback.source_after.get(), source_through = fields.through,
                wave_target = setback.wave.target.get(), stage = fields.stage, error_code = fields.code,
                failure_count = setback.failures, retry_delay_ms = fields.delay,
                supervisor_generation = term, worker_id = fields.worker,
                "window failed"
            );
        }
        Notice::WindowConflict(setback) => {
            let fields = Fields::of(setback);
            tracing::info!(
                event = "window_conflict", binding = %setback.key.binding, scope = %setback.key.scope,
                source_after = setback.source_after.get(), source_through = fields.through,
                wave_target = setback.wave.target.get(), stage = fields.stage, error_code = fields.code,
                failure_count = setback.failures, retry_delay_ms = fields.delay,
                supervisor_generation = term, worker_id = fields.worker,
                "window superseded"
            );
        }
        Notice::WorkerTimedOut { key, worker } => tracing::warn!(
            event = "worker_timed_out", binding = %key.binding, scope = %key.scope,
            supervisor_generation = term, worker_id = %worker, "worker ran too long and is stopped"
        ),
        Notice::FrontierTerminal { key, source_after, source_through } => tracing::error!(
            event = "frontier_terminal", binding = %key.binding, scope = %key.scope,
            source_after = source_after.get(), source_through = source_through.get(),
            supervisor_generation = term, "frontier is closed until an operator repairs it"
        ),
        Notice::UnknownEnding { worker } => tracing::debug!(
            event = "unknown_ending", supervisor_generation = term, worker_id = %worker,
            "an unknown worker ended"
        ),
    }
}

struct Fields {
    code: &'static str,
    stage: &'static str,
    through: Option<i64>,
    delay: u64,
    worker: String,
}

impl Fields {
    fn of(setback: &Setback) -> Self {
        let outcome = setback.outcome.as_ref();
        Self {
            code: match setback.reason {
                FailureReason::Code(code) => code.as_str(),
                FailureReason::NoProgress => "no_progress",
            },
            stage: outcome.map_or("", |outcome| outcome.step.as_str()),
            through: outcome.and_then(|outcome| outcome.window).map(|window| window.through.get()),
            delay: u64::try_from(setback.delay.as_millis()).unwrap_or(u64::MAX),
            worker: setback.worker.as_ref().map_or_else(String::new, ToString::to_string),
        }
    }
}
