//! One supervisor process: its clock, its leadership and what it has in hand, moved one call at a time.
//!
//! A call of the database is sent, done and answered in separate moments, so that anything may happen in
//! between; an answer may be lost, and a call that nobody waits for any more may still be done.

use std::collections::VecDeque;
use std::time::Duration;

use powercontext_core::ids::{HolderId, SupervisorGeneration};
use powercontext_core::work::{Fence, WorkKey};
use powercontext_supervisor::decide::{Now, WaveAnswer, WaveCall};
use powercontext_supervisor::facts::{Freeze, PendingFact};
use powercontext_supervisor::lease::{LeaseAnswer, LeaseCall, Loss, Tenure, Turn};
use powercontext_supervisor::rotation::PageRequest;
use powercontext_supervisor::{WorkerEnding, WorkerId};

use crate::audit::Cause;
use crate::database::Aim;
use crate::term::Term;
use crate::world::World;

/// A call of the database or of the launcher.
#[derive(Clone, Debug)]
pub enum Request {
    Lease(LeaseCall),
    Observe(WorkKey),
    Page(PageRequest),
    Settle(WorkKey),
    Look,
    Wave(WaveCall),
    Launch(Aim),
}

/// What it led to.
#[derive(Clone, Debug)]
pub enum Reply {
    Lease(LeaseAnswer),
    Observed(Option<PendingFact>, u64),
    Page(Vec<PendingFact>, Vec<u64>),
    Settled,
    Term(Option<Fence>),
    Wave(WaveAnswer, Vec<u64>),
    Launched(WorkerId),
    /// The term is over.
    Fenced,
    /// An error, or no answer: it may have happened or not.
    Failed,
}

/// A call under way.
#[derive(Clone, Debug)]
pub struct Call {
    pub fence: Fence,
    pub request: Request,
    pub sent: Duration,
    pub reply: Option<Reply>,
    /// Which process waits for it.
    pub life: u64,
}

/// One life of a supervisor process.
pub struct Process {
    pub life: u64,
    pub tenure: Tenure,
    /// How far its own clock is ahead of the world's.
    pub ahead: Duration,
    pub frozen_until: Duration,
    pub lease: Option<Call>,
    pub term: Option<Term>,
    pub endings: VecDeque<(WorkerId, WorkerEnding)>,
    pub wake: bool,
    pub next_tick: Duration,
    /// It was asked to end, and waits until then for its lease to be given back.
    pub leaves_by: Option<Duration>,
    /// Calls for the lease since the clock moved.
    pub lease_calls: u32,
    /// Answers that may come once more.
    pub old_answers: Vec<WaveAnswer>,
}

impl World {
    /// Starts a process; it remembers nothing (TM-174, TM-189).
    pub fn start(&mut self, place: usize) {
        self.lives += 1;
        let life = self.lives;
        let holder = HolderId::parse(format!("life-{life}")).unwrap();
        let (lease, tick) = (self.settings.lease, self.settings.tick);
        let tenure = if self.database.shared {
            Tenure::elected(holder, lease, tick)
        } else {
            Tenure::embedded(holder, tick)
        };
        let ahead = self.random.millis(0, 100_000);
        self.places[place] = Ok(Process {
            life,
            tenure,
            ahead,
            frozen_until: Duration::ZERO,
            lease: None,
            term: None,
            endings: VecDeque::new(),
            wake: false,
            next_tick: self.time + ahead,
            leaves_by: None,
            lease_calls: 0,
            old_answers: Vec::new(),
        });
    }

    /// The process is gone at once; its workers live on, and so do its calls.
    pub fn crash(&mut self, place: usize, back_in: Duration) {
        let gone = std::mem::replace(&mut self.places[place], Err(self.time + back_in));
        let Ok(mut process) = gone else { return };
        let term = process.term.take();
        let left = [process.lease, term.as_ref().and_then(|term| term.inline.clone())];
        self.abandon(left.into_iter().flatten().chain(term.and_then(|term| term.write)));
    }

    /// Nobody waits for these calls any more; some of them are done all the same.
    pub fn abandon(&mut self, calls: impl IntoIterator<Item = Call>) {
        for call in calls {
            if call.reply.is_none() && !self.kind {
                self.ghosts.push(call);
            }
        }
    }

    pub fn process(&mut self, place: usize) -> &mut Process {
        self.places[place].as_mut().expect("a process that is up")
    }

    pub fn now(&mut self, place: usize) -> Now {
        let at = self.time + self.process(place).ahead;
        Now { at, random: self.random.next() }
    }

