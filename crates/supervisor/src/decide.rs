//! Who may run, when, and how far: the pure heart of the supervisor.
//!
//! Facts, endings and the time come in; launches, stops and settlements go out. No I/O, no clock,
//! no runtime: the loop in `run` reads, asks, acts and reports back, and a simulation can do the
//! same from a seed. Progress is judged by durable facts alone: an ending only says that a worker
//! is gone and its key must be looked at. Memory depends on the settings, never on the backlog.

use powercontext_core::ambient::Monotonic;
use powercontext_core::ids::{FlushGeneration, Position, Window};
use powercontext_core::work::{Ending, ErrorCode, Outcome, WorkKey};

use crate::facts::PendingFact;
use crate::flight::{Flight, Flights, Landed, Phase};
use crate::launcher::{WorkerEnding, WorkerId};
use crate::notice::{FailureReason, Notice, Setback};
use crate::queue::{Ready, ReadyQueue};
use crate::retry::{Memory, Parking};
use crate::rotation::{PageRequest, Rotation, Tally};
use crate::settings::SupervisorSettings;
use crate::terminal::{News, TerminalLog};
use crate::wave::{Need, Wave};

/// The moment of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The monotonic time.
    pub at: Monotonic,
    /// A random number, for jitter alone.
    pub random: u64,
}

/// Something the supervisor learned.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A period has passed.
    Tick,
    /// Somebody flushed; no word of which key.
    Wake,
    /// The page asked for by [`Decider::wanted_page`].
    Page(Vec<PendingFact>),
    /// The launcher started the worker of a [`Command::Launch`].
    Launched {
        /// Whose worker.
        key: WorkKey,
        /// Which worker.
        worker: WorkerId,
    },
    /// The launcher could not start a worker.
    LaunchFailed {
        /// Whose worker.
        key: WorkKey,
        /// Why, in the launcher's words.
        cause: String,
    },
    /// A worker is gone.
    Ended {
        /// Which worker.
        worker: WorkerId,
        /// How it ended.
        ending: WorkerEnding,
    },
    /// The durable facts of a key in [`Decider::unread`]; absent when it has no Pending row.
    Observed {
        /// Whose facts.
        key: WorkKey,
        /// The facts.
        fact: Option<PendingFact>,
    },
    /// The term is lost or the process is to end: dispatch nothing more, stop everything.
    Close,
}

/// Something the loop must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Start one worker for one Window, then report `Launched` or `LaunchFailed`.
    Launch {
        /// Whose Window.
        key: WorkKey,
        /// The Cursor to start at.
        source_after: Position,
        /// The frozen end of the wave.
        wave_target: Position,
        /// The frozen flush generation of the wave.
        claimed_flush_generation: FlushGeneration,
    },
    /// Stop a worker.
    Stop {
        /// Which worker.
        worker: WorkerId,
    },
    /// Mark the flushes of a covered key as answered.
    Settle {
        /// Whose flushes.
        key: WorkKey,
    },
}

/// What follows from one event.
#[derive(Debug, Default)]
pub struct Decision {
    /// To be done, in order.
    pub commands: Vec<Command>,
    /// To be told.
    pub notices: Vec<Notice>,
}

/// How much the supervisor holds in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Keys that wait for a free worker.
    pub ready: usize,
    /// Runs under way.
    pub in_flight: usize,
    /// Keys remembered while they rest.
    pub parked: usize,
    /// Terminal frontiers that were told.
    pub terminal: usize,
}

/// The state of one term.
#[derive(Debug)]
pub struct Decider {
    settings: SupervisorSettings,
    ready: ReadyQueue,
    flights: Flights,
    parked: Parking,
    rotation: Rotation,
    terminals: TerminalLog,
    spare_launches: usize,
    closed: bool,
}

