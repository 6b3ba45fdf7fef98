//! Automatic waves, one binding at a time: when to try a freeze, which page of targets comes next,
//! when a wave is complete, and when it holds others up.
//!
//! Whether a binding is due is decided by the database (TM-191, TM-192, TM-220); what a target
//! needs is decided in `decide`. A wave is worked off in rounds over its uncompleted targets, each
//! a series of bounded pages (TM-207). Rounds begin at most once per tick, so a wave whose rest is
//! deferred costs no more than that. Nothing here grows with the wave: one page of covered targets
//! at a time is all that is held.

use std::time::Duration;

use powercontext_core::ambient::Monotonic;
use powercontext_core::ids::{BindingName, ScopeId, WaveId};

use crate::decide::WaveCall;
use crate::facts::{AutoWave, Completion, Freeze};
use crate::settings::BindingSchedule;

/// The longest time between two looks at a binding that is not due.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The shortest time between two lines about the same wave that is held up.
const SHORTEST_TELLING: Duration = Duration::from_secs(60);

/// What one target of a wave is up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The Cursor covers it.
    Covered,
    /// It waits for a free worker.
    Ready,
    /// A worker of its key runs, it waits for its retry time, or its flush comes first.
    Deferred,
    /// Its frontier is closed until an operator repairs it.
    Terminal,
}

/// What one round over the uncompleted targets of a wave met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Targets that the Cursor did not cover.
    pub uncovered: u64,
    /// Those of them whose frontier is terminal.
    pub terminal: u64,
    /// Those of them that waited for a free worker.
    pub ready: u64,
}

/// An automatic wave that is open, as seen from outside (B-28).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenWave {
    /// Which wave.
    pub wave: AutoWave,
    /// When it was frozen, by the supervisor's own clock.
    pub since: Monotonic,
    /// What the last whole round met; absent during the first.
    pub last_round: Option<Round>,
}

/// Something an operator should hear of an automatic wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaveNews {
    /// The wave was frozen.
    Frozen {
        /// Its targets.
        members: u64,
    },
    /// The wave is complete.
    Completed {
        /// Pending rows removed.
        removed: u64,
    },
    /// The targets of the wave are gone, so it counts for nothing.
    Gone,
    /// What is left of the wave is held up. Once per interval, and at most once a minute.
    HeldUp {
        /// What is left.
        round: Round,
    },
}

/// The wave state of one binding.
#[derive(Debug)]
pub struct Schedule {
    binding: BindingName,
    interval: Duration,
    state: State,
}

#[derive(Debug)]
enum State {
    /// No wave; a freeze is tried at this time.
    Idle { look: Monotonic },
    /// A freeze was asked for.
    Freezing { wave: AutoWave },
    /// The wave is open.
    Open(Open),
}

#[derive(Debug)]
struct Open {
    wave: AutoWave,
    since: Monotonic,
    step: Step,
    current: Round,
    last: Option<Round>,
    late: Late,
    /// The next page is one of live rows, if the catch-up wants one: both kinds take turns.
    late_first: bool,
    tell_at: Monotonic,
}

/// What the wave waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// A page of targets behind this Scope.
    Page { after: Option<ScopeId> },
    /// That covered targets are marked; then the next page, or the end of the round.
    Marking { scopes: Vec<ScopeId>, next: Option<ScopeId> },
    /// That the database completes it.
    Completing,
    /// The next tick.
    Resting,
}

/// The catch-up of Scopes that came too late for the wave (TM-212).
#[derive(Clone, Debug, PartialEq, Eq)]
enum Late {
    /// Not before this time.
    Waiting { until: Monotonic },
    /// A page of live rows behind this Scope; the pass began at `since`.
    Page { after: Option<ScopeId>, since: Monotonic },
}

impl Schedule {
    /// The state of a binding of a new term; `None` when it has no automatic waves (TM-219).
    #[must_use]
    pub fn new(schedule: &BindingSchedule) -> Option<Self> {
        let (binding, interval) = (schedule.binding.clone(), schedule.interval?);
        Some(Self { binding, interval, state: State::Idle { look: Duration::ZERO } })
    }

