//! What the decision core does with the pages and answers of automatic waves.
//!
//! A target that is not covered is either offered to the automatic lane or deferred: while a worker
//! of its key runs, while it waits for its retry time, while a flush comes first, or for as long as
//! its frontier is closed (TM-210). Later pages go on all the same.

use powercontext_core::ids::{ScopeId, WaveId};
use powercontext_core::work::WorkMode;

use super::{Decider, Decision, Now, WaveAnswer, WaveCall};
use crate::auto::{OpenWave, Schedule, Standing, WaveNews};
use crate::facts::{AutoWave, LateFact, TargetFact};
use crate::notice::Notice;
use crate::queue::Ready;
use crate::settings::BindingSchedule;
use crate::wave::{Wave, is_flushed};

/// The automatic waves of all bindings.
#[derive(Debug)]
pub(super) struct Waves {
    schedules: Vec<Schedule>,
    /// Whose turn it is, so that bindings take turns page by page (TM-202).
    turn: usize,
    cleared: bool,
    allowance: usize,
    allowance_per_tick: usize,
}

impl Waves {
    pub(super) fn new(bindings: &[BindingSchedule], allowance: usize) -> Self {
        Self {
            schedules: bindings.iter().filter_map(Schedule::new).collect(),
            turn: 0,
            cleared: false,
            allowance,
            allowance_per_tick: allowance,
        }
    }

    pub(super) fn tick(&mut self) {
        self.allowance = self.allowance_per_tick;
        self.schedules.iter_mut().for_each(Schedule::tick);
    }

    /// Covered targets that are held until they are marked.
    pub(super) fn covered(&self) -> usize {
        self.schedules.iter().map(Schedule::covered).sum()
    }

    fn spend(&mut self, rows: usize) {
        self.allowance = self.allowance.saturating_sub(rows.saturating_add(1));
    }

    fn of(&mut self, wave: &AutoWave) -> Option<&mut Schedule> {
        self.schedules.iter_mut().find(|schedule| schedule.binding() == &wave.binding)
    }
}

impl Decider {
    /// The call to make for the automatic waves, if one is due; `fresh` names new waves. Bindings
    /// take turns, so a call that fails again and again holds up no other binding.
    pub fn wave_call(&mut self, now: Now, fresh: &mut dyn FnMut() -> WaveId) -> Option<WaveCall> {
        if self.closed {
            return None;
        }
        if !self.waves.cleared {
            return Some(WaveCall::Clear);
        }
        let limit = self.settings.page_size;
        let free = self.settings.ready_limit().saturating_sub(self.ready.automatic.len());
        let room = free >= limit && self.waves.allowance > 0;
        let count = self.waves.schedules.len();
        for step in 0..count {
            let at = self.waves.turn.wrapping_add(step) % count;
            if let Some(call) = self.waves.schedules[at].wanted(now.at, limit, room, fresh) {
                self.waves.turn = at.wrapping_add(1);
                return Some(call);
            }
        }
        None
    }

    /// The automatic waves that are open.
    #[must_use]
    pub fn open_waves(&self) -> Vec<OpenWave> {
        self.waves.schedules.iter().filter_map(Schedule::open).collect()
    }

    pub(super) fn wave(&mut self, answer: WaveAnswer, now: Now, out: &mut Decision) {
        if self.closed {
            return;
        }
        // At the next tick, even if that comes a little early.
        let look_again = now.at.saturating_add(self.settings.tick / 2);
        let (wave, news) = match answer {
            WaveAnswer::Cleared => {
                self.waves.cleared = true;
                return;
            }
            WaveAnswer::Frozen { wave, freeze } => {
                let news =
                    self.waves.of(&wave).and_then(|known| known.frozen(&wave, freeze, now.at, look_again));
                (wave, news)
            }
            WaveAnswer::Targets { wave, after, facts } => {
                let news = self.targets(&wave, after.as_ref(), facts, (now, out));
                (wave, news)
            }
            WaveAnswer::Marked { wave } => {
                let news = self.waves.of(&wave).and_then(|known| known.marked(&wave, now.at));
                (wave, news)
            }
            WaveAnswer::Completed { wave, completion } => {
                let news =
                    self.waves.of(&wave).and_then(|known| known.completed(&wave, completion, look_again));
                (wave, news)
            }
            WaveAnswer::Late { wave, after, facts } => {
                self.late(&wave, after, facts, (now, out));
                return;
            }
        };
        out.notices.extend(news.map(|news| Notice::AutoWave { wave, news }));
    }

