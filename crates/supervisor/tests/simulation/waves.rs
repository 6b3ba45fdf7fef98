//! The automatic waves of the model database: frozen targets and completion times.

use std::time::Duration;

use powercontext_core::ids::{Position, ScopeId, WaveId};
use powercontext_core::work::Fence;
use powercontext_supervisor::decide::{WaveAnswer, WaveCall};
use powercontext_supervisor::facts::{AutoWave, Completion, Freeze, LateFact, TargetFact};

use crate::database::{Database, Row};

/// One target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub key: usize,
    pub through: i64,
    pub completed: bool,
}

/// The targets of a wave, ascending by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frozen {
    pub id: WaveId,
    pub targets: Vec<Target>,
}

impl Frozen {
    pub fn target(&self, key: usize) -> Option<&Target> {
        let at = self.targets.binary_search_by_key(&key, |target| target.key).ok()?;
        Some(&self.targets[at])
    }
}

/// Completion time and targets of one binding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    pub completed_at: Option<Duration>,
    pub wave: Option<Frozen>,
}

impl Binding {
    /// The targets of this wave, if there are any.
    pub fn of(&self, wave: &AutoWave) -> Option<&Frozen> {
        self.wave.as_ref().filter(|frozen| frozen.id == wave.id)
    }
}

impl Database {
    /// `None` when the term is over.
    pub fn wave_call(&mut self, fence: &Fence, call: &WaveCall) -> Option<WaveAnswer> {
        if !call.is_read() && !self.holds(fence) {
            return None;
        }
        Some(match call {
            WaveCall::Clear => {
                self.bindings.iter_mut().for_each(|binding| binding.wave = None);
                WaveAnswer::Cleared
            }
            WaveCall::Freeze { wave, interval } => {
                WaveAnswer::Frozen { wave: wave.clone(), freeze: self.freeze(wave, *interval) }
            }
            WaveCall::Targets { wave, after, limit } => {
                let facts = self.targets(wave, after.as_ref(), *limit);
                WaveAnswer::Targets { wave: wave.clone(), after: after.clone(), facts }
            }
            WaveCall::MarkCovered { wave, scopes } => {
                self.mark(wave, scopes);
                WaveAnswer::Marked { wave: wave.clone() }
            }
            WaveCall::Complete { wave } => {
                WaveAnswer::Completed { wave: wave.clone(), completion: self.complete(wave) }
            }
            WaveCall::Late { wave, after, limit } => {
                let facts = self.late(wave, after.as_ref(), *limit);
                WaveAnswer::Late { wave: wave.clone(), after: after.clone(), facts }
            }
        })
    }

    fn freeze(&mut self, wave: &AutoWave, interval: Duration) -> Freeze {
        let number = self.binding_number(&wave.binding);
        let row = |key: usize| {
            let row = self.scopes[key].row?;
            Some(Target { key, through: row.through, completed: false })
        };
        let targets: Vec<Target> = self.keys_of(number).filter_map(row).collect();
        if targets.is_empty() {
            return Freeze::NothingPending;
        }
        let since = self.bindings[number].completed_at.map(|done| self.clock.saturating_sub(done));
        if let Some(since) = since.filter(|since| *since < interval) {
            return Freeze::NotDue { remaining: interval - since };
        }
        let members = targets.len() as u64;
        self.bindings[number].wave = Some(Frozen { id: wave.id.clone(), targets });
        Freeze::Frozen { members }
    }

    fn targets(&self, wave: &AutoWave, after: Option<&ScopeId>, limit: usize) -> Vec<TargetFact> {
        let number = self.binding_number(&wave.binding);
        let from = self.behind(number, after);
        let mut page = Vec::new();
        for target in self.bindings[number].of(wave).map_or(&[][..], |frozen| &frozen.targets) {
            if target.key >= from && !target.completed && page.len() < limit {
                let gone = Row { through: target.through, flush: 0, handled: 0 };
                let fact = self.fact(target.key, self.scopes[target.key].row.unwrap_or(gone));
                page.push(TargetFact { target: Position::new(target.through), fact });
            }
        }
        page
    }

    fn mark(&mut self, wave: &AutoWave, scopes: &[ScopeId]) {
        let number = self.binding_number(&wave.binding);
        let first = self.keys_of(number).start;
        let Self { bindings, scopes: rows, .. } = self;
        let Some(frozen) = bindings[number].wave.as_mut().filter(|frozen| frozen.id == wave.id) else {
            return;
        };
        for scope in scopes {
            let key = first + Self::scope_number(scope);
            if let Ok(at) = frozen.targets.binary_search_by_key(&key, |target| target.key) {
                let target = &mut frozen.targets[at];
                target.completed |= target.through <= rows[key].cursor;
            }
        }
    }

    fn complete(&mut self, wave: &AutoWave) -> Completion {
        let number = self.binding_number(&wave.binding);
        let Self { bindings, scopes, .. } = self;
        let Some(frozen) = bindings[number].of(wave) else { return Completion::Gone };
        if frozen.targets.iter().any(|target| scopes[target.key].cursor < target.through) {
            return Completion::Uncovered;
        }
        let mut removed = 0;
        for target in &frozen.targets {
            let row = &mut scopes[target.key].row;
            if row.is_some_and(|row| row.handled == row.flush && row.through <= target.through) {
                *row = None;
                removed += 1;
            }
        }
        bindings[number] = Binding { completed_at: Some(self.clock), wave: None };
        Completion::Completed { removed }
    }

    fn late(&self, wave: &AutoWave, after: Option<&ScopeId>, limit: usize) -> Vec<LateFact> {
        let number = self.binding_number(&wave.binding);
        let from = self.behind(number, after);
        let frozen = self.bindings[number].of(wave);
        let mut page = Vec::new();
        for key in from..self.keys_of(number).end {
            if page.len() < limit
                && let Some(fact) = self.observe(key)
            {
                let held = frozen.and_then(|frozen| frozen.target(key)).is_some_and(|held| !held.completed);
                page.push(LateFact { fact, held });
            }
        }
        page
    }

    fn behind(&self, number: usize, after: Option<&ScopeId>) -> usize {
        self.keys_of(number).start + after.map_or(0, |after| Self::scope_number(after) + 1)
    }
}