    /// Whose state it is.
    #[must_use]
    pub const fn binding(&self) -> &BindingName {
        &self.binding
    }

    /// A period has passed: a resting wave begins another round.
    pub fn tick(&mut self) {
        if let State::Open(open) = &mut self.state
            && open.step == Step::Resting
        {
            open.step = Step::Page { after: None };
        }
    }

    /// The call to make now. Pages are asked for only when there is `room` for what they bring.
    pub fn wanted(
        &mut self,
        now: Monotonic,
        page: usize,
        room: bool,
        fresh: &mut dyn FnMut() -> WaveId,
    ) -> Option<WaveCall> {
        match &mut self.state {
            State::Idle { look } if *look <= now => {
                let wave = AutoWave { binding: self.binding.clone(), id: fresh() };
                self.state = State::Freezing { wave: wave.clone() };
                Some(WaveCall::Freeze { wave, interval: self.interval })
            }
            State::Idle { .. } => None,
            State::Freezing { wave } => {
                Some(WaveCall::Freeze { wave: wave.clone(), interval: self.interval })
            }
            State::Open(open) => open.wanted(page, room),
        }
    }

    /// Whether a page of targets behind `after` is awaited.
    #[must_use]
    pub fn awaits_targets(&self, wave: &AutoWave, after: Option<&ScopeId>) -> bool {
        matches!(&self.state, State::Open(open) if open.wave == *wave
            && matches!(&open.step, Step::Page { after: asked } if asked.as_ref() == after))
    }

    /// Whether a page of live rows behind `after` is awaited.
    #[must_use]
    pub fn awaits_late(&self, wave: &AutoWave, after: Option<&ScopeId>) -> bool {
        matches!(&self.state, State::Open(open) if open.wave == *wave
            && matches!(&open.late, Late::Page { after: asked, .. } if asked.as_ref() == after))
    }

    /// Learns what a freeze found. `look_again` is when to try next while nothing is pending.
    pub fn frozen(
        &mut self,
        wave: &AutoWave,
        freeze: Freeze,
        now: Monotonic,
        look_again: Monotonic,
    ) -> Option<WaveNews> {
        if !matches!(&self.state, State::Freezing { wave: asked } if asked == wave) {
            return None;
        }
        match freeze {
            Freeze::Frozen { members } => {
                let due = now.saturating_add(self.interval);
                self.state = State::Open(Open {
                    wave: wave.clone(),
                    since: now,
                    step: Step::Page { after: None },
                    current: Round::default(),
                    last: None,
                    late: Late::Waiting { until: due },
                    late_first: false,
                    tell_at: now.saturating_add(self.interval.max(SHORTEST_TELLING)),
                });
                Some(WaveNews::Frozen { members })
            }
            Freeze::NotDue { remaining } => {
                let look = now.saturating_add(remaining.min(LONGEST_WAIT)).max(look_again);
                self.state = State::Idle { look };
                None
            }
            Freeze::NothingPending => {
                self.state = State::Idle { look: look_again };
                None
            }
        }
    }

    /// Learns what the targets of the awaited page are up to; `more` when the round goes on.
    pub fn targets(&mut self, seen: &[(ScopeId, Standing)], more: bool, now: Monotonic) -> Option<WaveNews> {
        let State::Open(open) = &mut self.state else { return None };
        open.late_first = true;
        for (_, standing) in seen {
            let round = &mut open.current;
            round.uncovered += u64::from(*standing != Standing::Covered);
            round.terminal += u64::from(*standing == Standing::Terminal);
            round.ready += u64::from(*standing == Standing::Ready);
        }
        let next = if more { seen.last().map(|(scope, _)| scope.clone()) } else { None };
        let covered =
            |(scope, standing): &(ScopeId, Standing)| (*standing == Standing::Covered).then(|| scope.clone());
        let scopes: Vec<ScopeId> = seen.iter().filter_map(covered).collect();
        if scopes.is_empty() {
            open.advance(next, self.interval, now)
        } else {
            open.step = Step::Marking { scopes, next };
            None
        }
    }