impl Decider {
    /// A supervisor that knows nothing yet; everything is found in the database (TM-174, TM-189).
    #[must_use]
    pub fn new(settings: SupervisorSettings) -> Self {
        let memory = settings.memory_limit();
        Self {
            ready: ReadyQueue::default(),
            flights: Flights::default(),
            parked: Parking::new(memory),
            rotation: Rotation::new(settings.page_size),
            terminals: TerminalLog::new(memory),
            spare_launches: settings.max_workers,
            closed: false,
            settings,
        }
    }

    /// Learns one event.
    pub fn handle(&mut self, event: Event, now: Now) -> Decision {
        let mut out = Decision::default();
        match event {
            Event::Tick => self.tick(now, &mut out),
            Event::Wake => self.rotation.wake(),
            Event::Page(facts) => self.page(facts, now, &mut out),
            Event::Launched { key, worker } => self.launched(&key, worker, now, &mut out),
            Event::LaunchFailed { key, cause } => self.launch_failed(key, cause, now, &mut out),
            Event::Ended { worker, ending } => self.ended(worker, ending, &mut out),
            Event::Observed { key, fact } => self.observed(&key, fact, now, &mut out),
            Event::Close => self.close(&mut out),
        }
        out
    }

    /// Gives free workers to the keys that waited longest. Call it while the database answers.
    pub fn dispatch(&mut self, now: Now) -> Decision {
        let mut out = Decision::default();
        while !self.closed && self.flights.len() < self.settings.max_workers {
            // Waiting times are being dropped, so failing keys come back at once: slow down.
            let shedding = self.parked.is_shedding(now.at);
            if shedding && self.spare_launches == 0 {
                break;
            }
            let Some(ready) = self.ready.pop() else { break };
            if shedding {
                self.spare_launches -= 1;
            }
            self.launch(ready, &mut out);
        }
        out
    }

    /// The page to read next, if one is due and its keys would find room.
    #[must_use]
    pub fn wanted_page(&self) -> Option<PageRequest> {
        let room = self.settings.ready_limit().saturating_sub(self.ready.len());
        if self.closed || room < self.settings.page_size {
            return None;
        }
        self.rotation.wanted()
    }

    /// Keys whose worker is gone and whose facts must be read now.
    #[must_use]
    pub fn unread(&self) -> Vec<WorkKey> {
        self.flights.unread()
    }

