//! A supervisor from its start to its end: term after term, each of which begins with nothing in
//! memory (TM-189).
//!
//! What happens in a term is in `term`; how terms are won and lost in `lease` and `keeper`. A
//! database that fails pauses the supervisor and never ends it. Losing an elected term makes it a
//! candidate again; losing an embedded term or a shutdown ends it.

use std::sync::Arc;
use std::time::Duration;

use powercontext_core::ambient::{Clock, IdSource};
use powercontext_core::ids::HolderId;
use powercontext_core::work::Fence;
use powercontext_store::Store;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::decide::Decider;
use crate::facts::DurableFacts;
use crate::keeper::{Keeper, Standing};
use crate::launcher::Launcher;
use crate::settings::SupervisorSettings;
use crate::status::{Phase, SupervisorStatus};
use crate::term::{End, Halt, Term};

/// How long a closing supervisor waits for its workers before it drops them.
const CLOSING_PATIENCE: Duration = Duration::from_secs(10);
/// How long a supervisor that lost its term waits for its workers before it goes on without them.
const STEPPING_DOWN_PATIENCE: Duration = Duration::from_secs(2);
/// How long a closing supervisor waits until its lease is given back.
const RELEASE_PATIENCE: Duration = Duration::from_secs(3);

/// What a supervisor works with.
pub struct SupervisorParts {
    /// The database.
    pub store: Store,
    /// Where workers run.
    pub launcher: Arc<dyn Launcher>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Identities and jitter.
    pub ids: Arc<dyn IdSource>,
    /// Limits and periods.
    pub settings: SupervisorSettings,
}

/// Starts supervisors.
#[derive(Debug)]
pub struct Supervisor;

impl Supervisor {
    /// Starts a supervisor: with a new embedded term, or as a candidate on a shared database. Must be
    /// called inside a runtime.
    #[must_use]
    pub fn start(parts: SupervisorParts) -> SupervisorHandle {
        let SupervisorParts { store, launcher, clock, ids, settings } = parts;
        Self::start_on(Arc::new(store), launcher, (clock, ids), settings)
    }

    /// The same over any durable facts.
    #[must_use]
    pub fn start_on(
        facts: Arc<dyn DurableFacts>,
        launcher: Arc<dyn Launcher>,
        ambient: (Arc<dyn Clock>, Arc<dyn IdSource>),
        settings: SupervisorSettings,
    ) -> SupervisorHandle {
        let (clock, ids) = ambient;
        let (status, seen) = watch::channel(SupervisorStatus::default());
        let wake = Arc::new(Notify::new());
        let (shutdown, asked) = watch::channel(false);
        let wakes = Arc::clone(&wake);
        let mut ticks = interval(settings.tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let status = Arc::new(status);
        let running = Running { facts, launcher, clock, ids, settings, status, wake: wakes, asked };
        SupervisorHandle { wake, status: seen, shutdown, task: tokio::spawn(running.run(ticks)) }
    }
}

/// Speaks to a running supervisor. Dropping it shuts the supervisor down in the background.
#[derive(Debug)]
pub struct SupervisorHandle {
    wake: Arc<Notify>,
    status: watch::Receiver<SupervisorStatus>,
    shutdown: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl SupervisorHandle {
    /// Says that a flush was recorded. Cheap, and any number of calls may become one look.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Whether the supervisor holds a term or tries to get one; `false` once it has ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let phase = self.status().phase;
        !self.task.is_finished() && !matches!(phase, Phase::TermLost | Phase::Stopped)
    }

    /// Where the supervisor stands.
    #[must_use]
    pub fn status(&self) -> SupervisorStatus {
        self.status.borrow().clone()
    }

    /// Stops dispatching, gives the lease back, stops the workers and waits for all of it.
    pub async fn shutdown(self) {
        // A closed channel means that the loop has ended already.
        let _ = self.shutdown.send(true);
        if let Err(error) = self.task.await {
            tracing::error!(event = "supervisor_failed", %error, "the supervisor loop ended early");
        }
    }
}

struct Running {
    facts: Arc<dyn DurableFacts>,
    launcher: Arc<dyn Launcher>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    settings: SupervisorSettings,
    status: Arc<watch::Sender<SupervisorStatus>>,
    wake: Arc<Notify>,
    asked: watch::Receiver<bool>,
}

impl Running {
    async fn run(mut self, mut ticks: Interval) {
        // A UUID is never too long for a holder.
        let Ok(holder) = HolderId::parse(self.ids.random().to_string()) else { return };
        let ambient = (Arc::clone(&self.clock), Arc::clone(&self.ids));
        let elected = self.facts.is_shared();
        let keeper = Keeper::start(Arc::clone(&self.facts), ambient, holder, &self.settings);
        let mut standing = keeper.standing();
        let mut last = None;
        while let Some(fence) = self.wait_for_term(&mut standing, last.as_ref()).await {
            let generation = fence.generation.get();
            tracing::info!(event = "term_started", supervisor_generation = generation, holder = %fence.holder, "term started");
            let mut term = self.term(fence.clone(), standing.clone());
            match term.lead(&mut ticks).await {
                End::Shutdown => {
                    // First, so that a follower waits for no worker.
                    keeper.resign(RELEASE_PATIENCE).await;
                    term.close(CLOSING_PATIENCE).await;
                    tracing::info!(
                        event = "supervisor_stopped",
                        supervisor_generation = generation,
                        "stopped"
                    );
                    return self.report(Phase::Stopped);
                }
                End::Lost(_) if !elected => {
                    term.close(CLOSING_PATIENCE).await;
                    tracing::error!(
                        event = "term_lost",
                        supervisor_generation = generation,
                        "another supervisor leads"
                    );
                    return self.report(Phase::TermLost);
                }
                End::Lost(loss) => {
                    keeper.step_down(&fence, loss);
                    self.report(Phase::Candidate);
                    term.close(STEPPING_DOWN_PATIENCE).await;
                    last = Some(fence);
                }
            }
        }
        keeper.resign(RELEASE_PATIENCE).await;
        self.report(Phase::Stopped);
    }

    /// Waits for a term that was not led yet; `None` when the process is to end first.
    async fn wait_for_term(
        &mut self,
        standing: &mut watch::Receiver<Standing>,
        last: Option<&Fence>,
    ) -> Option<Fence> {
        loop {
            let phase = match &*standing.borrow_and_update() {
                Standing::Leading { fence, .. } if Some(fence) != last => return Some(fence.clone()),
                Standing::Starting => Phase::Starting,
                Standing::Unavailable => Phase::DatabaseUnavailable,
                Standing::Candidate | Standing::Leading { .. } => Phase::Candidate,
                Standing::Over => return None,
            };
            self.report(phase);
            tokio::select! {
                biased;
                _ = self.asked.wait_for(|asked| *asked) => return None,
                changed = standing.changed() => changed.ok()?,
            }
        }
    }

    fn term(&self, fence: Fence, standing: watch::Receiver<Standing>) -> Term {
        let (asked, clock) = (self.asked.clone(), Arc::clone(&self.clock));
        Term {
            facts: Arc::clone(&self.facts),
            launcher: Arc::clone(&self.launcher),
            ids: Arc::clone(&self.ids),
            halt: Halt { fence, asked, standing, clock },
            decider: Decider::new(self.settings.clone()),
            status: Arc::clone(&self.status),
            wake: Arc::clone(&self.wake),
        }
    }

    fn report(&self, phase: Phase) {
        self.status.send_replace(SupervisorStatus { phase, ..SupervisorStatus::default() });
    }
}
