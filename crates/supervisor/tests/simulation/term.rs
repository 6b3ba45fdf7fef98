//! One term of one process, as the loop leads it: one call at a time beside one write for automatic waves,
//! and a look at the lease before everything that dispatches or writes.

use std::collections::VecDeque;
use std::time::Duration;

use powercontext_core::ids::WaveId;
use powercontext_core::work::{ErrorCode, Fence};
use powercontext_supervisor::SupervisorSettings;
use powercontext_supervisor::auto::WaveNews;
use powercontext_supervisor::decide::{Command, Decider, Event, WaveAnswer, WaveCall};
use powercontext_supervisor::facts::{Completion, Freeze};
use powercontext_supervisor::lease::Loss;
use powercontext_supervisor::notice::Notice;
use powercontext_supervisor::rotation::ALLOWANCE_PAGES;

use crate::database::{Aim, Database};
use crate::expect::Expect;
use crate::process::{Call, Reply, Request};
use crate::world::World;

pub struct Term {
    pub fence: Fence,
    pub decider: Decider,
    pub expect: Expect,
    /// The call that the loop waits for.
    pub inline: Option<Call>,
    /// The write for automatic waves beside it.
    pub write: Option<Call>,
    todo: VecDeque<Command>,
    working: bool,
    look: bool,
    reads: Pause,
    writes: Pause,
    cleared: bool,
    spent: Spent,
    /// Ticks in a row in which somebody waited, a worker was free and nothing was launched.
    idle: usize,
}

/// Ticks to wait after failed calls, as in the loop.
#[derive(Debug, Default)]
struct Pause {
    failures: u32,
    ticks: u32,
}

impl Pause {
    fn tick(&mut self) {
        self.ticks = self.ticks.saturating_sub(1);
    }

    fn fail(&mut self) {
        self.failures += 1;
        self.ticks = self.failures.min(5);
    }
}

/// Calls since the last tick.
#[derive(Debug, Default)]
struct Spent {
    rows: usize,
    targets: usize,
    late: usize,
    marks: usize,
    freezes: usize,
    others: usize,
}

enum Go {
    On,
    Rest,
}

impl Term {
    pub fn new(fence: Fence, database: &Database, settings: &SupervisorSettings) -> Self {
        let expect = Expect::new(fence.clone(), database, settings);
        Self {
            fence,
            decider: Decider::new(settings.clone()),
            expect,
            inline: None,
            write: None,
            todo: VecDeque::new(),
            working: true,
            look: false,
            reads: Pause::default(),
            writes: Pause::default(),
            cleared: false,
            spent: Spent::default(),
            idle: 0,
        }
    }

    fn wave_call(&mut self, now: powercontext_supervisor::decide::Now, name: u64) -> Option<WaveCall> {
        if self.write.is_some() || self.writes.ticks > 0 {
            return None;
        }
        let call = self.decider.wave_call(now, &mut || WaveId::parse(format!("wave-{name}")).unwrap())?;
        // TM-206: a new term clears old targets before it does anything else about waves.
        assert!(self.cleared || call == WaveCall::Clear, "{call:?} before old targets were cleared");
        Some(call)
    }
}

impl World {
    /// Leads the term, if there is one, until there is nothing to do but wait.
    pub fn lead(&mut self, place: usize) {
        for _ in 0..100_000 {
            if !self.kind && self.random.once_in(if self.busy { 64 } else { 16 }) {
                return;
            }
            match self.advance(place) {
                Go::On => {}
                Go::Rest => return,
            }
        }
        panic!("a busy loop");
    }

    fn term(&mut self, place: usize) -> &mut Term {
        self.process(place).term.as_mut().expect("a term")
    }

    fn advance(&mut self, place: usize) -> Go {
        if self.process(place).term.is_none() {
            return Go::Rest;
        }
        if let Some(call) = self.term(place).inline.take() {
            return match call.reply {
                Some(_) => self.answered(place, call),
                None => {
                    self.term(place).inline = Some(call);
                    Go::Rest
                }
            };
        }
        if let Some(command) = self.term(place).todo.pop_front() {
            return self.act(place, command);
        }
        if std::mem::take(&mut self.term(place).look) {
            return self.ask(place, Request::Look);
        }
        if self.term(place).working {
            return self.work(place);
        }
        self.select(place)
    }

