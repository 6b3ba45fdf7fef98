//! One term: read, decide, act, record, until the term is lost or the process is to end.
//!
//! Nothing here decides which key runs; nothing here keeps facts. Before every command that
//! dispatches or writes, the lease is looked at once more by the process's own clock, and a lost
//! lease is noticed while anything is awaited. Writes for automatic waves run in a task of their own, so
//! that a long freeze delays no explicit work, and so that one that holds a connection goes on whatever
//! the loop awaits: a loop that waited for that connection would wait for itself.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use powercontext_core::ambient::{Clock, IdSource};
use powercontext_core::failure::chain;
use powercontext_core::ids::WaveId;
use powercontext_core::work::{ErrorCode, Fence, WorkAssignment};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Interval, sleep, timeout};

use crate::decide::{Command, Decider, Decision, Event, Now, WaveAnswer, WaveCall};
use crate::facts::{DurableFacts, FactsError};
use crate::keeper::Standing;
use crate::launcher::Launcher;
use crate::lease::Loss;
use crate::log;
use crate::outage::Outage;
use crate::status::{Phase, SupervisorStatus, WaveStatus};

/// The most ticks between two tries while the database fails.
const LONGEST_PAUSE: u32 = 5;

/// Why a term ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The process is to end.
    Shutdown,
    /// The term is lost.
    Lost(Loss),
}

/// Why the loop could not go on as planned.
#[derive(Debug)]
pub enum Trouble {
    /// The term ends.
    End(End),
    /// The database failed.
    Database(FactsError),
}

impl From<FactsError> for Trouble {
    fn from(error: FactsError) -> Self {
        match error {
            FactsError::TermLost => Self::End(End::Lost(Loss::Refused)),
            error @ FactsError::Database(_) => Self::Database(error),
        }
    }
}

/// Tells when a term ends.
pub struct Halt {
    /// The term.
    pub fence: Fence,
    /// Whether a shutdown was asked for; a closed channel means yes.
    pub asked: watch::Receiver<bool>,
    /// Where the process stands.
    pub standing: watch::Receiver<Standing>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Halt {
    /// How long the term may be used from now on.
    fn left(&self) -> Result<Duration, End> {
        let until = match &*self.standing.borrow() {
            Standing::Leading { fence, until } if *fence == self.fence => *until,
            _ => return Err(End::Lost(Loss::Expired)),
        };
        match until.saturating_sub(self.clock.monotonic()) {
            Duration::ZERO => Err(End::Lost(Loss::Expired)),
            left => Ok(left),
        }
    }

    /// Waits for the end of the term.
    async fn ended(&mut self) -> End {
        loop {
            let left = match self.left() {
                Ok(left) => left,
                Err(end) => return end,
            };
            tokio::select! {
                biased;
                _ = self.asked.wait_for(|asked| *asked) => return End::Shutdown,
                changed = self.standing.changed() => if changed.is_err() {
                    return End::Lost(Loss::Expired);
                },
                () = sleep(left) => {}
            }
        }
    }

    /// Does a call of the database, and abandons it when the term ends.
    async fn during<T>(&mut self, call: impl Future<Output = Result<T, FactsError>>) -> Result<T, Trouble> {
        tokio::select! {
            biased;
            end = self.ended() => Err(Trouble::End(end)),
            answer = call => Ok(answer?),
        }
    }
}

/// One term of one supervisor.
pub struct Term {
    /// The database.
    pub facts: Arc<dyn DurableFacts>,
    /// Where workers run.
    pub launcher: Arc<dyn Launcher>,
    /// Identities and jitter.
    pub ids: Arc<dyn IdSource>,
    /// When the term ends.
    pub halt: Halt,
    /// The decisions.
    pub decider: Decider,
    /// Told after every step.
    pub status: Arc<watch::Sender<SupervisorStatus>>,
    /// A flush was recorded.
    pub wake: Arc<Notify>,
}

impl Term {
    /// Dispatches until the term ends.
    pub async fn lead(&mut self, ticks: &mut Interval) -> End {
        let mut reads = Pause::default();
        let mut waves = WaveSlot::default();
        let mut outage = Outage::default();
        loop {
            if reads.is_over() {
                match self.work(&mut waves).await {
                    Ok(()) => {
                        reads = Pause::default();
                        outage.over();
                        self.report(Phase::Running);
                    }
                    Err(Trouble::End(end)) => return end,
                    Err(Trouble::Database(error)) => {
                        reads.fail();
                        outage.failed(&error, self.now().at);
                        self.report(Phase::DatabaseUnavailable);
                    }
                }
            }
            let event = tokio::select! {
                biased;
                end = self.halt.ended() => return end,
                _ = ticks.tick() => Event::Tick,
                (worker, ending) = self.launcher.next_ending() => Event::Ended { worker, ending },
                answer = waves.answer() => match answer.map_err(Trouble::from) {
                    Ok(answer) => Event::Wave(answer),
                    Err(Trouble::End(end)) => return end,
                    Err(Trouble::Database(error)) => {
                        waves.outage.failed(&error, self.now().at);
                        self.report(Phase::DatabaseUnavailable);
                        continue;
                    }
                },
                () = self.wake.notified() => Event::Wake,
            };
            if event == Event::Tick {
                reads.tick();
                waves.pause.tick();
            }
            match self.learn(event, reads.is_over()).await {
                Ok(()) => {}
                Err(Trouble::End(end)) => return end,
                Err(Trouble::Database(error)) => {
                    outage.failed(&error, self.now().at);
                    self.report(Phase::DatabaseUnavailable);
                }
            }
        }
    }

