//! The order of the steps, and what is left behind when one of them fails.
//!
//! A failure is recorded in the budget row and logged once; Cursor, Pending and Heads stay as they
//! are (TM-221). A worker that lost its right to write records nothing (TM-225). The rules of each
//! step are in its own module.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::OnceLock;

use powercontext_core::failure::chain;
use powercontext_core::work::{ErrorCode, Outcome, Step, WorkAssignment};
use powercontext_store::budgets;

use crate::attempt::{self, Attempt};
use crate::evidence::EvidenceSet;
use crate::failure::WindowError;
use crate::generation::Asker;
use crate::global::{self, Plan};
use crate::progress::Progress;
use crate::{WorkerParts, history, probe, project, publish, reconcile, select, start};

/// Logs an event of a run with the fields that the supervisor's log has too (TM-227).
macro_rules! tell {
    ($run:expr, $level:ident, $event:literal $(, $($field:tt)+)?) => {{
        let (source_after, source_through) = $run.range();
        tracing::$level!(
            event = $event,
            binding = %$run.assignment.key.binding,
            scope = %$run.assignment.key.scope,
            supervisor_generation = $run.assignment.fence.generation.get(),
            attempt = $run.attempt_id(),
            source_after,
            source_through
            $(, $($field)+)?
        )
    }};
}

/// Works on one Window and says how it ended.
pub async fn run(assignment: WorkAssignment, parts: WorkerParts) -> Outcome {
    run_until(assignment, parts, pending()).await
}

/// Works on one Window until `stop` resolves.
///
/// A stopped run ends `terminated` and publishes nothing; a short budget transaction that the
/// database already has may still commit, which only counts what is never given back (TM-064). The
/// publish step is not interrupted: its transaction may be committing, so it is finished and its own
/// outcome is told.
pub async fn run_until(
    assignment: WorkAssignment,
    parts: WorkerParts,
    stop: impl Future<Output = ()>,
) -> Outcome {
    let run = Run {
        progress: Progress::begin(parts.clock.clone(), parts.observer.clone()),
        assignment,
        parts,
        attempt: OnceLock::new(),
    };
    let mut outcome = pin!(run.to_outcome());
    tokio::select! {
        biased;
        () = stop => {}
        outcome = &mut outcome => return outcome,
    }
    if run.progress.step() == Step::Publish {
        return outcome.await;
    }
    run.log_terminated();
    run.progress.outcome(Some(ErrorCode::Terminated))
}

struct Run {
    assignment: WorkAssignment,
    parts: WorkerParts,
    progress: Progress,
    /// Known once it is committed.
    attempt: OnceLock<Attempt>,
}

impl Run {
    async fn to_outcome(&self) -> Outcome {
        match self.window().await {
            Ok(()) => {
                self.log_done();
                self.progress.outcome(None)
            }
            Err(error) => {
                self.log_failure(&error);
                self.record(&error).await;
                self.progress.outcome(Some(error.code()))
            }
        }
    }

    async fn window(&self) -> Result<(), WindowError> {
        let (parts, assignment) = (&self.parts, &self.assignment);
        let frontier = start::check(&parts.store, assignment, &self.progress).await?;
        self.progress.finish();
        if assignment.source_after >= assignment.wave_target {
            return Ok(());
        }
        self.progress.enter(Step::Attempt);
        let started = attempt::start(&parts.store, assignment, frontier, parts.ids.as_ref()).await?;
        let attempt = self.attempt.get_or_init(|| started);
        self.progress.finish();

        self.progress.enter(Step::Select);
        let chosen = select::next_window(&parts.store, assignment, &parts.settings).await?;
        let Some(chosen) = chosen else {
            // The wave target promises Sources up to itself (TM-166).
            return Err(ErrorCode::DataInvalid.into());
        };
        self.progress.window(chosen.window, chosen.sources.len());
        self.progress.finish();

        self.progress.enter(Step::Evidence);
        let evidence = EvidenceSet::new(chosen.sources);
        self.progress.finish();

        let plan = if evidence.is_empty() { Plan::default() } else { self.plan(attempt, &evidence).await? };
        if plan == Plan::default() {
            self.log_no_change();
        }

        self.progress.enter(Step::Project);
        let operations = project::operations(plan, &evidence, parts.ids.as_ref())?;
        self.progress.finish();

        self.progress.enter(Step::Publish);
        let fence = attempt.fence.clone();
        let published = publish::commit(&parts.store, assignment, fence, chosen.window, operations).await?;
        self.progress.published(published.created.len(), published.updated.len());
        self.progress.finish();
        Ok(())
    }

    /// Asks the model what the Window means for the Scope's Topics.
    async fn plan(&self, attempt: &Attempt, evidence: &EvidenceSet) -> Result<Plan, WindowError> {
        let (store, settings) = (&self.parts.store, &self.parts.settings);
        let scope = &self.assignment.key.scope;
        let asker = Asker {
            generator: self.parts.generator.as_ref(),
            store,
            attempt: &attempt.fence,
            settings,
            progress: &self.progress,
        };
        self.progress.enter(Step::Probe);
        let probes = probe::ask(&asker, evidence).await?;
        self.progress.finish();
        if probes.is_empty() {
            return Ok(Plan::default());
        }
        self.progress.enter(Step::History);
        let history = history::select(store, scope, &probes, settings).await?;
        self.progress.finish();

        self.progress.enter(Step::Global);
        let plan = global::ask(&asker, evidence, &history).await?;
        self.progress.finish();

        self.progress.enter(Step::Reconcile);
        let plan = reconcile::run(&asker, scope, history, plan).await?;
        self.progress.finish();
        Ok(plan)
    }

    /// Keeps the code in the budget row; if even that fails, the attempt stays counted.
    async fn record(&self, error: &WindowError) {
        let Some(attempt) = self.attempt.get().filter(|_| error.is_recorded()) else { return };
        match budgets::record_failure(&self.parts.store, &attempt.fence, error.code()).await {
            Ok(true) => {}
            Ok(false) => tell!(self, warn, "worker_failure_outdated"),
            Err(failed) => tell!(
                self,
                error,
                "worker_failure_unrecorded",
                error_code = failed.code().as_str(),
                error = %chain(&failed)
            ),
        }
    }

    fn log_done(&self) {
        let counts = self.progress.outcome(None).counts;
        tell!(
            self,
            info,
            "worker_done",
            sources = counts.sources,
            created = counts.created,
            updated = counts.updated,
            requests = counts.requests
        );
    }

    fn log_no_change(&self) {
        tell!(self, info, "worker_no_change", reason = "no_change");
    }

    /// No attempt of the frontier has published, so their number is the number of failures.
    fn log_failure(&self, error: &WindowError) {
        let code = error.code();
        tell!(
            self,
            error,
            "worker_failed",
            holder = %self.assignment.fence.holder,
            failure_count = self.attempt.get().map(|attempt| attempt.number),
            wave_target = self.assignment.wave_target.get(),
            stage = self.progress.step().as_str(),
            error_code = code.as_str(),
            ending = code.ending().as_str(),
            error = %chain(error)
        );
    }

    fn log_terminated(&self) {
        let error_code = ErrorCode::Terminated.as_str();
        tell!(self, warn, "worker_terminated", stage = self.progress.step().as_str(), error_code);
    }

    fn attempt_id(&self) -> Option<&str> {
        self.attempt.get().map(|attempt| attempt.fence.attempt_id.as_str())
    }

    fn range(&self) -> (i64, Option<i64>) {
        let through = self.progress.chosen_window().map(|window| window.through.get());
        (self.assignment.source_after.get(), through)
    }
}
