use powercontext_core::ambient::SystemIds;

use super::databases;
use crate::database::{Database, Engine, Twin, values};
use crate::migrations::{self, Completeness, MIGRATIONS, Migration};
use crate::{OpenError, SearchVersions, Store, migrate, scopes};

#[tokio::test]
async fn migrating_again_changes_nothing() {
    // TM-077
    for database in databases().await {
        let before = database.dump().await;
        let report = migrate(&database.options, &SystemIds).await.unwrap();
        assert_eq!((report.applied, report.current), (Vec::new(), 2));
        assert_eq!(database.dump().await, before);
    }
}

#[tokio::test]
async fn a_fresh_database_has_the_default_scope_and_nothing_else() {
    for database in databases().await {
        let default = scopes::default(&database.store).await.unwrap().unwrap();
        assert_eq!((default.title.as_str(), default.summary.as_str()), ("Default", "Default context"));
        let all = scopes::list(&database.store, &Default::default(), None, 10).await.unwrap();
        assert_eq!(all, [default]);
    }
}

#[tokio::test]
async fn a_missing_database_is_refused_and_not_made() {
    for database in databases().await {
        let (options, _place) = database.beside("missing.db");
        for _ in 0..2 {
            let refused = Store::open(&options).await;
            match database.engine() {
                Engine::Sqlite => assert!(matches!(refused, Err(OpenError::SchemaMissing)), "{refused:?}"),
                Engine::OceanBase => {
                    assert!(matches!(refused, Err(OpenError::DatabaseMissing)), "{refused:?}")
                }
            }
        }
        assert!(options.url.path().is_none_or(|path| !path.exists()));
    }
}

#[tokio::test]
async fn a_newer_a_changed_and_an_older_schema_are_each_refused_by_name() {
    for database in databases().await {
        database
            .run("INSERT INTO pc_schema_migrations VALUES (99, 'later', 'x', '2030-01-01T00:00:00.000Z')")
            .await;
        assert!(matches!(
            Store::open(&database.options).await,
            Err(OpenError::SchemaNewer { found: 99, known: 2 })
        ));
        assert!(matches!(
            migrate(&database.options, &SystemIds).await,
            Err(OpenError::SchemaNewer { found: 99, known: 2 })
        ));
        database.run("DELETE FROM pc_schema_migrations WHERE number = 99").await;
        database.run("UPDATE pc_schema_migrations SET checksum = 'other'").await;
        assert!(matches!(
            Store::open(&database.options).await,
            Err(OpenError::MigrationChanged { number: 1 })
        ));
        database.run("DELETE FROM pc_schema_migrations").await;
        assert!(matches!(Store::open(&database.options).await, Err(OpenError::SchemaMissing)));
    }
}

#[tokio::test]
async fn another_retrieval_shape_is_refused_and_a_missing_one_is_written_only_without_topics() {
    // TM-149 TM-257 B-20
    for database in databases().await {
        database.run("UPDATE pc_topic_memory_retrieval_shape SET shape = 'hybrid'").await;
        assert!(matches!(Store::open(&database.options).await, Err(OpenError::RetrievalShape { .. })));
        assert!(matches!(
            migrate(&database.options, &SystemIds).await,
            Err(OpenError::RetrievalShape { .. })
        ));
        database.run("DELETE FROM pc_topic_memory_retrieval_shape").await;
        migrate(&database.options, &SystemIds).await.unwrap();
        Store::open(&database.options).await.unwrap();
        let scope = database.scope("a").await;
        database.publish(&scope, vec![super::create("t", "Title", "Summary", "Detail")]).await;
        database.run("DELETE FROM pc_topic_memory_retrieval_shape").await;
        assert!(matches!(
            migrate(&database.options, &SystemIds).await,
            Err(OpenError::RetrievalShape { .. })
        ));
    }
}

/// The known migrations and one that no program has yet.
fn with_one_more() -> Vec<Migration> {
    let later = Migration {
        number: 3,
        name: "later",
        text: Twin {
            sqlite: "ALTER TABLE pc_sources ADD COLUMN later TEXT; CREATE INDEX later ON pc_sources (later)",
            oceanbase: "ALTER TABLE pc_sources ADD COLUMN later VARCHAR(9);\n\
                CREATE INDEX later ON pc_sources (later) LOCAL;\n",
        },
    };
    let known = MIGRATIONS.iter().map(|one| Migration { number: one.number, name: one.name, text: one.text });
    known.chain([later]).collect()
}

async fn compared(
    database: &Database,
    known: &[Migration],
    completeness: Completeness,
) -> Result<(), OpenError> {
    let mut reader = database.snapshot().await.unwrap();
    let applied = migrations::applied(&mut reader).await.unwrap();
    migrations::compare((known, database.engine()), &applied, completeness)
}

