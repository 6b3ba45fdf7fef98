//! Automatic waves: due by the database's clock, frozen at once, completed at once or not at all.

mod at_once;
mod edges;
mod pages;
mod scale;

use std::time::Duration;

use powercontext_core::ids::{BindingName, HolderId, Position, ScopeId, WaveId};
use powercontext_core::work::{Fence, WorkMode};

use super::{TestDatabase, databases, key, request};
use crate::database::Engine;
use crate::pending::PendingFact;
use crate::publish::{PublishRequest, publish};
use crate::waves::{AutoWave, Completion, Freeze, WaveError};
use crate::{cursors, leases, pending, waves};

const MINUTE: Duration = Duration::from_secs(60);

fn wave(name: &str) -> AutoWave {
    AutoWave { binding: key_of("x").binding, id: WaveId::parse(name).unwrap() }
}

fn key_of(scope: &str) -> powercontext_core::work::WorkKey {
    key(&ScopeId::parse(scope).unwrap())
}

impl TestDatabase {
    /// Moves the Cursor over everything, as a worker of this mode does.
    async fn cover(&self, fence: &Fence, scope: &ScopeId, mode: WorkMode) {
        let after = cursors::get(&self.store, &key(scope)).await.unwrap().get();
        let through = crate::sources::head(&self.store, scope).await.unwrap().get();
        let attempt = self.attempt(fence, &key(scope), after).await;
        publish(&self.store, &PublishRequest { mode, ..request(attempt, through, vec![]) }).await.unwrap();
    }

    async fn pending(&self, scope: &ScopeId) -> Option<PendingFact> {
        pending::get(&self.store, &key(scope)).await.unwrap()
    }

    async fn freeze(&self, fence: &Fence, name: &str) -> Freeze {
        waves::freeze(&self.store, fence, &wave(name), MINUTE).await.unwrap()
    }

    async fn complete(&self, fence: &Fence, name: &str) -> Completion {
        waves::complete(&self.store, fence, &wave(name)).await.unwrap()
    }

    /// The Scopes and targets of the pages of a wave, read with this page size.
    async fn targets(&self, name: &str, page: u32) -> Vec<(ScopeId, i64)> {
        let mut all: Vec<(ScopeId, i64)> = Vec::new();
        loop {
            let after = all.last().map(|(scope, _)| scope.clone());
            let rows = waves::targets(&self.store, &wave(name), after.as_ref(), page).await.unwrap();
            let read = rows.len();
            all.extend(rows.into_iter().map(|row| (row.fact.key.scope, row.target.get())));
            if read < page as usize {
                return all;
            }
        }
    }

    /// Lets the last completion be as long ago as if this time had passed.
    async fn pass(&self, seconds: u64) {
        let text = match self.engine() {
            Engine::Sqlite => format!(
                "UPDATE pc_artifact_processing_binding_states SET last_auto_wave_completed_at = \
                 strftime('%Y-%m-%dT%H:%M:%fZ', last_auto_wave_completed_at, '-{seconds} seconds')"
            ),
            Engine::OceanBase => format!(
                "UPDATE pc_artifact_processing_binding_states SET last_auto_wave_completed_at = \
                 timestampadd(second, -{seconds}, last_auto_wave_completed_at)"
            ),
        };
        self.run(&text).await;
    }
}

#[tokio::test]
async fn a_wave_freezes_every_pending_row_and_nothing_that_comes_later() {
    // TM-204 TM-205 TM-207 TM-209 TM-212 B-31
    for database in databases().await {
        let fence = database.term().await;
        assert_eq!(database.freeze(&fence, "w").await, Freeze::NothingPending);
        let (one, two) = (database.scope("one").await, database.scope("two").await);
        database.capture(&one, 3).await;
        database.capture(&two, 2).await;
        pending::flush(&database.store, &key(&two)).await.unwrap();
        assert_eq!(database.freeze(&fence, "w").await, Freeze::Frozen { members: 2 });
        let late = database.scope("three").await;
        database.capture(&late, 1).await;
        database.capture(&one, 4).await;
        let mut frozen = vec![(one.clone(), 3), (two.clone(), 2)];
        frozen.sort();
        for page in [1, 2, 5] {
            assert_eq!(database.targets("w", page).await, frozen, "pages of {page}");
        }
        let rows = waves::targets(&database.store, &wave("w"), None, 9).await.unwrap();
        let fact = &rows.iter().find(|row| row.fact.key.scope == one).unwrap().fact;
        assert_eq!((fact.source_through.get(), fact.cursor.get()), (7, 0), "facts are live, targets are not");
        let mut lately: Vec<(ScopeId, bool)> = waves::late(&database.store, &wave("w"), None, 9)
            .await
            .unwrap()
            .into_iter()
            .map(|row| (row.fact.key.scope, row.held))
            .collect();
        lately.sort();
        let mut expected = vec![(one, true), (two, true), (late, false)];
        expected.sort();
        assert_eq!(lately, expected);
    }
}

