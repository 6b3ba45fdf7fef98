use powercontext_core::ids::{Position, Revision};
use powercontext_core::topic::TopicRef;
use powercontext_core::work::{ErrorCode, Frontier};

use super::{artifact, create, databases, key, prepared, request};
use crate::database::{Engine, values};
use crate::publish::{PublishError, PublishRequest, TopicOperation, publish};
use crate::{budgets, cursors, leases, topics};

fn update(name: &str, revision: i64, title: &str, detail: &str) -> TopicOperation {
    let target = TopicRef { artifact_id: artifact(name), revision: Revision::new(revision) };
    TopicOperation::Update { target, topic: prepared(title, "Summary", detail) }
}

fn topic_ref(name: &str, revision: i64) -> TopicRef {
    TopicRef { artifact_id: artifact(name), revision: Revision::new(revision) }
}

#[tokio::test]
async fn a_window_publishes_all_of_its_topics_with_cursor_and_lineage_at_once() {
    // TM-148 TM-157 TM-158 TM-160 TM-076
    for database in databases().await {
        let scope = database.scope("a").await;
        database.publish(&scope, vec![create("one", "First", "Summary", "kestrel")]).await;
        let through = database.capture(&scope, 1).await.get();
        let fence = leases::current(&database.store).await.unwrap().unwrap();
        let attempt = database.attempt(&fence, &key(&scope), through - 1).await;
        let operations =
            vec![update("one", 1, "First again", "osprey"), create("two", "Second", "S", "merlin")];
        let published =
            publish(&database.store, &request(attempt.clone(), through, operations)).await.unwrap();
        assert_eq!(published.created, [topic_ref("two", 1)]);
        assert_eq!(published.updated, [topic_ref("one", 2)]);
        assert_eq!(cursors::get(&database.store, &key(&scope)).await.unwrap(), Position::new(through));
        assert_eq!(budgets::get(&database.store, &attempt.frontier).await.unwrap(), None);
        let current =
            topics::current(&database.store, &scope, &[artifact("two"), artifact("x"), artifact("one")])
                .await;
        let current: Vec<_> = current.unwrap().into_iter().map(|(topic, _)| topic).collect();
        assert_eq!(current, [topic_ref("two", 1), topic_ref("one", 2)]);
        let dump = database.dump().await;
        assert_eq!(dump["pc_artifact_lineage_artifacts"].len(), 1);
        assert_eq!(dump["pc_artifact_lineage_sources"].len(), 3);
    }
}

#[tokio::test]
async fn an_old_revision_keeps_its_content_sources_and_publication_time() {
    // TM-150 TM-278 TM-238 B-19
    for database in databases().await {
        let (scope, other) = (database.scope("a").await, database.scope("b").await);
        database.publish(&scope, vec![create("one", "First", "Summary", "kestrel")]).await;
        let first = topics::get(&database.store, &scope, &topic_ref("one", 1)).await.unwrap().unwrap();
        assert!(first.published_at.ends_with('Z') && first.published_at.len() == 24, "{first:?}");
        database
            .run("UPDATE pc_topic_memory_revision_publications SET published_at = '2001-02-03T04:05:06.789Z'")
            .await;
        database.publish(&scope, vec![update("one", 1, "Renamed", "osprey")]).await;
        let old = topics::get(&database.store, &scope, &topic_ref("one", 1)).await.unwrap().unwrap();
        assert_eq!(old.published_at, "2001-02-03T04:05:06.789Z");
        assert_eq!((old.content, old.sources), (first.content, first.sources));
        let new = topics::get(&database.store, &scope, &topic_ref("one", 2)).await.unwrap().unwrap();
        assert_eq!(new.content.title, "Renamed");
        assert_ne!(new.published_at, old.published_at);
        assert_eq!(topics::get(&database.store, &scope, &topic_ref("one", 3)).await.unwrap(), None);
        assert_eq!(topics::get(&database.store, &other, &topic_ref("one", 1)).await.unwrap(), None);
    }
}