    fn targets(
        &mut self,
        wave: &AutoWave,
        after: Option<&ScopeId>,
        facts: Vec<TargetFact>,
        (now, out): (Now, &mut Decision),
    ) -> Option<WaveNews> {
        self.waves.spend(facts.len());
        if !self.waves.of(wave)?.awaits_targets(wave, after) {
            return None;
        }
        let more = facts.len() >= self.settings.page_size;
        let mut seen = Vec::with_capacity(facts.len());
        for fact in facts {
            let scope = fact.fact.key.scope.clone();
            seen.push((scope, self.target(fact, now, out)));
        }
        self.waves.of(wave)?.targets(&seen, more, now.at)
    }

    /// Offers one target to the automatic lane unless it is covered or must wait.
    fn target(&mut self, target: TargetFact, now: Now, out: &mut Decision) -> Standing {
        let TargetFact { target, fact } = target;
        let offer = Some(Wave::automatic(target));
        if fact.cursor >= target {
            return Standing::Covered;
        }
        // First, because the frontier of the last attempt looks closed while that attempt runs.
        if self.flights.contains(&fact.key) {
            return Standing::Deferred;
        }
        if fact.terminal.is_some() {
            self.needs_window(&fact, offer, out);
            return Standing::Terminal;
        }
        let waits = self.ready.explicit.refresh(&fact, offer) || self.ready.automatic.refresh(&fact, offer);
        if is_flushed(&fact) || (!waits && self.parked.is_waiting(&fact.key, now.at)) {
            return Standing::Deferred;
        }
        if !waits && self.ready.automatic.len() < self.settings.ready_limit() {
            let memory = self.parked.take(&fact.key).unwrap_or_default();
            self.ready.automatic.push(Ready { fact, memory, offer });
        }
        Standing::Ready
    }

    fn late(
        &mut self,
        wave: &AutoWave,
        after: Option<ScopeId>,
        facts: Vec<LateFact>,
        (now, out): (Now, &mut Decision),
    ) {
        self.waves.spend(facts.len());
        if !self.waves.of(wave).is_some_and(|known| known.awaits_late(wave, after.as_ref())) {
            return;
        }
        let more = facts.len() >= self.settings.page_size;
        let mut last = after;
        for late in facts {
            if self.ready.automatic.len() >= self.settings.ready_limit() {
                // The pass goes on behind the last key that found room.
                self.move_late(wave, last);
                return;
            }
            last = Some(late.fact.key.scope.clone());
            self.late_key(late, now, out);
        }
        self.move_late(wave, if more { last } else { None });
    }

    fn move_late(&mut self, wave: &AutoWave, next: Option<ScopeId>) {
        if let Some(known) = self.waves.of(wave) {
            known.late(next);
        }
    }

    /// Offers a catch-up to a key that the open wave does not hold (TM-212).
    fn late_key(&mut self, late: LateFact, now: Now, out: &mut Decision) {
        let LateFact { fact, held } = late;
        let busy = self.flights.contains(&fact.key)
            || self.ready.explicit.contains(&fact.key)
            || self.ready.automatic.contains(&fact.key);
        if held || busy || is_flushed(&fact) || self.parked.is_waiting(&fact.key, now.at) {
            return;
        }
        let offer = Some(Wave::catch_up(&fact));
        if self.needs_window(&fact, offer, out) {
            let memory = self.parked.take(&fact.key).unwrap_or_default();
            let kept = memory.wave.filter(|wave| wave.mode == WorkMode::CatchUp && wave.is_open(&fact));
            self.ready.automatic.push(Ready { fact, memory, offer: kept.or(offer) });
        }
    }
}