#[tokio::test]
async fn freezing_again_after_a_lost_reply_replaces_the_targets() {
    // TM-206 TM-207
    for database in databases().await {
        let fence = database.term().await;
        let scope = database.scope("one").await;
        database.capture(&scope, 1).await;
        for (name, through) in [("w", 1), ("w", 2), ("other", 3)] {
            assert_eq!(database.freeze(&fence, name).await, Freeze::Frozen { members: 1 });
            assert_eq!(database.targets(name, 9).await, [(scope.clone(), through)]);
            database.capture(&scope, 1).await;
        }
        assert_eq!(database.targets("w", 9).await, [], "a binding has one wave at a time");
        assert_eq!(waves::clear(&database.store, &fence).await.unwrap(), 1);
        assert_eq!(database.targets("other", 9).await, []);
        assert_eq!(database.complete(&fence, "other").await, Completion::Gone);
    }
}

#[tokio::test]
async fn the_next_wave_is_due_one_interval_after_the_last_completion_whoever_leads() {
    // TM-191 TM-192 TM-202 TM-203 TM-204 TM-215 TM-217 TM-220 TM-276
    for database in databases().await {
        let mut fence = database.term().await;
        let scope = database.scope("one").await;
        database.capture(&scope, 1).await;
        database.freeze(&fence, "w").await;
        database.cover(&fence, &scope, WorkMode::Automatic).await;
        assert_eq!(database.complete(&fence, "w").await, Completion::Completed { removed: 1 });
        assert!(database.pending(&scope).await.is_none());
        assert_eq!(
            database.freeze(&fence, "v").await,
            Freeze::NothingPending,
            "the baseline outlives Pending"
        );
        database.capture(&scope, 1).await;
        database.pass(20).await;
        fence = database.term().await;
        let Freeze::NotDue { remaining } = database.freeze(&fence, "v").await else { panic!("too early") };
        assert!(remaining <= Duration::from_secs(40) && remaining > Duration::from_secs(20), "{remaining:?}");
        pending::flush(&database.store, &key(&scope)).await.unwrap();
        database.cover(&fence, &scope, WorkMode::Explicit).await;
        database.capture(&scope, 1).await;
        assert!(
            matches!(database.freeze(&fence, "v").await, Freeze::NotDue { .. }),
            "a flush moves no deadline"
        );
        database.pass(40).await;
        assert_eq!(database.freeze(&fence, "v").await, Freeze::Frozen { members: 1 });
        let short = waves::freeze(&database.store, &fence, &wave("v"), Duration::from_nanos(1)).await;
        assert_eq!(short.unwrap(), Freeze::Frozen { members: 1 });
    }
}

