//! Waves complete while Sources are captured, flushed and published: nothing that is not processed is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use powercontext_core::ids::{AttemptId, FlushGeneration, Position};
use powercontext_core::work::Frontier;

use super::*;
use crate::Store;
use crate::budgets::{AttemptFence, AttemptStart, start_attempt};
use crate::database::values;
use crate::sources;

const ROUNDS: usize = 25;

/// Publishes everything of a key up to `target`, as one worker would; `false` when another was faster.
async fn process(store: &Store, fence: &Fence, scope: &ScopeId, window: (Position, WorkMode, i64)) -> bool {
    let (target, mode, claimed) = window;
    let after = cursors::get(store, &key(scope)).await.unwrap();
    if after >= target {
        return true;
    }
    let attempt_id =
        AttemptId::parse(format!("{scope}-{}-{claimed}-{}", after.get(), mode.as_str())).unwrap();
    let frontier = Frontier { key: key(scope), source_after: after };
    let started = start_attempt(store, fence, &frontier, &attempt_id).await.unwrap();
    if !matches!(started, AttemptStart::Started { .. }) {
        return false;
    }
    let attempt = AttemptFence { fence: fence.clone(), frontier, attempt_id };
    let request = PublishRequest {
        mode,
        claimed_flush_generation: FlushGeneration::new(claimed),
        ..request(attempt, target.get(), Vec::new())
    };
    publish(store, &request).await.is_ok()
}

/// Forms, covers and completes one wave.
async fn run_wave(store: &Store, fence: &Fence, name: &str) -> bool {
    let wave = wave(name);
    let frozen = waves::freeze(store, fence, &wave, Duration::ZERO).await.unwrap();
    if frozen == Freeze::NothingPending {
        return false;
    }
    loop {
        for row in waves::targets(store, &wave, None, 99).await.unwrap() {
            process(store, fence, &row.fact.key.scope, (row.target, WorkMode::Automatic, 0)).await;
        }
        match waves::complete(store, fence, &wave).await.unwrap() {
            Completion::Completed { .. } => return true,
            Completion::Uncovered => {}
            Completion::Gone => panic!("nobody else completes or clears"),
        }
    }
}

/// Scopes whose Sources are not all processed and that no Pending row knows in full.
async fn forgotten(database: &TestDatabase) -> Vec<String> {
    let mut reader = database.store.database.read().await.unwrap();
    let text = "SELECT journal.scope_id FROM pc_source_journals AS journal \
        LEFT JOIN pc_source_cursors AS place ON place.scope_id = journal.scope_id \
        LEFT JOIN pc_artifact_processing_pending AS pending ON pending.scope_id = journal.scope_id \
        WHERE coalesce(place.position, 0) < journal.head AND coalesce(pending.source_through, 0) <> journal.head";
    let rows = reader.query(text, values![]).await.unwrap();
    rows.iter().map(|row| row.text(0).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn captures_at_the_same_time_as_completions_keep_their_pending_rows() {
    // TM-024 TM-170 TM-208 TM-214
    for database in databases().await {
        let fence = database.term().await;
        let done = Arc::new(AtomicBool::new(false));
        let mut writers = Vec::new();
        for number in 0..4 {
            let scope = database.scope(&format!("s{number}")).await;
            let (store, done) = (database.reopened().await, Arc::clone(&done));
            writers.push(tokio::spawn(async move {
                let mut captured = 0;
                while !done.load(Ordering::Relaxed) {
                    let new = crate::tests::new_source(&scope, &format!("{captured}"), "text");
                    sources::add(&store, &new).await.unwrap();
                    captured += 1;
                }
                captured
            }));
        }
        let (mut completed, mut asked) = (0, 0);
        while completed < ROUNDS {
            completed += usize::from(run_wave(&database.store, &fence, &format!("w{asked}")).await);
            asked += 1;
            assert_eq!(forgotten(&database).await, [""; 0]);
        }
        done.store(true, Ordering::Relaxed);
        let mut captured = 0;
        for writer in writers {
            captured += writer.await.unwrap();
        }
        assert!(captured >= ROUNDS, "{captured} captures");
        assert_eq!(forgotten(&database).await, [""; 0]);
        assert!(run_wave(&database.store, &fence, "last").await);
        assert_eq!(database.dump().await["pc_artifact_processing_pending"], [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn flushes_and_explicit_windows_at_the_same_time_as_completions_stay_answered_or_pending() {
    // TM-167 TM-170 TM-210 TM-214
    for database in databases().await {
        let fence = database.term().await;
        let mut explicit = Vec::new();
        for number in 0..3 {
            let scope = database.scope(&format!("s{number}")).await;
            let (store, fence) = (database.reopened().await, fence.clone());
            explicit.push(tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let new = crate::tests::new_source(&scope, &format!("{round}"), "text");
                    sources::add(&store, &new).await.unwrap();
                    pending::flush(&store, &key(&scope)).await.unwrap();
                    // Until the flush is answered, by this Window or by the row's settlement.
                    while let Some(fact) = pending::get(&store, &key(&scope)).await.unwrap() {
                        if fact.handled_flush_generation == fact.flush_generation {
                            break;
                        }
                        let claimed = fact.flush_generation.get();
                        process(&store, &fence, &scope, (fact.source_through, WorkMode::Explicit, claimed))
                            .await;
                        if fact.cursor >= fact.source_through {
                            pending::settle(&store, &fence, &key(&scope)).await.unwrap();
                        }
                    }
                    assert!(cursors::get(&store, &key(&scope)).await.unwrap().get() > 0);
                }
            }));
        }
        let mut number = 0;
        while explicit.iter().any(|task| !task.is_finished()) {
            run_wave(&database.store, &fence, &format!("w{number}")).await;
            number += 1;
            assert_eq!(forgotten(&database).await, [""; 0]);
        }
        for task in explicit {
            task.await.unwrap();
        }
        assert!(number > 3, "{number} waves");
        run_wave(&database.store, &fence, "last").await;
        let dump = database.dump().await;
        assert_eq!(dump["pc_artifact_processing_pending"], [""; 0]);
        assert_eq!(forgotten(&database).await, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_freeze_that_is_repeated_while_its_first_try_still_commits_has_every_target_once() {
    // TM-207
    for database in databases().await {
        if database.engine() == Engine::Sqlite {
            continue;
        }
        let fence = database.term().await;
        let scopes = [database.scope("a").await, database.scope("b").await];
        for scope in &scopes {
            database.capture(scope, 2).await;
        }
        let mut first = database.store.database.write().await.unwrap();
        let binding = key(&scopes[0]).binding;
        let parameters = values![wave("one").id.as_str(), binding.as_str()];
        assert_eq!(first.execute(waves::FREEZE, parameters).await.unwrap(), 2);
        let again = tokio::spawn({
            let (store, fence) = (database.reopened().await, fence.clone());
            async move { waves::freeze(&store, &fence, &wave("one"), Duration::ZERO).await.unwrap() }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!again.is_finished());
        first.commit().await.unwrap();
        assert_eq!(again.await.unwrap(), Freeze::Frozen { members: 2 });
        let targets = waves::targets(&database.store, &wave("one"), None, 9).await.unwrap();
        assert_eq!(targets.iter().map(|row| row.target.get()).collect::<Vec<_>>(), [2, 2]);
    }
}