    /// Reads what is due, one call at a time.
    fn work(&mut self, place: usize) -> Go {
        if let Some(key) = self.term(place).decider.unread().into_iter().next() {
            return self.ask(place, Request::Observe(key));
        }
        let now = self.now(place);
        let dispatched = self.term(place).decider.dispatch(now);
        if !dispatched.commands.is_empty() || !dispatched.notices.is_empty() {
            self.take_in(place, dispatched);
            return Go::On;
        }
        if let Some(request) = self.term(place).decider.wanted_page() {
            return self.ask(place, Request::Page(request));
        }
        self.names += 1;
        let name = self.names;
        let Some(call) = self.term(place).wave_call(now, name) else {
            let term = self.term(place);
            (term.working, term.reads) = (false, Pause::default());
            return Go::On;
        };
        if !self.allowed(place) {
            return Go::Rest;
        }
        self.spend(place, &call);
        if call.is_read() {
            return self.ask(place, Request::Wave(call));
        }
        let fence = self.term(place).fence.clone();
        let call = self.send(place, fence, Request::Wave(call));
        let term = self.term(place);
        (term.write, term.working) = (Some(call), false);
        Go::On
    }

    /// The next thing that happens to an idle loop.
    fn select(&mut self, place: usize) -> Go {
        let now = self.now(place);
        let tick = self.settings.tick;
        let process = self.process(place);
        let event = if process.next_tick <= now.at {
            process.next_tick = now.at + tick;
            self.count_idle(place, now.at);
            let term = self.term(place);
            term.reads.tick();
            term.writes.tick();
            term.look = term.reads.ticks == 0;
            term.spent = Spent::default();
            Event::Tick
        } else if let Some((worker, ending)) = process.endings.pop_front() {
            if ending.error_code() == Some(ErrorCode::Fenced) {
                self.term(place).look = true;
            }
            Event::Ended { worker, ending }
        } else if self.term(place).write.as_ref().is_some_and(|call| call.reply.is_some()) {
            return self.written(place);
        } else if std::mem::take(&mut self.process(place).wake) {
            Event::Wake
        } else {
            return Go::Rest;
        };
        self.decide(place, event);
        let term = self.term(place);
        term.working = term.reads.ticks == 0;
        Go::On
    }

    /// TM-197: as long as the database answers, a whole round of pages finds whoever can be served.
    fn count_idle(&mut self, place: usize, at: Duration) {
        let Self { database, places, settings, .. } = self;
        let term = places[place].as_mut().ok().and_then(|process| process.term.as_mut()).expect("a term");
        let free = term.decider.footprint().in_flight < settings.max_workers;
        let able = free && term.reads.ticks == 0 && term.reads.failures == 0;
        term.idle = if able && term.expect.somebody_waits(database, at) { term.idle + 1 } else { 0 };
        let round = database.scopes.len() / (4 * settings.page_size);
        assert!(term.idle <= round + 4, "nobody is served for {} ticks", term.idle);
    }

    /// Takes in the answer to the write for automatic waves.
    fn written(&mut self, place: usize) -> Go {
        let call = self.term(place).write.take().expect("a write");
        match call.reply {
            Some(Reply::Wave(answer, _)) => {
                self.term(place).writes = Pause::default();
                self.wave_answered(place, answer);
                let term = self.term(place);
                term.working = term.reads.ticks == 0;
            }
            Some(Reply::Fenced) => self.step_down(place, Loss::Refused),
            _ => self.term(place).writes.fail(),
        }
        Go::On
    }

    fn wave_answered(&mut self, place: usize, answer: WaveAnswer) {
        match &answer {
            WaveAnswer::Cleared => self.term(place).cleared = true,
            WaveAnswer::Frozen { wave, freeze: Freeze::Frozen { .. } } => {
                let binding = self.database.binding_number(&wave.binding);
                let frozen = self.frozen.remove(&wave.id);
                assert!(frozen.is_some(), "{wave:?} was frozen");
                self.term(place).expect.opened(binding, frozen);
                self.counts.frozen += 1;
            }
            WaveAnswer::Completed { wave, completion } => {
                let binding = self.database.binding_number(&wave.binding);
                self.counts.completed += u64::from(matches!(completion, Completion::Completed { .. }));
                self.term(place).expect.opened(binding, None);
            }
            _ => {}
        }
        if self.process(place).old_answers.len() < 8 && self.random.once_in(4) {
            self.process(place).old_answers.push(answer.clone());
        }
        self.decide(place, Event::Wave(answer));
    }