    /// Lets a process do what it can do now.
    pub fn run(&mut self, place: usize) {
        match &self.places[place] {
            Err(back) if *back <= self.time => self.start(place),
            Err(_) => return,
            Ok(process) if process.frozen_until > self.time => return,
            Ok(_) => {}
        }
        self.keep(place);
        self.lead(place);
        let now = self.now(place);
        let process = self.process(place);
        let idle = process.tenure.wanted(now.at).is_none() && process.lease.is_none();
        let over = process.tenure.next_look().is_none() && process.tenure.fence().is_none();
        if process.leaves_by.is_some_and(|by| idle || by <= now.at) || (over && idle) {
            let back_in = self.random.millis(0, 5_000);
            self.crash(place, back_in);
        }
    }

    /// Keeps the leadership.
    fn keep(&mut self, place: usize) {
        loop {
            let now = self.now(place);
            let turn = self.process(place).tenure.elapsed(now);
            self.turned(place, turn);
            if let Some(call) = self.process(place).lease.take() {
                let patience = self.settings.lease.patience();
                let Request::Lease(asked) = &call.request else { panic!("{call:?}") };
                let answer = match &call.reply {
                    Some(Reply::Lease(answer)) => *answer,
                    Some(_) => LeaseAnswer::Unknown,
                    None if now.at >= call.sent + patience => LeaseAnswer::Unknown,
                    None => {
                        self.process(place).lease = Some(call);
                        return;
                    }
                };
                let turn = self.process(place).tenure.answered(asked, call.sent, answer, now);
                if answer == LeaseAnswer::Refused && matches!(asked, LeaseCall::Renew(_)) {
                    // TM-187: whoever hears that its term is over leads no more.
                    assert_eq!(self.process(place).tenure.fence(), None, "{call:?}");
                }
                self.abandon([call]);
                self.turned(place, turn);
                continue;
            }
            let process = self.process(place);
            let Some(wanted) = process.tenure.wanted(now.at) else { return };
            process.lease_calls += 1;
            assert!(process.lease_calls <= 4, "a busy loop of calls for the lease: {wanted:?}");
            let holder = process.tenure.holder().clone();
            let fence = Fence { holder, generation: SupervisorGeneration::new(0) };
            let call = self.send(place, fence, Request::Lease(wanted));
            self.process(place).lease = Some(call);
        }
    }

    fn turned(&mut self, place: usize, turn: Option<Turn>) {
        match turn {
            Some(Turn::Began(fence)) => {
                assert!(self.process(place).term.is_none(), "a term began within a term");
                self.counts.terms += 1;
                let term = Term::new(fence, &self.database, &self.settings);
                let process = self.process(place);
                process.term = Some(term);
                // A loop hears no answer of another term; those that name a wave may come all the same.
                process.old_answers.retain(|answer| *answer != WaveAnswer::Cleared);
            }
            Some(Turn::Lost(fence, _)) => {
                let term = self.process(place).term.take().expect("a lost term was led");
                assert_eq!(term.fence, fence);
                self.counts.lost_terms += 1;
                self.close(place, term);
            }
            None => {}
        }
    }

    /// The term must not be used any more.
    pub fn step_down(&mut self, place: usize, loss: Loss) {
        let now = self.now(place);
        let process = self.process(place);
        let fence = process.term.as_ref().expect("a term").fence.clone();
        let turn = process.tenure.step_down(&fence, loss, now);
        self.turned(place, turn);
    }

    /// The process is asked to end (SIGTERM): it gives its lease back.
    pub fn resign(&mut self, place: usize) {
        let Ok(process) = &mut self.places[place] else { return };
        process.tenure.resign();
        process.leaves_by = Some(self.time + process.ahead + Duration::from_secs(3));
        if let Some(term) = process.term.take() {
            self.close(place, term);
        }
    }

    /// Sends a call. It may be done and answered at once, later, never, or not be done at all.
    pub fn send(&mut self, place: usize, fence: Fence, request: Request) -> Call {
        let sent = self.now(place).at;
        let life = self.process(place).life;
        let mut call = Call { fence, request, sent, reply: None, life };
        let database = !matches!(call.request, Request::Launch(_));
        if self.kind {
            call.reply = Some(self.serve(&call));
        } else if database && self.away_until > self.time {
            call.reply = Some(Reply::Failed);
        } else {
            // A settlement and a renewal are on their way for longer more often.
            let slow = matches!(call.request, Request::Settle(_) | Request::Lease(LeaseCall::Renew(_)));
            match self.random.below(100) {
                0..98 if self.busy && !self.random.once_in(20) => call.reply = Some(self.serve(&call)),
                4..40 if slow => {}
                0 | 1 => call.reply = Some(Reply::Failed),
                2..4 => self.lose(&mut call),
                4..80 => call.reply = Some(self.serve(&call)),
                _ => {}
            }
        }
        call
    }

