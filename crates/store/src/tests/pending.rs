use powercontext_core::ids::{FlushGeneration, Position, ScopeId, Window};

use super::{TestDatabase, databases, key, request};
use crate::database::values;
use crate::pending::{self, Flush, FlushError};
use crate::publish::{PublishRequest, publish};
use crate::{cursors, leases};

/// `(source_through, flush_generation, handled_flush_generation)` of the key's row.
async fn row(database: &TestDatabase, scope: &ScopeId) -> Option<(i64, i64, i64)> {
    let mut reader = database.store.database.read().await.unwrap();
    let row = reader
        .query_one(
            "SELECT source_through, flush_generation, handled_flush_generation \
             FROM pc_artifact_processing_pending WHERE scope_id = ?",
            values![scope.as_str()],
        )
        .await
        .unwrap()?;
    Some((row.integer(0).unwrap(), row.integer(1).unwrap(), row.integer(2).unwrap()))
}

#[tokio::test]
async fn a_capture_raises_the_end_alone_and_a_flush_raises_both() {
    // TM-024 TM-162 TM-163 TM-164 TM-165 TM-231 TM-232 TM-234 TM-235
    for database in databases().await {
        let scope = database.scope("a").await;
        assert_eq!(row(&database, &scope).await, None);
        database.capture(&scope, 2).await;
        assert_eq!(row(&database, &scope).await, Some((2, 0, 0)));
        for generation in 1..=3 {
            assert_eq!(pending::flush(&database.store, &key(&scope)).await.unwrap(), Flush::Accepted);
            assert_eq!(row(&database, &scope).await, Some((2, generation, 0)));
        }
        database.capture(&scope, 1).await;
        assert_eq!(row(&database, &scope).await, Some((3, 3, 0)));
        let page = pending::page(&database.store, None, 10).await.unwrap();
        assert_eq!(page.len(), 1);
        assert_eq!(page[0].source_through, Position::new(3));
        assert_eq!(page[0].flush_generation, FlushGeneration::new(3));
        assert_eq!(page[0].terminal, None);
    }
}

#[tokio::test]
async fn a_flush_without_uncovered_sources_is_idle_and_writes_nothing() {
    // TM-233 B-17
    for database in databases().await {
        let scope = database.scope("a").await;
        assert_eq!(pending::flush(&database.store, &key(&scope)).await.unwrap(), Flush::Idle);
        assert_eq!(row(&database, &scope).await, None);
        database.publish(&scope, Vec::new()).await;
        let before = database.dump().await;
        assert_eq!(pending::flush(&database.store, &key(&scope)).await.unwrap(), Flush::Idle);
        assert_eq!(database.dump().await, before);
        let unknown = super::new_scope("never").scope_id;
        let flushed = pending::flush(&database.store, &key(&unknown)).await;
        assert!(matches!(flushed, Err(FlushError::ScopeNotFound)));
    }
}

struct Case {
    name: &'static str,
    before: Option<(i64, i64, i64)>,
    through: i64,
    wave_target: i64,
    claimed: i64,
    after: Option<(i64, i64, i64)>,
}

#[tokio::test]
async fn a_published_window_moves_its_pending_row_by_the_table() {
    // TM-166 TM-167 TM-168 TM-169 TM-170 TM-171 TM-275 B-18
    let cases = [
        Case {
            name: "before the wave target nothing is answered",
            before: Some((4, 1, 0)),
            through: 2,
            wave_target: 4,
            claimed: 1,
            after: Some((4, 1, 0)),
        },
        Case {
            name: "the last Window of the wave answers it and removes the row",
            before: Some((4, 1, 0)),
            through: 4,
            wave_target: 4,
            claimed: 1,
            after: None,
        },
        Case {
            name: "flushes during the wave keep the row for one successor",
            before: Some((4, 5, 0)),
            through: 4,
            wave_target: 4,
            claimed: 2,
            after: Some((4, 5, 2)),
        },
        Case {
            name: "new Sources keep the row without an unanswered flush",
            before: Some((6, 1, 0)),
            through: 4,
            wave_target: 4,
            claimed: 1,
            after: Some((6, 1, 1)),
        },
        Case {
            name: "a re-created row is never answered beyond its own flushes",
            before: Some((4, 1, 0)),
            through: 4,
            wave_target: 4,
            claimed: 7,
            after: None,
        },
        Case {
            name: "an older claim never takes an answer back",
            before: Some((6, 3, 2)),
            through: 4,
            wave_target: 4,
            claimed: 1,
            after: Some((6, 3, 2)),
        },
        Case {
            name: "an absent row is done",
            before: None,
            through: 4,
            wave_target: 4,
            claimed: 1,
            after: None,
        },
    ];
    for database in databases().await {
        for case in &cases {
            let scope = database.scope(case.name).await;
            database.capture(&scope, 6).await;
            let statement = match case.before {
                None => "DELETE FROM pc_artifact_processing_pending".to_owned(),
                Some((through, flushes, handled)) => format!(
                    "UPDATE pc_artifact_processing_pending SET source_through = {through}, \
                     flush_generation = {flushes}, handled_flush_generation = {handled}"
                ),
            };
            database.run(&statement).await;
            let fence = database.term().await;
            let attempt = database.attempt(&fence, &key(&scope), 0).await;
            let request = PublishRequest {
                window: Window { after: Position::default(), through: Position::new(case.through) },
                wave_target: Position::new(case.wave_target),
                claimed_flush_generation: FlushGeneration::new(case.claimed),
                ..request(attempt, case.through, Vec::new())
            };
            publish(&database.store, &request).await.unwrap();
            assert_eq!(row(&database, &scope).await, case.after, "{}", case.name);
            let cursor = cursors::get(&database.store, &key(&scope)).await.unwrap();
            assert_eq!(cursor, Position::new(case.through), "{}", case.name);
        }
    }
}