    /// An answer comes once more, whatever has happened since.
    pub fn repeat_answer(&mut self, place: usize) {
        let Ok(process) = &mut self.places[place] else { return };
        let led = process.frozen_until <= self.time && process.term.is_some();
        let Some(answer) = process.old_answers.pop().filter(|_| led) else { return };
        if let WaveAnswer::Targets { wave, .. } | WaveAnswer::Late { wave, .. } = &answer
            && self.term(place).decider.open_waves().iter().any(|open| open.wave == *wave)
        {
            // The loop handles the page of an open wave before anything else, so never late.
            return;
        }
        self.decide(place, Event::Wave(answer));
    }

    /// Sends a call and waits for its answer.
    fn ask(&mut self, place: usize, request: Request) -> Go {
        let fence = self.term(place).fence.clone();
        let call = self.send(place, fence, request);
        self.term(place).inline = Some(call);
        Go::On
    }

    /// Takes in the answer that the loop waited for.
    fn answered(&mut self, place: usize, call: Call) -> Go {
        match (call.request, call.reply.expect("an answer")) {
            (_, Reply::Fenced) => self.step_down(place, Loss::Refused),
            (Request::Look, Reply::Term(current)) => {
                if current.as_ref() != Some(&self.term(place).fence) {
                    self.step_down(place, Loss::Refused);
                }
            }
            (Request::Observe(key), Reply::Observed(fact, moves)) => {
                let number = self.database.number(&key);
                self.decide(place, Event::Observed { key, fact: fact.clone() });
                self.term(place).expect.observed(number, fact.as_ref(), moves);
            }
            (Request::Page(_), Reply::Page(page, moves)) => {
                for (fact, moves) in page.iter().zip(moves) {
                    let key = self.database.number(&fact.key);
                    self.term(place).expect.listed(key, fact, moves, None);
                }
                let settings = &self.settings;
                let automatic = settings.bindings.iter().any(|binding| binding.interval.is_some());
                let pages = if automatic { ALLOWANCE_PAGES / 2 } else { ALLOWANCE_PAGES };
                let bound = (pages + 1) * settings.page_size + 1;
                let term = self.term(place);
                term.spent.rows += page.len() + 1;
                assert!(term.spent.rows <= bound, "a busy loop of pages");
                self.decide(place, Event::Page(page));
            }
            (Request::Wave(_), Reply::Wave(answer, moves)) => self.wave_page(place, answer, &moves),
            (Request::Launch(aim), Reply::Launched(worker)) => {
                let key = self.database.key(aim.key).clone();
                self.decide(place, Event::Launched { key, worker });
            }
            (Request::Launch(aim), Reply::Failed) => {
                let key = self.database.key(aim.key).clone();
                self.decide(place, Event::LaunchFailed { key, cause: String::new() });
                self.term(place).expect.launch_failed(aim.key);
            }
            (Request::Settle(_), Reply::Settled) => {}
            (Request::Look, Reply::Failed) => {}
            (_, Reply::Failed) => {
                let term = self.term(place);
                if term.working {
                    term.reads.fail();
                    term.working = false;
                }
            }
            other => panic!("{other:?}"),
        }
        Go::On
    }

    fn wave_page(&mut self, place: usize, answer: WaveAnswer, moves: &[u64]) {
        match &answer {
            WaveAnswer::Targets { facts, .. } => {
                for (target, moves) in facts.iter().zip(moves) {
                    let key = self.database.number(&target.fact.key);
                    let through = Some(target.target.get());
                    self.term(place).expect.listed(key, &target.fact, *moves, through);
                }
            }
            WaveAnswer::Late { facts, .. } => {
                for (late, moves) in facts.iter().zip(moves) {
                    let key = self.database.number(&late.fact.key);
                    self.term(place).expect.late(key, late, *moves);
                }
            }
            _ => panic!("{answer:?}"),
        }
        if self.process(place).old_answers.len() < 8 && self.random.once_in(4) {
            self.process(place).old_answers.push(answer.clone());
        }
        let again = self.random.once_in(8).then(|| answer.clone());
        self.decide(place, Event::Wave(answer));
        if let Some(answer) = again {
            // The same page once more: nobody waits for it now.
            self.decide(place, Event::Wave(answer));
        }
    }