#[tokio::test]
async fn one_binding_neither_delays_nor_touches_another() {
    // TM-202
    for database in databases().await {
        let fence = database.term().await;
        let scope = database.scope("one").await;
        database.capture(&scope, 1).await;
        let text = "INSERT INTO pc_artifact_processing_pending (binding_name, scope_id, source_through) \
                    SELECT 'other', scope_id, source_through FROM pc_artifact_processing_pending";
        database.run(text).await;
        let other = AutoWave { binding: BindingName::parse("other").unwrap(), ..wave("o") };
        database.freeze(&fence, "w").await;
        database.cover(&fence, &scope, WorkMode::Automatic).await;
        let frozen = waves::freeze(&database.store, &fence, &other, MINUTE).await.unwrap();
        assert_eq!(frozen, Freeze::Frozen { members: 1 });
        assert_eq!(database.complete(&fence, "w").await, Completion::Completed { removed: 1 });
        assert_eq!(waves::complete(&database.store, &fence, &other).await.unwrap(), Completion::Uncovered);
        assert_eq!(waves::targets(&database.store, &other, None, 9).await.unwrap().len(), 1);
        assert_eq!(waves::late(&database.store, &other, None, 9).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn only_covered_targets_are_marked_and_only_a_covered_wave_completes() {
    // TM-208 TM-210 TM-211 TM-214 TM-215
    for database in databases().await {
        let fence = database.term().await;
        let (one, two) = (database.scope("one").await, database.scope("two").await);
        database.capture(&one, 1).await;
        database.capture(&two, 1).await;
        database.freeze(&fence, "w").await;
        database.cover(&fence, &one, WorkMode::Automatic).await;
        let both = [one.clone(), two.clone()];
        let marked = waves::mark_covered(&database.store, &fence, &wave("w"), &both).await.unwrap();
        assert_eq!(marked, 1);
        assert_eq!(waves::mark_covered(&database.store, &fence, &wave("w"), &[]).await.unwrap(), 0);
        assert_eq!(database.targets("w", 9).await, [(two.clone(), 1)]);
        let before = database.dump().await;
        assert_eq!(database.complete(&fence, "w").await, Completion::Uncovered);
        assert_eq!(database.dump().await, before);
        // A mark alone completes nothing.
        database.run("UPDATE pc_artifact_processing_auto_wave_targets SET completed = TRUE").await;
        assert_eq!(database.complete(&fence, "w").await, Completion::Uncovered);
        database.cover(&fence, &two, WorkMode::CatchUp).await;
        assert_eq!(database.complete(&fence, "w").await, Completion::Completed { removed: 2 });
        assert_eq!(database.complete(&fence, "w").await, Completion::Gone);
    }
}

#[tokio::test]
async fn automatic_windows_leave_pending_and_completion_removes_what_is_settled() {
    // TM-170 TM-172 TM-213 TM-214 TM-216
    for database in databases().await {
        let fence = database.term().await;
        let mut scopes = Vec::new();
        for name in ["settled", "raised", "asked", "answered", "waiting"] {
            let scope = database.scope(name).await;
            database.capture(&scope, 1).await;
            scopes.push(scope);
        }
        let [settled, raised, asked, answered, waiting] = &scopes[..] else { panic!("five scopes") };
        for scope in [answered, waiting] {
            pending::flush(&database.store, &key(scope)).await.unwrap();
        }
        database.freeze(&fence, "w").await;
        for scope in [settled, raised, asked, waiting] {
            database.cover(&fence, scope, WorkMode::Automatic).await;
            assert!(database.pending(scope).await.is_some(), "an automatic Window leaves the row");
        }
        let attempt = database.attempt(&fence, &key(answered), 0).await;
        let explicit = PublishRequest {
            claimed_flush_generation: powercontext_core::ids::FlushGeneration::new(1),
            ..request(attempt, 1, vec![])
        };
        publish(&database.store, &explicit).await.unwrap();
        assert!(database.pending(answered).await.is_none(), "an explicit wave removes its row");
        database.capture(raised, 1).await;
        database.capture(asked, 1).await;
        pending::flush(&database.store, &key(asked)).await.unwrap();
        database.cover(&fence, asked, WorkMode::CatchUp).await;
        let late = database.scope("late").await;
        database.capture(&late, 1).await;
        database.cover(&fence, &late, WorkMode::CatchUp).await;
        assert_eq!(database.complete(&fence, "w").await, Completion::Completed { removed: 1 });
        assert!(database.pending(settled).await.is_none());
        assert_eq!(database.pending(raised).await.unwrap().source_through, Position::new(2));
        for scope in [asked, waiting] {
            let unanswered = database.pending(scope).await.unwrap();
            assert!(unanswered.handled_flush_generation < unanswered.flush_generation, "never answered");
            assert_eq!(unanswered.cursor, unanswered.source_through);
        }
        assert!(database.pending(&late).await.is_some(), "what came later belongs to the next wave");
    }
}

#[tokio::test]
async fn a_stale_term_changes_nothing_of_a_wave() {
    // TM-194 TM-206 TM-214 TM-272
    for database in databases().await {
        let stale = database.term().await;
        let scope = database.scope("one").await;
        database.capture(&scope, 1).await;
        database.freeze(&stale, "w").await;
        database.cover(&stale, &scope, WorkMode::Automatic).await;
        let current = database.term().await;
        let forged = Fence { holder: HolderId::parse("other").unwrap(), ..current.clone() };
        let before = database.dump().await;
        let mut fences = vec![stale, forged];
        if database.engine() == Engine::OceanBase {
            assert!(leases::release(&database.store, &current).await.unwrap());
            fences.push(current);
        }
        let after_release = database.dump().await;
        for fence in fences {
            let (store, wave, scopes) = (&database.store, wave("w"), [scope.clone()]);
            let refused = [
                waves::clear(store, &fence).await.map(drop),
                waves::freeze(store, &fence, &wave, MINUTE).await.map(drop),
                waves::mark_covered(store, &fence, &wave, &scopes).await.map(drop),
                waves::complete(store, &fence, &wave).await.map(drop),
            ];
            for outcome in refused {
                assert!(matches!(outcome, Err(WaveError::Fenced)), "{outcome:?}");
            }
        }
        let after = database.dump().await;
        assert_eq!(after, after_release);
        let table = "pc_artifact_processing_auto_wave_targets";
        assert_eq!(after[table], before[table]);
    }
}
