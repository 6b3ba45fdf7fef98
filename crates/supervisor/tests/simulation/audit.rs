//! An independent look at durable state: after every change it is compared with a copy of the state
//! before, and must follow from what was done. It shares no rule with the model database, so a mistake
//! there is found as well.

use std::collections::VecDeque;
use std::time::Duration;

use powercontext_core::work::{Fence, WorkMode};
use powercontext_supervisor::decide::{WaveAnswer, WaveCall};
use powercontext_supervisor::facts::Completion;
use powercontext_supervisor::lease::{LeaseAnswer, LeaseCall};

use crate::database::{Aim, Database, Scope, WINDOW};
use crate::lease::Lease;
use crate::waves::{Binding, Target};

/// What was done to the database.
#[derive(Clone, Debug)]
pub enum Cause {
    Capture(usize),
    Flush(usize),
    Attempt(Fence, Aim),
    Close(usize),
    Repair(usize),
    Publish(Fence, Aim),
    Settle(Fence, usize),
    Wave(Fence, WaveCall, Option<WaveAnswer>),
    Lease(LeaseCall, LeaseAnswer),
}

#[derive(Debug)]
pub struct Audit {
    scopes: Vec<Scope>,
    bindings: Vec<Binding>,
    lease: Lease,
    /// Until when the newest term may write.
    granted: Option<Duration>,
    /// Of the newest terms: how far the database's clock has jumped since the lease was granted last, in
    /// milliseconds, now and at most.
    jumps: VecDeque<(i64, i64, i64)>,
    acquisitions: i64,
    /// Attempts of the frontier at the Cursor, counted here.
    starts: Vec<u32>,
    /// Head of each unanswered flush, by generation.
    asked: Vec<Vec<(i64, i64)>>,
    ttl: Duration,
}

impl Audit {
    pub fn new(database: &Database, ttl: Duration) -> Self {
        let keys = database.scopes.len();
        Self {
            scopes: database.scopes.clone(),
            bindings: database.bindings.clone(),
            lease: database.lease.clone(),
            granted: None,
            jumps: VecDeque::new(),
            acquisitions: 0,
            starts: vec![0; keys],
            asked: vec![Vec::new(); keys],
            ttl,
        }
    }

    /// Judges one change and remembers the new state.
    pub fn saw(&mut self, database: &Database, cause: &Cause) {
        match cause {
            Cause::Lease(call, answer) => return self.lease_changed(database, call, *answer),
            Cause::Wave(fence, call, answer) => self.wave_changed(database, (fence, call), answer.as_ref()),
            Cause::Capture(key)
            | Cause::Flush(key)
            | Cause::Close(key)
            | Cause::Repair(key)
            | Cause::Settle(_, key)
            | Cause::Publish(_, Aim { key, .. })
            | Cause::Attempt(_, Aim { key, .. }) => self.key_changed(database, *key, cause),
        }
        assert_eq!(self.lease, database.lease, "{cause:?} changed the lease");
    }

    /// Everything else is as it was.
    pub fn whole(&mut self, database: &Database) {
        assert_eq!(self.scopes, database.scopes, "a change that nobody made");
        assert_eq!(self.bindings, database.bindings, "a change that nobody made");
        assert_eq!(self.lease, database.lease, "a change that nobody made");
    }

    /// The database's clock jumps, forward or backward.
    pub fn clock_jumped(&mut self, millis: i64) {
        for (_, now, most) in &mut self.jumps {
            *now += millis;
            *most = (*most).max(*now);
        }
    }

    /// How far the database's clock was ahead at most since this term was granted its lease last.
    pub fn ahead(&self, fence: &Fence) -> Duration {
        let term = self.jumps.iter().find(|(generation, ..)| *generation == fence.generation.get());
        Duration::from_millis(term.map_or(0, |(_, _, most)| most.unsigned_abs()))
    }

    fn granted(&mut self, database: &Database) {
        self.granted = Some(database.clock + self.ttl);
        let generation = database.lease.generation;
        self.jumps.retain(|(known, ..)| *known != generation && *known > generation - 8);
        self.jumps.push_back((generation, 0, 0));
    }

    /// Whether this term may write by what was granted to it.
    fn may_write(&self, database: &Database, fence: &Fence) -> bool {
        let unexpired = !database.shared || self.granted.is_some_and(|until| database.clock < until);
        self.lease.names(fence) && unexpired
    }