    /// TM-210 TM-226: what is deferred makes no busy loop; per tick each binding costs two rounds at most.
    fn spend(&mut self, place: usize, call: &WaveCall) {
        let bindings = self.settings.bindings.len();
        let per_binding = self.database.keys_of(0).len();
        let pages = 2 * bindings * (per_binding / self.settings.page_size + 2);
        let spent = &mut self.term(place).spent;
        let (count, bound) = match call {
            WaveCall::Targets { .. } => (&mut spent.targets, pages),
            WaveCall::Late { .. } => (&mut spent.late, pages),
            WaveCall::MarkCovered { .. } => (&mut spent.marks, pages),
            WaveCall::Freeze { .. } => (&mut spent.freezes, 3 * bindings),
            WaveCall::Clear | WaveCall::Complete { .. } => (&mut spent.others, 2 * bindings + 2),
        };
        *count += 1;
        assert!(*count <= bound, "a busy loop: {call:?}, {spent:?}");
    }

    /// Does one command, after a look at the lease where it dispatches or writes.
    fn act(&mut self, place: usize, command: Command) -> Go {
        match command {
            Command::Stop { worker } => self.stop_worker(place, &worker),
            Command::Settle { key } => {
                if self.allowed(place) {
                    return self.ask(place, Request::Settle(key));
                }
            }
            Command::Launch { key, source_after, wave_target, claimed_flush_generation, mode } => {
                if self.allowed(place) {
                    let aim = Aim {
                        key: self.database.number(&key),
                        after: source_after.get(),
                        target: wave_target.get(),
                        claimed: claimed_flush_generation.get(),
                        mode,
                    };
                    self.judge_launch(place, aim);
                    return self.ask(place, Request::Launch(aim));
                }
            }
        }
        Go::On
    }

    /// Looks at the lease once more; steps down when it may have expired.
    fn allowed(&mut self, place: usize) -> bool {
        let at = self.now(place).at;
        let may = self.process(place).tenure.may_act(at);
        if !may {
            self.step_down(place, Loss::Expired);
        }
        may
    }

    fn judge_launch(&mut self, place: usize, aim: Aim) {
        let at = self.now(place).at;
        let most = self.settings.max_workers;
        let fence = self.term(place).fence.clone();
        let ours = |worker: &&crate::workers::Worker| worker.id.is_some() && worker.fence == fence;
        assert!(self.workers.iter().filter(ours).count() < most, "more than max_workers"); // TM-196
        let twin = self.workers.iter().filter(ours).any(|worker| worker.aim.key == aim.key);
        assert!(!twin, "{aim:?}: two workers in one term"); // TM-196
        let Self { database, places, counts, .. } = self;
        let term = places[place].as_mut().ok().and_then(|process| process.term.as_mut()).expect("a term");
        term.expect.launch(database, aim, at);
        if self.kind {
            // Much is launched between two ticks then, while pages come at the usual pace.
            term.expect.forget_waits();
        }
        term.idle = 0;
        counts.longest_wait = counts.longest_wait.max(term.expect.longest);
        counts.launched(aim.mode);
    }

    /// Tells the decider an event and takes in what follows.
    fn decide(&mut self, place: usize, event: Event) {
        let now = self.now(place);
        let decision = self.term(place).decider.handle(event, now);
        self.take_in(place, decision);
    }

    fn take_in(&mut self, place: usize, decision: powercontext_supervisor::decide::Decision) {
        let at = self.now(place).at;
        let Self { database, places, counts, .. } = self;
        let term = places[place].as_mut().ok().and_then(|process| process.term.as_mut()).expect("a term");
        for notice in &decision.notices {
            term.expect.hear(database, notice, at);
            if let Notice::AutoWave { news: WaveNews::HeldUp { .. }, .. } = notice {
                counts.held_up += 1;
            }
        }
        term.todo.extend(decision.commands);
    }

    /// Ends a term that was lost or given up: stops its workers and leaves its calls alone.
    pub fn close(&mut self, place: usize, mut term: Term) {
        let now = self.now(place);
        let closing = term.decider.handle(Event::Close, now);
        for command in closing.commands {
            let Command::Stop { worker } = command else { panic!("{command:?} of a closed term") };
            self.stop_worker(place, &worker);
        }
        assert!(term.decider.dispatch(now).commands.is_empty(), "a closed term dispatches"); // TM-187
        assert_eq!(term.decider.wanted_page(), None);
        assert_eq!(term.wave_call(now, 0), None);
        self.abandon(term.inline.into_iter().chain(term.write));
    }
}
