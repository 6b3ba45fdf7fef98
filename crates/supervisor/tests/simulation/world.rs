//! The moving part of the model world: workers that do anything, a supervisor that may forget
//! everything, and what must hold after each step.

use std::collections::BTreeMap;
use std::time::Duration;

use powercontext_core::work::{Ending, ErrorCode, Outcome, OutcomeCounts, Step, WorkKey};
use powercontext_supervisor::decide::{Command, Decider, Decision, Event, Now};
use powercontext_supervisor::facts::PendingFact;
use powercontext_supervisor::notice::{Notice, Setback};
use powercontext_supervisor::{SupervisorSettings, WorkerEnding, WorkerId};

use crate::database::{Attempt, Database, key};

/// A small generator of repeatable numbers.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Publish,
    Fail,
    CrashBefore,
    CrashAfter,
    Hang,
    PublishWhenStopped,
    Lie,
}

#[derive(Debug)]
struct Worker {
    id: Option<WorkerId>,
    key: WorkKey,
    generation: i64,
    aim: (i64, i64, i64),
    plan: Plan,
    attempt: Option<u64>,
    stopped: bool,
}

#[derive(Debug, Default)]
struct Track {
    wave: Option<(i64, i64)>,
    waves: u64,
    failures: u32,
    not_before: Duration,
    passed_over: usize,
    /// The newest facts the supervisor was given of the key.
    shown: Option<PendingFact>,
    /// A worker that this supervisor does not know started an attempt or published since then, the
    /// one reason for which its facts may be behind when it launches.
    strayed: bool,
}

pub struct World {
    pub database: Database,
    pub decider: Decider,
    pub settings: SupervisorSettings,
    pub random: Random,
    pub now: Duration,
    pub kind: bool,
    pub launches: u64,
    pub restarts: u64,
    keys: usize,
    exact: bool,
    workers: Vec<Worker>,
    tracks: BTreeMap<WorkKey, Track>,
    names: u64,
}

impl World {
    /// `exact` says that memory is large enough for all keys, so nothing may be forgotten.
    pub fn new(seed: u64, keys: usize, settings: SupervisorSettings) -> Self {
        let exact = settings.memory_limit() >= keys;
        Self {
            database: Database { generation: 1, ..Database::default() },
            decider: Decider::new(settings.clone()),
            settings,
            random: Random(seed),
            now: Duration::ZERO,
            kind: false,
            launches: 0,
            restarts: 0,
            keys,
            exact,
            workers: Vec::new(),
            tracks: BTreeMap::new(),
            names: 0,
        }
    }

    pub fn step(&mut self) {
        match self.random.below(1000) {
            0..250 => {
                let key = key(self.random.below(self.keys));
                self.database.add_source(&key);
            }
            250..400 => {
                let key = key(self.random.below(self.keys));
                if self.database.flush(&key) && self.random.below(10) > 0 {
                    self.event(Event::Wake);
                }
            }
            400..800 => self.move_worker(),
            800..990 => self.tick(Duration::from_millis(1000)),
            990..996 => {
                let jump = Duration::from_secs(self.random.next() % 3600);
                self.tick(jump);
            }
            996..998 => self.operator_repairs(),
            998 => self.restart(),
            _ => self.event(Event::Ended {
                worker: WorkerId::new("stranger"),
                ending: WorkerEnding { ending: Ending::Done, outcome: None },
            }),
        }
        // Now and then the database does not answer.
        if self.kind || self.random.below(20) > 0 {
            self.pump();
        }
        self.check();
    }

    pub fn tick(&mut self, by: Duration) {
        self.now += by;
        self.event(Event::Tick);
    }

    pub fn pump(&mut self) {
        loop {
            for key in self.decider.unread() {
                let fact = self.database.observe(&key);
                self.event(Event::Observed { key: key.clone(), fact: fact.clone() });
                self.show(&key, fact);
            }
            let now = self.moment();
            let decision = self.decider.dispatch(now);
            self.act(decision);
            let Some(request) = self.decider.wanted_page() else { return };
            let page = self.database.page(request.after.as_ref(), request.limit);
            self.event(Event::Page(page.clone()));
            for fact in page {
                self.show(&fact.key.clone(), Some(fact));
            }
        }
    }

