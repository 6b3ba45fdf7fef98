//! Who may run, when, and how far: the pure heart of the supervisor.
//!
//! Facts, endings and the time come in; launches, stops and settlements go out. No I/O, no clock,
//! no runtime: the loop in `run` reads, asks, acts and reports back, and a simulation can do the
//! same from a seed. Progress is judged by durable facts alone: an ending only says that a worker
//! is gone and its key must be looked at. Memory depends on the settings, never on the backlog.

mod event;
mod waves;

use powercontext_core::ids::Window;
use powercontext_core::work::{Ending, ErrorCode, Outcome, WorkKey, WorkMode};

pub use self::event::{Command, Decision, Event, Footprint, Now, WaveAnswer, WaveCall};
use self::waves::Waves;
use crate::facts::PendingFact;
use crate::flight::{Flight, Flights, Landed, Phase};
use crate::launcher::{WorkerEnding, WorkerId};
use crate::notice::{FailureReason, Notice, Setback};
use crate::queue::{Ready, ReadyLanes};
use crate::retry::{Memory, Parking, asked_wait};
use crate::rotation::{ALLOWANCE_PAGES, PageRequest, Rotation, Tally};
use crate::settings::SupervisorSettings;
use crate::terminal::{News, TerminalLog};
use crate::wave::{Need, Wave};

/// The state of one term.
#[derive(Debug)]
pub struct Decider {
    settings: SupervisorSettings,
    ready: ReadyLanes,
    flights: Flights,
    parked: Parking,
    rotation: Rotation,
    waves: Waves,
    terminals: TerminalLog,
    spare_launches: usize,
    closed: bool,
}

impl Decider {
    /// A supervisor that knows nothing yet; everything is found in the database (TM-174, TM-189).
    #[must_use]
    pub fn new(settings: SupervisorSettings) -> Self {
        let memory = settings.memory_limit();
        let rows = settings.page_size.saturating_mul(ALLOWANCE_PAGES);
        let automatic = settings.bindings.iter().any(|binding| binding.interval.is_some());
        let (asked, waves) = if automatic { (rows / 2, rows / 2) } else { (rows, 0) };
        Self {
            ready: ReadyLanes::default(),
            flights: Flights::default(),
            parked: Parking::new(memory),
            rotation: Rotation::new(settings.page_size, asked),
            waves: Waves::new(&settings.bindings, waves),
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
            Event::Wave(answer) => self.wave(answer, now, &mut out),
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
            if self.launch(ready, &mut out) && shedding {
                self.spare_launches -= 1;
            }
        }
        out
    }

    /// The page to read next, if one is due and its keys would find room.
    #[must_use]
    pub fn wanted_page(&self) -> Option<PageRequest> {
        let room = self.settings.ready_limit().saturating_sub(self.ready.explicit.len());
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
            ready: self.ready.explicit.len(),
            automatic: self.ready.automatic.len(),
            in_flight: self.flights.len(),
            parked: self.parked.len(),
            terminal: self.terminals.len(),
            covered: self.waves.covered(),
        }
    }

    /// What the last round over all rows met.
    #[must_use]
    pub fn last_round(&self) -> Tally {
        self.rotation.last_round()
    }

    fn tick(&mut self, now: Now, out: &mut Decision) {
        self.rotation.tick();
        self.waves.tick();
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
            if !self.needs_window(&fact, None, out) || self.ready.explicit.refresh(&fact, None) {
                continue;
            }
            let room = self.ready.explicit.len() < self.settings.ready_limit();
            if room && !self.parked.is_waiting(&fact.key, now.at) {
                // A key that waited as automatic work has a flush now, which comes first.
                let waiting = self.ready.automatic.remove(&fact.key);
                let (memory, offer) = waiting.map_or((None, None), |ready| (Some(ready.memory), ready.offer));
                let memory = memory.or_else(|| self.parked.take(&fact.key)).unwrap_or_default();
                self.ready.explicit.push(Ready { fact, memory, offer });
            }
        }
    }

    /// Does what the facts ask for short of a Window; `true` when a Window is what is needed, for a
    /// flush or in the offered wave.
    fn needs_window(&mut self, fact: &PendingFact, offer: Option<Wave>, out: &mut Decision) -> bool {
        let need = Need::of(fact, offer);
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

    /// Starts the next Window of a key; `false` when there is none to start any more.
    fn launch(&mut self, ready: Ready, out: &mut Decision) -> bool {
        let Ready { fact, memory, offer } = ready;
        let Some(wave) = Wave::next(memory.wave, offer, &fact) else { return false };
        if memory.wave != Some(wave) {
            out.notices.push(Notice::WaveStarted { key: fact.key.clone(), wave, source_after: fact.cursor });
        }
        out.commands.push(Command::Launch {
            key: fact.key.clone(),
            source_after: fact.cursor,
            wave_target: wave.target,
            claimed_flush_generation: wave.claimed,
            mode: wave.mode,
        });
        let phase = Phase::Launching;
        self.flights
            .begin(fact.key, Flight { source_after: fact.cursor, wave, failures: memory.failures, phase });
        true
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
        let offer = landed.flight.wave.as_offer();
        let retried = Need::of(&fact, offer) == Need::Window;
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
        self.needs_window(&fact, offer, out);
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
        let offer = wave.as_offer();
        if self.needs_window(&fact, offer, out) {
            let memory = Memory { wave: open.then_some(wave), failures: 0 };
            let next = Wave::next(memory.wave, offer, &fact);
            let explicit = next.is_some_and(|wave| wave.mode == WorkMode::Explicit);
            let lane = if explicit { &mut self.ready.explicit } else { &mut self.ready.automatic };
            // Half of each lane is kept for keys that pages bring, so neither side starves.
            if lane.len() < self.settings.page_size {
                lane.push(Ready { fact, memory, offer });
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
            (
                failures,
                self.settings.backoff.delay(failures, now.random).max(asked_wait(run.outcome.as_ref())),
            )
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
        self.flights.drop_launching();
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