/// Everything that makes a schema: its objects with their texts, and the columns of each table.
async fn schema(database: &Database) -> Vec<String> {
    let mut reader = database.snapshot().await.unwrap();
    let rows = reader.query(SCHEMA, values![]).await.unwrap();
    rows.iter().map(|row| row.text(0).unwrap()).collect()
}

const SCHEMA: Twin = Twin {
    sqlite: "SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_master UNION ALL \
        SELECT part.name || ' ' || info.cid || ' ' || info.name || ' ' || info.type || info.\"notnull\" \
        FROM sqlite_master AS part, pragma_table_info(part.name) AS info UNION ALL \
        SELECT number || ' ' || name || ' ' || checksum FROM pc_schema_migrations ORDER BY 1",
    oceanbase: "SELECT concat_ws(' ', table_name, ordinal_position, column_name, column_type, is_nullable, \
          coalesce(column_default, ''), collation_name, extra) AS part \
        FROM information_schema.columns WHERE table_schema = database() UNION ALL \
        SELECT concat_ws(' ', table_name, index_name, seq_in_index, column_name, non_unique, index_type) \
        FROM information_schema.statistics WHERE table_schema = database() \
          AND left(column_name, 2) <> '__' UNION ALL \
        SELECT concat_ws(' ', number, name, checksum) FROM pc_schema_migrations ORDER BY part",
};

#[tokio::test]
async fn a_schema_that_lacks_the_newest_migration_is_behind() {
    // TM-077
    for database in databases().await {
        let known = with_one_more();
        let behind = compared(&database.store.database, &known, Completeness::MustBeComplete).await;
        assert!(matches!(behind, Err(OpenError::SchemaBehind { found: 2, needed: 3 })), "{behind:?}");
        compared(&database.store.database, &known, Completeness::MayLag).await.unwrap();
        assert_eq!(migrations::apply_missing(&database.store.database, &known).await.unwrap(), [3]);
        compared(&database.store.database, &known, Completeness::MustBeComplete).await.unwrap();
        let newer = Store::open(&database.options).await;
        assert!(matches!(newer, Err(OpenError::SchemaNewer { found: 3, known: 2 })), "{newer:?}");
    }
}