    /// Takes an event in, and looks at the term when there is reason to.
    async fn learn(&mut self, event: Event, may_read: bool) -> Result<(), Trouble> {
        let fenced =
            matches!(&event, Event::Ended { ending, .. } if ending.error_code() == Some(ErrorCode::Fenced));
        let look = fenced || (event == Event::Tick && may_read);
        let decision = self.decider.handle(event, self.now());
        let mut result = self.act(decision).await;
        if look && !matches!(result, Err(Trouble::End(_))) {
            let looked = self.look().await;
            result = result.and(looked);
        }
        result
    }

    /// Whether the database still names this term.
    async fn look(&mut self) -> Result<(), Trouble> {
        match self.halt.during(self.facts.current_term()).await? {
            Some(current) if current == self.halt.fence => Ok(()),
            _ => Err(Trouble::End(End::Lost(Loss::Refused))),
        }
    }

    /// Reads what is due and acts on it until nothing is due. Every read is handled before anything
    /// else is, so that it is as new as what is known already; the writes of automatic waves, which may
    /// take long, are left under way.
    async fn work(&mut self, waves: &mut WaveSlot) -> Result<(), Trouble> {
        loop {
            for key in self.decider.unread() {
                let fact = self.halt.during(self.facts.observe(&key)).await?;
                let decision = self.decider.handle(Event::Observed { key, fact }, self.now());
                self.act(decision).await?;
            }
            let decision = self.decider.dispatch(self.now());
            self.act(decision).await?;
            let event = if let Some(request) = self.decider.wanted_page() {
                Event::Page(self.halt.during(self.facts.page(request.after.as_ref(), request.limit)).await?)
            } else if let Some(call) = self.wave_call(waves) {
                self.halt.left().map_err(Trouble::End)?;
                let reads = call.is_read();
                let call = make(Arc::clone(&self.facts), self.halt.fence.clone(), call);
                if !reads {
                    waves.call.spawn(call);
                    return Ok(());
                }
                Event::Wave(self.halt.during(call).await?)
            } else {
                return Ok(());
            };
            let decision = self.decider.handle(event, self.now());
            self.act(decision).await?;
        }
    }

    /// The next call for the automatic waves, unless one is under way or a failed one rests.
    fn wave_call(&mut self, waves: &WaveSlot) -> Option<WaveCall> {
        if !waves.call.is_empty() || !waves.pause.is_over() {
            return None;
        }
        let ids = Arc::clone(&self.ids);
        self.decider.wave_call(self.now(), &mut || WaveId::generate(ids.as_ref()))
    }