    /// Learns that the covered targets of a page are marked.
    pub fn marked(&mut self, wave: &AutoWave, now: Monotonic) -> Option<WaveNews> {
        let State::Open(open) = &mut self.state else { return None };
        match &mut open.step {
            Step::Marking { next, .. } if open.wave == *wave => {
                let next = next.take();
                open.advance(next, self.interval, now)
            }
            _ => None,
        }
    }

    /// Learns what a completion found.
    pub fn completed(
        &mut self,
        wave: &AutoWave,
        completion: Completion,
        look_again: Monotonic,
    ) -> Option<WaveNews> {
        let State::Open(open) = &mut self.state else { return None };
        if open.wave != *wave || open.step != Step::Completing {
            return None;
        }
        let news = match completion {
            Completion::Uncovered => {
                open.step = Step::Resting;
                return None;
            }
            Completion::Completed { removed } => WaveNews::Completed { removed },
            Completion::Gone => WaveNews::Gone,
        };
        self.state = State::Idle { look: look_again };
        Some(news)
    }

    /// Learns how far the awaited page of live rows was used; absent when the pass is over.
    pub fn late(&mut self, next: Option<ScopeId>) {
        let State::Open(open) = &mut self.state else { return };
        open.late_first = false;
        if let Late::Page { since, .. } = open.late {
            open.late = match next {
                Some(after) => Late::Page { after: Some(after), since },
                None => Late::Waiting { until: since.saturating_add(self.interval) },
            };
        }
    }

    /// The open wave.
    #[must_use]
    pub fn open(&self) -> Option<OpenWave> {
        match &self.state {
            State::Open(open) => {
                Some(OpenWave { wave: open.wave.clone(), since: open.since, last_round: open.last })
            }
            State::Idle { .. } | State::Freezing { .. } => None,
        }
    }

    /// Covered targets that are held until they are marked.
    #[must_use]
    pub fn covered(&self) -> usize {
        match &self.state {
            State::Open(Open { step: Step::Marking { scopes, .. }, .. }) => scopes.len(),
            _ => 0,
        }
    }
}

impl Open {
    fn wanted(&self, limit: usize, room: bool) -> Option<WaveCall> {
        let wave = self.wave.clone();
        let late = match &self.late {
            Late::Page { after, .. } if room => {
                Some(WaveCall::Late { wave: wave.clone(), after: after.clone(), limit })
            }
            Late::Page { .. } | Late::Waiting { .. } => None,
        };
        match &self.step {
            Step::Marking { scopes, .. } => Some(WaveCall::MarkCovered { wave, scopes: scopes.clone() }),
            Step::Completing => Some(WaveCall::Complete { wave }),
            Step::Page { after } if room && !(self.late_first && late.is_some()) => {
                Some(WaveCall::Targets { wave, after: after.clone(), limit })
            }
            Step::Page { .. } | Step::Resting => late,
        }
    }

    /// The next page, or the end of the round.
    fn advance(&mut self, next: Option<ScopeId>, interval: Duration, now: Monotonic) -> Option<WaveNews> {
        if next.is_some() {
            self.step = Step::Page { after: next };
            return None;
        }
        let round = std::mem::take(&mut self.current);
        self.last = Some(round);
        if round.uncovered == 0 {
            self.step = Step::Completing;
            return None;
        }
        self.step = Step::Resting;
        if round.ready > 0 {
            return None;
        }
        if matches!(self.late, Late::Waiting { until } if until <= now) {
            self.late = Late::Page { after: None, since: now };
        }
        if self.tell_at <= now {
            self.tell_at = now.saturating_add(interval.max(SHORTEST_TELLING));
            return Some(WaveNews::HeldUp { round });
        }
        None
    }
}
