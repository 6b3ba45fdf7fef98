//! A whole fleet: its database, its processes, its workers, everything that may go wrong, and what must
//! hold after each step.

use std::collections::BTreeMap;
use std::time::Duration;

use powercontext_core::ids::WaveId;
use powercontext_core::work::{Fence, WorkMode};
use powercontext_supervisor::SupervisorSettings;

use crate::audit::{Audit, Cause};
use crate::database::Database;
use crate::process::{Call, Process};
use crate::random::Random;
use crate::waves::Frozen;
use crate::workers::{Plan, Worker};

/// What happened, so that a run can show that it was not idle.
#[derive(Debug, Default)]
pub struct Counts {
    pub terms: u64,
    pub lost_terms: u64,
    pub explicit: u64,
    pub automatic: u64,
    pub catch_up: u64,
    pub frozen: u64,
    pub completed: u64,
    pub held_up: u64,
    pub lost_replies: u64,
    pub ghosts: u64,
    pub crashes: u64,
    pub freezes: u64,
    pub resignations: u64,
    /// The most launches of others that somebody had to wait for.
    pub longest_wait: usize,
}

impl Counts {
    pub fn launched(&mut self, mode: WorkMode) {
        match mode {
            WorkMode::Explicit => self.explicit += 1,
            WorkMode::Automatic => self.automatic += 1,
            WorkMode::CatchUp => self.catch_up += 1,
        }
    }
}

/// The shape of a fleet.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub shared: bool,
    pub processes: usize,
    pub scopes_per_binding: usize,
    /// Little goes wrong and much is asked for, so that a term lasts and a backlog stays.
    pub busy: bool,
}

pub struct World {
    pub database: Database,
    pub audit: Audit,
    pub settings: SupervisorSettings,
    pub random: Random,
    pub time: Duration,
    /// Everything works from now on.
    pub kind: bool,
    /// Each place has a process, or the time when one is started.
    pub places: Vec<Result<Process, Duration>>,
    pub workers: Vec<Worker>,
    /// Calls that nobody waits for.
    pub ghosts: Vec<Call>,
    /// Until when the database does not answer.
    pub away_until: Duration,
    /// Waves as they were frozen, until their leader hears of it.
    pub frozen: BTreeMap<WaveId, Frozen>,
    pub counts: Counts,
    pub lives: u64,
    pub names: u64,
    pub busy: bool,
    steps: u64,
}

impl World {
    pub fn new(seed: u64, shape: Shape, settings: SupervisorSettings) -> Self {
        let bindings = settings.bindings.len();
        let database = Database::new(shape.shared, bindings, shape.scopes_per_binding);
        let audit = Audit::new(&database, settings.lease.times().ttl);
        Self {
            database,
            audit,
            settings,
            random: Random(seed),
            time: Duration::ZERO,
            kind: false,
            places: (0..shape.processes).map(|_| Err(Duration::ZERO)).collect(),
            workers: Vec::new(),
            ghosts: Vec::new(),
            away_until: Duration::ZERO,
            frozen: BTreeMap::new(),
            counts: Counts::default(),
            lives: 0,
            names: 0,
            steps: 0,
            busy: shape.busy,
        }
    }

    pub fn step(&mut self) {
        match self.random.below(1000) {
            0..200 if self.busy => {
                self.capture();
                self.flush();
            }
            200..240 if self.busy => {
                let by = self.random.millis(20, 200);
                self.pass(by);
            }
            989.. if self.busy && self.random.below(16) > 0 => self.move_worker(),
            240..350 if self.busy => self.move_worker(),
            0..60 => self.capture(),
            60..80 => self.flush(),
            80..300 => {
                let by = self.random.millis(20, 500);
                self.pass(by);
            }
            300..600 => self.run_one(),
            600..900 => self.move_worker(),
            900..972 => self.network(),
            972..980 => {
                let place = self.random.below(self.places.len());
                self.repeat_answer(place);
            }
            980..985 => {
                let place = self.random.below(self.places.len());
                self.stranger_ends(place);
            }
            985..989 => self.operator_repairs(),
            _ => self.fault(),
        }
        self.check();
    }

    fn capture(&mut self) {
        let key = self.random.below(self.database.scopes.len());
        self.database.capture(key);
        self.audit.saw(&self.database, &Cause::Capture(key));
    }

    fn flush(&mut self) {
        let key = self.random.below(self.database.scopes.len());
        let taken = self.database.flush(key);
        self.audit.saw(&self.database, &Cause::Flush(key));
        let place = self.random.below(self.places.len());
        if let (true, Ok(process)) = (taken, &mut self.places[place]) {
            process.wake = true;
        }
    }

    fn run_one(&mut self) {
        let leads = |place: &Result<Process, Duration>| place.as_ref().is_ok_and(|it| it.term.is_some());
        let leader = self.places.iter().position(leads);
        match leader.filter(|_| self.random.below(3) > 0) {
            Some(place) => self.run(place),
            None => {
                let place = self.random.below(self.places.len());
                self.run(place);
            }
        }
    }

    /// Time passes for all clocks alike.
    pub fn pass(&mut self, by: Duration) {
        self.time += by;
        self.database.clock += by;
        self.places.iter_mut().flatten().for_each(|process| process.lease_calls = 0);
    }