    /// How many workers may be alive.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.flights.alive()
    }

    /// How much is held in memory.
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        Footprint {
            ready: self.ready.len(),
            in_flight: self.flights.len(),
            parked: self.parked.len(),
            terminal: self.terminals.len(),
        }
    }

    /// What the last round over all rows met.
    #[must_use]
    pub fn last_round(&self) -> Tally {
        self.rotation.last_round()
    }

    fn tick(&mut self, now: Now, out: &mut Decision) {
        self.rotation.tick();
        self.spare_launches = self.settings.max_workers;
        for (key, worker, first) in self.flights.overdue(now.at, self.settings.worker_timeout) {
            if first {
                out.notices.push(Notice::WorkerTimedOut { key, worker: worker.clone() });
            }
            out.commands.push(Command::Stop { worker });
        }
    }

    fn page(&mut self, facts: Vec<PendingFact>, now: Now, out: &mut Decision) {
        let mut seen = Tally::default();
        for fact in &facts {
            seen.pending += 1;
            seen.terminal += u64::from(fact.terminal.is_some());
            seen.backlog = seen.backlog.saturating_add(backlog(fact).unsigned_abs());
        }
        self.rotation.advance(facts.len(), facts.last().map(|fact| fact.key.clone()), seen);
        if self.closed {
            return;
        }
        for fact in facts {
            if self.flights.contains(&fact.key) {
                continue;
            }
            if !self.needs_window(&fact, out) || self.ready.refresh(&fact) {
                continue;
            }
            if !self.parked.is_waiting(&fact.key, now.at) && self.ready.len() < self.settings.ready_limit() {
                let memory = self.parked.take(&fact.key).unwrap_or_default();
                self.ready.push(Ready { fact, memory });
            }
        }
    }

    /// Does what the facts ask for short of a Window; `true` when a Window is what is needed.
    fn needs_window(&mut self, fact: &PendingFact, out: &mut Decision) -> bool {
        let need = Need::of(fact);
        if need != Need::Operator {
            self.terminals.reopen(&fact.key);
        }
        match need {
            Need::Window => return true,
            Need::Nothing => {}
            Need::Settle => out.commands.push(Command::Settle { key: fact.key.clone() }),
            Need::Operator => {
                out.notices.extend(self.terminal_notice(fact));
            }
        }
        self.ready.remove(&fact.key);
        self.parked.take(&fact.key);
        false
    }

    fn terminal_notice(&mut self, fact: &PendingFact) -> Option<Notice> {
        let code = fact.terminal?;
        match self.terminals.judge(&fact.key, fact.cursor) {
            News::Tell => Some(Notice::FrontierTerminal {
                key: fact.key.clone(),
                source_after: fact.cursor,
                source_through: fact.source_through,
                code,
            }),
            News::NoRoom { first: true } => Some(Notice::TerminalsUnlisted { told: self.terminals.len() }),
            News::Known | News::NoRoom { first: false } => None,
        }
    }

    fn launch(&mut self, ready: Ready, out: &mut Decision) {
        let Ready { fact, memory } = ready;
        let wave = Wave::continued(memory.wave, &fact);
        if memory.wave != Some(wave) {
            out.notices.push(Notice::WaveStarted { key: fact.key.clone(), wave, source_after: fact.cursor });
        }
        out.commands.push(Command::Launch {
            key: fact.key.clone(),
            source_after: fact.cursor,
            wave_target: wave.target,
            claimed_flush_generation: wave.claimed,
        });
        let phase = Phase::Launching;
        self.flights
            .begin(fact.key, Flight { source_after: fact.cursor, wave, failures: memory.failures, phase });
    }

    fn launched(&mut self, key: &WorkKey, worker: WorkerId, now: Now, out: &mut Decision) {
        let deadline = now.at.saturating_add(self.settings.worker_timeout);
        let known = self.flights.started(key, worker.clone(), deadline);
        if self.closed || !known {
            out.commands.push(Command::Stop { worker });
        }
    }

    fn launch_failed(&mut self, key: WorkKey, cause: String, now: Now, out: &mut Decision) {
        if let Some(flight) = self.flights.take_launching(&key) {
            let reason = FailureReason::Code(ErrorCode::LaunchFailed);
            let cause = Some(cause);
            let run = Run { key, flight, worker: None, outcome: None, cause, reason, retried: true };
            self.set_back(run, now, out);
        }
    }

    fn ended(&mut self, worker: WorkerId, ending: WorkerEnding, out: &mut Decision) {
        match self.flights.ended(&worker, ending) {
            Some(key) if self.closed => drop(self.flights.take_ended(&key)),
            Some(_) => {}
            None => out.notices.push(Notice::UnknownEnding { worker }),
        }
    }

    fn observed(&mut self, key: &WorkKey, fact: Option<PendingFact>, now: Now, out: &mut Decision) {
        let Some(landed) = self.flights.take_ended(key) else { return };
        let fact = match fact {
            Some(fact) if fact.cursor <= landed.flight.source_after => fact,
            moved => return self.progressed(landed, Seen { key, fact: moved }, now, out),
        };
        // Told before the need is judged: also the last attempt of a frontier has failed by itself.
        let retried = Need::of(&fact) == Need::Window;
        if fact.terminal.is_some() {
            self.terminals.make_room();
        }
        let reason = reason_for(&landed);
        let Landed { flight, worker, ending, .. } = landed;
        let (worker, outcome) = (Some(worker), ending.outcome);
        self.set_back(
            Run { key: key.clone(), flight, worker, outcome, cause: None, reason, retried },
            now,
            out,
        );
        self.needs_window(&fact, out);
    }

    /// The Cursor moved, or nothing is left to do: failures are forgotten, and a key with more
    /// backlog goes behind the others (TM-197).
    fn progressed(&mut self, landed: Landed, seen: Seen<'_>, now: Now, out: &mut Decision) {
        let Seen { key, fact } = seen;
        let wave = landed.flight.wave;
        let open = fact.as_ref().is_some_and(|fact| wave.is_open(fact));
        out.notices.push(published(key, landed, fact.as_ref()));
        if !open {
            out.notices.push(Notice::WaveCompleted { key: key.clone(), wave });
        }
        let Some(fact) = fact else { return };
        if self.needs_window(&fact, out) {
            let memory = Memory { wave: open.then_some(wave), failures: 0 };
            // Half of the queue is kept for keys that pages bring, so neither side starves.
            if self.ready.len() < self.settings.page_size {
                self.ready.push(Ready { fact, memory });
            } else {
                self.parked.park(fact.key, now.at, memory);
            }
        }
    }

    fn set_back(&mut self, run: Run, now: Now, out: &mut Decision) {
        let conflict = matches!(run.reason, FailureReason::Code(code) if code.ending() == Ending::Superseded);
        let before = run.flight.failures;
        let (failures, delay) = if conflict {
            (before, self.settings.conflict_delay)
        } else {
            let failures = before.saturating_add(1);
            (failures, self.settings.backoff.delay(failures, now.random))
        };
        let wave = run.flight.wave;
        if run.retried {
            let memory = Memory { wave: Some(wave), failures };
            self.parked.park(run.key.clone(), now.at.saturating_add(delay), memory);
        }
        let setback = Setback {
            key: run.key,
            source_after: run.flight.source_after,
            wave,
            worker: run.worker,
            reason: run.reason,
            outcome: run.outcome,
            failures,
            cause: run.cause,
            delay: run.retried.then_some(delay),
        };
        out.notices.push(if conflict {
            Notice::WindowConflict(setback)
        } else {
            Notice::WindowFailed(setback)
        });
    }

    fn close(&mut self, out: &mut Decision) {
        self.closed = true;
        self.ready.clear();
        self.parked.clear();
        for key in self.flights.unread() {
            self.flights.take_ended(&key);
        }
        out.commands.extend(self.flights.workers().into_iter().map(|worker| Command::Stop { worker }));
    }
}

