//! Turns notices into log events with stable names and fields (TM-227, TM-228).
//!
//! Names, numbers and codes only. An event's name is its message and its `event` field.

use std::time::Duration;

use powercontext_core::ids::SupervisorGeneration;
use powercontext_core::work::OutcomeCounts;

use crate::auto::WaveNews;
use crate::facts::AutoWave;
use crate::launcher::WorkerId;
use crate::notice::{FailureReason, Notice, Setback};

/// Writes a setback; the level and the texts of a log event are fixed where it stands.
macro_rules! set_back {
    ($level:ident, $event:literal, $text:literal, $setback:expr, $term:expr) => {{
        let setback: &Setback = $setback;
        let outcome = setback.outcome.as_ref();
        tracing::event!(
            tracing::Level::$level,
            event = $event,
            binding = %setback.key.binding,
            scope = %setback.key.scope,
            source_after = setback.source_after.get(),
            source_through = outcome.and_then(|outcome| outcome.window).map(|window| window.through.get()),
            wave_target = setback.wave.target.get(),
            mode = setback.wave.mode.as_str(),
            stage = outcome.map_or("", |outcome| outcome.step.as_str()),
            error_code = code(setback.reason),
            error = setback.cause.as_deref(),
            failure_count = setback.failures,
            retry_delay_ms = setback.delay.map(millis),
            supervisor_generation = $term,
            worker_id = setback.worker.as_ref().map_or("", WorkerId::as_str),
            $text
        );
    }};
}

/// Writes one notice.
pub fn tell(notice: &Notice, term: SupervisorGeneration) {
    let term = term.get();
    match notice {
        Notice::WaveStarted { key, wave, source_after } => tracing::info!(
            event = "wave_started", binding = %key.binding, scope = %key.scope,
            source_after = source_after.get(), wave_target = wave.target.get(),
            flush_generation = wave.claimed.get(), mode = wave.mode.as_str(),
            supervisor_generation = term, "wave started"
        ),
        Notice::WindowPublished { key, window, wave, backlog, worker, outcome } => {
            let counts = outcome.as_ref().map_or_else(OutcomeCounts::default, |outcome| outcome.counts);
            tracing::info!(
                event = "window_published", binding = %key.binding, scope = %key.scope,
                source_after = window.after.get(), source_through = window.through.get(),
                wave_target = wave.target.get(), mode = wave.mode.as_str(), backlog, sources = counts.sources,
                created = counts.created, updated = counts.updated, requests = counts.requests,
                supervisor_generation = term, worker_id = %worker,
                "window published"
            );
        }
        Notice::WaveCompleted { key, wave } => tracing::info!(
            event = "wave_completed", binding = %key.binding, scope = %key.scope,
            wave_target = wave.target.get(), flush_generation = wave.claimed.get(),
            mode = wave.mode.as_str(), supervisor_generation = term, "wave completed"
        ),
        Notice::WindowFailed(setback) => set_back!(WARN, "window_failed", "window failed", setback, term),
        Notice::WindowConflict(setback) => {
            set_back!(INFO, "window_conflict", "window superseded", setback, term);
        }
        Notice::WorkerTimedOut { key, worker } => tracing::warn!(
            event = "worker_timed_out", binding = %key.binding, scope = %key.scope,
            supervisor_generation = term, worker_id = %worker, "worker ran too long and is stopped"
        ),
        Notice::FrontierTerminal { key, source_after, source_through, code } => tracing::error!(
            event = "frontier_terminal", binding = %key.binding, scope = %key.scope,
            source_after = source_after.get(), source_through = source_through.get(),
            error_code = code.as_str(), supervisor_generation = term,
            "frontier is closed until an operator repairs it"
        ),
        Notice::TerminalsUnlisted { told } => tracing::error!(
            event = "terminals_unlisted",
            told,
            supervisor_generation = term,
            "more frontiers are closed than are told one by one"
        ),
        Notice::AutoWave { wave, news } => tell_of_wave(wave, *news, term),
        Notice::UnknownEnding { worker } => tracing::debug!(
            event = "unknown_ending", supervisor_generation = term, worker_id = %worker,
            "an unknown worker ended"
        ),
    }
}

fn tell_of_wave(wave: &AutoWave, news: WaveNews, term: i64) {
    let (binding, id) = (&wave.binding, &wave.id);
    match news {
        WaveNews::Frozen { members } => tracing::info!(
            event = "auto_wave_started", %binding, wave_id = %id, members,
            supervisor_generation = term, "automatic wave started"
        ),
        WaveNews::Completed { removed } => tracing::info!(
            event = "auto_wave_completed", %binding, wave_id = %id, removed,
            supervisor_generation = term, "automatic wave completed"
        ),
        WaveNews::Gone => tracing::info!(
            event = "auto_wave_gone", %binding, wave_id = %id,
            supervisor_generation = term, "the automatic wave has no targets any more"
        ),
        WaveNews::HeldUp { round } => tracing::warn!(
            event = "auto_wave_held_up", %binding, wave_id = %id,
            uncovered = round.uncovered, terminal = round.terminal,
            supervisor_generation = term, "the automatic wave waits for scopes that cannot go on now"
        ),
    }
}

fn code(reason: FailureReason) -> &'static str {
    match reason {
        FailureReason::Code(code) => code.as_str(),
        FailureReason::NoProgress => "no_progress",
    }
}

fn millis(delay: Duration) -> u64 {
    u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)
}