#[tokio::test]
async fn a_database_migrated_step_by_step_equals_a_fresh_one_and_keeps_its_rows() {
    // TM-077
    for database in databases().await {
        let scope = database.scope("a").await;
        database.publish(&scope, vec![super::create("t", "Title", "Summary", "Detail")]).await;
        let before = database.dump().await;
        let known = with_one_more();
        for steps in MIGRATIONS.len()..=known.len() {
            migrations::apply_missing(&database.store.database, &known[..steps]).await.unwrap();
        }
        let (options, place) = database.beside("fresh.db");
        let fresh = migrations::open_or_create(&options.target(true)).await.unwrap();
        assert_eq!(migrations::apply_missing(&fresh, &known).await.unwrap(), [1, 2, 3]);
        let (stepwise, at_once) = (schema(&database.store.database).await, schema(&fresh).await);
        let lock = |part: &&String| !part.starts_with("pc_schema_lock ");
        assert_eq!(stepwise.iter().filter(lock).collect::<Vec<_>>(), at_once.iter().collect::<Vec<_>>());
        fresh.close().await;
        drop(place);
        let after = database.dump().await;
        for table in
            before.keys().filter(|table| !["pc_sources", "pc_schema_migrations"].contains(&table.as_str()))
        {
            assert_eq!(before[table], after[table], "{table}");
        }
        assert_eq!(before["pc_sources"].len(), after["pc_sources"].len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn migrations_at_once_make_one_default_scope_and_one_does_the_work() {
    // TM-077
    for database in databases().await {
        let rounds = if database.engine() == Engine::Sqlite { 8 } else { 1 };
        for round in 0..rounds {
            let (options, place) = database.beside(&format!("{round}.db"));
            let runs: Vec<_> = (0..4)
                .map(|_| {
                    let options = options.clone();
                    tokio::spawn(async move { migrate(&options, &SystemIds).await })
                })
                .collect();
            let mut applied = 0;
            for run in runs {
                applied += run.await.unwrap().unwrap().applied.len();
            }
            assert_eq!(applied, MIGRATIONS.len());
            let store = Store::open(&options).await.unwrap();
            let all = scopes::list(&store, &Default::default(), None, 10).await.unwrap();
            assert_eq!(all.len(), 1, "{all:?}");
            assert_eq!(scopes::default(&store).await.unwrap().as_ref(), all.first());
            store.close().await;
            drop(place);
        }
    }
}

#[tokio::test]
async fn search_records_of_another_analyzer_or_chunk_policy_are_refused_while_there_are_topics() {
    // TM-257
    for column in ["analyzer_version", "chunk_policy_version"] {
        for database in databases().await {
            let other = format!("UPDATE pc_topic_memory_retrieval_shape SET {column} = {column} + 1");
            database.run(&other).await;
            let refused = Store::open(&database.options).await;
            let Err(OpenError::SearchRecords { found, needed }) = refused else { panic!("{refused:?}") };
            assert_eq!(needed, SearchVersions { analyzer: 1, chunk_policy: 1 });
            assert_eq!(found.analyzer + found.chunk_policy, 3);
            migrate(&database.options, &SystemIds).await.unwrap();
            let store = Store::open(&database.options).await.unwrap();
            store.close().await;
            let scope = database.scope("a").await;
            database.publish(&scope, vec![super::create("t", "Title", "Summary", "Detail")]).await;
            migrate(&database.options, &SystemIds).await.unwrap();
            database.run(&other).await;
            let before = database.dump().await;
            for refused in [
                Store::open(&database.options).await.map(drop),
                migrate(&database.options, &SystemIds).await.map(drop),
            ] {
                assert!(matches!(refused, Err(OpenError::SearchRecords { .. })), "{refused:?}");
            }
            assert_eq!(database.dump().await, before);
        }
    }
}

#[tokio::test]
async fn an_identity_column_that_does_not_compare_by_bytes_is_refused() {
    for database in databases().await {
        if database.engine() == Engine::Sqlite {
            continue;
        }
        database
            .run("CREATE TABLE pc_later (scope_id VARCHAR(256) COLLATE utf8mb4_general_ci PRIMARY KEY)")
            .await;
        let column = "pc_later.scope_id";
        for refused in [
            Store::open(&database.options).await.map(|_| ()),
            migrate(&database.options, &SystemIds).await.map(|_| ()),
        ] {
            assert!(
                matches!(&refused, Err(OpenError::Collation { column: found, .. }) if found == column),
                "{refused:?}"
            );
        }
        database.run("DROP TABLE pc_later").await;
        Store::open(&database.options).await.unwrap();
    }
}

#[tokio::test]
async fn a_migration_that_was_interrupted_continues() {
    for database in databases().await {
        if database.engine() == Engine::Sqlite {
            continue;
        }
        let before = database.dump().await;
        for table in [
            "pc_artifact_processing_binding_states",
            "pc_topic_memory_active_chunks",
            "pc_sources",
            "pc_default_scope",
        ] {
            database.run(&format!("DROP TABLE {table}")).await;
        }
        database.run("DELETE FROM pc_scopes").await;
        database.run("DELETE FROM pc_source_journals").await;
        database.run("DELETE FROM pc_schema_migrations").await;
        assert!(matches!(Store::open(&database.options).await, Err(OpenError::SchemaMissing)));
        assert_eq!(migrate(&database.options, &SystemIds).await.unwrap().applied, [1, 2]);
        let tables = |dump: &std::collections::BTreeMap<String, Vec<String>>| {
            dump.iter().map(|(table, rows)| (table.clone(), rows.len())).collect::<Vec<_>>()
        };
        assert_eq!(tables(&database.dump().await), tables(&before));
    }
}

#[tokio::test]
async fn a_migration_that_dies_between_any_two_statements_is_continued() {
    // TM-077
    for database in databases().await {
        if database.engine() == Engine::Sqlite {
            continue;
        }
        let (options, _place) = database.beside("repeated.db");
        let repeated = migrations::open_or_create(&options.target(true)).await.unwrap();
        let mut session = repeated.session().await.unwrap();
        session.execute(migrations::HISTORY, values![]).await.unwrap();
        let statements: Vec<&str> =
            MIGRATIONS.iter().flat_map(|one| migrations::statements(one.text.oceanbase)).collect();
        assert!(statements.len() > 20);
        // Each one again after the next: a run dies after any of them, and the next begins at the first.
        for (one, next) in statements.iter().zip(statements.iter().skip(1).chain(&[""])) {
            for text in [one, one, next, one] {
                if !text.is_empty() {
                    session.command((*text).to_owned()).await.unwrap();
                }
            }
        }
        drop(session);
        assert_eq!(migrate(&options, &SystemIds).await.unwrap().applied.len(), MIGRATIONS.len());
        assert_eq!(schema(&repeated).await, schema(&database.store.database).await);
        repeated.close().await;
    }
}