#[tokio::test]
async fn every_failure_leaves_every_table_as_it_was() {
    // TM-072 TM-155 TM-158 TM-173 TM-272 TM-273 TM-274
    for database in databases().await {
        let scope = database.scope("a").await;
        database.publish(&scope, vec![create("one", "First", "Summary", "kestrel")]).await;
        let through = database.capture(&scope, 2).await.get();
        let fence = leases::current(&database.store).await.unwrap().unwrap();
        let attempt = database.attempt(&fence, &key(&scope), 1).await;
        let good = || vec![create("two", "Second", "S", "merlin"), update("one", 1, "Renamed", "osprey")];
        let mut forged_terms = good();
        let mut lost_chunk = good();
        if let TopicOperation::Create { topic, .. } = &mut forged_terms[0] {
            topic.projection.topic_terms.push_str(" forged");
        }
        if let TopicOperation::Update { topic, .. } = &mut lost_chunk[1] {
            topic.projection.chunks.pop();
        }
        let mut other_attempt = attempt.clone();
        other_attempt.attempt_id = powercontext_core::ids::AttemptId::parse("other").unwrap();
        let mut other_holder = attempt.clone();
        other_holder.fence.holder = powercontext_core::ids::HolderId::parse("other").unwrap();
        let mut other_term = attempt.clone();
        other_term.fence.generation = fence.generation.next();
        let mut other_frontier = request(attempt.clone(), through, good());
        other_frontier.window.after = Position::new(2);
        let with = |operations| request(attempt.clone(), through, operations);
        let past_the_wave = PublishRequest { wave_target: Position::new(through - 1), ..with(good()) };
        let stale = vec![create("two", "Second", "S", "merlin"), update("one", 2, "Renamed", "osprey")];
        let taken = vec![create("two", "Second", "S", "merlin"), create("one", "Again", "S", "osprey")];
        let unknown = vec![create("two", "Second", "S", "merlin"), update("nine", 1, "Renamed", "osprey")];
        let twice = vec![update("one", 1, "Renamed", "osprey"), update("one", 1, "Renamed", "osprey")];
        let cases = [
            ("forged terms", with(forged_terms), ErrorCode::DataInvalid),
            ("lost chunk", with(lost_chunk), ErrorCode::DataInvalid),
            ("one topic twice", with(twice), ErrorCode::DataInvalid),
            ("empty window", request(attempt.clone(), 1, good()), ErrorCode::DataInvalid),
            ("backward window", request(attempt.clone(), 0, good()), ErrorCode::DataInvalid),
            ("window past its wave", past_the_wave, ErrorCode::DataInvalid),
            ("other holder", request(other_holder, through, good()), ErrorCode::Fenced),
            ("other term", request(other_term, through, good()), ErrorCode::Fenced),
            ("other attempt", request(other_attempt, through, good()), ErrorCode::AttemptSuperseded),
            ("window of another frontier", other_frontier, ErrorCode::CursorConflict),
            ("stale head", with(stale), ErrorCode::HeadConflict),
            ("identity taken", with(taken), ErrorCode::HeadConflict),
            ("unknown topic", with(unknown), ErrorCode::HeadConflict),
        ];
        let before = database.dump().await;
        for (name, request, code) in cases {
            let error = publish(&database.store, &request).await.unwrap_err();
            assert_eq!(error.code(), code, "{name}: {error:?}");
            assert_eq!(database.dump().await, before, "{name}");
        }
        database.run("UPDATE pc_source_cursors SET position = 2").await;
        let before = database.dump().await;
        let moved = publish(&database.store, &with(good())).await;
        assert!(matches!(moved, Err(PublishError::CursorConflict { .. })), "{moved:?}");
        assert_eq!(database.dump().await, before);
        assert!(budgets::get(&database.store, &attempt.frontier).await.unwrap().is_some());
        database.run("UPDATE pc_source_cursors SET position = 1").await;
        publish(&database.store, &with(good())).await.unwrap();
    }
}

