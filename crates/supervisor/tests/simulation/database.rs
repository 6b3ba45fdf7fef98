//! The durable part of the model world: what the store promises, in the fewest words.
//!
//! Keys are numbers here, in the order of their names: all Scopes of the first binding come before
//! those of the second.

use std::time::Duration;

use powercontext_core::ids::{BindingName, FlushGeneration, Position, ScopeId};
use powercontext_core::work::{ErrorCode, Fence, WorkKey, WorkMode};
use powercontext_supervisor::facts::PendingFact;

use crate::lease::Lease;
use crate::waves::Binding;

/// The most Sources of one Window.
pub const WINDOW: i64 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub through: i64,
    pub flush: i64,
    pub handled: i64,
}

/// Journal, Cursor, Pending and budget of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    pub head: i64,
    pub cursor: i64,
    pub row: Option<Row>,
    pub attempts: i64,
    pub attempt: Option<u64>,
    pub closed: Option<ErrorCode>,
    /// Changes of Cursor and budget so far.
    pub moves: u64,
    /// Flushes asked for so far.
    pub flushes: u64,
}

impl Scope {
    pub fn terminal(&self) -> Option<ErrorCode> {
        self.closed.or((self.attempts >= 3).then_some(ErrorCode::WindowAttemptLimit))
    }

    pub fn is_flushed(&self) -> bool {
        self.row.is_some_and(|row| row.handled < row.flush)
    }
}

/// What one worker is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aim {
    pub key: usize,
    pub after: i64,
    pub target: i64,
    pub claimed: i64,
    pub mode: WorkMode,
}

#[derive(Debug)]
pub struct Database {
    /// Whether leases are won and expire; otherwise terms are embedded.
    pub shared: bool,
    pub clock: Duration,
    pub lease: Lease,
    pub scopes: Vec<Scope>,
    pub bindings: Vec<Binding>,
    /// Writes that were refused because their term was over.
    pub fenced: u64,
    names: Vec<WorkKey>,
    per_binding: usize,
    attempts: u64,
}

pub fn binding(number: usize) -> BindingName {
    BindingName::parse(format!("binding-{number}")).unwrap()
}

impl Database {
    pub fn new(shared: bool, bindings: usize, per_binding: usize) -> Self {
        let scope = |number: usize| ScopeId::parse(format!("scope-{number:05}")).unwrap();
        let key = |number: usize| WorkKey {
            binding: binding(number / per_binding),
            scope: scope(number % per_binding),
        };
        let keys = bindings * per_binding;
        Self {
            shared,
            clock: Duration::from_secs(1_000_000),
            lease: Lease::default(),
            scopes: vec![Scope::default(); keys],
            bindings: vec![Binding::default(); bindings],
            fenced: 0,
            names: (0..keys).map(key).collect(),
            per_binding,
            attempts: 0,
        }
    }

    pub fn key(&self, number: usize) -> &WorkKey {
        &self.names[number]
    }

    pub fn number(&self, key: &WorkKey) -> usize {
        self.binding_number(&key.binding) * self.per_binding + Self::scope_number(&key.scope)
    }

    pub fn binding_number(&self, binding: &BindingName) -> usize {
        binding.as_str()["binding-".len()..].parse().unwrap()
    }

    pub fn scope_number(scope: &ScopeId) -> usize {
        scope.as_str()["scope-".len()..].parse().unwrap()
    }

    pub fn binding_of(&self, key: usize) -> usize {
        key / self.per_binding
    }

    pub fn keys_of(&self, binding: usize) -> std::ops::Range<usize> {
        binding * self.per_binding..(binding + 1) * self.per_binding
    }

    pub fn capture(&mut self, key: usize) {
        let scope = &mut self.scopes[key];
        scope.head += 1;
        let head = scope.head;
        scope.row.get_or_insert(Row { through: head, flush: 0, handled: 0 }).through = head;
    }

    /// `false` when the Cursor covers everything.
    pub fn flush(&mut self, key: usize) -> bool {
        let scope = &mut self.scopes[key];
        if scope.cursor >= scope.head {
            return false;
        }
        let head = scope.head;
        let row = scope.row.get_or_insert(Row { through: head, flush: 0, handled: 0 });
        row.through = head;
        row.flush += 1;
        scope.flushes += 1;
        true
    }