    fn key_changed(&mut self, database: &Database, key: usize, cause: &Cause) {
        let (old, new) = (self.scopes[key], database.scopes[key]);
        if old == new {
            return;
        }
        if let Cause::Attempt(fence, _) | Cause::Publish(fence, _) | Cause::Settle(fence, _) = cause {
            assert!(self.may_write(database, fence), "{cause:?} without a valid term"); // TM-194 TM-272
        }
        let captured = i64::from(matches!(cause, Cause::Capture(_)));
        assert_eq!(new.head, old.head + captured, "{cause:?}");
        self.cursor_changed(key, (old, new), cause);
        if new.attempts > old.attempts {
            assert!(matches!(cause, Cause::Attempt(..)), "{cause:?} counts an attempt");
            self.starts[key] += 1;
            assert!(self.starts[key] <= 3, "key {key}: a fourth attempt"); // TM-066 TM-274
        }
        if matches!(cause, Cause::Repair(_)) {
            self.starts[key] = 0;
        }
        if old.row != new.row {
            self.row_changed(key, (old, new), cause);
        }
        if new.cursor < new.head {
            // TM-170: no row goes while work remains, and none lags behind its Sources (TM-164).
            let row = new.row.unwrap_or_else(|| panic!("{cause:?}: no Pending while work remains"));
            assert_eq!(row.through, new.head, "{cause:?}");
        }
        self.scopes[key] = new;
    }

    fn cursor_changed(&mut self, key: usize, (old, new): (Scope, Scope), cause: &Cause) {
        if new.cursor == old.cursor {
            return;
        }
        let Cause::Publish(_, aim) = cause else { panic!("{cause:?} moved the Cursor") };
        assert!(new.cursor > old.cursor, "{cause:?}: the Cursor went back");
        // Contiguous, so no Window is published twice and none is skipped (TM-158, TM-166).
        assert_eq!(aim.after, old.cursor, "{cause:?}: not the next Window");
        assert!(new.cursor <= aim.target.min(old.cursor + WINDOW).min(old.head), "{cause:?}: too far");
        self.starts[key] = 0;
    }

    fn row_changed(&mut self, key: usize, (old, new): (Scope, Scope), cause: &Cause) {
        let explicit = matches!(cause, Cause::Publish(_, aim) if aim.mode == WorkMode::Explicit);
        let Some(row) = new.row else {
            // TM-170 TM-171 TM-213: only explicit work removes a single row.
            let row = old.row.unwrap_or_else(|| panic!("{cause:?}"));
            assert!(explicit || matches!(cause, Cause::Settle(..)), "{cause:?} removed Pending");
            assert!(new.cursor >= row.through, "{cause:?} removed Pending of an uncovered key");
            self.answered(key, new.cursor, i64::MAX);
            return;
        };
        let asks = matches!(cause, Cause::Flush(_));
        let before = old.row.unwrap_or(crate::database::Row { through: 0, flush: 0, handled: 0 });
        assert!(row.handled <= row.flush, "{cause:?}: more flushes answered than asked"); // TM-163
        assert_eq!(row.flush, before.flush + i64::from(asks), "{cause:?}"); // TM-164 TM-165
        if asks {
            self.asked[key].push((row.flush, new.head));
        }
        if row.through != before.through {
            let raises = asks || matches!(cause, Cause::Capture(_));
            assert!(raises && row.through > before.through, "{cause:?} moved source_through");
        }
        if row.handled != before.handled {
            assert!(explicit && row.handled > before.handled, "{cause:?} answered a flush"); // TM-167
            self.answered(key, new.cursor, row.handled);
        }
    }

    /// Flushes up to a generation are answered: what there was when they were asked is covered.
    fn answered(&mut self, key: usize, cursor: i64, generation: i64) {
        for (asked, head) in &self.asked[key] {
            let early = *asked <= generation && cursor < *head;
            assert!(!early, "key {key}: flush {asked} over {head} answered at {cursor}"); // TM-167
        }
        self.asked[key].retain(|(asked, _)| *asked > generation);
    }

