//! What a supervisor may do in one term, judged by what it was told and never by its own state.

use std::time::Duration;

use powercontext_core::work::{Fence, WorkMode};
use powercontext_supervisor::SupervisorSettings;
use powercontext_supervisor::facts::{LateFact, PendingFact};
use powercontext_supervisor::notice::{Notice, Setback};

use crate::database::{Aim, Database, Scope};
use crate::waves::Frozen;

/// Facts of a key as they were read, and how often Cursor and budget had moved by then.
#[derive(Clone, Debug)]
struct Told {
    fact: PendingFact,
    moves: u64,
}

#[derive(Clone, Debug, Default)]
struct Track {
    /// The newest facts that replace all older ones.
    base: Option<Told>,
    /// Later facts that are only used for a key that nothing is known of.
    late: Vec<Told>,
    /// The explicit wave that was launched last, until it is over.
    wave: Option<(i64, i64)>,
    waves: u64,
    failures: u32,
    not_before: Duration,
    /// What runs or was not looked at yet since it ended.
    running: Option<Aim>,
    /// The target of the catch-up that was launched last.
    catch_up: Option<i64>,
    /// What was remembered of failures may be forgotten.
    vague: bool,
    passed_over: usize,
}

pub struct Expect {
    fence: Fence,
    /// The longest that anybody was passed over.
    pub longest: usize,
    tracks: Vec<Track>,
    /// Memory is large enough for all keys, so nothing may be forgotten.
    exact: bool,
    flushes: Vec<u64>,
    /// The frozen wave of each binding.
    open: Vec<Option<Frozen>>,
    settings: SupervisorSettings,
}

impl Expect {
    pub fn new(fence: Fence, database: &Database, settings: &SupervisorSettings) -> Self {
        Self {
            fence,
            longest: 0,
            tracks: vec![Track::default(); database.scopes.len()],
            exact: settings.memory_limit() >= database.scopes.len(),
            flushes: database.scopes.iter().map(|scope| scope.flushes).collect(),
            open: vec![None; database.bindings.len()],
            settings: settings.clone(),
        }
    }

    pub fn opened(&mut self, binding: usize, frozen: Option<Frozen>) {
        self.open[binding] = frozen;
    }

    /// A page of keys with a flush, or a page of targets, was read.
    pub fn listed(&mut self, key: usize, fact: &PendingFact, moves: u64, target: Option<i64>) {
        let track = &mut self.tracks[key];
        let covered = target.is_some_and(|target| fact.cursor.get() >= target);
        if track.running.is_none() && !covered {
            track.learn(fact, moves, target);
        }
    }

    /// The facts of a key whose worker is gone were read, and the notices that follow were heard.
    pub fn observed(&mut self, key: usize, fact: Option<&PendingFact>, moves: u64) {
        let track = &mut self.tracks[key];
        let aim = track.running.take();
        let target = aim.filter(|aim| aim.mode != WorkMode::Explicit).map(|aim| aim.target);
        match fact {
            Some(fact) => track.learn(fact, moves, target),
            None => (track.base, track.late) = (None, Vec::new()),
        }
    }

    /// A page of live rows was read during a wave.
    pub fn late(&mut self, key: usize, late: &LateFact, moves: u64) {
        let track = &mut self.tracks[key];
        if track.running.is_some() || late.held {
            return;
        }
        let fact = &late.fact;
        track.vague |= fact.terminal.is_some() || fact.cursor >= fact.source_through;
        if !is_flushed(fact) && track.late.iter().all(|told| told.fact != *fact) {
            track.late.push(Told { fact: fact.clone(), moves });
        }
    }

    pub fn launch_failed(&mut self, key: usize) {
        self.tracks[key].running = None;
    }