    /// Notes what the supervisor was told of a key; its launches are judged by it.
    fn show(&mut self, key: &WorkKey, fact: Option<PendingFact>) {
        let generation = self.database.generation;
        let ours = |worker: &Worker| worker.id.is_some() && worker.generation == generation;
        let running = self.workers.iter().any(|worker| ours(worker) && worker.key == *key);
        let track = self.tracks.entry(key.clone()).or_default();
        let terminal = fact.as_ref().is_some_and(|fact| fact.terminal.is_some());
        (track.shown, track.strayed) = (fact, false);
        if terminal && !running {
            // Nothing is remembered of a closed frontier; after a repair its wave starts anew.
            track.waves = track.waves.saturating_sub(u64::from(track.wave.take().is_some()));
            (track.failures, track.not_before) = (0, Duration::ZERO);
        }
    }

    fn moment(&mut self) -> Now {
        Now { at: self.now, random: self.random.next() }
    }

    pub fn event(&mut self, event: Event) {
        let now = self.moment();
        let decision = self.decider.handle(event, now);
        self.act(decision);
    }

    fn act(&mut self, decision: Decision) {
        for notice in decision.notices {
            self.hear(notice);
        }
        for command in decision.commands {
            match command {
                Command::Settle { key } => self.database.settle(&key),
                Command::Stop { worker } => {
                    for known in self.workers.iter_mut().filter(|known| known.id.as_ref() == Some(&worker)) {
                        known.stopped = true;
                    }
                }
                Command::Launch { key, source_after, wave_target, claimed_flush_generation, .. } => {
                    let aim = (source_after.get(), wave_target.get(), claimed_flush_generation.get());
                    self.launch(key, aim);
                }
            }
        }
    }

    fn hear(&mut self, notice: Notice) {
        match notice {
            Notice::WindowPublished { key, window, .. } => {
                assert!(self.database.scopes[&key].cursor > window.after.get(), "{key:?} made no progress");
                let track = self.tracks.entry(key).or_default();
                (track.failures, track.not_before) = (0, Duration::ZERO);
            }
            Notice::WindowFailed(setback) => {
                let expected = self.tracks.entry(setback.key.clone()).or_default().failures + 1;
                self.set_back(setback, expected);
            }
            Notice::WindowConflict(setback) => {
                let delay = self.settings.conflict_delay;
                assert!(setback.delay.is_none_or(|told| told == delay), "{setback:?}"); // TM-226
                let expected = self.tracks.entry(setback.key.clone()).or_default().failures;
                self.set_back(setback, expected); // TM-225
            }
            _ => {}
        }
    }

    fn set_back(&mut self, setback: Setback, failures: u32) {
        if self.exact {
            assert_eq!(setback.failures, failures, "{:?}", setback.key);
        }
        let track = self.tracks.entry(setback.key).or_default();
        track.failures = setback.failures;
        // Without a retry nothing is remembered; only a repair lets the key run again.
        track.not_before = setback.delay.map_or(Duration::ZERO, |delay| self.now + delay);
        track.passed_over = 0;
    }