    /// The call is done, but nobody hears of it.
    fn lose(&mut self, call: &mut Call) {
        self.counts.lost_replies += 1;
        call.life = 0;
        self.serve(call);
        call.reply = Some(Reply::Failed);
    }

    /// Something happens to the calls under way.
    pub fn network(&mut self) {
        if !self.ghosts.is_empty() {
            let at = self.random.below(self.ghosts.len());
            let mut call = self.ghosts.swap_remove(at);
            call.life = 0;
            if self.away_until <= self.time && self.random.once_in(2) {
                self.counts.ghosts += 1;
                self.serve(&call);
            }
        }
        for place in 0..self.places.len() {
            for slot in 0..3 {
                let Ok(process) = &mut self.places[place] else { continue };
                let call = match (slot, &mut process.term) {
                    (0, _) => &mut process.lease,
                    (1, Some(term)) => &mut term.inline,
                    (_, Some(term)) => &mut term.write,
                    (_, None) => continue,
                };
                let Some(mut open) = call.clone().filter(|call| call.reply.is_none()) else { continue };
                let away = self.away_until > self.time;
                match self.random.below(10) {
                    0 => open.reply = Some(Reply::Failed),
                    1 if !away => self.lose(&mut open),
                    2..7 if !away => open.reply = Some(self.serve(&open)),
                    _ => continue,
                }
                let process = self.process(place);
                match (slot, &mut process.term) {
                    (0, _) => process.lease = Some(open),
                    (1, Some(term)) => term.inline = Some(open),
                    (_, Some(term)) => term.write = Some(open),
                    (_, None) => {}
                }
            }
        }
    }

    /// Does a call.
    pub fn serve(&mut self, call: &Call) -> Reply {
        let (fence, database) = (&call.fence, &mut self.database);
        let (reply, cause) = match &call.request {
            Request::Launch(aim) => return self.start_worker(call, *aim),
            Request::Lease(asked) => {
                let ttl = self.settings.lease.times().ttl;
                let answer = database.lease_call(&fence.holder, asked, ttl);
                (Reply::Lease(answer), Cause::Lease(asked.clone(), answer))
            }
            Request::Observe(key) => {
                let key = database.number(key);
                let moves = database.scopes[key].moves;
                return Reply::Observed(database.observe(key), moves);
            }
            Request::Page(request) => {
                let page = database.page(request.after.as_ref(), request.limit);
                let moves = page.iter().map(|fact| database.scopes[database.number(&fact.key)].moves);
                return Reply::Page(page.clone(), moves.collect());
            }
            Request::Look => return Reply::Term(database.lease.current()),
            Request::Settle(key) => {
                let key = database.number(key);
                let done = database.settle(fence, key);
                (if done { Reply::Settled } else { Reply::Fenced }, Cause::Settle(fence.clone(), key))
            }
            Request::Wave(asked) => {
                let answer = database.wave_call(fence, asked);
                let cause = Cause::Wave(fence.clone(), asked.clone(), answer.clone());
                let moves = |fact: &PendingFact| database.scopes[database.number(&fact.key)].moves;
                let moves = match &answer {
                    Some(WaveAnswer::Targets { facts, .. }) => {
                        facts.iter().map(|it| moves(&it.fact)).collect()
                    }
                    Some(WaveAnswer::Late { facts, .. }) => facts.iter().map(|it| moves(&it.fact)).collect(),
                    _ => Vec::new(),
                };
                (answer.map_or(Reply::Fenced, |answer| Reply::Wave(answer, moves)), cause)
            }
        };
        self.audit.saw(&self.database, &cause);
        if let Request::Wave(WaveCall::Freeze { wave, .. }) = &call.request
            && let Reply::Wave(WaveAnswer::Frozen { freeze: Freeze::Frozen { .. }, .. }, _) = &reply
        {
            let number = self.database.binding_number(&wave.binding);
            let frozen = self.database.bindings[number].wave.clone();
            self.frozen.extend(frozen.map(|frozen| (frozen.id.clone(), frozen)));
        }
        reply
    }
}
