//! The loop around the decisions: read, decide, act, record.
//!
//! One task per term. Nothing here decides which key runs; nothing here keeps facts. A database
//! that fails pauses the loop and never ends it; losing the term or a shutdown ends it.

use std::sync::Arc;

use powercontext_core::ambient::{Clock, IdSource};
use powercontext_core::failure::chain;
use powercontext_core::ids::HolderId;
use powercontext_core::work::{ErrorCode, Fence, WorkAssignment};
use powercontext_store::Store;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use crate::decide::{Command, Decider, Decision, Event, Footprint, Now};
use crate::facts::{DurableFacts, FactsError};
use crate::launcher::Launcher;
use crate::log;
use crate::rotation::Tally;
use crate::settings::SupervisorSettings;

/// How long a closing supervisor waits for its workers before it drops them.
const CLOSING_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
/// The most ticks between two tries while the database fails.
const LONGEST_PAUSE: u32 = 5;

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

/// Where a supervisor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No term yet.
    Starting,
    /// Dispatching.
    Running,
    /// The database fails; tried again at every tick.
    DatabaseUnavailable,
    /// Another supervisor began a term; nothing is dispatched any more.
    TermLost,
    /// Shut down.
    Stopped,
}

/// A look at a supervisor from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupervisorStatus {
    /// Where it stands.
    pub phase: Phase,
    /// What it holds in memory.
    pub footprint: Footprint,
    /// What the last round over all Pending rows met; terminal frontiers stay visible here.
    pub last_round: Tally,
}

/// Starts supervisors.
#[derive(Debug)]
pub struct Supervisor;

impl Supervisor {
    /// Starts a supervisor, and with it a new embedded term. Must be called inside a runtime.
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
        let decider = Decider::new(settings.clone());
        let (status, seen) = watch::channel(SupervisorStatus {
            phase: Phase::Starting,
            footprint: decider.footprint(),
            last_round: decider.last_round(),
        });
        let wake = Arc::new(Notify::new());
        let (shutdown, asked) = oneshot::channel();
        let running = Running { facts, launcher, clock, ids, decider, status, wake: Arc::clone(&wake) };
        let mut ticks = interval(settings.tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        SupervisorHandle { wake, status: seen, shutdown, task: tokio::spawn(running.run(ticks, asked)) }
    }
}

/// Speaks to a running supervisor. Dropping it shuts the supervisor down in the background.
#[derive(Debug)]
pub struct SupervisorHandle {
    wake: Arc<Notify>,
    status: watch::Receiver<SupervisorStatus>,
    shutdown: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl SupervisorHandle {
    /// Says that a flush was recorded. Cheap, and any number of calls may become one look.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Whether the supervisor holds a term or tries to get its first; `false` once it has ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let phase = self.status().phase;
        !self.task.is_finished() && !matches!(phase, Phase::TermLost | Phase::Stopped)
    }

    /// Where the supervisor stands.
    #[must_use]
    pub fn status(&self) -> SupervisorStatus {
        *self.status.borrow()
    }

    /// Stops dispatching, stops the workers and waits for both.
    pub async fn shutdown(self) {
        // A closed channel means that the loop has ended already.
        let _ = self.shutdown.send(());
        if let Err(error) = self.task.await {
            tracing::error!(event = "supervisor_failed", %error, "the supervisor loop ended early");
        }
    }
}

/// Why the loop ends.
enum End {
    Shutdown,
    TermLost,
}

struct Running {
    facts: Arc<dyn DurableFacts>,
    launcher: Arc<dyn Launcher>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    decider: Decider,
    status: watch::Sender<SupervisorStatus>,
    wake: Arc<Notify>,
}

impl Running {
    async fn run(mut self, mut ticks: Interval, mut asked: oneshot::Receiver<()>) {
        let fence = tokio::select! {
            fence = self.begin(&mut ticks) => fence,
            _ = &mut asked => None,
        };
        let Some(fence) = fence else {
            self.report(Phase::Stopped);
            return;
        };
        let generation = fence.generation.get();
        tracing::info!(event = "term_started", supervisor_generation = generation, holder = %fence.holder, "term started");
        let end = self.lead(&fence, ticks, asked).await;
        self.close(&fence).await;
        match end {
            End::Shutdown => {
                tracing::info!(event = "supervisor_stopped", supervisor_generation = generation, "stopped");
                self.report(Phase::Stopped);
            }
            End::TermLost => {
                tracing::error!(
                    event = "term_lost",
                    supervisor_generation = generation,
                    "another supervisor leads"
                );
                self.report(Phase::TermLost);
            }
        }
    }

    /// Begins the term, as often as it takes.
    async fn begin(&self, ticks: &mut Interval) -> Option<Fence> {
        let holder = HolderId::parse(self.ids.random().to_string()).ok()?;
        loop {
            ticks.tick().await;
            match self.facts.begin_term(&holder).await {
                Ok(generation) => return Some(Fence { holder, generation }),
                Err(error) => self.unavailable(&error),
            }
        }
    }