#[tokio::test]
async fn settling_removes_a_covered_row_and_leaves_an_uncovered_one() {
    // TM-170
    for database in databases().await {
        let scope = database.scope("a").await;
        database.publish(&scope, Vec::new()).await;
        let fence = leases::current(&database.store).await.unwrap().unwrap();
        database.run("DELETE FROM pc_artifact_processing_pending").await;
        database
            .run(&format!(
                "INSERT INTO pc_artifact_processing_pending \
                 (binding_name, scope_id, source_through, flush_generation, handled_flush_generation) \
                 VALUES ('{}', '{scope}', 1, 2, 1)",
                key(&scope).binding
            ))
            .await;
        pending::settle(&database.store, &fence, &key(&scope)).await.unwrap();
        assert_eq!(row(&database, &scope).await, None);
        database.capture(&scope, 1).await;
        pending::flush(&database.store, &key(&scope)).await.unwrap();
        pending::settle(&database.store, &fence, &key(&scope)).await.unwrap();
        assert_eq!(row(&database, &scope).await, Some((2, 1, 0)));
    }
}

#[tokio::test]
async fn pages_are_ascending_bounded_and_hold_unanswered_flushes_only() {
    // TM-174
    for database in databases().await {
        let mut flushed = Vec::new();
        for number in 0..9 {
            let scope = database.scope(&number.to_string()).await;
            database.capture(&scope, 1).await;
            if number % 3 != 0 {
                pending::flush(&database.store, &key(&scope)).await.unwrap();
                flushed.push(key(&scope));
            }
        }
        flushed.sort();
        let store = database.reopened().await;
        let mut seen = Vec::new();
        loop {
            let page = pending::page(&store, seen.last(), 4).await.unwrap();
            assert!(page.len() <= 4);
            if page.is_empty() {
                break;
            }
            seen.extend(page.into_iter().map(|fact| fact.key));
        }
        assert_eq!(seen, flushed);
    }
}

#[tokio::test]
async fn a_key_is_known_as_long_as_it_has_a_row_whether_its_flushes_are_answered_or_not() {
    for database in databases().await {
        let (scope, other) = (database.scope("a").await, database.scope("b").await);
        for scope in [&scope, &other] {
            database.capture(scope, 2).await;
            pending::flush(&database.store, &key(scope)).await.unwrap();
        }
        let unanswered = pending::get(&database.store, &key(&scope)).await.unwrap().unwrap();
        assert_eq!(
            unanswered,
            pending::page(&database.store, None, 9)
                .await
                .unwrap()
                .into_iter()
                .find(|fact| fact.key == key(&scope))
                .unwrap()
        );
        database.run("UPDATE pc_artifact_processing_pending SET handled_flush_generation = 1").await;
        assert_eq!(pending::page(&database.store, None, 9).await.unwrap(), []);
        let answered = pending::get(&database.store, &key(&scope)).await.unwrap().unwrap();
        assert_eq!(answered.handled_flush_generation, FlushGeneration::new(1));
        database.run("DELETE FROM pc_artifact_processing_pending").await;
        assert_eq!(pending::get(&database.store, &key(&scope)).await.unwrap(), None);
    }
}