    /// What a read of one key finds; absent only without a row.
    pub fn observe(&self, key: usize) -> Option<PendingFact> {
        let scope = &self.scopes[key];
        scope.row.map(|row| self.fact(key, row))
    }

    pub fn fact(&self, key: usize, row: Row) -> PendingFact {
        let scope = &self.scopes[key];
        PendingFact {
            key: self.names[key].clone(),
            source_through: Position::new(row.through),
            flush_generation: FlushGeneration::new(row.flush),
            handled_flush_generation: FlushGeneration::new(row.handled),
            cursor: Position::new(scope.cursor),
            terminal: scope.terminal(),
        }
    }

    /// At most `limit` keys behind `after` with an unanswered flush.
    pub fn page(&self, after: Option<&WorkKey>, limit: usize) -> Vec<PendingFact> {
        let from = after.map_or(0, |after| self.number(after) + 1);
        let mut page = Vec::new();
        for (key, scope) in self.scopes.iter().enumerate().skip(from) {
            if scope.is_flushed() && page.len() < limit {
                page.extend(self.observe(key));
            }
        }
        page
    }

    /// `false` when the term is over.
    pub fn settle(&mut self, fence: &Fence, key: usize) -> bool {
        if !self.holds(fence) {
            return false;
        }
        let scope = &mut self.scopes[key];
        if scope.row.is_some_and(|row| row.through <= scope.cursor) {
            scope.row = None;
        }
        true
    }

    pub fn start_attempt(&mut self, fence: &Fence, aim: Aim) -> Result<u64, ErrorCode> {
        if !self.holds(fence) {
            return Err(ErrorCode::Fenced);
        }
        let scope = &mut self.scopes[aim.key];
        if scope.cursor != aim.after {
            return Err(ErrorCode::CursorConflict);
        }
        if let Some(code) = scope.terminal() {
            return Err(code);
        }
        self.attempts += 1;
        scope.attempts += 1;
        scope.attempt = Some(self.attempts);
        scope.moves += 1;
        Ok(self.attempts)
    }

    /// Records that an attempt closed its frontier.
    pub fn close_frontier(&mut self, attempt: u64, aim: Aim, code: ErrorCode) {
        let scope = &mut self.scopes[aim.key];
        if scope.attempt == Some(attempt) && scope.cursor == aim.after {
            scope.closed = Some(code);
            scope.moves += 1;
        }
    }

    /// An operator opens a closed frontier.
    pub fn repair(&mut self, key: usize) -> bool {
        let scope = &mut self.scopes[key];
        if scope.terminal().is_none() {
            return false;
        }
        (scope.attempts, scope.attempt, scope.closed) = (0, None, None);
        scope.moves += 1;
        true
    }

    /// One publish transaction; it is refused as a whole or done as a whole.
    pub fn publish(&mut self, fence: &Fence, attempt: u64, aim: Aim) -> Result<(), ErrorCode> {
        if !self.holds(fence) {
            return Err(ErrorCode::Fenced);
        }
        let scope = &mut self.scopes[aim.key];
        if scope.attempt != Some(attempt) {
            return Err(ErrorCode::AttemptSuperseded);
        }
        if scope.cursor != aim.after {
            return Err(ErrorCode::CursorConflict);
        }
        let through = (aim.after + WINDOW).min(aim.target);
        scope.cursor = through;
        (scope.attempts, scope.attempt, scope.closed) = (0, None, None);
        scope.moves += 1;
        if aim.mode == WorkMode::Explicit
            && through >= aim.target
            && let Some(row) = &mut scope.row
        {
            row.handled = row.handled.max(aim.claimed).min(row.flush);
            if row.through <= through && row.handled == row.flush {
                scope.row = None;
            }
        }
        Ok(())
    }

    /// Whether the term may write now; a refusal is counted.
    pub fn holds(&mut self, fence: &Fence) -> bool {
        let holds = self.lease.is_valid(self.clock) && self.lease.names(fence);
        self.fenced += u64::from(!holds);
        holds
    }
}