    fn fault(&mut self) {
        let place = self.random.below(self.places.len());
        match self.random.below(24) {
            0 | 1 => {
                self.counts.crashes += 1;
                let back_in = self.random.millis(0, 30_000);
                self.crash(place, back_in);
            }
            2..6 => {
                self.counts.freezes += 1;
                let until = self.time + self.random.millis(100, if self.busy { 3_000 } else { 30_000 });
                if let Ok(process) = &mut self.places[place] {
                    process.frozen_until = until;
                }
            }
            6 => {
                self.counts.resignations += 1;
                self.resign(place);
            }
            7..9 => {
                self.away_until = self.time + self.random.millis(100, if self.busy { 2_000 } else { 20_000 });
            }
            9..11 => {
                let jump = self.random.millis(10, 20_000);
                if let Ok(process) = &mut self.places[place] {
                    process.ahead += jump;
                    process.lease_calls = 0;
                }
            }
            11 => self.jump(1, 20_000),
            12..14 => self.jump(1, 2_000),
            14 => self.jump(-1, 1_000),
            15 => {
                let by = self.random.millis(1_000, 120_000);
                self.pass(by);
            }
            _ => {
                let by = self.random.millis(200, 3_000);
                self.pass(by);
            }
        }
    }

    /// The clock of the database jumps.
    fn jump(&mut self, sign: i64, most: u64) {
        let by = self.random.millis(1, most);
        self.audit.clock_jumped(sign * i64::try_from(by.as_millis()).unwrap());
        let clock = &mut self.database.clock;
        *clock = if sign > 0 { *clock + by } else { *clock - by };
    }

    fn operator_repairs(&mut self) {
        for key in 0..self.database.scopes.len() {
            if self.random.once_in(3) && self.database.repair(key) {
                self.audit.saw(&self.database, &Cause::Repair(key));
            }
        }
    }

    pub fn check(&mut self) {
        self.steps += 1;
        let margin = self.settings.lease.times().margin;
        let clock = self.database.clock;
        let mut leaders = 0;
        for process in self.places.iter().flatten() {
            let at = self.time + process.ahead;
            if let Some(fence) = process.tenure.fence().filter(|_| process.tenure.may_act(at)) {
                // TM-183 TM-187: whoever thinks that it may act holds the lease, unless the clock of the
                // database has jumped by the margin or more since the lease was won or renewed.
                let lease = &self.database.lease;
                let valid = lease.names(fence) && lease.is_valid(clock);
                let excused = self.audit.ahead(fence) >= margin || !self.database.shared;
                assert!(valid || excused, "{fence:?} may act at {at:?}, but {lease:?} at {clock:?}");
                leaders += usize::from(valid);
            }
            if let Some(term) = &process.term {
                let held = term.decider.footprint();
                let (ready, page) = (self.settings.ready_limit(), self.settings.page_size);
                assert!(held.ready.max(held.automatic) <= ready, "{held:?}");
                assert!(held.in_flight <= self.settings.max_workers, "{held:?}");
                assert!(held.parked.max(held.terminal) <= self.settings.memory_limit(), "{held:?}");
                assert!(held.covered <= page * self.settings.bindings.len(), "{held:?}");
            }
        }
        assert!(leaders <= 1, "two leaders"); // TM-183
        if self.steps.is_multiple_of(64) {
            self.audit.whole(&self.database);
        }
    }

    /// From here on everything works; what can be finished must be finished in bounded time.
    pub fn drain(&mut self) {
        self.kind = true;
        self.away_until = Duration::ZERO;
        self.ghosts.clear();
        for process in self.places.iter_mut().flatten() {
            process.frozen_until = Duration::ZERO;
        }
        if !self.database.shared {
            // Two of them would end each other's terms for ever.
            (1..self.places.len()).for_each(|place| self.crash(place, Duration::from_secs(100_000)));
        }
        let begin = self.time;
        let longest = self.settings.bindings.iter().filter_map(|binding| binding.interval).max();
        let patience = 8 * longest.unwrap_or_default()
            + 20 * (self.settings.backoff.longest + self.settings.worker_timeout);
        loop {
            self.pass(Duration::from_millis(1_500));
            self.end_strangers();
            for _ in 0..6 {
                for _ in 0..self.workers.len() * 2 {
                    self.move_worker();
                }
                for place in 0..self.places.len() {
                    self.run(place);
                }
            }
            self.network();
            self.check();
            let unfinished = self.unfinished();
            if unfinished.is_none() && self.workers.is_empty() {
                break;
            }
            assert!(self.time < begin + patience, "never finished: {unfinished:?}");
        }
        for place in self.places.iter_mut().filter(|place| place.is_err()) {
            *place = Err(self.time);
        }
        self.kind = false;
    }

    /// Workers that no leader knows of hang no longer; those that one knows of have to be stopped.
    fn end_strangers(&mut self) {
        let led = |process: &Process| process.term.as_ref().map(|term| term.fence.clone());
        let led: Vec<Fence> = self.places.iter().flatten().filter_map(led).collect();
        for worker in &mut self.workers {
            let hangs = matches!(worker.plan, Plan::Hang | Plan::PublishWhenStopped);
            if !hangs || worker.id.is_none() || !led.contains(&worker.fence) {
                worker.plan = Plan::Publish;
            }
        }
    }

    /// What is left to do although nothing stands in its way.
    fn unfinished(&self) -> Option<String> {
        for (key, scope) in self.database.scopes.iter().enumerate() {
            let open = scope.terminal().is_none();
            let number = self.database.binding_of(key);
            let automatic = self.settings.bindings[number].interval.is_some();
            if open && scope.is_flushed() {
                return Some(format!("the flush of key {key}: {scope:?}")); // TM-167 TM-190
            }
            if open && automatic && scope.cursor < scope.head {
                return Some(format!("the Sources of key {key}: {scope:?}")); // TM-204 TM-212
            }
            // TM-208 TM-217: without terminal frontiers the last wave completes, and no row stays.
            let mut keys = self.database.keys_of(number);
            let all_open = keys.all(|key| self.database.scopes[key].terminal().is_none());
            if automatic && all_open && scope.row.is_some() {
                return Some(format!("the wave of binding {number}: {scope:?}"));
            }
        }
        None
    }
}