    async fn lead(&mut self, fence: &Fence, mut ticks: Interval, mut asked: oneshot::Receiver<()>) -> End {
        let mut failures: u32 = 0;
        let mut pause: u32 = 0;
        loop {
            if pause == 0 {
                match self.work(fence).await {
                    Ok(()) => {
                        failures = 0;
                        self.report(Phase::Running);
                    }
                    Err(FactsError::TermLost) => return End::TermLost,
                    Err(error) => {
                        failures = failures.saturating_add(1);
                        pause = failures.min(LONGEST_PAUSE);
                        self.unavailable(&error);
                    }
                }
            }
            let event = tokio::select! {
                biased;
                _ = &mut asked => return End::Shutdown,
                _ = ticks.tick() => Event::Tick,
                (worker, ending) = self.launcher.next_ending() => Event::Ended { worker, ending },
                () = self.wake.notified() => Event::Wake,
            };
            let tick = event == Event::Tick;
            let fenced = matches!(&event, Event::Ended { ending, .. } if ending.error_code() == Some(ErrorCode::Fenced));
            if tick {
                pause = pause.saturating_sub(1);
            }
            let decision = self.decider.handle(event, self.now());
            match self.act(decision, fence).await {
                Ok(()) => {}
                Err(FactsError::TermLost) => return End::TermLost,
                Err(error) => self.unavailable(&error),
            }
            if (tick && pause == 0) || fenced {
                match self.facts.current_term().await {
                    Ok(Some(current)) if current == *fence => {}
                    Ok(_) => return End::TermLost,
                    Err(error) => self.unavailable(&error),
                }
            }
        }
    }

    /// Reads what is due and acts on it until nothing is due.
    async fn work(&mut self, fence: &Fence) -> Result<(), FactsError> {
        loop {
            for key in self.decider.unread() {
                let fact = self.facts.observe(&key).await?;
                let decision = self.decider.handle(Event::Observed { key, fact }, self.now());
                self.act(decision, fence).await?;
            }
            let decision = self.decider.dispatch(self.now());
            self.act(decision, fence).await?;
            let Some(request) = self.decider.wanted_page() else { return Ok(()) };
            let page = self.facts.page(request.after.as_ref(), request.limit).await?;
            let decision = self.decider.handle(Event::Page(page), self.now());
            self.act(decision, fence).await?;
        }
    }

    /// Tells the notices and does the commands. A launch that fails is reported, not returned; when
    /// a settlement fails, the remaining commands are still done.
    async fn act(&mut self, decision: Decision, fence: &Fence) -> Result<(), FactsError> {
        let mut result = Ok(());
        let mut open = vec![decision];
        while let Some(decision) = open.pop() {
            for notice in &decision.notices {
                log::tell(notice, fence.generation);
            }
            for command in decision.commands {
                match command {
                    Command::Stop { worker } => self.launcher.stop(&worker).await,
                    Command::Settle { key } => {
                        let settled = self.facts.settle(fence, &key).await;
                        // A lost term says more than whatever fails after it.
                        if !matches!(result, Err(FactsError::TermLost)) {
                            result = result.and(settled);
                        }
                    }
                    Command::Launch { key, source_after, wave_target, claimed_flush_generation } => {
                        let assignment = WorkAssignment {
                            key,
                            fence: fence.clone(),
                            source_after,
                            wave_target,
                            claimed_flush_generation,
                        };
                        open.push(self.launch(assignment).await);
                    }
                }
            }
        }
        result
    }

    async fn launch(&mut self, assignment: WorkAssignment) -> Decision {
        let event = match self.launcher.launch(&assignment).await {
            Ok(worker) => Event::Launched { key: assignment.key, worker },
            Err(error) => Event::LaunchFailed { key: assignment.key, cause: chain(&error) },
        };
        self.decider.handle(event, self.now())
    }

    /// Stops every worker and waits for the endings, for a while.
    async fn close(&mut self, fence: &Fence) {
        let decision = self.decider.handle(Event::Close, self.now());
        // Closing only stops workers, which cannot fail.
        let _ = self.act(decision, fence).await;
        let endings = async {
            while self.decider.alive() > 0 {
                let (worker, ending) = self.launcher.next_ending().await;
                self.decider.handle(Event::Ended { worker, ending }, self.now());
            }
        };
        if timeout(CLOSING_PATIENCE, endings).await.is_err() {
            tracing::warn!(event = "workers_left", "workers did not end in time");
        }
    }

    fn now(&self) -> Now {
        now(self.clock.as_ref(), self.ids.as_ref())
    }

    fn unavailable(&self, error: &FactsError) {
        tracing::warn!(
            event = "database_unavailable",
            error = chain(error),
            "the supervisor waits for its database"
        );
        self.report(Phase::DatabaseUnavailable);
    }

    fn report(&self, phase: Phase) {
        let (footprint, last_round) = (self.decider.footprint(), self.decider.last_round());
        self.status.send_replace(SupervisorStatus { phase, footprint, last_round });
    }
}

fn now(clock: &dyn Clock, ids: &dyn IdSource) -> Now {
    Now { at: clock.monotonic(), random: ids.random().as_u64_pair().1 }
}
