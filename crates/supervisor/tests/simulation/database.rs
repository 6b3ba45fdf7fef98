//! The durable part of the model world: what the store promises, in the fewest words.

use std::collections::BTreeMap;

use powercontext_core::ids::{BindingName, FlushGeneration, Position, ScopeId};
use powercontext_core::work::{ErrorCode, WorkKey};
use powercontext_supervisor::facts::PendingFact;

pub const WINDOW: i64 = 5;

#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub source_through: i64,
    pub flush: i64,
    pub handled: i64,
}

#[derive(Clone, Debug, Default)]
pub struct Scope {
    pub head: i64,
    pub cursor: i64,
    pub row: Option<Row>,
    pub attempts: i64,
    pub attempt: Option<u64>,
    pub published: Vec<(i64, i64)>,
    pub flushes: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Attempt {
    Started(u64),
    Terminal,
    Superseded,
}

#[derive(Debug, Default)]
pub struct Database {
    pub generation: i64,
    pub scopes: BTreeMap<WorkKey, Scope>,
    pub attempts: u64,
}

pub fn key(number: usize) -> WorkKey {
    WorkKey {
        binding: BindingName::parse("topic-memory").unwrap(),
        scope: ScopeId::parse(format!("scope-{number:05}")).unwrap(),
    }
}

impl Database {
    pub fn add_source(&mut self, key: &WorkKey) {
        let scope = self.scopes.entry(key.clone()).or_default();
        scope.head += 1;
        let head = scope.head;
        let row = scope.row.get_or_insert(Row { source_through: head, flush: 0, handled: 0 });
        row.source_through = head;
    }

    pub fn flush(&mut self, key: &WorkKey) -> bool {
        let Some(scope) = self.scopes.get_mut(key).filter(|scope| scope.cursor < scope.head) else {
            return false;
        };
        let head = scope.head;
        let row = scope.row.get_or_insert(Row { source_through: head, flush: 0, handled: 0 });
        row.source_through = head;
        row.flush += 1;
        scope.flushes += 1;
        true
    }

    /// What a read of one key finds; absent only without a row.
    pub fn observe(&self, key: &WorkKey) -> Option<PendingFact> {
        let scope = self.scopes.get(key)?;
        let row = scope.row?;
        Some(PendingFact {
            key: key.clone(),
            source_through: Position::new(row.source_through),
            flush_generation: FlushGeneration::new(row.flush),
            handled_flush_generation: FlushGeneration::new(row.handled),
            cursor: Position::new(scope.cursor),
            terminal: (scope.attempts >= 3).then_some(ErrorCode::WindowAttemptLimit),
        })
    }

    /// What a page shows of one key: only keys with an unanswered flush.
    pub fn fact(&self, key: &WorkKey) -> Option<PendingFact> {
        self.observe(key).filter(|fact| fact.handled_flush_generation < fact.flush_generation)
    }

    pub fn page(&self, after: Option<&WorkKey>, limit: usize) -> Vec<PendingFact> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, |after| Excluded(after.clone()));
        self.scopes.range((from, Unbounded)).filter_map(|(key, _)| self.fact(key)).take(limit).collect()
    }

    pub fn settle(&mut self, key: &WorkKey) {
        let scope = self.scopes.get_mut(key).unwrap();
        let row = scope.row.expect("a settled key has a row");
        assert!(scope.cursor >= row.source_through, "settle of {key:?} while work remains");
        scope.row = None;
    }

    pub fn start_attempt(&mut self, key: &WorkKey, generation: i64, after: i64) -> Attempt {
        let scope = self.scopes.get_mut(key).unwrap();
        if generation != self.generation || scope.cursor != after {
            return Attempt::Superseded;
        }
        if scope.attempts >= 3 {
            return Attempt::Terminal;
        }
        scope.attempts += 1;
        self.attempts += 1;
        scope.attempt = Some(self.attempts);
        Attempt::Started(self.attempts)
    }

    /// One publish transaction; `false` when it was refused as a whole.
    pub fn publish(&mut self, key: &WorkKey, generation: i64, attempt: u64, aim: (i64, i64, i64)) -> bool {
        let (after, target, claimed) = aim;
        let scope = self.scopes.get_mut(key).unwrap();
        if generation != self.generation || scope.attempt != Some(attempt) || scope.cursor != after {
            return false;
        }
        let through = (after + WINDOW).min(target);
        assert!(through > after && through <= scope.head);
        scope.published.push((after, through));
        scope.cursor = through;
        (scope.attempts, scope.attempt) = (0, None);
        if through >= target
            && let Some(row) = &mut scope.row
        {
            row.handled = row.handled.max(claimed).min(row.flush);
            if row.source_through <= through && row.handled == row.flush {
                scope.row = None;
            }
        }
        true
    }

    /// What must hold of durable state at every moment.
    pub fn check(&self) {
        for (key, scope) in &self.scopes {
            let mut reached = 0;
            for (after, through) in scope.published.iter().rev().take(2).rev() {
                assert!(reached == 0 || *after == reached, "{key:?}: a Window was skipped or repeated");
                reached = *through;
            }
            assert_eq!(scope.cursor, scope.published.last().map_or(0, |window| window.1), "{key:?}");
            assert!(scope.attempts <= 3, "{key:?}: a fourth attempt");
            if scope.cursor < scope.head {
                let row = scope.row.expect("no Pending is deleted while work remains");
                assert_eq!(row.source_through, scope.head, "{key:?}");
            }
        }
    }
}