/// What the durable facts of a key say after a run.
struct Seen<'a> {
    key: &'a WorkKey,
    fact: Option<PendingFact>,
}

/// A run that did not move the Cursor.
struct Run {
    key: WorkKey,
    flight: Flight,
    worker: Option<WorkerId>,
    outcome: Option<Outcome>,
    cause: Option<String>,
    reason: FailureReason,
    /// A retry follows after a while.
    retried: bool,
}

fn backlog(fact: &PendingFact) -> i64 {
    fact.source_through.get().saturating_sub(fact.cursor.get()).max(0)
}

fn reason_for(landed: &Landed) -> FailureReason {
    if landed.timed_out {
        return FailureReason::Code(ErrorCode::WorkerTimeout);
    }
    if let Some(code) = landed.ending.error_code() {
        return FailureReason::Code(code);
    }
    match landed.ending.ending {
        Ending::Done => FailureReason::NoProgress,
        Ending::Superseded => FailureReason::Code(ErrorCode::CursorConflict),
        Ending::Configuration => FailureReason::Code(ErrorCode::ConfigurationInvalid),
        Ending::Terminated => FailureReason::Code(ErrorCode::Terminated),
        Ending::Permanent | Ending::Transient => FailureReason::Code(ErrorCode::WorkerCrashed),
    }
}

fn published(key: &WorkKey, landed: Landed, fact: Option<&PendingFact>) -> Notice {
    let Landed { flight, worker, ending, .. } = landed;
    let reported = ending.outcome.as_ref().and_then(|outcome| outcome.window).map(|window| window.through);
    let through = fact.map(|fact| fact.cursor).or(reported).unwrap_or(flight.wave.target);
    Notice::WindowPublished {
        key: key.clone(),
        window: Window { after: flight.source_after, through },
        wave: flight.wave,
        backlog: fact.map_or(0, backlog),
        worker,
        outcome: ending.outcome,
    }
}