    fn wave_changed(
        &mut self,
        database: &Database,
        (fence, call): (&Fence, &WaveCall),
        answer: Option<&WaveAnswer>,
    ) {
        if answer.is_some() && !call.is_read() {
            assert!(self.may_write(database, fence), "{call:?} of {fence:?} without a valid term"); // TM-194
        }
        for number in 0..database.bindings.len() {
            let (old, new) = (&self.bindings[number], &database.bindings[number]);
            if old.completed_at != new.completed_at {
                assert!(matches!(call, WaveCall::Complete { .. }), "{call:?} set the completion time");
            }
            if old != new {
                self.binding_changed(database, number, call);
                self.bindings[number] = database.bindings[number].clone();
            }
            for key in database.keys_of(number) {
                if self.scopes[key] != database.scopes[key] {
                    assert!(matches!(call, WaveCall::Complete { .. }), "{call:?} changed key {key}");
                    self.scopes[key] = database.scopes[key];
                }
            }
        }
        if let Some(WaveAnswer::Completed { completion: Completion::Uncovered, .. }) = answer {
            panic!("{call:?}: completion was asked for while a target is not covered"); // TM-211
        }
    }

    fn binding_changed(&mut self, database: &Database, number: usize, call: &WaveCall) {
        let (old, new) = (self.bindings[number].clone(), &database.bindings[number]);
        match call {
            WaveCall::Clear => assert_eq!(new.wave, None), // TM-206
            WaveCall::Freeze { interval, .. } => {
                let due = old.completed_at.is_none_or(|done| database.clock >= done + *interval);
                assert!(due, "binding {number} was not due"); // TM-192 TM-204
                let row = |key: usize| {
                    let row = database.scopes[key].row?;
                    Some(Target { key, through: row.through, completed: false })
                };
                let all: Vec<Target> = database.keys_of(number).filter_map(row).collect();
                assert_eq!(new.wave.as_ref().map(|wave| &wave.targets), Some(&all)); // TM-207 B-31
            }
            WaveCall::MarkCovered { .. } => {
                let (old, new) = (old.wave.unwrap(), new.wave.as_ref().unwrap());
                assert_eq!((&old.id, old.targets.len()), (&new.id, new.targets.len())); // TM-207
                for (old, new) in old.targets.iter().zip(&new.targets) {
                    assert_eq!((old.key, old.through), (new.key, new.through), "{call:?}: other members");
                    let covered = database.scopes[new.key].cursor >= new.through;
                    assert!(old.completed == new.completed || covered, "{call:?}: {new:?} is not covered");
                }
            }
            WaveCall::Complete { .. } => {
                let wave = old.wave.unwrap_or_else(|| panic!("{call:?} of no wave"));
                assert_eq!((new.completed_at, &new.wave), (Some(database.clock), &None)); // TM-214
                for target in &wave.targets {
                    self.completed(database, *target);
                }
            }
            WaveCall::Targets { .. } | WaveCall::Late { .. } => panic!("{call:?} changed binding {number}"),
        }
    }

    /// Judges one target of a completed wave (TM-208, TM-211, TM-214).
    fn completed(&mut self, database: &Database, target: Target) {
        let (old, new) = (self.scopes[target.key], database.scopes[target.key]);
        assert!(new.cursor >= target.through, "completed with {target:?} at {}", new.cursor);
        if old.row == new.row {
            return;
        }
        let row = old.row.unwrap();
        assert_eq!(new.row, None, "{target:?}");
        assert!(row.handled == row.flush, "completion removed an unanswered flush of {target:?}");
        assert!(row.through <= new.cursor.min(target.through), "completion removed a raised {target:?}");
        self.answered(target.key, new.cursor, i64::MAX);
        self.scopes[target.key] = new;
    }

    fn lease_changed(&mut self, database: &Database, call: &LeaseCall, answer: LeaseAnswer) {
        let (old, new) = (self.lease.clone(), &database.lease);
        match (call, answer) {
            (LeaseCall::Begin | LeaseCall::Acquire, LeaseAnswer::Won(generation)) => {
                self.acquisitions += 1;
                // TM-182 TM-183
                assert_eq!((new.generation, generation.get()), (self.acquisitions, self.acquisitions));
                let free = self.granted.is_none_or(|until| until <= database.clock);
                assert!(free || !database.shared, "a lease was taken while another was valid"); // TM-183
                self.granted(database);
            }
            (LeaseCall::Renew(fence), LeaseAnswer::Done) => {
                assert!(self.may_write(database, fence), "an expired lease was renewed"); // TM-183
                assert_eq!((new.generation, &new.holder), (old.generation, &old.holder));
                self.granted(database);
            }
            (LeaseCall::Release(fence), LeaseAnswer::Done) => {
                assert!(self.may_write(database, fence), "an expired lease was given back");
                assert_eq!((new.generation, &new.holder), (old.generation, &old.holder));
                self.granted = Some(Duration::ZERO);
            }
            _ => assert_eq!(old, *new, "{call:?} was refused and changed the lease"),
        }
        self.lease = database.lease.clone();
    }
}