    pub fn hear(&mut self, database: &Database, notice: &Notice, at: Duration) {
        match notice {
            Notice::WindowPublished { key, window, .. } => {
                let key = database.number(key);
                assert!(database.scopes[key].cursor > window.after.get(), "{key}: no progress");
                let track = &mut self.tracks[key];
                (track.failures, track.not_before, track.vague) = (0, Duration::ZERO, false);
            }
            Notice::WindowFailed(setback) => self.set_back(database.number(&setback.key), setback, (at, 1)),
            Notice::WindowConflict(setback) => {
                let delay = self.settings.conflict_delay;
                assert!(setback.delay.is_none_or(|told| told == delay), "{setback:?}"); // TM-226
                self.set_back(database.number(&setback.key), setback, (at, 0)); // TM-225
            }
            _ => {}
        }
    }

    fn set_back(&mut self, key: usize, setback: &Setback, (at, more): (Duration, u32)) {
        let track = &mut self.tracks[key];
        if self.exact {
            let known = setback.failures == track.failures + more;
            assert!(known || (track.vague && setback.failures == more), "{setback:?} after {track:?}");
        }
        (track.failures, track.vague, track.passed_over) = (setback.failures, false, 0);
        // Without a retry nothing is remembered; only a repair lets the key run again.
        track.not_before = setback.delay.map_or(Duration::ZERO, |delay| at + delay);
    }

    /// Judges a launch by what was told, and remembers it.
    pub fn launch(&mut self, database: &Database, aim: Aim, at: Duration) {
        let scope = &database.scopes[aim.key];
        let track = &self.tracks[aim.key];
        assert_eq!(track.running, None, "{aim:?}: two workers in one term"); // TM-196
        assert!(aim.after < aim.target && aim.target <= scope.head, "{aim:?}: {scope:?}");
        let moves = self.source_of(database, aim);
        if moves == scope.moves {
            // Nobody else touched the key since it was read.
            assert_eq!(aim.after, scope.cursor, "{aim:?}: not at the Cursor"); // TM-166
            assert_eq!(scope.terminal(), None, "{aim:?}: on a closed frontier"); // TM-068 TM-274
        }
        if self.exact && !track.vague {
            assert!(at >= track.not_before, "{aim:?}: before its retry time at {at:?}: {track:?}"); // TM-222
        }
        if aim.mode == WorkMode::Explicit {
            self.explicit(database, aim);
        }
        for key in 0..self.tracks.len() {
            self.pass_over(database, key, (aim, at));
        }
        let track = &mut self.tracks[aim.key];
        (track.passed_over, track.running) = (0, Some(aim));
        track.late.clear();
        if aim.mode == WorkMode::CatchUp {
            track.catch_up = Some(aim.target);
        }
    }

    /// Whether a key has a flush that a free worker could answer now.
    pub fn somebody_waits(&self, database: &Database, at: Duration) -> bool {
        let waits = |(track, scope): (&Track, &Scope)| {
            let open = scope.is_flushed() && scope.cursor < scope.head && scope.terminal().is_none();
            open && track.running.is_none() && at >= track.not_before
        };
        self.tracks.iter().zip(&database.scopes).any(waits)
    }

    pub fn forget_waits(&mut self) {
        self.tracks.iter_mut().for_each(|track| track.passed_over = 0);
    }