    fn launch(&mut self, key: WorkKey, aim: (i64, i64, i64)) {
        let generation = self.database.generation;
        let ours = |worker: &&Worker| worker.id.is_some() && worker.generation == generation;
        let running = self.workers.iter().filter(ours).count();
        assert!(running < self.settings.max_workers, "more than max_workers"); // TM-196
        let twin = self.workers.iter().filter(ours).any(|worker| worker.key == key);
        assert!(!twin, "{key:?}: two workers in one term"); // TM-196
        let scope = &self.database.scopes[&key];
        assert!(aim.0 <= scope.cursor && aim.0 < aim.1 && aim.1 <= scope.head, "{key:?}: {aim:?}");
        let closed = scope.attempts >= 3;
        let at_cursor = aim.0 == scope.cursor;
        for (other, track) in &mut self.tracks {
            track.passed_over += usize::from(*other != key);
        }
        let track = self.tracks.entry(key.clone()).or_default();
        let shown = track.shown.as_ref().expect("a launch follows from facts");
        assert_eq!(shown.terminal, None, "{key:?}: launched on a terminal frontier"); // TM-068 TM-274
        assert_eq!(aim.0, shown.cursor.get(), "{key:?}: not at the Cursor it was shown");
        assert!(!closed || track.strayed, "{key:?}: launched on a closed frontier"); // TM-068 TM-274
        assert!(at_cursor || track.strayed, "{key:?}: launched at {}, not at the Cursor", aim.0); // TM-166
        track.passed_over = 0;
        let wave = (aim.1, aim.2);
        if track.wave != Some(wave) {
            // TM-166: a new wave freezes the newest facts; a continued one keeps both frozen values.
            let newest = (shown.source_through.get(), shown.flush_generation.get());
            assert_eq!(wave, newest, "{key:?}: neither the open wave {:?} nor a new one", track.wave);
            track.waves += 1;
        }
        if self.exact {
            assert!(self.now >= track.not_before, "{key:?}: launched before its retry time"); // TM-222
            let over = track.wave.is_none_or(|old| old == wave || scope.cursor >= old.0);
            assert!(over, "{key:?}: wave {:?} gave way to {wave:?} before its end", track.wave); // TM-166
            // TM-168 TM-169 TM-275: every wave answers at least one flush of its own.
            assert!(track.waves <= scope.flushes + self.restarts, "{key:?}: more waves than flushes");
        }
        track.wave = Some(wave);
        self.launches += 1;
        if !self.kind && self.random.below(25) == 0 {
            self.event(Event::LaunchFailed { key, cause: String::new() });
            return;
        }
        self.names += 1;
        let id = WorkerId::new(format!("w{}", self.names));
        let plan = self.plan();
        if !self.kind && self.random.below(12) == 0 {
            let twin =
                Worker { id: None, key: key.clone(), generation, aim, plan, attempt: None, stopped: false };
            self.workers.push(twin);
        }
        let worker = Worker {
            id: Some(id.clone()),
            key: key.clone(),
            generation,
            aim,
            plan,
            attempt: None,
            stopped: false,
        };
        self.workers.push(worker);
        self.event(Event::Launched { key, worker: id });
    }

    fn plan(&mut self) -> Plan {
        if self.kind {
            return Plan::Publish;
        }
        match self.random.below(20) {
            0 | 1 => Plan::Fail,
            2 => Plan::CrashBefore,
            3 => Plan::CrashAfter,
            4 => Plan::Hang,
            5 => Plan::PublishWhenStopped,
            6 => Plan::Lie,
            _ => Plan::Publish,
        }
    }

    fn move_worker(&mut self) {
        if self.workers.is_empty() {
            return;
        }
        let at = self.random.below(self.workers.len());
        let worker = &mut self.workers[at];
        let hanging = matches!(worker.plan, Plan::Hang | Plan::PublishWhenStopped);
        let stray = worker.id.is_none() || worker.generation != self.database.generation;
        if stray {
            self.tracks.entry(worker.key.clone()).or_default().strayed = true;
        }
        if worker.attempt.is_none() {
            match self.database.start_attempt(&worker.key, worker.generation, worker.aim.0) {
                Attempt::Started(attempt) => worker.attempt = Some(attempt),
                Attempt::Terminal => self.end(at, Ending::Permanent, Some(ErrorCode::WindowAttemptLimit)),
                Attempt::Superseded => self.end(at, Ending::Superseded, Some(ErrorCode::CursorConflict)),
            }
            return;
        }
        if hanging && !worker.stopped && !self.kind {
            return;
        }
        match worker.plan {
            Plan::Publish | Plan::CrashAfter | Plan::PublishWhenStopped => {
                let (attempt, generation) = (worker.attempt.unwrap(), worker.generation);
                let done = self.database.publish(&worker.key.clone(), generation, attempt, worker.aim);
                let crash = worker.plan == Plan::CrashAfter;
                match (done, crash) {
                    (_, true) => self.end(at, Ending::Transient, None),
                    (true, _) => self.end(at, Ending::Done, None),
                    (false, _) => self.end(at, Ending::Superseded, Some(ErrorCode::AttemptSuperseded)),
                }
            }
            Plan::Fail => self.end(at, Ending::Transient, Some(ErrorCode::InvalidOutput)),
            Plan::CrashBefore => self.end(at, Ending::Transient, None),
            Plan::Hang => self.end(at, Ending::Terminated, Some(ErrorCode::Terminated)),
            Plan::Lie => self.end(at, Ending::Done, None),
        }
    }