    /// Tells the notices and does the commands. A launch that fails is reported, not returned; when
    /// a settlement fails, the remaining commands are still done.
    async fn act(&mut self, decision: Decision) -> Result<(), Trouble> {
        let mut result = Ok(());
        let mut open = vec![decision];
        while let Some(decision) = open.pop() {
            for notice in &decision.notices {
                log::tell(notice, self.halt.fence.generation);
            }
            for command in decision.commands {
                match command {
                    Command::Stop { worker } => self.launcher.stop(&worker).await,
                    Command::Settle { key } => {
                        self.halt.left().map_err(Trouble::End)?;
                        let fence = self.halt.fence.clone();
                        match self.halt.during(self.facts.settle(&fence, &key)).await {
                            Err(Trouble::End(end)) => return Err(Trouble::End(end)),
                            settled => result = result.and(settled),
                        }
                    }
                    Command::Launch { key, source_after, wave_target, claimed_flush_generation, mode } => {
                        self.halt.left().map_err(Trouble::End)?;
                        let fence = self.halt.fence.clone();
                        let assignment = WorkAssignment {
                            key,
                            fence,
                            source_after,
                            wave_target,
                            claimed_flush_generation,
                            mode,
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

    /// Stops every worker and waits for the endings, all of it for at most `patience`.
    pub async fn close(&mut self, patience: Duration) {
        let closing = self.decider.handle(Event::Close, self.now());
        let stopping = async {
            for command in closing.commands {
                if let Command::Stop { worker } = command {
                    self.launcher.stop(&worker).await;
                }
            }
            while self.decider.alive() > 0 {
                let (worker, ending) = self.launcher.next_ending().await;
                let now = now(self.halt.clock.as_ref(), self.ids.as_ref());
                self.decider.handle(Event::Ended { worker, ending }, now);
            }
        };
        if timeout(patience, stopping).await.is_err() {
            tracing::warn!(event = "workers_left", "workers did not end in time");
        }
    }

    fn now(&self) -> Now {
        now(self.halt.clock.as_ref(), self.ids.as_ref())
    }

    fn report(&self, phase: Phase) {
        let now = self.halt.clock.monotonic();
        let waves = self.decider.open_waves().into_iter().map(|open| WaveStatus::of(open, now)).collect();
        self.status.send_replace(SupervisorStatus {
            phase,
            term: Some(self.halt.fence.generation),
            footprint: self.decider.footprint(),
            last_round: self.decider.last_round(),
            waves,
        });
    }
}

fn now(clock: &dyn Clock, ids: &dyn IdSource) -> Now {
    Now { at: clock.monotonic(), random: ids.random().as_u64_pair().1 }
}

/// Ticks to wait after calls of the database that failed.
#[derive(Debug, Default)]
struct Pause {
    failures: u32,
    ticks: u32,
}

impl Pause {
    fn is_over(&self) -> bool {
        self.ticks == 0
    }

    fn tick(&mut self) {
        self.ticks = self.ticks.saturating_sub(1);
    }

    fn fail(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.ticks = self.failures.min(LONGEST_PAUSE);
    }
}

/// The write for automatic waves that is under way, at most one; abandoned when this is dropped.
#[derive(Default)]
struct WaveSlot {
    call: JoinSet<Result<WaveAnswer, FactsError>>,
    pause: Pause,
    outage: Outage,
}

impl WaveSlot {
    /// Waits for the answer; forever when nothing was asked.
    async fn answer(&mut self) -> Result<WaveAnswer, FactsError> {
        let Some(joined) = self.call.join_next().await else { return std::future::pending().await };
        let answer = joined.unwrap_or_else(|failed| Err(FactsError::Database(Box::new(failed))));
        match answer {
            Ok(_) => {
                self.pause = Pause::default();
                self.outage.over();
            }
            Err(_) => self.pause.fail(),
        }
        answer
    }
}

async fn make(facts: Arc<dyn DurableFacts>, fence: Fence, call: WaveCall) -> Result<WaveAnswer, FactsError> {
    Ok(match call {
        WaveCall::Clear => {
            facts.clear_waves(&fence).await?;
            WaveAnswer::Cleared
        }
        WaveCall::Freeze { wave, interval } => {
            let freeze = facts.freeze_wave(&fence, &wave, interval).await?;
            WaveAnswer::Frozen { wave, freeze }
        }
        WaveCall::Targets { wave, after, limit } => {
            let page = facts.wave_targets(&wave, after.as_ref(), limit).await?;
            WaveAnswer::Targets { wave, after, facts: page }
        }
        WaveCall::MarkCovered { wave, scopes } => {
            facts.mark_covered(&fence, &wave, &scopes).await?;
            WaveAnswer::Marked { wave }
        }
        WaveCall::Complete { wave } => {
            let completion = facts.complete_wave(&fence, &wave).await?;
            WaveAnswer::Completed { wave, completion }
        }
        WaveCall::Late { wave, after, limit } => {
            let page = facts.late_page(&wave, after.as_ref(), limit).await?;
            WaveAnswer::Late { wave, after, facts: page }
        }
    })
}