    /// What was told that this launch follows from; how often the key had moved by then.
    fn source_of(&self, database: &Database, aim: Aim) -> u64 {
        let track = &self.tracks[aim.key];
        let binding = database.binding_of(aim.key);
        let automatic = self.settings.bindings[binding].interval.is_some();
        let fits = |told: &&Told| {
            let fact = &told.fact;
            let (through, flush) = (fact.source_through.get(), fact.flush_generation.get());
            let by_mode = match aim.mode {
                // TM-166: a new wave freezes the newest facts; a continued one keeps both values.
                WorkMode::Explicit => {
                    let wave = (aim.target, aim.claimed);
                    is_flushed(fact) && (track.wave == Some(wave) || wave == (through, flush))
                }
                WorkMode::Automatic => automatic && !is_flushed(fact), // TM-219
                WorkMode::CatchUp => automatic && !is_flushed(fact) && aim.target <= through,
            };
            by_mode && fact.terminal.is_none() && fact.cursor.get() == aim.after
        };
        let late = track.late.iter().rev().find(fits);
        let base =
            track.base.as_ref().filter(fits).filter(|_| aim.mode != WorkMode::CatchUp || late.is_none());
        let Some(told) = base.or(late) else { panic!("{aim:?} follows from nothing told: {track:?}") };
        let frozen = self.open[binding].as_ref();
        match aim.mode {
            WorkMode::Explicit => {}
            WorkMode::Automatic => {
                // TM-209 TM-210: exactly as far as the wave was frozen.
                let target = frozen.and_then(|frozen| frozen.target(aim.key)).map(|target| target.through);
                let known = target == Some(aim.target) || told.moves != database.scopes[aim.key].moves;
                assert!(known, "{aim:?} but frozen {target:?}");
            }
            WorkMode::CatchUp => {
                // TM-212: a Scope that the wave of its page does not hold, or one that is on its way.
                assert!(base.is_none() || track.catch_up == Some(aim.target), "{aim:?}: {track:?}");
            }
        }
        told.moves
    }

    fn explicit(&mut self, database: &Database, aim: Aim) {
        let scope = &database.scopes[aim.key];
        let track = &mut self.tracks[aim.key];
        let wave = (aim.target, aim.claimed);
        if track.wave == Some(wave) {
            return;
        }
        track.waves += 1;
        // Of a term that is over without knowing it, another one may have answered part of a wave.
        let current = database.lease.names(&self.fence);
        if self.exact && !track.vague && current {
            let over = track.wave.is_none_or(|old| scope.cursor >= old.0);
            assert!(over, "{aim:?}: wave {:?} gave way before its end", track.wave); // TM-166
            // TM-168 TM-169 TM-275: every wave answers at least one flush of its own.
            let asked = scope.flushes - self.flushes[aim.key];
            assert!(track.waves <= asked + 1, "{aim:?}: wave {} of {asked} flushes", track.waves);
        }
        track.wave = Some(wave);
    }

    /// Nobody who could run is passed over forever (TM-197).
    fn pass_over(&mut self, database: &Database, key: usize, (aim, at): (Aim, Duration)) {
        let bound = 2 * (self.tracks.len() + 4 * self.settings.ready_limit());
        let scope = &database.scopes[key];
        let explicit = aim.mode == WorkMode::Explicit;
        let waits = scope.row.is_some_and(|row| row.handled < row.flush && scope.cursor < row.through);
        let frozen = self.open[database.binding_of(key)].as_ref().and_then(|frozen| frozen.target(key));
        let held = frozen.is_some_and(|target| scope.cursor < target.through);
        let track = &mut self.tracks[key];
        let wanting = (waits || held) && scope.terminal().is_none() && at >= track.not_before;
        if !wanting || track.running.is_some() {
            track.passed_over = 0;
        } else if key != aim.key && explicit == waits {
            track.passed_over += 1;
            self.longest = self.longest.max(track.passed_over);
            assert!(track.passed_over <= bound, "key {key} waits forever: {track:?}");
        }
    }
}

impl Track {
    fn learn(&mut self, fact: &PendingFact, moves: u64, target: Option<i64>) {
        let flushed = is_flushed(fact) && fact.cursor < fact.source_through;
        let open = flushed || (!is_flushed(fact) && target.is_some_and(|target| fact.cursor.get() < target));
        if !open || fact.terminal.is_some() {
            // Nothing is remembered of a key that needs no Window; after a repair its wave starts anew.
            self.waves = self.waves.saturating_sub(u64::from(self.wave.take().is_some()));
            (self.failures, self.not_before) = (0, Duration::ZERO);
        }
        self.base = Some(Told { fact: fact.clone(), moves });
        self.late.clear();
    }
}

fn is_flushed(fact: &PendingFact) -> bool {
    fact.handled_flush_generation < fact.flush_generation
}