    fn end(&mut self, at: usize, ending: Ending, error_code: Option<ErrorCode>) {
        let worker = self.workers.swap_remove(at);
        let Some(id) = worker.id.filter(|_| worker.generation == self.database.generation) else { return };
        let crashed = ending == Ending::Transient && error_code.is_none();
        let counts = OutcomeCounts::default();
        let outcome = (!crashed).then(|| Outcome {
            ending,
            step: Step::Publish,
            error_code,
            window: None,
            counts,
            step_millis: BTreeMap::new(),
            first_read_millis: None,
        });
        self.event(Event::Ended { worker: id, ending: WorkerEnding { ending, outcome } });
    }

    fn operator_repairs(&mut self) {
        let key = key(self.random.below(self.keys));
        if let Some(scope) = self.database.scopes.get_mut(&key).filter(|scope| scope.attempts >= 3) {
            (scope.attempts, scope.attempt) = (0, None);
        }
    }

    /// A new supervisor that remembers nothing; workers of the old term live on (TM-174, TM-194).
    pub fn restart(&mut self) {
        self.database.generation += 1;
        self.restarts += 1;
        self.decider = Decider::new(self.settings.clone());
        for track in self.tracks.values_mut() {
            *track = Track { waves: track.waves, ..Track::default() };
        }
    }

    fn check(&mut self) {
        let held = self.decider.footprint();
        assert!(held.ready <= self.settings.ready_limit(), "{held:?}");
        assert!(held.in_flight <= self.settings.max_workers, "{held:?}");
        assert!(held.parked.max(held.terminal) <= self.settings.memory_limit(), "{held:?}");
        self.database.check();
        let bound = 4 * self.keys + 4 * self.settings.ready_limit();
        for (key, track) in &mut self.tracks {
            let fact = self.database.fact(key);
            let wanting =
                fact.is_some_and(|fact| fact.terminal.is_none() && fact.cursor < fact.source_through);
            let generation = self.database.generation;
            let busy =
                self.workers.iter().any(|worker| worker.key == *key && worker.generation == generation);
            if !wanting || busy || self.now < track.not_before {
                track.passed_over = 0;
            }
            assert!(track.passed_over <= bound, "{key:?} waits forever"); // TM-197
        }
    }

    /// From here on everything works; what can be finished must be finished.
    pub fn drain(&mut self) {
        self.kind = true;
        for _ in 0..400 * self.keys {
            self.tick(Duration::from_secs(40));
            for worker in &mut self.workers {
                worker.plan = Plan::Publish;
            }
            for _ in 0..4 * self.settings.max_workers {
                self.move_worker();
            }
            self.pump();
            self.check();
            if self.workers.is_empty() && self.unfinished().is_none() {
                self.kind = false;
                return;
            }
        }
        panic!("never finished: {:?}", self.unfinished());
    }

    fn unfinished(&self) -> Option<WorkKey> {
        let facts = self.database.scopes.keys().filter_map(|key| self.database.fact(key));
        facts.filter(|fact| fact.terminal.is_none()).map(|fact| fact.key).next()
    }
}