#[tokio::test]
async fn a_failure_in_the_last_statement_undoes_everything_before_it() {
    // TM-158 TM-159
    for database in databases().await {
        let scope = database.scope("a").await;
        database.capture(&scope, 1).await;
        let fence = database.term().await;
        let attempt = database.attempt(&fence, &key(&scope), 0).await;
        for (table, event) in [
            ("pc_topic_memory_active_chunks", "INSERT"),
            ("pc_topic_memory_revision_publications", "INSERT"),
            ("pc_topic_memory_scope_statistics", "UPDATE"),
            ("pc_artifact_processing_pending", "DELETE"),
            ("pc_topic_memory_work_budgets", "DELETE"),
            ("pc_artifact_processing_leases", "UPDATE"),
        ] {
            let broken = match database.engine() {
                Engine::Sqlite => "BEGIN SELECT RAISE(ABORT, 'broken'); END",
                Engine::OceanBase => "FOR EACH ROW BEGIN SIGNAL SQLSTATE '45000'; END",
            };
            let trigger = format!("CREATE TRIGGER broken BEFORE {event} ON {table} {broken}");
            database.run(&trigger).await;
            let before = database.dump().await;
            let operations = vec![create("two", "Second", "S", "merlin")];
            let failed = publish(&database.store, &request(attempt.clone(), 1, operations)).await;
            assert!(matches!(failed, Err(PublishError::Store(_))), "{table}: {failed:?}");
            assert_eq!(database.dump().await, before, "{table}");
            database.run("DROP TRIGGER broken").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_processes_publishing_one_window_exactly_one_wins() {
    // TM-004 TM-075 TM-272
    for database in databases().await {
        let scope = database.scope("a").await;
        database.capture(&scope, 1).await;
        let fence = database.term().await;
        let attempt = database.attempt(&fence, &key(&scope), 0).await;
        let other = database.reopened().await;
        let one = request(attempt.clone(), 1, vec![create("one", "One", "S", "kestrel")]);
        let two = request(attempt.clone(), 1, vec![create("two", "Two", "S", "osprey")]);
        let (first, second) = tokio::join!(publish(&database.store, &one), publish(&other, &two));
        assert_ne!(first.is_ok(), second.is_ok(), "{first:?} {second:?}");
        let dump = database.dump().await;
        assert_eq!(dump["pc_artifacts"].len(), 1);
        assert_eq!(dump["pc_topic_memory_active_topics"].len(), 1);
        let frontier = Frontier { key: key(&scope), source_after: Position::default() };
        assert_eq!(budgets::get(&database.store, &frontier).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_window_outside_its_wave_and_a_topic_named_twice_are_told_apart() {
    // TM-155 TM-166
    for database in databases().await {
        let scope = database.scope("a").await;
        database.capture(&scope, 2).await;
        let fence = database.term().await;
        let attempt = database.attempt(&fence, &key(&scope), 0).await;
        let twice = vec![create("one", "One", "S", "kestrel"), create("one", "One", "S", "kestrel")];
        let refused = publish(&database.store, &request(attempt.clone(), 2, twice)).await;
        assert!(matches!(refused, Err(PublishError::TopicNamedTwice { .. })), "{refused:?}");
        for (through, wave_target) in [(0, 2), (-1, 2), (2, 1)] {
            let good = request(attempt.clone(), through, Vec::new());
            let request = PublishRequest { wave_target: Position::new(wave_target), ..good };
            let refused = publish(&database.store, &request).await;
            assert!(matches!(refused, Err(PublishError::InvalidWindow { .. })), "{refused:?}");
        }
    }
}

#[tokio::test]
async fn a_publish_writes_its_rows_in_the_order_every_transaction_locks_them() {
    // TM-158 TM-186: on a database with several writers each write is the lock of its row.
    for database in databases().await {
        let scope = database.scope("a").await;
        database.publish(&scope, vec![create("one", "One", "S", "kestrel")]).await;
        database.capture(&scope, 1).await;
        let fence = leases::current(&database.store).await.unwrap().unwrap();
        let attempt = database.attempt(&fence, &key(&scope), 1).await;
        let (table, note) = match database.engine() {
            Engine::Sqlite => ("at INTEGER PRIMARY KEY, what TEXT", "BEGIN"),
            Engine::OceanBase => {
                ("at BIGINT AUTO_INCREMENT PRIMARY KEY, what LONGTEXT", "FOR EACH ROW BEGIN")
            }
        };
        database.run(&format!("CREATE TABLE written ({table})")).await;
        for (table, event) in [
            ("pc_topic_memory_work_budgets", "UPDATE"),
            ("pc_source_cursors", "UPDATE"),
            ("pc_artifact_heads", "UPDATE"),
            ("pc_artifact_processing_pending", "UPDATE"),
            ("pc_topic_memory_work_budgets", "DELETE"),
            ("pc_artifact_processing_leases", "UPDATE"),
        ] {
            database
                .run(&format!(
                    "CREATE TRIGGER note_{table}_{event} AFTER {event} ON {table} {note} \
                     INSERT INTO written (what) VALUES ('{event} {table}'); END"
                ))
                .await;
        }
        let operations = vec![update("one", 1, "Renamed", "osprey")];
        publish(&database.store, &request(attempt, 2, operations)).await.unwrap();
        let mut reader = database.store.database.read().await.unwrap();
        let rows = reader.query("SELECT what FROM written ORDER BY at", values![]).await.unwrap();
        let written: Vec<String> = rows.iter().map(|row| row.text(0).unwrap()).collect();
        assert_eq!(
            written,
            [
                "UPDATE pc_topic_memory_work_budgets",
                "UPDATE pc_source_cursors",
                "UPDATE pc_artifact_heads",
                "UPDATE pc_artifact_processing_pending",
                "DELETE pc_topic_memory_work_budgets",
                "UPDATE pc_artifact_processing_leases"
            ]
        );
    }
}
